"""Frameworks and NVIDIA's own tools under graphsignal-run: programs that launch a known number of kernels, and what /signals then says.

usage: frameworks.py --root FOLDER [--only a,b]
       frameworks.py --program NAME    runs one of the programs alone

Each program runs by itself first: where that fails, what it needs is missing, and its case is left out. It must then end the same
way and print the same under the launcher, and the last document must have the counts it printed. The last line is
"N passed, N failed, N left out".
"""
import argparse
import concurrent.futures
import glob
import gzip
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time

LAUNCHES = 1000
PROCESSES = 4
ME = os.path.abspath(__file__)
arguments = None


# The programs. Each prints one line of JSON: substrings of kernels' names with the calls there must be, alone or as a range;
# "graph" for all graphs together; "some" where the names are the framework's: one kernel or graph has just so many.

def report(**counts):
    print(json.dumps(counts))


def program_cupy():
    import cupy
    kernel = cupy.RawKernel('extern "C" __global__ void gs_known(float* x) { x[threadIdx.x] += 1; }', "gs_known")
    x = cupy.zeros(32, dtype=cupy.float32)
    for _ in range(LAUNCHES):
        kernel((1,), (32,), (x,))
    assert x.get().tolist() == [LAUNCHES] * 32
    report(gs_known=LAUNCHES)


def program_numba():
    import numpy
    from numba import cuda

    @cuda.jit
    def gs_known(x):
        x[cuda.threadIdx.x] += 1

    x = cuda.to_device(numpy.zeros(32, dtype=numpy.float32))
    for _ in range(LAUNCHES):
        gs_known[1, 32](x)
    assert x.copy_to_host().tolist() == [LAUNCHES] * 32
    report(gs_known=LAUNCHES)


def triton_loop():
    import torch
    import triton

    @triton.jit
    def gs_known(x):
        triton.language.store(x, triton.language.load(x) + 1)

    x = torch.zeros(1, device="cuda")
    for _ in range(LAUNCHES):
        gs_known[(1,)](x)
    assert x.item() == LAUNCHES


def program_triton():
    triton_loop()
    report(gs_known=LAUNCHES)


def program_workers():
    """A server's shape: a parent that never starts CUDA, and workers of its own that do."""
    workers = [multiprocessing.get_context("spawn").Process(target=triton_loop) for _ in range(PROCESSES)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert [w.exitcode for w in workers] == [0] * PROCESSES
    report(gs_known=PROCESSES * LAUNCHES)


def program_loader():
    """Forked loaders that pin memory, beside the training process."""
    import torch
    data = torch.arange(64 * 256, dtype=torch.float32).reshape(256, 64)
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=4, pin_memory=True)
    total = torch.zeros(64, device="cuda")
    for batch in loader:
        total += batch.to("cuda", non_blocking=True).sum(0)
    assert total.sum().item() == data.double().sum().item()
    triton_loop()
    report(gs_known=LAUNCHES)


def program_compile():
    """CUDA graphs that torch.compile captures by itself."""
    import torch
    layer = torch.nn.Linear(512, 512, device="cuda", dtype=torch.bfloat16).eval()
    step = torch.compile(lambda x: torch.nn.functional.gelu(layer(x)) + x, mode="reduce-overhead")
    x = torch.randn(16, 512, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(LAUNCHES):
            torch.compiler.cudagraph_mark_step_begin()
            y = step(x)
        torch.cuda.synchronize()
    assert torch.isfinite(y).all()
    # The first call compiles, the second records; from the recording on, each is one launch of the graph.
    report(graph=[LAUNCHES - 2, LAUNCHES])


def jax_loop():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(x):
        y = jnp.tanh(x @ x)
        return y / jnp.max(jnp.abs(y))

    x = jnp.eye(256) * 0.5
    for _ in range(LAUNCHES):
        x = step(x)
    x.block_until_ready()


def program_jax():
    os.environ["XLA_FLAGS"] = "--xla_gpu_enable_command_buffer="
    jax_loop()
    report(some=LAUNCHES)


def program_jax_graphs():
    """XLA's command buffers are CUDA graphs that it builds itself, and updates."""
    os.environ["XLA_FLAGS"] = "--xla_gpu_graph_min_graph_size=1"
    jax_loop()
    report(some=LAUNCHES)


def program_jax_profiler():
    """jax.profiler traces the replays of XLA's graphs three times, of 1,000 steps each, between 1,000 steps and 1,000 more."""
    os.environ["XLA_FLAGS"] = "--xla_gpu_graph_min_graph_size=1"
    import jax
    jax_loop()
    seen = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder, create_perfetto_trace=True):
                jax_loop()
            events = []
            for path in glob.glob(os.path.join(folder, "**", "perfetto_trace.json.gz"), recursive=True):
                with gzip.open(path) as t:
                    events += json.load(t)["traceEvents"]
        gpus = {e["pid"] for e in events if e.get("name") == "process_name" and "GPU" in e["args"]["name"]}
        seen.append(sum(e.get("ph") == "X" and e["pid"] in gpus for e in events) >= LAUNCHES)
    jax_loop()
    report(seen=seen)


