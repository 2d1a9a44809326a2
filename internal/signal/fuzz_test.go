package signal

import (
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

type nowhere struct{}

func (nowhere) Entity(Entity, int64, int64)                                         {}
func (nowhere) Gauge(string, []series.Tag, series.Number, int64, int64)             {}
func (nowhere) Counter(string, []series.Tag, series.Number, int64, int64)           {}
func (nowhere) Histogram(string, []series.Tag, *series.Distribution, int64, int64)  {}
func (nowhere) Profile(_ string, _ []series.Tag, frames []series.Frame, _, _ int64) {}

// FuzzDecode feeds metrics and logs as they may come over OTLP.
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
	AppendError(ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords(), ErrorEntry{Level: "error", Message: "m", Exception: "x", Tags: []ErrorTag{{Key: "n", Value: int64(1)}}})
	logs, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(metrics)
	f.Add(logs)
	f.Fuzz(func(t *testing.T, wire []byte) {
		if md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(wire); err == nil {
			Decode(md, nowhere{})
		}
		if ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(wire); err == nil {
			DecodeErrors(ld, func(ErrorEntry) {})
		}
	})
}
