"""Gradients by images of any shape: no NaN where an infinite weight meets nothing."""

import itertools

import numpy as np
import pytest

import weft
from seeds import seeds

pytestmark = pytest.mark.usefixtures("compiled")  # NumPy alone would prove nothing


def gradient(up, w, shape, stride, padding, dilation, groups):
    """Add each product to the place of the image that it came from, in float64, group by group."""
    sizes = shape[2:]
    out = np.zeros((*shape[:2], *[n + 2 * padding for n in sizes]))
    outputs, channels = w.shape[0] // groups, w.shape[1]
    with np.errstate(invalid="ignore"):
        for group, tap in itertools.product(range(groups), np.ndindex(*w.shape[2:])):
            mine = slice(group * outputs, (group + 1) * outputs)
            terms = np.einsum("no...,oc->nc...", up[:, mine].astype(np.float64),
                              w[(mine, slice(None), *tap)].astype(np.float64))
            place = [slice(t * dilation, t * dilation + stride * (n - 1) + 1, stride)
                     for t, n in zip(tap, up.shape[2:], strict=True)]
            out[(slice(None), slice(group * channels, (group + 1) * channels), *place)] += terms
    return out[(..., *[slice(padding, padding + n) for n in sizes])]


def check(rng, images, groups, channels, outputs, sizes, kernel, stride, padding, dilation, dtype):
    reach = [dilation * (k - 1) for k in kernel]
    sides = [(m + 2 * padding - r - 1) // stride + 1 for m, r in zip(sizes, reach, strict=True)]
    shape = (images, groups * channels, *sizes)
    up = rng.integers(1, 5, (images, groups * outputs, *sides)).astype(dtype)
    w = rng.integers(-4, 5, (groups * outputs, channels, *kernel)).astype(dtype)
    for value in (np.inf, -np.inf, np.nan):
        w.flat[rng.integers(w.size)] = value
    name, options = f"conv{len(sizes)}d", {"stride": stride, "padding": padding,
                                           "dilation": dilation, "groups": groups}

    def found(x, w, up):
        return weft.grad(lambda x: (getattr(x, name)(w, **options) * up).sum())(x)

    got = weft.jit(found)(*map(weft.from_numpy, (np.ones(shape, dtype), w, up))).numpy()
    want = gradient(up, w, shape, stride, padding, dilation, groups)
    assert np.array_equal(got, want.astype(dtype), equal_nan=True)


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("images", "groups", "channels", "outputs", "sizes", "kernel", "stride", "padding",
     "dilation", "dtype"), [
    # a row that is shorter than its taps
    (2, 1, 8, 3, (2, 5), (7, 7), 1, 3, 1, "f4"),
    # sums over columns, and nests that nothing schedules
    (1, 1, 1, 33, (34,), (4,), 4, 2, 2, "f8"),
    (2, 1, 1, 1, (6, 11), (3, 3), 4, 3, 3, "f4"),
    # rows that are written out by their remainders
    (1, 3, 1, 4, (18, 19), (2, 2), 4, 0, 2, "f4"),
    (1, 5, 1, 4, (52,), (5,), 3, 3, 3, "f4"),
    (2, 5, 1, 1, (1, 18), (2, 2), 2, 3, 3, "f4"),
    (2, 2, 1, 1, (14, 18), (2, 7), 2, 3, 3, "f4"),
    # more remainders than become nests of their own
    (1, 1, 1, 17, (5, 7, 4), (5, 5, 5), 3, 3, 1, "f8"),
    (2, 2, 17, 4, (9, 7, 8), (3, 3, 3), 4, 1, 2, "f4"),
    # pictures of one position along an axis
    (2, 1, 8, 8, (1, 9, 5), (3, 3, 3), 2, 3, 1, "f8"),
    (1, 3, 8, 8, (7, 6), (4, 4), 2, 3, 3, "f4"),
    (5, 2, 8, 33, (6, 2, 4), (2, 3, 1), 1, 3, 3, "f8"),
    (2, 1, 1, 4, (1, 16), (4, 4), 2, 3, 1, "f4"),
    (2, 3, 4, 17, (12, 3), (7, 7), 2, 3, 1, "f4"),
    # most of a row beside its ends
    (2, 1, 16, 9, (13, 33), (5, 5), 1, 6, 3, "f4"),
    (1, 1, 24, 40, (41,), (7,), 1, 6, 2, "f4"),
    # what is zero outside is cast behind that
    (1, 1, 4, 8, (28,), (3,), 1, 1, 2, "f2"),
    (1, 1, 17, 8, (11, 11), (1, 5), 2, 1, 2, "f2"),
    (2, 1, 4, 1, (2, 6), (3, 3), 1, 1, 1, "f2"),
    (2, 16, 1, 1, (11, 13), (3, 3), 1, 1, 1, "f2"),
])
def test_weights(images, groups, channels, outputs, sizes, kernel, stride, padding, dilation,
                 dtype, seed):
    rng = np.random.default_rng([seed, channels, outputs, *sizes])
    check(rng, images, groups, channels, outputs, sizes, kernel, stride, padding, dilation, dtype)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("seed", seeds(6))
def test_weights_of_any_shape(seed, dtype):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    kernel = tuple(int(k) for k in rng.choice([1, 2, 3, 3, 5, 7], n))
    stride, dilation, padding = (int(rng.choice(some)) for some in (
        [1, 1, 2, 2, 3, 4], [1, 1, 2, 3], [0, 1, 1, 2, 3]))
    groups, channels, outputs = (int(rng.choice(some)) for some in (
        [1, 1, 2, 3], [1, 2, 4, 8, 17], [1, 3, 4, 8, 17, 33]))
    most = (60, 20, 9)[n - 1]
    sizes = tuple(max(int(rng.integers(1, most)), (k - 1) * dilation + 1 - 2 * padding)
                  for k in kernel)
    check(rng, int(rng.choice([1, 2, 5])), groups, channels, outputs, sizes, kernel, stride,
          padding, dilation, dtype)
