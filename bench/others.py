"""The table of the README: the same work in Weft, JAX, numba and tinygrad, in processes apart.

    python bench/others.py [--threads N] [--rounds N] [--only softmax]

Systems take turns, round by round, so that drift of the machine meets all of them. Each result is
compared with NumPy's in float64 before it is timed. What is not installed is said, and has no
column. ``first`` is the time of a whole new process, its caches warm: import, compile, one result.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

SECONDS = 0.6  # for each row of a round
FIRST = "first result of a new process (ms)"
CALL = "call on 8 elements (µs)"


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def chain(x):
    return np.exp(-np.maximum(x * 2 + 1, 0)) * x


# name: (the shapes of the arguments, NumPy's function)
ROWS = {
    "softmax 4096²": (((4096, 4096),), softmax),
    "layer norm 4096²": (((4096, 4096),), layer_norm),
    "exp(-relu(2x+1))·x, 16 M": (((4096, 4096),), chain),
    "cumsum 4096²": (((4096, 4096),), lambda x: np.cumsum(x, 1)),
    "matmul 1024": (((1024, 1024), (1024, 1024)), lambda a, b: a @ b),
    CALL: (((8,), (8,)), lambda a, b: a + b),
}


def weft_rows():
    import weft

    functions = (
        lambda x: x.softmax(-1), lambda x: x.layer_norm((4096,)),
        lambda x: (-(x * 2 + 1).relu()).exp() * x, lambda x: x.cumsum(1), lambda a, b: a @ b,
        lambda a, b: a + b,
    )  # fmt: skip
    rows = {name: weft.jit(f) for name, f in zip(ROWS, functions, strict=True)}
    return rows, weft.tensor, lambda y: y.numpy(), lambda y: y


def jax_rows():
    import jax
    import jax.numpy as jnp

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    functions = (
        lambda x: jax.nn.softmax(x, -1), norm, lambda x: jnp.exp(-jax.nn.relu(x * 2 + 1)) * x,
        lambda x: jnp.cumsum(x, 1), lambda a, b: a @ b, lambda a, b: a + b,
    )  # fmt: skip
    rows = {name: jax.jit(f) for name, f in zip(ROWS, functions, strict=True)}
    return rows, jnp.asarray, np.asarray, lambda y: y.block_until_ready()


def numba_rows():
    import math

    import numba

    compiled = numba.njit(parallel=True, cache=True)

    @compiled
    def soft(x):
        out = np.empty_like(x)
        for i in numba.prange(x.shape[0]):
            top = x[i].max()
            total = np.float32(0)
            for j in range(x.shape[1]):
                out[i, j] = math.exp(x[i, j] - top)
                total += out[i, j]
            for j in range(x.shape[1]):
                out[i, j] /= total
        return out

    @compiled
    def norm(x):
        out = np.empty_like(x)
        n = x.shape[1]
        for i in numba.prange(x.shape[0]):
            mean = x[i].sum() / n
            total = np.float32(0)
            for j in range(n):
                total += (x[i, j] - mean) ** 2
            scale = 1 / math.sqrt(total / n + 1e-5)
            for j in range(n):
                out[i, j] = (x[i, j] - mean) * scale
        return out

    @compiled
    def chained(x):
        out = np.empty_like(x)
        for i in numba.prange(x.shape[0]):
            for j in range(x.shape[1]):
                out[i, j] = math.exp(-max(x[i, j] * 2 + 1, 0)) * x[i, j]
        return out

    @compiled
    def scan(x):
        out = np.empty_like(x)
        for i in numba.prange(x.shape[0]):
            total = np.float32(0)
            for j in range(x.shape[1]):
                total += x[i, j]
                out[i, j] = total
        return out

    @compiled
    def product(a, b):  # rows of b stay in the cache and are added up as vectors
        out = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for i in numba.prange(a.shape[0]):
            for k in range(a.shape[1]):
                for j in range(b.shape[1]):
                    out[i, j] += a[i, k] * b[k, j]
        return out

    @numba.njit(cache=True)
    def added(a, b):
        return a + b

    rows = dict(zip(ROWS, (soft, norm, chained, scan, product, added), strict=True))
    return rows, lambda x: x, lambda y: y, lambda y: y


def tinygrad_rows():
    from tinygrad import Tensor, TinyJit

    def norm(x):
        return x.layernorm(eps=1e-5)

    functions = (
        lambda x: x.softmax(-1), norm, lambda x: (-(x * 2 + 1).relu()).exp() * x,
        lambda x: x.cumsum(1), lambda a, b: a @ b, lambda a, b: a + b,
    )  # fmt: skip

    def jitted(f):
        return TinyJit(lambda *args: f(*args).realize())

    rows = {name: jitted(f) for name, f in zip(ROWS, functions, strict=True)}
    return rows, lambda x: Tensor(x).realize(), lambda y: y.numpy(), lambda y: y


SYSTEMS = {"weft": weft_rows, "jax": jax_rows, "numba": numba_rows, "tinygrad": tinygrad_rows}


def measure(system, only):
    """Print milliseconds of each row (microseconds of a call) as JSON."""
    rows, given, taken, wait = SYSTEMS[system]()
    rng = np.random.default_rng(7)
    found = {}
    for name, (shapes, reference) in ROWS.items():
        if only not in name:
            continue
        arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
        args, function = [given(a) for a in arrays], rows[name]
        for _ in range(3):
            result = wait(function(*args))
        wanted = reference(*(a.astype(np.float64) for a in arrays))
        np.testing.assert_allclose(taken(result), wanted, rtol=2e-3, atol=2e-3)
        repeat = 200 if name == CALL else 1
        times, end = [], time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            for _ in range(repeat):
                result = function(*args)
            wait(result)
            times.append((time.perf_counter() - start) / repeat)
        found[name] = statistics.median(times) * (1e6 if name == CALL else 1e3)
    print(json.dumps(found))


def first(system):
    """Compile and run one small function, as a whole process."""
    rows, given, taken, wait = SYSTEMS[system]()
    x = given(np.ones((64, 64), np.float32))
    taken(wait(rows["softmax 4096²"](x)))


def child(system, mode, threads, only):
    names = ("OMP_NUM_THREADS", "WEFT_NUM_THREADS", "NUMBA_NUM_THREADS", "CPU_COUNT")
    env = {**os.environ, **dict.fromkeys(names, str(threads))}
    env["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
    cores = sorted(os.sched_getaffinity(0))[:threads]
    command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, __file__,
               "--child", system, "--mode", mode, "--only", only]  # fmt: skip
    start = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return last, 0.0
    return done.stdout, (time.perf_counter() - start) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--child")
    parser.add_argument("--mode", default="rows")
    options = parser.parse_args()
    if options.child:
        if options.mode == "first":
            return first(options.child)
        return measure(options.child, options.only)
    times = {name: {s: [] for s in SYSTEMS} for name in [*ROWS, FIRST]}
    absent = {}
    for _ in range(options.rounds):
        for system in SYSTEMS:
            text, _ = child(system, "rows", options.threads, options.only)
            if not text.startswith("{"):
                absent[system] = text
                continue
            for name, value in json.loads(text).items():
                times[name][system].append(value)
            child(system, "first", options.threads, "")  # warms its caches
            text, took = child(system, "first", options.threads, "")
            if took:
                times[FIRST][system].append(took)
    for system, why in absent.items():
        print(f"{system} has no column: {why}")
    systems = [s for s in SYSTEMS if s not in absent]
    print(f"| {options.threads} threads, median ms | " + " | ".join(systems) + " |")
    print("|---" * (len(systems) + 1) + "|")
    for name, row in times.items():
        if any(row.values()):
            medians = [statistics.median(row[s]) if row[s] else None for s in systems]
            print(f"| {name} | " + " | ".join("–" if m is None else f"{m:.3g}" for m in medians)
                  + " |")
    return None


if __name__ == "__main__":
    main()
