package shmreceiver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/graphsignal/graphsignal-collector/extension/workloadextension"
	"github.com/graphsignal/graphsignal-collector/internal/procfs"
	"github.com/graphsignal/graphsignal-collector/internal/procfs/procfstest"
	"github.com/graphsignal/graphsignal-collector/internal/rundir"
	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/shm"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
)

const deadline = 10 * time.Second

// harness is a Receiver with its run directories, and what it sent and logged.
type harness struct {
	*Receiver
	t       *testing.T
	metrics *consumertest.MetricsSink
	logs    *consumertest.LogsSink
	log     *observer.ObservedLogs
}

func newHarness(t *testing.T, configure ...func(*Config)) *harness {
	t.Helper()
	config := defaultConfig()
	config.SHMPath, config.ProcFSPath = t.TempDir(), t.TempDir()
	for _, f := range configure {
		f(config)
	}
	require.NoError(t, config.Validate())
	core, log := observer.New(zap.DebugLevel)
	set := componenttest.NewNopTelemetrySettings()
	set.Logger = zap.New(core)
	h := &harness{
		Receiver: newReceiver(config, shm.AllBut(), "scope", set),
		t:        t, metrics: new(consumertest.MetricsSink), logs: new(consumertest.LogsSink), log: log,
	}
	h.Receiver.metrics = h.metrics
	h.Receiver.logs = h.logs
	return h
}

// put writes a file into the run directory of a process, as writers do.
func (h *harness) put(pid int, name, content string) {
	h.t.Helper()
	dir := rundir.Path(h.config.SHMPath, pid)
	require.NoError(h.t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, name)
	require.NoError(h.t, os.WriteFile(path+".tmp", []byte(content), 0o600))
	require.NoError(h.t, os.Rename(path+".tmp", path))
}

// round collects once and returns what was sent, one line a series or log record.
func (h *harness) round() []string {
	h.t.Helper()
	h.metrics.Reset()
	h.logs.Reset()
	h.collect(context.Background())
	return h.sent()
}

func (h *harness) sent() []string {
	var lines lineSink
	for _, md := range h.metrics.AllMetrics() {
		assert.Zero(h.t, signal.Decode(md, &lines))
	}
	for _, ld := range h.logs.AllLogs() {
		signal.DecodeErrors(ld, func(e signal.ErrorEntry) {
			lines = append(lines, fmt.Sprintf("%s %q %v @%d", e.Level, e.Message, e.Tags, e.Time))
		})
	}
	slices.Sort(lines)
	return lines
}

// warnings returns the messages logged at warning level since the last call, each with its count.
func (h *harness) warnings() []string {
	var lines []string
	for _, e := range h.log.TakeAll() {
		if e.Level == zap.WarnLevel {
			lines = append(lines, fmt.Sprintf("%s: %v", e.Message, e.ContextMap()["count"]))
		}
	}
	slices.Sort(lines)
	return lines
}

// lineSink is a signal.Sink that describes each series in one line.
type lineSink []string

func (s *lineSink) add(name string, typ series.Type, tags []series.Tag, value string, start, ts int64) {
	tags = series.NormalizeTags(slices.Clone(tags))
	line := fmt.Sprintf("%s %s", name, typ)
	for _, t := range tags {
		line += " " + t.Key + "=" + t.Value
	}
	*s = append(*s, fmt.Sprintf("%s: %s @%d-%d", line, value, start, ts))
}

func number(n series.Number) string { return string(n.AppendJSON(nil)) }

func (s *lineSink) Entity(e signal.Entity, _, _ int64) { *s = append(*s, "entity "+e.Kind) }

func (s *lineSink) Gauge(name string, tags []series.Tag, value series.Number, start, ts int64) {
	s.add(name, series.Gauge, tags, number(value), start, ts)
}

func (s *lineSink) Counter(name string, tags []series.Tag, total series.Number, start, ts int64) {
	s.add(name, series.Counter, tags, number(total), start, ts)
}

func (s *lineSink) Histogram(name string, tags []series.Tag, d *series.Distribution, start, ts int64) {
	var text strings.Builder
	for _, b := range d.Bins {
		fmt.Fprintf(&text, "%s:%d ", number(b.Value), b.Count)
	}
	if d.HasTotals {
		fmt.Fprintf(&text, "count=%d sum=%s", d.Count, number(d.Sum))
	}
	if d.HasMin && d.HasMax {
		fmt.Fprintf(&text, " min=%s max=%s", number(d.Min), number(d.Max))
	}
	s.add(name, series.Histogram, tags, text.String(), start, ts)
}

