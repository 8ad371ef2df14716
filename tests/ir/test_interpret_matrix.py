"""Products of matrices of words are what the scalar operations give, element by element."""

import math
import struct

import numpy as np
import pytest

from weft.ir import dtype as dt
from weft.ir.interpret.interpret_matrix import matrix2, matrix4
from weft.ir.interpret.interpret_scalar import function
from weft.ir.interpret.interpret_value import from_bits
from weft.ir.op import Op

MAD = function(Op.MAD, dt.float32, dt.float32)
ADD = function(Op.ADD, dt.float32, dt.float32)
# The exponents of the halves of words: of all floats, of ordinary ones, and of those whose
# products are about as small as the smallest normal float32.
EXPONENTS = {"all": (0, 256), "ordinary": (118, 135), "small": (58, 72)}


def flushed(x):
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


def half(word, shift):
    return flushed(from_bits(word >> shift & 0xFFFF, dt.bfloat16))


def pairs(total, row, column):
    """One element of the product of bfloat16, by scalar operations."""
    sums = []
    for shift in (0, 16):
        s = 0.0
        for a, b in zip(row, column, strict=True):
            s = flushed(MAD(half(a, shift), half(b, shift), s))
        sums.append(s)
    return flushed(ADD(flushed(total), flushed(ADD(*sums))))


def bits(values):
    """NaN are equal, whatever their signs and payloads."""
    return [struct.pack("<d", x) if x == x else None for x in values]


def words(rng, low, high):
    exponents = rng.integers(low, high, (2, 256)) << 7
    halves = exponents | rng.integers(0, 2, (2, 256)) << 15 | rng.integers(0, 128, (2, 256))
    return [int(x) for x in halves[0] | halves[1] << 16]


@pytest.mark.parametrize("kind", EXPONENTS)
def test_pairs_of_bfloat16(kind, rng):
    a, b = (words(rng, *EXPONENTS[kind]) for _ in range(2))
    scale = {"all": 1e30, "ordinary": 1.0, "small": 2.0**-125}[kind]
    total = [float(x) for x in (rng.standard_normal(256) * scale).astype(np.float32)]
    total[:4] = 0.0, -0.0, math.inf, math.nan
    found = matrix2(total, a, b)
    for at in (*range(4), *rng.choice(256, 40, replace=False)):
        i, j = divmod(int(at), 16)
        wanted = pairs(total[at], a[16 * i : 16 * i + 16], b[j::16])
        assert bits([found[at]]) == bits([wanted]), (i, j)


@pytest.mark.parametrize(("op", "dot"), [(Op.MATRIX4, Op.DOT4), (Op.MATRIX4S, Op.DOT4S)])
def test_four_bytes(op, dot, rng):
    a, b = ([int(x) for x in rng.integers(0, 1 << 32, 256)] for _ in range(2))
    total = [int(x) for x in rng.integers(-(1 << 31), 1 << 31, 256)]
    found = matrix4(op, total, a, b)
    one = function(dot, dt.uint32, dt.int32)
    for at in range(256):
        i, j = divmod(at, 16)
        s = total[at]
        for q in range(16):
            s = one(s, a[16 * i + q], b[16 * q + j])
        assert found[at] == s, (i, j)
