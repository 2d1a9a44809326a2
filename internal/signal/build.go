package signal

import (
	"cmp"
	"math"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/version"
)

// Entity is one resource of /signals: what identifies it and what describes it.
type Entity struct {
	Kind       string
	ID         []series.Tag
	Attributes []series.Tag
}

// Limits of a resource attribute, in characters.
const (
	maxAttributeKey   = 50
	maxAttributeValue = 2500
)

// SetScope names an instrumentation scope (a component's import path), whose version is that of this build.
func SetScope(scope pcommon.InstrumentationScope, name string) {
	scope.SetName(name)
	scope.SetVersion(version.Version)
}

// Builder collects the series of one collection into pmetric.Metrics.
type Builder struct {
	metrics      pmetric.Metrics
	scope        string
	descriptions map[string]string
}

// NewBuilder returns an empty Builder; scope names the instrumentation scope (the component's import path).
func NewBuilder(scope string) *Builder {
	return &Builder{metrics: pmetric.NewMetrics(), scope: scope}
}

// Describe gives the metrics of the Resources started from now on their descriptions, by name. It returns the Builder.
func (b *Builder) Describe(descriptions map[string]string) *Builder {
	b.descriptions = descriptions
	return b
}

// Metrics returns what was built. The Builder must not be used afterwards.
func (b *Builder) Metrics() pmetric.Metrics { return b.metrics }

// Empty reports whether no resource was started.
func (b *Builder) Empty() bool { return b.metrics.ResourceMetrics().Len() == 0 }

// Resource starts a pdata Resource with at most one entity a kind, and with tags that every series of it has.
// An empty tag or attribute key is left out; attributes are cut to their limits.
func (b *Builder) Resource(entities []Entity, tags []series.Tag) *Resource {
	rm := b.metrics.ResourceMetrics().AppendEmpty()
	attrs := rm.Resource().Attributes()
	for _, e := range entities {
		ref := entity.ResourceEntityRefs(rm.Resource()).AppendEmpty()
		ref.SetType(e.Kind)
		for _, t := range e.ID {
			if t.Key != "" {
				attrs.PutStr(t.Key, t.Value)
				ref.IdKeys().Append(t.Key)
			}
		}
		for _, t := range e.Attributes {
			if t.Key != "" {
				key := series.Truncate(t.Key, maxAttributeKey)
				attrs.PutStr(key, series.Truncate(t.Value, maxAttributeValue))
				ref.DescriptionKeys().Append(key)
			}
		}
	}
	putTags(attrs, tags)
	sm := rm.ScopeMetrics().AppendEmpty()
	SetScope(sm.Scope(), b.scope)
	return &Resource{metrics: sm.Metrics(), index: make(map[metricKey]int), descriptions: b.descriptions}
}

// Resource adds series to one pdata Resource. Times are epoch nanoseconds; a start of 0 is unknown.
type Resource struct {
	metrics      pmetric.MetricSlice
	index        map[metricKey]int
	descriptions map[string]string
}

type metricKey struct {
	name string
	typ  series.Type
	// What differs in metadata is kept apart: native and other histograms of one name, and the recordings of
	// one profile from another profile of that name.
	bins    string
	profile string
}

// metric returns the metric of a key, making it with init when it is new.
func (r *Resource) metric(key metricKey, init func(pmetric.Metric)) pmetric.Metric {
	if i, ok := r.index[key]; ok {
		return r.metrics.At(i)
	}
	r.index[key] = r.metrics.Len()
	m := r.metrics.AppendEmpty()
	m.SetName(key.name)
	m.SetUnit(unitOf(key.name))
	m.SetDescription(r.descriptions[key.name])
	init(m)
	return m
}

// Gauge adds a gauge. Non-finite values are dropped.
func (r *Resource) Gauge(name string, tags []series.Tag, value series.Number, start, ts int64) {
	if !value.IsFinite() {
		return
	}
	m := r.metric(metricKey{name: name, typ: series.Gauge}, func(m pmetric.Metric) { m.SetEmptyGauge() })
	setNumber(addPoint(m.Gauge().DataPoints(), tags, start, ts), value)
}

// Seen adds no value, but the fact that the Resource's entities existed from start to ts: a gauge point with
// the flag NoRecordedValue.
func (r *Resource) Seen(name string, start, ts int64) {
	m := r.metric(metricKey{name: name, typ: series.Gauge}, func(m pmetric.Metric) { m.SetEmptyGauge() })
	p := addPoint(m.Gauge().DataPoints(), nil, start, ts)
	p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
}

