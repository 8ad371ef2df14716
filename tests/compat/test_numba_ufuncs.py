"""NumPy's functions of numbers in kernels for numba: the types and values of their loops."""

import numpy as np
import pytest

import weft
from weft.compat import cuda

INTEGERS = ("uint8", "int8", "int16", "uint32", "int32", "int64", "uint64")
BINARY = ("add", "subtract", "multiply", "floor_divide", "remainder", "maximum", "fmin",
          "bitwise_and", "bitwise_xor", "gcd")
UNARY = ("negative", "absolute", "square", "invert", "floor", "ceil", "trunc", "sign",
         "conjugate", "positive")


def results(function, args, kind):
    """Return what a kernel, and the interpreter, store in an array of float64 or of a type."""
    count = len(args)

    if count == 1:
        @cuda.jit
        def kernel(a, out):
            i = cuda.grid(1)
            if i < a.size:
                out[i] = function(a[i])
    else:
        @cuda.jit
        def kernel(a, b, out):
            i = cuda.grid(1)
            if i < a.size:
                out[i] = function(a[i], b[i])

    found = []
    for run in (kernel[1, 64], weft.interpret(kernel, 1, 64)):
        out = np.zeros(args[0].size, kind)
        run(*args, out)
        found.append(out)
    return found


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", BINARY)
def test_integers_wrap_around_in_their_own_type(name, seed):
    rng = np.random.default_rng(seed)
    function = getattr(np, name)
    first, second = rng.choice(INTEGERS, 2)
    for one, other in ((first, first), (first, second), ("uint8", "int8")):
        a, b = (rng.integers(np.iinfo(k).min, np.iinfo(k).max, 40, endpoint=True, dtype=k)
                for k in (one, other))
        b = np.where(b == 0, b.dtype.type(1), b)
        try:
            with np.errstate(all="ignore"):
                expected = function(a, b)
        except TypeError:
            continue
        if expected.dtype.kind == "f":
            continue
        for found in results(function, (a, b), expected.dtype.kind + "8"):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.grid
@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_integer(name, kind):
    rng = np.random.default_rng(len(name))
    a = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, 40, endpoint=True, dtype=kind)
    a[:2] = np.iinfo(kind).min, np.iinfo(kind).max
    function = getattr(np, name)
    expected = function(a)
    for found in results(function, (a,), expected.dtype.kind + "8"):
        np.testing.assert_array_equal(found, expected)


def test_bools():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    for function in (np.add, np.multiply, np.bitwise_or, np.maximum):
        for found in results(function, (a, b), "i8"):
            np.testing.assert_array_equal(found, function(a, b))
    for found in results(np.invert, (a,), "i8"):
        np.testing.assert_array_equal(found, np.invert(a))


@pytest.mark.parametrize(("function", "kinds", "width"), [
    (np.sin, ("uint8",), "float32"), (np.sqrt, ("int16",), "float32"),
    (np.exp, ("int32",), "float64"), (np.divide, ("uint8", "uint8"), "float32"),
    (np.divide, ("int32", "int32"), "float64"), (np.add, ("int64", "float32"), "float32"),
    (np.multiply, ("float32", "uint8"), "float32"), (np.hypot, ("int8", "float64"), "float64"),
    (np.add, ("uint64", "int64"), "float64")], ids=str)
def test_floats_have_the_width_of_numbas_loop(function, kinds, width):
    args = [np.arange(1, 41).astype(kind) for kind in kinds]
    expected = function(*(a.astype(width) for a in args))
    for found in results(function, args, "f8"):
        assert (found == found.astype(width)).all()
        np.testing.assert_allclose(found, expected, rtol=4e-7 if width == "float32" else 1e-15)
