// Package rundir knows the run directories in shared memory: how they are named, whose they are, and when they may be
// removed.
//
// The profiling library of process N keeps its documents in <base>/graphsignal_N, and the launcher keeps the console
// output of workload N in <base>/graphsignal_log_N. Both hold a file `.owner`. The base may be shared with processes of
// other pid namespaces, whose pids mean nothing here, and with other users.
package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultBase is where run directories are made.
const DefaultBase = "/dev/shm"

const (
	prefix        = "graphsignal_"
	consolePrefix = "graphsignal_log_"
	ownerFile     = ".owner"
	maxOwner      = 4096
	// unreadAfter is how long the directory of a process that has just ended is left to its reader, which may still be
	// starting.
	unreadAfter = 2 * time.Second
	// unusedAfter is how long a directory that was never used must have been left: its maker was killed at that moment.
	unusedAfter = 5 * time.Second
	// staleAfter is how long a directory without `.owner` must have been left unchanged before it is stale.
	staleAfter = 10 * time.Minute
)

// Path is the run directory of a process.
func Path(base string, pid int) string {
	return filepath.Join(base, prefix+strconv.Itoa(pid))
}

// ConsolePath is the directory of a workload's console output.
func ConsolePath(base string, pid int) string {
	return filepath.Join(base, consolePrefix+strconv.Itoa(pid))
}

// ParseName returns the pid in the name of a run directory and whether it is one for console output.
func ParseName(name string) (pid int, console, ok bool) {
	digits, console := strings.CutPrefix(name, consolePrefix)
	if !console {
		if digits, ok = strings.CutPrefix(name, prefix); !ok {
			return 0, false, false
		}
	}
	pid, err := strconv.Atoi(digits)
	if err != nil || pid <= 0 || strconv.Itoa(pid) != digits {
		return 0, false, false
	}
	return pid, console, true
}

// Owner is the content of `.owner`: the process that a run directory belongs to, known to every kernel and pid
// namespace that may see the directory.
type Owner struct {
	PID int `json:"pid"`
	// StartTicks is field 22 of /proc/<pid>/stat.
	StartTicks uint64 `json:"start_time"`
	// BootID is the kernel's /proc/sys/kernel/random/boot_id.
	BootID string `json:"boot_id"`
	// Namespace is the inode of the pid namespace in which PID is a pid.
	Namespace uint64 `json:"pid_ns"`
	// Run is the id of the run that the process belongs to; empty for none.
	Run string `json:"run,omitempty"`
}

// Dirs manages the run directories below one base, as seen from one pid namespace.
type Dirs struct {
	base      string
	bootID    string
	namespace uint64

	uid   uint32
	now   func() time.Time
	alive func(pid int) bool
}

// New returns a Dirs for base; procRoot is the process table that pids refer to.
func New(base, procRoot string) *Dirs {
	d := &Dirs{base: base, uid: uint32(os.Geteuid()), now: time.Now, alive: aliveIn(procRoot)}
	if id, err := os.ReadFile(filepath.Join(procRoot, "sys/kernel/random/boot_id")); err == nil {
		d.bootID = strings.TrimSpace(string(id))
	}
	if link, err := os.Readlink(filepath.Join(procRoot, "self/ns/pid")); err == nil {
		inode, _ := strings.CutPrefix(link, "pid:[")
		d.namespace, _ = strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 64)
	}
	return d
}

