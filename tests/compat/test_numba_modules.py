"""numba's modules beside cuda.jit: random numbers, libdevice, fp16, vectors, vectorize."""

import math

import numpy as np
import pytest

import weft.compat as numba
from weft.compat import cuda, guvectorize, vectorize
from weft.compat.cuda import libdevice
from weft.compat.cuda.random import (
    create_xoroshiro128p_states,
    xoroshiro128p_normal_float32,
    xoroshiro128p_normal_float64,
    xoroshiro128p_uniform_float32,
    xoroshiro128p_uniform_float64,
)
from weft.errors import DTypeError, KernelError, ShapeError

WORD = (1 << 64) - 1


class Generator:
    """xoroshiro128+ in Python's integers."""

    def __init__(self, seed):
        z = (seed + 0x9E3779B97F4A7C15) & WORD
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
        self.a = self.b = z ^ (z >> 31)

    def next(self):
        total, b = (self.a + self.b) & WORD, self.a ^ self.b
        turned = (self.a << 55 | self.a >> 9) & WORD
        self.a = (turned ^ b ^ (b << 14)) & WORD
        self.b = (b << 36 | b >> 28) & WORD
        return total

    def jump(self):
        a = b = 0
        for word in (0xBEAC0467EBA5FACB, 0xD86B048B86AA9922):
            for bit in range(64):
                if word >> bit & 1:
                    a, b = a ^ self.a, b ^ self.b
                self.next()
        self.a, self.b = a, b


@cuda.jit
def draw(states, out):
    i = cuda.grid(1)
    if i < states.shape[0]:
        out[i, 0] = xoroshiro128p_uniform_float32(states, i)
        out[i, 1] = xoroshiro128p_uniform_float64(states, i)
        out[i, 2] = xoroshiro128p_normal_float32(states, i)
        out[i, 3] = xoroshiro128p_normal_float64(states, i)


def test_random_numbers_are_numbas():
    states, out = create_xoroshiro128p_states(20, seed=42, subsequence_start=3), np.zeros((20, 4))
    draw[1, 32](states, out)
    own = Generator(42)
    for _ in range(3):
        own.jump()
    for row in out:
        start = own.a, own.b
        units = [(own.next() >> 11) * 2.0**-53 for _ in range(6)]
        assert row[0] == np.float32(units[0])
        assert row[1] == units[1]
        for found, (u, v) in zip(row[2:], (units[2:4], units[4:]), strict=True):
            assert found == pytest.approx(math.sqrt(-2 * math.log(u)) * math.cos(
                2 * math.pi * v), abs=2e-6)
        own.a, own.b = start
        own.jump()
    # as numba 0.68 prints it
    assert out[17, :2].tolist() == [0.08849406987428665, 0.9238365803895858]
    assert create_xoroshiro128p_states(0, 1).size == 0


def test_random_numbers_look_random():
    states, out = create_xoroshiro128p_states(500, seed=-7), np.zeros((500, 4))
    draw[8, 64](states, out)
    assert abs(out[:, :2].mean() - 0.5) < 0.05
    assert abs(out[:, 2:].mean()) < 0.15
    assert abs(out[:, 2:].std() - 1) < 0.1
    assert len(np.unique(out[:, 1])) == 500


def apply(function, *arrays, kind=np.float64):
    """Return what a function of a kernel gives for arrays."""
    out = np.zeros(arrays[0].shape, kind)
    if len(arrays) == 1:
        @cuda.jit
        def run(x, out):
            i = cuda.grid(1)
            if i < x.size:
                out[i] = function(x[i])
    else:
        @cuda.jit
        def run(x, y, out):
            i = cuda.grid(1)
            if i < x.size:
                out[i] = function(x[i], y[i])
    run[4, 64](*arrays, out)
    return out


