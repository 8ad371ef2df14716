"""How long a critical function takes, and whether it gets by without system calls."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.driver import critical as driver
from weft.errors import LaunchError, UnsupportedError

if TYPE_CHECKING:
    from weft.driver.critical import Loaded
    from weft.lang.critical.contract import Arguments

__all__ = ["Latency", "Percentiles", "measure", "sealed"]

_WARM: Final = 1000  # calls before those that count
_BATCHES: Final = 11  # of calls in a row
_CALIBRATION_NS: Final = 5_000_000

Call = tuple[Any, ...]


class Percentiles(NamedTuple):
    """How long calls took, in nanoseconds: half of them at most `p50`, and so on.

    ``mean`` is that of calls one right after the other, without a look at the clock between them
    (the median of several batches): where its ticks are coarse, it tells more than `p50`.
    """

    p50: float
    p99: float
    p999: float
    longest: float
    mean: float


class Latency(NamedTuple):
    """What `CriticalFunction.latency` measured.

    Attributes
    ----------
    native, python : Percentiles
        Of calls from native code, and of calls of the Python object (without the interpreter's
        loop). The cost of reading the clock is taken off both.
    target_ns : float or None
        What was asked for.
    calls : int
        How many were measured.
    step_ns : float
        The step of the clock, in nanoseconds: a percentile below it is known no better than that.
        A mean is better known, because it is taken over many calls between two readings.
    """

    native: Percentiles
    python: Percentiles
    target_ns: float | None
    calls: int
    step_ns: float = 0.0

    @property
    def p50(self) -> float:
        """Median without the call from Python, in nanoseconds."""
        return self.native.p50

    @property
    def p99(self) -> float:
        """99th percentile without the call from Python, in nanoseconds."""
        return self.native.p99

    @property
    def p999(self) -> float:
        """99.9th percentile without the call from Python, in nanoseconds."""
        return self.native.p999

    @property
    def met(self) -> bool | None:
        """Whether the 99th percentile without the call from Python is within the target.

        So must the mean be: a clock that ticks coarsely sees calls that take no time at all.
        """
        if self.target_ns is None:
            return None
        return max(self.native.p99, self.native.mean) <= self.target_ns

    def shown(self, ns: float) -> str:
        """Write a percentile with one decimal, or as less than the step of the clock.

        Parameters
        ----------
        ns : float
            One of the percentiles, in nanoseconds.

        Returns
        -------
        str
            As in ``"20.0"`` and ``"<10.0"``.
        """
        return f"<{self.step_ns:.1f}" if ns < self.step_ns else f"{ns:.1f}"

    def __str__(self) -> str:
        """Return a table."""
        rows = [f"{'':8}{'p50':>9}{'p99':>9}{'p99.9':>9}{'longest':>11}{'mean':>9}   ns, "
                f"{self.calls} calls"]
        for name, p in (("native", self.native), ("python", self.python)):
            p50, p99, p999, longest = map(self.shown, p[:4])
            rows.append(f"{name:8}{p50:>9}{p99:>9}{p999:>9}{longest:>11}{p.mean:9.1f}")
        if self.target_ns is not None:
            rows.append(f"target {self.target_ns:g} ns: {'met' if self.met else 'missed'}")
        return "\n".join(rows)


@lru_cache(maxsize=1)
def _nanoseconds_per_tick() -> float:
    """Return how long a tick of the clock is, compared with the system's."""
    ticks = ctypes.CFUNCTYPE(ctypes.c_int64)(driver.clock()["weft_ticks"])
    ticks()
    start, first = time.perf_counter_ns(), ticks()
    while time.perf_counter_ns() - start < _CALIBRATION_NS:
        pass
    last, end = ticks(), time.perf_counter_ns()
    scale: float = (end - start) / max(last - first, 1)
    return scale


def _step(*samples: Any) -> float:
    """Return the least difference between two counts of ticks: what the clock advances by.

    Some virtual machines have a counter of the processor that moves every 10 ns alone, 26 ticks at
    once. A call that is shorter often begins and ends within one step, as an empty call does, whose
    time is taken off: such a call reads as 0.
    """
    apart = np.diff(np.unique(np.concatenate(samples)))
    return float(apart.min()) if apart.size else 0.0


