package graphsignalexporter

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"

	"github.com/graphsignal/graphsignal-collector/internal/fold"
	"github.com/graphsignal/graphsignal-collector/internal/selflog"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/store"
	"github.com/graphsignal/graphsignal-collector/internal/upload"
	"github.com/graphsignal/graphsignal-collector/internal/version"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

// drainTime bounds the last upload, at shutdown.
const drainTime = 2 * time.Second

// uploadExporter folds what it consumes into a store of its own, observes the store each interval, and sends what
// the server is owed on a goroutine of its own, one request at a time.
type uploadExporter struct {
	cfg      *Config
	settings component.TelemetrySettings
	own      *selflog.Hub

	store    *store.Store
	refused  *fold.Refusals
	uploader *upload.Uploader
	client   *http.Client
	host     component.Host
	ownSeen  uint64

	quit   chan struct{} // closed to end the loops; nil before Start
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newExporter(set exporter.Settings, cfg *Config) *uploadExporter {
	return &uploadExporter{
		cfg: cfg, settings: set.TelemetrySettings, own: selflog.Default, store: store.New(),
		refused: fold.NewRefusals(set.Logger, "upload: "),
	}
}

// Start reads the key and begins to upload. A key that cannot be read is an error of the configuration.
func (e *uploadExporter) Start(ctx context.Context, host component.Host) error {
	key, err := e.cfg.key()
	if err != nil {
		return err
	}
	e.client, err = e.cfg.ToClient(ctx, host.GetExtensions(), e.settings)
	if err != nil {
		return err
	}
	e.host = host
	logger := e.settings.Logger
	e.uploader = upload.NewUploader(upload.Settings{
		Base:      e.cfg.Endpoint,
		Key:       key,
		UserAgent: "graphsignal-collector/" + version.Version,
		Client:    e.client,
		Global:    e.cfg.Tags,
		Since:     e.cfg.SinceUnixNano,
		Warn:      func(text string) { logger.Warn(text) },
	})
	sending, cancel := context.WithCancel(context.Background())
	quit := make(chan struct{})
	e.quit, e.cancel = quit, cancel
	due := make(chan struct{}, 1)
	e.done.Go(func() { e.observe(quit, due) })
	e.done.Go(func() { e.send(sending, quit, due) })
	return nil
}

// send uploads whenever that is due.
func (e *uploadExporter) send(ctx context.Context, quit, due <-chan struct{}) {
	for {
		select {
		case <-quit:
			return
		case <-due:
			if err := e.uploader.Send(ctx); err != nil {
				e.settings.Logger.Debug("Upload failed", zap.Error(err))
			}
		}
	}
}

// observe takes the store's values into account each interval, also while a request is on its way.
func (e *uploadExporter) observe(quit <-chan struct{}, due chan<- struct{}) {
	ticker := time.NewTicker(e.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-quit:
			return
		case <-ticker.C:
		}
		e.takeOwn()
		e.uploader.Observe(e.store)
		select {
		case due <- struct{}{}:
		default: // the last one is not done yet
		}
	}
}

// takeOwn queues the Collector's own warnings.
func (e *uploadExporter) takeOwn() {
	for _, entry := range e.own.Entries(nil, e.ownSeen) {
		e.ownSeen = entry.Sequence
		tags := make([]series.Tag, len(entry.Error.Tags))
		for i, t := range entry.Error.Tags {
			tags[i] = series.Tag{Key: t.Key, Value: t.String()}
		}
		e.uploader.AddLog(upload.LogEntry{Level: entry.Error.Level, Message: entry.Error.Message, Exception: entry.Error.Exception, Tags: tags, Time: entry.Error.Time})
	}
}

// Shutdown waits for the request on its way and sends what is owed then, all within drainTime. Its own back-off after
// failures does not hold it back, a pause that the server asked for does.
func (e *uploadExporter) Shutdown(ctx context.Context) error {
	if e.quit == nil {
		return nil
	}
	defer e.client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	close(e.quit)
	e.quit = nil
	defer context.AfterFunc(ctx, e.cancel)()
	e.done.Wait()
	e.refused.Flush()
	e.takeOwn()
	e.uploader.Observe(e.store)
	if err := e.uploader.SendLast(ctx); err != nil {
		// Whoever reads /signals may be gone by now.
		e.settings.Logger.Warn("The last upload failed, what it held is lost", zap.Error(err))
		workload.Warn(e.host, fmt.Sprintf("the last upload failed, what it held is lost: %v", err))
	}
	if n := e.uploader.Dropped(); n > 0 {
		workload.Warn(e.host, fmt.Sprintf("upload: the server refused %d messages, which are lost", n))
	}
	e.cancel()
	return nil
}

// Capabilities says that data is only read.
func (*uploadExporter) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// ConsumeMetrics folds md into the store. What cannot be uploaded is counted and reported, never an error: sending it
// again would not help.
func (e *uploadExporter) ConsumeMetrics(_ context.Context, md pmetric.Metrics) error {
	e.refused.Metrics(fold.Metrics(e.store, md))
	return nil
}

// ConsumeLogs queues the records.
func (e *uploadExporter) ConsumeLogs(_ context.Context, ld plog.Logs) error {
	e.refused.Logs(signal.DecodeErrors(ld, func(entry signal.ErrorEntry) {
		tags := make([]series.Tag, 0, len(entry.Tags))
		for _, t := range entry.Tags {
			tags = append(tags, series.Tag{Key: t.Key, Value: fmt.Sprint(t.Value)})
		}
		e.uploader.AddLog(upload.LogEntry{
			Level: entry.Level, Message: store.CutMessage(entry.Message), Exception: store.CutException(entry.Exception), Tags: tags, Time: entry.Time,
		})
	}))
	return nil
}
