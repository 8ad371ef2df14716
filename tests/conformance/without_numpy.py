"""Run a broad program while NumPy, SciPy and BLAS cannot compute; print ``ok`` at the end.

A program of its own: `test_without_numpy.py` runs it in a fresh process. Inside `closed` blocks

* the name ``np`` of every Weft module, and ``import numpy``, give a stand-in that raises;
* arrays that Weft holds as memory are of a class whose ufuncs and functions raise;
* a profiler raises where a function of NumPy, or a method of an array, is called from C or Python;
* the code of BLAS, which NumPy loads with itself, is overwritten with a trap (on Linux).
"""

import ctypes
import os
import platform
import re
import signal
import sys
from contextlib import contextmanager

import numpy as np

import weft
from weft import nn, optim

REAL = sys.modules["numpy"]
# How data enter and leave; like the names of types, these compute nothing.
ENTRANCES = {"array", "asarray", "ascontiguousarray", "frombuffer", "empty", "copyto"}
VIEWS = {"reshape", "view", "tolist", "item", "flatten"}


class Computed(BaseException):
    """Raised where NumPy would have computed; no handler of `Exception` hides it."""


class Closed:
    """Stands for the module numpy."""

    def __getattr__(self, name):
        if name in ENTRANCES or isinstance(getattr(REAL, name, None), type):
            return getattr(REAL, name)
        raise Computed(f"numpy.{name} was asked for")


class Memory(np.ndarray):
    """An array to be memory and no more."""

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        raise Computed(f"ufunc {ufunc.__name__}")

    def __array_function__(self, function, *args, **kwargs):
        raise Computed(f"function {function.__name__}")


def watch(frame, event, argument):
    if event == "c_call":
        owner = getattr(argument, "__self__", None)
        module = getattr(argument, "__module__", None) or getattr(owner, "__name__", "")
        if argument.__name__ in (VIEWS if isinstance(owner, REAL.ndarray) else ENTRANCES):
            return
        if isinstance(owner, REAL.ndarray):
            raise Computed(f"ndarray.{argument.__name__}")
        if isinstance(owner, REAL.ufunc):
            raise Computed(f"{owner.__name__}.{argument.__name__}")
    else:
        module = frame.f_globals.get("__name__", "") if event == "call" else ""
        argument = frame.f_code.co_name
        if argument in ENTRANCES:
            return
    if str(module).partition(".")[0] in ("numpy", "scipy"):
        raise Computed(f"{module}: {argument}")


@contextmanager
def closed():
    """Let nothing of NumPy be used inside the block."""
    shut, changed = Closed(), []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "weft":
            for key, value in list(vars(module).items()):
                if value is REAL:
                    changed.append((module, key))
                    setattr(module, key, shut)
    hidden = {n: m for n, m in sys.modules.items() if n.partition(".")[0] in ("numpy", "scipy")}
    sys.modules.update(dict.fromkeys(hidden, shut))
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        sys.modules.update(hidden)
        for module, key in changed:
            setattr(module, key, REAL)


def trap_blas():
    """Overwrite the entries of BLAS with a trap; return how many."""
    trap = {"x86_64": b"\xcc", "aarch64": b"\x00\x00\x20\xd4"}.get(platform.machine())
    if trap is None or not os.path.exists("/proc/self/maps"):
        return 0
    with open("/proc/self/maps") as file:
        files = sorted({line.split()[-1] for line in file if re.search(r"blas|mkl|lapack", line)})
    libc = ctypes.CDLL(None)
    page, count = os.sysconf("SC_PAGESIZE"), 0
    for path in files:
        library = ctypes.CDLL(path)
        names = [f"{before}{letter}{kind}{after}" for before in ("scipy_cblas_", "cblas_", "")
                 for letter in "sd" for kind in ("gemm", "gemv", "dot", "axpy")
                 for after in ("64_", "", "_")]  # fmt: skip
        for name in names:
            if not hasattr(library, name):
                continue
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            start = address - address % page
            size = address + len(trap) - start
            if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), 7) == 0:
                ctypes.memmove(address, trap, len(trap))
                libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), 5)
                count += 1
    return count


def blas_is_dead():
    """Whether a product in NumPy now ends the process (tried in a child)."""
    child = os.fork()
    if not child:
        a = np.ones((64, 64))
        np.dot(a, a)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGTRAP, signal.SIGILL)


