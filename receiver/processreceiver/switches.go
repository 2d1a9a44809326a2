package processreceiver

import "github.com/graphsignal/graphsignal-collector/internal/procfs"

// firstThreads is how many threads are read when a process is seen first, so that its total is true from the start.
const firstThreads = 1024

// switchTotal adds up the context switches of all threads of one process. /proc/<pid>/status has those of the main
// thread only, and a thread that ends takes its own with it, so growth is added up thread by thread. A process with
// very many threads is read in turns.
type switchTotal struct {
	total   procfs.Switches
	last    map[int]procfs.Switches // by thread, as last read
	turn    []int                   // threads of the current turn
	next    int                     // in turn
	started bool
}

// advance reads at most budget threads and returns the total, or false when none was ever read.
func (s *switchTotal) advance(table *procfs.Reader, pid, threads, budget int) (procfs.Switches, bool) {
	if !s.started {
		budget = max(budget, firstThreads)
	}
	if s.next >= len(s.turn) {
		s.list(table, pid, threads)
	}
	for ; budget > 0 && s.next < len(s.turn); budget-- {
		tid := s.turn[s.next]
		s.next++
		now, err := table.ThreadSwitches(pid, tid)
		if err != nil {
			continue // it has ended; the next turn forgets it
		}
		before := s.last[tid]
		if now.Voluntary < before.Voluntary || now.Involuntary < before.Involuntary {
			before = procfs.Switches{} // another thread of the same id
		}
		s.total.Voluntary += now.Voluntary - before.Voluntary
		s.total.Involuntary += now.Involuntary - before.Involuntary
		s.last[tid] = now
		s.started = true
	}
	return s.total, s.started
}

// list begins a turn.
func (s *switchTotal) list(table *procfs.Reader, pid, threads int) {
	s.turn, s.next = s.turn[:0], 0
	if threads == 1 {
		s.turn = append(s.turn, pid)
	} else {
		s.turn, _ = table.Threads(pid, s.turn)
	}
	kept := make(map[int]procfs.Switches, len(s.turn))
	for _, tid := range s.turn {
		if before, ok := s.last[tid]; ok {
			kept[tid] = before
		}
	}
	s.last = kept
}
