// Command graphsignal-run runs a program under the profiler.
package main

import (
	"os"
	"runtime"

	"github.com/graphsignal/graphsignal-collector/launcher"
)

func init() {
	// The kernel sends the workload SIGTERM when the thread that started it ends; the main thread never does before
	// the process.
	runtime.LockOSThread()
}

func main() {
	os.Exit(launcher.Main(os.Args[1:]))
}
