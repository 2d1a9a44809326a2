package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// example is the path of a configuration in examples/collector.
func example(name string) string { return filepath.Join(root, "examples", "collector", name) }

// collector runs the real Collector without the launcher, until the test ends, and returns what it logs and its pid.
func collector(t *testing.T, env []string, args ...string) (log *syncBuffer, pid int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "graphsignal-collector"), args...)
	cmd.Env = append(cleanEnv(), env...)
	log = new(syncBuffer)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Error("the Collector does not end")
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("log of the Collector: %s", log.String())
		}
	})
	return log, cmd.Process.Pid
}

// backend is what stands behind a gateway: an OTLP server that keeps what it gets.
type backend struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	metrics  []string // names
	entities map[string]string
	logs     []string
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{entities: make(map[string]string)}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("request of %s: %v", r.URL.Path, err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.requests = append(b.requests, r)
		w.Header().Set("Content-Type", "application/x-protobuf")
		if r.Header.Get("Content-Encoding") != "" {
			return // what it holds is looked at where nothing is compressed
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/v1/metrics"):
			request := pmetricotlp.NewExportRequest()
			if err := request.UnmarshalProto(body); err != nil {
				t.Errorf("metrics: %v", err)
				return
			}
			for _, rm := range request.Metrics().ResourceMetrics().All() {
				kind := ""
				for _, sm := range rm.ScopeMetrics().All() {
					for _, m := range sm.Metrics().All() {
						b.metrics = append(b.metrics, m.Name())
						kind = m.Name()
					}
				}
				if pid, ok := rm.Resource().Attributes().Get("process.command_line"); ok {
					b.entities[kind] = pid.AsString()
				}
			}
		case strings.HasSuffix(r.URL.Path, "/v1/logs"):
			request := plogotlp.NewExportRequest()
			if err := request.UnmarshalProto(body); err != nil {
				t.Errorf("logs: %v", err)
				return
			}
			for _, rl := range request.Logs().ResourceLogs().All() {
				for _, sl := range rl.ScopeLogs().All() {
					for _, record := range sl.LogRecords().All() {
						b.logs = append(b.logs, record.Body().AsString())
					}
				}
			}
		}
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) has(list *[]string, part string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(*list, func(s string) bool { return strings.Contains(s, part) })
}

// loopback is an address of this host that no other test uses, so that well-known ports are free.
func loopback() string {
	loopbacks.Lock()
	defer loopbacks.Unlock()
	loopbacks.n++
	pid := os.Getpid()
	return net.IPv4(127, byte(64+loopbacks.n), byte(pid>>8), byte(1+pid%250)).String()
}

var loopbacks struct {
	sync.Mutex
	n int
}

// gateway is examples/collector/gateway.yaml with a /signals page of what it received.
type gateway struct {
	*run
	host string
}

