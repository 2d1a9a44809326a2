package launcher

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const siginfoSize = 128

// Codes of siginfo that say where a signal came from.
const (
	codeUser   = 0
	codeKernel = 0x80 // the terminal, for the signals of a terminal
	codeQueue  = -1
)

// caught is a signal that reached the launcher.
type caught struct {
	sig  syscall.Signal
	code int32
	// sender is the pid in our namespace, 0 where the kernel sent it.
	sender int
	info   [siginfoSize]byte
}

// decodeSiginfo reads siginfo_t: si_signo, si_errno, si_code, four bytes of padding, then si_pid for what processes send.
func decodeSiginfo(record [siginfoSize]byte) caught {
	c := caught{
		sig:  syscall.Signal(binary.NativeEndian.Uint32(record[0:])),
		code: int32(binary.NativeEndian.Uint32(record[8:])),
		info: record,
	}
	if c.code <= codeUser {
		c.sender = int(int32(binary.NativeEndian.Uint32(record[16:])))
	}
	return c
}

// forwardedSignals are those that the launcher passes to the workload, and the terminal's stop.
var forwardedSignals = func() (set signalSet) {
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGTERM, syscall.SIGTSTP, syscall.SIGVTALRM, syscall.SIGPROF, syscall.SIGWINCH,
		syscall.SIGIO, syscall.SIGPWR} {
		set |= 1 << (sig - 1)
	}
	// The real-time signals; 32 and 33 belong to the C libraries.
	for sig := 34; sig <= 64; sig++ {
		set |= 1 << (sig - 1)
	}
	return set
}()

// process is a child that can be signalled without the danger that its pid has become another process.
type process struct {
	pid int
	// fd is a pidfd, -1 where the kernel has none.
	fd int
}

// signal passes on a signal. A value queued with it goes along.
func (p process) signal(c caught) error {
	if p.fd < 0 {
		return syscall.Kill(p.pid, c.sig)
	}
	var info *[siginfoSize]byte
	if c.code == codeQueue {
		info = &c.info
	}
	_, _, errno := syscall.Syscall6(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(p.fd), uintptr(c.sig), uintptr(unsafe.Pointer(info)), 0, 0, 0)
	switch {
	case errno == syscall.ENOSYS:
		return syscall.Kill(p.pid, c.sig)
	case errno == syscall.EPERM && info != nil:
		// Only a process's own queued signals may be sent on some kernels.
		return p.signal(caught{sig: c.sig})
	case errno != 0:
		return errno
	}
	return nil
}

// isFromTerminal says that the kernel's terminal sent the signal to the whole foreground process group, the workload
// included. A hang-up goes to the session's leader alone.
func (c caught) isFromTerminal(sessionLeader bool) bool {
	if c.code != codeKernel {
		return false
	}
	switch c.sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGWINCH:
		return true
	case syscall.SIGHUP:
		return !sessionLeader
	}
	return false
}
