package processreceiver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/extension/workloadextension"
	"github.com/graphsignal/graphsignal-collector/internal/procfs/procfstest"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/version"
	"github.com/graphsignal/graphsignal-collector/internal/workload"
	"github.com/graphsignal/graphsignal-collector/receiver/processreceiver/internal/metadata"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	boot     = 1_600_000_000
	deadline = 10 * time.Second
)

// fixture is a receiver over a written process table and the clock that it sees.
type fixture struct {
	*processReceiver
	sink *consumertest.MetricsSink
	time time.Time
}

// newFixture starts nothing: collect is called by the test.
func newFixture(t testing.TB, root string, source workload.Reader) *fixture {
	cfg := createDefaultConfig().(*Config)
	cfg.ProcFSPath = root
	f := &fixture{sink: new(consumertest.MetricsSink), time: time.Unix(boot+1000, 0)}
	f.processReceiver = newReceiver(cfg, componenttest.NewNopTelemetrySettings().Logger, f.sink)
	f.now = func() time.Time { return f.time }
	f.page = 4096
	f.uname = func(u *unix.Utsname) error {
		copy(u.Sysname[:], "Linux")
		copy(u.Release[:], "6.1.0-test")
		copy(u.Machine[:], "x86_64")
		return nil
	}
	f.source = source
	f.boot, _ = f.table.BootTime()
	f.host = f.hostEntity()
	return f
}

// values is one collection as the exporters see it.
type values struct {
	numbers  map[string]series.Number // by name, or pid/name
	starts   map[string]int64
	entities map[string]signal.Entity // by kind, or pid
	times    map[string][2]int64
}

func decode(t testing.TB, md pmetric.Metrics) *values {
	v := &values{map[string]series.Number{}, map[string]int64{}, map[string]signal.Entity{}, map[string][2]int64{}}
	require.Zero(t, signal.Decode(md, v))
	return v
}

func pidOf(tags []series.Tag) string {
	for _, tag := range tags {
		if tag.Key == signal.PIDKey {
			return tag.Value
		}
	}
	return ""
}

func (v *values) set(name string, tags []series.Tag, value series.Number, start int64) {
	if pid := pidOf(tags); pid != "" {
		name = pid + "/" + name
	}
	v.numbers[name], v.starts[name] = value, start
}

func (v *values) Gauge(name string, tags []series.Tag, value series.Number, start, _ int64) {
	v.set(name, tags, value, start)
}

func (v *values) Counter(name string, tags []series.Tag, total series.Number, start, _ int64) {
	v.set(name, tags, total, start)
}

func (v *values) Histogram(string, []series.Tag, *series.Distribution, int64, int64) {}

func (v *values) Profile(string, []series.Tag, []series.Frame, int64, int64) {}

func (v *values) Entity(e signal.Entity, first, last int64) {
	key := e.Kind
	if pid := pidOf(e.ID); pid != "" {
		key = pid
	}
	v.entities[key], v.times[key] = e, [2]int64{first, last}
}

// collected makes a collection and returns what it sent.
func (f *fixture) collected(t testing.TB) *values {
	f.sink.Reset()
	f.collect(context.Background())
	require.Len(t, f.sink.AllMetrics(), 1)
	return decode(t, f.sink.AllMetrics()[0])
}

// processes is a workload.Reader of a list the test writes.
type processes struct {
	list []workload.Process
	done []workload.Process
}

func (p *processes) Processes() []workload.Process { return p.list }
func (p *processes) Done(x workload.Process)       { p.done = append(p.done, x) }
func (p *processes) Close()                        {}

type host struct {
	component.Host
	extensions map[component.ID]component.Component
}

func (h host) GetExtensions() map[component.ID]component.Component { return h.extensions }

