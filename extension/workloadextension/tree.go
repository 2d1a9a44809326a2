package workloadextension

import (
	"cmp"
	"slices"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

// maxMembers bounds the processes followed at a time; later ones are not seen.
const maxMembers = 4096

// recheckEvery is after how many scans a stranger is read again although its entry is the same. The kernel keeps an entry
// apart from that of an earlier process of the pid only as well as it can.
const recheckEvery = 32

// member is a process of the workload.
type member struct {
	workload.Process
	comm string
	// settled says that the command line was read again after the first look, which may fall between fork and exec.
	settled bool
}

// stranger is a process known not to belong to the workload.
type stranger struct {
	inode uint64
	scan  uint64
}

// candidate is a process that a scan has to judge.
type candidate struct {
	ppid  int
	ticks uint64
	inode uint64
	comm  string
	state verdict
}

type verdict uint8

const (
	unjudged verdict = iota
	inside
	outside
	// unknown is a process whose parent the scan has not seen: it is judged again next time.
	unknown
)

// tree follows the target and its descendants through scans of a process table. A descendant stays known while it
// lives, also when its parent dies and it is handed to another. It is not safe for concurrent use.
type tree struct {
	reader *procfs.Reader
	boot   int64 // epoch nanoseconds, 0 when unknown
	self   int   // our own pid, which is no part of a workload

	target *member
	// given says that the target's command line was configured, which is better than what the table shows.
	given   bool
	members map[int]*member // living descendants and the target, by pid
	// strangers are not read again while the table's entry is the same one.
	strangers  map[int]stranger
	candidates map[int]*candidate
	entries    []procfs.Entry
	scans      uint64
	// overflow says that a process was left out because of maxMembers.
	overflow bool
}

func newTree(reader *procfs.Reader, self int, target workload.Process) *tree {
	t := &tree{
		reader: reader, self: self, members: make(map[int]*member), strangers: make(map[int]stranger),
		candidates: make(map[int]*candidate),
	}
	t.boot, _ = reader.BootTime()
	t.target = &member{Process: target}
	t.given = target.CommandLine != ""
	return t
}

// find looks the target up for the first time. hidden tells that a pid lives although the table does not show it.
func (t *tree) find(hidden func(pid int) bool) {
	stat, err := t.reader.Stat(t.target.PID)
	switch {
	case err == nil:
		t.identify(stat)
		t.target.Ended = stat.Ended()
		t.describe(t.target, stat.Comm)
	case procfs.Gone(err):
		t.target.Ended = !hidden(t.target.PID)
	}
	if !t.target.Ended {
		t.members[t.target.PID] = t.target
	}
}

// identify takes the target's start from the table.
func (t *tree) identify(stat procfs.Stat) {
	t.target.StartTicks = stat.StartTicks
	if t.boot != 0 {
		t.target.StartTime = procfs.StartTime(t.boot, stat.StartTicks)
	}
}

// scan reads the table once and returns the processes that ended, by pid. An error means that the table could not be
// listed; the members are looked at all the same.
func (t *tree) scan(hidden func(pid int) bool) (ended []workload.Process, err error) {
	t.scans++
	t.entries, err = t.reader.Processes(t.entries[:0])
	clear(t.candidates)
	for pid, m := range t.members {
		stat, err := t.reader.Stat(pid)
		if err == nil && m == t.target && m.StartTicks == 0 {
			t.identify(stat) // the table did not show it before
		}
		switch {
		case err == nil && stat.StartTicks == m.StartTicks && !stat.Ended():
			t.describe(m, stat.Comm)
		case err == nil || procfs.Gone(err) && !hidden(pid):
			m.Ended = true
			ended = append(ended, m.Process)
			delete(t.members, pid)
		}
	}
	for _, e := range t.entries {
		t.look(e)
	}
	for pid := range t.candidates {
		t.judge(pid, 0)
	}
	for pid, c := range t.candidates {
		switch {
		case c.state == outside:
			t.strangers[pid] = stranger{inode: c.inode, scan: t.scans}
		case c.state != inside:
		case len(t.members) >= maxMembers:
			t.overflow = true
		default:
			m := &member{Process: workload.Process{PID: pid, Root: t.target.PID, StartTicks: c.ticks}}
			if t.boot != 0 {
				m.StartTime = procfs.StartTime(t.boot, c.ticks)
			}
			t.describe(m, []byte(c.comm))
			t.members[pid] = m
		}
	}
	if err == nil {
		for pid, s := range t.strangers {
			if s.scan != t.scans {
				delete(t.strangers, pid)
			}
		}
	}
	sortByPID(ended)
	return ended, err
}

// adopt makes a process that is known to belong to the workload a member. It returns the process and true when that has
// ended already; one that is a member stays as it is.
func (t *tree) adopt(pid int, ticks uint64) (workload.Process, bool) {
	if m, ok := t.members[pid]; ok && m.StartTicks == ticks || pid == t.target.PID {
		return t.target.Process, false
	}
	p := workload.Process{PID: pid, Root: t.target.PID, StartTicks: ticks}
	if t.boot != 0 {
		p.StartTime = procfs.StartTime(t.boot, ticks)
	}
	stat, err := t.reader.Stat(pid)
	if err != nil || stat.StartTicks != ticks || stat.Ended() {
		p.Ended = true
		return p, true
	}
	if len(t.members) >= maxMembers {
		t.overflow = true
		return p, false
	}
	m := &member{Process: p}
	t.describe(m, stat.Comm)
	t.members[pid] = m
	delete(t.strangers, pid)
	return p, false
}

// look makes a candidate of an entry that is neither a member nor a known stranger.
func (t *tree) look(e procfs.Entry) {
	recheck := (uint64(e.PID)+t.scans)%recheckEvery == 0
	if s, ok := t.strangers[e.PID]; ok && s.inode == e.Inode && !recheck {
		t.strangers[e.PID] = stranger{inode: e.Inode, scan: t.scans}
		return
	}
	if _, ok := t.members[e.PID]; ok {
		return
	}
	stat, err := t.reader.Stat(e.PID)
	if err != nil || stat.Ended() {
		return
	}
	t.candidates[e.PID] = &candidate{ppid: stat.PPID, ticks: stat.StartTicks, inode: e.Inode, comm: string(stat.Comm)}
}

// judge decides whether a candidate descends from a member. A parent is never younger than its child: one that is
// carries the pid of a parent that has died.
func (t *tree) judge(pid, depth int) verdict {
	c := t.candidates[pid]
	if c.state != unjudged {
		return c.state
	}
	c.state = unknown // also what a circle of parents comes to
	parent, isMember := t.members[c.ppid]
	known, isStranger := t.strangers[c.ppid]
	above := t.candidates[c.ppid]
	switch {
	case pid == t.self || c.ppid == t.self || c.ppid == 0 || pid == 1:
		c.state = outside
	case isMember && parent.StartTicks <= c.ticks:
		c.state = inside
	case isMember || c.ppid == 1:
		c.state = outside
	case above != nil && depth < len(t.candidates):
		switch v := t.judge(c.ppid, depth+1); {
		case v == inside && above.ticks > c.ticks:
			c.state = outside
		default:
			c.state = v
		}
	case isStranger && known.scan == t.scans:
		c.state = outside
	}
	return c.state
}

// describe reads the command line of a process when it is first seen, once again later, and whenever its title
// changed: exec and setproctitle change both.
func (t *tree) describe(m *member, comm []byte) {
	if m == t.target && t.given || m.settled && m.comm == string(comm) {
		return
	}
	m.settled = m.comm != "" && m.comm == string(comm)
	m.comm = string(comm)
	if argv, err := t.reader.Cmdline(m.PID); err == nil && len(argv) > 0 {
		m.CommandLine = workload.CommandLine(argv)
	}
}

// living returns the target, when it lives, and its living descendants by pid.
func (t *tree) living(dst []workload.Process) []workload.Process {
	for _, m := range t.members {
		dst = append(dst, m.Process)
	}
	sortByPID(dst)
	return dst
}

func byPID(a, b workload.Process) int { return cmp.Compare(a.PID, b.PID) }

func sortByPID(list []workload.Process) {
	slices.SortFunc(list, byPID)
}
