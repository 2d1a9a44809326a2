package launcher

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestSidecarConfiguration(t *testing.T) {
	l, _ := runToEnd(t, settings{env: []string{"GRAPHSIGNAL_TAG_TEAM_NAME=In$fra ${env:HOME}", "GRAPHSIGNAL_TAG_EMPTY=",
		"POD_UID=pod-1", "GRAPHSIGNAL_OTLP_ENDPOINT=http://127.0.0.1:4318/"}},
		"--listen-host", "::1", "--listen-port", "18402", "--metrics-port", "18403", "--output", "out.json",
		"sh", "-c", "exit 0", "--api-key", "zz-secret", "co$t \x7f\u2028")
	var config struct {
		Extensions struct {
			Workload struct {
				PID         int      `json:"pid"`
				ControlFD   int      `json:"control_fd"`
				CommandLine []string `json:"command_line"`
				Start       int64    `json:"start_time_unix_nano"`
			}
		}
		Receivers map[string]map[string]any
		Exporters map[string]map[string]any
		Service   struct {
			Extensions []string
			Pipelines  map[string]struct{ Receivers, Processors, Exporters []string }
		}
	}
	text := l.recorded("config.json")
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	w := config.Extensions.Workload
	if w.PID == 0 || w.ControlFD != 4 || w.Start == 0 {
		t.Errorf("workload %+v", w)
	}
	if got := strings.Join(w.CommandLine, "|"); got != "sh|-c|exit 0|--api-key|***|co$$t \x7f\u2028" {
		t.Errorf("command line %q", got)
	}
	if strings.Contains(text, "\x7f") {
		t.Error("a character that YAML does not allow")
	}
	signals := config.Exporters["signals"]
	tags := signals["tags"].(map[string]any)
	if signals["endpoint"] != "[::1]:18402" || !filepath.IsAbs(signals["output"].(string)) ||
		tags["team_name"] != "In$$fra $${env:HOME}" || tags["empty"] != "" || tags["pod.uid"] != "pod-1" ||
		len(tags["instance.id"].(string)) != 12 || tags["host.name"] == "" {
		t.Errorf("signals %v", signals)
	}
	if e := config.Receivers["engine"]; e["endpoint"] != "http://127.0.0.1:18403" || e["metrics_path"] != "/metrics" || e["verify_owner"] != false {
		t.Errorf("engine %v", e)
	}
	for pipeline, want := range map[string]string{"metrics": "cupti probe process engine", "logs": "cupti probe console"} {
		receivers := config.Service.Pipelines[pipeline].Receivers
		for receiver := range strings.FieldsSeq(want) {
			if !slices.Contains(receivers, receiver) {
				t.Errorf("%s is not among the receivers of %s: %v", receiver, pipeline, receivers)
			}
		}
	}
	if got := config.Service.Pipelines["logs/otlp"]; strings.Join(got.Exporters, " ") != "otlp_http" || strings.Join(got.Processors, " ") != "resource/context" {
		t.Errorf("tee %v", got)
	}
	if got := l.recorded("args"); got != "--config=file:/proc/self/fd/3" {
		t.Errorf("arguments %q", got)
	}
}

// TestRelativeFolders: the run directories are in one place for the program, wherever it goes, and the sidecar, which takes no
// relative path.
func TestRelativeFolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "shm"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, status := runToEnd(t, settings{dir: dir, env: []string{"GRAPHSIGNAL_SHM_PATH=shm", "GRAPHSIGNAL_PROCFS_PATH="}},
		"sh", "-c", `echo "$GRAPHSIGNAL_SHM_PATH"`)
	want := filepath.Join(dir, "shm")
	if status.ExitStatus() != 0 || l.stdout.String() != want+"\n" {
		t.Errorf("status %#x, the workload has %q", status, l.stdout.String())
	}
	if config := l.recorded("config.json"); !strings.Contains(config, `"shm_path":"`+want+`"`) || strings.Contains(config, `"shm_path":"shm"`) {
		t.Errorf("the sidecar has %s", config)
	}
}

func TestSidecarEnvironment(t *testing.T) {
	l, _ := runToEnd(t, settings{env: []string{"LD_BIND_NOW=1", "CUDA_INJECTION64_PATH=/x.so", "ROCP_TOOL_LIBRARIES=/y.so",
		"GOMAXPROCS=7", "GRAPHSIGNAL_API_KEY=k"}}, "sh", "-c", `echo "$LD_BIND_NOW $CUDA_INJECTION64_PATH $GOMAXPROCS"`)
	if l.stdout.String() != "1 /x.so 7\n" {
		t.Errorf("the workload has %q", l.stdout.String())
	}
	environ := "\n" + l.recorded("environ") + "\n"
	for _, absent := range []string{"LD_BIND_NOW=", "CUDA_INJECTION64_PATH=", "ROCP_TOOL_LIBRARIES="} {
		if strings.Contains(environ, "\n"+absent) {
			t.Errorf("the sidecar has %s", absent)
		}
	}
	for _, present := range []string{"GOMAXPROCS=1", "GOMEMLIMIT=128MiB", "GRAPHSIGNAL_API_KEY=k"} {
		if !strings.Contains(environ, "\n"+present+"\n") {
			t.Errorf("the sidecar lacks %s", present)
		}
	}
	if l.recorded("session") != l.recorded("life-0") {
		t.Error("the sidecar has no session of its own")
	}
}

