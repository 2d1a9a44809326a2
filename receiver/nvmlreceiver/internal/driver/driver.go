// Package driver opens NVIDIA's management library for the nvml receiver, and names the calls that the receiver makes.
//
// The calls themselves are go-nvml's. It links the program against functions that are looked up at their first call, and
// a function that this host's library lacks ends the process there. So nobody calls anything of it without having asked
// Library.Has.
package driver

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Device is what the receiver uses of a device handle.
type Device interface {
	GetUUID() (string, nvml.Return)
	GetPciInfo() (nvml.PciInfo, nvml.Return)
	GetName() (string, nvml.Return)
	GetArchitecture() (nvml.DeviceArchitecture, nvml.Return)
	GetCudaComputeCapability() (int, int, nvml.Return)
	GetMaxPcieLinkGeneration() (int, nvml.Return)
	GetMaxPcieLinkWidth() (int, nvml.Return)

	GetMigMode() (current, pending int, ret nvml.Return)
	GetMaxMigDeviceCount() (int, nvml.Return)
	GetMigDeviceHandleByIndex(index int) (nvml.Device, nvml.Return)
	GetGpuInstanceId() (int, nvml.Return)
	GetComputeInstanceId() (int, nvml.Return)

	GetMemoryInfo() (nvml.Memory, nvml.Return)
	GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return)
	GetUtilizationRates() (nvml.Utilization, nvml.Return)
	GetSamples(kind nvml.SamplingType, since uint64) (nvml.ValueType, []nvml.Sample, nvml.Return)
	GetTemperature(sensor nvml.TemperatureSensors) (uint32, nvml.Return)
	GetPowerUsage() (uint32, nvml.Return)
	GetPowerManagementLimit() (uint32, nvml.Return)
	GetTotalEnergyConsumption() (uint64, nvml.Return)
	GetFanSpeed() (uint32, nvml.Return)
	GetClockInfo(domain nvml.ClockType) (uint32, nvml.Return)
	GetMaxClockInfo(domain nvml.ClockType) (uint32, nvml.Return)
	GetCurrentClocksEventReasons() (uint64, nvml.Return)
	GetCurrentClocksThrottleReasons() (uint64, nvml.Return)
	GetPerformanceState() (nvml.Pstates, nvml.Return)
	GetEncoderUtilization() (percent, period uint32, ret nvml.Return)
	GetDecoderUtilization() (percent, period uint32, ret nvml.Return)
	GetCurrPcieLinkGeneration() (int, nvml.Return)
	GetCurrPcieLinkWidth() (int, nvml.Return)
	GetPcieReplayCounter() (int, nvml.Return)
	GetPcieThroughput(counter nvml.PcieUtilCounter) (uint32, nvml.Return)
	GetFieldValues(values []nvml.FieldValue) nvml.Return
	GetNvLinkState(link int) (nvml.EnableState, nvml.Return)
	GetNvLinkErrorCounter(link int, counter nvml.NvLinkErrorCounter) (uint64, nvml.Return)
	GetTotalEccErrors(kind nvml.MemoryErrorType, counter nvml.EccCounterType) (uint64, nvml.Return)
	GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return)
	GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return)
	GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return)
	RegisterEvents(types uint64, set nvml.EventSet) nvml.Return
}

// EventSet is a queue of events of the devices registered with it.
type EventSet interface {
	Wait(milliseconds uint32) (nvml.EventData, nvml.Return)
	Free() nvml.Return
}

var (
	_ Device   = nvml.Device(nil)
	_ EventSet = nvml.EventSet(nil)
)

// Library is NVML as far as the receiver uses it.
type Library interface {
	// Open loads and initialises the library. Its error is ErrNoDriver where the host has none, else one that tells the
	// user what is wrong. After a failure it may be tried again.
	Open() error
	// Close gives an opened library back.
	Close()
	// Has reports whether the library has any of the functions. It may be called by several goroutines after Open.
	Has(anyOf ...string) bool

	DeviceCount() (int, nvml.Return)
	Device(index int) (Device, nvml.Return)
	// NewEventSet returns a set in which one device is registered for XID errors.
	NewEventSet(d Device) (EventSet, nvml.Return)
}

// ErrNoDriver says that this host has no NVIDIA driver.
var ErrNoDriver = errors.New("no NVIDIA driver")

