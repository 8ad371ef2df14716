"""Parameters that share memory: what a thread wrote through one, it reads through the other.

Where threads touch only elements that no other thread touches, or a barrier lies between, the
order within each thread is all that counts, and overlapping parameters have no say in it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft.compat import cuda

N = 203


def chained(x, y, n):
    if cuda.grid(1) == 0:
        for i in range(n):
            x[i] = y[i] + 1


def folded(x, y, n):
    if cuda.grid(1) == 0:
        for i in range(n):
            x[i] = y[i] - x[i]


def backwards(x, y, n):
    if cuda.grid(1) == 0:
        for i in range(n - 1, -1, -1):
            x[i] = y[i] + 1


def summed(x, y, n):
    if cuda.grid(1) == 0:
        x[n // 2] = 0
        for i in range(n):
            x[n // 2] += y[i]


ONE_THREAD = {
    "behind": lambda a: (a[1:], a[:-1]), "ahead": lambda a: (a[:-1], a[1:]),
    "same": lambda a: (a, a), "far": lambda a: (a[17:], a[:-17]),
    "reversed": lambda a: (a[::-1], a), "strided": lambda a: (a[1::2], a[:-1:2]),
}


def read_again(x, y, n):
    t = cuda.grid(1)
    if t < n:
        v = y[t]
        x[t] = v * 2
        w = y[t]
        x[t] = w + v


def exchanged(x, y, n):
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * 32
    v = y[i + t] if i + t < n else 0
    cuda.syncthreads()
    if i + t < n and t < 31:
        x[i + t] = v + 1


OWN = {
    "same": lambda a: (a, a), "halves": lambda a: (a[:100], a[100:200]),
    "turns": lambda a: (a[::2], a[1::2]), "reversed": lambda a: (a[::-1], a[::-1]),
}
OF_A_BLOCK = {"behind": lambda a: (a[1:], a[:-1]), **OWN}


def of_rows(x, y, n):
    t = cuda.grid(1)
    if t < x.shape[0]:
        for j in range(n):
            x[t, j] = x[t, j] + y[t, j]


def of_sums(x, y, n):
    t = cuda.grid(1)
    if t < x.shape[0]:
        s = 0
        for j in range(n):
            x[t, 0] = x[t, 0] + y[t, 0]
            s += y[t, j]
            x[t, j] = s


ROWS = {
    "behind": lambda a: (a.reshape(7, 29)[:, 1:], a.reshape(7, 29)[:, :-1]),
    "ahead": lambda a: (a.reshape(7, 29)[:, :-5], a.reshape(7, 29)[:, 5:]),
    "same": lambda a: (a.reshape(7, 29), a.reshape(7, 29)),
    "reversed": lambda a: (a.reshape(7, 29)[:, ::-1], a.reshape(7, 29)),
}


def in_turn(function: Callable[..., None], blocks: int, width: int, *args: Any) -> None:
    """Run a kernel in Python, thread by thread; of exchanges each block reads before it writes."""
    places = {"grid": lambda axes: at[0] * width + at[1]}
    if function is exchanged:
        x, y, n = args
        for b in range(blocks):
            read = [y[i] for i in range(b * 32, min(b * 32 + 32, n))]
            for t, v in enumerate(read[:31]):
                x[b * 32 + t] = v + 1
        return
    fake = type("Fake", (), {name: staticmethod(f) for name, f in places.items()})
    plain = type(function)(function.__code__, {**function.__globals__, "cuda": fake})
    for b in range(blocks):
        for t in range(width):
            at = b, t
            plain(*args)


CASES = [
    *((f, name, view) for f in (chained, folded, backwards, summed)
      for name, view in ONE_THREAD.items()),
    *((read_again, name, view) for name, view in OWN.items()),
    *((exchanged, name, view) for name, view in OF_A_BLOCK.items()),
    *((f, name, view) for f in (of_rows, of_sums) for name, view in ROWS.items()),
]


@pytest.mark.grid
@pytest.mark.parametrize(("function", "name", "view"), CASES,
                         ids=[f"{f.__name__}-{name}" for f, name, _ in CASES])
def test_parameters_that_overlap(function: Any, name: str, view: Any) -> None:
    numbers = np.random.default_rng([len(name), N]).integers(-4, 5, N).astype(float)
    expected = numbers.copy()
    kernel = cuda.jit(function)
    for a, run in ((numbers, kernel[7, 32]), (expected, lambda *args: in_turn(
        function, 7, 32, *args))):
        x, y = view(a)
        n = min(x.shape[-1], y.shape[-1])
        run(x, y, n)
        run(y, x, n)  # launches in turn see what those before wrote
    np.testing.assert_array_equal(numbers, expected)
