package amdsmireceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/receiver/amdsmireceiver/internal/metadata"
)

// NewFactory returns the factory of the amdsmi receiver.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithMetrics(createMetrics, metadata.MetricsStability))
}

func createDefaultConfig() component.Config { return &Config{Config: collect.DefaultConfig()} }

func createMetrics(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	next, err := collect.ReportedMetrics(set, "driver", next)
	if err != nil {
		return nil, err
	}
	return newReceiver(cfg.(*Config), set.Logger, next), nil
}
