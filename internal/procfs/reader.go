// Package procfs reads the few files of Linux's /proc that describe processes and the host. Its parsers take
// bytes, its Reader any directory in the shape of /proc.
package procfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultRoot is where Linux mounts its process table.
const DefaultRoot = "/proc"

// maxFile bounds what is read of one file. /proc/stat of a machine with 1,024 CPUs has about 200 KiB.
const maxFile = 1 << 20

// maxCmdline bounds what is read of a command line.
const maxCmdline = 64 << 10

// Reader reads a process table. It reuses its buffers, so that one Reader serves one goroutine at a time.
type Reader struct {
	root string
	path []byte
	data []byte
	dirs []byte
}

// NewReader returns a Reader of root, a directory like [DefaultRoot].
func NewReader(root string) *Reader {
	return &Reader{root: root, data: make([]byte, 4096)}
}

// Stat reads /proc/<pid>/stat. The error of a process that is gone satisfies [Gone].
func (r *Reader) Stat(pid int) (Stat, error) {
	data, err := r.read(r.name(pid, "/stat"), maxFile)
	if err != nil {
		return Stat{}, err
	}
	s, err := ParseStat(data)
	if err != nil {
		return Stat{}, fileError(string(r.path), err)
	}
	return s, nil
}

// Cmdline reads the arguments of a process: none for a kernel thread or zombie. Past 64 KiB they are cut.
func (r *Reader) Cmdline(pid int) ([]string, error) {
	data, err := r.read(r.name(pid, "/cmdline"), maxCmdline)
	if err != nil {
		return nil, err
	}
	return SplitCmdline(data), nil
}

// ThreadSwitches reads the context switches of one thread of a process.
func (r *Reader) ThreadSwitches(pid, tid int) (Switches, error) {
	r.name(pid, "/task/")
	r.path = strconv.AppendInt(r.path, int64(tid), 10)
	r.path = append(r.path, "/status"...)
	data, err := r.read(string(r.path), maxFile)
	if err != nil {
		return Switches{}, err
	}
	s, err := ParseSwitches(data)
	if err != nil {
		return Switches{}, fileError(string(r.path), err)
	}
	return s, nil
}

// Threads appends the thread ids of a process to dst.
func (r *Reader) Threads(pid int, dst []int) ([]int, error) {
	err := r.list(r.name(pid, "/task"), func(tid int, _ uint64) { dst = append(dst, tid) })
	return dst, err
}

// Entry is one process of the table.
type Entry struct {
	PID int
	// Inode identifies the entry while the process lives: a later process of the same pid has another one.
	Inode uint64
}

// Processes appends all processes to dst.
func (r *Reader) Processes(dst []Entry) ([]Entry, error) {
	err := r.list(r.root, func(pid int, inode uint64) { dst = append(dst, Entry{PID: pid, Inode: inode}) })
	return dst, err
}

// MemInfo reads /proc/meminfo.
func (r *Reader) MemInfo() (MemInfo, error) {
	path := r.root + "/meminfo"
	data, err := r.read(path, maxFile)
	if err != nil {
		return MemInfo{}, err
	}
	m, err := ParseMemInfo(data)
	if err != nil {
		return MemInfo{}, fileError(path, err)
	}
	return m, nil
}

// Machine reads /proc/stat.
func (r *Reader) Machine() (Machine, error) {
	path := r.root + "/stat"
	data, err := r.read(path, maxFile)
	if err != nil {
		return Machine{}, err
	}
	m, err := ParseMachine(data)
	if err != nil {
		return Machine{}, fileError(path, err)
	}
	return m, nil
}

// BootTime returns when the system booted, in nanoseconds since the epoch. Two calls may differ by as much as the
// clock was corrected in between.
func (r *Reader) BootTime() (int64, error) {
	m, err := r.Machine()
	if err != nil {
		return 0, err
	}
	return preciseBoot(m.BootSeconds), nil
}

// preciseBoot adds the fraction of the second where the running system's clocks agree with the whole seconds.
// They do not where the table is not that of the running system.
func preciseBoot(seconds int64) int64 {
	whole := seconds * int64(time.Second)
	var sinceBoot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &sinceBoot); err != nil {
		return whole
	}
	boot := time.Now().UnixNano() - sinceBoot.Nano()
	if d := boot - whole; d < -int64(time.Second) || d > 2*int64(time.Second) {
		return whole
	}
	return boot
}

// StartTime converts a start in ticks to nanoseconds since the epoch.
func StartTime(boot int64, ticks uint64) int64 {
	return boot + int64(ticks)*int64(time.Second/TicksPerSecond)
}

// Gone reports whether err says that the process or thread does not exist any more, or never did.
func Gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)
}

func (r *Reader) name(pid int, file string) string {
	r.path = append(append(r.path[:0], r.root...), '/')
	r.path = strconv.AppendInt(r.path, int64(pid), 10)
	r.path = append(r.path, file...)
	return string(r.path)
}

// read returns the content of a file, at most limit bytes, valid until the next read. It avoids os.File, which
// would register each of these short-lived descriptors with the poller.
func (r *Reader) read(path string, limit int) ([]byte, error) {
	fd, err := open(path, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	n := 0
	for {
		if n >= limit {
			return r.data[:limit], nil
		}
		if n == len(r.data) {
			r.data = append(r.data, make([]byte, len(r.data))...)
		}
		got, err := unix.Read(fd, r.data[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case got == 0:
			return r.data[:n], nil
		default:
			n += got
		}
	}
}

func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// Offsets in struct linux_dirent64 (getdents64(2)).
const (
	direntReclen = 16
	direntName   = 19
)

// list calls visit for every entry of a directory whose name is a number.
func (r *Reader) list(path string, visit func(id int, inode uint64)) error {
	fd, err := open(path, unix.O_DIRECTORY)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if r.dirs == nil {
		r.dirs = make([]byte, 32<<10)
	}
	for {
		n, err := unix.Getdents(fd, r.dirs)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "readdir", Path: path, Err: err}
		}
		if n <= 0 {
			return nil
		}
		for buf := r.dirs[:n]; len(buf) > direntName; {
			length := int(binary.NativeEndian.Uint16(buf[direntReclen:]))
			if length <= direntName || length > len(buf) {
				break
			}
			name := buf[direntName:length]
			if end := bytes.IndexByte(name, 0); end >= 0 {
				name = name[:end]
			}
			if id, ok := parsePID(name); ok {
				visit(id, binary.NativeEndian.Uint64(buf))
			}
			buf = buf[length:]
		}
	}
}
