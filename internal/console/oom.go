package console

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxCgroupFile bounds the cgroup files that are read, bytes.
const maxCgroupFile = 64 << 10

// CgroupOOM reads the count of out-of-memory kills of a process' cgroup: field oom_kill of memory.events
// (version 2) or memory.oom_control (version 1). See the kernel's cgroup-v2 and cgroup-v1/memory documents.
type CgroupOOM struct {
	path string
}

// NewCgroupOOM looks up the cgroup of pid while it lives; for one that is gone it takes the caller's own, which the
// launcher shares. Where the counter cannot be found, Kills says so.
func NewCgroupOOM(procfs, cgroupfs string, pid int) *CgroupOOM {
	for _, process := range []string{strconv.Itoa(pid), "self"} {
		data, err := readBounded(filepath.Join(procfs, process, "cgroup"))
		if err != nil {
			continue
		}
		return &CgroupOOM{path: oomFile(string(data), cgroupfs)}
	}
	return &CgroupOOM{}
}

// oomFile finds the counter's file. Lines are "id:controllers:path"; version 2 has id 0 and no controllers.
func oomFile(cgroup, cgroupfs string) string {
	for line := range strings.SplitSeq(cgroup, "\n") {
		fields := strings.SplitN(line, ":", 3)
		if len(fields) != 3 {
			continue
		}
		var candidates []string
		switch {
		case fields[0] == "0" && fields[1] == "":
			candidates = []string{
				filepath.Join(cgroupfs, fields[2], "memory.events"),
				filepath.Join(cgroupfs, "memory.events"), // the path is not ours in a container without a cgroup namespace
			}
		case strings.Contains(","+fields[1]+",", ",memory,"):
			candidates = []string{
				filepath.Join(cgroupfs, "memory", fields[2], "memory.oom_control"),
				filepath.Join(cgroupfs, "memory", "memory.oom_control"),
			}
		}
		for _, path := range candidates {
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
	}
	return ""
}

// Kills implements OOMCounter.
func (c *CgroupOOM) Kills() (int64, bool) {
	if c.path == "" {
		return 0, false
	}
	data, err := readBounded(c.path)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxCgroupFile))
}
