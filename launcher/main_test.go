package launcher

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests run the real graphsignal-run. Beside it lies this test binary under the Collector's name, which then
// speaks the control protocol and records what it was given (collector_test.go), so that nothing else need be built.
// As the workload it takes its part from its first argument (workload_test.go).
var launcherBinary, testBinary string

func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == collectorName:
		os.Exit(fakeCollector())
	case len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "workload:"):
		os.Exit(workloadPart(strings.TrimPrefix(os.Args[1], "workload:"), os.Args[2:]))
	case slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.fuzz=") }):
		os.Exit(m.Run()) // fuzz targets run no programs
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	// Under nohup, or in the background of a shell, programs would inherit that signals are ignored; those that are caught
	// they get back to normal.
	caught := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	dir, err := os.MkdirTemp("", "launcher-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	launcherBinary = filepath.Join(dir, "graphsignal-run")
	build := exec.Command("go", "build", "-ldflags", "-s -w -E graphsignalRunStart", "-o", launcherBinary, "../cmd/graphsignal-run")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building graphsignal-run: %v\n%s", err, output)
		return 1
	}
	if testBinary, err = os.Executable(); err == nil {
		err = os.Symlink(testBinary, filepath.Join(dir, collectorName))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// deadline is how long a test waits for anything, generous for a busy machine.
const deadline = 30 * time.Second

// launch is a run of graphsignal-run.
type launch struct {
	t   *testing.T
	cmd *exec.Cmd
	// record is where the Collector's stand-in leaves what it was given.
	record         string
	stdout, stderr bytes.Buffer
	ended          chan struct{}
}

// settings of a launch.
type settings struct {
	env     []string
	stdin   io.Reader
	stdout  *os.File
	dir     string
	files   []*os.File
	binary  string
	wrapper []string
	attr    *syscall.SysProcAttr
}

// environWith returns this process's environment without the profiler's variables, and more.
func environWith(more ...string) []string {
	var environ []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "GRAPHSIGNAL_") && !strings.HasPrefix(entry, "FAKE_") {
			environ = append(environ, entry)
		}
	}
	return append(environ, more...)
}

// start starts graphsignal-run.
func start(t *testing.T, s settings, args ...string) *launch {
	t.Helper()
	l := &launch{t: t, record: t.TempDir(), ended: make(chan struct{})}
	binary := launcherBinary
	if s.binary != "" {
		binary = s.binary
	}
	words := append(append(append([]string{}, s.wrapper...), binary), args...)
	l.cmd = exec.Command(words[0], words[1:]...)
	l.cmd.Env = environWith(append([]string{"FAKE_RECORD=" + l.record}, s.env...)...)
	l.cmd.Stdin, l.cmd.Dir, l.cmd.ExtraFiles, l.cmd.SysProcAttr = s.stdin, s.dir, s.files, s.attr
	l.cmd.Stdout, l.cmd.Stderr = &l.stdout, &l.stderr
	if s.stdout != nil {
		l.cmd.Stdout = s.stdout
	}
	// A descendant may hold the streams longer than the launcher lives.
	l.cmd.WaitDelay = deadline
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = l.cmd.Wait()
		close(l.ended)
	}()
	t.Cleanup(func() {
		select {
		case <-l.ended:
		default:
			_ = l.cmd.Process.Kill()
			<-l.ended
		}
	})
	return l
}

// wait waits for the end and returns the wait status.
func (l *launch) wait() syscall.WaitStatus {
	l.t.Helper()
	select {
	case <-l.ended:
	case <-time.After(deadline):
		l.t.Fatalf("graphsignal-run does not end; stdout %q stderr %q", l.stdout.String(), l.stderr.String())
	}
	return l.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// run runs graphsignal-run to its end.
func runToEnd(t *testing.T, s settings, args ...string) (*launch, syscall.WaitStatus) {
	t.Helper()
	l := start(t, s, args...)
	return l, l.wait()
}

// recorded waits for a file that the Collector's stand-in writes.
func (l *launch) recorded(name string) string {
	l.t.Helper()
	return awaitFile(l.t, filepath.Join(l.record, name))
}

// awaitFile waits for a file with content.
func awaitFile(t *testing.T, name string) string {
	t.Helper()
	var content []byte
	await(t, "content in "+filepath.Base(name), func() bool {
		content, _ = os.ReadFile(name)
		return len(content) > 0
	})
	return string(content)
}

// await polls a condition.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// workload returns the command line of this test binary in a part.
func workload(part string, args ...string) []string {
	return append([]string{testBinary, "workload:" + part}, args...)
}
