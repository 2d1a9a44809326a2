package shmreceiver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/shm"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/store"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

// finalCollection bounds the last collection, in Shutdown.
const finalCollection = 100 * time.Millisecond

// Receiver reads the selected documents of every process and hands on what is new in them: metrics with the times
// of the writer, warnings and errors of the writer's log as log records. Both pipelines use one Receiver.
type Receiver struct {
	config    *Config
	selection shm.Selection
	scope     string
	logger    *zap.Logger
	metrics   consumer.Metrics // nil without a pipeline of metrics
	logs      consumer.Logs    // nil without a pipeline of logs

	controller *collect.Controller
	tree       workload.Reader // nil where all run directories of one shared memory are read
	roots      *rootSHM        // the same as tree where each process's own shared memory is read, else nil
	reader     shm.Reader
	procfs     *procfs.Reader
	report     *report
	uid        uint32
	now        func() time.Time

	processes map[int]*process
	order     []*process // of the current collection
}

var _ component.Component = (*Receiver)(nil)

func newReceiver(config *Config, selection shm.Selection, scope string, set component.TelemetrySettings) *Receiver {
	r := &Receiver{
		config:    config,
		selection: selection,
		scope:     scope,
		logger:    set.Logger,
		procfs:    procfs.NewReader(config.ProcFSPath),
		report:    newReport(set.Logger),
		uid:       uint32(os.Geteuid()),
		now:       time.Now,
		processes: make(map[int]*process),
	}
	r.reader = shm.Reader{MaxFileSize: config.MaxFileSize, Skipped: r.fileSkipped}
	r.controller = collect.New(config.Config, finalCollection, r.collect)
	return r
}

// Start begins collecting. With a workload extension the processes are those of the workload, without one those of
// every run directory.
func (r *Receiver) Start(_ context.Context, host component.Host) error {
	ext := workload.Find(host)
	switch {
	case r.config.SHMPath == ProcSHM && ext != nil:
		return errors.New("shm_path: proc reads all processes of a node, and so goes without the workload extension")
	case r.config.SHMPath == ProcSHM:
		r.roots = newRootSHM(r.config.ProcFSPath, r.report)
		r.tree = r.roots
	case ext != nil:
		r.tree = ext.NewReader()
	}
	r.controller.Start()
	return nil
}

// Shutdown makes one last collection.
func (r *Receiver) Shutdown(ctx context.Context) error {
	err := r.controller.Shutdown(ctx)
	if r.tree != nil {
		r.tree.Close()
	}
	if err != nil {
		return err // a collection still runs, and reports for itself
	}
	r.report.flush(true)
	return nil
}

// collection is what one round read.
type collection struct {
	now     int64
	metrics *signal.Builder
	logs    plog.Logs
	records plog.LogRecordSlice
	files   []*shm.File
}

func (r *Receiver) collect(ctx context.Context) {
	c := &collection{now: r.now().UnixNano(), metrics: signal.NewBuilder(r.scope).Describe(libraryDescriptions), logs: plog.NewLogs()}
	scope := c.logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
	signal.SetScope(scope.Scope(), r.scope)
	c.records = scope.LogRecords()

	var ended []workload.Process
	for _, p := range r.list() {
		if ctx.Err() != nil {
			break
		}
		r.read(ctx, p, c)
		if p.Ended && ctx.Err() == nil {
			ended = append(ended, p.Process)
		}
	}
	if r.deliver(ctx, c) && r.tree != nil {
		for _, p := range ended {
			r.tree.Done(p)
		}
	}
	r.report.flush(false)
}

// read adds what is new in the directory of a process.
func (r *Receiver) read(ctx context.Context, p *process, c *collection) {
	if !r.ownedBy(p) {
		return
	}
	var resource *signal.Resource
	var shared []series.Tag
	tags := []series.Tag{{Key: signal.PIDKey, Value: strconv.Itoa(p.PID)}}
	r.reader.Read(ctx, p.directory, r.selection, r.trust(p), func(f *shm.File, doc *shm.Document) {
		c.files = append(c.files, f)
		if r.metrics != nil && len(doc.Entries) > 0 {
			// The files of one process normally have one context, and so one Resource.
			if resource == nil || series.CompareTags(shared, doc.Context) != 0 {
				shared = append(shared[:0], doc.Context...)
				resource = c.metrics.Resource(nil, append(tags[:1:1], doc.Context...))
			}
			addEntries(resource, doc, c.now)
		}
		for _, e := range f.Log(doc) {
			r.addLog(c, p.PID, e)
		}
		r.entriesSkipped(f, doc)
	})
}

