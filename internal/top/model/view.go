package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/kernels"
	"github.com/graphsignal/graphsignal-collector/internal/top/endpoint"
)

// View is everything one frame of the live view shows.
type View struct {
	Span      Span
	Header    Header
	GPUs      []GPU
	Engines   []Engine
	Tables    [tableKinds]Table
	Groups    []Group // kernel time by category, most first
	Errors    Errors
	Processes map[string]string // command line by pid
	HostMem   Value             // bytes in use
	Warnings  []string          // about the profile itself
}

// Header says what is observed.
type Header struct {
	Host, Instance  string
	Command         string // of the workload's root process
	Uptime          time.Duration
	UptimeKnown     bool
	ProfilerVersion string
	GraphTrace      string // "graph", "node", "mixed", "" if not told
	KernelTraceOff  bool   // ROCm: no process has its kernels timed
}

// Group is the kernel time of one category.
type Group struct {
	Category kernels.Category
	Share    Value   // of all kernel time in the window, or since the start without one; 0 to 1
	Time     float64 // ns per second, or ns
}

// Errors is the end of the errors list.
type Errors struct {
	Count  int
	Newest []Error // newest first
}

// Error is one entry with its age by the endpoint's clock.
type Error struct {
	Level, Message, Exception string
	Source                    string // "workload pid 42 stderr"
	Age                       Value  // seconds
}

// View computes a frame from the reads so far; false if there is none yet. The history may go on while it is shown.
func (h *History) View() (View, bool) {
	base, last, span := h.span()
	if last == nil {
		return View{}, false
	}
	v := View{Span: span, Header: h.header(), GPUs: h.gpuViews(), Processes: commandLines(h.last)}
	v.Engines = h.engineViews(base, last, span)
	for _, kind := range AllTables {
		v.Tables[kind] = h.table(kind, base, last, span, wholes(v.GPUs))
	}
	v.Groups = groups(v.Tables[Kernels].Rows, base != nil)
	v.Errors = errorsOf(h.last)
	v.HostMem = sum(gauges(h.last, "host_memory_usage_bytes"))
	v.Warnings = h.warnings()
	return v, true
}

func gauges(doc *endpoint.Document, name string) []*endpoint.Metric {
	var list []*endpoint.Metric
	for i := range doc.Metrics {
		if m := &doc.Metrics[i]; m.Name == name && m.Type == endpoint.Gauge {
			list = append(list, m)
		}
	}
	return list
}

func (h *History) header() Header {
	doc := h.last
	v := Header{Host: doc.Context["host.name"], Instance: doc.Context["instance.id"], ProfilerVersion: doc.ProfilerVersion}
	if doc.StartNS > 0 && doc.PayloadNS >= doc.StartNS {
		v.Uptime, v.UptimeKnown = time.Duration(doc.PayloadNS-doc.StartNS), true
	}
	for i := range doc.Resources {
		r := &doc.Resources[i]
		if r.Kind == "process" && r.Tags.Get("process.pid") == r.Tags.Get("process.root_pid") {
			if c := r.Attributes["process.command_line"]; c != "" {
				v.Command = c
				break
			}
		}
	}
	rocm := gauges(doc, "rocm_kernel_trace_mode")
	v.KernelTraceOff = len(rocm) > 0 && !slices.ContainsFunc(rocm, func(m *endpoint.Metric) bool { return m.Value.Float() != 0 })
	for _, m := range gauges(doc, "cuda_graph_trace_mode") {
		mode := "graph"
		if m.Value.Float() == 1 {
			mode = "node"
		}
		if v.GraphTrace != "" && v.GraphTrace != mode {
			mode = "mixed"
		}
		v.GraphTrace = mode
		if mode == "mixed" {
			break
		}
	}
	return v
}

func commandLines(doc *endpoint.Document) map[string]string {
	m := make(map[string]string)
	for i := range doc.Resources {
		if r := &doc.Resources[i]; r.Kind == "process" {
			m[r.Tags.Get("process.pid")] = r.Attributes["process.command_line"]
		}
	}
	return m
}

func groups(rows []Row, rated bool) []Group {
	times := make(map[kernels.Category]float64)
	total := 0.0
	for i := range rows {
		t := rows[i].Total
		if rated {
			t = rows[i].Time.V
		}
		times[rows[i].Category] += t
		total += t
	}
	var out []Group
	for _, c := range kernels.Categories {
		if times[c] > 0 {
			out = append(out, Group{Category: c, Time: times[c], Share: known(times[c] / total)})
		}
	}
	slices.SortStableFunc(out, func(a, b Group) int { return cmp.Compare(b.Time, a.Time) })
	return out
}

func errorsOf(doc *endpoint.Document) Errors {
	out := Errors{Count: len(doc.Errors)}
	for _, e := range slices.Backward(doc.Errors) {
		v := Error{Level: e.Level, Message: e.Message, Exception: e.Exception}
		if e.LogNS > 0 && doc.PayloadNS > 0 {
			v.Age = known(max(0, float64(doc.PayloadNS-e.LogNS)/1e9))
		}
		var source []string
		if s := e.Tags.Get("scope.name"); s != "" {
			source = append(source, s)
		}
		if s := e.Tags.Get("process.pid"); s != "" {
			source = append(source, "pid "+s)
		}
		if s := e.Tags.Get("stream"); s != "" {
			source = append(source, s)
		}
		if s := e.Tags.Get("device.bus_id"); s != "" {
			source = append(source, s)
		}
		v.Source = strings.Join(source, " ")
		out.Newest = append(out.Newest, v)
	}
	return out
}

// warnings say in what the document is out of date or incomplete.
func (h *History) warnings() []string {
	doc := h.last
	var dropped, invalid float64
	suspended := false
	newest := int64(0)
	for i := range doc.Metrics {
		m := &doc.Metrics[i]
		newest = max(newest, m.UpdatedNS)
		switch m.Name {
		case "cuda_dropped_records_total", "rocm_dropped_records_total":
			dropped += m.Value.Float()
		case "cuda_invalid_records", "rocm_invalid_records":
			invalid += m.Value.Float()
		case "cuda_trace_suspended":
			suspended = suspended || m.Value.Float() == 1
		}
	}
	var out []string
	if age := h.latest.Sub(h.changed); doc.PayloadNS > 0 && age > silence {
		out = append(out, fmt.Sprintf("the document has not changed for %.0f s", age.Seconds()))
	} else if age := time.Duration(doc.PayloadNS - newest); newest > 0 && doc.PayloadNS > 0 && age > silence {
		out = append(out, fmt.Sprintf("nothing was measured in the last %.0f s", age.Seconds()))
	}
	if suspended {
		out = append(out, "tracing is suspended: another tool took over CUPTI")
	}
	if dropped > 0 {
		out = append(out, fmt.Sprintf("%.0f activity records were dropped", dropped))
	}
	if invalid > 0 {
		out = append(out, fmt.Sprintf("%.0f activity records had impossible times", invalid))
	}
	if doc.Skipped > 0 {
		out = append(out, fmt.Sprintf("%d parts of the document were not understood", doc.Skipped))
	}
	return out
}
