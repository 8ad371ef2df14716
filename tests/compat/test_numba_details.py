"""Details that programs for numba.cuda rely on: addresses, names set by earlier turns, captures."""

import math

import numpy as np
import pytest

from weft.compat import cuda, float32, void
from weft.errors import KernelError, LaunchError, UnsupportedError


@pytest.mark.parametrize("alignment", [None, 1, 16, 64, 256])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.complex64])
def test_arrays_are_aligned(alignment, dtype):
    @cuda.jit
    def kernel(out):
        i = cuda.threadIdx.x
        before = cuda.local.array(3, np.uint8)
        own = cuda.local.array(shape=(2, 3), dtype=dtype, alignment=alignment)
        other = cuda.shared.array(shape=5, dtype=dtype, alignment=alignment)
        before[0] = own[1, 2] = 1
        other[i] = before[0]
        out[i, 0] = own.ctypes.data
        out[i, 1] = other.ctypes.data
        out[i, 2] = other[2:].ctypes.data

    out = np.zeros((3, 3), np.uint64)
    kernel[1, 3](out)
    assert (out > 0).all()
    assert not (out[:, :2] % (alignment or 1)).any()
    assert len(set(out[:, 1])) == 1
    assert (out[:, 2] - out[:, 1] == 2 * np.dtype(dtype).itemsize).all()


@pytest.mark.parametrize("alignment", [-1, 0, 3, 17, "16", 16.0])
def test_wrong_alignment(alignment):
    @cuda.jit
    def kernel(out):
        held = cuda.shared.array(1, np.uint8, alignment=alignment)
        out[0] = held[0]

    with pytest.raises(KernelError, match="alignment"):
        kernel[1, 1](np.zeros(1))


def test_address_of_an_argument():
    @cuda.jit
    def kernel(x, out):
        out[0] = x.ctypes.data
        out[1] = x[1:, 2].ctypes.data

    x, out = np.zeros((3, 4), np.float32), np.zeros(2, np.uint64)
    kernel[1, 1](x, out)
    assert out[0] == x.ctypes.data
    assert out[1] == x[1:, 2].ctypes.data


def test_names_that_an_earlier_turn_sets():
    @cuda.jit
    def kernel(out, n):
        for i in range(n):
            for j in range(2):
                if i == 0 and j == 0:  # noqa: SIM108
                    total = 1.5
                else:
                    total = total * 2
            out[i] = total

    out = np.zeros(4)
    kernel[1, 1](out, 4)
    np.testing.assert_array_equal(out, 3.0 * 4.0 ** np.arange(4))


def test_names_that_nothing_sets_before():
    @cuda.jit
    def kernel(out):
        out[0] = later  # noqa: F821
        later = 1.0  # noqa: F841

    with pytest.raises(KernelError, match="'later' has no value here"):
        kernel[1, 1](np.zeros(1))


def test_reshape_in_a_loop_and_with_an_open_size():
    @cuda.jit
    def kernel(out, x, size):
        for _ in range(2):
            x = x.reshape(6)
            x = x.reshape(3, 2)
        y = x.reshape(size)
        for i in range(3):
            out[i] = x[i, 1] + y[i]

    out = np.zeros(3)
    kernel[1, 1](out, np.arange(6.0).reshape(2, 3), -1)
    np.testing.assert_array_equal(out, [1, 4, 7])
    kernel[1, 1](out, np.arange(6.0).reshape(2, 3), 6)
    with pytest.raises(LaunchError, match="shape"):
        kernel[1, 1](out, np.arange(6.0).reshape(2, 3), 5)


