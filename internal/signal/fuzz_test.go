package signal

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// transcript is a Sink that writes down what it is given, after a look at it.
type transcript struct {
	t     *testing.T
	lines []string
}

func (w *transcript) add(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

func (w *transcript) finite(numbers ...series.Number) {
	for _, n := range numbers {
		if !n.IsFinite() {
			w.t.Fatalf("the number %v is published", n)
		}
	}
}

func (w *transcript) Entity(e Entity, first, last int64) { w.add("entity %v %d %d", e, first, last) }

func (w *transcript) Gauge(name string, tags []series.Tag, value series.Number, start, ts int64) {
	w.finite(value)
	w.add("gauge %s %v %v %d %d", name, tags, value, start, ts)
}

func (w *transcript) Counter(name string, tags []series.Tag, total series.Number, start, ts int64) {
	w.finite(total)
	w.add("counter %s %v %v %d %d", name, tags, total, start, ts)
}

func (w *transcript) Histogram(name string, tags []series.Tag, d *series.Distribution, start, ts int64) {
	w.finite(d.Sum, d.Min, d.Max)
	for i, bin := range d.Bins {
		w.finite(bin.Value)
		if i > 0 && !d.Bins[i-1].Value.Less(bin.Value) {
			w.t.Fatalf("bins out of order: %v", d.Bins)
		}
	}
	w.add("histogram %s %v %+v %d %d", name, tags, *d, start, ts)
}

func (w *transcript) Profile(name string, tags []series.Tag, frames []series.Frame, start, ts int64) {
	w.add("profile %s %v %v %d %d", name, tags, frames, start, ts)
}

// FuzzDecode feeds metrics and logs as they may come over OTLP. What stands behind them is read as if it stood alone.
func FuzzDecode(f *testing.F) {
	b := NewBuilder("test")
	r := b.Resource([]Entity{{Kind: ProcessKind, ID: tags(PIDKey, "1"), Attributes: tags("a", "b")}}, tags("x", "y"))
	r.Gauge("g", tags("k", "v"), series.Float(1.5), 1, 2)
	r.Counter("c", nil, series.Int(3), 1, 2)
	r.Profile("p", nil, []series.Frame{{Name: "f", Value: 1, Samples: 2}, {Name: "g", Value: 3, Samples: 4}}, 1, 2)
	r.Profile("q", nil, nil, 1, 2)
	r.NativeHistogram("h", nil, series.Distribution{Bins: []series.Bin{{Value: series.Int(0), Count: 1}, {Value: series.Int(1 << 60), Count: 1}}}, 1, 2)
	r.BoundedHistogram("i", nil, series.Distribution{HasTotals: true, Count: 1, Sum: series.Float(1)}, []float64{1, 2}, []uint64{1, 0, 0}, 1, 2)
	metrics, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(b.Metrics())
	if err != nil {
		f.Fatal(err)
	}
	ld := plog.NewLogs()
	neighbour := ErrorEntry{Level: "error", Message: "m", Exception: "x", Tags: []ErrorTag{{Key: "n", Value: int64(1)}}}
	AppendError(ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords(), neighbour)
	logs, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(metrics)
	f.Add(logs)
	f.Fuzz(func(t *testing.T, wire []byte) {
		if md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(wire); err == nil {
			alone, behind := transcript{t: t}, transcript{t: t}
			Decode(b.Metrics(), &alone)
			b.Metrics().ResourceMetrics().At(0).CopyTo(md.ResourceMetrics().AppendEmpty())
			points := md.DataPointCount()
			unsupported := Decode(md, &behind).Points
			if n := len(behind.lines) - len(alone.lines); n < 0 || !slices.Equal(behind.lines[n:], alone.lines) {
				t.Fatalf("%q, alone %q", behind.lines, alone.lines)
			}
			if unsupported < 0 || unsupported > points+md.MetricCount() {
				t.Fatalf("%d of %d points are unsupported", unsupported, points)
			}
		}
		if ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(wire); err == nil {
			AppendError(ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords(), neighbour)
			var last ErrorEntry
			count := 0
			DecodeErrors(ld, func(e ErrorEntry) { last = e; count++ })
			if last.Message != neighbour.Message || last.Exception != neighbour.Exception || last.Level != neighbour.Level || count > ld.LogRecordCount() {
				t.Fatalf("the last of %d is %+v", count, last)
			}
		}
	})
}

// TestBoundsOutOfOrder: such a histogram is counted as one that cannot be represented, and the one beside it is read.
func TestBoundsOutOfOrder(t *testing.T) {
	for name, bounds := range map[string][]float64{"falling": {1, 5, 3}, "no number": {math.NaN(), 1, 2}, "negative": {-1, 1, 2}} {
		md := pmetric.NewMetrics()
		m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		m.SetName("h")
		m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		m.Metadata().PutStr(BinsMetadata, BinsLower)
		for _, b := range [][]float64{bounds, {1, 2, 3}} {
			p := m.Histogram().DataPoints().AppendEmpty()
			p.ExplicitBounds().FromRaw(b)
			p.BucketCounts().FromRaw([]uint64{1, 1, 1, 1})
		}
		got := transcript{t: t}
		if unsupported := Decode(md, &got); unsupported != (Unsupported{1, "h"}) || len(got.lines) != 1 {
			t.Errorf("%s: unsupported %+v, %q", name, unsupported, got.lines)
		}
	}
}
