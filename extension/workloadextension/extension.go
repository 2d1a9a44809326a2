package workloadextension

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/residency"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
	"github.com/graphsignal/graphsignal-collector/internal/version"
	"github.com/graphsignal/graphsignal-collector/internal/versioncheck"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

// stopTimeout bounds the wait for a look at the process table in Shutdown: reading a command line can block in the
// kernel for as long as that process holds its address space.
const stopTimeout = 2 * time.Second

type workloadExtension struct {
	cfg    *Config
	logger *zap.Logger
	dirs   *rundir.Dirs
	// hidden reports whether a pid that the process table does not show lives all the same.
	hidden func(pid int) bool
	now    func() time.Time

	host    component.Host
	control *control
	readers readers

	scanning sync.Mutex // guards tree and finder
	tree     *tree
	finder   *rundir.Finder // nil without a run id

	stop  context.CancelFunc
	loops sync.WaitGroup

	mu       sync.Mutex
	ready    bool // pipelines run: a fatal status is heard
	stopping bool // the Collector shuts down by itself: nobody hears one any more
	ending   bool // the workload has ended
	warned   bool
}

var (
	_ extension.Extension                   = (*workloadExtension)(nil)
	_ extensioncapabilities.PipelineWatcher = (*workloadExtension)(nil)
	_ workload.Extension                    = (*workloadExtension)(nil)
	_ workload.Warner                       = (*workloadExtension)(nil)
)

func newExtension(cfg *Config, logger *zap.Logger) *workloadExtension {
	return &workloadExtension{
		cfg: cfg, logger: logger, dirs: rundir.New(cfg.SHMPath, cfg.ProcFSPath), hidden: hiddenBy(cfg.ProcFSPath),
		now: time.Now,
	}
}

// hiddenBy asks the kernel about a pid, where the table is the kernel's own.
func hiddenBy(procfsPath string) func(int) bool {
	if filepath.Clean(procfsPath) != procfs.DefaultRoot {
		return func(int) bool { return false }
	}
	return func(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
}

// Start looks at the processes for the first time, so that receivers find them, and begins to follow them.
func (e *workloadExtension) Start(_ context.Context, host component.Host) error {
	e.host = host
	if e.cfg.ControlFD > 0 {
		control, err := openControl(e.cfg.ControlFD)
		if err != nil {
			return err
		}
		e.control = control
	}
	e.tree = newTree(procfs.NewReader(e.cfg.ProcFSPath), os.Getpid(), workload.Process{
		PID: e.cfg.PID, Root: e.cfg.PID, StartTime: e.cfg.StartTimeUnixNano, CommandLine: strings.Join(e.cfg.CommandLine, " "),
	})
	if e.cfg.RunID != "" {
		e.finder = e.dirs.NewFinder(e.cfg.RunID)
	}
	e.tree.find(e.hidden)
	if t := e.tree.target; !t.Ended && t.StartTicks == 0 {
		e.logger.Warn("The process table does not show the workload; its CPU, memory and descendants are not known",
			zap.Int("pid", t.PID), zap.String("procfs_path", e.cfg.ProcFSPath))
	}
	e.poll()

	ctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	e.heedEarlyStop(ctx)
	e.loops.Go(func() {
		e.sweep()
		e.follow(ctx)
	})
	if e.cfg.VersionCheck != "" && !e.tree.target.Ended {
		e.loops.Go(func() { e.checkVersion(ctx) })
	}
	if e.control != nil {
		e.control.watch(e.end)
	}
	return nil
}

// checkVersion says so when a newer release exists, and nothing in any other case.
func (e *workloadExtension) checkVersion(ctx context.Context) {
	notice, err := versioncheck.Notice(ctx, &http.Client{}, e.cfg.VersionCheck, version.Version)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		e.logger.Debug("The version check failed", zap.Error(err))
	case notice != "":
		e.logger.Warn(notice)
	}
}

// sweep removes what earlier runs left in shared memory.
func (e *workloadExtension) sweep() {
	removed, err := e.dirs.Sweep(e.cfg.PID)
	if err != nil {
		e.logger.Debug("Stale run directories were not all removed", zap.Error(err))
	}
	if len(removed) > 0 {
		e.logger.Debug("Removed stale run directories", zap.Strings("paths", removed))
	}
}

// settled is how many polls after the start every receiver has collected and every page that is used again has
// been used.
const settled = 3

func (e *workloadExtension) follow(ctx context.Context) {
	ticker := time.NewTicker(e.cfg.PollInterval)
	defer ticker.Stop()
	for polls := 0; ; polls++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			e.poll()
		}
		if polls == settled && e.control != nil {
			// A sidecar shares the machine with the workload that it serves.
			if err := residency.GiveBack(); err != nil {
				e.logger.Debug("Memory of the start was not given back", zap.Error(err))
			}
		}
	}
}

func (e *workloadExtension) poll() {
	e.scanning.Lock()
	defer e.scanning.Unlock()
	e.look()
}

// look looks at the process table once and removes the run directories that nobody will read any more. The tree is
// locked.
func (e *workloadExtension) look() {
	ended, err := e.tree.scan(e.hidden)
	ended = append(ended, e.claim()...)
	e.mu.Lock()
	ready := e.ready
	if (err != nil || e.tree.overflow) && !e.warned {
		e.warned = true
		if err != nil {
			e.logger.Warn("The process table cannot be read; descendants of the workload are not followed", zap.Error(err))
		} else {
			e.logger.Warn("The workload has too many processes; some are not followed", zap.Int("limit", maxMembers))
		}
	}
	e.mu.Unlock()
	target := e.tree.target.Process
	e.readers.update(target, e.tree.living(nil), ended, e.now())
	if ready {
		for _, p := range e.readers.release(e.now()) {
			e.removeRun(p)
		}
	}
	if target.Ended && e.control == nil {
		e.end()
	}
}

