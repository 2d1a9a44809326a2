package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// TestLive profiles a real program with the real launcher and sidecar, and checks the page against what the two documents
// that the program read say when one computes by hand.
func TestLive(t *testing.T) {
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"graphsignal-run", "graphsignal-collector", "graphsignal-demo"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Skipf("%s is not built (make build makes it): no live profiler to look at", name)
		}
	}
	profiler := fmt.Sprint(freeport.Get(t))
	var output bytes.Buffer
	run := exec.Command(filepath.Join(bin, "graphsignal-run"), "--listen-port", profiler, filepath.Join(bin, "graphsignal-demo"), "--port", "0", "--seconds", "120")
	run.Stdout, run.Stderr = &output, &output
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		_ = run.Wait()
	})

	// The program reads through a proxy that keeps what it was given.
	var mu sync.Mutex
	var bodies [][]byte
	target := "http://127.0.0.1:" + profiler + "/signals"
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := get(target)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		mu.Lock()
		bodies = append(bodies, body)
		mu.Unlock()
		_, _ = w.Write(body)
	}))
	defer proxy.Close()

	deadline := time.Now().Add(30 * time.Second)
	for {
		body, err := get(target)
		if err == nil && bytes.Contains(body, []byte("demo_parts_nanoseconds")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the demo's probes never appeared at %s: %v\n%s", target, err, output.String())
		}
		time.Sleep(100 * time.Millisecond)
	}
	_, proxyPort, err := net.SplitHostPort(proxy.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	page, errs, status := top(t, "--once", "--window", "3", "--port", proxyPort)
	if status != 0 || len(bodies) != 2 {
		t.Fatalf("status %d, %d reads, stderr %q", status, len(bodies), errs)
	}
	before, after := demoParts(t, bodies[0]), demoParts(t, bodies[1])
	// On a machine that is stopped for seconds, a measurement may be too old to count, and the time between reads does.
	own, reads := float64(after.updated-before.updated)/1e9, float64(after.payload-before.payload)/1e9
	for name, now := range after.frames {
		then := before.frames[name]
		fields := rowOf(t, page, "demo_parts "+name)
		for i, want := range [][]float64{
			{(now[0] - then[0]) / own, (now[0] - then[0]) / reads},                             // time per second
			{(now[1] - then[1]) / own, (now[1] - then[1]) / reads},                             // calls per second
			{(now[0] - then[0]) / (now[1] - then[1]), (now[0] - then[0]) / (now[1] - then[1])}, // mean
			{now[0], now[0]},
			{now[1], now[1]},
		} {
			got := number(t, fields[i])
			if math.Abs(got-want[0]) > 0.006*want[0] && math.Abs(got-want[1]) > 0.006*want[1] {
				t.Errorf("%s, column %d: %s, but by hand %v\n%s", name, i+1, fields[i], want, page)
			}
		}
	}
	if len(after.frames) == 0 || !strings.Contains(page, "graphsignal-demo --port 0") {
		t.Errorf("page:\n%s", page)
	}
}

func get(url string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(io.LimitReader(resp.Body, 16<<20))
}

type parts struct {
	payload, updated int64
	frames           map[string][2]float64
}

func demoParts(t *testing.T, body []byte) parts {
	t.Helper()
	var doc struct {
		Payload int64 `json:"payload_ns"`
		Metrics []struct {
			Name    string
			Updated int64 `json:"updated_ns"`
			Stats   struct {
				Frames []struct {
					Name           string
					Value, Samples float64
				}
			}
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	p := parts{payload: doc.Payload, frames: map[string][2]float64{}}
	for _, m := range doc.Metrics {
		if m.Name == "demo_parts_nanoseconds" {
			p.updated = m.Updated
			for _, f := range m.Stats.Frames {
				p.frames[f.Name] = [2]float64{f.Value, f.Samples}
			}
		}
	}
	return p
}

func rowOf(t *testing.T, page, name string) []string {
	t.Helper()
	for _, line := range strings.Split(page, "\n") {
		if rest, ok := strings.CutSuffix(line, " "+name); ok {
			return strings.Fields(rest)
		}
	}
	t.Fatalf("no row %q in\n%s", name, page)
	return nil
}

var printed = regexp.MustCompile(`^([0-9.]+)(ns|us|ms|s|k|M|G)?$`)

// number reads a printed number back: times in ns.
func number(t *testing.T, text string) float64 {
	t.Helper()
	m := printed.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%q is not a number", text)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v * map[string]float64{"": 1, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "k": 1e3, "M": 1e6, "G": 1e9}[m[2]]
}
