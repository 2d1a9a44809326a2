package signal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// recorder is a Sink that remembers everything as text-keyed values.
type recorder struct {
	t        *testing.T
	values   map[string]any
	times    map[string][2]int64
	entities []seenEntity
}

type seenEntity struct {
	Entity
	first, last int64
}

func newRecorder(t *testing.T) *recorder {
	return &recorder{t: t, values: map[string]any{}, times: map[string][2]int64{}}
}

func identity(typ series.Type, name string, tags []series.Tag) string {
	return fmt.Sprintf("%s %q %q", typ, name, series.NormalizeTags(slices.Clone(tags)))
}

func (r *recorder) put(typ series.Type, name string, tags []series.Tag, v any, start, ts int64) {
	key := identity(typ, name, tags)
	_, twice := r.values[key]
	assert.False(r.t, twice, "set twice: %s", key)
	r.values[key], r.times[key] = v, [2]int64{start, ts}
}

func (r *recorder) Entity(e Entity, first, last int64) {
	r.entities = append(r.entities, seenEntity{e, first, last})
}

func (r *recorder) Gauge(name string, tags []series.Tag, v series.Number, start, ts int64) {
	r.put(series.Gauge, name, tags, v, start, ts)
}

func (r *recorder) Counter(name string, tags []series.Tag, v series.Number, start, ts int64) {
	r.put(series.Counter, name, tags, v, start, ts)
}

func (r *recorder) Histogram(name string, tags []series.Tag, d *series.Distribution, start, ts int64) {
	kept := *d
	kept.Bins = slices.Clone(d.Bins)
	r.put(series.Histogram, name, tags, kept, start, ts)
}

func (r *recorder) Profile(name string, tags []series.Tag, frames []series.Frame, start, ts int64) {
	frames = append([]series.Frame{}, frames...)
	slices.SortFunc(frames, func(a, b series.Frame) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	r.put(series.Profile, name, tags, frames, start, ts)
}

// shuffle puts all points of all metrics into another order, as a processor might, and the metrics too.
func shuffle(md pmetric.Metrics, random *rand.Rand) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			metrics := sm.Metrics()
			rank := make(map[string]int)
			key := func(m pmetric.Metric) int {
				text := m.Name() + m.Type().String()
				if profile, ok := m.Metadata().Get(ProfileMetadata); ok {
					text += profile.AsString()
				}
				if _, ok := rank[text]; !ok {
					rank[text] = random.IntN(1 << 30)
				}
				return rank[text]
			}
			metrics.Sort(func(a, b pmetric.Metric) bool { return key(a) < key(b) })
			for _, m := range metrics.All() {
				if m.Type() != pmetric.MetricTypeSum {
					continue
				}
				points := m.Sum().DataPoints()
				for range points.Len() {
					from := points.At(random.IntN(points.Len()))
					moved := pmetric.NewNumberDataPoint()
					from.CopyTo(moved)
					to := points.At(random.IntN(points.Len()))
					to.CopyTo(from)
					moved.CopyTo(to)
				}
			}
		}
	}
}

func randomTags(random *rand.Rand) []series.Tag {
	var tags []series.Tag
	for i := range random.IntN(4) {
		tags = append(tags, series.Tag{Key: fmt.Sprintf("k%d", i), Value: fmt.Sprint(random.IntN(3))})
	}
	return tags
}

var edges = []int64{0, 1, 2, 3, 4, 1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64}

func randomNumber(random *rand.Rand) series.Number {
	switch random.IntN(3) {
	case 0:
		return series.Int(edges[random.IntN(len(edges))])
	case 1:
		return series.Int(-random.Int64())
	}
	return series.Float(random.NormFloat64() * 1e9)
}

func randomNative(random *rand.Rand) series.Distribution {
	var d series.Distribution
	for i := range series.GridSlots {
		if random.IntN(8) == 0 {
			d.Bins = append(d.Bins, series.Bin{Value: series.Uint(series.GridLower(i)), Count: 1 + random.Uint64N(1000)})
		}
	}
	if random.IntN(3) > 0 {
		d.HasTotals, d.Count, d.Sum = true, random.Uint64N(1<<40), series.Int(random.Int64N(1<<53))
		if random.IntN(2) > 0 {
			d.HasMin, d.Min = true, series.Int(random.Int64N(1<<53))
		}
		if random.IntN(2) > 0 {
			d.HasMax, d.Max = true, series.Int(random.Int64N(1<<53))
		}
	}
	return d
}

