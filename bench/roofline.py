"""How near each type of kernel comes to what the machine can do.

    python bench/roofline.py [--threads 2] [--only softmax] [--seconds 0.3]

The limits are measured first, by kernels that do nothing else: memory read, written and copied
(with plain and with non-temporal stores, with and without requests ahead), fused multiply-adds of
float32 and, where the machine has them, products of bfloat16 in tile registers. Then each type runs
on one size that no cache holds (or, of products, one that keeps the core busy) and its least time
gives bytes and operations a second. A row that only reads is rated against reading, one that only
writes against the best way of writing, one that does both against the best way of copying, a
product of float32 against multiply-adds, of bfloat16 against tile registers (without them against
multiply-adds, of which it may do more than 100 %).
Bytes count each array once.
"""

import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=int(os.environ.get("WEFT_NUM_THREADS", "1")))
parser.add_argument("--only", default="", help="types whose names contain this")
parser.add_argument("--seconds", type=float, default=0.3, help="time of each type")
args = parser.parse_args()
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "WEFT_NUM_THREADS"):
    os.environ[name] = str(args.threads)

import numpy as np  # noqa: E402 - the threads are set before

import weft  # noqa: E402
from weft.driver.report import profile  # noqa: E402
from weft.nn import functional  # noqa: E402

rng = np.random.default_rng(1)
N = 4096
WORDS = N * N


def normal(*shape):
    return weft.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def integers(high, *shape):
    return weft.from_numpy(rng.integers(0, high, shape))


def adamw(x, g, m, v):
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return x * (1 - 1e-5) - 1e-3 * (m / 0.1) / ((v / 0.001).sqrt() + 1e-8), m, v


def embedding_gradient(g, index):
    return weft.zeros(30000, 512).index_add(0, index, g)


def attention(q, k, v):
    return q.scaled_dot_product_attention(k, v, is_causal=True)


def narrow(*shape):
    return normal(*shape).to(weft.bfloat16).realize()


def loss(x, targets):
    return functional.cross_entropy(x, targets)


