package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawn starts the workload in the launcher's session, process group and directory, with the given streams and all
// other inherited descriptors. It must be called from the main thread: the workload gets SIGTERM when the thread that
// started it ends.
func spawn(p program, environ []string, streams [3]uintptr) (process, error) {
	attr := &syscall.ProcAttr{
		Env:   environ,
		Files: streams[:],
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM},
	}
	var pid int
	err := withInheritedMask(func() (err error) {
		pid, err = syscall.ForkExec(p.path, p.argv, attr)
		if errors.Is(err, syscall.ENOEXEC) {
			// A script without an interpreter line is one for the shell, as for execvp.
			pid, err = syscall.ForkExec("/bin/sh", append([]string{"/bin/sh", p.path}, p.argv[1:]...), attr)
		}
		return err
	})
	if err != nil {
		if errors.Is(err, syscall.ENOENT) && isFile(p.path) {
			return process{}, &startError{text: p.argv[0] + ": its interpreter is not there", status: exitNotExecutable}
		}
		return process{}, startErrorOf(p.argv[0], err)
	}
	child := process{pid: pid, fd: -1}
	// Nobody has waited for the child yet, so that the pid is still its own.
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		child.fd = fd
	}
	return child, nil
}

// inheritedDescriptors lists the descriptors above 2 that came from outside: ours close on exec, theirs do not.
func inheritedDescriptors() []int {
	directory, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil
	}
	names, _ := directory.Readdirnames(-1)
	_ = directory.Close()
	var found []int
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			found = append(found, fd)
		}
	}
	return found
}

// letGo gives up what now belongs to the workload alone, so that its closing of a descriptor is seen at the other end:
// the inherited descriptors and standard input, and standard output where no copy of it passes through the launcher.
func letGo(output bool) {
	for _, fd := range inheritedDescriptors() {
		_ = unix.Close(fd)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_ = unix.Dup2(null, 0)
	if output {
		_ = unix.Dup2(null, 1)
	}
	_ = unix.Close(null)
}

// ownPath is the launcher's executable, symbolic links resolved.
func ownPath() string {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return ""
	}
	return path
}

// librariesOf returns the directory of the profiler's libraries for an executable in PREFIX/bin.
func librariesOf(self string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(self)), "lib", "graphsignal")
}
