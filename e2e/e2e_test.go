// Package e2e runs the real launcher and the real collector around real processes, and reads /signals as a user
// does.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/freeport"
)

// root is the module's directory, bin where its programs were built for this test run.
var root, bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if root, err = filepath.Abs(".."); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		prefix, err := os.MkdirTemp("", "graphsignal-e2e")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(prefix)
		if err := install(prefix); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// install lays out a prefix as `make install` does: fresh Go programs, and the native libraries of the last
// `make native`.
func install(prefix string) error {
	bin = filepath.Join(prefix, "bin")
	for _, p := range []struct{ name, cgo, ldflags string }{
		{"graphsignal-run", "0", "-E graphsignalRunStart"}, {"graphsignal-collector", "1", ""}, {"graphsignal-top", "0", ""},
	} {
		cmd := exec.Command("go", "build", "-ldflags", p.ldflags, "-o", filepath.Join(bin, p.name), "./cmd/"+p.name)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+p.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", p.name, err, out)
		}
	}
	libraries := filepath.Join(root, "lib")
	if _, err := os.Stat(filepath.Join(libraries, "graphsignal", "libgraphsignal_probe.so")); err != nil {
		return errors.New("native libraries are missing: run `make native` first")
	}
	return os.Symlink(libraries, filepath.Join(prefix, "lib"))
}

// run is one graphsignal-run with its workload.
type run struct {
	t    *testing.T
	cmd  *exec.Cmd
	port int

	stdout, stderr syncBuffer
	waited         chan struct{}
	waitErr        error
}

// start launches graphsignal-run with the given options, environment additions, and command.
func start(t *testing.T, env []string, args ...string) *run {
	t.Helper()
	return startUnder(t, nil, env, args...)
}

// startUnder is start with a command in front that ends by becoming the command that follows it.
func startUnder(t *testing.T, wrapper, env []string, args ...string) *run {
	t.Helper()
	r := &run{t: t, port: freeport.Get(t), waited: make(chan struct{})}
	words := append(append([]string{}, wrapper...), filepath.Join(bin, "graphsignal-run"), "--listen-port", strconv.Itoa(r.port))
	words = append(words, args...)
	r.cmd = exec.Command(words[0], words[1:]...)
	r.cmd.Env = append(cleanEnv(), env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	// A group of its own, so that what outlives the workload's leader can be ended with the test.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.WaitDelay = 2 * time.Second
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.waitErr = r.cmd.Wait()
		close(r.waited)
	}()
	t.Cleanup(func() {
		select {
		case <-r.waited:
		default:
			_ = r.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-r.waited:
			case <-time.After(10 * time.Second):
				_ = r.cmd.Process.Kill()
				<-r.waited
			}
		}
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		if t.Failed() {
			t.Logf("stdout: %s\nstderr: %s", r.stdout.String(), r.stderr.String())
		}
	})
	return r
}

// cleanEnv is the environment without the variables that configure us, and without the version check.
func cleanEnv() []string {
	env := []string{"GRAPHSIGNAL_DISABLE_VERSION_CHECK=1"}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GRAPHSIGNAL_") {
			env = append(env, e)
		}
	}
	return env
}

// wait returns the launcher's state after its end.
func (r *run) wait() *os.ProcessState {
	r.t.Helper()
	select {
	case <-r.waited:
	case <-time.After(30 * time.Second):
		r.t.Fatal("graphsignal-run did not end within 30 s")
	}
	return r.cmd.ProcessState
}