// workloadHost is a host with a started workload extension for a process table.
func workloadHost(t *testing.T, root string, pid int) component.Host {
	t.Helper()
	factory := workloadextension.NewFactory()
	cfg := factory.CreateDefaultConfig().(*workloadextension.Config)
	cfg.PID, cfg.ProcFSPath, cfg.SHMPath = pid, root, t.TempDir()
	require.NoError(t, cfg.Validate())
	ext, err := factory.Create(context.Background(), extensiontest.NewNopSettings(factory.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, ext.Start(context.Background(), componenttest.NewNopHost()))
	t.Cleanup(func() { assert.NoError(t, ext.Shutdown(context.Background())) })
	return host{componenttest.NewNopHost(), map[component.ID]component.Component{component.NewID(factory.Type()): ext}}
}

// TestGolden reads a fixed process table, with titles made to confuse, twice in a second.
func TestGolden(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/proc")))
	before := version.Version
	version.Version = "0.0.0-test"
	t.Cleanup(func() { version.Version = before })
	f := newFixture(t, root, workload.Find(workloadHost(t, root, 50)).NewReader())
	f.collect(context.Background())
	f.time = f.time.Add(time.Second)
	stat, err := os.ReadFile(filepath.Join(root, "50/stat"))
	require.NoError(t, err)
	// 1.2 s of CPU time later.
	stat = bytes.Replace(stat, []byte(" 250 75 "), []byte(" 350 95 "), 1)
	require.NoError(t, os.WriteFile(filepath.Join(root, "50/stat"), stat, 0o600))
	f.collect(context.Background())
	for i, md := range f.sink.AllMetrics() {
		compact, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(md)
		require.NoError(t, err)
		var got bytes.Buffer
		require.NoError(t, json.Indent(&got, compact, "", "  "))
		got.WriteByte('\n')
		path := filepath.Join("testdata", "expected-"+strconv.Itoa(i+1)+".json")
		if *update {
			require.NoError(t, os.WriteFile(path, got.Bytes(), 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), got.String(), path)
	}
}

func TestLifecycle(t *testing.T) {
	factory := NewFactory()
	cfg := factory.CreateDefaultConfig().(*Config)
	cfg.PIDs = []int{os.Getpid()}
	sink := new(consumertest.MetricsSink)
	create := func() component.Component {
		r, err := factory.CreateMetrics(context.Background(), receivertest.NewNopSettings(metadata.Type), cfg, sink)
		require.NoError(t, err)
		return r
	}
	require.NoError(t, create().Shutdown(context.Background()), "without Start")
	r := create()
	require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool { return len(sink.AllMetrics()) > 0 }, deadline, time.Millisecond)
	before := len(sink.AllMetrics())
	require.NoError(t, r.Shutdown(context.Background()))
	assert.Greater(t, len(sink.AllMetrics()), before, "the last collection")
	require.NoError(t, r.Shutdown(context.Background()), "twice")
}

// TestRealProcess reads this test's own process, which has several threads.
func TestRealProcess(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.PIDs, cfg.Interval = []int{os.Getpid()}, 150*time.Millisecond
	sink := new(consumertest.MetricsSink)
	r := newReceiver(cfg, componenttest.NewNopTelemetrySettings().Logger, sink)
	began := time.Now()
	require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
	pid := strconv.Itoa(os.Getpid())
	var v *values
	require.Eventually(t, func() bool {
		all := sink.AllMetrics()
		if len(all) == 0 {
			return false
		}
		v = decode(t, all[len(all)-1])
		_, ok := v.numbers[pid+"/process_cpu_usage_percent"]
		return ok && v.numbers[pid+"/process_user_cpu_seconds"].Float64() > 0
	}, deadline, time.Millisecond)
	require.NoError(t, r.Shutdown(context.Background()))
	assert.Greater(t, v.numbers[pid+"/process_memory_usage_bytes"].Float64(), 1e6)
	assert.Greater(t, v.numbers[pid+"/process_memory_virtual_bytes"].Float64(), v.numbers[pid+"/process_memory_usage_bytes"].Float64())
	assert.Greater(t, v.numbers[pid+"/process_threads"].Int64(), int64(1))
	assert.Greater(t, v.numbers[pid+"/process_context_switches_voluntary_total"].Int64(), int64(0))
	assert.Greater(t, v.numbers["host_memory_usage_bytes"].Float64(), 1e6)
	assert.LessOrEqual(t, v.numbers[pid+"/process_cpu_usage_percent"].Float64(), 110.0)
	started := time.Unix(0, v.times[pid][0])
	assert.True(t, started.Before(began) && began.Sub(started) < 10*time.Minute, started)
	var name, release string
	for _, a := range v.entities["host"].Attributes {
		switch a.Key {
		case "platform.name":
			name = a.Value
		case "platform.version":
			release = a.Value
		}
	}
	assert.Equal(t, "Linux", name)
	assert.NotEmpty(t, release)
}

func TestWithoutAnybodyToWatchOnlyTheHost(t *testing.T) {
	f := newFixture(t, "testdata/proc", nil)
	v := f.collected(t)
	assert.Len(t, v.numbers, 1)
	assert.Equal(t, series.Uint((16316044-9137128)*1024), v.numbers["host_memory_usage_bytes"])
	assert.Equal(t, [2]int64{boot * 1e9, f.time.UnixNano()}, v.times["host"])
}

// TestFailuresAreAbsentAndZeroIsZero covers the two things a missing series must not be mixed up with.
func TestFailuresAreAbsentAndZeroIsZero(t *testing.T) {
	table := procfstest.New(t, boot, 2)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100})
	require.NoError(t, os.RemoveAll(filepath.Join(table.Root, "50/task")))
	f := newFixture(t, table.Root, newPIDReader(table.Root, []int{50}))
	v := f.collected(t)
	assert.NotContains(t, v.numbers, "host_memory_usage_bytes")
	assert.Contains(t, v.entities, "host")
	assert.NotContains(t, v.numbers, "50/process_context_switches_voluntary_total")
	assert.Equal(t, series.Float(0), v.numbers["50/process_user_cpu_seconds"])
	assert.Equal(t, series.Int(0), v.numbers["50/process_memory_usage_bytes"])
	assert.NotContains(t, v.numbers, "50/process_cpu_usage_percent", "the first reading only seeds")
	f.time = f.time.Add(time.Second)
	assert.Equal(t, series.Float(0), f.collected(t).numbers["50/process_cpu_usage_percent"])
}

