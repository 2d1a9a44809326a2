package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const tb = tracebackHeader

// want is an expected entry: its message and its exception, "" for none.
type want struct{ message, exception string }

// lines joins lines.
func lines(l ...string) string { return strings.Join(l, "\n") }

// feed runs lines of one stream through an Extractor, with a flush at the end.
func feed(stream string, input ...string) []Entry {
	var got []Entry
	x := NewExtractor(func(_ time.Time, e Entry) { got = append(got, e) })
	now := time.Unix(1000, 0)
	for i, line := range input {
		x.Line(now, int64(i+1), stream, line)
	}
	x.Flush(now)
	return got
}

func wants(entries []Entry) []want {
	var w []want
	for _, e := range entries {
		w = append(w, want{e.Message, e.Exception})
	}
	return w
}

// vllm is the prefix of the examples of vLLM.
const vllm = "ERROR 03-09 14:02:11 [kv_pool.py:212] "

func prefixed(prefix string, input ...string) []string {
	out := make([]string, len(input))
	for i, line := range input {
		out[i] = prefix + line
	}
	return out
}

// TestVectors holds the examples of the console error contract, with the better outcome where it offers one.
func TestVectors(t *testing.T) {
	vllmTraceback := prefixed(vllm, "step aborted", tb, `  File "pool.py", line 7, in take`, `    raise PoolEmptyError(n)`,
		`PoolEmptyError: 0 of 64 blocks left`)
	withCR := make([]string, len(vllmTraceback))
	for i, line := range vllmTraceback {
		withCR[i] = line + "\r"
	}
	vllmTracebackWant := []want{{"step aborted", lines(tb, `  File "pool.py", line 7, in take`, `    raise PoolEmptyError(n)`,
		`PoolEmptyError: 0 of 64 blocks left`)}}
	for _, tt := range []struct {
		name  string
		input []string
		want  []want
	}{
		{"1 vLLM plain", []string{vllm + "block table exhausted", "INFO 03-09 14:02:12 [a.py:1] hi"}, []want{{"block table exhausted", ""}}},
		{"2 vLLM traceback", vllmTraceback, vllmTracebackWant},
		{"2 with carriage returns", withCR, vllmTracebackWant},
		{"3 vLLM multi-line", prefixed(vllm, "config rejected:", "  field a: bad", "  field b: bad"),
			[]want{{"config rejected:", ""}, {"  field a: bad", ""}, {"  field b: bad", ""}}},
		{"4 vLLM chained", prefixed(vllm, "step aborted", tb, `  File "a.py", line 1, in f`, "KeyError: 'blk'", "", directCause, "",
			tb, `  File "b.py", line 2, in g`, "RuntimeError: step failed"),
			[]want{{"step aborted", lines(tb, `  File "a.py", line 1, in f`, "KeyError: 'blk'", "", directCause, "", tb,
				`  File "b.py", line 2, in g`, "RuntimeError: step failed")}}},
		{"5 vLLM fraction and path", []string{"ERROR 03-09 14:02:11.482 [v1/kv/pool.py:212] x"}, []want{{"x", ""}}},
		{"6 vLLM worker prefix", []string{"(EngineCore_DP0 pid=4410) ERROR 03-09 14:02:11 [core.py:88] boom"}, []want{{"boom", ""}}},
		{"6 coloured", []string{"\x1b[0;36m(EngineCore_DP0 pid=4410)\x1b[0;0m ERROR 03-09 14:02:11 [core.py:88] boom"}, []want{{"boom", ""}}},
		{"vLLM old form", []string{"ERROR 03-09 14:02:11 f.py:9] x"}, []want{{"x", ""}}},
		{"vLLM behind a custom prefix", []string{"node7 ERROR 03-09 14:02:11 [f.py:9] x", "node7 INFO 03-09 14:02:11 [f.py:9] RuntimeError: y"}, []want{{"x", ""}}},
		{"7 SGLang crash", []string{"[2026-03-09 14:02:12 TP0] Scheduler hit an exception: " + tb, `  File "sched.py", line 50, in loop`,
			"    pool.take(9)", "MemoryError: pool empty"},
			[]want{{"Scheduler hit an exception: " + tb, lines(`  File "sched.py", line 50, in loop`, "    pool.take(9)", "MemoryError: pool empty")}}},
		{"8 SGLang", []string{
			"[2026-03-09 14:02:12] Dumping requests before crash. folder=/tmp/d",
			"[2026-03-09 14:02:12 DP1 TP0] Prefill batch. #new-seq: 1",
			"[2026-03-09 14:02:13] ERROR:    zap",
			"[2026-03-09 14:02:13] [ERROR] zap",
			"[2026-03-09 14:02:12] Received sigquit from a child process."},
			[]want{{"Dumping requests before crash. folder=/tmp/d", ""}, {"zap", ""}, {"zap", ""},
				{"Received sigquit from a child process.", ""}}},
		{"SGLang detokenizer", []string{"[2026-03-09 14:02:12] DetokenizerManager hit an exception: " + tb, `  File "d.py", line 5, in loop`, "ZMQError: closed"},
			[]want{{"DetokenizerManager hit an exception: " + tb, lines(`  File "d.py", line 5, in loop`, "ZMQError: closed")}}},
		{"9 uvicorn", []string{"ERROR:    Exception in ASGI application", tb, `  File "routes.py", line 3, in post`, "    return 1/0",
			"ZeroDivisionError: division by zero", `INFO:     10.0.0.9:5112 - "POST /v1/x HTTP/1.1" 500 Internal Server Error`},
			[]want{{"Exception in ASGI application", lines(tb, `  File "routes.py", line 3, in post`, "    return 1/0", "ZeroDivisionError: division by zero")}}},
		{"10 exception group", []string{"ERROR:    Exception in ASGI application", "  + " + groupHeader, `  |   File "g.py"`},
			[]want{{"Exception in ASGI application", lines("  + "+groupHeader, `  |   File "g.py"`)}}},
		{"11 TensorRT-LLM", []string{
			"[TRT-LLM] [E] engine file missing",
			"[TRT-LLM][ERROR] bad env value",
			"[TRT-LLM] [E] [serve   ] Internal server error:  " + tb, `  File "s.py", line 1, in h`, "ValueError: q",
			"[TRT-LLM] [W] slow",
			"[TRT-LLM] [F] x",
			"[03/09/2026-14:02:11] [TRT-LLM] [E] y",
			"[TensorRT-LLM][ERROR] z",
			"[TRT-LLM] [RANK 2] [E] r",
			"[TRT-LLM] [RANK 2] [I] quiet"},
			[]want{{"engine file missing", ""}, {"bad env value", ""},
				{"[serve   ] Internal server error:  " + tb, lines(`  File "s.py", line 1, in h`, "ValueError: q")},
				{"x", ""}, {"y", ""}, {"z", ""}, {"r", ""}}},
		{"12 CLI", []string{"usage: trtllm-serve [OPTIONS] MODEL", "Error: No such option: --prot",
			"vllm serve: error: unrecognized arguments: --max-modle-len 9", "fatal: cannot bind port"},
			[]want{{"Error: No such option: --prot", ""}, {"vllm serve: error: unrecognized arguments: --max-modle-len 9", ""},
				{"fatal: cannot bind port", ""}}},
		{"13 generic", []string{"[ERROR] disk full", "ERROR:root:disk full", "CRITICAL: halt", "WARNING: x", "INFO: x", "Loading weights", "Total errors: 0"},
			[]want{{"disk full", ""}, {"root:disk full", ""}, {"halt", ""}}},
		{"14 colour", []string{"\x1b[31mERROR\x1b[0m:  x", "\x1b[2KERROR: y"}, []want{{"x", ""}, {"y", ""}}},
		{"15 bare traceback", []string{tb, `  File "train.py", line 4, in <module>`, "    main()", "MyAppError: bad seed", "cleanup done"},
			[]want{{tb, lines(tb, `  File "train.py", line 4, in <module>`, "    main()", "MyAppError: bad seed")}}},
		{"15 interrupted by the keyboard", []string{tb, `  File "train.py", line 4, in <module>`, "    main()", "KeyboardInterrupt"},
			[]want{{tb, lines(tb, `  File "train.py", line 4, in <module>`, "    main()", "KeyboardInterrupt")}}},
		{"16 bare chained", []string{tb, `  File "a.py", line 1, in f`, "KeyError: 1", "", duringHandling, "", tb, `  File "a.py", line 2, in f`, "ValueError: 2"},
			[]want{{tb, lines(tb, `  File "a.py", line 1, in f`, "KeyError: 1", "", duringHandling, "", tb, `  File "a.py", line 2, in f`, "ValueError: 2")}}},
		{"17 odd exception name", []string{tb, `  File "q.py", line 2`, "queue.Empty"}, []want{{tb, lines(tb, `  File "q.py", line 2`, "queue.Empty")}}},
		{"18 CUDA after a traceback", []string{tb, `  File "k.py", line 2, in g`, "RuntimeError: CUDA error: device-side assert triggered",
			"CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
			"For debugging consider passing CUDA_LAUNCH_BLOCKING=1"},
			[]want{{tb, lines(tb, `  File "k.py", line 2, in g`, "RuntimeError: CUDA error: device-side assert triggered")}}},
		{"18 alone", []string{"RuntimeError: CUDA error: device-side assert triggered", "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"},
			[]want{{"RuntimeError: CUDA error: device-side assert triggered", ""}}},
		{"19 C++", []string{"terminate called after throwing an instance of 'std::runtime_error'", "  what():  no device"},
			[]want{{"terminate called after throwing an instance of 'std::runtime_error'", "  what():  no device"}}},
		{"21 Go", []string{"panic: send on closed channel", "", "goroutine 1 [running]:", "main.main()", "\t/src/main.go:5 +0x1d", "exit status 2"},
			[]want{{"panic: send on closed channel", ""}}},
		{"26 interruption", []string{tb, `  File "x.py", line 1`, "INFO 03-09 14:02:11 [a.py:1] hi", "ValueError: late"},
			[]want{{tb, lines(tb, `  File "x.py", line 1`, "ValueError: late")}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, wants(feed(StreamStderr, tt.input...)))
		})
	}
}

