package workloadextension

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// controlTimeout bounds a write to the launcher, which may be stopped or gone.
const controlTimeout = 200 * time.Millisecond

// maxReason is the most bytes of a reason in a line, so that a line fits a socket buffer.
const maxReason = 1024

// control is our end of the socket to the launcher.
type control struct {
	conn net.Conn
	mu   sync.Mutex
	done sync.WaitGroup
}

// openControl takes a duplicate of the inherited descriptor, which stays open for a Collector that reloads.
func openControl(fd int) (*control, error) {
	duplicate, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("control_fd %d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(duplicate), "control_fd")
	defer file.Close()
	conn, err := net.FileConn(file) // duplicates it once more
	if err != nil {
		return nil, fmt.Errorf("control_fd %d: %w", fd, err)
	}
	return &control{conn: conn}, nil
}

// watch calls ended once when the launcher has closed its end, or the socket fails.
func (c *control) watch(ended func()) {
	c.done.Go(func() {
		buf := make([]byte, 64)
		for {
			if _, err := c.conn.Read(buf); err != nil {
				ended()
				return
			}
		}
	})
}

// send writes one line.
func (c *control) send(line string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(controlTimeout)); err != nil {
		return err
	}
	_, err := c.conn.Write([]byte(line + "\n"))
	return err
}

// close ends watch too, which then calls ended.
func (c *control) close() {
	_ = c.conn.Close()
	c.done.Wait()
}

// bindFailed is the line for an endpoint that could not be bound.
func bindFailed(address string, reason error) string {
	text := "unknown"
	if reason != nil {
		text = reason.Error()
	}
	return "bind_failed " + address + ": " + oneLine(text)
}

// oneLine makes a text fit for a line of bounded length.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	return text
}
