package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const listenPort = "18378"

// measureLoad runs one load under the launcher with one GET a second and reads the sidecar's CPU and memory.
func measureLoad(launcher string, l load, duration time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"--listen-port", listenPort}
	if l.portOfPage != 0 {
		args = append(args, "--metrics-port", strconv.Itoa(l.portOfPage))
	}
	args = append(args, self, loadArgument, strconv.Itoa(l.portOfPage), strconv.Itoa(l.processes))
	cmd := exec.Command(launcher, append(args, l.documents...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := forgetPages(filepath.Join(filepath.Dir(launcher), "graphsignal-collector")); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	size, err := waitForSeries(client, l)
	if err != nil {
		return err
	}
	sidecar, err := sidecarOf(cmd.Process.Pid)
	if err != nil {
		return err
	}
	startup, err := cpuSeconds(sidecar)
	if err != nil {
		return err
	}
	var latency []time.Duration
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for end := time.Now().Add(duration); time.Now().Before(end); <-ticker.C {
		d, _, err := get(client)
		if err != nil {
			return err
		}
		latency = append(latency, d)
	}
	cpu, err := cpuSeconds(sidecar)
	if err != nil {
		return err
	}
	peak, err := statusKB(sidecar, "VmHWM")
	if err != nil {
		return err
	}
	rss, err := statusKB(sidecar, "VmRSS")
	if err != nil {
		return err
	}
	used := (cpu - startup) * 60 / duration.Seconds()
	if l.coreBudget {
		row(l.name+": sidecar's CPU, one GET a second", l.cpu, "%.1f %% of a core; RSS %.0f MiB", 100*(cpu-startup)/duration.Seconds(), float64(rss)/1024)
		return nil
	}
	row("load "+l.name+" ("+l.what+"): sidecar's CPU in 60 s, one GET a second", l.cpu, "%.2f s (and %.2f s to start)", used, startup)
	row("load "+l.name+": sidecar's RSS", l.rss, "%.1f MiB, peak %.1f", float64(rss)/1024, float64(peak)/1024)
	if l.getLatency {
		row("load "+l.name+": GET /signals once a second, new connection", "-", "median %.2f ms, max %.2f ms", ms(median(latency)), ms(slices.Max(latency)))
		return measureGets(size)
	}
	return nil
}

// forgetPages drops a program from the page cache, as after a boot. One that the linker has just written lies there
// in folios of up to megabytes, which are mapped, and counted as resident, as a whole.
func forgetPages(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// waitForSeries polls until the load's series are there and returns the body's size.
func waitForSeries(client *http.Client, l load) (int, error) {
	want := 1 << 10
	if len(l.documents) > 1 {
		want = 500 << 10
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, size, err := get(client); err == nil && size >= want {
			return size, nil
		}
	}
	return 0, fmt.Errorf("no %d bytes at /signals within 20 s", want)
}

// measureGets reads as fast as one reader can over one connection, then as four readers at once.
func measureGets(size int) error {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	var latency []time.Duration
	for range 2000 {
		d, _, err := get(client)
		if err != nil {
			return err
		}
		latency = append(latency, d)
	}
	slices.Sort(latency)
	row(fmt.Sprintf("load c: GET /signals (%d KB), one reader, 2,000 requests", size/1000), "median ≤ 1.5 ms, p99 ≤ 5 ms",
		"median %.2f ms, p99 %.2f ms", ms(latency[len(latency)/2]), ms(latency[len(latency)*99/100]))
	const readers, each = 4, 500
	start := time.Now()
	var wait sync.WaitGroup
	failed := make(chan error, readers)
	for range readers {
		wait.Go(func() {
			for range each {
				if _, _, err := get(client); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wait.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	row("load c: GET /signals, four readers at once", "≥ 500 requests/s", "%.0f requests/s", readers*each/time.Since(start).Seconds())
	return nil
}

func get(client *http.Client) (time.Duration, int, error) {
	start := time.Now()
	resp, err := client.Get("http://127.0.0.1:" + listenPort + "/signals")
	if err != nil {
		return 0, 0, err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return time.Since(start), int(n), err
}

// sidecarOf finds the collector among the children of the launcher.
func sidecarOf(launcher int) (int, error) {
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

// cpuSeconds is the time on a CPU of a process' threads so far, to the nanosecond. Go threads seldom end.
func cpuSeconds(pid int) (float64, error) {
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

func statusKB(pid int, key string) (int, error) {
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