// TestProcessWhoseFirstThreadEnded: it is shown as a zombie without memory, but it works on.
func TestProcessWhoseFirstThreadEnded(t *testing.T) {
	table := procfstest.New(t, boot, 2)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, State: 'Z', User: 700, Switches: [][2]uint64{{1, 2}, {3, 4}}})
	f := newFixture(t, table.Root, newPIDReader(table.Root, []int{50}))
	v := f.collected(t)
	assert.Equal(t, series.Float(7), v.numbers["50/process_user_cpu_seconds"])
	assert.Equal(t, series.Int(4), v.numbers["50/process_context_switches_voluntary_total"])
	assert.NotContains(t, v.numbers, "50/process_memory_usage_bytes", "it cannot be read any more")
	assert.NotContains(t, v.numbers, "50/process_memory_virtual_bytes")
}

func TestCPUPercent(t *testing.T) {
	table := procfstest.New(t, boot, 4)
	p := procfstest.Process{PID: 50, PPID: 1, Start: 100, User: 1000, System: 50}
	table.Set(p)
	f := newFixture(t, table.Root, newPIDReader(table.Root, []int{50}))
	f.collected(t)
	percent := func(passed time.Duration, ticks uint64) (float64, bool) {
		p.User += ticks
		table.Set(p)
		f.time = f.time.Add(passed)
		n, ok := f.collected(t).numbers["50/process_cpu_usage_percent"]
		return n.Float64(), ok
	}
	got, _ := percent(time.Second, 100)
	assert.Equal(t, 25.0, got, "one of four CPUs")
	got, _ = percent(3*time.Second, 100)
	assert.Equal(t, 33.3/4, got, "rounded before the division")
	_, ok := percent(20*time.Millisecond, 2)
	assert.False(t, ok, "too short to tell")
	got, _ = percent(980*time.Millisecond, 18)
	assert.Equal(t, 5.0, got, "nothing was lost by that")
}

func TestEndedTargetIsStillAnEntity(t *testing.T) {
	dead := workload.Process{PID: 50, Root: 50, StartTime: boot*1e9 + 5, CommandLine: "true", Ended: true}
	child := workload.Process{PID: 51, Root: 50, StartTime: boot*1e9 + 6, Ended: true}
	source := &processes{list: []workload.Process{dead, child}}
	f := newFixture(t, procfstest.New(t, boot, 1).Root, source)
	refuse := errors.New("refused")
	ok := f.next
	f.next, _ = consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { return refuse })
	f.collect(context.Background())
	assert.Empty(t, source.done, "what was not delivered is not done")
	f.next = ok
	v := f.collected(t)
	assert.Equal(t, source.list, source.done)
	assert.Empty(t, v.numbers)
	assert.Equal(t, [2]int64{dead.StartTime, f.time.UnixNano()}, v.times["50"])
	assert.Equal(t, []series.Tag{{Key: "process.command_line", Value: "true"}}, v.entities["50"].Attributes)
	assert.NotContains(t, v.entities, "51", "a descendant that was never reported")
}

