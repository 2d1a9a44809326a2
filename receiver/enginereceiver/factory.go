package enginereceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/receiver/enginereceiver/internal/metadata"
)

// NewFactory returns the factory of the engine receiver.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithMetrics(createMetrics, metadata.MetricsStability))
}

func createDefaultConfig() component.Config {
	return &Config{
		Config:       collect.DefaultConfig(),
		Timeout:      2 * time.Second,
		InitialDelay: 2 * time.Second,
		VerifyOwner:  true,
		ProcFSPath:   "/proc",
		MaxSeries:    4000,
	}
}

func createMetrics(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	return newReceiver(cfg.(*Config), set, next)
}