// claim takes the processes that wrote a run directory of this run into the tree, and returns those of them that have
// ended: they lived too shortly for a look, or under a parent that did.
func (e *workloadExtension) claim() (ended []workload.Process) {
	if e.finder == nil {
		return nil
	}
	owners, err := e.finder.New()
	if err != nil {
		e.logger.Debug("Run directories were not looked for", zap.Error(err))
	}
	for _, owner := range owners {
		if p, gone := e.tree.adopt(owner.PID, owner.StartTicks); gone && !e.readers.knows(p) {
			ended = append(ended, p)
		}
	}
	return ended
}

// removeRun removes the run directory of a process, unless it has another reader.
func (e *workloadExtension) removeRun(p workload.Process) {
	if !e.cfg.KeepDirectories {
		e.remove(rundir.Path(e.cfg.SHMPath, p.PID), p)
	}
}

func (e *workloadExtension) remove(path string, p workload.Process) {
	if err := e.dirs.Remove(path, p.PID, p.StartTicks); err != nil {
		e.logger.Debug("A run directory was not removed", zap.Error(err))
	}
}

// end drains and ends the Collector, once.
func (e *workloadExtension) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ending {
		e.ending = true
		e.reportEnd()
	}
}

// reportEnd reports the end as a fatal status, which is how a component ends its Collector. The Collector hears it
// only between its start and its shutdown; at any other time the report would block, with the Collector's lock on
// statuses held.
func (e *workloadExtension) reportEnd() {
	if e.ending && e.ready && !e.stopping {
		e.loops.Go(func() { componentstatus.ReportStatus(e.host, componentstatus.NewFatalErrorEvent(workload.ErrEnded)) })
	}
}

// Ready implements extensioncapabilities.PipelineWatcher: receivers have started.
func (e *workloadExtension) Ready() error {
	e.send("ready")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready = true
	e.reportEnd()
	return nil
}

// NotReady implements extensioncapabilities.PipelineWatcher: receivers are about to make their last collections, so
// they get the newest state.
func (e *workloadExtension) NotReady() error {
	e.mu.Lock()
	e.stopping = true
	e.mu.Unlock()
	if e.tree == nil || !e.scanning.TryLock() {
		return nil
	}
	defer e.scanning.Unlock()
	e.look()
	e.mu.Lock()
	ready := e.ready
	e.mu.Unlock()
	if !ready || !e.tree.target.Ended {
		return nil
	}
	if left := e.tree.living(nil); len(left) > 0 {
		// They may hold what the next start needs: memory, devices, ports.
		e.logger.Warn("Processes of the workload outlive it: " + listPIDs(left))
	}
	return nil
}

// listPIDs names the first of a list of processes.
func listPIDs(list []workload.Process) string {
	const most = 32
	var text strings.Builder
	for i, p := range list {
		if i == most {
			fmt.Fprintf(&text, " and %d more", len(list)-most)
			break
		}
		if i > 0 {
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "pid %d", p.PID)
	}
	return text.String()
}

// Shutdown ends following and, as all pipelines have stopped, removes the run directories of all processes that have
// ended. Those of processes that outlive the target stay: their writers would never notice.
func (e *workloadExtension) Shutdown(ctx context.Context) error {
	if e.stop == nil {
		return nil
	}
	e.mu.Lock()
	e.stopping = true
	e.mu.Unlock()
	e.stop()
	e.stop = nil
	if e.control != nil {
		e.control.close()
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		e.loops.Wait()
		e.poll()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		// All has been read and published; what stays behind is swept by the next run.
		e.logger.Warn("The process table was not read in time; run directories are left behind")
		return nil
	}
	e.removeAll()
	e.sweep() // what was too young at the start
	return nil
}

func (e *workloadExtension) removeAll() {
	e.mu.Lock()
	ready := e.ready
	e.mu.Unlock()
	if !ready {
		return // nothing was read; another Collector may be started for this workload
	}
	for _, p := range e.readers.releaseAll() {
		e.removeRun(p)
	}
	target := e.tree.target.Process
	if !target.Ended {
		return
	}
	e.removeRun(target)
	e.remove(rundir.ConsolePath(e.cfg.SHMPath, target.PID), target)
}

// NewReader implements workload.Extension.
func (e *workloadExtension) NewReader() workload.Reader { return e.readers.newReader() }

// EndpointBound implements workload.Extension.
func (e *workloadExtension) EndpointBound(address string) { e.send("bound " + address) }

// EndpointBindFailed implements workload.Extension.
func (e *workloadExtension) EndpointBindFailed(address string, reason error) {
	e.send(bindFailed(address, reason))
}

// Warn implements workload.Warner.
func (e *workloadExtension) Warn(text string) { e.send("warning " + oneLine(text)) }

func (e *workloadExtension) send(line string) {
	if e.control == nil {
		return
	}
	if err := e.control.send(line); err != nil {
		e.logger.Debug("The launcher was not told", zap.String("line", line), zap.Error(err))
	}
}
