package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// rule says where nvidia-smi has a metric, and how far apart the two may be: they are not read at the same instant, and
// nvidia-smi rounds.
type rule struct {
	metric string
	smi    func(smiGPU) (float64, bool)
	// absolute and relative are the least tolerances; the values before and after nvidia-smi's span the rest.
	absolute, relative float64
}

func at(paths ...string) func(smiGPU) (float64, bool) {
	return func(g smiGPU) (float64, bool) { return g.number(paths...) }
}

// mib turns MiB into bytes.
func mib(paths ...string) func(smiGPU) (float64, bool) {
	return func(g smiGPU) (float64, bool) {
		n, ok := g.number(paths...)
		return n * (1 << 20), ok
	}
}

// sum adds up paths that are all there.
func sum(paths ...string) func(smiGPU) (float64, bool) {
	return func(g smiGPU) (float64, bool) {
		var total float64
		for _, p := range paths {
			n, ok := g.number(p)
			if !ok {
				return 0, false
			}
			total += n
		}
		return total, true
	}
}

var rules = []rule{
	{metric: "gpu_memory_total_bytes", smi: mib("fb_memory_usage/total"), absolute: 1 << 20},
	{metric: "gpu_memory_reserved_bytes", smi: mib("fb_memory_usage/reserved"), absolute: 1 << 20},
	{metric: "gpu_memory_used_bytes", smi: mib("fb_memory_usage/used"), absolute: 1 << 20},
	{metric: "gpu_memory_free_bytes", smi: mib("fb_memory_usage/free"), absolute: 1 << 20},
	// Ours is the mean of the samples of a second, nvidia-smi's the last period of the driver.
	{metric: "gpu_utilization_percent", smi: at("utilization/gpu_util"), absolute: 15},
	{metric: "gpu_memory_utilization_percent", smi: at("utilization/memory_util"), absolute: 15},
	{metric: "gpu_encoder_utilization_percent", smi: at("utilization/encoder_util"), absolute: 5},
	{metric: "gpu_decoder_utilization_percent", smi: at("utilization/decoder_util"), absolute: 5},
	{metric: "gpu_temperature_celsius", smi: at("temperature/gpu_temp"), absolute: 1},
	{metric: "gpu_power_usage_watts", smi: at("gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw", "power_readings/power_draw"), absolute: 5, relative: 0.05},
	{metric: "gpu_power_management_limit_watts", smi: at("gpu_power_readings/current_power_limit", "power_readings/power_limit"), absolute: 0.01},
	{metric: "gpu_fan_speed_percent", smi: at("fan_speed"), absolute: 2},
	{metric: "gpu_clock_sm_megahertz", smi: at("clocks/sm_clock"), absolute: 45},
	{metric: "gpu_clock_mem_megahertz", smi: at("clocks/mem_clock"), absolute: 1},
	{metric: "gpu_max_clock_sm_megahertz", smi: at("max_clocks/sm_clock")},
	{metric: "gpu_clocks_throttle_reasons", smi: smiGPU.reasons},
	{metric: "gpu_performance_state", smi: at("performance_state")},
	{metric: "gpu_pcie_link_generation", smi: at("pci/pci_gpu_link_info/pcie_gen/current_link_gen")},
	{metric: "gpu_pcie_link_width", smi: at("pci/pci_gpu_link_info/link_widths/current_link_width")},
	{metric: "gpu_pcie_replay_counter", smi: at("pci/replay_counter")},
	{metric: "gpu_ecc_errors_corrected_volatile", smi: sum("ecc_errors/volatile/sram_correctable", "ecc_errors/volatile/dram_correctable")},
	{metric: "gpu_ecc_errors_uncorrected_volatile", smi: sum("ecc_errors/volatile/sram_uncorrectable_parity", "ecc_errors/volatile/sram_uncorrectable_secded", "ecc_errors/volatile/dram_uncorrectable")},
	{metric: "gpu_ecc_errors_corrected_aggregate", smi: sum("ecc_errors/aggregate/sram_correctable", "ecc_errors/aggregate/dram_correctable")},
	{metric: "gpu_ecc_errors_uncorrected_aggregate", smi: sum("ecc_errors/aggregate/sram_uncorrectable_parity", "ecc_errors/aggregate/sram_uncorrectable_secded", "ecc_errors/aggregate/dram_uncorrectable")},
	{metric: "gpu_nvlink_link_count", smi: at("nvlink/links")},
	{metric: "gpu_nvlink_active_links", smi: at("nvlink/links")},
	{metric: "gpu_nvlink_errors_replay", smi: at("nvlink/Replay Errors")},
	{metric: "gpu_nvlink_errors_recovery", smi: at("nvlink/Recovery Errors")},
	{metric: "gpu_nvlink_errors_crc", smi: at("nvlink/CRC Errors")},
	// These are read every 10 s, and may be that old.
	{metric: "gpu_nvlink_throughput_data_tx_kibibytes", smi: at("nvlink/Data Tx"), absolute: 1024, relative: 0.05},
	{metric: "gpu_nvlink_throughput_data_rx_kibibytes", smi: at("nvlink/Data Rx"), absolute: 1024, relative: 0.05},
	{metric: "gpu_nvlink_throughput_raw_tx_kibibytes", smi: at("nvlink/Raw Tx"), absolute: 10240, relative: 0.05},
	{metric: "gpu_nvlink_throughput_raw_rx_kibibytes", smi: at("nvlink/Raw Rx"), absolute: 10240, relative: 0.05},
}