def test_tuples_are_printed(capfd):
    @cuda.jit
    def kernel(t):
        print(cuda.threadIdx, t, (t[0],), "a")

    kernel[1, (1, 2)]((1, (2, 3.5), (True,)))
    rows = capfd.readouterr().out.splitlines()
    assert sorted(rows) == [f"(0, {y}, 0) (1, (2, 3.5), (True,)) (1,) a" for y in (0, 1)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nextafter_and_hypot(dtype):
    @cuda.jit
    def kernel(a, b, after, length):
        i = cuda.grid(1)
        if i < a.size:
            after[i] = np.nextafter(a[i], b[i])
            length[i] = math.hypot(a[i], b[i])

    tiny, largest = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    values = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, tiny, -tiny, largest, 2.5, -7.1],
                      dtype)
    a, b = (v.ravel() for v in np.meshgrid(values, values))
    after, length = np.zeros_like(a), np.zeros_like(a)
    kernel[2, 128](a, b, after, length)
    with np.errstate(all="ignore"):
        expected = np.nextafter(a, b)
        np.testing.assert_array_equal(after, expected)
        told = (a < b) | (a > b)  # of equal zeros NumPy gives either
        np.testing.assert_array_equal(np.signbit(after[told]), np.signbit(expected[told]))
        np.testing.assert_allclose(length, np.hypot(a, b), rtol=2 * np.finfo(dtype).eps)


def test_round_to_digits_that_an_argument_says():
    @cuda.jit
    def kernel(x, digits, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = round(x[i], digits)

    x = np.array([0.5425, 1.2345678987654321e-15, -12345.678, 5e-324, 1e308, np.inf, np.nan, -0.0,
                  2.5, 149999.5])
    for digits in (-400, -309, -308, -5, -1, 0, 1, 3, 5, 17, 22, 23, 30, 330, 331, 400):
        for kind in (np.float32, np.float64):
            given = x.astype(kind)
            out = np.zeros_like(given)
            kernel[1, 32](given, digits, out)
            expected = [round(v, digits) if np.isfinite(v) else v for v in given.tolist()]
            np.testing.assert_allclose(out, np.array(expected, kind), rtol=3e-16, atol=0)
    out = np.zeros(3)
    known_digits[1, 1](out)
    assert out.tolist() == [2.5, 0, 2.5]


@cuda.jit
def known_digits(out):
    out[0] = round(2.5, 400)
    out[1] = round(2.5, -400)
    out[2] = round(2.5, 330)


def test_round_near_a_half():
    @cuda.jit
    def kernel(x, out):
        out[0] = round(x[0], 3)
        out[1] = round(1.2345678987654321e-15, 23)

    out = np.zeros(2)
    kernel[1, 1](np.float32([0.3425]), out)
    assert out[0] == np.float32(0.343)  # 0.34250000119 in 32 bits
    assert math.isclose(out[1], round(1.2345678987654321e-15, 23), rel_tol=1e-15)


def test_difference_of_equal_products():
    @cuda.jit
    def kernel(p, q, out):
        i = cuda.grid(1)
        if i < p.size:
            a, b = p[i], q[i]
            t = a * b
            total = a * b
            total -= b * a
            out[i, 0] = p[i] * q[i] - p[i] * q[i]
            out[i, 1] = a * b - b * a
            out[i, 2] = t - a * b
            out[i, 3] = total
            first = p[i]
            p[i] = q[i]
            out[i, 4] = first * q[i] - p[i] * q[i]

    rng = np.random.default_rng(0)
    p, q = rng.random((2, 97))
    out, old = np.ones((97, 5)), p.copy()
    kernel[4, 32](p, q, out)
    assert not out[:, :4].any()
    np.testing.assert_allclose(out[:, 4], old * q - q * q, atol=1e-15)


def test_arrays_of_the_device_from_outside_are_written():
    held = cuda.to_device(np.zeros(5, np.float32))
    pairs = cuda.to_device(np.zeros(3, np.complex64))
    steps = np.arange(3.0)

    @cuda.jit
    def kernel():
        i = cuda.grid(1)
        if i < 5:
            held[i] = held[i] + i + 1
        if i < 3:
            pairs[i] += complex(i, steps[i])

    kernel[1, 8]()
    held[0] = 100
    kernel[1, 8]()
    np.testing.assert_array_equal(held.copy_to_host(), [101, 4, 6, 8, 10])
    np.testing.assert_array_equal(pairs.copy_to_host(), 2 * np.arange(3) * (1 + 1j))


def test_arrays_from_outside_stay_read_only():
    held = np.zeros(5)

    @cuda.jit
    def kernel():
        held[0] = 1

    with pytest.raises(KernelError, match="read-only"):
        kernel[1, 1]()


class Foreign:
    """An array of another library."""

    def __init__(self, array, **changes):
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changes}
        self.array = array


