package signal

import (
	"math"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// Sink takes what Decode reads. Slices are valid only during the call; tags are neither sorted nor cut, and a
// later tag wins over an earlier one of the same key. Times are epoch nanoseconds, 0 when unknown.
type Sink interface {
	Entity(e Entity, firstSeen, lastSeen int64)
	Gauge(name string, tags []series.Tag, value series.Number, start, ts int64)
	Counter(name string, tags []series.Tag, total series.Number, start, ts int64)
	Histogram(name string, tags []series.Tag, d *series.Distribution, start, ts int64)
	Profile(name string, tags []series.Tag, frames []series.Frame, start, ts int64)
}

// Decode hands every series and entity of md to sink and returns how many data points it could not
// represent: delta temporality and empty metrics.
func Decode(md pmetric.Metrics, sink Sink) (unsupported int) {
	var d decoder
	d.sink = sink
	for _, rm := range md.ResourceMetrics().All() {
		d.resource(rm)
	}
	return d.unsupported
}

type decoder struct {
	sink        Sink
	unsupported int

	base        []series.Tag // tags of the current Resource
	tags        []series.Tag // base plus those of the current point
	frames      []series.Frame
	dist        series.Distribution
	first, last int64
}

func (d *decoder) resource(rm pmetric.ResourceMetrics) {
	entities := d.readResource(rm.Resource())
	d.first, d.last = 0, 0
	for _, sm := range rm.ScopeMetrics().All() {
		metrics := sm.Metrics()
		for i, m := range metrics.All() {
			if profile, ok := m.Metadata().Get(ProfileMetadata); ok && m.Type() == pmetric.MetricTypeSum {
				if m.Name() == profile.Str() {
					d.profile(m, samplesOf(metrics, i, profile.Str()))
				}
				continue
			}
			d.metric(m)
		}
	}
	for _, e := range entities {
		if d.last != 0 {
			first := d.first
			if first == 0 {
				first = d.last
			}
			d.sink.Entity(e, first, d.last)
		}
	}
}

// readResource splits the attributes into entities and base tags.
func (d *decoder) readResource(res pcommon.Resource) []Entity {
	d.base = d.base[:0]
	attrs := res.Attributes()
	refs := entity.ResourceEntityRefs(res)
	var entities []Entity
	var descriptive []string
	for _, ref := range refs.All() {
		e := Entity{Kind: ref.Type()}
		for _, key := range ref.IdKeys().All() {
			if v, ok := attrs.Get(key); ok {
				e.ID = append(e.ID, series.Tag{Key: key, Value: v.AsString()})
			}
		}
		for _, key := range ref.DescriptionKeys().All() {
			if v, ok := attrs.Get(key); ok {
				e.Attributes = append(e.Attributes, series.Tag{Key: key, Value: v.AsString()})
			}
			descriptive = append(descriptive, key)
		}
		entities = append(entities, e)
	}
	for key, v := range attrs.All() {
		if key != RootPIDKey && !slices.Contains(descriptive, key) {
			d.base = append(d.base, series.Tag{Key: key, Value: v.AsString()})
		}
	}
	return entities
}

// samplesOf finds the recordings beside the profile metric at index i, which usually follows it at once.
func samplesOf(metrics pmetric.MetricSlice, i int, profile string) pmetric.NumberDataPointSlice {
	want := SamplesName(profile)
	for n := range metrics.Len() {
		m := metrics.At((i + 1 + n) % metrics.Len())
		if m.Name() != want || m.Type() != pmetric.MetricTypeSum {
			continue
		}
		if tied, ok := m.Metadata().Get(ProfileMetadata); ok && tied.Str() == profile {
			return m.Sum().DataPoints()
		}
	}
	return pmetric.NewNumberDataPointSlice()
}

func (d *decoder) metric(m pmetric.Metric) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		for _, p := range m.Gauge().DataPoints().All() {
			d.number(m.Name(), p, d.sink.Gauge)
		}
	case pmetric.MetricTypeSum:
		if m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta {
			d.unsupported += m.Sum().DataPoints().Len()
			return
		}
		set := d.sink.Counter
		if !m.Sum().IsMonotonic() {
			set = d.sink.Gauge
		}
		for _, p := range m.Sum().DataPoints().All() {
			d.number(m.Name(), p, set)
		}
	case pmetric.MetricTypeHistogram:
		if m.Histogram().AggregationTemporality() == pmetric.AggregationTemporalityDelta {
			d.unsupported += m.Histogram().DataPoints().Len()
			return
		}
		bins, _ := m.Metadata().Get(BinsMetadata)
		native := bins.Type() == pcommon.ValueTypeStr && bins.Str() == BinsLower
		for _, p := range m.Histogram().DataPoints().All() {
			d.histogram(m.Name(), p, native)
		}
	case pmetric.MetricTypeSummary:
		for _, p := range m.Summary().DataPoints().All() {
			d.seen(p.StartTimestamp(), p.Timestamp())
			d.dist = series.Distribution{Bins: d.dist.Bins[:0], HasTotals: true, Count: p.Count(), Sum: series.Float(p.Sum())}
			d.sink.Histogram(m.Name(), d.pointTags(p.Attributes()), &d.dist, int64(p.StartTimestamp()), int64(p.Timestamp()))
		}
	case pmetric.MetricTypeExponentialHistogram:
		d.unsupported += m.ExponentialHistogram().DataPoints().Len()
	default:
		d.unsupported++
	}
}

