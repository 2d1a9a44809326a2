"""Runs the GPU tests: known programs under the injection library, and what its document then says.

usage: run.py --build FOLDER --root FOLDER [--only a,b] [--exits N] [--records N]
Every case prints "ok" or "FAIL" with its findings; the last line is "N passed, N failed".
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
arguments = None
cupti = ""


class Run:
    """One program under the injection library; its document is read after, or while, it runs."""

    def __init__(self, command, env=None, inject=True, wait=True, timeout=150, wrapper=()):
        self.base = tempfile.mkdtemp(prefix="graphsignal-gputest-", dir="/dev/shm")
        environment = dict(os.environ, GRAPHSIGNAL_SHM_PATH=self.base, GRAPHSIGNAL_CUPTI_PATH=cupti)
        if inject:
            environment["CUDA_INJECTION64_PATH"] = os.path.join(arguments.root, "lib/graphsignal/libgraphsignal_cupti.so")
        environment.update(env or {})
        if command[0].endswith(".py"):
            command = [sys.executable] + command
        self.process = subprocess.Popen(list(wrapper) + command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.timeout = timeout
        self.status = None
        if wait:
            self.finish()

    def finish(self):
        try:
            self.out, self.err = self.process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.out, self.err = self.process.communicate()
            self.err += "\nTIMEOUT"
        self.status = self.process.returncode
        return self

    def documents(self):
        result = {}
        for name in os.listdir(self.base):
            try:
                with open(os.path.join(self.base, name, "cupti.json")) as f:
                    result[int(name.split("_")[1])] = json.load(f)
            except (OSError, ValueError):
                pass
        return result

    def document(self):
        found = self.documents()
        return found.get(self.process.pid) or (list(found.values()) or [{"metrics": [], "log": []}])[0]

    def log(self):
        return [e["msg"] for e in self.document().get("log", [])]


def metric(document, name, **tags):
    for m in document["metrics"]:
        if m["name"] == name and m["tags"] == tags:
            return m
    return {}


def frames(document, name):
    return metric(document, name).get("frames", {})


def samples(document, name, frame):
    return frames(document, name).get(frame, [0, 0])[1]


def value(document, name, **tags):
    return metric(document, name, **tags).get("value")


def activity(*args):
    return [os.path.join(arguments.build, "activity")] + [str(a) for a in args]


def decode(*args):
    return [os.path.join(arguments.root, "bench/gpu/decode.py")] + [str(a) for a in args]


class Findings:
    def __init__(self):
        self.failed = []
        self.notes = []

    def equal(self, what, got, want):
        if got != want:
            self.failed.append("%s is %r, want %r" % (what, got, want))

    def true(self, what, condition):
        if not condition:
            self.failed.append(what)

    def ended(self, run, status=0):
        if run.status != status:
            self.failed.append("status %r, want %r: %s" % (run.status, status, run.err[-600:]))

    def clean(self, document):
        self.equal("dropped", value(document, "cuda_dropped_records_total"), 0)
        self.equal("invalid", value(document, "cuda_invalid_records"), 0)


def case_copies(f):
    r = Run(activity("copies"))
    d = r.document()
    f.ended(r)
    for kind, n, size in (("host_to_device", 2, 8192), ("device_to_host", 1, 4096), ("device_to_device", 3, 3 << 20)):
        f.equal(kind + " copies", samples(d, "cuda_memcpy_nanoseconds", kind), n)
        f.equal(kind + " bytes", value(d, "cuda_memcpy_bytes", kind=kind), size)
    f.equal("sets", samples(d, "cuda_memset_nanoseconds", "device"), 4)
    f.equal("set bytes", value(d, "cuda_memset_bytes", kind="device"), 4 * 65536)
    f.equal("mode", value(d, "cuda_graph_trace_mode"), 0)
    f.clean(d)
    f.notes.append("log %s" % r.log())


def case_syncs(f):
    r = Run(activity("syncs"))
    d = r.document()
    f.ended(r)
    for kind in ("stream", "event", "context", "stream_wait_event"):
        ns, n = frames(d, "cuda_sync_nanoseconds").get(kind, [0, 0])
        f.true("%s: %d ns in %d" % (kind, ns, n), n >= 3 and ns > 0)
    f.equal("kernel_a", samples(d, "cuda_kernels_nanoseconds", "kernel_a"), 6)
    f.equal("kernel_b", samples(d, "cuda_kernels_nanoseconds", "kernel_b"), 3)
    f.clean(d)


def case_threads(f):
    r = Run(activity("threads"))
    d = r.document()
    f.ended(r)
    f.equal("kernel_a", samples(d, "cuda_kernels_nanoseconds", "kernel_a"), 800)
    f.equal("kernel_b", samples(d, "cuda_kernels_nanoseconds", "kernel_b"), 400)
    f.clean(d)


def case_contexts(f):
    r = Run(activity("contexts"))
    d = r.document()
    f.ended(r)
    f.equal("kernel_a", samples(d, "cuda_kernels_nanoseconds", "kernel_a"), 3)
    f.equal("kernel_b", samples(d, "cuda_kernels_nanoseconds", "kernel_b"), 3)
    f.clean(d)


def gpus():
    r = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True, timeout=30)
    return len(r.stdout.splitlines())


def case_devices(f):
    if gpus() < 2:
        f.notes.append("one GPU: not run")
        return
    r = Run(activity("devices"))
    d = r.document()
    f.ended(r)
    f.equal("kernel_a", samples(d, "cuda_kernels_nanoseconds", "kernel_a"), 3)
    f.equal("kernel_b", samples(d, "cuda_kernels_nanoseconds", "kernel_b"), 5)
    if "no peer access" not in r.out:
        f.equal("direct copies", samples(d, "cuda_memcpy_nanoseconds", "peer_to_peer") >= 4, True)
        f.true("bytes of direct copies", (value(d, "cuda_memcpy_bytes", kind="peer_to_peer") or 0) >= 4 << 20)
    f.clean(d)
    f.notes.append("%s copies %s, bytes %s" % (r.out.strip(), frames(d, "cuda_memcpy_nanoseconds"),
                   {m["tags"]["kind"]: m["value"] for m in d["metrics"] if m["name"] == "cuda_memcpy_bytes"}))


def signals(port):
    with urllib.request.urlopen("http://127.0.0.1:%d/signals" % port, timeout=5) as reply:
        return json.load(reply)


def case_collective(f):
    """A process per GPU, all-reduces between them: each process counts its own kernels, each GPU its own bytes."""
    n = gpus()
    if n < 2:
        f.notes.append("one GPU: not run")
        return
    times, size, port = 200, 256 << 20, 18461
    env = {k: v for k, v in os.environ.items() if not k.startswith("GRAPHSIGNAL_")}
    p = subprocess.Popen([os.path.join(arguments.root, "bin/graphsignal-run"), "--listen-port", str(port), sys.executable,
                          os.path.join(HERE, "collective.py"), str(n), str(times), str(size)],
                         env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        # The program says when it is ready, when it has done its work, and goes on when it is told to.
        documents, texts = [], []
        for want in ("ready", "done"):
            f.equal("the program says", p.stdout.readline().strip(), want)
            time.sleep(3.5)  # two collections
            documents.append(signals(port))
            texts.append(subprocess.run(["nvidia-smi", "nvlink", "-gt", "d"], stdout=subprocess.PIPE, text=True, timeout=30).stdout)
            if want == "done":
                top = subprocess.run([os.path.join(arguments.root, "bin/graphsignal-top"), "--once", "--port", str(port)],
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30).stdout
            p.stdin.write("go\n")
            p.stdin.flush()
        _, err = p.communicate(timeout=60)
    finally:
        p.kill()
    f.equal("status: " + err[-500:], p.returncode, 0)
    before, after = documents
    counted = {}
    for m in after["metrics"]:
        found = [x for x in m["stats"].get("frames", []) if "AllReduce" in x["name"]]
        if m["name"] == "cuda_kernels_nanoseconds" and found:
            counted[m["tags"]["process.pid"]] = sum(x["samples"] for x in found)
            f.notes.append("process %s: %s" % (m["tags"]["process.pid"], found))
    # One before "ready".
    f.equal("all-reduces by process", sorted(counted.values()), [times + 1] * n)

    def totals(document, name):
        return {m["tags"].get("device.index"): m["stats"].get("total") for m in document["metrics"] if m["name"] == name}

    for direction in ("tx", "rx"):
        name = "gpu_nvlink_throughput_data_%s_kibibytes" % direction
        a, b = totals(before, name), totals(after, name)
        f.notes.append("%s: %s" % (name, {k: (b[k] - a[k]) if a.get(k) is not None else None for k in b}))
    f.notes.append("all-reduces %d of %d KiB by each of %d processes" % (times, size >> 10, n))
    keep = os.environ.get("OUT")
    if keep:
        with open(os.path.join(keep, "collective.json"), "w") as t:
            json.dump({"before": before, "after": after, "smi": texts, "top": top}, t)
        print(top)


def case_graph_modes(f):
    names = []
    for _ in range(2):
        r = Run(activity("graph"))
        d = r.document()
        f.ended(r)
        graph = frames(d, "cuda_graphs_nanoseconds")
        names.append(sorted(graph))
        f.equal("graph frames", [v[1] for v in graph.values()], [5])
        f.true("graph name %s" % list(graph), all(re.fullmatch("[0-9a-f]{16}", n) for n in graph))
        f.equal("eager A", samples(d, "cuda_kernels_nanoseconds", "kernel_a"), 1)
        f.equal("eager B", samples(d, "cuda_kernels_nanoseconds", "kernel_b"), 0)
        f.clean(d)
    f.equal("names in two processes", names[0], names[1])
    f.notes.append("graph %s" % names[0])
    for environ in ({"GRAPHSIGNAL_CUDA_GRAPH_TRACE": "node"}, {"GRAPHSIGNAL_CUPTI_SUBSCRIBE": "0"}):
        r = Run(activity("graph"), environ)
        d = r.document()
        f.ended(r)
        f.equal("graphs in node mode", frames(d, "cuda_graphs_nanoseconds"), {})
        f.equal("A in node mode", samples(d, "cuda_kernels_nanoseconds", "kernel_a"), 6)
        f.equal("B in node mode", samples(d, "cuda_kernels_nanoseconds", "kernel_b"), 5)
        f.equal("mode gauge", value(d, "cuda_graph_trace_mode"), 1)


def case_lives(f):
    r = Run(activity("short"))
    f.ended(r)
    f.equal("short", samples(r.document(), "cuda_kernels_nanoseconds", "kernel_a"), 3)
    for what, status in (("_exit", 7), ("signal", -signal.SIGTERM), ("exception", -signal.SIGABRT), ("status", 7)):
        r = Run(activity(what))
        f.ended(r, status)
        if what in ("_exit", "status"):
            f.equal(what, samples(r.document(), "cuda_kernels_nanoseconds", "kernel_a"), 3)
    r = Run(activity("exec"))
    f.ended(r)
    f.equal("after exec", samples(r.document(), "cuda_memcpy_nanoseconds", "host_to_device"), 2)
    f.equal("before exec", samples(r.document(), "cuda_kernels_nanoseconds", "kernel_a"), 0)
    r = Run(activity("fork_before"))
    f.ended(r)
    f.equal("parent and child", [samples(d, "cuda_kernels_nanoseconds", "kernel_a") for d in r.documents().values()], [3, 3])
    r = Run(activity("fork_after"))
    f.ended(r)
    f.equal("only the parent", [samples(d, "cuda_kernels_nanoseconds", "kernel_a") for d in r.documents().values()], [3])


def watch_totals(f, what, seconds, most_steps_without):
    r = Run(activity(what, seconds), wait=False)
    seen = []
    while r.process.poll() is None:
        seen.append((time.monotonic(), samples(r.document(), "cuda_kernels_nanoseconds", "kernel_a")))
        time.sleep(0.25)
    r.finish()
    f.ended(r)
    total = int(r.out.strip() or 0)
    f.equal(what + " total", samples(r.document(), "cuda_kernels_nanoseconds", "kernel_a"), total)
    f.clean(r.document())
    stale, last, longest = None, -1, 0.0
    for at, n in seen:
        if n != last:
            stale, last = at, n
        longest = max(longest, at - stale)
    f.true("%s: totals stood still for %.2f s" % (what, longest), longest < most_steps_without)
    f.notes.append("%s: %d kernels, longest stand %.2f s" % (what, total, longest))


def case_never_idle(f):
    watch_totals(f, "never_idle", 8, 2.0)


def case_slow_kernels(f):
    watch_totals(f, "slow_kernels", 10, 2.2)


def case_environments(f):
    r = Run(activity("short"), {"CUDA_VISIBLE_DEVICES": ""})
    plain = Run(activity("short"), {"CUDA_VISIBLE_DEVICES": ""}, inject=False)
    f.equal("no device", r.status, plain.status)
    f.notes.append("no device: status %d, log %s" % (r.status, r.log()))
    r = Run(activity("short"), {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/no-mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/no-mps"})
    f.ended(r)
    r = Run(activity("short"), {"GRAPHSIGNAL_SHM_PATH": "/nonexistent"})
    f.ended(r)
    r = Run(activity("short"), {"GRAPHSIGNAL_CUPTI_PATH": "/nonexistent", "LD_LIBRARY_PATH": "", "CUDA_HOME": "/nonexistent"})
    f.ended(r)
    f.notes.append("wrong CUPTI path: log %s" % r.log())
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer:
        r = Run(activity("copies"), wrapper=[sanitizer])
        f.true("compute-sanitizer: %s" % (r.out + r.err)[-500:], r.status == 0 and "ERROR SUMMARY: 0 errors" in r.out + r.err)
        f.notes.append("compute-sanitizer: log %s" % r.log())
    else:
        f.notes.append("compute-sanitizer is not installed")


def case_many_records(f):
    r = Run(activity("many", arguments.records), {"GRAPHSIGNAL_CUDA_GRAPH_TRACE": "node"})
    d = r.document()
    f.ended(r)
    kernels = sum(v[1] for v in frames(d, "cuda_kernels_nanoseconds").values())
    f.equal("kernels", kernels, arguments.records // 400 * 400)
    f.clean(d)
    early, late = [int(x) for x in (r.out.split() + ["0", "0"])[:2]]
    f.true("device memory grew from %d to %d MiB" % (early, late), late <= early + 16)
    f.notes.append("%d records; device memory %d MiB after a fifth, %d MiB at the end; growths %s shortages %s" % (
        kernels, early, late, value(d, "cuda_buffer_growths"), value(d, "cuda_buffer_shortages")))


def case_exits(f):
    deadline = time.monotonic() + arguments.exit_seconds
    lock, done, wrong = threading.Lock(), [0], []

    def worker():
        while True:
            with lock:
                if done[0] >= arguments.exits or time.monotonic() > deadline:
                    return
                done[0] += 1
            r = Run(activity("restless"), timeout=60)
            if r.status != 9:
                wrong.append((r.status, r.err[-1500:]))
            shutil.rmtree(r.base, ignore_errors=True)

    workers = [threading.Thread(target=worker) for _ in range(12)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    f.equal("wrong statuses", wrong[:5], [])
    f.notes.append("%d exits, %d wrong" % (done[0], len(wrong)))


def demangled(profile):
    names = list(profile)
    result = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True)
    totals = {}
    for name, readable in zip(names, result.stdout.split("\n")):
        entry = totals.setdefault(readable.replace(" ", ""), [0, 0])
        entry[0] += profile[name][1]
        entry[1] += profile[name][0]
    return totals


def compare_kernels(f, what, ours, theirs):
    theirs = {n.replace(" ", ""): v for n, v in theirs.items()}
    total = sum(ns for _, ns in theirs.values())
    worst = 0.0
    for name, (n, ns) in sorted(theirs.items(), key=lambda x: -x[1][1]):
        got = ours.get(name, [0, 0])
        f.equal("%s: count of %s" % (what, name[:90]), got[0], n)
        if ns > 0.01 * total and got[1]:
            worst = max(worst, abs(got[1] / ns - 1))
            f.true("%s: %s took %.0f ns here, %.0f there" % (what, name[:90], got[1], ns), abs(got[1] / ns - 1) <= 0.02)
    f.equal("%s: kernels that only we saw" % what, sorted(n[:90] for n in set(ours) - set(theirs)), [])
    f.notes.append("%s: %d kernels, %.1f ms there, %.1f ms here, largest difference over 1 %% of time %.2f %%" % (
        what, len(theirs), total / 1e6, sum(v[1] for v in ours.values()) / 1e6, worst * 100))


def case_truth(f):
    total = {}
    for mode, steps in (("eager", 400), ("graph", 1500)):
        trace = tempfile.mktemp()
        r = Run(decode(mode, "--steps", steps, "--trace", trace), inject=False)
        f.ended(r)
        with open(trace) as t:
            theirs = json.load(t)
        r = Run(decode(mode, "--steps", steps), {"GRAPHSIGNAL_CUDA_GRAPH_TRACE": "node"})
        d = r.document()
        f.ended(r)
        f.clean(d)
        ours = demangled(frames(d, "cuda_kernels_nanoseconds"))
        compare_kernels(f, mode, ours, theirs)
        total[mode] = sum(v[1] for v in ours.values())
    r = Run(decode("graph", "--steps", 1500))
    d = r.document()
    f.ended(r)
    f.clean(d)
    both = sum(v[0] for p in ("cuda_kernels_nanoseconds", "cuda_graphs_nanoseconds") for v in frames(d, p).values())
    f.equal("replays", [v[1] for v in frames(d, "cuda_graphs_nanoseconds").values()], [1500])
    # A graph's time runs from its first node's start to its last one's end, gaps between nodes included.
    f.true("graph mode %.1f ms, node mode %.1f ms" % (both / 1e6, total["graph"] / 1e6), abs(both / total["graph"] - 1) <= 0.05)
    f.notes.append("graph mode %.1f ms, node mode %.1f ms, ratio %.3f" % (both / 1e6, total["graph"] / 1e6, both / total["graph"]))


def case_profiler_inside(f):
    free = {"GRAPHSIGNAL_CUPTI_SUBSCRIBE": "0"}
    runs = [(env, mode, Run(decode(mode, "--steps", 300, "--profiler-inside"), env, wait=False))
            for env in (free, {}) for mode in ("eager", "graph")]
    for env, mode, r in runs:
        r.finish()
        f.ended(r)
        d = r.document()
        seen = re.search(r'"profiler_kernels": (\d+)', r.out)
        f.notes.append("%s %s: torch.profiler saw %s kernels; ours %d and %d graphs; suspended %s; log %s" % (
            env or "default", mode, seen and seen.group(1), sum(v[1] for v in frames(d, "cuda_kernels_nanoseconds").values()),
            sum(v[1] for v in frames(d, "cuda_graphs_nanoseconds").values()), value(d, "cuda_trace_suspended"), r.log()))
        if env:
            f.true("%s: torch.profiler works" % mode, seen and int(seen.group(1)) > 300 * 200)
            f.true("%s: we say that we are suspended" % mode, value(d, "cuda_trace_suspended") == 1)


def case_product(f):
    run = os.path.join(arguments.root, "bin/graphsignal-run")
    if not os.path.exists(run):
        f.notes.append("bin/graphsignal-run is not built: not run")
        return
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "signals.json")
        env = {k: v for k, v in os.environ.items() if not k.startswith("GRAPHSIGNAL_")}
        r = subprocess.run([run, "--listen-port", "18460", "--output", out, sys.executable] + decode("graph", "--steps", 4000), env=env,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=150)
        f.equal("status", r.returncode, 0)
        f.true("stderr: " + r.stderr[-500:], os.path.exists(out))
        if not os.path.exists(out):
            return
        with open(out) as t:
            text = t.read()
        for name in ("cuda_kernels_nanoseconds", "cuda_graphs_nanoseconds", "cuda_memcpy_bytes", "cuda_sync_nanoseconds",
                     "cuda_graph_trace_mode", "gpu_"):
            f.true(name + " is not in the document", name in text)
        document = json.loads(text)
        f.notes.append("keys %s, %d bytes; stderr %s" % (list(document), len(text), r.stderr[-300:]))
        f.notes.append("errors %s" % json.dumps(document.get("errors"))[:600])
        keep = os.environ.get("OUT")
        if keep:
            shutil.copy(out, os.path.join(keep, "signals-h200.json"))


# Cases that must have the GPU to themselves come last and one after another.
TOGETHER = ["copies", "syncs", "threads", "contexts", "graph_modes", "lives", "environments", "devices"]
ALONE = ["never_idle", "slow_kernels", "truth", "many_records", "profiler_inside", "product", "collective", "exits"]


def main():
    global arguments, cupti
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--only", default=",".join(TOGETHER + ALONE))
    parser.add_argument("--exits", type=int, default=1000)
    parser.add_argument("--exit-seconds", type=float, default=600)
    parser.add_argument("--records", type=int, default=30000000)
    arguments = parser.parse_args()
    arguments.root, arguments.build = os.path.abspath(arguments.root), os.path.abspath(arguments.build)
    try:
        import nvidia
        candidates = [os.path.join(b, s) for b in nvidia.__path__ for s in ("cu13/lib", "cuda_cupti/lib")]
    except ImportError:
        candidates = []
    candidates.append("/usr/local/cuda/extras/CUPTI/lib64")
    cupti = ":".join(c for c in candidates if os.path.isdir(c))
    only = arguments.only.split(",")
    passed = failed = 0

    def run_case(name):
        f, start = Findings(), time.monotonic()
        try:
            globals()["case_" + name](f)
        except Exception as e:  # a case that falls over has failed
            f.failed.append("%s: %s" % (type(e).__name__, e))
        return name, f, time.monotonic() - start

    with concurrent.futures.ThreadPoolExecutor(len(TOGETHER)) as pool:
        results = list(pool.map(run_case, [n for n in TOGETHER if n in only]))
    for name in ALONE:
        if name in only:
            results.append(run_case(name))
            show(results[-1])
            results[-1] = results[-1] + (True,)
    for r in results:
        if len(r) == 3:
            show(r)
        if r[1].failed:
            failed += 1
        else:
            passed += 1
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


def show(result):
    name, f, seconds = result
    print("%s %s (%.1f s)" % ("FAIL" if f.failed else "ok  ", name, seconds))
    for line in f.failed[:20]:
        print("     - " + line)
    for line in f.notes:
        print("     " + line)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
