package launcher

import "syscall"

// childEvent is a change of a child: it ended, or the terminal stopped it.
type childEvent struct {
	pid    int
	status syscall.WaitStatus
}

// reaper waits for all children, those adopted from ended descendants too.
type reaper struct {
	events chan childEvent
	kick   chan struct{}
}

func newReaper() *reaper {
	r := &reaper{events: make(chan childEvent, 64), kick: make(chan struct{}, 1)}
	go r.run()
	return r
}

// started tells the reaper that there is a child.
func (r *reaper) started() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// run lives as long as the process.
func (r *reaper) run() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			// No child at the moment.
			<-r.kick
		default:
			r.events <- childEvent{pid: pid, status: status}
		}
	}
}
