"""The language of kernels: what a function computes as Python, it computes as a kernel."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft import gpu
from weft.ir import dtype as dt
from weft.ir.interpret import interpret
from weft.ir.text.text import print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.ir.verify.verify import verify
from weft.lang.reader.translate import Launch, translate
from weft.lang.values.types import ArrayType

_SCALE = 3
_TABLE = (1.5, 2.5, 4.0)


class Pair(NamedTuple):
    first: float
    second: float

    def total(self):
        return self.first + self.second


@dataclass
class Point:
    x: float
    y: float = 2.0

    @property
    def size(self):
        return self.x * self.x + self.y


def branches(x):
    if x > 2:
        y = x * 2
    elif x > 0:
        y = 1.5
    else:
        y = -1
    return y


def early(x):
    if x < 0:
        return -1.0
    for k in range(10):
        if k * k > x:
            return k
    return 100.0


def jumps(x):
    total = 0
    for i in range(10):
        if i % 2 == 0:
            if x > 3:
                continue
            total += 1
        if i > x:
            break
        total += i
    else:
        total += 1000
    return total


def nested(x):
    found = -1
    for i in range(5):
        for j in range(5):
            if i * j == int(x):
                found = i * 10 + j
                break
        if found >= 0:
            break
    return found


def nested_return(x):
    for i in range(5):
        for j in range(1, 5):
            if i * j > x:
                return i * 10 + j
        x = x - 0.5
    return -1


def whiles(x):
    steps = 0
    y = x
    while y > 0.5 and steps < 20:
        y /= 2
        steps += 1
        if steps == 7:
            continue
        y -= 0.01
    else:
        steps += 100
    return steps


def endless(x):
    n = 0
    while True:
        n += 1
        if n > x:
            break
    return n


def widened(x):
    s = 0
    for _ in range(3):
        s = s + x
    return s


def swapped(x):
    a, b = 0, 1
    for _ in range(int(x) + 5):
        a, b = b, a + b
    return a


def groups(x):
    p = Pair(x, 2.0)
    q = Point(x)
    q.y += p.second
    for _ in range(2):
        q.x = q.x + q.y
    t = (p.total(), q.x, q.y, *(1, 2))
    return t[0] + t[1] * t[-1] + len(t) + p.first


def steps(x):
    total = 0
    for i in range(10, 0, -3):
        total += i
    for i in range(1, 11, 4):
        total = total * 2 + i
    for v in (1, 2.5, x):
        if v > 2:
            total += v
    for i, v in enumerate(_TABLE):
        total += i * v
    for a, b in zip((1, 2), (3, 4), strict=True):
        if a == 2:
            break
        total += a * b
    n = int(x)
    for i in range(n, n + 3):
        total += i
    for i in range(n, n - 3, -1 if n > 0 else -2):
        total -= i
    return total + i


def logic(x):
    a = x > 1 and x < 3
    b = x == 0 or not a
    c = 1 if a else (2.5 if b else 3)
    d = 0 < x <= 2 != 1
    return c + a + 2 * b + 4 * d


def operands(x):
    n = int(x) % 3
    a = (x - 1.5) or 7.5
    b = n and x * 2
    c = n or x or 0.25
    d = (x > 1) and n
    e = not (n and x - 2) or 3
    return a + 2 * b + 4 * c + 8 * d + 16 * e


def helper(x, scale=2, *, shift=0):
    if x > 1:
        return x * scale
    return shift


def calls(x):
    return helper(x) + helper(x, shift=3) + helper(_SCALE, 4) + branches(x) + math.sqrt(abs(x))


def maths(x):
    y = math.exp(-x * x) + math.sin(x) * math.pi + math.floor(x) + math.ceil(x) + round(x)
    y += max(x, 1, 2.5) - min(x, 0) + math.hypot(3, x) + math.copysign(2, x) + math.atan2(x, 2)
    return y + divmod(x, 2)[1] + pow(x, 2) + float(int(x)) + (x // 1.5) + x % 3 + math.fmod(x, 2)


def integers(x):
    n = int(x * 7)
    return ((n << 3) ^ (n >> 1) & 0xFF | 5) + ~n + n // 3 + n % 5 - (-n) // 4 + n**2 + (not n)


def walrus(x):
    if (y := x * 2) > 2:
        return y
    return -y


def shadowed(x):
    for i in range(3):
        x = x + i
    i = i + 1
    return x * i


def chained(x):
    a = b = x
    a += 1
    c: weft.float64 = a * b
    return c


def inner_functions(x):
    base, unit = x, 1.0

    def add(v, by=unit + 1, *, times=1):
        total = v + by
        if total > 3:
            return total * times
        return total + base

    result = add(x)
    base = 100.0
    result += add(1.0) + add(9, times=2)
    plus = lambda v: v + base  # noqa: E731
    for j in range(3):
        def scaled(v, *more):
            return v * j + base + sum_of(*more)  # noqa: B023

        def sum_of(a, b):
            return a - b

        result += scaled(j, x, 2)
        base += 1

    def twice(f, v):
        return f(f(v))

    if x > 2:
        def last(v):
            return twice(plus, v)
    else:
        def last(v):
            return -v
    result += twice(plus, 1.0) + (lambda a, b=3: a * b)(4)
    return result + (twice(lambda v: v * unit, x) if x > 2 else 0)


def properties(x):
    p = Point(x)
    return p.size + Point(1.0, x).size


CASES = [branches, early, jumps, nested, nested_return, whiles, endless, widened, swapped, groups,
         steps, logic, operands, calls, maths, integers, walrus, shadowed, chained, inner_functions,
         properties]  # fmt: skip
VALUES = [-3.7, -1.0, 0.0, 0.4, 1.0, 1.5, 2.0, 2.9, 3.0, 4.5, 7.0, 12.0]




def _applied(function: Any) -> Any:
    """Return a kernel that applies a function to each element of an array."""

    def apply(out, x):
        i = weft.gpu.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    return apply


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_functions(function: Any) -> None:
    """A kernel gives what Python gives, for every kind of statement."""
    kernel = translate(_applied(function),
                       {"out": ArrayType(dt.float64, 1), "x": ArrayType(dt.float64, 1)},
                       Launch((8, 1, 1)))
    verify(kernel)
    assert parse_kernel(print_kernel(kernel)) is not None
    x = np.array(VALUES)
    out = np.zeros_like(x)
    interpret.run(kernel, [out, x], {"out.0": 12, "x.0": 12, "grid.x": 2})
    expected = [float(function(v)) for v in VALUES]
    np.testing.assert_allclose(out, expected, rtol=1e-14)


@weft.kernel
def asserting(x, most):
    i, j = weft.gpu.grid(2)
    assert x[i, j] != 13, "thirteen"
    weft.gpu.syncthreads()
    if x[i, j] > most:
        raise ValueError("too many")
    assert most < 40 or x[i, j] > 99
    x[i, j] = 0


@pytest.mark.parametrize(("first", "most", "said"), [
    (0, 30, "thirteen in thread (0, 1, 0) of block (1, 0, 0)"),
    (100, 122, "ValueError: too many in thread (1, 2, 0) of block (1, 1, 0)"),
    (20, 50, "assertion failed in thread "),
])  # fmt: skip
def test_failures_name_the_thread(first: int, most: int, said: str) -> None:
    """Wherever it runs, and also where the launch is native."""
    x = np.arange(first, first + 24).reshape(4, 6)
    for run in (asserting[(2, 2), (2, 3)], weft.interpret(asserting, (2, 2), (2, 3))):
        for _ in range(2):
            with pytest.raises(weft.errors.LaunchError) as raised:
                run(x.copy(), most)
            assert said in str(raised.value)
    said = said.partition(" in thread ")[0]
    for native in (False, True):
        report = weft.sanitize(asserting, (2, 2), (2, 3), native=native)(x.copy(), most)
        assert any(f.kind == "assertion" and f.message.startswith("thread (") and f.threads
                   and said in f.message for f in report.findings)


@weft.kernel
def chained(x, out):
    i = gpu.grid(1)
    out[i] = 1 if 0 <= i < x.size <= x[i] < 10 else -1
    if -1 < i < 5 < x[i] < x[i] + x[i + 1]:
        out[i] = 2


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_a_chain_of_comparisons_ends_where_one_does_not_hold(device):
    """What stands behind it is not read: nothing lies there."""
    x, out = np.array([3.0, 5, 6, 11, 20, 9]), np.zeros(16)
    weft.kernel(device=device)(chained.__weft_function__)[1, 16](x, out)
    np.testing.assert_array_equal(out[:6], [-1, -1, 2, 2, 2, 1])
    np.testing.assert_array_equal(out[6:], np.full(10, -1.0))


def test_text_that_names_a_number():
    """Text that is known when a kernel is compiled is converted as Python does."""

    @weft.kernel
    def k(out):
        out[0], out[1], out[2] = float("nan"), float("-inf"), np.float32("inf")
        out[3] = int("7")

    out = np.zeros(4)
    k[1, 1](out)
    np.testing.assert_array_equal(out, [np.nan, -np.inf, np.inf, 7])


@pytest.mark.parametrize("native", [True, False])
def test_narrow_integers_are_numbas(native):
    """What numba 0.68 computes: signs and ``~`` in the type itself, powers of float32 in it."""

    @weft.kernel
    def k(u, w, i, f, big, flag, out):
        out[0], out[1] = -u[0], ~u[0]
        out[2], out[3] = gpu.popc(~w[0]), -w[0]
        out[4], out[5] = -i[0], ~i[0]
        out[6], out[7] = f[0] ** 2, f[0] ** i[1]
        out[8], out[9] = big[0] < flag[0], flag[0] >= big[0]
        out[10] = divmod(big[0], i[1])[0]
        out[11] = -flag[0]

    out = np.zeros(12)
    given = (np.array([3], np.uint8), np.array([3], np.uint32), np.array([-128, 3], np.int8),
             np.array([0.1], np.float32), np.array([2**64 - 1], np.uint64), np.array([True]))
    (k[1, 1] if native else weft.interpret(k, 1, 1))(*given, out)
    f = np.float32(0.1)
    np.testing.assert_allclose(out, [253, 252, 30, 2**32 - 3, -128, 127, f * f, f * f * f, 0, 0,
                                     2.0**64 / 3, -1], rtol=1e-7)
    assert out[6] == np.float32(out[6])
    assert out[7] == np.float32(out[7])