func (s *lineSink) Profile(name string, tags []series.Tag, frames []series.Frame, start, ts int64) {
	s.add(name, series.Profile, tags, fmt.Sprint(frames), start, ts)
}

func TestDocumentBecomesMetrics(t *testing.T) {
	h := newHarness(t)
	h.put(4711, "cupti.json", `{"version":1,"pid":1,"start_ts":1700000000000000000,"write_ts":1700000005000000000,"context":{"rank":"0","own":"x"},"metrics":[
		{"name":"cuda_kernels_nanoseconds","type":"profile","tags":{},"frames":{"_Z3addPf":[81200,12]}},
		{"name":"cuda_memcpy_bytes","type":"counter","tags":{"kind":"host_to_device"},"value":9223372036854775807},
		{"name":"cuda_memcpy_bytes","type":"counter","tags":{"kind":"device_to_host"},"value":18446744073709551615},
		{"name":"cuda_graph_trace_mode","type":"gauge","tags":{},"value":0},
		{"name":"app_step_ns","type":"histogram","tags":{"op":"a"},"bins":[40,96],"counts":[1,2],"count":3,"sum":243,"min":42,"max":101},
		{"name":"app_other","type":"gauge","tags":{"process.rank":"9","process.pid":"1"},"value":2.5}],
		"log":[{"ts":1700000001000000000,"level":"error","msg":"text \n"}]}`)
	h.put(4711, "probes.json", `{"version":1,"metrics":[{"name":"q","type":"gauge","value":1}]}`)
	h.now = func() time.Time { return time.Unix(1700000009, 0) }
	times := " @1700000000000000000-1700000005000000000"
	assert.Equal(t, []string{
		"app_other gauge process.pid=1 process.rank=9: 2.5" + times,
		"app_step_ns histogram op=a process.pid=4711 process.rank=0: 40:1 96:2 count=3 sum=243 min=42 max=101" + times,
		"cuda_graph_trace_mode gauge process.pid=4711 process.rank=0: 0" + times,
		"cuda_kernels_nanoseconds profile process.pid=4711 process.rank=0: [{_Z3addPf 81200 12}]" + times,
		"cuda_memcpy_bytes counter kind=device_to_host process.pid=4711 process.rank=0: 9223372036854775807" + times,
		"cuda_memcpy_bytes counter kind=host_to_device process.pid=4711 process.rank=0: 9223372036854775807" + times,
		`error "text" [{process.pid 4711} {scope.name profiler}] @1700000001000000000`,
		"q gauge process.pid=4711: 1 @0-1700000009000000000",
	}, h.round())
	resources := h.metrics.AllMetrics()[0].ResourceMetrics()
	assert.Equal(t, 2, resources.Len(), "a Resource for each context of the process")
	assert.Equal(t, "scope", resources.At(0).ScopeMetrics().At(0).Scope().Name())
	assert.Empty(t, h.warnings())
}

func TestOneResourcePerProcess(t *testing.T) {
	h := newHarness(t)
	for _, pid := range []int{11, 12} {
		for _, name := range []string{"a", "b"} {
			h.put(pid, name+".json", `{"version":1,"context":{"rank":"0"},"metrics":[{"name":"`+name+`","type":"gauge","value":1}]}`)
		}
	}
	assert.Len(t, h.round(), 4)
	require.Len(t, h.metrics.AllMetrics(), 1)
	assert.Equal(t, 2, h.metrics.AllMetrics()[0].ResourceMetrics().Len())
}

func TestWriteTimes(t *testing.T) {
	h := newHarness(t)
	h.now = func() time.Time { return time.Unix(100, 0) }
	h.put(11, "a.json", `{"version":1,"start_ts":5,"write_ts":"soon","metrics":[{"name":"text","type":"gauge","value":1}]}`)
	h.put(11, "b.json", `{"version":1,"start_ts":9,"write_ts":7,"metrics":[{"name":"backwards","type":"counter","value":1}]}`)
	assert.Equal(t, []string{
		"backwards counter process.pid=11: 1 @7-7",
		"text gauge process.pid=11: 1 @5-100000000000",
	}, h.round())
}

