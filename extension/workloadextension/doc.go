// Package workloadextension follows the process tree of one program, tells receivers which processes belong to it, and
// ends the Collector with it.
//
// Under the launcher it also keeps the control socket: it tells the launcher when the Collector is ready and whether
// the /signals endpoint could be bound, and end of file there tells it to drain and exit.
package workloadextension
