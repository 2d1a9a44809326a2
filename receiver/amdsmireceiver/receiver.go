package amdsmireceiver

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/selection"
	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/smi"
)

const (
	// patience is how long a collection waits for the devices, at most half its interval. What comes later is published
	// by the next one.
	patience = 500 * time.Millisecond
	// farewell is how long Shutdown waits for a call that is under way.
	farewell = 500 * time.Millisecond
	// hangAfter is when a call that does not return is told of.
	hangAfter = 10 * time.Second
	// A host without a driver, or one that does not work, is tried again after reopenMax; one that worked until now
	// after reopenMin, then after twice that and so on.
	reopenMin, reopenMax = 2 * time.Second, time.Minute
)

type amdsmiReceiver struct {
	cfg    *Config
	logger *zap.Logger
	next   consumer.Metrics
	lookup func(string) (string, bool)
	now    func() time.Time

	refused    *collect.Refused
	controller *collect.Controller
	worker     *worker
	askedAt    time.Time
	hangs      bool // and that was told
	openAt     time.Time
	delay      time.Duration
	open       bool

	// What outlives a session.
	firstSeen map[string]int64 // by device, epoch nanoseconds
	silent    map[string]int   // by device, rounds since it answered, while others did
	told      map[string]bool  // messages that are told once
}

func newReceiver(cfg *Config, logger *zap.Logger, next consumer.Metrics) *amdsmiReceiver {
	r := &amdsmiReceiver{
		cfg: cfg, logger: logger, next: next, lookup: os.LookupEnv, now: time.Now,
		refused: collect.NewRefused(logger, "GPU metrics were refused"), firstSeen: make(map[string]int64), silent: make(map[string]int), told: make(map[string]bool),
	}
	r.controller = collect.New(cfg.Config, 0, r.collect)
	return r
}

// Start begins collecting.
func (r *amdsmiReceiver) Start(context.Context, component.Host) error {
	r.worker = newWorker(smi.Candidates(r.cfg.LibraryPath, r.lookup), selection.New(r.cfg.Devices, r.lookup))
	r.controller.Start()
	return nil
}

// Shutdown ends collecting and gives the driver half a second to answer what it was asked.
func (r *amdsmiReceiver) Shutdown(ctx context.Context) error {
	if r.worker == nil {
		return nil
	}
	err := r.controller.Shutdown(ctx)
	expired, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	if !r.worker.close(expired.Done()) {
		r.logger.Info("The AMD GPU driver does not answer; AMD SMI was left open")
	}
	r.worker = nil
	return err
}

func (r *amdsmiReceiver) collect(ctx context.Context) {
	now := r.now()
	wait, cancel := context.WithTimeout(ctx, min(patience, r.cfg.Interval/2))
	defer cancel()
	// What came after the last collection had stopped waiting.
	if late, ok := r.worker.take(nil); ok {
		r.publish(ctx, late, now)
	}
	if open := !now.Before(r.openAt); r.open || open {
		if r.worker.begin(request{now: now, open: open}) {
			r.askedAt = now
		}
	}
	if fresh, ok := r.worker.take(wait.Done()); ok {
		r.publish(ctx, fresh, now)
	} else if r.worker.busy && !r.hangs && now.Sub(r.askedAt) >= hangAfter {
		r.hangs = true
		r.logger.Warn("The AMD GPU driver does not answer; there are no GPU metrics until it does")
	}
}

// publish hands on what a round has brought, and decides when the library is opened again.
func (r *amdsmiReceiver) publish(ctx context.Context, found round, now time.Time) {
	if r.hangs {
		r.hangs = false
		r.logger.Info("The AMD GPU driver answers again")
	}
	r.report(found, now)
	r.reportSilent(found)
	b := signal.NewBuilder(metadata.ScopeName).Describe(metadata.Descriptions)
	ts := found.time.UnixNano()
	for _, rd := range found.readings {
		if len(rd.values) == 0 {
			continue
		}
		res := b.Resource([]signal.Entity{rd.device.entity(rd.memoryTotal)}, nil)
		for _, v := range rd.values {
			if v.kind == series.Counter {
				res.Counter(v.name, nil, v.num, 0, ts) // the device counted before we came
			} else {
				res.Gauge(v.name, nil, v.num, rd.device.firstSeen, ts)
			}
		}
	}
	if b.Empty() {
		return
	}
	if err := r.next.ConsumeMetrics(ctx, b.Metrics()); err != nil && ctx.Err() == nil {
		r.refused.Add(err)
	}
}

func (r *amdsmiReceiver) report(found round, now time.Time) {
	switch {
	case found.opened != nil:
		r.open = true
		for _, d := range found.opened.devices {
			key := d.key()
			if r.firstSeen[key] == 0 {
				r.firstSeen[key] = found.time.UnixNano()
			}
			d.firstSeen = r.firstSeen[key]
		}
		if found.opened.guessed {
			r.once("ids", "Devices are selected by HIP's ids, which this AMD SMI library (before ROCm 6.4) does not tell: all are reported (select them by index)")
		}
		if r.told["lost"] {
			delete(r.told, "lost")
			r.logger.Info("The AMD GPUs answer again")
		}
	case found.closed:
		r.open = false
		r.retry(now)
		r.once("lost", "No AMD GPU answers any more; trying again")
	case !r.open:
		r.retry(now)
		switch {
		case found.err == nil:
			r.logger.Debug("No AMD GPU is selected")
			if len(r.cfg.Devices) > 0 {
				r.once("devices", "No AMD GPU is one of the configured devices; they are looked for again")
			}
		case errors.Is(found.err, smi.ErrNone):
			r.logger.Debug("AMD GPU metrics are off", zap.Error(found.err))
			if errors.Is(found.err, smi.ErrNotInstalled) && r.cfg.LibraryPath != "" {
				r.once("library_path", "There is no library at library_path; it is looked for again", zap.String("library_path", r.cfg.LibraryPath))
			}
		case len(r.firstSeen) == 0:
			r.once(found.err.Error(), "AMD GPU metrics are off", zap.Error(found.err))
		}
	default:
		r.delay = 0
	}
}

// reportSilent tells once that a device of several does not answer any more, and that it does again.
func (r *amdsmiReceiver) reportSilent(found round) {
	if !slices.ContainsFunc(found.readings, func(rd *reading) bool { return rd.answered }) {
		return // that none does is told elsewhere
	}
	for _, rd := range found.readings {
		key := rd.device.key()
		n, before := r.silent[key]
		switch {
		case rd.answered:
			r.silent[key] = 0
			if n >= silentRounds {
				r.logger.Info("AMD GPU answers again", zap.String("device", key))
			}
		case before: // it has answered at all
			r.silent[key] = n + 1
			if n+1 == silentRounds {
				r.logger.Warn("AMD GPU does not answer any more", zap.String("device", key))
			}
		}
	}
}

// retry puts the next attempt off.
func (r *amdsmiReceiver) retry(now time.Time) {
	r.delay = min(max(2*r.delay, reopenMin), reopenMax)
	if len(r.firstSeen) == 0 { // it never worked
		r.delay = reopenMax
	}
	r.openAt = now.Add(r.delay)
}

// once logs a warning, once for each key.
func (r *amdsmiReceiver) once(key, message string, fields ...zap.Field) {
	if !r.told[key] {
		r.told[key] = true
		r.logger.Warn(message, fields...)
	}
}