// TestRoundTrip builds random signals, sends them through the wire format in another order, and reads back
// exactly what went in.
func TestRoundTrip(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 7))
		want, got := newRecorder(t), newRecorder(t)
		b := NewBuilder("test")
		for pid := range 1 + random.IntN(3) {
			base := []series.Tag{{Key: "process.pid", Value: fmt.Sprint(pid)}}
			r := b.Resource(nil, base)
			for range random.IntN(40) {
				tags := randomTags(random)
				all := append(slices.Clone(base), tags...)
				name := fmt.Sprintf("metric_%d_nanoseconds", random.IntN(4))
				if random.IntN(3) == 0 {
					name = fmt.Sprintf("metric_%d_samples", random.IntN(4)) // the name of another profile's recordings
				}
				start, ts := random.Int64(), random.Int64()
				typ := series.Type(random.IntN(4))
				if _, ok := want.values[identity(typ, name, all)]; ok {
					continue
				}
				switch typ {
				case series.Gauge:
					v := randomNumber(random)
					r.Gauge(name, tags, v, start, ts)
					want.Gauge(name, all, v, start, ts)
				case series.Counter:
					v := randomNumber(random)
					r.Counter(name, tags, v, start, ts)
					want.Counter(name, all, v, start, ts)
				case series.Histogram:
					d := randomNative(random)
					r.NativeHistogram(name, tags, d, start, ts)
					want.Histogram(name, all, &d, start, ts)
				case series.Profile:
					var frames []series.Frame
					for i := range random.IntN(30) {
						frames = append(frames, series.Frame{Name: fmt.Sprintf("frame_%d", i), Value: random.Uint64N(1 << 63), Samples: random.Uint64N(1 << 63)})
					}
					r.Profile(name, tags, frames, start, ts)
					want.Profile(name, all, frames, start, ts)
				}
			}
		}
		md := b.Metrics()
		if seed%2 == 1 {
			shuffle(md, random)
		}
		wire, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
		require.NoError(t, err)
		md, err = (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(wire)
		require.NoError(t, err)
		assert.Zero(t, Decode(md, got))
		if !assert.Equal(t, want.values, got.values, "seed %d", seed) || !assert.Equal(t, want.times, got.times, "seed %d", seed) {
			return
		}
	}
}

// TestWholeGrid sends every bin of the native grid alone, all of them at once, and every neighbouring pair.
func TestWholeGrid(t *testing.T) {
	check := func(bins []series.Bin) {
		t.Helper()
		got := newRecorder(t)
		b := NewBuilder("test")
		b.Resource(nil, nil).NativeHistogram("h", nil, series.Distribution{Bins: bins}, 1, 2)
		point := b.Metrics().ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Histogram().DataPoints().At(0)
		assert.Equal(t, point.ExplicitBounds().Len()+1, point.BucketCounts().Len())
		assert.True(t, slices.IsSorted(point.ExplicitBounds().AsRaw()))
		assert.Len(t, slices.Compact(point.ExplicitBounds().AsRaw()), point.ExplicitBounds().Len(), "bounds rise strictly")
		assert.Zero(t, Decode(b.Metrics(), got))
		assert.Equal(t, series.Distribution{Bins: bins}, got.values[identity(series.Histogram, "h", nil)])
	}
	var all []series.Bin
	for i := range series.GridSlots {
		all = append(all, series.Bin{Value: series.Uint(series.GridLower(i)), Count: uint64(i) + 1})
		check(all[i:])
		if i > 0 {
			check(all[i-1 : i+1])
		}
	}
	check(all)
}

