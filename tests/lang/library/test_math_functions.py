"""Functions of math of integers, of many numbers and of bits, against Python."""

import math

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError

LARGEST = (1 << 63) - 1
RNG = np.random.default_rng(11)
N = np.concatenate([
    RNG.integers(0, 70, 120), RNG.integers(0, LARGEST, 20),
    [0, 1, 2, 20, 21, 66, 67, 68, 3037000499**2, 3037000499**2 - 1, LARGEST, -5, 5, -(1 << 63)],
])  # fmt: skip
K = np.concatenate([
    RNG.integers(0, 36, 120), RNG.integers(0, 9, 20),
    [0, 0, 3, 20, 21, 33, 33, 34, 2, 1, 1, 3, -3, 6],
])  # fmt: skip
FUNCTIONS = (math.gcd, math.lcm, math.isqrt, math.perm, math.comb, math.factorial)


def one_by_one(n, k, out, i):
    out[0, i] = math.gcd(n, k)
    out[1, i] = math.lcm(n, k)
    out[2, i] = math.isqrt(n)
    out[3, i] = math.perm(n, k)
    out[4, i] = math.comb(n, k)
    out[5, i] = math.factorial(k)


@weft.kernel
def of_threads(n, k, out):
    i = gpu.grid(1)
    if i < n.size:
        one_by_one(n[i], k[i], out, i)


@weft.compute
def of_loops(n, k, out):
    for i in weft.ndrange(n.shape[0]):
        one_by_one(n[i], k[i], out, i)


def expected(function, n, k):
    """Return Python's result, as the guide says where it is an error or too large."""
    if function in (math.isqrt, math.factorial):
        args = (n if function is math.isqrt else k,)
    else:
        args = (n, k)
    try:
        found = function(*args)
    except ValueError:
        return 0
    if function is math.lcm:  # wraps around
        return (found + (1 << 63)) % (1 << 64) - (1 << 63)
    return min(found, LARGEST)


@pytest.mark.parametrize("launch", [
    of_threads[3, 64],
    weft.kernel(device="interpreter")(of_threads.__weft_function__)[3, 64],
    of_loops,
], ids=["kernel", "interpreter", "compute"])  # fmt: skip
def test_functions_of_integers(launch):
    out = np.zeros((6, N.size), np.int64)
    launch(N, K, out)
    for row, function in zip(out, FUNCTIONS, strict=True):
        wanted = [expected(function, int(n), int(k)) for n, k in zip(N, K, strict=True)]
        if function is math.lcm:  # of which the size is taken after it wrapped
            wanted = [abs(w) if w != -(1 << 63) else w for w in wanted]
        np.testing.assert_array_equal(row, wanted, function.__name__)


@weft.kernel
def of_many(x, y, out):
    i = gpu.grid(1)
    if i < x.size:
        out[0, i] = math.gcd(x[i], y[i], 12) + math.gcd(x[i]) + math.gcd()
        out[1, i] = math.lcm(x[i], y[i], 4) + math.lcm(x[i]) + math.lcm()
        out[2, i] = math.prod((x[i], 2, y[i]), start=y[i]) + math.prod(())
        out[3, i] = math.comb(5, 2) + math.perm(7, None) + math.factorial(25) // math.factorial(24)


def test_any_number_of_integers():
    x, y = RNG.integers(-90, 90, 53), RNG.integers(-90, 90, 53)
    out = np.zeros((4, 53), np.int64)
    of_many[2, 32](x, y, out)
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    np.testing.assert_array_equal(out[0], [math.gcd(a, b, 12) + abs(a) for a, b in pairs])
    np.testing.assert_array_equal(out[1], [math.lcm(a, b, 4) + abs(a) + 1 for a, b in pairs])
    np.testing.assert_array_equal(out[2], 2 * x * y * y + 1)
    np.testing.assert_array_equal(out[3], np.full(53, 10 + 5040 + 25))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_cube_roots(kind):
    """Also of subnormal numbers, of which a product loses bits."""
    f = np.finfo(kind)
    x = np.concatenate([RNG.normal(size=100) * f.tiny, [f.max, -8.0, 0.0, -0.0, math.inf],
                        [f.smallest_subnormal, math.nan]]).astype(kind)  # fmt: skip

    @weft.kernel
    def roots(x, out, other):
        i = gpu.grid(1)
        out[i] = math.cbrt(x[i])
        other[i] = gpu.cbrt(x[i])

    out, other = np.zeros_like(x), np.zeros_like(x)
    roots[1, x.size](x, out, other)
    np.testing.assert_array_equal(out, other)
    exact = np.cbrt(x.astype(np.longdouble))
    same = (out == exact) | (np.isnan(out) & np.isnan(exact))
    with np.errstate(invalid="ignore"):
        assert np.all(same | (np.abs(out - exact) <= np.spacing(np.abs(exact).astype(kind))))
    np.testing.assert_array_equal(np.signbit(out[:-1]), np.signbit(x[:-1]))


@weft.kernel
def moved(x, n, out):
    i = gpu.grid(1)
    if i < x.size:
        out[i] = math.ldexp(x[i], n[i])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_ldexp_over_the_whole_range(kind):
    f = np.finfo(kind)
    widest = 2 * (f.maxexp - f.minexp + f.nmant)
    x = np.concatenate([np.full(30, f.smallest_subnormal), np.full(30, f.max), np.full(40, f.tiny),
                        f.smallest_subnormal * np.arange(1, 50)]).astype(kind)  # fmt: skip
    n = np.concatenate([np.linspace(0, widest, 30), -np.linspace(0, widest, 30),
                        np.arange(-f.nmant - 2, -f.nmant + 38), -(np.arange(49) % 7)])  # fmt: skip
    n = n.astype(np.int64)
    out = np.zeros_like(x)
    moved[3, 64](x, n, out)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(out, np.ldexp(x, n))