X = np.concatenate((np.random.default_rng(1).normal(size=60) * 2,
                    [0.0, -0.0, 1.5, 2.5, -2.5, 4.0, math.inf, -math.inf, math.nan]))  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), [
    ("sin", np.sin), ("sinf", np.sin), ("fast_expf", np.exp), ("exp10", lambda x: 10.0**x),
    ("sinpi", lambda x: np.sin(np.pi * x)), ("rsqrt", lambda x: 1 / np.sqrt(x)),
    ("roundf", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)), ("rint", np.rint),
    ("cbrt", np.cbrt), ("floor", np.floor), ("saturatef", lambda x: np.fmin(np.fmax(x, 0), 1)),
    ("isnand", np.isnan), ("signbitf", np.signbit), ("fabsf", np.abs), ("log1p", np.log1p),
])
def test_libdevice(name, expected):
    with np.errstate(all="ignore"):
        wanted = np.asarray(expected(X), np.float64)
    close = 1e-6 if name.endswith("f") else 1e-13
    found = apply(getattr(libdevice, name), X)
    np.testing.assert_allclose(found, wanted, rtol=close, atol=close)


def test_libdevice_of_two_numbers_of_bits_and_of_integers():
    y = np.roll(X, 7)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(apply(libdevice.fmax, X, y), np.fmax(X, y))
        apart = np.where(y >= X, 0, X - y)
        np.testing.assert_array_equal(apply(libdevice.fdim, X, y), apart)
    n = np.random.default_rng(2).integers(-(1 << 31), 1 << 31, 69)
    found = apply(libdevice.float_as_int, X, kind=np.int32)
    np.testing.assert_array_equal(found, X.astype(np.float32).view(np.int32))
    m = np.roll(n, 5)
    np.testing.assert_array_equal(apply(libdevice.mulhi, n, m, kind=np.int64), n * m >> 32)
    wide = [int(a) * int(b) * 977 for a, b in zip(n, m, strict=True)]
    bits = np.array([w & WORD for w in wide], np.uint64)
    high = apply(libdevice.umul64hi, bits, bits[::-1], kind=np.uint64)
    assert [int(h) for h in high] == [int(a) * int(b) >> 64
                                      for a, b in zip(bits, bits[::-1], strict=True)]
    np.testing.assert_array_equal(apply(libdevice.double2int_rz, X[:66], kind=np.int32),
                                  np.trunc(X[:66]))
    p = np.linspace(-0.999, 0.999, 41)
    back = [math.erf(v) for v in apply(libdevice.erfinv, p)]
    np.testing.assert_allclose(back, p, atol=1e-14)
    wide_range = np.linspace(-3, 40, 87)
    exact = [math.exp(v * v) * math.erfc(v) for v in wide_range[:50]]
    np.testing.assert_allclose(apply(libdevice.erfcx, wide_range)[:50], exact, rtol=1e-12)


@cuda.jit
def halves(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = cuda.fp16.hadd(x[i], y[i])
        out[1, i] = cuda.fp16.hmul(x[i], y[i])
        out[2, i] = cuda.fp16.hfma(x[i], y[i], x[i])
        out[3, i] = cuda.fp16.hmax(x[i], y[i])
        out[4, i] = cuda.fp16.hsqrt(abs(x[i]))
        out[5, i] = 1 if cuda.fp16.hlt(x[i], y[i]) else 0


def test_halves():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 50)).astype(np.float16)
    out = np.zeros((6, 50), np.float16)
    halves[1, 64](x, y, out)
    once = (x.astype(np.float64) * y + x).astype(np.float16)
    expected = np.stack((x + y, x * y, once, np.maximum(x, y), np.sqrt(np.abs(x)), x < y))
    np.testing.assert_array_equal(out, expected)


@cuda.jit
def vectors(out):
    a = cuda.float32x2(1, 2)
    b = cuda.float4(a, 3, cuda.float1(4))
    c = cuda.int3(7, 8, 9.7)
    total = b
    for i in range(3):
        total = cuda.float32x4(total.y, total.z, total.w, total.x + i)
    out[0] = total.x
    out[1] = total.w
    out[2] = c.z
    out[3] = b.z / 2


def test_vectors():
    out = np.zeros(4)
    vectors[1, 1](out)
    assert out.tolist() == [4, 5, 9, 1.5]

    @cuda.jit
    def wrong(out):
        out[0] = cuda.float2(1, 2, 3).x

    with pytest.raises(KernelError, match="float32x2 of 3 numbers"):
        wrong[1, 1](out)


