package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// compile runs compilers one after another.
func compile(t *testing.T, commands ...[]string) {
	t.Helper()
	for _, args := range commands {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}

// cudaToolkit lays out a CUDA toolkit that holds the stub CUPTI, beside the stub driver, and compiles a program linked with the
// given libraries.
func cudaToolkit(t *testing.T, source string, cupti bool) (home, program string) {
	t.Helper()
	home = filepath.Join(t.TempDir(), "cuda")
	folder, driver := filepath.Join(home, "extras", "CUPTI", "lib64"), filepath.Join(home, "driver")
	for _, path := range []string{folder, driver} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stubs := filepath.Join(root, "inject", "cupti", "testdata")
	program = filepath.Join(home, "program")
	link := []string{"g++", "-std=c++17", "-O1", filepath.Join(root, "inject", "test", "programs", source), "-o", program, "-Wl,--no-as-needed",
		driver + "/libcuda.so.1", "-Wl,-rpath," + driver + ":" + folder, "-pthread", "-ldl"}
	if cupti {
		link = append(link, folder+"/libcupti.so.12")
	}
	compile(t,
		[]string{"gcc", "-std=gnu11", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcupti.so.12", stubs + "/stub_cupti.c", "-o", folder + "/libcupti.so.12", "-pthread"},
		[]string{"gcc", "-std=gnu11", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", stubs + "/stub_cuda.c", "-o", driver + "/libcuda.so.1"},
		link)
	return home, program
}

// TestCUDAProgram goes from CUPTI's records to /signals: all kinds of records of a program that ends at once, in both modes.
func TestCUDAProgram(t *testing.T) {
	home, program := cudaToolkit(t, "cuda_program.cpp", true)
	for mode, graphs := range map[string]string{"graph": `[{"name": "graph_5", "value": 1500, "samples": 2}]`, "node": "[]"} {
		t.Run(mode, func(t *testing.T) {
			output := filepath.Join(t.TempDir(), "signals.json")
			r := start(t, []string{"CUDA_HOME=" + home}, "--cuda-graph-trace", mode, "--output", output, program, "kinds")
			d := lastDocument(t, r, output)
			for name, want := range map[string]string{
				"cuda_kernels_nanoseconds": `[{"name": "_Z3addPf", "value": 81200, "samples": 2}, {"name": "last", "value": 7, "samples": 1}, {"name": "serialized", "value": 5, "samples": 1}]`,
				"cuda_graphs_nanoseconds":  graphs,
				"cuda_sync_nanoseconds": `[{"name": "unknown", "value": 605, "samples": 2}, {"name": "context", "value": 304, "samples": 1}, {"name": "stream", "value": 303, "samples": 1}, ` +
					`{"name": "stream_wait_event", "value": 302, "samples": 1}, {"name": "event", "value": 301, "samples": 1}]`,
			} {
				if got := d.find(name).stat("frames"); got != want {
					t.Errorf("%s is %s, want %s", name, got, want)
				}
			}
			for _, c := range []struct{ name, tag, stat, want string }{
				{"cuda_memcpy_bytes", "kind=host_to_device", "total", "4096"}, {"cuda_memcpy_bytes", "kind=peer_to_peer", "total", "5096"},
				{"cuda_memset_bytes", "kind=device", "total", "64"}, {"cuda_dropped_records_total", "", "total", "0"},
				{"cuda_invalid_records", "", "total", "0"}, {"cuda_graph_trace_mode", "", "value", map[string]string{"graph": "0", "node": "1"}[mode]},
			} {
				if got := d.find(c.name, strings.Fields(c.tag)...).stat(c.stat); got != c.want {
					t.Errorf("%s %s is %s, want %s", c.name, c.tag, got, c.want)
				}
			}
			if said := r.stderr.String(); said != "" {
				t.Errorf("standard error is %q", said)
			}
		})
	}
}

// TestCUDAGraphs: graphs are named by what is in them, also where the name comes after the first replay; and while the program runs.
func TestCUDAGraphs(t *testing.T) {
	home, program := cudaToolkit(t, "cuda_program.cpp", true)
	output := filepath.Join(t.TempDir(), "signals.json")
	r := start(t, []string{"CUDA_HOME=" + home, "GRAPHSIGNAL_SHM_PATH=" + t.TempDir()}, "--output", output, program, "graphs")
	want := `[{"name": "bcbe59da48b1ff0f", "value": 300, "samples": 2}, {"name": "graph_99", "value": 4, "samples": 1}, ` +
		`{"name": "62944b99d3410b33", "value": 2, "samples": 1}, {"name": "graph_20", "value": 1, "samples": 1}]`
	if got := lastDocument(t, r, output).find("cuda_graphs_nanoseconds").stat("frames"); got != want {
		t.Errorf("graphs are %s, want %s", got, want)
	}
	live := start(t, []string{"CUDA_HOME=" + home}, program, "stamps", "60")
	tag := "process.pid=" + strconv.Itoa(live.workload())
	live.signalsWhen("kernels of the running program are there", func(d *document) bool {
		return strings.Contains(d.find("cuda_kernels_nanoseconds", tag).stat("frames"), `"stamped"`)
	})
}

// TestFindingCUPTI: a program that has not loaded CUPTI gets the one of the toolkit of its environment, when it is for its driver;
// where there is none the document says so.
func TestFindingCUPTI(t *testing.T) {
	home, program := cudaToolkit(t, "cuda_unlinked.cpp", false)
	decoy := filepath.Join(t.TempDir(), "lib")
	if err := os.MkdirAll(decoy, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(decoy+"/libcupti.so.13", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "signals.json")
	r := start(t, []string{"CUDA_VERSION=13.0.1", "CUDA_HOME=" + home, "LD_LIBRARY_PATH=" + decoy, "GRAPHSIGNAL_DEBUG=1"}, "--output", output, program)
	if got := lastDocument(t, r, output).find("cuda_graph_trace_mode").stat("value"); got != "0" {
		t.Errorf("cuda_graph_trace_mode is %s", got)
	}
	if want := "CUPTI 22 from " + home + "/extras/CUPTI/lib64/libcupti.so.12"; !strings.Contains(r.stderr.String(), want) {
		t.Errorf("%q is not in the messages", want)
	}
	r = start(t, []string{"CUDA_VERSION=12.8.1", "CUDA_HOME=" + decoy, "LD_LIBRARY_PATH=" + decoy}, "--output", output, program)
	d := lastDocument(t, r, output)
	if !hasError(d, "no libcupti for CUDA 12 was found") {
		t.Errorf("errors are %v", d.Errors)
	}
	if m := d.find("cuda_kernels_nanoseconds"); m != nil {
		t.Errorf("kernels are published: %v", m.Stats)
	}
}

// TestCUDAProbes: blocks in the memory of two devices reach /signals, pooled ones too, without an export flag of the program.
func TestCUDAProbes(t *testing.T) {
	folder := t.TempDir()
	driver, program := folder+"/libcuda.so.1", folder+"/program"
	inject := filepath.Join(root, "inject")
	compile(t,
		[]string{"gcc", "-std=gnu11", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", inject + "/cupti/testdata/fake_cuda_memory.c", "-o", driver, "-pthread"},
		[]string{"g++", "-std=c++17", "-O1", "-D__CUDACC__", "-I" + filepath.Join(root, "include"), "-I" + inject, "-I" + inject + "/test/fake_runtime",
			inject + "/test/programs/probe_gpu_program.cpp", "-s", "-o", program, driver, "-Wl,-rpath," + folder, "-pthread", "-ldl"})
	output := filepath.Join(folder, "signals.json")
	r := start(t, []string{"CUDA_HOME=" + folder, "GRAPHSIGNAL_SHM_PATH=" + t.TempDir()}, "--output", output, program, "basic")
	d := lastDocument(t, r, output)
	for _, c := range []struct {
		name, tag string
		want      map[string]string
	}{
		{"alone_1", "", map[string]string{"count": "2", "sum": "1007", "min": "7", "max": "1000"}},
		{"pooled", "block=99", map[string]string{"count": "100", "sum": "9900"}},
	} {
		for key, want := range c.want {
			if got := d.find(c.name, strings.Fields(c.tag)...).stat(key); got != want {
				t.Errorf("%s %s: %s is %s, want %s", c.name, c.tag, key, got, want)
			}
		}
	}
	if d.find("graphsignal_probe_read_nanoseconds") == nil || d.find("graphsignal_probe_unread_instruments") != nil {
		t.Errorf("readings: %v, unread: %v", d.find("graphsignal_probe_read_nanoseconds"), d.find("graphsignal_probe_unread_instruments"))
	}
}
