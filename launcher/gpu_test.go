package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// elfLibrary is the header of a shared library for this machine, with nothing behind it.
var elfLibrary = "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x03\x00" + elfMachine() + strings.Repeat("\x00", 44)

// gpuFixture is a root directory with the given files (a trailing slash makes a directory), and the variables that a
// launcher there would set.
func gpuFixture(t *testing.T, files []string, environ ...string) (root string, after environment) {
	t.Helper()
	root = t.TempDir()
	for _, file := range files {
		path := filepath.Join(root, file)
		if strings.HasSuffix(file, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		content := ""
		if strings.HasSuffix(file, ".so") && strings.HasPrefix(file, "lib/graphsignal/") {
			content = elfLibrary
		}
		if strings.HasPrefix(file, "venv/bin/vllm") {
			content = "#!" + root + "/base/bin/python3\n"
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i, entry := range environ {
		environ[i] = strings.ReplaceAll(entry, "ROOT", root)
	}
	if project := filepath.Join(root, "project"); exists(project) {
		t.Chdir(project)
	}
	after = environment{entries: environ}
	g := gpuEnvironment{libraries: root + "/lib/graphsignal", root: root, environ: &after,
		program: program{path: root + "/venv/bin/vllm", argv: []string{"vllm"}}}
	if uv := filepath.Join(root, "uv/bin/uv"); exists(uv) {
		g.program = program{path: uv, argv: []string{"uv", "run", "vllm"}}
	}
	if ncu := filepath.Join(root, "usr/local/cuda/bin/ncu"); exists(ncu) {
		g.program = program{path: ncu, argv: []string{"ncu", "vllm"}}
	}
	g.apply()
	return root, after
}

func TestGPUEnvironment(t *testing.T) {
	ours := []string{"lib/graphsignal/" + cuptiLibrary, "lib/graphsignal/" + probeLibrary}
	with := func(files ...string) []string { return append(files, ours...) }
	for _, c := range []struct {
		name    string
		files   []string
		environ []string
		// want maps variables to values; an empty one is to be absent.
		want map[string]string
	}{
		{name: "no GPU", files: ours, want: map[string]string{"CUDA_INJECTION64_PATH": "", "GRAPHSIGNAL_CUPTI_PATH": "",
			"ROCP_TOOL_LIBRARIES": "", "GRAPHSIGNAL_PROBE_LIB": "ROOT/lib/graphsignal/" + probeLibrary}},
		{name: "nothing of ours", files: []string{"dev/nvidiactl"},
			want: map[string]string{"CUDA_INJECTION64_PATH": "", "ROCP_TOOL_LIBRARIES": "", "GRAPHSIGNAL_PROBE_LIB": ""}},
		{name: "driver alone", files: with("dev/nvidiactl"),
			want: map[string]string{"CUDA_INJECTION64_PATH": "ROOT/lib/graphsignal/" + cuptiLibrary, "GRAPHSIGNAL_CUPTI_PATH": ""}},
		{name: "wheels before toolkits, newest first",
			files: with("dev/nvidiactl", "venv/bin/vllm", "venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
				"base/bin/python3", "base/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13",
				"usr/local/cuda-12.8/extras/CUPTI/lib64/libcupti.so.12", "usr/local/cuda-12.10/extras/CUPTI/lib64/libcupti.so.12"),
			want: map[string]string{"GRAPHSIGNAL_CUPTI_PATH": "ROOT/venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12:" +
				"ROOT/base/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13:" +
				"ROOT/usr/local/cuda-12.10/extras/CUPTI/lib64/libcupti.so.12:ROOT/usr/local/cuda-12.8/extras/CUPTI/lib64/libcupti.so.12"}},
		{name: "conda's own, and the environments of uv's projects",
			files: with("dev/nvidiactl", "conda/lib/libcupti.so.12", "project/.venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13",
				"other/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12", "uv/bin/uv"),
			environ: []string{"CONDA_PREFIX=ROOT/conda", "UV_PROJECT_ENVIRONMENT=../other"},
			want: map[string]string{"GRAPHSIGNAL_CUPTI_PATH": "ROOT/other/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12:" +
				"ROOT/project/.venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13:ROOT/conda/lib/libcupti.so.12"}},
		{name: "the working directory is no place for others",
			files: with("dev/nvidiactl", "project/.venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13"),
			want:  map[string]string{"GRAPHSIGNAL_CUPTI_PATH": ""}},
		{name: "toolkit of the environment, preset candidates first",
			files:   with("usr/local/cuda-12.8/extras/CUPTI/lib64/libcupti.so.12", "tk/extras/CUPTI/lib64/libcupti.so.11.8"),
			environ: []string{"CUDA_HOME=ROOT/tk", "GRAPHSIGNAL_CUPTI_PATH=/mine"},
			want:    map[string]string{"GRAPHSIGNAL_CUPTI_PATH": "/mine:ROOT/tk/extras/CUPTI/lib64/libcupti.so.11.8"}},
		{name: "the workload is Nsight Compute", files: with("dev/nvidiactl", "usr/local/cuda/bin/ncu"),
			want: map[string]string{"CUDA_INJECTION64_PATH": "", "GRAPHSIGNAL_PROBE_LIB": "ROOT/lib/graphsignal/" + probeLibrary}},
		{name: "preset injection is kept", files: with("dev/nvidiactl"), environ: []string{"CUDA_INJECTION64_PATH=/other.so"},
			want: map[string]string{"CUDA_INJECTION64_PATH": "/other.so", "GRAPHSIGNAL_CUPTI_PATH": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, after := gpuFixture(t, c.files, append([]string{"PATH=/nowhere", "HOME=/nowhere"}, c.environ...)...)
			for name, want := range c.want {
				want = strings.ReplaceAll(want, "ROOT", root)
				if got, set := after.get(name); got != want || set && want == "" {
					t.Errorf("%s=%q, want %q", name, strings.ReplaceAll(got, root, "ROOT"), strings.ReplaceAll(want, root, "ROOT"))
				}
			}
		})
	}
}

// TestUnloadableLibraries: what no program can load is named to none, and the user is told.
func TestUnloadableLibraries(t *testing.T) {
	root := t.TempDir()
	onNoexec(t, root, func() {
		for _, name := range []string{cuptiLibrary, probeLibrary} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(elfLibrary), 0o755); err != nil {
				t.Error(err)
			}
		}
		environ := environment{entries: []string{"PATH=/nowhere", "CUDA_HOME=/nowhere"}}
		g := gpuEnvironment{libraries: root, root: root, environ: &environ, program: program{path: "/nowhere/vllm"}}
		said := captureStderr(t, g.apply)
		for _, name := range []string{"CUDA_INJECTION64_PATH", "GRAPHSIGNAL_PROBE_LIB"} {
			if value, set := environ.get(name); set {
				t.Errorf("%s=%s", name, value)
			}
		}
		if strings.Count(said, "noexec") != 2 {
			t.Errorf("said %q", said)
		}
	})
}

func TestEnvironmentKeepsOddEntries(t *testing.T) {
	e := environment{entries: []string{"A=1", "odd", "=x", "B=2", "A=3"}}
	e.set("A", "9")
	e.set("C", "")
	e.unset("B")
	if got := strings.Join(e.entries, "|"); got != "A=9|odd|=x|C=" {
		t.Errorf("%q", got)
	}
}
