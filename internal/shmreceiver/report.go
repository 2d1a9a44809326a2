package shmreceiver

import (
	"time"

	"go.uber.org/zap"
)

// reportInterval is the time between two lines about one cause.
const reportInterval = time.Minute

// report folds what was skipped into one warning a cause and minute. Causes are few and fixed texts.
type report struct {
	logger *zap.Logger
	now    func() time.Time
	causes map[string]*folded
}

type folded struct {
	count  int
	last   error
	logged time.Time
}

func newReport(logger *zap.Logger) *report {
	return &report{logger: logger, now: time.Now, causes: make(map[string]*folded)}
}

// add counts n occurrences of a cause; err is the last of them.
func (r *report) add(cause string, n int, err error) {
	f := r.causes[cause]
	if f == nil {
		f = &folded{}
		r.causes[cause] = f
	}
	f.count += n
	f.last = err
}

// flush logs the causes that are due, or all when the receiver ends.
func (r *report) flush(all bool) {
	now := r.now()
	for cause, f := range r.causes {
		if f.count == 0 || !all && !f.logged.IsZero() && now.Sub(f.logged) < reportInterval {
			continue
		}
		r.logger.Warn(cause, zap.Int("count", f.count), zap.Error(f.last))
		f.count, f.logged = 0, now
	}
}
