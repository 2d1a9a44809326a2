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
	name, args := "", os.Args
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch name {
	case launcher.RelayName:
		os.Exit(launcher.Relay(args))
	case launcher.ActivateName:
		os.Exit(launcher.Activate(args))
	}
	os.Exit(launcher.Main(args))
}
