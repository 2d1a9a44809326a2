package consolereceiver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/receiver/consolereceiver/internal/metadata"
)

// within is how long a test waits for what must happen.
const within = 20 * time.Second

// never is a poll interval that plays no part in a test.
const never = time.Hour

// segment is the path of a segment.
func segment(dir string, seq int) string { return filepath.Join(dir, fmt.Sprintf("log_%d.jsonl", seq)) }

// write appends records to a segment as the launcher does.
func write(t *testing.T, dir string, seq int, records ...string) {
	t.Helper()
	f, err := os.OpenFile(segment(dir, seq), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(strings.Join(records, "\n") + "\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func line(ts int, stream, text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"ts":%d,"stream":%q,"line":%s}`, ts, stream, quoted)
}

// start starts a receiver on dir with pid 4711; the test's end shuts it down.
func start(t *testing.T, dir string, poll time.Duration, next consumer.Logs) (stop func(), logs *observer.ObservedLogs) {
	cfg := createDefaultConfig().(*Config)
	cfg.Directory, cfg.PID, cfg.PollInterval = dir, 4711, poll
	cfg.ProcFSPath, cfg.CgroupFSPath = t.TempDir(), t.TempDir()
	require.NoError(t, cfg.Validate())
	set := receivertest.NewNopSettings(metadata.Type)
	core, logs := observer.New(zap.DebugLevel)
	set.Logger = zap.New(core)
	r, err := NewFactory().CreateLogs(context.Background(), set, cfg, next)
	require.NoError(t, err)
	require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
	stop = func() { require.NoError(t, r.Shutdown(context.Background())) }
	t.Cleanup(stop)
	return stop, logs
}

// errorsOf decodes what a sink got.
func errorsOf(sink *consumertest.LogsSink) []signal.ErrorEntry {
	var entries []signal.ErrorEntry
	for _, ld := range sink.AllLogs() {
		signal.DecodeErrors(ld, func(e signal.ErrorEntry) { entries = append(entries, e) })
	}
	return entries
}

func messages(sink *consumertest.LogsSink) []string {
	var m []string
	for _, e := range errorsOf(sink) {
		m = append(m, e.Message)
	}
	return m
}

func eventually(t *testing.T, sink *consumertest.LogsSink, want ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, want, messages(sink)) }, within, 10*time.Millisecond)
}

func entry(pid, stream string, ts int64, message, exception string) signal.ErrorEntry {
	return signal.ErrorEntry{Level: "error", Message: message, Exception: exception, Time: ts, Tags: []signal.ErrorTag{
		{Key: "process.pid", Value: pid}, {Key: "scope.name", Value: "workload"}, {Key: "stream", Value: stream},
	}}
}

func TestFactory(t *testing.T) {
	assert.Equal(t, component.MustNewType("console"), NewFactory().Type())
}

func TestLifecycle(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Directory, cfg.PID = t.TempDir(), 1
	for range 2 {
		r, err := NewFactory().CreateLogs(context.Background(), receivertest.NewNopSettings(metadata.Type), cfg, consumertest.NewNop())
		require.NoError(t, err)
		require.NoError(t, r.Shutdown(context.Background()), "without a start")
		require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
		require.NoError(t, r.Shutdown(context.Background()))
		require.NoError(t, r.Shutdown(context.Background()), "twice")
	}
}

// TestEntries: log records as the exporters and any other backend see them.
func TestEntries(t *testing.T) {
	dir := t.TempDir()
	sink := new(consumertest.LogsSink)
	stop, _ := start(t, dir, never, sink)
	write(t, dir, 0,
		line(1, "stdout", "INFO 03-09 14:02:11 [a.py:1] starting"),
		line(2, "stderr", "(EngineCore_DP0 pid=4720) ERROR 03-09 14:02:11 [core.py:88] boom"),
		line(3, "stderr", "Traceback (most recent call last):"),
		line(4, "stderr", `  File "a.py", line 1, in f`),
		line(5, "stderr", "KeyError: 'x'"),
		line(6, "stdout", "ERROR: last"),
		`{"ts":7,"signal":6}`)
	want := []signal.ErrorEntry{
		entry("4720", "stderr", 2, "boom", ""),
		entry("4711", "stderr", 3, "Traceback (most recent call last):", "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'x'"),
		entry("4711", "stdout", 6, "last", ""),
		entry("4711", "exit", 7, "Process terminated by signal 6 (SIGABRT)", ""),
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, want, errorsOf(sink)) }, within, 10*time.Millisecond)
	stop()
	assert.Equal(t, want, errorsOf(sink))

	for _, ld := range sink.AllLogs() {
		for _, rl := range ld.ResourceLogs().All() {
			assert.Zero(t, rl.Resource().Attributes().Len())
			for _, sl := range rl.ScopeLogs().All() {
				assert.Equal(t, metadata.ScopeName, sl.Scope().Name())
				for _, r := range sl.LogRecords().All() {
					assert.Equal(t, plog.SeverityNumberError, r.SeverityNumber())
					assert.Equal(t, "error", r.SeverityText())
				}
			}
		}
	}
}

