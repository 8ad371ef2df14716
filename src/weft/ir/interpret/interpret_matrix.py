"""The meaning of products of 16 x 16 matrices of words, for all their elements at once.

A word is two bfloat16 or four bytes. Each element of a result is what the scalar operations of
`weft.ir.interpret.interpret_scalar` would give: a product is made of thousands of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.imports import Late
from weft.ir.op import Op, Operation

if TYPE_CHECKING:
    import numpy as np
else:
    np = Late("numpy")

SIDE: Final = 16
_SMALLEST: Final = 2.0**-126  # the least normal float32: what is below counts as zero
Array = Any  # of NumPy


def matrix2(total: Sequence[float], a: Sequence[int], b: Sequence[int]) -> tuple[float, ...]:
    """Return a product of matrices of bfloat16 pairs, added to `total`.

    The first elements of all pairs are summed one after the other, then the second ones, each
    step rounded once to float32; subnormal operands and results are zeros.
    """
    left, right = _words(a), _words(b)
    with np.errstate(all="ignore"):
        sums = []
        for shift in (0, 16):
            x, y = (_flushed(_bfloat16(w >> shift & 0xFFFF)) for w in (left, right))
            s = np.zeros((SIDE, SIDE))
            for q in range(SIDE):
                s = _flushed(_float32(_mad(x[:, q, None], y[q], s)))
            sums.append(s)
        both = _flushed(_float32(sums[0] + sums[1]))
        start = np.array(total, np.float64).reshape(SIDE, SIDE)
        found = _flushed(_float32(_flushed(start) + both))
    return tuple(found.reshape(-1).tolist())


def matrix4(op: Operation, total: Sequence[int], a: Sequence[int],
            b: Sequence[int]) -> tuple[int, ...]:
    """Return a product of matrices of four bytes a word, added to `total`."""
    left, right = _words(a), _words(b)
    found = np.array(total, np.int64).reshape(SIDE, SIDE)
    first = np.uint8 if op is Op.MATRIX4 else np.int8
    for shift in (0, 8, 16, 24):
        x = (left >> shift & 0xFF).astype(first).astype(np.int64)
        y = (right >> shift & 0xFF).astype(np.int8).astype(np.int64)
        found = found + x @ y
    return tuple(found.astype(np.int32).reshape(-1).tolist())


def _words(values: Sequence[int]) -> Array:
    return np.array(values, np.uint32).reshape(SIDE, SIDE)


def _bfloat16(bits: Array) -> Array:
    return (bits << 16).astype(np.uint32).view(np.float32).astype(np.float64)


def _float32(x: Array) -> Array:
    return x.astype(np.float32).astype(np.float64)


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < _SMALLEST, np.copysign(0.0, x), x)


def _mad(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z rounded to odd: a float64 that no narrower rounding can take for a tie."""
    product = x * y  # exact
    total = product + z
    part = total - product
    error = (product - (total - part)) + (z - part)
    bits = total.view(np.int64)
    between = np.isfinite(total) & (total != 0) & (error != 0) & (bits & 1 == 0)
    away = (error > 0) == (total > 0)
    return np.where(between, bits + np.where(away, 1, -1), bits).view(np.float64)
