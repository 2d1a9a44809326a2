package launcher

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestParseOptions(t *testing.T) {
	env := map[string]string{}
	getenv := func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
	parse := func(line string) options {
		t.Helper()
		o, action, warnings, err := parseOptions(strings.Fields(line), getenv)
		if err != nil || action != actionRun || len(warnings) > 0 {
			t.Fatalf("%q: %v %v %v", line, action, warnings, err)
		}
		return o
	}

	o := parse("vllm serve m --metrics-port 1 --listen-port 2")
	if o.metricsPort != 0 || o.listenPort != defaultListenPort || o.listenHost != defaultListenHost || o.ownEndpoint || len(o.command) != 7 {
		t.Errorf("the workload's options were taken: %+v", o)
	}
	o = parse("--listen-port 1 --metrics-port=2 --listen-host h --listen-port=3 --cuda-graph-trace NODE --rocm-kernel-trace=all -- --listen-port 9")
	if o.listenPort != 3 || o.metricsPort != 2 || o.listenHost != "h" || o.cudaGraphTrace != "node" || o.rocmKernelTrace != "all" ||
		!o.ownEndpoint || strings.Join(o.command, " ") != "--listen-port 9" {
		t.Errorf("%+v", o)
	}
	o = parse("- x")
	if o.command[0] != "-" {
		t.Errorf("%+v", o)
	}

	env = map[string]string{"GRAPHSIGNAL_LISTEN_HOST": "0.0.0.0", "GRAPHSIGNAL_LISTEN_PORT": "1234", "GRAPHSIGNAL_OUTPUT": "f.json", "GRAPHSIGNAL_DEBUG": " Yes "}
	o = parse("true")
	if o.listenHost != "0.0.0.0" || o.listenPort != 1234 || !filepath.IsAbs(o.output) || !o.debug || o.ownEndpoint {
		t.Errorf("%+v", o)
	}
	o = parse("--listen-host ::1 --listen-port 5 --output /g true")
	if o.listenHost != "::1" || o.listenPort != 5 || o.output != "/g" {
		t.Errorf("%+v", o)
	}
	env = map[string]string{"GRAPHSIGNAL_LISTEN_HOST": " ", "GRAPHSIGNAL_DEBUG": "on"}
	if o = parse("true"); o.listenHost != defaultListenHost || o.debug {
		t.Errorf("%+v", o)
	}
}
