package shm

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MaxFiles is how many files of one directory are read, the first by name.
const MaxFiles = 64

// DefaultMaxFileSize is the size in bytes above which a file is skipped.
const DefaultMaxFileSize = 16 << 20

// settled is the age from which unchanged times of a file prove unchanged content: the kernel's clock for them moves
// in steps of up to 10 ms.
const settled = 50 * time.Millisecond

// Selection says which files of a directory are read.
type Selection struct {
	names []string
	rest  bool
}

// Named selects files by name.
func Named(names ...string) Selection { return Selection{names: names} }

// AllBut selects every "*.json" file that is neither hidden nor named here.
func AllBut(names ...string) Selection { return Selection{names: names, rest: true} }

func (s Selection) takes(name string) bool {
	return strings.HasSuffix(name, ".json") && name[0] != '.' && slices.Contains(s.names, name) != s.rest
}

// Directory is what is known of the run directory of one process.
type Directory struct {
	path    string
	files   map[string]*File
	problem string // what was last wrong with the directory itself, so that it is reported once
}

// NewDirectory returns a Directory that has read nothing yet. It need not exist.
func NewDirectory(path string) *Directory {
	return &Directory{path: path, files: make(map[string]*File)}
}

// File is what is known of one file of a Directory.
type File struct {
	// Path is the file's path.
	Path string

	current  version // last seen
	accepted version // not to be read again
	skipped  stamp   // last reported as skipped
	history  History
	log      logFilter
}

// Log returns the log entries of doc, the document just read of this file, that AcceptLog has not covered yet. It
// reuses doc.Log.
func (f *File) Log(doc *Document) []LogEntry { return f.log.unseen(doc) }

// AcceptLog says that what Log returned is in good hands and need not be returned again.
func (f *File) AcceptLog() { f.log.accept() }

// Accept says that the document just read is in good hands: it is not read again until the file changes.
func (f *File) Accept() { f.accepted = f.current }

// version is one version of a file's content.
type version struct {
	stamp
	// settled says that no other content will have this stamp; until then sum, a hash of the content, decides.
	settled bool
	sum     uint64
}

// stamp is what the file system tells of a version; times are epoch nanoseconds.
type stamp struct {
	dev, ino           uint64
	size, mtime, ctime int64
}

var sumSeed = maphash.MakeSeed()

// Trust says what a directory's content must be like to be taken as that of its process.
type Trust struct {
	// Owner tells which users may own the directory and its files.
	Owner func(uid uint32) bool
	// Started is when the process was created, epoch nanoseconds; 0 when unknown.
	Started int64
	// ByWrite compares Started with the time of writing and not with the start of the writer. That suffices to
	// tell what an earlier process of the same pid left, and spares a writer in another pid namespace, whose pid
	// here belongs to an unrelated, younger process.
	ByWrite bool
}

// tolerance allows for the coarse clock that a process's start time is computed from.
const tolerance = 2 * time.Second

// stale reports whether doc was written by an earlier process. The document's own pid is not looked at: it is a
// number of the writer's pid namespace.
func (t Trust) stale(doc *Document) bool {
	written := doc.Start
	if t.ByWrite {
		written = doc.Write
	}
	return t.Started != 0 && written != 0 && written < t.Started-int64(tolerance)
}

// Reader reads directories. It reuses its memory, and serves one goroutine at a time.
type Reader struct {
	// MaxFileSize is the size in bytes above which a file is skipped.
	MaxFileSize int64
	// Skipped is told once about each version of a file, and each directory, that was skipped. It must be set.
	Skipped func(path string, err *FileError)

	parser Parser
	buf    []byte
	names  []string
}

// Read hands every selected file of the directory that is new or has changed since its Accept to visit, in the
// order of names. The document is valid during the call. A directory that does not exist is an empty one. When ctx
// ends, the files not yet read stay for the next time.
func (r *Reader) Read(ctx context.Context, d *Directory, sel Selection, trust Trust, visit func(f *File, doc *Document)) {
	problem := r.read(ctx, d, sel, trust, visit)
	if problem == nil {
		d.problem = ""
	} else if text := problem.Error(); text != d.problem {
		d.problem = text
		r.Skipped(d.path, problem)
	}
}

