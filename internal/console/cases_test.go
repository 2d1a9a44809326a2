package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProgressBar: a bar that ends in a carriage return or not at all does not hide the error behind it.
func TestProgressBar(t *testing.T) {
	got := feed(StreamStderr,
		"fetching parts: 0% | 0/4 ",
		"fetching parts: 75% | 3/4 \r(EngineCore pid=71) ERROR 02-17 08:31:40 [loader.py:88] part 3 has a bad checksum",
		"fetching parts: 75% | 3/4 ERROR 02-17 08:31:41 [loader.py:90] giving up",
		"fetching parts: 75% | 3/4 (EngineCore pid=72) ERROR 02-17 08:31:41 [loader.py:90] giving up too",
		"\x1b[2K\x1b[1GERROR 02-17 08:31:42 [loader.py:91] stopped",
		"\x1b]0;title\aERROR 02-17 08:31:42 [loader.py:91] titled")
	assert.ElementsMatch(t, []want{{"part 3 has a bad checksum", ""}, {"giving up", ""}, {"giving up too", ""}, {"stopped", ""}, {"titled", ""}}, wants(got))
	for _, e := range got {
		assert.Equal(t, map[string]string{"part 3 has a bad checksum": "71", "giving up too": "72"}[e.Message], e.PID, e.Message)
	}
}

// TestSGLangCrash: three entries, and nothing made up about the end.
func TestSGLangCrash(t *testing.T) {
	got := feed(StreamStdout,
		"[2026-06-25 10:11:12 TP1] Scheduler hit an exception: Traceback (most recent call last):",
		`  File "sched.py", line 41, in step`,
		"    pool.take(9)",
		"RuntimeError: CUDA error: an illegal address was touched",
		"[2026-06-25 10:11:12] Received sigquit from a child process, stopping",
		"[2026-06-25 10:11:13] DetokenizerManager hit an exception: Traceback (most recent call last):",
		`  File "detok.py", line 5, in loop`,
		"ZMQError: closed")
	assert.Equal(t, []want{
		{"Scheduler hit an exception: " + tb, lines(`  File "sched.py", line 41, in step`, "    pool.take(9)", "RuntimeError: CUDA error: an illegal address was touched")},
		{"Received sigquit from a child process, stopping", ""},
		{"DetokenizerManager hit an exception: " + tb, lines(`  File "detok.py", line 5, in loop`, "ZMQError: closed")},
	}, wants(got))
}

func exceptionGroup(frames int) []string {
	box := []string{"ERROR:    Exception in ASGI application", "  + " + groupHeader,
		`  |   File "mid.py", line 19, in call`, "  |     async with group() as g:",
		"  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
		"  +-+---------------- 1 ----------------", "    | " + tb}
	for i := range frames {
		box = append(box, fmt.Sprintf(`    |   File "route.py", line %d, in chat`, i))
	}
	return append(box, `    |     return fields["modle"]`, "    | KeyError: 'modle'", "    +------------------------------------",
		`INFO:     10.0.0.9:5112 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error`)
}

// TestExceptionGroup: one entry with the box, of a long one the head and the tail.
func TestExceptionGroup(t *testing.T) {
	input := exceptionGroup(1)
	assert.Equal(t, []want{{"Exception in ASGI application", lines(input[1 : len(input)-1]...)}}, wants(feed(StreamStderr, input...)))

	got := feed(StreamStderr, exceptionGroup(300)...)
	require.Len(t, got, 1)
	assert.Len(t, []rune(got[0].Exception), MaxException)
	assert.Contains(t, got[0].Exception, "KeyError: 'modle'")
	assert.Contains(t, got[0].Exception, "ExceptionGroup: unhandled errors")

	bare := feed(StreamStderr, input[1:]...)
	require.Len(t, bare, 1)
	assert.Equal(t, groupHeader, bare[0].Message)
	assert.Contains(t, bare[0].Exception, "KeyError: 'modle'")
}

// TestLlamaCUDABlock: the block is one entry.
func TestLlamaCUDABlock(t *testing.T) {
	got := feed(StreamStderr,
		"slot update: id 2 | task 10 | prompt part 3",
		"CUDA error: out of memory",
		"  current device: 0, in function grow at pool.cu:512",
		"  memCreate(&h, size, &prop, 0)",
		"pool.cu:98: CUDA error",
		"0.01.234.567 E srv  load: failed to load model m1.gguf")
	assert.Equal(t, []want{
		{"CUDA error: out of memory", lines("  current device: 0, in function grow at pool.cu:512", "  memCreate(&h, size, &prop, 0)", "pool.cu:98: CUDA error")},
		{"srv  load: failed to load model m1.gguf", ""},
	}, wants(got))
}

