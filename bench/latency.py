"""What the system itself costs: import, whole processes cold and warm, replay of a captured call.

    python bench/latency.py [--runs 9]

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
args = parser.parse_args()

TINY = "import weft\na = weft.ones(8, 8)\nprint((a @ a).relu().sum().item())\n"
REPLAY = """
import time
import weft
a, b = weft.rand(8), weft.rand(8)
one = weft.jit(lambda a, b: a + b)
three = weft.jit(lambda a, b: (a.sum() * b).softmax(-1).sort()[0].cumsum(0))
for name, call in (("a + b on 8", one), ("3 kernels", three)):
    call(a, b)
    best = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(10000):
            call(a, b)
        best.append((time.perf_counter() - start) / 10000)
    launches = len(next(iter(call._entries.values()))[0].compiled.plan.launches)
    print(f"replay, {name} ({launches} kernels): {sorted(best)[4] * 1e6:.2f} us")
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


with tempfile.TemporaryDirectory() as cache:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["WEFT_CACHE_DIR"] = cache
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
    subprocess.run([sys.executable, "-c", REPLAY], env=environment, check=True)
