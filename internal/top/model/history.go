package model

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/top/endpoint"
)

const (
	// maxReads bounds the reads kept. For windows that hold more, reads are thinned out.
	maxReads = 64
	// maxTrend bounds the points of a trend line.
	maxTrend = 240
	// maxTrends bounds the trend lines: GPUs of one machine, and engines.
	maxTrends = 256
	// maxSeen bounds the counters whose previous total is remembered for trends.
	maxSeen = 4096
	// fullProfile is the number of frames at which a writer has to leave others out.
	fullProfile = 250
	// maxCarried bounds the frames remembered of one profile beyond those in the newest document.
	maxCarried = 4096
	// freshness is the age up to which a series counts as still being measured. Writers and scrapes have periods of 1 s.
	freshness = 3 * time.Second
	// silence is the age from which it is said that nothing is measured any more.
	silence = 10 * time.Second
	// gaugeLife is the age from which a GPU's gauge is no longer shown: the device or the telemetry is gone.
	gaugeLife = 15 * time.Second
)

// MaxWindow is the longest window.
const MaxWindow = time.Hour

// Value is a number that may be unmeasured.
type Value struct {
	V  float64
	OK bool
}

func known(v float64) Value { return Value{V: v, OK: true} }

// series is what one read keeps of one cumulative series.
type series struct {
	name    string
	tags    endpoint.Tags
	profile bool
	updated int64
	total   endpoint.Number // counter, or gauge that holds a total
	count   endpoint.Number // histogram
	sum     endpoint.Number
	frames  []endpoint.Frame // sorted by name
	carried []endpoint.Frame // sorted by name: seen earlier, no longer in the list
	least   uint64           // smallest value of the list
}

// read is one document, reduced to its cumulative series.
type read struct {
	at      time.Time // local, monotonic
	payload int64
	series  map[string]*series
}

// History keeps the last reads of one profiler instance.
type History struct {
	window  time.Duration
	reads   []read
	last    *endpoint.Document
	trends  map[string][]float64
	names   *nameCache
	seen    map[string]seenTotal // for throughput trends: the previous read's total by series
	changed time.Time            // when the first document of the newest payload time came
	latest  time.Time            // when the newest document came
}

type seenTotal struct {
	total   endpoint.Number
	updated int64
}

// NewHistory starts without reads.
func NewHistory(window time.Duration) *History {
	h := &History{names: newNameCache()}
	h.SetWindow(window)
	h.clear()
	return h
}

func (h *History) clear() {
	h.reads = nil
	h.trends = make(map[string][]float64)
	h.seen = make(map[string]seenTotal)
}

// SetWindow changes the length over which rates are computed; 0 means totals only. It is bounded by MaxWindow.
func (h *History) SetWindow(w time.Duration) {
	h.window = min(max(w, 0), MaxWindow)
}

// Window is the length set.
func (h *History) Window() time.Duration { return h.window }

// Add takes over a document that was received at the given time. Documents of another profiler instance begin a new
// history.
func (h *History) Add(doc *endpoint.Document, at time.Time) {
	if h.last != nil && (doc.StartNS != h.last.StartNS || doc.Context["instance.id"] != h.last.Context["instance.id"]) {
		h.clear()
	}
	if h.last == nil || doc.PayloadNS != h.last.PayloadNS {
		h.changed = at
	}
	h.last, h.latest = doc, at
	r := read{at: at, payload: doc.PayloadNS, series: make(map[string]*series)}
	var previous map[string]*series
	if len(h.reads) > 0 {
		previous = h.reads[len(h.reads)-1].series
	}
	for i := range doc.Metrics {
		m := &doc.Metrics[i]
		if !cumulative(m) {
			continue
		}
		key := m.Name + "\x00" + string(m.Type) + "\x00" + m.Tags.String()
		s := &series{name: m.Name, tags: m.Tags, updated: m.UpdatedNS, total: m.Value, count: m.Stats.Count, sum: m.Stats.Sum}
		if m.Type == endpoint.Profile {
			s.profile = true
			s.takeFrames(m.Frames, previous[key])
		}
		r.series[key] = s
	}
	h.addTrends(doc)
	// A read that is not needed to reach back over the window is dropped: the spacing stays window/60 or more.
	if n := len(h.reads); n > 1 && at.Sub(h.reads[n-2].at) < h.window/(maxReads-4) {
		h.reads = h.reads[:n-1]
	}
	h.reads = append(h.reads, r)
	if len(h.reads) > maxReads {
		h.reads = slices.Delete(h.reads, 0, len(h.reads)-maxReads)
	}
}

// cumulative reports whether the view computes a growth of the series.
func cumulative(m *endpoint.Metric) bool {
	switch m.Type {
	case endpoint.Profile:
		return isGPUActivity(m.Name) || isProbe(m.Name)
	case endpoint.Gauge:
		return strings.HasSuffix(m.Name, "_unlisted_nanoseconds") && isGPUActivity(m.Name)
	case endpoint.Counter:
		return strings.HasSuffix(m.Name, "_memcpy_bytes") || strings.HasSuffix(m.Name, "_memset_bytes") || engineSeries[m.Name]
	case endpoint.Histogram:
		return engineSeries[m.Name]
	}
	return false
}

