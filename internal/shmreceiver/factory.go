package shmreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/sharedcomponent"
	"github.com/graphsignal/graphsignal-collector/internal/shm"
)

// Component is what tells one receiver of shared-memory documents from another.
type Component struct {
	Type component.Type
	// Scope names the instrumentation scope of what it emits.
	Scope string
	// Metrics and Logs are the stability of its signals.
	Metrics, Logs component.StabilityLevel
	// Selection says which files it reads.
	Selection shm.Selection
}

// NewFactory returns the factory of a component. Its metrics and its logs receiver of one configuration are the same
// one.
func NewFactory(c Component) receiver.Factory {
	receivers := sharedcomponent.New[*Config, *Receiver]()
	load := func(set receiver.Settings, cfg component.Config) (*sharedcomponent.Component[*Receiver], error) {
		config := cfg.(*Config)
		return receivers.LoadOrStore(config, func() (*Receiver, error) {
			return newReceiver(config, c.Selection, c.Scope, set.TelemetrySettings), nil
		})
	}
	return receiver.NewFactory(c.Type, func() component.Config { return defaultConfig() },
		receiver.WithMetrics(func(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
			shared, err := load(set, cfg)
			if err != nil {
				return nil, err
			}
			shared.Unwrap().metrics, err = collect.ReportedMetrics(set, "shm", next)
			return shared, err
		}, c.Metrics),
		receiver.WithLogs(func(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs) (receiver.Logs, error) {
			shared, err := load(set, cfg)
			if err != nil {
				return nil, err
			}
			shared.Unwrap().logs, err = collect.ReportedLogs(set, "shm", next)
			return shared, err
		}, c.Logs))
}
