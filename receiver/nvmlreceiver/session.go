package nvmlreceiver

import (
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/driver"
	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/selection"
)

// session is one use of the library, from its initialisation on, with the devices that are read.
type session struct {
	lib     driver.Library
	quit    chan struct{}
	devices []*device
	// Messages for the user.
	skipped []int // devices that did not answer
	guessed bool  // all devices are read, since those of the workload could not be told
}

// opened is how an attempt to open a session ended; both are nil where there is nothing to read.
type opened struct {
	session *session
	err     error
}

// openSession initialises the library and starts reading the selected devices. It may take as long as the driver likes.
func openSession(lib driver.Library, selector selection.Selector, now func() time.Time) opened {
	if err := lib.Open(); err != nil {
		return opened{err: err}
	}
	list, skipped, ret := enumerate(lib)
	if ret != nvml.SUCCESS {
		err := fmt.Errorf("devices cannot be listed: %s", ret.Error())
		lib.Close()
		return opened{err: err}
	}
	devices := make([]selection.Device, len(list))
	for i, d := range list {
		devices[i] = selection.Device{
			BusID: d.busID, UUID: d.uuid, Name: d.name, Parent: d.parent, GPUInstance: d.gpuInstance, ComputeInstance: d.computeInstance,
		}
	}
	chosen, guessed := selector.Choose(devices)
	if len(chosen) == 0 && len(skipped) == 0 {
		lib.Close()
		return opened{}
	}
	s := &session{lib: lib, quit: make(chan struct{}), skipped: skipped, guessed: guessed}
	turn := make(chan struct{}, 1)
	for _, i := range chosen {
		s.devices = append(s.devices, newDevice(list[i], lib, s.quit, turn, now()))
	}
	return opened{session: s}
}

// close ends reading and gives the library back. If calls hang, that is left undone: a driver that does not answer must
// not be asked to shut down, and keeps what it has until the process ends. It waits until expired is readable.
func (s *session) close(expired <-chan struct{}) bool {
	close(s.quit)
	for _, d := range s.devices {
		if !d.ended(expired) {
			return false
		}
	}
	closed := make(chan struct{})
	go func() {
		s.lib.Close()
		close(closed)
	}()
	select {
	case <-closed:
		return true
	case <-expired:
		return false
	}
}