// takeFrames keeps a profile's frames by name. A writer lists at most 250 frames; one that dropped out of a full list
// keeps the total last seen, so that its return does not look like growth.
func (s *series) takeFrames(frames []endpoint.Frame, previous *series) {
	byName := func(a, b endpoint.Frame) int { return strings.Compare(a.Name, b.Name) }
	s.frames = slices.Clone(frames)
	slices.SortStableFunc(s.frames, byName)
	s.frames = slices.CompactFunc(s.frames, func(a, b endpoint.Frame) bool { return a.Name == b.Name })
	for i, f := range s.frames {
		if i == 0 || f.Value < s.least {
			s.least = f.Value
		}
	}
	if previous == nil || !s.full() {
		return
	}
	for _, earlier := range [][]endpoint.Frame{previous.frames, previous.carried} {
		for _, f := range earlier {
			if _, ok := find(s.frames, f.Name); !ok && len(s.carried) < maxCarried {
				s.carried = append(s.carried, f)
			}
		}
	}
	slices.SortFunc(s.carried, byName)
}

// full reports whether frames may be missing from the list.
func (s *series) full() bool { return len(s.frames) >= fullProfile }

// last is the total last seen of a frame.
func (s *series) last(name string) (endpoint.Frame, bool) {
	if f, ok := find(s.frames, name); ok {
		return f, true
	}
	return find(s.carried, name)
}

func find(frames []endpoint.Frame, name string) (endpoint.Frame, bool) {
	i := sort.Search(len(frames), func(i int) bool { return frames[i].Name >= name })
	if i < len(frames) && frames[i].Name == name {
		return frames[i], true
	}
	return endpoint.Frame{}, false
}

// Span says between which reads rates were computed.
type Span struct {
	Want   time.Duration // the window asked for
	Length time.Duration // time between the two reads, 0 when there is only one: totals only
}

// Rated reports whether there are rates.
func (s Span) Rated() bool { return s.Length > 0 }

// span picks the newest read that is a window older than the last one, else the oldest.
func (h *History) span() (base, last *read, s Span) {
	s.Want = h.window
	if len(h.reads) == 0 {
		return nil, nil, s
	}
	last = &h.reads[len(h.reads)-1]
	if h.window == 0 || len(h.reads) == 1 {
		return nil, last, s
	}
	// Reads come every second, give or take: one that is short of the window by less than that jitter will do.
	enough := h.window - min(300*time.Millisecond, h.window/4)
	base = &h.reads[0]
	for i := len(h.reads) - 2; i >= 0; i-- {
		if between(&h.reads[i], last) >= enough {
			base = &h.reads[i]
			break
		}
	}
	s.Length = between(base, last)
	if s.Length <= 0 {
		return nil, last, s
	}
	return base, last, s
}

// between is the time between two reads by the endpoint's clock, or by ours where that is missing or was set back.
func between(a, b *read) time.Duration {
	local := b.at.Sub(a.at)
	if a.payload > 0 && b.payload > a.payload {
		remote := time.Duration(b.payload - a.payload)
		if remote < 2*local+time.Minute {
			return remote
		}
	}
	return local
}

// elapsed is the time over which a series grew by what it grew between two reads: the time between its two measurements
// where both are current, so that a write that falls just before or after a read does not distort the rate; else the time
// between the reads.
func elapsed(before, now *series, base, last *read, s Span) time.Duration {
	if before == nil || before.updated <= 0 || now.updated <= before.updated {
		return s.Length
	}
	if last.payload > 0 && last.payload-now.updated > int64(freshness) || base.payload > 0 && base.payload-before.updated > int64(freshness) {
		return s.Length
	}
	own := time.Duration(now.updated - before.updated)
	if d := own - s.Length; d > freshness || d < -freshness {
		return s.Length
	}
	return own
}

// addTrends appends to the trend lines what the newest document says.
func (h *History) addTrends(doc *endpoint.Document) {
	for i := range doc.Metrics {
		m := &doc.Metrics[i]
		if m.Name == "gpu_utilization_percent" && m.Type == endpoint.Gauge && current(doc, m, gaugeLife) {
			h.appendTrend("gpu\x00"+deviceKey(m.Tags), m.Value.Float())
		}
	}
	for i := range engines {
		e := &engines[i]
		rate, stepped := 0.0, false
		for _, m := range e.pick(doc, endpoint.Counter, e.generated) {
			key := m.Name + "\x00" + m.Tags.String()
			before, ok := h.seen[key]
			if len(h.seen) >= maxSeen {
				clear(h.seen)
			}
			if !ok || m.UpdatedNS > before.updated {
				h.seen[key] = seenTotal{m.Value, m.UpdatedNS}
			}
			if !ok || m.UpdatedNS <= before.updated {
				continue
			}
			if grown, ok := m.Value.Growth(before.total); ok {
				rate += grown / (float64(m.UpdatedNS-before.updated) / 1e9)
				stepped = true
			}
		}
		if stepped {
			h.appendTrend("tokens\x00"+e.name, rate)
		}
	}
}

func (h *History) appendTrend(key string, v float64) {
	line, ok := h.trends[key]
	if !ok && len(h.trends) >= maxTrends {
		return
	}
	line = append(line, v)
	if len(line) > maxTrend {
		line = slices.Delete(line, 0, len(line)-maxTrend)
	}
	h.trends[key] = line
}

// current reports whether a metric was measured no longer ago than life.
func current(doc *endpoint.Document, m *endpoint.Metric, life time.Duration) bool {
	return doc.PayloadNS <= 0 || m.UpdatedNS <= 0 || doc.PayloadNS-m.UpdatedNS <= int64(life)
}
