package amdsmireceiver

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/smi"
)

// Attribute keys.
const (
	busIDKey     = "device.bus_id"
	uuidKey      = "device.uuid"
	partitionKey = "device.partition"
)

// askAgain is when a call that was refused is tried again.
const askAgain = time.Minute

// device is one GPU, or one partition of one. What could not be read is empty.
type device struct {
	handle smi.Handle
	busID  string
	uuid   string
	// partition is the number of the partition: all but 0 have a handle without sensors of their own.
	partition int
	hipUUID   string
	hipID     int // -1: not known
	asic      smi.ASIC

	closed    map[string]time.Time // calls that are not to be made until then; zero: never
	firstSeen int64                // epoch nanoseconds
}

// enumerate lists the GPUs in HIP's order.
func enumerate(l *smi.Library) ([]*device, smi.Status) {
	handles, ret := l.Devices()
	if ret != smi.Success {
		return nil, ret
	}
	addresses := make(map[smi.Handle]smi.BDF)
	for _, h := range handles {
		if bdf, ret := l.BDF(h); ret == smi.Success {
			addresses[h] = bdf
		}
	}
	var list []*device
	for _, h := range handles {
		d := &device{handle: h, hipID: -1, closed: make(map[string]time.Time)}
		if bdf, ok := addresses[h]; ok {
			if bdf.IsPartition(l.Version, slices.Collect(maps.Values(addresses))) {
				d.partition, bdf = bdf.Partition(), bdf.Board()
			}
			d.busID = bdf.String()
		}
		if uuid, ret := l.UUID(h); ret == smi.Success {
			d.uuid = uuid
		}
		if e, ret := l.Enumeration(h); ret == smi.Success {
			d.hipUUID, d.hipID = e.HIPUUID, int(e.HIPID)
		}
		if a, ret := l.ASIC(h); ret == smi.Success {
			d.asic = a
		}
		if d.busID == "" && d.uuid == "" {
			continue // nothing would tell it from others
		}
		list = append(list, d)
	}
	if !slices.ContainsFunc(list, func(d *device) bool { return d.hipID < 0 }) {
		slices.SortStableFunc(list, func(a, b *device) int { return cmp.Compare(a.hipID, b.hipID) })
	}
	return list, smi.Success
}

// key tells the device from others, also in a later session.
func (d *device) key() string { return d.busID + " " + d.uuid + " " + strconv.Itoa(d.partition) }

// entity describes the device; memoryTotal is 0 where it is not known.
func (d *device) entity(memoryTotal uint64) signal.Entity {
	e := signal.Entity{Kind: signal.DeviceKind}
	add := func(list *[]series.Tag, key, value string) {
		if value != "" {
			*list = append(*list, series.Tag{Key: key, Value: value})
		}
	}
	add(&e.ID, busIDKey, d.busID)
	add(&e.ID, uuidKey, d.uuid)
	name := d.asic.Name
	if d.partition > 0 {
		number := strconv.Itoa(d.partition)
		add(&e.ID, partitionKey, number)
		name = strings.TrimSpace(name + " partition " + number)
	}
	add(&e.Attributes, "device.name", name)
	add(&e.Attributes, "architecture", d.asic.Target)
	if memoryTotal > 0 {
		add(&e.Attributes, "mem_total", strconv.FormatUint(memoryTotal, 10))
	}
	add(&e.Attributes, "device.hip_uuid", d.hipUUID)
	return e
}

// may reports whether a call is to be made.
func (d *device) may(call string, now time.Time) bool {
	until, closed := d.closed[call]
	return !closed || !until.IsZero() && !now.Before(until)
}

// note remembers a call that need not be repeated each time, and reports whether it was answered.
func (d *device) note(call string, ret smi.Status, now time.Time) bool {
	switch ret {
	case smi.Success:
		return true
	case smi.NotSupported, smi.NotImplemented:
		d.closed[call] = time.Time{}
	case smi.NoPermission:
		d.closed[call] = now.Add(askAgain)
	}
	return false
}
