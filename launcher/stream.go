package launcher

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// streamBuffer is what is read at a time at most, in bytes.
	streamBuffer = 256 << 10
	// pipeSize is asked for the workload's pipes, in bytes. The kernel grants it up to a limit per user.
	pipeSize = 1 << 20
	// quietAtEnd and longestEnd bound how long a stream is read after the workload's end while a descendant holds it.
	quietAtEnd = 300 * time.Millisecond
	longestEnd = 2 * time.Second
)

// outcome is why a stream is no longer read.
type outcome int

const (
	// outcomeEnded: nobody holds the writing end any more.
	outcomeEnded outcome = iota
	// outcomeHeld: the workload has ended, but a descendant holds the writing end.
	outcomeHeld
	// outcomeClosed: the launcher's own output is closed, and so now is the workload's.
	outcomeClosed
)

// stream passes one output of the workload to the same output of the launcher, bytes unchanged and as they come, with
// a copy for the capture.
type stream struct {
	name string
	// in is the reading end of the pipe, or the master of the pseudoterminal.
	in int
	// out is 1 or 2.
	out int
	// forWorkload is the workload's end, -1 once it is closed here.
	forWorkload int
	terminal    *pseudoTerminal
	// leader is told of a new size of the terminal.
	leader process
	queue  *captureQueue
	warn   func(format string, args ...any)
	// failed says that the console has refused bytes.
	failed bool

	// wake interrupts the wait for the workload's output: an eventfd, -1 for none.
	wake    int
	mu      sync.Mutex
	endedAt time.Time
	done    chan outcome
}

// openStream makes the workload's side of output fd: a pseudoterminal where that is a terminal, else a pipe.
func openStream(fd int, name string) (*stream, error) {
	s := &stream{name: name, out: fd, done: make(chan outcome, 1)}
	var err error
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if isTerminal(fd) {
		if s.terminal, err = openPseudoTerminal(fd); err != nil {
			_ = unix.Close(s.wake)
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s.in, s.forWorkload = s.terminal.master, s.terminal.slave
		return s, nil
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		_ = unix.Close(s.wake)
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	_, _ = unix.FcntlInt(uintptr(ends[0]), unix.F_SETPIPE_SZ, pipeSize)
	s.in, s.forWorkload = ends[0], ends[1]
	return s, nil
}

// handedOver closes the workload's end, which the workload has now.
func (s *stream) handedOver() {
	if s.terminal != nil {
		s.terminal.closeSlave()
	} else {
		_ = unix.Close(s.forWorkload)
	}
	s.forWorkload = -1
}

// run passes the bytes of a pipe until it ends, and reports why on done.
func (s *stream) run() {
	s.finish(s.pump())
}

// finish gives up the reading end, unless a descendant still needs a reader, and reports why the stream ended.
func (s *stream) finish(result outcome) {
	if result != outcomeHeld {
		_ = unix.Close(s.in)
	}
	if s.queue != nil {
		s.queue.close()
	}
	s.done <- result
}

func (s *stream) pump() outcome {
	buffer := make([]byte, streamBuffer)
	watchReader := isAnonymousPipe(s.out)
	wait := newWaiter()
	defer wait.close()
	wait.add(s.in, unix.EPOLLIN)
	wait.add(s.wake, unix.EPOLLIN)
	if watchReader {
		wait.add(s.out, 0) // errors are always reported
	}
	for {
		switch ready, held := s.waitForOutput(wait, watchReader); {
		case held:
			return outcomeHeld
		case !ready:
			// Whoever read our output is gone, and a pipe cannot be opened again: the workload's next write fails as it
			// would without us.
			return outcomeClosed
		}
		n, err := unix.Read(s.in, buffer)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n == 0 {
			return outcomeEnded
		}
		if !s.pass(buffer[:n]) {
			return outcomeClosed
		}
	}
}

// pass writes bytes to the console and then to the capture. It reports false when the console is closed.
func (s *stream) pass(data []byte) bool {
	if _, err := descriptor(s.out).Write(data); err != nil {
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) && s.terminal != nil {
			return false
		}
		if !s.failed {
			// A full disk, say. Closing the stream would kill the workload, which might have gone on.
			s.failed = true
			s.warn("%s is lost from here on: %v", s.name, err)
		}
	}
	if s.queue != nil {
		s.queue.put(data)
	}
	return true
}

// waitForOutput waits until the workload's output can be read. After the workload's end it gives up on a stream that
// is silent, or takes too long; held says so. Neither ready nor held: the reader of our own output is gone.
func (s *stream) waitForOutput(wait *waiter, watchReader bool) (ready, held bool) {
	for {
		timeout, over := s.patience()
		if over {
			return false, true
		}
		fds := [3]unix.PollFd{{Fd: int32(s.in), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}, {Fd: -1}}
		if watchReader {
			fds[2].Fd = int32(s.out)
		}
		n, err := wait.poll(fds[:], timeout)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return true, false // reading will tell
		case fds[2].Revents&unix.POLLERR != 0:
			return false, false
		case fds[0].Revents != 0:
			return true, false
		case fds[1].Revents != 0:
			s.awakened()
		case n == 0:
			return false, true
		}
	}
}

// patience returns how long to wait for output, in milliseconds, -1 without limit; over says that the time after the
// workload's end is used up.
func (s *stream) patience() (timeout int, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endedAt.IsZero() {
		return -1, false
	}
	rest := min(quietAtEnd, longestEnd-time.Since(s.endedAt))
	return int((rest + time.Millisecond - 1) / time.Millisecond), rest <= 0
}

// awakened takes note of a wake-up.
func (s *stream) awakened() {
	_, _ = unix.Read(s.wake, make([]byte, 8))
}

// workloadEnded bounds the rest of the stream.
func (s *stream) workloadEnded() {
	s.mu.Lock()
	s.endedAt = time.Now()
	s.mu.Unlock()
	_, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// pending reports whether bytes of the workload wait to be passed on.
func (s *stream) pending() bool {
	n, err := unix.IoctlGetInt(s.in, unix.TIOCINQ)
	return err == nil && n > 0
}