func TestVector22Limits(t *testing.T) {
	got := feed(StreamStderr, "ERROR: "+strings.Repeat("é", 3000))
	require.Len(t, got, 1)
	assert.Equal(t, strings.Repeat("é", 1024), got[0].Message)

	input := []string{tb}
	for i := range 400 {
		input = append(input, fmt.Sprintf(`  File "deep.py", line %d, in é`, i))
	}
	got = feed(StreamStderr, append(input, "RecursionError: too deep")...)
	require.Len(t, got, 1)
	assert.Len(t, []rune(got[0].Exception), 4096)
	assert.True(t, strings.HasPrefix(got[0].Exception, tb+"\n"+`  File "deep.py", line 0, in é`))
	assert.True(t, strings.HasSuffix(got[0].Exception, "line 399, in é\nRecursionError: too deep"))
	assert.Contains(t, got[0].Exception, "characters left out")
}

// parse runs records through a Parser, all at one time of the caller's clock, with a flush at the end.
func parse(records ...Record) []Entry {
	var got []Entry
	p := NewParser(nil, func(e Entry) { got = append(got, e) })
	now := time.Unix(1000, 0)
	for _, r := range records {
		p.Record(now, r)
	}
	p.Flush(now)
	return got
}

func line(ts int64, stream, text string) Record {
	return Record{Time: ts, Stream: stream, Line: text}
}