# name: (inputs, work, limit, megabytes moved, millions of operations)
MB = WORDS * 4 / 1e6
IMAGES = 32 * 64 * 96 * 96 * 4 / 1e6
TYPES = {
    "copy": (lambda: (normal(N, N),), lambda x: x + 0.5, "copy", 2 * MB, 0),
    "elementwise chain": (lambda: (normal(N, N),),
                          lambda x: ((x * 2 + 1).relu() * -0.5).exp() + x, "copy", 2 * MB, 0),
    "sum": (lambda: (normal(N, N),), lambda x: x.sum(), "read", MB, 0),
    "sum of columns": (lambda: (normal(N, N),), lambda x: x.sum(0), "read", MB, 0),
    "argmax of rows": (lambda: (normal(N, N),), lambda x: x.argmax(1), "read", MB, 0),
    "matvec": (lambda: (normal(N, N), normal(N)), lambda a, b: a @ b, "read", MB, 0),
    "softmax": (lambda: (normal(N, N),), lambda x: x.softmax(-1), "copy", 2 * MB, 0),
    "layer norm": (lambda: (normal(N, N),), lambda x: x.layer_norm((N,)), "copy", 2 * MB, 0),
    "cumsum": (lambda: (normal(N, N),), lambda x: x.cumsum(-1), "copy", 2 * MB, 0),
    "linear recurrence": (lambda: (normal(64, 512, 512) * 0.1, normal(64, 512, 512)),
                          lambda a, b: a.linear_recurrence(b, 1), "copy", 3 * MB, 0),
    "transpose": (lambda: (normal(N, N),), lambda x: x.T.contiguous(), "copy", 2 * MB, 0),
    "gather of rows": (lambda: (normal(32768, 512), integers(32768, 32768)),
                       lambda x, i: x.index_select(0, i), "copy", 2 * MB, 0),
    "embedding gradient": (lambda: (normal(16384, 512), integers(30000, 16384)),
                           embedding_gradient, "copy", (16384 + 2 * 30000) * 512 * 4 / 1e6, 0),
    "sort": (lambda: (normal(1 << 20),), lambda x: x.sort()[0], "copy", 8 * (1 << 20) / 1e6, 0),
    "AdamW": (lambda: (normal(N // 2, N), normal(N // 2, N), normal(N // 2, N),
                       normal(N // 2, N) ** 2), adamw, "copy", 3.5 * MB, 0),
    "matmul f32": (lambda: (normal(1024, 1024), normal(1024, 1024)), lambda a, b: a @ b, "fma",
                   12 * 1.048576, 2 * 1024**3 / 1e6),
    "batch norm": (lambda: (normal(32, 64, 96, 96),),
                   lambda x: functional.batch_norm(x, None, None, training=True), "copy",
                   2 * IMAGES, 0),
    "cross entropy": (lambda: (normal(N, N), integers(N, N)), loss, "read", MB, 0),
    "top k": (lambda: (normal(N, N),), lambda x: x.topk(8)[0], "read", MB, 0),
    "max pool": (lambda: (normal(32, 64, 96, 96),), lambda x: functional.max_pool2d(x, 2), "copy",
                 1.25 * IMAGES, 0),
    "depthwise": (lambda: (normal(32, 64, 96, 96), normal(64, 1, 3, 3)),
                  lambda x, w: x.conv2d(w, padding=1, groups=64), "copy", 2 * IMAGES, 0),
    "random": (lambda: (normal(1),), lambda x: weft.rand(N, N) + x, "write", MB, 0),
    "matmul bf16": (lambda: (narrow(1024, 1024), narrow(1024, 1024)), lambda a, b: a @ b,
                    "tiles", 6 * 1.048576, 2 * 1024**3 / 1e6),
    "convolution bf16": (lambda: (narrow(8, 64, 56, 56), narrow(64, 64, 3, 3)),
                         lambda x, w: x.conv2d(w, padding=1), "tiles",
                         8 * 64 * 56 * 56 * 4 / 1e6, 2 * 8 * 64 * 64 * 56 * 56 * 9 / 1e6),
    "attention bf16": (lambda: tuple(narrow(1, 12, 512, 64) for _ in range(3)), attention, "tiles",
                       4 * 12 * 512 * 64 * 2 / 1e6, 2 * 2 * 12 * 512 * 513 / 2 * 64 / 1e6),
    "convolution": (lambda: (normal(8, 64, 56, 56), normal(64, 64, 3, 3)),
                    lambda x, w: x.conv2d(w, padding=1), "fma", 2 * 8 * 64 * 56 * 56 * 4 / 1e6,
                    2 * 8 * 64 * 64 * 56 * 56 * 9 / 1e6),
    "attention": (lambda: tuple(normal(1, 12, 512, 64) for _ in range(3)), attention, "fma",
                  4 * 12 * 512 * 64 * 4 / 1e6, 2 * 2 * 12 * 512 * 513 / 2 * 64 / 1e6),
}  # fmt: skip


def least(run):
    """Return the least seconds of one call."""
    run()
    run()
    best, end = float("inf"), time.perf_counter() + args.seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def main():
    peaks, rates = profile.peaks(), dict(profile.memory_rates())
    rates["read"] = max(rates["read"], *(profile.peaks.__wrapped__().bandwidth for _ in range(4)))
    for _ in range(3):  # the machine has other guests: the best of several tries is its limit
        for way, rate in profile.memory_rates.__wrapped__().items():
            rates[way] = max(rates[way], rate)
    copy = max(rate for way, rate in rates.items() if way.startswith("copy"))
    tiles = profile.tile_rate()
    write = max(rate for way, rate in rates.items() if way.startswith("write"))
    limits = {"read": rates["read"], "write": write, "copy": copy, "fma": peaks.flops,
              "tiles": tiles or peaks.flops}
    print(f"{args.threads} threads; " + ", ".join(f"{k} {v:.1f}" for k, v in rates.items())
          + f" GB/s; multiply-add {peaks.flops:.0f}, tile registers {tiles:.0f} GFLOP/s")
    print(f"{'type':20s} {'ms':>9s} {'GB/s':>7s} {'GFLOP/s':>8s} {'limit':>6s} {'share':>6s}")
    for name, (make, work, limit, megabytes, operations) in TYPES.items():
        if args.only not in name:
            continue
        inputs = make()
        inputs = [x.realize() for x in inputs]
        compiled = weft.jit(work)

        def run(compiled=compiled, inputs=inputs):
            found = compiled(*inputs)
            for tensor in found if isinstance(found, tuple) else (found,):
                tensor.realize()

        seconds = least(run)
        bandwidth, rate = megabytes / seconds / 1e3, operations / seconds / 1e3
        share = (rate if limit in ("fma", "tiles") else bandwidth) / limits[limit]
        print(f"{name:20s} {seconds * 1e3:9.3f} {bandwidth:7.1f} {rate:8.1f} {limit:>6s} "
              f"{share:6.0%}", flush=True)


main()