func TestOnlyWhatChangedIsSent(t *testing.T) {
	h := newHarness(t)
	h.put(11, "a.json", `{"version":1,"start_ts":1,"metrics":[{"name":"steps","type":"counter","value":900}]}`)
	h.put(11, "b.json", `{"version":1,"metrics":[{"name":"b","type":"counter","value":1}]}`)
	assert.Len(t, h.round(), 2)
	assert.Empty(t, h.round())
	h.put(11, "a.json", `{"version":1,"start_ts":2,"write_ts":3,"metrics":[{"name":"steps","type":"counter","value":3}]}`)
	assert.Equal(t, []string{"steps counter process.pid=11: 3 @2-3"}, h.round(), "a writer that restarted has its total served")
	assert.Empty(t, h.round())
	require.NoError(t, os.RemoveAll(rundir.Path(h.config.SHMPath, 11)))
	assert.Empty(t, h.round())
	assert.Empty(t, h.processes, "nothing is kept of a directory that is gone")
}

func TestWriterLog(t *testing.T) {
	h := newHarness(t)
	long := strings.Repeat("ü", 2000)
	h.put(11, "a.json", `{"version":1,"log":[{"ts":1,"level":"debug","msg":"d"},{"ts":2,"msg":"plain"},{"ts":3,"level":"warning","msg":"w"},
		{"ts":4,"level":"error","msg":"`+long+`"},{"ts":5,"level":"error","msg":" \n"},{"ts":6,"level":"fatal","msg":"unknown"}]}`)
	sent := h.round()
	require.Len(t, sent, 2)
	assert.Equal(t, `warning "w" [{process.pid 11} {scope.name profiler}] @3`, sent[1])
	assert.Equal(t, `error "`+strings.Repeat("ü", 1021)+`..." [{process.pid 11} {scope.name profiler}] @4`, sent[0])
	var debug []string
	for _, e := range h.log.FilterLevelExact(zap.DebugLevel).All() {
		debug = append(debug, e.Message)
	}
	assert.Equal(t, []string{"workload: d", "workload: plain", "workload: unknown"}, debug)

	h.put(11, "a.json", `{"version":1,"log":[{"ts":3,"level":"warning","msg":"w"},{"ts":3,"level":"warning","msg":"v"}]}`)
	assert.Equal(t, []string{`warning "v" [{process.pid 11} {scope.name profiler}] @3`}, h.round())
}

func TestPipelineThatRefuses(t *testing.T) {
	document := `{"version":1,"metrics":[{"name":"a","type":"gauge","value":1}],"log":[{"ts":3,"level":"error","msg":"m"}]}`
	log := `error "m" [{process.pid 11} {scope.name profiler}] @3`

	t.Run("for now", func(t *testing.T) {
		h := newHarness(t)
		h.now = func() time.Time { return time.Unix(1, 0) }
		h.put(11, "a.json", document)
		h.Receiver.metrics = consumertest.NewErr(errors.New("full"))
		for range 3 {
			h.round()
		}
		assert.Equal(t, []string{"The pipeline could not take metrics of shared memory, which are read again: 1"}, h.warnings())
		h.Receiver.metrics = h.metrics
		assert.Equal(t, []string{"a gauge process.pid=11: 1 @0-1000000000"}, h.round(), "the log went through already")

		h.put(11, "b.json", strings.Replace(document, `"ts":3`, `"ts":4`, 1))
		h.Receiver.logs = consumertest.NewErr(errors.New("full"))
		h.round()
		h.Receiver.logs = h.logs
		assert.Contains(t, h.round(), strings.Replace(log, "@3", "@4", 1))
	})
	t.Run("for good", func(t *testing.T) {
		h := newHarness(t)
		h.put(11, "a.json", document)
		refusing := consumertest.NewErr(consumererror.NewPermanent(errors.New("never")))
		h.Receiver.metrics = refusing
		h.Receiver.logs = refusing
		h.round()
		assert.Equal(t, []string{
			"The pipeline refused logs of shared memory: 1",
			"The pipeline refused metrics of shared memory: 1",
		}, h.warnings())
		h.Receiver.metrics = h.metrics
		h.Receiver.logs = h.logs
		assert.Empty(t, h.round())
	})
	t.Run("one signal only", func(t *testing.T) {
		h := newHarness(t)
		h.put(11, "a.json", document)
		h.Receiver.metrics = nil
		assert.Equal(t, []string{log}, h.round())
		h = newHarness(t)
		h.now = func() time.Time { return time.Unix(1, 0) }
		h.put(11, "a.json", document)
		h.Receiver.logs = nil
		assert.Equal(t, []string{"a gauge process.pid=11: 1 @0-1000000000"}, h.round())
	})
}

