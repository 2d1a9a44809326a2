// Package selection finds out which of a host's AMD devices belong to the workload.
package selection

import (
	"slices"
	"strconv"
	"strings"
)

// Selector says which of a host's devices belong to the workload.
type Selector struct {
	// lists are applied one after another, each to what the one before it left; indices count in that.
	lists [][]string
	// rank is the entry that belongs to this process of several on the host, -1 where there is no telling.
	rank int
}

// localRanks are the variables that hold the number of a process among those of the host, each with one that holds how
// many there are.
var localRanks = []struct{ rank, size string }{
	{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	{"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
	{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
}

// New reads the configuration's devices, else the environment.
func New(devices []string, lookup func(string) (string, bool)) Selector {
	s := Selector{rank: -1}
	if len(devices) > 0 {
		s.lists = [][]string{devices}
		return s
	}
	// The runtime hides devices first, HIP those that are left; CUDA's variable is HIP's other name.
	hip, _ := lookup("HIP_VISIBLE_DEVICES")
	if strings.TrimSpace(hip) == "" {
		hip, _ = lookup("CUDA_VISIBLE_DEVICES")
	}
	rocr, _ := lookup("ROCR_VISIBLE_DEVICES")
	for _, list := range []string{rocr, hip} {
		if strings.TrimSpace(list) != "" {
			s.lists = append(s.lists, strings.Split(list, ","))
		}
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

// Choose returns the indices of the selected devices, whose HIP UUIDs (empty where there is none) are given in HIP's order.
// guessed says that an entry is a UUID and none is known, so that all devices are chosen.
func (s Selector) Choose(uuids []string) (list []int, guessed bool) {
	list = make([]int, len(uuids))
	for i := range list {
		list[i] = i
	}
	known := slices.ContainsFunc(uuids, func(uuid string) bool { return uuid != "" })
	for _, items := range s.lists {
		if !known && slices.ContainsFunc(items, isUUID) {
			return list, true
		}
		var chosen []int
		for _, item := range items {
			d, ok := pick(list, uuids, item)
			if !ok {
				break // HIP too sees nothing from the first invalid entry on
			}
			if !slices.Contains(chosen, d) {
				chosen = append(chosen, d)
			}
		}
		list = chosen
	}
	if s.rank >= 0 && s.rank < len(list) {
		list = list[s.rank : s.rank+1]
	}
	return list, false
}

func isUUID(item string) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(item)), "gpu-")
}

// pick finds the one device of the list that an entry names; false where there is none or more than one.
func pick(list []int, uuids []string, item string) (device int, ok bool) {
	if index, ok := ParseIndex(item); ok {
		if index < len(list) {
			return list[index], true
		}
		return 0, false
	}
	item = strings.ToLower(strings.TrimSpace(item))
	for _, d := range list {
		if item == "" || uuids[d] == "" || !strings.HasPrefix(strings.ToLower(uuids[d]), item) {
			continue
		}
		if ok {
			return 0, false
		}
		device, ok = d, true
	}
	return device, ok
}

// ParseIndex reads a device index.
func ParseIndex(item string) (int, bool) {
	index, err := strconv.Atoi(strings.TrimSpace(item))
	return index, err == nil && index >= 0
}
