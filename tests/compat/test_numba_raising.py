"""Exceptions of the program's own that kernels raise, and polar numbers."""

import cmath
import pickle

import numpy as np
import pytest

import weft
from weft.compat import cuda


class NotPositive(ValueError):
    """Raised by kernels."""

    def __init__(self, what, more):
        super().__init__(what, more)


class Unlucky(OSError):
    """Raised by kernels, too."""


@cuda.jit(debug=True, opt=False)
def check(x):
    i = cuda.grid(1)
    if i < x.size:
        if x[i] < 0:
            raise NotPositive("a negative number")
        if x[i] == 13:
            raise Unlucky


@pytest.mark.parametrize("launches", [1, 4])
def test_a_class_of_the_program(launches):
    for _ in range(launches):  # also by the native path
        check[1, 4](np.ones(4))
        with pytest.raises(NotPositive, match="a negative number in thread") as caught:
            check[1, 4](np.array([1.0, -1, 1, 1]))
        assert isinstance(caught.value, weft.errors.LaunchError)
        with pytest.raises(Unlucky):
            check[1, 1](np.array([13.0]))
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)


def test_a_class_of_a_function_around():
    class Local(LookupError):
        pass

    @cuda.jit(debug=True)
    def always(x):
        raise Local("here")

    with pytest.raises(Local, match="here"):
        always[1, 1](np.zeros(1))


def test_names_that_are_no_exceptions():
    failed = weft.errors.raised("np: no", {"np": np, "int": int})
    assert failed is weft.errors.LaunchError
    assert weft.errors.raised("int", {"int": int}) is weft.errors.LaunchError
    assert weft.errors.raised("unknown: x") is weft.errors.LaunchError
    assert issubclass(weft.errors.raised("ValueError: x", {}), ValueError)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_numbers_by_absolute_value_and_phase(dtype):
    @cuda.jit
    def of_polar(r, phi, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = cmath.rect(r[i], phi[i])

    r = np.array([0, 1, 2.5, 3, -1, 7]).astype(dtype)
    phi = np.array([0, 1, -2, 0, 3, 2]).astype(dtype)
    out = np.zeros(6, np.complex128)
    of_polar[1, 8](r, phi, out)
    wanted = [cmath.rect(a, b) for a, b in zip(r.tolist(), phi.tolist(), strict=True)]
    np.testing.assert_allclose(out, wanted, rtol=1e-6 if dtype is np.float32 else 1e-14)


def test_polar_numbers_that_are_not_finite():
    @cuda.jit
    def of_polar(r, phi, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = cmath.rect(r[i], phi[i])

    r = np.array([np.inf, -np.inf, 0, np.nan, np.inf])
    phi = np.array([0, 1.0, 0, 1, 2])
    out = np.zeros(5, np.complex128)
    of_polar[1, 8](r, phi, out)
    wanted = [cmath.rect(a, b) for a, b in zip(r.tolist(), phi.tolist(), strict=True)]
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.grid
@pytest.mark.parametrize("operation", ["/", "//", "%"])
@pytest.mark.parametrize("kind", [np.float64, np.int32])
def test_a_division_by_zero_raises_where_numba_debugs(operation, kind):
    made = {}
    exec(f"def divide(r, x, y):\n    r[0] = x[0] {operation} y[0]\n    r[1] = 1", made)
    plain, strict = cuda.jit(made["divide"]), cuda.jit(debug=True, opt=False)(made["divide"])
    fast = cuda.jit(debug=True, opt=False, fastmath=True)(made["divide"])
    x, none, two = np.array([7], kind), np.zeros(1, kind), np.array([2], kind)
    r = np.zeros(2)
    strict[1, 1](r, x, two)
    assert r.tolist() == [{"/": 3.5, "//": 3, "%": 1}[operation], 1]
    r[:] = 0
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        strict[1, 1](r, x, none)
    assert r.tolist() == [0, 0]
    for kernel in (plain, fast):  # as numba without it: a number, and the thread goes on
        r[:] = 0
        kernel[1, 1](r, x, none)
        assert r[1] == 1


def test_divisions_by_numbers_that_are_known():
    @cuda.jit(debug=True, opt=False)
    def divide(r, x):
        if x[0] > 5:
            r[0] = x[0] / 0
        else:
            r[0] = 1 / 2

    r = np.zeros(1)
    divide[1, 1](r, np.ones(1))
    assert r[0] == 0.5
    with pytest.raises(ZeroDivisionError):
        divide[1, 1](r, np.full(1, 9.0))
