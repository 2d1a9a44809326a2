package store

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// Series is one series and its latest value.
type Series struct {
	// ID tells this series from every other one of the Store, also from one of the same identity that expired
	// before it came.
	ID   uint64
	Name string
	Type series.Type
	// Tags are normalised and sorted by key.
	Tags []series.Tag

	// Start is when the value began to accumulate, Time when it was measured: epoch nanoseconds, 0 when unknown.
	Start, Time int64

	Number       series.Number        // gauge and counter
	Distribution *series.Distribution // histogram
	Frames       []series.Frame       // profile
}

// entry is a Series with its rendered parts.
type entry struct {
	Series
	key   string
	given []series.Tag // the tags as they came; they share their text with Tags
	next  *entry       // what was set after this one the last time
	gone  bool         // removed
	until int64
	head  []byte // everything before the stats
	tail  []byte // stats and what follows, when rendered
	stale bool   // tail is not of the current value
}

type metricTable struct {
	byKey   map[string]*entry
	ordered []*entry // by name, type and tags
	lastID  uint64
	cleanup cleanup
}

// Gauge sets a gauge.
func (b *Batch) Gauge(name string, tags []series.Tag, value series.Number, start, ts int64) {
	b.number(series.Gauge, name, tags, value, start, ts)
}

// Counter sets a cumulative total.
func (b *Batch) Counter(name string, tags []series.Tag, total series.Number, start, ts int64) {
	b.number(series.Counter, name, tags, total, start, ts)
}

func (b *Batch) number(typ series.Type, name string, tags []series.Tag, value series.Number, start, ts int64) {
	if !value.IsFinite() {
		b.outcome.Rejected++
		return
	}
	e := b.series(typ, name, tags)
	if e == nil {
		return
	}
	changed := e.Number != value
	e.Number = value
	b.wrote(e, changed, start, ts)
}

// Histogram sets a histogram with bins, exact totals, or both.
func (b *Batch) Histogram(name string, tags []series.Tag, d *series.Distribution, start, ts int64) {
	if !presentable(d) {
		b.outcome.Rejected++
		return
	}
	e := b.series(series.Histogram, name, tags)
	if e == nil {
		return
	}
	if e.Distribution == nil {
		e.Distribution = &series.Distribution{}
	}
	bins := append(e.Distribution.Bins[:0], d.Bins...)
	*e.Distribution = *d
	e.Distribution.Bins = bins
	if !d.HasTotals {
		e.Distribution.HasMin, e.Distribution.HasMax = false, false
	}
	b.wrote(e, true, start, ts)
}

func presentable(d *series.Distribution) bool {
	if !d.HasTotals && len(d.Bins) == 0 {
		return false
	}
	for _, bin := range d.Bins {
		if !bin.Value.IsFinite() {
			return false
		}
	}
	return !d.HasTotals || d.Sum.IsFinite() && (!d.HasMin || d.Min.IsFinite()) && (!d.HasMax || d.Max.IsFinite())
}

// Profile sets a profile; of more than series.MaxFrames frames those with the most value are kept.
func (b *Batch) Profile(name string, tags []series.Tag, frames []series.Frame, start, ts int64) {
	e := b.series(series.Profile, name, tags)
	if e == nil {
		return
	}
	frames = series.LargestFrames(frames)
	changed := !slices.Equal(e.Frames, frames)
	if changed {
		e.Frames = append(e.Frames[:0], frames...)
	}
	b.wrote(e, changed, start, ts)
}

// series finds the entry of an identity, or makes it; nil when it is new and the Store is full. Collections repeat themselves, so the entry
// that followed the last one before is tried first: it saves sorting the tags and looking the identity up.
func (b *Batch) series(typ series.Type, name string, tags []series.Tag) *entry {
	if b.last != nil {
		if e := b.last.next; e != nil && !e.gone && e.Type == typ && e.Name == name && slices.Equal(e.given, tags) {
			b.last = e
			return e
		}
	}
	e := b.lookUp(typ, name, tags)
	if e != nil {
		if b.last != nil {
			b.last.next = e
		}
		b.last = e
	}
	return e
}

func (b *Batch) lookUp(typ series.Type, name string, tags []series.Tag) *entry {
	key := b.identity(byte(typ), name, tags)
	t := &b.store.metrics
	if e, ok := t.byKey[string(key)]; ok {
		return e
	}
	if len(t.ordered) >= MaxSeries {
		b.outcome.DroppedSeries++
		return nil
	}
	t.lastID++
	e := &entry{key: string(key), stale: true}
	e.ID, e.Name, e.Type = t.lastID, strings.Clone(name), typ
	e.given = cloneTags(tags)
	e.Tags = series.NormalizeTags(slices.Clone(e.given))
	e.head = appendHead(nil, e.Name, typ, tags)
	t.byKey[e.key] = e
	at, _ := slices.BinarySearchFunc(t.ordered, e, compareEntries)
	t.ordered = slices.Insert(t.ordered, at, e)
	b.changed = true
	return e
}

func cloneTags(tags []series.Tag) []series.Tag {
	out := make([]series.Tag, len(tags))
	for i, t := range tags {
		out[i] = series.Tag{Key: strings.Clone(t.Key), Value: strings.Clone(t.Value)}
	}
	return out
}

func compareEntries(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type), series.CompareTags(a.Tags, b.Tags))
}

// wrote ends a set: the times, and now and then the removal of what has expired.
func (b *Batch) wrote(e *entry, changed bool, start, ts int64) {
	if changed || e.Time != ts {
		e.Time = ts
		e.stale = true
		b.changed = true
	}
	e.Start, e.until = start, b.until(ts)
	if t := &b.store.metrics; t.cleanup.isDue(b.clock) {
		t.removeExpired(b.clock)
		b.changed = true
	}
}

func (t *metricTable) removeExpired(clock int64) {
	t.ordered = slices.DeleteFunc(t.ordered, func(e *entry) bool {
		if e.until >= clock {
			return false
		}
		delete(t.byKey, e.key)
		e.gone, e.next = true, nil
		return true
	})
}

// Series lists all series in the order of the document.
func (v View) Series() iter.Seq[*Series] {
	return func(yield func(*Series) bool) {
		for _, e := range v.store.metrics.ordered {
			if !yield(&e.Series) {
				return
			}
		}
	}
}
