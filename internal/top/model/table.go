package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/kernels"
	"github.com/graphsignal/graphsignal-collector/internal/top/endpoint"
)

// TableKind selects one of the rankings.
type TableKind int

// The rankings, in the order in which they are listed.
const (
	Kernels TableKind = iota
	Graphs
	Memory
	Sync
	Probes // the workload's own profiles of time
	tableKinds
)

// AllTables lists every ranking.
var AllTables = []TableKind{Kernels, Graphs, Memory, Sync, Probes}

// Title names a ranking.
func (k TableKind) Title() string {
	return [...]string{"kernels", "graph replays", "memory transfers", "host synchronization", "probes"}[k]
}

// source is one profile of a ranking.
type source struct {
	metric string
	prefix string // of the row names
	bytes  string // counter of the bytes of each kind
	// unlisted is a gauge of the total time of the frames that the profile has no room for.
	unlisted string
}

var sources = [tableKinds][]source{
	Kernels: {
		{metric: "cuda_kernels_nanoseconds", unlisted: "cuda_kernels_unlisted_nanoseconds"},
		{metric: "rocm_kernels_nanoseconds", unlisted: "rocm_kernels_unlisted_nanoseconds"},
	},
	Graphs: {{metric: "cuda_graphs_nanoseconds", unlisted: "cuda_graphs_unlisted_nanoseconds"}},
	Memory: {
		{metric: "cuda_memcpy_nanoseconds", prefix: "copy ", bytes: "cuda_memcpy_bytes"},
		{metric: "cuda_memset_nanoseconds", prefix: "set ", bytes: "cuda_memset_bytes"},
		{metric: "rocm_memcpy_nanoseconds", prefix: "copy ", bytes: "rocm_memcpy_bytes"},
	},
	Sync: {{metric: "cuda_sync_nanoseconds"}, {metric: "rocm_sync_nanoseconds"}},
	// Probes have names of their own: see sourcesOf.
}

// gpuTime reports whether a ranking's time is time of GPUs, of which there is a share.
func (k TableKind) gpuTime() bool { return k != Sync && k != Probes }

const nanoseconds = "_nanoseconds"

// isProbe reports whether a profile is one of the workload's own.
func isProbe(name string) bool {
	return strings.HasSuffix(name, nanoseconds) && !isGPUActivity(name)
}

func isGPUActivity(name string) bool {
	return strings.HasPrefix(name, "cuda_") || strings.HasPrefix(name, "rocm_")
}

func sourcesOf(kind TableKind, r *read) []source {
	if kind != Probes {
		return sources[kind]
	}
	seen := make(map[string]bool)
	for _, s := range r.series {
		if s.profile && isProbe(s.name) {
			seen[s.name] = true
		}
	}
	var out []source
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, source{metric: name, prefix: strings.TrimSuffix(name, nanoseconds) + " "})
	}
	return out
}

// Table is one ranking, most time first.
type Table struct {
	Kind     TableKind
	Present  bool // the document has a profile for it, empty or not
	Rows     []Row
	Time     Value // ns of GPU (for synchronization host, for probes their own) time per second, over all rows
	Total    float64
	Share    Value // of the GPUs' time; not for synchronization and probes
	Unlisted Value // ns per second, or ns in all without a window, of frames beyond those that the profiles list
}

// Row is one frame, summed over the processes.
type Row struct {
	ID       string // tells it from the others of its ranking, from read to read; names may change
	Frame    string // as in the document
	Name     string
	Category kernels.Category // of kernels only
	Detail   string           // demangled symbol of kernels

	Share Value // of the GPUs' time
	Time  Value // ns per second
	Calls Value // per second
	Mean  Value // ns per call, in the window, or since the start without a window
	Bytes Value // per second, of memory transfers

	Total      float64 // ns since the start
	TotalCalls float64
	TotalBytes Value
	Processes  []Share
}

// Share is one process's part of a row.
type Share struct {
	PID, Rank  string
	Time       Value // ns per second
	Calls      Value
	Total      float64
	TotalCalls float64
}

// growth of one frame between two reads.
func (s *series) growth(f endpoint.Frame, before *series) (value, calls float64, callsKnown bool) {
	if before == nil {
		return float64(f.Value), float64(f.Samples), true
	}
	b, ok := before.last(f.Name)
	if !ok {
		if !before.full() {
			return float64(f.Value), float64(f.Samples), true
		}
		// The earlier list was full: the frame may have had as much as the least of it, and its calls cannot be told.
		if f.Value <= before.least {
			return 0, 0, true
		}
		return float64(f.Value - before.least), 0, false
	}
	if f.Value < b.Value || f.Samples < b.Samples {
		return float64(f.Value), float64(f.Samples), true // restarted
	}
	return float64(f.Value - b.Value), float64(f.Samples - b.Samples), true
}

