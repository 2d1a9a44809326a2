// Package scene makes up /signals documents of busy machines, one per second of a scene, and serves them to tests of the
// live view.
package scene

import (
	"encoding/json"
	"fmt"
	"math"
	"sort"
)

// Start is when every scene's profiler started, in epoch ns.
const Start = int64(1_790_000_000_000_000_000)

// Document is a /signals document under construction.
type Document struct {
	Tick      int
	StartNS   int64
	Instance  string
	Version   string
	Metrics   []Metric
	Errors    []map[string]any
	Resources []map[string]any
	Context   map[string]string
}

// Metric is one metric record.
type Metric struct {
	Name      string            `json:"name"`
	Type      string            `json:"type"`
	Tags      map[string]string `json:"tags"`
	Stats     map[string]any    `json:"stats"`
	UpdatedNS int64             `json:"updated_ns"`
}

// Frame is one entry of a profile.
type Frame struct {
	Name    string `json:"name"`
	Value   uint64 `json:"value"`
	Samples uint64 `json:"samples"`
}

// New begins the document of one second of a scene.
func New(tick int) *Document {
	return &Document{
		Tick: tick, StartNS: Start, Instance: "5f0c9a1be772", Version: "0.1.0",
		Context: map[string]string{"host.name": "gpu-07"},
	}
}

// Now is the document's time, epoch ns.
func (d *Document) Now() int64 { return d.StartNS + int64(d.Tick)*1e9 }

func (d *Document) add(name, kind string, tags map[string]string, stats map[string]any) {
	if tags == nil {
		tags = map[string]string{}
	}
	d.Metrics = append(d.Metrics, Metric{name, kind, tags, stats, d.Now() - 100e6})
}

// Gauge adds a gauge.
func (d *Document) Gauge(name string, tags map[string]string, v float64) {
	d.add(name, "gauge", tags, map[string]any{"value": v})
}

// Counter adds a counter.
func (d *Document) Counter(name string, tags map[string]string, total uint64) {
	d.add(name, "counter", tags, map[string]any{"total": total})
}

// Histogram adds a histogram with totals and quantiles.
func (d *Document) Histogram(name string, tags map[string]string, count uint64, sum, p50, p95 float64) {
	var mean any
	if count > 0 {
		mean = sum / float64(count)
	}
	d.add(name, "histogram", tags, map[string]any{"count": count, "sum": sum, "min": nil, "max": nil, "mean": mean, "p50": p50, "p95": p95})
}

// Profile adds a profile.
func (d *Document) Profile(name string, tags map[string]string, frames []Frame) {
	if frames == nil {
		frames = []Frame{}
	}
	sort.SliceStable(frames, func(i, j int) bool { return frames[i].Value > frames[j].Value })
	d.add(name, "profile", tags, map[string]any{"frames": frames})
}

// Error adds an entry that is age seconds old.
func (d *Document) Error(level, message string, age float64, tags map[string]any) {
	d.Errors = append(d.Errors, map[string]any{
		"level": level, "message": message, "exception": nil, "tags": tags, "log_ns": d.Now() - int64(age*1e9),
	})
}

// Resource adds a resource.
func (d *Document) Resource(kind string, tags, attributes map[string]string) {
	d.Resources = append(d.Resources, map[string]any{
		"kind": kind, "tags": tags, "attributes": attributes, "first_seen_ts": d.StartNS / 1e9, "last_seen_ts": d.Now() / 1e9,
	})
}

// JSON is the document as the endpoint sends it.
func (d *Document) JSON() []byte {
	sort.SliceStable(d.Metrics, func(i, j int) bool { return d.Metrics[i].Name < d.Metrics[j].Name })
	list := func(v []map[string]any) []map[string]any {
		if v == nil {
			return []map[string]any{}
		}
		return v
	}
	context := map[string]string{"instance.id": d.Instance}
	for k, v := range d.Context {
		context[k] = v
	}
	body, err := json.Marshal(map[string]any{
		"profiler": map[string]any{"version": d.Version}, "payload_ns": d.Now(), "start_ns": d.StartNS,
		"context": context, "metrics": d.Metrics, "errors": list(d.Errors), "resources": list(d.Resources),
	})
	if err != nil {
		panic(err) // values made here
	}
	return body
}

