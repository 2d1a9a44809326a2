package rundir

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// maxNames bounds the names looked at in the base.
const maxNames = 16384

// Finder finds the run directories of one run by what their owners wrote into them: so that of a process that nobody
// has seen alive, too. It is not safe for concurrent use.
type Finder struct {
	dirs *Dirs
	run  string
	// seen are the `.owner` files that were read.
	seen map[string]ownerStamp
	pass uint64
}

// ownerStamp tells one content of an `.owner` file from another. An earlier process of the pid leaves its file to the
// next, which writes into it.
type ownerStamp struct {
	inode   uint64
	written unix.Timespec
	pass    uint64
}

// NewFinder returns a Finder for a run id that is not empty.
func (d *Dirs) NewFinder(run string) *Finder {
	return &Finder{dirs: d, run: run, seen: make(map[string]ownerStamp)}
}

// New returns the owners, processes of our pid namespace and boot, whose directories this Finder has not told of yet.
func (f *Finder) New() ([]Owner, error) {
	base, err := os.Open(f.dirs.base)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	names, err := base.Readdirnames(maxNames)
	if len(names) == 0 && err != nil {
		return nil, nil // it is empty
	}
	f.pass++
	var found []Owner
	for _, name := range names {
		pid, console, ok := ParseName(name)
		if !ok || console {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(int(base.Fd()), filepath.Join(name, ownerFile), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue // not yet there, or another user's
		}
		stamp := ownerStamp{inode: st.Ino, written: st.Mtim, pass: f.pass}
		last, known := f.seen[name]
		if known && last.inode == stamp.inode && last.written == stamp.written {
			f.seen[name] = stamp
			continue
		}
		owner, ok := f.read(name)
		if !ok && f.dirs.now().Sub(time.Unix(st.Mtim.Unix())) < unreadAfter {
			continue // it is being written
		}
		f.seen[name] = stamp
		if ok && owner.PID == pid && owner.Run == f.run && f.dirs.ours(owner) {
			found = append(found, owner)
		}
	}
	for name, stamp := range f.seen {
		if stamp.pass != f.pass {
			delete(f.seen, name)
		}
	}
	return found, nil
}

// read reads the owner of a directory that our user, or for root any user, has made.
func (f *Finder) read(name string) (Owner, bool) {
	dir, err := openDirectory(filepath.Join(f.dirs.base, name))
	if err != nil {
		return Owner{}, false
	}
	defer dir.Close()
	owner, known := readOwner(dir)
	return owner, known && f.dirs.mayRemove(dir, known)
}
