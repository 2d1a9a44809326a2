package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/internal/redact"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
	"github.com/graphsignal/graphsignal-collector/launcher/engines"
)

const (
	// drainLimit is how long the sidecar may take for its last collection and its exporters.
	drainLimit = 3 * time.Second
	// captureLimit is how long the capture may take for what it has not yet written.
	captureLimit = time.Second
	// impatience is the time after the workload's end from which on a signal means the launcher.
	impatience = 300 * time.Millisecond
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
	r.environ.makeAbsolute("GRAPHSIGNAL_SHM_PATH")
	r.environ.makeAbsolute("GRAPHSIGNAL_PROCFS_PATH")
	switch action {
	case actionAttach:
		return r.attach()
	case actionPrintEnvironment:
		return r.printEnvironment()
	}
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

	self   string
	nested bool // below another launcher
	// id tells the workload's processes from others, also one that the sidecar never sees alive.
	id        string
	signals   *signalSource
	reap      *reaper
	side      *sidecar
	workload  process
	startTime int64
	status    syscall.WaitStatus
	endedAt   time.Time

	// collector is the sidecar's binary, or empty.
	collector string
	// streams are the outputs that pass through the launcher, none without capture.
	streams []*stream
	capture *capture
	// stopAsked is when the workload was last asked to stop.
	stopAsked time.Time
}

func (r *run) run() int {
	path := r.environ.searchPath()
	r.msg.debug("command: %s", redact.CommandLine(cutArguments(r.options.command)))
	engine := engines.Detect(r.options.command, r.options.metricsPort, r.environ.get)
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
	r.self = ownPath()
	err = room()
	if err == nil {
		err = followed(r.environ)
	}
	if err != nil {
		r.msg.warn("no profiling in this run: %v", err)
		return r.startFailure(become(prog, r.environ.entries, ignored))
	}
	if r.nested = insideLauncher(r.self); r.nested && !r.options.ownEndpoint {
		r.msg.debug("an outer graphsignal-run profiles this already")
		return r.startFailure(become(prog, r.environ.entries, ignored))
	}
	if r.signals, err = newSignalSource(forwardedSignals &^ ignored); err != nil {
		r.msg.warn("%v", err)
		return exitNotExecutable
	}
	if isOn(r.environ.get, "GRAPHSIGNAL_SUBREAPER") {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			r.msg.warn("GRAPHSIGNAL_SUBREAPER: %v", err)
		}
	}
	if r.collector, err = findCollector(r.self, path); err != nil {
		r.msg.warn("no profiling in this run: %v", err)
	}
	base := r.openStreams()
	environ := environment{entries: r.environ.entries}
	gpu := gpuEnvironment{libraries: librariesOf(r.self), environ: &environ, program: prog, options: r.options, msg: r.msg}
	gpu.apply()
	if r.collector != "" && gpu.namesLibrary() {
		if r.id = instanceID(); r.id != "" {
			environ.set("GRAPHSIGNAL_RUN_ID", r.id)
		}
	}
	files := [3]uintptr{0, 1, 2}
	for _, s := range r.streams {
		files[s.out] = uintptr(s.forWorkload)
		if _, set := environ.get("PYTHONUNBUFFERED"); !set && s.terminal == nil {
			// What a program in Python prints is to be seen when it prints it.
			environ.set("PYTHONUNBUFFERED", "1")
		}
	}

	r.startTime = time.Now().UnixNano()
	ignore(ignored)
	r.workload, err = spawn(activated(prog, &environ), environ.entries, files)
	if err != nil {
		return r.startFailure(err)
	}
	r.signals.catch(forwardedSignals & ignored)
	r.passStreams(base)
	letGo(!slices.ContainsFunc(r.streams, func(s *stream) bool { return s.out == 1 }))
	r.msg.debug("workload: pid %d, %s", r.workload.pid, prog.path)
	r.reap = newReaper()
	r.startSidecar(prog, engine)

	r.supervise()
	r.end()
	exitAs(r.status)
	return 0
}

