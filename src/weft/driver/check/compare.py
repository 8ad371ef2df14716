"""Compare a result with the reference under an error bound for each element."""

from __future__ import annotations

import numpy as np

from weft.driver.check.scalars import Array
from weft.ir import dtype as dt

__all__ = ["difference", "differing"]


def difference(got: Array, wanted: Array, error: Array) -> str | None:
    """Return what tells an array from what it should be, as text; None if nothing does.

    Parameters
    ----------
    got, wanted
        Arrays, which may differ in shape and dtype as well.
    error
        As for `differing`.
    """
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{got.shape} instead of {wanted.dtype}{wanted.shape}"
    error = np.broadcast_to(error, got.shape)
    off = differing(got, wanted, error)
    if not off.any():
        return None
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    return (f"{int(off.sum())} of {got.size} differ, first at {at}: {got[at]} instead of "
            f"{wanted[at]}, within {error[at]}")


def differing(got: Array, wanted: Array, error: Array) -> Array:
    """Return which elements are wrong.

    Parameters
    ----------
    got, wanted
        Arrays of one shape and dtype.
    error
        How far they may be apart: 0 compares bits (but takes every NaN for the same), infinity
        nothing.
    """
    assert got.dtype == wanted.dtype, (got.dtype, wanted.dtype)
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    word = np.dtype(f"u{got.dtype.itemsize}")
    bits = [np.ascontiguousarray(x).reshape(-1).view(word).reshape(x.shape) for x in (got, wanted)]
    unequal = np.asarray(bits[0] != bits[1])
    if not dt.as_dtype(got.dtype).is_float:
        return np.asarray(unequal & (error == 0))
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        off = unequal & ~(np.isnan(a) & np.isnan(b))
        return np.asarray(off & ((error == 0) | (error < np.inf) & ~(np.abs(a - b) <= error)))