// aliveIn tells whether a pid exists. A process table may hide processes of other users, and the kernel
// tells of those by another error than of none; it knows nothing of a table that is not its own.
func aliveIn(procRoot string) func(int) bool {
	return func(pid int) bool {
		if _, err := os.Lstat(filepath.Join(procRoot, strconv.Itoa(pid))); err == nil {
			return true
		}
		return filepath.Clean(procRoot) == "/proc" && !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
}

// Base is the directory that holds the run directories.
func (d *Dirs) Base() string { return d.base }

// Owner describes a process of our own namespace, for CreateConsole.
func (d *Dirs) Owner(pid int, startTicks uint64) Owner {
	return Owner{PID: pid, StartTicks: startTicks, BootID: d.bootID, Namespace: d.namespace}
}

// CreateConsole makes the console directory of a workload, 0700, with its `.owner`, and removes what an earlier
// process of the same pid left there. It fails when the directory exists and is not ours alone, or belongs to a living
// process of another pid namespace.
func (d *Dirs) CreateConsole(owner Owner) (string, error) {
	path := ConsolePath(d.base, owner.PID)
	text, err := json.Marshal(owner)
	if err != nil {
		return "", err
	}
	err = os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if err = d.clear(path, owner); err != nil {
			return "", err
		}
		err = os.Mkdir(path, 0o700)
	}
	if err != nil {
		return "", err
	}
	dir, err := openDirectory(path)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	if err := d.check(dir); err != nil {
		return "", err
	}
	if err := writeOwner(dir, text); err != nil {
		_ = os.RemoveAll(path) // nobody could tell whose it is
		return "", err
	}
	return path, nil
}

