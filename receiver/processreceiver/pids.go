package processreceiver

import (
	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

// pidReader is a workload.Reader of configured pids, each the root of itself. A pid may be used by one process after
// another; while it is not used, there is none.
type pidReader struct {
	table *procfs.Reader
	boot  int64
	pids  []int
	known map[int]workload.Process
}

var _ workload.Reader = (*pidReader)(nil)

func newPIDReader(procfsPath string, pids []int) *pidReader {
	r := &pidReader{table: procfs.NewReader(procfsPath), pids: pids, known: make(map[int]workload.Process)}
	r.boot, _ = r.table.BootTime()
	return r
}

// Processes implements workload.Reader.
func (r *pidReader) Processes() []workload.Process {
	list := make([]workload.Process, 0, len(r.pids))
	for _, pid := range r.pids {
		stat, err := r.table.Stat(pid)
		if err != nil || stat.Ended() {
			delete(r.known, pid)
			continue
		}
		p, ok := r.known[pid]
		if !ok || p.StartTicks != stat.StartTicks {
			p = workload.Process{PID: pid, Root: pid, StartTicks: stat.StartTicks}
			if r.boot != 0 {
				p.StartTime = procfs.StartTime(r.boot, stat.StartTicks)
			}
			if argv, err := r.table.Cmdline(pid); err == nil {
				p.CommandLine = workload.CommandLine(argv)
			}
			r.known[pid] = p
		}
		list = append(list, p)
	}
	return list
}

// Done implements workload.Reader; nothing waits for it.
func (*pidReader) Done(workload.Process) {}

// Close implements workload.Reader.
func (*pidReader) Close() {}