func (r *Reader) read(ctx context.Context, d *Directory, sel Selection, trust Trust, visit func(f *File, doc *Document)) *FileError {
	fd, err := openat(unix.AT_FDCWD, d.path, unix.O_DIRECTORY)
	switch {
	case errors.Is(err, unix.ENOENT):
		clear(d.files)
		return nil
	case err != nil:
		return openError(err)
	}
	dir := os.NewFile(uintptr(fd), d.path)
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &FileError{CauseRead, err.Error()}
	}
	if !trust.Owner(st.Uid) {
		return &FileError{CauseOwner, fmt.Sprintf("uid %d", st.Uid)}
	}
	problem := r.list(dir, sel)
	for _, name := range r.names {
		if ctx.Err() != nil {
			return problem
		}
		f := d.files[name]
		if f == nil {
			f = &File{Path: filepath.Join(d.path, name)}
			d.files[name] = f
		}
		doc, err := r.readFile(fd, name, f, trust)
		switch {
		case err != nil:
			if err.Cause != CauseRead { // that may pass
				f.Accept()
			}
			if f.skipped != f.current.stamp {
				f.skipped = f.current.stamp
				r.Skipped(f.Path, err)
			}
		case doc != nil:
			visit(f, doc)
		}
	}
	for name := range d.files {
		if !slices.Contains(r.names, name) {
			delete(d.files, name)
		}
	}
	return problem
}

// list sets r.names to the selected names that may be in the directory, sorted, at most MaxFiles.
func (r *Reader) list(dir *os.File, sel Selection) *FileError {
	r.names = r.names[:0]
	if !sel.rest {
		r.names = append(r.names, sel.names...)
		return nil
	}
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			if sel.takes(name) {
				r.names = append(r.names, name)
			}
		}
		// A bound on the work; the names of a real directory fit many times.
		if len(r.names) > 16*MaxFiles || err == io.EOF {
			break
		}
		if err != nil {
			return &FileError{CauseRead, err.Error()}
		}
	}
	slices.Sort(r.names)
	if len(r.names) > MaxFiles {
		r.names = r.names[:MaxFiles]
		return &FileError{CauseCount, fmt.Sprintf("only the first %d are read", MaxFiles)}
	}
	return nil
}

// readFile returns the document of a file, or nil when it has not changed or is gone.
func (r *Reader) readFile(dir int, name string, f *File, trust Trust) (*Document, *FileError) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, &FileError{CauseRead, err.Error()}
	}
	f.see(&st)
	if f.accepted.settled && f.current.stamp == f.accepted.stamp {
		return nil, nil
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &FileError{CauseFileType, ""}
	}
	fd, err := openat(dir, name, unix.O_NONBLOCK|unix.O_NOCTTY)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, openError(err)
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &FileError{CauseRead, err.Error()}
	}
	f.see(&st)
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, &FileError{CauseFileType, ""}
	case !trust.Owner(st.Uid):
		return nil, &FileError{CauseOwner, fmt.Sprintf("uid %d", st.Uid)}
	}
	data, problem := r.content(fd, st.Size)
	if problem != nil {
		return nil, problem
	}
	if again := f.current.stamp == f.accepted.stamp; again || !f.current.settled {
		f.current.sum = maphash.Bytes(sumSeed, data)
		if again && f.current.sum == f.accepted.sum {
			f.Accept()
			return nil, nil
		}
	}
	doc, err := r.parser.Parse(data, &f.history)
	if cap(r.buf) > keptBuffer {
		r.buf = nil
	}
	if err != nil {
		return nil, err.(*FileError)
	}
	if trust.stale(doc) {
		return nil, &FileError{CauseStale, ""}
	}
	return doc, nil
}

// see notes the version of the file that is about to be read.
func (f *File) see(st *unix.Stat_t) {
	f.current = version{stamp: stamp{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano()}}
	age := time.Since(time.Unix(0, max(f.current.mtime, f.current.ctime)))
	f.current.settled = age < 0 || age >= settled
}

// keptBuffer is the largest read buffer that is kept for the next file.
const keptBuffer = 2 << 20

// content reads a file into r.buf.
func (r *Reader) content(fd int, size int64) ([]byte, *FileError) {
	if size > r.MaxFileSize {
		return nil, &FileError{CauseSize, fmt.Sprintf("%d bytes", size)}
	}
	buf := r.buf[:0]
	for {
		if int64(len(buf)) > r.MaxFileSize {
			return nil, &FileError{CauseSize, "it grew while it was read"}
		}
		buf = slices.Grow(buf, max(int(size)+1-len(buf), 512))
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, &FileError{CauseRead, err.Error()}
		case n == 0:
			r.buf = buf
			return buf, nil
		}
		buf = buf[:len(buf)+max(n, 0)]
	}
}

func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func openError(err error) *FileError {
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return &FileError{CauseFileType, err.Error()}
	}
	return &FileError{CauseRead, err.Error()}
}
