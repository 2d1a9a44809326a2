package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

// TicksPerSecond is the unit of the times in /proc/<pid>/stat: USER_HZ, 100 in every Linux ABI that Go supports.
const TicksPerSecond = 100

// Stat is what this project reads of /proc/<pid>/stat (proc_pid_stat(5)).
type Stat struct {
	PID int
	// Comm is the process title without its parentheses. It may hold any byte and is valid only until the next
	// read of the Reader it came from.
	Comm  []byte
	State byte
	PPID  int
	// UserTicks and SystemTicks are CPU time of the process without its children, in 1/TicksPerSecond seconds.
	UserTicks, SystemTicks uint64
	Threads                int
	// StartTicks is the time from boot to the start of the process, in 1/TicksPerSecond seconds.
	StartTicks uint64
	// VirtualBytes is the size of the address space.
	VirtualBytes uint64
	// ResidentPages is the resident set, in pages.
	ResidentPages uint64
}

// Ended reports whether the process has exited and is only waited for (a zombie).
func (s Stat) Ended() bool { return s.LeaderEnded() && s.Threads <= 1 }

// LeaderEnded reports whether the first thread has exited. Others may go on: then the process lives, but neither its memory nor
// its command line can be read here any more.
func (s Stat) LeaderEnded() bool { return s.State == 'Z' || s.State == 'X' || s.State == 'x' }

var errStat = errors.New("malformed stat")

// Fields of stat behind the title, counted from the state (field 3).
const (
	statPPID     = 4 - 3
	statUTime    = 14 - 3
	statSTime    = 15 - 3
	statThreads  = 20 - 3
	statStart    = 22 - 3
	statVSize    = 23 - 3
	statResident = 24 - 3
)

// ParseStat parses /proc/<pid>/stat. The title may hold blanks, newlines and parentheses, so the fields begin
// behind the last closing one. Stat.Comm refers to data.
func ParseStat(data []byte) (Stat, error) {
	open, last := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || last < open {
		return Stat{}, errStat
	}
	pid, ok := parseUint(bytes.TrimSpace(data[:open]))
	if !ok || pid == 0 || pid > math.MaxInt32 {
		return Stat{}, errStat
	}
	s := Stat{PID: int(pid), Comm: data[open+1 : last]}
	rest := data[last+1:]
	for i := 0; i <= statResident; i++ {
		var field []byte
		field, rest = nextField(rest)
		if len(field) == 0 {
			return Stat{}, errStat
		}
		if i == 0 {
			if len(field) != 1 || field[0] < 'A' || field[0] > 'z' {
				return Stat{}, errStat
			}
			s.State = field[0]
			continue
		}
		switch i {
		case statPPID, statUTime, statSTime, statThreads, statStart, statVSize, statResident:
		default:
			continue
		}
		v, ok := parseUint(field)
		if !ok {
			if i != statResident || field[0] != '-' {
				return Stat{}, errStat
			}
			v = 0 // the kernel's approximate counters can go below zero for a moment
		}
		switch i {
		case statPPID:
			if v > math.MaxInt32 {
				return Stat{}, errStat
			}
			s.PPID = int(v)
		case statUTime:
			s.UserTicks = v
		case statSTime:
			s.SystemTicks = v
		case statThreads:
			s.Threads = int(min(v, math.MaxInt32))
		case statStart:
			s.StartTicks = v
		case statVSize:
			s.VirtualBytes = v
		case statResident:
			s.ResidentPages = v
		}
	}
	return s, nil
}

// Switches are the context switches of one thread since it started.
type Switches struct {
	Voluntary, Involuntary uint64
}

// ParseSwitches reads the two switch counts of /proc/<pid>/task/<tid>/status.
func ParseSwitches(data []byte) (Switches, error) {
	voluntary, ok1 := keyed(data, "voluntary_ctxt_switches:")
	involuntary, ok2 := keyed(data, "nonvoluntary_ctxt_switches:")
	if !ok1 || !ok2 {
		return Switches{}, errors.New("status without context switches")
	}
	return Switches{Voluntary: voluntary, Involuntary: involuntary}, nil
}

