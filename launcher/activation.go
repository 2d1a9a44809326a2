package launcher

import (
	"errors"
	"os"
	"strconv"
)

// ActivateName is the name (the first word of the command line) of a launcher that stands between fork and exec of a
// workload that was given sockets by systemd.
const ActivateName = "graphsignal-run: activate"

const listenPID = "LISTEN_PID"

// activated returns the program to start for a workload to which systemd passes sockets: those belong to the process
// named by LISTEN_PID, which is the launcher, and its pid is known to the workload only after the fork. Without such
// sockets it is the program itself.
func activated(p program, environ *environment) program {
	if pid, _ := environ.get(listenPID); pid != strconv.Itoa(os.Getpid()) {
		return p
	}
	return program{path: "/proc/self/exe", argv: append([]string{ActivateName, p.path}, p.argv...)}
}

// Activate becomes the program (path, then its command line) as the owner of the sockets. It returns only when that
// fails, with the exit status.
func Activate(args []string) int {
	if len(args) < 2 {
		return exitUsage
	}
	environ := environment{entries: os.Environ()}
	environ.set(listenPID, strconv.Itoa(os.Getpid()))
	// The pidfd of newer versions of systemd names the launcher too; without it the pid counts.
	environ.unset("LISTEN_PIDFDID")
	err := become(program{path: args[0], argv: args[1:]}, environ.entries, inheritedIgnored())
	messages{}.warn("%v", err)
	var start *startError
	if errors.As(err, &start) {
		return start.status
	}
	return exitNotExecutable
}