// Counter adds a cumulative total. Non-finite values are dropped.
func (r *Resource) Counter(name string, tags []series.Tag, total series.Number, start, ts int64) {
	if !total.IsFinite() {
		return
	}
	m := r.metric(metricKey{name: name, typ: series.Counter}, initSum)
	setNumber(addPoint(m.Sum().DataPoints(), tags, start, ts), total)
}

func initSum(m pmetric.Metric) {
	s := m.SetEmptySum()
	s.SetIsMonotonic(true)
	s.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
}

// Profile adds a profile; frames beyond series.MaxFrames with the least value are left out. Values above
// 2^63-1 saturate.
func (r *Resource) Profile(name string, tags []series.Tag, frames []series.Frame, start, ts int64) {
	frames = series.LargestFrames(frames)
	init := func(m pmetric.Metric) {
		initSum(m)
		m.Metadata().PutStr(ProfileMetadata, name)
	}
	values := r.metric(metricKey{name: name, typ: series.Profile, profile: name}, init).Sum().DataPoints()
	samples := r.metric(metricKey{name: SamplesName(name), typ: series.Profile, profile: name}, func(m pmetric.Metric) {
		init(m)
		m.SetUnit("")
		m.SetDescription("How often each frame of " + name + " was measured.")
	}).Sum().DataPoints()
	if len(frames) == 0 {
		none := pmetric.DefaultDataPointFlags.WithNoRecordedValue(true)
		addPoint(values, tags, start, ts).SetFlags(none)
		addPoint(samples, tags, start, ts).SetFlags(none)
		return
	}
	values.EnsureCapacity(values.Len() + len(frames))
	samples.EnsureCapacity(samples.Len() + len(frames))
	for _, f := range frames {
		addFramePoint(values, tags, f.Name, f.Value, start, ts)
		addFramePoint(samples, tags, f.Name, f.Samples, start, ts)
	}
}

// NativeHistogram adds a histogram whose bins are inclusive integer lower edges (shm.md: the log-linear grid).
// They are put into ascending order, and equal ones are added up.
func (r *Resource) NativeHistogram(name string, tags []series.Tag, d series.Distribution, start, ts int64) {
	d.Bins = ascending(d.Bins)
	p := r.histogramPoint(metricKey{name: name, typ: series.Histogram, bins: BinsLower}, tags, d, start, ts)
	if len(d.Bins) == 0 {
		return
	}
	if first, last, ok := gridBlocks(d.Bins); ok {
		gridBuckets(p, d.Bins, first, last)
		return
	}
	// Each bin becomes a bucket of its own between the bound below its lower edge and, on the grid, the bound
	// of its upper edge: what the writer left out stays an empty bucket, and quantiles of any backend are true.
	bounds, counts := p.ExplicitBounds(), p.BucketCounts()
	bounds.EnsureCapacity(2 * len(d.Bins))
	counts.EnsureCapacity(2*len(d.Bins) + 1)
	last := math.Inf(-1)
	for i, b := range d.Bins {
		lower := b.Value.Uint64()
		if lower > 0 {
			if below := boundBelow(lower); below > last {
				bounds.Append(below)
				counts.Append(0)
				last = below
			}
		}
		var upper float64
		switch index := series.GridIndex(lower); {
		case series.GridLower(index) == lower && index+1 < series.GridSlots:
			upper = boundBelow(series.GridLower(index + 1))
		case i+1 < len(d.Bins):
			upper = boundBelow(d.Bins[i+1].Value.Uint64())
		default:
			counts.Append(b.Count) // up to infinity
			return
		}
		if i+1 < len(d.Bins) {
			upper = min(upper, boundBelow(d.Bins[i+1].Value.Uint64()))
		}
		bounds.Append(upper)
		counts.Append(b.Count)
		last = upper
	}
	counts.Append(0)
}

// blockSlots is how many neighbouring slots of the native grid have buckets together: four octaves.
const blockSlots = 16

// gridBlocks returns the first and the last slot of the blocks of the native grid between the least and the greatest bin;
// false when bins are not of the grid, or all empty.
func gridBlocks(bins []series.Bin) (first, last int, ok bool) {
	var population uint64
	for _, b := range bins {
		lower := b.Value.Uint64()
		if series.GridLower(series.GridIndex(lower)) != lower {
			return 0, 0, false
		}
		population |= b.Count
	}
	first = series.GridIndex(bins[0].Value.Uint64()) / blockSlots * blockSlots
	last = series.GridIndex(bins[len(bins)-1].Value.Uint64())/blockSlots*blockSlots + blockSlots - 1
	return first, min(last, series.GridSlots-1), population > 0
}

