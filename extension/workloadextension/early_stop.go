package workloadextension

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// repeatStop is the time between two deliveries of a signal that the Collector did not hear.
	repeatStop = 100 * time.Millisecond
	// repeatsOfStop is how often it is delivered again, before it ends the process.
	repeatsOfStop = 50
)

// heedEarlyStop keeps SIGTERM and SIGINT for a Collector that does not listen for them yet: it does so only when all its
// components run, and until then they would end the process without its last collections and its final document.
func (e *workloadExtension) heedEarlyStop(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	e.loops.Go(func() {
		defer signal.Stop(signals)
		var stop os.Signal
		select {
		case stop = <-signals:
		case <-ctx.Done():
			return
		}
		for range repeatsOfStop {
			select {
			case <-time.After(repeatStop):
			case <-ctx.Done():
				return
			}
			if e.stops() {
				return
			}
			_ = unix.Kill(os.Getpid(), stop.(syscall.Signal))
		}
		signal.Stop(signals)
		_ = unix.Kill(os.Getpid(), stop.(syscall.Signal))
	})
}

// stops reports whether the Collector shuts down.
func (e *workloadExtension) stops() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopping
}
