package launcher

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"os"
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
		tags, _, _ := contextTags([]string{tagPrefix + tag})
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

// FuzzLibrary: a library is taken exactly when its header is that of one for this machine and its section headers, which the
// linker puts last, are all there.
func FuzzLibrary(f *testing.F) {
	header := func(kind, machine string, offset uint64, size, count uint16) []byte {
		h := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
		h = append(append(h, kind...), machine...)
		h = append(h, make([]byte, 20)...)
		h = binary.LittleEndian.AppendUint64(h, offset)
		h = append(h, make([]byte, 10)...)
		h = binary.LittleEndian.AppendUint16(h, size)
		h = binary.LittleEndian.AppendUint16(h, count)
		return append(h, 0, 0)
	}
	f.Add(header("\x03\x00", elfMachine(), 64, 64, 1))
	f.Add(append(header("\x03\x00", elfMachine(), 64, 64, 1), make([]byte, 64)...))
	f.Add(header("\x03\x00", elfMachine(), math.MaxUint64-63, 64, 1))
	f.Add(header("\x02\x00", elfMachine(), 0, 0, 0))
	f.Add([]byte("\x7fELF"))
	path := filepath.Join(f.TempDir(), "libx.so")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		taken := libraryProblem(path) == ""
		want := len(content) >= 64
		if want {
			end := new(big.Int).SetUint64(binary.LittleEndian.Uint64(content[40:]))
			end.Add(end, big.NewInt(int64(binary.LittleEndian.Uint16(content[58:]))*int64(binary.LittleEndian.Uint16(content[60:]))))
			want = string(content[:6]) == "\x7fELF\x02\x01" && string(content[16:18]) == "\x03\x00" && string(content[18:20]) == elfMachine() &&
				end.Cmp(big.NewInt(int64(len(content)))) <= 0
		}
		if taken != want {
			t.Fatalf("%q is taken: %v, want %v", content, taken, want)
		}
	})
}

// FuzzVersions: directories of versions have an order, and what is read of a version is one.
func FuzzVersions(f *testing.F) {
	f.Add("/opt/rocm-6.2.0", "/opt/rocm-6.10", "6.2.0-66\n")
	f.Add("cuda-12.", "cuda-12", " 7\n")
	f.Add("cuda", "x-99999999999999999999.-1", "v1")
	home := f.TempDir()
	if err := os.Mkdir(home+"/.info", 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, a, b, file string) {
		if ab, ba := compareVersions(a, b), compareVersions(b, a); ab != -ba || compareVersions(a, a) != 0 {
			t.Fatalf("%q and %q compare as %d and %d", a, b, ab, ba)
		}
		if err := os.WriteFile(home+"/.info/version", []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		g := &gpuEnvironment{environ: &environment{}}
		version := g.rocmVersion([]string{home})
		if strings.Trim(version, "0123456789.") != "" || strings.HasSuffix(version, ".") || !strings.HasPrefix(strings.TrimSpace(file), version) {
			t.Fatalf("%q is version %q", file, version)
		}
	})
}

// FuzzScript: the first line of a script names its interpreter, or nothing.
func FuzzScript(f *testing.F) {
	f.Add([]byte("#!/usr/bin/env python3\nx"))
	f.Add([]byte("#! \t/a/b -u\r\n"))
	f.Add([]byte("#!"))
	path := filepath.Join(f.TempDir(), "script")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		got := interpreterOf(path)
		line, _, _ := strings.Cut(string(content[:min(len(content), 512)]), "\n")
		if got != "" && (!strings.HasPrefix(line, "#!") || !strings.Contains(line, got) || strings.ContainsAny(got, " \t\n")) {
			t.Fatalf("%q is run by %q", content, got)
		}
		if got == "" && strings.HasPrefix(line, "#!") && len(strings.Fields(line[2:])) > 0 {
			t.Fatalf("%q is run by nothing", content)
		}
	})
}
