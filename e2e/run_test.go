package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// TestServesProcessSignals is the first thing a user tries: a program with children, and its metrics in seconds.
func TestServesProcessSignals(t *testing.T) {
	r := start(t, []string{"GRAPHSIGNAL_TAG_TEAM_NAME=Infra", "GRAPHSIGNAL_TAG_EMPTY="},
		"sh", "-c", "sleep 60 & python3 -m http.server "+strconv.Itoa(freeport.Get(t)))
	pid := r.workload()
	d := r.signalsWhen("the workload and its two children are seen", func(d *document) bool {
		n := 0
		for _, res := range d.Resources {
			if res.Kind == "process" {
				n++
			}
		}
		// A python3 that is a script of its own runs other programs first.
		return n >= 3 && d.find("process_cpu_usage_percent", "process.pid="+strconv.Itoa(pid)) != nil
	})
	for _, name := range []string{"process_memory_usage_bytes", "process_memory_virtual_bytes", "process_user_cpu_seconds",
		"process_system_cpu_seconds", "process_threads", "process_context_switches_voluntary_total",
		"process_context_switches_involuntary_total"} {
		if d.find(name, "process.pid="+strconv.Itoa(pid)) == nil {
			t.Errorf("%s is absent", name)
		}
	}
	if d.find("host_memory_usage_bytes") == nil {
		t.Error("host_memory_usage_bytes is absent")
	}
	if d.Context["team_name"] != "Infra" || len(d.Context["instance.id"]) != 12 || d.Context["host.name"] == "" {
		t.Errorf("context is %v", d.Context)
	}
	if _, ok := d.Context["empty"]; !ok {
		t.Error("an empty tag of the environment is lost")
	}
	root := d.process(pid)
	if root == nil || root.Tags["process.root_pid"] != strconv.Itoa(pid) || !strings.HasPrefix(root.Attributes["process.command_line"], "sh -c ") {
		t.Errorf("the target's resource is %+v", root)
	}
	now := time.Now().Unix()
	if root != nil && (root.First < now-30 || root.First > now) {
		t.Errorf("first_seen_ts %d is not the process's start (now %d)", root.First, now)
	}
	for _, res := range d.Resources {
		if res.Kind == "host" && (res.Attributes["platform.name"] != "Linux" || len(res.Tags) != 0) {
			t.Errorf("the host resource is %+v", res)
		}
	}
}

// TestExitStatus checks that the launcher's status is the workload's, exactly.
func TestExitStatus(t *testing.T) {
	for _, tc := range []struct {
		script string
		code   int
		signal syscall.Signal
	}{
		{"exit 0", 0, 0},
		{"exit 7", 7, 0},
		{"exit 255", 255, 0},
		{"kill -KILL $$", -1, syscall.SIGKILL},
		{"kill -SEGV $$", -1, syscall.SIGSEGV},
		{"kill -TERM $$", -1, syscall.SIGTERM},
		{"kill -PIPE $$", -1, syscall.SIGPIPE},
	} {
		t.Run(tc.script, func(t *testing.T) {
			t.Parallel()
			state := start(t, nil, "sh", "-c", "ulimit -c 0; "+tc.script).wait()
			status := state.Sys().(syscall.WaitStatus)
			if tc.signal != 0 {
				if !status.Signaled() || status.Signal() != tc.signal {
					t.Errorf("status %v, want death by %v", state, tc.signal)
				}
				return
			}
			if !status.Exited() || status.ExitStatus() != tc.code {
				t.Errorf("status %v, want exit %d", state, tc.code)
			}
		})
	}
}

// TestOutputOfShortProgram reads a program that ends before anyone polls, through --output.
func TestOutputOfShortProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "signals.json")
	r := start(t, nil, "--output", file, "sh", "-c", "sleep 0.05; exit 7")
	state := r.wait()
	if state.ExitCode() != 7 {
		t.Errorf("exit code %d, want 7", state.ExitCode())
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("no final document: %v", err)
	}
	d, err := parseDocument(raw)
	if err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	var found bool
	for _, res := range d.Resources {
		if res.Kind == "process" && strings.Contains(res.Attributes["process.command_line"], "exit 7") {
			found = true
		}
	}
	if !found {
		t.Errorf("the program's process resource is missing: %s", raw)
	}
	if !hasError(d, "Process exited with non-zero code 7") {
		t.Errorf("the exit record is missing: %s", raw)
	}
}

