package model

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/kernels"
	"github.com/graphsignal/graphsignal-collector/internal/top/endpoint"
	"github.com/graphsignal/graphsignal-collector/internal/top/scene"
)

// play adds the seconds of a scene to a history.
func play(t *testing.T, h *History, make func(int) []byte, ticks ...int) View {
	t.Helper()
	origin := time.Now()
	for _, n := range ticks {
		doc, err := endpoint.Decode(make(n))
		if err != nil {
			t.Fatal(err)
		}
		if doc.Skipped != 0 {
			t.Fatalf("second %d: %d parts skipped", n, doc.Skipped)
		}
		h.Add(doc, origin.Add(time.Duration(n)*time.Second))
	}
	v, ok := h.View()
	if !ok {
		t.Fatal("no view")
	}
	return v
}

func near(t *testing.T, what string, got Value, want float64) {
	t.Helper()
	if !got.OK || math.Abs(got.V-want) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func absent(t *testing.T, what string, got Value) {
	t.Helper()
	if got.OK {
		t.Errorf("%s: got %v, want nothing measured", what, got)
	}
}

// pids is a profile document of any processes: pid to frame totals.
func profile(tick int, at int64, pids map[string][]scene.Frame) []byte {
	d := scene.New(tick)
	for pid, frames := range pids {
		d.Profile("cuda_kernels_nanoseconds", map[string]string{"process.pid": pid}, frames)
	}
	for i := range d.Metrics {
		d.Metrics[i].UpdatedNS = at
	}
	return d.JSON()
}

func row(t *testing.T, v View, kind TableKind, name string) Row {
	t.Helper()
	for _, r := range v.Tables[kind].Rows {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no row %q among %d", name, len(v.Tables[kind].Rows))
	return Row{}
}

func TestServingScene(t *testing.T) {
	h := NewHistory(5 * time.Second)
	v := play(t, h, scene.Serving, 60, 61, 62, 63, 64, 65)
	if v.Span.Length != 5*time.Second {
		t.Errorf("window: %v", v.Span)
	}
	if v.Header.Host != "gpu-07" || v.Header.Instance != "5f0c9a1be772" || v.Header.GraphTrace != "graph" || v.Header.Uptime != 65*time.Second {
		t.Errorf("header: %+v", v.Header)
	}
	// 8 processes, of which each has 2 % less than the one before: 7.44 times the first.
	r := row(t, v, Kernels, "nvjet gemm bf16 128x256")
	near(t, "time", r.Time, 212.4e6*7.44)
	near(t, "share", r.Share, 212.4e6*7.44/1e9/8)
	if len(r.Processes) != 8 || r.Category != kernels.MatrixMultiply {
		t.Errorf("row: %+v", r)
	}
	near(t, "time of one process", r.Processes[0].Time, 212.4e6)
	near(t, "calls of one process", r.Processes[0].Calls, 4960)
	if len(v.GPUs) != 8 || v.GPUs[2].Name != "NVIDIA H200" || len(v.GPUs[0].Trend) != 6 {
		t.Errorf("GPUs: %+v", v.GPUs)
	}
	near(t, "XID", v.GPUs[5].XIDErrors, 2)
	if len(v.GPUs[2].Throttle) != 2 || v.GPUs[2].Throttle[1].Words != "hw thermal" {
		t.Errorf("throttling: %v", v.GPUs[2].Throttle)
	}
	e := v.Engines[0]
	near(t, "running", e.Running, 38+26)
	near(t, "waiting", e.Waiting, 4)
	near(t, "KV", e.KVUse, 0.412)
	near(t, "tokens/s", e.TokenRate, 3720)
	near(t, "prompt tokens/s", e.PromptRate, 4100)
	near(t, "TTFT p95", e.Latencies[0].P95, 0.5)
	near(t, "TTFT mean in window", e.Latencies[0].WindowMean, 0.21)
	if e.Latencies[0].Series != 2 || len(e.Trend) != 5 {
		t.Errorf("engine: %+v", e)
	}
	m := row(t, v, Memory, "copy host_to_device")
	near(t, "bytes/s", m.Bytes, 48e6*7.44)
	near(t, "transfers/s", m.Calls, 1783) // whole transfers per process
	s := row(t, v, Sync, "event")
	absent(t, "share of synchronization", s.Share)
	if v.Errors.Count != 3 || v.Errors.Newest[0].Source != "workload pid 4301 stderr" || v.Errors.Newest[0].Age.V != 12 {
		t.Errorf("errors: %+v", v.Errors)
	}
	total := 0.0
	for _, g := range v.Groups {
		total += g.Share.V
	}
	if math.Abs(total-1) > 1e-9 || v.Groups[0].Category != kernels.MatrixMultiply {
		t.Errorf("groups: %+v", v.Groups)
	}
}

func TestFirstReadHasTotalsOnly(t *testing.T) {
	v := play(t, NewHistory(5*time.Second), scene.Single, 60)
	r := row(t, v, Kernels, "nvjet gemm bf16 128x256")
	absent(t, "time/s", r.Time)
	absent(t, "calls/s", r.Calls)
	absent(t, "share", r.Share)
	if r.Total != 60*212.4e6 || r.TotalCalls != 60*4960 {
		t.Errorf("totals: %+v", r)
	}
	near(t, "mean since start", r.Mean, 212.4e6/4960)
	if v.Span.Rated() {
		t.Errorf("window: %+v", v.Span)
	}
	if v := play(t, NewHistory(0), scene.Single, 60, 61); v.Span.Rated() {
		t.Errorf("without a window: %+v", v.Span)
	}
}

func TestProbes(t *testing.T) {
	v := play(t, NewHistory(time.Second), scene.Single, 60, 61)
	r := row(t, v, Probes, "train_parts data loading")
	near(t, "time", r.Time, 42e6)
	near(t, "calls", r.Calls, 4)
	absent(t, "share of GPU time", r.Share)
	if v := play(t, NewHistory(0), scene.Serving, 60); v.Tables[Probes].Present {
		t.Error("probes without any")
	}
}

func TestRestartCountsFromZero(t *testing.T) {
	totals := [][]scene.Frame{{{Name: "gemm_a", Value: 9000, Samples: 90}}, {{Name: "gemm_a", Value: 500, Samples: 5}}}
	v := play(t, NewHistory(time.Second), func(n int) []byte {
		return profile(n, scene.Start+int64(n)*1e9, map[string][]scene.Frame{"1": totals[n-1]})
	}, 1, 2)
	near(t, "time", row(t, v, Kernels, "gemm_a").Time, 500)
	near(t, "calls", row(t, v, Kernels, "gemm_a").Calls, 5)
}

func TestSeriesThatAppearCountFromZero(t *testing.T) {
	v := play(t, NewHistory(2*time.Second), func(n int) []byte {
		processes := map[string][]scene.Frame{"1": {{Name: "a", Value: 1000 * uint64(n), Samples: uint64(n)}}}
		if n > 1 {
			processes["1"] = append(processes["1"], scene.Frame{Name: "b", Value: 300, Samples: 3})
			processes["2"] = []scene.Frame{{Name: "a", Value: 400, Samples: 4}}
		}
		return profile(n, scene.Start+int64(n)*1e9, processes)
	}, 1, 2, 3)
	near(t, "a", row(t, v, Kernels, "a").Time, 1000+200)
	near(t, "b", row(t, v, Kernels, "b").Time, 150)
	absent(t, "share without a GPU", row(t, v, Kernels, "a").Share)
}

// A writer lists 250 frames; one that drops out and returns must not look as if it had run all its total in the window.
func TestFrameThatReturnsToAFullList(t *testing.T) {
	list := func(n int) []byte {
		var frames []scene.Frame
		for i := range fullProfile - 1 {
			frames = append(frames, scene.Frame{Name: fmt.Sprint("f", i), Value: 10_000, Samples: 10})
		}
		last := scene.Frame{Name: "once", Value: 5_000, Samples: 5}
		switch n {
		case 2, 3:
			last = scene.Frame{Name: "other", Value: 6_000, Samples: 6}
		case 4:
			last = scene.Frame{Name: "once", Value: 6_100, Samples: 7}
		case 5:
			last = scene.Frame{Name: "new", Value: 6_250, Samples: 9}
		}
		return profile(n, scene.Start+int64(n)*1e9, map[string][]scene.Frame{"1": append(frames, last)})
	}
	v := play(t, NewHistory(time.Second), list, 1, 2, 3, 4)
	near(t, "once", row(t, v, Kernels, "once").Time, 1_100)
	near(t, "calls of once", row(t, v, Kernels, "once").Calls, 2)
	v = play(t, NewHistory(time.Second), list, 1, 2, 3, 4, 5)
	near(t, "new, beyond the least of the full list", row(t, v, Kernels, "new").Time, 150)
	absent(t, "calls of new", row(t, v, Kernels, "new").Calls)
}

// The writer's own times count: a read that just misses a write does not make a rate jump.
func TestRateUsesTheTimesOfMeasurement(t *testing.T) {
	doc := func(n int) []byte {
		written := int64(n) * 1e9
		if n == 6 {
			written = 5e9 // this second's write comes too late for the read
		}
		return profile(n, scene.Start+written, map[string][]scene.Frame{"1": {{Name: "a", Value: uint64(written / 2), Samples: uint64(written / 1e9)}}})
	}
	v := play(t, NewHistory(5*time.Second), doc, 1, 2, 3, 4, 5, 6)
	near(t, "time", row(t, v, Kernels, "a").Time, 5e8)
	near(t, "calls", row(t, v, Kernels, "a").Calls, 1)
	// A process that has ended keeps its totals: nothing was spent, over the whole window.
	v = play(t, NewHistory(5*time.Second), func(n int) []byte {
		return profile(n, scene.Start+1e9, map[string][]scene.Frame{"1": {{Name: "a", Value: 7, Samples: 7}}})
	}, 1, 2, 3, 4, 5, 6, 7)
	near(t, "time after the end", row(t, v, Kernels, "a").Time, 0)
}

func TestAnotherInstanceBeginsANewHistory(t *testing.T) {
	h := NewHistory(5 * time.Second)
	play(t, h, scene.Single, 1, 2)
	v := play(t, h, func(n int) []byte {
		d := scene.New(n)
		d.StartNS += 100e9
		d.Profile("cuda_kernels_nanoseconds", nil, []scene.Frame{{Name: "a", Value: 5, Samples: 1}})
		return d.JSON()
	}, 3)
	if v.Span.Rated() || row(t, v, Kernels, "a").Total != 5 {
		t.Errorf("%+v", v.Span)
	}
}

// Shards of one replica repeat its numbers (a reported way to count them twice, or to lose them).
func TestSGLangRanks(t *testing.T) {
	doc := func(n int) []byte {
		d := scene.New(n)
		for _, s := range []struct {
			dp, tp  string
			running float64
			tokens  uint64
		}{{"0", "0", 3, 1000}, {"0", "1", 3, 1000}, {"1", "0", 2, 400}, {"1", "1", 2, 400}} {
			tags := map[string]string{"dp_rank": s.dp, "model_name": "m1", "tp_rank": s.tp}
			d.Gauge("sglang:num_running_reqs", tags, s.running)
			d.Counter("sglang:generation_tokens", tags, s.tokens)
		}
		d.Counter("sglang:num_requests", map[string]string{"model_name": "m1"}, 12)
		return d.JSON()
	}
	e := play(t, NewHistory(0), doc, 1).Engines[0]
	near(t, "running", e.Running, 5)
	near(t, "tokens", e.TokenTotal, 1400)
	near(t, "requests", e.FinishedTotal, 12)
	absent(t, "waiting", e.Waiting)
}

func TestSGLangDataParallelAttentionAndPriorities(t *testing.T) {
	doc := func(n int) []byte {
		d := scene.New(n)
		for dp := range 4 { // with data-parallel attention, a replica's lowest rank is not 0
			d.Gauge("sglang:num_running_reqs", map[string]string{"dp_rank": fmt.Sprint(dp), "tp_rank": fmt.Sprint(2 * dp), "priority": ""}, 10)
			d.Gauge("sglang:num_running_reqs", map[string]string{"dp_rank": fmt.Sprint(dp), "tp_rank": fmt.Sprint(2*dp + 1), "priority": ""}, 10)
			d.Gauge("sglang:num_running_reqs", map[string]string{"dp_rank": fmt.Sprint(dp), "tp_rank": fmt.Sprint(2 * dp), "priority": "high"}, 4)
			d.Gauge("sglang:num_running_reqs", map[string]string{"dp_rank": fmt.Sprint(dp), "tp_rank": fmt.Sprint(2 * dp), "priority": "low"}, 6)
		}
		return d.JSON()
	}
	near(t, "running", play(t, NewHistory(0), doc, 1).Engines[0].Running, 40)
}

func TestEveryEngine(t *testing.T) {
	v := play(t, NewHistory(2*time.Second), func(n int) []byte {
		d := scene.New(n)
		d.VLLM()
		d.SGLang()
		d.TensorRT()
		d.LlamaCPP()
		return d.JSON()
	}, 10, 11, 12)
	if len(v.Engines) != 4 {
		t.Fatalf("engines: %+v", v.Engines)
	}
	near(t, "SGLang tokens/s", v.Engines[1].TokenRate, 700)
	near(t, "SGLang KV", v.Engines[1].KVUse, 0.4)
	near(t, "TensorRT-LLM finished/s", v.Engines[2].FinishedRate, 4)
	absent(t, "TensorRT-LLM running", v.Engines[2].Running)
	near(t, "llama.cpp tokens/s", v.Engines[3].TokenRate, 48)
	near(t, "llama.cpp running", v.Engines[3].Running, 1)
	absent(t, "llama.cpp TTFT", v.Engines[3].Latencies[0].P50)
	for _, e := range v.Engines {
		for _, l := range e.Latencies[:3] {
			if e.Name != "llama.cpp" && (!l.P50.OK || !l.P95.OK || !l.Mean.OK) {
				t.Errorf("%s %s: %+v", e.Name, l.Label, l)
			}
		}
	}
}

func TestUnifiedMemoryAndStaleGauges(t *testing.T) {
	v := play(t, NewHistory(0), func(n int) []byte {
		d := scene.New(n)
		tags := map[string]string{"device.bus_id": "0000000A:01:00.0"}
		d.Resource("device", tags, map[string]string{"device.name": "NVIDIA GB10"})
		d.Gauge("gpu_power_usage_watts", tags, 23.45)
		d.Gauge("gpu_utilization_percent", tags, 50)
		d.Metrics[len(d.Metrics)-1].UpdatedNS = d.Now() - 60e9
		return d.JSON()
	}, 100)
	g := v.GPUs[0]
	absent(t, "memory used", g.MemUsed)
	absent(t, "memory total", g.MemTotal)
	near(t, "power", g.Power, 23.45)
	absent(t, "utilization of a minute ago", g.Util)
	if !g.Measured || g.ThrottleKnown || len(g.Trend) != 0 {
		t.Errorf("%+v", g)
	}
}

func TestMIGInstancesShareOutTheTime(t *testing.T) {
	v := play(t, NewHistory(time.Second), func(n int) []byte {
		d := scene.New(n)
		d.Resource("device", map[string]string{"device.uuid": "GPU-a"}, map[string]string{"device.name": "NVIDIA H200"})
		for _, id := range []string{"MIG-1", "MIG-2"} {
			d.Resource("device", map[string]string{"device.uuid": id}, map[string]string{"device.name": "MIG 3g.71gb", "device.parent_uuid": "GPU-a"})
		}
		d.Profile("cuda_kernels_nanoseconds", nil, []scene.Frame{{Name: "a", Value: uint64(n) * 1e9, Samples: 1}})
		return d.JSON()
	}, 1, 2)
	if len(v.GPUs) != 3 {
		t.Errorf("%d devices", len(v.GPUs))
	}
	near(t, "share", row(t, v, Kernels, "a").Share, 0.5)
}

// The partitions of a board come after it, in their order.
func TestPartitionsFollowTheirBoard(t *testing.T) {
	v := play(t, NewHistory(time.Second), func(n int) []byte {
		d := scene.New(n)
		for _, tags := range []map[string]string{
			{"device.bus_id": "0000:0c:00.0", "device.uuid": "b", "device.partition": "10"},
			{"device.bus_id": "0000:0c:00.0", "device.uuid": "b", "device.partition": "2"},
			{"device.bus_id": "0000:0c:00.0", "device.uuid": "b"},
			{"device.bus_id": "0000:0b:00.0", "device.uuid": "z"},
		} {
			d.Gauge("gpu_memory_used_bytes", tags, 1e9)
		}
		return d.JSON()
	}, 1, 2)
	var order []string
	for _, g := range v.GPUs {
		order = append(order, g.UUID+g.Partition)
	}
	if got := strings.Join(order, " "); got != "z b b2 b10" {
		t.Errorf("the rows are %s", got)
	}
}

func TestROCm(t *testing.T) {
	v := play(t, NewHistory(time.Second), func(n int) []byte {
		d := scene.New(n)
		d.GPU(0, 0.5)
		tags := map[string]string{"process.pid": "7"}
		d.Profile("rocm_kernels_nanoseconds", tags, []scene.Frame{{Name: "Cijk_Alik_Bljk_BBS_BH_MT256x208x64.kd", Value: uint64(n) * 2e8, Samples: uint64(n) * 100}})
		d.Profile("rocm_memcpy_nanoseconds", tags, []scene.Frame{{Name: "host_to_device", Value: uint64(n) * 1e6, Samples: uint64(n)}})
		d.Profile("rocm_sync_nanoseconds", tags, []scene.Frame{{Name: "hipStreamSynchronize", Value: uint64(n) * 1e6, Samples: uint64(n)}})
		d.Counter("rocm_memcpy_bytes", map[string]string{"process.pid": "7", "kind": "host_to_device"}, uint64(n)*4096)
		d.Gauge("rocm_kernels_unlisted_nanoseconds", tags, float64(n)*1000)
		d.Gauge("rocm_kernel_trace_mode", tags, 1)
		d.Counter("rocm_dropped_records_total", tags, 2)
		return d.JSON()
	}, 1, 2)
	near(t, "kernel", row(t, v, Kernels, "Tensile gemm bf16").Share, 0.2)
	near(t, "bytes", row(t, v, Memory, "copy host_to_device").Bytes, 4096)
	near(t, "sync", row(t, v, Sync, "hipStreamSynchronize").Time, 1e6)
	near(t, "beyond the list", v.Tables[Kernels].Unlisted, 1000)
	if v.Header.KernelTraceOff || len(v.Warnings) != 1 {
		t.Errorf("trace off: %v, warnings %q", v.Header.KernelTraceOff, v.Warnings)
	}
}

func TestWarnings(t *testing.T) {
	v := play(t, NewHistory(0), func(n int) []byte {
		d := scene.New(n)
		d.Counter("cuda_dropped_records_total", map[string]string{"process.pid": "1"}, 30)
		d.Counter("cuda_dropped_records_total", map[string]string{"process.pid": "2"}, 7)
		d.Gauge("cuda_trace_suspended", nil, 1)
		d.Gauge("cuda_graph_trace_mode", map[string]string{"process.pid": "1"}, 0)
		d.Gauge("cuda_graph_trace_mode", map[string]string{"process.pid": "2"}, 1)
		return d.JSON()
	}, 1)
	if len(v.Warnings) != 2 || v.Warnings[1] != "37 activity records were dropped" || v.Header.GraphTrace != "mixed" {
		t.Errorf("%q, graph trace %q", v.Warnings, v.Header.GraphTrace)
	}
}

func TestDocumentThatStandsStill(t *testing.T) {
	frozen := func(int) []byte { return scene.Single(60) }
	if v := play(t, NewHistory(0), frozen, 1, 2, 14); len(v.Warnings) != 1 || v.Warnings[0] != "the document has not changed for 13 s" {
		t.Errorf("%q", v.Warnings)
	}
	silent := func(n int) []byte {
		return profile(n, scene.Start+1e9, map[string][]scene.Frame{"1": {{Name: "a", Value: 1, Samples: 1}}})
	}
	if v := play(t, NewHistory(0), silent, 13); len(v.Warnings) != 1 || v.Warnings[0] != "nothing was measured in the last 12 s" {
		t.Errorf("%q", v.Warnings)
	}
	if v := play(t, NewHistory(0), silent, 9); len(v.Warnings) != 0 {
		t.Errorf("%q", v.Warnings)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := NewHistory(MaxWindow)
	origin := time.Now()
	for n := range 3 * maxTrend {
		doc, err := endpoint.Decode(scene.Single(n + 1))
		if err != nil {
			t.Fatal(err)
		}
		if n%100 == 50 {
			h.SetWindow(time.Second * time.Duration(n%7))
		}
		h.Add(doc, origin.Add(time.Duration(n)*time.Second))
	}
	if len(h.reads) > maxReads {
		t.Errorf("%d reads kept", len(h.reads))
	}
	for key, line := range h.trends {
		if len(line) > maxTrend {
			t.Errorf("trend %q has %d points", key, len(line))
		}
	}
	// An hour's window reaches back as far as there are reads, however they were thinned out.
	h = NewHistory(MaxWindow)
	for n := range 1000 {
		doc, err := endpoint.Decode(scene.Single(n + 1))
		if err != nil {
			t.Fatal(err)
		}
		h.Add(doc, origin.Add(time.Duration(n)*time.Second))
	}
	if v, _ := h.View(); v.Span.Length != 999*time.Second {
		t.Errorf("the window is %v long after 1000 s", v.Span.Length)
	}
}

func TestClockSetBack(t *testing.T) {
	h := NewHistory(2 * time.Second)
	v := play(t, h, func(n int) []byte {
		d := scene.New(n)
		if n == 3 {
			d.Tick = -50
		}
		d.Profile("cuda_kernels_nanoseconds", nil, []scene.Frame{{Name: "a", Value: uint64(n) * 1000, Samples: 1}})
		return d.JSON()
	}, 1, 2, 3)
	near(t, "time by our own clock", row(t, v, Kernels, "a").Time, 1000)
}
