//go:build amd64 || arm64

package launcher

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalPipe is the writing end that the handler writes to.
//
//lint:ignore U1000 the handler is assembly
var signalPipe int32

func handlerAddresses() (handler, restorer uintptr)

const (
	saSiginfo  = 0x00000004
	saRestorer = 0x04000000
	saOnstack  = 0x08000000
	saRestart  = 0x10000000
)

// signalSource delivers the caught signals with their origin. Go's os/signal tells a signal's number only, but the
// origin decides whether the workload has had it already.
type signalSource struct {
	signals chan caught
}

// newSignalSource catches the signals of a set from now on; more can be added by catch.
func newSignalSource(set signalSet) (*signalSource, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("signal pipe: %w", err)
	}
	if err := unix.SetNonblock(ends[1], true); err != nil {
		return nil, fmt.Errorf("signal pipe: %w", err)
	}
	signalPipe = int32(ends[1])
	s := &signalSource{signals: make(chan caught, 64)}
	s.catch(set)
	go s.read(ends[0])
	return s, nil
}

// catch adds signals.
func (s *signalSource) catch(set signalSet) {
	handler, restorer := handlerAddresses()
	action := kernelAction{handler: handler, flags: saSiginfo | saOnstack | saRestart, mask: ^uint64(0)}
	if restorer != 0 {
		action.restorer = restorer
		action.flags |= saRestorer
	}
	for sig := 1; sig <= 64; sig++ {
		if set.has(sig) {
			sigaction(sig, &action, nil)
		}
	}
}

// read passes on what the handler writes, for the life of the process.
func (s *signalSource) read(fd int) {
	var record [siginfoSize]byte
	for {
		n, err := syscall.Read(fd, record[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n != len(record) {
			// Writes of a record are atomic and both ends stay open.
			return
		}
		s.signals <- decodeSiginfo(record)
	}
}
