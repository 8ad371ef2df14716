"""What tuning gains over the defaults, for each row of the comparison with other systems.

    python bench/tuning.py [--threads 1] [--only softmax] [--seconds 30] [--again] [--json out.json]

The kernels of each row's function are tuned (`weft.tune`); the function is then timed with the
default code and with the tuned code, in turn, in this process. The gain printed is that of whole
calls, beside it stands that of the kernels. Tuned results are checked against the default's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--only", default="")
parser.add_argument("--seconds", type=float, default=30.0, help="of search for each row")
parser.add_argument("--again", action="store_true", help="search on in the records of the cache")
parser.add_argument("--json", default="")
args = parser.parse_args()
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "WEFT_NUM_THREADS"):
    os.environ[name] = str(args.threads)
if not args.again:
    os.environ["WEFT_CACHE_DIR"] = tempfile.mkdtemp(prefix="weft-bench-")

import numpy as np  # noqa: E402

import weft  # noqa: E402
from weft.driver import kernels  # noqa: E402
from weft.driver.plans import plan_cache  # noqa: E402
from weft.tuning.records import records  # noqa: E402

random = np.random.default_rng()


def f32(*shape):
    return weft.from_numpy(random.standard_normal(shape, dtype=np.float32))


def bf16(*shape):
    return f32(*shape).to(weft.bfloat16).realize()


ROWS = {
    "matmul f32 1024": (lambda a, b: a @ b, lambda: (f32(1024, 1024), f32(1024, 1024))),
    "matmul f32 2048": (lambda a, b: a @ b, lambda: (f32(2048, 2048), f32(2048, 2048))),
    "matmul f32 64": (lambda a, b: a @ b, lambda: (f32(64, 64), f32(64, 64))),
    "matmul bf16 1024": (lambda a, b: a @ b, lambda: (bf16(1024, 1024), bf16(1024, 1024))),
    "matvec f32 4096": (lambda a, x: a @ x, lambda: (f32(4096, 4096), f32(4096))),
    "linear+gelu": (lambda x, w, b: (x @ w + b).gelu(approximate="tanh"),
                    lambda: (f32(512, 768), f32(768, 3072), f32(3072))),
    "softmax 4096": (lambda x: x.softmax(-1), lambda: (f32(4096, 4096),)),
    "layernorm 4096": (lambda x: x.layer_norm((4096,)), lambda: (f32(4096, 4096),)),
    "sum 4096": (lambda x: x.sum(), lambda: (f32(4096, 4096),)),
    "chain 16M": (lambda x: ((x * 2 + 1).relu() * -0.5).exp() + x, lambda: (f32(4096, 4096),)),
    "transpose 4096": (lambda x: x.T.contiguous(), lambda: (f32(4096, 4096),)),
    "conv2d 8x64x56x56": (lambda x, w: x.conv2d(w, padding=1),
                          lambda: (f32(8, 64, 56, 56), f32(64, 64, 3, 3))),
    "attention 12x512x64": (
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        lambda: (f32(1, 12, 512, 64), f32(1, 12, 512, 64), f32(1, 12, 512, 64)),
    ),
    "cumsum 4096": (lambda x: x.cumsum(-1), lambda: (f32(4096, 4096),)),
    "sort 1M": (lambda x: x.sort()[0], lambda: (f32(1 << 20),)),
    "a+b on 8": (lambda a, b: a + b, lambda: (f32(8), f32(8))),
}  # fmt: skip


def fresh(function):
    """Return the function jitted anew, with the code that the records ask for now."""
    kernels.forget()
    plan_cache.forget()
    return weft.jit(function)


def without_records(function, arguments):
    """Return the function jitted with the default code, whatever the records say."""
    store = records()
    find, store.find = store.find, lambda key: None
    try:
        made = fresh(function)
        made(*arguments).realize()
    finally:
        store.find = find
    return made


def burst(made, arguments, inner):
    start = time.perf_counter()
    for _ in range(inner):
        made(*arguments).realize()
    return (time.perf_counter() - start) / inner


def main():
    print(f"weft, {args.threads} thread(s), {args.seconds:g} s of search for each row")
    print(f"{'row':22s} {'default':>11s} {'tuned':>11s} {'gain':>6s} {'kernels':>8s} "
          f"{'trials':>6s}")
    rows, gains = [], []
    for name, (function, make) in ROWS.items():
        if args.only not in name:
            continue
        arguments = make()
        found = weft.tune(function, *arguments, seconds=args.seconds)
        default = without_records(function, arguments)
        tuned = fresh(function)
        expected = default(*arguments).to(weft.float32).numpy()
        got = tuned(*arguments).to(weft.float32).numpy()
        scale = float(np.abs(expected).max()) or 1.0
        error = float(np.abs(got - expected).max()) / scale
        assert error < (1e-2 if "bf16" in name else 1e-4), f"{name}: differs by {error}"
        once = min(burst(default, arguments, 1) for _ in range(3))
        inner = max(1, min(1000, int(2e-3 / once)))
        pairs = []
        end = time.perf_counter() + min(max(0.4, 20 * once), 3.0)
        while len(pairs) < 7 or time.perf_counter() < end:
            pairs.append((burst(default, arguments, inner), burst(tuned, arguments, inner)))
        before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
        gain = statistics.median(a / b for a, b in pairs)
        alone = max((t.gain for t in found), default=1.0)
        trials = sum(t.trials for t in found)
        print(f"{name:22s} {before * 1e3:8.4f} ms {after * 1e3:8.4f} ms {gain:5.2f}x "
              f"{alone:7.2f}x {trials:6d}", flush=True)
        rows.append({"row": name, "threads": args.threads, "default_ms": before * 1e3,
                     "tuned_ms": after * 1e3, "gain": gain, "kernel_gain": alone,
                     "trials": trials,
                     "choices": [t.choices for t in found]})  # fmt: skip
        gains.append(gain)
    if gains:
        print(f"geometric mean of the gains: {statistics.geometric_mean(gains):.3f}x")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
