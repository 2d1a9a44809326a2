package launcher

import (
	"fmt"
	"path/filepath"
	"slices"
)

// NVIDIA's tools that start a program and follow it from process to process, by a variable that each sets. They follow
// through the C library: what a statically linked program like this one starts is lost to them, and waits for ever for
// a tool that does not come. A program that takes this one's place is followed.
var followers = []struct{ variable, tool string }{
	{"NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute"},
	{"NV_SANITIZER_INJECTION_TRANSPORT_TYPE", "Compute Sanitizer"},
}

// followed says which tool could not follow the workload through the launcher, or nil.
func followed(environ environment) error {
	for _, f := range followers {
		if value, _ := environ.get(f.variable); value != "" {
			return fmt.Errorf("%s cannot follow the command through the launcher; start it inside, as the launcher's command", f.tool)
		}
	}
	return nil
}

// isNsightCompute reports whether a program is Nsight Compute, which refuses to run when CUDA_INJECTION64_PATH is set.
func isNsightCompute(p program) bool {
	return slices.Contains([]string{"ncu", "nv-nsight-cu-cli"}, filepath.Base(p.path))
}
