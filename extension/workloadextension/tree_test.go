package workloadextension

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/procfs/procfstest"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
)

const boot = 1_600_000_000

func shown(int) bool { return false }

func newTestTree(table *procfstest.Table, target int) *tree {
	t := newTree(procfs.NewReader(table.Root), 99, workload.Process{PID: target, Root: target})
	t.find(shown)
	return t
}

func scan(t *testing.T, tree *tree) (living, ended []int) {
	t.Helper()
	gone, err := tree.scan(shown)
	require.NoError(t, err)
	return pids(tree.living(nil)), pids(gone)
}

func pids(list []workload.Process) []int {
	out := []int{}
	for _, p := range list {
		out = append(out, p.PID)
	}
	return out
}

func TestTreeFindsDescendantsInAnyOrderOfPids(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 1, Start: 1})
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, Argv: []string{"serve", "--api-key", "zz-secret", "m"}})
	table.Set(procfstest.Process{PID: 7, PPID: 50, Start: 200, Argv: []string{"worker", "\xff"}}) // pids have wrapped around
	table.Set(procfstest.Process{PID: 3, PPID: 7, Start: 300})
	table.Set(procfstest.Process{PID: 60, PPID: 1, Start: 90})
	table.Set(procfstest.Process{PID: 99, PPID: 50, Start: 100}) // ourselves
	table.Set(procfstest.Process{PID: 100, PPID: 99, Start: 110})
	table.Set(procfstest.Process{PID: 101, PPID: 7, Start: 310, State: 'Z'})
	tree := newTestTree(table, 50)
	living, ended := scan(t, tree)
	assert.Equal(t, []int{3, 7, 50}, living)
	assert.Empty(t, ended)
	assert.Equal(t, workload.Process{
		PID: 7, Root: 50, StartTicks: 200, StartTime: boot*1e9 + 2*int64(time.Second), CommandLine: "worker \uFFFD",
	}, tree.members[7].Process)
	assert.Equal(t, "serve --api-key *** m", tree.members[50].CommandLine)
}

// TestTreeKeepsAProcessWhoseFirstThreadEnded: it is shown as a zombie, but it lives as long as another thread does.
func TestTreeKeepsAProcessWhoseFirstThreadEnded(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	threads := make([][2]uint64, 2)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, Argv: []string{"serve"}})
	tree := newTestTree(table, 50)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, State: 'Z', Switches: threads})
	table.Set(procfstest.Process{PID: 51, PPID: 50, Start: 101, State: 'Z', Switches: threads})
	living, ended := scan(t, tree)
	assert.Equal(t, []int{50, 51}, living)
	assert.Empty(t, ended)
	assert.Equal(t, "serve", tree.members[50].CommandLine)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, State: 'Z'})
	_, ended = scan(t, tree)
	assert.Equal(t, []int{50}, ended)
}

func TestTreeKeepsReparentedDescendants(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	table.Set(procfstest.Process{PID: 51, PPID: 50, Start: 101})
	table.Set(procfstest.Process{PID: 52, PPID: 51, Start: 102})
	tree := newTestTree(table, 50)
	living, _ := scan(t, tree)
	assert.Equal(t, []int{50, 51, 52}, living)

	table.Remove(51)
	table.Set(procfstest.Process{PID: 52, PPID: 1, Start: 102})
	table.Set(procfstest.Process{PID: 53, PPID: 52, Start: 400})
	living, ended := scan(t, tree)
	assert.Equal(t, []int{50, 52, 53}, living)
	assert.Equal(t, []int{51}, ended)

	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, State: 'Z'})
	living, ended = scan(t, tree)
	assert.Equal(t, []int{52, 53}, living)
	assert.Equal(t, []int{50}, ended)
	assert.True(t, tree.target.Ended)
	assert.NotZero(t, tree.target.StartTime)
}

func TestTreeTellsProcessesOfOnePidApart(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	table.Set(procfstest.Process{PID: 51, PPID: 50, Start: 101})
	// Its parent carried the pid of our target before.
	table.Set(procfstest.Process{PID: 52, PPID: 50, Start: 99})
	// And the parent of this one that of our child.
	table.Set(procfstest.Process{PID: 53, PPID: 51, Start: 100})
	tree := newTestTree(table, 50)
	living, _ := scan(t, tree)
	assert.Equal(t, []int{50, 51}, living)

	table.Set(procfstest.Process{PID: 51, PPID: 1, Start: 500}) // a stranger of the same pid
	living, ended := scan(t, tree)
	assert.Equal(t, []int{50}, living)
	assert.Equal(t, []int{51}, ended)

	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 600})
	living, ended = scan(t, tree)
	assert.Empty(t, living)
	assert.Equal(t, []int{50}, ended)
	assert.True(t, tree.target.Ended)
}

func TestTreeJudgesAgainWhereTheParentWasNotSeen(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	table.Set(procfstest.Process{PID: 70, PPID: 60, Start: 300})
	tree := newTestTree(table, 50)
	living, _ := scan(t, tree)
	assert.Equal(t, []int{50}, living)
	table.Set(procfstest.Process{PID: 60, PPID: 50, Start: 200})
	living, _ = scan(t, tree)
	assert.Equal(t, []int{50, 60, 70}, living)
}

