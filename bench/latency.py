"""What the system itself costs: import, whole processes cold and warm, captured calls.

    python bench/latency.py [--runs 9] [--calls]

Medians over fresh processes. Processor time (user + system) stands beside wall time: it says more
where other work runs on the machine.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--runs", type=int, default=9)
parser.add_argument("--calls", action="store_true", help="only calls, no processes")
args = parser.parse_args()

TINY = "import weft\na = weft.ones(8, 8)\nprint((a @ a).relu().sum().item())\n"
REPLAY = """
import time
import numpy as np
import weft
from weft import nn, optim

def rand(*shape):
    return weft.rand(*shape).realize()

a, b, m, w, batch = rand(8), rand(8), rand(64, 64), rand(8), rand(8, 8)
tens, memory = [rand(8) for _ in range(10)], np.ones(8, np.float32)
one = weft.jit(lambda a, b: a + b)
three = weft.jit(lambda a, b: (a.sum() * b).softmax(-1).sort()[0].cumsum(0))
ten = weft.jit(lambda *xs: sum(xs))
product = weft.jit(lambda a, b: a @ b)
captured = weft.jit(lambda a: a * w)
scaled = weft.jit(lambda a, by, *, shift: a * by + shift)
drawn = weft.jit(lambda a: a + weft.rand(8))
some = [rand(48, 48) for _ in range(9)]
apart = weft.jit(lambda *xs: tuple(a @ b for a, b in zip(xs, xs[1:])))
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = optim.SGD(net.parameters(), lr=0.01)

@weft.jit
def step(x):
    loss = net(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss

ready = one(a, b)
ROWS = {
    "an empty lambda, which all rows contain": lambda: None,
    "replay, a + b on 8": lambda: one(a, b),
    "replay, a + b on 8 of NumPy's arrays": lambda: one(memory, memory),
    "replay, 3 kernels": lambda: three(a, b),
    "replay, 10 arguments": lambda: ten(*tens),
    "replay, a captured tensor": lambda: captured(a),
    "replay, static values and a keyword": lambda: scaled(a, 2.0, shift=1.0),
    "replay, random numbers": lambda: drawn(a),
    "replay, a step of a tiny network": lambda: step(batch),
    "replay, 64 x 64 matmul": lambda: product(m, m),
    "replay, 48 x 48 matmul": lambda: product(some[0], some[1]),
    "replay, 8 independent ones of 48 x 48": lambda: apart(*some),
    "realize() of what is realized": lambda: ready.realize(),
    "eager, (a + b).realize()": lambda: (a + b).realize(),
}
for name, call in ROWS.items():
    call(), call(), call()
    times = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(5000):
            call()
        times.append((time.perf_counter() - start) / 5000)
    print(f"{name:42s} {sorted(times)[4] * 1e6:8.3f} us")
"""


def once(code, environment):
    """Return wall and processor milliseconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1e3, used * 1e3


def medians(code, environment, fresh_cache=False):
    runs = []
    for _ in range(args.runs):
        with tempfile.TemporaryDirectory() as folder:
            extra = {"WEFT_CACHE_DIR": folder} if fresh_cache else {}
            runs.append(once(code, {**environment, **extra}))
    return tuple(statistics.median(column) for column in zip(*runs, strict=True))


def processes(environment):
    once(TINY, environment)
    rows = {
        "bare Python": medians("pass", environment),
        "import numpy": medians("import numpy", environment),
        "import weft": medians("import weft", environment),
        "tiny matmul + relu, cold": medians(TINY, environment, fresh_cache=True),
        "tiny matmul + relu, warm": medians(TINY, environment),
    }
    for name, (wall, used) in rows.items():
        print(f"{name:26s} {wall:7.1f} ms wall {used:7.1f} ms processor")
    beyond = [a - b for a, b in zip(rows["import weft"], rows["import numpy"], strict=True)]
    title = "import weft beyond numpy"
    print(f"{title:26s} {beyond[0]:7.1f} ms wall {beyond[1]:7.1f} ms processor")


with tempfile.TemporaryDirectory() as cache:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["WEFT_CACHE_DIR"] = cache
    if not args.calls:
        processes(environment)
    subprocess.run([sys.executable, "-c", REPLAY], env=environment, check=True)
