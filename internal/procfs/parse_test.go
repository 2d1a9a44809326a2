package procfs

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const statTail = " S 1 50 50 0 -1 4194304 5000 1 12 2 250 75 9 9 20 0 12 0 12345 10000000000 250000 18446744073709551615 1 1 0\n"

func TestParseStat(t *testing.T) {
	// Titles may hold anything but a zero byte: blanks, parentheses, newlines, bytes that are no text.
	for _, title := range []string{"cat", "", "tmux: server", "VLLM::W) Z 1 (", "((()", ")", "\xff\xfe w\n1", "a) S 1 2 3 (b"} {
		s, err := ParseStat([]byte("4711 (" + title + ")" + statTail))
		require.NoError(t, err, title)
		assert.Equal(t, Stat{
			PID: 4711, Comm: []byte(title), State: 'S', PPID: 1, UserTicks: 250, SystemTicks: 75, Threads: 12,
			StartTicks: 12345, VirtualBytes: 10000000000, ResidentPages: 250000,
		}, s)
		assert.False(t, s.Ended())
	}
	s, err := ParseStat([]byte("7 (x) Z 0 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 18446744073709551615 0 -3"))
	require.NoError(t, err, "no fields behind the last one that matters, and no newline")
	assert.True(t, s.Ended())
	threads, err := ParseStat([]byte("7 (x) Z 0 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 2 0 5 0 0"))
	require.NoError(t, err)
	assert.False(t, threads.Ended(), "another thread goes on")
	assert.True(t, threads.LeaderEnded())
	assert.Equal(t, uint64(math.MaxUint64), s.StartTicks)
	assert.Zero(t, s.ResidentPages)
}

func TestParseStatRefuses(t *testing.T) {
	good := "4711 (cat)" + statTail
	for _, bad := range []string{
		"", "4711", "4711 (cat", "4711 cat)", "(cat) S 1", " (cat)" + statTail, "x (cat)" + statTail, "-1 (cat)" + statTail,
		"0 (cat)" + statTail, "99999999999 (cat)" + statTail, "4711 (cat) S 1 2 3",
		strings.Replace(good, " S ", " SS ", 1), strings.Replace(good, " 250 ", " -250 ", 1),
		strings.Replace(good, " 12345 ", " 18446744073709551616 ", 1), strings.Replace(good, " S 1 ", " S x ", 1),
		strings.Replace(good, " S 1 ", " S 4294967296 ", 1),
	} {
		_, err := ParseStat([]byte(bad))
		assert.Error(t, err, bad)
	}
}

func TestParseSwitches(t *testing.T) {
	s, err := ParseSwitches([]byte("Name:\tvoluntary_ctxt_switches: 9\nThreads:\t2\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n"))
	require.NoError(t, err)
	assert.Equal(t, Switches{Voluntary: 150, Involuntary: 7}, s)
	for _, bad := range []string{"", "Name:\tx\n", "voluntary_ctxt_switches:\t150\n", "voluntary_ctxt_switches:\nnonvoluntary_ctxt_switches:\t7\n"} {
		_, err := ParseSwitches([]byte(bad))
		assert.Error(t, err, bad)
	}
}

func TestParseMemInfo(t *testing.T) {
	m, err := ParseMemInfo([]byte("MemTotal:       16316044 kB\nMemFree:  912104 kB\nMemAvailable:    9137128 kB\n"))
	require.NoError(t, err)
	assert.Equal(t, uint64(7178916*1024), m.Used())
	m, err = ParseMemInfo([]byte("MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 20 kB\nCached: 30 kB\nSReclaimable: 50 kB\n"))
	require.NoError(t, err)
	assert.Equal(t, uint64(800*1024), m.Used(), "an old kernel")
	m, err = ParseMemInfo([]byte("MemTotal: 1000 kB\nMemAvailable: 2000 kB\n"))
	require.NoError(t, err)
	assert.Zero(t, m.Used())
	for _, bad := range []string{"", "MemTotal: 1000 kB\n", "MemFree: 1\nMemAvailable: 1\n", "MemTotal: x kB\nMemAvailable: 1 kB\n", "MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n"} {
		_, err := ParseMemInfo([]byte(bad))
		assert.Error(t, err, bad)
	}
}

func TestParseMachine(t *testing.T) {
	m, err := ParseMachine([]byte("cpu  1 2\ncpu0 1 2\ncpu2 1 2\nintr 5\nbtime 1600000000\n"))
	require.NoError(t, err)
	assert.Equal(t, Machine{BootSeconds: 1600000000, CPUs: 2}, m)
	for _, bad := range []string{"", "cpu0 1\n", "btime 1\n", "cpu0 1\nbtime -1\n", "cpu0 1\nbtime 9223372036854775807\n"} {
		_, err := ParseMachine([]byte(bad))
		assert.Error(t, err, bad)
	}
}

