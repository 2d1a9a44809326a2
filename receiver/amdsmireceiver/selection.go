package amdsmireceiver

import (
	"slices"
	"strconv"
	"strings"
)

// selector says which of a host's devices belong to the workload.
type selector struct {
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

// newSelector reads the configuration's devices, else the environment.
func newSelector(devices []string, lookup func(string) (string, bool)) selector {
	s := selector{rank: -1}
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
		if rank, ok := parseIndex(value); ok {
			s.rank = rank
		}
		break
	}
	return s
}

// choose returns the selected devices, which are given in HIP's order.
func (s selector) choose(list []*device) []*device {
	for _, items := range s.lists {
		var chosen []*device
		for _, item := range items {
			d := pick(list, item)
			if d == nil {
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
	return list
}

// pick finds the one device that an entry names, nil where there is none or more than one.
func pick(list []*device, item string) *device {
	if index, ok := parseIndex(item); ok {
		if index < len(list) {
			return list[index]
		}
		return nil
	}
	item = strings.ToLower(strings.TrimSpace(item))
	var found *device
	for _, d := range list {
		if item == "" || d.hipUUID == "" || !strings.HasPrefix(strings.ToLower(d.hipUUID), item) {
			continue
		}
		if found != nil {
			return nil
		}
		found = d
	}
	return found
}

// parseIndex reads a device index.
func parseIndex(item string) (int, bool) {
	index, err := strconv.Atoi(strings.TrimSpace(item))
	return index, err == nil && index >= 0
}
