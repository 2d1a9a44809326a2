package workloadextension

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/extension/workloadextension/internal/metadata"
	"github.com/graphsignal/graphsignal-collector/internal/procfs/procfstest"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

const deadline = 10 * time.Second

// statusHost is a host that hears fatal statuses the way the Collector does: one at a time, while it runs.
type statusHost struct {
	component.Host
	fatal chan error
}

func newHost() *statusHost {
	return &statusHost{Host: componenttest.NewNopHost(), fatal: make(chan error)}
}

func (h *statusHost) Report(event *componentstatus.Event) {
	if event.Status() == componentstatus.StatusFatalError {
		h.fatal <- event.Err()
	}
}

func (h *statusHost) requireFatal(t *testing.T) {
	t.Helper()
	select {
	case err := <-h.fatal:
		require.ErrorIs(t, err, workload.ErrEnded)
	case <-time.After(deadline):
		t.Fatal("the end was not reported")
	}
}

func testConfig(t *testing.T, pid int) *Config {
	cfg := createDefaultConfig().(*Config)
	cfg.PID, cfg.SHMPath, cfg.PollInterval = pid, t.TempDir(), 10*time.Millisecond
	return cfg
}

func create(t *testing.T, cfg *Config) *workloadExtension {
	t.Helper()
	require.NoError(t, cfg.Validate())
	ext, err := NewFactory().Create(context.Background(), extensiontest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	return ext.(*workloadExtension)
}

// observe replaces the logger of e by one whose records the test reads.
func observe(e *workloadExtension) *observer.ObservedLogs {
	core, logs := observer.New(zap.WarnLevel)
	e.logger = zap.New(core)
	return logs
}

func start(t *testing.T, cfg *Config, host component.Host) *workloadExtension {
	t.Helper()
	e := create(t, cfg)
	require.NoError(t, e.Start(context.Background(), host))
	return e
}

// command starts a shell script that runs until its standard input is closed, with the lines it prints.
func command(t *testing.T, script string) (cmd *exec.Cmd, lines *bufio.Scanner, end func()) {
	t.Helper()
	cmd = exec.Command("sh", "-c", script)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out), func() { _ = in.Close() }
}

func readPID(t *testing.T, lines *bufio.Scanner) int {
	t.Helper()
	require.True(t, lines.Scan(), "the script ended early")
	pid, err := strconv.Atoi(lines.Text())
	require.NoError(t, err)
	return pid
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	require.NoError(t, os.Mkdir(path, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(path, "cupti.json"), []byte("{}"), 0o600))
	return path
}

func TestLifecycle(t *testing.T) {
	e := create(t, testConfig(t, os.Getpid()))
	require.NoError(t, e.Shutdown(context.Background()), "without Start")
	e = start(t, testConfig(t, os.Getpid()), componenttest.NewNopHost())
	require.NoError(t, e.Ready())
	require.NoError(t, e.NotReady())
	require.NoError(t, e.Shutdown(context.Background()))
	require.NoError(t, e.Shutdown(context.Background()), "twice")
}

func TestFindInHost(t *testing.T) {
	e := create(t, testConfig(t, 1))
	assert.Same(t, e, workload.Find(extensions{e}))
	assert.Nil(t, workload.Find(componenttest.NewNopHost()))
}

type extensions struct{ e component.Component }

func (x extensions) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{component.NewID(metadata.Type): x.e}
}