// openStreams makes the workload's outputs where there is somebody to read the capture, and returns the directory for
// that. An output for which that is not possible is the launcher's own.
func (r *run) openStreams() (base string) {
	if r.collector == "" {
		return ""
	}
	if value, set := r.environ.get("GRAPHSIGNAL_CONSOLE_CAPTURE"); set && !isOn(r.environ.get, "GRAPHSIGNAL_CONSOLE_CAPTURE") {
		r.msg.debug("console capture is off: GRAPHSIGNAL_CONSOLE_CAPTURE=%s", value)
		return ""
	}
	shm, _ := r.environ.get("GRAPHSIGNAL_SHM_PATH")
	if shm == "" {
		shm = rundir.DefaultBase
	}
	runtimeDir, _ := r.environ.get("XDG_RUNTIME_DIR")
	base, err := captureBase(shm, runtimeDir)
	if err != nil {
		r.msg.warn("errors on the console are not reported: %v", err)
		return ""
	}
	if isTerminal(0) && usesTerminalOfOutput(r.options.command) {
		r.msg.debug("console capture is off: %s needs the terminal itself", r.options.command[0])
		return ""
	}
	for i, name := range []string{"stdout", "stderr"} {
		s, err := openStream(i+1, name)
		if err != nil {
			r.msg.debug("not captured: %v", err)
			continue
		}
		s.warn = r.msg.warn
		r.streams = append(r.streams, s)
	}
	return base
}

// passStreams begins to pass the workload's outputs on, and to capture them.
func (r *run) passStreams(base string) {
	for _, s := range r.streams {
		s.handedOver()
		s.leader = r.workload
	}
	if len(r.streams) == 0 {
		return
	}
	if segments, err := r.openSegments(base); err != nil {
		r.msg.warn("errors on the console are not reported: %v", err)
	} else {
		r.capture = newCapture(segments)
		for _, s := range r.streams {
			s.queue = r.capture.add(s.name)
		}
		go r.capture.run()
	}
	var terminals []*stream
	for _, s := range r.streams {
		if s.terminal != nil {
			terminals = append(terminals, s)
		} else {
			go s.run()
		}
	}
	if len(terminals) > 0 {
		go runTerminals(terminals)
	}
}

// openSegments makes the workload's console directory: in base, or, where that is full or another user has taken the
// name, in a private directory.
func (r *run) openSegments(base string) (*segments, error) {
	made, err := newSegments(base, r.workload.pid, r.id)
	if err == nil {
		return made, nil
	}
	runtimeDir, _ := r.environ.get("XDG_RUNTIME_DIR")
	private, privateErr := privateBase(runtimeDir)
	if privateErr == nil && private != base {
		r.msg.debug("console capture is in %s: %v", private, err)
		if made, privateErr = newSegments(private, r.workload.pid, r.id); privateErr == nil {
			return made, nil
		}
	}
	if privateErr != nil && privateErr.Error() != err.Error() {
		err = fmt.Errorf("%w; %w", err, privateErr)
	}
	return nil, err
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
	if r.collector == "" {
		return
	}
	r.side.binary = r.collector
	r.side.output = r.options.output
	r.side.userConfigs = userConfigs(&r.environ)
	in := &renderInput{
		pid:         r.workload.pid,
		startTime:   r.startTime,
		commandLine: redact.Args(cutArguments(prog.argv)),
		engine:      engine.Name,
		endpoint:    engine.Endpoint,
		controlFD:   sidecarControlFD,
		nested:      r.nested,
		runID:       r.id,
	}
	if r.capture != nil {
		in.console = r.capture.segments.path
	}
	config, err := r.sidecarConfig(in)
	if err != nil {
		r.msg.warn("no profiling in this run: %v", err)
		return
	}
	r.side.config, r.side.uploads = config, in.upload.enabled()
	r.msg.debug("sidecar configuration: %s", config)
	if err := r.side.start(len(r.side.userConfigs) > 0); err != nil {
		r.msg.warn("no profiling in this run: %v", err)
	}
}

// userConfigs are the files that the user wants merged into the sidecar's configuration.
func userConfigs(environ *environment) (list []string) {
	files, _ := environ.get("GRAPHSIGNAL_COLLECTOR_CONFIG")
	for file := range strings.SplitSeq(files, ",") {
		if file = strings.TrimSpace(file); file != "" {
			list = append(list, file)
		}
	}
	return list
}

// sidecarConfig adds to what is known of the workload what options and environment say, and renders it. A wrong setting
// of the upload or the tee costs these only, and is said.
func (r *run) sidecarConfig(in *renderInput) ([]byte, error) {
	in.options = r.options
	tags, skipped, refused := contextTags(r.environ.entries)
	if len(skipped) > 0 {
		r.msg.warn("not usable as tags: %s", strings.Join(skipped, ", "))
	}
	if len(refused) > 0 {
		r.msg.warn("with %d tags of GRAPHSIGNAL_TAG_* there is no room for %s", len(tags), strings.Join(refused, ", "))
	}
	in.tags = tags
	in.shmPath, _ = r.environ.get("GRAPHSIGNAL_SHM_PATH")
	in.procfsPath, _ = r.environ.get("GRAPHSIGNAL_PROCFS_PATH")
	upload, err := uploadFrom(&r.environ)
	if err != nil {
		r.msg.warn("no upload in this run: %v", err)
	}
	in.upload, in.versionCheck = upload, versionCheckBase(&r.environ, upload)
	in.otlpEndpoint, _ = r.environ.get("GRAPHSIGNAL_OTLP_ENDPOINT")
	config, err := renderConfig(in)
	if err != nil && in.otlpEndpoint != "" {
		r.msg.warn("%v", err)
		in.otlpEndpoint = ""
		config, err = renderConfig(in)
	}
	return config, err
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
				r.workloadStopped(event.status.StopSignal())
				continue
			}
			r.status, r.endedAt = event.status, time.Now()
			r.msg.debug("workload ended: %s", statusText(event.status))
			return
		case line := <-r.side.lines:
			r.side.heard(line)
		}
	}
}

