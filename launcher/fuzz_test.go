package launcher

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/launcher/engines"
)

// FuzzOptions: what is accepted is in range and leaves the command untouched, and written out it reads as the same.
func FuzzOptions(f *testing.F) {
	for _, seed := range []string{
		"true", "--listen-port\x001\x00--metrics-port=2\x00--\x00--x", "--listen-host\x00 \x00a", "--cuda-graph-trace\x00NODE\x00a", "--rocm-kernel-trace=none\x00a",
		"--attach\x0012", "--print-environment\x00--output\x00f\x00a", "-h", "-V", "--x", "--", "-", "--listen-port=65536\x00a", "--output=\x00a",
	} {
		f.Add(seed, "0.0.0.0", "1234", "f.json")
	}
	f.Fuzz(func(t *testing.T, joined, host, port, output string) {
		env := map[string]string{"GRAPHSIGNAL_LISTEN_HOST": host, "GRAPHSIGNAL_LISTEN_PORT": port, "GRAPHSIGNAL_OUTPUT": output}
		args := strings.Split(joined, "\x00")
		given := slices.Clone(args)
		o, a, warnings, err := parseOptions(args, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if !slices.Equal(args, given) {
			t.Fatalf("%q became %q", given, args)
		}
		if err != nil {
			if usage := (*usageError)(nil); !errors.As(err, &usage) || usage.text == "" {
				t.Fatalf("%q: %v", args, err)
			}
			return
		}
		if a == actionHelp || a == actionVersion {
			return
		}
		if len(warnings) > 1 || (a == actionAttach) != (o.attach > 0) || (a == actionAttach) == (len(o.command) > 0) ||
			!slices.Equal(o.command, args[len(args)-len(o.command):]) {
			t.Fatalf("%q: action %d, %+v, %q", args, a, o, warnings)
		}
		if o.listenPort < 1 || o.listenPort > 65535 || o.metricsPort < 0 || o.metricsPort > 65535 || o.listenHost == "" ||
			o.output != "" && !filepath.IsAbs(o.output) || !slices.Contains([]string{"", "graph", "node"}, o.cudaGraphTrace) ||
			!slices.Contains([]string{"", "none", "all"}, o.rocmKernelTrace) {
			t.Fatalf("%q: %+v", args, o)
		}
		again := []string{"--listen-host", o.listenHost, "--listen-port=" + strconv.Itoa(o.listenPort)}
		for name, value := range map[string]string{"--output": o.output, "--cuda-graph-trace": o.cudaGraphTrace, "--rocm-kernel-trace": o.rocmKernelTrace} {
			if value != "" {
				again = append(again, name, value)
			}
		}
		if o.metricsPort > 0 {
			again = append(again, "--metrics-port", strconv.Itoa(o.metricsPort))
		}
		switch a {
		case actionAttach:
			again = append(again, "--attach", strconv.Itoa(o.attach))
		case actionPrintEnvironment:
			again = append(again, "--print-environment")
			fallthrough
		default:
			again = append(append(again, "--"), o.command...)
		}
		o2, a2, _, err := parseOptions(again, func(string) (string, bool) { return "", false })
		if o2.ownEndpoint = o.ownEndpoint; err != nil || a2 != a || !slices.Equal(o2.command, o.command) {
			t.Fatalf("%q, written out %q: %v, action %d, %+v", args, again, err, a2, o2)
		}
		o.command, o2.command = nil, nil
		if o.listenHost != o2.listenHost || o.listenPort != o2.listenPort || o.output != o2.output || o.metricsPort != o2.metricsPort ||
			o.cudaGraphTrace != o2.cudaGraphTrace || o.rocmKernelTrace != o2.rocmKernelTrace || o.attach != o2.attach {
			t.Fatalf("%q is %+v, written out %+v", args, o, o2)
		}
	})
}

// FuzzControl: every whole line up to the limit arrives, however the bytes are cut, and no part of a longer one.
func FuzzControl(f *testing.F) {
	f.Add([]byte("ready\nbind_failed 127.0.0.1:1: in use\nbound"), 3)
	f.Add([]byte(strings.Repeat("x", maxControlLine)+"ready\nbound a\n"), 4096)
	f.Add([]byte(strings.Repeat("x", maxControlLine-1)+"\n"+strings.Repeat("y", 2*maxControlLine)+"\n\n\r\n"), 1000)
	f.Fuzz(func(t *testing.T, said []byte, size int) {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(ends[0]) //nolint:errcheck // nothing is left in it
		go func() {
			for chunk := range slices.Chunk(said, max(1, min(size, 1<<16))) {
				_, _ = descriptor(ends[1]).Write(chunk)
			}
			_ = unix.Close(ends[1])
		}()
		lines := make(chan controlLine)
		life := &sidecarProcess{control: ends[0]}
		go readControl(life, lines)
		var got, want []string
		for line := range lines {
			if line.from != life {
				t.Fatal("a line of another life")
			}
			if line.ended {
				break
			}
			got = append(got, line.text)
		}
		for line := range strings.Lines(string(said)) {
			if strings.HasSuffix(line, "\n") && len(line) <= maxControlLine {
				want = append(want, strings.TrimSpace(line))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%.200q gives %d lines, want %d: %.200q, want %.200q", said, len(got), len(want), got, want)
		}
	})
}

// FuzzRenderConfig: the configuration is JSON and YAML, and says of a command line and of tags exactly what they are.
func FuzzRenderConfig(f *testing.F) {
	f.Add("vllm\x00serve\x00$HOME ${env:X}\x00\u0085\ufeff\uffff\x7f\xff", "TEAM=In$fra", "/dev/shm/x", "http://127.0.0.1:4317")
	f.Add("", "=", "", "")
	f.Add("\x00\u2028<>&'\"\\ # : - {}", "A\nB=c\nd", "a\x00b", "https://[::1]/$x/")
	f.Fuzz(func(t *testing.T, joined, tag, console, otlp string) {
		tags, _ := contextTags([]string{tagPrefix + tag})
		in := &renderInput{
			options: options{listenHost: "127.0.0.1", listenPort: 18259, output: console}, pid: 7, commandLine: strings.Split(joined, "\x00"),
			tags: tags, engine: engines.VLLM, endpoint: &engines.Endpoint{Host: tag, Port: 1, Path: "/" + tag}, console: console,
			otlpEndpoint: otlp, upload: uploadInput{base: "https://" + tag, keyInEnvironment: true},
		}
		config, err := renderConfig(in)
		if err != nil {
			if otlp == "" {
				t.Fatal(err)
			}
			return
		}
		type document struct {
			Extensions struct {
				Workload struct {
					CommandLine []string `json:"command_line" yaml:"command_line"`
				} `json:"workload" yaml:"workload"`
			} `json:"extensions" yaml:"extensions"`
			Exporters struct {
				Signals struct {
					Tags   map[string]string `json:"tags" yaml:"tags"`
					Output string            `json:"output" yaml:"output"`
				} `json:"signals" yaml:"signals"`
				Graphsignal struct {
					Key string `json:"api_key" yaml:"api_key"`
				} `json:"graphsignal" yaml:"graphsignal"`
			} `json:"exporters" yaml:"exporters"`
		}
		var asJSON, asYAML document
		if err := json.Unmarshal(config, &asJSON); err != nil {
			t.Fatalf("not JSON: %v: %q", err, config)
		}
		if err := yaml.Unmarshal(config, &asYAML); err != nil {
			t.Fatalf("not YAML: %v: %q", err, config)
		}
		literal := func(s string) string { return strings.ReplaceAll(string([]rune(s)), "$", "$$") }
		for _, d := range []document{asJSON, asYAML} {
			for i, word := range in.commandLine {
				if got := d.Extensions.Workload.CommandLine[i]; got != literal(word) {
					t.Fatalf("the word %q is %q", word, got)
				}
			}
			if len(d.Extensions.Workload.CommandLine) != len(in.commandLine) || len(d.Exporters.Signals.Tags) != len(tags) ||
				d.Exporters.Signals.Output != literal(console) || d.Exporters.Graphsignal.Key != "${env:"+apiKeyVariable+"}" {
				t.Fatalf("%+v", d)
			}
			for key, value := range tags {
				if got, ok := d.Exporters.Signals.Tags[literal(key)]; !ok || got != literal(value) {
					t.Fatalf("the tag %q=%q is %q", key, value, got)
				}
			}
		}
	})
}
