package amdsmireceiver

import (
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/smi"
)

// reading is what was read of a device in one go.
type reading struct {
	device *device
	values []value
	// memoryTotal is 0 where it is not known.
	memoryTotal uint64
	// answered says that any call was.
	answered bool
}

// value is one series' value.
type value struct {
	name string
	kind series.Type // Gauge or Counter
	num  series.Number
}

func (r *reading) gauge(name string, v series.Number) {
	r.values = append(r.values, value{name, series.Gauge, v})
}

func (r *reading) counter(name string, v uint64) {
	r.values = append(r.values, value{name, series.Counter, series.Uint(v)})
}

// plain are the values of the metrics structure that are published as they are.
var plain = []struct {
	field smi.Field
	name  string
	kind  series.Type
}{
	{smi.ThrottleStatus, "gpu_throttle_status_raw", series.Gauge},
	{smi.PCIeBandwidth, "gpu_pcie_bandwidth_megabits_per_second", series.Gauge},
	{smi.PCIeWidth, "gpu_pcie_link_width", series.Gauge},
	{smi.XGMIWidth, "gpu_xgmi_link_width", series.Gauge},
	{smi.XGMISpeed, "gpu_xgmi_link_speed", series.Gauge},
	{smi.AccumulationCycles, "gpu_throttle_accumulation_cycles", series.Counter},
	{smi.ProchotResidency, "gpu_throttle_prochot_residency", series.Counter},
	{smi.PPTResidency, "gpu_throttle_ppt_residency", series.Counter},
	{smi.SocketThermalResidency, "gpu_throttle_socket_thermal_residency", series.Counter},
	{smi.VRThermalResidency, "gpu_throttle_vr_thermal_residency", series.Counter},
	{smi.HBMThermalResidency, "gpu_throttle_hbm_thermal_residency", series.Counter},
}

// read reads a device. Fallbacks are asked only for what is missing.
func read(l *smi.Library, d *device, now time.Time) *reading {
	r := &reading{device: d}
	ask := func(call string, f func() smi.Status) bool {
		if !d.may(call, now) {
			return false
		}
		ok := d.note(call, f(), now)
		r.answered = r.answered || ok
		return ok
	}
	r.memory(l, ask)
	if d.partition > 0 {
		return r // its sensors are the board's, or none
	}
	// The structure lies in the library's buffer, which the next call overwrites.
	var m smi.Metrics
	ask("metrics", func() smi.Status {
		buffer, ret := l.Metrics(d.handle)
		if ret == smi.Success {
			m = append(m, buffer...)
		}
		return ret
	})
	for _, p := range plain {
		if v, ok := m.Get(p.field); ok {
			r.values = append(r.values, value{p.name, p.kind, series.Uint(v)})
		}
	}
	if status, ok := m.Get(smi.ThrottleStatus); ok {
		r.gauge("gpu_clocks_throttle_reasons", series.Uint(smi.NVMLReasons(status)))
	}
	if speed, ok := m.Get(smi.PCIeSpeed); ok {
		if generation, ok := smi.PCIeGeneration(speed); ok {
			r.gauge("gpu_pcie_link_generation", series.Uint(generation))
		}
	}
	readKB, writtenKB, readOK, writtenOK := m.XGMI()
	if readOK {
		r.counter("gpu_xgmi_read_kilobytes", readKB)
	}
	if writtenOK {
		r.counter("gpu_xgmi_write_kilobytes", writtenKB)
	}
	r.utilization(l, m, ask)
	r.temperatures(l, m, ask)
	r.power(l, m, ask)
	r.clocks(l, m, ask)
	r.errors(l, m, ask)
	return r
}

// asker makes a call unless it is known to be in vain, and reports whether it was answered.
type asker func(call string, f func() smi.Status) bool

func (r *reading) memory(l *smi.Library, ask asker) {
	var total, used uint64
	h := r.device.handle
	haveTotal := ask("memory_total", func() (ret smi.Status) { total, ret = l.MemoryTotal(h); return ret }) && smi.Available(total)
	haveUsed := ask("memory_usage", func() (ret smi.Status) { used, ret = l.MemoryUsed(h); return ret }) && smi.Available(used)
	if !haveTotal || !haveUsed {
		var totalMiB, usedMiB uint64
		if ask("vram_usage", func() (ret smi.Status) { totalMiB, usedMiB, ret = l.VRAM(h); return ret }) {
			if !haveTotal && smi.Available(totalMiB) {
				total, haveTotal = totalMiB<<20, true
			}
			if !haveUsed && smi.Available(usedMiB) {
				used, haveUsed = usedMiB<<20, true
			}
		}
	}
	haveTotal = haveTotal && total > 0
	if haveTotal {
		r.memoryTotal = total
		r.gauge("gpu_memory_total_bytes", series.Uint(total))
	}
	if haveUsed {
		r.gauge("gpu_memory_used_bytes", series.Uint(used))
	}
	if haveTotal && haveUsed {
		r.gauge("gpu_memory_free_bytes", series.Uint(total-min(used, total)))
	}
}

