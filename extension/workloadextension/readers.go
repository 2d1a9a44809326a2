package workloadextension

import (
	"slices"
	"sync"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

// keepEnded is how long an ended process waits for the Readers that are not done with it.
const keepEnded = 10 * time.Second

// identity tells a process from a later one with the same pid.
type identity struct {
	pid   int
	ticks uint64
}

func identityOf(p workload.Process) identity { return identity{p.PID, p.StartTicks} }

// endedProcess is a process that some Reader may not have read to the end.
type endedProcess struct {
	workload.Process
	since time.Time
}

// readers is what the Readers see: the living processes, and the ended ones that they are not done with. The target
// stays for as long as the extension runs.
type readers struct {
	mu     sync.Mutex
	all    map[*reader]struct{}
	target workload.Process
	living []workload.Process // sorted by pid, without the target
	ended  []endedProcess     // in the order of their ends, without the target
}

type reader struct {
	owner *readers
	done  map[identity]struct{}
}

var _ workload.Reader = (*reader)(nil)

func (r *readers) newReader() *reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	rd := &reader{owner: r, done: make(map[identity]struct{})}
	if r.all == nil {
		r.all = make(map[*reader]struct{})
	}
	r.all[rd] = struct{}{}
	return rd
}

// update takes over the result of a scan; living is kept, ended is copied.
func (r *readers) update(target workload.Process, living, ended []workload.Process, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
	r.living = slices.DeleteFunc(living, func(p workload.Process) bool { return p.PID == target.PID })
	for _, p := range ended {
		if identityOf(p) != identityOf(target) {
			r.ended = append(r.ended, endedProcess{Process: p, since: now})
		}
	}
}

// release forgets the ended processes that no Reader needs any more and returns them.
func (r *readers) release(now time.Time) []workload.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	var released []workload.Process
	r.ended = slices.DeleteFunc(r.ended, func(p endedProcess) bool {
		if now.Sub(p.since) < keepEnded && !r.allDone(identityOf(p.Process)) {
			return false
		}
		for rd := range r.all {
			delete(rd.done, identityOf(p.Process))
		}
		released = append(released, p.Process)
		return true
	})
	return released
}

// releaseAll forgets all ended processes and returns them.
func (r *readers) releaseAll() []workload.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	var released []workload.Process
	for _, p := range r.ended {
		released = append(released, p.Process)
	}
	r.ended = nil
	return released
}

// knows reports whether a process is the target or among the ended ones.
func (r *readers) knows(p workload.Process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.PID == r.target.PID || slices.ContainsFunc(r.ended, func(e endedProcess) bool { return identityOf(e.Process) == identityOf(p) })
}

func (r *readers) allDone(id identity) bool {
	for rd := range r.all {
		if _, ok := rd.done[id]; !ok {
			return false
		}
	}
	return true
}

// Processes implements workload.Reader.
func (rd *reader) Processes() []workload.Process {
	r := rd.owner
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]workload.Process, 0, 1+len(r.living)+len(r.ended))
	add := func(p workload.Process) {
		if p.Ended {
			if _, done := rd.done[identityOf(p)]; done {
				return
			}
		}
		list = append(list, p)
	}
	add(r.target)
	descendants := len(list)
	for _, p := range r.ended {
		add(p.Process)
	}
	list = append(list, r.living...)
	slices.SortStableFunc(list[descendants:], byPID)
	return list
}

// Done implements workload.Reader.
func (rd *reader) Done(p workload.Process) {
	r := rd.owner
	r.mu.Lock()
	defer r.mu.Unlock()
	id := identityOf(p)
	known := id == identityOf(r.target) && r.target.Ended ||
		slices.ContainsFunc(r.ended, func(e endedProcess) bool { return identityOf(e.Process) == id })
	if known { // else it was released already, and would stay in the set for ever
		rd.done[id] = struct{}{}
	}
}

// Close implements workload.Reader.
func (rd *reader) Close() {
	rd.owner.mu.Lock()
	defer rd.owner.mu.Unlock()
	delete(rd.owner.all, rd)
}
