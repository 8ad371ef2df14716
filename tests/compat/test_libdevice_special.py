"""libdevice's Bessel functions and inverses of distributions, against sums of many digits."""

import math

import mpmath
import numpy as np
import pytest

import weft
from weft.compat import cuda
from weft.compat.cuda import libdevice

RNG = np.random.default_rng(7)
X = np.concatenate([RNG.uniform(0, 40, 20), 10.0 ** RNG.uniform(-8, 3, 20),
                    [1e-300, 1e-5, 25.0, 24.999, 2.404825557695773, 3.8317059702075123]])
ENDS = {"j0": (1, 0, 0), "j1": (0, 0, 0), "y0": (-math.inf, math.nan, 0),
        "y1": (-math.inf, math.nan, 0)}  # of 0, -inf and inf
EXACT = {"j0": lambda x: mpmath.besselj(0, x), "j1": lambda x: mpmath.besselj(1, x),
         "y0": lambda x: mpmath.bessely(0, x), "y1": lambda x: mpmath.bessely(1, x)}  # fmt: skip


def call(name, x, order=None, native=False):
    function = getattr(libdevice, name)

    @cuda.jit
    def one(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    @cuda.jit
    def of_order(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = function(order, x[i])

    kernel, out = (one if order is None else of_order), np.zeros(x.size)
    grid = -(-x.size // 32)
    (kernel[grid, 32] if native else weft.interpret(kernel, grid, 32))(x, out)
    return out


def wave(x):
    """Return how large a Bessel function gets near a number."""
    return mpmath.sqrt(2 / (mpmath.pi * max(x, 1)))


@pytest.mark.grid
@pytest.mark.parametrize("name", EXACT)
def test_bessel(name):
    found = call(name, X)
    with mpmath.workdps(40):
        for x, got in zip(X.tolist(), found, strict=True):
            exact = EXACT[name](mpmath.mpf(x))
            assert abs(got - exact) <= 2e-15 * max(abs(exact), wave(x)), x
    ends = call(name, np.array([0.0, -math.inf, math.inf, math.nan]))
    np.testing.assert_array_equal(ends, [*ENDS[name], math.nan])
    np.testing.assert_allclose(call(name + "f", X), call(name, np.float32(X).astype(float)),
                               rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("order", [2, 3, 17])
def test_bessel_of_an_order(order):
    near = X[(X > 1e-2) & (X < 100)]
    first, second = call("jn", near, order), call("yn", near, order)
    with mpmath.workdps(40):
        for x, j, y in zip(near.tolist(), first, second, strict=True):
            exact = mpmath.besselj(order, mpmath.mpf(x)), mpmath.bessely(order, mpmath.mpf(x))
            assert abs(j - exact[0]) <= 2e-15 * max(abs(exact[0]), wave(x))
            assert abs(y - exact[1]) <= 4e-15 * max(abs(exact[1]), wave(x))
    np.testing.assert_array_equal(call("jn", -near, order), first * (-1) ** order)


def test_inverses():
    p = np.concatenate([RNG.uniform(0, 2, 30), 10.0 ** RNG.uniform(-300, 0, 30),
                        [0.5, 1.5, 1 - 1e-10, 1 + 1e-12]])
    found = call("erfcinv", p)
    with mpmath.workdps(40):
        for x, got in zip(p.tolist(), found, strict=True):
            exact = mpmath.mpf(float(got))
            for _ in range(4):
                slope = 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-exact * exact)
                exact += (mpmath.erfc(exact) - x) / slope
            assert abs(got - exact) <= 2e-15 * abs(exact), x
    np.testing.assert_array_equal(call("erfcinv", np.array([0.0, 1.0, 2.0, -1.0, 3.0, math.nan])),
                                  [math.inf, 0, -math.inf, math.nan, math.nan, math.nan])
    np.testing.assert_allclose(call("normcdfinv", p / 2), -math.sqrt(2) * found, rtol=1e-14)


def test_compiled_code_says_the_same():
    for name in ("j1", "y0"):
        np.testing.assert_array_equal(call(name, X[:32]), call(name, X[:32], native=True))
