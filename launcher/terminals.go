package launcher

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// promptSize is the length up to which output without a newline at its end is taken for a prompt, in bytes.
	promptSize = 256
	// maxBeforePrompt bounds the reads that a prompt waits for.
	maxBeforePrompt = 64
)

// terminals passes the streams that are pseudoterminals, together: they end in the same terminal, where a prompt should
// follow the message that was written before it to the other stream.
type terminals struct {
	streams  []*stream
	open     []bool
	left     int
	buffers  [][]byte
	keyboard keyboard
	wait     *waiter
	// keys is the descriptor of the keyboard in wait, -1 for none.
	keys int
}

// runTerminals passes the streams until they end.
func runTerminals(streams []*stream) {
	t := &terminals{streams: streams, left: len(streams), wait: newWaiter(), keys: -1}
	defer t.wait.close()
	for _, s := range streams {
		t.wait.add(s.in, unix.EPOLLIN|unix.EPOLLPRI)
		t.wait.add(s.wake, unix.EPOLLIN)
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
		// What came alone came first: poll knows of all that was written before it returned.
		prompt := -1
		if several(pieces) {
			prompt = slices.IndexFunc(pieces, isPrompt)
		}
		for i, piece := range pieces {
			if i != prompt {
				t.pass(i, piece)
			}
		}
		if prompt >= 0 {
			t.passOthers(prompt)
			t.pass(prompt, pieces[prompt])
		}
	}
}

// passOthers passes the rest of what the other streams were given before the prompt.
func (t *terminals) passOthers(prompt int) {
	others := slices.Clone(t.open)
	others[prompt] = false
	for range maxBeforePrompt {
		ready, _ := t.poll(others, 0)
		if !slices.Contains(ready, true) {
			return
		}
		for i, piece := range t.read(ready) {
			t.pass(i, piece)
		}
	}
}

// waitForKeys makes the keyboard's descriptor, or none (-1), one of those waited for.
func (t *terminals) waitForKeys(fd int) {
	if fd == t.keys {
		return
	}
	if t.keys >= 0 {
		t.wait.remove(t.keys)
	}
	t.keys = fd
	t.wait.add(fd, unix.EPOLLIN)
}

func (t *terminals) pass(i int, data []byte) {
	if len(data) > 0 && !t.streams[i].pass(data) {
		t.finish(i, outcomeClosed)
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
	t.wait.remove(t.streams[i].in)
	t.wait.remove(t.streams[i].wake)
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
	t.waitForKeys(int(keys.Fd))
	n, err := t.wait.poll(fds, limited)
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

// several reports whether more than one stream had output.
func several(pieces [][]byte) bool {
	n := 0
	for _, piece := range pieces {
		if len(piece) > 0 {
			n++
		}
	}
	return n > 1
}

// isPrompt reports whether output looks like a prompt or the beginning of one.
func isPrompt(data []byte) bool {
	return len(data) > 0 && len(data) <= promptSize && data[len(data)-1] != '\n'
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