def _frame_samples(frame: int, words: array[int], results: array[int], calls: int
                   ) -> tuple[int, Any]:  # fmt: skip
    samples = np.zeros(calls, np.int64)
    run = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                            ctypes.c_int64, ctypes.c_void_p)(driver.clock()["weft_time_frame"])
    failed = run(frame, words.buffer_info()[0], results.buffer_info()[0], calls,
                 samples.ctypes.data)
    return failed, samples


def measure(function: Any, loaded: Loaded, arguments: Arguments, results: array[int], args: Call,
            calls: int, target: float | None) -> Latency:  # fmt: skip
    """Return how long calls take, from native code and from Python."""
    name, words = loaded.code.name, arguments.words
    _, nothing = _frame_samples(driver.clock()["weft_nothing"], words, results, calls)
    _frame_samples(loaded.frame, words, results, _WARM)
    failed, native = _frame_samples(loaded.frame, words, results, calls)
    if failed:
        raise LaunchError(f"{name}.latency", found=f"{failed} calls that failed",
                          expected="arguments with which the function succeeds again and again")
    objects = (ctypes.py_object * max(len(args), 1))(*args)
    python = np.zeros(calls, np.int64)
    run = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.py_object, ctypes.c_void_p, ctypes.c_int64,
                            ctypes.c_int64, ctypes.c_void_p)(driver.clock()["weft_time_call"])
    for count in (min(_WARM, calls), calls):  # an exception comes out of this call by itself
        run(function, ctypes.addressof(objects), len(args), count, python.ctypes.data)
    cost = float(np.median(nothing))
    scale = _nanoseconds_per_tick()
    ticks = driver.clock()
    means = []
    for symbol, first, count in (
        ("weft_mean_frame", ctypes.c_void_p, results.buffer_info()[0]),
        ("weft_mean_call", ctypes.py_object, len(args)),
    ):
        each = ctypes.PYFUNCTYPE(ctypes.c_int64, first, ctypes.c_void_p, ctypes.c_int64,
                                 ctypes.c_int64)(ticks[symbol])
        data = (loaded.frame, words.buffer_info()[0]) if first is ctypes.c_void_p else (
            function, ctypes.addressof(objects))
        size = max(calls // _BATCHES, 1)
        means.append(float(np.median([each(*data, count, size) for _ in range(_BATCHES)])) / size)
    return Latency(_percentiles(native, cost, means[0], scale),
                   _percentiles(python, cost, means[1], scale), target, calls,
                   _step(nothing, native, python, [0]) * scale)


def _percentiles(samples: Any, cost: float, mean: float, scale: float) -> Percentiles:
    p50, p99, p999, longest = (max(float(x) - cost, 0.0) * scale
                               for x in np.percentile(samples, (50, 99, 99.9, 100)))
    return Percentiles(p50, p99, p999, longest, mean * scale)


def sealed(name: str, loaded: Loaded, arguments: Arguments, results: array[int],
           calls: int) -> None:  # fmt: skip
    """Call a function in a child process that the first system call kills."""
    if sys.platform != "linux":
        raise UnsupportedError(f"{name}.run_sealed", found=sys.platform, expected="Linux")
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                           ctypes.c_int64)(driver.clock()["weft_sealed"])
    child = os.fork()
    if not child:
        run(loaded.frame, arguments.words.buffer_info()[0], results.buffer_info()[0], calls)
        os._exit(3)  # never reached: the call ends the process
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        raise LaunchError(f"{name}.run_sealed", found=f"a child killed by "
                          f"{signal.Signals(number).name}", expected="no system call")
    code = os.WEXITSTATUS(status)
    if code == 1:
        raise LaunchError(f"{name}.run_sealed", found="calls that failed",
                          expected="arguments with which the function succeeds")
    if code:
        raise UnsupportedError(f"{name}.run_sealed", found="a kernel that refuses strict seccomp",
                               expected="Linux with CONFIG_SECCOMP")
