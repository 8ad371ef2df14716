"""NumPy's functions of whole arrays in kernels: each thread sets all elements of the results."""

import ml_dtypes
import numpy as np
import pytest

from weft import errors
from weft.compat import cuda

X = np.array([[0.5, -1.25, 3.0], [2.0, 0.0, -7.5]], np.float32)


@pytest.mark.parametrize(("name", "count"), [
    ("sin", 1), ("exp", 1), ("fabs", 1), ("sqrt", 1), ("negative", 1), ("square", 1), ("add", 2),
    ("multiply", 2), ("maximum", 2), ("fmin", 2), ("hypot", 2), ("arctan2", 2), ("greater", 2),
    ("logical_and", 2), ("logical_not", 1), ("deg2rad", 1), ("floor", 1), ("true_divide", 2),
])  # fmt: skip
def test_functions_of_arrays(name, count):
    function = getattr(np, name)
    x = np.abs(X) if name == "sqrt" else X
    others = [x.T.copy().T[::-1]] * (count - 1)

    @cuda.jit
    def one(x, out):
        function(x, out)

    @cuda.jit
    def two(x, y, out):
        function(x, y, out=out)

    expected = np.zeros(x.shape, bool if name[0] in "gl" else np.float32)
    out = np.zeros_like(expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        function(x, *others, expected)
    (one if count == 1 else two)[1, 1](x, *others, out)
    np.testing.assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (3, 5), (2, 1, 3)])
def test_arrays_are_broadcast(shape):
    @cuda.jit
    def kernel(a, b, c, out):
        np.add(a, b, out)
        np.multiply(out, c, out)

    rows = np.arange(1, shape[-1] + 1.0)
    ones = np.full((1,) * len(shape), 2, np.int32)
    out = np.zeros(shape)
    kernel[1, 1](rows, 0.5, ones, out)
    np.testing.assert_array_equal(out, np.broadcast_to((rows + 0.5) * 2, shape))


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, np.uint64, np.float64,
                                  np.complex64, np.complex128])
def test_types_of_elements(kind):
    @cuda.jit
    def kernel(a, b, out):
        np.add(a, b, out)

    a = np.arange(5).astype(kind)
    out = np.zeros(5, kind)
    kernel[1, 1](a, a, out)
    np.testing.assert_array_equal(out, a + a)


@pytest.mark.grid
@pytest.mark.parametrize("name", [
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "logical_and",
    "logical_or", "logical_xor", "maximum", "minimum", "fmax", "fmin", "add",
])  # fmt: skip
@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_functions_of_two_complex_numbers(name, kind):
    function = getattr(np, name)

    @cuda.jit
    def kernel(a, b, out):
        function(a, b, out)

    parts = [0.0, -0.0, 1.0, -2.5, np.nan, np.inf]
    a = np.array([complex(x, y) for x in parts for y in parts], kind)
    a, b = a[:, None], a.copy()
    with np.errstate(invalid="ignore"):
        expected = function(a, b)
    out = np.zeros_like(expected)
    kernel[1, 1](a, b, out)
    np.testing.assert_array_equal(out, expected)


def test_logarithms_of_complex_numbers():
    @cuda.jit
    def kernel(a, out):
        np.log2(a, out)

    a = np.array([1, 1j, -2.5, 8 - 8j, 1e-5 + 2e5j])
    out = np.zeros_like(a)
    kernel[1, 1](a, out)
    np.testing.assert_allclose(out, np.log2(a), rtol=1e-14)


def test_the_result_is_the_array_that_was_given():
    @cuda.jit
    def kernel(a, out):
        i = cuda.grid(1)
        out[i, 0] = np.sin(a[i], out[i])[1]

    a, out = X.astype(np.float64), np.zeros((2, 3))
    kernel[1, 2](a, out)
    expected = np.sin(a)
    expected[:, 0] = expected[:, 1]
    np.testing.assert_allclose(out, expected, rtol=1e-15)


def test_arrays_that_do_not_fit():
    @cuda.jit
    def kernel(a, out):
        np.sin(a, out)

    with pytest.raises(ValueError, match="cannot be broadcast"):
        kernel[1, 1](np.zeros(3), np.zeros(4))
    with pytest.raises(errors.KernelError, match="an array of 2 axes for one of 1"):
        kernel[1, 1](np.zeros((3, 3)), np.zeros(3))