def test_arrays_of_other_libraries():
    held = cuda.to_device(np.arange(6.0))
    foreign = Foreign(held[::2])

    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 10

    @cuda.jit
    def by_name():
        foreign_whole[0] = 7

    assert cuda.is_cuda_array(foreign)
    assert not cuda.is_cuda_array(np.zeros(3))
    kernel[1, 8](foreign)
    kernel[1, 8](foreign)
    np.testing.assert_array_equal(held, [20, 1, 22, 3, 24, 5])
    wrapped = cuda.as_cuda_array(foreign)
    wrapped[1] = 0
    assert held[2] == 0
    foreign_whole = Foreign(held)
    by_name[1, 1]()
    assert held[0] == 7

    @cuda.vectorize(["f8(f8, f8)"], target="cuda")
    def add(a, b):
        return a + b

    np.testing.assert_array_equal(add(foreign, 1).copy_to_host(), wrapped + 1)
    add(wrapped, 2, out=foreign)
    np.testing.assert_array_equal(held, [9, 1, 2, 3, 26, 5])


def test_interfaces_that_cannot_be_read():
    held = cuda.to_device(np.arange(6.0))
    with pytest.raises(UnsupportedError, match="mask"):
        cuda.as_cuda_array(Foreign(held, mask=held))
    with pytest.raises(UnsupportedError, match="memory of a GPU"):
        cuda.as_cuda_array(Foreign(held, data=(16, False)))
    assert cuda.as_cuda_array(Foreign(held, data=(0, False), shape=(0,))).size == 0


def test_arrays_that_lie_across_their_places():
    @cuda.jit("void(double[:])")
    def kernel(x):
        i = cuda.grid(1)
        if i < x.shape[0]:
            x[i] += i

    for _ in range(3):  # later launches take another way
        memory = np.zeros(80, np.byte)
        across = np.ndarray(9, buffer=memory[4:-4], dtype=np.double)
        kernel[1, 16](across)
        np.testing.assert_array_equal(across, np.arange(9))


def test_strides_of_a_device_array():
    held = cuda.device_array((3, 2), np.float32, strides=(32, 8))
    held[...] = np.arange(6).reshape(3, 2)
    assert held.strides == (32, 8)
    np.testing.assert_array_equal(held.copy_to_host(), np.arange(6).reshape(3, 2))
    assert cuda.device_array(4, np.int32, strides=-8).strides == (-8,)
    assert cuda.device_array((0, 2), strides=(16, 8)).shape == (0, 2)
    with pytest.raises(LaunchError, match="strides"):
        cuda.device_array((3, 2), strides=(8,))


def test_fields_of_a_record_by_number():
    @cuda.jit
    def kernel(x, out):
        out[0] = x[1][0]
        out[1] = x[0][1]

    x = np.array([(1.5, 2), (3.5, 4)], [("a", "f8"), ("b", "i4")])
    out = np.zeros(2)
    kernel[1, 1](x, out)
    np.testing.assert_array_equal(out, [3.5, 2])


@pytest.mark.parametrize("function", ["add", "max", "exch"])
def test_atomics_round_a_float_index_of_one_axis_to_zero(function):
    atomic = getattr(cuda.atomic, function)

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            atomic(out, math.floor(x[i]), 1)
            atomic(out, x[i] + 4, 2)

    out = np.zeros(8, np.int32)
    kernel[1, 4](np.array([0.5, 1.75, 2.5, 3.25]), out)
    np.testing.assert_array_equal(out, [1, 1, 1, 1, 2, 2, 2, 2])
    with pytest.raises(IndexError):
        kernel[1, 1](np.array([math.inf]), out)

    @cuda.jit
    def of_two_axes(x, out):
        atomic(out, (x[0], 0), 1)

    with pytest.raises(KernelError, match="an index of float64"):
        of_two_axes[1, 1](np.zeros(1), np.zeros((2, 2), np.int32))


def test_the_type_of_states_has_arrays():
    @cuda.jit(void(cuda.random.xoroshiro128p_type[:], float32[:]))
    def draw(states, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = cuda.random.xoroshiro128p_uniform_float32(states, i)

    out = np.zeros(5, np.float32)
    draw[1, 8](cuda.random.create_xoroshiro128p_states(5, seed=3), out)
    assert ((out > 0) & (out < 1)).all()
    assert len(set(out.tolist())) == 5
