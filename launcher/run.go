package launcher

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/internal/redact"
	"github.com/graphsignal/graphsignal-collector/launcher/engines"
)

const (
	// drainLimit is how long the sidecar may take for its last collection and its exporters.
	drainLimit = 3 * time.Second
	// maxCommandLine bounds what is reported of a command line, in bytes.
	maxCommandLine = 8 << 10
)

// Main runs the launcher with the arguments after its own name. It returns an exit status where no workload ran, and
// otherwise ends the process as the workload ended. The caller must have locked the main thread.
func Main(args []string) int {
	o, action, warnings, err := parseOptions(args, os.LookupEnv)
	switch {
	case err != nil:
		return usageFailure(err)
	case action == actionHelp:
		_, _ = os.Stdout.WriteString(usageText)
		return 0
	case action == actionVersion:
		_, _ = os.Stdout.WriteString(versionText())
		return 0
	}
	msg := messages{debugOn: o.debug}
	for _, warning := range warnings {
		msg.warn("%s", warning)
	}
	r := run{options: o, msg: msg, environ: environment{entries: os.Environ()}}
	return r.run()
}

func usageFailure(err error) int {
	text := "graphsignal-run: " + err.Error() + "\n"
	var usage *usageError
	if errors.As(err, &usage) && usage.withUsage {
		text += "\n" + usageText
	}
	_, _ = os.Stderr.WriteString(text)
	return exitUsage
}

// run is one run of a workload.
type run struct {
	options options
	msg     messages
	environ environment

	self      string
	signals   *signalSource
	reap      *reaper
	side      *sidecar
	workload  process
	startTime int64
	status    syscall.WaitStatus
}

func (r *run) run() int {
	path, _ := r.environ.get("PATH")
	r.msg.debug("command: %s", redact.CommandLine(cutArguments(r.options.command)))
	engine := engines.Detect(r.options.command, r.options.metricsPort)
	for _, warning := range engine.Warnings {
		r.msg.warn("%s", warning)
	}
	for _, note := range engine.Notes {
		r.msg.debug("%s", note)
	}
	r.msg.debug("engine: %s", engine.Name)
	prog, err := resolve(engine.Argv, path)
	if err != nil {
		return r.startFailure(err)
	}

	ignored := inheritedIgnored()
	if r.signals, err = newSignalSource(forwardedSignals &^ ignored); err != nil {
		r.msg.warn("%v", err)
		return exitNotExecutable
	}
	if isOn(r.environ.get, "GRAPHSIGNAL_SUBREAPER") {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			r.msg.warn("GRAPHSIGNAL_SUBREAPER: %v", err)
		}
	}
	r.self = ownPath()
	environ := environment{entries: r.environ.entries}
	gpu := gpuEnvironment{libraries: librariesOf(r.self), environ: &environ, program: prog, options: r.options, msg: r.msg}
	gpu.apply()

	r.startTime = time.Now().UnixNano()
	ignore(ignored)
	r.workload, err = spawn(prog, environ.entries, [3]uintptr{0, 1, 2})
	if err != nil {
		return r.startFailure(err)
	}
	r.signals.catch(forwardedSignals & ignored)
	letGo(true)
	r.msg.debug("workload: pid %d, %s", r.workload.pid, prog.path)
	r.reap = newReaper()
	r.startSidecar(prog, engine)

	r.supervise()
	r.end()
	exitAs(r.status)
	return 0
}

func (r *run) startFailure(err error) int {
	r.msg.warn("%v", err)
	var start *startError
	if errors.As(err, &start) {
		return start.status
	}
	return exitNotExecutable
}

