package shmreceiver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/procfs/procfstest"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
)

// node is a process table whose processes have root directories of their own, and a receiver of them all.
type node struct {
	*harness
	table *procfstest.Table
}

const nodeBoot = 1700000000

func newNode(t *testing.T) *node {
	t.Helper()
	table := procfstest.New(t, nodeBoot, 1)
	h := newHarness(t, func(c *Config) { c.SHMPath, c.ProcFSPath = ProcSHM, table.Root })
	h.roots = newRootSHM(table.Root, h.report)
	h.tree = h.roots
	t.Cleanup(h.roots.Close)
	return &node{h, table}
}

// run adds a process with the given pid in its own namespace, which is the container's.
func (n *node) run(pid, inner, container int, uid uint32) {
	n.t.Helper()
	n.table.Set(procfstest.Process{PID: pid, Start: uint64(pid) * procfs.TicksPerSecond})
	dir := strconv.Itoa(pid)
	n.table.Write(dir+"/status", fmt.Sprintf("Name:\ttest\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nNStgid:\t%[2]d\t9\t%[3]d\nNSpid:\t%[2]d\t9\t%[3]d\nVmSize:\t 1 kB\n", uid, pid, inner))
	root := n.root(container)
	require.NoError(n.t, os.MkdirAll(filepath.Join(root, "dev/shm"), 0o755))
	require.NoError(n.t, os.MkdirAll(filepath.Join(n.table.Root, dir, "ns"), 0o755))
	require.NoError(n.t, os.Symlink(root, filepath.Join(n.table.Root, dir, "root")))
	require.NoError(n.t, os.Symlink(fmt.Sprintf("pid:[%d]", 4026532000+container), filepath.Join(n.table.Root, dir, "ns/pid")))
}

func (n *node) root(container int) string {
	return filepath.Join(n.table.Root, "containers", strconv.Itoa(container))
}

// write writes a document of one gauge into the run directory of a container's pid.
func (n *node) write(container, inner int, name string, value int, start int64) {
	n.t.Helper()
	saved := n.config.SHMPath
	n.config.SHMPath = filepath.Join(n.root(container), "dev/shm")
	n.put(inner, name+".json", fmt.Sprintf(`{"version":1,"pid":%d,"start_ts":%d,"write_ts":%d,"metrics":[{"name":%q,"type":"gauge","value":%d}]}`,
		inner, start, start+int64(value), name, value))
	n.config.SHMPath = saved
}

// rounds collects until each process was looked at.
func (n *node) rounds() []string {
	var lines []string
	for range recheckRounds {
		lines = append(lines, n.round()...)
	}
	return lines
}

func startOf(pid int) int64 { return (nodeBoot + int64(pid)) * int64(time.Second) }

func self() uint32 { return uint32(os.Geteuid()) }

// TestProcSHM reads two containers whose processes have the same pids inside.
func TestProcSHM(t *testing.T) {
	n := newNode(t)
	n.run(101, 7, 1, self())
	n.run(102, 7, 2, self())
	n.run(103, 8, 2, self()) // without a run directory
	n.table.Set(procfstest.Process{PID: 2})
	n.table.Write("2/status", "Name:\tkthreadd\nUid:\t0\t0\t0\t0\nNSpid:\t2\n")
	n.write(1, 7, "one", 5, startOf(101))
	n.write(2, 7, "two", 6, startOf(102))
	assert.Equal(t, []string{
		fmt.Sprintf("one gauge process.pid=101: 5 @%d-%d", startOf(101), startOf(101)+5),
		fmt.Sprintf("two gauge process.pid=102: 6 @%d-%d", startOf(102), startOf(102)+6),
	}, n.round(), "at the first sight, under the pid that the table has")
	assert.Empty(t, n.rounds())

	n.write(2, 8, "three", 7, startOf(103))
	assert.Len(t, n.rounds(), 1, "a run directory that comes later")
	assert.Empty(t, n.warnings())

	// The last document is read although the way to it is gone, and then nothing is held.
	n.write(1, 7, "one", 9, startOf(101))
	n.table.Remove(101)
	assert.Equal(t, []string{fmt.Sprintf("one gauge process.pid=101: 9 @%d-%d", startOf(101), startOf(101)+9)}, n.round())
	assert.Empty(t, n.rounds())
	assert.Equal(t, 2, n.roots.held)
	assert.Empty(t, n.roots.ended)
	assert.NotContains(t, n.processes, 101)
	assert.DirExists(t, rundir.Path(filepath.Join(n.root(1), "dev/shm"), 7), "it is not ours to remove")

	// Its pid is used again, by a process of the other container.
	n.run(101, 11, 2, self())
	n.table.Set(procfstest.Process{PID: 101, Start: 500 * procfs.TicksPerSecond})
	n.write(2, 11, "four", 1, startOf(500))
	assert.Equal(t, []string{fmt.Sprintf("four gauge process.pid=101: 1 @%d-%d", startOf(500), startOf(500)+1)}, n.round())
}

