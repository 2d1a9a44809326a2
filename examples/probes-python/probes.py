"""Probes from Python: a thin layer over shim.cpp, which is probe.h with C names.

    from probes import Counter, Gauge, Histogram, Profile
    steps = Histogram("myengine_step_nanoseconds", {"phase": "decode"})
    with steps.time():
        step()

Make instruments once, at import or start-up; recording takes about a microsecond, most of it ctypes. Negative and fractional
values of counters, histograms and profiles are refused with ValueError or TypeError, as no unsigned integer holds them.
"""
import contextlib
import ctypes
import os
import time

_library = ctypes.CDLL(os.environ.get("PROBE_SHIM") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "build", "libprobes.so"))
_strings = ctypes.POINTER(ctypes.c_char_p)
_library.probe_register.restype = ctypes.c_void_p
_library.probe_register.argtypes = [ctypes.c_char_p, ctypes.c_int, _strings, _strings, ctypes.c_size_t]
_library.probe_record.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
_library.probe_add.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
_library.probe_set.argtypes = [ctypes.c_void_p, ctypes.c_double]
_library.probe_frame.restype = ctypes.c_void_p
_library.probe_frame.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_library.probe_frame_add.argtypes = [ctypes.c_void_p, ctypes.c_uint64]


def _unsigned(value):
    if not 0 <= value < 1 << 64:
        raise ValueError("a probe's value is an unsigned 64-bit integer, not %r" % (value,))
    return value


class _Instrument:
    _type = -1

    def __init__(self, name, tags=None):
        tags = list((tags or {}).items())
        keys = (ctypes.c_char_p * len(tags))(*[str(k).encode() for k, _ in tags])
        values = (ctypes.c_char_p * len(tags))(*[str(v).encode() for _, v in tags])
        self._entry = _library.probe_register(name.encode(), self._type, keys, values, len(tags))


class Gauge(_Instrument):
    """A level: the last value that was set."""
    _type = 0

    def set(self, value):
        _library.probe_set(self._entry, value)


class Counter(_Instrument):
    """A running total."""
    _type = 1

    def add(self, delta=1):
        _library.probe_add(self._entry, _unsigned(delta))


class Histogram(_Instrument):
    """A distribution of unsigned integers."""
    _type = 2

    def record(self, value):
        _library.probe_record(self._entry, _unsigned(value))

    @contextlib.contextmanager
    def time(self):
        """Records the nanoseconds that the block takes, also when it raises."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.record(time.perf_counter_ns() - start)


class Profile(_Instrument):
    """Running totals by name, at most 250 of them."""
    _type = 3

    def __init__(self, name, tags=None):
        super().__init__(name, tags)
        self._frames = {}

    def add(self, frame, delta):
        if frame not in self._frames:
            self._frames[frame] = _library.probe_frame(self._entry, frame.encode())
        _library.probe_frame_add(self._frames[frame], _unsigned(delta))

    @contextlib.contextmanager
    def time(self, frame):
        """Adds the nanoseconds that the block takes to a frame, also when it raises."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(frame, time.perf_counter_ns() - start)
