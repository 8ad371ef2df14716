"""libdevice's arithmetic that rounds down, up and towards zero, against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

import weft
from weft.compat import cuda
from weft.compat.cuda import libdevice

RNG = np.random.default_rng(1)
MODES = ("rd", "ru", "rz")


def call(name, *given, result=np.float64, native=False):
    """Return what a function gives for each element."""
    function, n = getattr(libdevice, name), len(given[0])

    @cuda.jit
    def one(out, x):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i])

    @cuda.jit
    def two(out, x, y):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i])

    @cuda.jit
    def three(out, x, y, z):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i], z[i])

    kernel, out = (one, two, three)[len(given) - 1], np.zeros(n, result)
    run = kernel[-(-n // 64), 64] if native else weft.interpret(kernel, -(-n // 64), 64)
    run(out, *given)
    return out


def numbers(dtype, n=150):
    """Return numbers of all sizes, numbers near 1, and those at the ends of the range."""
    info, one = np.finfo(dtype), np.dtype(dtype).type
    exponents = RNG.integers(info.minexp - 20, info.maxexp, n)
    ends = [0, -0.0, 1, -1, info.max, -info.max, info.tiny, -info.tiny, info.smallest_subnormal,
            -info.smallest_subnormal, 3, 0.1, 1 + info.eps, 1 - info.eps / 2]  # fmt: skip
    return np.concatenate([np.ldexp(RNG.uniform(-1, 1, n), exponents).astype(dtype),
                           RNG.uniform(-2, 2, n).astype(dtype), np.array(ends, one),
                           RNG.choice(np.array(ends, one), 60)])


def rounded(exact, mode, dtype):
    """Return the number of a type that a fraction other than 0 is rounded to."""
    one, most = np.dtype(dtype).type, Fraction(float(np.finfo(dtype).max))
    if abs(exact) > most:
        away = (exact > 0) == (mode == "ru") and mode != "rz"
        return one((math.inf if away else float(most)) * (1 if exact > 0 else -1))
    guess = one(float(exact))
    if not np.isfinite(guess):
        guess = np.copysign(np.finfo(dtype).max, guess)
    with np.errstate(over="ignore"):
        near = [guess, *(np.nextafter(guess, one(end)) for end in (-np.inf, np.inf))]
    near = [v for v in near if np.isfinite(v)]
    if mode == "rz":
        mode = "rd" if exact > 0 else "ru"
    if mode == "rd":
        return max(v for v in near if Fraction(float(v)) <= exact)
    return min(v for v in near if Fraction(float(v)) >= exact)


OPERATIONS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b if b else None, "rcp": lambda a: 1 / a if a else None,
    "fma": lambda a, b, c: a * b + c,
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", OPERATIONS)
def test_directed(name, dtype, mode):
    x, y, z = numbers(dtype), RNG.permutation(numbers(dtype)), RNG.permutation(numbers(dtype))
    with np.errstate(over="ignore"):
        y[:60] = -x[:60]  # sums that cancel
        z[150:300] = -(x[150:300] * y[150:300])
    given = [x, y, z][:{"rcp": 1, "fma": 3}.get(name, 2)]
    letter = "d" if dtype is np.float64 else "f"
    called = f"fma{letter * (letter == 'f')}_{mode}" if name == "fma" else f"{letter}{name}_{mode}"
    found = call(called, *given, result=dtype)
    for *values, got in zip(*given, found, strict=True):
        if not np.isfinite(values).all():
            continue
        exact = OPERATIONS[name](*(Fraction(float(v)) for v in values))
        if exact:
            assert got == rounded(exact, mode, dtype), (values, got)
        elif exact == 0:
            assert got == 0
            if name == "add" and any(values):
                assert np.signbit(got) == (mode == "rd")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_square_roots(dtype):
    x = np.abs(numbers(dtype))
    letter = "d" if dtype is np.float64 else "f"
    low, high, cut = (call(f"{letter}sqrt_{mode}", x, result=dtype) for mode in MODES)
    np.testing.assert_array_equal(low, cut)
    for v, a, b in zip(x, low, high, strict=True):
        exact = Fraction(float(v))
        assert Fraction(float(a)) ** 2 <= exact <= Fraction(float(b)) ** 2
        assert b == a if Fraction(float(a)) ** 2 == exact else b == np.nextafter(a, dtype(np.inf))


def test_conversions():
    longs = np.concatenate([RNG.integers(-2**63, 2**63 - 1, 50),
                            [2**63 - 1, -2**63, 2**53 + 1, -2**53 - 1, 2**24 + 1, 0]])
    words = np.concatenate([longs.astype(np.int32), np.array([2**31 - 1, -2**31], np.int32)])
    for name, x, dtype in (
        ("ll2double", longs, np.float64), ("ull2double", longs.view(np.uint64), np.float64),
        ("ll2float", longs, np.float32), ("ull2float", longs.view(np.uint64), np.float32),
        ("int2float", words, np.float32), ("uint2float", words.view(np.uint32), np.float32),
        ("double2float", numbers(np.float64), np.float32),
    ):  # fmt: skip
        for mode in MODES:
            for value, got in zip(x.tolist(), call(f"{name}_{mode}", x, result=dtype), strict=True):
                assert got == (rounded(Fraction(value), mode, dtype) if value else 0)


def test_compiled_code_says_the_same():
    x, y = numbers(np.float64, 50), RNG.permutation(numbers(np.float64, 50))
    for name in ("dadd_rd", "dmul_ru", "ddiv_rz"):
        np.testing.assert_array_equal(call(name, x, y), call(name, x, y, native=True))


def test_products_of_functions_stay_products():
    """``dadd_rn(dmul_rn(a, b), c)`` rounds twice, though kernels fuse where they may."""
    add, multiply = libdevice.dadd_rn, libdevice.dmul_rn

    @cuda.jit
    def left(out, a, b, c):
        out[0] = add(multiply(a[0], b[0]), c[0])
        out[1] = add(a[0] * b[0], c[0])
        out[2] = libdevice.dsub_rn(c[0], multiply(a[0], -b[0]))

    a = np.array([0.1])
    for run in (left[1, 1], weft.interpret(left, 1, 1)):
        out = np.ones(3)
        run(out, a, a, -a * a)
        np.testing.assert_array_equal(out, 0)


def test_integers():
    x, y, z = (RNG.integers(-2**31, 2**31, 40).astype(np.int32) for _ in range(3))
    a, b, c = (v.astype(object) for v in (x, y, z))
    u, v, w = (k & 0xFFFFFFFF for k in (a, b, c))
    low = 2**32 - 1
    for name, expected in (
        ("hadd", (a + b) // 2), ("rhadd", (a + b + 1) // 2), ("uhadd", (u + v) // 2),
        ("urhadd", (u + v + 1) // 2), ("umul24", (u & 0xFFFFFF) * (v & 0xFFFFFF)),
    ):  # fmt: skip
        np.testing.assert_array_equal(call(name, x, y, result=np.int64).astype(object) & low,
                                      expected & low)
    for name, expected in (("sad", abs(a - b) + c), ("usad", abs(u - v) + w)):
        np.testing.assert_array_equal(call(name, x, y, z, result=np.int64).astype(object) & low,
                                      expected & low)
    m, n = RNG.integers(-2**63, 2**63 - 1, (2, 40))
    high = [p * q >> 64 for p, q in zip(m.tolist(), n.tolist(), strict=True)]
    np.testing.assert_array_equal(call("mul64hi", m, n, result=np.int64), high)
    found = call("byte_perm", x, y, z, result=np.int64)
    for p, q, s, got in zip(u, v, w, found.tolist(), strict=True):
        both = (p | q << 32).to_bytes(8, "little")
        chosen = bytes(both[s >> 4 * k & 7] for k in range(4))
        assert got == int.from_bytes(chosen, "little", signed=True)


def test_parts_of_numbers():
    x = np.concatenate([numbers(np.float64), [np.inf, -np.inf, np.nan]])
    high, low = call("double2hiint", x, result=np.int32), call("double2loint", x, result=np.int32)
    np.testing.assert_array_equal((high.astype(np.int64) << 32) | low.view(np.uint32),
                                  x.view(np.int64))
    np.testing.assert_array_equal(call("hiloint2double", high, low).view(np.int64),
                                  x.view(np.int64))
    np.testing.assert_array_equal(call("nextafter", x[:-3], x[1:-2]), np.nextafter(x[:-3], x[1:-2]))
    f = numbers(np.float32)
    np.testing.assert_array_equal(call("nextafterf", f[:-1], f[1:], result=np.float32),
                                  np.nextafter(f[:-1], f[1:]))
    with np.errstate(over="ignore"):
        half = f.astype(np.float16)
    np.testing.assert_array_equal(call("float2half_rn", f, result=np.int16), half.view(np.int16))
    np.testing.assert_array_equal(call("half2float", half.view(np.int16), result=np.float32),
                                  half.astype(np.float32))
    exponents = [math.frexp(v)[1] - 1 if v else -2**31 for v in x[:-3]]
    np.testing.assert_array_equal(call("ilogb", x, result=np.int32),
                                  [*exponents, 2**31 - 1, 2**31 - 1, -2**31])


def test_remainders_and_quotients():
    x = np.concatenate([RNG.uniform(-100, 100, 100), numbers(np.float64)])
    y = np.concatenate([RNG.uniform(-2, 2, 100), RNG.permutation(numbers(np.float64))])
    y[y == 0] = 1

    @cuda.jit
    def split(out, x, y):
        i = cuda.grid(1)
        if i < x.size:
            out[0, i], out[1, i] = libdevice.remquo(x[i], y[i])

    out = np.zeros((2, x.size))
    weft.interpret(split, -(-x.size // 64), 64)(out, x, y)
    for a, b, rest, count in zip(x.tolist(), y.tolist(), *out.tolist(), strict=True):
        exact = Fraction(a) / Fraction(b)
        assert rest == math.remainder(a, b)
        assert count == (abs(round(exact)) & 7) * (1 if exact > 0 else -1)


def test_exponents_of_singles():
    f = numbers(np.float32)
    np.testing.assert_array_equal(
        call("ilogbf", f, result=np.int32),
        [math.frexp(v)[1] - 1 if v else -2**31 for v in f.tolist()])
