package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/graphsignal/graphsignal-collector/internal/ingest"
)

const apiKey = "zz-key-0123456789"

// platform is an ingest server over real HTTP.
func platform(t *testing.T, decide func(ingest.Request) ingest.Answer) (*ingest.Server, string) {
	t.Helper()
	server := &ingest.Server{Key: apiKey, Decide: decide}
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	return server, listener.URL
}

// uploaded reads a series of the run's only instance.
func uploaded(server *ingest.Server, instance, name string) (found ingest.Series, ok bool) {
	server.Read(instance, func(in *ingest.Instance) {
		if in == nil {
			return
		}
		for _, s := range in.Series {
			if s.Name == name {
				found, ok = *s, true
			}
		}
	})
	return found, ok
}

// TestUpload: signals reach the server as growth, the last ones when the workload has ended, and the exit is not
// delayed.
func TestUpload(t *testing.T) {
	server, url := platform(t, nil)
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(apiKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "signals.json")
	r := start(t, []string{"GRAPHSIGNAL_API_KEY_FILE=" + keyFile, "GRAPHSIGNAL_API_BASE=" + url + "/", "GRAPHSIGNAL_DEBUG=1", "GRAPHSIGNAL_TAG_TEAM=Infra"},
		"--output", output, "sh", "-c", `env; trap 'exit 3' TERM; while :; do sleep 0.1; done`)
	pid := r.workload()
	put(t, pid, "app.json", header(pid)+`"metrics":[{"name":"steps","type":"counter","value":1200},
		{"name":"kernels_nanoseconds","type":"profile","frames":{"gemm":[5000,4]}}]}`)
	d := r.signalsWhen("the document is imported", func(d *document) bool { return d.find("steps") != nil })
	instance := d.Context["instance.id"]
	eventually(t, "the first total is uploaded", func() bool {
		s, ok := uploaded(server, instance, "steps")
		return ok && s.Value == 1200
	})
	put(t, pid, "app.json", header(pid)+`"metrics":[{"name":"steps","type":"counter","value":1950},
		{"name":"kernels_nanoseconds","type":"profile","frames":{"gemm":[7500,6],"rope":[90,1]}}]}`)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.wait().ExitCode(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	// The second document starts later than the first: another life, whose total is growth as a whole.
	if s, _ := uploaded(server, instance, "steps"); s.Value != 1200+1950 || s.Tags["process.pid"] != strconv.Itoa(pid) || s.Tags["team"] != "Infra" {
		t.Errorf("steps is %+v", s)
	}
	if s, _ := uploaded(server, instance, "kernels_nanoseconds"); s.Frames["gemm"].Value != 12500 || s.Frames["rope"].Samples != 1 {
		t.Errorf("frames are %+v", s.Frames)
	}
	for _, fault := range server.Faults() {
		t.Errorf("the server found fault: %v", fault)
	}
	server.Read(instance, func(in *ingest.Instance) {
		if len(in.Resources) < 2 {
			t.Errorf("resources are %v", in.Resources)
		}
		if len(in.Logs) == 0 || !strings.Contains(in.Logs[len(in.Logs)-1].Message, "non-zero code 3") {
			t.Errorf("logs are %v", in.Logs)
		}
	})
	final, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"debug output and the workload's environment": r.stderr.String() + r.stdout.String(), "the final document": string(final)} {
		if strings.Contains(text, apiKey) {
			t.Errorf("the key is in %s", where)
		}
	}
}