// GPU adds the telemetry of one H200 at a load between 0 and 1.
func (d *Document) GPU(i int, load float64) {
	tags := map[string]string{
		"device.bus_id": fmt.Sprintf("00000000:%02X:00.0", 0x10+i*0x11), "device.uuid": fmt.Sprintf("GPU-%08x-ee1c-bf09-b577-0f480718bcdc", i),
	}
	d.Resource("device", tags, map[string]string{
		"device.name": "NVIDIA H200", "architecture": "Hopper", "compute_capability": "9.0", "mem_total": "150754820096",
	})
	d.Gauge("gpu_utilization_percent", tags, math.Round(load*1000)/10)
	d.Gauge("gpu_memory_used_bytes", tags, 128e9+float64(i)*1e9)
	d.Gauge("gpu_memory_total_bytes", tags, 150754820096)
	d.Gauge("gpu_power_usage_watts", tags, 120+load*560)
	d.Gauge("gpu_power_management_limit_watts", tags, 700)
	d.Gauge("gpu_temperature_celsius", tags, math.Round(38+load*30))
	d.Gauge("gpu_clock_sm_megahertz", tags, 1980)
	d.Gauge("gpu_clock_mem_megahertz", tags, 3201)
	d.Gauge("gpu_pcie_throughput_tx_kilobytes_per_second", tags, math.Round(1.6e6*load))
	d.Gauge("gpu_pcie_throughput_rx_kilobytes_per_second", tags, math.Round(0.6e6*load))
	mask := 0.0
	switch {
	case i == 2:
		mask = 0x4 | 0x40
	case load > 0.97:
		mask = 0x4
	case load < 0.05:
		mask = 0x1
	}
	d.Gauge("gpu_clocks_throttle_reasons", tags, mask)
	xid := uint64(0)
	if i == 5 {
		xid = 2
	}
	d.Counter("gpu_xid_critical_errors", tags, xid)
}

