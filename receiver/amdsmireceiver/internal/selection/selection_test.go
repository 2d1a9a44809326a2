package selection

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestSelection(t *testing.T) {
	uuids := []string{"GPU-aaaa0", "GPU-aaaa1", "GPU-bbbb2", "GPU-bbbb3"}
	for _, tc := range []struct {
		env  string
		want string
	}{
		{"", "0 1 2 3"},
		{"ROCR_VISIBLE_DEVICES=2,0", "2 0"},
		{"ROCR_VISIBLE_DEVICES=GPU-bbbb2,0", "2 0"},
		{"ROCR_VISIBLE_DEVICES=gpu-BBBB2", "2"},
		{"ROCR_VISIBLE_DEVICES=GPU-bbbb", ""}, // two of them
		{"HIP_VISIBLE_DEVICES=3", "3"},
		{"CUDA_VISIBLE_DEVICES=3", "3"},
		{"HIP_VISIBLE_DEVICES=1 CUDA_VISIBLE_DEVICES=3", "1"},
		{"ROCR_VISIBLE_DEVICES=3,2 HIP_VISIBLE_DEVICES=1", "2"},
		{"HIP_VISIBLE_DEVICES=1,7,2", "1"},
		{"HIP_VISIBLE_DEVICES=-1", ""},
		{"HIP_VISIBLE_DEVICES=1,1", "1"},
		{"LOCAL_RANK=2", "2"},
		{"LOCAL_RANK=2 LOCAL_WORLD_SIZE=1", "0 1 2 3"},
		{"SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x2)", "0 1 2 3"},
		{"HIP_VISIBLE_DEVICES=3,2 LOCAL_RANK=1", "2"},
		{"LOCAL_RANK=9", "0 1 2 3"},
	} {
		s := New(nil, func(name string) (string, bool) {
			for _, e := range strings.Fields(tc.env) {
				if key, value, _ := strings.Cut(e, "="); key == name {
					return value, true
				}
			}
			return "", false
		})
		var got []string
		for _, i := range first(s.Choose(uuids)) {
			got = append(got, strconv.Itoa(i))
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %s", tc.env, got, tc.want)
		}
	}
	if got, guessed := New([]string{"1"}, os.LookupEnv).Choose(uuids); len(got) != 1 || got[0] != 1 || guessed {
		t.Errorf("configured: %v", got)
	}
	// Older libraries tell no ids.
	for items, all := range map[string]bool{"1": false, "1,GPU-aaaa1": true, " gpu-aaaa1": true, "-1": false} {
		got, guessed := New(strings.Split(items, ","), os.LookupEnv).Choose([]string{"", ""})
		if guessed != all || all && len(got) != 2 {
			t.Errorf("%s without ids: %v, guessed %v", items, got, guessed)
		}
	}
}

func first(list []int, _ bool) []int { return list }

// FuzzSelection: whatever stands in the variables, devices are chosen once each, and a valid entry before it stays one.
func FuzzSelection(f *testing.F) {
	f.Add("2,0", "GPU-bbbb2", "1", "2(x3)")
	f.Add("-1", "gpu-AAAA,,", "9999999999999999999", "1(x2)")
	f.Add(" ", "\xff,+1", "x", "1")
	f.Fuzz(func(t *testing.T, rocr, hip, rank, size string) {
		uuids := []string{"GPU-aaaa0", "GPU-aaaa1", "", "GPU-bbbb3"}
		env := map[string]string{"ROCR_VISIBLE_DEVICES": rocr, "HIP_VISIBLE_DEVICES": hip, "SLURM_LOCALID": rank, "SLURM_STEP_TASKS_PER_NODE": size}
		choose := func() []int {
			return first(New(nil, func(key string) (string, bool) { v, ok := env[key]; return v, ok }).Choose(uuids))
		}
		chosen := choose()
		for i, d := range chosen {
			if d < 0 || d >= len(uuids) || slices.Contains(chosen[:i], d) {
				t.Fatalf("chosen %v", chosen)
			}
		}
		env["ROCR_VISIBLE_DEVICES"], env["HIP_VISIBLE_DEVICES"] = "gpu-bbbb,"+rocr, "0,"+hip
		delete(env, "SLURM_LOCALID")
		if chosen = choose(); !slices.Contains(chosen, 3) {
			t.Fatalf("chosen %v", chosen)
		}
	})
}