func hasError(d *document, message string) bool {
	for _, e := range d.Errors {
		if strings.Contains(e.Message, message) {
			return true
		}
	}
	return false
}

// TestPortTaken: the workload runs, one line says what is off, and the endpoint comes up when the port is free.
func TestPortTaken(t *testing.T) {
	port := freeport.Get(t)
	taken := &http.Server{Addr: fmt.Sprintf("127.0.0.1:%d", port), Handler: http.NotFoundHandler()}
	go func() { _ = taken.ListenAndServe() }()
	defer taken.Close()
	eventually(t, "the port is taken", func() bool {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	r := start(t, nil, "--listen-port", strconv.Itoa(port), "sleep", "60")
	r.port = port
	eventually(t, "the launcher warns", func() bool { return strings.Contains(r.stderr.String(), strconv.Itoa(port)) })
	if lines := strings.Count(r.stderr.String(), "\n"); lines != 1 {
		t.Errorf("stderr has %d lines, want 1: %s", lines, r.stderr.String())
	}
	taken.Close()
	r.signalsWhen("the endpoint answers after the port was freed", func(d *document) bool { return len(d.Resources) > 0 })
}

// TestWithoutSidecar: a launcher whose collector is missing still runs the workload and says so once.
func TestWithoutSidecar(t *testing.T) {
	dir := t.TempDir()
	launcher := filepath.Join(dir, "graphsignal-run")
	raw, err := os.ReadFile(filepath.Join(bin, "graphsignal-run"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(launcher, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(launcher, "sh", "-c", "echo out; exit 3")
	cmd.Env = append(cleanEnv(), "PATH=/usr/bin:/bin")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if cmd.ProcessState.ExitCode() != 3 || stdout.String() != "out\n" {
		t.Errorf("exit %v, stdout %q", err, stdout.String())
	}
	if strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "graphsignal-collector") {
		t.Errorf("stderr is %q, want one line naming the collector", stderr.String())
	}
}

// TestSecretsStayHome is the case of keys given as flags: they reach the workload and nobody else.
func TestSecretsStayHome(t *testing.T) {
	args := []string{"--api-key", "zz-first-111", "--admin-api-key=zz-second-222", "--hf-token", "zz-third-333",
		"--password", "two words 444", "--header", "Authorization: Bearer zz-fifth-555",
		"--url", "https://u:zz-sixth-666@host.example/x", "--model", "m1", "--tokenizer", "t1", "--max-tokens", "99", "--api-key"}
	command := append([]string{"python3", "-c", "import sys,time; print(chr(10).join(sys.argv[1:]), flush=True); time.sleep(60)"}, args...)
	r := start(t, []string{"HF_TOKEN=zz-env-777", "GRAPHSIGNAL_API_KEY=zz-own-888", "GRAPHSIGNAL_API_BASE=http://127.0.0.1:9",
		"GRAPHSIGNAL_DEBUG=1"}, command...)
	pid := r.workload()
	d := r.signalsWhen("the process resource is there", func(d *document) bool { return d.process(pid) != nil })
	line := d.process(pid).Attributes["process.command_line"]
	for _, kept := range []string{"--api-key", "--admin-api-key", "--hf-token", "--password", "--header", "--url",
		"--model m1", "--tokenizer t1", "--max-tokens 99"} {
		if !strings.Contains(line, kept) {
			t.Errorf("%q is lost from %q", kept, line)
		}
	}
	_, raw, err := r.signals()
	if err != nil {
		t.Fatal(err)
	}
	sidecar, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.sidecar()))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"zz-first-111", "zz-second-222", "zz-third-333", "words 444", "zz-fifth-555", "zz-sixth-666", "zz-env-777", "zz-own-888"} {
		for where, text := range map[string]string{"/signals": string(raw), "our stderr": r.stderr.String(), "the sidecar's command line": string(sidecar)} {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in %s", secret, where)
			}
		}
	}
	eventually(t, "the workload prints its arguments", func() bool { return r.stdout.String() == strings.Join(args, "\n")+"\n" })
}
