package signalsexporter

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter"

	"github.com/graphsignal/graphsignal-collector/exporter/signalsexporter/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/internal/selflog"
	"github.com/graphsignal/graphsignal-collector/internal/sharedcomponent"
)

const defaultEndpoint = "127.0.0.1:18259"

// NewFactory returns the factory of the signals exporter.
func NewFactory() exporter.Factory {
	f := factory{exporters: sharedcomponent.NewUntilLast[*Config, *signalsExporter]()}
	return exporter.NewFactory(metadata.Type, createDefaultConfig,
		exporter.WithMetrics(f.createMetrics, metadata.MetricsStability),
		exporter.WithLogs(f.createLogs, metadata.LogsStability))
}

func createDefaultConfig() component.Config {
	server := confighttp.NewDefaultServerConfig()
	server.NetAddr.Endpoint = defaultEndpoint
	server.ReadHeaderTimeout = 10 * time.Second
	server.ReadTimeout = 10 * time.Second // nobody needs the body that a client may send slowly
	server.WriteTimeout = 10 * time.Second
	server.Keepalive = configoptional.Some(confighttp.KeepaliveServerConfig{IdleTimeout: 30 * time.Second})
	return &Config{ServerConfig: server}
}

// factory makes the metrics and the logs exporter of one configuration the same one.
type factory struct {
	exporters *sharedcomponent.Map[*Config, *signalsExporter]
}

// shared is a signalsExporter with the life of the shared component.
type shared struct {
	*signalsExporter
	life *sharedcomponent.Component[*signalsExporter]
}

func (s shared) Start(ctx context.Context, host component.Host) error { return s.life.Start(ctx, host) }
func (s shared) Shutdown(ctx context.Context) error                   { return s.life.Shutdown(ctx) }

func (f factory) get(set exporter.Settings, cfg component.Config) (shared, error) {
	own := cfg.(*Config)
	c, err := f.exporters.LoadOrStore(own, func() (*signalsExporter, error) {
		return newExporter(set, own, selflog.Default, time.Now), nil
	})
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
