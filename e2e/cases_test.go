package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
	"github.com/graphsignal/graphsignal-collector/internal/ingest"
)

// metricsPage serves a text that may change, and returns its port.
func metricsPage(t *testing.T, text string) (port string, page *atomic.Value) {
	t.Helper()
	page = new(atomic.Value)
	page.Store(text)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, page.Load().(string))
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, page
}

// TestNumbersThatAreNone is case 18: a sample that is no number costs nothing but itself, and comes when it is one.
func TestNumbersThatAreNone(t *testing.T) {
	port, page := metricsPage(t, `# TYPE llamacpp:n_decode_total counter
llamacpp:n_decode_total 0
# TYPE llamacpp:n_busy_slots_per_decode counter
llamacpp:n_busy_slots_per_decode -nan
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 0
# TYPE llamacpp:predicted_tokens_seconds gauge
llamacpp:predicted_tokens_seconds nan(ind)
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 2
`)
	r := start(t, nil, "--metrics-port", port, "sleep", "60")
	d := r.signalsWhen("the first page is read", func(d *document) bool { return d.find("llamacpp:requests_deferred") != nil })
	for name, want := range map[string]string{"llamacpp:n_decode": "0.0", "llamacpp:requests_processing": "0.0", "llamacpp:requests_deferred": "2.0"} {
		m := d.find(name)
		if got := m.stat("total") + m.stat("value"); m == nil || got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for _, name := range []string{"llamacpp:n_busy_slots_per_decode", "llamacpp:predicted_tokens_seconds"} {
		if m := d.find(name); m != nil {
			t.Errorf("%s is %+v", name, m)
		}
	}
	page.Store("# TYPE llamacpp:n_decode_total counter\nllamacpp:n_decode_total 9\n" +
		"# TYPE llamacpp:n_busy_slots_per_decode counter\nllamacpp:n_busy_slots_per_decode 1.5\n")
	d = r.signalsWhen("the second page is read", func(d *document) bool {
		return d.find("llamacpp:n_busy_slots_per_decode").stat("total") == "1.5" && d.find("llamacpp:n_decode").stat("total") == "9.0"
	})
	if len(d.Errors) > 0 {
		t.Errorf("errors are %+v", d.Errors)
	}
}

// TestShardsStayApart is case 20: every rank is a series, worker processes are added up, and the live view counts a
// replica once.
func TestShardsStayApart(t *testing.T) {
	port, _ := metricsPage(t, `# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",model_name="m1",tp_rank="0"} 3.0
sglang:num_running_reqs{dp_rank="0",model_name="m1",tp_rank="1"} 3.0
sglang:num_running_reqs{dp_rank="1",model_name="m1",tp_rank="0"} 2.0
sglang:num_running_reqs{dp_rank="1",model_name="m1",tp_rank="1"} 2.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{dp_rank="0",model_name="m1",tp_rank="0"} 1000.0
sglang:generation_tokens_total{dp_rank="0",model_name="m1",tp_rank="1"} 1000.0
sglang:generation_tokens_total{dp_rank="1",model_name="m1",tp_rank="0"} 400.0
sglang:generation_tokens_total{dp_rank="1",model_name="m1",tp_rank="1"} 400.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{model_name="m1",pid="91"} 5.0
sglang:num_requests_total{model_name="m1",pid="92"} 7.0
`)
	r := start(t, nil, "--metrics-port", port, "sleep", "60")
	d := r.signalsWhen("the page is read", func(d *document) bool { return d.find("sglang:num_requests") != nil })
	for name, want := range map[string]int{"sglang:generation_tokens": 4, "sglang:num_running_reqs": 4, "sglang:num_requests": 1} {
		n := 0
		for _, m := range d.Metrics {
			if m.Name == name {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d series, want %d", name, n, want)
		}
	}
	if got := d.find("sglang:num_requests", "model_name=m1").stat("total"); got != "12.0" {
		t.Errorf("sglang:num_requests is %s", got)
	}
	if got := d.find("sglang:generation_tokens", "dp_rank=1", "tp_rank=1").stat("total"); got != "400.0" {
		t.Errorf("the tokens of one rank are %s", got)
	}
	out, err := exec.Command(filepath.Join(bin, "graphsignal-top"), "--once", "--window", "0", "--port", strconv.Itoa(r.port)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if text := strings.Join(strings.Fields(string(out)), " "); !strings.Contains(text, "running 5") {
		t.Errorf("the live view does not say 5 running:\n%s", out)
	}
}

// TestOneNameOfTwoTypes is case 52: everything is in /signals under its own type, and the Prometheus page shows it under
// different names, the same from scrape to scrape.
func TestOneNameOfTwoTypes(t *testing.T) {
	port, _ := metricsPage(t, `# HELP app_requests a
# TYPE app_requests gauge
app_requests{pid="1"} 3
# HELP app_lines first\nsecond
# TYPE app_lines gauge
app_lines 1
# HELP app_requests b
app_requests{pid="2"} 4
`)
	page := fmt.Sprintf("127.0.0.1:%d", freeport.Get(t))
	r := start(t, []string{"GRAPHSIGNAL_COLLECTOR_CONFIG=" + example("prometheus.yaml"), "PROMETHEUS_LISTEN=" + page},
		"--metrics-port", port, "sh", "-c", "sleep 60 & echo $!; wait")
	pid := r.workload()
	eventually(t, "the child is there", func() bool { return strings.Contains(r.stdout.String(), "\n") })
	child, err := strconv.Atoi(strings.TrimSpace(r.stdout.String()))
	if err != nil {
		t.Fatal(err)
	}
	put(t, pid, "app.json", header(pid)+`"metrics":[
		{"name":"queue_depth","type":"gauge","tags":{},"value":3},
		{"name":"queue_depth","type":"counter","tags":{},"value":811},
		{"name":"queue_depth","type":"gauge","tags":{"part":"11"},"value":4},
		{"name":"cuda_kernels_nanoseconds","type":"profile","tags":{},"frames":{"gemm":[9100,70]}},
		{"name":"step_seconds","type":"histogram","tags":{},"count":5,"sum":0.75,"min":0.1,"max":0.2},
		{"name":"step_seconds","type":"histogram","tags":{"part":"b"},"bins":[1,2],"counts":[1,1]}]}`)
	put(t, child, "app.json", header(child)+`"metrics":[{"name":"cuda_kernels_nanoseconds","type":"profile","tags":{},"frames":{"gemm":[100,1]}}]}`)
	d := r.signalsWhen("everything is read", func(d *document) bool {
		return d.find("app_lines") != nil && d.find("step_seconds", "part=b") != nil && d.find("cuda_kernels_nanoseconds", "process.pid="+strconv.Itoa(child)) != nil
	})
	types := make(map[string]int)
	for _, m := range d.Metrics {
		types[m.Name+" "+m.Type]++
	}
	for series, want := range map[string]int{"queue_depth gauge": 2, "queue_depth counter": 1, "cuda_kernels_nanoseconds profile": 2, "step_seconds histogram": 2,
		"app_requests gauge": 1} {
		if types[series] != want {
			t.Errorf("%s: %d series in /signals, want %d", series, types[series], want)
		}
	}

	scrape := func() map[string]int {
		t.Helper()
		status, body, err := get(http.DefaultClient, "http://"+page+"/metrics")
		if err != nil || status != http.StatusOK {
			t.Fatalf("the page answers %d %v %s", status, err, body)
		}
		seen := make(map[string]int)
		for line := range strings.Lines(body) {
			words := strings.Fields(line)
			if words[0] == "#" {
				seen[words[1]+" "+words[2]]++
			} else {
				seen[line[:strings.LastIndexByte(strings.TrimSpace(line), ' ')]]++
			}
		}
		return seen
	}
	has := func(seen map[string]int, name string, labels ...string) bool {
		for series := range seen {
			found := series == name || strings.HasPrefix(series, name+"{")
			for _, label := range labels {
				found = found && strings.Contains(series, label)
			}
			if found {
				return true
			}
		}
		return false
	}
	eventually(t, "the page is complete", func() bool {
		seen := scrape()
		return has(seen, "app_lines") && has(seen, "queue_depth_total") && has(seen, "cuda_kernels_nanoseconds_total", fmt.Sprintf(`process_pid="%d"`, child))
	})
	for range 3 {
		seen := scrape()
		for what, n := range seen {
			if n != 1 {
				t.Errorf("%d times on the page: %s", n, what)
			}
		}
		for _, name := range []string{"queue_depth", "queue_depth_total", "cuda_kernels_nanoseconds_total", "step_seconds"} {
			if seen["TYPE "+name] != 1 {
				t.Errorf("%s has %d types", name, seen["TYPE "+name])
			}
		}
		own := fmt.Sprintf(`process_pid="%d"`, pid)
		for _, want := range [][]string{{"queue_depth", own}, {"queue_depth_total", own}, {"queue_depth", own, `part="11"`}, {"cuda_kernels_nanoseconds_total", own},
			{"step_seconds_bucket", own, `le="+Inf"`}, {"step_seconds_sum", own}, {"step_seconds_count", own}} {
			if !has(seen, want[0], want[1:]...) {
				t.Errorf("%q is not on the page", want)
			}
		}
	}
}

// TestOversizedUpload is case 50: a server that takes little at a time gets everything in parts, and goes on getting what
// is new.
func TestOversizedUpload(t *testing.T) {
	const series, limit = 4900, 8192
	var refused, accepted atomic.Int64
	server := &ingest.Server{Key: apiKey}
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > limit || r.ContentLength < 0 {
			refused.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		accepted.Add(1)
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	var text strings.Builder
	text.WriteString("# TYPE g gauge\n")
	for i := range series {
		fmt.Fprintf(&text, "g{i=\"%d\"} %d\n", i, i)
	}
	port, page := metricsPage(t, text.String())
	config := filepath.Join(t.TempDir(), "series.yaml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf("receivers: {engine: {max_series: %d}}\n", series)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, []string{"GRAPHSIGNAL_API_KEY=" + apiKey, "GRAPHSIGNAL_API_BASE=" + listener.URL, "GRAPHSIGNAL_COLLECTOR_CONFIG=" + config}, "--metrics-port", port,
		"sh", "-c", "trap 'exit 4' TERM; while :; do sleep 0.1; done")
	d := r.signalsWhen("the page is read", func(d *document) bool { return d.find("g", "i=4899") != nil })
	instance := d.Context["instance.id"]
	arrived := func() (n int) {
		server.Read(instance, func(in *ingest.Instance) {
			if in == nil {
				return
			}
			for _, s := range in.Series {
				if s.Name == "g" {
					n++
				}
			}
		})
		return n
	}
	eventually(t, "all series arrived", func() bool { return arrived() == series })
	if refused.Load() == 0 {
		t.Error("nothing was too large: this tests nothing")
	}
	page.Store("# TYPE late gauge\nlate 1\n")
	eventually(t, "new data arrives", func() bool { _, ok := uploaded(server, instance, "late"); return ok })
	for _, fault := range server.Faults() {
		t.Errorf("the server found fault: %v", fault)
	}
	if err := syscall.Kill(r.workload(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.wait().ExitCode(); code != 4 {
		t.Errorf("exit code %d", code)
	}

}

// TestWorkersOutliveAKilledLeader is case 4: the launcher ends as the leader did, names what is left, and a later run takes
// neither the worker nor what it publishes for its own, and leaves it alone.
func TestWorkersOutliveAKilledLeader(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "tree.py")
	if err := os.WriteFile(script, []byte(`
import os, signal, sys, time
worker = os.fork()
if worker == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    d = "/dev/shm/graphsignal_%d" % os.getpid(); os.makedirs(d, 0o700)
    for i in range(600):
        try:
            print("worker beat", i, flush=True)
        except OSError:
            pass # the test reads no longer
        t = time.time_ns()
        open(d + "/app.json.tmp", "w").write('{"version":1,"pid":%d,"start_ts":%d,"write_ts":%d,"metrics":[{"name":"beats","type":"counter","value":%d}]}' % (os.getpid(), t, t, i))
        os.rename(d + "/app.json.tmp", d + "/app.json")
        time.sleep(0.1)
    os._exit(0)
time.sleep(600)`), 0o600); err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(dir, "signals.json")
	r := start(t, nil, "--output", output, "python3", script)
	leader := r.workload()
	d := r.signalsWhen("the worker is seen", func(d *document) bool { return d.find("beats") != nil })
	worker, err := strconv.Atoi(d.find("beats").Tags["process.pid"])
	if err != nil || worker <= 1 {
		t.Fatalf("the worker is %d, %v", worker, err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(worker, syscall.SIGKILL)
		eventually(t, "the worker's directory is removed", func() bool {
			return os.RemoveAll(fmt.Sprintf("/dev/shm/graphsignal_%d", worker)) == nil
		})
	})
	if err := syscall.Kill(leader, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := r.wait().Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("status %#x, want death by SIGKILL", status)
	}
	if !strings.Contains(r.stderr.String(), strconv.Itoa(worker)) {
		t.Errorf("stderr does not name the worker %d: %s", worker, r.stderr.String())
	}
	raw, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	var final document
	if err := json.Unmarshal(raw, &final); err != nil {
		t.Fatal(err)
	}
	ends := 0
	for _, e := range final.Errors {
		if e.Tags["stream"] == "exit" && strings.HasPrefix(e.Message, "Process terminated by signal 9") {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("errors are %+v", final.Errors)
	}

	second := start(t, nil, "sleep", "60")
	d = second.signalsWhen("the second run is up", func(d *document) bool { return d.find("process_threads") != nil })
	if d.find("beats") != nil || d.process(worker) != nil {
		t.Error("the second run takes the worker of the first for its own")
	}
	if _, err := os.Stat(fmt.Sprintf("/dev/shm/graphsignal_%d/app.json", worker)); err != nil {
		t.Errorf("the living worker's directory: %v", err)
	}
	if err := syscall.Kill(worker, 0); err != nil {
		t.Errorf("the worker: %v", err)
	}
}
