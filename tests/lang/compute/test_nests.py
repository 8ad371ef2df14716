"""Compute functions against the Python that they are written in, and what becomes of loops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import ndrange
from weft.errors import KernelError

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64
SIZES = (0, 1, 2, 7, 33)
MOST_INTERPRETED = 70  # elements of the arguments with which the interpreter device is tested


def numbers(dtype: Any, *shape: int, seed: int = 0) -> Any:
    """Return small numbers of a dtype."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if np.dtype(dtype).kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.integers(0 if np.dtype(dtype).kind == "u" else -9, 9, shape).astype(dtype)


def check(function: Any, *args: Any, rtol: float = 1e-5) -> dict[str, Any]:
    """Compare a function with itself as Python, also as it was written; return its loops."""
    ours = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    slow = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    expected = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    function(*ours)
    function.__weft_function__(*expected)
    if sum(a.size for a in args if isinstance(a, np.ndarray)) <= MOST_INTERPRETED:
        weft.compute(device="interpreter")(function.__weft_function__)(*slow)
    else:
        slow = ours
    for given in (ours, slow):
        for found, wanted in zip(given, expected, strict=True):
            if isinstance(found, np.ndarray):
                atol = rtol * float(np.abs(wanted.astype(F64)).max(initial=1)) if (
                    found.dtype.kind == "f") else 0
                np.testing.assert_allclose(found, wanted, rtol=rtol if atol else 0, atol=atol)
    return {f"{r.name}{r.line - function.__weft_function__.__code__.co_firstlineno}": r
            for r in function.explain(*args).loops}


def no_parallel(loops: dict[str, Any], name: str) -> bool:
    """Whether a loop runs in its order, and a reason is given."""
    loop = loops[name]
    return loop.kinds == ("serial",) and bool(loop.carried)


@weft.compute
def matmul(a: Any, b: Any, out: Any) -> None:
    for i, j in ndrange(a.shape[0], b.shape[1]):
        s = 0.0
        for k in range(a.shape[1]):
            s += a[i, k] * b[k, j]
        out[i, j] = s