// addEntries adds all series of a document. A document without a time of writing was written now.
func addEntries(resource *signal.Resource, doc *shm.Document, now int64) {
	ts := doc.Write
	if ts == 0 {
		ts = now
	}
	start := min(doc.Start, ts)
	for i := range doc.Entries {
		switch e := &doc.Entries[i]; e.Type {
		case series.Gauge:
			resource.Gauge(e.Name, e.Tags, e.Value, start, ts)
		case series.Counter:
			resource.Counter(e.Name, e.Tags, e.Value, start, ts)
		case series.Histogram:
			resource.NativeHistogram(e.Name, e.Tags, e.Distribution, start, ts)
		case series.Profile:
			resource.Profile(e.Name, e.Tags, e.Frames, start, ts)
		}
	}
}

// addLog makes a warning or an error of the writer a log record. Everything else of its log is for debugging.
func (r *Receiver) addLog(c *collection, pid int, e shm.LogEntry) {
	text := strings.TrimRight(e.Message, " \t\r\n\v\f")
	if text == "" {
		return
	}
	switch e.Level {
	case "warning", "error", "critical":
		if r.logs == nil {
			break
		}
		signal.AppendError(c.records, signal.ErrorEntry{
			Level:   e.Level,
			Message: store.CutMessage(text),
			Tags: []signal.ErrorTag{
				{Key: signal.PIDKey, Value: strconv.Itoa(pid)},
				{Key: "scope.name", Value: "profiler"},
			},
			Time: e.Time,
		})
		return
	}
	r.logger.Debug("workload: "+text, zap.Int(signal.PIDKey, pid))
}

// deliver hands on what was read and reports whether it is in good hands. What is not is read again, with the next
// collection.
func (r *Receiver) deliver(ctx context.Context, c *collection) bool {
	metricsDone, logsDone := true, true
	if !c.metrics.Empty() {
		metricsDone = r.delivered("metrics", r.metrics.ConsumeMetrics(ctx, c.metrics.Metrics()))
	}
	if c.records.Len() > 0 {
		logsDone = r.delivered("logs", r.logs.ConsumeLogs(ctx, c.logs))
	}
	for _, f := range c.files {
		if logsDone {
			f.AcceptLog()
		}
		if metricsDone && logsDone {
			f.Accept()
		}
	}
	return metricsDone && logsDone
}

// delivered reports whether an answer of the pipeline is final.
func (r *Receiver) delivered(what string, err error) bool {
	switch {
	case err == nil:
		return true
	case consumererror.IsPermanent(err):
		r.report.add("The pipeline refused "+what+" of shared memory", 1, err)
		return true
	case errors.Is(err, context.Canceled): // Shutdown, whose last collection follows
		return false
	}
	r.report.add("The pipeline could not take "+what+" of shared memory, which are read again", 1, err)
	return false
}

func (r *Receiver) fileSkipped(path string, err *shm.FileError) {
	path = r.shown(path)
	r.report.add("Shared-memory files were skipped: "+err.Cause.String(), 1, fmt.Errorf("%s: %w", path, err))
}

// shown is the path by which a reader of the log finds a file.
func (r *Receiver) shown(path string) string {
	if r.roots != nil {
		return r.roots.shown(path)
	}
	return path
}

func (r *Receiver) entriesSkipped(f *shm.File, doc *shm.Document) {
	for i, n := range doc.Skipped {
		cause := shm.Skip(i)
		if n == 0 || cause == shm.SkipUnrecorded {
			continue
		}
		if cause == shm.SkipType { // of a newer writer, and none of ours to judge
			r.logger.Debug("Entries of an unknown type were skipped", zap.String("file", r.shown(f.Path)), zap.Int("count", n))
			continue
		}
		r.report.add("Entries of shared-memory files were skipped: "+cause.String(), n, errors.New(r.shown(f.Path)))
	}
}
