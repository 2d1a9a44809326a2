package nvmlreceiver

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// reading is what one lane read of a device in one go.
type reading struct {
	time time.Time
	// fast says that it is the fast lane's, which alone tells whether the device answers.
	fast   bool
	values []value
	events []xidEvent
	// memoryTotal is 0 where it is not known.
	memoryTotal uint64
	// divided says that the GPU has other MIG devices than when the session began.
	divided bool
	// watched says that XID events are counted; xidFailure is why that could not begin, SUCCESS else.
	watched    bool
	xidFailure nvml.Return
	// lost is why the device does not answer any more, SUCCESS if it does.
	lost nvml.Return
}

// value is one series' value.
type value struct {
	name string
	kind series.Type // Gauge or Counter
	tags []series.Tag
	num  series.Number
}

func (r *reading) gauge(name string, num series.Number) {
	r.values = append(r.values, value{name: name, kind: series.Gauge, num: num})
}

func (r *reading) counter(name string, num series.Number) {
	r.values = append(r.values, value{name: name, kind: series.Counter, num: num})
}

// small adds a gauge of an unsigned 32-bit value; all ones is NVML's "not available".
func (r *reading) small(name string, v uint32, ret nvml.Return) nvml.Return {
	if ret == nvml.SUCCESS && v != notAvailable {
		r.gauge(name, series.Uint(uint64(v)))
	}
	return ret
}

// watts adds a gauge in watts of a value in milliwatts.
func (r *reading) watts(name string, milliwatts uint32, ret nvml.Return) nvml.Return {
	if ret == nvml.SUCCESS && milliwatts != notAvailable {
		r.gauge(name, series.Float(float64(milliwatts)/1000))
	}
	return ret
}

const notAvailable = 1<<32 - 1

func (r *reading) pcieThroughput(tx, rx int64) {
	r.gauge("gpu_pcie_throughput_tx_kilobytes_per_second", series.Int(tx))
	r.gauge("gpu_pcie_throughput_rx_kilobytes_per_second", series.Int(rx))
}
