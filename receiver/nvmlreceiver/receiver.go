package nvmlreceiver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/driver"
	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/selection"
)

const (
	// patience is how long a collection waits for the devices, at most half its interval. What comes later is published
	// by the next one.
	patience = 500 * time.Millisecond
	// farewell is how long Shutdown waits for calls that are under way.
	farewell = 500 * time.Millisecond
	// A host without a driver, or one that does not work, is tried again after reopenMax; one that worked until now
	// after reopenMin, then after twice that and so on.
	reopenMin, reopenMax = 2 * time.Second, time.Minute
	// lostGrace is how long devices that are all lost are listened to for events, before the library is opened anew.
	lostGrace = 3 * time.Second
	// maxPendingErrors bounds the entries kept for a consumer that refuses them for now.
	maxPendingErrors = 200
)

type nvmlReceiver struct {
	cfg     *Config
	logger  *zap.Logger
	metrics consumer.Metrics // nil: no such pipeline
	logs    consumer.Logs
	lib     driver.Library
	lookup  func(string) (string, bool)
	now     func() time.Time

	refused    *collect.Refused
	controller *collect.Controller
	selection  selection.Selector
	session    *session    // nil: none is open
	opening    chan opened // not nil while one is being opened
	openAt     time.Time
	delay      time.Duration
	lostSince  time.Time     // all devices of the session are lost; zero: not all
	gone       chan struct{} // closed by Shutdown

	// What outlives a session.
	firstSeen map[string]int64  // by device, epoch nanoseconds
	xids      map[string]uint64 // by device, running totals
	told      map[string]bool   // messages that are told once
	pending   []signal.ErrorEntry
}

func newReceiver(cfg *Config, logger *zap.Logger) *nvmlReceiver {
	r := &nvmlReceiver{
		cfg: cfg, logger: logger, lib: driver.New(cfg.LibraryPath), lookup: os.LookupEnv, now: time.Now,
		refused: collect.NewRefused(logger, "GPU metrics were refused"),
		gone:    make(chan struct{}), firstSeen: make(map[string]int64), xids: make(map[string]uint64), told: make(map[string]bool),
	}
	r.controller = collect.New(cfg.Config, 0, r.collect)
	return r
}

// Start begins collecting.
func (r *nvmlReceiver) Start(context.Context, component.Host) error {
	r.selection = selection.New(r.cfg.Devices, r.lookup)
	r.controller.Start()
	return nil
}

// Shutdown ends collecting and gives the driver half a second to answer what it was asked.
func (r *nvmlReceiver) Shutdown(ctx context.Context) error {
	if r.controller == nil {
		return nil
	}
	err := r.controller.Shutdown(ctx)
	r.controller = nil
	expired, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	answers := true
	if r.opening != nil {
		select {
		case o := <-r.opening:
			r.session = o.session
		case <-expired.Done():
			answers = false
		}
	}
	close(r.gone)
	if r.session != nil {
		answers = r.session.close(expired.Done())
		r.session = nil
	}
	if !answers {
		r.logger.Info("The NVIDIA driver does not answer; NVML was left open")
	}
	return err
}

func (r *nvmlReceiver) collect(ctx context.Context) {
	now := r.now()
	wait, cancel := context.WithTimeout(ctx, min(patience, r.cfg.Interval/2))
	defer cancel()
	r.open(now, wait.Done())
	if r.session != nil {
		r.read(ctx, now, wait.Done())
	}
	r.deliver(ctx)
}

// open opens a session when one is due. It waits until expired is readable; an attempt that takes longer goes on.
func (r *nvmlReceiver) open(now time.Time, expired <-chan struct{}) {
	if r.session != nil {
		return
	}
	if r.opening == nil {
		if now.Before(r.openAt) {
			return
		}
		attempt := make(chan opened)
		r.opening = attempt
		go func() {
			o := openSession(r.lib, r.selection, r.now)
			select {
			case attempt <- o:
			case <-r.gone:
				if o.session != nil {
					late, cancel := context.WithTimeout(context.Background(), farewell)
					defer cancel()
					o.session.close(late.Done())
				}
			}
		}()
	}
	select {
	case o := <-r.opening:
		r.opening = nil
		r.session = o.session
		r.report(o, now)
	case <-expired:
	}
}