// ErrNoLibrary is ErrNoDriver for the reason that there is no library.
var ErrNoLibrary = fmt.Errorf("%w: there is no NVML library", ErrNoDriver)

// Error is a failure of nvmlInit.
type Error struct{ Code nvml.Return }

// Error returns NVML's own text.
func (e *Error) Error() string {
	text := fmt.Sprintf("nvmlInit failed: %s (%d)", e.Code.Error(), int(e.Code))
	switch e.Code {
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH, nvml.ERROR_UNKNOWN, nvml.ERROR_NO_PERMISSION:
		text += "; the NVIDIA kernel driver and its libraries may be of different versions, as after an update without a reboot"
	}
	return text
}

// candidates are where the library may be when the loader does not find it: in WSL, and on nodes where an operator or
// the platform puts the driver.
var candidates = []string{
	"libnvidia-ml.so.1",
	"/usr/lib/wsl/lib/libnvidia-ml.so.1",
	"/usr/local/nvidia/lib64/libnvidia-ml.so.1",
}

// opening guards go-nvml's package variables, which Open and Close change.
var opening sync.Mutex

type library struct {
	paths []string

	api   nvml.Interface
	image *dl.DynamicLibrary

	mu  sync.Mutex
	has map[string]bool
}

// New returns the library at path, or where it usually is.
func New(path string) Library {
	if path != "" {
		return &library{paths: []string{path}}
	}
	return &library{paths: candidates}
}

// Open implements Library.
func (l *library) Open() error {
	opening.Lock()
	defer opening.Unlock()
	if l.image == nil {
		if err := l.load(); err != nil {
			return err
		}
	}
	if os.Getenv("LD_BIND_NOW") != "" {
		// The loader bound the functions before the library was there, to nothing.
		return errors.New("NVML cannot be used with LD_BIND_NOW in the Collector's environment")
	}
	switch ret := l.api.Init(); ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIBRARY_NOT_FOUND:
		return ErrNoDriver
	default:
		return &Error{ret}
	}
}

// load finds the library and checks that it has what cannot be done without. It stays loaded: the program's references
// are bound to it.
func (l *library) load() error {
	for _, path := range l.paths {
		image := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
		if err := image.Open(); err != nil {
			if strings.Contains(err.Error(), "No such file") && strings.Contains(err.Error(), path) {
				continue
			}
			return fmt.Errorf("NVML cannot be loaded: %w", err)
		}
		l.image, l.has = image, make(map[string]bool)
		for _, anyOf := range [][]string{
			{"nvmlInit_v2", "nvmlInit"}, {"nvmlShutdown"}, {"nvmlErrorString"},
			{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
			{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
		} {
			if !l.Has(anyOf...) {
				_ = image.Close()
				l.image = nil
				return fmt.Errorf("%s is no NVML library: it lacks %s", path, anyOf[0])
			}
		}
		l.api = nvml.New(nvml.WithLibraryPath(path))
		return nil
	}
	return ErrNoLibrary
}

// Close implements Library.
func (l *library) Close() {
	opening.Lock()
	defer opening.Unlock()
	_ = l.api.Shutdown() // nothing can be done about a failure
}

// Has implements Library.
func (l *library) Has(anyOf ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, symbol := range anyOf {
		has, known := l.has[symbol]
		if !known {
			has = l.image.Lookup(symbol) == nil
			l.has[symbol] = has
		}
		if has {
			return true
		}
	}
	return false
}

// DeviceCount implements Library.
func (l *library) DeviceCount() (int, nvml.Return) { return l.api.DeviceGetCount() }

// Device implements Library.
func (l *library) Device(index int) (Device, nvml.Return) {
	return l.api.DeviceGetHandleByIndex(index)
}

// NewEventSet implements Library.
func (l *library) NewEventSet(d Device) (EventSet, nvml.Return) {
	if !l.Has("nvmlEventSetCreate") || !l.Has("nvmlEventSetFree") || !l.Has("nvmlDeviceRegisterEvents") ||
		!l.Has("nvmlEventSetWait_v2", "nvmlEventSetWait") {
		return nil, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	set, ret := l.api.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	if ret := d.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret != nvml.SUCCESS {
		set.Free()
		return nil, ret
	}
	return set, nvml.SUCCESS
}