func TestTreeSurvivesCirclesAndBrokenFiles(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	table.Set(procfstest.Process{PID: 60, PPID: 61, Start: 100})
	table.Set(procfstest.Process{PID: 61, PPID: 60, Start: 100})
	table.Write("62/stat", "62 (")
	table.Write("63/cmdline", "no stat")
	table.Write("self/stat", "no number")
	tree := newTestTree(table, 50)
	living, _ := scan(t, tree)
	assert.Equal(t, []int{50}, living)
	// A member that cannot be read for now has not ended.
	table.Write("50/stat", "50 (")
	living, ended := scan(t, tree)
	assert.Equal(t, []int{50}, living)
	assert.Empty(t, ended)
}

func TestTreeReadsTitlesWithParenthesesAndNewlines(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, Comm: "VLLM::W) Z 1 ("})
	table.Set(procfstest.Process{PID: 51, PPID: 50, Start: 100, Comm: "\xff\xfe w\n1"})
	tree := newTestTree(table, 50)
	living, _ := scan(t, tree)
	assert.Equal(t, []int{50, 51}, living)
}

func TestTreeNoticesExec(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	table.Set(procfstest.Process{PID: 51, PPID: 50, Start: 100, Comm: "sh", Argv: []string{"sh", "-c", "x"}})
	tree := newTestTree(table, 50)
	scan(t, tree)
	assert.Equal(t, "sh -c x", tree.members[51].CommandLine)
	table.Set(procfstest.Process{PID: 51, PPID: 50, Start: 100, Comm: "python3", Argv: []string{"python3", "x.py"}})
	scan(t, tree)
	assert.Equal(t, "python3 x.py", tree.members[51].CommandLine)
	scan(t, tree)
	scan(t, tree)
	table.Set(procfstest.Process{PID: 51, PPID: 50, Start: 100, Comm: "VLLM::Worker", Argv: []string{"VLLM::Worker"}})
	scan(t, tree)
	assert.Equal(t, "VLLM::Worker", tree.members[51].CommandLine)
}

func TestTreeKnowsTheTargetThatIsGone(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	tree := newTestTree(table, 50)
	living, ended := scan(t, tree)
	assert.Empty(t, living)
	assert.Empty(t, ended)
	assert.True(t, tree.target.Ended)

	hidden := newTree(procfs.NewReader(table.Root), 99, workload.Process{PID: 50, Root: 50})
	all := func(int) bool { return true }
	hidden.find(all)
	_, err := hidden.scan(all)
	require.NoError(t, err)
	assert.False(t, hidden.target.Ended)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100}) // now it shows
	_, err = hidden.scan(all)
	require.NoError(t, err)
	assert.False(t, hidden.target.Ended)
	assert.Equal(t, uint64(100), hidden.target.StartTicks)
}

func TestTreeSkipsStrangersThatItKnows(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	table.Set(procfstest.Process{PID: 60, PPID: 1, Start: 100})
	tree := newTestTree(table, 50)
	scan(t, tree)
	assert.Contains(t, tree.strangers, 60)
	table.Remove(60)
	// A child of the stranger that is gone, but not yet given to init: who knows.
	table.Set(procfstest.Process{PID: 61, PPID: 60, Start: 300})
	scan(t, tree)
	assert.NotContains(t, tree.strangers, 60)
	assert.NotContains(t, tree.strangers, 61)
	// The same pid again: another entry, and this time a child.
	table.Set(procfstest.Process{PID: 60, PPID: 50, Start: 200})
	living, _ := scan(t, tree)
	assert.Equal(t, []int{50, 60, 61}, living)
}

func TestTreeJudgesAnotherProcessOfAStrangersPid(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	table.Set(procfstest.Process{PID: 60, PPID: 1, Start: 100})
	tree := newTestTree(table, 50)
	scan(t, tree)
	// Made before the other is removed, so that it has another inode.
	next := procfstest.New(t, boot, 1)
	next.Set(procfstest.Process{PID: 60, PPID: 50, Start: 200})
	table.Remove(60)
	require.NoError(t, os.Rename(filepath.Join(next.Root, "60"), filepath.Join(table.Root, "60")))
	living, _ := scan(t, tree)
	assert.Equal(t, []int{50, 60}, living)
}

func TestTreeReadsStrangersAgainNowAndThen(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	table.Set(procfstest.Process{PID: 60, PPID: 1, Start: 100})
	tree := newTestTree(table, 50)
	scan(t, tree)
	table.Set(procfstest.Process{PID: 60, PPID: 50, Start: 200}) // in the same entry
	for range recheckEvery {
		scan(t, tree)
	}
	living, _ := scan(t, tree)
	assert.Equal(t, []int{50, 60}, living)
}

// BenchmarkScan follows this test in the real process table.
func BenchmarkScan(b *testing.B) {
	tree := newTree(procfs.NewReader(procfs.DefaultRoot), 0, workload.Process{PID: os.Getpid(), Root: os.Getpid()})
	tree.find(shown)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tree.scan(shown); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(tree.entries)), "processes")
}