// TestIdle: an error after which nothing comes is published while the workload lives.
func TestIdle(t *testing.T) {
	dir := t.TempDir()
	sink := new(consumertest.LogsSink)
	start(t, dir, never, sink)
	write(t, dir, 0, line(1, "stderr", "ERROR: alone"))
	eventually(t, sink, "alone")
}

// TestRotationAndLateDirectory: the directory may come later, and segments go while they are read.
func TestRotationAndLateDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	sink := new(consumertest.LogsSink)
	start(t, dir, minInterval, sink)
	require.NoError(t, os.Mkdir(dir, 0o700))
	var want []string
	for seq := range 5 {
		text := fmt.Sprintf("segment %d", seq)
		write(t, dir, seq, line(seq, "stderr", "ERROR: "+text), line(seq, "stderr", "INFO: next"))
		if seq >= 2 {
			require.NoError(t, os.Remove(segment(dir, seq-2)))
		}
		want = append(want, text)
		eventually(t, sink, want...)
	}
}

// TestHalfRecord: a record is taken when its newline is there, once.
func TestHalfRecord(t *testing.T) {
	dir := t.TempDir()
	sink := new(consumertest.LogsSink)
	stop, _ := start(t, dir, never, sink)
	half := line(2, "stderr", "ERROR: second")
	f, err := os.Create(segment(dir, 0))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteString(line(1, "stderr", "ERROR: first") + "\n" + half[:20])
	require.NoError(t, err)
	eventually(t, sink, "first")
	_, err = f.WriteString(half[20:] + "\n" + `{"ts":3,"dropped":4}` + "\n")
	require.NoError(t, err)
	eventually(t, sink, "first", "second")
	stop()
	assert.Equal(t, []string{"first", "second"}, messages(sink))
}

// TestLastCollection: what came after the last pass, and what was still open, is published by the shutdown.
func TestLastCollection(t *testing.T) {
	dir := t.TempDir()
	sink := new(consumertest.LogsSink)
	stop, _ := start(t, dir, never, sink)
	write(t, dir, 0, line(1, "stderr", "ERROR: seen"), line(2, "stderr", "INFO: x"))
	eventually(t, sink, "seen")
	write(t, dir, 0, line(3, "stderr", "ERROR: open"), line(4, "stderr", "Traceback (most recent call last):"), line(5, "stderr", "  frame"))
	write(t, dir, 1, `{"ts":6,"exit_code":3}`)
	stop()
	assert.Equal(t, []string{"seen", "open", "Process exited with non-zero code 3"}, messages(sink))
	assert.DirExists(t, dir, "the directory is the extension's to remove")
}

// TestOpenAtShutdown: a workload that ends well may have printed an error last.
func TestOpenAtShutdown(t *testing.T) {
	dir := t.TempDir()
	sink := new(consumertest.LogsSink)
	stop, _ := start(t, dir, never, sink)
	for i := range 3 {
		write(t, dir, 0, line(i, "stderr", "ERROR: same"), line(i, "stderr", "INFO: x"))
	}
	write(t, dir, 0, line(3, "stderr", "ERROR: open"))
	stop()
	assert.Equal(t, []string{"same", "open", "same (repeated 2 times within 10 s)"}, messages(sink))
}

// refusing is a consumer that refuses until told otherwise.
type refusing struct {
	consumertest.LogsSink
	err   atomic.Pointer[error]
	calls atomic.Int64
}

func (c *refusing) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	c.calls.Add(1)
	if err := c.err.Load(); err != nil {
		return *err
	}
	return c.LogsSink.ConsumeLogs(ctx, ld)
}

func (c *refusing) refuse(err error) { c.err.Store(&err) }

