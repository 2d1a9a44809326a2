package launcher

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waiter waits until one of several descriptors is ready, through the poller of Go's runtime: a thread that blocks in
// poll(2) a hundred times a second keeps the runtime's monitor busy, which costs more than the work.
type waiter struct {
	// epoll is a set of the descriptors, nil where that could not be had.
	epoll *os.File
	conn  syscall.RawConn
}

// newWaiter returns a waiter without descriptors.
func newWaiter() *waiter {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return &waiter{}
	}
	// What os.File does not find non-blocking it does not give to the runtime's poller.
	if unix.SetNonblock(fd, true) != nil {
		_ = unix.Close(fd)
		return &waiter{}
	}
	file := os.NewFile(uintptr(fd), "epoll")
	conn, err := file.SyscallConn()
	if err != nil || file.SetReadDeadline(time.Time{}) != nil {
		_ = file.Close()
		return &waiter{}
	}
	return &waiter{epoll: file, conn: conn}
}

// add adds a descriptor. One that cannot be waited for makes all waiting go through poll(2).
func (w *waiter) add(fd int, events uint32) {
	if w.epoll == nil || fd < 0 {
		return
	}
	w.control(unix.EPOLL_CTL_ADD, fd, events)
}

// remove takes a descriptor out.
func (w *waiter) remove(fd int) {
	if w.epoll != nil {
		_ = w.conn.Control(func(epoll uintptr) {
			_ = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_DEL, fd, nil)
		})
	}
}

func (w *waiter) control(operation, fd int, events uint32) {
	var err error
	_ = w.conn.Control(func(epoll uintptr) {
		err = unix.EpollCtl(int(epoll), operation, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
	})
	if err != nil {
		w.close()
	}
}

// poll is poll(2) for fds, which are among the added ones (or -1).
func (w *waiter) poll(fds []unix.PollFd, timeout int) (int, error) {
	if w.epoll == nil {
		return unix.Poll(fds, timeout)
	}
	var deadline time.Time
	if timeout > 0 {
		deadline = time.Now().Add(time.Duration(timeout) * time.Millisecond)
	}
	for {
		n, err := unix.Poll(fds, 0)
		if n != 0 || err != nil || timeout == 0 || timeout > 0 && !time.Now().Before(deadline) {
			return n, err
		}
		if w.epoll.SetReadDeadline(deadline) != nil {
			w.close()
			return unix.Poll(fds, timeout)
		}
		// The end of the time is seen above.
		_ = w.conn.Read(func(epoll uintptr) bool {
			var events [1]unix.EpollEvent
			n, err := unix.EpollWait(int(epoll), events[:], 0)
			return n != 0 || err != nil && err != unix.EINTR
		})
	}
}

func (w *waiter) close() {
	if w.epoll != nil {
		_ = w.epoll.Close()
		w.epoll = nil
	}
}
