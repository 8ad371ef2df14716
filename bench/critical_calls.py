"""Calls of critical functions from Python, beside ctypes, numba (if it is there) and Python.

    python bench/critical_calls.py

Nanoseconds of one call in a loop (the loop itself taken off), the best of several; then the time
until the first result of a function that is new, and of one that the disk cache knows; then the
latencies of `examples/trading`.
"""

import ctypes
import os
import sys
import tempfile
import time
import timeit
from pathlib import Path

import numpy as np

import weft

sys.path.insert(0, str(Path(__file__).parent.parent))

N = 300_000


def risk(position, price, limit):
    return abs(position * price) < limit


def dot(x, y):
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


def nanoseconds(function, *args):
    """Return what a call costs beside the loop around it."""
    names = {f"a{k}": a for k, a in enumerate(args)}
    call = f"f({', '.join(names)})"
    names["f"] = function
    function(*args)
    loop, all_ = (min(timeit.repeat(s, globals=names, number=N, repeat=5)) / N * 1e9
                  for s in ("pass", call))
    return all_ - loop


def scalar(name):
    """Return a new function, compiled, and the milliseconds until its first result."""
    factor = float(name)

    def scaled(position: weft.float64, price: weft.float64) -> weft.float64:
        return position * price * factor

    made = weft.critical(scaled)
    start = time.perf_counter()
    made(1.0, 2.0)
    return (time.perf_counter() - start) * 1e3


def main():
    numbers, arrays = (1.0, 2.0, 3.0), (np.arange(4.0), np.ones(4))
    f64 = weft.float64
    risk.__annotations__ = {"position": f64, "price": f64, "limit": f64, "return": weft.bool}
    dot.__annotations__ = {"x": f64[:], "y": f64[:], "return": f64}
    fast, sums = weft.critical(risk), weft.critical(dot)
    rows = [("three floats", "weft.critical", nanoseconds(fast, *numbers)),
            ("three floats", "Python", nanoseconds(risk, *numbers)),
            ("two arrays of 4", "weft.critical", nanoseconds(sums, *arrays)),
            ("two arrays of 4", "Python", nanoseconds(dot, *arrays))]
    with tempfile.TemporaryDirectory() as folder:
        try:
            fast.save(f"{folder}/risk.so")
            found = ctypes.CDLL(f"{folder}/risk.so").risk
            found.argtypes = [ctypes.c_double] * 3 + [ctypes.c_void_p] * 2
            result = ctypes.c_bool()
            rows.insert(1, ("three floats", "ctypes", nanoseconds(
                found, *numbers, ctypes.addressof(result), None)))
        except weft.WeftError as error:
            print(f"no ctypes: {error}")
    try:
        import numba
    except ImportError:
        pass
    else:
        rows += [("three floats", "numba", nanoseconds(numba.njit(risk), *numbers)),
                 ("two arrays of 4", "numba", nanoseconds(numba.njit(dot), *arrays))]
    for what, who, ns in sorted(rows):
        print(f"{what:18}{who:16}{ns:8.1f} ns")
    scalar(0.5)
    print(f"first result of a new function: {scalar(os.getpid()):.1f} ms")
    print(f"of one that the disk cache knows: {scalar(os.getpid()):.1f} ms\n")

    from examples.trading import replay

    replay.main(5000)


if __name__ == "__main__":
    main()
