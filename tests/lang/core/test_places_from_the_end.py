"""Computed indices of tuples, shapes and lists count from the end below 0, as in Python."""

from typing import NamedTuple

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda
from weft.errors import WeftError


class Three(NamedTuple):
    """A tuple with names."""

    a: float
    b: float
    c: float


WEIGHTS = (1.5, 2.5, 4.5)
LISTED = [10, 20, 30]
NESTED = ((1, 2), (3, 4), (5, 6))


def read(x, places, given, named, out):
    i = gpu.grid(1)
    if i < places.size:
        k = places[i]
        out[0, i] = x.shape[k]
        out[1, i] = given[k]
        out[2, i] = named[k]
        out[3, i] = WEIGHTS[k]
        out[4, i] = LISTED[k]
        out[5, i] = NESTED[k][k % 2 - 1]
        out[6, i] = x.strides[k]
        out[7, i] = (i, i + 1, i + 2)[k]


def wanted_of(x, places, given, named):
    return [[x.shape[k], given[k], named[k], WEIGHTS[k], LISTED[k], NESTED[k][k % 2 - 1],
             x.strides[k], (i, i + 1, i + 2)[k]]
            for i, k in enumerate(places.tolist())]  # fmt: skip


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8])
def test_all_places(kind, rng):
    x = np.zeros((2, 5, 7))
    places = rng.integers(0 if kind is np.uint8 else -3, 3, 40).astype(kind)
    if kind is not np.uint8:
        places[:6] = range(-3, 3)
    given, named = (7.0, 8.0, 9.0), Three(0.5, 0.25, 0.125)
    wanted = np.array(wanted_of(x, places, given, named)).T
    runs = [weft.kernel(read)[2, 32], weft.interpret(weft.kernel(read), 2, 32),
            weft.sanitize(weft.kernel(read), 2, 32), cuda.jit(read)[2, 32]]  # fmt: skip
    for run in runs:
        out = np.zeros((8, 40))
        run(x, places, given, named, out)
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("place", [-4, 3, -(1 << 62)])
def test_beyond_either_end(place):
    @weft.kernel
    def far(places, out):
        out[0] = WEIGHTS[places[0]]

    with pytest.raises(WeftError, match=f"found index {place}, expected an index from"):
        far[1, 1](np.array([place]), np.zeros(1))


def test_a_loop_from_the_end():
    @weft.kernel
    def product(x, out):
        total = 1
        for k in range(1, x.ndim + 1):
            total *= x.shape[-k]
        out[0] = total

    out = np.zeros(1)
    product[1, 1](np.zeros((2, 3, 4)), out)
    assert out[0] == 24
