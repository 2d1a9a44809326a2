package launcher

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// exitAs ends the launcher the way the workload ended: with its code, or by its signal. It does not return.
func exitAs(status syscall.WaitStatus) {
	if !status.Signaled() {
		os.Exit(status.ExitStatus())
	}
	sig := status.Signal()
	// The workload has dumped its core; the launcher's would be a second one. A dump that a core_pattern pipes to a
	// program ignores the limit, but not this attribute. The limit concerns the core only: an explicit change of the
	// open-files limit would reach children.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	sigaction(int(sig), &kernelAction{handler: sigDfl}, nil)
	unblock(sig)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
	// Still here: process 1 of a container, which no signal of its own kills.
	os.Exit(128 + int(sig))
}

// unblock lets a signal through to the calling thread, which must be locked.
func unblock(sig syscall.Signal) {
	var set unix.Sigset_t
	set.Val[(sig-1)/64] = 1 << ((sig - 1) % 64)
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil)
}
