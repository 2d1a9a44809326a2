package upload

import (
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/store"
	pb "github.com/graphsignal/graphsignal-collector/proto"
)

// maxFrameBases bounds the frames of one profile whose last values are remembered. The profiler's own bound on
// kernel names is the same.
const maxFrameBases = 16384

// account is one series: what was last observed of it, and what the server is owed.
type account struct {
	key  string
	name string
	typ  series.Type
	tags []*pb.Tag

	round    uint64
	inFlight bool
	since    int64 // what started before was uploaded by somebody else
	known    bool  // something was observed before
	time     int64

	gauge        series.Number
	acknowledged int64 // time of the gauge that the server has

	last  series.Number
	total amount

	histogram histogramAccount
	profile   profileAccount
}

// amount is a sum of integers and floats that keeps the integers exact.
type amount struct {
	whole    int64
	fraction float64
}

func (a *amount) add(n series.Number) {
	if n.IsInteger() {
		a.whole += n.Int64()
	} else {
		a.fraction += n.Float64()
	}
}

// addDifference adds to - from.
func (a *amount) addDifference(to, from series.Number) {
	if to.IsInteger() && from.IsInteger() {
		a.whole += to.Int64() - from.Int64()
	} else {
		a.fraction += to.Float64() - from.Float64()
	}
}

func (a amount) float() float64 { return float64(a.whole) + a.fraction }

func (a amount) isZero() bool { return a.whole == 0 && a.fraction == 0 }

// take removes what float returned.
func (a *amount) take(sent float64) {
	if sent == a.float() {
		*a = amount{}
		return
	}
	if whole := int64(sent); float64(whole) == sent && a.fraction == 0 {
		a.whole -= whole
		return
	}
	a.fraction -= sent
}

// observe adds what grew since the last observation. A series whose start is unknown may have run before us, and one that
// started early was uploaded before us: its first value is a baseline. A start after the last observation is a new life, whatever the values.
func (a *account) observe(s *store.Series) {
	if a.known && s.Time == a.time && s.Time != 0 {
		return // the same measurement
	}
	restarted := a.known && s.Start > a.time && a.time > 0
	baseline := !a.known && (s.Start == 0 || s.Start < a.since)
	switch s.Type {
	case series.Gauge:
		a.gauge = s.Number
	case series.Counter:
		switch {
		case baseline:
		case !a.known, restarted, s.Number.Less(a.last):
			a.total.add(s.Number)
		default:
			a.total.addDifference(s.Number, a.last)
		}
		a.last = s.Number
	case series.Histogram:
		a.histogram.observe(s.Distribution, restarted, baseline)
	case series.Profile:
		a.profile.observe(s.Frames, restarted, baseline)
	}
	a.known, a.time = true, s.Time
}

func (a *account) owes() bool {
	switch a.typ {
	case series.Gauge:
		return a.time > a.acknowledged
	case series.Counter:
		return !a.total.isZero()
	case series.Histogram:
		return a.histogram.owes()
	}
	return len(a.profile.owed) > 0
}

// message is what the server is owed, nil when nothing is.
func (a *account) message() *pb.Metric {
	if !a.owes() {
		return nil
	}
	point := &pb.DataPoint{MeasurementTs: a.time}
	m := &pb.Metric{Name: a.name, Tags: a.tags, Datapoints: []*pb.DataPoint{point}}
	switch a.typ {
	case series.Gauge:
		m.Type = pb.Metric_GAUGE_METRIC
		point.Value = &pb.DataPoint_Gauge{Gauge: a.gauge.Float64()}
	case series.Counter:
		m.Type = pb.Metric_COUNTER_METRIC
		point.Value = &pb.DataPoint_Total{Total: a.total.float()}
	case series.Histogram:
		m.Type = pb.Metric_HISTOGRAM_METRIC
		point.Value = &pb.DataPoint_Histogram_{Histogram: a.histogram.message()}
	case series.Profile:
		m.Type = pb.Metric_PROFILE_METRIC
		profile, frames := a.profile.message()
		point.Value = &pb.DataPoint_Profile_{Profile: profile}
		m.Frames = frames
	}
	return m
}

// acknowledge takes what m carried off what is owed.
func (a *account) acknowledge(m *pb.Metric) {
	point := m.Datapoints[0]
	switch v := point.Value.(type) {
	case *pb.DataPoint_Gauge:
		a.acknowledged = point.MeasurementTs
	case *pb.DataPoint_Total:
		a.total.take(v.Total)
	case *pb.DataPoint_Histogram_:
		a.histogram.acknowledge(v.Histogram)
	case *pb.DataPoint_Profile_:
		a.profile.acknowledge(v.Profile)
	}
}

// histogramAccount is the part of an account that a histogram needs. Bins and totals grow, and restart, on
// their own.
type histogramAccount struct {
	known      bool
	bins       map[float64]uint64
	population uint64
	hasTotals  bool
	count      uint64
	sum        series.Number

	owedBins  map[float64]uint64
	owedCount int64
	owedSum   amount

	min, max       series.Number
	hasMin, hasMax bool
}

