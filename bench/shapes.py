"""Random shapes of every kernel type against the best of NumPy and PyTorch, as a distribution.

    python bench/shapes.py [--only matmul] [--count 12] [--seed 7] [--threads 2] [--compile]

For each type it draws fresh shapes (odd sizes, tall, wide, batched; the seed is printed), checks
every result against float64, times the systems in short turns in one process, and prints how Weft's
speed over the best of the others is spread: the least, the tenth percentile, the median, the
ninetieth percentile, the shares of shapes that reach 0.85 and 1.0, and the worst shapes. Each
system's figure is the median over turns of the best call of a turn.

A type is a row of `TYPES`: a function that draws shapes, and the same work in Weft, PyTorch and
NumPy. NumPy may be None where it has no such function; PyTorch in float64 is the reference then.
"""

import argparse
import functools
import math
import os
import statistics
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=int(os.environ.get("WEFT_NUM_THREADS", "1")))
parser.add_argument("--only", default="", help="types whose names contain this; comma list")
parser.add_argument("--count", type=int, default=4, help="shapes of each type")
parser.add_argument("--seed", type=int, default=None)
parser.add_argument("--turns", type=int, default=5)
parser.add_argument("--seconds", type=float, default=0.012, help="time of one turn")
parser.add_argument("--compile", action="store_true", help="add torch.compile (slow to start)")
parser.add_argument("--verbose", action="store_true", help="print every shape")
args = parser.parse_args()
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "WEFT_NUM_THREADS"):
    os.environ[name] = str(args.threads)

import numpy as np  # noqa: E402 - the threads are set before

import weft  # noqa: E402

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("bench/shapes.py compares with PyTorch, which is not installed")
from attention_shapes import TYPES as ATTENTION  # noqa: E402
from conv_shapes import TYPES as CONVOLUTIONS  # noqa: E402
from order_shapes import TYPES as ORDER  # noqa: E402
from product_shapes import TYPES as PRODUCTS  # noqa: E402
from row_shapes import TYPES as ROWS  # noqa: E402

torch.set_num_threads(args.threads)
torch.set_grad_enabled(False)

# glibc gives large blocks back to the system until it has seen one of this size freed. Peers that
# allocate scratch in every call would pay for fresh pages, which they do not in a long process.
np.ones(31 << 20, np.uint8)
seed = int.from_bytes(os.urandom(3), "little") if args.seed is None else args.seed


class Draw:
    """Random sizes and data."""

    def __init__(self, *key):
        self.rng = np.random.default_rng([seed, *key])

    def size(self, low, high):
        """Return a size, all magnitudes alike likely; a power of two or odd as often as not."""
        n = round(math.exp(self.rng.uniform(math.log(low), math.log(high))))
        kind = self.rng.integers(4)
        if kind == 0:
            n = 1 << round(math.log2(n))
        elif kind == 1:
            n |= 1
        return min(max(n, low), high)

    def sizes(self, bounds, least, most):
        """Return sizes within bounds whose product lies between `least` and `most`."""
        while True:
            found = [self.size(low, high) for low, high in bounds]
            if least <= math.prod(found) <= most:
                return found

    def pick(self, *choices):
        """Return one of some values."""
        return choices[self.rng.integers(len(choices))]

    def normal(self, *shape):
        """Return normally distributed float32."""
        return self.rng.standard_normal(shape, dtype=np.float32)


LEAST, MOST = 1 << 18, 1 << 28  # terms of a contraction


def make_matmul(draw, left="n", right="n"):
    m, n, k = draw.sizes([(1, 4096)] * 3, LEAST, MOST)
    a = draw.normal(m, k) if left == "n" else draw.normal(k, m)
    b = draw.normal(k, n) if right == "n" else draw.normal(n, k)
    return (a, b), {}


def make_batched(draw):
    batch, m, n, k = draw.sizes([(2, 256), *[(1, 512)] * 3], LEAST, MOST)
    return (draw.normal(batch, m, k), draw.normal(batch, k, n)), {}


