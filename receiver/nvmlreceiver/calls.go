package nvmlreceiver

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
)

// fastCalls are the calls of a collection.
var fastCalls = []call{
	{symbols: [][]string{{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"}}, read: readMemory},
	{symbols: needs("nvmlDeviceGetUtilizationRates"), gpu: true, read: readUtilization},
	{symbols: needs("nvmlDeviceGetSamples"), gpu: true, every: 5 * time.Second, read: readSamples},
	{symbols: needs("nvmlDeviceGetTemperature"), gpu: true, read: func(d *device, r *reading) nvml.Return {
		v, ret := d.handle.GetTemperature(nvml.TEMPERATURE_GPU)
		return r.small("gpu_temperature_celsius", v, ret)
	}},
	{symbols: needs("nvmlDeviceGetPowerUsage"), gpu: true, read: func(d *device, r *reading) nvml.Return {
		v, ret := d.handle.GetPowerUsage()
		return r.watts("gpu_power_usage_watts", v, ret)
	}},
	{symbols: needs("nvmlDeviceGetFanSpeed"), gpu: true, read: func(d *device, r *reading) nvml.Return {
		v, ret := d.handle.GetFanSpeed()
		return r.small("gpu_fan_speed_percent", v, ret)
	}},
	{symbols: needs("nvmlDeviceGetClockInfo"), gpu: true, read: clock("gpu_clock_sm_megahertz", nvml.CLOCK_SM)},
	{symbols: needs("nvmlDeviceGetClockInfo"), gpu: true, read: clock("gpu_clock_mem_megahertz", nvml.CLOCK_MEM)},
	{symbols: [][]string{{"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}}, gpu: true, read: readThrottle},
	{symbols: needs("nvmlDeviceGetPerformanceState"), gpu: true, read: func(d *device, r *reading) nvml.Return {
		v, ret := d.handle.GetPerformanceState()
		return r.small("gpu_performance_state", uint32(v), ret)
	}},
	{symbols: needs("nvmlDeviceGetEncoderUtilization"), gpu: true, read: func(d *device, r *reading) nvml.Return {
		v, _, ret := d.handle.GetEncoderUtilization()
		return r.small("gpu_encoder_utilization_percent", v, ret)
	}},
	{symbols: needs("nvmlDeviceGetDecoderUtilization"), gpu: true, read: func(d *device, r *reading) nvml.Return {
		v, _, ret := d.handle.GetDecoderUtilization()
		return r.small("gpu_decoder_utilization_percent", v, ret)
	}},
	{symbols: needs("nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth"), gpu: true, read: readPCIeLink},
	{symbols: needs("nvmlDeviceGetFieldValues"), gpu: true, read: readPCIeCounters},
	{symbols: needs("nvmlDeviceGetTotalEccErrors"), gpu: true, read: ecc("gpu_ecc_errors_corrected_volatile", nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC)},
	{symbols: needs("nvmlDeviceGetTotalEccErrors"), gpu: true, read: ecc("gpu_ecc_errors_uncorrected_volatile", nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)},
	{symbols: needs("nvmlDeviceGetTotalEccErrors"), gpu: true, read: ecc("gpu_ecc_errors_corrected_aggregate", nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC)},
	{symbols: needs("nvmlDeviceGetTotalEccErrors"), gpu: true, read: ecc("gpu_ecc_errors_uncorrected_aggregate", nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC)},
}

// slowCalls are those that block or that can take the driver more than some milliseconds; they lag behind by a collection.
var slowCalls = []call{
	{symbols: needs("nvmlDeviceGetPcieThroughput"), gpu: true, read: readPCIeSampled},
	{symbols: needs("nvmlDeviceGetTotalEnergyConsumption"), gpu: true, every: 10 * time.Second, read: func(d *device, r *reading) nvml.Return {
		v, ret := d.handle.GetTotalEnergyConsumption()
		if ret == nvml.SUCCESS && v != math.MaxUint64 {
			r.counter("gpu_energy_consumption_millijoules", series.Uint(v))
		}
		return ret
	}},
	{symbols: needs("nvmlDeviceGetPowerManagementLimit"), gpu: true, every: 10 * time.Second, read: func(d *device, r *reading) nvml.Return {
		v, ret := d.handle.GetPowerManagementLimit()
		return r.watts("gpu_power_management_limit_watts", v, ret)
	}},
	{symbols: needs("nvmlDeviceGetPcieReplayCounter"), gpu: true, every: 10 * time.Second, read: func(d *device, r *reading) nvml.Return {
		v, ret := d.handle.GetPcieReplayCounter()
		if ret == nvml.SUCCESS && uint32(v) != notAvailable {
			r.counter("gpu_pcie_replay_counter", series.Uint(uint64(uint32(v))))
		}
		return ret
	}},
	{symbols: needs("nvmlDeviceGetMaxClockInfo"), gpu: true, every: time.Minute, read: func(d *device, r *reading) nvml.Return {
		v, ret := d.handle.GetMaxClockInfo(nvml.CLOCK_SM)
		return r.small("gpu_max_clock_sm_megahertz", v, ret)
	}},
	{symbols: needs("nvmlDeviceGetNvLinkState"), gpu: true, every: time.Minute, read: readLinks},
	{symbols: needs("nvmlDeviceGetFieldValues"), gpu: true, every: 10 * time.Second, read: readLinkThroughput},
	{symbols: needs("nvmlDeviceGetMigMode"), gpu: true, every: 10 * time.Second, read: readDivision},
	{symbols: [][]string{{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"}}, read: readProcesses},
}

func clock(name string, domain nvml.ClockType) func(*device, *reading) nvml.Return {
	return func(d *device, r *reading) nvml.Return {
		v, ret := d.handle.GetClockInfo(domain)
		return r.small(name, v, ret)
	}
}

func ecc(name string, kind nvml.MemoryErrorType, counter nvml.EccCounterType) func(*device, *reading) nvml.Return {
	return func(d *device, r *reading) nvml.Return {
		v, ret := d.handle.GetTotalEccErrors(kind, counter)
		if ret == nvml.SUCCESS {
			r.counter(name, series.Uint(v))
		}
		return ret
	}
}

// readMemory asks for memory in the form that tells reserved memory apart, else in the old one, whose used memory
// includes it. A total of 0 is how some drivers of unified-memory parts say that there is nothing to tell.
func readMemory(d *device, r *reading) nvml.Return {
	if !d.noMemory2 && d.lib.Has("nvmlDeviceGetMemoryInfo_v2") {
		m, ret := d.handle.GetMemoryInfo_v2()
		if ret == nvml.SUCCESS {
			if known(m.Total) {
				r.memory(m.Total, m.Free, m.Used)
				r.gauge("gpu_memory_reserved_bytes", series.Uint(m.Reserved))
			}
			return ret
		}
		if meaning(ret) != unsupported && ret != nvml.ERROR_INVALID_ARGUMENT {
			return ret
		}
		d.noMemory2 = true
	}
	if !d.lib.Has("nvmlDeviceGetMemoryInfo") {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	m, ret := d.handle.GetMemoryInfo()
	if ret == nvml.SUCCESS && known(m.Total) {
		r.memory(m.Total, m.Free, m.Used)
	}
	return ret
}

func known(total uint64) bool { return total != 0 && total != math.MaxUint64 }

func (r *reading) memory(total, free, used uint64) {
	r.memoryTotal = total
	r.gauge("gpu_memory_total_bytes", series.Uint(total))
	r.gauge("gpu_memory_free_bytes", series.Uint(free))
	r.gauge("gpu_memory_used_bytes", series.Uint(used))
}

// sampleWindow is how far back samples count when no collection saw the later ones.
const sampleWindow = 10 * time.Second

// readUtilization reads what the driver made of its last sample period, of a sixth of a second to a second.
func readUtilization(d *device, r *reading) nvml.Return {
	u, ret := d.handle.GetUtilizationRates()
	d.hasRates = ret == nvml.SUCCESS
	if d.hasRates {
		r.gauge("gpu_utilization_percent", series.Float(float64(u.Gpu)))
		r.gauge("gpu_memory_utilization_percent", series.Float(float64(u.Memory)))
	}
	return ret
}

// readSamples takes the place of readUtilization where that is not supported: it averages the samples that came since
// the last reading. A driver that has none yet fails the call. It costs the driver 300 times as much.
func readSamples(d *device, r *reading) nvml.Return {
	if d.hasRates {
		return nvml.SUCCESS
	}
	for i, u := range []struct {
		name string
		kind nvml.SamplingType
	}{
		{"gpu_utilization_percent", nvml.GPU_UTILIZATION_SAMPLES},
		{"gpu_memory_utilization_percent", nvml.MEMORY_UTILIZATION_SAMPLES},
	} {
		since := max(d.window[i], uint64(max(0, r.time.Add(-sampleWindow).UnixMicro())))
		valueType, samples, ret := d.handle.GetSamples(u.kind, since)
		if ret != nvml.SUCCESS {
			return ret
		}
		var sum float64
		var n int
		newest := d.window[i]
		for _, s := range samples {
			v, ok := number(uint32(valueType), s.SampleValue)
			if !ok || s.TimeStamp <= since {
				continue
			}
			sum += v.Float64()
			n++
			newest = max(newest, s.TimeStamp)
		}
		if n > 0 {
			r.gauge(u.name, series.Float(sum/float64(n)))
		}
		d.window[i] = newest
	}
	return nvml.SUCCESS
}

func readThrottle(d *device, r *reading) nvml.Return {
	var mask uint64
	var ret nvml.Return
	if d.lib.Has("nvmlDeviceGetCurrentClocksEventReasons") {
		mask, ret = d.handle.GetCurrentClocksEventReasons()
	} else {
		mask, ret = d.handle.GetCurrentClocksThrottleReasons()
	}
	if ret == nvml.SUCCESS && mask != math.MaxUint64 {
		r.gauge("gpu_clocks_throttle_reasons", series.Uint(mask))
	}
	return ret
}

func readPCIeLink(d *device, r *reading) nvml.Return {
	generation, ret := d.handle.GetCurrPcieLinkGeneration()
	if ret != nvml.SUCCESS {
		return ret
	}
	width, ret := d.handle.GetCurrPcieLinkWidth()
	if ret != nvml.SUCCESS {
		return ret
	}
	r.small("gpu_pcie_link_generation", uint32(generation), ret)
	r.small("gpu_pcie_link_width", uint32(width), ret)
	return ret
}

// readDivision notices that a GPU has been divided into MIG devices anew.
func readDivision(d *device, r *reading) nvml.Return {
	mode, _, ret := d.handle.GetMigMode()
	if ret != nvml.SUCCESS {
		return ret
	}
	now := identity{handle: d.handle, uuid: d.uuid}
	if mode == nvml.DEVICE_MIG_ENABLE {
		parts(d.lib, &now, 0)
	}
	r.divided = !slices.Equal(now.partUUIDs, d.partUUIDs)
	return nvml.SUCCESS
}

// maxProcesses bounds the processes reported of a device.
const maxProcesses = 256

// readProcesses reports the GPU memory of each process. A GPU that is cut into MIG devices leaves it to those.
func readProcesses(d *device, r *reading) nvml.Return {
	if d.hasParts {
		return nvml.ERROR_NOT_SUPPORTED
	}
	used := make(map[uint32]uint64)
	var order []uint32
	take := func(list []nvml.ProcessInfo) {
		for _, p := range list {
			if p.UsedGpuMemory == math.MaxUint64 {
				continue // the driver does not know
			}
			if _, seen := used[p.Pid]; !seen {
				order = append(order, p.Pid)
			}
			used[p.Pid] = max(used[p.Pid], p.UsedGpuMemory) // the lists overlap
		}
	}
	list, ret := d.handle.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return ret
	}
	take(list)
	if d.lib.Has("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses") {
		if list, ret := d.handle.GetGraphicsRunningProcesses(); ret == nvml.SUCCESS {
			take(list)
		}
	}
	if d.lib.Has("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses") {
		if list, ret := d.handle.GetMPSComputeRunningProcesses(); ret == nvml.SUCCESS {
			take(list)
		}
	}
	for _, pid := range order[:min(len(order), maxProcesses)] {
		r.values = append(r.values, value{
			name: "gpu_process_memory_bytes", kind: series.Gauge, num: series.Uint(used[pid]),
			tags: []series.Tag{{Key: signal.PIDKey, Value: strconv.FormatUint(uint64(pid), 10)}},
		})
	}
	return nvml.SUCCESS
}

// number reads NVML's value union by its type. All values are in the host's byte order, which is little-endian on every
// platform that NVML exists for.
func number(valueType uint32, raw [8]byte) (series.Number, bool) {
	bits := binary.LittleEndian.Uint64(raw[:])
	switch nvml.ValueType(valueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		n := series.Float(math.Float64frombits(bits))
		return n, n.IsFinite()
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return series.Uint(bits & math.MaxUint32), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return series.Uint(bits), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return series.Int(int64(bits)), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return series.Int(int64(int32(bits))), true
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return series.Uint(bits & math.MaxUint16), true
	}
	return series.Number{}, false
}

// fieldTotal is the value of a field that counts, and why there is none.
func fieldTotal(v *nvml.FieldValue) (series.Number, nvml.Return) {
	if ret := nvml.Return(v.NvmlReturn); ret != nvml.SUCCESS {
		return series.Number{}, ret
	}
	n, ok := number(v.ValueType, v.Value)
	if !ok || cmp.Compare(n.Float64(), 0) < 0 {
		return series.Number{}, nvml.ERROR_NO_DATA
	}
	return n, nvml.SUCCESS
}