@weft.compute
def matmul_in_memory(a: Any, b: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                out[i, j] += a[i, k] * b[k, j]


@weft.compute
def matmul_filled(a: Any, b: Any, out: Any) -> None:
    for i, j in ndrange(*out.shape):
        out[i, j] = 0
        for k in range(a.shape[1]):
            out[i, j] = out[i, j] + a[i, k] * b[k, j]


@pytest.mark.grid
@pytest.mark.parametrize("function", [matmul, matmul_in_memory, matmul_filled])
@pytest.mark.parametrize("dtype", [F32, F64, I32])
@pytest.mark.parametrize("shape", [(5, 7, 3), (33, 20, 41), (1, 1, 1), (0, 3, 4), (3, 0, 4)])
def test_matmul(function: Any, dtype: Any, shape: tuple[int, int, int]) -> None:
    """All ways to write a product of matrices become the contraction kernel."""
    m, k, n = shape
    a, b, out = numbers(dtype, m, k), numbers(dtype, k, n, seed=1), numbers(dtype, m, n, seed=2)
    check(function, a, b, out)
    if min(shape) > 1 and dtype is not I32:
        assert "contraction" in function.explain(a, b, out).why


@weft.compute
def batched(a: Any, b: Any, out: Any) -> None:
    for n, i, j in ndrange(*out.shape):
        s = 0.0
        for k in range(a.shape[2]):
            s += a[n, i, k] * b[n, k, j]
        out[n, i, j] = s


@weft.compute
def convolution(x: Any, w: Any, out: Any) -> None:
    for n, f, y, q in ndrange(*out.shape):
        s = 0.0
        for c in range(w.shape[1]):
            for r in range(w.shape[2]):
                for t in range(w.shape[3]):
                    s += x[n, c, y + r, q + t] * w[f, c, r, t]
        out[n, f, y, q] = s


def test_contractions() -> None:
    """Batched products and convolutions are contractions, too."""
    args = numbers(F32, 3, 9, 17), numbers(F32, 3, 17, 33), numbers(F32, 3, 9, 33)
    check(batched, *args)
    assert "contraction" in batched.explain(*args).why
    x = numbers(F32, 2, 3, 8, 9), numbers(F32, 4, 3, 3, 2), numbers(F32, 2, 4, 6, 8)
    check(convolution, *x)
    assert "contraction" in convolution.explain(*x).why


@weft.compute
def jacobi(a: Any, b: Any, steps: Any) -> None:
    for _t in range(steps):
        for i, j in ndrange((1, a.shape[0] - 1), (1, a.shape[1] - 1)):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        for i, j in ndrange((1, a.shape[0] - 1), (1, a.shape[1] - 1)):
            a[i, j] = b[i, j]


@weft.compute
def seidel(a: Any) -> None:
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            a[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


def test_stencils() -> None:
    """Sweeps from one array to another run in vectors; a sweep in place keeps its order."""
    for n in (2, 3, 7, 33):
        loops = check(jacobi, numbers(F64, n, n + 8), numbers(F64, n, n + 8), 3)
    assert no_parallel(loops, "_t2")
    assert "vector" in loops["j3"].kinds
    assert not loops["i3"].carried
    for n in (2, 3, 7, 33):
        loops = check(seidel, numbers(F64, n, n + 8))
    assert no_parallel(loops, "i2")
    assert no_parallel(loops, "j3")
    assert "reads a[i - 1, j]" in loops["i2"].carried
    assert "line" in loops["i2"].carried
    large = numbers(F32, 700, 700)
    report = jacobi.explain(large, large.copy(), 2)
    assert weft.is_available("cpu")
    assert [r.name for r in report.loops if "vector" in r.kinds] == ["j", "j"]


@weft.compute
def independent_seidel(a: Any) -> None:
    for i in ndrange((1, a.size)):
        a[i] = a[i] + a[i - 1]


def test_promises_are_checked() -> None:
    """An ndrange that carries a dependence is a warning with the line, and runs in order."""
    a, line = numbers(F64, 40), independent_seidel.__weft_function__.__code__.co_firstlineno
    expected = np.cumsum(a)
    with pytest.warns(weft.DependenceWarning) as caught:
        independent_seidel(a)
    np.testing.assert_allclose(a, expected)
    (message,) = (str(w.message) for w in caught)
    assert f"test_nests.py:{line + 2}: the loop over i" in message
    assert f"line {line + 3} reads a[i - 1], line {line + 3} writes a[i]" in message
    assert caught[0].filename == __file__


@weft.compute
def prefix(a: Any, out: Any) -> None:
    s = 0.0
    for i in range(a.size):
        s += a[i]
        out[i] = s


@weft.compute
def histogram(a: Any, out: Any) -> None:
    for i in range(a.size):
        out[a[i]] += 1


def test_carried_values() -> None:
    """Prefix sums and histograms keep their order."""
    for n in SIZES:
        loops = check(prefix, numbers(F64, n), numbers(F64, n))
    assert no_parallel(loops, "i3")
    assert loops["i3"].carried.endswith("writes s")
    loops = check(histogram, np.random.default_rng(0).integers(0, 9, 200), np.zeros(9, I32))
    assert no_parallel(loops, "i2")
    assert "out[a[i]]" in loops["i2"].carried


def reducing(update: str, start: str) -> Callable[..., Any]:
    """Return a function that reduces the rows of an array."""
    import linecache

    text = ("def reduced(a, out):\n    for i in ndrange(a.shape[0]):\n"
            f"        s = {start}\n        for j in range(a.shape[1]):\n"
            f"            {update}\n        out[i] = s\n")
    name = f"<reduced {update} {start}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {"ndrange": ndrange}
    exec(compile(text, name, "exec"), space)
    made: Callable[..., Any] = weft.compute(space["reduced"])
    return made


@pytest.mark.grid
@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize(("update", "start", "dtypes"), [
    ("s += a[i, j]", "0", (F32, F64, I32, np.int8, np.uint16, bool)),
    ("s = a[i, j] + s + 1", "2", (F64, I32)),
    ("s -= a[i, j] * a[i, j]", "1.5", (F64,)),
    ("s *= a[i, j]", "1", (F64, I64)),
    ("s = max(s, a[i, j])", "a[i, 0]", (F32, F64, I32, np.uint8)),
    ("s = min(s, a[i, j])", "3", (F32, F64, I32)),
    ("s = max(a[i, j], s)", "-3", (I32,)),
    ("s = a[i, j] if a[i, j] < s else s", "9", (F32, I32)),
    ("s = s & a[i, j]", "-1", (I32,)),
    ("s |= a[i, j]", "0", (I32, np.uint8)),
    ("s ^= a[i, j]", "5", (I64,)),
    ("s += 1 if a[i, j] > 0 else 0", "0", (F32, I32)),
    ("s += a[i, j] * i", "0.0", (F32, I32)),
])
def test_reductions(update: str, start: str, dtypes: tuple[Any, ...]) -> None:
    """Each kind of reduction of each dtype, as Python computes it."""
    function: Any = reducing(update, start)
    for dtype in dtypes:
        for shape in ((1, 1), (5, 1), (7, 33), (3, 130)):
            args = numbers(dtype, *shape), np.zeros(shape[0], F64 if dtype in (F32, F64) else I64)
            loops = check(function, *args)
            assert loops["j3"].reduction, (update, dtype)
    if start[0] != "a":
        check(function, numbers(dtypes[0], 4, 0), np.zeros(4))


def test_conditional_reductions() -> None:
    """A sum under a condition, and two at once."""

    @weft.compute
    def positive(a: Any, out: Any) -> None:
        for i in ndrange(a.shape[0]):
            n = 0
            s = 0.0
            for j in range(a.shape[1]):
                if a[i, j] > 0:
                    n += 1
                    if a[i, j] < 1:
                        s += a[i, j]
            out[i, 0] = n
            out[i, 1] = s

    for shape in ((1, 1), (5, 0), (7, 33)):
        loops = check(positive, numbers(F64, *shape), numbers(F64, shape[0], 2))
    assert loops["j5"].reduction


@weft.compute
def minimum(a: Any, out: Any) -> None:
    for i in ndrange(a.shape[0]):
        s = np.inf
        for j in range(a.shape[1]):
            s = min(s, a[i, j])
        out[i] = s


@weft.compute
def minimum_of_nan(a: Any, out: Any) -> None:
    for i in ndrange(a.shape[0]):
        s = 0.0
        for j in range(a.shape[1]):
            s = min(a[i, j], s)
        out[i] = s


@pytest.mark.parametrize("function", [minimum, minimum_of_nan])
def test_extremes_of_special_values(function: Any) -> None:
    """NaN, infinities and zeros: as Python's min, in whose one form a NaN counts and in the other
    the order.
    """
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 5e-324, np.finfo(F64).max]
    rng = np.random.default_rng(0)
    a = rng.choice(special, (40, 19))
    a[0], a[1], a[2] = np.nan, np.inf, np.concatenate([[np.nan], np.ones(18)])
    out, expected = np.zeros(40), np.zeros(40)
    function(a, out)
    function.__weft_function__(a, expected)
    np.testing.assert_array_equal(out, expected)


def test_signed_zeros() -> None:
    """A sum that starts from -0.0 may stay -0.0."""

    @weft.compute
    def total(a: Any, out: Any) -> None:
        for i in range(out.size):
            for j in range(a.shape[1]):
                out[i] += a[i, j]

    out = np.array([-0.0, 0.0, -0.0])
    total(np.full((3, 20), -0.0), out)
    assert np.signbit(out).tolist() == [True, False, True]
    total(np.zeros((3, 0)), out)
    assert np.signbit(out).tolist() == [True, False, True]


def test_shapes_of_loops() -> None:
    """Triangles, negative and larger steps, empty loops, jumps."""

    @weft.compute
    def triangle(a: Any, out: Any) -> None:
        for i in range(a.shape[0]):
            s = 0.0
            for j in range(i):
                s += a[i, j]
            for j in range(i + 1, a.shape[1]):
                out[i, j] = a[j, i] - s

    @weft.compute
    def steps(a: Any, out: Any) -> None:
        for i in range(a.size - 1, -1, -1):
            out[i] = a[i] * 2 if a[i] > 0 else a[i]
        for i in range(1, a.size, 3):
            out[i] += i
        for i in range(5, 5):
            out[i] = 100
        for i in range(a.size - 1, 0, -2):
            out[i] = out[i - 1]

    @weft.compute
    def jumps(a: Any, out: Any) -> None:
        for i in ndrange(a.shape[0]):
            for j in range(a.shape[1]):
                if a[i, j] > 1:
                    break
                if a[i, j] < -1:
                    continue
                out[i] += a[i, j]

    @weft.compute
    def points(a: Any, out: Any) -> None:
        for p in ndrange(a.shape[0], (0, a.shape[1], 2)):
            i, j = p
            out[p] = a[i, j] + p[1]

    for n in SIZES:
        check(triangle, numbers(F64, n, n), numbers(F64, n, n))
        check(steps, numbers(F64, n), numbers(F64, n))
        check(jumps, numbers(F64, n, 19), numbers(F64, n))
        check(points, numbers(F64, n, 19), numbers(F64, n, 19))


def test_scratch_names_do_not_order_loops() -> None:
    """A name that is set anew in each iteration keeps nothing in order."""

    @weft.compute
    def twice(a: Any, out: Any) -> None:
        t = 1.0
        for i in range(a.shape[0]):
            t = 0.0
            for j in range(a.shape[1]):
                t += a[i, j]
            out[i] = t
        for i in range(a.shape[0]):
            t = out[i] * 2
            out[i] = t

    @weft.compute
    def last(a: Any, out: Any) -> None:
        t = 7.0
        for i in range(a.size):
            t = a[i]
        out[0] = t

    loops = check(twice, numbers(F64, 33, 9), numbers(F64, 33))
    assert not loops["i3"].carried
    assert not loops["i8"].carried
    for n in (0, 5):
        check(last, numbers(F64, n), numbers(F64, 1))


def test_functions_and_constants() -> None:
    """Device functions, math, tuples, integers of all sizes as arguments."""

    @weft.func
    def weight(x: Any, k: Any) -> Any:
        return np.exp(-x * x) if k % 2 == 0 else 0.5

    table = np.array([0.25, 0.5, 0.25])

    @weft.compute
    def smooth(a: Any, out: Any, n: Any, scale: Any) -> None:
        for i in ndrange((1, n - 1)):
            s = 0.0
            for k in range(3):
                s += table[k] * a[i + k - 1]
            out[i] = s * scale + weight(a[i], i)

    for n in (2, 7, 33):
        check(smooth, numbers(F64, 40), numbers(F64, 40), n, 0.5)
        check(smooth, numbers(F64, 40), numbers(F64, 40), I32(n), F32(2))


def test_literals_take_types() -> None:
    """A float32 sum that starts from a literal is a float32 sum; integers stay 64 bits wide."""

    @weft.compute
    def total(a: Any, out: Any) -> None:
        s = 0.0
        n = 0
        for i in range(a.size):
            s += a[i] * 2
            n += 200
        out[0] = s
        out[1] = n

    @weft.compute
    def halves(out: Any) -> None:
        x = 1.0
        for _ in range(40):
            x = x * 0.5 + 1
        out[0] = x

    a = np.ones(100, F32)
    text = str(total.explain(a, np.zeros(2)))
    assert "reduction" in text
    out = np.zeros(2)
    total(a, out)
    assert out.tolist() == [200, 20000]
    one = np.zeros(1)
    halves(one)
    x = 1.0
    for _ in range(40):
        x = x * 0.5 + 1
    assert one[0] == x  # in float64


def test_dynamic_shapes() -> None:
    """After some shapes a function is compiled for all of them."""

    @weft.compute
    def outer(a: Any, b: Any, out: Any) -> None:
        for i, j in ndrange(a.size, b.size):
            out[i, j] = a[i] * b[j]

    @weft.compute
    def product(a: Any, b: Any, out: Any) -> None:
        for i, j in ndrange(a.shape[0], b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            out[i, j] = s

    for n in range(1, 14):
        check(outer, numbers(F64, n), numbers(F64, 3 * n), numbers(F64, n, 3 * n))
        check(product, numbers(F64, n, 5), numbers(F64, 5, n + 1), numbers(F64, n, n + 1))
    assert len(next(iter(outer._families.values()))) == 9
    with pytest.raises(weft.BoundsError):
        product(numbers(F64, 20, 5), numbers(F64, 4, 21), numbers(F64, 20, 21))


@weft.compute
def softmax(a: Any, out: Any) -> None:
    for i in ndrange(a.shape[0]):
        m = -np.inf
        for j in range(a.shape[1]):
            m = max(m, a[i, j])
        s = 0.0
        for j in range(a.shape[1]):
            e = np.exp(a[i, j] - m)
            out[i, j] = e
            s += e
        for j in range(a.shape[1]):
            out[i, j] /= s


@weft.compute
def triangular(a: Any) -> None:
    n = a.shape[0]
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
        for i in range(k + 1, n):
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]


@weft.compute
def neighbours(a: Any) -> None:
    for i in ndrange(a.size // 2):
        a[2 * i] = a[2 * i + 1] * 2


@weft.compute
def halves_of(a: Any) -> None:
    for i in ndrange(a.size // 2):
        a[i] = a[i + a.size // 2] + 1


@weft.compute
def zeroed_product(a: Any, b: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = 0
        for k in range(a.shape[1]):
            for j in range(out.shape[1]):
                out[i, j] += a[i, k] * b[k, j]


@weft.compute
def column_sums(a: Any, out: Any) -> None:
    for j in range(a.shape[1]):
        out[j] = 0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j] += a[i, j]


def test_dependences_that_are_none() -> None:
    """Elements that never meet: odd and even ones, two halves, a row and those below it."""
    for n in (0, 1, 2, 7, 40):
        assert not check(neighbours, numbers(F64, n))["i2"].carried
        assert not check(halves_of, numbers(F64, n))["i2"].carried
    for n in (1, 2, 20, 33):
        loops = check(triangular, numbers(F64, n, n) + np.eye(n) * 9)
    assert no_parallel(loops, "k3")
    assert not loops["i4"].carried
    assert not loops["i6"].carried
    assert "vector" in loops["j7"].kinds


def test_loops_that_do_several_things() -> None:
    """A sum beside stores, a product beside what clears its result, sums of columns."""
    for shape in ((1, 1), (7, 33), (3, 0)):
        loops = check(softmax, numbers(F64, *shape), numbers(F64, *shape))
        check(column_sums, numbers(F64, *shape), numbers(F64, shape[1]))
    loops = check(softmax, numbers(F64, 7, 33), numbers(F64, 7, 33))
    assert "vector" in loops["j7"].kinds
    for m, k, n in ((30, 40, 50), (1, 1, 1), (3, 0, 2)):
        args = numbers(F64, m, k), numbers(F64, k, n), numbers(F64, m, n)
        check(zeroed_product, *args)
    args = numbers(F64, 30, 40), numbers(F64, 40, 50), numbers(F64, 30, 50)
    assert "contraction" in zeroed_product.explain(*args).why


def test_indices_that_are_never_used() -> None:
    """A function is compiled for sizes, for which some of its code may make no sense."""

    @weft.compute
    def first(a: Any, out: Any) -> None:
        if a.size > 0:
            out[0] = a[0]
        for i in range(3, a.size):
            out[2] = a[2] + i

    for n in (0, 1, 2, 3, 5):
        check(first, numbers(F64, n), numbers(F64, n))

    @weft.compute
    def third(a: Any) -> None:
        a[2] = 1

    third(np.zeros(3))
    for n in (0, 2):
        with pytest.raises(weft.BoundsError, match=f"index 2.*0 to {n - 1}"):
            third(np.zeros(n))


def test_sums_of_both_ways() -> None:
    """What is added on one way of a condition may be taken away on the other."""

    @weft.compute
    def alternating(a: Any, out: Any) -> None:
        s = 1.0
        for i in range(a.size):
            if i % 2 == 0:
                s += a[i]
            else:
                s -= a[i] * 2
        out[0] = s

    for n in SIZES:
        loops = check(alternating, numbers(F64, n), numbers(F64, 1))
    assert loops["i3"].reduction


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.uint32,
                                   np.int32, np.uint64, np.int64, np.float16, np.float32,
                                   np.float64])
def test_every_dtype(dtype: Any) -> None:
    """Elementwise work, sums and conversions of each type, as NumPy computes them."""

    @weft.compute
    def work(a: Any, out: Any, total: Any) -> None:
        s = 0
        for i in ndrange(a.size):
            out[i] = a[a.size - 1 - i]
            s += a[i]
        total[0] = s

    for n in SIZES:
        a = numbers(dtype, n, seed=n)
        out, total = np.zeros(n, dtype), np.zeros(1)
        work(a, out, total)
        np.testing.assert_array_equal(out, a[::-1])
        np.testing.assert_allclose(total[0], a.astype(F64).sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.requires("torch")
def test_bfloat16() -> None:
    """A product of bfloat16 matrices sums in float32."""
    import torch

    a = torch.randn(33, 40, generator=torch.Generator().manual_seed(0)).bfloat16()
    b = torch.randn(40, 20, generator=torch.Generator().manual_seed(1)).bfloat16()
    out = torch.zeros(33, 20)
    matmul(a, b, out)
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-4, atol=1e-4)
    assert "contraction" in matmul.explain(a, b, out).why


@weft.compute
def ring(a: Any, b: Any, n: Any) -> None:
    for i in range(n):
        a[(i + 1) % n] -= i
        for j in range(i + 1, n):
            b[j, (i + 1) % n] += 1


def test_facts_of_inner_loops() -> None:
    """That a triangular loop runs is no fact in front of it, where its index may wrap around."""
    for n in (0, 1, 2, 7, 16):
        check(ring, numbers(I64, 20), numbers(I64, 20, 20), n)


@weft.compute
def of_large(a: Any, out: Any) -> None:
    for i in ndrange(a.size):
        out[0, i] = a[i] // 3
        out[1, i] = a[i] % 10
        out[2, i] = max(a[i], 1)
        out[3, i] = a[i] if a[i] > 3 else 3
        v = 7
        if a[i] > 5:
            v = a[i]
        out[4, i] = v


def test_numbers_beside_uint64() -> None:
    """A number in the source is a uint64 beside one where the result has their sign."""
    a = np.array([2**63 + 5, 2**64 - 1, 2**53 + 1, 0, 4], np.uint64)
    out = np.zeros((5, 5), np.uint64)
    of_large(a, out)
    for i, v in enumerate(map(int, a)):
        assert [int(x) for x in out[:, i]] == [v // 3, v % 10, max(v, 1), max(v, 3),
                                               v if v > 5 else 7]


@weft.compute
def brighter(a: Any, out: Any) -> None:
    for i in ndrange(a.size - 1):
        out[i] = max(a[i] + a[i + 1] - 10, 0)


def test_differences_of_unsigned_stay_signed() -> None:
    """What is subtracted from unsigned integers may leave them."""
    out = np.zeros(3, np.int32)
    brighter(np.array([3, 4, 200, 50], np.uint8), out)
    assert out.tolist() == [0, 194, 240]


@weft.compute
def of_wrong_loops(x: Any) -> None:
    for i, j in ndrange(8):
        x[i] = j
    for i in range(0, 8, 0):
        x[i] = 1
    for i in reversed(range(8)):
        x[i] = 1
    x[0] = ndrange(8)
    x[weft.gpu.threadIdx.x] = 1


def test_hints_about_loops() -> None:
    """What is wrong with loops comes with what to write, all at once."""
    with pytest.raises(KernelError) as caught:
        of_wrong_loops(np.zeros(8))
    told = str(caught.value)
    for hint in ("one name for each axis", "never end", "range(n - 1, -1, -1)",
                 "in weft.ndrange(m, n)", "a weft.kernel"):
        assert hint in told