// TestRefused: entries that the pipeline refuses for now are offered again; permanently refused ones are not.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	next := new(refusing)
	_, logs := start(t, dir, minInterval, next)
	next.refuse(errors.New("no memory"))
	write(t, dir, 0, line(1, "stderr", "ERROR: kept"), line(2, "stderr", "INFO: x"))
	require.Eventually(t, func() bool { return next.calls.Load() > 0 }, within, 10*time.Millisecond)
	next.err.Store(nil)
	eventually(t, &next.LogsSink, "kept")
	assert.Zero(t, logs.FilterMessageSnippet("are lost").Len())

	next.refuse(consumererror.NewPermanent(errors.New("bad data")))
	write(t, dir, 0, line(3, "stderr", "ERROR: dropped"), line(4, "stderr", "INFO: x"))
	require.Eventually(t, func() bool { return logs.FilterMessageSnippet("are lost").Len() == 1 }, within, 10*time.Millisecond)
	next.err.Store(nil)
	write(t, dir, 0, line(5, "stderr", "ERROR: after"), line(6, "stderr", "INFO: x"))
	eventually(t, &next.LogsSink, "kept", "after")
}

// TestRefusedIsBounded: a pipeline that refuses for long does not make memory grow.
func TestRefusedIsBounded(t *testing.T) {
	dir := t.TempDir()
	next := new(refusing)
	next.refuse(errors.New("no memory"))
	set := receivertest.NewNopSettings(metadata.Type)
	r, err := newReceiver(set, &Config{Directory: dir, PID: 1, PollInterval: never, ProcFSPath: dir, CgroupFSPath: dir}, next)
	require.NoError(t, err)
	require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
	r.stop()
	<-r.done
	for i := range maxPending + 30 {
		write(t, dir, 0, fmt.Sprintf(`{"ts":%d,"exit_code":1}`, i))
	}
	r.read(context.Background())
	assert.Len(t, r.pending, maxPending)
	assert.Equal(t, int64(30), r.pending[0].Time, "the oldest go")
	r.deliver(context.Background())
	assert.Len(t, r.pending, maxPending)
	require.NoError(t, r.Shutdown(context.Background()))
}

// TestTold: what is lost is told, once, and goes on being read.
func TestTold(t *testing.T) {
	dir := t.TempDir()
	sink := new(consumertest.LogsSink)
	require.NoError(t, os.Symlink("/dev/zero", segment(dir, 2)))
	write(t, dir, 3, "no json", `{"ts":1,"dropped":5}`)
	for i := range 60 {
		write(t, dir, 3, line(i, "stderr", fmt.Sprintf("ERROR: e%d", i)))
	}
	write(t, dir, 3, line(60, "stderr", "INFO: x"))
	stop, logs := start(t, dir, never, sink)
	require.Eventually(t, func() bool { return sink.LogRecordCount() == 50 }, within, 10*time.Millisecond)
	stop()
	assert.Equal(t, 50, sink.LogRecordCount())
	told := make(map[string]any)
	for _, l := range logs.All() {
		told[l.Message] = l.ContextMap()["count"]
	}
	assert.Equal(t, map[string]any{
		"Console output came faster than it was read; segments are lost":          uint64(2),
		"Malformed records in console segments were skipped":                      uint64(1),
		"Files in the console directory are not the launcher's and were not read": uint64(1),
		"Lines of console output could not be captured":                           uint64(5),
		"Errors of the workload beyond 50 in a second were left out":              int64(10),
	}, told)
	assert.Equal(t, 5, logs.Len())
}

// TestUnreadableDirectory: a directory that cannot be read is told of once, and read when it can be.
func TestUnreadableDirectory(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	sink := new(consumertest.LogsSink)
	_, logs := start(t, link, minInterval, sink)
	unreadable := func() int { return logs.FilterMessage("Console output cannot be read").Len() }
	require.Eventually(t, func() bool { return unreadable() == 1 }, within, 10*time.Millisecond)
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Mkdir(link, 0o700))
	write(t, link, 0, line(1, "stderr", "ERROR: x"))
	eventually(t, sink, "x")
	assert.Equal(t, 1, unreadable())
}

// TestFewReads: a busy writer does not make the receiver read more often than 20 times a second.
func TestFewReads(t *testing.T) {
	dir := t.TempDir()
	w, err := newDirWatch(dir)
	require.NoError(t, err)
	defer w.close()
	begin := time.Now()
	wakes := 0
	for wakes < 5 {
		write(t, dir, 0, line(1, "stderr", "x"))
		select {
		case <-w.changed:
			wakes++
		default:
		}
	}
	assert.GreaterOrEqual(t, time.Since(begin), 4*minInterval)
}

// TestCreated: new segments are told of at once, again and again, also in a directory that came later.
func TestCreated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	w, err := newDirWatch(dir)
	require.NoError(t, err)
	defer w.close()
	require.NoError(t, os.Mkdir(dir, 0o700))
	w.ensure()
	for seq := range 20 {
		write(t, dir, seq, line(1, "stderr", "x"))
		select {
		case <-w.created:
		case <-time.After(within):
			t.Fatal("no wake for segment", seq)
		}
	}
}
