package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/graphsignal/graphsignal-collector/internal/fakenvml"
)

// TestFaultHungDriver: calls of a GPU driver that do not return delay nothing: the program is measured to its end, with the
// final document, and no process stays behind.
func TestFaultHungDriver(t *testing.T) {
	t.Parallel()
	never := strings.Repeat("9", 8) // milliseconds
	for name, host := range map[string]func(t *testing.T) (env []string, hang func(f *faulty)){
		"NVML, when it is opened": func(t *testing.T) ([]string, func(*faulty)) {
			h := newGPUHost(t, "InitDelay "+never+"\n"+fakenvml.H200, false)
			return h.env, func(f *faulty) {
				eventually(t, "it is called", func() bool { return h.calls(t, "Init") > 0 })
			}
		},
		"NVML, all GPUs": func(t *testing.T) ([]string, func(*faulty)) {
			h := newGPUHost(t, fakenvml.H200s(4), false)
			return h.env, func(f *faulty) {
				f.signalsWhen("the GPUs are read", func(d *document) bool { return d.find("gpu_temperature_celsius") != nil })
				h.rewrite(t, strings.ReplaceAll(fakenvml.H200s(4), "gpu\n", "gpu\n  delay "+never+"\n"))
			}
		},
		"AMD SMI": func(t *testing.T) ([]string, func(*faulty)) {
			file := filepath.Join(t.TempDir(), "never")
			home := amdHome(t, "libamd_smi.so.25", amdScript(t, "radeon")+"hold metrics "+file+"\n")
			return []string{"ROCM_PATH=" + home}, func(*faulty) {
				eventually(t, "it hangs", func() bool {
					_, err := os.Stat(file + ".held")
					return err == nil
				})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "NVML, when it is opened" {
				onlyLong(t)
			}
			env, hang := host(t)
			f := startFaulty(t, env, "worker", "add:1000", "await:@go", "add:500", "await:@end", "add:20", "lines:3", "exit:3")
			hang(f)
			f.seen("fault_steps", 1000)
			f.touch("go")
			d := f.seen("fault_steps", 1500)
			before := d.hostTime()
			f.signalsWhen("the rest goes on", func(d *document) bool { return d.hostTime() > before })
			f.touch("end")
			f.ended(3, numbered(3))
			f.silent()
			f.expectTotal("fault_steps", 1520)
			f.nothingLeft()
		})
	}
}

// TestFaultLostGPUs: all GPUs fall off the bus. It is told, their series stand still, and they come back with the GPUs.
func TestFaultLostGPUs(t *testing.T) {
	t.Parallel()
	good := fakenvml.H200s(2)
	h := newGPUHost(t, good, false)
	f := startFaulty(t, h.env, "worker", "add:1000", "await:@go", "add:500", "lines:3", "exit:3")
	updated := func(d *document) string {
		if m := d.find("gpu_temperature_celsius"); m != nil {
			return string(m.UpdatedNS)
		}
		return ""
	}
	f.signalsWhen("the GPUs are read", func(d *document) bool { return updated(d) != "" && d.total("fault_steps") == 1000 })
	h.rewrite(t, strings.ReplaceAll(good, "gpu\n", "gpu\n  all 15\n  event 79\n"))
	d := f.signalsWhen("the loss is told", func(d *document) bool { return len(d.Errors) > 0 })
	last := updated(d)
	h.rewrite(t, good)
	f.signalsWhen("the GPUs are back", func(d *document) bool { return updated(d) > last })
	f.touch("go")
	f.ended(3, numbered(3))
	f.silent()
	f.expectTotal("fault_steps", 1500)
	f.nothingLeft()
}

// TestFaultCrashingDriver: a vendor library that ends its process ends the sidecar, twice at most, and nothing else.
func TestFaultCrashingDriver(t *testing.T) {
	t.Parallel()
	home := amdHome(t, "libamd_smi.so.26", "device\nret nonsense 0\n") // the fake aborts at what it does not know
	f := startFaulty(t, []string{"ROCM_PATH=" + home}, "worker", "add:1000", "lines:3", "await:@go", "add:500", "lines:3", "exit:3")
	eventually(t, "the launcher says that it gives up", func() bool { return f.stderr.String() != "" })
	f.touch("go")
	f.ended(3, numbered(3)+numbered(3))
	f.says("sidecar ended again")
	f.env = f.env[:2] // the next run has no such library
	f.nothingLeftAfterNextRun()
}
