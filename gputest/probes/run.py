"""Runs the tests of GPU probes: programs with known values under the injection library and under the launcher.

usage: run.py --build FOLDER --root FOLDER [--only a,b]
Every case prints "ok" or "FAIL" with its findings; a table of measurements and a count of passed and failed cases end it.
Times are reported, never judged: a case fails for a wrong value, status or missing reading, on a slow machine as on a fast one.
"""
import argparse
import concurrent.futures
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

arguments = None
cupti = ""
rows = []


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("GRAPHSIGNAL_") and k != "CUDA_INJECTION64_PATH"}
    env.update(more)
    return env


def program(*args):
    return [os.path.join(arguments.build, "probes")] + [str(a) for a in args]


class Run:
    """One program under the injection library. Its document is read all the time while it runs."""

    def __init__(self, *args, inject=True, timeout=60, command=None):
        self.base = tempfile.mkdtemp(prefix="graphsignal-gputest-", dir="/dev/shm")
        env = environment(GRAPHSIGNAL_SHM_PATH=self.base, GRAPHSIGNAL_CUPTI_PATH=cupti)
        if inject:
            env["CUDA_INJECTION64_PATH"] = os.path.join(arguments.root, "lib/graphsignal/libgraphsignal_cupti.so")
        start = time.monotonic()
        p = subprocess.Popen(command or program(*args), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path = os.path.join(self.base, "graphsignal_%d" % p.pid, "cupti.json")
        self.document, self.readings, self.bytes, before = {"metrics": [], "log": []}, [], 0, (0, 0)
        while p.poll() is None and time.monotonic() - start < timeout:
            time.sleep(0.1)
            self.read(path)
            h = metric(self.document, "graphsignal_probe_read_nanoseconds")
            now = (h.get("count", 0), h.get("sum", 0))
            if now[0] == before[0] + 1:
                self.readings.append(now[1] - before[1])
            before = now
        if p.poll() is None:
            p.kill()
        self.out, self.err = p.communicate()
        self.status = p.returncode
        self.read(path)
        try:
            self.result = json.loads(self.out.strip().splitlines()[-1])
        except (ValueError, IndexError):
            self.result = {}

    def read(self, path):
        try:
            with open(path) as f:
                text = f.read()
            self.document, self.bytes = json.loads(text), len(text)
        except (OSError, ValueError):
            pass

    def log(self):
        return [e["msg"] for e in self.document.get("log", [])]


def metric(document, name, **tags):
    for m in document["metrics"]:
        if m["name"] == name and m["tags"] == tags:
            return m
    return {}


class Findings:
    def __init__(self):
        self.failed, self.notes = [], []

    def equal(self, what, got, want):
        if got != want:
            self.failed.append("%s is %r, want %r" % (what, got, want))

    def true(self, what, condition):
        if not condition:
            self.failed.append(what)

    def ended(self, run):
        if run.status != 0:
            self.failed.append("status %r: %s" % (run.status, run.err[-600:]))
        if run.log():
            self.notes.append("log %s" % run.log())


def gpus():
    r = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True, timeout=30)
    return len(r.stdout.splitlines())


def verdict(f):
    return "WRONG" if f.failed else "exact"


