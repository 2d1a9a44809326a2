package launcher

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// gpuEnvironment adds to an environment what makes the GPU runtimes load the profiler's libraries.
type gpuEnvironment struct {
	// libraries is the directory of the profiler's libraries.
	libraries string
	// root is put before all system paths: empty outside tests.
	root    string
	environ *environment
	program program
	options options
	msg     messages
}

const (
	probeLibrary = "libgraphsignal_probe.so"
	cuptiLibrary = "libgraphsignal_cupti.so"
	rocmLibrary  = "libgraphsignal_rocm.so"
)

// apply sets the variables. Whatever is missing, the workload starts.
func (g *gpuEnvironment) apply() {
	if g.options.cudaGraphTrace != "" {
		g.environ.set("GRAPHSIGNAL_CUDA_GRAPH_TRACE", g.options.cudaGraphTrace)
	}
	if g.options.rocmKernelTrace != "" {
		g.environ.set("GRAPHSIGNAL_ROCM_KERNEL_TRACE", g.options.rocmKernelTrace)
	}
	g.probes()
	g.cuda()
	g.rocm()
}

// namesLibrary reports whether the workload's processes may load a library that writes run directories.
func (g *gpuEnvironment) namesLibrary() bool {
	for _, name := range []string{"GRAPHSIGNAL_PROBE_LIB", "CUDA_INJECTION64_PATH", "ROCP_TOOL_LIBRARIES"} {
		if value, _ := g.environ.get(name); value != "" {
			return true
		}
	}
	return false
}

// probes names the library that publishes the probes of a program.
func (g *gpuEnvironment) probes() {
	library := filepath.Join(g.libraries, probeLibrary)
	if _, set := g.environ.get("GRAPHSIGNAL_PROBE_LIB"); set || !exists(library) {
		return
	}
	if problem := libraryProblem(library); problem != "" {
		g.msg.warn("probes of programs without a GPU are not read: %s %s", library, problem)
		return
	}
	g.environ.set("GRAPHSIGNAL_PROBE_LIB", library)
}

// cuda names our library to the CUDA driver, last, and tells it where a CUPTI was found.
func (g *gpuEnvironment) cuda() {
	if !g.hasNvidiaDriver() && !g.hasToolkit() {
		g.msg.debug("no CUDA found")
		return
	}
	if preset, _ := g.environ.get("CUDA_INJECTION64_PATH"); preset != "" {
		g.msg.debug("CUDA_INJECTION64_PATH is set already: %s", preset)
		return
	}
	if isNsightCompute(g.program) {
		g.msg.warn("no CUDA profiling: Nsight Compute starts no program into which another library is injected")
		return
	}
	library := filepath.Join(g.libraries, cuptiLibrary)
	if !exists(library) {
		g.msg.debug("no CUDA profiling: %s is not there", library)
		return
	}
	if problem := libraryProblem(library); problem != "" {
		g.msg.warn("no CUDA profiling: %s %s", library, problem)
		return
	}
	candidates := g.cuptiCandidates()
	if len(candidates) > 0 {
		if preset, _ := g.environ.get("GRAPHSIGNAL_CUPTI_PATH"); preset != "" {
			candidates = append(filepath.SplitList(preset), candidates...)
		}
		g.environ.set("GRAPHSIGNAL_CUPTI_PATH", strings.Join(candidates, ":"))
	}
	g.environ.set("CUDA_INJECTION64_PATH", library)
	g.msg.debug("CUDA profiling on, CUPTI candidates %v", candidates)
}

// hasNvidiaDriver looks for the devices of the desktop and server driver, of WSL and of Jetson.
func (g *gpuEnvironment) hasNvidiaDriver() bool {
	return slices.ContainsFunc([]string{"/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu"},
		func(path string) bool { return exists(g.root + path) })
}

