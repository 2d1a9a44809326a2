// Command nvml compares what /signals says of GPUs with what nvidia-smi says in the same second, on an idle and on a
// loaded GPU, and measures what the nvml receiver costs. It needs a host with an NVIDIA GPU, and graphsignal-run and
// graphsignal-collector in one folder:
//
//	bench-nvml -bin bin -load "python3 load.py"
//
// It ends with status 1 when a value differs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

func main() {
	bin := flag.String("bin", "bin", "folder of graphsignal-run and graphsignal-collector")
	load := flag.String("load", "", "shell command that loads the GPU until it is ended; none: idle only")
	settle := flag.Duration("settle", 15*time.Second, "time between a workload's start and the first comparison")
	rounds := flag.Int("rounds", 5, "comparisons of a phase")
	keep := flag.String("keep", "", "folder for the last replies of nvidia-smi and /signals of each phase")
	measure := flag.Duration("measure", 30*time.Second, "length of each measurement of CPU time")
	flag.Parse()
	if err := run(*bin, *load, *keep, *settle, *rounds, *measure); err != nil {
		fmt.Fprintln(os.Stderr, "bench-nvml:", err)
		os.Exit(1)
	}
}

func run(bin, load, keep string, settle time.Duration, rounds int, measure time.Duration) error {
	differ := 0
	phases := []struct{ name, command string }{{"idle", "sleep 1000"}}
	if load != "" {
		phases = append(phases, struct{ name, command string }{"loaded", load})
	}
	for _, p := range phases {
		n, err := compare(bin, p.name, p.command, keep, settle, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		differ += n
	}
	if err := cost(bin, measure); err != nil {
		return err
	}
	if differ > 0 {
		return fmt.Errorf("%d values differ", differ)
	}
	return nil
}

// start runs a command in a process group of its own, with its output to our stderr.
func start(argv ...string) (*exec.Cmd, func(), error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		timer := time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer timer.Stop()
		_ = cmd.Wait() // its status is that of a workload we ended
	}
	return cmd, stop, nil
}

// signals is what /signals said of one device, by metric.
type signals map[string]float64

// read gets /signals and returns the metrics of each device by PCI bus id. Those with other tags are left out.
func read(port int) (map[string]signals, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/signals", port), nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, err
	}
	var doc struct {
		Metrics []struct {
			Name  string                     `json:"name"`
			Tags  map[string]string          `json:"tags"`
			Stats map[string]json.RawMessage `json:"stats"`
		} `json:"metrics"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, nil, err
	}
	found := make(map[string]signals)
	for _, m := range doc.Metrics {
		id := m.Tags["device.bus_id"]
		if !strings.HasPrefix(m.Name, "gpu_") || id == "" || strings.HasPrefix(m.Tags["device.uuid"], "MIG-") {
			continue
		}
		if found[id] == nil {
			found[id] = make(signals)
		}
		for _, key := range []string{"value", "total"} {
			if v, err := strconv.ParseFloat(string(m.Stats[key]), 64); err == nil {
				if pid := m.Tags["process.pid"]; pid != "" {
					found[id][m.Name+"{"+pid+"}"] = v
				} else {
					found[id][m.Name] = v
				}
			}
		}
	}
	return found, raw, nil
}

// compare starts a workload under the profiler and returns how many values were told differently in every round.
func compare(bin, phase, command, keep string, settle time.Duration, rounds int) (int, error) {
	port, err := freeport.New()
	if err != nil {
		return 0, err
	}
	_, stop, err := start(filepath.Join(bin, "graphsignal-run"), "--listen-port", strconv.Itoa(port), "sh", "-c", command)
	if err != nil {
		return 0, err
	}
	defer stop()
	time.Sleep(settle)
	results := newReport()
	for range rounds {
		before, _, err := read(port)
		if err != nil {
			return 0, err
		}
		smi, page, err := querySMI()
		if err != nil {
			return 0, err
		}
		time.Sleep(1200 * time.Millisecond) // the next collection
		after, document, err := read(port)
		if err != nil {
			return 0, err
		}
		if err := save(keep, phase, page, document); err != nil {
			return 0, err
		}
		if len(smi) == 0 {
			return 0, errors.New("nvidia-smi lists no GPU")
		}
		results.add(before, smi, after)
	}
	fmt.Printf("== %s\n", phase)
	return results.print(), nil
}

// save keeps two replies for who wants to look closer.
func save(folder, phase string, page, document []byte) error {
	if folder == "" {
		return nil
	}
	return errors.Join(os.WriteFile(filepath.Join(folder, phase+"-nvidia-smi.xml"), page, 0o644),
		os.WriteFile(filepath.Join(folder, phase+"-signals.json"), document, 0o644))
}

// cost measures the CPU time of the Collector with the nvml receiver and without it.
func cost(bin string, length time.Duration) error {
	used := func(receivers string) (time.Duration, error) {
		port, err := freeport.New()
		if err != nil {
			return 0, err
		}
		config := fmt.Sprintf("{receivers: {nvml: {}, process: {}}, exporters: {signals: {endpoint: '127.0.0.1:%d'}}, "+
			"service: {pipelines: {metrics: {receivers: [%s], exporters: [signals]}}}}", port, receivers)
		cmd, stop, err := start(filepath.Join(bin, "graphsignal-collector"), "--config=yaml:"+config)
		if err != nil {
			return 0, err
		}
		defer stop()
		time.Sleep(5 * time.Second) // what the start costs is not counted
		begin, err := cpuTime(cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		time.Sleep(length)
		end, err := cpuTime(cmd.Process.Pid)
		return end - begin, err
	}
	without, err := used("process")
	if err != nil {
		return err
	}
	with, err := used("nvml, process")
	if err != nil {
		return err
	}
	ticks := length.Seconds()
	fmt.Printf("== cost\nCPU of the Collector in %v: %v without nvml, %v with it: %.2f ms a tick\n", length, without, with,
		(with-without).Seconds()*1000/ticks)
	return nil
}

// cpuTime is the time that all threads of a process ran, with the scheduler's resolution.
func cpuTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		first, _, _ := strings.Cut(string(raw), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f, err)
		}
		total += time.Duration(ns)
	}
	if len(files) == 0 || total == 0 {
		return cpuTicks(pid)
	}
	return total, nil
}

// cpuTicks is the same with a resolution of 10 ms, for kernels without schedstat.
func cpuTicks(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat is cut short")
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
