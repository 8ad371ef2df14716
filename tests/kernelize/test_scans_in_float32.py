"""Scans of float32 for targets without float64: legal there, and as exact as the tests want."""

import numpy as np
import pytest
from test_fuse import random_array

from graphs import leaf
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir.interpret.interpret import run
from weft.ir.traverse import walk
from weft.kernelize.build import kernelize
from weft.passes.legalize import legalize
from weft.target import SIMT, Target, native_operations

TARGET = Target("narrow", "narrow", style=SIMT, vector_bytes=4,
                operations=native_operations((dt.float32,)))


def scanned(kind, shape, rng, axis, values=None):
    """Return the running values that the legalized kernel leaves, and the elements."""
    x = leaf(*shape)
    step, = kernelize([infer.scan(x, kind, axis, False)], TARGET)
    legal = legalize(step.kernel, TARGET)
    roots = [e for s in walk(legal.body) for e in s.exprs()]
    assert all(e.dtype is not dt.float64 for e in ex.toposort(roots))
    given = random_array(x, rng) if values is None else values.ravel()
    out = np.zeros(given.size, np.float32)
    run(legal, [given, out])
    return out.reshape(shape), given.reshape(shape)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "logsumexp"])
@pytest.mark.parametrize("axis", [0, 1])
def test_kinds_are_legal_and_right(rng, kind, axis):
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
             "logsumexp": np.logaddexp}[kind]
    found, given = scanned(kind, (9, 37), rng, axis)
    wanted = ufunc.accumulate(given.astype(np.float64), axis)
    np.testing.assert_allclose(found, wanted, 4e-6, 1e-6)


def test_long_sums_lose_no_more_than_their_last_rounding(rng):
    given = rng.random((1, 3000), np.float32)
    found, given = scanned("sum", (1, 3000), rng, 1, given)
    wanted = np.cumsum(given.astype(np.float64), 1)
    assert np.max(np.abs(found - wanted) / np.spacing(wanted.astype(np.float32))) <= 0.51


def test_infinite_sums_stay_infinite(rng):
    given = np.array([[1, np.inf, 2, 3.4e38, 3.4e38, -np.inf, 1]], np.float32)
    found, _ = scanned("sum", given.shape, rng, 1, given)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, np.cumsum(given, 1))