func (d *decoder) number(name string, p pmetric.NumberDataPoint, set func(string, []series.Tag, series.Number, int64, int64)) {
	d.seen(p.StartTimestamp(), p.Timestamp())
	if p.Flags().NoRecordedValue() {
		return
	}
	var v series.Number
	switch p.ValueType() {
	case pmetric.NumberDataPointValueTypeInt:
		v = series.Int(p.IntValue())
	case pmetric.NumberDataPointValueTypeDouble:
		v = series.Float(p.DoubleValue())
	}
	if !v.IsFinite() {
		d.unsupported++
		return
	}
	set(name, d.pointTags(p.Attributes()), v, int64(p.StartTimestamp()), int64(p.Timestamp()))
}

func (d *decoder) histogram(name string, p pmetric.HistogramDataPoint, native bool) {
	d.seen(p.StartTimestamp(), p.Timestamp())
	if p.Flags().NoRecordedValue() {
		return
	}
	d.dist = series.Distribution{Bins: d.dist.Bins[:0]}
	if p.HasSum() {
		if sum := p.Sum(); math.IsNaN(sum) || math.IsInf(sum, 0) {
			d.unsupported++
			return
		}
		number := func(f float64) series.Number {
			if native && f == math.Trunc(f) {
				return integer(f)
			}
			return series.Float(f)
		}
		d.dist.HasTotals = true
		d.dist.Count, d.dist.Sum = p.Count(), number(p.Sum())
		d.dist.HasMin, d.dist.HasMax = p.HasMin(), p.HasMax()
		if p.HasMin() {
			d.dist.Min = number(p.Min())
		}
		if p.HasMax() {
			d.dist.Max = number(p.Max())
		}
	}
	if native {
		d.nativeBins(p)
	} else {
		d.boundedBins(p)
	}
	d.sink.Histogram(name, d.pointTags(p.Attributes()), &d.dist, int64(p.StartTimestamp()), int64(p.Timestamp()))
}

func (d *decoder) nativeBins(p pmetric.HistogramDataPoint) {
	for i, n := range p.BucketCounts().All() {
		switch {
		case n == 0 || i > p.ExplicitBounds().Len():
		case i == 0:
			d.dist.Bins = append(d.dist.Bins, series.Bin{Count: n})
		default:
			lower := lowerAbove(p.ExplicitBounds().At(i - 1))
			d.dist.Bins = append(d.dist.Bins, series.Bin{Value: series.Uint(lower), Count: n})
		}
	}
}

// boundedBins takes upper bounds as bin values; what lies above the last finite bound counts there.
func (d *decoder) boundedBins(p pmetric.HistogramDataPoint) {
	bounds := p.ExplicitBounds()
	if bounds.Len() == 0 {
		return
	}
	for i, n := range p.BucketCounts().All() {
		if n == 0 {
			continue
		}
		bound := bounds.At(min(i, bounds.Len()-1))
		if last := len(d.dist.Bins) - 1; last >= 0 && d.dist.Bins[last].Value.Float64() == bound {
			d.dist.Bins[last].Count += n
			continue
		}
		d.dist.Bins = append(d.dist.Bins, series.Bin{Value: series.Float(bound), Count: n})
	}
}

