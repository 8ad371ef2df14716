"""Signatures: which of several is meant, and what they make of arguments and results."""

import numpy as np
import pytest

import weft.compat as numba
from weft.compat import cuda, float32, float64, int32, int64, uint8, void
from weft.compat.cuda.signed import rating
from weft.errors import DTypeError, LaunchError


def apply(function, *args):
    """Return what a function gives in a kernel, as float64 and as int64."""
    if len(args) == 1:
        @cuda.jit
        def kernel(r, s, x):
            r[0] = function(x)
            s[0] = function(x)
    else:
        @cuda.jit
        def kernel(r, s, x, y):
            r[0] = function(x, y)
            s[0] = function(x, y)
    r, s = np.zeros(1), np.zeros(1, np.int64)
    kernel[1, 1](r, s, *args)
    return r[0], s[0]


def both(x, y):
    return x + y


def test_arguments_of_functions_become_what_the_signature_says():
    whole = cuda.jit("int32(int32, int32)", device=True)(both)
    assert apply(whole, 2.75, 3.5) == (5.0, 5)
    assert apply(whole, np.int64(1 << 32) + 7, 1) == (8.0, 8)
    byte = cuda.jit(uint8(uint8, uint8), device=True)(both)
    assert apply(byte, 255, 2) == (1.0, 1)
    plain = cuda.jit((float64, float64), device=True)(both)
    assert apply(plain, 2, 3) == (5.0, 5)


def test_results_of_functions_become_what_the_signature_says():
    third = cuda.jit("float32(float64)", device=True)(lambda x: x / 3)
    assert apply(third, 1.0)[0] == np.float32(1 / 3)
    cut = cuda.jit("int64(float64)", device=True)(lambda x: x * 2)
    assert apply(cut, 1.3) == (2.0, 2)


def test_of_several_signatures_the_one_that_loses_least_is_taken():
    def of(*signatures):
        return cuda.jit(list(signatures), device=True)(both)

    assert apply(of("(int64, int64)", "(float64, float64)"), 1.5, 2.5) == (4.0, 4)
    assert apply(of("(int64, int64)", "(float64, float64)"), np.int32(1), 2.5) == (3.5, 3)
    narrow = of("(float32, float32)", "(float64, float64)")
    assert apply(narrow, np.float32(1), np.float32(2**-25))[0] == 1.0
    assert apply(narrow, 1, 2**-25)[0] == 1 + 2**-25
    tied = of("(float32, float64)", "(float64, float32)", "(int64, int64)")
    assert apply(tied, 1.5, 2.5)[0] == 4.0


def test_arguments_by_name_and_defaults_are_converted_too():
    @cuda.jit("int32(int32, int32)", device=True)
    def less(x, y=1.9):
        return x - y

    @cuda.jit
    def kernel(r):
        r[0] = less(y=2.9, x=7.9)
        r[1] = less(7.9)

    r = np.zeros(2)
    kernel[1, 1](r)
    assert r.tolist() == [5.0, 6.0]


def test_arrays_and_complex_numbers_in_signatures():
    @cuda.jit("complex64(float32[:], complex64)", device=True)
    def scale(x, z):
        return x[0] * z

    @cuda.jit
    def kernel(r, x):
        r[0] = scale(x, 2)

    r = np.zeros(1, np.complex128)
    kernel[1, 1](r, np.array([1.5], np.float32))
    assert r[0] == 3
    with pytest.raises(numba.TypingError, match=r"scale with parameters \(array\(float64"):
        kernel[1, 1](r, np.array([1.5]))


def test_a_function_that_no_signature_fits_is_refused():
    only = cuda.jit([(int64, int64), (float64, float64)], device=True)(both)
    with pytest.raises(numba.TypingError, match=r"both with parameters \(complex128, int64\)"):
        apply(only, 1j, 2)
    with pytest.raises(TypeError, match="expected 2"):
        cuda.jit("int64(int64)", device=True)(both)


def add(r, x, y):
    r[0] = x + y


