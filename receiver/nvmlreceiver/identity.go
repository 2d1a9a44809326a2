package nvmlreceiver

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/receiver/nvmlreceiver/internal/driver"
)

// identity is what a device is. What could not be read is empty.
type identity struct {
	handle driver.Device
	busID  string
	uuid   string
	name   string

	architecture      string
	computeCapability string

	// parent is the index of the GPU that a MIG device is a part of, -1 for a GPU.
	parent                       int
	parentUUID                   string
	gpuInstance, computeInstance int
	hasParts                     bool
	partUUIDs                    []string // in NVML's order
}

// Attribute keys.
const (
	busIDKey = "device.bus_id"
	uuidKey  = "device.uuid"
)

// key tells the device from others, also in a later session.
func (id *identity) key() string { return id.busID + " " + id.uuid }

// title is how messages call the device.
func (id *identity) title() string { return strings.TrimSpace(id.busID + " " + id.uuid) }

// tags are those that identify the device.
func (id *identity) tags() []series.Tag {
	var tags []series.Tag
	if id.busID != "" {
		tags = append(tags, series.Tag{Key: busIDKey, Value: id.busID})
	}
	if id.uuid != "" {
		tags = append(tags, series.Tag{Key: uuidKey, Value: id.uuid})
	}
	return tags
}

// entity describes the device; memoryTotal is 0 where it is not known.
func (id *identity) entity(memoryTotal uint64) signal.Entity {
	e := signal.Entity{Kind: signal.DeviceKind, ID: id.tags()}
	add := func(key, value string) {
		if value != "" {
			e.Attributes = append(e.Attributes, series.Tag{Key: key, Value: value})
		}
	}
	add("device.name", id.name)
	add("architecture", id.architecture)
	add("compute_capability", id.computeCapability)
	if memoryTotal > 0 {
		add("mem_total", strconv.FormatUint(memoryTotal, 10))
	}
	if id.parent >= 0 {
		add("device.parent_uuid", id.parentUUID)
		add("device.gpu_instance_id", instance(id.gpuInstance))
		add("device.compute_instance_id", instance(id.computeInstance))
	}
	return e
}

func instance(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// maxMIGDevices bounds the MIG devices of a GPU; today's have seven.
const maxMIGDevices = 64

// enumerate lists the devices of a library: GPUs, each before its MIG devices. skipped are the indices of those that do
// not answer.
func enumerate(lib driver.Library) (list []identity, skipped []int, ret nvml.Return) {
	count, ret := lib.DeviceCount()
	if ret != nvml.SUCCESS {
		return nil, nil, ret
	}
	for i := range count {
		handle, ret := lib.Device(i)
		if ret != nvml.SUCCESS {
			if ret != nvml.ERROR_NO_PERMISSION { // one that was not given to this container
				skipped = append(skipped, i)
			}
			continue
		}
		id := identify(lib, handle)
		if id.busID == "" && id.uuid == "" {
			skipped = append(skipped, i)
			continue
		}
		list = append(list, id)
		list = append(list, parts(lib, &list[len(list)-1], len(list)-1)...)
	}
	return list, skipped, nvml.SUCCESS
}

// identify reads what a GPU is.
func identify(lib driver.Library, handle driver.Device) identity {
	id := identity{handle: handle, parent: -1, gpuInstance: -1, computeInstance: -1}
	if lib.Has("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo") {
		if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
			id.busID = busID(&pci)
		}
	}
	if lib.Has("nvmlDeviceGetUUID") {
		if uuid, ret := handle.GetUUID(); ret == nvml.SUCCESS {
			id.uuid = uuid
		}
	}
	if lib.Has("nvmlDeviceGetName") {
		if name, ret := handle.GetName(); ret == nvml.SUCCESS {
			id.name = name
		}
	}
	if lib.Has("nvmlDeviceGetArchitecture") {
		if a, ret := handle.GetArchitecture(); ret == nvml.SUCCESS {
			id.architecture = architecture(a)
		}
	}
	if lib.Has("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := handle.GetCudaComputeCapability(); ret == nvml.SUCCESS {
			id.computeCapability = fmt.Sprintf("%d.%d", major, minor)
		}
	}
	return id
}

// parts lists the MIG devices of a GPU, which has the given index.
func parts(lib driver.Library, gpu *identity, index int) []identity {
	for _, symbol := range []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"} {
		if !lib.Has(symbol) {
			return nil
		}
	}
	if mode, _, ret := gpu.handle.GetMigMode(); ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	count, ret := gpu.handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var list []identity
	for i := range min(count, maxMIGDevices) {
		handle, ret := gpu.handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // the slots need not be filled in order
		}
		part := identity{
			handle: handle, parent: index, parentUUID: gpu.uuid, busID: gpu.busID, name: gpu.name,
			architecture: gpu.architecture, computeCapability: gpu.computeCapability, gpuInstance: -1, computeInstance: -1,
		}
		if uuid, ret := handle.GetUUID(); ret != nvml.SUCCESS || uuid == gpu.uuid {
			continue // nothing would tell it from its GPU
		} else {
			part.uuid = uuid
		}
		if name, ret := handle.GetName(); ret == nvml.SUCCESS && name != "" {
			part.name = name
		}
		if lib.Has("nvmlDeviceGetGpuInstanceId") {
			if n, ret := handle.GetGpuInstanceId(); ret == nvml.SUCCESS {
				part.gpuInstance = n
			}
		}
		if lib.Has("nvmlDeviceGetComputeInstanceId") {
			if n, ret := handle.GetComputeInstanceId(); ret == nvml.SUCCESS {
				part.computeInstance = n
			}
		}
		list = append(list, part)
		gpu.partUUIDs = append(gpu.partUUIDs, part.uuid)
	}
	gpu.hasParts = len(list) > 0
	return list
}

// busID is a PCI address in the form 00000000:65:00.0.
func busID(pci *nvml.PciInfo) string {
	var text []byte
	for _, c := range pci.BusId {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	if len(text) == 0 {
		return fmt.Sprintf("%08X:%02X:%02X.0", pci.Domain, pci.Bus, pci.Device)
	}
	return strings.ToUpper(string(text))
}

// architectures are NVML's numbers of GPU generations.
var architectures = map[nvml.DeviceArchitecture]string{
	nvml.DEVICE_ARCH_KEPLER: "Kepler", nvml.DEVICE_ARCH_MAXWELL: "Maxwell", nvml.DEVICE_ARCH_PASCAL: "Pascal",
	nvml.DEVICE_ARCH_VOLTA: "Volta", nvml.DEVICE_ARCH_TURING: "Turing", nvml.DEVICE_ARCH_AMPERE: "Ampere",
	nvml.DEVICE_ARCH_ADA: "Ada", nvml.DEVICE_ARCH_HOPPER: "Hopper", nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
	nvml.DEVICE_ARCH_RUBIN: "Rubin",
}

func architecture(a nvml.DeviceArchitecture) string {
	if name, ok := architectures[a]; ok {
		return name
	}
	return fmt.Sprintf("Unknown(%d)", uint32(a))
}