func TestDescendantsAreReportedFromASecondOn(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 99_950})
	table.Set(procfstest.Process{PID: 51, PPID: 50, Start: 99_950})
	start := int64(boot*1e9 + 999.5e9)
	source := &processes{list: []workload.Process{
		{PID: 50, Root: 50, StartTime: start, StartTicks: 99_950}, {PID: 51, Root: 50, StartTime: start, StartTicks: 99_950},
	}}
	f := newFixture(t, table.Root, source)
	v := f.collected(t)
	assert.Contains(t, v.entities, "50")
	assert.NotContains(t, v.entities, "51")
	f.time = f.time.Add(time.Second)
	assert.Contains(t, f.collected(t).entities, "51")
	// Once reported it is seen to its end.
	source.list[1].Ended = true
	f.time = f.time.Add(time.Second)
	assert.Equal(t, [2]int64{start, f.time.UnixNano()}, f.collected(t).times["51"])

	// The clock steps back: a process that starts then is known by the former time.
	f.time = f.time.Add(-time.Hour)
	table.Set(procfstest.Process{PID: 52, PPID: 50, Start: 100_000})
	source.list[1] = workload.Process{PID: 52, Root: 50, StartTime: int64(boot*1e9 + 1000e9), StartTicks: 100_000}
	assert.Contains(t, f.collected(t).entities, "52")
}

func TestAnotherProcessOfThePid(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, User: 500, Argv: []string{"a"}})
	f := newFixture(t, table.Root, newPIDReader(table.Root, []int{50, 60}))
	v := f.collected(t)
	assert.Equal(t, int64(boot*1e9+1e9), v.starts["50/process_threads"])
	assert.NotContains(t, v.entities, "60")
	f.time = f.time.Add(time.Second)
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 300, User: 1000, Argv: []string{"b", "--token", "zz"}})
	v = f.collected(t)
	assert.Equal(t, int64(boot*1e9+3e9), v.starts["50/process_threads"])
	assert.NotContains(t, v.numbers, "50/process_cpu_usage_percent", "nothing of the other process is taken over")
	assert.Equal(t, []series.Tag{{Key: "process.command_line", Value: "b --token ***"}}, v.entities["50"].Attributes)
	table.Remove(50)
	assert.NotContains(t, f.collected(t).entities, "50")
	assert.Empty(t, f.tracked)

	// Where the tree has not noticed yet, the entity is all that is told.
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 900})
	f.source = &processes{list: []workload.Process{{PID: 50, Root: 50, StartTicks: 300, StartTime: 1}}}
	v = f.collected(t)
	assert.Contains(t, v.entities, "50")
	assert.Len(t, v.numbers, 0)
}

func TestSwitchesOfAllThreadsNeverFall(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	set := func(switches ...[2]uint64) {
		table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, Switches: switches})
	}
	f := newFixture(t, table.Root, newPIDReader(table.Root, []int{50}))
	total := func() (int64, int64) {
		v := f.collected(t)
		return v.numbers["50/process_context_switches_voluntary_total"].Int64(),
			v.numbers["50/process_context_switches_involuntary_total"].Int64()
	}
	set([2]uint64{10, 1}, [2]uint64{20, 2})
	a, b := total()
	assert.Equal(t, []int64{30, 3}, []int64{a, b})
	set([2]uint64{15, 1}, [2]uint64{20, 4}, [2]uint64{1000, 5})
	a, b = total()
	assert.Equal(t, []int64{1035, 10}, []int64{a, b})
	set([2]uint64{16, 1}) // the two other threads have ended
	a, b = total()
	assert.Equal(t, []int64{1036, 10}, []int64{a, b})
	set([2]uint64{16, 1}, [2]uint64{3, 3}) // a new thread of a known id
	a, b = total()
	assert.Equal(t, []int64{1039, 13}, []int64{a, b})
}

func TestManyThreadsAreReadInTurns(t *testing.T) {
	table := procfstest.New(t, boot, 1)
	switches := make([][2]uint64, 20)
	for i := range switches {
		switches[i] = [2]uint64{1, 0}
	}
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, Switches: switches})
	var s switchTotal
	f := newFixture(t, table.Root, nil)
	total, ok := s.advance(f.table, 50, 20, 8)
	require.True(t, ok)
	assert.Equal(t, uint64(20), total.Voluntary, "the first time all are read")
	for i := range switches {
		switches[i] = [2]uint64{2, 0}
	}
	table.Set(procfstest.Process{PID: 50, PPID: 1, Start: 100, Switches: switches})
	var got []uint64
	for range 4 {
		total, _ = s.advance(f.table, 50, 20, 8)
		got = append(got, total.Voluntary)
	}
	assert.Equal(t, []uint64{28, 36, 40, 40}, got)
}

// BenchmarkCollect reads real processes: this one, 64 times over in the second case.
func BenchmarkCollect(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			f := newFixture(b, "/proc", nil)
			f.next = consumertest.NewNop()
			var list []workload.Process
			for i := range n {
				list = append(list, workload.Process{PID: os.Getpid(), Root: os.Getpid(), StartTime: int64(i + 1)})
			}
			f.source = &processes{list: list}
			b.ReportAllocs()
			for b.Loop() {
				f.collect(context.Background())
			}
		})
	}
}