// TestSkipsAreReported: one line a cause and minute, with the count.
func TestSkipsAreReported(t *testing.T) {
	h := newHarness(t)
	now := time.Unix(1700000000, 0)
	h.now = func() time.Time { return now }
	h.report.now = h.now
	write := func(i int) {
		h.put(11, "a.json", fmt.Sprintf(`{"version":1,"write_ts":%d,"metrics":[{"name":"x","type":"gauge","value":nan},{"name":"y","type":"gauge","value":nan},
			{"name":"z","type":"gauge"},{"name":"unrecorded","type":"histogram","tags":{}},{"name":"newer","type":"summary"},{"name":"ok","type":"gauge","value":1}]}`, i))
	}
	write(1)
	h.put(11, "half.json", `{"version":1,"metrics":[{"na`)
	assert.Len(t, h.round(), 1)
	assert.Equal(t, []string{
		"Entries of shared-memory files were skipped: a number that is not finite: 2",
		"Entries of shared-memory files were skipped: no value: 1",
		"Shared-memory files were skipped: no complete JSON document: 1",
	}, h.warnings())
	for i := range 3 {
		now = now.Add(time.Second)
		write(2 + i)
		h.round()
	}
	assert.Empty(t, h.warnings(), "within the minute")
	now = now.Add(time.Minute)
	assert.Empty(t, h.round())
	assert.Equal(t, []string{
		"Entries of shared-memory files were skipped: a number that is not finite: 6",
		"Entries of shared-memory files were skipped: no value: 3",
	}, h.warnings()[:2])
	write(9)
	h.round()
	require.NoError(t, h.Shutdown(context.Background()))
	assert.NotEmpty(t, h.warnings(), "what is counted is reported at the end")
}

func TestOwnership(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a directory away")
	}
	table := procfstest.New(t, 1700000000, 1)
	h := newHarness(t, func(c *Config) { c.ProcFSPath = table.Root })
	give := func(pid int) {
		for _, name := range []string{"", "a.json"} {
			require.NoError(t, os.Chown(filepath.Join(rundir.Path(h.config.SHMPath, pid), name), 4242, -1))
		}
	}
	for _, pid := range []int{11, 12, 13} {
		h.put(pid, "a.json", `{"version":1,"write_ts":5,"metrics":[{"name":"a","type":"gauge","value":1}]}`)
	}
	give(11) // its process runs under that user
	table.Write("11/status", "Name:\tx\nUid:\t1\t4242\t1\t1\nGid:\t0\t0\t0\t0\n")
	give(12) // its process runs under another one
	table.Write("12/status", "Name:\tx\nUid:\t1\t1\t1\t1\nGid:\t4242\t4242\t0\t0\n")
	give(13) // its process is gone
	assert.Equal(t, []string{"a gauge process.pid=11: 1 @0-5"}, h.round())
	assert.Equal(t, []string{"Shared-memory files were skipped: owned by another user: 2"}, h.warnings())

	require.NoError(t, os.Remove(filepath.Join(table.Root, "11/status")))
	h.put(11, "a.json", `{"version":1,"write_ts":6,"metrics":[{"name":"a","type":"gauge","value":2}]}`)
	give(11)
	assert.Equal(t, []string{"a gauge process.pid=11: 2 @0-6"}, h.round(), "the last document of a process that ended")
}

