package graphsignalexporter

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter"

	"github.com/graphsignal/graphsignal-collector/exporter/graphsignalexporter/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/internal/sharedcomponent"
)

// defaultEndpoint is the platform.
const defaultEndpoint = "https://api.graphsignal.com"

// NewFactory returns the factory of the graphsignal exporter.
func NewFactory() exporter.Factory {
	f := factory{exporters: sharedcomponent.NewUntilLast[*Config, *uploadExporter]()}
	return exporter.NewFactory(metadata.Type, createDefaultConfig,
		exporter.WithMetrics(f.createMetrics, metadata.MetricsStability),
		exporter.WithLogs(f.createLogs, metadata.LogsStability))
}

func createDefaultConfig() component.Config {
	client := confighttp.NewDefaultClientConfig()
	client.Endpoint = defaultEndpoint
	client.MaxConnsPerHost = 2
	client.Keepalive = configoptional.Some(confighttp.KeepaliveClientConfig{MaxIdleConns: 1, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second})
	return &Config{ClientConfig: client, Interval: time.Second}
}

// factory makes the metrics and the logs exporter of one configuration the same one.
type factory struct {
	exporters *sharedcomponent.Map[*Config, *uploadExporter]
}

// shared is an uploadExporter with the life of the shared component.
type shared struct {
	*uploadExporter
	life *sharedcomponent.Component[*uploadExporter]
}

func (s shared) Start(ctx context.Context, host component.Host) error { return s.life.Start(ctx, host) }
func (s shared) Shutdown(ctx context.Context) error                   { return s.life.Shutdown(ctx) }

func (f factory) get(set exporter.Settings, cfg component.Config) (shared, error) {
	own := cfg.(*Config)
	c, err := f.exporters.LoadOrStore(own, func() (*uploadExporter, error) { return newExporter(set, own), nil })
	if err != nil {
		return shared{}, err
	}
	return shared{c.Unwrap(), c}, nil
}

func (f factory) createMetrics(_ context.Context, set exporter.Settings, cfg component.Config) (exporter.Metrics, error) {
	return f.get(set, cfg)
}

func (f factory) createLogs(_ context.Context, set exporter.Settings, cfg component.Config) (exporter.Logs, error) {
	return f.get(set, cfg)
}
