// Package usage reads from /proc what a process uses.
package usage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Sidecar finds the collector among the children of the launcher.
func Sidecar(launcher int) (int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		name, rest, ok := bytes.Cut(raw, []byte(") "))
		if !ok || !bytes.Contains(name, []byte("(graphsignal-col")) {
			continue
		}
		fields := strings.Fields(string(rest))
		if len(fields) > 1 && fields[1] == strconv.Itoa(launcher) {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, errors.New("the launcher has no sidecar")
}

// CPUSeconds is the time on a CPU of a process' threads so far, to the nanosecond. Go threads seldom end.
func CPUSeconds(pid int) (float64, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("no schedstat of %d", pid)
	}
	var sum float64
	for _, path := range tasks {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(raw))
		if len(fields) == 0 {
			continue
		}
		ns, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return 0, err
		}
		sum += ns / 1e9
	}
	return sum, nil
}

// StatusKB is a field of /proc/<pid>/status, in kB (VmRSS, VmHWM).
func StatusKB(pid int, key string) (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		}
	}
	return 0, fmt.Errorf("no %s of %d", key, pid)
}

// Descriptors is how many files a process has open.
func Descriptors(pid int) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries), err
}
