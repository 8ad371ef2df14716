"""Forks at random moments, stateful functions under threads, memory over thousands of shapes.

Run by hand for as long as wanted: ``--seconds N`` (default 300) of forks and of updates each,
``--shapes N`` (default 5000), ``--kind NAME``, ``--seed N``.
"""

import argparse
import gc
import linecache
import os
import random
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "robustness"), str(TESTS.parent / "src")]
os.environ.setdefault("WEFT_CACHE_DIR", tempfile.mkdtemp(prefix="weft-fuzz-cache-"))

import numpy as np  # noqa: E402
import test_lost_updates as updates  # noqa: E402

import torture  # noqa: E402
import weft  # noqa: E402
from torture import doubled  # noqa: E402
from weft import build, gpu  # noqa: E402
from weft.compat import cuda  # noqa: E402

MOST = 100 * 1024  # KB that memory may grow by after the first hundred shapes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--shapes", type=int, default=5000)
    parser.add_argument("--kind", action="append", help="of shapes; by default all")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    wrong = forks(rng, options.seconds) + lost(rng, options.seconds)
    wrong += [f"{kind.__name__}: {said}" for kind in KINDS
              if (not options.kind or kind.__name__ in options.kind)
              and (said := grows(kind, options.shapes))]  # fmt: skip
    print("\n".join(wrong) or "nothing wrong")
    sys.exit(bool(wrong))


def forks(rng, seconds):
    """Fork while threads work."""
    wrong, end, rounds = [], time.monotonic() + seconds, 0
    while time.monotonic() < end:
        chosen = rng.sample(torture.ACTIVITIES, rng.randint(1, 4))
        wrong += [f"fork: {[a.__name__ for a in chosen]} {found}"
                  for found in torture.forked(chosen, rng, end - time.monotonic(), 10)]  # fmt: skip
        rounds += 1
    print(f"forks: {rounds} rounds, {len(wrong)} wrong", flush=True)
    return wrong


def lost(rng, seconds):
    """Change states in threads by all ways that there are."""
    wrong, end, rounds = [], time.monotonic() + seconds, 0
    while time.monotonic() < end:
        kind, size = rng.choice(updates.KINDS), rng.choice((*updates.SIZES, 1_000_000))
        warm = rng.random() < 0.5
        try:
            updates.test_no_update_is_lost(kind, size, warm)
            updates.test_programs_of_updates_are_those_of_some_order()
        except AssertionError as error:
            wrong.append(f"updates: {kind.__name__} {size} {warm}: {error}")
        rounds += 1
    print(f"updates: {rounds} rounds, {len(wrong)} wrong", flush=True)
    return wrong


def eager(n):
    """Compute with a new shape."""
    assert (weft.ones(n) * 2 + 1).sum().item() == 3 * n


@weft.jit
def function(x):
    return (x * 2 + 1).sum()


def captured(n):
    """Call a captured function with a new shape."""
    for _ in range(3):
        assert function(weft.ones(n)).item() == 3 * n


def kernels(n):
    """Compile a new kernel."""
    names = {"gpu": gpu, "weft": weft}
    text = f"@weft.kernel\ndef k(x):\n    i = gpu.grid(1)\n    if i < x.size: x[i] += {n}\n"
    exec(written(n, text), names)
    x = np.zeros(4, np.float32)
    names["k"][1, 32](x)
    assert (x == n).all()


@weft.kernel
def shifted(x, out, by: weft.constexpr):
    i = gpu.grid(1)
    if i < x.shape[0]:
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] + by


DTYPES = (np.float32, np.float64, np.int32, np.int64, np.uint8, np.int16)


def shapes_of_kernels(n):
    """Launch one kernel with arrays of a new shape, another block, and all types in turn."""
    x = np.ones((1 + n % 61, 1 + n // 61), DTYPES[n % len(DTYPES)])
    out = np.zeros_like(x)
    for _ in range(3):
        shifted[2, 64 + n % 997](x, out, 1)
    assert (out == 2).all()


def constants_of_kernels(n):
    """Compile one kernel for a new constant."""
    x = np.ones((2, 3))
    for _ in range(3):
        shifted[1, 32](x, x, n)
    assert (x == 1 + 3 * n).all()


@cuda.jit
def compatible(x, pair):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += pair[0]


def compatible_kernels(n):
    """Launch a kernel of numba's interface on a new grid with a new block and a new type."""
    x = np.zeros(n % 300 + 1, DTYPES[n % len(DTYPES)])
    compatible[n, 32](x, (1, ) * (2 + n % 500))
    assert (x == 1).all()


@weft.compute
def loops(x, out):
    for i, j in weft.ndrange(x.shape[0], x.shape[1]):
        out[i, j] = 2 * x[i, j]


def compute(n):
    """Call loops on arrays of a new shape, without gaps and with gaps."""
    for _ in range(3):
        x = np.ones((1 + n % 67, 1 + n // 67), np.float32)
        out = np.zeros((x.shape[0], n + x.shape[1]), np.float32)[:, n:]
        loops(x, out)
        assert (out == 2).all()


def new_compute(n):
    """Compile new loops."""
    names = {"weft": weft}
    exec(written(n, f"@weft.compute\ndef k(x):\n    for i in range(x.size): x[i] += {n}\n"), names)
    x = np.zeros(40, np.float32)
    names["k"](x)
    assert (x == n).all()


def built(n):
    """Build a new program, and call it with arrays of several sizes."""
    with build.function("scale") as f:
        x = f.array("x", weft.float64, 1, writable=True)
        with f.parallel(x.shape[0]) as (i,):
            x[i] = x[i] + n
    for size in (5, 5, 5, 6):
        x = np.zeros(size)
        f.program(x)
        assert (x == n).all()


@weft.jit
def with_kernels(x, out):
    shifted[2, 64](x, out, 1)
    loops(out, x)
    return out.sum()


def captured_kernels(n):
    """Capture kernels and loops for a new shape."""
    for _ in range(3):
        x, out = weft.ones(1 + n % 61, 1 + n // 61), weft.zeros(1 + n % 61, 1 + n // 61)
        assert with_kernels(x, out).item() == 2 * x.numel()
        assert x[0, 0].item() == 4


def fused(n):
    """Fuse launches on arrays of a new shape."""
    x, y = np.ones(n), np.zeros(n)
    with weft.fuse():
        doubled[n // 64 + 1, 64](x, y)
        doubled[n // 64 + 1, 64](y, y)
    assert (y == 4).all()


def written(n, text):
    """Return code whose source is known under a name of its own, as that of a cell is."""
    name = f"<cell {n}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    return compile(text, name, "exec")


KINDS = (eager, captured, kernels, shapes_of_kernels, constants_of_kernels, compatible_kernels,
         compute, new_compute, built, captured_kernels, fused)  # fmt: skip


def grows(kind, shapes):
    """Return what is wrong with the memory that new shapes take."""
    first = 0
    for i in range(shapes):
        kind(10 + i)
        if i == 100:
            gc.collect()
            first = resident()
    gc.collect()
    more = resident() - first
    print(f"{kind.__name__}: {more >> 10} MB after the first hundred of {shapes}", flush=True)
    return f"memory grows by {more} KB" if more > MOST else ""


def resident():
    """Return the resident memory in KB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


if __name__ == "__main__":
    main()