// writeOwner makes `.owner` in a directory that has none.
func writeOwner(dir *os.File, text []byte) error {
	path := filepath.Join(dir.Name(), ownerFile)
	fd, err := unix.Openat(int(dir.Fd()), ownerFile, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	_, err = file.Write(append(text, '\n'))
	return errors.Join(err, file.Close())
}

// clear removes the directory of an earlier owner of the same pid.
func (d *Dirs) clear(path string, next Owner) error {
	dir, err := openDirectory(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := d.check(dir); err != nil {
		return err
	}
	owner, known := readOwner(dir)
	switch {
	case known && d.ours(owner): // the pid is next's now, so the earlier owner is gone
	case !d.unchangedFor(dir, staleAfter):
		return fmt.Errorf("%s is in use by a process of another pid namespace", path)
	}
	if owner.Run = next.Run; known && owner == next {
		return fmt.Errorf("%s exists already", path)
	}
	return os.RemoveAll(path)
}

// Remove removes a run directory of a process of our namespace that has ended. It leaves alone, without an error, a
// directory that does not exist, that is another user's, or that by now belongs to another process: one of another
// pid namespace, or a later one with the same pid. A startTicks of 0 is unknown.
func (d *Dirs) Remove(path string, pid int, startTicks uint64) error {
	dir, err := openDirectory(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer dir.Close()
	owner, known := readOwner(dir)
	switch {
	case known && (!d.ours(owner) || owner.PID != pid):
		return nil
	case known && startTicks != 0 && owner.StartTicks != startTicks:
		return nil
	case !d.mayRemove(dir, known):
		return nil
	}
	return os.RemoveAll(path)
}

// Hold tells sweeps that the run of a console directory goes on, for as long as the descriptor of the directory is open:
// somebody will read what its processes have left.
func Hold(directory int) error {
	err := unix.Flock(directory, unix.LOCK_SH|unix.LOCK_NB)
	for try := 0; try < 100 && errors.Is(err, unix.EWOULDBLOCK); try++ { // a sweep is looking
		time.Sleep(time.Millisecond)
		err = unix.Flock(directory, unix.LOCK_SH|unix.LOCK_NB)
	}
	return err
}

// heldRun returns the run of a console directory that is held.
func (d *Dirs) heldRun(path string) (run string, held bool) {
	dir, err := openDirectory(path)
	if err != nil {
		return "", false
	}
	defer dir.Close()
	if !errors.Is(unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return "", false
	}
	owner, known := readOwner(dir)
	if !d.mayRemove(dir, known) {
		return "", false
	}
	return owner.Run, true
}

// Sweep removes the run directories that dead processes left behind, except those of one pid and of runs that are held,
// and returns their paths. With `.owner`, that is those of our own boot and pid namespace whose pid does not exist and that
// were not changed for two seconds. Without, those of our own user whose pid does not exist here and that were not changed
// for ten minutes, or five seconds when nothing is in them. Failures are joined and do not end the sweep.
func (d *Dirs) Sweep(except int) (removed []string, err error) {
	entries, err := os.ReadDir(d.base)
	if err != nil {
		return nil, err
	}
	runs, consoles := make(map[string]bool), make(map[string]bool)
	for _, entry := range entries {
		if _, console, ok := ParseName(entry.Name()); ok && console && entry.IsDir() {
			if run, held := d.heldRun(filepath.Join(d.base, entry.Name())); held {
				runs[run], consoles[entry.Name()] = true, true
			}
		}
	}
	var errs []error
	for _, entry := range entries {
		pid, _, ok := ParseName(entry.Name())
		if !ok || pid == except || !entry.IsDir() || d.alive(pid) || consoles[entry.Name()] {
			continue
		}
		path := filepath.Join(d.base, entry.Name())
		stale, err := d.stale(path, pid, runs)
		if err == nil && stale {
			if err = os.RemoveAll(path); err == nil {
				removed = append(removed, path)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}

// stale judges the directory of a pid that does not exist here. held are the ids of runs that go on.
func (d *Dirs) stale(path string, pid int, held map[string]bool) (bool, error) {
	dir, err := openDirectory(path)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	owner, known := readOwner(dir)
	if !d.mayRemove(dir, known) {
		return false, nil
	}
	if known {
		return d.ours(owner) && owner.PID == pid && (owner.Run == "" || !held[owner.Run]) && d.unchangedFor(dir, unreadAfter), nil
	}
	if unused(dir) {
		return d.unchangedFor(dir, unusedAfter), nil
	}
	return d.unchangedFor(dir, staleAfter), nil
}

// unused reports whether a directory holds nothing but, perhaps, an `.owner` that tells nothing. It is to be called at once
// after the directory was opened.
func unused(dir *os.File) bool {
	names, err := dir.Readdirnames(2)
	_, seekErr := dir.Seek(0, io.SeekStart)
	return seekErr == nil && (len(names) == 0 && errors.Is(err, io.EOF) || len(names) == 1 && names[0] == ownerFile)
}

// ours reports whether owner.PID is a pid of our namespace and this boot.
func (d *Dirs) ours(owner Owner) bool {
	return d.namespace != 0 && owner.Namespace == d.namespace && d.bootID != "" && owner.BootID == d.bootID
}

// mayRemove reports whether the directory is our user's. Root also removes what a workload of its own left that runs
// as another user, where `.owner` tells whose it is.
func (d *Dirs) mayRemove(dir *os.File, known bool) bool {
	var st unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) != nil {
		return false
	}
	return st.Uid == d.uid || d.uid == 0 && known
}

// check returns an error unless the directory belongs to our user and no other can write to it.
func (d *Dirs) check(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return &fs.PathError{Op: "stat", Path: dir.Name(), Err: err}
	}
	switch {
	case st.Uid != d.uid:
		return fmt.Errorf("%s belongs to user %d", dir.Name(), st.Uid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s can be written by other users", dir.Name())
	}
	return nil
}

// unchangedFor reports whether the directory and all it holds are older than age.
func (d *Dirs) unchangedFor(dir *os.File, age time.Duration) bool {
	limit := d.now().Add(-age)
	info, err := dir.Stat()
	if err != nil || info.ModTime().After(limit) {
		return false
	}
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return false
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || info.ModTime().After(limit) {
			return false
		}
	}
	return true
}

// openDirectory opens a directory, but not through a symbolic link.
func openDirectory(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// readOwner reads `.owner`; false when there is none that tells.
func readOwner(dir *os.File) (Owner, bool) {
	// O_NONBLOCK, since somebody may have put a FIFO there.
	fd, err := unix.Openat(int(dir.Fd()), ownerFile, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Owner{}, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Owner{}, false
	}
	buf := make([]byte, maxOwner)
	n := 0
	for n < len(buf) {
		got, err := unix.Read(fd, buf[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || got <= 0 {
			break
		}
		n += got
	}
	return ParseOwner(buf[:n])
}

// ParseOwner parses the content of `.owner`; false when it does not name a process.
func ParseOwner(data []byte) (Owner, bool) {
	var owner Owner
	if json.Unmarshal(data, &owner) != nil || owner.PID <= 0 || owner.BootID == "" || owner.Namespace == 0 {
		return Owner{}, false
	}
	return owner, true
}
