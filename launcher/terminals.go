package launcher

import (
	"bytes"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// promptSize is the length up to which output without a newline at its end is taken for a prompt, in bytes.
	promptSize = 256
	// promptGrace is how long a prompt waits for what the other stream may have been given before it.
	promptGrace = time.Millisecond
)

// terminals passes the streams that are pseudoterminals, together: they end in the same terminal, where a prompt should
// follow the message that was written before it to the other stream.
type terminals struct {
	streams  []*stream
	open     []bool
	left     int
	buffers  [][]byte
	keyboard keyboard
}

// runTerminals passes the streams until they end.
func runTerminals(streams []*stream) {
	t := &terminals{streams: streams, left: len(streams)}
	for range streams {
		t.open = append(t.open, true)
		t.buffers = append(t.buffers, make([]byte, 8<<10))
	}
	t.run()
}

func (t *terminals) run() {
	for t.left > 0 {
		timeout, over := t.streams[0].patience()
		ready, quiet := t.poll(t.open, timeout)
		if over || quiet && timeout >= 0 {
			for i := range t.streams {
				t.finish(i, outcomeHeld)
			}
			return
		}
		pieces := t.read(ready)
		if piece := single(pieces); piece >= 0 && len(pieces[piece]) <= promptSize && !endsLine(pieces[piece]) && t.left > 1 {
			others := append([]bool{}, t.open...)
			others[piece] = false
			ready, _ := t.poll(others, int(promptGrace/time.Millisecond))
			for i, more := range t.read(ready) {
				if len(more) > 0 {
					pieces[i] = more
				}
			}
		}
		for _, whole := range []bool{true, false} {
			for i, piece := range pieces {
				if len(piece) > 0 && endsLine(piece) == whole && !t.streams[i].pass(piece) {
					t.finish(i, outcomeClosed)
				}
			}
		}
	}
}

func (t *terminals) finish(i int, result outcome) {
	if !t.open[i] {
		return
	}
	t.open[i] = false
	t.left--
	if t.keyboard.to == t.streams[i].terminal {
		t.keyboard.to = nil
	}
	t.streams[i].terminal.syncModes()
	t.streams[i].finish(result)
}

// read reads once from each terminal that is ready, and follows changes of modes and size first, so that they hold when
// the output is seen.
func (t *terminals) read(ready []bool) [][]byte {
	pieces := make([][]byte, len(t.streams))
	for i, s := range t.streams {
		if !ready[i] {
			continue
		}
		data, err := s.terminal.read(t.buffers[i])
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil:
			// All have closed it.
			t.finish(i, outcomeEnded)
		default:
			pieces[i] = data
		}
	}
	told := false
	for i, s := range t.streams {
		if !t.open[i] {
			continue
		}
		if s.terminal.syncModes() {
			t.keyboard.modesChanged(s.terminal)
		}
		if s.terminal.syncSize() && !told {
			told = true
			s.terminal.tellSize(s.leader)
		}
	}
	return pieces
}

// poll waits until one of the wanted terminals can be read, for timeout milliseconds (-1: without limit), and passes
// keys meanwhile. quiet says that the time has passed without anything.
func (t *terminals) poll(wanted []bool, timeout int) (ready []bool, quiet bool) {
	ready = make([]bool, len(t.streams))
	fds := make([]unix.PollFd, 2*len(t.streams)+1)
	for i, s := range t.streams {
		fds[2*i].Fd, fds[2*i+1].Fd = -1, -1
		if wanted[i] {
			fds[2*i] = unix.PollFd{Fd: int32(s.in), Events: unix.POLLIN | unix.POLLPRI}
			fds[2*i+1] = unix.PollFd{Fd: int32(s.wake), Events: unix.POLLIN}
		}
	}
	keys := &fds[2*len(t.streams)]
	keys.Fd = -1
	limited := timeout
	if t.keyboard.to != nil {
		*keys = unix.PollFd{Fd: int32(t.keyboard.to.real), Events: unix.POLLIN}
		if timeout < 0 {
			limited = int(keyboardCheck / time.Millisecond)
		}
	}
	n, err := unix.Poll(fds, limited)
	if err != nil {
		return ready, false
	}
	if n == 0 {
		t.keyboard.check()
		return ready, limited == timeout
	}
	for i, s := range t.streams {
		ready[i] = fds[2*i].Revents != 0
		if fds[2*i+1].Revents != 0 {
			s.awakened()
		}
	}
	if keys.Revents != 0 {
		t.keyboard.typed()
	}
	return ready, false
}

func endsLine(data []byte) bool { return bytes.HasSuffix(data, newline) }

// single returns the index of the only piece that is not empty, or -1.
func single(pieces [][]byte) int {
	found := -1
	for i, piece := range pieces {
		if len(piece) > 0 {
			if found >= 0 {
				return -1
			}
			found = i
		}
	}
	return found
}

// usesTerminalOfOutput knows the programs for which standard error must be the controlling terminal itself:
// interactive shells do their job control there, and more reads its keys from it.
func usesTerminalOfOutput(command []string) bool {
	switch strings.TrimPrefix(filepath.Base(command[0]), "-") {
	case "more":
		return true
	case "sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh":
	default:
		return false
	}
	for _, word := range command[1:] {
		// A script, or a command.
		if !strings.HasPrefix(word, "-") || strings.HasPrefix(word, "-c") {
			return false
		}
	}
	return true
}
