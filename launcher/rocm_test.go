package launcher

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWithTool(t *testing.T) {
	for _, tc := range []struct{ list, want string }{
		{"", "/g.so"},
		{":", "/g.so"},
		{"/g.so", "/g.so"},
		{"/a.so", "/g.so:/a.so:"},
		{"/a.so:", "/g.so:/a.so:"},
		{":/a.so::/b.so", "/g.so:/a.so:/b.so:"},
		{"/g.so:/a.so:", "/g.so:/a.so:"},
		{"/a.so:/g.so", "/a.so:/g.so:"},
		{"/elsewhere/g.so", "/elsewhere/g.so"},
	} {
		if got := withTool(tc.list, "/g.so"); got != tc.want {
			t.Errorf("withTool(%q) is %q, want %q", tc.list, got, tc.want)
		}
	}
}

// rocmTree is a root with a ROCm installation and our library beside it.
type rocmTree struct {
	root, libraries string
}

func newROCmTree(t *testing.T) rocmTree {
	if runtime.GOARCH != "amd64" {
		t.Skip("ROCm exists for x86-64 only")
	}
	tree := rocmTree{root: t.TempDir(), libraries: t.TempDir()}
	tree.write(t, tree.libraries+"/"+rocmLibrary, elfLibrary)
	return tree
}

func (tree rocmTree) write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// apply returns the tools that a workload gets, and what is said on standard error.
func (tree rocmTree) apply(t *testing.T, env ...string) (tools, said string) {
	t.Helper()
	environ := environment{entries: env}
	g := gpuEnvironment{libraries: tree.libraries, root: tree.root, environ: &environ, program: program{path: "/nonexistent/program"}}
	said = captureStderr(t, g.rocm)
	tools, _ = environ.get("ROCP_TOOL_LIBRARIES")
	return tools, said
}

// captureStderr runs f with standard error redirected. It must not run beside tests that write there.
func captureStderr(t *testing.T, f func()) string {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before, err := unix.Dup(2)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(before)
	if err := unix.Dup3(int(file.Fd()), 2, 0); err != nil {
		t.Fatal(err)
	}
	f()
	if err := unix.Dup3(before, 2, 0); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestROCmWithoutROCm(t *testing.T) {
	tree := newROCmTree(t)
	if tools, said := tree.apply(t, "PATH=/nonexistent", "ROCP_TOOL_LIBRARIES=/their.so"); tools != "/their.so" || said != "" {
		t.Errorf("tools %q, said %q", tools, said)
	}
}

func TestROCmFound(t *testing.T) {
	for name, tc := range map[string]struct {
		sdk string
		env []string
	}{
		"default":       {sdk: "/opt/rocm/lib/librocprofiler-sdk.so.1"},
		"version":       {sdk: "/opt/rocm-7.0.2/lib/librocprofiler-sdk.so.1.0.0"},
		"lib64":         {sdk: "/opt/rocm/lib64/librocprofiler-sdk.so.0"},
		"named":         {sdk: "/elsewhere/lib/librocprofiler-sdk.so", env: []string{"ROCM_PATH=@/elsewhere"}},
		"home":          {sdk: "/elsewhere/lib/librocprofiler-sdk.so", env: []string{"ROCM_HOME=@/elsewhere"}},
		"system":        {sdk: "/usr/lib/x86_64-linux-gnu/librocprofiler-sdk.so.1", env: []string{"ROCM_PATH=@/usr"}},
		"loader's path": {sdk: "/some/librocprofiler-sdk.so.1", env: []string{"LD_LIBRARY_PATH=/x:@/some", "ROCM_PATH=@/some"}},
		"wheel":         {sdk: "/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib/librocprofiler-sdk.so.1", env: []string{"VIRTUAL_ENV=@/venv", "ROCM_PATH=@/venv"}},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newROCmTree(t)
			tree.write(t, tree.root+tc.sdk, "")
			env := []string{"PATH=/nonexistent"}
			for _, e := range tc.env {
				env = append(env, strings.ReplaceAll(e, "@", tree.root))
			}
			ours := tree.libraries + "/" + rocmLibrary
			if tools, said := tree.apply(t, env...); tools != ours || said != "" {
				t.Errorf("tools %q, said %q", tools, said)
			}
			if tools, _ := tree.apply(t, append(env, "ROCP_TOOL_LIBRARIES=/their.so:")...); tools != ours+":/their.so:" {
				t.Errorf("beside another tool: %q", tools)
			}
		})
	}
}

func TestROCmWithoutSDK(t *testing.T) {
	tree := newROCmTree(t)
	tree.write(t, tree.root+"/opt/rocm/.info/version", "6.1.2-120\n")
	if tools, said := tree.apply(t, "PATH=/nonexistent"); tools != "" || said != "" {
		t.Errorf("without a device: tools %q, said %q", tools, said)
	}
	tree.write(t, tree.root+"/dev/kfd", "")
	tools, said := tree.apply(t, "PATH=/nonexistent")
	if tools != "" || !strings.Contains(said, "rocprofiler-sdk") || !strings.Contains(said, "6.1.2") || strings.Count(said, "\n") != 1 {
		t.Errorf("with a device: tools %q, said %q", tools, said)
	}
}