// MemInfo is what this project reads of /proc/meminfo, in bytes.
type MemInfo struct {
	Total     uint64
	Available uint64
}

// Used is the memory that could not be given to a new program.
func (m MemInfo) Used() uint64 { return m.Total - min(m.Available, m.Total) }

// ParseMemInfo parses /proc/meminfo. Kernels before 3.14 do not estimate what is available; there it is free
// memory and what caches would give back.
func ParseMemInfo(data []byte) (MemInfo, error) {
	total, ok := keyed(data, "MemTotal:")
	if !ok || total > math.MaxUint64/1024 {
		return MemInfo{}, errors.New("meminfo without MemTotal")
	}
	available, ok := keyed(data, "MemAvailable:")
	if !ok {
		if _, ok = keyed(data, "MemFree:"); !ok {
			return MemInfo{}, errors.New("meminfo without MemAvailable and MemFree")
		}
		for _, key := range []string{"MemFree:", "Buffers:", "Cached:", "SReclaimable:"} {
			v, _ := keyed(data, key)
			available += min(v, total)
		}
	}
	return MemInfo{Total: total * 1024, Available: min(available, total) * 1024}, nil
}

// Machine is what this project reads of /proc/stat.
type Machine struct {
	// BootSeconds is when the system booted, in seconds since the epoch, rounded down.
	BootSeconds int64
	// CPUs is the number of online logical CPUs.
	CPUs int
}

// ParseMachine parses /proc/stat.
func ParseMachine(data []byte) (Machine, error) {
	boot, ok := keyed(data, "btime ")
	if !ok || boot > math.MaxInt64/1_000_000_000 {
		return Machine{}, errors.New("stat without btime")
	}
	m := Machine{BootSeconds: int64(boot)}
	for line := range bytes.Lines(data) {
		if len(line) > 3 && string(line[:3]) == "cpu" && line[3] >= '0' && line[3] <= '9' {
			m.CPUs++
		}
	}
	if m.CPUs == 0 {
		return Machine{}, errors.New("stat without CPUs")
	}
	return m, nil
}

// SplitCmdline splits /proc/<pid>/cmdline into arguments. A program that wrote a title over its arguments
// leaves it as one string, padded with zero bytes.
func SplitCmdline(data []byte) []string {
	data = bytes.TrimRight(data, "\x00")
	if len(data) == 0 {
		return nil
	}
	argv := make([]string, 0, bytes.Count(data, []byte{0})+1)
	for arg := range bytes.SplitSeq(data, []byte{0}) {
		argv = append(argv, string(arg))
	}
	return argv
}

// keyed returns the number behind key, which begins a line of data.
func keyed(data []byte, key string) (uint64, bool) {
	for line := range bytes.Lines(data) {
		if len(line) > len(key) && string(line[:len(key)]) == key {
			field, _ := nextField(line[len(key):])
			return parseUint(field)
		}
	}
	return 0, false
}

func nextField(data []byte) (field, rest []byte) {
	for len(data) > 0 && isBlank(data[0]) {
		data = data[1:]
	}
	end := 0
	for end < len(data) && !isBlank(data[end]) {
		end++
	}
	return data[:end], data[end:]
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

func parseUint(data []byte) (uint64, bool) {
	if len(data) == 0 {
		return 0, false
	}
	var v uint64
	for _, c := range data {
		d := uint64(c - '0')
		if d > 9 || v > (math.MaxUint64-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}

// parsePID parses the name of a directory of /proc.
func parsePID(name []byte) (int, bool) {
	v, ok := parseUint(name)
	if !ok || v == 0 || v > math.MaxInt32 || name[0] == '0' {
		return 0, false
	}
	return int(v), true
}

// fileError names the file an error is about.
func fileError(path string, err error) error { return fmt.Errorf("%s: %w", path, err) }
