package smi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Status is a return code of the library.
type Status int32

// Return codes that mean something to us.
const (
	Success        Status = 0
	NotSupported   Status = 2
	NotImplemented Status = 3
	NoPermission   Status = 10
	Busy           Status = 30
	NotFound       Status = 31
	NotInitialized Status = 32
	DriverMissing  Status = 34
	NoData         Status = 40
	Unexpected     Status = 43
)

// Handle is one processor of the library.
type Handle uintptr

// ErrNone says that there is nothing to read on this host, for a reason that needs no attention: no library, no driver.
var ErrNone = errors.New("no AMD GPU driver")

// ErrNotInstalled is ErrNone for the reason that there is no library.
var ErrNotInstalled = fmt.Errorf("%w: libamd_smi is not installed", ErrNone)

const (
	initGPUs       = 2
	typeGPU        = 1
	memoryVRAM     = 0
	currentValue   = 0
	largest        = 16 << 10 // bytes of a buffer: more than any structure of the library
	maxProcessors  = 1024
	oldest, newest = 24, 27
	uuidBytes      = 64
)

// Sensors of Temperature, and domains of Clock.
const (
	SensorEdge, SensorHotspot, SensorMemory = 0, 1, 2
	ClockGfx, ClockMemory                   = 0, 4
)

// Library is one use of libamd_smi, from its initialisation to Close. Before release 26.2 the library may not be called
// by two threads at a time: a Library is for one goroutine, and there must be only one.
type Library struct {
	Path    string
	Version Version

	functions map[string]uintptr
	// buf is what the library writes to. It is on the heap, where nothing moves.
	buf []byte
}

// Candidates lists the files to try: the one that is named, or those of the ROCm installations and then the loader's.
func Candidates(path string, lookup func(string) (string, bool)) []string {
	if path != "" {
		return []string{path}
	}
	names := []string{"libamd_smi.so.26", "libamd_smi.so.25", "libamd_smi.so.24", "libamd_smi.so.27", "libamd_smi.so"}
	var list []string
	homes := []string{"/opt/rocm"}
	for _, variable := range []string{"ROCM_HOME", "ROCM_PATH"} {
		if home, _ := lookup(variable); filepath.IsAbs(home) {
			homes = append([]string{home}, homes...)
		}
	}
	for _, home := range homes {
		for _, lib := range []string{"lib", "lib64"} {
			for _, name := range names {
				list = append(list, filepath.Join(home, lib, name))
			}
		}
	}
	return append(list, names...)
}

// Open loads the first candidate that is there and initialises it. ErrNone is wrapped where that is no wonder.
func Open(candidates []string) (*Library, error) {
	// The reason of a failed dlopen is kept for each thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var failure error
	for _, path := range candidates {
		if filepath.IsAbs(path) {
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			if filepath.IsAbs(path) {
				failure = errors.Join(failure, err)
			}
			continue
		}
		l := &Library{Path: path, functions: make(map[string]uintptr), buf: make([]byte, largest)}
		if err := l.init(handle); err != nil {
			if errors.Is(err, ErrNone) {
				return nil, err
			}
			failure = errors.Join(failure, fmt.Errorf("%s: %w", path, err))
			continue
		}
		return l, nil
	}
	if failure != nil {
		return nil, failure
	}
	return nil, ErrNotInstalled
}

// init resolves the functions, checks the version and initialises the library.
func (l *Library) init(handle uintptr) error {
	for _, name := range functionNames {
		if f, err := purego.Dlsym(handle, "amdsmi_"+name); err == nil {
			l.functions[name] = f
		}
	}
	for _, name := range []string{"init", "shut_down", "get_lib_version", "get_socket_handles", "get_processor_handles", "get_processor_type"} {
		if l.functions[name] == 0 {
			return errors.New("function amdsmi_" + name + " is missing")
		}
	}
	l.fill(0xff)
	if ret := l.call("get_lib_version", l.out(0)); ret != Success {
		return fmt.Errorf("version cannot be read: status %d", ret)
	}
	l.Version = decodeVersion(l.buf)
	if l.Version.Major < oldest || l.Version.Major > newest {
		return fmt.Errorf("version %d is not known (%d to %d are)", l.Version.Major, oldest, newest)
	}
	switch ret := l.call("init", initGPUs); ret {
	case Success:
		return nil
	case DriverMissing, NotFound:
		return fmt.Errorf("%w: status %d", ErrNone, ret)
	default:
		return fmt.Errorf("initialisation failed: status %d", ret)
	}
}

