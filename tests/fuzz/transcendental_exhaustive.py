"""Every float32 through every compiled transcendental function, against float64.

Run by `make fuzz`; about two minutes a function and core. Options: names of functions,
``--stride N`` to take every N-th value, and ``--no-tables`` to check what targets without tables in
registers compute.
"""

import argparse
import ctypes
import itertools
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from passes.references import UNARY
from passes.test_transcendental_single import LIMIT, TABLE_LIMIT
from passes.ulps import errors
from renderers import compiled
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir.expr import var
from weft.ir.op import Op
from weft.passes.transcendental import FROM_TABLES, decompose

SPAN = 1 << 32
BATCH = 1 << 15
BY_NAME = {op.name: op for op in UNARY}


def check(name, start, stop, stride, tables):
    """Return (largest error in ulps, its argument) over the bit patterns of a range."""
    op = BY_NAME[name]
    x = var("x0", dt.float32)
    memory = [np.zeros(BATCH, np.float32), np.zeros(BATCH, np.float32)]
    kernel = compiled.elementwise([decompose(op, (x,), tables=tables)], [x], BATCH, 16)
    function, library = compiled.load(kernel)
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
    library.unload()
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(BY_NAME), metavar="NAME")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--no-tables", action="store_true")
    options = parser.parse_args()
    with_tables = cpu.host_target().supports(Op.LOOKUP, dt.uint32) and not options.no_tables
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    failed = []
    with ProcessPoolExecutor(cores) as pool:
        for name in options.names:
            tables = with_tables and BY_NAME[name] in FROM_TABLES
            began = time.perf_counter()
            cuts = [SPAN * k // (8 * cores) for k in range(8 * cores + 1)]
            cuts = [-(-c // options.stride) * options.stride for c in cuts[:-1]] + [SPAN]
            jobs = [
                pool.submit(check, name, a, b, options.stride, tables)
                for a, b in itertools.pairwise(cuts)
            ]
            error, at = max(job.result() for job in jobs)
            limit = (TABLE_LIMIT if tables else LIMIT)[BY_NAME[name]]
            took = time.perf_counter() - began
            print(f"{name:10} {error:.4f} ulp (at most {limit}) at {at.hex()}, {took:.0f} s",
                  flush=True)  # fmt: skip
            if error > limit:
                failed.append(name)
    if failed:
        sys.exit("past the limit: " + ", ".join(failed))


if __name__ == "__main__":
    main()
