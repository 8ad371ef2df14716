"""The timer that all examples share: a kernel beside the same work in NumPy."""

import statistics
import time
from collections.abc import Callable

RUNS = 7


def beside(kernel: Callable[[], object], numpy: Callable[[], object]) -> str:
    """Return the median times of both as text.

    Each is called once before it counts, so that compilation and first touches of memory do not;
    then they alternate, so that whatever else runs on the machine slows both. Both have Python's
    arrays in and out, and allocate their results.

    Parameters
    ----------
    kernel, numpy : callables without arguments
        The same work on the same data.

    Returns
    -------
    str
        As in ``"kernel 1.20 ms, NumPy 3.60 ms"``.
    """
    sides, times = (kernel, numpy), ([], [])
    for run in sides:
        run()
    for _ in range(RUNS):
        for run, taken in zip(sides, times, strict=True):
            start = time.perf_counter_ns()
            run()
            taken.append(time.perf_counter_ns() - start)
    ours, theirs = (statistics.median(taken) / 1e6 for taken in times)
    return f"kernel {ours:.3g} ms, NumPy {theirs:.3g} ms"
