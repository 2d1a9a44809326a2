package fold

import (
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/store"
)

// Refusals counts what a store and its decoders left out and reports it in one warning a minute. Its methods may be
// used from several goroutines.
type Refusals struct {
	logger *zap.Logger
	prefix string

	mu                        sync.Mutex
	points, series, resources int
	first                     string // the metric of the first of the points, if it was one
	reported                  time.Time
}

const reportInterval = time.Minute

// NewRefusals returns Refusals that log to logger, each line with prefix.
func NewRefusals(logger *zap.Logger, prefix string) *Refusals {
	return &Refusals{logger: logger, prefix: prefix}
}

// Metrics counts what Metrics returned.
func (r *Refusals) Metrics(outcome store.Outcome, unsupported signal.Unsupported) {
	r.add(unsupported.Points+outcome.Rejected, outcome.DroppedSeries, outcome.DroppedResources, unsupported.First)
}

// Logs counts records that said nothing.
func (r *Refusals) Logs(empty int) { r.add(empty, 0, 0, "") }

func (r *Refusals) add(points, series, resources int, first string) {
	if points+series+resources == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.points == 0 {
		r.first = first
	}
	r.points += points
	r.series += series
	r.resources += resources
	if now := time.Now(); now.Sub(r.reported) >= reportInterval {
		r.reported = now
		r.report()
	}
}

// Flush reports what has not been yet.
func (r *Refusals) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report()
}

func (r *Refusals) report() {
	if r.points > 0 {
		text := fmt.Sprintf("%d data points or log records were left out: delta temporality, no value, not finite, or a broken histogram", r.points)
		if r.first != "" {
			text += "; the first of " + series.Truncate(r.first, series.MaxTagValue)
		}
		r.logger.Warn(r.prefix + text)
	}
	if r.series > 0 {
		r.logger.Warn(r.prefix + fmt.Sprintf("%d values of new series were left out: there are %d series already", r.series, store.MaxSeries))
	}
	if r.resources > 0 {
		r.logger.Warn(r.prefix + fmt.Sprintf("%d sights of new resources were left out: there are %d resources already", r.resources, store.MaxResources))
	}
	r.points, r.series, r.resources, r.first = 0, 0, 0, ""
}
