package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/bench/internal/usage"
)

const listenPort = "18378"

// cost is what a sidecar takes: a share of a core, and resident KiB.
type cost struct {
	core float64
	rss  int
}

// measureLoad runs one load under the launcher with one GET a second and reads the sidecar's CPU and memory. What it costs
// with an upload is told as the difference to without.
func measureLoad(launcher string, l load, duration time.Duration, without *cost) (took cost, err error) {
	self, err := os.Executable()
	if err != nil {
		return took, err
	}
	args := []string{"--listen-port", listenPort}
	if l.portOfPage != 0 {
		args = append(args, "--metrics-port", strconv.Itoa(l.portOfPage))
	}
	args = append(args, self, loadArgument, strconv.Itoa(l.portOfPage), strconv.Itoa(l.processes))
	cmd := exec.Command(launcher, append(args, l.documents...)...)
	if without != nil {
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
		defer server.Close()
		cmd.Env = append(os.Environ(), "GRAPHSIGNAL_API_KEY=bench", "GRAPHSIGNAL_API_BASE="+server.URL)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return took, err
	}
	cmd.Stderr = os.Stderr
	if err := forgetPages(filepath.Join(filepath.Dir(launcher), "graphsignal-collector")); err != nil {
		return took, err
	}
	if err := cmd.Start(); err != nil {
		return took, err
	}
	defer func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	size, err := waitForSeries(client, l)
	if err != nil {
		return took, err
	}
	sidecar, err := usage.Sidecar(cmd.Process.Pid)
	if err != nil {
		return took, err
	}
	startup, err := usage.CPUSeconds(sidecar)
	if err != nil {
		return took, err
	}
	var latency []time.Duration
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for end := time.Now().Add(duration); time.Now().Before(end); <-ticker.C {
		d, _, err := get(client)
		if err != nil {
			return took, err
		}
		latency = append(latency, d)
	}
	cpu, err := usage.CPUSeconds(sidecar)
	if err != nil {
		return took, err
	}
	peak, err := usage.StatusKB(sidecar, "VmHWM")
	if err != nil {
		return took, err
	}
	rss, err := usage.StatusKB(sidecar, "VmRSS")
	if err != nil {
		return took, err
	}
	used := (cpu - startup) * 60 / duration.Seconds()
	took = cost{core: (cpu - startup) / duration.Seconds(), rss: rss}
	if without != nil {
		row("load "+l.name+" with the upload on, in addition", "≤ 3 % of a core, ≤ 40 MiB", "%.1f %% of a core, %.1f MiB",
			100*(took.core-without.core), (float64(took.rss)-float64(without.rss))/1024)
		return took, nil
	}
	if l.coreBudget {
		row(l.name+": sidecar's CPU, one GET a second", l.cpu, "%.1f %% of a core; RSS %.0f MiB", 100*took.core, float64(rss)/1024)
		return took, nil
	}
	row("load "+l.name+" ("+l.what+"): sidecar's CPU in 60 s, one GET a second", l.cpu, "%.2f s (and %.2f s to start)", used, startup)
	row("load "+l.name+": sidecar's RSS", l.rss, "%.1f MiB, peak %.1f", float64(rss)/1024, float64(peak)/1024)
	if l.getLatency {
		row("load "+l.name+": GET /signals once a second, new connection", "-", "median %.2f ms, max %.2f ms", ms(median(latency)), ms(slices.Max(latency)))
		return took, measureGets(size)
	}
	return took, nil
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
