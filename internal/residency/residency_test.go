package residency

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestReadOnlyMapping(t *testing.T) {
	for line, want := range map[string]bool{
		"00400000-01200000 r-xp 00000000 fe:00 123    /opt/bin/program":           true,
		"01200000-02200000 r--p 00e00000 fe:00 123    /opt/bin/program":           true,
		"02200000-02300000 rw-p 01e00000 fe:00 123    /opt/bin/program":           false,
		"02200000-02300000 r--s 01e00000 fe:00 123    /opt/bin/program":           false,
		"7f0000000000-7f0000001000 r-xp 00000000 fe:00 9 /usr/lib/libc.so.6":      false,
		"c000000000-c000400000 rw-p 00000000 00:00 0":                             false,
		"x-y r-xp 00000000 fe:00 123 /opt/bin/program":                            false,
		"02300000-02200000 r-xp 00000000 fe:00 123 /opt/bin/program":              false,
		"00400000-01200000 r-xp 00000000 fe:00 123    /opt/bin/program (deleted)": true,
		"": false,
	} {
		if _, _, ok := readOnlyMapping(line, "/opt/bin/program"); ok != want {
			t.Errorf("%q: %v", line, ok)
		}
	}
}

func TestWrittenMappingsStay(t *testing.T) {
	const smaps = `00400000-01200000 r-xp 00000000 fe:00 123    /opt/bin/program
Size:              14336 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01200000-01201000 r--p 00e00000 fe:00 123    /opt/bin/program
Size:                  4 kB
Private_Dirty:         4 kB
Anonymous:             4 kB
01201000-02200000 r--p 00e01000 fe:00 123    /opt/bin/program
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 9 /usr/lib/libc.so.6
Anonymous:             0 kB
`
	got := readOnlyMappings([]byte(smaps), "/opt/bin/program")
	want := []mapping{{0x400000, 0x1200000}, {0x1201000, 0x2200000}}
	if !slices.Equal(got, want) {
		t.Errorf("%x", got)
	}
}

// TestGiveBack: the program goes on, with less of its file resident.
func TestGiveBack(t *testing.T) {
	resident := func() string {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if value, ok := strings.CutPrefix(line, "RssFile:"); ok {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	before := resident()
	if err := GiveBack(); err != nil {
		t.Fatal(err)
	}
	t.Logf("RssFile %s, then %s", before, resident())
	if err := GiveBack(); err != nil {
		t.Fatal(err)
	}
}
