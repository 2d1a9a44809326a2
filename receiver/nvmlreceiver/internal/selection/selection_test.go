package selection

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// host has four GPUs of one model, listed out of the order of their bus ids; the third is cut into two MIG devices.
func host() []Device {
	return []Device{
		{BusID: "00000000:65:00.0", UUID: "GPU-bbbb0000-1", Name: "A", Parent: -1},
		{BusID: "00000000:19:00.0", UUID: "GPU-aaaa0000-0", Name: "A", Parent: -1},
		{BusID: "00000000:9A:00.0", UUID: "GPU-cccc0000-2", Name: "A", Parent: -1},
		{BusID: "00000000:9A:00.0", UUID: "MIG-12340000-x", Name: "A MIG", Parent: 2, GPUInstance: 1},
		{BusID: "00000000:9A:00.0", UUID: "MIG-12350000-y", Name: "A MIG", Parent: 2, GPUInstance: 5, ComputeInstance: 1},
		{BusID: "00000000:DB:00.0", UUID: "GPU-cccc1111-3", Name: "A", Parent: -1},
	}
}

func TestSelection(t *testing.T) {
	everything := []int{0, 1, 2, 3, 4, 5}
	type env map[string]string
	for name, tt := range map[string]struct {
		devices []string
		env     env
		mixed   bool
		want    []int
		guessed bool
	}{
		"nothing set":                {want: everything},
		"empty":                      {env: env{"CUDA_VISIBLE_DEVICES": " "}, want: everything},
		"index counts by bus id":     {env: env{"CUDA_VISIBLE_DEVICES": "0"}, want: []int{1}},
		"two":                        {env: env{"CUDA_VISIBLE_DEVICES": "1, 3"}, want: []int{0, 5}},
		"twice":                      {env: env{"CUDA_VISIBLE_DEVICES": "1,1"}, want: []int{0}},
		"a GPU comes with its parts": {env: env{"CUDA_VISIBLE_DEVICES": "2"}, want: []int{2, 3, 4}},
		"ends at the first invalid":  {env: env{"CUDA_VISIBLE_DEVICES": "0,-1,3"}, want: []int{1}},
		"none":                       {env: env{"CUDA_VISIBLE_DEVICES": "-1"}},
		"word":                       {env: env{"CUDA_VISIBLE_DEVICES": "NoDevFiles"}},
		"beyond":                     {env: env{"CUDA_VISIBLE_DEVICES": "9,0"}},
		"UUID prefix":                {env: env{"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}, want: []int{0}},
		"UUID prefix, other case":    {env: env{"CUDA_VISIBLE_DEVICES": "gpu-BBBB"}, want: []int{0}},
		"prefix of two":              {env: env{"CUDA_VISIBLE_DEVICES": "GPU-cccc"}},
		"MIG UUID brings its GPU":    {env: env{"CUDA_VISIBLE_DEVICES": "MIG-1235"}, want: []int{2, 4}},
		"old MIG id":                 {env: env{"CUDA_VISIBLE_DEVICES": "MIG-GPU-cccc0000-2/1/0"}, want: []int{2, 3}},
		"old MIG id of nobody":       {env: env{"CUDA_VISIBLE_DEVICES": "MIG-GPU-cccc0000-2/2/0"}},
		"rank of all":                {env: env{"LOCAL_RANK": "3"}, want: []int{5}},
		"rank of some":               {env: env{"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "3,0"}, want: []int{1}},
		"rank out of range":          {env: env{"LOCAL_RANK": "4"}, want: everything},
		"rank that is no number":     {env: env{"LOCAL_RANK": "x", "SLURM_LOCALID": "1"}, want: everything},
		"first variable that is set": {env: env{"SLURM_LOCALID": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, want: []int{0}},
		"only process of the host":   {env: env{"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x4)"}, want: everything},
		"one of several":             {env: env{"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "4"}, want: []int{1}},
		"mixed, index":               {env: env{"CUDA_VISIBLE_DEVICES": "0"}, mixed: true, want: everything, guessed: true},
		"mixed, rank":                {env: env{"LOCAL_RANK": "0"}, mixed: true, want: everything, guessed: true},
		"mixed, UUID":                {env: env{"CUDA_VISIBLE_DEVICES": "GPU-aaaa"}, mixed: true, want: []int{1}},
		"mixed, by bus id":           {env: env{"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, mixed: true, want: []int{1}},
		"configured":                 {devices: []string{"3"}, env: env{"CUDA_VISIBLE_DEVICES": "0", "LOCAL_RANK": "0"}, mixed: true, want: []int{5}},
	} {
		t.Run(name, func(t *testing.T) {
			list := host()
			if tt.mixed {
				list[5].Name = "B"
			}
			s := New(tt.devices, func(key string) (string, bool) { v, ok := tt.env[key]; return v, ok })
			chosen, guessed := s.Choose(list)
			assert.Equal(t, tt.want, chosen)
			assert.Equal(t, tt.guessed, guessed)
		})
	}
}

// FuzzSelection: whatever stands in the variables, devices are chosen once each and in order, and a part with its GPU.
func FuzzSelection(f *testing.F) {
	for _, seed := range []string{"", "0,1", "-1", "GPU-cccc", "MIG-1234,MIG-GPU-cccc0000-2/5/1", ",,", "9999999999999999999", "gpu-\xff/"} {
		f.Add(seed, "1", "2(x3)")
	}
	f.Fuzz(func(t *testing.T, visible, rank, size string) {
		env := map[string]string{"CUDA_VISIBLE_DEVICES": visible, "SLURM_LOCALID": rank, "SLURM_STEP_TASKS_PER_NODE": size}
		list := host()
		chosen, _ := New(nil, func(key string) (string, bool) { v, ok := env[key]; return v, ok }).Choose(list)
		for i, device := range chosen {
			if device < 0 || device >= len(list) || i > 0 && chosen[i-1] >= device {
				t.Fatalf("chosen %v", chosen)
			}
			if parent := list[device].Parent; parent >= 0 && !slices.Contains(chosen, parent) {
				t.Fatalf("chosen %v without %d", chosen, parent)
			}
		}
		// What follows a valid entry cannot take it back.
		delete(env, "SLURM_LOCALID")
		env["CUDA_VISIBLE_DEVICES"] = "GPU-aaaa0000," + visible
		chosen, _ = New(nil, func(key string) (string, bool) { v, ok := env[key]; return v, ok }).Choose(list)
		if !slices.Contains(chosen, 1) {
			t.Fatalf("chosen %v of %q", chosen, env["CUDA_VISIBLE_DEVICES"])
		}
	})
}