@weft.kernel
def of_floats(x, y, z, out):
    i = gpu.grid(1)
    if i < x.size:
        out[0, i] = math.hypot(x[i], y[i])
        out[1, i] = math.hypot(x[i], y[i], z[i])
        out[2, i] = math.dist((x[i], y[i], z[i]), (0.0, 0.0, 0.0))
        out[3, i] = math.nextafter(x[i], y[i])
        out[4, i] = math.ulp(x[i])
        out[5, i] = math.hypot(x[i]) + math.hypot() + math.dist((), ())


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_lengths_and_neighbours(kind):
    f = np.finfo(kind)
    odd = np.array([0.0, -0.0, 1, -3, f.max, -f.max, f.tiny, f.smallest_subnormal, math.inf,
                    -math.inf, math.nan, f.max / 4, f.tiny * 3, 0.1], kind)  # fmt: skip
    x = np.concatenate([np.repeat(odd, odd.size), RNG.normal(size=200).astype(kind)])
    y = np.concatenate([np.tile(odd, odd.size), RNG.normal(size=200).astype(kind)])
    z = np.roll(x, 17)
    out = np.zeros((6, x.size), kind)
    of_floats[(x.size + 63) // 64, 64](x, y, z, out)
    wide = [v.astype(np.longdouble) for v in (x, y, z)]
    with np.errstate(all="ignore"):
        for row, parts in ((out[0], wide[:2]), (out[1], wide), (out[2], wide)):
            exact = np.sqrt(sum(v * v for v in parts))
            for v in parts:
                exact[np.isinf(v)] = math.inf
            nearest = exact.astype(kind)
            same = (row == nearest) | (np.isnan(row) & np.isnan(nearest))
            error = np.abs(row - exact) / np.spacing(nearest)
            assert np.all(same | (error <= 1.5))
        size = np.abs(x)
        step = np.where(size == f.max, f.max - np.nextafter(f.max, kind(0)), np.spacing(size))
        beside = np.nextafter(x, y)
    step[np.isinf(x)] = math.inf
    np.testing.assert_array_equal(out[3], beside)
    moved = (x != y) & ~np.isnan(beside)
    np.testing.assert_array_equal(np.signbit(out[3][moved]), np.signbit(beside[moved]))
    np.testing.assert_array_equal(out[4], step)
    np.testing.assert_array_equal(out[5], size)


def test_in_a_function_with_a_contract():
    def price(a: int, b: int, x: float) -> float:
        whole = math.comb(a, b) + math.perm(a, b) + math.lcm(a, b) + math.isqrt(a)
        return whole + math.hypot(x, x, 1.0) + math.nextafter(x, 0.0) + math.ulp(x)

    assert weft.critical(price)(10, 3, 0.7) == pytest.approx(price(10, 3, 0.7), rel=1e-15)


def refused(function):
    @weft.kernel
    def one(x):
        x[0] = function(x[0], x[1])

    with pytest.raises(KernelError) as caught:
        one[1, 1](np.zeros(2))
    return str(caught.value)


def test_what_is_refused_has_a_hint():
    assert "sum() of a tuple, or a loop" in refused(lambda a, b: math.fsum((a, b)))
    assert "convert it with int()" in refused(lambda a, b: math.gcd(a, 3))
    assert "put the numbers in a tuple" in refused(lambda a, b: math.prod(a))
    assert "math.dist of 2 and 1 numbers" in refused(lambda a, b: math.dist((a, b), (b,)))
    assert "math.factorial of 2 arguments" in refused(lambda a, b: math.factorial(int(a), 2))
    assert "have 64 bits" in refused(lambda a, b: math.factorial(25))
    assert "not defined for negative" in refused(lambda a, b: math.factorial(-2))


WHOLE = {"gcd": (12, 18), "lcm": (4, 6), "isqrt": (17,), "perm": (7, 3), "comb": (7, 3),
         "factorial": (5,)}  # fmt: skip
OF_TWO = {name: (3.0, 2.0) for name in ("atan2", "copysign", "fmod", "hypot", "isclose",
                                        "nextafter", "pow", "remainder")}  # fmt: skip
GIVEN = {**WHOLE, **OF_TWO, "ldexp": (0.75, 5), "fma": (3.0, 2.0, 0.5), "acos": (0.5,),
         "asin": (0.5,), "atanh": (0.5,), "prod": ((3.0, 2.0),),
         "dist": ((3.0, 2.0), (1.0, 1.0))}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("name", sorted(
    {n for n in dir(math) if n[0] != "_" and callable(getattr(math, n))} - {"fsum", "sumprod"}
))  # fmt: skip
def test_each_function_of_this_python(name):
    """What a newer Python adds to math fails here until kernels have it."""
    function, args = getattr(math, name), GIVEN.get(name, (1.5,))

    @weft.kernel
    def apply(args, out):
        found = function(*args)
        if name in ("frexp", "modf"):
            out[0], out[1] = found
        else:
            out[0] = found

    out = np.zeros(2)
    apply[1, 1](args, out)
    wanted = np.ravel(function(*args))
    np.testing.assert_allclose(out[:wanted.size], wanted, rtol=1e-15)