// lastDocument is what a run left behind whose program ends with 42, as those of the GPU tests do.
func lastDocument(t *testing.T, r *run, output string) *document {
	t.Helper()
	if code := r.wait().ExitCode(); code != 42 {
		t.Errorf("exit code %d, want 42", code)
	}
	raw, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	d, err := parseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// workload returns the pid of the launcher's child that is not the sidecar.
func (r *run) workload() int {
	r.t.Helper()
	var pid int
	eventually(r.t, "the workload starts", func() bool {
		for _, child := range children(r.cmd.Process.Pid) {
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
			if err == nil && !strings.HasPrefix(string(comm), "graphsignal-") {
				pid = child
				return true
			}
		}
		return false
	})
	return pid
}

// sidecar returns the pid of the collector.
func (r *run) sidecar() int {
	r.t.Helper()
	var pid int
	eventually(r.t, "the sidecar starts", func() bool {
		for _, child := range children(r.cmd.Process.Pid) {
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
			if err == nil && strings.HasPrefix(string(comm), "graphsignal-col") {
				pid = child
				return true
			}
		}
		return false
	})
	return pid
}

// children lists the direct children of a process.
func children(pid int) []int {
	var found []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err == nil {
				found = append(found, child)
			}
		}
	}
	slices.Sort(found)
	return found
}

// document is a /signals reply.
type document struct {
	Profiler  map[string]string `json:"profiler"`
	PayloadNS int64             `json:"payload_ns"`
	StartNS   int64             `json:"start_ns"`
	Context   map[string]string `json:"context"`
	Metrics   []metric          `json:"metrics"`
	Errors    []errorEntry      `json:"errors"`
	Resources []resource        `json:"resources"`
}

type metric struct {
	Name      string                     `json:"name"`
	Type      string                     `json:"type"`
	Tags      map[string]string          `json:"tags"`
	Stats     map[string]json.RawMessage `json:"stats"`
	UpdatedNS json.RawMessage            `json:"updated_ns"`
}

type errorEntry struct {
	Level     string         `json:"level"`
	Message   string         `json:"message"`
	Exception *string        `json:"exception"`
	Tags      map[string]any `json:"tags"`
	LogNS     int64          `json:"log_ns"`
}

type resource struct {
	Kind       string            `json:"kind"`
	Tags       map[string]string `json:"tags"`
	Attributes map[string]string `json:"attributes"`
	First      int64             `json:"first_seen_ts"`
	Last       int64             `json:"last_seen_ts"`
}

// find returns the metric of a name whose tags include the given ones.
func (d *document) find(name string, tags ...string) *metric {
	for i, m := range d.Metrics {
		if m.Name == name && hasTags(m.Tags, tags) {
			return &d.Metrics[i]
		}
	}
	return nil
}

// hasTags reports whether tags holds every "key=value".
func hasTags(tags map[string]string, want []string) bool {
	for _, w := range want {
		key, value, _ := strings.Cut(w, "=")
		if v, ok := tags[key]; !ok || v != value {
			return false
		}
	}
	return true
}

func (m *metric) stat(key string) string {
	if m == nil {
		return "absent"
	}
	return string(m.Stats[key])
}

// process returns the process resource of a pid.
func (d *document) process(pid int) *resource {
	for i, r := range d.Resources {
		if r.Kind == "process" && r.Tags["process.pid"] == strconv.Itoa(pid) {
			return &d.Resources[i]
		}
	}
	return nil
}

func parseDocument(raw []byte) (*document, error) {
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// signals reads /signals once.
func (r *run) signals() (*document, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/signals", r.port), nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, raw, fmt.Errorf("status %d", resp.StatusCode)
	}
	d, err := parseDocument(raw)
	return d, raw, err
}

// signalsWhen polls /signals until ok accepts a document, and returns it.
func (r *run) signalsWhen(what string, ok func(*document) bool) *document {
	r.t.Helper()
	var last *document
	var raw []byte
	defer func() {
		if r.t.Failed() {
			r.t.Logf("last /signals: %s", raw)
		}
	}()
	eventually(r.t, what, func() bool {
		d, body, err := r.signals()
		if err != nil {
			return false
		}
		last, raw = d, body
		return ok(d)
	})
	return last
}

// eventually polls a condition for at most 15 seconds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Errorf("timed out waiting until %s", what)
	t.FailNow()
}

// syncBuffer is a bytes.Buffer for a writer and a reader at the same time.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
