package procfs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/procfs/procfstest"
)

func TestOwnProcess(t *testing.T) {
	r := procfs.NewReader(procfs.DefaultRoot)
	s, err := r.Stat(os.Getpid())
	require.NoError(t, err)
	assert.Equal(t, os.Getpid(), s.PID)
	assert.Equal(t, os.Getppid(), s.PPID)
	assert.Greater(t, s.VirtualBytes, s.ResidentPages)

	boot, err := r.BootTime()
	require.NoError(t, err)
	started := time.Unix(0, procfs.StartTime(boot, s.StartTicks))
	assert.WithinDuration(t, time.Now(), started, 10*time.Minute)
	assert.False(t, started.After(time.Now()))

	argv, err := r.Cmdline(os.Getpid())
	require.NoError(t, err)
	assert.Equal(t, os.Args, argv)

	tids, err := r.Threads(os.Getpid(), nil)
	require.NoError(t, err)
	assert.Contains(t, tids, os.Getpid())
	_, err = r.ThreadSwitches(os.Getpid(), os.Getpid())
	require.NoError(t, err)

	list, err := r.Processes(nil)
	require.NoError(t, err)
	seen := make(map[int]uint64)
	for _, e := range list {
		seen[e.PID] = e.Inode
	}
	assert.NotZero(t, seen[os.Getpid()])
	assert.NotZero(t, seen[os.Getppid()])

	m, err := r.MemInfo()
	require.NoError(t, err)
	assert.Greater(t, m.Total, m.Used())
	machine, err := r.Machine()
	require.NoError(t, err)
	assert.Positive(t, machine.CPUs)
}

func TestProcessesThatAreGone(t *testing.T) {
	cmd := exec.Command("true")
	require.NoError(t, cmd.Start())
	r := procfs.NewReader(procfs.DefaultRoot)
	require.Eventually(t, func() bool {
		s, err := r.Stat(cmd.Process.Pid)
		return err == nil && s.Ended()
	}, 10*time.Second, time.Millisecond, "a zombie")
	argv, err := r.Cmdline(cmd.Process.Pid)
	require.NoError(t, err)
	assert.Empty(t, argv)
	require.NoError(t, cmd.Wait())
	_, err = r.Stat(cmd.Process.Pid)
	assert.True(t, procfs.Gone(err), err)
	_, err = r.Threads(cmd.Process.Pid, nil)
	assert.True(t, procfs.Gone(err), err)
	_, err = r.ThreadSwitches(os.Getpid(), cmd.Process.Pid)
	assert.True(t, procfs.Gone(err), err)
	_, err = procfs.NewReader("/nonexistent").Processes(nil)
	assert.Error(t, err)
}

func TestWrittenTable(t *testing.T) {
	table := procfstest.New(t, 1_600_000_000, 3)
	argv := []string{"python3", strings.Repeat("x", 100_000)}
	table.Set(procfstest.Process{PID: 50, PPID: 1, Comm: "a) (b", Start: 7, Argv: argv, Switches: [][2]uint64{{1, 2}, {3, 4}}})
	table.Write("self/stat", "no process")
	table.Write("007/stat", "no pid that a kernel writes")
	r := procfs.NewReader(table.Root)
	s, err := r.Stat(50)
	require.NoError(t, err)
	assert.Equal(t, "a) (b", string(s.Comm))
	got, err := r.Cmdline(50)
	require.NoError(t, err)
	assert.Len(t, got[1], 64<<10-len("python3\x00"), "cut")
	tids, err := r.Threads(50, nil)
	require.NoError(t, err)
	assert.ElementsMatch(t, []int{50, 51}, tids)
	list, err := r.Processes(nil)
	require.NoError(t, err)
	assert.Len(t, list, 1)
	switches, err := r.ThreadSwitches(50, 51)
	require.NoError(t, err)
	assert.Equal(t, procfs.Switches{Voluntary: 3, Involuntary: 4}, switches)
	boot, err := r.BootTime()
	require.NoError(t, err)
	assert.Equal(t, int64(1_600_000_000e9), boot, "not this machine's, so not made precise")

	table.Write("50/stat", "50 (")
	_, err = r.Stat(50)
	assert.ErrorContains(t, err, filepath.Join(table.Root, "50/stat"))
	assert.False(t, procfs.Gone(err))
}

// TestListOfManyProcesses needs more than one call of the kernel.
func TestListOfManyProcesses(t *testing.T) {
	root := t.TempDir()
	for pid := 1; pid <= 3000; pid++ {
		require.NoError(t, os.Mkdir(filepath.Join(root, strconv.Itoa(pid)), 0o700))
	}
	list, err := procfs.NewReader(root).Processes(nil)
	require.NoError(t, err)
	assert.Len(t, list, 3000)
}

func BenchmarkProcesses(b *testing.B) {
	r := procfs.NewReader(procfs.DefaultRoot)
	var list []procfs.Entry
	for b.Loop() {
		list, _ = r.Processes(list[:0])
	}
	b.ReportMetric(float64(len(list)), "processes")
}