// TestHarmless: lines that contain the word error, or that libraries are known to print while all is well.
func TestHarmless(t *testing.T) {
	for _, l := range []string{
		"2026-02-03T04:05:06.789Z\tinfo\tflush done\t{\"series\": 41, \"errors\": 0}",
		`INFO:     127.0.0.1:40112 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error`,
		"WARNING 02-03 04:05:07 [cfg.py:9] error budget not set",
		"Total errors: 0",
		"ERROR-free run: yes",
		"ERROR rate: 0%",
		"step 10: error: 0.013",
		"eval: error: 0.2, loss: 1.4",
		"Error: 0 problems",
		"error: 1.5e-3",
		"0 error(s), 2 warning(s)",
		"error_rate=0.0",
		"ERRORS_TOTAL 5",
		"MeanAbsoluteError: 0.031",
		"RootMeanSquaredError: 1.2e-05, epoch 3",
		"retrying: error recovery",
		"error[E01]: x",
		"  error: indented",
		"CUDA error checking is enabled",
		"CUDA error: 0 (no error)",
		"CUDA error: no error",
		"CUDA error 0 at a.cu:1",
		"note: CUDA error: x is handled",
		"CUDA driver version: 13.0",
		"2026-03-09 14:02:11 error handling is on",
		"2026-13-9 14:02:11 ERROR x",
		"2026-03-09 14:02 ERROR x",
		"2026-03-09 14:02:11Zebra ERROR",
		"(note pid=) ERROR-free",
		"(x pid=12a) text",
		"[rank] x",
		"[1,0] x",
		"/usr/lib/python3.12/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: leaked semaphore objects",
		"UserWarning: this is a warning",
		"  warnings.warn('resource_tracker: There appear to be 1 leaked semaphore objects')",
		"[rank0]:[W309 14:02:11.123456789 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called before program exit",
		"W0309 14:02:11.123000 4410 torch/distributed/run.py:793] Setting OMP_NUM_THREADS to be 1",
		"I0309 14:02:11.123456 1 server.cc:631] error counts: 0",
		"2026-03-09 14:02:11,123 - mod - WARNING - an ERROR was expected",
		"2026-03-09 14:02:11 handled ERROR response",
		"2026-03-09 14:02:11.123 | INFO     | mod:f:12 - ERROR recovered",
		`{"level":"info","msg":"error budget: error","errors":0}`,
		`{"object":"error","message":"bad request","type":"BadRequestError","code":400}`,
		`{"level":30,"msg":"fatal"}`,
		`{"severity":"WARNING","message":"Traceback (most recent call last):\n  File"}`,
		`time=2026-03-09T14:02:11.123Z level=INFO source=a.go:1 msg="error level=ERROR"`,
		"host:101:150 [0] NCCL INFO Channel 00/02 : 0 1 error",
		"Exception class registered: 3",
		"I am done: error free",
		"E. coli genome: loaded",
		"Errors: none",
		"thread 'main' started at 3",
		"Killed 3 stale requests",
		"Aborted requests: 3",
		"0.01.234.567 I srv  load: error: none",
		"srv  update_slots: all slots are idle",
		"llama_model_loader: - kv   3: general.name str = error: model",
		"[INFO|trainer.py:12] 2026-03-09 14:02:11,123 >> error: x",
		"Signal 2 received",
		"ValidationError: None",
		"Process SpawnProcess-1:",
		"[2026-03-09 14:02:12 TP0] Decode batch. error: 0",
		"assert x == y",
		"[2026-03-09 14:02:11,123][root][INFO] - error: x",
		"[2026-03-09 14:02:11][cache] [1] ERROR-free",
		"[NeMo W 2026-03-09 14:02:11 nemo_logging:381] error: x",
		"[NeMo E] x",
		"[00:00:00][0]",
		"[2026-03-09 14:02:11] [77]",
		"[TM][WARNING] error: x",
		"[engine] INFO: error: x",
		"[engine] ERROR rate: 0%",
		"[a, b] ERROR: x",
		"[engine]ERROR-free",
		"[libprotobuf WARNING a.cc:1] error: x",
		"[libprotobuf ERROR] x",
		"2026-03-09 14:02:11.123456789 [W:onnxruntime:, a.cc:12 f] error: x",
		"3: 0.013",
		"2: error: 0.5",
		"123456: ValueError: x",
		"(raylet) Tip: use `ray memory` to see errors: 0",
		"(raylets) ValueError: x",
		"(raylet",
		"(raylet,",
		"[03-09 14:02:12] Decode batch. error: 0",
		"[03-09 14:02] x",
		"[03-09 x",
		"Rank 0 done",
		"./a: version `2.38' found",
		"\t\"./a: error while loading shared libraries: x",
		"the error while loading shared libraries: x",
		"ggml_cuda_init: found 1 CUDA devices:",
		"[03/09/26 14:02:11] WARNING  error: x                             app.py:12",
		"[14:02:11] INFO     ERROR x",
		"14:02:11 INFO error: x",
		"14:02:11 up 3:48, load average: 0.13",
		"14:02:11 handled ERROR response",
		"[14:02:11] 3 errors",
		"page /v1: not found",
		"12: cache: key: not found",
		"the shell would say command not found",
		"pythonic: No module named x is fine",
		"goroutine 7 [running]:",
		"",
		"   ",
		"\x1b[0m",
	} {
		assert.Empty(t, feed(StreamStderr, l), "%q", l)
	}
}

