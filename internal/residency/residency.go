// Package residency gives memory back that only the start of a process needed.
package residency

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// GiveBack returns free heap to the system and takes the executable's read-only pages off the resident set: the
// initialisation of hundreds of packages has touched most of them, and what is used again comes back from the page
// cache. It costs a few milliseconds once.
func GiveBack() error {
	debug.FreeOSMemory()
	path, err := os.Executable()
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	for _, m := range readOnlyMappings(maps, path) {
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}

type mapping struct{ start, end uintptr }

// readOnlyMappings reads /proc/self/smaps (proc_pid_smaps(5)) and returns the mappings of the file at path whose pages
// all are the file's own. One that the loader has written to, for relocations, and protected afterwards is none: its
// pages exist nowhere else.
func readOnlyMappings(smaps []byte, path string) []mapping {
	var found []mapping
	var last mapping
	var isFile bool
	for scanner := bufio.NewScanner(bytes.NewReader(smaps)); scanner.Scan(); {
		line := scanner.Text()
		if value, ok := strings.CutPrefix(line, "Anonymous:"); ok {
			if isFile && strings.TrimSpace(value) == "0 kB" {
				found = append(found, last)
			}
			isFile = false
			continue
		}
		if start, end, ok := readOnlyMapping(line, path); ok {
			last, isFile = mapping{start, end}, true
		}
	}
	return found
}

// readOnlyMapping parses the first line of a mapping and reports whether it maps the file at path privately and without
// write permission.
func readOnlyMapping(line, path string) (start, end uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[5] != path || fields[1] != "r-xp" && fields[1] != "r--p" {
		return 0, 0, false
	}
	from, to, found := strings.Cut(fields[0], "-")
	if !found {
		return 0, 0, false
	}
	const bits = 8 * int(unsafe.Sizeof(start))
	low, err := strconv.ParseUint(from, 16, bits)
	if err != nil {
		return 0, 0, false
	}
	high, err := strconv.ParseUint(to, 16, bits)
	if err != nil || high <= low {
		return 0, 0, false
	}
	return uintptr(low), uintptr(high), true
}
