package e2e

import (
	"bytes"
	"fmt"
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

// faultRounds is how often a test at a random moment is repeated.
func faultRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("GRAPHSIGNAL_FAULT_ROUNDS")
	if text == "" {
		return 1
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("GRAPHSIGNAL_FAULT_ROUNDS=%s", text)
	}
	return rounds
}

// onlyLong skips what takes long and is a variant of something else, unless the long form was asked for.
func onlyLong(t *testing.T) {
	t.Helper()
	if os.Getenv("GRAPHSIGNAL_FAULT_ROUNDS") == "" {
		t.Skip("runs in `make test-faults` only")
	}
}

// worker is the program of testdata/faults/worker.cpp, built once.
var worker = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(bin), "worker")
	out, err := exec.Command("g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-I"+filepath.Join(root, "include"),
		filepath.Join("testdata", "faults", "worker.cpp"), "-o", path, "-ldl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("g++: %w\n%s", err, out)
	}
	return path, nil
})

// faulty is a run with a shared memory of its own and a mark in the environment of all its processes, so that what is
// left of it can be seen.
type faulty struct {
	*run
	env    []string
	dir    string // of the test's own files
	shm    string
	mark   string
	output string
}

func newFaulty(t *testing.T, env []string) *faulty {
	t.Helper()
	f := &faulty{dir: t.TempDir()}
	f.shm, f.output = filepath.Join(f.dir, "shm"), filepath.Join(f.dir, "signals.json")
	if err := os.Mkdir(f.shm, 0o700); err != nil {
		t.Fatal(err)
	}
	f.mark = "FAULT_TEST=" + f.dir
	f.env = append([]string{f.mark, "GRAPHSIGNAL_SHM_PATH=" + f.shm}, env...)
	t.Cleanup(func() {
		for _, pid := range f.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return f
}

// startFaulty runs a command; one that begins with "worker" runs the worker, in whose steps @ is a path to the test's files.
func startFaulty(t *testing.T, env []string, args ...string) *faulty {
	t.Helper()
	f := newFaulty(t, env)
	f.run = start(t, f.env, append([]string{"--output", f.output}, f.command(t, args)...)...)
	return f
}

func (f *faulty) command(t *testing.T, args []string) []string {
	t.Helper()
	path, err := worker()
	if err != nil {
		t.Fatal(err)
	}
	command := make([]string, len(args))
	for i, arg := range args {
		if command[i] = strings.ReplaceAll(arg, "@", f.dir+"/"); arg == "worker" {
			command[i] = path
		}
	}
	return command
}

// touch lets a worker that awaits a file go on.
func (f *faulty) touch(name string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), nil, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// processes lists the living processes of the run.
func (f *faulty) processes() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, []byte(f.mark)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// directories lists what is in the run's shared memory.
func (f *faulty) directories() (names []string) {
	entries, err := os.ReadDir(f.shm)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// nothingLeft: all processes end, and all directories go with them.
func (f *faulty) nothingLeft() {
	f.t.Helper()
	eventually(f.t, "all processes end", func() bool { return len(f.processes()) == 0 })
	if left := f.directories(); len(left) > 0 {
		f.t.Errorf("left in shared memory: %v", left)
	}
}

// nothingLeftAfterNextRun is nothingLeft where a part was killed that would have removed the directories: then the next
// runs do, as soon as these have not changed for two seconds.
func (f *faulty) nothingLeftAfterNextRun() {
	f.t.Helper()
	eventually(f.t, "all processes end", func() bool { return len(f.processes()) == 0 })
	eventually(f.t, "a next run removes the directories", func() bool {
		if len(f.directories()) == 0 {
			return true
		}
		next := start(f.t, f.env, "sleep", "0.3")
		if code := next.wait().ExitCode(); code != 0 || next.stderr.String() != "" {
			f.t.Errorf("the next run: exit code %d, stderr %q", code, next.stderr.String())
		}
		return len(f.directories()) == 0
	})
}

// final reads the document that is written at the end.
func (f *faulty) final() *document {
	f.t.Helper()
	raw, err := os.ReadFile(f.output)
	if err != nil {
		f.t.Fatalf("no final document: %v", err)
	}
	d, err := parseDocument(raw)
	if err != nil {
		f.t.Fatalf("%v in %s", err, raw)
	}
	return d
}

// total is the sum of a counter over all processes, -1 without any.
func (d *document) total(name string) int64 {
	sum := int64(-1)
	for _, m := range d.Metrics {
		if m.Name != name {
			continue
		}
		if n, err := strconv.ParseInt(string(m.Stats["total"]), 10, 64); err == nil {
			sum = max(sum, 0) + n
		}
	}
	return sum
}

// hostTime is when the host was measured last, empty before the first time.
func (d *document) hostTime() string {
	if m := d.find("host_memory_usage_bytes"); m != nil {
		return string(m.UpdatedNS)
	}
	return ""
}

// expectTotal checks a counter of the final document.
func (f *faulty) expectTotal(name string, want int64) {
	f.t.Helper()
	if got := f.final().total(name); got != want {
		f.t.Errorf("%s is %d at the end, want %d", name, got, want)
	}
}

// seen waits until /signals has a total.
func (f *faulty) seen(name string, want int64) *document {
	f.t.Helper()
	return f.signalsWhen(fmt.Sprintf("%s is %d", name, want), func(d *document) bool { return d.total(name) == want })
}

// ended checks the exit status, and that standard output and our own words on standard error are what they should be.
func (f *faulty) ended(code int, stdout string) {
	f.t.Helper()
	if state := f.wait(); state.ExitCode() != code {
		f.t.Errorf("%v, want exit status %d", state, code)
	}
	if got := f.stdout.String(); got != stdout {
		f.t.Errorf("standard output has %d bytes, want %d; it ends in %.100q", len(got), len(stdout), got[max(0, len(got)-100):])
	}
}

// silent: nothing of ours is on standard error.
func (f *faulty) silent() {
	f.t.Helper()
	if said := f.stderr.String(); said != "" {
		f.t.Errorf("standard error is %q", said)
	}
}

// says checks that exactly one line is on standard error, with a text in it.
func (f *faulty) says(text string) {
	f.t.Helper()
	if said := f.stderr.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, text) {
		f.t.Errorf("standard error is %q, want one line with %q", said, text)
	}
}

// numbered is what the worker's lines:N prints.
func numbered(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "line %d of many\n", i)
	}
	return text.String()
}

// kill sends a signal to a process that must be there.
func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("signal %d to %d: %v", sig, pid, err)
	}
}

// wrapped is startFaulty with the launcher behind a command such as unshare, and prepare called before the start.
func wrapped(t *testing.T, wrapper []string, prepare func(*faulty, *exec.Cmd), args ...string) *faulty {
	t.Helper()
	f := newFaulty(t, nil)
	r := &run{t: t, port: freeport.Get(t), waited: make(chan struct{})}
	words := append(slices.Clone(wrapper), filepath.Join(bin, "graphsignal-run"), "--listen-port", strconv.Itoa(r.port), "--output", f.output)
	words = append(words, f.command(t, args)...)
	r.cmd = exec.Command(words[0], words[1:]...)
	r.cmd.Env = append(cleanEnv(), f.env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.WaitDelay = 2 * time.Second
	prepare(f, r.cmd)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.waitErr = r.cmd.Wait()
		close(r.waited)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.waited
		if t.Failed() {
			t.Logf("stdout: %s\nstderr: %s", r.stdout.String(), r.stderr.String())
		}
	})
	f.run = r
	return f
}
