package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// measureDelay takes the time from a kernel's end to its place in /signals: a program reports a kernel every 97 ms to the
// CUPTI library through our stub of CUPTI, and /signals is read every 10 ms.
func measureDelay(launcher string, duration time.Duration) error {
	root := filepath.Dir(filepath.Dir(launcher))
	program := filepath.Join(root, "inject", "build", "test", "cuda_program")
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%w: run make -C inject programs first", err)
	}
	cmd := exec.Command(launcher, "--listen-port", listenPort, program, "stamps", strconv.Itoa(int(duration.Seconds())))
	cmd.Env = append(os.Environ(), "CUDA_INJECTION64_PATH="+filepath.Join(root, "lib", "graphsignal", "libgraphsignal_cupti.so"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var mu sync.Mutex
	var ends []int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if at, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				mu.Lock()
				ends = append(ends, at)
				mu.Unlock()
			}
		}
	}()
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	var delays []time.Duration
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-tick.C:
		}
		shown := stamped(client)
		now := time.Now().UnixNano()
		mu.Lock()
		for len(delays) < min(shown, len(ends)) {
			delays = append(delays, time.Duration(now-ends[len(delays)]))
		}
		mu.Unlock()
	}
	// The stub's programs end with 42 where all went well.
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 42 {
		return fmt.Errorf("%s: %v", program, err)
	}
	// What was reported before the first look waited for the sidecar's start.
	if len(delays) < 100 {
		return fmt.Errorf("only %d kernels were seen", len(delays))
	}
	delays = delays[20:]
	slices.Sort(delays)
	row("time from a kernel's end to /signals", "≤ 2.2 s", "median %.2f s, max %.2f s of %d kernels",
		median(delays).Seconds(), delays[len(delays)-1].Seconds(), len(delays))
	return nil
}

// stamped is how many of the program's kernels /signals shows.
func stamped(client *http.Client) int {
	resp, err := client.Get("http://127.0.0.1:" + listenPort + "/signals")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var doc struct {
		Metrics []struct {
			Name  string
			Stats struct {
				Frames []struct {
					Name    string
					Samples int
				}
			}
		}
	}
	if json.NewDecoder(resp.Body).Decode(&doc) != nil {
		return 0
	}
	for _, m := range doc.Metrics {
		if m.Name == "cuda_kernels_nanoseconds" {
			for _, f := range m.Stats.Frames {
				if f.Name == "stamped" {
					return f.Samples
				}
			}
		}
	}
	return 0
}
