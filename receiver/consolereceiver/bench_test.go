package consolereceiver

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"golang.org/x/sys/unix"

	"github.com/graphsignal/graphsignal-collector/receiver/consolereceiver/internal/metadata"
)

// segmentWriter writes records into segments of 1 MiB, of which it keeps two, as the launcher does.
type segmentWriter struct {
	b    *testing.B
	dir  string
	seq  int
	size int
	file *os.File
}

func (w *segmentWriter) write(record string) {
	record += "\n"
	if w.file == nil || w.size+len(record) > 1<<20 {
		if w.file != nil {
			require.NoError(w.b, w.file.Close())
			w.seq++
		}
		if w.seq >= 2 {
			require.NoError(w.b, os.Remove(segment(w.dir, w.seq-2)))
		}
		var err error
		w.file, err = os.Create(segment(w.dir, w.seq))
		require.NoError(w.b, err)
		w.size = 0
	}
	_, err := w.file.WriteString(record)
	require.NoError(w.b, err)
	w.size += len(record)
}

// processTime is the processor time of the process or of this thread: benchmarks report it since other work on the machine does not count.
func processTime(b *testing.B, who int) time.Duration {
	var use unix.Rusage
	require.NoError(b, unix.Getrusage(who, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkTail writes 10 MB of log a second for five seconds, with an error each second. An operation is all of it;
// the metrics are the share of a core that everything but the writer used, and the errors that were lost.
func BenchmarkTail(b *testing.B) {
	const (
		rate    = 10_000_000
		seconds = 5
	)
	lines := []string{
		"(EngineCore_DP0 pid=4410) INFO 03-09 14:02:11 [loggers.py:127] Engine 000: Avg prompt throughput: 812.4 tokens/s, Running: 7 reqs",
		"[2026-03-09 14:02:12 TP0] Decode batch. #running-req: 7, #token: 5120, token usage: 0.04, cuda graph: True, #queue-req: 0,",
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var share, lost float64
	for b.Loop() {
		dir, err := os.MkdirTemp("/dev/shm", "consolereceiver")
		require.NoError(b, err)
		sink := new(consumertest.LogsSink)
		cfg := &Config{Directory: dir, PID: 1, PollInterval: time.Second, ProcFSPath: dir, CgroupFSPath: dir}
		r, err := NewFactory().CreateLogs(context.Background(), receivertest.NewNopSettings(metadata.Type), cfg, sink)
		require.NoError(b, err)
		require.NoError(b, r.Start(context.Background(), componenttest.NewNopHost()))

		w := &segmentWriter{b: b, dir: dir}
		printed := 0
		process, writer, begin := processTime(b, unix.RUSAGE_SELF), processTime(b, unix.RUSAGE_THREAD), time.Now()
		for second := range seconds {
			w.write(line(1, "stderr", fmt.Sprintf("ERROR: number %d", second)))
			for i := 0; printed < (second+1)*rate; i++ {
				w.write(line(1, "stderr", lines[i%len(lines)]))
				printed += len(lines[i%len(lines)]) + 1
				if i%512 == 0 {
					time.Sleep(time.Until(begin.Add(time.Duration(printed) * time.Second / rate)))
				}
			}
		}
		used := processTime(b, unix.RUSAGE_SELF) - process - (processTime(b, unix.RUSAGE_THREAD) - writer)
		share += used.Seconds() / time.Since(begin).Seconds()
		require.NoError(b, w.file.Close())
		require.NoError(b, r.Shutdown(context.Background()))
		lost += float64(seconds - sink.LogRecordCount())
		require.NoError(b, os.RemoveAll(dir))
	}
	b.ReportMetric(100*share/float64(b.N), "%core")
	b.ReportMetric(lost, "lost")
}