@vectorize(["float32(float32, float32)", "float64(float64, float64)"], target="cuda")
def scaled(a, b):
    return math.sqrt(abs(a)) * b


@vectorize
def doubled(a):
    return a * 2


def test_vectorize():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(7, 1, 5)), rng.normal(size=(3, 1))
    found = scaled(a, b)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.sqrt(np.abs(a)) * b, rtol=1e-14)
    narrow = scaled(a.astype(np.float32), np.float32(2))
    assert narrow.dtype == np.float32
    out = np.zeros((7, 3, 5))
    assert scaled(a, b, out=out) is out
    np.testing.assert_array_equal(out, found)
    assert scaled(4.0, 3.0) == 6
    assert isinstance(scaled(cuda.to_device(a), b), cuda.DeviceArray)
    assert doubled(np.arange(5)).tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(ShapeError):
        scaled(np.ones(3), np.ones(4))
    with pytest.raises(DTypeError):
        scaled(np.ones(3, complex), np.ones(3))
    assert scaled(np.ones((0, 3)), 1.0).shape == (0, 3)


@vectorize(["int64(int64, int64)"], target="cuda")
def plus(a, b):
    return a + b


def test_reduce_of_a_vectorized_function():
    assert plus.reduce(np.arange(101)) == 5050


@guvectorize(["void(float64[:,:], float64[:], float64[:])"], "(m,n),(n)->(m)", target="cuda")
def apply_matrix(a, x, out):
    for i in range(a.shape[0]):
        total = 0.0
        for j in range(a.shape[1]):
            total += a[i, j] * x[j]
        out[i] = total


@guvectorize([(numba.int64[:], numba.int64, numba.int64[:])], "(n),()->()")
def count_below(x, limit, out):
    out[0] = 0
    for v in x:
        if v < limit:
            out[0] += 1


@guvectorize([(numba.float64[:], numba.float64[:], numba.float64[:])], "(n),()->(n)")
def shifted(x, by, out):
    for i in range(x.size):
        out[i] = x[i] + by[0]


def test_guvectorize_gives_numbers_as_arrays_of_one():
    x = np.random.default_rng(6).normal(size=(4, 3))
    np.testing.assert_array_equal(shifted(x, np.arange(4.0)), x + np.arange(4.0)[:, None])


def test_guvectorize():
    rng = np.random.default_rng(5)
    a, x = rng.normal(size=(6, 1, 4, 3)), rng.normal(size=(2, 3))
    np.testing.assert_allclose(apply_matrix(a, x), np.einsum("abmn,bn->abm", a, x), rtol=1e-13)
    out = np.zeros(4)
    apply_matrix(a[0, 0], x[0], out)
    np.testing.assert_allclose(out, a[0, 0] @ x[0])
    x = rng.integers(0, 9, (5, 11))
    np.testing.assert_array_equal(count_below(x, np.arange(5)), (x < np.arange(5)[:, None]).sum(1))
    with pytest.raises(ShapeError, match="n = 3 and 4"):
        apply_matrix(a, np.ones(4))


@numba.njit(fastmath=True)
def cube(x):
    return x * x * x


@cuda.jit("void(complex128[:], Array(float64, 1, 'C'), types.int32)")
def cubes(z, x, n):
    i = cuda.grid(1)
    if i < n:
        z[i] = cube(z[i]) + x[i]


def test_functions_of_the_host_and_signatures():
    z, x = np.arange(4) * 1j, np.arange(4.0)
    cubes[1, 32](z, x, 4)
    np.testing.assert_array_equal(z, (np.arange(4) * 1j) ** 3 + x)
    assert cube(3) == 27
    assert cubes.py_func.__name__ == "cubes"
    with cuda.gpus[0]:
        assert cuda.gpus.current.name == "cpu" == cuda.gpus.current.name.decode()
    with cuda.pinned(x), cuda.mapped(x) as there:
        there[0] = 5
    assert x[0] == 5
    record = numba.from_dtype(np.dtype([("a", np.int32), ("b", np.float64)], align=True))
    assert record.kind.itemsize == 16
    assert numba.typeof((1, np.zeros(3))).types[1].ndim == 1