// TestBoundsStay: the bounds of a series do not change when more bins are populated near those that are.
func TestBoundsStay(t *testing.T) {
	bounds := func(lowers ...int64) []float64 {
		var bins []series.Bin
		for _, lower := range lowers {
			bins = append(bins, series.Bin{Value: series.Int(lower), Count: 1})
		}
		b := NewBuilder("test")
		b.Resource(nil, nil).NativeHistogram("h", nil, series.Distribution{Bins: bins}, 1, 2)
		return b.Metrics().ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Histogram().DataPoints().At(0).ExplicitBounds().AsRaw()
	}
	first := bounds(96)
	assert.Equal(t, []float64{31, 39, 47, 55, 63, 79, 95, 111, 127, 159, 191, 223, 255, 319, 383, 447, 511}, first)
	assert.Equal(t, first, bounds(96, 112))
	assert.Equal(t, first, bounds(32, 96, 448))
	wider := bounds(96, 1<<20)
	assert.Equal(t, first, wider[:len(first)])
	assert.Equal(t, wider, bounds(96, 1<<15, 1<<20), "nor for bins between them")
	assert.Equal(t, []float64{0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 19, 23, 27, 31}, bounds(0))
}

func TestBinsInAnyOrder(t *testing.T) {
	got := newRecorder(t)
	b := NewBuilder("test")
	bins := []series.Bin{{Value: series.Int(20), Count: 1}, {Value: series.Int(5), Count: 2}, {Value: series.Int(20), Count: 3}, {Value: series.Int(-4), Count: 1}}
	b.Resource(nil, nil).NativeHistogram("h", nil, series.Distribution{Bins: bins}, 1, 2)
	assert.Zero(t, Decode(b.Metrics(), got))
	assert.Equal(t, series.Distribution{Bins: []series.Bin{{Value: series.Int(0), Count: 1}, {Value: series.Int(5), Count: 2}, {Value: series.Int(20), Count: 4}}},
		got.values[identity(series.Histogram, "h", nil)])
	assert.Equal(t, series.Int(20), bins[0].Value, "the caller's bins stay as they are")
}

// TestOffGridBins checks bins that no writer of the native grid makes.
func TestOffGridBins(t *testing.T) {
	got := newRecorder(t)
	b := NewBuilder("test")
	bins := []series.Bin{{Value: series.Int(9), Count: 1}, {Value: series.Int(11), Count: 2}, {Value: series.Int(1000), Count: 3}, {Value: series.Int(1<<53 - 1), Count: 4}}
	b.Resource(nil, nil).NativeHistogram("h", nil, series.Distribution{Bins: bins}, 1, 2)
	assert.Zero(t, Decode(b.Metrics(), got))
	assert.Equal(t, series.Distribution{Bins: bins}, got.values[identity(series.Histogram, "h", nil)])
}

func TestAllBinsEmpty(t *testing.T) {
	got := newRecorder(t)
	b := NewBuilder("test")
	r := b.Resource(nil, nil)
	r.NativeHistogram("native", nil, series.Distribution{Bins: []series.Bin{{Value: series.Int(10)}, {Value: series.Int(20)}}}, 1, 2)
	r.BoundedHistogram("bounded", nil, series.Distribution{}, []float64{0.5, 1}, []uint64{0, 0, 0}, 1, 2)
	assert.Zero(t, Decode(b.Metrics(), got))
	assert.Equal(t, series.Distribution{Bins: []series.Bin{{Value: series.Int(10)}}}, got.values[identity(series.Histogram, "native", nil)])
	assert.Equal(t, series.Distribution{Bins: []series.Bin{{Value: series.Float(0.5)}}}, got.values[identity(series.Histogram, "bounded", nil)])
}

func TestSaturation(t *testing.T) {
	got := newRecorder(t)
	b := NewBuilder("test")
	r := b.Resource(nil, nil)
	r.Counter("c", nil, series.Uint(math.MaxUint64), 0, 1)
	r.Profile("p", nil, []series.Frame{{Name: "f", Value: math.MaxUint64, Samples: 1 << 63}}, 0, 1)
	r.Gauge("g", nil, series.Float(math.NaN()), 0, 1)
	r.Counter("d", nil, series.Float(math.Inf(1)), 0, 1)
	assert.Zero(t, Decode(b.Metrics(), got))
	assert.Equal(t, map[string]any{
		identity(series.Counter, "c", nil): series.Int(math.MaxInt64),
		identity(series.Profile, "p", nil): []series.Frame{{Name: "f", Value: math.MaxInt64, Samples: math.MaxInt64}},
	}, got.values)
}