// TestKeyStaysHidden: a key of the environment is in no command line, no reply, and no printed configuration.
func TestKeyStaysHidden(t *testing.T) {
	server, url := platform(t, nil)
	// Secrets often come with a line end.
	r := start(t, []string{"GRAPHSIGNAL_API_KEY=" + apiKey + "\n", "GRAPHSIGNAL_API_BASE=" + url, "GRAPHSIGNAL_DEBUG=1"}, "sleep", "60")
	d := r.signalsWhen("the run is up", func(d *document) bool { return len(d.Resources) > 0 })
	eventually(t, "the server takes the key", func() bool {
		_, ok := uploaded(server, d.Context["instance.id"], "process_threads")
		return ok
	})
	_, body, err := r.signals()
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"/signals": string(body), "debug output": r.stderr.String()}
	for _, pid := range []int{r.sidecar(), r.cmd.Process.Pid, r.workload()} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			t.Fatal(err)
		}
		texts["a command line"] += string(raw)
	}
	config, err := os.ReadFile(fmt.Sprintf("/proc/%d/fd/3", r.sidecar()))
	if err != nil {
		t.Fatal(err)
	}
	texts["the rendered configuration"] = string(config)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	print := exec.Command(filepath.Join(bin, "graphsignal-collector"), "print-config", "--config", file)
	print.Env = append(cleanEnv(), "GRAPHSIGNAL_API_KEY="+apiKey)
	out, err := print.CombinedOutput()
	if err != nil {
		t.Fatalf("print-config: %v\n%s", err, out)
	}
	texts["print-config"] = string(out)
	if !strings.Contains(string(config), "${env:GRAPHSIGNAL_API_KEY}") {
		t.Errorf("the configuration is %s", config)
	}
	for where, text := range texts {
		if strings.Contains(text, apiKey) {
			t.Errorf("the key is in %s: %s", where, text)
		}
	}
}

// TestUploadTrouble: a server that never answers, and a key that is none, cost the workload and its profile nothing.
func TestUploadTrouble(t *testing.T) {
	_, url := platform(t, func(ingest.Request) ingest.Answer { return ingest.Answer{Stall: true} })
	_, refusing := platform(t, func(ingest.Request) ingest.Answer { return ingest.Answer{Status: http.StatusBadRequest} })
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string][]string{
		"stalled server": {"GRAPHSIGNAL_API_KEY=" + apiKey, "GRAPHSIGNAL_API_BASE=" + url},
		"refusing":       {"GRAPHSIGNAL_API_KEY=" + apiKey, "GRAPHSIGNAL_API_BASE=" + refusing},
		"no key file":    {"GRAPHSIGNAL_API_KEY_FILE=/nowhere/key", "GRAPHSIGNAL_API_BASE=" + url},
		"empty key file": {"GRAPHSIGNAL_API_KEY_FILE=" + empty, "GRAPHSIGNAL_API_BASE=" + url},
		"pipe":           {"GRAPHSIGNAL_API_KEY_FILE=" + pipe, "GRAPHSIGNAL_API_BASE=" + url},
		"two keys":       {"GRAPHSIGNAL_API_KEY=" + apiKey + "\n" + apiKey, "GRAPHSIGNAL_API_BASE=" + url},
		"no URL":         {"GRAPHSIGNAL_API_KEY=" + apiKey, "GRAPHSIGNAL_API_BASE=nonsense"},
		"query":          {"GRAPHSIGNAL_API_KEY=" + apiKey, "GRAPHSIGNAL_API_BASE=" + url + "/?tenant=1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, env, "sh", "-c", "trap 'exit 4' TERM; while :; do sleep 0.1; done")
			r.signalsWhen("the run is up", func(d *document) bool { return d.find("process_threads") != nil })
			if err := syscall.Kill(r.workload(), syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := r.wait().ExitCode(); code != 4 {
				t.Errorf("exit code %d", code)
			}
			if said := r.stderr.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "upload") {
				t.Errorf("stderr is %q", said)
			}
		})
	}
}

// TestVersionNotice: a newer release is told among the errors; switched off, nobody is asked.
func TestVersionNotice(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/api/v1/version_check" {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = w.Write([]byte(`{"latest_version": "99.1.0"}`))
	}))
	defer server.Close()
	r := start(t, []string{"GRAPHSIGNAL_DISABLE_VERSION_CHECK=0", "GRAPHSIGNAL_API_BASE=" + server.URL}, "sleep", "60")
	r.signalsWhen("the notice is shown", func(d *document) bool { return hasError(d, "99.1.0") })
	before := asked.Load()
	r = start(t, []string{"GRAPHSIGNAL_API_BASE=" + server.URL}, "sleep", "60")
	r.signalsWhen("the second run is up", func(d *document) bool { return d.find("process_threads") != nil })
	if n := asked.Load(); n != before {
		t.Errorf("asked %d times although it is off", n-before)
	}
}
