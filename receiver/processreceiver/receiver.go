package processreceiver

import (
	"context"
	"math"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/version"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
	"github.com/graphsignal/graphsignal-collector/receiver/processreceiver/internal/metadata"
)

const (
	// finalCollection bounds the last collection, in Shutdown.
	finalCollection = 100 * time.Millisecond
	// minCPUWindow is the least time over which CPU use is told: CPU time is counted in steps of 10 ms.
	minCPUWindow = 100 * time.Millisecond
	// minAge is the age from which a descendant is reported. Programs that are gone at once, like the probes of a
	// health check, would fill the stores' limit of series and tell nothing.
	minAge = time.Second
	// machineEvery is how often the number of CPUs is read.
	machineEvery = time.Minute
	// threadBudget is how many threads are read in one collection, over all processes, and leastThreads how many of
	// each process at least.
	threadBudget, leastThreads = 256, 8
)

type processReceiver struct {
	cfg    *Config
	logger *zap.Logger
	next   consumer.Metrics
	table  *procfs.Reader
	now    func() time.Time
	uname  func(*unix.Utsname) error
	page   uint64

	refused    *collect.Refused
	controller *collect.Controller
	source     workload.Reader // nil: only the host
	host       signal.Entity
	boot       int64
	cpus       int
	cpusRead   time.Time
	tracked    map[identity]*tracked
	ticks      uint64
}

// identity tells a process from a later one with the same pid.
type identity struct {
	pid   int
	start uint64
}

// tracked is what is kept of a process between collections.
type tracked struct {
	cpuTicks uint64
	cpuAt    time.Time // zero: not read yet
	switches switchTotal
	entity   signal.Entity
	tick     uint64 // the last collection that listed it
}

func newReceiver(cfg *Config, logger *zap.Logger, next consumer.Metrics) *processReceiver {
	r := &processReceiver{
		cfg: cfg, logger: logger, next: next, table: procfs.NewReader(cfg.ProcFSPath), now: time.Now, uname: unix.Uname,
		page: uint64(os.Getpagesize()), refused: collect.NewRefused(logger, "Process metrics were refused"),
		tracked: make(map[identity]*tracked),
	}
	r.controller = collect.New(cfg.Config, finalCollection, r.collect)
	return r
}

// Start begins collecting.
func (r *processReceiver) Start(_ context.Context, host component.Host) error {
	if len(r.cfg.PIDs) > 0 {
		r.source = newPIDReader(r.cfg.ProcFSPath, r.cfg.PIDs)
	} else if ext := workload.Find(host); ext != nil {
		r.source = ext.NewReader()
	}
	r.boot, _ = r.table.BootTime()
	r.host = r.hostEntity()
	r.controller.Start()
	return nil
}

// Shutdown makes the last collection.
func (r *processReceiver) Shutdown(ctx context.Context) error {
	err := r.controller.Shutdown(ctx)
	if r.source != nil {
		r.source.Close()
	}
	return err
}

func (r *processReceiver) hostEntity() signal.Entity {
	e := signal.Entity{Kind: signal.HostKind}
	var u unix.Utsname
	if err := r.uname(&u); err == nil {
		e.Attributes = []series.Tag{
			{Key: "platform.name", Value: unix.ByteSliceToString(u.Sysname[:])},
			{Key: "platform.version", Value: unix.ByteSliceToString(u.Release[:])},
			{Key: "platform.machine", Value: unix.ByteSliceToString(u.Machine[:])},
		}
	}
	e.Attributes = append(e.Attributes, series.Tag{Key: "profiler.version", Value: version.Version})
	return e
}

func (r *processReceiver) collect(ctx context.Context) {
	r.ticks++
	now := r.now()
	b := signal.NewBuilder(metadata.ScopeName).Describe(metadata.Descriptions)
	r.collectHost(b, now)
	var ended []workload.Process
	if r.source != nil {
		ended = r.collectProcesses(b, now)
	}
	if err := r.next.ConsumeMetrics(ctx, b.Metrics()); err != nil {
		if ctx.Err() == nil {
			r.refused.Add(err)
		}
		return // ended processes come again
	}
	for _, p := range ended {
		r.source.Done(p)
	}
}

