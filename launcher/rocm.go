package launcher

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// rocm puts our library among the tools of rocprofiler-sdk. The SDK ends a program whose tool it cannot load, so that
// everything is checked before, and the variable is set last.
func (g *gpuEnvironment) rocm() {
	if runtime.GOARCH != "amd64" {
		return
	}
	homes := g.rocmHomes()
	hasDevice := exists(g.root + "/dev/kfd")
	if len(homes) == 0 && !hasDevice {
		g.msg.debug("no ROCm found")
		return
	}
	library := filepath.Join(g.libraries, rocmLibrary)
	if !exists(library) {
		g.msg.debug("no ROCm profiling: %s is not there", library)
		return
	}
	if problem := toolProblem(library); problem != "" {
		g.msg.warn("no ROCm profiling: %s %s", library, problem)
		return
	}
	version := g.rocmVersion(homes)
	if !g.hasRocprofiler(homes) {
		// Programs of a machine without a device run on CPUs: no reason to complain.
		if hasDevice {
			g.msg.warn("no ROCm profiling: rocprofiler-sdk (ROCm 6.2 or newer, package rocprofiler-sdk) is not installed; ROCm %s found in %s",
				cmp.Or(version, "of unknown version"), cmp.Or(strings.Join(homes, ", "), "no directory"))
		} else {
			g.msg.debug("no ROCm profiling: no rocprofiler-sdk")
		}
		return
	}
	preset, _ := g.environ.get("ROCP_TOOL_LIBRARIES")
	g.environ.set("ROCP_TOOL_LIBRARIES", withTool(preset, library))
	g.msg.debug("ROCm profiling on, ROCm %s", cmp.Or(version, "of unknown version"))
}

// withTool puts a tool first in a list of tools that does not have it yet, nor one of its name from another place: the two
// would write the same document. A list of several ends with a colon: the SDK overlooks what comes after the last one.
func withTool(list, library string) string {
	tools := slices.DeleteFunc(strings.Split(list, ":"), func(tool string) bool { return tool == "" })
	if !slices.ContainsFunc(tools, func(tool string) bool { return filepath.Base(tool) == filepath.Base(library) }) {
		tools = slices.Insert(tools, 0, library)
	}
	if len(tools) == 1 {
		return tools[0]
	}
	return strings.Join(tools, ":") + ":"
}

// toolProblem says why the SDK could not load a library, or nothing.
func toolProblem(library string) string {
	switch {
	case !filepath.IsAbs(library):
		return "is not an absolute path"
	case strings.Contains(library, ":"):
		return "has a colon in its path, which ROCP_TOOL_LIBRARIES cannot hold"
	}
	return libraryProblem(library)
}

// isExecutableMemory reports whether the loader may map a file as code.
func isExecutableMemory(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	code, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return false
	}
	return unix.Munmap(code) == nil
}

// rocmHomes lists the ROCm installations: those that are asked for, the default, and all versions beside it.
func (g *gpuEnvironment) rocmHomes() []string {
	var homes []string
	add := func(home string) {
		if home != "" && !slices.Contains(homes, home) && exists(home) {
			homes = append(homes, home)
		}
	}
	for _, name := range []string{"ROCM_PATH", "ROCM_HOME"} {
		home, _ := g.environ.get(name)
		add(home)
	}
	add(g.root + "/opt/rocm")
	versions := glob(g.root + "/opt/rocm-[0-9]*")
	slices.SortFunc(versions, func(a, b string) int { return compareVersions(b, a) })
	for _, home := range versions {
		add(home)
	}
	return homes
}

var (
	leadingVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*`)
	versionInPath  = regexp.MustCompile(`rocm-([0-9]+(?:\.[0-9]+)*)`)
)

// rocmVersion is the version of the first installation that tells one: by variable, by the files that the packages
// leave, or by the directory's name. Empty when unknown. (The number in the SDK's file name is another one.)
func (g *gpuEnvironment) rocmVersion(homes []string) string {
	for _, name := range []string{"ROCM_VERSION", "ROCM_TOOLKIT_VERSION"} {
		value, _ := g.environ.get(name)
		if version := leadingVersion.FindString(strings.TrimSpace(value)); version != "" {
			return version
		}
	}
	for _, home := range homes {
		for _, name := range []string{"version", "version-dev", "version-utils"} {
			if version := leadingVersion.FindString(strings.TrimSpace(readStart(home + "/.info/" + name))); version != "" {
				return version
			}
		}
		real, err := filepath.EvalSymlinks(home)
		if err != nil {
			real = home
		}
		for _, path := range []string{home, real} {
			if match := versionInPath.FindStringSubmatch(path); match != nil {
				return match[1]
			}
		}
	}
	return ""
}

// hasRocprofiler looks for rocprofiler-sdk where the system's packages and the Python wheels have it.
func (g *gpuEnvironment) hasRocprofiler(homes []string) bool {
	var directories []string
	for _, home := range homes {
		directories = append(directories, home+"/lib", home+"/lib64")
	}
	if path, _ := g.environ.get("LD_LIBRARY_PATH"); path != "" {
		directories = append(directories, filepath.SplitList(path)...)
	}
	directories = append(directories, g.root+"/usr/lib/"+multiarch(), g.root+"/usr/lib64", g.root+"/usr/local/lib")
	has := func(directory string) bool { return len(glob(directory+"/librocprofiler-sdk.so*")) > 0 }
	if slices.ContainsFunc(directories, has) {
		return true
	}
	return slices.ContainsFunc(g.sitePackages(), func(packages string) bool {
		return has(packages+"/_rocm_sdk_core/lib") || has(packages+"/torch/lib")
	})
}

// readStart returns the beginning of a small file, or nothing.
func readStart(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return ""
	}
	return string(text)
}
