package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/redact"
	"github.com/graphsignal/graphsignal-collector/launcher/engines"
)

// exitNotAttached is the exit status when there is nothing to attach to.
const exitNotAttached = 1

// validateLimit is how long the Collector may take to check its configuration.
const validateLimit = 10 * time.Second

// maxReason bounds what is quoted of the Collector, in bytes.
const maxReason = 512

// maxProcFile bounds what is read of a process's command line, in bytes.
const maxProcFile = 1 << 20

// attach becomes the sidecar of a process that runs already: of its libraries it sees those that the process itself has
// loaded, and its console not at all. The sidecar ends when the process has ended, or at SIGTERM and SIGINT. It says one
// line on standard output before the Collector takes over; the Collector says nothing, except with GRAPHSIGNAL_DEBUG on
// standard error.
func (r *run) attach() int {
	pid := r.options.attach
	argv, err := commandLineOf(pid)
	if err != nil {
		r.msg.warn("%v", err)
		return exitNotAttached
	}
	r.self = ownPath()
	if launcherAbove(r.self, pid) {
		r.msg.warn("process %d runs under graphsignal-run already", pid)
		return exitNotAttached
	}
	path := r.environ.searchPath()
	if r.collector, err = findCollector(r.self, path); err != nil {
		r.msg.warn("%v", err)
		return exitNotAttached
	}
	engine := engines.Detect(argv, r.options.metricsPort, environmentOf(pid).get)
	for _, warning := range engine.Warnings {
		r.msg.warn("%s", warning)
	}
	config, err := r.sidecarConfig(&renderInput{
		pid:         pid,
		commandLine: redact.Args(cutArguments(argv)),
		engine:      engine.Name,
		endpoint:    engine.Endpoint,
	})
	if err != nil {
		r.msg.warn("%v", err)
		return exitNotAttached
	}
	r.msg.debug("sidecar configuration: %s", config)
	if err := r.becomeSidecar(config); err != nil {
		r.msg.warn("%s: %v", r.collector, err)
	}
	return exitNotAttached
}

// becomeSidecar replaces the launcher by the Collector. It returns only an error.
func (r *run) becomeSidecar(config []byte) error {
	file, err := memoryFile("graphsignal-config", config)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing of ours is left in it
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	address := hostPort(r.options.listenHost, r.options.listenPort)
	if listener, err := net.Listen("tcp", address); err != nil {
		var cause *os.SyscallError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		r.msg.warn("the endpoint is not available (retrying): %s: %v", address, err)
	} else {
		_ = listener.Close()
	}
	environ := sidecarEnvironment(r.environ.entries)
	args := sidecarArguments(r.collector, int(file.Fd()), r.usableConfigs(file, environ))
	raiseBadness(os.Getpid())
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETFD, 0); err != nil {
		return err
	}
	if _, err := fmt.Printf("attached to process %d: http://%s/signals\n", r.options.attach, address); err != nil {
		return err
	}
	_ = unix.Dup2(null, 0)
	_ = unix.Dup2(null, 1)
	if !r.options.debug {
		_ = unix.Dup2(null, 2)
	}
	return syscall.Exec(r.collector, args, environ)
}

// usableConfigs are the user's files, or none if the Collector does not accept them: later nobody would be there to hear
// it, or to start it without them.
func (r *run) usableConfigs(config *os.File, environ []string) []string {
	user := userConfigs(&r.environ)
	if len(user) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), validateLimit)
	defer cancel()
	args := sidecarArguments("validate", sidecarConfigFD, user)
	check := exec.CommandContext(ctx, r.collector, args...)
	check.Env, check.ExtraFiles, check.WaitDelay = environ, []*os.File{config}, time.Second
	said, err := check.CombinedOutput()
	if err == nil {
		return user
	}
	reason := strings.Join(strings.Fields(string(said)), " ")
	if len(reason) > maxReason {
		reason = reason[:maxReason] + "..."
	}
	r.msg.warn("running without GRAPHSIGNAL_COLLECTOR_CONFIG (%v): %s", err, reason)
	return nil
}

// commandLineOf returns the arguments of a living process.
func commandLineOf(pid int) ([]string, error) {
	proc := "/proc/" + strconv.Itoa(pid)
	if err := unix.Kill(pid, 0); errors.Is(err, unix.ESRCH) || !exists(proc) {
		return nil, fmt.Errorf("there is no process %d", pid)
	}
	// Threads have a directory too, but none of their own among the processes' numbers.
	if group, err := threadGroup(proc); err == nil && group != pid {
		return nil, fmt.Errorf("%d is a thread of process %d", pid, group)
	}
	data, err := readBounded(proc+"/cmdline", maxProcFile)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	words := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
	if len(words) == 1 && words[0] == "" {
		return nil, fmt.Errorf("process %d has ended or is one of the kernel's", pid)
	}
	return words, nil
}

// environmentOf returns what a process was started with, nothing where that must not be read.
func environmentOf(pid int) *environment {
	data, _ := readBounded(fmt.Sprintf("/proc/%d/environ", pid), maxProcFile)
	return &environment{entries: strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")}
}

// threadGroup returns the process that a thread belongs to.
func threadGroup(proc string) (int, error) {
	data, err := readBounded(proc+"/status", maxProcFile)
	if err != nil {
		return 0, err
	}
	if group := procfs.ParseStatus(data).ThreadGroup; group > 0 {
		return group, nil
	}
	return 0, errors.New("no thread group")
}

// readBounded reads a file up to a limit in bytes.
func readBounded(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	return io.ReadAll(io.LimitReader(file, limit))
}

// printEnvironment prints what a run would add to the command's environment, for those who start it in another way.
func (r *run) printEnvironment() int {
	path := r.environ.searchPath()
	prog, err := resolve(r.options.command, path)
	if err != nil {
		return r.startFailure(err)
	}
	given := environment{entries: r.environ.entries}
	gpu := gpuEnvironment{libraries: librariesOf(ownPath()), environ: &given, program: prog, options: r.options, msg: r.msg}
	gpu.apply()
	for _, entry := range given.entries {
		name, value, _ := strings.Cut(entry, "=")
		if old, set := r.environ.get(name); (!set || old != value) && !strings.ContainsRune(value, '\n') {
			if _, err := fmt.Println(entry); err != nil {
				r.msg.warn("%v", err)
				return exitNotAttached
			}
		}
	}
	return 0
}
