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

// runTerminals passes the streams that are pseudoterminals, together: they end in the same terminal, where a prompt
// should follow the message that was written before it to the other stream.
func runTerminals(streams []*stream) {
	buffers := make([][]byte, len(streams))
	for i := range buffers {
		buffers[i] = make([]byte, 8<<10)
	}
	open := make([]bool, len(streams))
	left := len(streams)
	for i := range open {
		open[i] = true
	}
	finish := func(i int, result outcome) {
		streams[i].terminal.syncModes()
		streams[i].finish(result)
		open[i] = false
		left--
	}
	for left > 0 {
		timeout, over := streams[0].patience()
		ready, err := pollTerminals(streams, open, timeout)
		if err == nil && (over || timeout >= 0 && !contains(ready, true)) {
			for i := range streams {
				if open[i] {
					finish(i, outcomeHeld)
				}
			}
			return
		}
		pieces := readTerminals(streams, ready, buffers, finish)
		if piece := single(pieces); piece >= 0 && len(pieces[piece]) <= promptSize && !endsLine(pieces[piece]) && left > 1 {
			others := append([]bool{}, open...)
			others[piece] = false
			if ready, err := pollTerminals(streams, others, int(promptGrace/time.Millisecond)); err == nil {
				for i, more := range readTerminals(streams, ready, buffers, finish) {
					if len(more) > 0 {
						pieces[i] = more
					}
				}
			}
		}
		for _, whole := range []bool{true, false} {
			for i, piece := range pieces {
				if len(piece) == 0 || endsLine(piece) != whole {
					continue
				}
				if !streams[i].pass(piece) && open[i] {
					finish(i, outcomeClosed)
				}
			}
		}
	}
}

// readTerminals reads once from each terminal that is ready, and follows changes of modes and size first, so that they
// hold when the output is seen.
func readTerminals(streams []*stream, ready []bool, buffers [][]byte, finish func(i int, result outcome)) [][]byte {
	pieces := make([][]byte, len(streams))
	told := false
	for i, s := range streams {
		if !ready[i] {
			continue
		}
		data, err := s.terminal.read(buffers[i])
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil {
			// All have closed it.
			finish(i, outcomeEnded)
			continue
		}
		pieces[i] = data
	}
	for _, s := range streams {
		s.terminal.syncModes()
		if s.terminal.syncSize() && !told {
			told = true
			s.terminal.tellSize(s.leader)
		}
	}
	return pieces
}

// pollTerminals waits until a terminal can be read, for timeout milliseconds (-1: without limit) or until a wake-up.
func pollTerminals(streams []*stream, wanted []bool, timeout int) (ready []bool, err error) {
	fds := make([]unix.PollFd, 0, 2*len(streams))
	for i, s := range streams {
		in, wake := int32(-1), int32(-1)
		if wanted[i] {
			in, wake = int32(s.in), int32(s.wake)
		}
		fds = append(fds, unix.PollFd{Fd: in, Events: unix.POLLIN | unix.POLLPRI}, unix.PollFd{Fd: wake, Events: unix.POLLIN})
	}
	ready = make([]bool, len(streams))
	_, err = unix.Poll(fds, timeout)
	if err != nil {
		return ready, err
	}
	for i, s := range streams {
		ready[i] = fds[2*i].Revents != 0
		if fds[2*i+1].Revents != 0 {
			s.awakened()
			err = unix.EINTR
		}
	}
	return ready, err
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

func contains(values []bool, value bool) bool {
	for _, v := range values {
		if v == value {
			return true
		}
	}
	return false
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
