package consolereceiver

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/console"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/receiver/consolereceiver/internal/metadata"
)

const (
	// maxPending bounds the entries that wait for a consumer which refused them.
	maxPending = 200
	// retryAfter is when they are offered again.
	retryAfter = time.Second
	// finalTime is what the last collection may take.
	finalTime = 100 * time.Millisecond
)

// consoleReceiver tails the segments in one goroutine; all fields below stop belong to it.
type consoleReceiver struct {
	cfg    *Config
	next   consumer.Logs
	logger *zap.Logger

	stop context.CancelFunc
	done chan struct{}

	watch   *dirWatch
	reader  *console.SegmentReader
	parser  *console.Parser
	pending []console.Entry
	refused bool

	// What has been told already.
	told      console.ReadStats
	dropped   uint64
	lastError string
}

func newReceiver(set receiver.Settings, cfg *Config, next consumer.Logs) (*consoleReceiver, error) {
	next, err := collect.ReportedLogs(set, "file", next)
	if err != nil {
		return nil, err
	}
	return &consoleReceiver{cfg: cfg, next: next, logger: set.Logger}, nil
}

// Start implements component.Component.
func (r *consoleReceiver) Start(context.Context, component.Host) error {
	var err error
	if r.watch, err = newDirWatch(r.cfg.Directory); err != nil {
		r.logger.Warn("Console output is only read once in a poll_interval", zap.Error(err))
	}
	r.reader = console.NewSegmentReader(r.cfg.Directory)
	oom := console.NewCgroupOOM(r.cfg.ProcFSPath, r.cfg.CgroupFSPath, r.cfg.PID)
	r.parser = console.NewParser(oom, r.add)
	ctx, cancel := context.WithCancel(context.Background())
	r.stop, r.done = cancel, make(chan struct{})
	go r.run(ctx)
	return nil
}

// Shutdown implements component.Component: it reads what came since the last time and publishes what is still open.
func (r *consoleReceiver) Shutdown(ctx context.Context) error {
	if r.stop == nil {
		return nil
	}
	r.stop()
	r.stop = nil
	<-r.done
	r.watch.close()
	ctx, cancel := context.WithTimeout(ctx, finalTime)
	defer cancel()
	r.read(ctx)
	r.parser.Flush(time.Now())
	r.deliver(ctx)
	if n := len(r.pending); n > 0 {
		r.logger.Warn("Errors of the workload were not accepted and are lost", zap.Int("count", n))
	}
	r.reader.Close()
	return nil
}

func (r *consoleReceiver) run(ctx context.Context) {
	defer close(r.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.watch.created:
			r.open()
			continue
		case <-r.watch.changed:
		case <-timer.C:
			r.watch.ensure()
		}
		r.read(ctx)
		r.parser.Expire(time.Now())
		r.deliver(ctx)
		timer.Reset(r.wait(time.Now()))
	}
}

// wait is the time to the next pass if no change is told of.
func (r *consoleReceiver) wait(now time.Time) time.Duration {
	wait := r.cfg.PollInterval
	if at, ok := r.parser.Deadline(); ok {
		wait = min(wait, max(at.Sub(now), minInterval))
	}
	if r.refused {
		wait = min(wait, retryAfter)
	}
	return wait
}

// open takes hold of new segments before the launcher deletes them.
func (r *consoleReceiver) open() { r.note(r.reader.Open()) }

// read takes the new records of the segments.
func (r *consoleReceiver) read(ctx context.Context) {
	now := time.Now()
	err := r.reader.Read(ctx, func(record console.Record) { r.parser.Record(now, record) })
	if ctx.Err() == nil {
		r.note(err)
	}
	r.tell()
}

// note logs an error of reading once.
func (r *consoleReceiver) note(err error) {
	switch {
	case err == nil:
		r.lastError = ""
	case err.Error() != r.lastError:
		r.lastError = err.Error()
		r.logger.Warn("Console output cannot be read", zap.Error(err))
	}
}

// tell logs what was lost since the last time.
func (r *consoleReceiver) tell() {
	stats := r.reader.Stats()
	if n := stats.LostSegments - r.told.LostSegments; n > 0 {
		r.logger.Warn("Console output came faster than it was read; segments are lost", zap.Uint64("count", n))
	}
	if n := stats.Malformed - r.told.Malformed; n > 0 {
		r.logger.Warn("Malformed records in console segments were skipped", zap.Uint64("count", n))
	}
	if n := stats.Refused - r.told.Refused; n > 0 {
		r.logger.Warn("Files in the console directory are not the launcher's and were not read", zap.Uint64("count", n))
	}
	r.told = stats
	if n := r.parser.Dropped() - r.dropped; n > 0 {
		r.logger.Debug("Lines of console output could not be captured", zap.Uint64("count", n))
	}
	r.dropped = r.parser.Dropped()
	if n := r.parser.TakeOmitted(); n > 0 {
		r.logger.Warn("Errors of the workload beyond 50 in a second were left out", zap.Int("count", n))
	}
}

// add takes an entry from the parser.
func (r *consoleReceiver) add(e console.Entry) {
	if len(r.pending) >= maxPending {
		r.logger.Warn("Errors of the workload were not accepted and are lost", zap.Int("count", 1))
		copy(r.pending, r.pending[1:])
		r.pending = r.pending[:maxPending-1]
	}
	r.pending = append(r.pending, e)
}

// deliver hands the pending entries on. Those that are refused for now stay pending.
func (r *consoleReceiver) deliver(ctx context.Context) {
	if len(r.pending) == 0 {
		return
	}
	n := len(r.pending)
	err := r.next.ConsumeLogs(ctx, r.logs())
	r.refused = err != nil && !consumererror.IsPermanent(err)
	if r.refused {
		return
	}
	if err != nil {
		r.logger.Warn("Errors of the workload were not accepted and are lost", zap.Int("count", n), zap.Error(err))
	}
	clear(r.pending)
	r.pending = r.pending[:0]
}

// logs makes log records of the pending entries.
func (r *consoleReceiver) logs() plog.Logs {
	ld := plog.NewLogs()
	scope := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
	signal.SetScope(scope.Scope(), metadata.ScopeName)
	records := scope.LogRecords()
	records.EnsureCapacity(len(r.pending))
	for _, e := range r.pending {
		pid := e.PID
		if pid == "" {
			pid = strconv.Itoa(r.cfg.PID)
		}
		signal.AppendError(records, signal.ErrorEntry{
			Level: "error", Message: e.Message, Exception: e.Exception, Time: e.Time,
			Tags: []signal.ErrorTag{{Key: "process.pid", Value: pid}, {Key: "scope.name", Value: "workload"}, {Key: "stream", Value: e.Stream}},
		})
	}
	return ld
}