func TestVector19And20Status(t *testing.T) {
	for _, tt := range []struct {
		record string
		want   string
	}{
		{`{"ts":7,"exit_code":3}`, "Process exited with non-zero code 3"},
		{`{"ts":7,"exit_code":0}`, ""},
		{`{"ts":7,"exit_code":137}`, "Process exited with non-zero code 137 (128+9, SIGKILL), possibly out of memory"},
		{`{"ts":7,"exit_code":139}`, "Process exited with non-zero code 139 (128+11, SIGSEGV)"},
		{`{"ts":7,"exit_code":255}`, "Process exited with non-zero code 255"},
		{`{"ts":7,"signal":6}`, "Process terminated by signal 6 (SIGABRT)"},
		{`{"ts":7,"signal":9}`, "Process terminated by signal 9 (SIGKILL), possibly out of memory"},
		{`{"ts":7,"signal":35}`, "Process terminated by signal 35 (SIGRTMIN+1)"},
		{`{"ts":7,"signal":99}`, "Process terminated by signal 99"},
	} {
		r, err := decodeRecord(tt.record)
		require.NoError(t, err)
		got := parse(r)
		if tt.want == "" {
			assert.Empty(t, got)
			continue
		}
		assert.Equal(t, []Entry{{Time: 7, Stream: StreamExit, Message: tt.want}}, got)
	}
}

