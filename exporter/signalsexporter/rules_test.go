package signalsexporter

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
)

// parts are the three arrays of a document, as they were sent.
type parts struct{ metrics, errors, resources string }

// get reads the document as of now: a request alone may get one that is just being replaced.
func (r *running) get() parts {
	r.t.Helper()
	r.document.refresh(true)
	return r.read()
}

func (r *running) read() parts {
	r.t.Helper()
	resp, body := r.do(http.MethodGet, "/signals")
	require.Equal(r.t, http.StatusOK, resp.StatusCode)
	require.True(r.t, json.Valid([]byte(body)))
	_, body, ok := strings.Cut(body, `"metrics": [`)
	require.True(r.t, ok)
	metrics, body, ok := strings.Cut(body, `], "errors": [`)
	require.True(r.t, ok)
	errors, resources, ok := strings.Cut(body, `], "resources": [`)
	require.True(r.t, ok)
	return parts{metrics, errors, strings.TrimSuffix(resources, "]}")}
}

func native(pairs ...int64) (bins []series.Bin) {
	for i := 0; i < len(pairs); i += 2 {
		bins = append(bins, series.Bin{Value: series.Int(pairs[i]), Count: uint64(pairs[i+1])})
	}
	return bins
}

// TestMetricRules holds one document for each rule of the contract's sections 3 to 5: what goes in as pdata,
// and the metrics that come out over HTTP.
func TestMetricRules(t *testing.T) {
	const ts = startTime
	updated := fmt.Sprintf(`, "updated_ns": %d}`, int64(ts))
	gauge := func(name, tags, value string) string {
		return `{"name": "` + name + `", "type": "gauge", "tags": ` + tags + `, "stats": {"value": ` + value + `}` + updated
	}
	counter := func(name, tags, value string) string {
		return `{"name": "` + name + `", "type": "counter", "tags": ` + tags + `, "stats": {"total": ` + value + `}` + updated
	}
	histogram := func(stats string) string {
		return `{"name": "h", "type": "histogram", "tags": {}, "stats": {` + stats + `}` + updated
	}
	profile := func(frames string) string {
		return `{"name": "p", "type": "profile", "tags": {}, "stats": {"frames": [` + frames + `]}` + updated
	}
	sum := func(count uint64, total series.Number, bins []series.Bin) series.Distribution {
		return series.Distribution{Bins: bins, HasTotals: true, Count: count, Sum: total}
	}
	for name, c := range map[string]struct {
		build func(*signal.Resource)
		want  []string
	}{
		"nothing": {func(*signal.Resource) {}, nil},
		"order by name, type, tags": {func(r *signal.Resource) {
			r.Gauge("b", nil, series.Int(1), 0, ts)
			r.Gauge("a", tag("k", "10"), series.Int(1), 0, ts)
			r.Gauge("a", tag("k", "1", "z", ""), series.Int(2), 0, ts)
			r.Gauge("a", tag("k", "1"), series.Int(3), 0, ts)
			r.Gauge("a", nil, series.Int(4), 0, ts)
			r.Counter("a", tag("k", "2"), series.Int(5), 0, ts)
			r.Gauge("B", nil, series.Int(6), 0, ts)
			r.Gauge("a\u00e9", nil, series.Int(7), 0, ts)
		}, []string{
			gauge("B", "{}", "6"), counter("a", `{"k": "2"}`, "5"), gauge("a", "{}", "4"), gauge("a", `{"k": "1"}`, "3"),
			gauge("a", `{"k": "1", "z": ""}`, "2"), gauge("a", `{"k": "10"}`, "1"), gauge(`a\u00e9`, "{}", "7"), gauge("b", "{}", "1"),
		}},
		"number forms": {func(r *signal.Resource) {
			for i, n := range []series.Number{
				series.Int(math.MaxInt64), series.Int(-7), series.Float(2), series.Float(math.Copysign(0, -1)), series.Float(1e-5),
				series.Float(1e15), series.Float(1e16), series.Float(0.0001),
			} {
				r.Gauge(fmt.Sprint("g", i), nil, n, 0, ts)
			}
		}, []string{
			gauge("g0", "{}", "9223372036854775807"), gauge("g1", "{}", "-7"), gauge("g2", "{}", "2.0"), gauge("g3", "{}", "-0.0"),
			gauge("g4", "{}", "1e-05"), gauge("g5", "{}", "1000000000000000.0"), gauge("g6", "{}", "1e+16"), gauge("g7", "{}", "0.0001"),
		}},
		"fractional counter": {func(r *signal.Resource) { r.Counter("c", nil, series.Float(3), 0, ts) }, []string{counter("c", "{}", "3.0")}},
		"tags are cut, the last of equal keys wins": {func(r *signal.Resource) {
			long := strings.Repeat("k", 50)
			r.Gauge("g", tag(long+"1", "first", "v", strings.Repeat("\u65e5", 251), long+"2", "last"), series.Int(1), 0, ts)
		}, []string{gauge("g", `{"`+strings.Repeat("k", 50)+`": "last", "v": "`+strings.Repeat(`\u65e5`, 250)+`"}`, "1")}},
		"names are neither cut nor escaped more than JSON needs": {func(r *signal.Resource) {
			r.Gauge(strings.Repeat("n", 2000)+"<&>\"\\\n\U0001f600", nil, series.Int(1), 0, ts)
		}, []string{gauge(strings.Repeat("n", 2000)+`<&>\"\\\n\ud83d\ude00`, "{}", "1")}},
		"no time": {func(r *signal.Resource) { r.Gauge("g", nil, series.Int(1), 0, 0) }, nil}, // cleaned by the first set
		"example 1: clamped to the maximum": {func(r *signal.Resource) {
			d := sum(20, series.Int(2384), native(96, 3, 112, 9, 128, 6, 160, 2))
			d.HasMin, d.HasMax, d.Min, d.Max = true, true, series.Int(99), series.Int(151)
			r.NativeHistogram("h", nil, d, 0, ts)
		}, []string{histogram(`"count": 20, "sum": 2384, "min": 99, "max": 151, "mean": 119.2, "p50": 112, "p95": 151`)}},
		"example 2: raised to the minimum": {func(r *signal.Resource) {
			d := sum(1, series.Int(70), native(64, 1, 80, 0))
			d.HasMin, d.HasMax, d.Min, d.Max = true, true, series.Int(70), series.Int(70)
			r.NativeHistogram("h", nil, d, 0, ts)
		}, []string{histogram(`"count": 1, "sum": 70, "min": 70, "max": 70, "mean": 70.0, "p50": 70, "p95": 70`)}},
		"example 3: totals only": {func(r *signal.Resource) {
			r.BoundedHistogram("h", nil, sum(5, series.Float(0.75), nil), nil, nil, 0, ts)
		}, []string{histogram(`"count": 5, "sum": 0.75, "min": null, "max": null, "mean": 0.15, "p50": null, "p95": null`)}},
		"example 4: bounds only": {func(r *signal.Resource) {
			r.BoundedHistogram("h", nil, series.Distribution{}, []float64{0.005, 0.01, 0.025}, []uint64{40, 8, 2, 0}, 0, ts)
		}, []string{histogram(`"count": null, "sum": null, "min": null, "max": null, "mean": 0.0066, "p50": 0.005, "p95": 0.01`)}},
		"example 5: rank on the edge": {func(r *signal.Resource) {
			r.BoundedHistogram("h", nil, sum(20, series.Float(21.5), nil), []float64{1, 2.5}, []uint64{19, 1, 0}, 0, ts)
		}, []string{histogram(`"count": 20, "sum": 21.5, "min": null, "max": null, "mean": 1.075, "p50": 1.0, "p95": 1.0`)}},
		"example 6: bins only": {func(r *signal.Resource) {
			r.NativeHistogram("h", nil, series.Distribution{Bins: native(10, 1, 20, 3)}, 0, ts)
		}, []string{histogram(`"count": null, "sum": null, "min": null, "max": null, "mean": 17.5, "p50": 20, "p95": 20`)}},
		"example 7: count of zero beside bins": {func(r *signal.Resource) {
			r.NativeHistogram("h", nil, sum(0, series.Int(0), native(7, 1, 8, 1, 9, 1)), 0, ts)
		}, []string{histogram(`"count": 0, "sum": 0, "min": null, "max": null, "mean": null, "p50": 8, "p95": 9`)}},
		"example 8: empty bins": {func(r *signal.Resource) {
			r.NativeHistogram("h", nil, series.Distribution{Bins: native(10, 0, 20, 0)}, 0, ts)
		}, []string{histogram(`"count": null, "sum": null, "min": null, "max": null, "mean": null, "p50": null, "p95": null`)}},
		"example 9: neither bins nor totals": {func(r *signal.Resource) {
			r.NativeHistogram("h", nil, series.Distribution{}, 0, ts)
		}, nil},
		"what lies above the last bound counts there": {func(r *signal.Resource) {
			r.BoundedHistogram("h", nil, sum(4, series.Float(40), nil), []float64{1, 2}, []uint64{0, 1, 3}, 0, ts)
		}, []string{histogram(`"count": 4, "sum": 40.0, "min": null, "max": null, "mean": 10.0, "p50": 2.0, "p95": 2.0`)}},
		"the largest native bin": {func(r *signal.Resource) {
			d := sum(1, series.Int(1<<62), []series.Bin{{Value: series.Uint(series.GridLower(series.GridSlots - 1)), Count: 1}})
			r.NativeHistogram("h", nil, d, 0, ts)
		}, []string{histogram(`"count": 1, "sum": 4611686018427387904, "min": null, "max": null, "mean": 4.611686018427388e+18, "p50": 16140901064495857664, "p95": 16140901064495857664`)}},
		"profile by value, then name": {func(r *signal.Resource) {
			r.Profile("p", nil, []series.Frame{{Name: "b", Value: 5, Samples: 1}, {Name: "z", Value: math.MaxInt64, Samples: 2}, {Name: "a", Value: 5}, {Name: "zero"}}, 0, ts)
		}, []string{profile(`{"name": "z", "value": 9223372036854775807, "samples": 2}, {"name": "a", "value": 5, "samples": 0}, {"name": "b", "value": 5, "samples": 1}, {"name": "zero", "value": 0, "samples": 0}`)}},
		"empty profile": {func(r *signal.Resource) { r.Profile("p", nil, nil, 0, ts) }, []string{profile("")}},
		"one name, four types": {func(r *signal.Resource) {
			r.Profile("p", nil, nil, 0, ts)
			r.Gauge("p", nil, series.Int(1), 0, ts)
			r.NativeHistogram("p", nil, sum(0, series.Int(0), nil), 0, ts)
			r.Counter("p", nil, series.Int(2), 0, ts)
		}, []string{
			counter("p", "{}", "2"), gauge("p", "{}", "1"),
			strings.Replace(histogram(`"count": 0, "sum": 0, "min": null, "max": null, "mean": null, "p50": null, "p95": null`), `"h"`, `"p"`, 1),
			profile(""),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			r.metrics(func(b *signal.Builder) { c.build(b.Resource(nil, nil)) })
			assert.Equal(t, strings.Join(c.want, ", "), r.get().metrics)
		})
	}
}

