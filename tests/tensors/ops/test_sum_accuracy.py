"""Sums and variances of rows: how many roundings follow one another."""

import numpy as np
import pytest

import weft


@pytest.mark.parametrize("scale", [1e-3, 1, 1e3])
@pytest.mark.parametrize(("shape", "axis"), [((50, 100), 1), ((60, 1300), 1), ((700, 30), 0)])
def test_variances_are_rounded_once(rng, compiled, shape, axis, scale):
    x = ((rng.standard_normal(shape) + rng.uniform(-9, 9)) * scale).astype(np.float32)
    want = x.astype(np.float64).var(axis, ddof=1)
    ulp = np.exp2(np.frexp(want)[1] - 24.0)
    assert (np.abs(weft.from_numpy(x).var(axis).numpy() - want) / ulp).max() < 0.51


@pytest.mark.grid
@pytest.mark.parametrize(("n", "limit"), [(150, 8.0e-8), (200, 8.6e-8), (1500, 1.08e-7),
                                          (2000, 1.15e-7)])
def test_sums_of_rows_have_short_chains(rng, compiled, n, limit):
    """At most 20 terms follow one another in a lane, whatever is left of vectors and blocks."""
    x = rng.standard_normal((6_000_000 // n, n)).astype(np.float32)
    want = x.sum(1, dtype=np.float64)
    error = weft.from_numpy(x).sum(1).numpy() - want
    assert np.sqrt(np.mean(error**2) / np.mean(want**2)) < limit