func TestSidecarLife(t *testing.T) {
	for _, c := range []struct {
		name, mode string
		env        []string
		lives      int
		// script runs until the stand-in has done what is tested; stderr is what must be said, once.
		script, stderr string
	}{
		{name: "well", lives: 1, script: "while [ ! -e $FAKE_RECORD/ready-0 ]; do sleep 0.01; done"},
		{name: "short workload", lives: 1, script: ":"},
		{name: "crash", mode: "crash", lives: 2, script: "while [ ! -e $FAKE_RECORD/life-1 ]; do sleep 0.01; done; sleep 0.3",
			stderr: "ended again (exit status 3)"},
		{name: "crash once", mode: "crash-once", lives: 2, script: "while [ ! -e $FAKE_RECORD/ready-1 ]; do sleep 0.01; done"},
		{name: "bad user configuration", mode: "crash-with-user", env: []string{"GRAPHSIGNAL_COLLECTOR_CONFIG=/a.yaml,/b.yaml"},
			lives: 2, script: "while [ ! -e $FAKE_RECORD/ready-1 ]; do sleep 0.01; done", stderr: "without GRAPHSIGNAL_COLLECTOR_CONFIG"},
		{name: "user configuration", env: []string{"GRAPHSIGNAL_COLLECTOR_CONFIG=/a.yaml, /b.yaml"}, lives: 1,
			script: "while [ ! -e $FAKE_RECORD/ready-0 ]; do sleep 0.01; done"},
		{name: "does not end", mode: "ignore-end", lives: 1, script: "while [ ! -e $FAKE_RECORD/config.json ]; do sleep 0.01; done"},
		{name: "endpoint taken", mode: "bind-failed", lives: 1, script: "while [ ! -e $FAKE_RECORD/ready-0 ]; do sleep 0.01; done",
			stderr: "127.0.0.1:18259: address already in use"},
		{name: "crash at the end", mode: "crash-at-end", env: []string{"GRAPHSIGNAL_OUTPUT=/tmp/final.json"}, lives: 1,
			script: "while [ ! -e $FAKE_RECORD/ready-0 ]; do sleep 0.01; done", stderr: "/tmp/final.json may not have been written"},
		{name: "reason at the end", mode: "warn-at-end", env: []string{"GRAPHSIGNAL_OUTPUT=/tmp/final.json"}, lives: 1,
			script: "while [ ! -e $FAKE_RECORD/ready-0 ]; do sleep 0.01; done", stderr: "graphsignal-run: there is a reason"},
		{name: "bad tee", env: []string{"GRAPHSIGNAL_OTLP_ENDPOINT=nonsense"}, lives: 1, script: ":", stderr: "GRAPHSIGNAL_OTLP_ENDPOINT"},
		{name: "bad port in the environment", env: []string{"GRAPHSIGNAL_LISTEN_PORT=x"}, lives: 1, script: ":", stderr: "GRAPHSIGNAL_LISTEN_PORT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, status := runToEnd(t, settings{env: append(c.env, "FAKE_MODE="+c.mode)}, "sh", "-c", c.script+"; echo done; exit 5")
			if status.ExitStatus() != 5 || l.stdout.String() != "done\n" {
				t.Errorf("status %#x stdout %q", status, l.stdout.String())
			}
			if lives, _ := filepath.Glob(filepath.Join(l.record, "life-*")); len(lives) != c.lives {
				t.Errorf("%d lives, want %d", len(lives), c.lives)
			}
			stderr := l.stderr.String()
			if c.stderr == "" && stderr != "" || c.stderr != "" && (strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.stderr)) {
				t.Errorf("stderr %q", stderr)
			}
			switch c.name {
			case "user configuration":
				want := "--config=file:/proc/self/fd/3\n--config=file:/a.yaml\n--config=file:/b.yaml\n--feature-gates=confmap.enableMergeAppendOption"
				if got := l.recorded("args"); got != want {
					t.Errorf("arguments %q", got)
				}
			case "does not end":
				if _, err := os.Stat(filepath.Join(l.record, "drained")); err == nil {
					t.Error("it was to be killed")
				}
			}
		})
	}
}

func TestSidecarMissing(t *testing.T) {
	alone := filepath.Join(t.TempDir(), "graphsignal-run")
	if err := os.Link(launcherBinary, alone); err != nil {
		content, readErr := os.ReadFile(launcherBinary)
		if readErr != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(alone, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, status := runToEnd(t, settings{binary: alone}, "sh", "-c", "echo out; echo err >&2; exit 6")
	if status.ExitStatus() != 6 || l.stdout.String() != "out\n" || !strings.HasSuffix(l.stderr.String(), "err\n") ||
		strings.Count(l.stderr.String(), "\n") != 2 || !strings.Contains(l.stderr.String(), "graphsignal-collector is neither") {
		t.Errorf("%#x %q %q", status, l.stdout.String(), l.stderr.String())
	}
}

func TestSignalDuringTheEndCutsItShort(t *testing.T) {
	l := start(t, settings{env: []string{"FAKE_MODE=ignore-end", "GRAPHSIGNAL_DEBUG=1"}}, "sh", "-c", "exit 5")
	l.recorded("config.json")
	// Whether it comes before or in the wait, the status is the workload's.
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	if status := l.wait(); status.ExitStatus() != 5 && status.Signal() != syscall.SIGTERM {
		t.Errorf("%#x", status)
	}
}

func TestDebugShowsNoSecrets(t *testing.T) {
	l, _ := runToEnd(t, settings{env: []string{"GRAPHSIGNAL_DEBUG=1", "GRAPHSIGNAL_API_KEY=zz-own-888"}},
		"sh", "-c", "exit 0", "--api-key", "zz-first-111", "--hf-token=zz-third-333")
	stderr := l.stderr.String()
	if strings.Contains(stderr, "zz-") || !strings.Contains(stderr, "--api-key ***") {
		t.Errorf("%q", stderr)
	}
}