func TestSeriesExpireThroughTheEndpoint(t *testing.T) {
	r := start(t, nil)
	set := func(name string, ts int64) {
		r.metrics(func(b *signal.Builder) { b.Resource(nil, nil).Gauge(name, nil, series.Int(1), 0, ts) })
	}
	set("a", startTime)
	r.clock.set(startTime + int64(601*time.Second))
	assert.Contains(t, r.get().metrics, `"a"`, "reading removes nothing")
	set("b", startTime+int64(601*time.Second))
	assert.NotContains(t, r.get().metrics, `"a"`)
}

func TestAtMost250Frames(t *testing.T) {
	r := start(t, nil)
	r.metrics(func(b *signal.Builder) {
		var frames []series.Frame
		for i := range 300 {
			frames = append(frames, series.Frame{Name: fmt.Sprintf("f%d", i), Value: uint64(i)})
		}
		b.Resource(nil, nil).Profile("p", nil, frames, 0, startTime)
	})
	got := r.get().metrics
	assert.Equal(t, 250, strings.Count(got, `"samples"`))
	assert.Contains(t, got, `"f50"`)
	assert.NotContains(t, got, `"f49"`)
}

// TestLimitsAreReported checks that what does not fit is said in the errors, once.
func TestLimitsAreReported(t *testing.T) {
	r := start(t, nil)
	for range 3 {
		r.metrics(func(b *signal.Builder) {
			res := b.Resource(nil, nil)
			for i := range 5003 {
				res.Gauge("g", tag("i", fmt.Sprint(i)), series.Int(1), 0, startTime)
			}
		})
	}
	got := r.get()
	assert.Equal(t, 5000, strings.Count(got.metrics, `"name"`))
	assert.Equal(t, 1, strings.Count(got.errors, `"level"`))
	assert.Contains(t, got.errors, `{"level": "warning", "message": "Graphsignal 0.1.0: 3 values of new series were left out: there are 5000 series already", `+
		`"exception": null, "tags": {"scope.name": "watcher", "logger": "graphsignal", "watcher.pid": `)
}

