"""Kernels that never end: Ctrl-C ends them within a second, and the process goes on as before."""

import ast
import ctypes
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import build
from weft.compat import cuda
from weft.driver.context import host_context
from weft.ir.stmt import While
from weft.ir.traverse import walk
from weft.lang.source.termination import ends
from weft.runtimes.cpu import interrupts

PROGRAM = """
import os, signal, threading, time
import numpy as np
import weft
from weft import gpu
from weft.compat import cuda
from weft.runtimes.cpu import interrupts

{kernels}

def interrupt(sent):
    while not interrupts._watching.value:  # a kernel is in its loop, and not being compiled
        time.sleep(0.01)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

def interrupted(run, *args):
    sent = []
    try:
        threading.Thread(target=interrupt, args=(sent,), daemon=True).start()
        run(*args)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("not interrupted")
    assert time.monotonic() - sent[0] < {seconds}, time.monotonic() - sent[0]
    assert signal.getsignal(signal.SIGINT) is handler
    y = np.full(64, 8.0)
    ending[1, 64](y)
    assert (y == 1).all()
    assert (weft.arange(10) * 2).sum().item() == 90

@weft.kernel
def ending(x):
    i = gpu.grid(1)
    while x[i] > 1:
        x[i] *= 0.5

handler = signal.getsignal(signal.SIGINT)
{body}
print("well")
"""
SPIN = """
def spin(x):
    i = {grid}
    while x[i] >= 0:
        x[i] = x[i] * 0.5
"""
TRUE = """
@weft.kernel
def true(x):
    i = gpu.grid(1)
    while True:
        if x[i] < 0:
            break
        x[i] += 1
"""
NESTED = """
@weft.kernel
def nested(x):
    i = gpu.grid(1)
    total = 0.0
    for k in range(5):
        while total >= 0:
            for j in range(100):
                total += x[i]
    x[i] = total
"""
BARRIER = """
@weft.kernel
def barrier(x):
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    while s[0] >= 0:
        gpu.syncthreads()
        s[t] = s[63 - t] * 0.5
        gpu.syncthreads()
    x[t] = s[t]
"""
WAITING = """
@weft.kernel
def waiting(x):
    while gpu.atomic.add(x, 0, 0.0) >= 0:
        pass
"""
LOOPS = """
@weft.compute
def loops(x, y):
    for i in weft.ndrange(x.shape[0]):
        while x[i] >= 0:
            y[i] += x[i]
"""
BUILT = """
from weft import build
with build.function("built") as f:
    x = f.array("x", weft.float64, 1, writable=True)
    with f.{open} as i:
        with f.while_(lambda: x[i] >= 0):
            x[i] = x[i] * 0.5
built = f.program
"""
KERNEL, NUMBA = SPIN.format(grid="gpu.grid(1)"), SPIN.format(grid="cuda.grid(1)")
FORMS = {
    "one thread": (KERNEL, "interrupted(weft.kernel(spin)[1, 1], np.ones(64))"),
    "again, by native code": (KERNEL, "k = weft.kernel(spin)[1, 64]\\n"
                              "for _ in range(3): interrupted(k, np.ones(64))"),
    "all cores": (KERNEL, "interrupted(weft.kernel(spin)[4096, 64], np.ones(1 << 18))"),
    "the last block": (KERNEL, "x = -np.ones(1 << 18); x[-1] = 1\\n"
                       "interrupted(weft.kernel(spin)[4096, 64], x)"),
    "the first block": (KERNEL, "x = -np.ones(1 << 18); x[0] = 1\\n"
                        "interrupted(weft.kernel(spin)[4096, 64], x)"),
    "numba": (NUMBA, "interrupted(cuda.jit(spin)[1, 64], np.ones(64))"),
    "tensors": (KERNEL, "interrupted(weft.kernel(spin)[1, 64], weft.ones(64))"),
    "captured": (KERNEL, "k = weft.kernel(spin)\\n@weft.jit\\ndef f(x):\\n"
                 "    y = x + 1\\n    k[1, 64](y)\\n    return y\\n"
                 "for _ in range(3): f(weft.full((64,), -3.0)).numpy()\\n"
                 "import subprocess  # a plan may hold the GIL: no thread could send it\\n"
                 "subprocess.Popen(['sh', '-c', f'sleep 1; kill -INT {os.getpid()}'])\\n"
                 "try:\\n    f(weft.ones(64)).numpy()\\n    raise SystemExit('not interrupted')\\n"
                 "except KeyboardInterrupt:\\n    pass"),
    "always true": (TRUE, "interrupted(true[2, 32], np.ones(64))"),
    "loops around and inside": (NESTED, "interrupted(nested[1, 64], np.ones(64))"),
    "barriers": (BARRIER, "interrupted(barrier[1, 64], np.ones(64))"),
    "waits for another thread": (WAITING, "interrupted(waiting[1, 1], np.ones(1))"),
    "compute": (LOOPS, "for n in (64, 1 << 18, 64, 64):\\n"
                "    interrupted(loops, np.ones(n), np.ones(n))"),
    "compute on tensors": (LOOPS, "x = weft.ones(64)\\n"
                           "for _ in range(3): interrupted(loops, x, weft.ones(64))\\n"
                           "assert not weft.tensors.core.write_lock.writing.is_mine"),
    "built": (BUILT.format(open="loop(x.shape[0])"),
              "for _ in range(3): interrupted(built, np.ones(64))"),
    "built, all cores": (BUILT.format(open="parallel(x.shape[0])").replace("as i", "as (i,)"),
                         "interrupted(built, weft.ones(1 << 18, dtype=weft.float64))"),
    "a handler that raises nothing": (KERNEL, "met = []\\n"
                                      "handler = lambda *a: met.append(a)\\n"
                                      "signal.signal(signal.SIGINT, handler)\\n"
                                      "interrupted(weft.kernel(spin)[1, 64], np.ones(64))\\n"
                                      "assert len(met) == 1"),
    "another thread": (KERNEL, "def work():\\n    try: weft.kernel(spin)[1, 1](np.ones(1))\\n"
                       "    except KeyboardInterrupt: pass\\n"
                       "t = threading.Thread(target=work); t.start()\\n"
                       "interrupted(time.sleep, 60)\\nt.join(60); assert not t.is_alive()"),
    "several threads": (KERNEL, "def work():\\n    try: weft.kernel(spin)[1, 1](np.ones(1))\\n"
                        "    except KeyboardInterrupt: pass\\n"
                        "ts = [threading.Thread(target=work) for _ in range(3)]\\n"
                        "for t in ts: t.start()\\n"
                        "while interrupts._watching.value < 3: time.sleep(0.01)\\n"
                        "interrupted(time.sleep, 60)\\n"
                        "for t in ts: t.join(60)\\nassert not any(t.is_alive() for t in ts)"),
    "a forked child": (KERNEL, "k = weft.kernel(spin)[1, 64]\\ninterrupted(k, np.ones(64))\\n"
                       "pid = os.fork()\\nif not pid:\\n    interrupted(k, np.ones(64))\\n"
                       "    os._exit(7)\\nassert os.waitpid(pid, 0)[1] == 7 << 8"),
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("form", FORMS)
def test_an_interrupt_ends_it(form, tmp_path):
    kernels, body = FORMS[form]
    script = tmp_path / "script.py"  # kernels are read from a file
    script.write_text(PROGRAM.format(kernels=kernels, body=body.replace("\\n", "\n"), seconds=60))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                          check=False, timeout=120)  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "well"), done.stderr


