package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
)

// maxSegment is the size at which a segment is full, in bytes. A record that is larger gets a segment of its own.
const maxSegment = 1 << 20

// segments are the files log_<n>.jsonl of a directory, one JSON object a line; the two newest are kept. They belong to
// one writer.
type segments struct {
	path string
	// dir is a descriptor of the directory.
	dir int

	file  int
	next  int
	size  int64
	began time.Time
	// dropped lines could not be written since the last loss marker.
	dropped int64
}

// captureBase finds where console directories can be made: shared memory, else a private directory of this user.
func captureBase(shm, runtimeDir string) (string, error) {
	if unix.Access(shm, unix.W_OK|unix.X_OK) == nil {
		return shm, nil
	}
	base, err := privateBase(runtimeDir)
	if err != nil {
		return "", fmt.Errorf("%s cannot be written; %w", shm, err)
	}
	return base, nil
}

// privateBase makes a private directory of this user for console directories.
func privateBase(runtimeDir string) (string, error) {
	var reasons []string
	for _, parent := range []string{runtimeDir, os.TempDir()} {
		if parent == "" {
			continue
		}
		base := filepath.Join(parent, "graphsignal-"+strconv.Itoa(os.Geteuid()))
		err := privateDirectory(base)
		if err == nil {
			// The sidecar sweeps shared memory only.
			_, _ = rundir.New(base, "/proc").Sweep(0)
			return base, nil
		}
		reasons = append(reasons, err.Error())
	}
	return "", errors.New(strings.Join(reasons, "; "))
}

// privateDirectory makes a directory that nobody else can enter, or accepts one that is so.
func privateDirectory(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s is not a private directory of this user", path)
	}
	return unix.Access(path, unix.W_OK|unix.X_OK)
}

// newSegments makes the console directory of a workload. While it is open, sweeps leave all directories of the run alone.
func newSegments(base string, pid int, run string) (*segments, error) {
	ticks, err := startTicks(pid)
	if err != nil {
		return nil, err
	}
	dirs := rundir.New(base, "/proc")
	owner := dirs.Owner(pid, ticks)
	owner.Run = run
	path, err := dirs.CreateConsole(owner)
	if err != nil {
		return nil, err
	}
	dir, err := unix.Open(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = os.RemoveAll(path)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	_ = rundir.Hold(dir) // without it, what has just changed is left alone all the same
	return &segments{path: path, dir: dir, file: -1}, nil
}

// startTicks is when a process started.
func startTicks(pid int) (uint64, error) {
	stat, err := procfs.NewReader(procfs.DefaultRoot).Stat(pid)
	return stat.StartTicks, err
}

// write appends whole records, lines of them, in as few writes as segments allow. What cannot be written is counted.
// pace, unless nil, is called before a segment is replaced.
func (s *segments) write(records []byte, lines int, pace func(began time.Time)) {
	if s.dropped > 0 {
		marker := []byte(`{"ts":` + strconv.FormatInt(time.Now().UnixNano(), 10) + `,"dropped":` + strconv.FormatInt(s.dropped, 10) + "}\n")
		if s.append(marker, pace) != nil {
			s.dropped += int64(lines)
			return
		}
		s.dropped = 0
	}
	for len(records) > 0 {
		part := s.fitting(records)
		if s.append(part, pace) != nil {
			s.dropped += int64(bytes.Count(records, newline))
			return
		}
		records = records[len(part):]
	}
}

// fitting returns the records at the head that fit the current segment or a new one, at least one record.
func (s *segments) fitting(records []byte) []byte {
	room := maxSegment - s.size
	if s.file < 0 {
		room = maxSegment
	}
	if int64(len(records)) <= room {
		return records
	}
	if end := bytes.LastIndexByte(records[:max(room, 0)], '\n'); end >= 0 {
		return records[:end+1]
	}
	// Nothing fits: a new segment takes what it can hold.
	if end := bytes.LastIndexByte(records[:min(int64(len(records)), maxSegment)], '\n'); end >= 0 {
		return records[:end+1]
	}
	return records[:bytes.IndexByte(records, '\n')+1]
}

// append writes records to one segment; after an error the segment holds whole records still.
func (s *segments) append(records []byte, pace func(began time.Time)) error {
	if s.file < 0 || s.size > 0 && s.size+int64(len(records)) > maxSegment {
		if s.file >= 0 && pace != nil {
			pace(s.began)
		}
		if err := s.rotate(); err != nil {
			return err
		}
	}
	if n, err := descriptor(s.file).Write(records); err != nil {
		if n > 0 {
			_ = unix.Ftruncate(s.file, s.size)
		}
		return err
	}
	s.size += int64(len(records))
	return nil
}

// rotate opens the next segment and removes the one before the last.
func (s *segments) rotate() error {
	file, err := unix.Openat(s.dir, segmentName(s.next), unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if s.file >= 0 {
		_ = unix.Close(s.file)
	}
	if s.next >= 2 {
		_ = unix.Unlinkat(s.dir, segmentName(s.next-2), 0)
	}
	s.file, s.size, s.began = file, 0, time.Now()
	s.next++
	return nil
}

func segmentName(n int) string { return "log_" + strconv.Itoa(n) + ".jsonl" }

func (s *segments) close() {
	if s.file >= 0 {
		_ = unix.Close(s.file)
		s.file = -1
	}
}

// remove removes the directory, which the sidecar does too.
func (s *segments) remove() {
	_ = os.RemoveAll(s.path)
}