def program_generate():
    """Tokens from a small model of random weights, kernel by kernel as torch.profiler counts them."""
    import torch
    import transformers
    config = transformers.LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
                                      num_key_value_heads=4, vocab_size=1024)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
    prompt = torch.arange(32, device="cuda")[None]

    def generate():
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=64, min_new_tokens=64, do_sample=False,
                       pad_token_id=0, eos_token_id=1)
        torch.cuda.synchronize()

    if "--profile" not in sys.argv:
        generate()
        print("{}")
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        generate()
    counts = {}
    for e in profile.events():
        if e.device_type == torch.autograd.DeviceType.CUDA and not e.name.startswith(("Memcpy", "Memset")):
            counts[e.name] = counts.get(e.name, 0) + 1
    print(json.dumps(counts))


# The cases.

class Findings:
    def __init__(self):
        self.failed, self.notes = [], []

    def true(self, what, condition):
        if not condition:
            self.failed.append(what)


class LeftOut(Exception):
    pass


def environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("GRAPHSIGNAL_") and k != "CUDA_INJECTION64_PATH"}


def execute(command, limit=150, extra={}):
    start = time.monotonic()
    r = subprocess.run(command, env=dict(environment(), **extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit)
    r.seconds = time.monotonic() - start
    return r


def launched(f, command, port, *options, extra={}):
    """Runs a command under the launcher, with more environment variables; gives its result and the last document."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "signals.json")
        r = execute([os.path.join(arguments.root, "bin/graphsignal-run"), "--listen-port", str(port), "--output", out, *options, "--"] + command,
                    extra=extra)
        f.true("there is no document: %s" % r.stderr[-600:], os.path.exists(out))
        with open(out) as t:
            document = json.load(t)
    f.notes.append("%.1f s; errors %s" % (r.seconds, [e.get("message") for e in document.get("errors", [])][:4]))
    lost = {m["name"]: m["stats"].get("total") for m in document["metrics"] if m["name"] in ("cuda_dropped_records_total", "cuda_invalid_records")}
    f.true("records lost: %s" % lost, not any(lost.values()))
    return r, document


def calls(document, *metrics):
    """Calls by frame, of all processes together."""
    counts = {}
    for m in document["metrics"]:
        if m["name"] in metrics:
            for frame in m["stats"].get("frames", []):
                counts[frame["name"]] = counts.get(frame["name"], 0) + frame["samples"]
    return counts


def known(name, *options):
    """A case that runs a program and compares with the counts that it prints."""
    def case(f, port):
        command = [sys.executable, ME, "--program", name]
        alone = execute(command)
        if alone.returncode:
            raise LeftOut(alone.stderr.strip()[-300:])
        r, document = launched(f, command, port, *options)
        f.true("status %r: %s" % (r.returncode, r.stderr[-600:]), r.returncode == 0)
        f.true("prints %r, alone %r" % (r.stdout, alone.stdout), r.stdout == alone.stdout)
        f.notes.append("alone %.1f s" % alone.seconds)
        kernels, graphs = calls(document, "cuda_kernels_nanoseconds"), calls(document, "cuda_graphs_nanoseconds")
        f.notes.append("kernels %s; graphs %s" % (sorted(kernels.items(), key=lambda e: -e[1])[:5], graphs))
        for want, number in json.loads(alone.stdout.strip().splitlines()[-1]).items():
            if want == "some":
                f.true("no kernel and no graph has %d calls" % number, number in list(kernels.values()) + list(graphs.values()))
                continue
            got = sum((graphs if want == "graph" else {k: v for k, v in kernels.items() if want in k}).values())
            low, high = number if isinstance(number, list) else (number, number)
            f.true("%s: %d calls, want %d to %d" % (want, got, low, high), low <= got <= high)
    return case


def case_generate(f, port):
    command = [sys.executable, ME, "--program", "generate"]
    theirs = execute(command + ["--profile"])
    if theirs.returncode:
        raise LeftOut(theirs.stderr.strip()[-300:])
    theirs = json.loads(theirs.stdout.strip().splitlines()[-1])
    r, document = launched(f, command, port)
    f.true("status %r: %s" % (r.returncode, r.stderr[-600:]), r.returncode == 0)
    # What runs before the profiled part, to make weights and prompt, is in ours only: so each kernel of theirs is compared.
    ours = calls(document, "cuda_kernels_nanoseconds")
    filt = shutil.which("c++filt")
    if filt:
        names = list(ours)
        plain = subprocess.run([filt], input="\n".join(names), stdout=subprocess.PIPE, text=True).stdout.splitlines()
        merged = {}
        for name, demangled in zip(names, plain):
            merged[demangled] = merged.get(demangled, 0) + ours[name]
        ours = merged
    less = {k: (n, ours.get(k)) for k, n in theirs.items() if ours.get(k, 0) < n}
    f.true("kernels with fewer calls than torch.profiler's: %s" % list(less.items())[:4], not less)
    equal = sum(ours.get(k) == n for k, n in theirs.items())
    f.notes.append("%d kernels, %d calls in torch.profiler; %d kernels with equal counts, %d calls in ours" % (
        len(theirs), sum(theirs.values()), equal, sum(ours.values())))


def case_jax_profiler(f, port):
    command = [sys.executable, ME, "--program", "jax_profiler"]
    alone = execute(command)
    if alone.returncode or not all(json.loads(alone.stdout.strip().splitlines()[-1])["seen"]):
        raise LeftOut((alone.stdout + alone.stderr).strip()[-300:])
    # Several at once, since what went wrong here once went wrong in some runs only.
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
        runs = list(pool.map(lambda i: launched(f, command, port + 100 * (i + 1), extra={"GRAPHSIGNAL_CUPTI_SUBSCRIBE": "0"}), range(PROCESSES)))
    for r, document in runs:
        f.true("status %r: %s" % (r.returncode, r.stderr[-600:]), r.returncode == 0)
        f.true("prints %r, alone %r" % (r.stdout, alone.stdout), r.stdout == alone.stdout)
        suspended = [m["stats"].get("value") for m in document["metrics"] if m["name"] == "cuda_trace_suspended"]
        f.true("cuda_trace_suspended is %s" % suspended, suspended == [1])
        f.true("no kernels from before the traces", calls(document, "cuda_kernels_nanoseconds"))


def tool(name, command_of, says):
    """A case that runs one of NVIDIA's tools around a program, inside the launcher and outside of it."""
    def case(f, port):
        if not shutil.which(name):
            raise LeftOut("%s is not installed" % name)
        program = [sys.executable, ME, "--program", "cupy"]
        alone = execute(command_of(program))
        if alone.returncode or says not in alone.stdout + alone.stderr:
            raise LeftOut((alone.stdout + alone.stderr)[-300:])
        r, document = launched(f, command_of(program), port)
        f.true("inside: status %r: %s" % (r.returncode, (r.stdout + r.stderr)[-600:]), r.returncode == 0 and says in r.stdout + r.stderr)
        f.notes.append("inside: our kernels %s" % calls(document, "cuda_kernels_nanoseconds"))
        run = os.path.join(arguments.root, "bin/graphsignal-run")
        r = execute(command_of([run, "--listen-port", str(port)] + program))
        f.true("outside: status %r: %s" % (r.returncode, (r.stdout + r.stderr)[-600:]), r.returncode == 0 and says in r.stdout + r.stderr)
    return case


CASES = {
    "cupy": known("cupy"),
    "numba": known("numba"),
    "triton": known("triton"),
    "workers": known("workers"),
    "loader": known("loader"),
    "compile": known("compile"),
    "jax": known("jax"),
    "jax_graphs": known("jax_graphs"),
    "jax_graphs_by_node": known("jax_graphs", "--cuda-graph-trace", "node"),
    "jax_profiler": case_jax_profiler,
    "generate": case_generate,
    "ncu": tool("ncu", lambda p: ["ncu", "--target-processes", "all", "-k", "gs_known", "-c", "1", "--clock-control", "none"] + p, "Duration"),
    "cuda_gdb": tool("cuda-gdb", lambda p: ["cuda-gdb", "-batch", "-ex", "run", "--args"] + p, "exited normally"),
}


def main():
    global arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=os.path.join(os.path.dirname(ME), ".."))
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--program")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if arguments.program:
        globals()["program_" + arguments.program]()
        return 0
    arguments.root = os.path.abspath(arguments.root)
    passed = failed = left = 0
    for i, name in enumerate(arguments.only.split(",")):
        f, start = Findings(), time.monotonic()
        word = "ok  "
        try:
            CASES[name](f, 18500 + i)
        except LeftOut as e:
            word = "--  "
            f.notes.append("left out, it does not work by itself: %s" % e)
        except Exception as e:  # a case that falls over has failed
            f.failed.append("%s: %s" % (type(e).__name__, e))
        if f.failed:
            word = "FAIL"
        failed += word == "FAIL"
        left += word == "--  "
        passed += word == "ok  "
        print("%s %s (%.1f s)" % (word, name, time.monotonic() - start))
        for line in f.failed:
            print("     FAILED %s" % line)
        for line in f.notes:
            print("     %s" % line)
        sys.stdout.flush()
    print("%d passed, %d failed, %d left out" % (passed, failed, left))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
