package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// consoleCase is what a program prints, and what /signals makes of it.
type consoleCase struct {
	script string
	// want are the messages, each with a part of its exception behind a newline where that matters.
	want   []string
	code   int
	signal syscall.Signal
}

var consoleCases = map[string]consoleCase{
	// Case 8.
	"progress bar": {script: `python3 -c '
import sys
w = sys.stderr.write
for p in (0, 25, 50, 75):
    w(f"\rfetching parts: {p}% | {p//25}/4 "); sys.stderr.flush()
w("\r(EngineCore pid=71) ERROR 02-17 08:31:40 [loader.py:88] part 3 has a bad checksum\n")
w("fetching parts: 75% | 3/4 ERROR 02-17 08:31:41 [loader.py:90] giving up\n")
w("\x1b[2K\x1b[1GERROR 02-17 08:31:42 [loader.py:91] stopped\n")'`,
		want: []string{"part 3 has a bad checksum", "giving up", "stopped"}},
	// Case 10.
	"crash with status 0": {script: `
echo "[2026-06-25 10:11:12 TP1] Scheduler hit an exception: Traceback (most recent call last):"
echo "  File \"sched.py\", line 41, in step"
echo "    pool.take(9)"
echo "RuntimeError: CUDA error: an illegal address was touched"
echo "[2026-06-25 10:11:12] Received sigquit from a child process, stopping"
echo "[2026-06-25 10:11:13] DetokenizerManager hit an exception: Traceback (most recent call last):"
echo "  File \"detok.py\", line 5, in loop"
echo "ZMQError: closed"`,
		want: []string{"Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error: an illegal address was touched",
			"Received sigquit from a child process, stopping", "DetokenizerManager hit an exception: Traceback (most recent call last):\nZMQError: closed"}},
	// Case 12.
	"exception group": {script: `cat >&2 <<'END'
ERROR:    Exception in ASGI application
  + Exception Group Traceback (most recent call last):
  |   File "mid.py", line 19, in call
  |     async with group() as g:
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "route.py", line 8, in chat
    |     return fields["modle"]
    | KeyError: 'modle'
    +------------------------------------
INFO:     10.0.0.9:5112 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error
END`,
		want: []string{"Exception in ASGI application\nKeyError: 'modle'"}},
	// Case 14.
	"CUDA block and abort": {script: `ulimit -c 0
printf "%s\n" "slot update: id 2 | task 10 | prompt part 3" "CUDA error: out of memory" \
 "  current device: 0, in function grow at pool.cu:512" "  memCreate(&h, size, &prop, 0)" "pool.cu:98: CUDA error" \
 "0.01.234.567 E srv  load: failed to load model m1.gguf" >&2
kill -ABRT $$`,
		want:   []string{"CUDA error: out of memory\npool.cu:98: CUDA error", "srv  load: failed to load model m1.gguf", "Process terminated by signal 6 (SIGABRT)"},
		signal: syscall.SIGABRT},
	// Case 16.
	"harmless lines": {script: `cat >&2 <<'END'
2026-02-03T04:05:06.789Z	info	flush done	{"series": 41, "errors": 0}
INFO:     127.0.0.1:40112 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error
WARNING 02-03 04:05:07 [cfg.py:9] error budget not set
Total errors: 0
ERROR-free run: yes
step 10: error: 0.013
0 error(s), 2 warning(s)
error_rate=0.0
ERRORS_TOTAL 5
END`},
	"usage errors": {script: `echo 'vllm serve: error: unrecognized arguments: --x' >&2; echo 'Error: No such option: --y' >&2; exit 2`,
		want: []string{"vllm serve: error: unrecognized arguments: --x", "Error: No such option: --y", "Process exited with non-zero code 2"}, code: 2},
}

// TestConsoleCases takes errors from a real program's console to the final document, and its exit status to the shell.
func TestConsoleCases(t *testing.T) {
	for name, c := range consoleCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output := filepath.Join(t.TempDir(), "signals.json")
			r := start(t, nil, "--output", output, "sh", "-c", c.script)
			status := r.wait().Sys().(syscall.WaitStatus)
			if c.signal != 0 && (!status.Signaled() || status.Signal() != c.signal || status.CoreDump()) {
				t.Errorf("status %#x, want death by %v without a core file of the launcher's", status, c.signal)
			}
			if c.signal == 0 && (!status.Exited() || status.ExitStatus() != c.code) {
				t.Errorf("status %#x, want exit %d", status, c.code)
			}
			raw, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			d, err := parseDocument(raw)
			if err != nil {
				t.Fatal(err)
			}
			// Entries of one moment have no order.
			var missing []string
			for _, want := range c.want {
				message, exception, traced := strings.Cut(want, "\n")
				if !slices.ContainsFunc(d.Errors, func(e errorEntry) bool {
					return e.Message == message && (!traced || e.Exception != nil && strings.Contains(*e.Exception, exception))
				}) {
					missing = append(missing, want)
				}
			}
			if len(missing) > 0 || len(d.Errors) != len(c.want) {
				t.Errorf("%q missing, errors are %s", missing, raw[strings.Index(string(raw), `"errors"`):strings.Index(string(raw), `"resources"`)])
			}
		})
	}
}

// TestLastErrorIsSeenWhileTheProgramRuns: an entry is published although nothing follows its last line.
func TestLastErrorIsSeenWhileTheProgramRuns(t *testing.T) {
	c := consoleCases["crash with status 0"]
	r := start(t, nil, "sh", "-c", c.script+"\nsleep 60")
	r.signalsWhen("all entries are published", func(d *document) bool { return len(d.Errors) == len(c.want) })
}