// decodeKernels is the kernel mix of a decoding engine: symbol, ns per second and calls per second of each GPU's process.
var decodeKernels = []struct {
	symbol string
	ns     uint64
	calls  uint64
}{
	{"nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", 212_400_000, 4_960},
	{"nvjet_tst_64x8_64x16_2x1_v_bz_splitK_TNT", 161_000_000, 9_920},
	{"void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cute::tuple<cute::C<128>, cute::C<176>, cute::C<128> >, 128, cutlass::bfloat16_t, float, cutlass::arch::Sm90> > > >(flash::Params)", 143_200_000, 4_960},
	{"_ZN5flash24flash_fwd_splitkv_kernelI23Flash_fwd_kernel_traitsILi64ELi64ELi256ELi4ELb0ELb0EN7cutlass6half_tE19Flash_kernel_traitsILi64ELi64ELi256ELi4ES3_EELb1ELb0ELb0ELb0ELb0ELb0ELb0ELb0EEEvNS_16Flash_fwd_paramsE", 61_000_000, 2_480},
	{"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 58_300_000, 4_960},
	{"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*, __nv_bfloat16*, int, int)", 41_900_000, 9_920},
	{"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_9", 22_100_000, 4_960},
	{"_ZN4vllm25fused_add_rms_norm_kernelIN3c108BFloat16EEEvPT_S4_PKS3_fii", 17_600_000, 9_920},
	{"_ZN4vllm18act_and_mul_kernelIN3c108BFloat16EXadL_ZNS_11silu_kernelIS2_EET_RKS4_EELb1EEEvPS4_PS5_i", 14_800_000, 4_960},
	{"_ZN4vllm30reshape_and_cache_flash_kernelI13__nv_bfloat16S1_LNS_18Fp8KVCacheDataTypeE0EEEvPKT_S5_PT0_S7_PKlliiiiiPKfS9_", 9_700_000, 4_960},
	{"_ZN4vllm23rotary_embedding_kernelIN3c108BFloat16ELb1EEEvPKlPT_S6_PKS5_illliii", 7_200_000, 4_960},
	{"void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn>(c10::Float8_e4m3fn*, float*, c10::BFloat16 const*, float const*, int)", 6_100_000, 9_920},
	{"void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, (cub::BlockScanAlgorithm)2, (cub::BlockReduceAlgorithm)2, 4u, true, float, int>(float*, float*, float*, int*)", 3_900_000, 62},
	{"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIN3c108BFloat16ENS0_9ArgMaxOpsIfEEjlLi4ELi4EEEEEvT1_", 2_400_000, 62},
	{"void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)", 1_300_000, 62},
	{"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)", 900_000, 124},
}

// Process adds one GPU process with its profiles; scale shares out the load.
func (d *Document) Process(pid, rank int, command string, scale float64) {
	t := uint64(d.Tick)
	tags := map[string]string{"process.pid": fmt.Sprint(pid), "process.rank": fmt.Sprint(rank)}
	of := func(perSecond uint64) uint64 { return uint64(float64(perSecond)*scale) * t }
	var frames []Frame
	for _, k := range decodeKernels {
		frames = append(frames, Frame{k.symbol, of(k.ns), of(k.calls)})
	}
	d.Profile("cuda_kernels_nanoseconds", tags, frames)
	d.Profile("cuda_graphs_nanoseconds", tags, []Frame{
		{"bcbe59da48b1ff0f", of(153_000_000), of(58)}, {"594c7cdc15c509c8", of(21_000_000), of(11)},
	})
	d.Profile("cuda_memcpy_nanoseconds", tags, []Frame{
		{"host_to_device", of(1_900_000), of(240)}, {"device_to_host", of(700_000), of(120)}, {"device_to_device", of(300_000), of(62)},
	})
	d.Profile("cuda_memset_nanoseconds", tags, []Frame{{"device", of(110_000), of(62)}})
	d.Profile("cuda_sync_nanoseconds", tags, []Frame{{"event", of(71_000_000), of(62)}, {"stream", of(4_200_000), of(31)}})
	kind := func(k string) map[string]string {
		return map[string]string{"process.pid": fmt.Sprint(pid), "process.rank": fmt.Sprint(rank), "kind": k}
	}
	d.Counter("cuda_memcpy_bytes", kind("host_to_device"), of(48_000_000))
	d.Counter("cuda_memcpy_bytes", kind("device_to_host"), of(3_000_000))
	d.Counter("cuda_memcpy_bytes", kind("device_to_device"), of(410_000_000))
	d.Counter("cuda_memset_bytes", kind("device"), of(9_000_000))
	d.Gauge("cuda_graph_trace_mode", tags, 0)
	d.Counter("cuda_dropped_records_total", tags, 0)
	d.Gauge("cuda_kernels_unlisted_nanoseconds", tags, float64(of(120_000)))
	d.Resource("process", map[string]string{"process.pid": fmt.Sprint(pid), "process.root_pid": "4242"}, map[string]string{"process.command_line": command})
}

func round(v float64) uint64 { return uint64(math.Round(v)) }

// VLLM adds an engine page of vLLM with two data-parallel engines.
func (d *Document) VLLM() {
	t := float64(d.Tick)
	for e, share := range []float64{0.6, 0.4} {
		tags := map[string]string{"engine": fmt.Sprint(e), "model_name": "meta-llama/Llama-3.3-70B-Instruct"}
		with := func(k, v string) map[string]string {
			m := map[string]string{k: v}
			for a, b := range tags {
				m[a] = b
			}
			return m
		}
		d.Gauge("vllm:num_requests_running", tags, math.Round(64*share))
		d.Gauge("vllm:num_requests_waiting", tags, float64(2*e+1))
		d.Gauge("vllm:kv_cache_usage_perc", tags, 0.412-0.1*float64(e))
		d.Counter("vllm:prompt_tokens", tags, round(4_100*share*t))
		d.Counter("vllm:generation_tokens", tags, round(3_720*share*t))
		d.Counter("vllm:request_success", with("finished_reason", "stop"), round(5*share*t))
		d.Counter("vllm:request_success", with("finished_reason", "length"), round(share*t))
		d.Counter("vllm:num_preemptions", tags, uint64(e))
		d.Histogram("vllm:time_to_first_token_seconds", tags, round(6*share*t), 0.21*math.Round(6*share*t), 0.25, 0.5)
		d.Histogram("vllm:request_time_per_output_token_seconds", tags, round(6*share*t), 0.0172*math.Round(6*share*t), 0.025, 0.05)
		d.Histogram("vllm:e2e_request_latency_seconds", tags, round(6*share*t), 11.8*math.Round(6*share*t), 10, 20)
		d.Histogram("vllm:request_queue_time_seconds", tags, round(6*share*t), 0.012*math.Round(6*share*t), 0.3, 0.3)
	}
}

// SGLang adds an engine page of SGLang: two replicas of two shards each, which repeat each other.
func (d *Document) SGLang() {
	t := float64(d.Tick)
	for dp, running := range []float64{3, 2} {
		for tp := range 2 {
			tags := map[string]string{"dp_rank": fmt.Sprint(dp), "tp_rank": fmt.Sprint(tp), "pp_rank": "0", "model_name": "m1", "engine_type": "unified"}
			d.Gauge("sglang:num_running_reqs", tags, running)
			d.Gauge("sglang:num_queue_reqs", tags, 0)
			d.Gauge("sglang:token_usage", tags, 0.3+0.1*float64(dp))
			d.Gauge("sglang:gen_throughput", tags, 300+100*float64(dp))
			d.Counter("sglang:prompt_tokens", tags, round(100*t))
			d.Counter("sglang:generation_tokens", tags, round(float64([]int{500, 200}[dp])*t))
		}
	}
	tags := map[string]string{"model_name": "m1"}
	d.Counter("sglang:num_requests", tags, round(2*t))
	d.Histogram("sglang:time_to_first_token_seconds", tags, round(2*t), 0.08*math.Round(2*t), 0.1, 0.2)
	d.Histogram("sglang:inter_token_latency_seconds", tags, round(700*t), 0.006*math.Round(700*t), 0.008, 0.015)
	d.Histogram("sglang:e2e_request_latency_seconds", tags, round(2*t), 1.9*math.Round(2*t), 2, 4)
}

// TensorRT adds an engine page of TensorRT-LLM as its older releases have it: few series.
func (d *Document) TensorRT() {
	t := float64(d.Tick)
	tags := map[string]string{"model_name": "undefined", "engine_type": "undefined"}
	d.Counter("trtllm_request_success", map[string]string{"model_name": "undefined", "engine_type": "undefined", "finished_reason": "stop"}, round(4*t))
	d.Histogram("trtllm_time_to_first_token_seconds", tags, round(4*t), 0.05*math.Round(4*t), 0.06, 0.1)
	d.Histogram("trtllm_time_per_output_token_seconds", tags, round(4*t), 0.012*math.Round(4*t), 0.025, 0.025)
	d.Histogram("trtllm_e2e_request_latency_seconds", tags, round(4*t), 3*math.Round(4*t), 2.5, 5)
}

// LlamaCPP adds an engine page of llama.cpp: no labels, no histograms.
func (d *Document) LlamaCPP() {
	t := float64(d.Tick)
	d.Gauge("llamacpp:requests_processing", nil, 1)
	d.Gauge("llamacpp:requests_deferred", nil, 0)
	d.Gauge("llamacpp:predicted_tokens_seconds", nil, 48.5)
	d.Counter("llamacpp:prompt_tokens", nil, round(12*t))
	d.Counter("llamacpp:tokens_predicted", nil, round(48*t))
}

// Load is a GPU's utilization at a tick, between 0 and 1: it goes up and down so that a trend shows.
func Load(i, tick int) float64 {
	return 0.78 + 0.2*math.Sin(float64(tick)/6+float64(i))
}

// Serving is a vLLM server on eight GPUs, one process each.
func Serving(tick int) []byte {
	d := New(tick)
	d.Resource("host", map[string]string{}, map[string]string{"platform.name": "Linux", "profiler.version": "0.1.0"})
	command := "/usr/bin/python3 /usr/local/bin/vllm serve meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size 4 --data-parallel-size 2 --port 8001"
	d.Resource("process", map[string]string{"process.pid": "4242", "process.root_pid": "4242"}, map[string]string{"process.command_line": command})
	for i := range 8 {
		d.GPU(i, Load(i, tick))
		d.Process(4300+i, i, fmt.Sprintf("VLLM::Worker_TP%d", i%4), 1-0.02*float64(i))
	}
	d.Gauge("host_memory_usage_bytes", nil, 312e9)
	d.VLLM()
	d.Error("warning", "Graphsignal 0.1.0: the engine's metrics page answered late", 75, map[string]any{"scope.name": "profiler"})
	d.Error("error", "XID error 31", 33, map[string]any{"device.bus_id": "00000000:65:00.0"})
	d.Error("error", "EngineCore encountered a fatal error: CUDA out of memory. Tried to allocate 2.00 GiB.", 12,
		map[string]any{"process.pid": "4301", "scope.name": "workload", "stream": "stderr"})
	return d.JSON()
}

// Single is a PyTorch loop on one GPU with a probe, without an engine or errors.
func Single(tick int) []byte {
	d := New(tick)
	d.Profile("train_parts_nanoseconds", map[string]string{"process.pid": "4242"}, []Frame{
		{"forward", uint64(tick) * 310_000_000, uint64(tick) * 4}, {"data loading", uint64(tick) * 42_000_000, uint64(tick) * 4},
	})
	d.Process(4242, 0, "python train.py", 1)
	d.GPU(0, Load(0, tick))
	return d.JSON()
}