// profile gathers the frames of each tag set of a profile's points.
func (d *decoder) profile(m pmetric.Metric, samples pmetric.NumberDataPointSlice) {
	points := m.Sum().DataPoints()
	var rest map[string]int64 // recordings by tags and frame, made when points do not line up
	for from := 0; from < points.Len(); {
		d.frames = d.frames[:0]
		group := points.At(from)
		to := from
		for ; to < points.Len() && (to == from || sameTags(group.Attributes(), points.At(to).Attributes())); to++ {
			p := points.At(to)
			d.seen(p.StartTimestamp(), p.Timestamp())
			frame, ok := p.Attributes().Get(FrameKey)
			if !ok || p.Flags().NoRecordedValue() {
				continue
			}
			f := series.Frame{Name: frame.AsString(), Value: uint64(max(intOf(p), 0))}
			if to < samples.Len() && attributesEqual(samples.At(to).Attributes(), p.Attributes()) {
				f.Samples = uint64(max(intOf(samples.At(to)), 0))
			} else {
				if rest == nil {
					rest = make(map[string]int64, samples.Len())
					for _, s := range samples.All() {
						rest[attributesKey(s.Attributes())] = intOf(s)
					}
				}
				f.Samples = uint64(max(rest[attributesKey(p.Attributes())], 0))
			}
			d.frames = append(d.frames, f)
		}
		d.sink.Profile(m.Name(), d.profileTags(group.Attributes()), d.frames, int64(group.StartTimestamp()), int64(group.Timestamp()))
		from = to
	}
}

func intOf(p pmetric.NumberDataPoint) int64 {
	if p.ValueType() == pmetric.NumberDataPointValueTypeDouble {
		return series.Float(p.DoubleValue()).Int64()
	}
	return p.IntValue()
}

// sameTags compares two points' attributes without the frame, in order: points of one profile are written with
// equal lists, and a list in another order merely starts another group.
func sameTags(a, b pcommon.Map) bool {
	if a.Len() != b.Len() {
		return false
	}
	if a.Len() == 1 {
		_, oka := a.Get(FrameKey)
		_, okb := b.Get(FrameKey)
		return oka && okb
	}
	for key, v := range a.All() {
		if key == FrameKey {
			continue
		}
		if w, ok := b.Get(key); !ok || !v.Equal(w) {
			return false
		}
	}
	return true
}

func attributesEqual(a, b pcommon.Map) bool {
	if a.Len() == 1 && b.Len() == 1 {
		x, oka := a.Get(FrameKey)
		y, okb := b.Get(FrameKey)
		return oka && okb && x.Str() == y.Str()
	}
	return a.Equal(b)
}

// attributesKey is an unambiguous text of a point's attributes, whatever their order.
func attributesKey(attrs pcommon.Map) string {
	tags := make([]series.Tag, 0, attrs.Len())
	for key, v := range attrs.All() {
		tags = append(tags, series.Tag{Key: key, Value: v.AsString()})
	}
	slices.SortFunc(tags, func(a, b series.Tag) int { return series.CompareTags([]series.Tag{a}, []series.Tag{b}) })
	var key []byte
	for _, t := range tags {
		key = append(key, t.Key...)
		key = append(key, 0)
		key = append(key, t.Value...)
		key = append(key, 0)
	}
	return string(key)
}

func (d *decoder) pointTags(attrs pcommon.Map) []series.Tag {
	d.tags = append(d.tags[:0], d.base...)
	for key, v := range attrs.All() {
		d.tags = append(d.tags, series.Tag{Key: key, Value: v.AsString()})
	}
	return d.tags
}

// profileTags is pointTags without the frame, which is no tag of a profile.
func (d *decoder) profileTags(attrs pcommon.Map) []series.Tag {
	tags := d.pointTags(attrs)
	return slices.DeleteFunc(tags, func(t series.Tag) bool { return t.Key == FrameKey })
}

// seen widens the time the current Resource's entities are known to exist.
func (d *decoder) seen(start, ts pcommon.Timestamp) {
	if s := int64(start); s != 0 && (d.first == 0 || s < d.first) {
		d.first = s
	}
	if t := int64(ts); t > d.last {
		d.last = t
	}
}

// integer turns a whole float back into the integer it was.
func integer(f float64) series.Number {
	if f < 0 {
		return series.Int(series.Float(f).Int64())
	}
	return series.Uint(series.Float(f).Uint64())
}
