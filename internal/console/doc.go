// Package console finds errors in what a workload printed: it reads the launcher's console segments, recognises
// the log formats of inference engines and their libraries, and turns the lines into error entries.
//
// The way of a line: SegmentReader yields Records; a Parser hands their lines to an Extractor, which removes
// terminal escapes and worker prefixes, recognises the record (level and text), and groups a message with its
// traceback per (stream, worker, pid); a Condenser folds repeats and limits the rate. What comes out are Entries.
// Nothing here sleeps or reads a clock: times are arguments.
package console
