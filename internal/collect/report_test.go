package collect

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func TestReported(t *testing.T) {
	telemetry := componenttest.NewTelemetry()
	defer func() { require.NoError(t, telemetry.Shutdown(context.Background())) }()
	set := receiver.Settings{ID: component.MustNewIDWithName("test", "one"), TelemetrySettings: telemetry.NewTelemetrySettings()}
	refusal := errors.New("no room")
	for _, want := range []error{nil, refusal} {
		next := consumertest.NewErr(want)
		metrics, err := ReportedMetrics(set, "file", next)
		require.NoError(t, err)
		logs, err := ReportedLogs(set, "file", next)
		require.NoError(t, err)
		md := pmetric.NewMetrics()
		points := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty().SetEmptyGauge().DataPoints()
		for range 3 {
			points.AppendEmpty()
		}
		ld := plog.NewLogs()
		ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		assert.Equal(t, want, metrics.ConsumeMetrics(context.Background(), md))
		assert.Equal(t, want, logs.ConsumeLogs(context.Background(), ld))
	}
	for name, want := range map[string]int64{
		"otelcol_receiver_accepted_metric_points": 3, "otelcol_receiver_refused_metric_points": 3,
		"otelcol_receiver_accepted_log_records": 1, "otelcol_receiver_refused_log_records": 1,
	} {
		m, err := telemetry.GetMetric(name)
		require.NoError(t, err)
		var total int64
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			if v, _ := p.Attributes.Value("receiver"); v.AsString() == "test/one" {
				total += p.Value
			}
		}
		assert.Equal(t, want, total, name)
	}
}
