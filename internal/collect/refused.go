package collect

import (
	"time"

	"go.uber.org/zap"
)

// Refused tells that the pipeline refuses what a receiver collects: one warning a minute, also when it does so with every
// collection. It is used by one goroutine at a time.
type Refused struct {
	logger  *zap.Logger
	message string
	now     func() time.Time

	count int
	told  time.Time // zero: not yet
}

const tellInterval = time.Minute

// NewRefused returns a Refused that logs message to logger.
func NewRefused(logger *zap.Logger, message string) *Refused {
	return &Refused{logger: logger, message: message, now: time.Now}
}

// Add counts a refusal, and tells of all since the last time when that is due.
func (r *Refused) Add(err error) {
	r.count++
	now := r.now()
	if !r.told.IsZero() && now.Sub(r.told) < tellInterval {
		return
	}
	r.logger.Warn(r.message, zap.Int("count", r.count), zap.Error(err))
	r.count, r.told = 0, now
}
