package residency

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzMappings: only what the table says is mapped read-only from the file is found, and that is found whatever else there is.
func FuzzMappings(f *testing.F) {
	f.Add("00400000-00500000 r-xp 00000000 08:01 7 /x\nAnonymous:  0 kB\n", uint32(1), uint32(2))
	f.Add("Anonymous: 4 kB\n1-0 r--p 0 0 0 /x\nAnonymous: 0 kB\nffffffffffffffffff-2 r--p 0 0 0 /x", uint32(0), uint32(1))
	f.Fuzz(func(t *testing.T, before string, start, length uint32) {
		for _, m := range readOnlyMappings([]byte(before), "/x") {
			if m.end <= m.start || !strings.Contains(strings.ToLower(before), fmt.Sprintf("%x-", m.start)) {
				t.Fatalf("%x-%x of %q", m.start, m.end, before)
			}
		}
		want := mapping{uintptr(start), uintptr(start) + uintptr(length) + 1}
		row := fmt.Sprintf("\n%08x-%08x r-xp 00000000 08:01 7                          /x\nSize: 4 kB\nAnonymous:             0 kB\n", want.start, want.end)
		found := readOnlyMappings([]byte(before+row), "/x")
		if len(before) < 1<<15 && (len(found) == 0 || found[len(found)-1] != want) {
			t.Fatalf("%x after %q", found, before)
		}
	})
}
