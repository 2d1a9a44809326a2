// Package store keeps the latest value of every series and resource, and the newest errors, within fixed
// bounds, and renders them as the parts of the /signals document.
package store

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// Bounds of a Store.
const (
	MaxSeries    = 5000
	MaxResources = 5000

	// Lifetime is how old a measurement (or the last sight of a resource) may be before it is removed.
	Lifetime = 600 * time.Second
	// cleanupInterval is the least time between two removals of what has expired.
	cleanupInterval = 60 * time.Second
)

// Store holds series and resources. All methods may be used from several goroutines.
type Store struct {
	now func() time.Time
	// elapsed is the time between two moments of now, which a step of the clock does not change.
	elapsed func(from, to time.Time) time.Duration

	version atomic.Uint64

	mu        sync.Mutex
	born      time.Time // the first Update
	metrics   metricTable
	resources resourceTable
	batch     Batch
	order     []int32 // scratch of profile rendering
}

// New returns an empty Store.
func New() *Store { return NewWithClock(time.Now) }

// NewWithClock is New with another source of the current time.
func NewWithClock(now func() time.Time) *Store {
	s := &Store{now: now, elapsed: func(from, to time.Time) time.Duration { return to.Sub(from) }}
	s.metrics.byKey = make(map[string]*entry)
	s.resources.byKey = make(map[string]*Resource)
	return s
}

// Version changes with every change of what is stored. It never waits.
func (s *Store) Version() uint64 { return s.version.Load() }

// Outcome counts what a Store refused during one Update.
type Outcome struct {
	// DroppedSeries and DroppedResources are new ones that came when the Store was full.
	DroppedSeries    int
	DroppedResources int
	// Rejected is values that cannot be shown: a number that is not finite, a histogram without bins and totals.
	Rejected int
}

// Update calls fn with the Store locked; everything set in it becomes visible at once.
func (s *Store) Update(fn func(*Batch)) Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &s.batch
	now := s.now()
	if s.born.IsZero() {
		s.born = now
	}
	b.store, b.now, b.clock = s, now.UnixNano(), int64(s.elapsed(s.born, now))
	b.outcome, b.changed = Outcome{}, false
	defer func() {
		if b.changed {
			s.version.Add(1)
		}
	}()
	fn(b)
	return b.outcome
}

// Batch sets series and resources during an Update. Slices given to it are copied; tags are cut to their
// limits, and of equal keys the last wins. A set replaces the whole former value. Times are epoch nanoseconds,
// 0 when unknown.
type Batch struct {
	store   *Store
	now     int64
	clock   int64 // nanoseconds since the Store's first Update
	changed bool
	outcome Outcome

	key  []byte
	tags []series.Tag
	last *entry // what was set last
}

// View is a locked look at a Store's content.
type View struct{ store *Store }

// View calls fn with the Store locked. What fn sees must neither be changed nor kept.
func (s *Store) View(fn func(View)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(View{s})
}

// TryView is View unless the Store is locked; it reports whether fn was called.
func (s *Store) TryView(fn func(View)) bool {
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	fn(View{s})
	return true
}

// Version is the version of what the View shows.
func (v View) Version() uint64 { return v.store.version.Load() }

// appendField appends s so that what follows can never be mistaken for its end.
func appendField(key []byte, s string) []byte {
	n := len(s)
	for n >= 0x80 {
		key = append(key, byte(n)|0x80)
		n >>= 7
	}
	key = append(key, byte(n))
	return append(key, s...)
}

// identity leaves the normalised tags in b.tags and returns the key of (prefix, tags); both are valid until
// the next call.
func (b *Batch) identity(kind byte, name string, tags []series.Tag) []byte {
	b.tags = series.NormalizeTags(append(b.tags[:0], tags...))
	key := append(b.key[:0], kind)
	key = appendField(key, name)
	for _, t := range b.tags {
		key = appendField(key, t.Key)
		key = appendField(key, t.Value)
	}
	b.key = key
	return key
}

// until is when something measured at ts, that has just arrived, is past its lifetime, by the batch's clock. A measurement
// from the future counts from its arrival, so that it cannot stay for ever; one without a time goes with the next removal.
func (b *Batch) until(ts int64) int64 {
	if ts <= 0 {
		return math.MinInt64
	}
	return b.clock + int64(Lifetime) - max(b.now-ts, 0)
}

// cleanup says when what has expired is removed next.
type cleanup struct{ due int64 }

// isDue reports whether that is now, and takes it as done.
func (c *cleanup) isDue(clock int64) bool {
	if clock < c.due {
		return false
	}
	c.due = clock + int64(cleanupInterval)
	return true
}
