package signalsexporter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/internal/fold"
	"github.com/graphsignal/graphsignal-collector/internal/selflog"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/store"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

// signalsExporter is the exporter of both signals: one instance, which ends when every pipeline has been drained.
type signalsExporter struct {
	cfg      *Config
	settings component.TelemetrySettings
	logger   *zap.Logger

	document *document
	endpoint *endpoint
	refused  *fold.Refusals

	host component.Host // since the start
}

func newExporter(set exporter.Settings, cfg *Config, own *selflog.Hub, now func() time.Time) *signalsExporter {
	e := &signalsExporter{
		cfg:      cfg,
		settings: set.TelemetrySettings,
		logger:   set.Logger,
		document: newDocument(cfg.Tags, own, now),
		refused:  fold.NewRefusals(set.Logger, ""),
	}
	e.endpoint = newEndpoint(cfg, set.TelemetrySettings, e.document)
	return e
}

// Start binds the endpoint. That the address cannot be bound is no error: it is tried again in the background.
func (e *signalsExporter) Start(ctx context.Context, host component.Host) error {
	e.host = host
	if e.cfg.Output != "" {
		if err := checkOutput(e.cfg.Output); err != nil {
			e.logger.Warn("The output file cannot be written as things are", zap.Error(err))
			workload.Warn(host, outputWarning(e.cfg.Output, err))
		}
	}
	return e.endpoint.start(ctx, host)
}

// Shutdown writes the final document and ends the endpoint.
func (e *signalsExporter) Shutdown(ctx context.Context) error {
	e.refused.Flush()
	var err error
	if e.cfg.Output != "" && e.host != nil {
		if err = writeOutput(e.cfg.Output, e.document.render()); err != nil {
			workload.Warn(e.host, outputWarning(e.cfg.Output, err))
			err = fmt.Errorf("the final document was not written: %w", err)
			e.logger.Warn("The final document was not written", zap.Error(err))
		}
	}
	return errors.Join(err, e.endpoint.shutdown(ctx))
}

// Capabilities says that data is only read.
func (*signalsExporter) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// ConsumeMetrics folds md into the store. What cannot be shown is counted and reported, never an error: sending
// it again would not help.
func (e *signalsExporter) ConsumeMetrics(_ context.Context, md pmetric.Metrics) error {
	outcome, unsupported := fold.Metrics(e.document.store, md)
	e.document.changed()
	e.refused.Metrics(outcome, unsupported)
	return nil
}

// ConsumeLogs adds the records to the errors.
func (e *signalsExporter) ConsumeLogs(_ context.Context, ld plog.Logs) error {
	empty := signal.DecodeErrors(ld, func(entry signal.ErrorEntry) {
		if !store.Shown(entry.Level) {
			return
		}
		tags := make([]store.ErrorTag, 0, len(entry.Tags))
		for _, t := range entry.Tags {
			switch v := t.Value.(type) {
			case int64:
				tags = append(tags, store.ErrorTag{Key: t.Key, Int: v, IsInt: true})
			case string:
				tags = append(tags, store.ErrorTag{Key: t.Key, Text: v})
			}
		}
		e.document.errors.Add(store.Error{
			Level: entry.Level, Message: entry.Message, Exception: entry.Exception, Tags: tags, Time: entry.Time,
		})
	})
	e.document.changed()
	e.refused.Logs(empty)
	return nil
}
