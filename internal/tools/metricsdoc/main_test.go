package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestLibrariesAreComplete: libraries.yaml lists exactly what the native libraries write.
func TestLibrariesAreComplete(t *testing.T) {
	var sections []section
	if err := yaml.Unmarshal(libraries, &sections); err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for _, s := range sections {
		for i := 0; i < len(s.Metrics.Content); i += 2 {
			listed[s.Metrics.Content[i].Value] = true
		}
	}
	name := regexp.MustCompile(`"((?:cuda|rocm|graphsignal_probe|graphsignal_writer)_[a-z_]+)"`)
	written := make(map[string]bool)
	for _, dir := range []string{"common", "cupti", "rocm", "probe"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "..", "inject", dir, "*.cpp"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no sources in %s: %v", dir, err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range name.FindAllSubmatch(source, -1) {
				written[string(match[1])] = true
			}
		}
	}
	for name := range written {
		if !listed[name] {
			t.Errorf("%s is written and not listed", name)
		}
	}
	for name := range listed {
		if !written[name] {
			t.Errorf("%s is listed and not written", name)
		}
	}
}

// TestPrometheusNames: the names of each kind, as e2e's TestPrometheus sees them on a real page.
func TestPrometheusNames(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"cuda_kernels_nanoseconds":   {"profile: {}", "cuda_kernels_nanoseconds_total cuda_kernels_samples_total"},
		"rows":                       {"profile: {}", "rows_total rows_samples_total"},
		"cuda_memcpy_bytes":          {"sum: {monotonic: true}", "cuda_memcpy_bytes_total"},
		"switches_total":             {"sum: {monotonic: true}", "switches_total"},
		"process_cpu_usage_percent":  {"gauge: {}", "process_cpu_usage_percent"},
		"process_memory_usage_bytes": {"gauge: {}", "process_memory_usage_bytes"},
		"step_nanoseconds":           {"histogram: {}", "step_nanoseconds_bucket step_nanoseconds_sum step_nanoseconds_count"},
	} {
		var m metric
		if err := yaml.Unmarshal([]byte(c.yaml), &m); err != nil {
			t.Fatal(err)
		}
		_, names, err := m.exported(name)
		if got := strings.Join(names, " "); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
	if _, _, err := (metric{}).exported("x"); err == nil {
		t.Error("a metric without a kind is accepted")
	}
}
