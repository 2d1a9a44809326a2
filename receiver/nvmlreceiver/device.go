package nvmlreceiver

import (
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/driver"
)

const (
	// askAgain is when a call that was refused is tried again.
	askAgain = time.Minute
	// readingLimit ends a reading that takes so long; what it has is published.
	readingLimit = 5 * time.Second
	// turnWait is how long a device waits for another one's slow reading.
	turnWait = time.Second
	// A device that does not answer is tried again after lostDelay, then after twice that, up to lostDelayMax.
	lostDelay, lostDelayMax = 2 * time.Second, time.Minute
)

// device reads one device on two lanes: the values of every collection, and those whose calls take longer.
type device struct {
	identity
	lib        driver.Library
	quit       <-chan struct{}
	turn       chan struct{} // holds one element while a device of the session makes its slow calls
	fast, slow *lane

	// The fast lane's own.
	fastCalls callState
	window    [2]uint64 // newest sample seen, µs since the epoch, by utilization
	hasRates  bool      // utilization is read without its samples
	noMemory2 bool      // memory is asked for in the old form
	xids      xidWatch
	lost      nvml.Return // SUCCESS: it answers
	retryAt   time.Time
	delay     time.Duration

	// The slow lane's own.
	slowCalls callState
	links     linkState

	// Of both lanes, and of the goroutine that reads the PCIe counters.
	pcie  pcieReader
	polls sync.WaitGroup

	// The collection's own.
	memoryTotal uint64
	firstSeen   int64
	slowSeen    bool // a reading of the slow lane has come
}

// call is one question to a device, or several that are asked together: they share their fate.
type call struct {
	// symbols are the functions that it takes, any of each element.
	symbols [][]string
	// gpu says that MIG devices are not asked.
	gpu bool
	// every is the least time between two answers, for what seldom changes or costs the driver milliseconds of
	// processor time (measured on an H200: samples 2.7, energy 3.4, maximum clock 1.7, power limit and replays 0.4, NVLink
	// throughput 3.4, the errors of 18 links 16).
	every time.Duration
	read  func(d *device, r *reading) nvml.Return
}

// everySlack lets a call be made by the collection that its time falls beside.
const everySlack = 100 * time.Millisecond

func needs(symbols ...string) [][]string {
	list := make([][]string, len(symbols))
	for i, s := range symbols {
		list[i] = []string{s}
	}
	return list
}

// callState remembers, of each call of a list, when it may be made again.
type callState struct {
	calls []call
	state []callMemory
}

type callMemory struct {
	never bool
	after time.Time
}

func newCallState(calls []call, id *identity, lib driver.Library) callState {
	s := callState{calls: calls, state: make([]callMemory, len(calls))}
	for i, c := range calls {
		s.state[i].never = c.gpu && id.parent >= 0
		for _, anyOf := range c.symbols {
			s.state[i].never = s.state[i].never || !lib.Has(anyOf...)
		}
	}
	return s
}

// newDevice starts reading a device. Samples count from now on.
func newDevice(id identity, lib driver.Library, quit <-chan struct{}, turn chan struct{}, now time.Time) *device {
	d := &device{identity: id, lib: lib, quit: quit, turn: turn}
	d.window = [2]uint64{uint64(now.UnixMicro()), uint64(now.UnixMicro())}
	d.fastCalls = newCallState(fastCalls, &d.identity, lib)
	d.slowCalls = newCallState(slowCalls, &d.identity, lib)
	d.links.present = -1
	d.xids.never = id.parent >= 0
	d.pcie.init(d)
	d.fast = newLane(quit, d.readFast, d.xids.close)
	d.slow = newLane(quit, d.readSlow, nil)
	return d
}

// readFast takes the events and makes the calls of every collection. A lost device is asked now and then only.
func (d *device) readFast(now time.Time) *reading {
	r := &reading{time: now, fast: true}
	if d.lost == nvml.SUCCESS {
		r.xidFailure = d.xids.register(d.lib, d.handle, now)
	}
	r.events = d.xids.drain()
	if d.lost != nvml.SUCCESS && now.Before(d.retryAt) {
		r.lost = d.lost
		return r
	}
	d.fastCalls.run(d, r, now)
	if r.lost != nvml.SUCCESS {
		d.delay = min(max(2*d.delay, lostDelay), lostDelayMax)
		d.retryAt = now.Add(d.delay)
	} else {
		d.delay = 0
		if d.lost != nvml.SUCCESS {
			d.xids.after = time.Time{}
		}
	}
	d.lost = r.lost
	r.watched = d.xids.set != nil && r.lost == nvml.SUCCESS
	return r
}

// ended reports whether everything of the device has ended; it waits until expired is readable.
func (d *device) ended(expired <-chan struct{}) bool {
	for _, l := range []*lane{d.fast, d.slow} {
		select {
		case <-l.ended:
		case <-expired:
			return false
		}
	}
	polls := make(chan struct{})
	go func() {
		d.polls.Wait()
		close(polls)
	}()
	select {
	case <-polls:
		return true
	case <-expired:
		return false
	}
}

// readSlow takes turns with the other devices, since calls of several at a time cost the driver much more. It does not
// wait for long: the other one's calls may hang.
func (d *device) readSlow(now time.Time) *reading {
	expired := time.NewTimer(turnWait)
	defer expired.Stop()
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-expired.C:
	case <-d.quit:
	}
	r := &reading{time: now}
	d.slowCalls.run(d, r, now)
	r.lost = nvml.SUCCESS
	return r
}

// run makes all calls that are due. When one finds the device lost, or none gets an answer, the reading says so.
func (s *callState) run(d *device, r *reading, now time.Time) {
	begin := time.Now()
	var good bool
	var bad nvml.Return
	for i := range s.calls {
		if s.state[i].never || now.Before(s.state[i].after) {
			continue
		}
		select {
		case <-d.quit:
			return
		default:
		}
		ret := s.calls[i].read(d, r)
		switch meaning(ret) {
		case answered:
			good = true
			if every := s.calls[i].every; every > 0 {
				s.state[i].after = now.Add(every - everySlack)
			}
		case unsupported:
			s.state[i].never = true
			good = true
		case refused:
			s.state[i].after = now.Add(askAgain)
			if ret == nvml.ERROR_INVALID_ARGUMENT { // the handle itself may be invalid
				bad = ret
			}
		case lost:
			r.lost = ret
			return
		case failed:
			if ret != nvml.ERROR_NOT_FOUND && ret != nvml.ERROR_NO_DATA { // those come from a device that works
				bad = ret
			} else {
				good = true
				if every := s.calls[i].every; every > 0 { // asking costs as much as an answer
					s.state[i].after = now.Add(every - everySlack)
				}
			}
		}
		if time.Since(begin) > readingLimit {
			return
		}
	}
	if !good && bad != nvml.SUCCESS {
		r.lost = bad
		s.forgive()
	}
}

// forgive lets refused calls be made again at once, since the device was in trouble.
func (s *callState) forgive() {
	for i := range s.state {
		s.state[i].after = time.Time{}
	}
}
