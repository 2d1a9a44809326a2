package nvmlreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/sharedcomponent"
	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/metadata"
)

// NewFactory returns the factory of the nvml receiver. Its metrics and its logs receiver of one configuration are the
// same one.
func NewFactory() receiver.Factory {
	receivers := sharedcomponent.New[*Config, *nvmlReceiver]()
	load := func(set receiver.Settings, cfg component.Config) (*sharedcomponent.Component[*nvmlReceiver], error) {
		config := cfg.(*Config)
		return receivers.LoadOrStore(config, func() (*nvmlReceiver, error) { return newReceiver(config, set.Logger), nil })
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithMetrics(func(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
			shared, err := load(set, cfg)
			if err != nil {
				return nil, err
			}
			shared.Unwrap().metrics, err = collect.ReportedMetrics(set, "driver", next)
			return shared, err
		}, metadata.MetricsStability),
		receiver.WithLogs(func(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs) (receiver.Logs, error) {
			shared, err := load(set, cfg)
			if err != nil {
				return nil, err
			}
			shared.Unwrap().logs, err = collect.ReportedLogs(set, "driver", next)
			return shared, err
		}, metadata.LogsStability))
}

func createDefaultConfig() component.Config { return &Config{Config: collect.DefaultConfig()} }
