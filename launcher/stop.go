package launcher

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
)

const (
	// stopWindow is how long after a request to stop the workload's stop counts as its answer.
	stopWindow = 5 * time.Second
	// settleLimit bounds the wait for the last output before a stop, and for the workload to go on after it.
	settleLimit = 50 * time.Millisecond
)

// workloadStopped follows the workload into a stop that was asked of both, so that the shell takes the job for stopped
// and gets its terminal back, and comes back when the shell continues the job.
func (r *run) workloadStopped(sig syscall.Signal) {
	if (sig != syscall.SIGTSTP && sig != syscall.SIGSTOP) || time.Since(r.stopAsked) > stopWindow {
		return
	}
	r.stopAsked = time.Time{}
	// What the program wrote before it stopped belongs before the shell's prompt.
	waitFor(settleLimit, func() bool {
		for _, s := range r.streams {
			if s.pending() {
				return false
			}
		}
		return true
	})
	for _, s := range r.streams {
		if s.terminal != nil {
			waitFor(settleLimit, s.terminal.inStep)
		}
	}
	r.msg.debug("the workload is stopped, and so is the launcher")
	sigaction(int(syscall.SIGTSTP), &kernelAction{handler: sigDfl}, nil)
	unblock(syscall.SIGTSTP)
	// In an orphaned process group, which nobody could continue, the kernel ignores it.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGTSTP)
	r.signals.catch(1 << (syscall.SIGTSTP - 1))
	r.msg.debug("continued")
	r.resize(false)
	// The shell continues the whole group; somebody else may have continued the launcher alone.
	if !waitFor(settleLimit, func() bool { return !isStopped(r.workload.pid) }) {
		_ = r.workload.signal(caught{sig: syscall.SIGCONT})
	}
}

// waitFor polls a condition and reports whether it came true in time.
func waitFor(limit time.Duration, condition func() bool) bool {
	for end := time.Now().Add(limit); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// isStopped reads the state of a process.
func isStopped(pid int) bool {
	stat, err := procfs.NewReader(procfs.DefaultRoot).Stat(pid)
	return err == nil && stat.State == 'T'
}