// TestProcSHMOfOthers: what is not the process's own is not read.
func TestProcSHMOfOthers(t *testing.T) {
	n := newNode(t)
	owner := func(container, inner, namespace int) {
		path := filepath.Join(rundir.Path(filepath.Join(n.root(container), "dev/shm"), inner), ".owner")
		require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `{"pid":%d,"start_time":1,"boot_id":"b","pid_ns":%d}`, inner, 4026532000+namespace), 0o600))
	}
	// Two pid namespaces share one memory: the directory is that of process 101.
	n.run(101, 7, 1, self())
	n.run(102, 7, 2, self())
	require.NoError(t, os.Remove(filepath.Join(n.table.Root, "102/root")))
	require.NoError(t, os.Symlink(n.root(1), filepath.Join(n.table.Root, "102/root")))
	n.write(1, 7, "shared", 5, startOf(102))
	owner(1, 7, 1)
	// A process whose user is another one than the directory's.
	n.run(103, 7, 3, self()+4242)
	n.write(3, 7, "user", 5, startOf(103))
	// What an earlier process with the same inner pid left.
	n.run(104, 7, 4, self())
	n.write(4, 7, "earlier", 5, startOf(104)-int64(time.Hour))
	// Links lead out of the container.
	n.run(105, 7, 5, self())
	n.run(106, 7, 6, self())
	n.write(5, 7, "behind_link", 5, startOf(106))
	require.NoError(t, os.Remove(filepath.Join(n.root(6), "dev/shm")))
	require.NoError(t, os.Symlink(filepath.Join(n.root(5), "dev/shm"), filepath.Join(n.root(6), "dev/shm")))
	n.run(107, 7, 7, self())
	require.NoError(t, os.Symlink(rundir.Path(filepath.Join(n.root(5), "dev/shm"), 7), rundir.Path(filepath.Join(n.root(7), "dev/shm"), 7)))

	assert.Equal(t, []string{
		fmt.Sprintf("behind_link gauge process.pid=105: 5 @%d-%d", startOf(106), startOf(106)+5),
		fmt.Sprintf("shared gauge process.pid=101: 5 @%d-%d", startOf(102), startOf(102)+5),
	}, n.rounds())
	var causes []string
	for _, e := range n.log.All() {
		causes = append(causes, fmt.Sprint(e.ContextMap()["error"]))
	}
	assert.Contains(t, causes, filepath.Join(n.table.Root, "103/root/dev/shm/graphsignal_7")+": owned by another user: uid "+strconv.Itoa(int(self())),
		"a path that a reader of the log can follow")
	assert.ElementsMatch(t, []string{
		"Shared-memory files were skipped: owned by another user: 1",
		"Shared-memory files were skipped: written by an earlier process of this pid: 1",
	}, n.warnings())
}

// TestProcSHMRefusedByPipeline: the last documents wait, but not for ever.
func TestProcSHMRefusedByPipeline(t *testing.T) {
	n := newNode(t)
	n.run(101, 7, 1, self())
	n.write(1, 7, "one", 5, startOf(101))
	require.Len(t, n.round(), 1)
	n.write(1, 7, "one", 6, startOf(101))
	n.table.Remove(101)
	n.Receiver.metrics = consumertest.NewErr(errors.New("full"))
	n.round()
	n.Receiver.metrics = n.metrics
	assert.Len(t, n.round(), 1)
	assert.Zero(t, n.roots.held)

	n.run(101, 7, 1, self())
	n.write(1, 7, "one", 7, startOf(101))
	require.Len(t, n.round(), 1)
	n.write(1, 7, "one", 8, startOf(101))
	n.table.Remove(101)
	n.Receiver.metrics = consumertest.NewErr(errors.New("full"))
	for range keepEnded + 2 {
		n.round()
	}
	assert.Zero(t, n.roots.held, "a process is not kept longer than its time")
}

func TestProcSHMWithExtension(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.SHMPath = ProcSHM })
	err := h.Start(context.Background(), startExtension(t, os.Getpid(), t.TempDir()))
	assert.ErrorContains(t, err, "shm_path: proc")
}

func TestProcSHMLifecycle(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.SHMPath = ProcSHM })
	require.NoError(t, h.Start(context.Background(), componenttest.NewNopHost()))
	require.NoError(t, h.Shutdown(context.Background()))
}
