//go:build !amd64 && !arm64

package launcher

import (
	"os"
	"os/signal"
	"syscall"
)

// signalSource delivers the caught signals. On this architecture their origin is not known: all count as sent by
// another process, so that a keyboard signal reaches the workload twice.
type signalSource struct {
	signals chan caught
	raw     chan os.Signal
}

// newSignalSource catches the signals of a set from now on; more can be added by catch.
func newSignalSource(set signalSet) (*signalSource, error) {
	s := &signalSource{signals: make(chan caught, 64), raw: make(chan os.Signal, 64)}
	s.catch(set)
	go func() {
		for sig := range s.raw {
			s.signals <- caught{sig: sig.(syscall.Signal)}
		}
	}()
	return s, nil
}

// catch adds signals.
func (s *signalSource) catch(set signalSet) {
	for sig := 1; sig <= 64; sig++ {
		if set.has(sig) {
			signal.Notify(s.raw, syscall.Signal(sig))
		}
	}
}