// TestWithoutExtension: every run directory is read; what an earlier process of a pid left is not.
func TestWithoutExtension(t *testing.T) {
	table := procfstest.New(t, 1700000000, 1)
	h := newHarness(t, func(c *Config) { c.ProcFSPath = table.Root })
	for _, pid := range []int{11, 12} {
		table.Set(procfstest.Process{PID: pid, Start: 100 * procfs.TicksPerSecond})
	}
	const started = 1700000100 * int64(time.Second)
	put := func(pid int, name string, start, write int64) {
		h.put(pid, name+".json", fmt.Sprintf(`{"version":1,"start_ts":%d,"write_ts":%d,"metrics":[{"name":%q,"type":"gauge","value":1}]}`, start, write, name))
	}
	put(11, "own", started, started+1)
	put(11, "leftover", started-9e9, started-5e9)
	put(12, "other_namespace", started-9e9, started+1)
	put(13, "dead", started-9e9, started-5e9)
	for _, name := range []string{"graphsignal_log_11", "graphsignal_x", "graphsignal_011", "graphsignal_-5", "other"} {
		dir := filepath.Join(h.config.SHMPath, name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), []byte(`{"version":1,"metrics":[{"name":"no","type":"gauge","value":1}]}`), 0o600))
	}
	var names []string
	for _, line := range h.round() {
		names = append(names, strings.Fields(line)[0])
	}
	assert.Equal(t, []string{"dead", "other_namespace", "own"}, names)
	assert.Equal(t, []string{"Shared-memory files were skipped: written by an earlier process of this pid: 1"}, h.warnings())
	assert.Empty(t, h.round())

	table.Remove(11) // its end changes nothing about what was read
	assert.Empty(t, h.round())
}

func TestNoSharedMemory(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.SHMPath = filepath.Join(t.TempDir(), "absent") })
	assert.Empty(t, h.round())
	assert.Equal(t, []string{"Shared memory cannot be read: 1"}, h.warnings())
}

// extensionHost is a Collector's host with a workload extension.
type extensionHost struct {
	component.Host
	ext component.Component
}

func (h extensionHost) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{component.MustNewID("workload"): h.ext}
}

// startExtension follows the process tree of a real process.
func startExtension(t *testing.T, pid int, shmPath string) component.Host {
	t.Helper()
	factory := workloadextension.NewFactory()
	config := factory.CreateDefaultConfig().(*workloadextension.Config)
	config.PID, config.SHMPath, config.PollInterval = pid, shmPath, 10*time.Millisecond
	ext, err := factory.Create(context.Background(), extensiontest.NewNopSettings(factory.Type()), config)
	require.NoError(t, err)
	require.NoError(t, ext.Start(context.Background(), componenttest.NewNopHost()))
	require.NoError(t, ext.(extensioncapabilities.PipelineWatcher).Ready())
	t.Cleanup(func() { assert.NoError(t, ext.Shutdown(context.Background())) })
	return extensionHost{componenttest.NewNopHost(), ext}
}

// TestWithExtension follows a real tree: only its directories are read, a child's is read once more after its end and
// then removed, and leftovers of an earlier process are refused.
func TestWithExtension(t *testing.T) {
	config := func(c *Config) { c.Interval = 20 * time.Millisecond }
	h := newHarness(t, config)
	// The child waits for a line, leaves a last document and ends at once.
	cmd := exec.Command("sh", "-c", `sh -c 'echo $$; read go; cp "$2/last" "$2/graphsignal_$$/a.json.tmp"; mv "$2/graphsignal_$$/a.json.tmp" "$2/graphsignal_$$/a.json"' - - "$1"; read end`, "sh", h.config.SHMPath)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	var child int
	_, err = fmt.Fscan(out, &child)
	require.NoError(t, err)

	now := time.Now().UnixNano()
	h.put(cmd.Process.Pid, "root.json", fmt.Sprintf(`{"version":1,"start_ts":%d,"metrics":[{"name":"root","type":"gauge","value":1}]}`, now))
	h.put(cmd.Process.Pid, "old.json", fmt.Sprintf(`{"version":1,"start_ts":%d,"write_ts":%d,"metrics":[{"name":"old","type":"gauge","value":1}]}`, now-int64(time.Hour), now))
	h.put(child, "a.json", fmt.Sprintf(`{"version":1,"start_ts":%d,"metrics":[{"name":"child","type":"gauge","value":1}]}`, now))
	h.put(1, "a.json", fmt.Sprintf(`{"version":1,"start_ts":%d,"metrics":[{"name":"foreign","type":"gauge","value":1}]}`, now))
	require.NoError(t, os.WriteFile(filepath.Join(h.config.SHMPath, "last"),
		[]byte(fmt.Sprintf(`{"version":1,"start_ts":%d,"metrics":[{"name":"child","type":"gauge","value":2}]}`, now)), 0o600))

	require.NoError(t, h.Start(context.Background(), startExtension(t, cmd.Process.Pid, h.config.SHMPath)))
	has := func(name string, value int) func() bool {
		return func() bool {
			return slices.ContainsFunc(h.sent(), func(line string) bool {
				return strings.HasPrefix(line, name+" ") && strings.Contains(line, ": "+strconv.Itoa(value)+" @")
			})
		}
	}
	require.Eventually(t, has("root", 1), deadline, 10*time.Millisecond)
	require.Eventually(t, has("child", 1), deadline, 10*time.Millisecond)
	_, err = fmt.Fprintln(in, "go")
	require.NoError(t, err)
	require.Eventually(t, has("child", 2), deadline, 10*time.Millisecond, "the last document of a child")
	require.Eventually(t, func() bool {
		_, err := os.Stat(rundir.Path(h.config.SHMPath, child))
		return errors.Is(err, os.ErrNotExist)
	}, deadline, 10*time.Millisecond, "its directory is removed")

	// What is written just before the end is read by the last collection.
	h.put(cmd.Process.Pid, "root.json", fmt.Sprintf(`{"version":1,"start_ts":%d,"metrics":[{"name":"root","type":"gauge","value":3}]}`, now))
	require.NoError(t, h.Shutdown(context.Background()))
	assert.True(t, has("root", 3)(), "the last collection")
	assert.False(t, has("foreign", 1)())
	assert.False(t, has("old", 1)())
	assert.Equal(t, []string{"Shared-memory files were skipped: written by an earlier process of this pid: 1"}, h.warnings())
}

