package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// hipProgram lays out a ROCm installation that holds the fake rocprofiler-sdk and HIP, a program linked to them, and a
// module of it with probes in device memory.
func hipProgram(t *testing.T) (home, program, module string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("ROCm exists for x86-64 only")
	}
	home = filepath.Join(t.TempDir(), "rocm")
	lib := filepath.Join(home, "lib")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	sdk := filepath.Join(lib, "librocprofiler-sdk.so.1")
	program, module = filepath.Join(home, "hip_program"), filepath.Join(home, "hip_module.so")
	source := filepath.Join(root, "inject", "rocm")
	hip := filepath.Join(lib, "libamdhip64.so.7")
	for _, args := range [][]string{
		{"gcc", "-std=gnu11", "-O1", "-fPIC", "-shared", "-Wl,-soname,librocprofiler-sdk.so.1",
			filepath.Join(source, "testdata", "fake_rocprofiler.c"), "-o", sdk, "-pthread", "-ldl"},
		{"gcc", "-std=gnu11", "-O1", "-fPIC", "-shared", "-Wl,-soname,libamdhip64.so.7",
			filepath.Join(source, "testdata", "fake_hip.c"), "-o", hip, "-pthread"},
		{"g++", "-std=c++17", "-O1", filepath.Join(source, "test", "rocm_program.cpp"), "-o", program, sdk, hip,
			"-Wl,-rpath," + lib, "-pthread", "-ldl"},
		{"g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-I", filepath.Join(root, "include"), filepath.Join(source, "test", "hip_module.cpp"),
			"-o", module, hip, "-Wl,-rpath," + lib, "-pthread", "-ldl"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return home, program, module
}

// TestROCmProgram goes from HIP activity to /signals, in both layouts of rocprofiler-sdk: three copies to the device and
// two back, two kernels, five kinds of synchronization.
func TestROCmProgram(t *testing.T) {
	home, program, _ := hipProgram(t)
	for _, version := range []string{"600", "10000"} {
		t.Run(version, func(t *testing.T) {
			output := filepath.Join(t.TempDir(), "signals.json")
			end := filepath.Join(t.TempDir(), "end")
			r := start(t, []string{"ROCM_PATH=" + home}, "--rocm-kernel-trace", "all", "--output", output, program, "wait", version, end)
			pid := r.workload()
			tag := "process.pid=" + strconv.Itoa(pid)
			check := func(d *document) {
				t.Helper()
				for kind, bytes := range map[string]string{"host_to_device": "12288", "device_to_host": "2049", "device_to_device": "10",
					"host_to_host": "20", "other": "2"} {
					if got := d.find("rocm_memcpy_bytes", tag, "kind="+kind).stat("total"); got != bytes {
						t.Errorf("%s: %s bytes, want %s", kind, got, bytes)
					}
				}
				for name, want := range map[string]string{
					"rocm_kernels_nanoseconds": `[{"name": "_Z3addPf.kd", "value": 81200, "samples": 2}, {"name": "kernel_7", "value": 9, "samples": 1}, {"name": "gemm", "value": 5, "samples": 1}]`,
					"rocm_sync_nanoseconds": `[{"name": "hipEventRecord", "value": 1004, "samples": 1}, {"name": "hipStreamWaitEvent", "value": 1003, "samples": 1}, ` +
						`{"name": "hipEventSynchronize", "value": 1002, "samples": 1}, {"name": "hipDeviceSynchronize", "value": 1001, "samples": 1}, ` +
						`{"name": "hipStreamSynchronize", "value": 1000, "samples": 1}]`,
				} {
					if got := d.find(name, tag).stat("frames"); got != want {
						t.Errorf("%s is %s, want %s", name, got, want)
					}
				}
				if got := d.find("rocm_kernel_trace_mode", tag).stat("value"); got != "1" {
					t.Errorf("rocm_kernel_trace_mode is %s", got)
				}
			}
			check(r.signalsWhen("all copies are there", func(d *document) bool {
				return strings.Contains(d.find("rocm_sync_nanoseconds", tag).stat("frames"), "hipEventRecord")
			}))
			if err := os.WriteFile(end, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d := lastDocument(t, r, output)
			check(d)
			if said := r.stderr.String(); said != "" {
				t.Errorf("standard error is %q", said)
			}
		})
	}
}

// TestShortROCmProgram: what happens in the last interval before the end is flushed and drained; kernels are off unless
// asked for.
func TestShortROCmProgram(t *testing.T) {
	home, program, _ := hipProgram(t)
	output := filepath.Join(t.TempDir(), "signals.json")
	r := start(t, []string{"ROCM_PATH=" + home}, "--output", output, program, "kinds")
	d := lastDocument(t, r, output)
	if got := d.find("rocm_memcpy_bytes", "kind=host_to_device").stat("total"); got != "12288" {
		t.Errorf("%s bytes to the device, want 12288", got)
	}
	if got := d.find("rocm_kernel_trace_mode").stat("value"); got != "0" {
		t.Errorf("rocm_kernel_trace_mode is %s", got)
	}
	if got := d.find("rocm_kernels_nanoseconds").stat("frames"); got != "[]" {
		t.Errorf("kernels are %s", got)
	}
}

// TestROCmProbes: blocks that only a device can write reach /signals, beside those of the host.
func TestROCmProbes(t *testing.T) {
	home, program, module := hipProgram(t)
	output := filepath.Join(t.TempDir(), "signals.json")
	r := start(t, []string{"ROCM_PATH=" + home}, "--output", output, program, "device-probes", "10000", module)
	d := lastDocument(t, r, output)
	for block, want := range map[string][2]string{"0": {"sum", "5100"}, "1": {"count", "3"}, "2": {"total", "12"}, "3": {"value", "2.5"}, "4": {"sum", "44"}, "5": {"sum", "55"}} {
		if got := d.find("tile_ticks", "block="+block).stat(want[0]); got != want[1] {
			t.Errorf("block %s: %s is %s, want %s", block, want[0], got, want[1])
		}
	}
	if got := d.find("host_total").stat("total"); got != "5" {
		t.Errorf("host_total is %s", got)
	}
	if m := d.find("rocm_memcpy_bytes", "kind=device_to_host"); m != nil {
		t.Errorf("copies of the reader are published: %v", m.Stats)
	}
}
