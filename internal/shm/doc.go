// Package shm reads the documents that the libraries inside a workload leave in shared memory: one directory a
// process, one JSON file a library, each file the full cumulative state since its writer started.
//
// The format is Graphsignal's shared-memory interchange, schema version 1. The parser takes documents of its 1.0
// and 1.1 writers and is lenient about what a reader can get over: any order of keys, unknown and repeated keys
// (the last one counts), text that is not UTF-8 (U+FFFD stands for it), numbers that are not finite. One bad
// entry costs that entry; only bytes that are no document at all, or not all of one, cost the file.
package shm