func (r *processReceiver) collectHost(b *signal.Builder, now time.Time) {
	if r.cpus == 0 || now.Sub(r.cpusRead) >= machineEvery {
		r.cpusRead = now
		if m, err := r.table.Machine(); err == nil {
			r.cpus = m.CPUs
		}
	}
	const name = "host_memory_usage_bytes"
	res := b.Resource([]signal.Entity{r.host}, nil)
	if m, err := r.table.MemInfo(); err == nil {
		res.Gauge(name, nil, series.Uint(m.Used()), r.boot, now.UnixNano())
	} else {
		res.Seen(name, r.boot, now.UnixNano())
		if r.boot == 0 && r.ticks == 1 {
			r.logger.Warn("The process table cannot be read (procfs_path)", zap.Error(err))
		}
	}
}

// collectProcesses adds all processes and returns those that have ended.
func (r *processReceiver) collectProcesses(b *signal.Builder, now time.Time) (ended []workload.Process) {
	list := r.source.Processes()
	budget := max(leastThreads, threadBudget/max(1, len(list)))
	for _, p := range list {
		if p.Ended {
			ended = append(ended, p)
		}
		id := identity{p.PID, p.StartTicks}
		t, ok := r.tracked[id]
		if !ok {
			// After a step of the clock back a new process has a start in the future.
			age := now.UnixNano() - p.StartTime
			young := p.StartTime != 0 && age >= 0 && age < int64(minAge)
			if p.PID != p.Root && (p.Ended || young) {
				continue
			}
			t = &tracked{entity: signal.Entity{Kind: signal.ProcessKind, ID: []series.Tag{
				{Key: signal.PIDKey, Value: strconv.Itoa(p.PID)},
				{Key: signal.RootPIDKey, Value: strconv.Itoa(p.Root)},
			}}}
			r.tracked[id] = t
		}
		t.tick = r.ticks
		t.entity.Attributes = t.entity.Attributes[:0]
		if p.CommandLine != "" {
			t.entity.Attributes = append(t.entity.Attributes, series.Tag{Key: signal.CommandLineKey, Value: p.CommandLine})
		}
		r.collectProcess(b.Resource([]signal.Entity{t.entity}, nil), p, t, budget, now)
	}
	for id, t := range r.tracked {
		if t.tick != r.ticks {
			delete(r.tracked, id)
		}
	}
	return ended
}

// collectProcess adds the series of one process. One that is gone, or that the table hides, is only seen.
func (r *processReceiver) collectProcess(res *signal.Resource, p workload.Process, t *tracked, budget int, now time.Time) {
	ts := now.UnixNano()
	gone := p.Ended
	var stat procfs.Stat
	if !gone {
		var err error
		stat, err = r.table.Stat(p.PID)
		gone = err != nil || stat.Ended() || p.StartTicks != 0 && stat.StartTicks != p.StartTicks
	}
	if gone {
		res.Seen("process_memory_usage_bytes", p.StartTime, ts)
		return
	}
	gauge := func(name string, value series.Number) { res.Gauge(name, nil, value, p.StartTime, ts) }
	if percent, ok := t.cpuPercent(stat.UserTicks+stat.SystemTicks, now, r.cpus); ok {
		gauge("process_cpu_usage_percent", series.Float(percent))
	}
	if !stat.LeaderEnded() {
		gauge("process_memory_usage_bytes", series.Uint(stat.ResidentPages*r.page))
		gauge("process_memory_virtual_bytes", series.Uint(stat.VirtualBytes))
	}
	gauge("process_user_cpu_seconds", series.Float(float64(stat.UserTicks)/procfs.TicksPerSecond))
	gauge("process_system_cpu_seconds", series.Float(float64(stat.SystemTicks)/procfs.TicksPerSecond))
	gauge("process_threads", series.Int(int64(stat.Threads)))
	if total, ok := t.switches.advance(r.table, p.PID, stat.Threads, budget); ok {
		res.Counter("process_context_switches_voluntary_total", nil, series.Uint(total.Voluntary), p.StartTime, ts)
		res.Counter("process_context_switches_involuntary_total", nil, series.Uint(total.Involuntary), p.StartTime, ts)
	}
}

// cpuPercent is the CPU use since the last reading as a share of all CPUs; false at the first reading, and when the
// last one is too near to tell.
func (t *tracked) cpuPercent(ticks uint64, now time.Time, cpus int) (float64, bool) {
	passed := now.Sub(t.cpuAt)
	first := t.cpuAt.IsZero()
	if !first && passed < minCPUWindow {
		return 0, false
	}
	before := t.cpuTicks
	t.cpuTicks, t.cpuAt = ticks, now
	if first || cpus == 0 || ticks < before {
		return 0, false
	}
	used := float64(ticks-before) / procfs.TicksPerSecond
	return math.Round(1000*used/passed.Seconds()) / 10 / float64(cpus), true
}