class Launch:
    """What a launch does that asks for interrupts, step by step."""

    def __init__(self):
        self.record = (ctypes.c_int64 * 2)(interrupts._stop.value, 0)

    def asks(self):
        address = host_context().native.stops()["weft_turns"]
        return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)(self.record)

    def leaves(self):
        if self.record[1]:
            address = host_context().native.stops()["weft_turned"]
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(self.record)


@pytest.mark.requires("fork")  # on systems without it nobody stands before a handler
def test_launches_that_ask_at_the_same_time():
    """Every launch under way when an interrupt comes is left, whatever others do before it asks."""
    met = []
    usual = signal.signal(signal.SIGINT, lambda *_: met.append(len(met)))
    try:
        one, two, three, late = Launch(), Launch(), Launch(), Launch()
        assert not one.asks()
        assert not two.asks()
        three.leaves()  # it asked nothing: the others are still heard
        two.leaves()
        two = Launch()
        assert not two.asks()
        signal.raise_signal(signal.SIGINT)
        new = Launch()
        assert two.asks()
        two.leaves()
        assert not new.asks()
        new.leaves()
        assert one.asks()
        assert late.asks()
        one.leaves()
        signal.raise_signal(signal.SIGINT)
        assert interrupts._watching.value == 1
        late.leaves()
        assert interrupts._watching.value == 0
        count = interrupts._stop.value
        signal.raise_signal(signal.SIGINT)
        assert interrupts._stop.value == count
        assert met == [0, 1, 2]
    finally:
        signal.signal(signal.SIGINT, usual)


def test_ignored_interrupts_are_ignored(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM.format(seconds=5, kernels="", body="""
signal.signal(signal.SIGINT, signal.SIG_IGN)
@weft.kernel
def long(x):
    while x[0] < 3e7:
        x[0] += 1
x = np.zeros(1)
threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
long[1, 1](x)
assert x[0] == 3e7
"""))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                          check=False, timeout=120)  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "well"), done.stderr