func TestErrorRules(t *testing.T) {
	entry := func(level, message string) signal.ErrorEntry {
		return signal.ErrorEntry{Level: level, Message: message, Time: 1}
	}
	text := func(level, message string) string {
		return `{"level": "` + level + `", "message": "` + message + `", "exception": null, "tags": {}, "log_ns": 1}`
	}
	for name, c := range map[string]struct {
		in   []signal.ErrorEntry
		want []string
	}{
		"none": {nil, nil},
		"window": {
			[]signal.ErrorEntry{
				entry("debug", "d1"), entry("warning", "w1"), entry("warning", "w2"), entry("warning", "w3"), entry("warning", "w4"),
				entry("warning", "w5"), entry("warning", "w6"), entry("warning", "w7"), entry("fatal", "f1"), entry("error", "e1"),
				entry("error", "e2"), entry("error", "e3"), entry("error", "e4"), entry("info", "i1"), entry("critical", "c1"),
			},
			[]string{
				text("warning", "w3"), text("warning", "w4"), text("warning", "w5"), text("warning", "w6"), text("warning", "w7"),
				text("error", "e1"), text("error", "e2"), text("error", "e3"), text("error", "e4"), text("critical", "c1"),
			},
		},
		"tags keep their kinds and order": {
			[]signal.ErrorEntry{{Level: "error", Message: "", Exception: "trace\nback", Time: 5, Tags: []signal.ErrorTag{
				{Key: "z", Value: strings.Repeat("v", 300)}, {Key: "watcher.pid", Value: int64(12)},
			}}},
			[]string{`{"level": "error", "message": "", "exception": "trace\nback", "tags": {"z": "` + strings.Repeat("v", 300) + `", "watcher.pid": 12}, "log_ns": 5}`},
		},
		"arrival, not time, orders": {
			[]signal.ErrorEntry{{Level: "error", Message: "late", Time: 9}, {Level: "error", Message: "early", Time: 2}},
			[]string{
				`{"level": "error", "message": "late", "exception": null, "tags": {}, "log_ns": 9}`,
				`{"level": "error", "message": "early", "exception": null, "tags": {}, "log_ns": 2}`,
			},
		},
		"now stands in for no time": {
			[]signal.ErrorEntry{{Level: "error", Message: "m"}},
			[]string{fmt.Sprintf(`{"level": "error", "message": "m", "exception": null, "tags": {}, "log_ns": %d}`, int64(startTime))},
		},
		"too long is cut, not dropped": {
			[]signal.ErrorEntry{entry("error", strings.Repeat("m", 1025))},
			[]string{text("error", strings.Repeat("m", 1021)+"...")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			r.logs(c.in...)
			assert.Equal(t, strings.Join(c.want, ", "), r.get().errors)
		})
	}
}

