package nvmlreceiver

import (
	"slices"
	"strconv"
	"strings"
)

// selector says which of a host's devices belong to the workload.
type selector struct {
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

// newSelector reads the configuration's devices, else the environment.
func newSelector(devices []string, lookup func(string) (string, bool)) selector {
	if len(devices) > 0 {
		return selector{items: devices, pciOrder: true, rank: -1}
	}
	s := selector{rank: -1}
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
		if rank, ok := parseIndex(value); ok {
			s.rank = rank
		}
		break
	}
	return s
}

// choose returns the indices in list of the selected devices. A MIG device comes with the GPU that it is a part of, and
// a GPU with all its MIG devices. guessed says that an index could not be resolved, so that all devices are chosen.
func (s selector) choose(list []identity) (chosen []int, guessed bool) {
	var gpus []int
	for i, d := range list {
		if d.parent < 0 {
			gpus = append(gpus, i)
		}
	}
	slices.SortStableFunc(gpus, func(a, b int) int { return strings.Compare(list[a].busID, list[b].busID) })
	byIndex := s.pciOrder || len(gpus) < 2 || !slices.ContainsFunc(gpus, func(i int) bool { return list[i].name != list[gpus[0]].name })

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
		if index, ok := parseIndex(item); ok {
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

func all(list []identity) []int {
	chosen := make([]int, len(list))
	for i := range chosen {
		chosen[i] = i
	}
	return chosen
}

// family is a GPU and its MIG devices.
func family(list []identity, gpu int) []int {
	members := []int{gpu}
	for i, d := range list {
		if d.parent == gpu {
			members = append(members, i)
		}
	}
	return members
}

// named finds the one device that an entry names, nil where there is none or more than one.
func named(list []identity, item string) []int {
	item = strings.ToLower(strings.TrimSpace(item))
	found := -1
	for i, d := range list {
		var matches bool
		if old, ok := strings.CutPrefix(item, "mig-gpu-"); ok {
			matches = d.parent >= 0 && old == strings.TrimPrefix(strings.ToLower(list[d.parent].uuid), "gpu-")+
				"/"+strconv.Itoa(d.gpuInstance)+"/"+strconv.Itoa(d.computeInstance)
		} else if strings.HasPrefix(item, "gpu-") || strings.HasPrefix(item, "mig-") {
			matches = strings.HasPrefix(strings.ToLower(d.uuid), item)
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
	case list[found].parent >= 0:
		return []int{list[found].parent, found}
	}
	return family(list, found)
}

// parseIndex reads a device index.
func parseIndex(item string) (int, bool) {
	index, err := strconv.Atoi(strings.TrimSpace(item))
	return index, err == nil && index >= 0
}
