package shmreceiver

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

// ProcSHM as shm_path has each process's own /dev/shm read, the one below its root directory, where processes of other
// containers keep their run directories under the pids of their own namespaces.
const ProcSHM = "proc"

const (
	// recheckRounds is in how many collections each process without a run directory is looked at once.
	recheckRounds = 5
	// keepEnded is for how many collections an ended process waits for a pipeline that does not take its last documents.
	keepEnded = 10
	// maxStatus is as much of /proc/<pid>/status as is read: before the ids stand a user's groups, of which there may
	// be thousands.
	maxStatus = 64 << 10
	// maxOwner is as much of an `.owner` file as is read.
	maxOwner = 4096
)

// rootSHM lists the processes of all pid namespaces that have a run directory in their own shared memory. A directory
// that was found is held open, so that what a process wrote last can be read after its end, when nothing leads there
// any more. Nothing is ever removed.
type rootSHM struct {
	procfsPath string
	table      *procfs.Reader
	report     *report
	boot       int64

	entries []procfs.Entry
	known   map[int]*rootProcess
	ended   []*rootProcess
	held    int
	round   int
	// How many processes, at their first sight, let their root directory be opened and how many did not.
	opened, denied int
	lastDenied     error
	told           bool
}

// rootProcess is a process of the table.
type rootProcess struct {
	workload.Process
	inode uint64
	inner int      // pid in the process's own namespace; 0 for what has no run directory, such as a kernel thread
	shm   *os.File // its shared memory (O_PATH), once its run directory was found
	left  int      // collections that an ended one still waits
	round int      // the last one that saw it
}

var _ workload.Reader = (*rootSHM)(nil)

func newRootSHM(procfsPath string, report *report) *rootSHM {
	s := &rootSHM{procfsPath: procfsPath, table: procfs.NewReader(procfsPath), report: report, known: make(map[int]*rootProcess)}
	s.boot, _ = s.table.BootTime()
	return s
}

// Processes implements workload.Reader.
func (s *rootSHM) Processes() []workload.Process {
	s.round++
	entries, err := s.table.Processes(s.entries[:0])
	s.entries = entries
	if err != nil {
		s.report.add("The process table cannot be read", 1, err)
		return s.list()
	}
	for _, e := range entries {
		s.see(e)
	}
	if s.denied > s.opened && !s.told {
		// A few processes may be guarded well; most are not, where we have the rights.
		s.told = true
		s.report.add("Shared memory of most processes may not be read: capabilities SYS_PTRACE and DAC_READ_SEARCH are needed", s.denied, s.lastDenied)
	}
	for pid, p := range s.known {
		if p.round != s.round {
			delete(s.known, pid)
			s.end(p)
		}
	}
	s.ended = slices.DeleteFunc(s.ended, func(p *rootProcess) bool {
		p.left--
		if p.left < 0 {
			s.release(p)
		}
		return p.left < 0
	})
	return s.list()
}

func (s *rootSHM) list() []workload.Process {
	list := make([]workload.Process, 0, s.held)
	for _, p := range s.ended {
		list = append(list, p.Process)
	}
	for _, p := range s.known {
		// A pid that is used again waits until its earlier process was read to the end.
		if p.shm != nil && !slices.ContainsFunc(s.ended, func(e *rootProcess) bool { return e.PID == p.PID }) {
			list = append(list, p.Process)
		}
	}
	slices.SortFunc(list, func(a, b workload.Process) int { return a.PID - b.PID })
	return list
}

// see brings up to date what is known of one process.
func (s *rootSHM) see(e procfs.Entry) {
	p := s.known[e.PID]
	fresh := p == nil
	if p == nil || p.inode != e.Inode {
		stat, err := s.table.Stat(e.PID)
		if err != nil || stat.Ended() {
			return
		}
		if p != nil && p.StartTicks == stat.StartTicks {
			p.inode = e.Inode // the kernel only forgot the number of the entry
		} else {
			if p != nil {
				s.end(p)
			}
			fresh = true
			p = &rootProcess{inode: e.Inode, inner: s.innerPID(e.PID)}
			p.Process = workload.Process{PID: e.PID, Root: e.PID, StartTicks: stat.StartTicks}
			if s.boot != 0 {
				p.StartTime = procfs.StartTime(s.boot, stat.StartTicks)
			}
			s.known[e.PID] = p
		}
	}
	p.round = s.round
	if p.shm == nil && p.inner != 0 && (fresh || (p.PID+s.round)%recheckRounds == 0) {
		err := s.find(p)
		switch {
		case !fresh:
		case errors.Is(err, fs.ErrPermission):
			s.denied, s.lastDenied = s.denied+1, err
		default:
			s.opened++
		}
	}
}

// end keeps a process whose run directory is open until it was read once more.
func (s *rootSHM) end(p *rootProcess) {
	if p.shm == nil {
		return
	}
	p.Ended, p.left = true, keepEnded
	s.ended = append(s.ended, p)
}

