package enginereceiver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusexporter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
	"github.com/graphsignal/graphsignal-collector/receiver/enginereceiver/internal/enginepages"
)

// newPrometheusExporter starts the contrib exporter with the settings that the design names, and returns its page's URL.
func newPrometheusExporter(t *testing.T) (exporter.Metrics, string) {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", freeport.Get(t))
	f := prometheusexporter.NewFactory()
	cfg := f.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{
		"endpoint":             address,
		"translation_strategy": "NoUTF8EscapingWithSuffixes",
		"without_scope_info":   true,
	}).Unmarshal(cfg))
	e, err := f.CreateMetrics(context.Background(), exportertest.NewNopSettings(f.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(context.Background(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
	return e, "http://" + address + "/metrics"
}

func get(t *testing.T, url string) string {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
	return string(body)
}

// exposed is what a page without escapes shows: samples by name and sorted labels, types and descriptions by name.
type exposed struct {
	samples     map[string]float64
	types, help map[string]string
}

func readPage(t *testing.T, body string) exposed {
	t.Helper()
	p := exposed{make(map[string]float64), make(map[string]string), make(map[string]string)}
	scan := bufio.NewScanner(strings.NewReader(body))
	for scan.Scan() {
		line := scan.Text()
		if words := strings.SplitN(line, " ", 4); words[0] == "#" {
			switch into := map[string]map[string]string{"TYPE": p.types, "HELP": p.help}[words[1]]; {
			case into[words[2]] != "":
				t.Errorf("%s has two %s lines", words[2], words[1])
			default:
				into[words[2]] = words[3]
			}
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		require.NotNil(t, m, line)
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil || math.IsNaN(value) {
			continue
		}
		var labels []string
		skip := false
		for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
			switch {
			case pair[1] == "gt":
				skip = true
			case pair[1] == "le":
				le, err := strconv.ParseFloat(pair[2], 64)
				require.NoError(t, err)
				labels = append(labels, "le="+strconv.FormatFloat(le, 'g', -1, 64))
			case pair[1] != "pid" && pair[1] != "position":
				labels = append(labels, pair[0])
			}
		}
		slices.Sort(labels)
		if !skip {
			p.samples[m[1]+"{"+strings.Join(labels, ",")+"}"] += value
		}
	}
	return p
}

// TestPrometheusRoundTrip says that the Prometheus exporter shows again what the engines showed: names, labels, values,
// types and descriptions.
func TestPrometheusRoundTrip(t *testing.T) {
	for _, engine := range []string{"vllm", "sglang", "tensorrt-llm", "llama.cpp"} {
		t.Run(engine, func(t *testing.T) {
			e, url := newPrometheusExporter(t)
			body, _ := enginepages.Page(engine, 60)
			s := newStepped(t, newPage(t, string(body)).URL, nil)
			s.next = e
			s.time, s.due = time.Now(), time.Time{}
			s.collect(context.Background())
			want, got := readPage(t, string(body)), readPage(t, get(t, url))

			maps.DeleteFunc(got.samples, func(key string, _ float64) bool { return strings.HasPrefix(key, "target_info{") })
			for name, typ := range want.types {
				switch {
				case strings.HasSuffix(name, "_created"): // becomes the start of the series
					delete(want.types, name)
					maps.DeleteFunc(want.samples, func(key string, _ float64) bool { return strings.HasPrefix(key, name+"{") })
					continue
				case typ == "summary": // becomes a histogram without bounds
					want.types[name] = "histogram"
					for key, n := range maps.Clone(want.samples) {
						if labels, ok := strings.CutPrefix(key, name+"_count{"); ok {
							all := slices.DeleteFunc(append(strings.Split(strings.TrimSuffix(labels, "}"), ","), "le=+Inf"), func(l string) bool { return l == "" })
							slices.Sort(all)
							want.samples[name+"_bucket{"+strings.Join(all, ",")+"}"] = n
						}
					}
				case name == "sglang:routing_key_running_req_count": // shown by ranges only, which are no gauges
					continue
				case typ == "counter" && !strings.HasSuffix(name, "_total"): // gets the suffix
					want.types[name+"_total"], want.help[name+"_total"] = typ, want.help[name]
					delete(want.types, name)
					for key, value := range maps.Clone(want.samples) {
						if labels, ok := strings.CutPrefix(key, name+"{"); ok {
							delete(want.samples, key)
							want.samples[name+"_total{"+labels] = value
						}
					}
					name += "_total"
				}
				assert.Equal(t, want.types[name], got.types[name], name)
				assert.Equal(t, want.help[name], got.help[name], name)
			}
			assert.Equal(t, len(want.samples), len(got.samples))
			for key, value := range want.samples {
				again, ok := got.samples[key]
				if assert.True(t, ok, "%s is missing", key) {
					assert.InDelta(t, value, again, math.Abs(value)*1e-12, key)
				}
			}
		})
	}
}

// The names of case 54 as the Prometheus exporter writes them.
func TestNamesThroughThePrometheusExporter(t *testing.T) {
	e, url := newPrometheusExporter(t)
	s := newStepped(t, newPage(t, `# TYPE sglang:gen_throughput gauge
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
# TYPE vllm:e2e_request_latency_seconds_created gauge
vllm:e2e_request_latency_seconds_created 1.79e+09
# TYPE queue_depth gauge
queue_depth 3
# TYPE queue_depth_total counter
queue_depth_total 811
`).URL, nil)
	s.next = e
	s.time, s.due = time.Now(), time.Time{}
	s.collect(context.Background())
	got := readPage(t, get(t, url))
	delete(got.samples, "target_info{}")
	assert.Equal(t, map[string]float64{
		"sglang:gen_throughput{}": 812.5, "vllm:prompt_tokens_total{}": 4096, "llamacpp:n_tokens_max_total{}": 777,
		"trt___free_blocks{}": 5, "vllm:iteration_tokens_total_bucket{le=+Inf}": 3, "vllm:iteration_tokens_total_sum{}": 96,
		"vllm:iteration_tokens_total_count{}": 3, "queue_depth{}": 3, "queue_depth_total{}": 811,
	}, got.samples)
}
