package model

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/top/endpoint"
)

// GPU is one device's telemetry.
type GPU struct {
	Index          int    // position by bus id, from 0
	Name           string // product, "" if unknown
	BusID, UUID    string
	Partition      string // of an AMD board, "" for the board itself
	Parent         string // UUID of the GPU that a MIG instance is part of
	Util           Value  // percent
	Trend          []float64
	MemUsed        Value // bytes
	MemTotal       Value
	Power          Value // watts
	PowerLimit     Value
	Temperature    Value // degrees Celsius
	SMClock        Value // MHz
	MemClock       Value
	PCIeTx, PCIeRx Value // kilobytes/s
	XIDErrors      Value // events since the start
	Throttle       []Reason
	ThrottleKnown  bool
	Measured       bool // any of its gauges is current
}

// Reason is one cause for clocks below their maximum.
type Reason struct {
	Words   string
	Hurting bool // a limit of power or heat, not idleness or a setting of the user
}

// deviceKey is the identity of a GPU among tags.
func deviceKey(tags endpoint.Tags) string {
	var id endpoint.Tags
	for _, t := range tags {
		if strings.HasPrefix(t.Key, "device.") {
			id = append(id, t)
		}
	}
	return id.String()
}

// throttleReasons are the bits of the clocks' throttle mask, NVML's, lowest first.
var throttleReasons = []Reason{
	{"idle", false},
	{"clocks setting", false},
	{"power cap", true},
	{"hw slowdown", true},
	{"sync boost", false},
	{"sw thermal", true},
	{"hw thermal", true},
	{"power brake", true},
	{"display clocks", false},
}

func throttleWords(mask uint64) []Reason {
	var out []Reason
	for bit, r := range throttleReasons {
		if mask&(1<<bit) != 0 {
			out = append(out, r)
			mask &^= 1 << bit
		}
	}
	if mask != 0 {
		out = append(out, Reason{Words: "0x" + strconv.FormatUint(mask, 16)})
	}
	return out
}

// wholes is the number of GPUs that share out the time: of one that is cut into MIG instances, the instances.
func wholes(list []GPU) int {
	cut := make(map[string]bool)
	for _, g := range list {
		if g.Parent != "" {
			cut[g.Parent] = true
		}
	}
	n := 0
	for _, g := range list {
		if !cut[g.UUID] {
			n++
		}
	}
	return n
}

// gpuGauges are the gauges that are shown as they are.
var gpuGauges = map[string]func(*GPU) *Value{
	"gpu_utilization_percent":                     func(g *GPU) *Value { return &g.Util },
	"gpu_memory_used_bytes":                       func(g *GPU) *Value { return &g.MemUsed },
	"gpu_power_usage_watts":                       func(g *GPU) *Value { return &g.Power },
	"gpu_power_management_limit_watts":            func(g *GPU) *Value { return &g.PowerLimit },
	"gpu_temperature_celsius":                     func(g *GPU) *Value { return &g.Temperature },
	"gpu_clock_sm_megahertz":                      func(g *GPU) *Value { return &g.SMClock },
	"gpu_clock_mem_megahertz":                     func(g *GPU) *Value { return &g.MemClock },
	"gpu_pcie_throughput_tx_kilobytes_per_second": func(g *GPU) *Value { return &g.PCIeTx },
	"gpu_pcie_throughput_rx_kilobytes_per_second": func(g *GPU) *Value { return &g.PCIeRx },
}

func (h *History) gpuViews() []GPU {
	doc := h.last
	byKey := make(map[string]*GPU)
	var keys []string
	device := func(tags endpoint.Tags) *GPU {
		key := deviceKey(tags)
		g, ok := byKey[key]
		if !ok {
			g = &GPU{BusID: tags.Get("device.bus_id"), UUID: tags.Get("device.uuid"), Partition: tags.Get("device.partition"), Trend: slices.Clone(h.trends["gpu\x00"+key])}
			byKey[key] = g
			keys = append(keys, key)
		}
		return g
	}
	for i := range doc.Resources {
		if r := &doc.Resources[i]; r.Kind == "device" {
			g := device(r.Tags)
			g.Name = r.Attributes["device.name"]
			g.Parent = r.Attributes["device.parent_uuid"]
			if total, err := strconv.ParseUint(r.Attributes["mem_total"], 10, 64); err == nil && total > 0 {
				g.MemTotal = known(float64(total))
			}
		}
	}
	for i := range doc.Metrics {
		m := &doc.Metrics[i]
		if !strings.HasPrefix(m.Name, "gpu_") {
			continue
		}
		g := device(m.Tags)
		if m.Type == endpoint.Counter && m.Name == "gpu_xid_critical_errors" {
			g.XIDErrors = known(m.Value.Float())
		}
		if m.Type != endpoint.Gauge || !current(doc, m, gaugeLife) {
			continue
		}
		g.Measured = true
		v := known(m.Value.Float())
		if field := gpuGauges[m.Name]; field != nil {
			*field(g) = v
		} else if m.Name == "gpu_memory_total_bytes" && v.V > 0 {
			g.MemTotal = v
		} else if m.Name == "gpu_clocks_throttle_reasons" && v.V >= 0 && v.V < 1<<63 {
			g.ThrottleKnown = true
			g.Throttle = throttleWords(uint64(v.V))
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		x, y := byKey[a], byKey[b]
		return cmp.Or(strings.Compare(x.BusID, y.BusID), len(x.Partition)-len(y.Partition), strings.Compare(x.Partition, y.Partition), strings.Compare(a, b))
	})
	out := make([]GPU, 0, len(keys))
	for i, key := range keys {
		g := byKey[key]
		g.Index = i
		out = append(out, *g)
	}
	return out
}
