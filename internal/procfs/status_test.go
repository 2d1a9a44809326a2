package procfs

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseStatus(t *testing.T) {
	assert.Equal(t, Status{ThreadGroup: 71, InnerPID: 3, Users: []uint32{1000, 0, 1000, 4294967295}, AddressSpace: true},
		ParseStatus([]byte("Name:\tx Uid: 7\nTgid:\t71\nPid:\t72\nUid:\t1000\t0\t1000\t4294967295\nNSpid:\t4711\t3\nVmSize:\t    2 kB\n")))
	assert.Equal(t, Status{ThreadGroup: 2}, ParseStatus([]byte("Name:\tkthreadd\nTgid:\t2\nNSpid:\nUid:")))
	assert.Equal(t, Status{Users: []uint32{1}}, ParseStatus([]byte("Tgid:\t-1\nNSpid:\t5\tx\nUid:\t4294967296 1 y\n")))
	assert.Equal(t, Status{}, ParseStatus(nil))
}

// FuzzParseStatus: what the kernel writes is what comes back, whatever stands before it.
func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("Name:\ta\nUmask: 0\nGroups:\t1 2\n"), uint32(7), uint32(3), uint32(1000))
	f.Add([]byte("Uid:\nNSpid:\tx\nTgid: 1 2\nVmSize"), uint32(0), uint32(0), uint32(0))
	f.Fuzz(func(t *testing.T, before []byte, group, inner, user uint32) {
		s := ParseStatus(before)
		if s.ThreadGroup < 0 || s.InnerPID < 0 || len(s.Users) > 4 {
			t.Fatalf("%q: %+v", before, s)
		}
		group, inner = max(group%math.MaxInt32, 1), max(inner%math.MaxInt32, 1)
		text := fmt.Appendf(bytes.Clone(before), "\nTgid:\t%d\nUid:\t%d\t%d\t0\t%[2]d\nNSpid:\t1\t%[4]d\nVmSize:\t  1 kB\n", group, user, ^user, inner)
		s = ParseStatus(text)
		if s.ThreadGroup != int(group) || s.InnerPID != int(inner) || !s.AddressSpace || !slices.Equal(s.Users, []uint32{user, ^user, 0, user}) {
			t.Fatalf("%q: %+v", text, s)
		}
	})
}