// report tells the user what came of an attempt, the first time.
func (r *nvmlReceiver) report(o opened, now time.Time) {
	if o.session == nil {
		r.delay = min(max(2*r.delay, reopenMin), reopenMax)
		if len(r.firstSeen) == 0 { // it never worked
			r.delay = reopenMax
		}
		r.openAt = now.Add(r.delay)
		switch {
		case o.err == nil:
			r.logger.Debug("No GPU is selected")
			if len(r.cfg.Devices) > 0 {
				r.once("No GPU is one of the configured devices; they are looked for again")
			}
		case errors.Is(o.err, driver.ErrNoDriver):
			r.logger.Debug("GPU metrics are off", zap.Error(o.err))
			if errors.Is(o.err, driver.ErrNoLibrary) && r.cfg.LibraryPath != "" {
				r.once("There is no library at library_path; it is looked for again", zap.String("library_path", r.cfg.LibraryPath))
			}
		case len(r.firstSeen) > 0: // that the GPUs do not answer any more was told
			r.logger.Debug("GPU metrics are still off", zap.Error(o.err))
		default:
			r.once("GPU metrics are off", zap.Error(o.err))
		}
		return
	}
	for _, d := range o.session.devices {
		key := d.key()
		if r.firstSeen[key] == 0 {
			r.firstSeen[key] = now.UnixNano()
		}
		d.firstSeen = r.firstSeen[key]
	}
	for _, i := range o.session.skipped {
		r.once(fmt.Sprintf("GPU %d does not answer and is left out", i))
	}
	if o.session.guessed {
		r.once("CUDA_VISIBLE_DEVICES numbers GPUs of different kinds by speed, which is not known here: all are reported (set CUDA_DEVICE_ORDER=PCI_BUS_ID)")
	}
}

// once logs a warning, once in the life of the receiver.
func (r *nvmlReceiver) once(message string, fields ...zap.Field) {
	key := message
	for _, f := range fields {
		key += fmt.Sprint(f.Interface)
	}
	if !r.told[key] {
		r.told[key] = true
		r.logger.Warn(message, fields...)
	}
}

// read collects from all devices what they have until expired is readable.
func (r *nvmlReceiver) read(ctx context.Context, now time.Time, expired <-chan struct{}) {
	devices := r.session.devices
	found := make([][]*reading, len(devices))
	for i, d := range devices {
		// What came after the last collection had stopped waiting.
		for _, l := range []*lane{d.fast, d.slow} {
			if late := l.take(nil); late != nil {
				found[i] = append(found[i], late)
				d.slowSeen = d.slowSeen || !late.fast
			}
			l.begin(now)
		}
	}
	for i, d := range devices {
		if late := d.fast.take(expired); late != nil {
			found[i] = append(found[i], late)
		}
	}
	for i, d := range devices {
		// What is slow is waited for only once, so that a short run has all values.
		wait := expired
		if d.slowSeen {
			wait = nil
		}
		if slow := d.slow.take(wait); slow != nil {
			found[i] = append(found[i], slow)
			d.slowSeen = true
		}
	}
	b := signal.NewBuilder(metadata.ScopeName).Describe(metadata.Descriptions)
	lostAll, reopen := len(devices) > 0, len(devices) == 0
	for i, d := range devices {
		gone := r.publish(b, d, found[i], now)
		lostAll = lostAll && gone
		// A MIG device that is lost has been destroyed, and others may have taken its place.
		reopen = reopen || gone && d.parent >= 0
		if slices.ContainsFunc(found[i], func(rd *reading) bool { return rd.divided }) {
			r.logger.Info("GPU has other MIG devices than before", zap.String("device", d.title()))
			reopen = true
		}
	}
	if r.metrics != nil && !b.Empty() {
		if err := r.metrics.ConsumeMetrics(ctx, b.Metrics()); err != nil && ctx.Err() == nil {
			r.refused.Add(err)
		}
	}
	switch {
	case !lostAll && !reopen:
		r.delay, r.lostSince = 0, time.Time{}
		return
	case r.lostSince.IsZero():
		r.lostSince = now
	}
	if reopen || now.Sub(r.lostSince) >= lostGrace {
		r.abandon(now)
	}
}

