package launcher

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// sleeper starts a process to attach to, and returns its pid.
func sleeper(t *testing.T, words ...string) int {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// TestAttachBecomesTheSidecar: the Collector runs under the launcher's own pid, for the process, without control channel
// and console, and with nothing on its streams.
func TestAttachBecomesTheSidecar(t *testing.T) {
	pid := sleeper(t, "sleep", "1000")
	l := start(t, settings{env: []string{"FAKE_MODE=ignore-end", "GRAPHSIGNAL_TAG_TEAM=Infra", "CUDA_INJECTION64_PATH=/x"}},
		"--listen-port", strconv.Itoa(freeport.Get(t)), "--attach", strconv.Itoa(pid))
	var config struct {
		Extensions struct {
			Workload struct {
				PID         int      `json:"pid"`
				ControlFD   int      `json:"control_fd"`
				CommandLine []string `json:"command_line"`
			} `json:"workload"`
		} `json:"extensions"`
		Receivers map[string]any `json:"receivers"`
		Exporters struct {
			Signals struct {
				Tags map[string]string `json:"tags"`
			} `json:"signals"`
		} `json:"exporters"`
	}
	rendered, life := l.recorded("config.json"), l.recorded("life-0")
	if life != strconv.Itoa(l.cmd.Process.Pid) {
		t.Errorf("the Collector is process %s, the launcher was %d", life, l.cmd.Process.Pid)
	}
	if err := json.Unmarshal([]byte(rendered), &config); err != nil {
		t.Fatal(err)
	}
	w := config.Extensions.Workload
	if w.PID != pid || w.ControlFD != 0 || strings.Join(w.CommandLine, " ") != "sleep 1000" {
		t.Errorf("workload is %+v", w)
	}
	if _, there := config.Receivers["console"]; there || config.Receivers["cupti"] == nil {
		t.Errorf("receivers are %v", config.Receivers)
	}
	if config.Exporters.Signals.Tags["team"] != "Infra" {
		t.Errorf("tags are %v", config.Exporters.Signals.Tags)
	}
	if environ := l.recorded("environ"); strings.Contains(environ, "CUDA_INJECTION64_PATH") {
		t.Error("the Collector would be profiled")
	}
	for _, fd := range []string{"0", "1", "2"} {
		if target, err := os.Readlink("/proc/" + life + "/fd/" + fd); err != nil || target != "/dev/null" {
			t.Errorf("descriptor %s is %q, %v", fd, target, err)
		}
	}
}

func TestAttachRefusals(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	l, status := runToEnd(t, settings{}, "--attach", strconv.Itoa(ended.Process.Pid))
	if status.ExitStatus() != 1 || !strings.Contains(l.stderr.String(), "there is no process") {
		t.Errorf("%d, %q", status.ExitStatus(), l.stderr.String())
	}
	pid := sleeper(t, "sleep", "1000")
	for _, args := range [][]string{
		{"--attach"}, {"--attach", "0"}, {"--attach", "x"}, {"--attach", "-4"},
		{"--attach", strconv.Itoa(pid), "true"}, {"--attach", strconv.Itoa(pid), "--print-environment"},
		{"--print-environment"},
	} {
		l, status := runToEnd(t, settings{}, args...)
		if status.ExitStatus() != exitUsage || !strings.HasPrefix(l.stderr.String(), "graphsignal-run: ") {
			t.Errorf("%q: %d, %q", args, status.ExitStatus(), l.stderr.String())
		}
	}
}

// TestAttachBelowALauncher: the outer launcher's sidecar sees the process already.
func TestAttachBelowALauncher(t *testing.T) {
	l, status := runToEnd(t, settings{}, "sh", "-c", `"$0" --attach $$`, launcherBinary)
	if status.ExitStatus() != 1 || !strings.Contains(l.stderr.String(), "under graphsignal-run already") {
		t.Errorf("%d, %q", status.ExitStatus(), l.stderr.String())
	}
}

// TestAttachSaysWhenThePortIsTaken: the Collector itself has nobody to tell.
func TestAttachSaysWhenThePortIsTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	l, _ := runToEnd(t, settings{env: []string{"FAKE_MODE=crash"}}, "--listen-port", port, "--attach", strconv.Itoa(sleeper(t, "sleep", "1000")))
	if !strings.Contains(l.stderr.String(), "the endpoint is not available (retrying): 127.0.0.1:"+port+": address already in use") {
		t.Errorf("%q", l.stderr.String())
	}
	if want := "http://127.0.0.1:" + port + "/signals"; !strings.Contains(l.stdout.String(), want) {
		t.Errorf("%q", l.stdout.String())
	}
}

// TestAttachWithConfiguration: the user's files are used if the Collector accepts them; if not, that is said before nobody
// is there any more to say it.
func TestAttachWithConfiguration(t *testing.T) {
	pid := strconv.Itoa(sleeper(t, "sleep", "1000"))
	for mode, used := range map[string]bool{"crash": true, "crash-with-user": false} {
		t.Run(mode, func(t *testing.T) {
			l, _ := runToEnd(t, settings{env: []string{"FAKE_MODE=" + mode, "GRAPHSIGNAL_COLLECTOR_CONFIG=a.yaml, b.yaml"}},
				"--listen-port", strconv.Itoa(freeport.Get(t)), "--attach", pid)
			args := l.recorded("args")
			if got := strings.Contains(args, "--config=file:a.yaml\n--config=file:b.yaml\n--feature-gates="); got != used {
				t.Errorf("the Collector's arguments are %q", args)
			}
			const said = "running without GRAPHSIGNAL_COLLECTOR_CONFIG (exit status 3): Error: unknown type nosuch"
			if strings.Contains(l.stderr.String(), said) == used {
				t.Errorf("%q", l.stderr.String())
			}
		})
	}
}

func TestPrintEnvironment(t *testing.T) {
	prefix := t.TempDir()
	for _, name := range []string{"bin", "lib/graphsignal", "cuda/extras/CUPTI/lib64"} {
		if err := os.MkdirAll(filepath.Join(prefix, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := filepath.Join(prefix, "bin", "graphsignal-run")
	data, err := os.ReadFile(launcherBinary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(run, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cupti := filepath.Join(prefix, "cuda/extras/CUPTI/lib64/libcupti.so.13")
	for _, name := range []string{filepath.Join(prefix, "lib/graphsignal", cuptiLibrary), filepath.Join(prefix, "lib/graphsignal", probeLibrary), cupti} {
		if err := os.WriteFile(name, []byte(elfLibrary), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, status := runToEnd(t, settings{binary: run, env: []string{"CUDA_HOME=" + filepath.Join(prefix, "cuda"), "OTHER=x"}},
		"--cuda-graph-trace=node", "--print-environment", "sh", "-c", "echo never run")
	got := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(l.stdout.String())); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		got[name] = value
	}
	if status.ExitStatus() != 0 || got["CUDA_INJECTION64_PATH"] != filepath.Join(prefix, "lib/graphsignal", cuptiLibrary) ||
		got["GRAPHSIGNAL_PROBE_LIB"] != filepath.Join(prefix, "lib/graphsignal", probeLibrary) ||
		!strings.HasPrefix(got["GRAPHSIGNAL_CUPTI_PATH"], cupti) || got["GRAPHSIGNAL_CUDA_GRAPH_TRACE"] != "node" {
		t.Errorf("%d %q %q", status.ExitStatus(), l.stdout.String(), l.stderr.String())
	}
	if _, there := got["OTHER"]; there || strings.Contains(l.stdout.String(), "never run") {
		t.Errorf("%q", l.stdout.String())
	}
}