// startSidecar puts the Collector beside the workload. Whatever goes wrong is said once, and the workload runs on.
func (r *run) startSidecar(prog program, engine engines.Engine) {
	r.side = &sidecar{
		msg:     r.msg,
		reap:    r.reap,
		environ: sidecarEnvironment(r.environ.entries),
		lines:   make(chan controlLine, 16),
		warned:  make(map[string]bool),
	}
	path, _ := r.environ.get("PATH")
	binary, err := findCollector(r.self, path)
	if err != nil {
		r.msg.warn("no profiling in this run: %v", err)
		return
	}
	r.side.binary = binary
	for _, list := range []string{"GRAPHSIGNAL_COLLECTOR_CONFIG"} {
		value, _ := r.environ.get(list)
		for file := range strings.SplitSeq(value, ",") {
			if file = strings.TrimSpace(file); file != "" {
				r.side.userConfigs = append(r.side.userConfigs, file)
			}
		}
	}
	tags, skipped := contextTags(r.environ.entries)
	if len(skipped) > 0 {
		r.msg.warn("not usable as tags: %s", strings.Join(skipped, ", "))
	}
	in := &renderInput{
		options:     r.options,
		pid:         r.workload.pid,
		startTime:   r.startTime,
		commandLine: redact.Args(cutArguments(prog.argv)),
		tags:        tags,
		endpoint:    engine.Endpoint,
		controlFD:   sidecarControlFD,
	}
	in.shmPath, _ = r.environ.get("GRAPHSIGNAL_SHM_PATH")
	in.procfsPath, _ = r.environ.get("GRAPHSIGNAL_PROCFS_PATH")
	in.otlpEndpoint, _ = r.environ.get("GRAPHSIGNAL_OTLP_ENDPOINT")
	config, err := renderConfig(in)
	if err != nil {
		r.msg.warn("%v", err)
		in.otlpEndpoint = ""
		if config, err = renderConfig(in); err != nil {
			r.msg.warn("no profiling in this run: %v", err)
			return
		}
	}
	r.side.config = config
	r.msg.debug("sidecar configuration: %s", config)
	if err := r.side.start(len(r.side.userConfigs) > 0); err != nil {
		r.msg.warn("no profiling in this run: %v", err)
	}
}

// supervise passes signals on until the workload has ended.
func (r *run) supervise() {
	for {
		select {
		case c := <-r.signals.signals:
			r.passOn(c)
		case event := <-r.reap.events:
			if event.pid != r.workload.pid {
				if !event.status.Stopped() {
					r.side.childEnded(event)
				}
				continue
			}
			if event.status.Stopped() {
				continue
			}
			r.status = event.status
			r.msg.debug("workload ended: %s", statusText(event.status))
			return
		case line := <-r.side.lines:
			r.side.heard(line)
		}
	}
}

// passOn gives a signal to the workload's leader, unless that has had it already.
func (r *run) passOn(c caught) {
	sessionLeader, _ := unix.Getsid(0)
	switch {
	case c.isFromTerminal(sessionLeader == os.Getpid()):
		r.msg.debug("signal %d came from the terminal", c.sig)
	case c.sender == r.workload.pid:
		r.msg.debug("signal %d came from the workload", c.sig)
	default:
		err := r.workload.signal(c)
		r.msg.debug("signal %d passed on: %v", c.sig, err)
	}
}

// end drains the sidecar. A signal that would end the launcher cuts the wait short.
func (r *run) end() {
	r.side.drain()
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	for r.side.running() {
		select {
		case event := <-r.reap.events:
			if !event.status.Stopped() {
				r.side.childEnded(event)
			}
		case line := <-r.side.lines:
			r.side.heard(line)
		case c := <-r.signals.signals:
			switch c.sig {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP:
				r.side.kill()
			}
		case <-limit.C:
			r.msg.debug("the sidecar did not end in time")
			r.side.kill()
		}
	}
}

// cutArguments bounds a command line before it is reported, in number and length of its words.
func cutArguments(argv []string) []string {
	room := maxCommandLine
	var out []string
	for _, arg := range argv {
		if len(arg) > room {
			arg = arg[:room]
		}
		out = append(out, arg)
		if room -= len(arg) + 1; room <= 0 {
			break
		}
	}
	return out
}