func TestFollowsARealProgramToItsEnd(t *testing.T) {
	// The child outlives its parent, so that it is handed to another process while it is followed.
	cmd, lines, end := command(t, `sh -c 'sleep 600 & echo $!; read x; exit' ; read x`)
	orphan := readPID(t, lines)
	t.Cleanup(func() { _ = unix.Kill(orphan, unix.SIGKILL) })
	host := newHost()
	cfg := testConfig(t, cmd.Process.Pid)
	cfg.CommandLine = []string{"given", "***"}
	e := create(t, cfg)
	logs := observe(e)
	require.NoError(t, e.Start(context.Background(), host))
	reader := e.NewReader()
	list := reader.Processes()
	require.Len(t, list, 3)
	assert.Equal(t, cmd.Process.Pid, list[0].PID)
	assert.Equal(t, "given ***", list[0].CommandLine)
	assert.InDelta(t, time.Now().UnixNano(), list[0].StartTime, float64(time.Minute))
	require.NoError(t, e.Ready())

	targetDir := mkdir(t, rundir.Path(cfg.SHMPath, cmd.Process.Pid))
	consoleDir := mkdir(t, rundir.ConsolePath(cfg.SHMPath, cmd.Process.Pid))
	orphanDir := mkdir(t, rundir.Path(cfg.SHMPath, orphan))
	otherDir := mkdir(t, rundir.Path(cfg.SHMPath, 1))

	end() // all shells; the sleeper stays
	_ = cmd.Process.Kill()
	// Not waited for yet: a zombie has ended.
	host.requireFatal(t)
	list = reader.Processes()
	assert.Equal(t, cmd.Process.Pid, list[0].PID)
	assert.True(t, list[0].Ended)
	require.Eventually(t, func() bool { // the shell between the two ends by itself
		var still []int
		for _, p := range reader.Processes()[1:] {
			if !p.Ended {
				still = append(still, p.PID)
			}
		}
		e.poll()
		return slices.Equal(still, []int{orphan})
	}, deadline, time.Millisecond)
	reader.Done(list[0])
	assert.NotEqual(t, cmd.Process.Pid, reader.Processes()[0].PID)
	assert.DirExists(t, targetDir, "the target's directory stays until the Collector has stopped")
	reader.Close()
	require.NoError(t, e.NotReady())
	assert.Equal(t, 1, logs.FilterMessage(fmt.Sprintf("Processes of the workload outlive it: pid %d", orphan)).Len())
	require.NoError(t, e.Shutdown(context.Background()))
	assert.NoDirExists(t, targetDir)
	assert.NoDirExists(t, consoleDir)
	assert.DirExists(t, orphanDir, "a living process keeps its directory")
	assert.DirExists(t, otherDir)
}

func TestTargetThatWasDeadBefore(t *testing.T) {
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	host := newHost()
	cfg := testConfig(t, cmd.Process.Pid)
	cfg.CommandLine, cfg.StartTimeUnixNano = []string{"true"}, 1234
	dir := mkdir(t, rundir.Path(cfg.SHMPath, cfg.PID))
	e := start(t, cfg, host)
	// Nothing is reported before the pipelines run; the Collector would never hear it.
	e.poll()
	reader := e.NewReader()
	want := workload.Process{PID: cfg.PID, Root: cfg.PID, StartTime: 1234, CommandLine: "true", Ended: true}
	assert.Equal(t, []workload.Process{want}, reader.Processes())
	require.NoError(t, e.Ready())
	host.requireFatal(t)
	assert.Equal(t, []workload.Process{want}, e.NewReader().Processes())
	require.NoError(t, e.Shutdown(context.Background()))
	assert.NoDirExists(t, dir)
}

func TestFailedStartRemovesNothing(t *testing.T) {
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	cfg := testConfig(t, cmd.Process.Pid)
	dir := mkdir(t, rundir.Path(cfg.SHMPath, cfg.PID))
	e := start(t, cfg, newHost())
	require.NoError(t, e.Shutdown(context.Background()))
	assert.DirExists(t, dir)
}