func TestResourceRules(t *testing.T) {
	r := start(t, nil)
	see := func(start, ts int64, entities ...signal.Entity) {
		r.metrics(func(b *signal.Builder) { b.Resource(entities, nil).Seen("s", start, ts) })
	}
	host := signal.Entity{Kind: signal.HostKind, Attributes: tag("platform.name", "Linux")}
	process := signal.Entity{Kind: signal.ProcessKind, ID: tag("process.pid", "7", "process.root_pid", "7"), Attributes: tag("process.command_line", "a")}
	see(startTime-5e9, startTime, host)
	see(startTime-1e9, startTime, process)
	see(startTime-9e9, startTime+1e9, host)
	process.Attributes = tag("b", strings.Repeat("v", 2600))
	see(startTime, startTime+3e9, process)
	assert.Equal(t, `{"kind": "host", "tags": {}, "attributes": {"platform.name": "Linux"}, "first_seen_ts": 1789999991, "last_seen_ts": 1790000001}, `+
		`{"kind": "process", "tags": {"process.pid": "7", "process.root_pid": "7"}, "attributes": {"b": "`+strings.Repeat("v", 2500)+`"}, `+
		`"first_seen_ts": 1789999999, "last_seen_ts": 1790000003}`, r.get().resources)
	assert.Empty(t, r.get().metrics, "being seen is no series")

	r.clock.set(startTime + int64(700*time.Second))
	see(startTime, startTime+int64(700*time.Second), signal.Entity{Kind: signal.DeviceKind, ID: tag("device.uuid", "G")})
	assert.Equal(t, `{"kind": "device", "tags": {"device.uuid": "G"}, "attributes": {}, "first_seen_ts": 1790000000, "last_seen_ts": 1790000700}`, r.get().resources)
}

func TestEmptyDocument(t *testing.T) {
	r := start(t, nil)
	_, body := r.do(http.MethodGet, "/signals")
	assert.Equal(t, `{"profiler": {"version": "0.1.0"}, "payload_ns": 1790000000123456789, "start_ns": 1790000000123456789, "context": {}, "metrics": [], "errors": [], "resources": []}`, body)
	r.clock.set(startTime + 5)
	_, body = r.do(http.MethodGet, "/signals")
	assert.Contains(t, body, `"payload_ns": 1790000000123456794, "start_ns": 1790000000123456789`, "each reply has its own time")
}
