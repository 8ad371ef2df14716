"""Functions of math and NumPy in kernels, on special values, against Python and NumPy."""

import math

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError

X = np.concatenate([np.random.default_rng(7).normal(size=80) * s for s in (0.1, 1, 20, 100)] + [
    np.arange(-3, 30.0), [171.5, 172, 1e-300, 1e300, math.inf, -math.inf, math.nan, -0.0, 5e-324,
                          -1e-310, 1e-40, 4.5, -1.5]])  # fmt: skip


def apply(function, *arrays, kind=None):
    """Return what a function of a kernel gives for arrays."""
    out = np.zeros(arrays[0].shape, kind or arrays[0].dtype)

    @weft.kernel
    def one(x, out):
        i = gpu.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    @weft.kernel
    def two(x, y, out):
        i = gpu.grid(1)
        if i < x.size:
            out[i] = function(x[i], y[i])

    (one if len(arrays) == 1 else two)[8, 64](*arrays, out)
    return out


def checked(function, x):
    try:
        return function(x)
    except OverflowError:
        return math.copysign(math.inf, x) if abs(x) < 1 else math.inf
    except ValueError:  # at poles
        if function is math.lgamma:
            return math.inf
        return math.copysign(math.inf, x) if x == 0 else math.nan


@pytest.mark.parametrize("function", [math.gamma, math.lgamma])
def test_gamma(function):
    expected = np.array([checked(function, x) for x in X])
    np.testing.assert_allclose(apply(function, X), expected, rtol=2e-14, atol=1e-15)
    narrow = X[:320].astype(np.float32)
    with np.errstate(over="ignore"):
        wanted = np.array([checked(function, float(x)) for x in narrow]).astype(np.float32)
    np.testing.assert_allclose(apply(function, narrow), wanted, rtol=1e-6)


@weft.kernel
def parts(x, fraction, power, behind, before, again):
    i = gpu.grid(1)
    if i < x.size:
        fraction[i], power[i] = math.frexp(x[i])
        behind[i], before[i] = math.modf(x[i])
        again[i] = math.ldexp(fraction[i], power[i])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_parts_of_floats(kind):
    with np.errstate(over="ignore", under="ignore"):
        x = X.astype(kind)
    found = [np.zeros(x.shape, kind) for _ in range(4)]
    power = np.zeros(x.shape, np.int64)
    parts[8, 64](x, found[0], power, *found[1:])
    fraction, exponent = np.frexp(x)
    np.testing.assert_array_equal(found[0], fraction)
    np.testing.assert_array_equal(power[np.isfinite(x)], exponent[np.isfinite(x)])
    for a, b in zip(found[1:], (*np.modf(x), x), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a[x == x]), np.signbit(b[x == x]))


@pytest.mark.parametrize("function", [
    np.floor, np.ceil, np.trunc, np.rint, np.sign, np.square, np.absolute, np.negative,
    np.reciprocal, np.isnan, np.isfinite, np.signbit, np.logical_not,
])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_exact_functions_of_numpy(function, kind):
    with np.errstate(all="ignore"):
        x = X.astype(kind)
        expected = np.asarray(function(x)).astype(kind)
    np.testing.assert_array_equal(apply(function, x), expected)


@pytest.mark.parametrize("function", [np.arctan, np.arcsinh, np.deg2rad, np.cbrt, np.exp2])
def test_functions_of_numpy(function):
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(apply(function, X), function(X), rtol=1e-14)


@pytest.mark.parametrize("function", [
    np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.fmax, np.fmin,
    np.less_equal, np.not_equal, np.logical_and, np.logical_xor, np.copysign, np.hypot,
    np.heaviside,
])
def test_functions_of_two_numbers(function):
    y = np.roll(X, 11)
    with np.errstate(all="ignore"):
        expected = np.asarray(function(X, y)).astype(np.float64)
    np.testing.assert_allclose(apply(function, X, y), expected, rtol=1e-15)


@pytest.mark.parametrize("function", [
    np.bitwise_and, np.bitwise_xor, np.left_shift, np.right_shift, np.floor_divide, np.remainder,
    np.gcd, np.maximum,
])
def test_functions_of_integers(function):
    rng = np.random.default_rng(8)
    x, y = rng.integers(-1000, 1000, 50), rng.integers(1, 30, 50)
    np.testing.assert_array_equal(apply(function, x, y), function(x, y))


def test_remainder_log_of_a_base_and_logaddexp():
    x = np.array([5.0, -5.0, 7.5, 4.5, -1.5, 1.5, 1e300, 0.1])
    third = np.full(8, 3.0)
    np.testing.assert_array_equal(apply(math.remainder, x, third),
                                  [math.remainder(v, 3.0) for v in x])
    np.testing.assert_allclose(apply(math.log, abs(x), third), np.log(abs(x)) / np.log(3))
    np.testing.assert_allclose(apply(np.logaddexp, x[:6], third[:6]), np.logaddexp(x[:6], 3))


@weft.kernel
def clipped(x, out):
    i = gpu.grid(1)
    if i < x.size:
        out[i] = np.clip(x[i], -1, 1) + np.round(x[i], 1) + np.where(x[i] > 0, 1.0, 2.0)


def test_clip_round_and_where():
    x, out = np.linspace(-3, 3, 20), np.zeros(20)
    clipped[1, 32](x, out)
    np.testing.assert_allclose(out, np.clip(x, -1, 1) + np.round(x, 1) + np.where(x > 0, 1, 2))


def test_what_kernels_lack_is_an_error():
    @weft.kernel
    def sums(x):
        x[0] = np.cumsum(x)
        x[1] = math.gamma(x[0], 1)

    with pytest.raises(KernelError, match="2 errors"):
        sums[1, 1](np.zeros(3))


def refusal(expression):
    """Return what is told of a kernel that computes an expression of two numbers."""
    with pytest.raises(KernelError) as caught:
        apply(expression, np.array([1.0, 2.5]), np.array([0.5, 4.0]))
    return str(caught.value)


def test_named_arguments_are_taken_or_refused():
    x, y = np.array([2.345, -3.5]), np.array([1.0, -9.0])
    rounded = apply(lambda a: np.round(a, decimals=1), x)
    np.testing.assert_array_equal(rounded, np.round(x, 1))
    clipped = apply(lambda a: np.clip(a, a_max=1.5, a_min=-1.0), x)
    np.testing.assert_array_equal(clipped, [1.5, -1.0])
    near = apply(lambda a, b: math.isclose(a, b, rel_tol=0.7), x, y)
    np.testing.assert_array_equal(near, [True, True])
    np.testing.assert_array_equal(apply(lambda a, b: math.isclose(a, b, abs_tol=2.0), x, y), [1, 0])
    assert "numpy.add with dtype" in refusal(lambda a, b: np.add(a, b, dtype=np.float32))
    assert "unexpected keyword argument 'rel'" in refusal(lambda a, b: math.isclose(a, b, rel=1.0))
    assert "no argument base" in refusal(lambda a, b: math.log(a, base=b))
