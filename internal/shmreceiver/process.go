package shmreceiver

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
	"github.com/graphsignal/graphsignal-collector/internal/shm"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

// process is what is known of one process between collections.
type process struct {
	workload.Process
	directory *shm.Directory
	users     []uint32 // under which it was seen to run
	seen      bool     // in the current collection
	namespace string   // of its pid, once it was asked for
	owns      bool     // its run directory was found to be its own
	foreign   bool     // its run directory was found to be another's, which was reported
}

// maxDirectories bounds the run directories that are read without a workload extension.
const maxDirectories = 4096

// list brings r.processes up to date with the workload's tree, or, without the extension, with the run directories
// that exist, and returns them in order.
func (r *Receiver) list() []*process {
	for _, p := range r.processes {
		p.seen = false
	}
	r.order = r.order[:0]
	if r.tree != nil {
		for _, p := range r.tree.Processes() {
			r.add(p)
		}
	} else {
		for _, pid := range r.directories() {
			p := workload.Process{PID: pid, Root: pid}
			if stat, err := r.procfs.Stat(pid); err == nil {
				p.StartTicks = stat.StartTicks
			}
			r.add(p)
		}
	}
	for pid, p := range r.processes {
		if !p.seen {
			delete(r.processes, pid)
		}
	}
	return r.order
}

func (r *Receiver) add(listed workload.Process) {
	p := r.processes[listed.PID]
	switch {
	case p == nil || r.tree != nil && p.StartTicks != listed.StartTicks:
		p = &process{directory: shm.NewDirectory(r.runDirectory(listed))}
		r.processes[listed.PID] = p
	case p.StartTicks != listed.StartTicks:
		// A pid that comes or goes leaves the directory what it is.
		p.users, p.StartTime = nil, 0
	default:
		listed.StartTime = max(listed.StartTime, p.StartTime)
	}
	p.Process = listed
	p.seen = true
	if r.tree == nil && p.StartTime == 0 && p.StartTicks != 0 {
		p.StartTime = r.startTime(p.StartTicks)
	}
	r.order = append(r.order, p)
}

// runDirectory is where the run directory of a process can be opened.
func (r *Receiver) runDirectory(p workload.Process) string {
	if r.roots != nil {
		return r.roots.path(p)
	}
	return rundir.Path(r.config.SHMPath, p.PID)
}

// startTime turns ticks since boot into epoch nanoseconds; 0 when the boot time cannot be read.
func (r *Receiver) startTime(ticks uint64) int64 {
	machine, err := r.procfs.Machine()
	if err != nil {
		return 0
	}
	return machine.BootSeconds*1e9 + int64(ticks)*(1e9/procfs.TicksPerSecond)
}

// directories lists the pids of all run directories.
func (r *Receiver) directories() []int {
	dir, err := os.Open(r.config.SHMPath)
	if err != nil {
		r.report.add("Shared memory cannot be read", 1, err)
		return nil
	}
	defer dir.Close()
	var pids []int
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if pid, console, ok := rundir.ParseName(name); ok && !console {
				pids = append(pids, pid)
			}
		}
		if len(pids) > maxDirectories {
			pids = pids[:maxDirectories]
			r.report.add("Too many run directories in shared memory", 1, nil)
			return pids
		}
		if err == io.EOF {
			return pids
		}
		if err != nil {
			r.report.add("Shared memory cannot be read", 1, err)
			return pids
		}
	}
}

// trust says whose documents are taken as those of p: ours, and those of the users that p runs or ran under. In the
// shared memory of another container only the latter.
func (r *Receiver) trust(p *process) shm.Trust {
	return shm.Trust{
		Owner:   func(uid uint32) bool { return r.roots == nil && uid == r.uid || p.runsAs(uid, r.config.ProcFSPath) },
		Started: p.StartTime,
		ByWrite: r.tree == nil,
	}
}

// maxUsers bounds the users that are remembered of one process.
const maxUsers = 16

// runsAs reports whether the process runs or was seen to run under a user. It is asked only when those known do
// not do: a process changes its users seldom, and one that has ended answers no more.
func (p *process) runsAs(uid uint32, procfsPath string) bool {
	if slices.Contains(p.users, uid) {
		return true
	}
	// The owner of /proc/<pid> will not do: it is root for a process that may not be traced.
	for _, u := range procfs.ParseStatus(readHead(filepath.Join(procfsPath, strconv.Itoa(p.PID), "status"), maxStatus)).Users {
		if !slices.Contains(p.users, u) && len(p.users) < maxUsers {
			p.users = append(p.users, u)
		}
	}
	return slices.Contains(p.users, uid)
}