func TestSplitCmdline(t *testing.T) {
	assert.Nil(t, SplitCmdline(nil))
	assert.Nil(t, SplitCmdline([]byte("\x00\x00")))
	assert.Equal(t, []string{"a", "", "b c"}, SplitCmdline([]byte("a\x00\x00b c\x00")))
	assert.Equal(t, []string{"VLLM::Worker 1"}, SplitCmdline([]byte("VLLM::Worker 1\x00\x00\x00\x00\x00")))
	assert.Equal(t, []string{"cut"}, SplitCmdline([]byte("cut")))
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("4711 (cat)" + statTail))
	f.Add([]byte("4711 (VLLM::W) Z 1 ()" + statTail))
	f.Add([]byte("1 (\xff\n) Z 0 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 3 0 -3"))
	f.Add([]byte(")("))
	f.Add([]byte("1()\x00 1 0 0 0 1 1 0 1 2 2 4670 75 9 9 2 0 12 0 12345 30000000000 250000 1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseStat(data)
		if err == nil && (s.PID <= 0 || s.PPID < 0 || s.Threads < 0 || s.State == 0) {
			t.Errorf("%+v", s)
		}
	})
}

// FuzzStatFields: what the kernel writes is what comes back, whatever the title.
func FuzzStatFields(f *testing.F) {
	f.Add(uint32(4711), []byte("a) S 1 2 (b"), byte('S'), uint32(1), uint64(250), uint32(12), uint64(math.MaxUint64), int64(-3))
	f.Add(uint32(1), []byte("\n)"), byte('Z'), uint32(0), uint64(0), uint32(1), uint64(0), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, pid uint32, title []byte, state byte, ppid uint32, ticks uint64, threads uint32, start uint64, resident int64) {
		pid, ppid, threads, state = max(pid%math.MaxInt32, 1), ppid%math.MaxInt32, threads%math.MaxInt32, 'A'+state%26
		text := fmt.Appendf(nil, "%d (%s) %c %d 7 7 0 -1 4194304 5 1 12 2 %d %d 9 9 20 0 %d 0 %d %d %d 18446744073709551615 1 1 0\n",
			pid, title, state, ppid, ticks, ^ticks, threads, start, ^start, resident)
		got, err := ParseStat(text)
		want := Stat{
			PID: int(pid), Comm: title, State: state, PPID: int(ppid), UserTicks: ticks, SystemTicks: ^ticks, Threads: int(threads),
			StartTicks: start, VirtualBytes: ^start, ResidentPages: uint64(max(resident, 0)),
		}
		if err != nil || string(got.Comm) != string(title) {
			t.Fatalf("%q: %v, title %q", text, err, got.Comm)
		}
		if got.Comm, want.Comm = nil, nil; !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %+v, want %+v", text, got, want)
		}
	})
}

// FuzzKeyed covers the parsers of files with one key a line.
func FuzzKeyed(f *testing.F) {
	f.Add([]byte("MemTotal: 1000 kB\nMemAvailable: 2000 kB\n"))
	f.Add([]byte("MemTotal: 1000 kB\nMemFree: 18446744073709551615 kB\nCached: 18446744073709551615 kB\n"))
	f.Add([]byte("cpu0 1\nbtime 1600000000\n"))
	f.Add([]byte("voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := ParseMemInfo(data); err == nil && m.Used() > m.Total {
			t.Errorf("%+v", m)
		}
		if m, err := ParseMachine(data); err == nil && (m.CPUs <= 0 || StartTime(m.BootSeconds*1e9, 0) < 0) {
			t.Errorf("%+v", m)
		}
		_, _ = ParseSwitches(data)

		// What stands before a line does not matter, unless it is the same key.
		if bytes.Contains(data, []byte("Mem")) || bytes.Contains(data, []byte("_switches:")) || bytes.Contains(data, []byte("btime")) {
			return
		}
		full := append(bytes.Clone(data), "\nMemTotal: 9 kB\nMemAvailable:\t4 kB\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\ncpu0 1\nbtime 8\n"...)
		m, err := ParseMemInfo(full)
		if err != nil || m != (MemInfo{Total: 9 << 10, Available: 4 << 10}) {
			t.Errorf("%+v, %v", m, err)
		}
		if s, err := ParseSwitches(full); err != nil || s != (Switches{Voluntary: 5, Involuntary: 7}) {
			t.Errorf("%+v, %v", s, err)
		}
		if m, err := ParseMachine(full); err != nil || m.BootSeconds != 8 || m.CPUs < 1 {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

func FuzzSplitCmdline(f *testing.F) {
	f.Add([]byte("a\x00b\x00"))
	f.Add([]byte("\x00\x00a\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := strings.Join(SplitCmdline(data), "\x00"); got != strings.TrimRight(string(data), "\x00") {
			t.Errorf("%q", got)
		}
	})
}
