package launcher

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	collectorName = "graphsignal-collector"
	// Descriptors in the sidecar.
	sidecarConfigFD  = 3
	sidecarControlFD = 4
	// sidecarBadness makes the kernel's out-of-memory killer prefer the sidecar to the workload.
	sidecarBadness = 500
	// maxControlLine bounds a line on the control channel.
	maxControlLine = 4096
	// lastLinesLimit bounds the wait for the last lines of a sidecar that has ended. Only a process that it left behind with
	// the channel could make it last.
	lastLinesLimit = 100 * time.Millisecond
)

// controlLine is what the sidecar sends on its control channel; ended says that it will send no more.
type controlLine struct {
	from  *sidecarProcess
	text  string
	ended bool
}

// sidecarProcess is one life of the sidecar.
type sidecarProcess struct {
	pid int
	// control is our end of the socket pair, -1 when it is closed.
	control int
	// withUser says that it was given the user's configuration.
	withUser bool
	ready    bool
	// warned says that it has said itself what is wrong.
	warned bool
}

// sidecar is the Collector beside the workload: it is started after the workload, once more after a crash, and told
// to drain at the end.
type sidecar struct {
	msg    messages
	reap   *reaper
	binary string
	config []byte
	// output is the file of the final document, or empty.
	output string
	// userConfigs are the files to merge into the configuration.
	userConfigs []string
	environ     []string
	lines       chan controlLine

	now       *sidecarProcess
	restarted bool
	// uploads says that the configuration has an upload, takenOver when a life ended that may have sent something.
	uploads   bool
	takenOver time.Time
	ending    bool
	warned    map[string]bool
}

// findCollector looks for the Collector beside our own executable, then on PATH.
func findCollector(self, path string) (string, error) {
	if !exists("/proc/self/fd") {
		return "", errors.New("/proc is not mounted")
	}
	if self != "" {
		if beside := filepath.Join(filepath.Dir(self), collectorName); executable(beside) == nil {
			return beside, nil
		}
	}
	file, err := lookup(collectorName, path)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside graphsignal-run nor on PATH", collectorName)
	}
	return file, nil
}

// sidecarEnvironment is the launcher's own without what is meant for the workload, and with limits.
func sidecarEnvironment(environ []string) []string {
	e := environment{entries: environ}
	for _, name := range []string{"LD_BIND_NOW", "LD_PRELOAD", "CUDA_INJECTION64_PATH", "ROCP_TOOL_LIBRARIES", "GRAPHSIGNAL_PROBE_LIB"} {
		e.unset(name)
	}
	e.set("GOMAXPROCS", "1") // two threads that wake each other cost a tenth more
	e.set("GOMEMLIMIT", "128MiB")
	return e.entries
}

// start starts a life of the sidecar. It must be called from the thread that started the workload.
func (s *sidecar) start(withUser bool) error {
	config, err := memoryFile("graphsignal-config", s.config)
	if err != nil {
		return err
	}
	defer config.Close() //nolint:errcheck // the sidecar has its own
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("control channel: %w", err)
	}
	theirs := os.NewFile(uintptr(ends[1]), "control channel")
	defer theirs.Close() //nolint:errcheck // the sidecar has its own
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = unix.Close(ends[0])
		return err
	}
	defer null.Close() //nolint:errcheck // the sidecar has its own
	log := null.Fd()
	if s.msg.debugOn {
		log = 2
	}

	var user []string
	if withUser {
		user = s.userConfigs
	}
	args := sidecarArguments(s.binary, sidecarConfigFD, user)
	if s.uploads && !s.takenOver.IsZero() {
		args = append(args, fmt.Sprintf("--config=yaml:exporters::graphsignal::since_unix_nano: %d", s.takenOver.UnixNano()))
	}
	s.msg.debug("sidecar: %s", strings.Join(args, " "))
	pid, err := syscall.ForkExec(s.binary, args, &syscall.ProcAttr{
		Env:   s.environ,
		Files: []uintptr{null.Fd(), null.Fd(), log, config.Fd(), theirs.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = unix.Close(ends[0])
		return fmt.Errorf("%s: %w", s.binary, err)
	}
	s.reap.started()
	raiseBadness(pid)
	s.now = &sidecarProcess{pid: pid, control: ends[0], withUser: withUser}
	go readControl(s.now, s.lines)
	return nil
}

// sidecarArguments is the Collector's command line, with its configuration at a descriptor and the user's files.
func sidecarArguments(binary string, configFD int, user []string) []string {
	args := []string{binary, fmt.Sprintf("--config=file:/proc/self/fd/%d", configFD)}
	for _, file := range user {
		args = append(args, "--config=file:"+file)
	}
	if len(user) > 0 {
		// Lists of the user's files add to ours, so that service::extensions keeps the workload extension.
		args = append(args, "--feature-gates=confmap.enableMergeAppendOption")
	}
	return args
}

// memoryFile returns an anonymous file with the given content, at its beginning.
func memoryFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), name)
	if _, err = file.Write(content); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("memfd: %w", err)
	}
	return file, nil
}