// functionNames are all functions that are used, without their prefix.
var functionNames = []string{
	"init", "shut_down", "get_lib_version", "get_socket_handles", "get_processor_handles", "get_processor_type",
	"get_gpu_metrics_info", "get_gpu_memory_total", "get_gpu_memory_usage", "get_gpu_vram_usage", "get_gpu_activity",
	"get_temp_metric", "get_power_cap_info", "get_gpu_fan_speed", "get_clock_info", "get_gpu_total_ecc_count", "get_pcie_info",
	"get_gpu_device_bdf", "get_gpu_device_uuid", "get_gpu_enumeration_info", "get_gpu_asic_info",
}

// call makes a call, however long it takes. A function that the library does not have is not supported.
func (l *Library) call(name string, args ...uintptr) Status {
	f := l.functions[name]
	if f == 0 {
		return NotSupported
	}
	ret, _, _ := purego.SyscallN(f, args...)
	runtime.KeepAlive(l.buf)
	return Status(int32(ret))
}

// out is an address in the buffer.
func (l *Library) out(offset int) uintptr { return uintptr(unsafe.Pointer(&l.buf[offset])) }

// fill prepares the buffer.
func (l *Library) fill(value byte) {
	for i := range l.buf {
		l.buf[i] = value
	}
}

// Close gives the library back. It stays loaded, since it may have threads.
func (l *Library) Close() { l.call("shut_down") }

// Devices lists the GPUs.
func (l *Library) Devices() ([]Handle, Status) {
	sockets, ret := l.handles("get_socket_handles")
	if ret != Success {
		return nil, ret
	}
	var gpus []Handle
	for _, socket := range sockets {
		processors, ret := l.handles("get_processor_handles", uintptr(socket))
		if ret != Success {
			continue
		}
		for _, p := range processors {
			l.fill(0xff)
			if l.call("get_processor_type", uintptr(p), l.out(0)) == Success && binary.LittleEndian.Uint32(l.buf) == typeGPU {
				gpus = append(gpus, p)
			}
		}
	}
	return gpus, Success
}

// handles asks for a number, and then for that many handles.
func (l *Library) handles(name string, args ...uintptr) ([]Handle, Status) {
	const count, list = 0, 8
	l.fill(0)
	if ret := l.call(name, append(args, l.out(count), 0)...); ret != Success {
		return nil, ret
	}
	n := min(binary.LittleEndian.Uint32(l.buf), maxProcessors)
	if n == 0 {
		return nil, Success
	}
	l.fill(0)
	binary.LittleEndian.PutUint32(l.buf, n)
	if ret := l.call(name, append(args, l.out(count), l.out(list))...); ret != Success {
		return nil, ret
	}
	n = min(binary.LittleEndian.Uint32(l.buf), n)
	found := make([]Handle, 0, n)
	for i := range int(n) {
		if h := binary.LittleEndian.Uint64(l.buf[list+8*i:]); h != 0 {
			found = append(found, Handle(h))
		}
	}
	return found, Success
}

// ask makes a call whose last argument is a structure; what the library does not write stays all ones.
func (l *Library) ask(name string, h Handle, args ...uintptr) Status {
	l.fill(0xff)
	return l.call(name, append(append([]uintptr{uintptr(h)}, args...), l.out(0))...)
}

func (l *Library) word(offset int) uint64 { return binary.LittleEndian.Uint64(l.buf[offset:]) }
func (l *Library) number(offset int) uint64 {
	return uint64(binary.LittleEndian.Uint32(l.buf[offset:]))
}