func newGateway(t *testing.T, backendURL string, extra ...string) *gateway {
	t.Helper()
	g := &gateway{run: &run{t: t, port: freeport.Get(t)}, host: loopback()}
	view := fmt.Sprintf(`{"exporters": {"signals": {"endpoint": "127.0.0.1:%d"}}, "service": {"pipelines": {
		"metrics/view": {"receivers": ["otlp"], "exporters": ["signals"]}, "logs/view": {"receivers": ["otlp"], "exporters": ["signals"]}}}}`, g.port)
	args := []string{"--config=" + example("gateway.yaml"), "--config=yaml:" + view}
	for _, e := range extra {
		args = append(args, "--config=yaml:"+e)
	}
	collector(t, []string{"GATEWAY_HOST=" + g.host, "BACKEND_ENDPOINT=" + backendURL}, args...)
	eventually(t, "the gateway is ready", func() bool {
		resp, err := http.Get("http://" + g.host + ":13133/")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return g
}

// TestTeeToGateway: everything that /signals shows reaches a gateway, exactly, with resources, and what comes last
// reaches it too.
func TestTeeToGateway(t *testing.T) {
	back := newBackend(t)
	g := newGateway(t, back.URL, `{"exporters": {"otlp_http": {"compression": "none"}}}`)
	for name, port := range map[string]string{"gRPC": "4317", "HTTP": "4318"} {
		t.Run(name, func(t *testing.T) {
			g.t = t
			env := []string{"GRAPHSIGNAL_OTLP_ENDPOINT=http://" + g.host + ":" + port, "GRAPHSIGNAL_TAG_TEAM=infra$x"}
			r := start(t, env,
				"sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.1; done")
			pid := r.workload()
			tag := "process.pid=" + strconv.Itoa(pid)
			put(t, pid, "cupti.json", header(pid)+`"context":{"rank":"1"},"metrics":[
				{"name":"cuda_kernels_nanoseconds","type":"profile","frames":{"_Z3addPf":[81200,12],"big":[9223372036854775807,1]}},
				{"name":"cuda_memcpy_bytes","type":"counter","tags":{"kind":"host_to_device"},"value":9223372036854775807},
				{"name":"app_step_ns","type":"histogram","bins":[40,96],"counts":[1,2],"count":3,"sum":243,"min":42,"max":101}],
				"log":[{"ts":1700000001000000000,"level":"error","msg":"cupti said no to `+name+`"}]}`)
			local := r.signalsWhen("the document is imported", func(d *document) bool {
				return d.find("app_step_ns") != nil && d.find("process_threads", tag) != nil
			})
			remote := g.signalsWhen("the gateway has it all", func(d *document) bool {
				return d.find("app_step_ns", tag) != nil && d.find("process_threads", tag) != nil && d.process(pid) != nil &&
					hasError(d, "cupti said no to "+name)
			})
			for _, m := range []string{"cuda_kernels_nanoseconds", "cuda_memcpy_bytes", "app_step_ns"} {
				ours, theirs := local.find(m, tag), remote.find(m, tag)
				if fmt.Sprint(ours.Type, ours.Stats) != fmt.Sprint(theirs.Type, theirs.Stats) {
					t.Errorf("%s is %s, behind the gateway %s", m, ours.Stats, theirs.Stats)
				}
				want := maps.Clone(ours.Tags)
				maps.Copy(want, local.Context) // what is the context here are tags there
				if !maps.Equal(want, theirs.Tags) {
					t.Errorf("%s: tags behind the gateway are %v, want %v", m, theirs.Tags, want)
				}
			}
			if got := remote.find("app_step_ns", tag).Tags["team"]; got != "infra$x" {
				t.Errorf("the user's tag is %q", got)
			}
			if ours, theirs := local.process(pid), remote.process(pid); ours.Attributes["process.command_line"] != theirs.Attributes["process.command_line"] ||
				ours.Tags["process.root_pid"] != theirs.Tags["process.root_pid"] || ours.First != theirs.First {
				t.Errorf("the process is %+v, behind the gateway %+v", ours, theirs)
			}
			if !slices.ContainsFunc(remote.Resources, func(r resource) bool { return r.Kind == "host" && r.Attributes["platform.name"] == "Linux" }) {
				t.Errorf("the host is missing behind the gateway: %+v", remote.Resources)
			}
			eventually(t, "the backend has metrics and logs", func() bool {
				return back.has(&back.metrics, "app_step_ns") && back.has(&back.logs, "cupti said no to "+name)
			})

			put(t, pid, "app.json", header(pid)+`"metrics":[{"name":"last_words_`+name+`","type":"counter","value":41}]}`)
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := r.wait().ExitCode(); code != 3 {
				t.Errorf("exit code %d", code)
			}
			g.signalsWhen("the last document and the exit reached the gateway", func(d *document) bool {
				return d.find("last_words_"+name).stat("total") == "41" && hasError(d, "Process exited with non-zero code 3")
			})
		})
	}
}

// TestTeeWithoutGateway: a gateway that is not there costs the workload and /signals nothing, and is told of at once.
func TestTeeWithoutGateway(t *testing.T) {
	gateway := fmt.Sprintf("127.0.0.1:%d", freeport.Get(t))
	r := start(t, []string{"GRAPHSIGNAL_OTLP_ENDPOINT=http://" + gateway}, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
	pid := r.workload()
	put(t, pid, "app.json", header(pid)+`"metrics":[{"name":"steps","type":"counter","value":41}]}`)
	r.signalsWhen("/signals answers", func(d *document) bool { return d.find("steps") != nil })
	r.signalsWhen("the gateway's absence is told", func(d *document) bool { return hasError(d, "Will retry") && hasError(d, gateway) })
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.wait().ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestTeeKeepsOrder: while a request waits for its answer no later point is on its way. Sent side by side, what queued up
// during an outage would arrive in any order, and a backend refuses points older than the newest it has.
func TestTeeKeepsOrder(t *testing.T) {
	for name, env := range map[string][]string{
		"variable":             {"GRAPHSIGNAL_OTLP_ENDPOINT="},
		"prometheus-otlp.yaml": {"GRAPHSIGNAL_COLLECTOR_CONFIG=" + example("prometheus-otlp.yaml"), "PROMETHEUS_URL="},
	} {
		t.Run(name, func(t *testing.T) {
			var waiting, most atomic.Int64
			release := make(chan struct{})
			slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/v1/metrics") {
					n := waiting.Add(1)
					most.Store(max(most.Load(), n))
					defer waiting.Add(-1)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				select {
				case <-release:
				case <-r.Context().Done():
				}
				w.Header().Set("Content-Type", "application/x-protobuf")
			}))
			defer slow.Close()
			defer close(release)
			env[len(env)-1] += slow.URL
			r := start(t, env, "sleep", "60")
			eventually(t, "a request arrives", func() bool { return waiting.Load() > 0 })
			seen := make(map[string]bool)
			r.signalsWhen("four more collections", func(d *document) bool {
				if m := d.find("host_memory_usage_bytes"); m != nil {
					seen[string(m.UpdatedNS)] = true
				}
				return len(seen) > 4
			})
			if n := most.Load(); n != 1 {
				t.Errorf("%d requests at a time", n)
			}
		})
	}
}

// TestTeeSettings: examples/collector/otlp-settings.yaml adds what a gateway asks for to the variable's exporter.
func TestTeeSettings(t *testing.T) {
	back := newBackend(t)
	r := start(t, []string{"GRAPHSIGNAL_OTLP_ENDPOINT=" + back.URL, "GRAPHSIGNAL_COLLECTOR_CONFIG=" + example("otlp-settings.yaml"), "GATEWAY_TOKEN=zz-token"},
		"sleep", "60")
	r.signalsWhen("the sidecar runs", func(d *document) bool { return len(d.Resources) > 0 })
	eventually(t, "a request arrives", func() bool {
		back.mu.Lock()
		defer back.mu.Unlock()
		return len(back.requests) > 0
	})
	back.mu.Lock()
	defer back.mu.Unlock()
	for _, request := range back.requests {
		if got := request.Header.Get("Authorization"); got != "Bearer zz-token" {
			t.Errorf("authorization is %q", got)
		}
		if got := request.Header.Get("Content-Encoding"); got != "zstd" {
			t.Errorf("content encoding is %q", got)
		}
	}
	if r.stderr.String() != "" {
		t.Errorf("stderr: %s", r.stderr.String())
	}
}

// TestTeeToPrometheusByOTLP: examples/collector/prometheus-otlp.yaml uses Prometheus's path. The server is an OTLP
// receiver with that path.
func TestTeeToPrometheusByOTLP(t *testing.T) {
	g := newGateway(t, "http://127.0.0.1:9", `{"receivers": {"otlp": {"protocols": {"http": {"metrics_url_path": "/api/v1/otlp/v1/metrics"}}}}}`)
	r := start(t, []string{"GRAPHSIGNAL_COLLECTOR_CONFIG=" + example("prometheus-otlp.yaml"), "PROMETHEUS_URL=http://" + g.host + ":4318"}, "sleep", "60")
	pid := r.workload()
	g.signalsWhen("metrics arrive", func(d *document) bool {
		return d.find("process_threads", "process.pid="+strconv.Itoa(pid)) != nil && d.process(pid) != nil
	})
}

// TestDebugFile: examples/collector/debug-file.yaml writes metrics and logs as text.
func TestDebugFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "debug.txt")
	r := start(t, []string{"GRAPHSIGNAL_COLLECTOR_CONFIG=" + example("debug-file.yaml"), "DEBUG_FILE=" + file}, "sh", "-c", "echo 'ERROR it broke' >&2; sleep 60")
	r.signalsWhen("the sidecar runs", func(d *document) bool { return len(d.Resources) > 0 })
	eventually(t, "the file holds a metric and an error", func() bool {
		raw, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(raw), "process_memory_usage_bytes") && strings.Contains(string(raw), "it broke")
	})
}

