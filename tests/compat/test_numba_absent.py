"""Tuples, arrays and texts that may be None, in kernels for numba, against Python."""

from collections import namedtuple

import numpy as np
import pytest

import weft
from weft.compat import cuda
from weft.errors import KernelError

Hit = namedtuple("Hit", "place depth")


@cuda.jit(device=True)
def row_of(a, i):
    if i % 3 == 0:
        return None
    return a[i]


@cuda.jit(device=True)
def whole(a, b, i):
    if i % 3 == 0:
        return a
    if i % 3 == 1:
        return b
    return None


@cuda.jit(device=True)
def hit(a, i):
    if a[i, 0] > 4:
        return Hit(i, a[i, 0] * 0.5)
    return None


@cuda.jit(device=True)
def pair(a, i):
    if a[i, 0] > a[i, 1]:
        return a[i, 0], 1
    elif a[i, 0] < a[i, 1]:
        return a[i, 1], 2.5


def by_function(a, b, out, i):
    row = row_of(a, i)
    if row is not None:
        out[i, 0] = row[1]
        row[2] = -1
    both = whole(a, b, i)
    if both is None:
        out[i, 1] = -7
    else:
        out[i, 1] = both[i, 0] + both.shape[0]
    found = hit(a, i)
    if found is not None:
        out[i, 2] = found.place + found.depth
        place, depth = found
        out[i, 3] = place - depth
    two = pair(a, i)
    out[i, 4] = -1 if two is None else two[0] * two[1]


def by_branch(a, b, out, i):
    best = None
    for k in range(3):
        if a[i, k] > 2 and (best is None or a[i, k] > best[1]):
            best = (k, a[i, k])
    if best is not None:
        out[i, 0] = 10 * best[0] + best[1]
    held = None
    if i % 2:
        held = b
    if held is not None:
        out[i, 1] = held[i, 0]
        held[i, 1] = 8
    last = (1, 2.0)
    k = 0
    while k < 3:
        if a[i, k] == 0:
            last = None
        k += 1
    out[i, 2] = 3 if last is None else last[1]
    either = (a[i, 0], i) if i % 3 else None
    if either:
        out[i, 3] = either[0] + either[1]


@pytest.mark.parametrize("body", [by_function, by_branch], ids=lambda f: f.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_like_python(body, seed):
    @cuda.jit
    def kernel(a, b, out):
        i = cuda.grid(1)
        if i < a.shape[0]:
            body(a, b, out, i)

    rng = np.random.default_rng(seed)
    given = [rng.integers(0, 9, (20, 3)).astype(np.float64) for _ in range(2)]
    want = [*(x.copy() for x in given), np.zeros((20, 5))]
    for i in range(20):
        body(*want, i)
    for run in (kernel[2, 16], weft.interpret(kernel, 2, 16)):
        found = [*(x.copy() for x in given), np.zeros((20, 5))]
        run(*found)
        for x, y in zip(found, want, strict=True):
            np.testing.assert_array_equal(x, y)


@cuda.jit(device=True)
def named(names, i):
    if names[i] == "":
        return None
    return names[i]


def test_texts_and_none():
    @cuda.jit
    def kernel(names, out):
        i = cuda.grid(1)
        if i < names.size:
            name = named(names, i)
            out[i] = "nobody" if name is None else name

    names = np.array(["ab", "", "abc", ""])
    out = np.zeros(4, "U6")
    kernel[1, 4](names, out)
    assert out.tolist() == ["ab", "nobody", "abc", "nobody"]


def test_use_of_what_is_none_stops_the_kernel():
    @cuda.jit
    def kernel(a, out):
        row = row_of(a, a.shape[0] - 4)
        out[0] = row[0]

    out = np.zeros(1)
    kernel[1, 1](np.arange(15.0).reshape(5, 3), out)
    assert out[0] == 3
    with pytest.raises(TypeError, match="expected a value, got None"):
        kernel[1, 1](np.arange(21.0).reshape(7, 3), out)


def test_tuples_of_unlike_lengths_and_none_are_an_error():
    @cuda.jit(device=True)
    def unlike(i):
        if i > 2:
            return 1, 2
        if i > 1:
            return 1, 2, 3
        return None

    @cuda.jit
    def kernel(out):
        x = unlike(out[0])
        if x is not None:
            out[0] = x[0]

    with pytest.raises(KernelError):
        kernel[1, 1](np.zeros(1))
