package fold

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/store"
)

func TestRefusalsOnceAMinute(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	r := NewRefusals(zap.New(core), "upload: ")
	told := func() (lines []string) {
		for _, e := range logs.All() {
			lines = append(lines, e.Message)
		}
		return lines
	}
	const left = " data points or log records were left out: delta temporality, no value, not finite, or a broken histogram"
	r.Metrics(store.Outcome{}, signal.Unsupported{})
	r.Logs(0)
	assert.Empty(t, told())
	r.Metrics(store.Outcome{Rejected: 1}, signal.Unsupported{Points: 1, First: "requests"})
	first := "upload: 2" + left + "; the first of requests"
	assert.Equal(t, []string{first}, told())
	r.Logs(2)
	r.Metrics(store.Outcome{DroppedSeries: 1, DroppedResources: 4}, signal.Unsupported{Points: 1, First: "later"})
	assert.Len(t, told(), 1)
	r.Flush()
	assert.Equal(t, []string{
		first,
		"upload: 3" + left,
		"upload: 1 values of new series were left out: there are 5000 series already",
		"upload: 4 sights of new resources were left out: there are 5000 resources already",
	}, told())
	r.Flush()
	assert.Len(t, told(), 4)
}

// TestMetricsNamesTheFirst goes from pdata to what is told of it.
func TestMetricsNamesTheFirst(t *testing.T) {
	md := pmetric.NewMetrics()
	metrics := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	good := metrics.AppendEmpty()
	good.SetName("good")
	good.SetEmptyGauge().DataPoints().AppendEmpty().SetIntValue(1)
	for _, name := range []string{"requests", "errors"} {
		m := metrics.AppendEmpty()
		m.SetName(name)
		m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		m.Sum().DataPoints().AppendEmpty().SetIntValue(1)
	}
	outcome, unsupported := Metrics(store.New(), md)
	assert.Equal(t, store.Outcome{}, outcome)
	assert.Equal(t, signal.Unsupported{Points: 2, First: "requests"}, unsupported)
}