def test_results_are_numpys_before_they_are_stored():
    @cuda.jit
    def kernel(a, b, out):
        np.subtract(a, b, out[0])
        np.add(a, b, out[1])
        np.reciprocal(b, out[2])

    @cuda.jit
    def truth(a, out):
        np.add(a, a, out[0])
        np.reciprocal(a, out[1])

    a, b, out = np.array([1, 250], np.uint8), np.array([2, 10], np.uint8), np.zeros((3, 2))
    kernel[1, 1](a, b, out)
    assert out.tolist() == [[255, 240], [3, 4], [0, 0]]
    truth[1, 1](np.array([True, True]), out)
    assert out[:2].tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(("kind", "held", "name"), [
    (np.float32, np.int64, "add"), (np.complex64, np.float64, "multiply"), (np.int8, bool, "add"),
    (np.int32, np.int32, "true_divide"),
])  # fmt: skip
def test_arrays_that_cannot_hold_the_results(kind, held, name):
    function = getattr(np, name)

    @cuda.jit
    def kernel(a, out):
        function(a, a, out)

    a, out = np.ones(3, kind), np.zeros(3, held)
    with pytest.raises(TypeError, match="Cannot cast"):
        function(a, a, out)
    with pytest.raises(errors.KernelError, match=f"numpy.{function.__name__} gives"):
        kernel[1, 1](a, out)


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_types_of_other_packages(kind):
    @cuda.jit
    def kernel(a, out):
        np.add(a, a, out)

    out = np.zeros(3, np.float32)
    kernel[1, 1](np.ones(3, kind), out)
    assert out.tolist() == [2, 2, 2]


def test_functions_of_numbers_that_are_not_complex():
    @cuda.jit
    def kernel(a, out):
        np.conj(a, out)
        out[0] = np.real(a[0])

    a, out = np.array([(1 << 62) + 1, -3]), np.zeros(2, np.int64)
    kernel[1, 1](a, out)
    assert out.tolist() == a.tolist()


@pytest.mark.slow
def test_one_of_several_arrays():
    @cuda.jit
    def kernel(a, b, out):
        one, other = (a, b) if out[0] > 0 else (b, a)
        np.negative(one, other)
        out[0], out[1] = one.sum(), np.argmin(other)
        out[2], out[3] = np.mean(other), other.max()

    for first in (0.0, 1.0):
        a, b, out = np.array([1.0, 5, 2]), np.array([7.0, 8, 9]), np.full(4, first)
        one = (a if first else b).copy()
        kernel[1, 1](a, b, out)
        assert out.tolist() == [one.sum(), one.argmax(), -one.mean(), -one.min()]


def test_results_that_are_read_only_are_told_where_the_call_is():
    @cuda.jit
    def kernel(a, out):
        np.sin(a, out)

    out = np.zeros(3)
    out.flags.writeable = False
    with pytest.raises(errors.KernelError, match="read-only") as caught:
        kernel[1, 1](np.zeros(3), out)
    assert caught.value.problems[0].file == __file__


def test_no_array_for_the_results():
    @cuda.jit
    def kernel(a, out):
        out[0] = np.sin(a)[0]

    @cuda.jit
    def where(a, out):
        np.sin(a, out, where=a[0] > 0)

    with pytest.raises(errors.KernelError, match="kernels make no arrays"):
        kernel[1, 1](np.zeros(3), np.zeros(3))
    with pytest.raises(errors.KernelError, match="a loop over its elements"):
        where[1, 1](np.zeros(3), np.zeros(3))


@pytest.mark.parametrize("kind", [np.int16, np.float32, np.float64, np.complex64])
def test_tuples_are_stored_in_parts_of_arrays(kind):
    @cuda.jit
    def kernel(x, k):
        i = cuda.grid(1)
        x[i, 1] = i, k, 7
        x[i, 0, 1:] = (k, i + 1)
        x[i, 2, :] = (9,)

    x = np.zeros((2, 3, 3), kind)
    kernel[1, 2](x, 5)
    assert x.real.tolist() == [[[0, 5, i + 1], [i, 5, 7], [9, 9, 9]] for i in range(2)]


def test_tuples_of_another_size_stop_a_kernel():
    @cuda.jit
    def kernel(x, n):
        x[:n] = 1, 2, 3

    x = np.zeros(5)
    kernel[1, 1](x, 3)
    assert x.tolist() == [1, 2, 3, 0, 0]
    for n in (0, 2, 4):
        with pytest.raises(ValueError, match="3 items for a part of an array of another size"):
            kernel[1, 1](x, n)
