"""What sizes cost that are read at the call: the capture for all sizes beside that for one.

    python bench/dynamic.py [--threads 1] [--seconds 0.3] [--rows mlp,attention] [--check]

Each row calls a function by turns at some sizes: by a capture whose sizes are numbers, and by the
one that serves all sizes (whose sizes never get plans of their own here). The ratio is the time of
the second by that of the first, the shortest of rounds that take turns.
"""

import argparse
import math
import os
import statistics
import sys
import time

import weft
from weft import nn
from weft.capture import usage as policy
from weft.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--seconds", type=float, default=0.3, help="of each row and size")
parser.add_argument("--rows", default="", help="parts of the names of rows, with commas")
parser.add_argument("--check", action="store_true", help="fail above the goal")
args = parser.parse_args()
if os.environ.get("WEFT_NUM_THREADS") != str(args.threads):  # which is read at the import
    os.environ["WEFT_NUM_THREADS"] = str(args.threads)
    os.execv(sys.executable, [sys.executable, *sys.argv])

GOAL = 1.1
policy.OFTEN, policy.LONG = 1 << 40, 1e6
weft.manual_seed(0)


def rand(*shape):
    return weft.rand(*shape).realize()


def mlp(width, hidden, out=10):
    net = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, out))
    return lambda x: net(x)


def trained(width, hidden, out=10):
    net = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, out))

    def step(x):
        net.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss, [p.grad for p in net.parameters()]

    return step


def attention(is_causal):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def conv(channels, out, **options):
    layer = nn.Conv2d(channels, out, 3, padding=1, **options)
    return lambda x: layer(x).relu()


def digits():
    net = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5),
                        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10))
    return lambda x: net(x)


def heads(n):
    return [rand(1, 8, n, 64) for _ in range(3)]


W = rand(256, 256)
ROWS = {
    "elementwise chain, n": (lambda x: ((x * 2).tanh() + x).exp() * 0.5,
                             lambda n: [rand(n)], (8, 1000, 100_000)),
    "elementwise chain, n x 64": (lambda x, y: (x * y + 1).relu() - x,
                                  lambda n: [rand(n, 64), rand(64)], (3, 33, 1000)),
    "sum of rows, n x 64": (lambda x: x.sum(1), lambda n: [rand(n, 64)], (7, 100, 3000)),
    "softmax, n x 128": (lambda x: x.softmax(-1), lambda n: [rand(n, 128)], (5, 64, 1000)),
    "softmax, 64 x n": (lambda x: x.softmax(-1), lambda n: [rand(64, n)], (5, 64, 1000)),
    "layer norm, n x 256": (lambda x: x.layer_norm((256,)), lambda n: [rand(n, 256)],
                            (5, 64, 512)),
    "matmul, n x 256 x 256": (lambda x: x @ W, lambda n: [rand(n, 256)], (4, 33, 128, 500)),
    "mlp 8-8-1": (mlp(8, 8, 1), lambda n: [rand(n, 8)], (4, 16, 33)),
    "mlp 64-128-10": (mlp(64, 128), lambda n: [rand(n, 64)], (4, 32, 100)),
    "mlp 784-256-10": (mlp(784, 256), lambda n: [rand(n, 784)], (8, 64, 200)),
    "training step, 64-128-10": (trained(64, 128), lambda n: [rand(n, 64)], (4, 32, 100)),
    "attention, 8 heads of 64": (attention(False), heads, (16, 65, 256)),
    "causal attention, 8 heads of 64": (attention(True), heads, (16, 65, 256)),
    "conv 3-16, 32 x 32": (conv(3, 16), lambda n: [rand(n, 3, 32, 32)], (2, 9, 32)),
    "conv 64-64, 28 x 28": (conv(64, 64), lambda n: [rand(n, 64, 28, 28)], (2, 5, 16)),
    "conv 64-64, stride 2": (conv(64, 64, stride=2), lambda n: [rand(n, 64, 28, 28)], (2, 5, 16)),
    "depthwise conv 64, 28 x 28": (conv(64, 64, groups=64), lambda n: [rand(n, 64, 28, 28)],
                                   (2, 5, 16)),
    "network of digits": (digits(), lambda n: [rand(n, 1, 28, 28)], (2, 16, 50)),
}  # fmt: skip


def timed(call, given, count):
    start = time.perf_counter()
    for _ in range(count):
        call(*given)
    return (time.perf_counter() - start) / count


def measured(function, make, size):
    """Return the seconds of a call by both captures."""
    given = make(size)
    static, dynamic = weft.jit(function), weft.jit(function)
    for other in (size + 1, size + 2):
        for _ in range(2):
            dynamic(*make(other))
    for call in (static, dynamic):
        for _ in range(4):
            call(*given)
    assert static.captures == 1
    assert dynamic.captures == 2, dynamic.explain_captures()
    count = max(int(0.002 / max(timed(static, given, 3), 1e-7)), 1)
    rounds = max(int(args.seconds / 2 / max(count * timed(static, given, count), 1e-3)), 15)
    times = [(timed(static, given, count), timed(dynamic, given, count)) for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


found = {}
for name, (function, make, several) in ROWS.items():
    if args.rows and not any(part in name for part in args.rows.split(",")):
        continue
    ratios = []
    for size in several:
        static, dynamic = measured(function, make, size)
        ratios.append(dynamic / static)
        print(f"{name:34s} {size:7d} {static * 1e6:11.2f} us {dynamic * 1e6:11.2f} us "
              f"{dynamic / static:6.2f}", flush=True)
    found[name] = math.exp(statistics.fmean(map(math.log, ratios)))
print("\nratio, geometric mean over sizes")
for name, ratio in found.items():
    print(f"{name:34s} {ratio:6.2f}")
if args.check and max(found.values()) > GOAL:
    sys.exit(f"above {GOAL}: " + ", ".join(n for n, r in found.items() if r > GOAL))
