"""Taps that lie outside of a picture for all positions are left out."""

import numpy as np
import pytest

import weft
from seeds import seeds
from weft.graph.simplify import simplify
from weft.ir.stmt import Reduce
from weft.ir.traverse import walk
from weft.kernelize.build import kernelize


def convolution(x, w, stride, padding, dilation):
    """The sums in float64, tap by tap."""
    x = np.pad(x.astype(np.float64), [(0, 0)] * 2 + [(padding, padding)] * (x.ndim - 2))
    sides = [(n - (k - 1) * dilation - 1) // stride + 1
             for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    out = np.zeros((len(x), len(w), *sides))
    for tap in np.ndindex(*w.shape[2:]):
        place = [slice(t * dilation, t * dilation + stride * (n - 1) + 1, stride)
                 for t, n in zip(tap, sides, strict=True)]
        out += np.einsum("nc...,oc->no...", x[(..., *place)], w[(..., *tap)].astype(np.float64))
    return out


def points_of(node):
    """Return the points of all sums of a graph."""
    reduces = [s for step in kernelize(simplify([node])) for s in walk(step.kernel.body)
               if isinstance(s, Reduce)]
    return [[int(a.extent.attr) for a in s.axes] for s in reduces]


@pytest.mark.grid
@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize(("shape", "weight", "stride", "padding", "dilation", "points"), [
    ((2, 6, 3, 11, 13), (20, 6, 3, 3, 3), 1, 1, 2, 6 * 3 * 3),  # one plane of three
    ((2, 5, 1, 9, 20), (7, 5, 3, 3, 3), 1, 1, 1, 5 * 3 * 3),
    ((1, 4, 2, 21), (3, 4, 7, 3), 1, 3, 1, 4 * 3 * 3),  # the first taps and the last
    ((3, 4, 2, 15), (17, 4, 5, 3), 2, 2, 1, 4 * 2 * 3),  # of one position
    ((1, 4, 12, 21), (3, 4, 7, 3), 1, 3, 1, 4 * 7 * 3),  # all are inside of some position
])
def test_taps_of_convolutions(shape, weight, stride, padding, dilation, points, seed):
    rng = np.random.default_rng(seed)
    x, w = (rng.integers(-4, 5, s).astype(np.float32) for s in (shape, weight))

    def made(x, w):
        return getattr(x, f"conv{len(shape) - 2}d")(
            w, stride=stride, padding=padding, dilation=dilation)

    a, b = weft.from_numpy(x), weft.from_numpy(w)
    (axes,) = points_of(made(a, b)._read())
    assert np.prod(axes) == points
    assert np.array_equal(weft.jit(made)(a, b).numpy(),
                          convolution(x, w, stride, padding, dilation))


@pytest.mark.parametrize("seed", seeds(2))
def test_zeros_of_a_product_meet_its_infinities(seed):
    rng = np.random.default_rng(seed)
    x, w = (rng.integers(1, 5, s).astype(np.float32) for s in ((20, 6), (8, 17)))
    w[0, 3] = np.inf
    found = weft.jit(lambda x, w: x.pad((1, 1)) @ w)(weft.from_numpy(x), weft.from_numpy(w)).numpy()
    with np.errstate(invalid="ignore"):
        wanted = np.pad(x, ((0, 0), (1, 1))) @ w
    assert np.isnan(found[:, 3]).all()
    assert np.array_equal(found, wanted, equal_nan=True)
