package smi

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestBDF(t *testing.T) {
	rocm7, rocm62 := Version{26, 0}, Version{24, 6}
	for _, tc := range []struct {
		bdf       BDF
		version   Version
		others    []BDF
		text      string
		partition bool
	}{
		{0x0500, rocm7, nil, "0000:05:00.0", false},
		{0x837b, rocm7, nil, "0000:83:0f.3", false},
		{0x10000500, rocm7, []BDF{0x500}, "0000:05:00.0", true},
		{0x70000500, rocm7, nil, "0000:05:00.0", true},
		{0x10000500, rocm62, []BDF{0x500}, "1000:05:00.0", false},
		{0x80000500, rocm7, nil, "8000:05:00.0", false},           // there is no ninth partition
		{0x12340500, rocm7, nil, "1234:05:00.0", false},           // a domain of a virtual machine
		{0x10020500, rocm7, []BDF{0x20500}, "0002:05:00.0", true}, // a partition of a board in domain 2
		{0x123450500, rocm7, nil, "12345:05:00.0", false},
	} {
		b, partition := tc.bdf, tc.bdf.IsPartition(tc.version, tc.others)
		if partition {
			b = b.Board()
		}
		if b.String() != tc.text || partition != tc.partition {
			t.Errorf("%#x: %s, partition %v", uint64(tc.bdf), b, partition)
		}
	}
}

func TestNVMLReasons(t *testing.T) {
	for bit := range 64 {
		var want uint64
		switch {
		case bit < 8 || bit >= 16 && bit < 24:
			want = 0x4
		case bit >= 32 && bit < 46:
			want = 0x40
		case bit == 46 || bit == 47 || bit == 56 || bit == 57:
			want = 0x8
		}
		if got := NVMLReasons(1 << bit); got != want {
			t.Errorf("bit %d is %#x, want %#x", bit, got, want)
		}
	}
	if got := NVMLReasons(1 | 1<<40 | 1<<47); got != 0x4c {
		t.Errorf("together they are %#x", got)
	}
}

func TestPCIeGeneration(t *testing.T) {
	for speed, want := range map[uint64]uint64{1: 1, 6: 6, 25: 1, 50: 2, 80: 3, 160: 4, 320: 5, 640: 6, 0: 0, 7: 0, 65535: 0} {
		if got, ok := PCIeGeneration(speed); got != want || ok != (want != 0) {
			t.Errorf("%d is %d, %v", speed, got, ok)
		}
	}
}

func TestAvailable(t *testing.T) {
	for _, v := range []uint64{math.MaxUint16, math.MaxUint32, math.MaxUint64} {
		if Available(v) {
			t.Errorf("%d is available", v)
		}
	}
	if !Available(0) || !Available(255) || !Available(65534) {
		t.Error("a value is not available")
	}
}

func TestASIC(t *testing.T) {
	buf := make([]byte, largest)
	put := func(offset int, v uint64) { binary.LittleEndian.PutUint64(buf[offset:], v) }
	copy(buf, " AMD Radeon\x00rest")
	put(384, 942)
	put(800, 0x90a)
	for v, want := range map[Version]string{{24, 5}: "", {24, 6}: "", {24, 7}: "gfx942", {25, 0}: "gfx90a", {26, 2}: "gfx90a", {27, 0}: "gfx90a"} {
		if got := decodeASIC(buf, v); got.Target != want || got.Name != "AMD Radeon" {
			t.Errorf("%v: %+v, want %s", v, got, want)
		}
	}
	put(384, 90) // a version with a letter
	put(800, math.MaxUint64)
	for _, v := range []Version{{24, 7}, {26, 0}} {
		if got := decodeASIC(buf, v); got.Target != "" {
			t.Errorf("%v: %+v", v, got)
		}
	}
}

// Whatever a library writes, reading it ends well.
func FuzzMetrics(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, metricsPrefix-1))
	f.Add(make([]byte, metricsPrefix))
	ones := make([]byte, 4544)
	for i := range ones {
		ones[i] = 0xff
	}
	f.Add(ones)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := Metrics(data)
		for _, field := range []Field{EdgeTemperature, HBMThermalResidency, XGMISpeed, PCIeBandwidth} {
			if v, ok := m.Get(field); ok && (v == math.MaxUint64 || !field.total && v == math.MaxUint16) {
				t.Errorf("a value that is not available: %d", v)
			}
		}
		m.XGMI()
		if clock, ok := m.XCDClock(); ok && clock >= math.MaxUint16 {
			t.Errorf("clock %d", clock)
		}
	})
}

func FuzzStructures(f *testing.F) {
	f.Add([]byte("AMD Instinct MI300X"), uint32(26), uint32(2), uint64(0x500))
	f.Add([]byte{0xff, 0xfe, 0}, uint32(24), uint32(7), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, data []byte, major, minor uint32, bdf uint64) {
		buf := make([]byte, largest)
		copy(buf, data)
		for _, text := range []string{decodeASIC(buf, Version{major, minor}).Name, BDF(bdf).String()} {
			for _, c := range []byte(text) {
				if c < ' ' || c > '~' {
					t.Errorf("text %q", text)
				}
			}
		}
		if e, ok := decodeEnumeration(buf); ok && e.HIPID == math.MaxUint32 {
			t.Error("an id that is not available")
		}
		decodeVersion(buf)
	})
}