// TestSamePIDElsewhere: a directory whose owner has the pid in another pid namespace is not read, and this is said once.
func TestSamePIDElsewhere(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid := cmd.Process.Pid
	h := newHarness(t, func(c *Config) { c.ProcFSPath = procfs.DefaultRoot })
	ext := startExtension(t, pid, h.config.SHMPath)
	require.NoError(t, h.Start(context.Background(), ext))
	require.NoError(t, h.controller.Shutdown(context.Background())) // collections are the test's from here on
	here := rundir.New(h.config.SHMPath, procfs.DefaultRoot).Owner(pid, 1)
	owner := func(o rundir.Owner) {
		text, err := json.Marshal(o)
		require.NoError(t, err)
		h.put(pid, ".owner", string(text))
	}
	h.put(pid, "a.json", fmt.Sprintf(`{"version":1,"start_ts":%d,"metrics":[{"name":"theirs","type":"gauge","value":1}]}`, time.Now().UnixNano()))
	elsewhere := here
	elsewhere.Namespace++
	owner(elsewhere)
	assert.Empty(t, h.round())
	assert.Empty(t, h.round())
	assert.Equal(t, []string{"Run directories of processes of other pid namespaces were not read: 1"}, h.warnings())
	owner(here)
	assert.Len(t, h.round(), 1)
	h.tree.Close()
}

// TestShutdownDoesNotWait: a pipeline that hangs does not keep the Collector from ending.
func TestShutdownDoesNotWait(t *testing.T) {
	h := newHarness(t)
	entered := make(chan struct{}, 8)
	hanging, err := consumer.NewMetrics(func(ctx context.Context, _ pmetric.Metrics) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	require.NoError(t, err)
	h.Receiver.metrics = hanging
	h.put(11, "a.json", `{"version":1,"metrics":[{"name":"a","type":"gauge","value":1}]}`)
	require.NoError(t, h.Start(context.Background(), componenttest.NewNopHost()))
	<-entered
	require.NoError(t, h.Shutdown(context.Background()))
	require.NoError(t, h.Shutdown(context.Background()), "once more")
}

func TestConfigErrorsNameTheKey(t *testing.T) {
	for key, breakIt := range map[string]func(*Config){
		"shm_path":            func(c *Config) { c.SHMPath = "shm" },
		"procfs_path":         func(c *Config) { c.ProcFSPath = "" },
		"max_file_size":       func(c *Config) { c.MaxFileSize = 0 },
		"collection_interval": func(c *Config) { c.Interval = 0 },
	} {
		config := defaultConfig()
		require.NoError(t, config.Validate())
		breakIt(config)
		err := confmap.Validate(config)
		assert.ErrorContains(t, err, key)
		assert.Equal(t, 1, strings.Count(err.Error(), " must be"), "told once: %v", err)
	}
}
