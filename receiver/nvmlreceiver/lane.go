package nvmlreceiver

import "time"

// lane is a goroutine that reads a device when it is asked to, so that a call that hangs keeps nobody else. Its methods
// are for one goroutine, the collection's.
type lane struct {
	ask   chan time.Time
	done  chan *reading
	ended chan struct{}
	busy  bool
}

// newLane starts a lane. It ends when quit is closed, as soon as the call it is in returns.
func newLane(quit <-chan struct{}, read func(time.Time) *reading, end func()) *lane {
	l := &lane{ask: make(chan time.Time, 1), done: make(chan *reading, 1), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		if end != nil {
			defer end()
		}
		for {
			select {
			case <-quit:
				return
			case now := <-l.ask:
				l.done <- read(now) // there is room: nobody asks again before it was taken
			}
		}
	}()
	return l
}

// begin asks for a reading. It reports false while the lane is still busy with an earlier one.
func (l *lane) begin(now time.Time) bool {
	if l.busy {
		return false
	}
	l.busy = true
	l.ask <- now
	return true
}

// take returns a finished reading, or nil. It waits until expired is readable, not at all if expired is nil.
func (l *lane) take(expired <-chan struct{}) *reading {
	if !l.busy {
		return nil
	}
	select {
	case r := <-l.done:
		l.busy = false
		return r
	default:
	}
	if expired == nil {
		return nil
	}
	select {
	case r := <-l.done:
		l.busy = false
		return r
	case <-expired:
		return nil
	}
}
