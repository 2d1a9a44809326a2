package smi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Source of all offsets: the public headers of amd_smi 24.5 to 26.5. Structures are copied by the library into buffers
// that are larger than any of them and hold only ones before, so that a member that a release does not have reads as
// "not available".

// Metrics is the beginning of an amdsmi_gpu_metrics_t.
type Metrics []byte

// metricsPrefix is how much of it has the same place in all releases.
const metricsPrefix = 472

// Small is an unsigned value of two bytes; false where it is not available.
func (m Metrics) small(offset int) (uint64, bool) {
	v := uint64(binary.LittleEndian.Uint16(m[offset:]))
	return v, v != math.MaxUint16
}

// total is an accumulator of eight bytes.
func (m Metrics) total(offset int) (uint64, bool) {
	v := binary.LittleEndian.Uint64(m[offset:])
	return v, v != math.MaxUint64
}

// Available reports whether a value that may have been widened from a smaller field is there.
func Available(v uint64) bool {
	return v != math.MaxUint16 && v != math.MaxUint32 && v != math.MaxUint64
}

// Field is a value in Metrics.
type Field struct {
	offset int
	total  bool
}

// Fields of two bytes.
var (
	EdgeTemperature    = Field{offset: 4} // °C, as the other two
	HotspotTemperature = Field{offset: 6}
	MemoryTemperature  = Field{offset: 8}
	GfxActivity        = Field{offset: 16} // percent
	UMCActivity        = Field{offset: 18}
	AverageSocketPower = Field{offset: 22} // W
	CurrentGfxClock    = Field{offset: 54} // MHz
	CurrentMemoryClock = Field{offset: 58}
	PCIeWidth          = Field{offset: 74} // lanes
	PCIeSpeed          = Field{offset: 76} // generation, or 0.1 GT/s
	CurrentSocketPower = Field{offset: 120}
	XGMIWidth          = Field{offset: 136}
	XGMISpeed          = Field{offset: 138}
)

// Fields of eight bytes.
var (
	ThrottleStatus         = Field{112, true} // independent of the ASIC
	PCIeBandwidth          = Field{152, true} // Mb/s
	PCIeReplays            = Field{168, true}
	AccumulationCycles     = Field{424, true}
	ProchotResidency       = Field{432, true}
	PPTResidency           = Field{440, true}
	SocketThermalResidency = Field{448, true}
	VRThermalResidency     = Field{456, true}
	HBMThermalResidency    = Field{464, true}
)

// Get returns a field; false where it is not available.
func (m Metrics) Get(f Field) (uint64, bool) {
	if len(m) < metricsPrefix {
		return 0, false
	}
	if f.total {
		return m.total(f.offset)
	}
	return m.small(f.offset)
}

const (
	xgmiRead, xgmiWrite, xgmiLinks = 184, 248, 8
	xcdClocks, xcds                = 312, 8
)

// XGMI returns the kilobytes read and written over all links that are there; false where there is none.
func (m Metrics) XGMI() (read, write uint64, readOK, writeOK bool) {
	if len(m) < metricsPrefix {
		return 0, 0, false, false
	}
	sum := func(offset int) (sum uint64, ok bool) {
		for i := range xgmiLinks {
			if v, there := m.total(offset + 8*i); there {
				sum, ok = sum+v, true
			}
		}
		return sum, ok
	}
	read, readOK = sum(xgmiRead)
	write, writeOK = sum(xgmiWrite)
	return read, write, readOK, writeOK
}

// XCDClock returns the clock of the fastest compute die in MHz; false where dies tell none.
func (m Metrics) XCDClock() (clock uint64, ok bool) {
	if len(m) < metricsPrefix {
		return 0, false
	}
	for i := range xcds {
		if v, there := m.small(xcdClocks + 2*i); there {
			clock, ok = max(clock, v), true
		}
	}
	return clock, ok
}

// PCIeGeneration turns a link speed into a generation; false for one that is none.
func PCIeGeneration(speed uint64) (uint64, bool) {
	switch {
	case speed >= 1 && speed <= 6:
		return speed, true
	case speed == 25:
		return 1, true
	case speed == 50:
		return 2, true
	case speed == 80:
		return 3, true
	case speed == 160:
		return 4, true
	case speed == 320:
		return 5, true
	case speed == 640:
		return 6, true
	}
	return 0, false
}

// Version is a library's: Major is the number in its file name.
type Version struct{ Major, Minor uint32 }

// decodeVersion reads an amdsmi_version_t. Before 26 its first member is called the year, and the minor the major.
func decodeVersion(buf []byte) Version {
	return Version{binary.LittleEndian.Uint32(buf), binary.LittleEndian.Uint32(buf[4:])}
}

// ASIC is what a GPU is.
type ASIC struct {
	// Name is the market name, may be empty.
	Name string
	// Target is the graphics version in the form of the compiler, as gfx942; empty where it is not known.
	Target string
}

const maxASICName = 256

// decodeASIC reads an amdsmi_asic_info_t.
func decodeASIC(buf []byte, v Version) ASIC {
	a := ASIC{Name: text(buf[:maxASICName])}
	switch {
	case v.Major == 24 && v.Minor >= 7:
		// Decimal digits; a version with a letter in it, as gfx90a, cannot be told from them.
		if target := binary.LittleEndian.Uint64(buf[384:]); target >= 600 && target < 10000 {
			a.Target = fmt.Sprintf("gfx%d", target)
		}
	case v.Major >= 25:
		if target := binary.LittleEndian.Uint64(buf[800:]); target >= 0x600 && target < 0x10000 {
			a.Target = fmt.Sprintf("gfx%x", target)
		}
	}
	return a
}

// Enumeration is how HIP knows a GPU.
type Enumeration struct {
	HIPID   uint32
	HIPUUID string
}

// decodeEnumeration reads an amdsmi_enumeration_info_t.
func decodeEnumeration(buf []byte) (Enumeration, bool) {
	e := Enumeration{HIPID: binary.LittleEndian.Uint32(buf[12:]), HIPUUID: text(buf[16:272])}
	return e, e.HIPID != math.MaxUint32
}

// text returns the printable beginning of a zero-terminated field. One that was never written holds only ones.
func text(field []byte) string {
	if end := bytes.IndexByte(field, 0); end >= 0 {
		field = field[:end]
	}
	for i, c := range field {
		if c < ' ' || c > '~' {
			return string(bytes.TrimSpace(field[:i]))
		}
	}
	return string(bytes.TrimSpace(field))
}

// BDF is a PCI address as the library packs it: function, device, bus, domain, and in the domain's upper bits, from
// release 6.3 on, the number of a partition.
type BDF uint64

const (
	partitionShift = 28
	partitionMask  = 0xf << partitionShift
	// maxPartition is the last partition that a board can have.
	maxPartition = 7
)

// Board is the address without the partition.
func (b BDF) Board() BDF { return b &^ partitionMask }

// Partition is the number in the partition's bits, which may be a part of the domain instead.
func (b BDF) Partition() int { return int(b & partitionMask >> partitionShift) }

// IsPartition reports whether those bits are a partition. Virtual machines number domains at random.
func (b BDF) IsPartition(v Version, others []BDF) bool {
	p := b.Partition()
	if p == 0 || p > maxPartition || v.Major == 24 && v.Minor < 7 {
		return false
	}
	return b.Board()>>16 == 0 || slices.Contains(others, b.Board())
}

// String is the address in the form 0000:05:00.0.
func (b BDF) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", uint64(b)>>16, uint64(b)>>8&0xff, uint64(b)>>3&0x1f, uint64(b)&7)
}
