package signal

import (
	"cmp"
	"math"
	"slices"
	"strconv"

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

// Unsupported counts data points that have no place among series: delta temporality, points and metrics without a value,
// numbers that are not finite, histograms that contradict themselves.
type Unsupported struct {
	Points int
	// First is the metric of the first of them.
	First string
}

// Decode hands every series and entity of md to sink and returns what it could not represent.
func Decode(md pmetric.Metrics, sink Sink) Unsupported {
	var d decoder
	d.sink = sink
	for _, rm := range md.ResourceMetrics().All() {
		d.resource(rm)
	}
	return d.unsupported
}

type decoder struct {
	sink        Sink
	unsupported Unsupported

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
			before := d.unsupported.Points
			if profile, ok := m.Metadata().Get(ProfileMetadata); ok && m.Type() == pmetric.MetricTypeSum {
				switch {
				case m.Name() != profile.Str(): // recordings, read with their profile
				case m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta:
					d.unsupported.Points += m.Sum().DataPoints().Len()
				default:
					d.profile(m, samplesOf(metrics, i, profile.Str()))
				}
			} else {
				d.metric(m)
			}
			if before == 0 && d.unsupported.Points > 0 {
				d.unsupported.First = m.Name()
			}
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
	descriptive := descriptiveKeys(res)
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
			d.unsupported.Points += m.Sum().DataPoints().Len()
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
			d.unsupported.Points += m.Histogram().DataPoints().Len()
			return
		}
		bins, ok := m.Metadata().Get(BinsMetadata)
		native := ok && bins.AsString() == BinsLower
		for _, p := range m.Histogram().DataPoints().All() {
			d.histogram(m.Name(), p, native)
		}
	case pmetric.MetricTypeSummary:
		for _, p := range m.Summary().DataPoints().All() {
			d.summary(m.Name(), p)
		}
	case pmetric.MetricTypeExponentialHistogram:
		if m.ExponentialHistogram().AggregationTemporality() == pmetric.AggregationTemporalityDelta {
			d.unsupported.Points += m.ExponentialHistogram().DataPoints().Len()
			return
		}
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			d.exponential(m.Name(), p)
		}
	default:
		d.unsupported.Points++
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
	default:
		d.unsupported.Points++
		return
	}
	if !v.IsFinite() {
		d.unsupported.Points++
		return
	}
	set(name, d.pointTags(p.Attributes()), v, int64(p.StartTimestamp()), int64(p.Timestamp()))
}

func (d *decoder) summary(name string, p pmetric.SummaryDataPoint) {
	d.seen(p.StartTimestamp(), p.Timestamp())
	if p.Flags().NoRecordedValue() {
		return
	}
	if !finite(p.Sum()) {
		d.unsupported.Points++
		return
	}
	d.dist = series.Distribution{Bins: d.dist.Bins[:0], HasTotals: true, Count: p.Count(), Sum: series.Float(p.Sum())}
	d.sink.Histogram(name, d.pointTags(p.Attributes()), &d.dist, int64(p.StartTimestamp()), int64(p.Timestamp()))
}

func (d *decoder) histogram(name string, p pmetric.HistogramDataPoint, native bool) {
	d.seen(p.StartTimestamp(), p.Timestamp())
	if p.Flags().NoRecordedValue() {
		return
	}
	number := series.Float
	if native {
		number = wholeAsInteger
	}
	if !d.totals(p, number) {
		return
	}
	if n := p.BucketCounts().Len(); n > 0 && n != p.ExplicitBounds().Len()+1 {
		d.unsupported.Points++ // nobody knows which bucket a count is of
		return
	}
	if native {
		d.nativeBins(p)
	} else {
		d.boundedBins(p)
	}
	if !d.orderly() {
		d.unsupported.Points++
		return
	}
	d.sink.Histogram(name, d.pointTags(p.Attributes()), &d.dist, int64(p.StartTimestamp()), int64(p.Timestamp()))
}

// totaled is what both kinds of histogram points have.
type totaled interface {
	HasSum() bool
	HasMin() bool
	HasMax() bool
	Sum() float64
	Min() float64
	Max() float64
	Count() uint64
}