// TestROCmUnloadable: the SDK ends a program whose tool it cannot load, so it never hears of such a one.
func TestROCmUnloadable(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "text": "version https://git-lfs.github.com/spec/v1 and more",
		"arm": strings.Replace(elfLibrary, elfMachine(), "\xb7\x00", 1), "header": elfLibrary[:63],
		"half": elfLibrary[:40] + "\x00\x10" + elfLibrary[42:]} {
		t.Run(name, func(t *testing.T) {
			tree := newROCmTree(t)
			tree.write(t, tree.root+"/opt/rocm/lib/librocprofiler-sdk.so.1", "")
			tree.write(t, tree.libraries+"/"+rocmLibrary, content)
			if tools, said := tree.apply(t, "PATH=/nonexistent"); tools != "" || strings.Count(said, "\n") != 1 {
				t.Errorf("tools %q, said %q", tools, said)
			}
		})
	}
	t.Run("noexec", func(t *testing.T) {
		tree := newROCmTree(t)
		tree.write(t, tree.root+"/opt/rocm/lib/librocprofiler-sdk.so.1", "")
		onNoexec(t, tree.libraries, func() {
			tree.write(t, tree.libraries+"/"+rocmLibrary, elfLibrary)
			if tools, said := tree.apply(t, "PATH=/nonexistent"); tools != "" || !strings.Contains(said, "noexec") {
				t.Errorf("tools %q, said %q", tools, said)
			}
		})
	})
	t.Run("colon", func(t *testing.T) {
		tree := newROCmTree(t)
		tree.write(t, tree.root+"/opt/rocm/lib/librocprofiler-sdk.so.1", "")
		inside := tree
		inside.libraries = tree.libraries + "/a:b"
		if err := os.Mkdir(inside.libraries, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tree.libraries+"/"+rocmLibrary, inside.libraries+"/"+rocmLibrary); err != nil {
			t.Fatal(err)
		}
		if tools, said := inside.apply(t, "PATH=/nonexistent"); tools != "" || !strings.Contains(said, "colon") {
			t.Errorf("tools %q, said %q", tools, said)
		}
	})
}

// onNoexec calls f where a directory is a file system from which nothing may be executed. Only its thread sees that.
func onNoexec(t *testing.T, directory string, f func()) {
	t.Helper()
	done := make(chan string)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		problem := "stopped"
		defer func() { done <- problem }()
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			problem = "no mount namespace: " + err.Error()
		} else if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			problem = "no private mounts: " + err.Error()
		} else if err := unix.Mount("tmpfs", directory, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
			problem = "no mount: " + err.Error()
		} else {
			f()
			problem = ""
		}
	}()
	if problem := <-done; problem != "" {
		t.Skip(problem)
	}
}

func TestROCmVersion(t *testing.T) {
	tree := newROCmTree(t)
	tree.write(t, tree.root+"/opt/rocm-6.4.1/x", "")
	tree.write(t, tree.root+"/opt/rocm-7.0.0/.info/version-dev", "7.0.0-38\n")
	version := func(env ...string) string {
		environ := environment{entries: env}
		g := gpuEnvironment{root: tree.root, environ: &environ}
		return g.rocmVersion(g.rocmHomes())
	}
	if got := version(); got != "7.0.0" {
		t.Errorf("by file: %q", got)
	}
	if got := version("ROCM_PATH=" + tree.root + "/opt/rocm-6.4.1"); got != "6.4.1" {
		t.Errorf("by name: %q", got)
	}
	if got := version("ROCM_VERSION= 6.3-rc"); got != "6.3" {
		t.Errorf("by variable: %q", got)
	}
	if err := os.Symlink("rocm-6.4.1", tree.root+"/opt/rocm"); err != nil {
		t.Fatal(err)
	}
	if got := version(); got != "6.4.1" {
		t.Errorf("by link: %q", got)
	}
}

// TestROCmOption: the option reaches the library, and wins over the variable.
func TestROCmOption(t *testing.T) {
	for _, tc := range []struct{ option, variable, want string }{{"", "", ""}, {"", "all", "all"}, {"none", "all", "none"}, {"all", "", "all"}} {
		environ := environment{entries: []string{"PATH=/nonexistent"}}
		if tc.variable != "" {
			environ.set("GRAPHSIGNAL_ROCM_KERNEL_TRACE", tc.variable)
		}
		g := gpuEnvironment{libraries: t.TempDir(), root: t.TempDir(), environ: &environ, options: options{rocmKernelTrace: tc.option}}
		g.apply()
		if got, _ := environ.get("GRAPHSIGNAL_ROCM_KERNEL_TRACE"); got != tc.want {
			t.Errorf("option %q, variable %q: %q, want %q", tc.option, tc.variable, got, tc.want)
		}
	}
}