def case_headers(f):
    here = os.path.dirname(os.path.abspath(__file__))
    r = subprocess.run(["make", "-C", here, "-j3", "BUILD=" + arguments.build, "headers"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150)
    f.equal("compilers: " + r.stdout[-1500:], r.returncode, 0)


def case_record(f):
    r = Run("record", 2.5)
    f.ended(r)
    m = metric(r.document, "test_blocks_nanoseconds")
    for key in ("count", "sum", "min", "max"):
        f.equal(key, m.get(key), r.result.get(key))
    f.equal("bins", [list(b) for b in zip(m.get("bins", []), m.get("counts", []))], r.result.get("bins"))
    f.equal("unread", metric(r.document, "graphsignal_probe_unread_instruments"), {})
    rows.append(("records of 4,096 blocks x 25 launches, in cupti.json", "count %s, sum %s: %s" % (m.get("count"), m.get("sum"), verdict(f))))


def case_signals(f):
    launcher = os.path.join(arguments.root, "bin/graphsignal-run")
    if not os.path.exists(launcher):
        f.failed.append("bin/graphsignal-run is not there")
        return
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "signals.json")
        r = subprocess.run([launcher, "--listen-port", "18475", "--output", out] + program("record", 3), env=environment(),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        f.equal("status", r.returncode, 0)
        try:
            want = json.loads(r.stdout.strip().splitlines()[-1])
            with open(out) as t:
                document = json.load(t)
        except (ValueError, IndexError, OSError) as e:
            f.failed.append("%s; stderr %s" % (e, r.stderr[-500:]))
            return
    found = [m for m in document["metrics"] if m["name"] == "test_blocks_nanoseconds"]
    f.equal("series", len(found), 1)
    stats = found[0]["stats"] if found else {}
    for key in ("count", "sum", "min", "max"):
        f.equal(key, stats.get(key), want[key])
    f.notes.append("stats %s" % stats)
    rows.append(("the same in /signals", "count %s, sum %s" % (stats.get("count"), stats.get("sum"))))


def case_bins(f):
    r = Run("bins", inject=False)
    f.ended(r)
    f.notes.append("%s values have the same bin on host and device" % r.result.get("values"))


def case_capture(f):
    r = Run("capture", 2.5)
    f.ended(r)
    for name in ("test_before", "test_other_thread", "test_same_thread"):
        f.equal(name, metric(r.document, name).get("count"), r.result.get("count"))
    f.true("readings during a capture: %d" % len(r.readings), len(r.readings) >= 3)
    f.notes.append("a plain cudaMalloc there gives %s, the capture %s" % (r.result.get("plain_malloc_error"), r.result.get("plain_capture_error")))
    rows.append(("1,000 graph replays x 64 blocks x 3 probes", "counts %s: %s" % (r.result.get("count"), verdict(f))))


def case_reset(f):
    r = Run("reset", 2.2)
    f.ended(r)
    f.equal("count", metric(r.document, "test_after_reset").get("count"), 64)


def case_untouched(f):
    r = Run("untouched", 2.5)
    f.ended(r)
    f.equal("value", metric(r.document, "test_untouched"), {})
    f.equal("unread", metric(r.document, "graphsignal_probe_unread_instruments").get("value"), 1)


def case_devices(f):
    if gpus() < 2:
        f.notes.append("one GPU: not run")
        return
    for mode, used in (("devices", (0, 1)), ("second_device", (1,))):
        r = Run(mode, 2.5)
        f.ended(r)
        for name, blocks in (("test_devices", 100), ("test_devices_pooled", 200)):
            counts = {m["tags"]["i"]: m.get("count") for m in r.document["metrics"] if m["name"] == name}
            f.equal("%s: counts of %s" % (mode, name), counts, {str(d): blocks + d for d in used})
        f.equal("%s: unread" % mode, metric(r.document, "graphsignal_probe_unread_instruments"), {})


def case_example(f):
    folder = os.path.join(arguments.root, "examples/probes-cuda")
    r = subprocess.run(["make", "-C", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    f.equal("make: " + r.stdout[-800:], r.returncode, 0)
    r = Run(command=[os.path.join(folder, "build/probes-cuda"), "2.5"])
    f.ended(r)
    f.notes.append(r.out.strip())
    counts = []
    for phase in ("load", "compute", "store"):
        m = metric(r.document, "gemm_phase_nanoseconds", phase=phase)
        counts.append(m.get("count", 0))
        if counts[-1]:
            rows.append(("example GEMM: mean of phase %s, ns" % phase, "%.0f" % (m["sum"] / m["count"])))
    # The last reading is up to a second older than the end.
    f.true("records per phase: %s" % counts, min(counts) > 1000)


def case_leave(f):
    moments = [150, 190, 199, 200, 201, 205, 210, 220, 400, 1190, 1200, 1205, 1210, 1250] + [random.randrange(100, 1400) for _ in range(10)]
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for ms, r in zip(moments, pool.map(lambda ms: Run("leave", ms, timeout=30), moments)):
            if r.status != 0:
                f.failed.append("after %d ms: status %r: %s" % (ms, r.status, r.err[-300:]))
    f.notes.append("%d processes in %.1f s" % (len(moments), time.monotonic() - start))


def case_readers(f):
    for kind, n in (("pooled", 1), ("pooled", 100), ("pooled", 1440), ("pooled", 4096), ("separate", 100), ("separate", 1440)):
        r = Run(kind, n, 5.5)
        f.ended(r)
        values = [m for m in r.document["metrics"] if m["name"] == "test_many"]
        f.equal("%s %d: entries" % (kind, n), len(values), n)
        wrong = [m["tags"] for m in values
                 if (m.get("count"), m.get("sum"), m.get("min")) != (2, 2 * (int(m["tags"]["i"]) + 1), int(m["tags"]["i"]) + 1)]
        f.equal("%s %d: entries with wrong values" % (kind, n), wrong[:3], [])
        f.equal("%s %d: our copies among the program's" % (kind, n),
                metric(r.document, "cuda_memcpy_nanoseconds").get("frames", {}).get("device_to_host"), None)
        later = r.readings[1:]
        f.true("%s %d: readings %s" % (kind, n, r.readings), len(later) >= 2)
        if later:
            rows.append(("reading %d %s probes, ms: first, median and most of the %d later ones" % (n, kind, len(later)),
                         "%.3f, %.3f, %.3f (document %d kB)" % (r.readings[0] / 1e6, statistics.median(later) / 1e6, max(later) / 1e6, r.bytes / 1000)))


def case_gaps(f):
    keys = ("kernels", "median", "mean", "p999", "p9999", "max", "over20us", "over100us")
    seen = {}
    for _ in range(2):
        for name, args, inject in (("no profiler", (1440,), False), ("profiler, no probes", (0,), True), ("profiler, 1,440 probes", (1440,), True)):
            r = Run("gaps", *args, 4, inject=inject)
            f.ended(r)
            f.true("%s: kernels %s" % (name, r.result.get("kernels")), r.result.get("kernels", 0) > 10000)
            seen.setdefault(name, []).append(r.result)
            rows.append(("gaps of the default stream, ns: " + name, ", ".join("%s %s" % (k, r.result.get(k)) for k in keys)))
    # Not judged either: two equal runs can be further apart than what probes add.
    for key in ("median", "mean"):
        rows.append(("least %s gap of the runs, ns" % key, ", ".join("%s %s" % (n, min(x.get(key, 0) for x in v)) for n, v in seen.items())))


def bench(name, *args, **env):
    path = os.path.join(arguments.root, "bench/probes/build", name)
    r = subprocess.run([path] + list(args), env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=90)
    return r, [line.split("|") for line in r.stdout.splitlines() if "|" in line]


def case_bench(f):
    base = tempfile.mkdtemp(prefix="graphsignal-gputest-", dir="/dev/shm")
    library = os.path.join(arguments.root, "lib/graphsignal/libgraphsignal_probe.so")
    for title, name, env in (("without launcher", "host", {}), ("with publisher", "host", {"GRAPHSIGNAL_PROBE_LIB": library, "GRAPHSIGNAL_SHM_PATH": base}),
                             ("", "device", {})):
        r, lines = bench(name, **env)
        f.equal(name + ": " + r.stderr[-300:], r.returncode, 0)
        f.true("%s prints no measurements" % name, lines)
        rows.extend((" ".join(filter(None, [what.strip(), title])), value.strip()) for what, value in lines)


# Those whose timing matters run alone.
TOGETHER = ["headers", "record", "signals", "bins", "capture", "reset", "untouched", "devices"]
ALONE = ["example", "leave", "readers", "gaps", "bench"]


def main():
    global arguments, cupti
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--only", default=",".join(TOGETHER + ALONE))
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
    failed = []

    def run_case(name):
        f, start = Findings(), time.monotonic()
        try:
            globals()["case_" + name](f)
        except Exception as e:  # a case that falls over has failed
            f.failed.append("%s: %s" % (type(e).__name__, e))
        return name, f, time.monotonic() - start

    def show(name, f, seconds):
        print("%s %s (%.1f s)" % ("FAIL" if f.failed else "ok  ", name, seconds))
        for line in f.failed[:20]:
            print("     - " + line)
        for line in f.notes[:20]:
            print("     " + line)
        sys.stdout.flush()
        if f.failed:
            failed.append(name)

    with concurrent.futures.ThreadPoolExecutor(len(TOGETHER)) as pool:
        for result in pool.map(run_case, [n for n in TOGETHER if n in only]):
            show(*result)
    for name in ALONE:
        if name in only:
            show(*run_case(name))
    print("\n| measurement | result |\n|---|---|")
    for what, result in rows:
        print("| %s | %s |" % (what, result))
    total = len([n for n in TOGETHER + ALONE if n in only])
    print("%d passed, %d failed %s" % (total - len(failed), len(failed), " ".join(failed)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