func (r *reading) utilization(l *smi.Library, m smi.Metrics, ask asker) {
	gfx, haveGfx := m.Get(smi.GfxActivity)
	umc, haveUMC := m.Get(smi.UMCActivity)
	if !haveGfx || !haveUMC {
		var otherGfx, otherUMC uint64
		if ask("activity", func() (ret smi.Status) { otherGfx, otherUMC, ret = l.Activity(r.device.handle); return ret }) {
			if !haveGfx && smi.Available(otherGfx) {
				gfx, haveGfx = otherGfx, true
			}
			if !haveUMC && smi.Available(otherUMC) {
				umc, haveUMC = otherUMC, true
			}
		}
	}
	if haveGfx && gfx <= 100 {
		r.gauge("gpu_utilization_percent", series.Uint(gfx))
	}
	if haveUMC && umc <= 100 {
		r.gauge("gpu_memory_utilization_percent", series.Uint(umc))
	}
}

// temperatures: a sensor that is not there reads as 0 on some parts, which is no temperature of a GPU.
func (r *reading) temperatures(l *smi.Library, m smi.Metrics, ask asker) {
	sensor := func(field smi.Field, number int, call string) (int64, bool) {
		if v, ok := m.Get(field); ok && v != 0 {
			return int64(v), true
		}
		var v int64
		ok := ask(call, func() (ret smi.Status) { v, ret = l.Temperature(r.device.handle, number); return ret })
		return v, ok && v != 0 && v > -100 && v < 1000
	}
	if v, ok := sensor(smi.HotspotTemperature, smi.SensorHotspot, "temperature_hotspot"); ok {
		r.gauge("gpu_temperature_celsius", series.Int(v))
	} else if v, ok := sensor(smi.EdgeTemperature, smi.SensorEdge, "temperature_edge"); ok {
		r.gauge("gpu_temperature_celsius", series.Int(v))
	}
	if v, ok := sensor(smi.MemoryTemperature, smi.SensorMemory, "temperature_memory"); ok {
		r.gauge("gpu_memory_temperature_celsius", series.Int(v))
	}
}

// wattsBelow tells a power limit in watts from one in microwatts.
const wattsBelow = 100000

func (r *reading) power(l *smi.Library, m smi.Metrics, ask asker) {
	// A part fills one of the two; the other reads as 0 or not available.
	current, haveCurrent := m.Get(smi.CurrentSocketPower)
	average, haveAverage := m.Get(smi.AverageSocketPower)
	switch {
	case haveCurrent && (current > 0 || !haveAverage):
		r.gauge("gpu_power_usage_watts", series.Float(float64(current)))
	case haveAverage:
		r.gauge("gpu_power_usage_watts", series.Float(float64(average)))
	}
	var limit uint64
	if ask("power_cap", func() (ret smi.Status) { limit, ret = l.PowerCap(r.device.handle); return ret }) && limit > 0 && smi.Available(limit) {
		if limit >= wattsBelow {
			r.gauge("gpu_power_management_limit_watts", series.Float(float64(limit)/1e6))
		} else {
			r.gauge("gpu_power_management_limit_watts", series.Float(float64(limit)))
		}
	}
	var fan int64
	if ask("fan_speed", func() (ret smi.Status) { fan, ret = l.FanSpeed(r.device.handle); return ret }) && fan >= 0 && fan <= 255 {
		r.gauge("gpu_fan_speed_percent", series.Float(float64(fan)*100/255))
	}
}

func (r *reading) clocks(l *smi.Library, m smi.Metrics, ask asker) {
	h := r.device.handle
	var gfx, most, memory uint64
	asked := ask("clock_gfx", func() (ret smi.Status) { gfx, most, ret = l.Clock(h, smi.ClockGfx); return ret })
	if v, ok := m.Get(smi.CurrentGfxClock); ok {
		r.gauge("gpu_clock_sm_megahertz", series.Uint(v))
	} else if v, ok := m.XCDClock(); ok {
		r.gauge("gpu_clock_sm_megahertz", series.Uint(v))
	} else if asked && smi.Available(gfx) {
		r.gauge("gpu_clock_sm_megahertz", series.Uint(gfx))
	}
	if asked && smi.Available(most) && most > 0 {
		r.gauge("gpu_max_clock_sm_megahertz", series.Uint(most))
	}
	if v, ok := m.Get(smi.CurrentMemoryClock); ok {
		r.gauge("gpu_clock_mem_megahertz", series.Uint(v))
	} else if ask("clock_memory", func() (ret smi.Status) { memory, _, ret = l.Clock(h, smi.ClockMemory); return ret }) && smi.Available(memory) {
		r.gauge("gpu_clock_mem_megahertz", series.Uint(memory))
	}
}

func (r *reading) errors(l *smi.Library, m smi.Metrics, ask asker) {
	h := r.device.handle
	var ecc smi.ECC
	if ask("ecc", func() (ret smi.Status) { ecc, ret = l.ECC(h); return ret }) {
		r.counter("gpu_ecc_errors_corrected_volatile", ecc.Corrected)
		r.counter("gpu_ecc_errors_uncorrected_volatile", ecc.Uncorrected)
		r.counter("gpu_ecc_errors_deferred_volatile", ecc.Deferred)
	}
	replays, ok := m.Get(smi.PCIeReplays)
	if !ok {
		ok = ask("pcie_info", func() (ret smi.Status) { replays, ret = l.PCIeReplays(h); return ret }) && replays != 1<<32-1 && replays != 1<<64-1
	}
	if ok {
		r.counter("gpu_pcie_replay_counter", replays)
	}
}