// passOn gives a signal to the workload's leader, unless that has had it already.
func (r *run) passOn(c caught) {
	if c.sig == syscall.SIGTSTP {
		r.stopAsked = time.Now()
	}
	sessionLeader, _ := unix.Getsid(0)
	fromTerminal := c.isFromTerminal(sessionLeader == os.Getpid())
	switch {
	case c.sender == r.workload.pid:
		r.msg.debug("signal %d came from the workload", c.sig)
	case c.sig == syscall.SIGWINCH && r.resize(c.sender == os.Getpid()):
	case c.sender == os.Getpid():
	case fromTerminal:
		r.msg.debug("signal %d came from the terminal", c.sig)
	default:
		err := r.workload.signal(c)
		r.msg.debug("signal %d passed on: %v", c.sig, err)
	}
	if c.sig == syscall.SIGTSTP && isStopped(r.workload.pid) {
		// Its stop may have been heard of before the signal.
		r.workloadStopped(syscall.SIGTSTP)
	}
}

// resize gives the pseudoterminals the size of the real one. Unless it is quiet it tells the programs; it reports
// whether it has.
func (r *run) resize(quiet bool) bool {
	var told bool
	for _, s := range r.streams {
		if s.terminal != nil && s.terminal.syncSize() && !quiet && !told {
			told = true
			s.terminal.tellSize(r.workload)
		}
	}
	return told
}

// end passes on what is left of the outputs, records how the workload ended, and lets the sidecar read that. A signal
// that would end a program cuts the wait short.
func (r *run) end() {
	r.endStreams()
	if r.capture != nil {
		record := statusRecord(time.Now().UnixNano(), r.status.Signaled(), statusNumber(r.status))
		if !r.capture.finish(captureLimit, record) {
			r.msg.debug("the capture did not end in time")
		}
	}
	r.side.drain()
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	for r.side.running() {
		if _, cut := r.waitAtEnd(nil, limit.C); cut {
			r.msg.debug("the sidecar is not waited for any longer")
			r.side.kill()
		}
	}
	if r.capture != nil {
		r.capture.segments.remove()
	}
}

// endStreams waits for the outputs to end. Those that a descendant holds go to a relay.
func (r *run) endStreams() {
	for _, s := range r.streams {
		s.workloadEnded()
	}
	var held []*stream
	for _, s := range r.streams {
		for waiting := true; waiting; {
			ended, cut := r.waitAtEnd(s.done, nil)
			if cut {
				return
			}
			if ended != nil {
				waiting = false
				if *ended == outcomeHeld {
					held = append(held, s)
				}
			}
		}
	}
	if len(held) == 0 {
		return
	}
	if r.status.Signaled() {
		if holders := holdersOf(held); len(holders) > 0 {
			r.msg.warn("the workload is dead, but not all of its processes: %s", strings.Join(holders, ", "))
		}
	}
	if err := startRelay(held); err != nil {
		r.msg.warn("what is written from here on is lost: %v", err)
	}
}

// waitAtEnd waits for the end of a stream, or for anything else that happens after the workload's end. A signal that
// would end a program, or the limit, cuts the waiting short.
func (r *run) waitAtEnd(stream <-chan outcome, limit <-chan time.Time) (ended *outcome, cut bool) {
	select {
	case result := <-stream:
		return &result, false
	case event := <-r.reap.events:
		if !event.status.Stopped() {
			r.side.childEnded(event)
		}
	case line := <-r.side.lines:
		r.side.heard(line)
	case c := <-r.signals.signals:
		switch c.sig {
		case syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP:
			// One of the first moments may be the one that the workload died of.
			if time.Since(r.endedAt) > impatience {
				return nil, true
			}
		}
	case <-limit:
		return nil, true
	}
	return nil, false
}

// statusNumber is the signal or the exit code of a status.
func statusNumber(status syscall.WaitStatus) int {
	if status.Signaled() {
		return int(status.Signal())
	}
	return status.ExitStatus()
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
