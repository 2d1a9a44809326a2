"""Measures what the injected library costs: runs each workload with no profiler, with the floor library and with ours.

All processes of a workload are started first and get their turns one at a time, round after round, so that drifts of the
machine meet every configuration alike; the others wait without using the GPU. A ratio is taken within a round.

usage: overhead.py --build FOLDER --library LIBRARY [--workloads a,b] [--rounds N] [--processes N] [--seconds S] [--json F]
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# name: (command, configurations that make sense)
WORKLOADS = {
    "eager": (["launch", "eager"], ["none", "floor", "ours"]),
    "decode_graph": (["decode.py", "graph", "--turns"], ["none", "floor", "ours", "floor-node", "ours-node"]),
    "decode_eager": (["decode.py", "eager", "--turns"], ["none", "floor", "ours"]),
    "graph400": (["launch", "graph"], ["none", "floor", "ours", "floor-node", "ours-node"]),
    "memcpy": (["launch", "memcpy"], ["none", "floor", "ours"]),
    "gpu_bound": (["launch", "gpu_bound"], ["none", "floor", "ours"]),
}


def find_cupti():
    """The CUPTI of PyTorch's wheels, else the toolkit's."""
    try:
        import nvidia
        for base in nvidia.__path__:
            for sub in ("cu13/lib/libcupti.so.13", "cuda_cupti/lib/libcupti.so.12"):
                if os.path.exists(os.path.join(base, sub)):
                    return os.path.join(base, sub)
    except ImportError:
        pass
    for path in ("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12"):
        if os.path.exists(path):
            return path
    return ""


class Process:
    def __init__(self, command, configuration, arguments, shm, cupti):
        env = dict(os.environ)
        for name in ("CUDA_INJECTION64_PATH", "GRAPHSIGNAL_CUDA_GRAPH_TRACE"):
            env.pop(name, None)
        env["GRAPHSIGNAL_SHM_PATH"] = shm
        env["FLOOR_CUPTI"] = env["GRAPHSIGNAL_CUPTI_PATH"] = cupti
        if configuration.startswith("floor"):
            env["CUDA_INJECTION64_PATH"] = os.path.abspath(os.path.join(arguments.build, "libfloor.so"))
            env["FLOOR_KINDS"] = "kmsy" if configuration.endswith("node") else "kgmsy"
        if configuration.startswith("ours"):
            env["CUDA_INJECTION64_PATH"] = os.path.abspath(arguments.library)
            if configuration.endswith("node"):
                env["GRAPHSIGNAL_CUDA_GRAPH_TRACE"] = "node"
        if command[0].endswith(".py"):
            command = [sys.executable, os.path.join(HERE, command[0])] + command[1:]
        else:
            command = [os.path.join(arguments.build, command[0])] + command[1:]
        self.configuration = configuration
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("%s ended with %s" % (self.configuration, self.process.wait()))
        return line

    def turn(self, seconds):
        self.process.stdin.write("%g\n" % seconds)
        self.process.stdin.flush()
        return json.loads(self.line())["ns_per_op"]

    def end(self):
        self.process.stdin.close()
        status = self.process.wait(timeout=60)
        if status != 0:
            print("warning: %s ended with %d" % (self.configuration, status), file=sys.stderr)


def measure(name, arguments, cupti):
    command, configurations = WORKLOADS[name]
    shm = tempfile.mkdtemp(prefix="graphsignal-bench-", dir="/dev/shm")
    values = {c: [] for c in configurations}
    try:
        processes = [Process(command, c, arguments, shm, cupti) for _ in range(arguments.processes) for c in configurations]
        for p in processes:
            while p.line().strip() != "ready":
                pass
        for _ in range(arguments.rounds):
            for p in processes:
                values[p.configuration].append(p.turn(arguments.seconds))
        for p in processes:
            p.end()
    finally:
        shutil.rmtree(shm, ignore_errors=True)
    return values


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--workloads", default="eager,decode_graph,graph400,memcpy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    cupti = find_cupti()
    print("CUPTI: %s; %d processes x %d rounds of %g s per configuration" % (cupti, arguments.processes, arguments.rounds, arguments.seconds))
    print("| workload | configuration | minimum ns/op | median ns/op | minimum / none | median / none | minimum / floor | median / floor |")
    print("|---|---|---|---|---|---|---|---|")
    everything = {}
    for name in arguments.workloads.split(","):
        values = measure(name, arguments, cupti)
        everything[name] = values
        for c, v in values.items():
            floor = values.get("floor-node" if c.endswith("node") else "floor")
            cells = [name, c, "%.0f" % min(v), "%.0f" % statistics.median(v)]
            for base in (values["none"], floor):
                cells.append("%.3f" % (min(v) / min(base)))
                cells.append("%.3f" % statistics.median(a / b for a, b in zip(v, base)))
            print("| " + " | ".join(cells) + " |", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as f:
            json.dump(everything, f)


main()
