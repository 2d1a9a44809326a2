package signalsexporter

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter"

	"github.com/graphsignal/graphsignal-collector/exporter/signalsexporter/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/internal/selflog"
)

const defaultEndpoint = "127.0.0.1:18259"

// NewFactory returns the factory of the signals exporter.
func NewFactory() exporter.Factory {
	return exporter.NewFactory(metadata.Type, createDefaultConfig,
		exporter.WithMetrics(createMetrics, metadata.MetricsStability),
		exporter.WithLogs(createLogs, metadata.LogsStability))
}

func createDefaultConfig() component.Config {
	server := confighttp.NewDefaultServerConfig()
	server.NetAddr.Endpoint = defaultEndpoint
	server.ReadHeaderTimeout = 10 * time.Second
	server.WriteTimeout = 10 * time.Second
	server.Keepalive = configoptional.Some(confighttp.KeepaliveServerConfig{IdleTimeout: 30 * time.Second})
	return &Config{ServerConfig: server}
}

func createMetrics(_ context.Context, set exporter.Settings, cfg component.Config) (exporter.Metrics, error) {
	return instances.get(set, cfg.(*Config)), nil
}

func createLogs(_ context.Context, set exporter.Settings, cfg component.Config) (exporter.Logs, error) {
	return instances.get(set, cfg.(*Config)), nil
}

// instances makes the metrics and the logs exporter of one configuration the same one.
var instances = registry{byConfig: make(map[*Config]*signalsExporter)}

type registry struct {
	mu       sync.Mutex
	byConfig map[*Config]*signalsExporter
}

func (r *registry) get(set exporter.Settings, cfg *Config) *signalsExporter {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.byConfig[cfg]
	if !ok {
		e = newExporter(set, cfg, selflog.Default, time.Now)
		e.release = func() { r.remove(cfg) }
		r.byConfig[cfg] = e
	}
	e.users++
	return e
}

func (r *registry) remove(cfg *Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byConfig, cfg)
}
