package processreceiver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/graphsignal/graphsignal-collector/receiver/processreceiver/internal/metadata"
)

// TestOwnTelemetry: the Collector's own telemetry counts what the receiver hands on.
func TestOwnTelemetry(t *testing.T) {
	telemetry := componenttest.NewTelemetry()
	defer func() { require.NoError(t, telemetry.Shutdown(context.Background())) }()
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = telemetry.NewTelemetrySettings()
	sink := new(consumertest.MetricsSink)
	r, err := NewFactory().CreateMetrics(context.Background(), set, createDefaultConfig(), sink)
	require.NoError(t, err)
	require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool { return sink.DataPointCount() > 0 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, r.Shutdown(context.Background()))
	_, err = telemetry.GetMetric("otelcol_receiver_accepted_metric_points")
	require.NoError(t, err)
}
