package launcher

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// keyboardCheck is how often a reader of the keyboard is looked for while it has it.
const keyboardCheck = 200 * time.Millisecond

// keyboard passes what is typed on the real terminal to a pseudoterminal, for programs such as less that read their keys
// from the terminal that they find at standard error. While nobody does so, nothing is read here.
type keyboard struct {
	// to is the terminal whose slave is read, nil while there is none.
	to *pseudoTerminal
	// reader is the descriptor in /proc that reads it.
	reader string
}

// modesChanged is called when a program has changed the modes of a terminal: those that read single keys do.
func (k *keyboard) modesChanged(p *pseudoTerminal) {
	switch {
	case p.isCanonical():
		if k.to == p {
			k.to = nil
		}
	case k.to == nil:
		if reader := readerOf(p.name()); reader != "" && isReadable(p.real) {
			k.to, k.reader = p, reader
		}
	}
}

// check lets go of the keyboard when its reader has closed the terminal, or has lost the foreground.
func (k *keyboard) check() {
	if k.to == nil {
		return
	}
	link, err := os.Readlink(k.reader)
	group, groupErr := unix.IoctlGetInt(k.to.real, unix.TIOCGPGRP)
	if err != nil || link != k.to.name() || groupErr != nil || group != unix.Getpgrp() {
		k.to = nil
	}
}

// typed passes on what can be read.
func (k *keyboard) typed() {
	if k.check(); k.to == nil {
		return
	}
	var keys [1024]byte
	n, err := unix.Read(k.to.real, keys[:])
	if err == unix.EINTR || err == unix.EAGAIN {
		return
	}
	if err != nil || n == 0 {
		k.to = nil
		return
	}
	// What a full input queue does not take is lost, as at a real terminal.
	_, _ = unix.Write(k.to.master, keys[:n])
}

// readerOf finds a process that reads from a terminal otherwise than as its standard output and error, and returns the
// descriptor's path in /proc.
func readerOf(terminal string) string {
	directory, err := os.Open("/proc")
	if err != nil || terminal == "" {
		return ""
	}
	defer directory.Close() //nolint:errcheck // only read
	entries, _ := directory.Readdirnames(-1)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry)
		if err != nil || pid == os.Getpid() {
			continue
		}
		fds, err := os.ReadDir("/proc/" + entry + "/fd")
		if err != nil {
			continue
		}
		for _, fd := range fds {
			path := "/proc/" + entry + "/fd/" + fd.Name()
			if link, err := os.Readlink(path); err != nil || link != terminal {
				continue
			}
			if fd.Name() != "1" && fd.Name() != "2" {
				return path
			}
		}
	}
	return ""
}

// isReadable reports whether a descriptor was opened for reading.
func isReadable(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE != unix.O_WRONLY
}