func (h *History) table(kind TableKind, base, last *read, span Span, gpus int) Table {
	t := Table{Kind: kind}
	rows := make(map[string]*Row)
	var windowCalls, windowTime map[string]float64
	if base != nil {
		windowCalls, windowTime = map[string]float64{}, map[string]float64{}
	}
	unknownCalls := make(map[string]bool)
	for _, src := range sourcesOf(kind, last) {
		for _, key := range slices.Sorted(maps.Keys(last.series)) {
			s := last.series[key]
			if s.name != src.metric {
				continue
			}
			t.Present = true
			var before *series
			if base != nil {
				before = base.series[key]
			}
			for _, f := range s.frames {
				id := src.prefix + f.Name
				r := rows[id]
				if r == nil {
					r = &Row{ID: id, Frame: f.Name, Name: id}
					rows[id] = r
				}
				part := Share{PID: s.tags.Get("process.pid"), Rank: s.tags.Get("process.rank"), Total: float64(f.Value), TotalCalls: float64(f.Samples)}
				r.Total += part.Total
				r.TotalCalls += part.TotalCalls
				if base != nil {
					value, calls, ok := s.growth(f, before)
					seconds := elapsed(before, s, base, last, span).Seconds()
					part.Time = known(value / seconds)
					r.Time = known(r.Time.V + part.Time.V)
					windowTime[id] += value
					if ok {
						part.Calls = known(calls / seconds)
						windowCalls[id] += calls
					} else {
						unknownCalls[id] = true
					}
				}
				r.addShare(part)
			}
		}
	}
	for id, r := range rows {
		switch {
		case base == nil:
			if r.TotalCalls > 0 {
				r.Mean = known(r.Total / r.TotalCalls)
			}
		case !unknownCalls[id]:
			r.Calls = known(0)
			for _, p := range r.Processes {
				r.Calls.V += p.Calls.V
			}
			if windowCalls[id] > 0 {
				r.Mean = known(windowTime[id] / windowCalls[id])
			}
		}
		if kind.gpuTime() && base != nil && gpus > 0 {
			r.Share = known(r.Time.V / 1e9 / float64(gpus))
		}
		t.Total += r.Total
		if base != nil {
			t.Time = known(t.Time.V + r.Time.V)
		}
		t.Rows = append(t.Rows, *r)
	}
	if base != nil && t.Present {
		t.Time.OK = true
		if kind.gpuTime() && gpus > 0 {
			t.Share = known(t.Time.V / 1e9 / float64(gpus))
		}
	}
	t.Unlisted = unlisted(kind, base, last, span)
	switch kind {
	case Kernels:
		h.nameKernels(t.Rows)
	case Memory:
		addBytes(t.Rows, base, last, span)
	}
	slices.SortFunc(t.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Time.V, a.Time.V), cmp.Compare(b.Total, a.Total), strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return t
}

// addShare adds a process's part; the CUDA and ROCm profiles of one process count together.
func (r *Row) addShare(part Share) {
	for i := range r.Processes {
		p := &r.Processes[i]
		if p.PID == part.PID && p.Rank == part.Rank {
			p.Total += part.Total
			p.TotalCalls += part.TotalCalls
			p.Time = add(p.Time, part.Time)
			p.Calls = add(p.Calls, part.Calls)
			return
		}
	}
	r.Processes = append(r.Processes, part)
}

func add(a, b Value) Value { return Value{V: a.V + b.V, OK: a.OK || b.OK} }

func (h *History) nameKernels(rows []Row) {
	symbols := make([]string, len(rows))
	for i := range rows {
		symbols[i] = rows[i].Frame
	}
	names := h.names.names(symbols)
	for i := range rows {
		k := names[rows[i].Frame]
		rows[i].Name, rows[i].Category, rows[i].Detail = k.Short, k.Category, k.Demangled
	}
}

func unlisted(kind TableKind, base, last *read, span Span) Value {
	var v Value
	for key, s := range last.series {
		if s.profile || !slices.ContainsFunc(sources[kind], func(src source) bool { return src.unlisted == s.name }) {
			continue
		}
		if base == nil {
			v = known(v.V + s.total.Float())
			continue
		}
		// The rest shrinks when a frame enters the list; then its growth in the window cannot be told.
		before := base.series[key]
		if before == nil || s.total.Float() < before.total.Float() {
			continue
		}
		v = known(v.V + (s.total.Float()-before.total.Float())/elapsed(before, s, base, last, span).Seconds())
	}
	return v
}

func addBytes(rows []Row, base, last *read, span Span) {
	index := make(map[string]int, len(rows))
	for i := range rows {
		index[rows[i].Name] = i
	}
	for _, src := range sources[Memory] {
		for key, s := range last.series {
			if s.name != src.bytes {
				continue
			}
			i, ok := index[src.prefix+s.tags.Get("kind")]
			if !ok {
				continue
			}
			r := &rows[i]
			r.TotalBytes = known(r.TotalBytes.V + s.total.Float())
			if base == nil {
				continue
			}
			before, start := base.series[key], endpoint.Whole(0)
			if before != nil {
				start = before.total
			}
			if grown, ok := s.total.Growth(start); ok {
				r.Bytes = known(r.Bytes.V + grown/elapsed(before, s, base, last, span).Seconds())
			}
		}
	}
}