@pytest.mark.parametrize("signatures", [
    ["(int64[::1], int64, int64)", "(float64[::1], float64, float64)"],
    [(int64[::1], int64, int64), void(float64[::1], float64, float64)],
], ids=["text", "types"])  # fmt: skip
def test_kernels_of_several_signatures(signatures):
    kernel = cuda.jit(signatures)(add)
    assert len(kernel.overloads) == 2
    whole, real = np.zeros(1, np.int64), np.zeros(1)
    kernel[1, 1](whole, 1, 2)
    kernel[1, 1](real, 1.5, 2)
    assert (whole[0], real[0]) == (3, 3.5)
    for wrong in (np.zeros(1, np.complex128), np.zeros(1, np.float32)):
        with pytest.raises(TypeError, match="No matching definition"):
            kernel[1, 1](wrong, 1, 2)
    assert len(kernel.overloads) == 2
    kernel.forall(1)(real, 4, 5.5)
    assert real[0] == 9.5


def test_kernels_whose_signatures_fit_alike_are_refused():
    kernel = cuda.jit(["(float64[::1], float32, float64)",
                       "(float64[::1], float64, float32)"])(add)  # fmt: skip
    with pytest.raises(TypeError, match="Ambiguous overloading"):
        kernel[1, 1](np.zeros(1), 1.0, 2.0)


def test_what_conversions_cost():
    assert rating(int32, int32) == (0, 0, 0)
    assert rating(int32, int64) == rating(float32, float64) == (0, 0, 1)
    assert rating(int32, float64) == rating(int64, float64) == rating(uint8, int32) == (0, 1, 0)
    assert rating(float64, int64) == rating(int64, float32) == rating(int64, int32) == (1, 0, 0)
    assert rating(numba.complex64, float64) is None
    assert rating(float32[::1], float32[:]) == (0, 1, 0)
    assert rating(float32[:], float32[::1]) is None
    assert rating(float32[:, :], float32[:]) is None


def test_a_kernel_is_specialised_once():
    with pytest.raises(RuntimeError, match="already specialized"):
        cuda.jit("(float64[::1], float64, float64)")(add).specialize(float64)
    with pytest.raises(RuntimeError, match="already specialized"):
        cuda.jit(add).specialize(np.zeros(1), 1.0, 2.0).specialize(np.zeros(1), 1.0, 2.0)


def test_an_array_of_one_number_is_an_index():
    @cuda.jit
    def take(r, x, i):
        r[()] = x[i]

    r = np.zeros(())
    take[1, 1](r, np.arange(5.0), np.asarray(3))
    assert r == 3.0
    take[1, 1](r, np.arange(5.0), np.asarray(-1, np.int8))
    assert r == 4.0
    with pytest.raises(numba.TypingError, match="an index of float64"):
        take[1, 1](r, np.arange(5.0), np.asarray(1.0))


def test_a_text_from_outside_is_what_an_error_says():
    said = "from outside"

    @cuda.jit(device=True)
    def fail():
        raise ValueError(said)

    @cuda.jit
    def kernel():
        fail()

    with pytest.raises(ValueError, match="from outside"):
        kernel[1, 1]()


def test_shapes_of_launches_raise_what_python_does_for_them():
    kernel = cuda.jit(add)
    for wrong, kind in ((lambda: kernel[2.0, 3], TypeError), (lambda: kernel[1, [2.0]], TypeError),
                        (lambda: kernel[(1, 2, 3, 4), 5], ValueError),
                        (lambda: kernel(1), ValueError),
                        (lambda: kernel.forall(-1), ValueError)):
        with pytest.raises(kind) as found:
            wrong()
        assert isinstance(found.value, LaunchError)


def test_the_signature_by_its_name_in_numba():
    """What it says of arguments counts: a Python float becomes a float32."""
    single = np.float32(0.1)

    @cuda.jit(fastmath=False, func_or_sig=void(float32[:], float32, int32))
    def kernel(out, x, i):
        out[i] = x == single

    @cuda.jit(func_or_sig=None, device=True)
    def twice(x):
        return 2 * x

    @cuda.jit(func_or_sig="void(int64[:])")
    def call(out):
        out[0] = twice(21)

    out = np.zeros(2, np.float32)
    kernel[1, 1](out, 0.1, 1)
    assert out.tolist() == [0, 1]
    with pytest.raises(DTypeError):
        kernel[1, 1](np.zeros(2), 0.1, 1)
    found = np.zeros(1, np.int64)
    call[1, 1](found)
    assert found[0] == 42
