package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bounds of reading.
const (
	readSize = 64 << 10
	// maxRecord bounds one record, bytes: the launcher's lines of 64 KiB, escaped six to one, fit.
	maxRecord = 1 << 20
	// maxNames bounds the names looked at in the directory.
	maxNames = 4096
	// maxSegments bounds the segments held open, and so the memory of those that were deleted meanwhile.
	maxSegments = 4
)

// ReadStats counts what a SegmentReader could not use.
type ReadStats struct {
	// Malformed records were skipped.
	Malformed uint64
	// LostSegments were deleted before they were read, or came faster than they were read.
	LostSegments uint64
	// Refused files of a segment's name are no regular files of ours.
	Refused uint64
}

// SegmentReader tails the segments log_<seq>.jsonl of one directory in their order, each record once. It holds a
// segment open until a later one exists, so that rotation between two reads loses nothing. Not safe for concurrent use.
type SegmentReader struct {
	dir   string
	next  int64 // the least sequence number not yet opened
	files []*segment
	buf   []byte
	stats ReadStats
}

// segment is one open file.
type segment struct {
	seq  int64
	file *os.File
	// offset is where the next record begins.
	offset int64
	// skipping says that offset lies within a record that is too long.
	skipping bool
}

// NewSegmentReader returns a reader of dir, which need not exist yet.
func NewSegmentReader(dir string) *SegmentReader {
	return &SegmentReader{dir: dir, buf: make([]byte, readSize)}
}

// Stats returns the counts so far.
func (r *SegmentReader) Stats() ReadStats { return r.stats }

// Close closes the files.
func (r *SegmentReader) Close() {
	for _, s := range r.files {
		s.file.Close()
	}
	r.files = nil
}

// Read hands every new record to sink, up to the last complete one. A missing directory has none. It stops early when
// ctx is done, and then goes on at the next call. A record's strings are overwritten after sink has returned.
func (r *SegmentReader) Read(ctx context.Context, sink func(Record)) error {
	if err := r.Open(); err != nil {
		return err
	}
	for len(r.files) > 0 {
		if err := r.drain(ctx, r.files[0], sink); err != nil {
			if ctx.Err() != nil {
				return err
			}
			err = fmt.Errorf("read console segment %d: %w", r.files[0].seq, err)
			if len(r.files) > 1 {
				r.drop()
			}
			return err
		}
		if len(r.files) == 1 {
			return nil
		}
		// A later segment existed before the drain, so the writer is done with this one.
		if info, err := r.files[0].file.Stat(); err == nil && info.Size() > r.files[0].offset {
			r.stats.Malformed++ // a record without its end
		}
		r.drop()
	}
	return nil
}

// drop closes the first open segment.
func (r *SegmentReader) drop() {
	r.files[0].file.Close()
	r.files = slices.Delete(r.files, 0, 1)
}

// Open opens the segments that came since the last call, in their order, without reading them: what is open cannot
// be lost by its deletion. Read does it too.
func (r *SegmentReader) Open() error {
	dir, err := os.OpenFile(r.dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open console directory: %w", err)
	}
	defer dir.Close()
	if info, err := dir.Stat(); err != nil {
		return fmt.Errorf("stat console directory: %w", err)
	} else if !ownedByUs(info) {
		return fmt.Errorf("console directory %s belongs to another user", r.dir)
	}
	names, err := dir.Readdirnames(maxNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("list console directory: %w", err)
	}
	var seqs []int64
	for _, name := range names {
		if seq, ok := segmentNumber(name); ok && seq >= r.next {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		r.stats.LostSegments += uint64(seq - r.next)
		r.next = seq + 1
		file, err := openSegment(dir, seq)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				r.stats.LostSegments++
			} else {
				r.stats.Refused++
			}
			continue
		}
		r.files = append(r.files, &segment{seq: seq, file: file})
		if len(r.files) > maxSegments {
			r.stats.LostSegments++
			r.drop()
		}
	}
	return nil
}

// segmentNumber returns the sequence number in a segment's name.
func segmentNumber(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, "log_")
	if !ok {
		return 0, false
	}
	if digits, ok = strings.CutSuffix(digits, ".jsonl"); !ok || countDigits(digits) != len(digits) {
		return 0, false
	}
	seq, err := strconv.ParseInt(digits, 10, 62)
	return seq, err == nil
}

var errNotSegment = errors.New("not a regular file of ours")

// openSegment opens a segment in dir: no links, no pipes, no other user's file.
func openSegment(dir *os.File, seq int64) (*os.File, error) {
	name := "log_" + strconv.FormatInt(seq, 10) + ".jsonl"
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
		unix.Close(fd)
		return nil, errNotSegment
	}
	return os.NewFile(uintptr(fd), name), nil
}

func ownedByUs(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// drain reads a segment to its last complete record.
func (r *SegmentReader) drain(ctx context.Context, s *segment, sink func(Record)) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := s.file.ReadAt(r.buf, s.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			return s.shrink()
		}
		end := bytes.LastIndexByte(r.buf[:n], '\n')
		switch {
		case end >= 0:
			// Not copied: the records' strings are good until sink returns, and the buffer is not written before.
			r.records(s, unsafe.String(unsafe.SliceData(r.buf), end), sink)
			s.offset += int64(end) + 1
		case n < len(r.buf):
			return nil // a record that is still being written
		case len(r.buf) < maxRecord:
			r.buf = make([]byte, min(2*len(r.buf), maxRecord))
		default:
			if !s.skipping {
				r.stats.Malformed++
				s.skipping = true
			}
			s.offset += int64(n)
		}
	}
}

// shrink goes back to the end of a segment from which the writer took back records, for lack of memory.
func (s *segment) shrink() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	s.offset = min(s.offset, info.Size())
	return nil
}

// records decodes the complete records of a chunk.
func (r *SegmentReader) records(s *segment, chunk string, sink func(Record)) {
	for more := true; more; {
		var line string
		line, chunk, more = strings.Cut(chunk, "\n")
		if s.skipping {
			s.skipping = false
			continue
		}
		if line == "" {
			continue
		}
		record, err := decodeRecord(line)
		if err != nil {
			r.stats.Malformed++
			continue
		}
		sink(record)
	}
}