// enginePage is an engine's page with the names that exporters tend to change.
const enginePage = `# TYPE sglang:gen_throughput gauge
sglang:gen_throughput 812.5
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total 4096
# TYPE llamacpp:n_tokens_max counter
llamacpp:n_tokens_max 777
# TYPE trt___free_blocks gauge
trt___free_blocks 5
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{le="+Inf"} 3
vllm:iteration_tokens_total_sum 96
vllm:iteration_tokens_total_count 3
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="0.5",model_name="m"} %[1]d
vllm:e2e_request_latency_seconds_bucket{le="1.0",model_name="m"} %[2]d
vllm:e2e_request_latency_seconds_bucket{le="+Inf",model_name="m"} %[2]d
vllm:e2e_request_latency_seconds_sum{model_name="m"} %[2]d
vllm:e2e_request_latency_seconds_count{model_name="m"} %[2]d
# TYPE vllm:e2e_request_latency_seconds_created gauge
vllm:e2e_request_latency_seconds_created{model_name="m"} 1.79e+09
`

// TestPrometheus: a real Prometheus server scrapes examples/collector/prometheus.yaml. It finds the engine's metrics under
// the engine's own names, as an OTLP gateway does, and answers the questions that kernel profiles are there for.
func TestPrometheus(t *testing.T) {
	server, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus server on PATH (Debian: apt-get install prometheus, as scripts/deps.sh does for root)")
	}
	var rounds struct {
		sync.Mutex
		n int
	}
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rounds.Lock()
		defer rounds.Unlock()
		rounds.n++
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintf(w, enginePage, 90*rounds.n, 100*rounds.n)
	}))
	t.Cleanup(engine.Close)
	_, enginePort, err := net.SplitHostPort(engine.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "http://127.0.0.1:9")
	page := fmt.Sprintf("127.0.0.1:%d", freeport.Get(t))
	r := start(t, []string{"GRAPHSIGNAL_OTLP_ENDPOINT=http://" + g.host + ":4318", "GRAPHSIGNAL_COLLECTOR_CONFIG=" + example("prometheus.yaml"),
		"PROMETHEUS_LISTEN=" + page}, "--metrics-port", enginePort, "sleep", "60")
	pid := r.workload()
	first := time.Now().UnixNano()
	work := func(n int) {
		put(t, pid, "cupti.json", fmt.Sprintf(`{"version":1,"pid":%d,"start_ts":%d,"write_ts":%d,"context":{"rank":"3"},"metrics":[
			{"name":"cuda_kernels_nanoseconds","type":"profile","frames":{"gemm":[%d,%d],"rope":[%d,%d],"norm":[%d,1],"a":[1,1],"b":[2,1],"c":[3,1]}},
			{"name":"app_step_ns","type":"histogram","bins":[40,96],"counts":[%d,%d],"count":%d,"sum":%d,"min":42,"max":101}]}`,
			pid, first, time.Now().UnixNano(), 1000000*n, 10*n, 2000*n, n, 10*n, n, 19*n, 20*n, 2000*n))
	}

	store := t.TempDir()
	config := filepath.Join(store, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {scrape_interval: 500ms}\nscrape_configs:\n  - job_name: graphsignal\n    static_configs: [{targets: ['"+page+"']}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	api := fmt.Sprintf("127.0.0.1:%d", freeport.Get(t))
	cmd := exec.Command(server, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(store, "data"), "--web.listen-address="+api, "--log.level=warn")
	var log syncBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus: %s", log.String())
		}
	})

	query := func(expression string) (result []sample) {
		resp, err := http.Get("http://" + api + "/api/v1/query?query=" + url.QueryEscape(expression))
		if err != nil {
			return nil
		}
		defer resp.Body.Close()
		var answer struct {
			Data struct{ Result []sample }
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			return nil
		}
		return answer.Data.Result
	}

	n := 0
	var top []sample
	eventually(t, "Prometheus ranks five kernels", func() bool {
		n++
		work(n)
		top = query(`topk(5, rate(cuda_kernels_nanoseconds_total[1m]))`)
		return len(top) == 5 && top[0].value() > 0
	})
	labels := top[0].Metric
	if labels["frame"] != "gemm" || labels["process_pid"] != strconv.Itoa(pid) || labels["process_rank"] != "3" {
		t.Errorf("the first of the ranking is %v", labels)
	}
	for label := range labels {
		if strings.Contains(label, "command_line") || strings.Contains(label, "scope") {
			t.Errorf("label %s should not be there", label)
		}
	}
	for what, q := range map[string]struct {
		expression string
		low, high  float64
	}{
		"mean time of a kernel": {`rate(cuda_kernels_nanoseconds_total{frame="gemm"}[1m]) / rate(cuda_kernels_samples_total{frame="gemm"}[1m])`, 99999, 100001},
		// 90 of 100 requests take 0.5 s at most, so that the 95th lies in the middle of the next bucket.
		"p95 of an engine's histogram": {`histogram_quantile(0.95, sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket[1m])))`, 0.74, 0.76},
		"p95 of a probe":               {`histogram_quantile(0.95, rate(app_step_ns_bucket[1m]))`, 95, 112},
	} {
		eventually(t, what, func() bool {
			n++
			work(n)
			result := query(q.expression)
			return len(result) == 1 && result[0].value() >= q.low && result[0].value() <= q.high
		})
	}

	text := pageText(t, page)
	for _, help := range []string{"cuda_kernels_nanoseconds_total GPU time by kernel;", "cuda_kernels_samples_total How often each frame of cuda_kernels_nanoseconds was measured.",
		"process_memory_usage_bytes Resident memory."} {
		if !strings.Contains(text, "# HELP "+help) {
			t.Errorf("the page does not say: %s", help)
		}
	}

	// The names: what the engine itself gives to a scraper, once each.
	names := pageNames(text)
	for _, name := range []string{"sglang:gen_throughput", "vllm:prompt_tokens_total", "llamacpp:n_tokens_max_total", "trt___free_blocks",
		"vllm:iteration_tokens_total_bucket", "vllm:iteration_tokens_total_sum", "vllm:iteration_tokens_total_count",
		"vllm:e2e_request_latency_seconds_bucket", "cuda_kernels_nanoseconds_total", "cuda_kernels_samples_total",
		"process_memory_usage_bytes", "process_cpu_usage_percent", "host_memory_usage_bytes"} {
		if !names[name] {
			t.Errorf("%s is not on the page", name)
		}
		if len(query(`{__name__="`+name+`"}`)) == 0 {
			t.Errorf("Prometheus does not have %s", name)
		}
	}
	for name := range names {
		for _, part := range []string{"_created", "_total_total", "_bytes_bytes", "_percent_percent", "_ratio", "_nanoseconds_ns", "n_tokens_max_tokens"} {
			if strings.Contains(name, part) {
				t.Errorf("%s is on the page", name)
			}
		}
	}
	for where, d := range map[string]*document{
		"/signals": r.signalsWhen("the engine is read", func(d *document) bool { return d.find("trt___free_blocks") != nil }),
		"by OTLP":  g.signalsWhen("the engine reached the gateway", func(d *document) bool { return d.find("trt___free_blocks") != nil }),
	} {
		for name, kind := range map[string]string{"sglang:gen_throughput": "gauge", "vllm:prompt_tokens": "counter", "llamacpp:n_tokens_max": "counter",
			"trt___free_blocks": "gauge", "vllm:iteration_tokens_total": "histogram"} {
			if m := d.find(name); m == nil || m.Type != kind {
				t.Errorf("%s: %s is %+v", where, name, m)
			}
		}
		for _, m := range d.Metrics {
			if strings.HasSuffix(m.Name, "_created") {
				t.Errorf("%s: %s is there", where, m.Name)
			}
		}
	}
}

// sample is one series of a Prometheus server's answer.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (s sample) value() float64 {
	text, _ := s.Value[1].(string)
	v, _ := strconv.ParseFloat(text, 64)
	return v
}

// pageText is a Prometheus page.
func pageText(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// pageNames lists the names of the samples on a Prometheus page.
func pageNames(text string) map[string]bool {
	names := make(map[string]bool)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			names[line[:strings.IndexAny(line, "{ ")]] = true
		}
	}
	return names
}