func TestDirectoryOfAnEndedChildWaitsForReaders(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	table.Set(procfstest.Process{PID: 51, PPID: 50, Start: 100})
	table.Set(procfstest.Process{PID: 52, PPID: 50, Start: 100})
	cfg := testConfig(t, 50)
	cfg.ProcFSPath, cfg.PollInterval = table.Root, time.Hour
	e := create(t, cfg)
	now := time.Unix(boot+1000, 0)
	e.now = func() time.Time { return now }
	require.NoError(t, e.Start(context.Background(), newHost()))
	a, b := e.NewReader(), e.NewReader()
	require.NoError(t, e.Ready())
	dir51, dir52 := mkdir(t, rundir.Path(cfg.SHMPath, 51)), mkdir(t, rundir.Path(cfg.SHMPath, 52))

	table.Remove(51)
	table.Remove(52)
	e.poll()
	list := a.Processes()
	require.Equal(t, []int{50, 51, 52}, pids(list))
	require.False(t, list[0].Ended)
	require.True(t, list[1].Ended)
	a.Done(list[1])
	assert.Equal(t, []int{50, 52}, pids(a.Processes()))
	assert.Equal(t, []int{50, 51, 52}, pids(b.Processes()))
	e.poll()
	assert.DirExists(t, dir51)
	b.Done(list[1])
	e.poll()
	assert.NoDirExists(t, dir51)
	assert.DirExists(t, dir52)

	now = now.Add(keepEnded) // a Reader that never says Done holds nothing up for ever
	e.poll()
	assert.NoDirExists(t, dir52)
	assert.Equal(t, []int{50}, pids(b.Processes()))
	a.Done(list[2])
	assert.NotContains(t, a.(*reader).done, identityOf(list[2]))

	// A Reader that was closed is not waited for.
	table.Set(procfstest.Process{PID: 53, PPID: 50, Start: 700})
	e.poll()
	dir53 := mkdir(t, rundir.Path(cfg.SHMPath, 53))
	table.Remove(53)
	e.poll()
	a.Done(a.Processes()[1])
	b.Close()
	e.poll()
	assert.NoDirExists(t, dir53)
	require.NoError(t, e.Shutdown(context.Background()))
}

// TestProcessesThatNoLookSaw: those that wrote a run directory of this run belong to the workload, dead or alive.
func TestProcessesThatNoLookSaw(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	table.Set(procfstest.Process{PID: 60, PPID: 1, Start: 300}) // its parent was never seen
	require.NoError(t, os.MkdirAll(filepath.Join(table.Root, "sys/kernel/random"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(table.Root, "sys/kernel/random/boot_id"), []byte("b-1\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(table.Root, "self/ns"), 0o700))
	require.NoError(t, os.Symlink("pid:[4026531836]", filepath.Join(table.Root, "self/ns/pid")))
	cfg := testConfig(t, 50)
	cfg.ProcFSPath, cfg.PollInterval, cfg.RunID = table.Root, time.Hour, "ab12"
	e := create(t, cfg)
	require.NoError(t, e.Start(context.Background(), newHost()))
	r := e.NewReader()
	require.NoError(t, e.Ready())
	mark := func(pid int, ticks uint64, run string) string {
		dir := mkdir(t, rundir.Path(cfg.SHMPath, pid))
		owner := e.dirs.Owner(pid, ticks)
		owner.Run = run
		text, err := json.Marshal(owner)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".owner"), text, 0o600))
		return dir
	}
	mark(50, 100, "ab12")
	dead, alive := mark(51, 200, "ab12"), mark(60, 300, "ab12")
	mark(52, 200, "ab13") // of another run
	mark(53, 200, "")
	e.poll()
	list := r.Processes()
	require.Equal(t, []int{50, 51, 60}, pids(list))
	assert.False(t, list[0].Ended)
	assert.True(t, list[1].Ended)
	assert.Equal(t, uint64(200), list[1].StartTicks)
	assert.False(t, list[2].Ended)
	e.poll()
	assert.Equal(t, []int{50, 51, 60}, pids(r.Processes()), "told once")
	r.Done(list[1])
	e.poll()
	assert.NoDirExists(t, dead)
	assert.Equal(t, []int{50, 60}, pids(r.Processes()))

	table.Remove(60)
	e.poll()
	list = r.Processes()
	require.Equal(t, []int{50, 60}, pids(list))
	assert.True(t, list[1].Ended)
	r.Done(list[1])
	e.poll()
	assert.NoDirExists(t, alive)
	require.NoError(t, e.Shutdown(context.Background()))
}

// launcherEnd returns our end of a control socket and the descriptor that the extension inherits.
func launcherEnd(t *testing.T) (*net.UnixConn, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fds[0]), "launcher")
	conn, err := net.FileConn(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	t.Cleanup(func() { _ = conn.Close(); _ = unix.Close(fds[1]) })
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(deadline)))
	return conn.(*net.UnixConn), fds[1]
}