// innerPID reads the pid of a process in its own, innermost namespace. It is 0 for a process without an address space
// (a kernel thread) and for one that is gone.
func (s *rootSHM) innerPID(pid int) int {
	status := procfs.ParseStatus(readHead(filepath.Join(s.procfsPath, strconv.Itoa(pid), "status"), maxStatus))
	if !status.AddressSpace {
		return 0
	}
	return cmp.Or(status.InnerPID, pid)
}

// find looks for the run directory of a process. No part of the way below its root may be a link: a link would be
// followed from our own root. The error says that its shared memory cannot be opened.
func (s *rootSHM) find(p *rootProcess) error {
	way := filepath.Join(s.procfsPath, strconv.Itoa(p.PID), "root")
	fd, err := openPath(unix.AT_FDCWD, way, 0)
	for _, name := range []string{"dev", "shm"} {
		if err != nil {
			break
		}
		above := fd
		way = filepath.Join(way, name)
		fd, err = openPath(above, name, unix.O_NOFOLLOW)
		_ = unix.Close(above)
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: way, Err: err}
	}
	name := filepath.Base(rundir.Path("", p.inner))
	var st unix.Stat_t
	switch {
	case unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil, st.Mode&unix.S_IFMT != unix.S_IFDIR,
		!s.ownedBy(fd, name, p):
	case s.held >= maxDirectories:
		s.report.add("Too many run directories in shared memory", 1, nil)
	default:
		p.shm = os.NewFile(uintptr(fd), way)
		s.held++
		return nil
	}
	_ = unix.Close(fd)
	return nil
}

// ownedBy reports whether a run directory is that of a process and not of another one that has the same pid in another
// namespace and shares its memory. A directory that does not say whose it is may be.
func (s *rootSHM) ownedBy(dir int, name string, p *rootProcess) bool {
	owner, known := rundir.ParseOwner(readHeadAt(dir, filepath.Join(name, ".owner"), maxOwner))
	if !known {
		return true
	}
	namespace, err := os.Readlink(filepath.Join(s.procfsPath, strconv.Itoa(p.PID), "ns", "pid"))
	return err != nil || owner.PID == p.inner && namespace == fmt.Sprintf("pid:[%d]", owner.Namespace)
}

// path is where the run directory of a listed process can be opened.
func (s *rootSHM) path(listed workload.Process) string {
	for _, p := range s.ended {
		if p.PID == listed.PID && p.StartTicks == listed.StartTicks {
			return p.path()
		}
	}
	return s.known[listed.PID].path()
}

func (p *rootProcess) path() string {
	return rundir.Path("/proc/self/fd/"+strconv.Itoa(int(p.shm.Fd())), p.inner)
}

// shown replaces our own descriptor in a path by the way that leads there for everybody.
func (s *rootSHM) shown(path string) string {
	show := func(p *rootProcess) bool {
		if p.shm == nil {
			return false
		}
		rest, ok := strings.CutPrefix(path, p.path())
		if ok {
			path = rundir.Path(p.shm.Name(), p.inner) + rest
		}
		return ok
	}
	for _, p := range s.ended {
		if show(p) {
			return path
		}
	}
	for _, p := range s.known {
		if show(p) {
			return path
		}
	}
	return path
}

// Done implements workload.Reader: an ended process was read to the end.
func (s *rootSHM) Done(done workload.Process) {
	s.ended = slices.DeleteFunc(s.ended, func(p *rootProcess) bool {
		if p.PID != done.PID || p.StartTicks != done.StartTicks {
			return false
		}
		s.release(p)
		return true
	})
}

// Close implements workload.Reader.
func (s *rootSHM) Close() {
	for _, p := range s.ended {
		s.release(p)
	}
	for _, p := range s.known {
		s.release(p)
	}
	s.ended = nil
	clear(s.known)
}

func (s *rootSHM) release(p *rootProcess) {
	if p.shm != nil {
		_ = p.shm.Close()
		p.shm = nil
		s.held--
	}
}

// openPath opens a directory as a place only, which needs no right to list it.
func openPath(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// readHead returns at most n bytes of the beginning of a file, or none.
func readHead(path string, n int) []byte { return readHeadAt(unix.AT_FDCWD, path, n) }

// readHeadAt is readHead below a directory. It does not follow a link and does not wait for the writer of a FIFO.
func readHeadAt(dir int, path string, n int) []byte {
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	head := make([]byte, 0, min(n, 4096))
	for len(head) < n {
		if len(head) == cap(head) {
			head = slices.Grow(head, min(len(head), n-len(head)))
		}
		m, err := unix.Read(fd, head[len(head):min(cap(head), n)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || m <= 0 {
			break
		}
		head = head[:len(head)+m]
	}
	return head
}
