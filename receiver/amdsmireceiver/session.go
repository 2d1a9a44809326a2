package amdsmireceiver

import (
	"fmt"
	"slices"
	"time"

	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/selection"
	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/smi"
)

// session is one use of the library, from its initialisation on, with the devices that are read.
type session struct {
	lib     *smi.Library
	devices []*device
	guessed bool // all devices are read, since those of the workload could not be told
}

// openSession initialises the library and selects devices. A nil session without an error has nothing to read.
func openSession(candidates []string, selector selection.Selector) (*session, error) {
	lib, err := smi.Open(candidates)
	if err != nil {
		return nil, err
	}
	list, ret := enumerate(lib)
	if ret != smi.Success {
		lib.Close()
		return nil, fmt.Errorf("%s: devices cannot be listed: status %d", lib.Path, ret)
	}
	uuids := make([]string, len(list))
	for i, d := range list {
		uuids[i] = d.hipUUID
	}
	indices, guessed := selector.Choose(uuids)
	var chosen []*device
	add := func(d *device) {
		if !slices.Contains(chosen, d) {
			chosen = append(chosen, d)
		}
	}
	for _, i := range indices {
		// The sensors of a partition are those of its board, which its first one has.
		for _, d := range list {
			if list[i].partition > 0 && d.partition == 0 && d.busID == list[i].busID {
				add(d)
			}
		}
		add(list[i])
	}
	if len(chosen) == 0 {
		lib.Close()
		return nil, nil
	}
	return &session{lib: lib, devices: chosen, guessed: guessed}, nil
}

// round is what one round over all devices has brought.
type round struct {
	time     time.Time
	readings []*reading
	opened   *session // a session that was opened in this round
	err      error    // why none could be opened
	closed   bool     // nothing answered any more, and the session was closed
}

// silentRounds is how often no device may answer before the library is opened anew.
const silentRounds = 3

// worker makes all calls of the library on one goroutine, since it may not be called twice at a time, so that a call that
// hangs keeps nobody else.
type worker struct {
	ask   chan request
	done  chan round
	quit  chan struct{}
	ended chan struct{}
	busy  bool // belongs to whoever asks

	candidates []string
	selection  selection.Selector
	// The goroutine's own.
	session *session
	silent  int
}

type request struct {
	now  time.Time
	open bool // open a session if there is none
}

func newWorker(candidates []string, selector selection.Selector) *worker {
	w := &worker{
		ask: make(chan request, 1), done: make(chan round, 1), quit: make(chan struct{}), ended: make(chan struct{}),
		candidates: candidates, selection: selector,
	}
	go w.run()
	return w
}

func (w *worker) run() {
	defer close(w.ended)
	defer func() {
		if w.session != nil {
			w.session.lib.Close()
		}
	}()
	for {
		select {
		case <-w.quit:
			return
		case ask := <-w.ask:
			w.done <- w.round(ask) // there is room: nobody asks again before it was taken
		}
	}
}

func (w *worker) round(ask request) round {
	r := round{time: ask.now}
	if w.session == nil && ask.open {
		w.session, r.err = openSession(w.candidates, w.selection)
		r.opened = w.session
		w.silent = 0
	}
	if w.session == nil {
		return r
	}
	answered := false
	for _, d := range w.session.devices {
		select {
		case <-w.quit:
			return r
		default:
		}
		reading := read(w.session.lib, d, ask.now)
		answered = answered || reading.answered
		r.readings = append(r.readings, reading)
	}
	if answered {
		w.silent = 0
	} else if w.silent++; w.silent >= silentRounds {
		w.session.lib.Close()
		w.session, r.closed = nil, true
	}
	return r
}

// begin asks for a round. It reports false while an earlier one is still running.
func (w *worker) begin(ask request) bool {
	if w.busy {
		return false
	}
	w.busy = true
	w.ask <- ask
	return true
}

// take returns a finished round. It waits until expired is readable, not at all if expired is nil.
func (w *worker) take(expired <-chan struct{}) (round, bool) {
	if !w.busy {
		return round{}, false
	}
	select {
	case r := <-w.done:
		w.busy = false
		return r, true
	default:
	}
	if expired == nil {
		return round{}, false
	}
	select {
	case r := <-w.done:
		w.busy = false
		return r, true
	case <-expired:
		return round{}, false
	}
}

// close ends the worker as soon as the call that it is in returns. It waits for that until expired is readable.
func (w *worker) close(expired <-chan struct{}) bool {
	close(w.quit)
	select {
	case <-w.ended:
		return true
	case <-expired:
		return false
	}
}
