package enginereceiver

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter/exportertest"

	"github.com/graphsignal/graphsignal-collector/exporter/signalsexporter"
	"github.com/graphsignal/graphsignal-collector/receiver/enginereceiver/internal/enginepages"
)

// record is one series of /signals.
type record struct {
	Name  string              `json:"name"`
	Type  string              `json:"type"`
	Tags  map[string]string   `json:"tags"`
	Stats map[string]*float64 `json:"stats"`
}

func (r record) key() string { return fmt.Sprint(r.Name, " ", r.Type, " ", r.Tags) }

func (r record) String() string {
	text := r.key()
	for _, stat := range slices.Sorted(maps.Keys(r.Stats)) {
		if r.Stats[stat] == nil {
			text += " " + stat + " null"
		} else {
			text += fmt.Sprintf(" %s %v", stat, *r.Stats[stat])
		}
	}
	return text
}

// boundAddress is told where the exporter listens.
type boundAddress struct {
	*tree
	address chan string
}

func (h boundAddress) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{component.MustNewID("workload"): h}
}

func (h boundAddress) EndpointBound(address string) { h.address <- address }

// signalsOf serves the page, scrapes it, and returns the series of /signals and its errors.
func signalsOf(t *testing.T, body string) []record {
	t.Helper()
	f := signalsexporter.NewFactory()
	cfg := f.CreateDefaultConfig().(*signalsexporter.Config)
	cfg.NetAddr.Endpoint = "127.0.0.1:0"
	exporter, err := f.CreateMetrics(context.Background(), exportertest.NewNopSettings(f.Type()), cfg)
	require.NoError(t, err)
	h := boundAddress{newTree(), make(chan string, 1)}
	require.NoError(t, exporter.Start(context.Background(), h))
	defer func() { require.NoError(t, exporter.Shutdown(context.Background())) }()

	p := newPage(t, body)
	s := newStepped(t, p.URL, nil)
	s.next = exporter
	s.time, s.due = time.Now(), time.Time{} // old series expire by the exporter's clock
	s.collect(context.Background())
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	var document struct{ Metrics []record }
	resp, err := (&http.Client{Transport: transport}).Get("http://" + <-h.address + "/signals")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &document), string(text))
	slices.SortFunc(document.Metrics, func(a, b record) int { return cmp.Compare(a.key(), b.key()) })
	return document.Metrics
}

// TestReferencePage is the page the reference answered to, through receiver, exporter and HTTP, field by field.
func TestReferencePage(t *testing.T) {
	body, err := os.ReadFile("testdata/reference/page.txt")
	require.NoError(t, err)
	answer, err := os.ReadFile("testdata/reference/signals.json")
	require.NoError(t, err)
	var want []record
	require.NoError(t, json.Unmarshal(answer, &want))
	// What the design decides otherwise:
	want = slices.DeleteFunc(want, func(r record) bool { return strings.HasSuffix(r.Name, "_created") })
	number := func(f float64) *float64 { return &f }
	for i := range want {
		if want[i].Name == "demo_pid_hist" { // summed with its buckets
			want[i].Stats = map[string]*float64{
				"count": number(9), "sum": number(31), "mean": number(31.0 / 9), "min": nil, "max": nil, "p50": number(1), "p95": number(1),
			}
		}
	}
	want = append(want, // untyped families are gauges
		record{"demo_untyped", "gauge", map[string]string{}, map[string]*float64{"value": number(3)}},
		record{"demo_no_type_line", "gauge", map[string]string{"x": "y"}, map[string]*float64{"value": number(4)}})
	slices.SortFunc(want, func(a, b record) int { return cmp.Compare(a.key(), b.key()) })
	assert.Equal(t, texts(want), texts(signalsOf(t, string(body))))
}

func TestBrokenReferencePage(t *testing.T) {
	body, err := os.ReadFile("testdata/reference/broken-page.txt")
	require.NoError(t, err)
	assert.Equal(t, []string{"first gauge map[] value 1", "third gauge map[] value 3"}, texts(signalsOf(t, string(body))))
}

func texts(records []record) []string {
	var all []string
	for _, r := range records {
		all = append(all, r.String())
	}
	return all
}

// TestEnginePages holds /signals against the contract's rules for the pages of all engines, applied a second time here in
// the plainest way.
func TestEnginePages(t *testing.T) {
	for _, engine := range []string{"vllm", "sglang", "tensorrt-llm", "llama.cpp"} {
		for _, step := range []int{0, 60} {
			body, ok := enginepages.Page(engine, step)
			require.True(t, ok)
			want := byTheRules(t, body)
			assert.Equal(t, want, texts(signalsOf(t, string(body))), "%s at step %d", engine, step)
			assert.Greater(t, len(want), 10)
		}
	}
}

