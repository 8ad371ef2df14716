"""Divisions of the least integers by -1: they wrap, in kernels as for tensors and NumPy."""

import operator

import numpy as np
import pytest

import weft
from weft import gpu

LEAST = -(1 << 63)
SIGNED = [np.int8, np.int16, np.int32, np.int64]


@weft.kernel
def divided(a, b, quotient, rest, pair, functions, updated):
    i = gpu.grid(1)
    if i < a.size:
        quotient[i] = a[i] // b[i]
        rest[i] = a[i] % b[i]
        pair[0, i], pair[1, i] = divmod(a[i], b[i])
        functions[0, i] = np.floor_divide(a[i], b[i])
        functions[1, i] = np.remainder(a[i], b[i])
        functions[2, i] = operator.floordiv(a[i], b[i])
        updated[i] //= b[i]


@weft.kernel
def divided_by_what_is_known(a, out):
    i = gpu.grid(1)
    if i < a.size:
        out[0, i] = a[i] // -1
        out[1, i] = a[i] % -1
        out[2, i] = LEAST // a[i]


def run_everywhere(kernel, count, *arrays):
    """Yield arrays after compiled code and the interpreter of all threads ran on copies."""
    blocks = (count + 31) // 32
    for run in (kernel[blocks, 32], weft.interpret(kernel, blocks, 32)):
        given = [a.copy() for a in arrays]
        run(*given)
        yield given


def about_the_ends(rng, kind, count=96):
    """Draw numbers of which most are at an end of the type, -1, 0 or near."""
    ends = np.iinfo(kind)
    special = np.array([ends.min, ends.min + 1, -2, -1, 0, 1, 2, ends.max], kind)
    drawn = rng.integers(ends.min, ends.max, count, dtype=kind, endpoint=True)
    return np.where(rng.random(count) < 0.8, rng.choice(special, count), drawn)


@pytest.mark.parametrize("kind", SIGNED)
def test_least_by_minus_one(kind, rng):
    a, b = about_the_ends(rng, kind), about_the_ends(rng, kind)
    a[:2], b[:2] = np.iinfo(kind).min, -1
    x, y = a.astype(np.int64), b.astype(np.int64)
    with np.errstate(all="ignore"):  # NumPy's own: by zero 0, the least by -1 itself
        quotient, rest, updated = x // y, x % y, a // b
    assert quotient[0] == (np.iinfo(kind).min if kind is np.int64 else -int(np.iinfo(kind).min))
    wide = np.zeros(len(a), np.int64)
    many = np.zeros((3, len(a)), np.int64)
    arrays = a, b, wide, wide, many[:2], many, a
    for found in run_everywhere(divided, len(a), *arrays):
        for out in (found[2], found[4][0], found[5][0], found[5][2]):
            np.testing.assert_array_equal(out, quotient)
        for out in (found[3], found[4][1], found[5][1]):
            np.testing.assert_array_equal(out, rest)
        np.testing.assert_array_equal(found[6], updated)


@pytest.mark.parametrize("kind", SIGNED)
def test_least_by_constants(kind, rng):
    a = about_the_ends(rng, kind)
    x = a.astype(np.int64)
    with np.errstate(all="ignore"):
        wanted = [x // -1, x % -1, np.int64(np.iinfo(np.int64).min) // x]
    for found in run_everywhere(divided_by_what_is_known, len(a), a, np.zeros((3, len(a)), int)):
        np.testing.assert_array_equal(found[1], wanted)


@pytest.mark.parametrize("kind", SIGNED)
def test_tensors_agree(kind, rng):
    a, b = about_the_ends(rng, kind), about_the_ends(rng, kind)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal((weft.tensor(a) // weft.tensor(b)).numpy(), a // b)
        np.testing.assert_array_equal((weft.tensor(a) % weft.tensor(b)).numpy(), a % b)