// raiseBadness makes a process a better victim for the out-of-memory killer, never a worse one.
func raiseBadness(pid int) {
	name := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
	now, err := os.ReadFile(name)
	if err != nil {
		return
	}
	if value, err := strconv.Atoi(strings.TrimSpace(string(now))); err == nil && value < sidecarBadness {
		_ = os.WriteFile(name, []byte(strconv.Itoa(sidecarBadness)), 0)
	}
}

// readControl passes on what a life of the sidecar says, until its end, and closes the channel.
func readControl(from *sidecarProcess, lines chan<- controlLine) {
	in := bufio.NewReaderSize(descriptor(from.control), maxControlLine)
	for tooLong := false; ; {
		text, err := in.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			tooLong = true // no line of the protocol is that long, and what remains of it is none either
			continue
		}
		if err != nil {
			lines <- controlLine{from: from, ended: true}
			return
		}
		if !tooLong {
			lines <- controlLine{from: from, text: strings.TrimSpace(string(text))}
		}
		tooLong = false
	}
}

// heard deals with a line on the control channel.
func (s *sidecar) heard(line controlLine) {
	switch {
	case line.ended:
		_ = unix.Close(line.from.control)
		line.from.control = -1
	case line.text == "ready":
		line.from.ready = true
		s.msg.debug("sidecar is ready")
	case strings.HasPrefix(line.text, "bind_failed "):
		s.warnOnce("the endpoint is not available (retrying): " + strings.TrimPrefix(line.text, "bind_failed "))
	case strings.HasPrefix(line.text, "warning "):
		line.from.warned = true
		s.warnOnce(strings.TrimPrefix(line.text, "warning "))
	default:
		s.msg.debug("sidecar: %s", line.text)
	}
}

// warnOnce says what the sidecar asks for, a bounded number of lines.
func (s *sidecar) warnOnce(text string) {
	if !s.warned[text] && len(s.warned) < 16 {
		s.warned[text] = true
		s.msg.warn("%s", text)
	}
}

// lastLines hears what an ended life said last.
func (s *sidecar) lastLines(life *sidecarProcess) {
	limit := time.NewTimer(lastLinesLimit)
	defer limit.Stop()
	for life.control >= 0 {
		select {
		case line := <-s.lines:
			s.heard(line)
		case <-limit.C:
			return
		}
	}
}

// childEnded deals with the end of a child that may have been the sidecar.
func (s *sidecar) childEnded(event childEvent) {
	life := s.now
	if life == nil || event.pid != life.pid {
		return
	}
	s.now = nil
	if s.ending {
		s.lastLines(life)
		s.msg.debug("sidecar ended: %s", statusText(event.status))
		if s.output != "" && (!event.status.Exited() || event.status.ExitStatus() != 0 && !life.warned) {
			s.msg.warn("the sidecar ended before its time (%s); %s may not have been written", statusText(event.status), s.output)
		}
		return
	}
	withUser := life.withUser
	switch {
	case s.restarted:
		s.msg.warn("the profiler's sidecar ended again (%s); this run goes on without it", statusText(event.status))
		return
	case withUser && !life.ready:
		withUser = false
		s.msg.warn("the sidecar ended at its start (%s); running without GRAPHSIGNAL_COLLECTOR_CONFIG (GRAPHSIGNAL_DEBUG=1 shows why)",
			statusText(event.status))
	default:
		s.msg.debug("sidecar ended: %s; starting it again", statusText(event.status))
	}
	s.restarted = true
	if life.ready {
		s.takenOver = time.Now()
	}
	if err := s.start(withUser); err != nil {
		s.msg.warn("the profiler's sidecar cannot be started again: %v", err)
	}
}

// drain tells the sidecar that the workload has ended.
func (s *sidecar) drain() {
	s.ending = true
	if s.now != nil && s.now.control >= 0 {
		// Its last lines can still be read.
		_ = unix.Shutdown(s.now.control, unix.SHUT_WR)
	}
}

// running reports whether the sidecar lives.
func (s *sidecar) running() bool { return s.now != nil }

// kill ends the sidecar at once.
func (s *sidecar) kill() {
	if s.now != nil {
		_ = syscall.Kill(s.now.pid, syscall.SIGKILL)
	}
}

// statusText describes how a child ended.
func statusText(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("signal %d", status.Signal())
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
