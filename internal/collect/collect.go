// Package collect runs a receiver's collection at a fixed interval, with one last collection at shutdown for
// receivers whose source outlives the workload.
package collect

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Config is the part of a receiver's configuration that the Controller reads.
type Config struct {
	// Interval is the time between the starts of two collections.
	Interval time.Duration `mapstructure:"collection_interval"`
}

// DefaultConfig collects once a second.
func DefaultConfig() Config { return Config{Interval: time.Second} }

// Check checks the interval. It is no Validate: the Collector would call that of an embedded Config as well, and tell of a
// section "config" that no configuration has.
func (c Config) Check() error {
	if c.Interval < 10*time.Millisecond {
		return errors.New("collection_interval must be at least 10ms")
	}
	return nil
}

// Controller calls one function now and then, never twice at a time: a tick that comes due during a collection
// is skipped.
type Controller struct {
	interval time.Duration
	collect  func(context.Context)
	final    time.Duration

	stop context.CancelFunc
	done sync.WaitGroup
}

// New returns a Controller that is not yet started. With final > 0, Shutdown makes one last collection that may
// take that long.
func New(cfg Config, final time.Duration, collect func(context.Context)) *Controller {
	return &Controller{interval: cfg.Interval, collect: collect, final: final}
}

// Start begins collecting, the first time at once.
func (c *Controller) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.done.Go(func() {
		ticker := time.NewTicker(c.interval)
		defer ticker.Stop()
		for {
			c.collect(ctx)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
}

// Shutdown ends collecting, waits for the collection that is running, and makes the last one. It may be called
// without Start and more than once.
func (c *Controller) Shutdown(ctx context.Context) error {
	if c.stop == nil {
		return nil
	}
	c.stop()
	c.stop = nil
	ended := make(chan struct{})
	go func() {
		c.done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.final > 0 {
		last, cancel := context.WithTimeout(ctx, c.final)
		defer cancel()
		c.collect(last)
	}
	return nil
}