def check_the_guards():
    """Each guard must see what it is there for."""
    memory, plain, add, eye = np.ones(4).view(Memory), np.eye(2), np.add, np.eye
    weft.np = REAL
    attempts = {
        "name": lambda: weft.np.add, "import": lambda: __import__("numpy").dot,
        "operator": lambda: memory + 1, "product": lambda: memory @ memory,
        "method": lambda: plain.sum(), "python": lambda: eye(2), "ufunc": lambda: add.reduce(plain),
    }  # fmt: skip
    for name, attempt in attempts.items():
        try:
            with closed():
                attempt()
        except Computed:
            continue
        raise SystemExit(f"the guard of {name} saw nothing")
    del weft.np


def held(*shape, seed=0):
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return weft.from_numpy(array.view(Memory)), array


def inference():
    x, array = held(37, 53)
    w, weights = held(53, 29, seed=1)
    picture, pixels = held(2, 3, 9, 8, seed=2)
    kernel, taps = held(4, 3, 3, 3, seed=3)
    order = weft.tensor([3, 1, 36])  # data enter and leave by NumPy's arrays
    with closed():
        product = (x @ w + 1).relu().realize()
        soft = x.softmax(-1).realize()
        normed = x.layer_norm((53,)).realize()
        values, places = x.sort(1)
        values.realize()
        places.realize()
        sums = (x.sum(0), x.cumsum(1), x.argmax(1), x.var(), x.logsumexp(0))
        seen = picture.conv2d(kernel, padding=1).max_pool2d(2)
        picked = x[order]
        joined = weft.cat([x.flip(0), x.roll(2, 1)], 1)[::3, 1:]
        half = (x.half() * 3).float().pow(2).sqrt()
        whole = (x * 10).int() // 3
        rest = (*sums, seen, picked, joined, half, whole, x.std(1), x > 0, x.topk(3)[0])
        weft.realize(*rest)
    np.testing.assert_allclose(product.numpy(), np.maximum(array @ weights + 1, 0), 1e-4, 1e-4)
    np.testing.assert_allclose(soft.numpy().sum(1), 1, 1e-5)
    np.testing.assert_allclose(normed.numpy().mean(1), 0, atol=1e-5)
    np.testing.assert_array_equal(values.numpy(), np.sort(array, 1))
    np.testing.assert_allclose(sums[0].numpy(), array.sum(0), 1e-4, 1e-4)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(pixels, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    plain = np.einsum("bchwij,ocij->bohw", windows, taps)
    pooled = plain[:, :, :8, :8].reshape(2, 4, 4, 2, 4, 2).max((3, 5))
    np.testing.assert_allclose(seen.numpy(), pooled, 1e-4, 1e-4)


def random_numbers():
    with closed():
        weft.manual_seed(3)
        a, b = weft.rand(1000).realize(), weft.randn(1001).realize()
        order = weft.randperm(50).realize()
    assert 0.4 < a.numpy().mean() < 0.6
    assert abs(b.numpy().mean()) < 0.2
    assert sorted(order.tolist()) == list(range(50))


def replay():
    @weft.jit
    def function(x, w):
        return ((x @ w).tanh().softmax(-1), x.sum(0))

    x, array = held(17, 23)
    w, weights = held(23, 11, seed=1)
    for _ in range(3):
        function(x, w)
    with closed():
        out, total = function(x, w)
        out.realize()
    expected = np.exp(np.tanh(array @ weights))
    np.testing.assert_allclose(out.numpy(), expected / expected.sum(1, keepdims=True), 1e-4, 1e-5)
    np.testing.assert_allclose(total.numpy(), array.sum(0), 1e-4, 1e-4)


def training():
    weft.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    x, _ = held(8, 1, 8, 8)
    target = weft.tensor([0, 1, 2, 0, 1, 2, 0, 1])

    def step(x):
        optimizer.zero_grad()
        loss = model(x).cross_entropy(target)
        loss.backward()
        optimizer.step()
        return loss

    fast = weft.jit(step)
    losses = []
    with closed():
        losses += [step(x).realize() for _ in range(2)]
    for _ in range(3):
        losses.append(fast(x))
    with closed():
        for _ in range(3):
            losses.append(fast(x).realize())
    values = [loss.item() for loss in losses]
    assert values[-1] < values[0], values


def main():
    check_the_guards()
    references = [inference, random_numbers, replay, training]
    for program in references:
        program()
    count = trap_blas()
    if count:
        assert blas_is_dead()
        x, _ = held(65, 65)
        with closed():
            (x @ x + x[0]).realize()
            (x.mv(x[0]) if hasattr(x, "mv") else x @ x[0]).realize()
            x[0].dot(x[1]).realize()
    assert "scipy" not in sys.modules
    print(f"ok, {count} entries of BLAS trapped")


if __name__ == "__main__":
    main()
