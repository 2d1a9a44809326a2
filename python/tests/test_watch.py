"""Tests of watch() in processes of their own, with the real graphsignal-run and Collector of bin/."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "bin" / "graphsignal-run"
DEADLINE = 60


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("GRAPHSIGNAL_")}
    env.update(PYTHONPATH=str(ROOT / "python"), GRAPHSIGNAL_DISABLE_VERSION_CHECK="1", **more)
    return env


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def signals(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/signals", timeout=10) as reply:
        return json.load(reply)


def await_(what, condition):
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited in vain for {what}")


def lives(pid):
    """A zombie has ended, whoever is to wait for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Watched:
    """A Python process that runs a script and then lives until its standard input ends."""

    def __init__(self, script, before=(), **env):
        self.process = subprocess.Popen(
            [*map(str, before), sys.executable, "-X", "dev", "-c", script + "\nimport sys; sys.stdin.read()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**env))
        self.pid = self.process.pid

    def line(self):
        return self.process.stdout.readline().strip()

    def end(self):
        if self.process.poll() is None:
            out, err = self.process.communicate("", timeout=DEADLINE)
            self.rest, self.errors = out, err
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def reached(port, condition):
    def look():
        try:
            document = signals(port)
        except OSError:
            return None
        return document if condition(document) else None
    return look


class WatchTest(unittest.TestCase):
    def test_serves_this_process_and_ends_with_it(self):
        port = free_port()
        with tempfile.TemporaryDirectory() as directory:
            last = Path(directory, "last.json")
            with Watched("import os, graphsignal\n"
                         f"s = graphsignal.watch(listen_port={port}, output={str(last)!r})\n"
                         "print(s.pid, s is graphsignal.watch(), flush=True)",
                         GRAPHSIGNAL_TAG_TEAM="Infra") as watched:
                sidecar, same = watched.line().split()
                self.assertEqual(same, "True")
                document = await_("its CPU use", reached(port, lambda d: any(
                    m["name"] == "process_cpu_usage_percent" and m["tags"]["process.pid"] == str(watched.pid) for m in d["metrics"])))
                self.assertEqual(document["context"]["team"], "Infra")
                processes = [r["tags"]["process.pid"] for r in document["resources"] if r["kind"] == "process"]
                self.assertEqual(processes, [str(watched.pid)], "the sidecar profiles itself")
                self.assertNotEqual(os.getsid(int(sidecar)), os.getsid(watched.pid))
                self.assertEqual(watched.end(), 0)
            await_("the sidecar's end", lambda: not lives(sidecar))
            self.assertEqual(watched.errors, "")
            names = {m["name"] for m in json.loads(last.read_text())["metrics"]}
            self.assertIn("process_memory_usage_bytes", names)

    def test_terminating_the_sidecar_leaves_the_process_alone(self):
        port = free_port()
        with Watched(f"import graphsignal\ns = graphsignal.watch(listen_port={port})\nprint(s.pid, flush=True)\n"
                     "print(s.wait(), flush=True)\n"
                     f"t = graphsignal.watch(listen_port={port})\nprint(t.pid != s.pid and t.poll() is None, flush=True)") as watched:
            sidecar = int(watched.line())
            await_("the endpoint", reached(port, lambda d: True))
            os.kill(sidecar, signal.SIGTERM)
            self.assertEqual(watched.line(), "0")
            self.assertEqual(watched.line(), "True", "a second watch() does not start a new sidecar")
        self.assertEqual(watched.process.returncode, 0)

    def test_environment_for_the_gpu(self):
        with Watched("import os, graphsignal\n"
                     f"graphsignal.watch(cuda_graph_trace='node', listen_port={free_port()})\n"
                     "print(os.environ['GRAPHSIGNAL_CUDA_GRAPH_TRACE'], os.environ['CUDA_INJECTION64_PATH'], os.environ['GRAPHSIGNAL_PROBE_LIB'], flush=True)",
                     CUDA_VERSION="13.0") as watched:
            trace, cupti, probe = watched.line().split()
        self.assertEqual(trace, "node")
        self.assertEqual(Path(cupti), ROOT / "lib/graphsignal/libgraphsignal_cupti.so")
        self.assertTrue(Path(probe).is_file())

    def test_children_are_profiled(self):
        """A child's probes are published by the library that the variables of watch() name."""
        port = free_port()
        with Watched("import subprocess, graphsignal\n"
                     f"graphsignal.watch(listen_port={port})\n"
                     f"child = subprocess.Popen([{str(ROOT / 'bin/graphsignal-demo')!r}, '--port', '{free_port()}', '--seconds', '{DEADLINE}'],"
                     " stdout=subprocess.DEVNULL)\n"
                     "print(child.pid, flush=True)\nimport sys; sys.stdin.readline(); child.kill(); child.wait()") as watched:
            child = watched.line()
            document = await_("the child's probes", reached(port, lambda d: any(
                m["name"] == "demo_decode_step_nanoseconds" and m["tags"]["process.pid"] == child for m in d["metrics"])))
        steps = next(m["stats"] for m in document["metrics"] if m["name"] == "demo_decode_step_nanoseconds")
        self.assertGreater(steps["count"], 0)

    def test_metrics_port(self):
        port, page = free_port(), free_port()
        script = f"""
import graphsignal, http.server, threading
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Type", "text/plain; version=0.0.4"); self.end_headers()
        self.wfile.write(b"# TYPE app:queue_depth gauge\\napp:queue_depth 7\\n")
    def log_message(self, *a): pass
server = http.server.HTTPServer(("127.0.0.1", {page}), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
graphsignal.watch(metrics_port={page}, listen_port={port})
print("up", flush=True)
"""
        with Watched(script) as watched:
            self.assertEqual(watched.line(), "up")
            document = await_("the page's metric", reached(port, lambda d: any(m["name"] == "app:queue_depth" for m in d["metrics"])))
        value = next(m["stats"]["value"] for m in document["metrics"] if m["name"] == "app:queue_depth")
        self.assertEqual(value, 7.0)

    def test_failures_are_none_and_a_warning(self):
        for arguments, variables, reason in (
            ("cuda_graph_trace='nodes'", {}, "is not graph or node"),
            ("listen_port=99999999", {}, "is not a port"),
            ("metrics_port='x'", {}, "is not a port"),
            ("listen_port=object()", {}, "is not a port"),
        ):
            with self.subTest(arguments):
                with Watched(f"import os, graphsignal\nprint(graphsignal.watch({arguments}), 'CUDA_INJECTION64_PATH' in os.environ, flush=True)",
                             CUDA_VERSION="13.0", **variables) as watched:
                    self.assertEqual(watched.line(), "None False")
                self.assertIn("this process is not profiled: ", watched.errors)
                self.assertIn(reason, watched.errors)
                self.assertEqual(watched.process.returncode, 0)

    def test_no_launcher(self):
        with tempfile.TemporaryDirectory() as directory:
            os.mkdir(Path(directory, "python"))
            os.symlink("/nowhere", Path(directory, "bin"))
            for name in ("__init__.py", "_watch.py"):
                target = Path(directory, "python", "graphsignal", name)
                target.parent.mkdir(exist_ok=True)
                target.write_text((ROOT / "python" / "graphsignal" / name).read_text())
            result = subprocess.run([sys.executable, "-c", "import graphsignal; print(graphsignal.watch())"], text=True,
                                    capture_output=True, env={**environment(), "PYTHONPATH": str(Path(directory, "python")), "PATH": "/usr/bin:/bin"}, cwd=directory)
        self.assertEqual((result.stdout.strip(), result.returncode), ("None", 0), result.stderr)
        self.assertIn("graphsignal-run is not on PATH", result.stderr)

    def test_under_the_launcher(self):
        port = free_port()
        with Watched("import graphsignal\nprint(graphsignal.watch(), flush=True)", before=[LAUNCHER, "--listen-port", port]) as watched:
            self.assertEqual(watched.line(), "None")
        self.assertIn("under graphsignal-run already", watched.errors)

    def test_forked_child(self):
        port = free_port()
        with Watched(f"import os, graphsignal\ngraphsignal.watch(listen_port={port})\n"
                     "pid = os.fork()\n"
                     "if pid == 0:\n    print(graphsignal.watch(), flush=True)\n    os._exit(0)\n"
                     "os.waitpid(pid, 0)") as watched:
            self.assertEqual(watched.line(), "None")

    def test_spawned_child(self):
        """A module-level watch() runs again in the children of multiprocessing's spawn method."""
        port = free_port()
        with tempfile.TemporaryDirectory() as directory:
            script = Path(directory, "program.py")
            script.write_text(f"""
import graphsignal, multiprocessing
sidecar = graphsignal.watch(listen_port={port})
def work():
    print(sidecar, flush=True)
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    print(sidecar.poll(), child.exitcode)
""")
            result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=DEADLINE, env=environment())
        self.assertEqual(result.stdout.splitlines(), ["None", "None 0"], result.stderr)
        self.assertEqual(result.stderr, "")

    def test_mark_of_a_stranger(self):
        """The mark of a process that is no ancestor, as of a shell that was started from a watched program, counts nothing."""
        with Watched(f"import graphsignal\nprint(graphsignal.watch(listen_port={free_port()}) is not None, flush=True)",
                     GRAPHSIGNAL_WATCHED_PID="4194304") as watched:
            self.assertEqual(watched.line(), "True")

    def test_version_is_the_launchers(self):
        said = subprocess.run([LAUNCHER, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        sys.path.insert(0, str(ROOT / "python"))
        import graphsignal
        self.assertEqual(graphsignal.__version__, said)


if __name__ == "__main__":
    unittest.main()
