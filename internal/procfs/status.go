package procfs

import (
	"bytes"
	"math"
)

// Status is what this project reads of /proc/<pid>/status beside the context switches. What is not there is zero.
type Status struct {
	// ThreadGroup is the process that the thread belongs to.
	ThreadGroup int
	// InnerPID is the pid in the innermost namespace that the process has one in. Kernels before 4.1 do not tell.
	InnerPID int
	// Users are the real, effective, saved and file system user ids.
	Users []uint32
	// AddressSpace says that there is one: a kernel thread and a process that has ended have none.
	AddressSpace bool
}

// ParseStatus parses /proc/<pid>/status. Fields that it does not understand count as absent.
func ParseStatus(data []byte) Status {
	var s Status
	for line := range bytes.Lines(data) {
		key, value, _ := bytes.Cut(line, []byte{':'})
		switch string(key) {
		case "Tgid":
			s.ThreadGroup = lastPID(value)
		case "NSpid":
			s.InnerPID = lastPID(value)
		case "Uid":
			s.Users = nil
			for field := range bytes.FieldsSeq(value) {
				if id, ok := parseUint(field); ok && id <= math.MaxUint32 && len(s.Users) < 4 {
					s.Users = append(s.Users, uint32(id))
				}
			}
		case "VmSize":
			s.AddressSpace = true
		}
	}
	return s
}

// lastPID is the last of a line's pids, 0 when it is none.
func lastPID(value []byte) int {
	value = bytes.TrimSpace(value)
	pid, ok := parsePID(value[bytes.LastIndexAny(value, " \t")+1:])
	if !ok {
		return 0
	}
	return pid
}
