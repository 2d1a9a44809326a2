package prom

import (
	"math"
	"slices"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// Series is one series of the current page. It keeps its identity from page to page; its values are those of the
// page that was parsed last.
type Series struct {
	// Name is the published name: a counter's without "_total".
	Name string
	// Type is series.Counter, series.Gauge or series.Histogram; a summary is a histogram without bounds.
	Type series.Type
	// Tags are the labels, normalized, without those that tell the parts of a series apart.
	Tags []series.Tag

	// Value is a counter's total or a gauge's value, finite.
	Value float64

	// Count and Sum are a histogram's totals, Bounds its finite inclusive upper bounds, ascending, and Counts the
	// observations between them, with one element more than Bounds for those above the last. Both are empty
	// when there are no finite bounds.
	Count  uint64
	Sum    float64
	Bounds []float64
	Counts []uint64

	// Created is when the page says that counting began, epoch nanoseconds, 0 when it does not say.
	Created int64
	// Reset is the time of the page before the one on which the total fell, 0 while it never did: counting
	// began anew after it.
	Reset int64

	family  *family
	created *created
	page    uint64  // the last page with a sample of it
	parts   []*part // of that page, in its order

	lastTotal float64 // of the last page that gave a value, at lastTime
	lastTime  int64
}

// Help is the page's description of the series' family.
func (s *Series) Help() string { return s.family.help }

// part is one label set of a page. Several of them make one series when they differ only in removed labels.
type part struct {
	series *Series
	page   uint64

	value, count, sum float64
	has               uint8 // bits 1 << role
	buckets           []*bucket
}

type bucket struct {
	le         float64
	cumulative float64
	page       uint64
}

// created is the time that counting began for the series of one name and tags.
type created struct {
	seconds float64
	page    uint64
}

// finish computes the values of the page from its parts and reports whether there are any.
func (s *Series) finish(now int64, page uint64) bool {
	var total float64
	switch s.Type {
	case series.Histogram:
		if !s.finishHistogram(page) {
			return false
		}
		total = float64(s.Count)
	case series.Counter:
		found := false
		for _, p := range s.parts {
			if finite(p.value) {
				total, found = total+p.value, true
			}
		}
		if !found || !finite(total) {
			return false
		}
		s.Value = total
	default:
		found := false
		for _, p := range s.parts {
			if finite(p.value) {
				s.Value, found = p.value, true
			}
		}
		return found
	}
	if s.lastTime != 0 && total < s.lastTotal {
		s.Reset = s.lastTime
	}
	s.lastTotal, s.lastTime = total, now
	s.Created = 0
	if s.created.page == page && s.created.seconds > 0 && s.created.seconds < float64(now)/1e9 {
		s.Created = int64(s.created.seconds * 1e9)
	}
	return true
}

func (s *Series) finishHistogram(page uint64) bool {
	s.Count, s.Sum, s.Bounds, s.Counts = 0, 0, s.Bounds[:0], s.Counts[:0]
	found := false
	const totals = 1<<countRole | 1<<sumRole
	for _, p := range s.parts {
		if p.has&totals != totals || !finite(p.count) || p.count < 0 || !finite(p.sum) {
			continue
		}
		count, sum := saturate(p.count), s.Sum+p.sum
		if !finite(sum) {
			continue
		}
		s.Sum = sum
		if s.Count += count; s.Count < count {
			s.Count = math.MaxUint64
		}
		if !found {
			found = true
			s.Bounds, s.Counts = p.bins(page, s.Bounds, s.Counts)
			continue
		}
		s.addBins(p.bins(page, nil, nil))
	}
	return found
}

// bins appends the part's finite bounds and the observations between them.
func (p *part) bins(page uint64, bounds []float64, counts []uint64) ([]float64, []uint64) {
	var below, above float64
	for _, b := range p.buckets {
		switch {
		case b.page != page || !finite(b.cumulative):
		case math.IsInf(b.le, 1):
			above = b.cumulative
		default:
			bounds = append(bounds, b.le)
			counts = append(counts, saturate(b.cumulative-below))
			below = b.cumulative
		}
	}
	if len(bounds) == 0 {
		return bounds, counts
	}
	return bounds, append(counts, saturate(above-below))
}

// addBins adds another part's bins, bound by bound; what that part has above its last bound stays above all bounds.
func (s *Series) addBins(bounds []float64, counts []uint64) {
	if len(bounds) == 0 {
		return
	}
	if len(s.Bounds) == 0 {
		s.Counts = append(s.Counts[:0], 0)
	}
	for i, bound := range bounds {
		at, found := slices.BinarySearch(s.Bounds, bound)
		if !found {
			s.Bounds = slices.Insert(s.Bounds, at, bound)
			s.Counts = slices.Insert(s.Counts, at, 0)
		}
		s.Counts[at] += counts[i]
	}
	s.Counts[len(s.Counts)-1] += counts[len(counts)-1]
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// saturate truncates to an integer between 0 and 2^64-1.
func saturate(f float64) uint64 { return series.Float(f).Uint64() }