// hasToolkit looks for what CUDA's own images and installers leave, where the driver is not (yet) to be seen.
func (g *gpuEnvironment) hasToolkit() bool {
	for _, name := range []string{"CUDA_VERSION", "CUDA_TOOLKIT_VERSION", "CUDA_HOME", "CUDA_PATH"} {
		if value, _ := g.environ.get(name); value != "" {
			return true
		}
	}
	return exists(g.root+"/usr/local/cuda") || len(glob(g.root+"/usr/local/cuda-[0-9]*")) > 0
}

// cuptiCandidates lists the CUPTI libraries to try, best first: those of the workload's Python, of the CUDA toolkits
// and of the directories of the dynamic loader. The library picks by the driver's version.
func (g *gpuEnvironment) cuptiCandidates() []string {
	var directories []string
	for _, packages := range g.sitePackages() {
		// CUDA 13 wheels share one directory, those before have one per package.
		directories = append(directories, glob(packages+"/nvidia/cu[0-9]*/lib")...)
		directories = append(directories, packages+"/nvidia/cuda_cupti/lib")
	}
	for _, prefix := range g.pythonPrefixes() {
		// Conda's packages of CUDA lie beside its Python.
		directories = append(directories, prefix+"/lib")
	}
	for _, home := range g.cudaHomes() {
		directories = append(directories, home+"/extras/CUPTI/lib64", home+"/extras/CUPTI/lib", home+"/lib64",
			home+"/targets/"+cudaTarget()+"/lib")
	}
	if path, _ := g.environ.get("LD_LIBRARY_PATH"); path != "" {
		for _, directory := range filepath.SplitList(path) {
			if filepath.IsAbs(directory) {
				directories = append(directories, directory)
			}
		}
	}
	directories = append(directories, g.root+"/usr/lib/"+multiarch(), g.root+"/usr/lib64", g.root+"/usr/local/lib")

	var found []string
	seen := make(map[string]bool)
	for _, directory := range directories {
		if seen[directory] || strings.Contains(directory, ":") {
			continue
		}
		seen[directory] = true
		for _, file := range cuptiIn(directory) {
			if real, err := filepath.EvalSymlinks(file); err == nil && !seen[real] {
				seen[real] = true
				found = append(found, file)
			}
		}
	}
	return found
}

// cuptiIn lists the CUPTI of a directory by the names that the loader knows them by, newest first.
func cuptiIn(directory string) []string {
	if !exists(directory) {
		return nil
	}
	var files []string
	for _, version := range []string{"13", "12", "11.8", "11.7", "11.6", "11.5", "11.4"} {
		if file := directory + "/libcupti.so." + version; isFile(file) {
			files = append(files, file)
		}
	}
	return files
}

// cudaHomes lists the CUDA toolkits: the one that is asked for, else the default and all versions beside it.
func (g *gpuEnvironment) cudaHomes() []string {
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if home, _ := g.environ.get(name); home != "" {
			return []string{home}
		}
	}
	versions := glob(g.root + "/usr/local/cuda-[0-9]*")
	slices.SortFunc(versions, func(a, b string) int { return compareVersions(b, a) })
	return append([]string{g.root + "/usr/local/cuda"}, versions...)
}

// pythonPrefixes lists where the workload's Python, if it is one, may be installed.
func (g *gpuEnvironment) pythonPrefixes() []string {
	var prefixes []string
	add := func(interpreter string) {
		if interpreter != "" && filepath.IsAbs(interpreter) {
			prefixes = append(prefixes, filepath.Dir(filepath.Dir(interpreter)))
			// A virtual environment may see the packages of the interpreter it was made from.
			if real, err := filepath.EvalSymlinks(interpreter); err == nil {
				prefixes = append(prefixes, filepath.Dir(filepath.Dir(real)))
			}
		}
	}
	path := g.environ.searchPath()
	absolute, err := filepath.Abs(g.program.path)
	if err == nil {
		add(absolute)
		add(interpreterOf(absolute))
	}
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX", "UV_PROJECT_ENVIRONMENT"} {
		if prefix, _ := g.environ.get(name); prefix != "" {
			if prefix, err := filepath.Abs(prefix); err == nil {
				prefixes = append(prefixes, prefix)
			}
		}
	}
	for _, name := range []string{"python3", "python"} {
		if interpreter, err := lookup(name, path); err == nil {
			add(interpreter)
		}
	}
	if home, _ := g.environ.get("HOME"); home != "" {
		prefixes = append(prefixes, home+"/.local")
	}
	// What `uv run` runs in, without a word in the environment. Nobody else's libraries are taken from the working directory.
	if prefix, err := filepath.Abs(".venv"); err == nil && filepath.Base(g.program.path) == "uv" {
		prefixes = append(prefixes, prefix)
	}
	return prefixes
}

