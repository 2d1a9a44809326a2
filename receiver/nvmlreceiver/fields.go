package nvmlreceiver

import (
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// readPCIeCounters reads the PCIe byte counters.
func readPCIeCounters(d *device, r *reading) nvml.Return {
	if d.pcie.missing() {
		return nvml.ERROR_NOT_SUPPORTED
	}
	if d.pcie.wanted() {
		values := pcieFields()
		if ret := d.handle.GetFieldValues(values); ret != nvml.SUCCESS {
			return ret
		}
		d.pcie.add(values)
	}
	if tx, rx, ok := d.pcie.take(d); ok {
		r.pcieThroughput(tx, rx)
	}
	return nvml.SUCCESS
}

func pcieFields() []nvml.FieldValue {
	return []nvml.FieldValue{{FieldId: nvml.FI_DEV_PCIE_COUNT_TX_BYTES}, {FieldId: nvml.FI_DEV_PCIE_COUNT_RX_BYTES}}
}

// pcieReader feeds a pcieMeter with the byte counters of a device: in each collection, or while much passes from a
// goroutine of its own. Where there are no such counters, the slow lane asks for a sample instead.
type pcieReader struct {
	mu      sync.Mutex
	meter   pcieMeter
	absent  bool
	running bool
}

func (p *pcieReader) init(d *device) {
	var generation, width int
	if d.parent < 0 && d.lib.Has("nvmlDeviceGetMaxPcieLinkGeneration") && d.lib.Has("nvmlDeviceGetMaxPcieLinkWidth") {
		var ret nvml.Return
		if generation, ret = d.handle.GetMaxPcieLinkGeneration(); ret != nvml.SUCCESS {
			generation = 0
		}
		if width, ret = d.handle.GetMaxPcieLinkWidth(); ret != nvml.SUCCESS {
			width = 0
		}
	}
	p.meter = newPCIeMeter(generation, width)
	p.absent = d.parent >= 0 || !d.lib.Has("nvmlDeviceGetFieldValues")
}

// wanted reports whether the fast lane is to read the counters.
func (p *pcieReader) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.absent && !p.running
}

func (p *pcieReader) missing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.absent
}

// add takes the two fields as they were read just now.
func (p *pcieReader) add(values []nvml.FieldValue) {
	now := time.Now()
	tx, txRet := fieldTotal(&values[0])
	rx, rxRet := fieldTotal(&values[1])
	p.mu.Lock()
	defer p.mu.Unlock()
	if txRet != nvml.SUCCESS || rxRet != nvml.SUCCESS {
		p.meter.reset()
		p.absent = meaning(txRet) == unsupported || meaning(rxRet) == unsupported
		return
	}
	wide := nvml.ValueType(values[0].ValueType) != nvml.VALUE_TYPE_UNSIGNED_INT
	p.meter.add(now, tx.Uint64(), rx.Uint64(), wide)
}

// take ends a collection's window, and starts the goroutine when the meter asks for it.
func (p *pcieReader) take(d *device) (tx, rx int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.absent {
		return 0, 0, false
	}
	tx, rx, ok = p.meter.take()
	if p.meter.polling && !p.running {
		p.running = true
		d.polls.Go(func() { p.poll(d) })
	}
	return tx, rx, ok
}

// poll reads the counters often, as long as the meter asks for it.
func (p *pcieReader) poll(d *device) {
	p.mu.Lock()
	interval := p.meter.pollInterval()
	p.mu.Unlock()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		values := pcieFields()
		ret := d.handle.GetFieldValues(values)
		if ret == nvml.SUCCESS {
			p.add(values)
		}
		p.mu.Lock()
		if ret != nvml.SUCCESS {
			p.meter.reset()
			p.meter.polling = false
		}
		if !p.meter.polling || p.absent {
			p.running = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		select {
		case <-d.quit:
			return
		case <-ticker.C:
		}
	}
}

// readPCIeSampled lets NVML sample the throughput, for 20 ms each way, where there are no byte counters.
func readPCIeSampled(d *device, r *reading) nvml.Return {
	if !d.pcie.missing() {
		return nvml.SUCCESS
	}
	tx, ret := d.handle.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES)
	if ret != nvml.SUCCESS {
		return ret
	}
	rx, ret := d.handle.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
	if ret != nvml.SUCCESS {
		return ret
	}
	if tx != notAvailable && rx != notAvailable {
		r.pcieThroughput(int64(tx), int64(rx))
	}
	return nvml.SUCCESS
}