ENDING = [
    "while i < x.size:\n    f(i)\n    i += gpu.gridsize(1)", "while step > 0:\n    step //= 2",
    "while step >= 1:\n    g(step)\n    step >>= 1", "while 0 < n:\n    n -= 1",
    "while i < n and x[i] > 0:\n    i += 1", "while k <= x.shape[0]:\n    k += 2",
    "while i < len(x):\n    i += gpu.blockDim.x * gpu.gridDim.x\n    if i: continue",
    "while m >= i:\n    i += 3",
]  # fmt: skip
ENDLESS = [
    "while True:\n    break", "while x[i] > 0:\n    x[i] -= 1", "while i < n:\n    i += k",
    "while i < n:\n    i += 1\n    n += 1", "while i < n:\n    if x[i]: continue\n    i += 1",
    "while i < n:\n    if x[i]:\n        i += 1", "while step >= 0:\n    step //= 2",
    "while step != 0:\n    step >>= 1", "while i < n:\n    i += 1\n    i -= 1",
    "while i < x[0]:\n    i += 1", "while i < n or k:\n    i += 1", "while i < n:\n    i += 0",
    "while step < n:\n    step *= 2", "while i < n:\n    i = i + k", "while i > n:\n    i += 1",
    "while i < f():\n    i += 1", "while n > 0:\n    n //= 1",
]  # fmt: skip


@pytest.mark.parametrize("known", [True, False])
def test_which_loops_are_known_to_end(known):
    for text in ENDING if known else ENDLESS:
        loop = ast.parse(text).body[0]
        assert ends(loop) is known, text


def test_loops_that_end_ask_nothing():
    """The loops of reductions and over grids have the code that they had."""
    @cuda.jit
    def sums(x, out):
        s = cuda.shared.array(64, np.float32)
        t, i = cuda.threadIdx.x, cuda.grid(1)
        s[t] = 0
        while i < x.size:
            s[t] += x[i]
            i += cuda.gridsize(1)
        cuda.syncthreads()
        step = 32
        while step > 0:
            if t < step:
                s[t] += s[t + step]
            cuda.syncthreads()
            step //= 2
        if t == 0:
            out[cuda.blockIdx.x] = s[0]

    @cuda.jit
    def turns(x, out):
        while x[0] > out[0]:
            out[0] += 1

    x, out = np.ones(1000, np.float32), np.zeros(1, np.float32)
    sums[1, 64](x, out)
    assert out[0] == 1000
    turns[1, 1](x, out)
    asked = [len(re.findall("call i64 @weft_turns", text)) for kernel in (sums, turns)
             for text in kernel.inspect_llvm().values()]  # fmt: skip
    assert asked == [0, 1]


def built_loop(condition, turn):
    """Return the loop of a program under a condition of i, n and x."""
    with build.function("f") as f:
        x = f.array("x", weft.int64, 1, writable=True)
        n = f.scalar("n", weft.int64)
        i = f.variable("i", weft.int64, 0)
        with f.while_(lambda: condition(f, i, n, x)):
            turn(f, i, x)
    return next(s for s in walk(f.program.launches[0].kernel.body) if isinstance(s, While))


def steps(by):
    def turn(f, i, x):
        i.set(i + by)

    return turn


def sometimes(f, i, x):
    with f.if_(x[0] > 0):
        i.set(i + 1)


def twice(f, i, x):
    i.set(i + 1)
    i.set(i - 1)


@pytest.mark.parametrize(("condition", "turn", "known"), [
    (lambda f, i, n, x: i < n, steps(2), True),
    (lambda f, i, n, x: n >= i, steps(1), True),
    (lambda f, i, n, x: i > -n, steps(-3), True),
    (lambda f, i, n, x: (i < 9) & (x[0] > 0), steps(1), True),
    (lambda f, i, n, x: i < x.shape[0], steps(1), True),
    (lambda f, i, n, x: i < x[0], steps(1), False),
    (lambda f, i, n, x: i < n, steps(-1), False),
    (lambda f, i, n, x: i < n, steps(0), False),
    (lambda f, i, n, x: i != n, steps(1), False),
    (lambda f, i, n, x: (i < n) | (x[0] > 0), steps(1), False),
    (lambda f, i, n, x: i < n, sometimes, False),
    (lambda f, i, n, x: i < n, twice, False),
    (lambda f, i, n, x: x[0] < n, steps(1), False),
])  # fmt: skip
def test_which_built_loops_are_known_to_end(condition, turn, known):
    assert built_loop(condition, turn).endless != known
