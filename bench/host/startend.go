package main

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed testdata
var programs embed.FS

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

// measureStartAndEnd compares a program that stamps the clock, started directly and under the launcher, in turn.
func measureStartAndEnd(launcher, dir string, runs int) error {
	stamp, err := compile(dir, "stamp")
	if err != nil {
		return err
	}
	var direct, wrapped, end []time.Duration
	for range runs {
		first, _, err := stampRun(stamp)
		if err != nil {
			return err
		}
		direct = append(direct, first)
		first, total, err := stampRun(launcher, "--listen-port", "18377", stamp)
		if err != nil {
			return err
		}
		wrapped = append(wrapped, first)
		end = append(end, total)
	}
	// A workload that has run for a while ends with its sidecar up; the stamp's run includes the sidecar's start.
	var late []time.Duration
	for range max(runs/3, 3) {
		d, err := lateEnd(launcher)
		if err != nil {
			return err
		}
		late = append(late, d)
	}
	row("launcher: extra time before the workload's first instruction, median of "+strconv.Itoa(runs), "≤ 5 ms",
		"%.2f ms (direct %.2f, wrapped %.2f)", ms(median(wrapped)-median(direct)), ms(median(direct)), ms(median(wrapped)))
	row("launcher: workload's death to launcher's exit after 2 s of life, everything drained", "≤ 200 ms",
		"median %.0f ms, max %.0f ms", ms(median(late)), ms(slices.Max(late)))
	row("launcher: the same for a workload that ends at once (the sidecar still starts, reads and drains)", "-",
		"median %.0f ms, max %.0f ms", ms(median(end)), ms(slices.Max(end)))
	return nil
}

// stampRun returns the time from start to the stamp, and from the stamp to the exit of what was started.
func stampRun(argv ...string) (first, rest time.Duration, err error) {
	start := monotonic()
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	ended := monotonic()
	if err != nil {
		return 0, 0, err
	}
	at, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("stamp printed %q", out)
	}
	return time.Duration(at - start), time.Duration(ended - at), nil
}

// lateEnd measures the end of a workload whose last act is to print the clock.
func lateEnd(launcher string) (time.Duration, error) {
	out, err := exec.Command(launcher, "--listen-port", "18377", "python3", "-c",
		"import time,sys,os; time.sleep(2); os.write(1, str(time.monotonic_ns()).encode()); os._exit(0)").Output()
	ended := monotonic()
	if err != nil {
		return 0, err
	}
	at, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Duration(ended - at), err
}

// monotonic reads CLOCK_MONOTONIC, which every process of the machine shares.
func monotonic() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