// TestForms: one error line each of today's loggers, runtimes and tools.
func TestForms(t *testing.T) {
	for _, tt := range []struct{ input, message, pid string }{
		{"[rank1]: RuntimeError: NCCL communicator was aborted", "RuntimeError: NCCL communicator was aborted", ""},
		{"[rank0]:[E309 14:02:11.123456789 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout", "[Rank 0] Watchdog caught collective operation timeout", ""},
		{"[E ProcessGroupNCCL.cpp:474] [Rank 2] Watchdog caught", "[Rank 2] Watchdog caught", ""},
		{"[default3]:ERROR:root:disk full", "root:disk full", ""},
		{"[1,2]<stderr>: [TensorRT-LLM][ERROR] x", "x", ""},
		{"[03/09/2026-14:02:11] [TRT] [E] Error Code 1: Myelin", "Error Code 1: Myelin", ""},
		{"[03/09/2026-14:02:11] [E] [TRT] Error Code 1: Myelin", "Error Code 1: Myelin", ""},
		{"[TRT] [E] x", "x", ""},
		{"[2026-03-09 14:02:12 TP0] Health check failed. Server couldn't get a response from detokenizer", "Health check failed. Server couldn't get a response from detokenizer", ""},
		{"[2026-03-09 14:02:12 TP0] torch.OutOfMemoryError: CUDA out of memory. Tried", "torch.OutOfMemoryError: CUDA out of memory. Tried", ""},
		{"2026-03-09 14:02:11,123 - mod - ERROR - x", "x", ""},
		{"2026-03-09 14:02:11,123 ERROR mod: x", "mod: x", ""},
		{"2026-03-09 14:02:11,123 [ERROR] mod: x", "mod: x", ""},
		{"2026-03-09 14:02:11,123 [MainThread] [ERROR] x", "x", ""},
		{"2026-03-09 14:02:11,123 vllm.engine ERROR x", "x", ""},
		{"2026-03-09 14:02:11,123 4410 CRITICAL x", "x", ""},
		{"2026-03-09 14:02:11,123\tERROR worker.py:427 -- x", "x", ""},
		{"2026-03-09 14:02:11.123 | ERROR    | mod:func:12 - x", "x", ""},
		{"2026-03-09T14:02:11.123456Z ERROR vllm_router: x", "vllm_router: x", ""},
		{"2026-03-09T14:02:11.123Z\terror\tcmd/main.go:12\tx", "x", ""},
		{"2026-03-09 14:02:11.123456: E external/local_xla/cuda_driver.cc:282] failed call to cuInit", "failed call to cuInit", ""},
		{"2026/03/09 14:02:11 [error] 123#0: upstream failed", "123#0: upstream failed", ""},
		{"2026/03/09 14:02:11 server.go:12: ERROR x", "x", ""},
		{"2026-03-09T14:02:11+0100 ERROR x", "x", ""},
		{"2026-03-09T14:02:11.5-05:00 [E] x", "x", ""},
		{"2026-03-09 14:02:11,123 [pool-1] mod | error | x", "x", ""},
		{"2026-03-09 14:02:11 ERROR[12]: x", "[12]: x", ""},
		{"2026-03-09 14:02:11 ERROR", "", ""},
		{"2026-03-09 14:02:11 [TRT-LLM] [E] x", "x", ""},
		{"2026-03-09 14:02:11 error: cannot bind", "cannot bind", ""},
		{"\x1b(B\x1b[mERROR: x", "x", ""},
		{"\x1b]8;;http://a\x1b\\ERROR: x", "x", ""},
		{"\x1bPq#0\x1b\\ERROR: x\x1b", "x", ""},
		{"ERROR: x\x1b[3", "x", ""},
		{"x.cpp:12: CUDA error 2 out of memory", "x.cpp:12: CUDA error 2 out of memory", ""},
		{"CUDA runtime error in a.cu:3", "CUDA runtime error in a.cu:3", ""},
		{"Cuda failure a.cu:12 'out of memory'", "Cuda failure a.cu:12 'out of memory'", ""},
		{"03/09/2026 14:02:11 - ERROR - mod -   x", "mod -   x", ""},
		{"[2026-03-09T14:02:11Z ERROR tokenizers] x", "x", ""},
		{"[2026-03-09 14:02:11,123 E 123 456] (raylet) core_worker.cc:12: x", "(raylet) core_worker.cc:12: x", "123"},
		{"[2026-03-09 14:02:11,123 E 123 456] core_worker.cc:12: x", "x", "123"},
		{"[2026-03-09 14:02:11 +0000] [77] [CRITICAL] WORKER TIMEOUT", "WORKER TIMEOUT", "77"},
		{"[ERROR|trainer.py:12] 2026-03-09 14:02:11,123 >> x", "x", ""},
		{"[2026-03-09 14:02:12.257 DP4 TP4] Watchdog timeout (self.watchdog_timeout=300)", "Watchdog timeout (self.watchdog_timeout=300)", ""},
		{"[2026-03-09 14:02:12] Received sigquit from a child proces. It usually means the child failed.", "Received sigquit from a child proces. It usually means the child failed.", ""},
		{"[2026-03-09 14:02:12] SIGQUIT received. signum=None. It usually means one child failed.", "SIGQUIT received. signum=None. It usually means one child failed.", ""},
		{"[TP0] Scheduler hit an exception: " + tb, "[TP0] Scheduler hit an exception: " + tb, ""},
		{"[TensorRT-LLm Error][fpA_intB Runner] Failed to run the kernel", "[fpA_intB Runner] Failed to run the kernel", ""},
		{"[gpu7:15806] PRTE ERROR: Bad parameter in file base.c at line 962", "PRTE ERROR: Bad parameter in file base.c at line 962", ""},
		{"53.26.801.941 E CUDA error: an illegal memory access was encountered", "CUDA error: an illegal memory access was encountered", ""},
		{"2026-03-09 08:58:54 time=2026-03-09T06:58:54.116Z level=ERROR source=a.go:1 msg=\"x\"", "x", ""},
		{"[52127] 0.18.729.166 E srv  load: x", "srv  load: x", ""},
		{"2026-05-01 18:50:31.934 | (APIServer pid=1) ERROR 05-01 16:50:31 [utils.py:299] x", "x", ""},
		{"2026-03-09T08:58:54Z {\"level\":\"error\",\"msg\":\"x\"}", "x", ""},
		{"E0309 14:02:11.123456 1 model_repository_manager.cc:1004] failed to load", "failed to load", ""},
		{"E0000 00:00:1710000000.123456    1234 cuda_dnn.cc:8310] Unable to register", "Unable to register", ""},
		{"F20260309 14:02:11.123456 77 a.cc:1] check failed", "check failed", ""},
		{`{"level":"error","ts":1.5,"msg":"x","error":"y"}`, "x: y", ""},
		{`{"severity": "CRITICAL", "message": "x", "process": 4410}`, "x", "4410"},
		{`{"level":50,"pid":9,"msg":"x","err":{"message":"m"}}`, "x", "9"},
		{`{"levelname":"ERROR","levelno":40,"message":"x"}`, "x", ""},
		{`{"text":"t","record":{"level":{"name":"ERROR","no":40},"message":"x"}}`, "x", ""},
		{`time=2026-03-09T14:02:11.123Z level=ERROR source=sched.go:1 msg="load failed" error="no \"gpu\""`, `load failed: no "gpu"`, ""},
		{"ERRO[0012] x", "x", ""},
		{"[error] x", "x", ""},
		{"ERR x", "x", ""},
		{"ERR: x", "x", ""},
		{"err: x", "err: x", ""},
		{"[FATAL] x", "x", ""},
		{"FATAL x", "x", ""},
		{"Error: 5", "Error: 5", ""},
		{"kernel.cu(3): error: identifier undefined", "kernel.cu(3): error: identifier undefined", ""},
		{"a.cpp:3:5: error: x", "a.cpp:3:5: error: x", ""},
		{"a.cpp:3:5: fatal error: cuda.h: No such file", "a.cpp:3:5: fatal error: cuda.h: No such file", ""},
		{"nvcc fatal   : Unsupported gpu architecture", "nvcc fatal   : Unsupported gpu architecture", ""},
		{"ptxas fatal   : Unresolved extern", "ptxas fatal   : Unresolved extern", ""},
		{"fatal error: all goroutines are asleep - deadlock!", "fatal error: all goroutines are asleep - deadlock!", ""},
		{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", ""},
		{"ray.exceptions.RayTaskError(ValueError): ray::f()", "ray.exceptions.RayTaskError(ValueError): ray::f()", ""},
		{"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: x", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: x", ""},
		{"CUDA error: an illegal memory access was encountered", "CUDA error: an illegal memory access was encountered", ""},
		{"CUDA error 700 at a.cu:12", "CUDA error 700 at a.cu:12", ""},
		{"Failed, NCCL error a.cpp:3 'unhandled system error'", "", ""},
		{"x.cu:12: CUDA error", "x.cu:12: CUDA error", ""},
		{"worker-3: CUDA driver error: unknown error", "worker-3: CUDA driver error: unknown error", ""},
		{"HIP error: out of memory", "HIP error: out of memory", ""},
		{"gpu7:4410:4512 [3] NCCL WARN Cuda failure 'out of memory'", "NCCL WARN Cuda failure 'out of memory'", "4410"},
		{"[2026-03-09 14:02:11] gpu7:4410:4512 [3] init.cc:12 NCCL WARN x", "NCCL WARN x", "4410"},
		{"NVRM: Xid (PCI:0000:81:00): 79, pid=4410, name=python3", "NVRM: Xid (PCI:0000:81:00): 79, pid=4410, name=python3", ""},
		{"[12345.678] NVRM: Xid (PCI:0000:81:00): 31", "[12345.678] NVRM: Xid (PCI:0000:81:00): 31", ""},
		{"Fatal Python error: Segmentation fault", "Fatal Python error: Segmentation fault", ""},
		{"Aborted", "Aborted", ""},
		{"Segmentation fault (core dumped)", "Segmentation fault (core dumped)", ""},
		{"run.sh: line 3:  1234 Killed                  python serve.py", "run.sh: line 3:  1234 Killed                  python serve.py", ""},
		{"double free or corruption (out)", "double free or corruption (out)", ""},
		{"free(): invalid pointer", "free(): invalid pointer", ""},
		{"python: a.c:1: f: Assertion `x' failed.", "python: a.c:1: f: Assertion `x' failed.", ""},
		{"/src/ggml.c:123: GGML_ASSERT(ne > 0) failed", "/src/ggml.c:123: GGML_ASSERT(ne > 0) failed", ""},
		{"[gpu7:4410] *** Process received signal ***", "*** Process received signal ***", "4410"},
		{"[gpu7:4410:0:4410] Caught signal 11 (Segmentation fault: address not mapped to object)", "Caught signal 11 (Segmentation fault: address not mapped to object)", "4410"},
		{"[1710000000.123456] [gpu7:4410 :0]   ib_md.c:1 UCX  ERROR ibv_reg_mr failed", "[gpu7:4410 :0]   ib_md.c:1 UCX  ERROR ibv_reg_mr failed", ""},
		{"MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD", "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD", ""},
		{"thread 'main' panicked at src/main.rs:4:5:", "thread 'main' panicked at src/main.rs:4:5:", ""},
		{"E srv  load_model: failed to load model, 'm.gguf'", "srv  load_model: failed to load model, 'm.gguf'", ""},
		{"0.01.234.567 E srv  load: x", "srv  load: x", ""},
		{"llama_model_load: error loading model: missing tensor", "llama_model_load: error loading model: missing tensor", ""},
		{"common_init_from_params: failed to load model 'm.gguf'", "common_init_from_params: failed to load model 'm.gguf'", ""},
		{"(RayWorkerWrapper pid=300, ip=10.0.0.2) ERROR 03-09 14:02:11 [w.py:1] x", "x", "300"},
		{"(EngineCore_DP0 pid=41) (RayWorkerWrapper pid=300) ERROR 03-09 14:02:11 [w.py:1] x", "x", "300"},
		{"(pid=300) ValueError: x", "ValueError: x", "300"},
		{"[2026-03-09 14:02:11,123][root][ERROR] - x", "x", ""},
		{"[2026-03-09 14:02:11] [engine] [ERROR] x", "x", ""},
		{"[NeMo E 2026-03-09 14:02:11 nemo_logging:381] x", "x", ""},
		{"[03/09/26 14:02:11] ERROR    x y                                app.py:12", "x y", ""},
		{"[14:02:11] ERROR    x                                           app.py:12", "x", ""},
		{"[14:02:11] [ERROR] x", "x", ""},
		{"14:02:11 ERROR x", "x", ""},
		{"14:02:11,123 - mod - ERROR - x", "x", ""},
		{"14:02:11.123 | ERROR    | mod:func:12 - x", "x", ""},
		{"/usr/bin/python3: No module named vllm", "/usr/bin/python3: No module named vllm", ""},
		{"python3.12: can't open file '/x/serve.py': [Errno 2] No such file or directory", "python3.12: can't open file '/x/serve.py': [Errno 2] No such file or directory", ""},
		{"/opt/v/bin/python: Error while finding module specification for 'vllm.serve' (ModuleNotFoundError: No module named 'vllm')",
			"/opt/v/bin/python: Error while finding module specification for 'vllm.serve' (ModuleNotFoundError: No module named 'vllm')", ""},
		{"bash: line 1: vllm: command not found", "bash: line 1: vllm: command not found", ""},
		{"sh: 1: vllm: not found", "sh: 1: vllm: not found", ""},
		{"./run.sh: 12: vllm: not found", "./run.sh: 12: vllm: not found", ""},
		{"./llama-server: error while loading shared libraries: libcuda.so.1: cannot open shared object file: No such file or directory",
			"./llama-server: error while loading shared libraries: libcuda.so.1: cannot open shared object file: No such file or directory", ""},
		{"/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by ./a)", "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by ./a)", ""},
		{"python: symbol lookup error: /x/libtorch_cuda.so: undefined symbol: f", "python: symbol lookup error: /x/libtorch_cuda.so: undefined symbol: f", ""},
		{"(raylet) [2026-03-09 14:02:11,123 E 12 34] (raylet) node_manager.cc:3069: 1 Workers killed", "(raylet) node_manager.cc:3069: 1 Workers killed", "12"},
		{"(raylet, ip=10.0.0.2) ValueError: x", "ValueError: x", ""},
		{"[2026-03-09 14:02:12] Rank 0 scheduler is dead. Please check if there are relevant logs.", "Rank 0 scheduler is dead. Please check if there are relevant logs.", ""},
		{"[03-09 14:02:12] Rank 0 scheduler is dead. Please check if there are relevant logs.", "Rank 0 scheduler is dead. Please check if there are relevant logs.", ""},
		{"[2026-03-09 14:02:12] Initialization failed. warmup error: timed out", "Initialization failed. warmup error: timed out", ""},
		{"ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected", "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected", ""},
		{"main: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", "main: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", ""},
		{"E couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", "couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", ""},
		{"[TM][ERROR] CUDA runtime error: out of memory", "CUDA runtime error: out of memory", ""},
		{"[worker-0] [ERROR] x", "x", ""},
		{"[Rank 0] ERROR: x", "x", ""},
		{"[libprotobuf ERROR ../src/message_lite.cc:123] x", "x", ""},
		{"[ ERROR ] x", "x", ""},
		{"[2026-03-09 14:02:11.123] [engine] [error] x", "x", ""},
		{"2026-03-09 14:02:11.123456789 [E:onnxruntime:Default, provider_bridge_ort.cc:1862 TryGetProviderInfo_CUDA] x", "x", ""},
		{"ERROR - x", "x", ""},
		{"ERROR | x", "x", ""},
		{"3: ValueError: x", "ValueError: x", ""},
		{"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", "couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", ""},
	} {
		got := feed(StreamStderr, tt.input)
		if tt.message == "" {
			assert.Empty(t, got, "%q", tt.input)
			continue
		}
		if assert.Len(t, got, 1, "%q", tt.input) {
			assert.Equal(t, Entry{Time: 1, Stream: StreamStderr, PID: tt.pid, Message: tt.message, Exception: got[0].Exception}, got[0])
		}
	}
}

// TestGrouped: what belongs together is one entry.
func TestGrouped(t *testing.T) {
	for _, tt := range []struct {
		name  string
		input []string
		want  []want
	}{
		{"fault handler", []string{"Fatal Python error: Segmentation fault", "", "Current thread 0x00007f (most recent call first):",
			`  File "a.py", line 3 in f`, "", "Thread 0x00008f (most recent call first):", `  File "b.py", line 4 in g`, "",
			"Extension modules: numpy (total: 1)", "Segmentation fault (core dumped)"},
			[]want{{"Fatal Python error: Segmentation fault", lines("Current thread 0x00007f (most recent call first):", `  File "a.py", line 3 in f`, "",
				"Thread 0x00008f (most recent call first):", `  File "b.py", line 4 in g`)}, {"Segmentation fault (core dumped)", ""}}},
		{"Rust", []string{"thread 'main' panicked at src/main.rs:4:5:", "index out of bounds: the len is 3", "stack backtrace:", "   0: rust_begin_unwind",
			"             at /rustc/x/panicking.rs:1:2", "note: run with `RUST_BACKTRACE=full` environment variable", "done"},
			[]want{{"thread 'main' panicked at src/main.rs:4:5:", lines("index out of bounds: the len is 3", "stack backtrace:", "   0: rust_begin_unwind",
				"             at /rustc/x/panicking.rs:1:2")}}},
		{"C++ exception of PyTorch", []string{"terminate called after throwing an instance of 'c10::Error'", "  what():  CUDA error: x",
			"CUDA kernel errors might be asynchronously reported at some other API call",
			"Exception raised from f at a.cpp:1 (most recent call first):", "frame #0: f() + 0x1 (0x7f01 in libc10.so)", "Aborted (core dumped)"},
			[]want{{"terminate called after throwing an instance of 'c10::Error'", lines("  what():  CUDA error: x",
				"CUDA kernel errors might be asynchronously reported at some other API call",
				"Exception raised from f at a.cpp:1 (most recent call first):", "frame #0: f() + 0x1 (0x7f01 in libc10.so)")}, {"Aborted (core dumped)", ""}}},
		{"TensorRT-LLM stack trace", []string{"[TensorRT-LLM][ERROR] Encountered an error in forwardAsync: x (a.cpp:1)", "1       0x7f0b01 libtrt.so(+0x1) [0x7f0b01]",
			"2       0x7f0b02 libtrt.so(+0x2) [0x7f0b02]", "[TensorRT-LLM][INFO] bye"},
			[]want{{"Encountered an error in forwardAsync: x (a.cpp:1)", lines("1       0x7f0b01 libtrt.so(+0x1) [0x7f0b01]", "2       0x7f0b02 libtrt.so(+0x2) [0x7f0b02]")}}},
		{"Open MPI", []string{"[gpu7:4410] *** Process received signal ***", "[gpu7:4410] Signal: Segmentation fault (11)", "[gpu7:4410] [ 0] libc.so(+0x1)[0x7f]",
			"[gpu7:4410] *** End of error message ***", "next"},
			[]want{{"*** Process received signal ***", lines("Signal: Segmentation fault (11)", "[ 0] libc.so(+0x1)[0x7f]", "*** End of error message ***")}}},
		{"CUDA block with a prefix on each line", []string{"53.26.801.941 E CUDA error: an illegal memory access was encountered",
			"53.26.801.943 E   current device: 0, in function f at a.cu:1", "53.26.801.944 E a.cu:98: CUDA error", "53.26.801.945 I srv  stop: x"},
			[]want{{"CUDA error: an illegal memory access was encountered", lines("  current device: 0, in function f at a.cu:1", "a.cu:98: CUDA error")}}},
		{"CUDA message with a traceback", prefixed(vllm, "CUDA error: out of memory", tb, "  File", "ValueError: x"),
			[]want{{"CUDA error: out of memory", lines(tb, "  File", "ValueError: x")}}},
		{"NCCL's text of an error", []string{tb, "  File", "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, unhandled system error", "ncclSystemError: System call failed.",
			"Last error:", "socketStartConnect: Connect to 10.2.0.9 failed", "bye"},
			[]want{{tb, lines(tb, "  File", "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, unhandled system error", "ncclSystemError: System call failed.",
				"Last error:", "socketStartConnect: Connect to 10.2.0.9 failed")}}},
		{"a spawned process' traceback", []string{tb, "  File", "torch.multiprocessing.spawn.ProcessRaisedException: ", "", "-- Process 1 terminated with the following error:",
			tb, "  File", "ValueError: x"},
			[]want{{tb, lines(tb, "  File", "torch.multiprocessing.spawn.ProcessRaisedException: ", "", "-- Process 1 terminated with the following error:", tb, "  File", "ValueError: x")}}},
		{"remote traceback of a process pool", []string{"concurrent.futures.process._RemoteTraceback: ", `"""`, tb, `  File "w.py", line 1, in f`, "KeyError: 1",
			`"""`, "", directCause, "", tb, `  File "m.py", line 2, in g`, "KeyError: 1"},
			[]want{{tb, lines(tb, `  File "w.py", line 1, in f`, "KeyError: 1", "", directCause, "", tb, `  File "m.py", line 2, in g`, "KeyError: 1")}}},
		{"Ray's error with its cause", []string{tb, `  File "m.py", line 2, in g`, "ray.exceptions.RayTaskError(ValueError): ray::f() (pid=3)",
			`  File "w.py", line 1, in f`, "ValueError: x", "bye"},
			[]want{{tb, lines(tb, `  File "m.py", line 2, in g`, "ray.exceptions.RayTaskError(ValueError): ray::f() (pid=3)", `  File "w.py", line 1, in f`, "ValueError: x")}}},
		{"hints before a chained traceback", []string{tb, `  File "k.py", line 2, in g`, "RuntimeError: CUDA error: x", "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
			"", directCause, "", tb, `  File "m.py", line 3, in h`, "EngineDeadError: y"},
			[]want{{tb, lines(tb, `  File "k.py", line 2, in g`, "RuntimeError: CUDA error: x", "", directCause, "", tb, `  File "m.py", line 3, in h`, "EngineDeadError: y")}}},
		{"text of several lines", []string{tb, `  File "k.py", line 2, in g`, "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
			"  Value error, no such model", "    For further information visit x", "", "  unrelated"},
			[]want{{tb, lines(tb, `  File "k.py", line 2, in g`, "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
				"  Value error, no such model", "    For further information visit x")}}},
		{"a message of several lines", []string{"[TRT-LLM] [E] Failed to parse the arguments: 1 validation error for Args", "  Value error, max_batch_size is too large",
			"    For further information visit x", tb, "  File", "ValueError: x"},
			[]want{{"Failed to parse the arguments: 1 validation error for Args", lines(tb, "  File", "ValueError: x")}}},
		{"output between a message and a traceback", []string{"[ERROR] x", "", "  unrelated", tb, "  File", "ValueError: x"},
			[]want{{"x", ""}, {tb, lines(tb, "  File", "ValueError: x")}}},
		{"a compiler's error", []string{"a.cu(3): error: identifier undefined", "      blok(3);", "      ^", "", "1 error detected in the compilation of a.cu."},
			[]want{{"a.cu(3): error: identifier undefined", ""}}},
		{"a warning's traceback", []string{"WARNING 03-09 14:02:11 [a.py:1] retrying: " + tb, `  File "k.py", line 2, in g`, "TimeoutError: x", "ERROR: real"},
			[]want{{"real", ""}}},
		{"blank record between message and traceback", append(prefixed(vllm, "aborted", "", tb), vllm+`  File "k.py", line 2, in g`, vllm+"ValueError: x"),
			[]want{{"aborted", lines("", tb, `  File "k.py", line 2, in g`, "ValueError: x")[1:]}}},
		{"an INFO record is no frame", []string{tb, `  File "k.py", line 2, in g`, "INFO 03-09 14:02:11 [a.py:1]   indented", "ValueError: x"},
			[]want{{tb, lines(tb, `  File "k.py", line 2, in g`, "ValueError: x")}}},
		{"a JSON record's traceback", []string{`{"level":"error","message":"x","exc_info":"Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 1"}`},
			[]want{{"x", lines(tb, `  File "a.py", line 1`, "KeyError: 1")}}},
		{"two tracebacks that are not chained", []string{tb, `  File "a.py", line 1`, "KeyError: 1", tb, `  File "b.py", line 1`, "KeyError: 2"},
			[]want{{tb, lines(tb, `  File "a.py", line 1`, "KeyError: 1")}, {tb, lines(tb, `  File "b.py", line 1`, "KeyError: 2")}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, wants(feed(StreamStderr, tt.input...)))
		})
	}
}

// TestInterleavedWorkers: each worker's traceback is its own entry, with its pid.
func TestInterleavedWorkers(t *testing.T) {
	var input []string
	a, b := "(Worker_TP0 pid=51) ", "(Worker_TP1 pid=52) "
	for _, l := range []string{vllm + "step failed", vllm + tb, vllm + `  File "k.py", line 2, in g`, vllm + "ValueError: x"} {
		input = append(input, a+l, "(APIServer pid=7) INFO 03-09 14:02:11 [a.py:1] alive", b+l)
	}
	got := feed(StreamStdout, input...)
	require.Len(t, got, 2)
	for i, pid := range []string{"51", "52"} {
		assert.Equal(t, pid, got[i].PID)
		assert.Equal(t, "step failed", got[i].Message)
		assert.Equal(t, lines(tb, `  File "k.py", line 2, in g`, "ValueError: x"), got[i].Exception)
	}
}

// TestTasksOfSrun: each task's traceback is an entry of its own.
func TestTasksOfSrun(t *testing.T) {
	got := feed(StreamStderr, "0: "+tb, "1: "+tb, `0:   File "a.py", line 1, in f`, `1:   File "a.py", line 1, in f`, "0:     g()", "1:     g()",
		"1: ValueError: one", "0: ValueError: zero")
	assert.ElementsMatch(t, []want{
		{tb, lines(tb, `  File "a.py", line 1, in f`, "    g()", "ValueError: zero")},
		{tb, lines(tb, `  File "a.py", line 1, in f`, "    g()", "ValueError: one")},
	}, wants(got))
}

// TestInterruptionIsBounded: a traceback that never ends does not swallow an exception that comes much later.
func TestInterruptionIsBounded(t *testing.T) {
	input := []string{tb, `  File "k.py", line 2, in g`}
	for range maxForeign + 1 {
		input = append(input, "INFO: busy")
	}
	got := feed(StreamStderr, append(input, "ValueError: late")...)
	assert.Equal(t, []want{{tb, lines(tb, `  File "k.py", line 2, in g`)}, {"ValueError: late", ""}}, wants(got))
}

// TestOpenEntriesAreBounded: many workers do not make many open entries, and none is lost.
func TestOpenEntriesAreBounded(t *testing.T) {
	n := 0
	x := NewExtractor(func(time.Time, Entry) { n++ })
	now := time.Unix(1000, 0)
	for i := range 3 * maxOpen {
		x.Line(now, int64(i), StreamStderr, fmt.Sprintf("(w pid=%d) ERROR: x", i))
		require.LessOrEqual(t, len(x.open), maxOpen)
	}
	x.Flush(now)
	assert.Equal(t, 3*maxOpen, n)
}

// TestLongTracebackIsBounded: memory does not grow with a traceback's length.
func TestLongTracebackIsBounded(t *testing.T) {
	var e excerpt
	for i := range 100_000 {
		e.add(fmt.Sprintf("  frame %d %s", i, strings.Repeat("x", 100)))
	}
	assert.Less(t, len(e.head)+len(e.tail), 200)
	assert.Len(t, []rune(e.text()), MaxException)

	var long excerpt
	long.add(tb)
	long.add("ValueError: " + strings.Repeat("y", 50_000))
	text := long.text()
	assert.LessOrEqual(t, len(text), MaxException)
	assert.Contains(t, text, "ValueError: yyy")
}

func TestRepeats(t *testing.T) {
	var got []Entry
	c := NewCondenser(func(e Entry) { got = append(got, e) })
	now := time.Unix(1000, 0)
	e := Entry{Time: 1, Stream: StreamStderr, Message: "boom", Exception: "frames"}
	c.Add(now, e)
	_, waits := c.Deadline()
	assert.False(t, waits, "nothing to count yet")
	for i := range 3 {
		again := e
		again.Time = int64(2 + i)
		c.Add(now.Add(time.Duration(i)*time.Second), again)
	}
	other := e
	other.PID = "7"
	c.Add(now, other)
	at, waits := c.Deadline()
	require.True(t, waits)
	assert.Equal(t, now.Add(10*time.Second), at)
	c.Expire(at)
	c.Add(at, e)
	c.Flush(at)
	folded := Entry{Time: 4, Stream: StreamStderr, Message: "boom (repeated 3 times within 10 s)"}
	assert.Equal(t, []Entry{e, other, folded, e}, got)
}

// TestDeviceAssertions: the same assertion of many threads is one error.
func TestDeviceAssertions(t *testing.T) {
	var records []Record
	for i := range 500 {
		records = append(records, line(int64(i), StreamStderr,
			fmt.Sprintf("/src/Indexing.cu:123: operator(): block: [%d,0,0], thread: [%d,0,0] Assertion `i < n` failed.", i/32, i%32)))
	}
	got := parse(records...)
	require.Len(t, got, 2)
	assert.Contains(t, got[1].Message, "(repeated 499 times within 10 s)")
}

type fakeOOM struct {
	n  int64
	ok bool
}

func (f *fakeOOM) Kills() (int64, bool) { return f.n, f.ok }

func TestOutOfMemoryHint(t *testing.T) {
	for _, tt := range []struct {
		name       string
		start, end fakeOOM
		record     Record
		want       string
	}{
		{"killed, counted", fakeOOM{3, true}, fakeOOM{4, true}, Record{Kind: KindStatus, Signal: 9},
			"Process terminated by signal 9 (SIGKILL), out of memory: the kernel ended 1 process of its cgroup"},
		{"killed, not by the kernel", fakeOOM{3, true}, fakeOOM{3, true}, Record{Kind: KindStatus, Signal: 9}, "Process terminated by signal 9 (SIGKILL)"},
		{"killed, unknown", fakeOOM{}, fakeOOM{}, Record{Kind: KindStatus, Signal: 9}, "Process terminated by signal 9 (SIGKILL), possibly out of memory"},
		{"a worker was killed", fakeOOM{0, true}, fakeOOM{2, true}, Record{Kind: KindStatus, ExitCode: 1},
			"Process exited with non-zero code 1, out of memory: the kernel ended 2 processes of its cgroup"},
		{"terminated, unknown", fakeOOM{}, fakeOOM{}, Record{Kind: KindStatus, Signal: 15}, "Process terminated by signal 15 (SIGTERM)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			oom := tt.start
			var got []Entry
			p := NewParser(&oom, func(e Entry) { got = append(got, e) })
			oom = tt.end
			p.Record(time.Unix(1, 0), tt.record)
			require.Len(t, got, 1)
			assert.Equal(t, tt.want, got[0].Message)
		})
	}
}
