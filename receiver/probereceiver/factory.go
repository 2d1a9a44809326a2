package probereceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/graphsignal/graphsignal-collector/internal/sharedcomponent"
	"github.com/graphsignal/graphsignal-collector/internal/shm"
	"github.com/graphsignal/graphsignal-collector/internal/shmreceiver"
	"github.com/graphsignal/graphsignal-collector/receiver/probereceiver/internal/metadata"
)

// NewFactory returns the factory of the probe receiver.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(metadata.Type, func() component.Config { return shmreceiver.DefaultConfig() },
		receiver.WithMetrics(createMetrics, metadata.MetricsStability),
		receiver.WithLogs(createLogs, metadata.LogsStability))
}

// receivers makes the metrics and the logs receiver of one configuration the same one.
var receivers = sharedcomponent.New[*Config, *shmreceiver.Receiver]()

func createMetrics(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	shared, err := load(set, cfg)
	if err != nil {
		return nil, err
	}
	shared.Unwrap().SendMetrics(next)
	return shared, nil
}

func createLogs(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs) (receiver.Logs, error) {
	shared, err := load(set, cfg)
	if err != nil {
		return nil, err
	}
	shared.Unwrap().SendLogs(next)
	return shared, nil
}

func load(set receiver.Settings, cfg component.Config) (*sharedcomponent.Component[*shmreceiver.Receiver], error) {
	config := cfg.(*Config)
	return receivers.LoadOrStore(config, func() (*shmreceiver.Receiver, error) {
		return shmreceiver.New(config, shm.AllBut("cupti.json", "rocm.json"), metadata.ScopeName, set.TelemetrySettings), nil
	})
}