// gridBuckets gives every slot from first to last a bucket. A writer names a bin when it has counted something in it;
// were only those buckets, the bounds of a series would change with each, and what subtracts one point from the next
// (cumulative_to_delta) leaves out points whose bounds are not those of the point before.
func gridBuckets(p pmetric.HistogramDataPoint, bins []series.Bin, first, last int) {
	bounds, counts := p.ExplicitBounds(), p.BucketCounts()
	bounds.EnsureCapacity(last - first + 2)
	counts.EnsureCapacity(last - first + 3)
	if first > 0 {
		bounds.Append(boundBelow(series.GridLower(first)))
		counts.Append(0)
	}
	for slot := first; slot <= last; slot++ {
		var n uint64
		if len(bins) > 0 && bins[0].Value.Uint64() == series.GridLower(slot) {
			n, bins = bins[0].Count, bins[1:]
		}
		counts.Append(n)
		if slot+1 < series.GridSlots {
			bounds.Append(boundBelow(series.GridLower(slot + 1)))
		}
	}
	if last+1 < series.GridSlots {
		counts.Append(0) // up to infinity
	}
}

// ascending returns bins by strictly rising integer value. It returns the argument itself if it is so already.
func ascending(bins []series.Bin) []series.Bin {
	if !slices.ContainsFunc(bins, func(b series.Bin) bool { return !b.Value.IsInteger() }) {
		sorted := true
		for i := 1; i < len(bins); i++ {
			sorted = sorted && bins[i-1].Value.Uint64() < bins[i].Value.Uint64()
		}
		if sorted {
			return bins
		}
	}
	bins = slices.Clone(bins)
	slices.SortStableFunc(bins, func(a, b series.Bin) int { return cmp.Compare(a.Value.Uint64(), b.Value.Uint64()) })
	out := bins[:0]
	for _, b := range bins {
		b.Value = series.Uint(b.Value.Uint64())
		if last := len(out) - 1; last >= 0 && out[last].Value == b.Value {
			out[last].Count += b.Count
			continue
		}
		out = append(out, b)
	}
	return out
}

// BoundedHistogram adds a histogram with inclusive upper bounds ("le"), ascending and finite; counts has one
// element more than bounds, for what lies above the last.
func (r *Resource) BoundedHistogram(name string, tags []series.Tag, d series.Distribution, bounds []float64, counts []uint64, start, ts int64) {
	p := r.histogramPoint(metricKey{name: name, typ: series.Histogram}, tags, d, start, ts)
	if len(bounds) > 0 && len(counts) == len(bounds)+1 {
		p.ExplicitBounds().FromRaw(bounds)
		p.BucketCounts().FromRaw(counts)
	}
}

func (r *Resource) histogramPoint(key metricKey, tags []series.Tag, d series.Distribution, start, ts int64) pmetric.HistogramDataPoint {
	m := r.metric(key, func(m pmetric.Metric) {
		m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		if key.bins != "" {
			m.Metadata().PutStr(BinsMetadata, key.bins)
		}
	})
	p := m.Histogram().DataPoints().AppendEmpty()
	p.SetStartTimestamp(pcommon.Timestamp(start))
	p.SetTimestamp(pcommon.Timestamp(ts))
	putTags(p.Attributes(), tags)
	if !d.HasTotals {
		p.SetCount(d.Population())
		return p
	}
	p.SetCount(d.Count)
	p.SetSum(d.Sum.Float64())
	if d.HasMin {
		p.SetMin(d.Min.Float64())
	}
	if d.HasMax {
		p.SetMax(d.Max.Float64())
	}
	return p
}

func addPoint(points pmetric.NumberDataPointSlice, tags []series.Tag, start, ts int64) pmetric.NumberDataPoint {
	p := points.AppendEmpty()
	p.SetStartTimestamp(pcommon.Timestamp(start))
	p.SetTimestamp(pcommon.Timestamp(ts))
	putTags(p.Attributes(), tags)
	return p
}

func addFramePoint(points pmetric.NumberDataPointSlice, tags []series.Tag, frame string, value uint64, start, ts int64) {
	p := points.AppendEmpty()
	p.SetStartTimestamp(pcommon.Timestamp(start))
	p.SetTimestamp(pcommon.Timestamp(ts))
	p.Attributes().EnsureCapacity(len(tags) + 1)
	putTags(p.Attributes(), tags)
	p.Attributes().PutStr(FrameKey, frame)
	p.SetIntValue(series.Uint(value).Int64())
}

func setNumber(p pmetric.NumberDataPoint, v series.Number) {
	if v.IsInteger() {
		p.SetIntValue(v.Int64())
		return
	}
	p.SetDoubleValue(v.Float64())
}

func putTags(attrs pcommon.Map, tags []series.Tag) {
	attrs.EnsureCapacity(attrs.Len() + len(tags))
	for _, t := range tags {
		if t.Key != "" {
			attrs.PutStr(t.Key, t.Value)
		}
	}
}
