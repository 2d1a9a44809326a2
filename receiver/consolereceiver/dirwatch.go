package consolereceiver

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// dirWatch wakes its owner when something changes in a directory.
type dirWatch struct {
	// created tells of new files at once, so that they can be opened before they are gone again.
	created chan struct{}
	// changed tells of writes, at most once in minInterval. Writes in between only lengthen the kernel's queue by what
	// does not repeat its last event, so a busy writer costs little.
	changed chan struct{}

	dir     string
	watches []*inotify
	stop    chan struct{}
	done    sync.WaitGroup
}

// inotify is one kernel queue of events of the directory.
type inotify struct {
	file *os.File
	mask uint32
}

// newDirWatch starts watching dir as soon as it exists. Where the kernel has no watch to give, there is no waking;
// the error says so, and the dirWatch can be used all the same.
func newDirWatch(dir string) (*dirWatch, error) {
	w := &dirWatch{
		created: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		dir: dir, stop: make(chan struct{}),
	}
	for _, source := range []struct {
		mask  uint32
		wake  chan struct{}
		pause time.Duration
	}{
		{unix.IN_CREATE | unix.IN_MOVED_TO, w.created, 0},
		{unix.IN_MODIFY, w.changed, minInterval},
	} {
		fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			return w, os.NewSyscallError("inotify_init1", err)
		}
		i := &inotify{file: os.NewFile(uintptr(fd), "inotify"), mask: source.mask}
		w.watches = append(w.watches, i)
		i.ensure(dir)
		w.done.Go(func() { i.run(source.wake, source.pause, w.stop) })
	}
	return w, nil
}

// ensure watches the directory that has the name now; doing it again changes nothing.
func (w *dirWatch) ensure() {
	for _, i := range w.watches {
		i.ensure(w.dir)
	}
}

func (i *inotify) ensure(dir string) {
	conn, err := i.file.SyscallConn()
	if err != nil {
		return // closed
	}
	// A directory that does not exist yet is tried again at the next poll.
	_ = conn.Control(func(fd uintptr) {
		_, _ = unix.InotifyAddWatch(int(fd), dir, i.mask|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
	})
}

// run wakes for events, with a pause after each time.
func (i *inotify) run(wake chan<- struct{}, pause time.Duration, stop <-chan struct{}) {
	events := make([]byte, 16<<10)
	for {
		if _, err := i.file.Read(events); err != nil {
			return // closed
		}
		select {
		case wake <- struct{}{}:
		default: // the owner has not yet seen the last one
		}
		if pause == 0 {
			continue
		}
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
	}
}

// close ends the watch and waits for its goroutines.
func (w *dirWatch) close() {
	close(w.stop)
	for _, i := range w.watches {
		i.file.Close()
	}
	w.done.Wait()
}