// sitePackages lists where the workload's Python, if it is one, has its packages.
func (g *gpuEnvironment) sitePackages() []string {
	var packages []string
	seen := make(map[string]bool)
	for _, prefix := range g.pythonPrefixes() {
		if seen[prefix] {
			continue
		}
		seen[prefix] = true
		for _, pattern := range []string{"/lib/python3*/site-packages", "/lib64/python3*/site-packages", "/lib/python3*/dist-packages"} {
			packages = append(packages, glob(prefix+pattern)...)
		}
	}
	return packages
}

// interpreterOf returns the absolute interpreter that a script's first line names, or nothing.
func interpreterOf(file string) string {
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	line, err := bufio.NewReader(io.LimitReader(f, 512)).ReadBytes('\n')
	if err != nil && len(line) == 0 {
		return ""
	}
	rest, ok := bytes.CutPrefix(line, []byte("#!"))
	if !ok {
		return ""
	}
	fields := strings.Fields(string(rest))
	if len(fields) == 0 {
		return ""
	}
	return fields[0]
}

// libraryProblem says why a library of ours cannot be loaded, or nothing. The loader does not find out in time that a
// file was cut short: the program would die of SIGBUS in it.
func libraryProblem(library string) string {
	if !isFile(library) {
		return "is not a file"
	}
	f, err := os.Open(library)
	if err != nil {
		return "cannot be read"
	}
	defer f.Close() //nolint:errcheck // only read
	// An ELF header: 64 bits, little-endian, shared object, the machine.
	header := make([]byte, 64)
	if _, err := io.ReadFull(f, header); err != nil || string(header[:6]) != "\x7fELF\x02\x01" ||
		string(header[16:18]) != "\x03\x00" || string(header[18:20]) != elfMachine() {
		return "is no shared library for this machine"
	}
	// The linker puts the section headers last.
	le := binary.LittleEndian
	offset, length := le.Uint64(header[40:]), uint64(le.Uint16(header[58:]))*uint64(le.Uint16(header[60:]))
	if info, err := f.Stat(); err != nil || uint64(info.Size()) < offset || uint64(info.Size())-offset < length {
		return "is cut short"
	}
	if !isExecutableMemory(library) {
		return "cannot be mapped for execution (is its file system mounted noexec?)"
	}
	return ""
}

// elfMachine is the architecture in an ELF header.
func elfMachine() string {
	if runtime.GOARCH == "arm64" {
		return "\xb7\x00"
	}
	return "\x3e\x00"
}

// multiarch is Debian's name of the architecture's library directory.
func multiarch() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}

// cudaTarget is the toolkit's name of the architecture.
func cudaTarget() string {
	if runtime.GOARCH == "arm64" {
		return "sbsa-linux"
	}
	return "x86_64-linux"
}

// compareVersions orders paths that end in -MAJOR.MINOR...
func compareVersions(a, b string) int {
	numbers := func(path string) (out []int) {
		_, version, _ := strings.Cut(filepath.Base(path), "-")
		for _, part := range strings.Split(version, ".") {
			n, _ := strconv.Atoi(part)
			out = append(out, n)
		}
		return out
	}
	return slices.Compare(numbers(a), numbers(b))
}

// glob is filepath.Glob for patterns of ours; what cannot be read matches nothing.
func glob(pattern string) []string {
	matches, _ := filepath.Glob(pattern)
	return matches
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
