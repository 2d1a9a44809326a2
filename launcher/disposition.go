package launcher

import (
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Set by the entry point of startup_*.s, where the binary is linked with it.
var (
	ignoredAtStart uint64
	blockedAtStart uint64
	startNoted     bool
)

// signalSet has bit N-1 set for signal N.
type signalSet uint64

func (s signalSet) has(sig int) bool { return s&(1<<(sig-1)) != 0 }

// inheritedIgnored returns the signals that the launcher was started to ignore, without those whose handling belongs
// to Go's runtime. Without the noted start that is what the runtime left ignored.
func inheritedIgnored() signalSet {
	set := signalSet(ignoredAtStart)
	if !startNoted {
		for sig := 1; sig <= 64; sig++ {
			var action kernelAction
			if sigaction(sig, nil, &action) == 0 && action.handler == sigIgn {
				set |= 1 << (sig - 1)
			}
		}
	}
	for _, own := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, 32, 33, 34,
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGSTKFLT} {
		set &^= 1 << (own - 1)
	}
	return set
}

// ignore makes the dispositions of a set be ignored again, so that a child started now inherits them so. It tells Go's
// runtime too, which otherwise resets them in the child.
func ignore(set signalSet) {
	for sig := 1; sig <= 64; sig++ {
		if !set.has(sig) {
			continue
		}
		signal.Ignore(syscall.Signal(sig))
		sigaction(sig, &kernelAction{handler: sigIgn}, nil)
	}
}

// withInheritedMask runs start, which forks or executes, with the signals blocked that were so for the launcher. The
// thread must be locked.
func withInheritedMask(start func() error) error {
	if !startNoted {
		return start()
	}
	var inherited, old unix.Sigset_t
	inherited.Val[0] = blockedAtStart
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &inherited, &old); err != nil {
		return start()
	}
	err := start()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	return err
}

const (
	sigDfl = 0
	sigIgn = 1
)

// kernelAction is struct kernel_sigaction of the 64-bit Linux ports.
type kernelAction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// sigaction is rt_sigaction(2), behind the back of Go's runtime.
func sigaction(sig int, set, old *kernelAction) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)),
		uintptr(unsafe.Pointer(old)), unsafe.Sizeof(kernelAction{}.mask), 0, 0)
	return errno
}
