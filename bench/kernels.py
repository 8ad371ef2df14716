"""The same work in Weft, NumPy and PyTorch, in turns in one process.

    python bench/kernels.py [--only softmax] [--seconds 0.6] [--compile]

Each result is checked against float64 before it is timed, and again on new data written into the
same arrays. Printed are median milliseconds and Weft's speed over the best of the others (above 1
is faster). `--compile` adds torch.compile, which needs a C++ compiler.
"""

import argparse
import math
import os
import statistics
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=int(os.environ.get("WEFT_NUM_THREADS", "1")))
parser.add_argument("--only", default="")
parser.add_argument("--seconds", type=float, default=0.6)
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "WEFT_NUM_THREADS"):
    os.environ[name] = str(args.threads)

import numpy as np  # noqa: E402 - the threads are set before

import weft  # noqa: E402

try:
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
except ImportError:
    torch = None

rng = np.random.default_rng()


def normal(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


def np_softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def np_layer_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def np_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# name: (inputs, NumPy, PyTorch, Weft, relative tolerance)
WORK = {
    "chain 16M": (
        lambda: (normal(4096, 4096),),
        lambda x: np.exp(np.maximum(x * 2 + 1, 0) * -0.5) + x,
        lambda x: torch.exp(torch.relu(x * 2 + 1) * -0.5) + x,
        lambda x: ((x * 2 + 1).relu() * -0.5).exp() + x, 1e-5),
    "softmax 4096": (
        lambda: (normal(4096, 4096),), np_softmax, lambda x: torch.softmax(x, -1),
        lambda x: x.softmax(-1), 1e-5),
    "layer norm 4096": (
        lambda: (normal(4096, 4096),), np_layer_norm, lambda x: F.layer_norm(x, (4096,)),
        lambda x: x.layer_norm((4096,)), 1e-5),
    "sum 4096": (
        lambda: (normal(4096, 4096),), lambda x: x.sum(), lambda x: x.sum(), lambda x: x.sum(),
        1e-3),
    "column sum 4096": (
        lambda: (normal(4096, 4096),), lambda x: x.sum(0), lambda x: x.sum(0),
        lambda x: x.sum(0), 1e-4),
    "matvec 4096": (
        lambda: (normal(4096, 4096), normal(4096)), lambda a, b: a @ b, lambda a, b: a @ b,
        lambda a, b: a @ b, 1e-4),
    "matmul 1024": (
        lambda: (normal(1024, 1024), normal(1024, 1024)), lambda a, b: a @ b,
        lambda a, b: a @ b, lambda a, b: a @ b, 1e-4),
    "linear + gelu": (
        lambda: (normal(512, 768), normal(768, 3072), normal(3072)),
        lambda x, w, b: np_gelu(x @ w + b),
        lambda x, w, b: F.gelu(x @ w + b, approximate="tanh"),
        lambda x, w, b: (x @ w + b).gelu(approximate="tanh"), 1e-4),
    "transpose 4096": (
        lambda: (normal(4096, 4096),), lambda x: np.ascontiguousarray(x.T),
        lambda x: x.t().contiguous(), lambda x: x.T.contiguous(), 1e-6),
    "a + b on 8": (
        lambda: (normal(8), normal(8)), lambda a, b: a + b, lambda a, b: a + b,
        lambda a, b: a + b, 1e-6),
}  # fmt: skip


def systems(name):
    """Return the ways to run a row, and a function that renews the data and the reference."""
    make, fn, fn_torch, fn_weft, tolerance = WORK[name]
    arrays = make()
    found = {"numpy": (lambda: fn(*arrays), np.asarray)}
    if torch is not None:
        tensors = [torch.from_numpy(a) for a in arrays]
        found["torch"] = (lambda: fn_torch(*tensors), lambda r: r.numpy())
        if args.compile:
            compiled = torch.compile(fn_torch)
            found["inductor"] = (lambda: compiled(*tensors), lambda r: r.numpy())
    ours = [weft.from_numpy(a) for a in arrays]
    jitted = weft.jit(fn_weft)
    found["weft"] = (lambda: jitted(*ours).realize(), lambda r: r.numpy())

    def renew():
        for old, new in zip(arrays, make(), strict=True):
            old[...] = new
        return np.asarray(fn(*(a.astype(np.float64) for a in arrays)))

    return found, renew, tolerance


def check(found, renew, tolerance, when):
    wanted = renew()
    scale = float(np.abs(wanted).max()) or 1.0
    for name, (run, value) in found.items():
        error = float(np.abs(np.asarray(value(run()), np.float64) - wanted).max()) / scale
        if not error <= tolerance:
            raise SystemExit(f"{name} is wrong {when}: error {error:.1e}")


def burst(run, seconds):
    """Return times of one call, many calls a measurement where they are short."""
    time.sleep(0.02)  # thread pools of another system that still spin would slow this one
    run()
    start = time.perf_counter()
    run()
    inner = max(1, min(1000, int(2e-4 / max(time.perf_counter() - start, 1e-7))))
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(inner):
            run()
        times.append((time.perf_counter() - start) / inner)
    return times


print(f"{args.threads} threads; median ms")
for row in WORK:
    if args.only not in row:
        continue
    found, renew, tolerance = systems(row)
    check(found, renew, tolerance, "before timing")
    times = {name: [] for name in found}
    for _ in range(4):
        for name, (run, _) in found.items():
            times[name] += burst(run, args.seconds / 4)
    check(found, renew, tolerance, "after timing")
    median = {name: statistics.median(t) * 1e3 for name, t in times.items()}
    ratio = min(v for name, v in median.items() if name != "weft") / median["weft"]
    shown = "  ".join(f"{name} {v:9.4f}" for name, v in median.items())
    print(f"{row:18s} {shown}   x{ratio:.2f}", flush=True)
