package enginereceiver

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

// engineReceiver runs one scraper a page, each in a goroutine of its own.
type engineReceiver struct {
	cfg  *Config
	set  receiver.Settings
	next consumer.Metrics
	now  func() time.Time

	scrapers    []*scraper
	controllers []*collect.Controller
}

func newReceiver(cfg *Config, set receiver.Settings, next consumer.Metrics) (*engineReceiver, error) {
	next, err := collect.ReportedMetrics(set, "http", next)
	if err != nil {
		return nil, err
	}
	return &engineReceiver{cfg: cfg, set: set, next: next, now: time.Now}, nil
}

// Start begins to scrape. That a page cannot be reached is no error.
func (r *engineReceiver) Start(ctx context.Context, host component.Host) error {
	extension := workload.Find(host)
	for _, page := range r.cfg.pages() {
		s, err := newScraper(ctx, r, page)
		if err != nil {
			return errors.Join(err, r.Shutdown(ctx))
		}
		if extension != nil {
			s.follow(extension.NewReader(), r.cfg.VerifyOwner)
		}
		r.scrapers = append(r.scrapers, s)
		controller := collect.New(r.cfg.Config, 0, s.collect)
		r.controllers = append(r.controllers, controller)
		controller.Start()
	}
	return nil
}

// Shutdown ends the scrapes; there is no last one, since the engine ends with the workload.
func (r *engineReceiver) Shutdown(ctx context.Context) error {
	var errs []error
	for _, controller := range r.controllers {
		errs = append(errs, controller.Shutdown(ctx))
	}
	for _, s := range r.scrapers {
		s.close()
	}
	r.controllers, r.scrapers = nil, nil
	return errors.Join(errs...)
}
