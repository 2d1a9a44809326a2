"""The sidecar of the calling process."""

import logging
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

_LAUNCHER = "graphsignal-run"
# Seconds that the launcher may take to look around, and to become the sidecar. It takes some milliseconds.
_START_TIMEOUT = 10.0

# Names the watched process to its descendants.
_MARK = "GRAPHSIGNAL_WATCHED_PID"
_MAX_ANCESTORS = 64

_logger = logging.getLogger("graphsignal")
_sidecar = None


class _Sidecar(subprocess.Popen):
    """A child that is meant to outlive this object, which Popen takes for a mistake."""

    def __del__(self, *_):
        pass


def watch(metrics_port=None, cuda_graph_trace=None, *, listen_host=None, listen_port=None, output=None):
    """Profiles this process and its children until it ends. Call it before anything initialises CUDA or HIP.

    metrics_port: TCP port of a Prometheus page of this process; None reads none.
    cuda_graph_trace: "graph" (default) times each replay of a CUDA graph as a whole, "node" the kernels in it.
    listen_host, listen_port: address of the endpoint, default 127.0.0.1 and 18259.
    output: file that gets the last /signals document when this process has ended.

    Returns the sidecar as subprocess.Popen, which may be terminated or left alone: it ends with this process. Returns
    None if there is no sidecar, with a warning of the logger "graphsignal" that says why, and in descendants of a
    process that is watched, which its sidecar covers. Never raises. A further call returns the same sidecar while it
    lives.
    """
    global _sidecar
    try:
        watched = os.environ.get(_MARK, "")
        if watched == str(os.getpid()):
            if _sidecar is not None and _sidecar.poll() is None:
                return _sidecar
        elif watched in _ancestors():
            _logger.debug("process %s, which this one descends from, is watched", watched)
            return None
        options = []
        for name, value in (
            ("--metrics-port", metrics_port),
            ("--cuda-graph-trace", cuda_graph_trace),
            ("--listen-host", listen_host),
            ("--listen-port", listen_port),
            ("--output", output),
        ):
            if value is not None:
                options.append(f"{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
        launcher = _find_launcher()
        variables = _variables(launcher, options)
        if _driver_is_loaded():
            _logger.warning("watch() should come before the first use of the GPU: what was initialised already is not profiled")
        sidecar = _start(launcher, options)
        os.environ.update(variables)
        os.environ[_MARK] = str(os.getpid())
        _sidecar = sidecar
        return sidecar
    except Exception as error:  # a profiler must not cost the application anything
        _logger.warning("this process is not profiled: %s", error)
        return None


def _ancestors():
    """Returns the pids of the parent, its parent and so on, as strings."""
    found = []
    pid = str(os.getppid())
    while pid != "0" and len(found) < _MAX_ANCESTORS:
        found.append(pid)
        try:
            pid = Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
        except (OSError, IndexError):
            break
    return found


def _find_launcher():
    """Returns the launcher of the installation that this file belongs to, else the one on PATH."""
    if not sys.platform.startswith("linux"):
        raise RuntimeError("only Linux is supported")
    for parent in list(Path(__file__).resolve().parents)[:6]:
        candidate = parent / "bin" / _LAUNCHER
        if os.access(candidate, os.X_OK):
            return str(candidate)
    found = shutil.which(_LAUNCHER)
    if found is None:
        raise RuntimeError(f"{_LAUNCHER} is not on PATH")
    return found


def _variables(launcher, options):
    """Returns the environment variables that make the GPU runtimes load the profiling libraries."""
    result = subprocess.run(
        [launcher, *options, "--print-environment", "--", sys.executable or "python3"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_START_TIMEOUT,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(_first_line(result.stderr) or f"{_LAUNCHER} ended with status {result.returncode}")
    variables = {}
    for line in os.fsdecode(result.stdout).splitlines():
        name, separator, value = line.partition("=")
        if separator:
            variables[name] = value
    return variables


def _start(launcher, options):
    """Starts the sidecar, and returns when it has taken over."""
    sidecar = _Sidecar(
        [launcher, *options, "--attach", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        # A session of its own: keys of the terminal are not meant for it.
        start_new_session=True,
    )
    with sidecar.stdout as pipe:
        # The launcher says one line and closes its end by becoming the sidecar, or by ending.
        said = _read_all(pipe.fileno(), _START_TIMEOUT)
    if said is None:
        sidecar.kill()
        sidecar.wait()
        raise RuntimeError(f"{_LAUNCHER} does not answer")
    if not said:
        status = sidecar.wait(_START_TIMEOUT)
        raise RuntimeError(f"{_LAUNCHER} ended with status {status}")
    _logger.debug("%s", os.fsdecode(said).strip())
    return sidecar


def _read_all(descriptor, timeout):
    """Returns all bytes until the end of a pipe, or None if that does not come within timeout seconds."""
    deadline = time.monotonic() + timeout
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    content = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        if poller.poll(left * 1000):
            part = os.read(descriptor, 4096)
            if not part:
                return content
            content += part


def _driver_is_loaded():
    """Tells whether the CUDA driver's library is in this process, which is so from the first use on."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            return any(b"/libcuda.so" in line for line in maps)
    except OSError:
        return False


def _first_line(output):
    lines = os.fsdecode(output).splitlines()
    return lines[0] if lines else ""
