"""Convolutions with few channels of results and short rows: rows of the image as one strip."""

import numpy as np
import pytest

import weft
from seeds import seeds
from weft.driver import counters
from weft.driver.context import host_context

pytestmark = pytest.mark.usefixtures("compiled")


def wanted(x, w, stride, padding, dilation, groups):
    """Return a convolution in float64, tap by tap."""
    sides = x.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0)] * 2 + [(padding, padding)] * sides)
    out = [(m - dilation * (w.shape[-1] - 1) - 1) // stride + 1 for m in x.shape[2:]]
    x = x.reshape(len(x), groups, -1, *x.shape[2:])
    w = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    total = np.zeros((len(x), groups, w.shape[1], *out))
    for tap in np.ndindex(*w.shape[3:]):
        at = [slice(t * dilation, t * dilation + (m - 1) * stride + 1, stride)
              for t, m in zip(tap, out, strict=True)]
        total += np.einsum("ngc...,goc->ngo...", x[(..., *at)], w[(..., *tap)])
    return total.reshape(len(x), -1, *out)


def convolve(x, w, bias, **options):
    """Return a convolution, and the forms that its kernels took."""
    with counters.record() as recording:
        made = weft.jit(lambda a, b, c: getattr(a, f"conv{x.ndim - 2}d")(b, c, **options).relu())(
            *map(weft.from_numpy, (x, w, bias)))
    return made.numpy(), [dict(b.scheduled.meta.hints).get("form") for b in recording.built]


# Images, channels, sides, results, taps, stride, padding, dilation, groups.
SHAPES = [
    (2, 37, (8, 6, 5), 6, 3, 1, 1, 1, 1), (3, 5, (6, 4, 17), 5, 7, 1, 3, 1, 1),
    (2, 130, (9, 20, 4), 4, 3, 1, 1, 2, 1), (1, 400, (40, 9), 3, 3, 1, 1, 1, 1),
    (3, 7, (7, 11, 9), 3, 5, 2, 2, 2, 1), (1, 5, (13, 7), 7, 5, 1, 4, 1, 1),
    (2, 16, (26, 9), 1, 3, 1, 0, 1, 1), (2, 64, (11, 7), 6, 3, 1, 1, 1, 2),
]


@pytest.mark.grid
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_short_rows(shape, seed):
    images, channels, sides, results, taps, stride, padding, dilation, groups = shape
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((images, channels, *sides), np.float32)
    w = rng.standard_normal((results, channels // groups, *[taps] * len(sides)), np.float32)
    bias = rng.standard_normal(results, np.float32)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    found, forms = convolve(x, w, bias, **options)
    want = np.maximum(wanted(x, w, **options) + bias.reshape(-1, *[1] * len(sides)), 0)
    assert "short_rows" in forms or host_context().target.vector_bytes < 64
    assert np.abs(found - want).max() <= 1e-6 * np.abs(want).max()


@pytest.mark.parametrize("seed", seeds(2))
def test_what_lies_between_rows_reaches_no_result(seed):
    """Infinite and undefined elements at the ends of rows are neighbours of the next ones."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 9, 12, 5), np.float32)
    x[:, :, ::3, -1] = np.inf
    x[:, :, 1::3, 0] = np.nan
    w = rng.standard_normal((3, 9, 3, 3), np.float32)
    options = {"stride": 1, "padding": 1, "dilation": 1, "groups": 1}
    found, forms = convolve(x, w, np.zeros(3, np.float32), **options)
    assert "short_rows" in forms or host_context().target.vector_bytes < 64
    with np.errstate(invalid="ignore"):
        want = wanted(x, w, **options)
    clean = np.isfinite(want)
    assert clean.any()
    assert np.isfinite(found[clean]).all()
    assert np.abs(found - np.maximum(want, 0))[clean].max() <= 1e-5
