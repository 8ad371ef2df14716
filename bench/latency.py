"""What the system itself costs: import, whole processes cold and warm, captured calls.

    python bench/latency.py [--runs 9] [--calls] [--launches] [--numba PYTHON] [--warp PYTHON]

Medians over fresh processes. Processor time (user + system) stands beside wall time: it says more
where other work runs on the machine. `--numba` and `--warp` name interpreters with these packages:
their launches and first compilations are measured beside Weft's.
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
parser.add_argument("--launches", action="store_true", help="only launches of kernels")
parser.add_argument("--numba", default="", help="an interpreter that has numba")
parser.add_argument("--warp", default="", help="an interpreter that has Warp")
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

# The same kernel in each system, on few elements; `call` launches it, and `FIRST` names a kernel
# that was not compiled before.
TIME = """
import time
def row(name, call, count=5000):
    for _ in range(4):
        call()
    times = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count)
    print(f"{name:52s} {sorted(times)[4] * 1e6:8.3f} us")
row("an empty lambda, which all rows contain", lambda: None)
"""
LAUNCH = TIME + """
import numpy as np
import weft
from weft import gpu
@weft.kernel
def saxpy(a, x, y):
    i = gpu.grid(1)
    if i < x.size:
        y[i] += a * x[i]
@weft.kernel(workgroup=64)
def typed(a: weft.float32, x: weft.float32[::1], y: weft.float32[::1], n: weft.int32):
    i = gpu.grid(1)
    if i < n:
        y[i] += a * x[i]
@weft.critical
def scaled(a: weft.float64, b: weft.float64) -> weft.float64:
    return a * b + 1
x, y, one = np.ones(64, np.float32), np.ones(64, np.float32), np.ones(1, np.float32)
ready = saxpy[1, 64]
single = saxpy[1, 1]
row("Weft: saxpy of 1, k = saxpy[1, 1]; k(2.0, x, y)", lambda: single(2.0, one, one))
row("Weft: saxpy of 64, k = saxpy[1, 64]; k(2.0, x, y)", lambda: ready(2.0, x, y))
row("Weft: saxpy of 64, saxpy[1, 64](2.0, x, y)", lambda: saxpy[1, 64](2.0, x, y))
row("Weft: annotated, typed[1](2, x, y, 64)", lambda: typed[1](2, x, y, 64))
a, b = weft.ones(64).realize(), weft.ones(64).realize()
row("Weft: saxpy of 64 on tensors", lambda: ready(2.0, a, b))
try:
    import torch
except ImportError:
    pass
else:
    c, d = torch.ones(64), torch.ones(64)
    row("Weft: saxpy of 64 on tensors of PyTorch", lambda: ready(2.0, c, d))
row("Weft: a critical function of two floats", lambda: scaled(1.5, 2.5))
"""
NUMBA = TIME + """
import numpy as np
from numba import njit
@njit(fastmath=False)
def saxpy(a, x, y):
    for i in range(x.size):
        y[i] += a * x[i]
@njit
def scaled(a, b):
    return a * b + 1
x, y, one = np.ones(64, np.float32), np.ones(64, np.float32), np.ones(1, np.float32)
row("numba: saxpy of 1 under njit", lambda: saxpy(2.0, one, one))
row("numba: saxpy of 64 under njit", lambda: saxpy(2.0, x, y))
row("numba: a function of two floats under njit", lambda: scaled(1.5, 2.5))
"""
WARP = TIME + """
import numpy as np
import warp as wp
wp.config.quiet = True
@wp.kernel
def saxpy(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] += a * x[i]
x = wp.array(np.ones(64, np.float32), device="cpu")
y = wp.array(np.ones(64, np.float32), device="cpu")
row("Warp: saxpy of 64", lambda: wp.launch(saxpy, dim=64, inputs=[2.0, x, y], device="cpu"), 500)
"""
FIRST = {
    "Weft": """
import numpy as np
import weft
from weft import gpu
@weft.kernel
def other(x):
    x[gpu.grid(1)] += 1 + SALT
@weft.kernel
def saxpy(a, x, y):
    i = gpu.grid(1)
    if i < x.size:
        y[i] += a * x[i] + SALT
call = lambda: saxpy[1, 64](2.0, x, y)
warm = lambda: other[1, 64](x)
""",
    "numba": """
import numpy as np
from numba import njit
@njit
def other(x):
    for i in range(x.size):
        x[i] += 1 + SALT
@njit
def saxpy(a, x, y):
    for i in range(x.size):
        y[i] += a * x[i] + SALT
call = lambda: saxpy(2.0, x, y)
warm = lambda: other(x)
""",
    "Warp": """
import numpy as np
import warp as wp
wp.config.quiet = True
wp.init()
@wp.kernel
def other(x: wp.array(dtype=float)):
    x[wp.tid()] += 1.0
@wp.kernel
def saxpy(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] += a * x[i] + wp.static(SALT)
call = lambda: wp.launch(saxpy, dim=64, inputs=[2.0, u, v], device="cpu")
warm = lambda: None  # both kernels are one module
""",
}
COMPILE = """
import sys, time
SALT = float(sys.argv[1])
{head}
x, y = np.ones(64, np.float32), np.ones(64, np.float32)
if "wp" in globals():
    u, v = wp.array(x, device="cpu"), wp.array(y, device="cpu")
if sys.argv[2] == "loaded":
    warm()
start = time.perf_counter()
call()
print((time.perf_counter() - start) * 1e3)
"""


def first(system, python, environment, loaded):
    """Return the milliseconds until a new kernel has run, the median over processes."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program.py")
        with open(program, "w", encoding="utf-8") as file:
            file.write(COMPILE.format(head=FIRST[system]))
        for run in range(args.runs):
            words = [python, program, f"{run}.{time.time_ns()}", "loaded" if loaded else "cold"]
            done = subprocess.run(words, env=environment, check=True, capture_output=True,
                                  text=True)
            found.append(float(done.stdout.split()[-1]))
    return statistics.median(found)


def launches(environment):
    plain = {k: v for k, v in environment.items() if k != "PYTHONPATH"}
    pythons = {"Weft": sys.executable, "numba": args.numba, "Warp": args.warp}
    for system, code in (("Weft", LAUNCH), ("numba", NUMBA), ("Warp", WARP)):
        python = pythons[system]
        if not python:
            continue
        own = environment if system == "Weft" else plain
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "program.py")
            with open(program, "w", encoding="utf-8") as file:
                file.write(code)
            subprocess.run([python, program], env=own, check=True)
        cold = first(system, python, own, False)
        title = f"{system}: first compilation of a process"
        print(f"{title:52s} {cold:8.1f} ms")
        if system != "Warp":
            title = f"{system}: compilation, the compiler being loaded"
            print(f"{title:52s} {first(system, python, own, True):8.1f} ms")


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
    if not args.calls and not args.launches:
        processes(environment)
    if not args.launches:
        subprocess.run([sys.executable, "-c", REPLAY], env=environment, check=True)
    launches(environment)
