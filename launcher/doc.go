// Package launcher is graphsignal-run: it starts a program with the profiler's libraries in its environment, puts a
// Collector beside it, and otherwise stays out of the way: terminal, signals, streams, limits and exit status are
// those of the program.
//
// It is linked statically, without cgo, and imports no Collector package, so that it starts in a few milliseconds.
package launcher