// Metrics reads most of what a GPU tells, in one call. The result is valid until the next call.
func (l *Library) Metrics(h Handle) (Metrics, Status) {
	ret := l.ask("get_gpu_metrics_info", h)
	return Metrics(l.buf[:metricsPrefix]), ret
}

// MemoryTotal is the size of the memory in bytes.
func (l *Library) MemoryTotal(h Handle) (uint64, Status) {
	ret := l.ask("get_gpu_memory_total", h, memoryVRAM)
	return l.word(0), ret
}

// MemoryUsed is the memory in use in bytes.
func (l *Library) MemoryUsed(h Handle) (uint64, Status) {
	ret := l.ask("get_gpu_memory_usage", h, memoryVRAM)
	return l.word(0), ret
}

// VRAM is size and use of the memory in MiB.
func (l *Library) VRAM(h Handle) (total, used uint64, ret Status) {
	ret = l.ask("get_gpu_vram_usage", h)
	return l.number(0), l.number(4), ret
}

// Activity is the use of the compute units and of the memory controller in percent.
func (l *Library) Activity(h Handle) (gfx, umc uint64, ret Status) {
	ret = l.ask("get_gpu_activity", h)
	return l.number(0), l.number(4), ret
}

// Temperature is a sensor's in °C.
func (l *Library) Temperature(h Handle, sensor int) (int64, Status) {
	ret := l.ask("get_temp_metric", h, uintptr(sensor), currentValue)
	return int64(l.word(0)), ret
}

// PowerCap is the power limit in µW; where the driver is a hypervisor's, in W.
func (l *Library) PowerCap(h Handle) (uint64, Status) {
	ret := l.ask("get_power_cap_info", h, 0)
	return l.word(0), ret
}

// FanSpeed is a fan's speed in 255ths.
func (l *Library) FanSpeed(h Handle) (int64, Status) {
	ret := l.ask("get_gpu_fan_speed", h, 0)
	return int64(l.word(0)), ret
}

// Clock is a domain's clock now and at most, in MHz.
func (l *Library) Clock(h Handle, domain int) (now, most uint64, ret Status) {
	ret = l.ask("get_clock_info", h, uintptr(domain))
	return l.number(0), l.number(8), ret
}

// ECC are totals of memory errors since the driver was loaded.
type ECC struct{ Corrected, Uncorrected, Deferred uint64 }

// ECC reads the error totals over all blocks.
func (l *Library) ECC(h Handle) (ECC, Status) {
	// The library adds to what it finds.
	l.fill(0)
	ret := l.call("get_gpu_total_ecc_count", uintptr(h), l.out(0))
	return ECC{l.word(0), l.word(8), l.word(16)}, ret
}

// PCIeReplays is the total of link errors that were repaired by sending again.
func (l *Library) PCIeReplays(h Handle) (uint64, Status) {
	ret := l.ask("get_pcie_info", h)
	return l.word(112), ret
}

// BDF is the PCI address.
func (l *Library) BDF(h Handle) (BDF, Status) {
	ret := l.ask("get_gpu_device_bdf", h)
	return BDF(l.word(0)), ret
}

// UUID is the library's own id of a GPU.
func (l *Library) UUID(h Handle) (string, Status) {
	const length, str = 0, 8
	l.fill(0)
	binary.LittleEndian.PutUint32(l.buf, uuidBytes)
	ret := l.call("get_gpu_device_uuid", uintptr(h), l.out(length), l.out(str))
	return text(l.buf[str : str+uuidBytes]), ret
}

// Enumeration is how HIP knows a GPU; from 25 on.
func (l *Library) Enumeration(h Handle) (Enumeration, Status) {
	ret := l.ask("get_gpu_enumeration_info", h)
	e, ok := decodeEnumeration(l.buf)
	if ret == Success && !ok {
		ret = NoData
	}
	return e, ret
}

// ASIC is what a GPU is.
func (l *Library) ASIC(h Handle) (ASIC, Status) {
	ret := l.ask("get_gpu_asic_info", h)
	return decodeASIC(l.buf, l.Version), ret
}
