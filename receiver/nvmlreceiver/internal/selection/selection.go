// Package selection finds out which of a host's NVIDIA devices belong to the workload.
package selection

import (
	"slices"
	"strconv"
	"strings"
)

// Device is what tells a device from others.
type Device struct {
	BusID, UUID, Name string
	// Parent is the index of the GPU that a MIG device is a part of, -1 for a GPU.
	Parent                       int
	GPUInstance, ComputeInstance int
}

// Selector says which of a host's devices belong to the workload.
type Selector struct {
	// items are entries like those of CUDA_VISIBLE_DEVICES; nil selects all.
	items []string
	// pciOrder says that an index counts devices by PCI bus id. Otherwise it counts them as CUDA does, fastest first,
	// which is the same order only where all are of one kind.
	pciOrder bool
	// rank is the entry that belongs to this process of several on the host, -1 where there is no telling.
	rank int
}

// localRanks are the variables that hold the number of a process among those of the host, each with one that holds how
// many there are.
var localRanks = []struct{ rank, size string }{
	{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	{"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
	{"NCCL_LOCAL_RANK", ""},
	{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
}

// New reads the configuration's devices, else the environment.
func New(devices []string, lookup func(string) (string, bool)) Selector {
	if len(devices) > 0 {
		return Selector{items: devices, pciOrder: true, rank: -1}
	}
	s := Selector{rank: -1}
	if order, _ := lookup("CUDA_DEVICE_ORDER"); order == "PCI_BUS_ID" {
		s.pciOrder = true
	}
	if visible, _ := lookup("CUDA_VISIBLE_DEVICES"); strings.TrimSpace(visible) != "" {
		s.items = strings.Split(visible, ",")
	}
	for _, v := range localRanks {
		value, ok := lookup(v.rank)
		if !ok {
			continue
		}
		// The only process of a host drives all devices, as under `srun` with one task.
		if size, ok := lookup(v.size); ok && (size == "1" || strings.HasPrefix(size, "1(")) {
			break
		}
		if rank, ok := ParseIndex(value); ok {
			s.rank = rank
		}
		break
	}
	return s
}

// Choose returns the indices in list of the selected devices. A MIG device comes with the GPU that it is a part of, and
// a GPU with all its MIG devices. guessed says that an index could not be resolved, so that all devices are chosen.
func (s Selector) Choose(list []Device) (chosen []int, guessed bool) {
	var gpus []int
	for i, d := range list {
		if d.Parent < 0 {
			gpus = append(gpus, i)
		}
	}
	slices.SortStableFunc(gpus, func(a, b int) int { return strings.Compare(list[a].BusID, list[b].BusID) })
	byIndex := s.pciOrder || len(gpus) < 2 || !slices.ContainsFunc(gpus, func(i int) bool { return list[i].Name != list[gpus[0]].Name })

	// Each entry is a list of devices: a GPU with its parts, or a part with its GPU.
	var entries [][]int
	if s.items == nil {
		if !byIndex && s.rank >= 0 {
			return all(list), true
		}
		for _, gpu := range gpus {
			entries = append(entries, family(list, gpu))
		}
	}
	for _, item := range s.items {
		var entry []int
		if index, ok := ParseIndex(item); ok {
			if !byIndex {
				return all(list), true
			}
			if index < len(gpus) {
				entry = family(list, gpus[index])
			}
		} else {
			entry = named(list, item)
		}
		if entry == nil {
			break // CUDA too sees nothing from the first invalid entry on
		}
		entries = append(entries, entry)
	}
	if s.rank >= 0 && s.rank < len(entries) {
		entries = entries[s.rank : s.rank+1]
	}
	for _, entry := range entries {
		chosen = append(chosen, entry...)
	}
	slices.Sort(chosen)
	return slices.Compact(chosen), false
}

func all(list []Device) []int {
	chosen := make([]int, len(list))
	for i := range chosen {
		chosen[i] = i
	}
	return chosen
}

// family is a GPU and its MIG devices.
func family(list []Device, gpu int) []int {
	members := []int{gpu}
	for i, d := range list {
		if d.Parent == gpu {
			members = append(members, i)
		}
	}
	return members
}

// named finds the one device that an entry names, nil where there is none or more than one.
func named(list []Device, item string) []int {
	item = strings.ToLower(strings.TrimSpace(item))
	found := -1
	for i, d := range list {
		var matches bool
		if old, ok := strings.CutPrefix(item, "mig-gpu-"); ok {
			matches = d.Parent >= 0 && old == strings.TrimPrefix(strings.ToLower(list[d.Parent].UUID), "gpu-")+
				"/"+strconv.Itoa(d.GPUInstance)+"/"+strconv.Itoa(d.ComputeInstance)
		} else if strings.HasPrefix(item, "gpu-") || strings.HasPrefix(item, "mig-") {
			matches = strings.HasPrefix(strings.ToLower(d.UUID), item)
		}
		if !matches {
			continue
		}
		if found >= 0 {
			return nil
		}
		found = i
	}
	switch {
	case found < 0:
		return nil
	case list[found].Parent >= 0:
		return []int{list[found].Parent, found}
	}
	return family(list, found)
}

// ParseIndex reads a device index.
func ParseIndex(item string) (int, bool) {
	index, err := strconv.Atoi(strings.TrimSpace(item))
	return index, err == nil && index >= 0
}