// abandon gives the session up, to open another one after a while.
func (r *nvmlReceiver) abandon(now time.Time) {
	s := r.session
	r.session, r.lostSince = nil, time.Time{}
	r.delay = min(max(2*r.delay, reopenMin), reopenMax)
	r.openAt = now.Add(r.delay)
	closing, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	s.close(closing.Done())
}

// publish adds what was read of a device, and reports whether the device is lost.
func (r *nvmlReceiver) publish(b *signal.Builder, d *device, readings []*reading, now time.Time) (gone bool) {
	var res *signal.Resource
	for _, rd := range readings {
		ts := rd.time.UnixNano()
		gone = gone || rd.lost != nvml.SUCCESS
		if rd.memoryTotal != 0 {
			d.memoryTotal = rd.memoryTotal
		}
		if rd.xidFailure != nvml.SUCCESS && rd.lost == nvml.SUCCESS {
			r.once("XID errors of GPU "+d.title()+" cannot be watched", zap.String("error", rd.xidFailure.Error()))
		}
		if len(rd.events) > 0 {
			r.xids[d.key()] += uint64(len(rd.events))
			r.addErrors(xidErrors(&d.identity, rd.events, now.UnixNano()))
		}
		if len(rd.values) == 0 && !rd.watched && len(rd.events) == 0 {
			continue
		}
		if res == nil {
			res = b.Resource([]signal.Entity{d.entity(d.memoryTotal)}, nil)
		}
		for _, v := range rd.values {
			if v.kind == series.Counter {
				res.Counter(v.name, v.tags, v.num, 0, ts)
			} else {
				res.Gauge(v.name, v.tags, v.num, d.firstSeen, ts)
			}
		}
		if rd.watched || len(rd.events) > 0 {
			res.Counter("gpu_xid_critical_errors", nil, series.Uint(r.xids[d.key()]), d.firstSeen, ts)
		}
	}
	r.tellLost(d, readings, gone, now)
	return gone
}

// tellLost tells once that a device is lost, and that it is back.
func (r *nvmlReceiver) tellLost(d *device, readings []*reading, gone bool, now time.Time) {
	switch {
	case gone && !r.told[d.key()]:
		r.told[d.key()] = true
		if d.parent >= 0 {
			r.logger.Info("MIG device is gone", zap.String("device", d.title()))
			return
		}
		for _, rd := range readings {
			if rd.lost != nvml.SUCCESS {
				message := fmt.Sprintf("GPU does not answer any more: %s (%d)", rd.lost.Error(), int(rd.lost))
				r.addErrors([]signal.ErrorEntry{deviceError(&d.identity, message, now.UnixNano())})
				break
			}
		}
	case !gone && r.told[d.key()] && slices.ContainsFunc(readings, func(rd *reading) bool { return rd.fast }):
		delete(r.told, d.key())
		r.logger.Info("GPU answers again", zap.String("device", d.title()))
	}
}

// addErrors keeps entries for the logs pipeline; without one they go to the Collector's log.
func (r *nvmlReceiver) addErrors(entries []signal.ErrorEntry) {
	if r.logs == nil {
		for _, e := range entries {
			r.logger.Error(e.Message, zap.Any("device", e.Tags))
		}
		return
	}
	r.pending = append(r.pending, entries...)
	if over := len(r.pending) - maxPendingErrors; over > 0 {
		r.logger.Warn("GPU errors were not accepted and are lost", zap.Int("count", over))
		r.pending = r.pending[over:]
	}
}

// deliver hands the pending entries on. Those that are refused for now stay.
func (r *nvmlReceiver) deliver(ctx context.Context) {
	if len(r.pending) == 0 {
		return
	}
	ld := plog.NewLogs()
	scope := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
	signal.SetScope(scope.Scope(), metadata.ScopeName)
	for _, e := range r.pending {
		signal.AppendError(scope.LogRecords(), e)
	}
	err := r.logs.ConsumeLogs(ctx, ld)
	if err != nil && !consumererror.IsPermanent(err) {
		return
	}
	if err != nil {
		r.logger.Warn("GPU errors were not accepted and are lost", zap.Int("count", len(r.pending)), zap.Error(err))
	}
	r.pending = nil
}
