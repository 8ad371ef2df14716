"""Every float32 through every compiled transcendental function, against float64.

Run by `make fuzz`; all values take about two minutes a function and core. Options: names of
functions, ``--stride N`` to take every N-th value, ``--no-tables`` to check what targets without
tables in registers compute, and ``--seconds N`` to stop after a while: then every value of 256 is
taken of each function, from a place that follows from the day or ``--seed N``, then the next ones.
"""

import argparse
import ctypes
import functools
import itertools
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from passes.references import UNARY
from passes.ulps import errors
from renderers import compiled
from ulp_bounds import SINGLE, TABLES
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir.expr import var
from weft.ir.op import Op
from weft.passes.transcendental import FROM_TABLES, decompose

SPAN = 1 << 32
BATCH = 1 << 15
COARSE = 256  # of how many values one is taken in a round that has not time for all
BY_NAME = {op.name: op for op in UNARY}
X = var("x0", dt.float32)
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@functools.cache
def function_of(name, tables):
    """Return a compiled function of a batch of values, and what keeps it loaded."""
    kernel = compiled.elementwise(
        [decompose(BY_NAME[name], (X,), tables=tables)], [X], BATCH, 16)  # fmt: skip
    return compiled.load(kernel)


def check(name, start, stop, stride, tables):
    """Return (largest error in ulps, its argument) over the bit patterns of a range."""
    op = BY_NAME[name]
    memory = [np.zeros(BATCH, np.float32), np.zeros(BATCH, np.float32)]
    function, _ = function_of(name, tables)
    buffers = (ctypes.c_void_p * 2)(*(a.ctypes.data for a in memory))
    status = compiled.Status()
    worst = (-1.0, 0.0)
    for first in range(start, stop, BATCH * stride):
        patterns = np.arange(first, min(first + BATCH * stride, stop), stride, dtype=np.uint32)
        values = patterns.view(np.float32)
        memory[0][: len(values)] = values
        assert function(buffers, None, ctypes.byref(status)) == 0
        with np.errstate(invalid="ignore"):
            exact = UNARY[op](values.astype(np.float64))
        error = errors(memory[1][: len(values)], exact)
        at = int(np.argmax(error))
        worst = max(worst, (float(error[at]), float(values[at])))
    return worst


def judge(pool, name, tables, offset, stride):
    """Print the largest error of a function over every `stride`-th value; return if it is fine."""
    tables = tables and BY_NAME[name] in FROM_TABLES
    began = time.perf_counter()
    parts = CORES if stride > 1 else 8 * CORES
    cuts = [SPAN * k // parts // stride * stride + offset for k in range(parts)] + [SPAN]
    jobs = [pool.submit(check, name, a, b, stride, tables) for a, b in itertools.pairwise(cuts)]
    error, at = max(job.result() for job in jobs)
    limit = (TABLES if tables else SINGLE)[BY_NAME[name]]
    took = time.perf_counter() - began
    print(f"{name:10} {error:.4f} ulp (at most {limit}) at {at.hex()}, {took:.0f} s", flush=True)
    return error <= limit


def rounds(options):
    """Yield (offset, stride) of the values of each round: all, or some until the time is up."""
    if options.seconds is None:
        yield 0, options.stride
        return
    end = time.monotonic() + options.seconds
    offsets = np.random.default_rng(options.seed).permutation(COARSE)
    for offset in offsets.tolist():
        if time.monotonic() >= end:
            return
        print(f"every value of {COARSE} from {offset}", flush=True)
        yield offset, COARSE


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(BY_NAME), metavar="NAME")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--no-tables", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86400)
    options = parser.parse_args()
    tables = cpu.host_target().supports(Op.LOOKUP, dt.uint32) and not options.no_tables
    failed = set()
    with ProcessPoolExecutor(CORES) as pool:
        for offset, stride in rounds(options):
            failed |= {name for name in options.names
                       if not judge(pool, name, tables, offset, stride)}  # fmt: skip
    if failed:
        sys.exit("past the limit: " + ", ".join(sorted(failed)))


if __name__ == "__main__":
    main()
