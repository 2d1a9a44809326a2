package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/graphsignal/graphsignal-collector/bench/internal/usage"
)

const (
	// writeArgument makes this program write a number of bytes to its standard output as fast as it can.
	writeArgument = "-write"
	// logArgument makes this program write log lines at a number of bytes a second, for a number of seconds, with
	// one error a second.
	logArgument = "-log"

	teeBytes = 1 << 30
)

// logLoad is a number of bytes of log a second, and what that may cost.
type logLoad struct {
	rate   int
	budget string
}

// runWriter is the workload of the throughput measurement.
func runWriter(args []string) error {
	left, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte('a' + i%23)
		if i%97 == 96 {
			block[i] = '\n'
		}
	}
	for left > 0 {
		n, err := os.Stdout.Write(block[:min(left, len(block))])
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// runLog is the workload of the log measurement.
func runLog(args []string) error {
	rate, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	seconds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	const slices = 50 // a second
	tick := time.NewTicker(time.Second / slices)
	defer tick.Stop()
	written, line := 0, 0
	for n := range seconds * slices {
		if n%slices == 0 {
			fmt.Fprintf(out, "ERROR 03-09 14:02:11 [bench.py:7] planted failure number %d\n", n/slices)
		}
		for written < rate/slices*(n+1) {
			k, err := fmt.Fprintf(out, "INFO 03-09 14:02:11 [metrics.py:101] Engine 000: Avg prompt throughput: %d tokens/s, running: 12 reqs\n", line)
			if err != nil {
				return err
			}
			written += k
			line++
		}
		if err := out.Flush(); err != nil {
			return err
		}
		<-tick.C
	}
	time.Sleep(3 * time.Second) // the last error is still to be published
	return nil
}

// measureTee sends a gigabyte through the launcher and directly, in turn, and compares what arrives.
func measureTee(launcher string, runs int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var direct, wrapped []time.Duration
	var sums []uint64
	for range runs {
		for _, argv := range [][]string{{self}, {launcher, "--listen-port", listenPort, self}} {
			took, sum, err := drain(append(argv, writeArgument, strconv.Itoa(teeBytes)))
			if err != nil {
				return err
			}
			sums = append(sums, sum)
			if len(argv) == 1 {
				direct = append(direct, took)
			} else {
				wrapped = append(wrapped, took)
			}
		}
	}
	for _, sum := range sums {
		if sum != sums[0] {
			return errors.New("what came through the launcher is not what was written")
		}
	}
	speed := func(d time.Duration) float64 { return teeBytes / 1e9 / d.Seconds() }
	row("tee: 1 GiB through a pipe, with capture, byte-identical", "≥ 1 GB/s", "%.2f GB/s (without the launcher %.2f)", speed(median(wrapped)), speed(median(direct)))
	return nil
}

// drain runs a command and reads its output to the end.
func drain(argv []string) (time.Duration, uint64, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	sum := xxhash.New()
	var first time.Time
	block := make([]byte, 1<<20)
	for {
		n, err := out.Read(block)
		if first.IsZero() {
			first = time.Now() // what the start takes is measured elsewhere
		}
		_, _ = sum.Write(block[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(first)
	return took, sum.Sum64(), cmd.Wait()
}

// measureLog writes log with an error each second, and reads the errors from /signals.
func measureLog(launcher string, load logLoad, duration time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	seconds := int(duration.Seconds())
	cmd := exec.Command(launcher, "--listen-port", listenPort, self, logArgument, strconv.Itoa(load.rate), strconv.Itoa(seconds))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	defer func() { _ = cmd.Wait() }()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	seen := make(map[string]bool)
	var launcherCPU, sidecarCPU float64
	var peak int
	for {
		time.Sleep(time.Second)
		sidecar, err := usage.Sidecar(cmd.Process.Pid)
		if err != nil {
			break // the run is over
		}
		for _, message := range messages(client) {
			if strings.Contains(message, "planted failure number ") {
				seen[message] = true
			}
		}
		if cpu, err := usage.CPUSeconds(cmd.Process.Pid); err == nil {
			launcherCPU = cpu
		}
		if cpu, err := usage.CPUSeconds(sidecar); err == nil {
			sidecarCPU = cpu
		}
		if kb, err := usage.StatusKB(cmd.Process.Pid, "VmHWM"); err == nil {
			peak = kb
		}
	}
	row(fmt.Sprintf("tee: %d MB/s of log for %d s with an error each second", load.rate/1_000_000, seconds), load.budget,
		"launcher %.1f %% of a core and %.0f MiB at most, sidecar %.1f %%; %d of %d errors seen", 100*launcherCPU/float64(seconds),
		float64(peak)/1024, 100*sidecarCPU/float64(seconds), len(seen), seconds)
	return nil
}

// messages reads the texts of the errors.
func messages(client *http.Client) []string {
	resp, err := client.Get("http://127.0.0.1:" + listenPort + "/signals")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var doc struct {
		Errors []struct{ Message string }
	}
	if json.NewDecoder(resp.Body).Decode(&doc) != nil {
		return nil
	}
	var all []string
	for _, e := range doc.Errors {
		all = append(all, e.Message)
	}
	return all
}
