package signal

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/version"
)

func tags(pairs ...string) []series.Tag {
	var out []series.Tag
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, series.Tag{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}

func TestEntities(t *testing.T) {
	b := NewBuilder("test")
	assert.True(t, b.Empty())
	r := b.Resource([]Entity{
		{Kind: HostKind, Attributes: tags("platform.name", "Linux", strings.Repeat("k", 60), strings.Repeat("v", 3000), "", "x")},
		{Kind: ProcessKind, ID: tags(PIDKey, "7", RootPIDKey, "5"), Attributes: tags(CommandLineKey, "serve")},
	}, tags("process.rank", "0"))
	assert.False(t, b.Empty())
	scope := b.Metrics().ResourceMetrics().At(0).ScopeMetrics().At(0).Scope()
	assert.Equal(t, []string{"test", version.Version}, []string{scope.Name(), scope.Version()})
	r.Gauge("g", tags("x", "1"), series.Int(1), 50, 100)
	r.Seen("s", 20, 110)

	got := newRecorder(t)
	assert.Zero(t, Decode(b.Metrics(), got))
	assert.Equal(t, map[string]any{
		identity(series.Gauge, "g", tags(PIDKey, "7", "process.rank", "0", "x", "1")): series.Int(1),
	}, got.values, "descriptive attributes and process.root_pid are no tags")
	assert.Equal(t, []seenEntity{
		{Entity{Kind: HostKind, Attributes: tags("platform.name", "Linux", strings.Repeat("k", 50), strings.Repeat("v", 2500))}, 20, 110},
		{Entity{Kind: ProcessKind, ID: tags(PIDKey, "7", RootPIDKey, "5"), Attributes: tags(CommandLineKey, "serve")}, 20, 110},
	}, got.entities)
}

func TestEntityWithoutStart(t *testing.T) {
	b := NewBuilder("test")
	b.Resource([]Entity{{Kind: DeviceKind, ID: tags("device.uuid", "G")}}, nil).Gauge("g", nil, series.Int(1), 0, 100)
	b.Resource([]Entity{{Kind: DeviceKind, ID: tags("device.uuid", "never seen")}}, nil)
	got := newRecorder(t)
	Decode(b.Metrics(), got)
	assert.Equal(t, []seenEntity{{Entity{Kind: DeviceKind, ID: tags("device.uuid", "G")}, 100, 100}}, got.entities)
}

func TestUnits(t *testing.T) {
	b := NewBuilder("test")
	r := b.Resource(nil, nil)
	for name, unit := range map[string]string{
		"a_nanoseconds": "ns", "a_seconds": "s", "a_bytes": "By", "a_percent": "%", "a_celsius": "Cel", "a_watts": "W",
		"a_kibibytes": "KiBy", "a_megahertz": "", "a": "",
	} {
		r.Gauge(name, nil, series.Int(1), 0, 1)
		metrics := b.metrics.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
		assert.Equal(t, unit, metrics.At(metrics.Len()-1).Unit(), name)
	}
	assert.Equal(t, "cuda_kernels_samples", SamplesName("cuda_kernels_nanoseconds"))
	assert.Equal(t, "x_samples", SamplesName("x"))
}

// newMetric returns metrics with one empty metric.
func newMetric(name string) (pmetric.Metrics, pmetric.Metric) {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(name)
	return md, m
}

// TestForeignMetrics reads what other OpenTelemetry sources send.
func TestForeignMetrics(t *testing.T) {
	none := pmetric.DefaultDataPointFlags.WithNoRecordedValue(true)
	for name, c := range map[string]struct {
		build       func(pmetric.Metric)
		want        any
		typ         series.Type
		unsupported int
	}{
		"up-down sum is a gauge": {build: func(m pmetric.Metric) {
			m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			m.Sum().DataPoints().AppendEmpty().SetIntValue(-3)
		}, want: series.Int(-3), typ: series.Gauge},
		"delta sum": {build: func(m pmetric.Metric) {
			m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
			m.Sum().DataPoints().AppendEmpty().SetIntValue(1)
		}, unsupported: 1},
		"delta profile": {build: func(m pmetric.Metric) {
			m.Metadata().PutStr(ProfileMetadata, "m")
			m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
			m.Sum().DataPoints().AppendEmpty().SetIntValue(1)
		}, unsupported: 1},
		"delta histogram": {build: func(m pmetric.Metric) {
			m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
			m.Histogram().DataPoints().AppendEmpty()
		}, unsupported: 1},
		"point without value": {build: func(m pmetric.Metric) { m.SetEmptyGauge().DataPoints().AppendEmpty() }, unsupported: 1},
		"stale point":         {build: func(m pmetric.Metric) { m.SetEmptyGauge().DataPoints().AppendEmpty().SetFlags(none) }},
		"not a number":        {build: func(m pmetric.Metric) { m.SetEmptyGauge().DataPoints().AppendEmpty().SetDoubleValue(math.NaN()) }, unsupported: 1},
		"empty metric":        {build: func(pmetric.Metric) {}, unsupported: 1},
		"summary": {build: func(m pmetric.Metric) {
			p := m.SetEmptySummary().DataPoints().AppendEmpty()
			p.SetCount(4)
			p.SetSum(2.5)
		}, want: series.Distribution{HasTotals: true, Count: 4, Sum: series.Float(2.5)}, typ: series.Histogram},
		"summary with infinite sum": {build: func(m pmetric.Metric) { m.SetEmptySummary().DataPoints().AppendEmpty().SetSum(math.Inf(1)) }, unsupported: 1},
		"histogram with infinite sum": {build: func(m pmetric.Metric) {
			m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			m.Histogram().DataPoints().AppendEmpty().SetSum(math.Inf(-1))
		}, unsupported: 1},
		"histogram with fewer counts than its bounds need": {build: func(m pmetric.Metric) {
			m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			p := m.Histogram().DataPoints().AppendEmpty()
			p.SetCount(2)
			p.SetSum(3)
			p.ExplicitBounds().FromRaw([]float64{1, 2, 4})
			p.BucketCounts().FromRaw([]uint64{1, 1})
		}, unsupported: 1},
		"histogram of one bucket": {build: func(m pmetric.Metric) {
			m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			p := m.Histogram().DataPoints().AppendEmpty()
			p.SetCount(2)
			p.SetSum(3)
			p.BucketCounts().FromRaw([]uint64{2})
		}, want: series.Distribution{HasTotals: true, Count: 2, Sum: series.Float(3)}, typ: series.Histogram},
		"histogram by upper bounds": {build: func(m pmetric.Metric) {
			m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			p := m.Histogram().DataPoints().AppendEmpty()
			p.SetCount(7)
			p.SetSum(9)
			p.SetMin(math.NaN())
			p.SetMax(8)
			p.ExplicitBounds().FromRaw([]float64{1, 2, 4, math.Inf(1)})
			p.BucketCounts().FromRaw([]uint64{1, 0, 2, 3, 1})
		}, want: series.Distribution{HasTotals: true, HasMax: true, Count: 7, Sum: series.Float(9), Max: series.Float(8), Bins: []series.Bin{
			{Value: series.Float(1), Count: 1}, {Value: series.Float(4), Count: 6},
		}}, typ: series.Histogram},
		"exponential histogram": {build: func(m pmetric.Metric) {
			m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			p := m.ExponentialHistogram().DataPoints().AppendEmpty()
			p.SetCount(10)
			p.SetSum(12)
			p.SetScale(0)
			p.SetZeroCount(1)
			p.Positive().SetOffset(1) // (2, 4], (4, 8]
			p.Positive().BucketCounts().FromRaw([]uint64{2, 3})
			p.Negative().SetOffset(0) // [-2, -1), [-4, -2)
			p.Negative().BucketCounts().FromRaw([]uint64{1, 3})
		}, want: series.Distribution{HasTotals: true, Count: 10, Sum: series.Float(12), Bins: []series.Bin{
			{Value: series.Float(-2), Count: 3}, {Value: series.Float(-1), Count: 1}, {Value: series.Float(0), Count: 1},
			{Value: series.Float(4), Count: 2}, {Value: series.Float(8), Count: 3},
		}}, typ: series.Histogram},
		"delta exponential histogram": {build: func(m pmetric.Metric) {
			m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
			m.ExponentialHistogram().DataPoints().AppendEmpty()
		}, unsupported: 1},
		"profile with doubles and without recordings": {build: func(m pmetric.Metric) {
			m.Metadata().PutStr(ProfileMetadata, "m")
			m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			p := m.Sum().DataPoints().AppendEmpty()
			p.Attributes().PutStr(FrameKey, "f")
			p.SetDoubleValue(7.9)
			m.Sum().DataPoints().AppendEmpty().SetIntValue(3) // no frame: no row
		}, want: []series.Frame{{Name: "f", Value: 7}}, typ: series.Profile},
	} {
		t.Run(name, func(t *testing.T) {
			md, m := newMetric("m")
			c.build(m)
			got := newRecorder(t)
			unsupported := Unsupported{Points: c.unsupported}
			if c.unsupported > 0 {
				unsupported.First = "m"
			}
			assert.Equal(t, unsupported, Decode(md, got))
			if c.want == nil {
				assert.Empty(t, got.values)
				return
			}
			assert.Equal(t, map[string]any{identity(c.typ, "m", nil): c.want}, got.values)
		})
	}
}

func TestErrorsRoundTrip(t *testing.T) {
	entries := []ErrorEntry{
		{Level: "debug", Message: "d", Time: 1},
		{Level: "info", Message: "i", Time: 2},
		{Level: "warning", Message: "w", Time: 3, Tags: []ErrorTag{{Key: "a", Value: "1"}, {Key: "n", Value: int64(5)}}},
		{Level: "error", Message: "", Exception: "Traceback\n  x", Time: 4},
		{Level: "critical", Message: "c", Time: 5},
	}
	ld := plog.NewLogs()
	records := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for _, e := range entries {
		AppendError(records, e)
	}
	var got []ErrorEntry
	assert.Zero(t, DecodeErrors(ld, func(e ErrorEntry) { got = append(got, e) }))
	assert.Equal(t, entries, got)
}

func TestForeignLogs(t *testing.T) {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	attrs := rl.Resource().Attributes()
	attrs.PutStr(PIDKey, "7")
	attrs.PutStr(RootPIDKey, "5")
	attrs.PutStr(CommandLineKey, "serve")
	attrs.PutStr("stream", "stdout")
	ref := entity.ResourceEntityRefs(rl.Resource()).AppendEmpty()
	ref.SetType(ProcessKind)
	ref.IdKeys().Append(PIDKey)
	ref.DescriptionKeys().Append(CommandLineKey)
	records := rl.ScopeLogs().AppendEmpty().LogRecords()

	records.AppendEmpty() // neither message nor trace
	r := records.AppendEmpty()
	r.SetSeverityNumber(plog.SeverityNumberWarn2)
	r.SetSeverityText("WARN")
	r.SetObservedTimestamp(pcommon.Timestamp(9))
	r.Body().SetEmptyMap().PutInt("code", 3)
	r.Attributes().PutStr("stream", "stderr")
	r.Attributes().PutBool("fatal", true)
	r = records.AppendEmpty()
	r.SetSeverityText("notice")
	r.Body().SetStr("unknown word, no number")
	r = records.AppendEmpty()
	r.SetEventName("gpu.reset")
	r.SetSeverityText("Fatal")
	r = records.AppendEmpty()
	r.SetEventName("exception")
	r.SetSeverityNumber(plog.SeverityNumberError)
	r.Attributes().PutStr("exception.type", "ValueError")
	r.Attributes().PutStr("exception.message", "bad")

	var got []ErrorEntry
	assert.Equal(t, 1, DecodeErrors(ld, func(e ErrorEntry) { got = append(got, e) }))
	pid := ErrorTag{Key: PIDKey, Value: "7"}
	assert.Equal(t, []ErrorEntry{
		{Level: "warning", Message: `{"code":3}`, Time: 9, Tags: []ErrorTag{pid, {Key: "stream", Value: "stderr"}, {Key: "fatal", Value: "true"}}},
		{Level: "info", Message: "unknown word, no number", Tags: []ErrorTag{pid, {Key: "stream", Value: "stdout"}}},
		{Level: "critical", Message: "gpu.reset", Tags: []ErrorTag{pid, {Key: "stream", Value: "stdout"}}},
		{Level: "error", Message: "ValueError: bad", Tags: []ErrorTag{
			pid, {Key: "stream", Value: "stdout"}, {Key: "exception.type", Value: "ValueError"}, {Key: "exception.message", Value: "bad"},
		}},
	}, got)
	for n, word := range map[plog.SeverityNumber]string{
		plog.SeverityNumberTrace: "debug", plog.SeverityNumberInfo3: "info", plog.SeverityNumberError2: "error", plog.SeverityNumberFatal4: "critical",
	} {
		record := plog.NewLogRecord()
		record.SetSeverityNumber(n)
		assert.Equal(t, word, levelOf(record))
	}
	for text, word := range map[string]string{"WARN": "warning", "Err": "error", "FATAL": "critical", "trace": "debug", "verbose": "info"} {
		record := plog.NewLogRecord()
		record.SetSeverityText(text)
		assert.Equal(t, word, levelOf(record), text)
	}
}