// Percentiles worked out by hand.
func TestPercentiles(t *testing.T) {
	for _, c := range []struct {
		buckets  string
		p50, p95 float64
	}{
		// 9 observations: ranks ceil(4.5) = 5 and ceil(8.55) = 9. Up to 0.5 there are 4, up to 1 there are 7.
		{"0.5 4|1 7|2 9|+Inf 9", 1, 2},
		// 10: ranks 5 and 10. The 6 above all bounds count at the last one.
		{"0.5 4|1 4|+Inf 10", 1, 1},
		// 100: ranks 50 and 95, both on a bucket's last observation.
		{"0.1 50|0.2 95|0.4 100|+Inf 100", 0.1, 0.2},
		// 20: ranks 10 and 19.
		{"1 9|10 18|100 19|+Inf 20", 10, 100},
		{"0.5 1|+Inf 1", 0.5, 0.5},
	} {
		body := "# TYPE h histogram\n"
		for bucket := range strings.SplitSeq(c.buckets, "|") {
			le, n, _ := strings.Cut(bucket, " ")
			body += fmt.Sprintf("h_bucket{le=%q} %s\n", le, n)
		}
		got := signalsOf(t, body+"h_sum 1\nh_count 3\n")
		require.Len(t, got, 1)
		assert.Equal(t, c.p50, *got[0].Stats["p50"], c.buckets)
		assert.Equal(t, c.p95, *got[0].Stats["p95"], c.buckets)
	}
}

var (
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
	labelPair  = regexp.MustCompile(`([a-zA-Z_]+)="([^"]*)"`)
)

// byTheRules applies sections 6.3 and 6.4 of the contract to a page without escapes, one sample after another.
func byTheRules(t *testing.T, body []byte) []string {
	type bucket struct{ le, n float64 }
	type entry struct {
		record
		value, count, sum float64
		buckets           map[float64]float64
		inf               float64
	}
	types := make(map[string]string)
	entries := make(map[string]*entry)
	scan := bufio.NewScanner(bytes.NewReader(body))
	for scan.Scan() {
		line := scan.Text()
		if words := strings.Fields(line); words[0] == "#" {
			if words[1] == "TYPE" {
				types[words[2]] = words[3]
			}
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		require.NotNil(t, m, line)
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil || math.IsNaN(value) || strings.HasSuffix(m[1], "_created") || strings.Contains(m[2], `gt="`) {
			continue
		}
		r := record{Name: m[1], Type: types[m[1]], Tags: map[string]string{}}
		part, le := "", ""
		for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
			switch pair[1] {
			case "le":
				le = pair[2]
			case "pid", "position", "quantile":
			default:
				r.Tags[pair[1]] = pair[2]
			}
		}
		if r.Type == "" {
			at := strings.LastIndexByte(m[1], '_')
			r.Name, part = m[1][:at], m[1][at+1:]
			require.Contains(t, []string{"histogram", "summary"}, types[r.Name], line)
			r.Type = "histogram"
		}
		if r.Type == "counter" {
			r.Name = strings.TrimSuffix(r.Name, "_total")
		}
		e := entries[r.key()]
		if e == nil {
			e = &entry{record: r, buckets: make(map[float64]float64)}
			entries[r.key()] = e
		}
		switch {
		case part == "count":
			e.count += value
		case part == "sum":
			e.sum += value
		case part == "bucket" && le == "+Inf":
			e.inf += value
		case part == "bucket":
			bound, err := strconv.ParseFloat(le, 64)
			require.NoError(t, err)
			e.buckets[bound] += value
		case r.Type == "counter":
			e.value += value
		default:
			e.value = value
		}
	}
	var all []string
	number := func(f float64) *float64 { return &f }
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		e := entries[key]
		switch e.Type {
		case "gauge":
			e.Stats = map[string]*float64{"value": number(e.value)}
		case "counter":
			e.Stats = map[string]*float64{"total": number(e.value)}
		default:
			e.Stats = map[string]*float64{"count": number(e.count), "sum": number(e.sum), "min": nil, "max": nil, "mean": nil, "p50": nil, "p95": nil}
			if e.count > 0 {
				e.Stats["mean"] = number(e.sum / e.count)
			}
			var bins []bucket
			var before float64
			bounds := slices.Sorted(maps.Keys(e.buckets))
			for _, le := range bounds {
				if n := e.buckets[le] - before; n > 0 {
					bins = append(bins, bucket{le, n})
				}
				before = e.buckets[le]
			}
			if rest := e.inf - before; rest > 0 && len(bounds) > 0 {
				last := bounds[len(bounds)-1]
				if len(bins) == 0 || bins[len(bins)-1].le != last {
					bins = append(bins, bucket{le: last})
				}
				bins[len(bins)-1].n += rest
			}
			var population float64
			for _, b := range bins {
				population += b.n
			}
			for name, q := range map[string]float64{"p50": 0.5, "p95": 0.95} {
				var running float64
				for _, b := range bins {
					if running += b.n; running >= math.Ceil(q*population) {
						e.Stats[name] = number(b.le)
						break
					}
				}
			}
		}
		all = append(all, e.String())
	}
	return all
}
