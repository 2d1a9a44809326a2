package launcher

import (
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// pseudoTerminal stands in for the terminal that a stream of the launcher is. It is not the controlling terminal of
// anybody: keyboard, job control and /dev/tty stay with the real one. Its output processing is off, so that bytes pass
// unchanged and the real terminal does it, once.
type pseudoTerminal struct {
	master int
	// slave is closed once the workload has it.
	slave int
	// real is the launcher's descriptor of the terminal.
	real int
	// modes are those that the slave had when they were last compared.
	modes unix.Termios
	size  unix.Winsize
	// mu guards modes and size.
	mu sync.Mutex
}

// openPseudoTerminal makes a terminal like the one at a descriptor.
func openPseudoTerminal(real int) (*pseudoTerminal, error) {
	// Not blocking, so that keys that nobody reads cannot hold up the output.
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("pseudoterminal: %w", err)
	}
	p := &pseudoTerminal{master: master, slave: -1, real: real}
	if err := p.setUp(); err != nil {
		p.close()
		return nil, fmt.Errorf("pseudoterminal: %w", err)
	}
	return p, nil
}

func (p *pseudoTerminal) setUp() error {
	if err := unix.IoctlSetPointerInt(p.master, unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	var err error
	if p.slave, err = openPeer(p.master); err != nil {
		return err
	}
	modes, err := unix.IoctlGetTermios(p.real, unix.TCGETS)
	if err != nil {
		return err
	}
	p.modes = *modes
	p.modes.Oflag &^= unix.OPOST
	// Together these make the master tell of changed modes.
	p.modes.Lflag |= unix.EXTPROC
	if err := unix.IoctlSetPointerInt(p.master, unix.TIOCPKT, 1); err != nil {
		return err
	}
	if err := unix.IoctlSetTermios(p.slave, unix.TCSETS, &p.modes); err != nil {
		return err
	}
	// What the kernel made of them.
	if modes, err = unix.IoctlGetTermios(p.slave, unix.TCGETS); err != nil {
		return err
	}
	p.modes = *modes
	p.syncSize()
	return nil
}

// openPeer opens the slave, by its name where the kernel (before 4.13) cannot without.
func openPeer(master int) (int, error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno == 0 {
		return int(slave), nil
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	return unix.Open(fmt.Sprintf("/dev/pts/%d", number), flags, 0)
}

func (p *pseudoTerminal) closeSlave() {
	if p.slave >= 0 {
		_ = unix.Close(p.slave)
		p.slave = -1
	}
}

func (p *pseudoTerminal) close() {
	p.closeSlave()
	_ = unix.Close(p.master)
}

// syncSize gives the pseudoterminal the size of the real one and reports whether that is a new one.
func (p *pseudoTerminal) syncSize() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	size, err := unix.IoctlGetWinsize(p.real, unix.TIOCGWINSZ)
	if err != nil || *size == p.size {
		return false
	}
	if unix.IoctlSetWinsize(p.master, unix.TIOCSWINSZ, size) != nil {
		return false
	}
	p.size = *size
	return true
}

// tellSize sends SIGWINCH to the foreground process group of the real terminal. The kernel's own came before the
// pseudoterminal had its new size.
func (p *pseudoTerminal) tellSize(leader process) {
	group, err := unix.IoctlGetInt(p.real, unix.TIOCGPGRP)
	if err != nil || group <= 0 {
		_ = leader.signal(caught{sig: unix.SIGWINCH})
		return
	}
	_ = unix.Kill(-group, unix.SIGWINCH)
}

// syncModes applies to the real terminal what a program has changed in the modes of the pseudoterminal, as programs
// do that take standard output for their terminal. It reports whether there was a change.
func (p *pseudoTerminal) syncModes() (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := unix.IoctlGetTermios(p.master, unix.TCGETS)
	if err != nil || *now == p.modes {
		return false
	}
	was := p.modes
	p.modes = *now
	real, err := unix.IoctlGetTermios(p.real, unix.TCGETS)
	if err != nil {
		return true
	}
	// Only the real terminal processes output: a program that switches it on finds it on there.
	if now.Oflag&unix.OPOST != 0 || now.Lflag&unix.EXTPROC == 0 {
		p.modes.Oflag &^= unix.OPOST
		p.modes.Lflag |= unix.EXTPROC
		_ = unix.IoctlSetTermios(p.master, unix.TCSETS, &p.modes)
	}
	real.Iflag = merge(real.Iflag, was.Iflag, now.Iflag)
	real.Oflag = merge(real.Oflag, was.Oflag, now.Oflag)
	real.Lflag = merge(real.Lflag, was.Lflag|unix.EXTPROC, now.Lflag|unix.EXTPROC)
	real.Cflag = merge(real.Cflag, was.Cflag, now.Cflag)
	for i := range now.Cc {
		if now.Cc[i] != was.Cc[i] {
			real.Cc[i] = now.Cc[i]
		}
	}
	// From a background process group the kernel would stop the launcher instead.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, old unix.Sigset_t
	block.Val[0] = 1 << (unix.SIGTTOU - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &block, &old) != nil {
		return true
	}
	_ = unix.IoctlSetTermios(p.real, unix.TCSETS, real)
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	return true
}

// isCanonical reports whether the terminal is read by lines.
func (p *pseudoTerminal) isCanonical() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.modes.Lflag&unix.ICANON != 0
}

// inStep reports whether the real terminal has followed the last change of modes.
func (p *pseudoTerminal) inStep() bool {
	now, err := unix.IoctlGetTermios(p.master, unix.TCGETS)
	p.mu.Lock()
	defer p.mu.Unlock()
	return err != nil || *now == p.modes
}

// merge returns flags with those bits that differ between was and now as they are in now.
func merge(flags, was, now uint32) uint32 {
	changed := was ^ now
	return flags&^changed | now&changed
}

// plain ends the packet mode, for a reader that knows nothing of it.
func (p *pseudoTerminal) plain() {
	_ = unix.IoctlSetPointerInt(p.master, unix.TIOCPKT, 0)
}

// read reads what the workload has written: data, or nothing where only the modes have changed.
func (p *pseudoTerminal) read(buffer []byte) (data []byte, err error) {
	n, err := unix.Read(p.master, buffer)
	if err != nil || n == 0 {
		return nil, err
	}
	// The first byte is the kind of the packet.
	if buffer[0] != unix.TIOCPKT_DATA {
		return nil, nil
	}
	return buffer[1:n], nil
}

// name is the path of the slave, for finding who holds it.
func (p *pseudoTerminal) name() string {
	number, err := unix.IoctlGetInt(p.master, unix.TIOCGPTN)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("/dev/pts/%d", number)
}
