package nvmlreceiver

import (
	"strconv"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/driver"
)

// xidEvent is one XID error; the instances are -1 outside MIG.
type xidEvent struct {
	code                         uint64
	gpuInstance, computeInstance int
}

const (
	// maxEvents bounds the events taken from a device in one collection; the rest waits in the driver's queue.
	maxEvents = 1000
	// foldAbove is how many errors of one code in a collection are told one by one.
	foldAbove = 10
)

// xidWatch takes the XID events of one device.
type xidWatch struct {
	set    driver.EventSet // nil: not registered
	failed bool            // the last attempt to take events from the set
	never  bool            // the driver knows no such events of this device
	after  time.Time       // when registration may be tried again
}

// register begins watching where that is not done or the set has failed, and returns why it could not. It is tried again
// after a minute.
func (w *xidWatch) register(lib driver.Library, d driver.Device, now time.Time) nvml.Return {
	if w.set != nil && !w.failed || w.never || now.Before(w.after) {
		return nvml.SUCCESS
	}
	w.close()
	w.after = now.Add(askAgain)
	set, ret := lib.NewEventSet(d)
	switch {
	case ret == nvml.SUCCESS:
		w.set, w.failed = set, false
	case meaning(ret) == unsupported:
		w.never = true
		return nvml.SUCCESS
	}
	return ret
}

// drain returns the events since the last time, oldest first. A set that fails may still have some later: the one that
// tells why a device was lost.
func (w *xidWatch) drain() []xidEvent {
	var events []xidEvent
	if w.set == nil {
		return nil
	}
	for range maxEvents {
		data, ret := w.set.Wait(0)
		w.failed = ret != nvml.SUCCESS && ret != nvml.ERROR_TIMEOUT
		if ret != nvml.SUCCESS {
			return events
		}
		if data.EventType&nvml.EventTypeXidCriticalError != 0 {
			events = append(events, xidEvent{data.EventData, migID(data.GpuInstanceId), migID(data.ComputeInstanceId)})
		}
	}
	return events
}

func (w *xidWatch) close() {
	if w.set != nil {
		w.set.Free()
		w.set = nil
	}
}

func migID(n uint32) int {
	if n == notAvailable {
		return -1
	}
	return int(n)
}

// xidErrors are the entries that tell of events at a time (epoch nanoseconds): one each, of a code that came often one
// with the count, so that a burst does not push all other errors out of sight.
func xidErrors(id *identity, events []xidEvent, ts int64) []signal.ErrorEntry {
	counts := make(map[xidEvent]int)
	for _, e := range events {
		counts[e]++
	}
	var entries []signal.ErrorEntry
	for _, e := range events {
		n := counts[e]
		if n == 0 {
			continue // told with its first
		}
		message := "XID error " + strconv.FormatUint(e.code, 10)
		if n > foldAbove {
			message += " (" + strconv.Itoa(n) + " times)"
			counts[e] = 0
		}
		entry := deviceError(id, message, ts)
		// Without MIG, old drivers leave the instances 0.
		if id.hasParts && e.gpuInstance >= 0 {
			entry.Tags = append(entry.Tags, signal.ErrorTag{Key: "device.gpu_instance_id", Value: strconv.Itoa(e.gpuInstance)})
		}
		if id.hasParts && e.computeInstance >= 0 {
			entry.Tags = append(entry.Tags, signal.ErrorTag{Key: "device.compute_instance_id", Value: strconv.Itoa(e.computeInstance)})
		}
		entries = append(entries, entry)
	}
	return entries
}

// deviceError is an error entry with the device's tags.
func deviceError(id *identity, message string, ts int64) signal.ErrorEntry {
	entry := signal.ErrorEntry{Level: "error", Message: message, Time: ts}
	for _, t := range id.tags() {
		entry.Tags = append(entry.Tags, signal.ErrorTag{Key: t.Key, Value: t.Value})
	}
	return entry
}