def make_skinny(draw):
    small, n, k = draw.sizes([(1, 16), (32, 8192), (32, 8192)], LEAST, MOST)
    kind = draw.pick("row", "column", "vector", "left")
    if kind == "vector":
        return (draw.normal(n, k), draw.normal(k)), {}
    if kind == "left":
        return (draw.normal(k), draw.normal(k, n)), {}
    a, b = draw.normal(small, k), draw.normal(k, n)
    return ((a, b) if kind == "row" else (draw.normal(n, k), draw.normal(k, small))), {}


def make_linear(draw):
    rows, n, k = draw.sizes([(1, 2048)] * 3, LEAST, MOST)
    return (draw.normal(rows, k), draw.normal(n, k), draw.normal(n)), {}


EINSUMS = ("bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd", "ijk,jkl->il", "ij,kjl->kil", "bij,bjk->ik",
           "abc,cd->abd", "abcd,bd->ac", "abc,abd->cd", "bqhd,bkhd->bhqk",
           "abcd,cdef->abef", "abc,dc->dab")


def make_einsum(draw):
    equation = draw.pick(*EINSUMS)
    inputs = equation.split("->")[0].split(",")
    letters = sorted(set("".join(inputs)))
    most = {3: 512, 4: 160, 5: 64, 6: 24}[len(letters)]
    sizes = dict(zip(letters, draw.sizes([(2, most)] * len(letters), LEAST, MOST), strict=True))
    return tuple(draw.normal(*[sizes[c] for c in i]) for i in inputs), {"equation": equation}


def np_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def product(a, b):
    return a @ b


# name: (draw shapes, Weft, PyTorch, NumPy or None)
TYPES = {
    "matmul nn": (make_matmul, product, product, product),
    "matmul nt": (functools.partial(make_matmul, right="t"), lambda a, b: a @ b.T,
                  lambda a, b: a @ b.T, lambda a, b: a @ b.T),
    "matmul tn": (functools.partial(make_matmul, left="t"), lambda a, b: a.T @ b,
                  lambda a, b: a.T @ b, lambda a, b: a.T @ b),
    "matmul tt": (functools.partial(make_matmul, left="t", right="t"), lambda a, b: a.T @ b.T,
                  lambda a, b: a.T @ b.T, lambda a, b: a.T @ b.T),
    "matmul batched": (make_batched, product, product, product),
    "matmul skinny": (make_skinny, product, product, product),
    "linear gelu": (make_linear, lambda x, w, b: (x @ w.T + b).gelu(approximate="tanh"),
                    lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
                    lambda x, w, b: np_gelu(x @ w.T + b)),
    "einsum": (make_einsum, lambda *a, equation: weft.einsum(equation, *a),
               lambda *a, equation: torch.einsum(equation, *a),
               lambda *a, equation: np.einsum(equation, *a, optimize=True)),
}  # fmt: skip

TYPES |= ATTENTION | PRODUCTS | CONVOLUTIONS | ROWS | ORDER