// totals begins d.dist with the exact totals of p. It reports false when the sum is not finite; such a point
// is counted as unsupported.
func (d *decoder) totals(p totaled, number func(float64) series.Number) bool {
	d.dist = series.Distribution{Bins: d.dist.Bins[:0]}
	if !p.HasSum() {
		return true
	}
	if !finite(p.Sum()) {
		d.unsupported.Points++
		return false
	}
	d.dist.HasTotals = true
	d.dist.Count, d.dist.Sum = p.Count(), number(p.Sum())
	if d.dist.HasMin = p.HasMin() && finite(p.Min()); d.dist.HasMin {
		d.dist.Min = number(p.Min())
	}
	if d.dist.HasMax = p.HasMax() && finite(p.Max()); d.dist.HasMax {
		d.dist.Max = number(p.Max())
	}
	return true
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// exponential turns the buckets of an exponential histogram into bins with their upper bounds: bucket i of
// scale s ends at 2^((i+1)/2^s), and below zero it is mirrored.
func (d *decoder) exponential(name string, p pmetric.ExponentialHistogramDataPoint) {
	d.seen(p.StartTimestamp(), p.Timestamp())
	if p.Flags().NoRecordedValue() || !d.totals(p, series.Float) {
		return
	}
	edge := func(index int) float64 {
		return min(math.Exp2(math.Ldexp(float64(index), -int(p.Scale()))), math.MaxFloat64)
	}
	bin := func(bound float64, n uint64) {
		if n > 0 {
			d.dist.Bins = append(d.dist.Bins, series.Bin{Value: series.Float(bound), Count: n})
		}
	}
	below, above := p.Negative(), p.Positive()
	for i := below.BucketCounts().Len() - 1; i >= 0; i-- {
		bin(-edge(int(below.Offset())+i), below.BucketCounts().At(i))
	}
	bin(p.ZeroThreshold(), p.ZeroCount())
	for i, n := range above.BucketCounts().All() {
		bin(edge(int(above.Offset())+i+1), n)
	}
	if !d.orderly() {
		d.unsupported.Points++
		return
	}
	d.sink.Histogram(name, d.pointTags(p.Attributes()), &d.dist, int64(p.StartTimestamp()), int64(p.Timestamp()))
}

// orderly makes one bin of those with equal values, and reports whether the values are numbers that ascend: bounds that do
// not, as anybody may send them, mean nothing.
func (d *decoder) orderly() bool {
	bins := d.dist.Bins[:0]
	for _, b := range d.dist.Bins {
		if !b.Value.IsFinite() {
			return false
		}
		if n := len(bins); n > 0 {
			last := &bins[n-1]
			if b.Value.Less(last.Value) {
				return false
			}
			if !last.Value.Less(b.Value) {
				last.Count += min(b.Count, math.MaxUint64-last.Count)
				continue
			}
		}
		bins = append(bins, b)
	}
	d.dist.Bins = bins
	return true
}

func (d *decoder) nativeBins(p pmetric.HistogramDataPoint) {
	bounds := p.ExplicitBounds()
	for i, n := range p.BucketCounts().All() {
		switch {
		case n == 0 || i > bounds.Len():
		case i == 0:
			d.dist.Bins = append(d.dist.Bins, series.Bin{Count: n})
		default:
			d.dist.Bins = append(d.dist.Bins, series.Bin{Value: nativeLower(bounds.At(i - 1)), Count: n})
		}
	}
	if len(d.dist.Bins) == 0 && bounds.Len() > 0 {
		d.dist.Bins = append(d.dist.Bins, series.Bin{Value: nativeLower(bounds.At(0))})
	}
}

// nativeLower is the edge above a bound; no number for a bound that no native histogram has.
func nativeLower(bound float64) series.Number {
	if !(bound >= 0) {
		return series.Float(math.NaN())
	}
	return series.Uint(lowerAbove(bound))
}

// boundedBins takes upper bounds as bin values; what lies above the last finite bound counts there. Empty
// buckets are left out, except that a histogram with bounds has one bin at least.
func (d *decoder) boundedBins(p pmetric.HistogramDataPoint) {
	bounds := p.ExplicitBounds()
	usable := 0
	for usable < bounds.Len() && finite(bounds.At(usable)) {
		usable++
	}
	if usable == 0 {
		return
	}
	for i, n := range p.BucketCounts().All() {
		if n == 0 {
			continue
		}
		bound := bounds.At(min(i, usable-1))
		d.dist.Bins = append(d.dist.Bins, series.Bin{Value: series.Float(bound), Count: n})
	}
	if len(d.dist.Bins) == 0 {
		d.dist.Bins = append(d.dist.Bins, series.Bin{Value: series.Float(bounds.At(0))})
	}
}

// profile hands out the frames of each tag set of a profile's points. Points of one tag set usually stand
// together; where they do not, they are gathered.
func (d *decoder) profile(m pmetric.Metric, samples pmetric.NumberDataPointSlice) {
	points := m.Sum().DataPoints()
	recordings := recordings{samples: samples}
	type gathered struct {
		first  pmetric.NumberDataPoint
		frames []series.Frame
	}
	var groups []gathered     // in the order of their first points, when there is more than one run
	var byTags map[string]int // their tags without the frame → index in groups
	for from := 0; from < points.Len(); {
		first := points.At(from)
		d.frames = d.frames[:0]
		to := from
		for ; to < points.Len() && (to == from || sameTags(first.Attributes(), points.At(to).Attributes())); to++ {
			p := points.At(to)
			d.seen(p.StartTimestamp(), p.Timestamp())
			if frame, ok := p.Attributes().Get(FrameKey); ok && !p.Flags().NoRecordedValue() {
				d.frames = append(d.frames, series.Frame{
					Name:    frame.AsString(),
					Value:   uint64(max(intOf(p), 0)),
					Samples: recordings.of(to, p.Attributes()),
				})
			}
		}
		if from == 0 && to == points.Len() {
			d.emitProfile(m.Name(), first, d.frames)
			return
		}
		if byTags == nil {
			byTags = make(map[string]int)
		}
		key := attributesKey(first.Attributes(), FrameKey)
		at, ok := byTags[key]
		if !ok {
			at = len(groups)
			byTags[key] = at
			groups = append(groups, gathered{first: first})
		}
		groups[at].frames = append(groups[at].frames, d.frames...)
		from = to
	}
	for _, g := range groups {
		d.emitProfile(m.Name(), g.first, g.frames)
	}
}

func (d *decoder) emitProfile(name string, p pmetric.NumberDataPoint, frames []series.Frame) {
	// The frame is no tag of the series.
	tags := slices.DeleteFunc(d.pointTags(p.Attributes()), func(t series.Tag) bool { return t.Key == FrameKey })
	d.sink.Profile(name, tags, frames, int64(p.StartTimestamp()), int64(p.Timestamp()))
}

// recordings finds the number of recordings beside a profile's point.
type recordings struct {
	samples pmetric.NumberDataPointSlice
	byKey   map[string]int64 // by tags and frame, made when the points do not line up
}

// of returns the recordings for the attributes of the profile's point at index i.
func (r *recordings) of(i int, attrs pcommon.Map) uint64 {
	if r.byKey == nil && i < r.samples.Len() && attributesEqual(r.samples.At(i).Attributes(), attrs) {
		return uint64(max(intOf(r.samples.At(i)), 0))
	}
	if r.byKey == nil {
		r.byKey = make(map[string]int64, r.samples.Len())
		for _, s := range r.samples.All() {
			r.byKey[attributesKey(s.Attributes(), "")] = intOf(s)
		}
	}
	return uint64(max(r.byKey[attributesKey(attrs, "")], 0))
}

func intOf(p pmetric.NumberDataPoint) int64 {
	if p.ValueType() == pmetric.NumberDataPointValueTypeDouble {
		return series.Float(p.DoubleValue()).Int64()
	}
	return p.IntValue()
}

// sameTags compares two points' attributes without the frame.
func sameTags(a, b pcommon.Map) bool {
	if a.Len() != b.Len() {
		return false
	}
	if _, ok := b.Get(FrameKey); !ok {
		return a.Equal(b)
	}
	for key, v := range a.All() {
		w, ok := b.Get(key)
		if !ok || key != FrameKey && !v.Equal(w) {
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

// attributesKey is an unambiguous text of a point's attributes except one, whatever their order.
func attributesKey(attrs pcommon.Map, except string) string {
	tags := make([]series.Tag, 0, attrs.Len())
	for key, v := range attrs.All() {
		if key != except || except == "" {
			tags = append(tags, series.Tag{Key: key, Value: v.AsString()})
		}
	}
	slices.SortFunc(tags, func(a, b series.Tag) int { return cmp.Compare(a.Key, b.Key) })
	var key []byte
	for _, t := range tags {
		key = strconv.AppendQuote(key, t.Key)
		key = strconv.AppendQuote(key, t.Value)
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

// seen widens the time the current Resource's entities are known to exist.
func (d *decoder) seen(start, ts pcommon.Timestamp) {
	if s := int64(start); s != 0 && (d.first == 0 || s < d.first) {
		d.first = s
	}
	if t := int64(ts); t > d.last {
		d.last = t
	}
}

// wholeAsInteger turns a whole float back into the integer it was.
func wholeAsInteger(f float64) series.Number {
	switch n := series.Float(f); {
	case f != math.Trunc(f):
		return n
	case f < 0:
		return series.Int(n.Int64())
	default:
		return series.Uint(n.Uint64())
	}
}
