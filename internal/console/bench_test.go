package console

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// benchLines are lines as engines print them all day, 115 bytes on average.
var benchLines = []struct{ name, line string }{
	{"vllm-info", "(EngineCore_DP0 pid=4410) INFO 03-09 14:02:11 [loggers.py:127] Engine 000: Avg prompt throughput: 812.4 tokens/s, Avg generation throughput: 190.1 tokens/s, Running: 7 reqs"},
	{"uvicorn-access", `INFO:     10.2.0.4:51512 - "POST /v1/chat/completions HTTP/1.1" 200 OK`},
	{"sglang", "[2026-03-09 14:02:12 TP0] Decode batch. #running-req: 7, #token: 5120, token usage: 0.04, cuda graph: True, gen throughput (token/s): 511.31, #queue-req: 0,"},
	{"llamacpp", "slot print_timing: id  2 | task 31 | prompt eval time =  103.11 ms /   61 tokens (    1.69 ms per token,   591.60 tokens per second)"},
	{"dated", "2026-03-09 14:02:11,123 - orion.train - INFO - checkpoint saved to /models/orion/step-1000"},
	{"json", `{"ts":"2026-03-09T14:02:11Z","level":"INFO","logger":"train","message":"step 100, loss 1.3","rank":0}`},
	{"logfmt", `time=2026-03-09T14:02:11.001Z level=INFO source=server.go:301 msg="llama runner started in 3.1 seconds"`},
	{"plain", "step 1000 of 5000, loss 1.3112, learning rate 3e-4, grad norm 0.7712, tokens 91823"},
}

// cpuTime is the processor time of this process: benchmarks report it since other work on the machine does not count.
func cpuTime(b *testing.B) time.Duration {
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkLines measures a line of each kind behind the JSON; an operation is one line.
func BenchmarkLines(b *testing.B) {
	for _, bb := range benchLines {
		b.Run(bb.name, func(b *testing.B) {
			p := NewParser(nil, func(Entry) { b.Error("an error") })
			now := time.Unix(1000, 0)
			r := Record{Time: 1, Stream: StreamStderr, Line: bb.line}
			b.SetBytes(int64(len(bb.line)))
			b.ReportAllocs()
			start := cpuTime(b)
			for b.Loop() {
				p.Record(now, r)
			}
			b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N), "cpu-ns/line")
		})
	}
}

// BenchmarkSegments measures all of it on files: reading, JSON, lines, with one traceback a MiB. An operation is one
// segment of 1 MiB. The last metric is the share of a core that 10 MB of log a second cost.
func BenchmarkSegments(b *testing.B) {
	var segment bytes.Buffer
	lines, printed := 0, 0
	add := func(line string) {
		text, _ := json.Marshal(line)
		segment.WriteString(`{"ts":1796027053969724062,"stream":"stderr","line":`)
		segment.Write(text)
		segment.WriteString("}\n")
		printed += len(line) + 1
		lines++
	}
	for _, line := range []string{vllm + "step aborted", vllm + tb, vllm + `  File "pool.py", line 7, in take`, vllm + "ValueError: x"} {
		add(line)
	}
	for segment.Len() < 1<<20 {
		add(benchLines[lines%len(benchLines)].line)
	}
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "log_0.jsonl"), segment.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(printed))
	b.ReportAllocs()
	now := time.Unix(1000, 0)
	start := cpuTime(b)
	for b.Loop() {
		entries := 0
		p := NewParser(nil, func(Entry) { entries++ })
		r := NewSegmentReader(dir)
		if err := r.Read(context.Background(), func(rec Record) { p.Record(now, rec) }); err != nil {
			b.Fatal(err)
		}
		r.Close()
		if p.Flush(now); entries != 1 {
			b.Fatal("entries:", entries)
		}
	}
	used := float64(cpuTime(b)-start) / float64(b.N)
	b.ReportMetric(used/float64(lines), "cpu-ns/line")
	b.ReportMetric(used/float64(printed), "cpu-ns/byte")
	b.ReportMetric(used/float64(printed)*10e6/1e9*100, "%core@10MB/s")
}