def flat(result):
    """Return the arrays of a result: one, or a tuple of several."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def systems(row, arrays, options):
    """Return the ways to run a row, each a call and how to read its result."""
    _, fn_weft, fn_torch, fn_numpy = TYPES[row]
    found = {}
    if fn_numpy is not None:
        found["numpy"] = lambda: fn_numpy(*arrays, **options)
    tensors = [torch.from_numpy(a) for a in arrays]
    ours = [weft.from_numpy(a) for a in arrays]
    if hasattr(fn_weft, "bfloat16"):
        tensors = [t.bfloat16() for t in tensors]
        ours = [a.to(weft.bfloat16).realize() for a in ours]
    found["torch"] = lambda: fn_torch(*tensors, **options)
    if args.compile:
        torch._dynamo.reset()
        compiled = torch.compile(functools.partial(fn_torch, **options))
        found["inductor"] = lambda: compiled(*tensors)
    eager = functools.partial(fn_weft, **options)
    if hasattr(fn_weft, "eager"):
        found["weft"] = lambda: [r.realize() for r in flat(eager(*ours))]
    else:  # results of a captured function have been computed when it returns
        jitted = weft.jit(eager)
        found["weft"] = lambda: jitted(*ours)
    return found


def reference(row, arrays, options):
    """Return what the result is in float64."""
    _, _, fn_torch, fn_numpy = TYPES[row]
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    if fn_numpy is not None:
        return flat(fn_numpy(*wide, **options))
    return [np.asarray(r) for r in flat(fn_torch(*map(torch.from_numpy, wide), **options))]


def errors(run, wanted):
    """Return the largest error of a system relative to the size of the result."""
    worst = 0.0
    for got, want in zip(flat(run()), wanted, strict=True):
        if "bfloat16" in str(got.dtype):
            got = got.to(weft.float32 if isinstance(got, weft.Tensor) else torch.float32)
        got = np.asarray(got.numpy() if hasattr(got, "numpy") else got, np.float64)
        scale = float(np.abs(want[np.isfinite(want)]).max(initial=0)) or 1.0
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        worst = max(worst, float(np.abs(np.where(same, 0, got - want)).max(initial=0)) / scale)
    return worst


def turn(run, calls):
    """Return the best time of one call among some bursts of calls."""
    best, end, least = math.inf, time.perf_counter() + args.seconds, 3
    while least > 0 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(calls):
            run()
        best = min(best, (time.perf_counter() - start) / calls)
        least -= 1
    return best


def measure(found):
    """Return for each system the median over turns, in seconds."""
    calls, times = {}, {name: [] for name in found}
    for name, run in found.items():
        run()
        start = time.perf_counter()
        run()
        calls[name] = max(1, min(200, int(1e-4 / max(time.perf_counter() - start, 1e-7))))
    before = ""
    for number in range(args.turns):
        for name in list(found)[:: 1 if number % 2 else -1]:
            if args.threads > 1:  # OpenBLAS keeps its threads spinning for 0.1 s
                time.sleep(0.12 if before == "numpy" and name != before else 0.005)
                found[name]()
            before = name
            times[name].append(turn(found[name], calls[name]))
    return {name: statistics.median(t) for name, t in times.items()}


def describe(arrays, options):
    shapes = " ".join("×".join(map(str, a.shape)) or "scalar" for a in arrays)
    return shapes + "".join(f" {k}={v}" for k, v in options.items())


def quantile(values, at):
    return values[min(int(at * len(values)), len(values) - 1)]


def main():
    print(f"seed {seed}, {args.threads} threads, {args.count} shapes of each type; Weft's speed "
          "over the best of the others")
    print(f"{'type':26s} {'min':>5s} {'10 %':>5s} {'half':>5s} {'90 %':>5s} {'≥0.85':>6s} "
          f"{'≥1.0':>6s}")
    for row in TYPES:
        if not any(part in row for part in args.only.split(",")):
            continue
        results = []
        for number in range(args.count):
            arrays, options = TYPES[row][0](Draw(*row.encode(), number))
            found = systems(row, arrays, options)
            wanted = reference(row, arrays, options)
            drawn = hasattr(TYPES[row][1], "drawn")  # random numbers, alike in nothing
            wrong = {name: 0.0 if drawn else errors(run, wanted) for name, run in found.items()}
            if not wrong["weft"] <= max(8 * wrong["torch"], 1e-5):
                sys.exit(f"{row} {describe(arrays, options)}: error {wrong['weft']:.1e}, "
                         f"PyTorch's {wrong['torch']:.1e}")
            times = measure(found)
            ratio = min(t for name, t in times.items() if name != "weft") / times["weft"]
            text = describe(arrays, options) + "  " + "  ".join(
                f"{name} {t * 1e3:.4f}" for name, t in times.items())
            results.append((ratio, text))
            if args.verbose:
                print(f"    {ratio:5.2f}  {text}", flush=True)
        results.sort()
        ratios = [r for r, _ in results]
        shares = [sum(r >= limit for r in ratios) / len(ratios) for limit in (0.85, 1.0)]
        spread = " ".join(f"{quantile(ratios, q):5.2f}" for q in (0, 0.1, 0.5, 0.9))
        reached = " ".join(f"{s:6.0%}" for s in shares)
        print(f"{row:26s} {spread} {reached}", flush=True)
        for ratio, text in results[:3]:
            print(f"      worst {ratio:5.2f}  {text}", flush=True)


if __name__ == "__main__":
    main()