// TestVector23Cap: what is over the limit is counted, and the status record is exempt.
func TestVector23Cap(t *testing.T) {
	var got []Entry
	p := NewParser(nil, func(e Entry) { got = append(got, e) })
	now := time.Unix(1000, 0)
	for i := range 60 {
		p.Record(now, line(int64(i), StreamStderr, fmt.Sprintf("%sboom %d", vllm, i)))
	}
	p.Record(now, Record{Kind: KindStatus, Time: 61, ExitCode: 1})
	p.Flush(now)
	require.Len(t, got, 51)
	assert.Equal(t, "boom 0", got[0].Message)
	assert.Equal(t, "boom 49", got[49].Message)
	assert.Equal(t, "Process exited with non-zero code 1", got[50].Message)
	assert.Equal(t, 10, p.TakeOmitted())
	assert.Zero(t, p.TakeOmitted())
}

// TestVector24Pending: an error after which nothing comes is published after a second.
func TestVector24Pending(t *testing.T) {
	var got []Entry
	p := NewParser(nil, func(e Entry) { got = append(got, e) })
	now := time.Unix(1000, 0)
	_, waits := p.Deadline()
	assert.False(t, waits)
	p.Record(now, line(5, StreamStderr, "ERROR: alone"))
	at, waits := p.Deadline()
	require.True(t, waits)
	assert.Equal(t, now.Add(time.Second), at)
	p.Expire(now.Add(999 * time.Millisecond))
	assert.Empty(t, got)
	p.Expire(at)
	assert.Equal(t, []Entry{{Time: 5, Stream: StreamStderr, Message: "alone"}}, got)
}

// TestEndlessTraceback: an entry whose lines keep coming is published all the same.
func TestEndlessTraceback(t *testing.T) {
	var got []Entry
	x := NewExtractor(func(_ time.Time, e Entry) { got = append(got, e) })
	begin := time.Unix(1000, 0)
	x.Line(begin, 1, StreamStderr, tb)
	for now := begin; now.Before(begin.Add(1500 * time.Millisecond)); now = now.Add(100 * time.Millisecond) {
		x.Expire(now)
		require.Empty(t, got)
		x.Line(now, 2, StreamStderr, "  frame")
	}
	x.Expire(begin.Add(1500 * time.Millisecond))
	assert.Len(t, got, 1)
}

// TestVector25Streams: a line on the other stream does not end an entry.
func TestVector25Streams(t *testing.T) {
	var got []Entry
	x := NewExtractor(func(_ time.Time, e Entry) { got = append(got, e) })
	now := time.Unix(1000, 0)
	x.Line(now, 1, StreamStdout, vllm+"boom")
	x.Line(now, 2, StreamStderr, "INFO: hi")
	assert.Empty(t, got)
	x.Line(now, 3, StreamStdout, "INFO: hi")
	assert.Len(t, got, 1)
}
