package launcher

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
)

// maxAncestors bounds the search for an outer launcher.
const maxAncestors = 64

// insideLauncher reports whether another launcher supervises this process: then that one's sidecar sees the whole
// process tree, and a second one would only contend for the endpoint.
func insideLauncher(self string) bool { return launcherAbove(self, os.Getppid()) }

// launcherAbove reports whether a process or one of its ancestors is a launcher.
func launcherAbove(self string, pid int) bool {
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false
	}
	for range maxAncestors {
		if pid <= 0 {
			return false
		}
		proc := "/proc/" + strconv.Itoa(pid)
		if other, err := os.Stat(proc + "/exe"); err == nil && os.SameFile(own, other) {
			return true
		}
		// Another copy of the same program.
		if exe, err := os.Readlink(proc + "/exe"); err == nil && filepath.Base(exe) == filepath.Base(self) {
			return true
		}
		stat, err := procfs.NewReader(procfs.DefaultRoot).Stat(pid)
		if err != nil {
			return false
		}
		pid = stat.PPID
	}
	return false
}

// become replaces the launcher by the program, with the dispositions that it was started with.
func become(p program, environ []string, ignored signalSet) error {
	ignore(ignored)
	err := withInheritedMask(func() error {
		err := syscall.Exec(p.path, p.argv, environ)
		if err == syscall.ENOEXEC {
			err = syscall.Exec("/bin/sh", append([]string{"/bin/sh", p.path}, p.argv[1:]...), environ)
		}
		return err
	})
	return startErrorOf(p.argv[0], err)
}