func TestControlSocket(t *testing.T) {
	cmd, _, end := command(t, "read x; exit 0")
	conn, fd := launcherEnd(t)
	host := newHost()
	cfg := testConfig(t, cmd.Process.Pid)
	cfg.ControlFD = fd
	e := start(t, cfg, host)
	lines := bufio.NewScanner(conn)
	next := func() string {
		require.True(t, lines.Scan(), lines.Err())
		return lines.Text()
	}
	e.EndpointBindFailed("127.0.0.1:18259", errors.New("listen tcp:\naddress already in use"))
	assert.Equal(t, "bind_failed 127.0.0.1:18259: listen tcp: address already in use", next())
	e.EndpointBindFailed("[::1]:1", errors.New(strings.Repeat("x", 10_000)))
	assert.Len(t, next(), len("bind_failed [::1]:1: ")+maxReason)
	e.Warn("it is\n  full")
	assert.Equal(t, "warning it is full", next())
	e.EndpointBound("127.0.0.1:18259")
	assert.Equal(t, "bound 127.0.0.1:18259", next())
	require.NoError(t, e.Ready())
	assert.Equal(t, "ready", next())

	// The end of the target is the launcher's to report.
	end()
	require.NoError(t, cmd.Wait())
	reader := e.NewReader()
	require.Eventually(t, func() bool { return reader.Processes()[0].Ended }, deadline, time.Millisecond)
	select {
	case <-host.fatal:
		t.Fatal("ended although the control socket is open")
	default:
	}
	require.NoError(t, conn.Close())
	host.requireFatal(t)
	e.EndpointBound("nobody listens") // must neither fail nor block
	require.NoError(t, e.NotReady())
	require.NoError(t, e.Shutdown(context.Background()))
}

func TestControlSocketClosedBeforeReady(t *testing.T) {
	conn, fd := launcherEnd(t)
	host := newHost()
	cfg := testConfig(t, os.Getpid())
	cfg.ControlFD = fd
	e := start(t, cfg, host)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.ending
	}, deadline, time.Millisecond)
	require.NoError(t, e.Ready())
	host.requireFatal(t)
	require.NoError(t, e.Shutdown(context.Background()))
}

func TestNothingIsReportedDuringShutdown(t *testing.T) {
	conn, fd := launcherEnd(t)
	cfg := testConfig(t, os.Getpid())
	cfg.ControlFD = fd
	e := start(t, cfg, newHost()) // nobody reads its channel
	require.NoError(t, e.Ready())
	require.NoError(t, e.NotReady())
	require.NoError(t, conn.Close())
	require.NoError(t, e.Shutdown(context.Background()))
}

func TestBadControlDescriptor(t *testing.T) {
	file, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer file.Close()
	for name, fd := range map[string]int{"not open": 9999, "no socket": int(file.Fd())} {
		cfg := testConfig(t, os.Getpid())
		cfg.ControlFD = fd
		e := create(t, cfg)
		assert.ErrorContains(t, e.Start(context.Background(), newHost()), "control_fd", name)
		assert.NoError(t, e.Shutdown(context.Background()))
	}
}

func TestStaleDirectoriesAreSweptAtStart(t *testing.T) {
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	cfg := testConfig(t, os.Getpid())
	stale := mkdir(t, rundir.Path(cfg.SHMPath, cmd.Process.Pid))
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(stale, "cupti.json"), old, old))
	require.NoError(t, os.Chtimes(stale, old, old))
	living := mkdir(t, rundir.Path(cfg.SHMPath, os.Getpid()))
	require.NoError(t, os.Chtimes(living, old, old))
	e := start(t, cfg, newHost())
	require.Eventually(t, func() bool {
		_, err := os.Stat(stale)
		return errors.Is(err, os.ErrNotExist)
	}, deadline, time.Millisecond)
	require.NoError(t, e.Shutdown(context.Background()))
	assert.DirExists(t, living)
}

func TestWithoutAProcessTable(t *testing.T) {
	cfg := testConfig(t, 50)
	cfg.ProcFSPath = filepath.Join(t.TempDir(), "none")
	conn, fd := launcherEnd(t)
	cfg.ControlFD = fd
	e := start(t, cfg, newHost())
	require.NoError(t, e.Ready())
	assert.Len(t, e.NewReader().Processes(), 1)
	require.NoError(t, e.NotReady())
	require.NoError(t, conn.Close())
	require.NoError(t, e.Shutdown(context.Background()))
}