func (h *histogramAccount) observe(d *series.Distribution, restarted, baseline bool) {
	if h.owedBins == nil {
		h.bins = make(map[float64]uint64)
		h.owedBins = make(map[float64]uint64)
	}
	population := d.Population()
	if !h.known || restarted || population < h.population {
		clear(h.bins)
	}
	h.population = population
	for _, b := range d.Bins {
		value := b.Value.Float64()
		if last := h.bins[value]; b.Count > last && !baseline {
			h.owedBins[value] += b.Count - last
		}
		h.bins[value] = b.Count
	}
	if d.HasTotals {
		switch {
		case baseline:
		case !h.hasTotals, restarted, d.Count < h.count:
			h.owedCount += int64(d.Count)
			h.owedSum.add(d.Sum)
		default:
			h.owedCount += int64(d.Count - h.count)
			h.owedSum.addDifference(d.Sum, h.sum)
		}
		h.count, h.sum = d.Count, d.Sum
	}
	h.known, h.hasTotals = true, d.HasTotals
	h.min, h.max, h.hasMin, h.hasMax = d.Min, d.Max, d.HasMin, d.HasMax
}

// owes reports whether a count grew. A sum that moved alone waits for the next growth.
func (h *histogramAccount) owes() bool { return len(h.owedBins) > 0 || h.owedCount != 0 }

func (h *histogramAccount) message() *pb.DataPoint_Histogram {
	m := &pb.DataPoint_Histogram{Bins: slices.Sorted(maps.Keys(h.owedBins))}
	for _, bin := range m.Bins {
		m.Counts = append(m.Counts, int64(h.owedBins[bin]))
	}
	if h.hasTotals || h.owedCount != 0 {
		count, sum := h.owedCount, h.owedSum.float()
		m.Count, m.Sum = &count, &sum
	}
	if h.hasMin {
		v := h.min.Float64()
		m.Min = &v
	}
	if h.hasMax {
		v := h.max.Float64()
		m.Max = &v
	}
	return m
}

func (h *histogramAccount) acknowledge(m *pb.DataPoint_Histogram) {
	for i, bin := range m.Bins {
		if left := h.owedBins[bin] - uint64(m.Counts[i]); left > 0 {
			h.owedBins[bin] = left
		} else {
			delete(h.owedBins, bin)
		}
	}
	if m.Count != nil {
		h.owedCount -= *m.Count
		h.owedSum.take(*m.Sum)
	}
}

// frameBase is the last observed value of a frame.
type frameBase struct{ value, samples uint64 }

// owedFrame is a frame's growth that the server does not have yet.
type owedFrame struct {
	name           string
	value, samples uint64
}

// profileAccount is the part of an account that a profile needs. Frames are known by the hash of their name,
// so that those that left the top of the profile keep their base at little cost.
type profileAccount struct {
	known bool
	bases map[uint64]frameBase
	owed  map[uint64]*owedFrame
}

func (p *profileAccount) observe(frames []series.Frame, restarted, baseline bool) {
	if p.bases == nil {
		p.bases = make(map[uint64]frameBase)
		p.owed = make(map[uint64]*owedFrame)
	}
	ids := make([]uint64, len(frames))
	for i, f := range frames {
		ids[i] = xxhash.Sum64String(f.Name)
		restarted = restarted || f.Value < p.bases[ids[i]].value
	}
	if restarted {
		clear(p.bases)
	}
	whole := !p.known || restarted
	for i, f := range frames {
		base, seen := p.bases[ids[i]]
		if !seen && len(p.bases) >= maxFrameBases {
			continue
		}
		p.bases[ids[i]] = frameBase{f.Value, f.Samples}
		if baseline || !whole && f.Value == base.value && f.Samples <= base.samples {
			continue
		}
		o := p.owed[ids[i]]
		if o == nil {
			o = &owedFrame{name: text(f.Name)}
			p.owed[ids[i]] = o
		}
		o.value += f.Value - base.value
		if f.Samples > base.samples {
			o.samples += f.Samples - base.samples
		}
	}
	p.known = true
}

// message lists the owed frames by name.
func (p *profileAccount) message() (*pb.DataPoint_Profile, []*pb.ProfileFrame) {
	names := make([]*pb.ProfileFrame, 0, len(p.owed))
	for id, o := range p.owed {
		names = append(names, &pb.ProfileFrame{FrameId: id, Name: o.name})
	}
	slices.SortFunc(names, func(a, b *pb.ProfileFrame) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	m := &pb.DataPoint_Profile{}
	for _, n := range names {
		o := p.owed[n.FrameId]
		m.FrameIds = append(m.FrameIds, n.FrameId)
		m.Values = append(m.Values, o.value)
		m.Samples = append(m.Samples, o.samples)
	}
	return m, names
}

func (p *profileAccount) acknowledge(m *pb.DataPoint_Profile) {
	for i, id := range m.FrameIds {
		o := p.owed[id]
		if o == nil {
			continue
		}
		o.value -= m.Values[i]
		o.samples -= m.Samples[i]
		if o.value == 0 && o.samples == 0 {
			delete(p.owed, id)
		}
	}
}
