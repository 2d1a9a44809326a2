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
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for scanner := bufio.NewScanner(bytes.NewReader(maps)); scanner.Scan(); {
		start, end, ok := readOnlyMapping(scanner.Text(), path)
		if !ok {
			continue
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, start, end-start, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}

// readOnlyMapping parses a line of /proc/self/maps (proc_pid_maps(5)) and reports whether it maps the file at path
// privately and without write permission, so that dropping its pages loses nothing.
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
