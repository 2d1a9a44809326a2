// Package workload is what the workload extension offers to receivers and exporters: which processes belong to
// the target, and a way to tell the launcher how the endpoint fares.
package workload

import (
	"errors"

	"go.opentelemetry.io/collector/component"
)

// ErrEnded is the fatal status by which the extension ends the Collector. It is the normal end of a run, although the
// Collector logs it as an error: what shows the Collector's own errors to users leaves it out.
var ErrEnded = errors.New("the workload has ended")

// Process is one process of the workload. PID and StartTicks identify it.
type Process struct {
	PID int
	// Root is the pid of the target, the top of the tree.
	Root int
	// StartTime is when it was created, epoch nanoseconds; 0 when it could not be read.
	StartTime int64
	// StartTicks is field 22 of /proc/<pid>/stat; with PID it tells a process from a later one of the same pid.
	StartTicks uint64
	// CommandLine is argv joined by single blanks, with secrets redacted. It changes with exec and setproctitle, and
	// is empty when it could not be read.
	CommandLine string
	// Ended says that the process is gone (or a zombie). Each Reader sees it so until Done, a descendant for ten
	// seconds at most.
	Ended bool
}

// Reader is one receiver's view of the process tree. Its methods may be called from any goroutine.
type Reader interface {
	// Processes lists the target first, then its descendants by pid: all that live, and those that ended since
	// this Reader's last Done for them. A target that had ended before the Collector started is listed too. The
	// list is the caller's own.
	Processes() []Process
	// Done says that this Reader has read what an ended process left. When all Readers have, its run directory is
	// removed; that of the target and its console stay until the pipelines have stopped.
	Done(p Process)
	// Close withdraws the Reader, so that nothing waits for it.
	Close()
}

// Extension is the workload extension as other components see it.
type Extension interface {
	component.Component
	// NewReader registers a Reader; receivers call it from Start.
	NewReader() Reader
	// EndpointBound and EndpointBindFailed report the state of the /signals endpoint to the launcher.
	EndpointBound(address string)
	EndpointBindFailed(address string, reason error)
}

// Warner is a workload extension that has a launcher, or another way to the user.
type Warner interface {
	// Warn says in one line what the user would not hear of otherwise: there is no /signals to read it in, or nobody
	// reads that any more. The same again is said once.
	Warn(text string)
}

// Warn tells the user through the workload extension of the host, where there is one.
func Warn(host component.Host, text string) {
	for _, ext := range host.GetExtensions() {
		if w, ok := ext.(Warner); ok {
			w.Warn(text)
		}
	}
}

// Find returns the workload extension of the host, or nil when the Collector runs without it.
func Find(host component.Host) Extension {
	for _, ext := range host.GetExtensions() {
		if w, ok := ext.(Extension); ok {
			return w
		}
	}
	return nil
}