// Throughput is sampled by nvidia-smi in windows of 20 ms, ours is a mean: shown, not judged. The same holds for
// counters that nvidia-smi -q does not have.
var shown = []rule{
	{metric: "gpu_pcie_throughput_tx_kilobytes_per_second", smi: at("pci/tx_util")},
	{metric: "gpu_pcie_throughput_rx_kilobytes_per_second", smi: at("pci/rx_util")},
}

// report collects the comparisons of a phase. A metric is in order when it agrees in most rounds: a load changes between
// the readings.
type report struct {
	rounds int
	lines  map[string]*line
}

type line struct {
	agreed, compared int
	judged           bool
	last             string
}

func newReport() *report { return &report{lines: make(map[string]*line)} }

func (r *report) add(before map[string]signals, smi map[string]smiGPU, after map[string]signals) {
	r.rounds++
	for id, gpu := range smi {
		judged := slices.Clone(rules)
		for key := range gpu {
			if strings.HasPrefix(key, "process{") {
				judged = append(judged, rule{metric: "gpu_process_memory_bytes" + strings.TrimPrefix(key, "process"), smi: mib(key), absolute: 1 << 20})
			}
		}
		for _, rl := range judged {
			r.compare(id, rl, before[id], gpu, after[id], true)
		}
		for _, rl := range shown {
			r.compare(id, rl, before[id], gpu, after[id], false)
		}
		known := slices.Concat(judged, shown)
		for metric, v := range after[id] {
			if !slices.ContainsFunc(known, func(rl rule) bool { return rl.metric == metric }) {
				l := r.line(id, metric)
				l.last = fmt.Sprintf("%14.2f then %14.2f, not in nvidia-smi -q", before[id][metric], v)
			}
		}
	}
}

func (r *report) line(id, metric string) *line {
	key := id + " " + metric
	if r.lines[key] == nil {
		r.lines[key] = &line{}
	}
	return r.lines[key]
}

func (r *report) compare(id string, rl rule, before signals, gpu smiGPU, after signals, judged bool) {
	theirs, there := rl.smi(gpu)
	a, hasA := before[rl.metric]
	b, hasB := after[rl.metric]
	if !there && !hasA && !hasB {
		return // not supported, and absent
	}
	l := r.line(id, rl.metric)
	l.judged = judged
	l.compared++
	tolerance := max(rl.absolute, rl.relative*math.Abs(theirs))
	if there && hasA && hasB && theirs >= min(a, b)-tolerance && theirs <= max(a, b)+tolerance {
		l.agreed++
	}
	text := func(v float64, has bool) string {
		if !has {
			return fmt.Sprintf("%14s", "absent")
		}
		return fmt.Sprintf("%14.2f", v)
	}
	l.last = text(a, hasA) + " then " + text(b, hasB) + ", nvidia-smi " + text(theirs, there)
}

// print shows the comparisons and returns how many differ.
func (r *report) print() int {
	differ := 0
	for _, key := range slices.Sorted(maps.Keys(r.lines)) {
		l := r.lines[key]
		verdict := "      "
		if l.judged {
			verdict = "ok    "
			if 2*l.agreed <= l.compared {
				verdict = "DIFFER"
				differ++
			}
		}
		fmt.Printf("%s %d/%d %-64s %s\n", verdict, l.agreed, l.compared, key, l.last)
	}
	return differ
}
