package consolereceiver

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dirWatch wakes its owner when something changes in a directory, at most once in minInterval. Writes in between only
// lengthen the kernel's queue by what does not repeat its last event, so a busy writer costs little.
type dirWatch struct {
	dir  string
	file *os.File
	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

// newDirWatch starts watching dir as soon as it exists. Where the kernel has no watch to give, there is no waking.
func newDirWatch(dir string) (*dirWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	w := &dirWatch{dir: dir, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	if err != nil {
		close(w.done)
		return w, os.NewSyscallError("inotify_init1", err)
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	w.ensure()
	go w.run()
	return w, nil
}

// ensure watches the directory that has the name now; doing it again changes nothing.
func (w *dirWatch) ensure() {
	if w.file == nil {
		return
	}
	conn, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	// A directory that does not exist yet is tried again at the next poll.
	_ = conn.Control(func(fd uintptr) {
		_, _ = unix.InotifyAddWatch(int(fd), w.dir,
			unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
	})
}

func (w *dirWatch) run() {
	defer close(w.done)
	events := make([]byte, 16<<10)
	pause := time.NewTimer(minInterval)
	defer pause.Stop()
	for {
		if _, err := w.file.Read(events); err != nil {
			return // closed
		}
		select {
		case w.wake <- struct{}{}:
		default: // the owner has not yet seen the last one
		}
		pause.Reset(minInterval)
		select {
		case <-w.stop:
			return
		case <-pause.C:
		}
	}
}

// close ends the watch and waits for its goroutine.
func (w *dirWatch) close() {
	close(w.stop)
	if w.file != nil {
		w.file.Close()
	}
	<-w.done
}
