"""The interpreter against NumPy, Python and the documented values; its checks."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import processor
from weft.errors import BoundsError, ShapeError, UnsupportedError, VariableError, VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret import evaluate, run
from weft.ir.interpret.interpret_value import from_bits, round_float, to_bits
from weft.ir.op import SCALAR_OPS, Op
from weft.ir.stmt import (
    PARALLEL,
    SERIAL,
    Alloc,
    Assert,
    Atomic,
    Axis,
    Barrier,
    Block,
    Call,
    For,
    If,
    Kernel,
    Let,
    Load,
    Location,
    Memory,
    Prefetch,
    Print,
    Reduce,
    Store,
    While,
    lhs,
    rhs,
)
from weft.ir.stmt import Accumulator as Acc

INTEGERS = [d for d in dt.ALL if d.is_integer]
FLOATS = [d for d in dt.ALL if d.is_float and not d.is_storage_only]
NARROW = [dt.float8_e4m3fn, dt.float8_e5m2, dt.float16, dt.bfloat16]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, math.inf, -math.inf, math.nan, 1e-40, -5e-324,
           65519.0, 1e30]  # fmt: skip
i, j, n = ex.var("i"), ex.var("j"), ex.var("n")
x = ex.var("x", dt.float32)
ZERO = ex.index(0)


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    return a == b and type(a) is type(b)


def binary(op, d, a, b):
    names = ex.var("a", d), ex.var("b", d)
    return evaluate(ex.binary(op, *names), dict(zip(names, (a, b), strict=True)))


def unary(op, d, a):
    v = ex.var("a", d)
    return evaluate(ex.unary(op, v), {v: a})


def edge(d):
    low, high = int(d.min), int(d.max)
    return sorted({low, low + 1, -3, -1, 0, 1, 2, 7, high - 1, high} & set(range(low, low + 2))
                  | {v for v in (-3, -1, 0, 1, 2, 7, d.bits, high - 1, high) if low <= v <= high})


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_integer_arithmetic_wraps_as_numpy_does(d):
    numpy_ops = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.MIN: np.minimum,
                 Op.MAX: np.maximum, Op.AND: np.bitwise_and, Op.OR: np.bitwise_or,
                 Op.XOR: np.bitwise_xor}  # fmt: skip
    for op, fn in numpy_ops.items():
        for a in edge(d):
            for b in edge(d):
                want = fn(np.array([a], d.numpy), np.array([b], d.numpy))[0]
                assert binary(op, d, a, b) == want, (op, a, b)


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_integer_division_is_total(d):
    for a in edge(d):
        assert binary(Op.FLOORDIV, d, a, 0) == binary(Op.MOD, d, a, 0) == 0
        assert binary(Op.FMOD, d, a, 0) == 0
        for b in edge(d):
            if b:
                assert binary(Op.FLOORDIV, d, a, b) == dt.wrap(a // b, d)
                assert binary(Op.MOD, d, a, b) == a % b
                assert binary(Op.FMOD, d, a, b) == int(Fraction(a) - b * int(Fraction(a, b)))


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_shifts_past_the_width(d):
    for a in edge(d):
        for b in edge(d):
            inside = 0 <= b < d.bits
            assert binary(Op.SHL, d, a, b) == (dt.wrap(a << b, d) if inside else 0)
            assert binary(Op.SHR, d, a, b) == (a >> b if inside else (-1 if a < 0 else 0))


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_integer_bits(d):
    for a in edge(d):
        pattern = a & ((1 << d.bits) - 1)
        assert unary(Op.POPCOUNT, d, a) == bin(pattern).count("1")
        assert unary(Op.CLZ, d, a) == d.bits - pattern.bit_length()
        assert unary(Op.NOT, d, a) == dt.wrap(~a, d)
        assert unary(Op.NEG, d, a) == dt.wrap(-a, d)
        assert unary(Op.ABS, d, a) == dt.wrap(abs(a), d)
        for b in edge(d):
            assert binary(Op.MULHI, d, a, b) == dt.wrap(a * b >> d.bits, d)
            assert binary(Op.LT, d, a, b) is (a < b)


def test_integer_powers():
    d = dt.int8
    assert binary(Op.POW, d, 3, 5) == dt.wrap(243, d)
    assert [binary(Op.POW, d, a, -3) for a in (-2, -1, 0, 1, 2)] == [0, -1, 0, 1, 0]
    assert binary(Op.POW, d, -1, -2) == 1
    assert binary(Op.POW, d, 0, 0) == 1


@pytest.mark.parametrize("d", FLOATS, ids=str)
def test_float_arithmetic_rounds_once(d):
    numpy_ops = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide}
    wide = dt.compute_dtype(d).numpy
    with np.errstate(all="ignore"):
        values = [float(np.float64(v).astype(d.numpy)) for v in SPECIAL]
        for op, fn in numpy_ops.items():
            for a in values:
                for b in values:
                    want = fn(np.array([a], wide), np.array([b], wide)).astype(d.numpy)
                    got = binary(op, d, a, b)
                    assert same(got, float(want.astype(np.float64)[0])), (op, a, b, got, want)


@given(st.floats(width=32), st.floats(width=32), st.floats(width=32))
def test_fused_multiply_add_is_exact(a, b, c):
    names = [ex.var(v, dt.float32) for v in "abc"]
    got = evaluate(ex.mad(*names), dict(zip(names, (a, b, c), strict=True)))
    if not all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            assert same(got, float(np.float64(a) * np.float64(b) + c))
        return
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if math.isinf(got):
        assert abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103
        return
    with np.errstate(over="ignore"):
        for other in (np.nextafter(np.float32(got), np.float32(s * np.inf)) for s in (-1, 1)):
            if np.isfinite(other):
                assert abs(exact - Fraction(got)) <= abs(exact - Fraction(float(other)))


@given(*[st.floats(allow_nan=False, allow_infinity=False)] * 3)
def test_fused_multiply_add_of_doubles(a, b, c):
    names = [ex.var(v, dt.float64) for v in "abc"]
    got = evaluate(ex.mad(*names), dict(zip(names, (a, b, c), strict=True)))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        assert got == float(exact)
    except OverflowError:
        assert math.isinf(got)


def test_minimum_and_maximum_order_zeros_and_propagate_nan():
    for d in FLOATS:
        assert same(binary(Op.MIN, d, 0.0, -0.0), -0.0)
        assert same(binary(Op.MAX, d, -0.0, 0.0), 0.0)
        for op in (Op.MIN, Op.MAX):
            assert math.isnan(binary(op, d, math.nan, 1.0))
            assert math.isnan(binary(op, d, 1.0, math.nan))


def test_comparisons_with_nan():
    for op in (Op.LT, Op.LE, Op.EQ):
        assert binary(op, dt.float32, math.nan, math.nan) is False
    assert binary(Op.NE, dt.float32, math.nan, math.nan) is True


UNARY_FLOAT = [op for op in SCALAR_OPS if op.group == "unary" and "f" in op.kinds]
NUMPY_NAMES = {"neg": "negative", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
               "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "round": "rint"}


@pytest.mark.parametrize("op", UNARY_FLOAT, ids=lambda op: op.name)
def test_unary_functions_take_every_special_value(op):
    fn = getattr(np, NUMPY_NAMES.get(op.name, op.name), None)
    if op in (Op.ERF, Op.ERFC):
        fn = np.vectorize(getattr(math, op.name))
    elif op is Op.SIGMOID:
        fn = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    elif op is Op.RSQRT:
        fn = lambda v: 1 / np.sqrt(v)  # noqa: E731
    for v in [*SPECIAL, 0.25, -0.75, 100.0, -800.0]:
        with np.errstate(all="ignore"):
            want = float(fn(np.float64(v)))
        got = unary(op, dt.float64, v)
        if math.isfinite(want) and want:
            assert got == pytest.approx(want, rel=1e-14, abs=5e-324), v
            continue
        assert same(got, want), (v, got, want)


def test_float_division_family():
    for a in (7.5, -7.5, 0.0, -0.0, math.inf):
        assert math.isnan(binary(Op.MOD, dt.float64, a, 0.0))
        for b in (2.0, -2.0, 0.3):
            if math.isfinite(a):
                assert same(binary(Op.MOD, dt.float64, a, b), a % b)
                assert same(binary(Op.FLOORDIV, dt.float64, a, b), a // b)
                assert same(binary(Op.FMOD, dt.float64, a, b), math.fmod(a, b))
    assert binary(Op.FLOORDIV, dt.float32, -1.0, 0.0) == -math.inf
    assert math.isnan(binary(Op.FLOORDIV, dt.float32, 0.0, 0.0))


@pytest.mark.parametrize(("a", "b"), [(0.0, -1.0), (-0.0, -3.0), (-0.0, -2.0), (-8.0, 1 / 3),
                                      (-2.0, 3.0), (1e200, 9.0), (-1e200, 9.0), (math.nan, 0.0),
                                      (1.0, math.nan), (-1.0, math.inf), (0.5, -math.inf)])
def test_powers(a, b):
    with np.errstate(all="ignore"):
        want = float(np.power(np.float64(a), np.float64(b)))
    assert same(binary(Op.POW, dt.float64, a, b), want)


def convert(value, source, target):
    v = ex.var("v", source)
    return evaluate(ex.cast(v, target), {v: value})


def test_float_to_integer_saturates():
    for d in INTEGERS:
        assert convert(math.nan, dt.float32, d) == 0
        assert convert(math.inf, dt.float32, d) == d.max
        assert convert(-math.inf, dt.float32, d) == d.min
        assert convert(1e30, dt.float64, d) == d.max
        assert convert(-0.9, dt.float64, d) == 0
        assert convert(2.9, dt.float64, d) == 2


def test_integer_casts_wrap_and_bool_tests_for_zero():
    assert convert(300, dt.int64, dt.uint8) == 44
    assert convert(200, dt.uint8, dt.int8) == -56
    assert convert(math.nan, dt.float32, dt.bool_) is True
    assert convert(-0.0, dt.float32, dt.bool_) is False
    assert convert(256, dt.int64, dt.bool_) is True
    assert same(convert(True, dt.bool_, dt.float16), 1.0)


def test_large_integers_round_once():
    """2**24 + 1 + a bit far below: rounding by way of float64 would go the wrong way."""
    value = (1 << 62) + (1 << 38) + 1
    assert convert(value, dt.int64, dt.float32) == 2.0**62 + 2.0**39
    assert convert(-value, dt.int64, dt.float32) == -(2.0**62 + 2.0**39)
    assert convert(1 << 63, dt.uint64, dt.float16) == math.inf


@pytest.mark.parametrize("d", NARROW, ids=str)
def test_narrow_floats_agree_with_ml_dtypes(d):
    count = 1 << d.bits
    patterns = np.arange(count, dtype=np.uint8 if d.bits == 8 else np.uint16)
    values = patterns.view(d.numpy).astype(np.float64)
    for bits in range(count):
        value = from_bits(bits, d)
        assert same(value, float(values[bits])) or math.isnan(value)
        if not math.isnan(value):
            assert to_bits(value, d) == bits
    finite = np.sort(values[np.isfinite(values)])
    ties = ((finite[:-1] + finite[1:]) / 2).astype(np.float32)
    with np.errstate(all="ignore"):
        points = np.concatenate([ties, np.nextafter(ties, np.float32(9e9)),
                                 np.float32([np.inf, -np.inf, np.nan, 1e38])])  # fmt: skip
        want = points.astype(d.numpy).astype(np.float64)
    for value, expected in zip(points.tolist(), want.tolist(), strict=True):
        assert same(round_float(value, d), expected), value


def test_bitcasts():
    v = ex.var("v", dt.float32)
    assert evaluate(ex.bitcast(v, dt.uint32), {v: -1.0}) == 0xBF800000
    w = ex.var("w", dt.uint16)
    assert evaluate(ex.bitcast(w, dt.bfloat16), {w: 0x3F80}) == 1.0
    assert evaluate(ex.bitcast(w, dt.float16), {w: 0x8000}) == 0.0
    s = ex.var("s", dt.int64)
    assert evaluate(ex.bitcast(s, dt.float64), {s: 1}) == 5e-324


def test_vectors():
    v = ex.var("v", dt.int64, 4)
    counting = ex.ramp(ex.index(5), 4)
    assert evaluate(v + counting, {v: [1, 2, 3, 4]}) == (6, 8, 10, 12)
    assert evaluate(ex.half(counting, 1)) == (7, 8)
    assert evaluate(ex.extract(counting, 3)) == 8
    assert evaluate(ex.broadcast(i, 2), {i: 9}) == (9, 9)
    wide = ex.where(v.lt(counting), v, counting)
    assert evaluate(wide, {v: np.array([9, 1, 9, 1])}) == (5, 1, 7, 1)


@pytest.mark.slow
def test_deep_expressions():
    e = i
    for _ in range(300_000):
        e = ex.binary(Op.XOR, e, i)
    assert evaluate(e, {i: 5}) == 5


def test_unbound_names_are_errors():
    with pytest.raises(VerifyError, match="without a value"):
        evaluate(i + 1)


# statements


def memory(name, *shape, dtype=dt.float32, scope="global"):
    return Memory(name, dtype, tuple(s if isinstance(s, ex.Expr) else ex.index(s) for s in shape),
                  scope)


def test_an_access_outside_its_axis_is_an_error_even_inside_the_memory():
    a = memory("a", 3, 4)
    store = Store(a, (ZERO, ex.index(4)), ex.const(1.0, dt.float32))
    k = Kernel("k", (a,), (store,), locations={store: Location("user.py", 7)})
    with pytest.raises(BoundsError, match=r"index \(0, 4\)") as raised:
        run(k, [np.zeros((3, 4), np.float32)])
    assert raised.value.where[:2] == ("user.py", 7)


def test_negative_indices_are_out_of_bounds():
    a = memory("a", 3)
    with pytest.raises(BoundsError):
        run(Kernel("k", (a,), (Load(x, a, (ex.index(-1),)),)), [np.zeros(3, np.float32)])


def test_uninitialised_memory_is_noticed():
    t = memory("t", 2, scope="local")
    a = memory("a", 1)
    body = (Alloc(t), Store(t, (ZERO,), ex.const(1.0, dt.float32)), Load(x, t, (ex.index(1),)),
            Store(a, (ZERO,), x))  # fmt: skip
    with pytest.raises(VerifyError, match="never written"):
        run(Kernel("k", (a,), body), [np.zeros(1, np.float32)])


def test_each_iteration_allocates_anew():
    t, a = memory("t", 1, scope="local"), memory("a", 2)
    body = For(i, ex.index(2), SERIAL, (
        Alloc(t),
        If(i.eq(0), (Store(t, (ZERO,), ex.const(1.0, dt.float32)),)),
        Load(x, t, (ZERO,)),
        Store(a, (i,), x),
    ))  # fmt: skip
    with pytest.raises(VerifyError):
        run(Kernel("k", (a,), (body,)), [np.zeros(2, np.float32)])


def test_every_dtype_survives_memory():
    for d in dt.ALL:
        a, b = memory("a", 5, dtype=d), memory("b", 5, dtype=d)
        v = ex.var("v", d)
        k = Kernel("k", (a, b), (For(i, ex.index(5), SERIAL, (Load(v, a, (i,)),
                                                             Store(b, (i,), v))),))  # fmt: skip
        source = np.array([0, 1, 1, 3, 0]).astype(d.numpy)
        target = np.zeros(5, d.numpy)
        run(k, {"a": source, "b": target})
        np.testing.assert_array_equal(target, source)


def test_views_and_shared_arrays():
    """Strided arrays work, and one array given twice is one memory."""
    a, b = memory("a", 4), memory("b", 4)
    k = Kernel("k", (a, b), (For(i, ex.index(3), SERIAL, (Load(x, a, (i,)),
                                                         Store(b, (i + 1,), x))),))  # fmt: skip
    base = np.arange(8, dtype=np.float32)
    run(k, [base[::2], base[::2]])
    assert base.tolist() == [0, 1, 0, 3, 0, 5, 0, 7]


def test_arrays_are_checked():
    k = Kernel("k", (memory("a", 4),), ())
    with pytest.raises(ShapeError):
        run(k, [np.zeros(3, np.float32)])
    with pytest.raises(ShapeError):
        run(k, [np.zeros(4, np.float64)])


def test_symbolic_sizes_need_values():
    size = ex.Variable("m", 1, 9)
    a = memory("a", size)
    k = Kernel("k", (a,), (For(i, size, PARALLEL, (Store(a, (i,), ex.const(2.0, dt.float32)),)),))
    array = np.zeros(3, np.float32)
    run(k, [array], {"m": 3})
    assert array.tolist() == [2, 2, 2]
    with pytest.raises(VariableError, match="m"):
        run(k, [array])


def test_while_and_atomics_and_calls():
    a, c = memory("a", 4, dtype=dt.int64), memory("c", 1, dtype=dt.int64, scope="local")
    count, old, doubled = ex.var("count"), ex.var("old"), ex.var("doubled")
    body = (
        Alloc(c),
        Store(c, (ZERO,), ZERO),
        While((Load(count, c, (ZERO,)),), count.lt(6), (
            Call((doubled,), "double", (count,)),
            Atomic(old, "add", a, (count % 4,), doubled),
            Atomic(ex.var("o2"), "cas", a, (ZERO,), ex.index(100), ZERO),
            Store(c, (ZERO,), count + 1),
        )),
        Barrier(),
        Prefetch(a, (ZERO,)),
    )  # fmt: skip
    array = np.zeros(4, np.int64)
    run(Kernel("k", (a,), body), [array], functions={"double": lambda v: (2 * v,)})
    assert array.tolist() == [100 + 8, 2 + 10, 4, 6]


@pytest.mark.parametrize(("kind", "start", "value", "after"), [
    ("sub", 5, 7, -2), ("min", 5, 7, 5), ("max", 5, 7, 7), ("and", 5, 6, 4), ("or", 5, 6, 7),
    ("xor", 5, 6, 3), ("exch", 5, 9, 9), ("inc", 5, 9, 6), ("inc", 9, 9, 0), ("dec", 5, 9, 4),
    ("dec", 0, 9, 9), ("dec", 10, 9, 9),
])  # fmt: skip
def test_atomic_kinds(kind, start, value, after):
    a, b = memory("a", 1, dtype=dt.int64), memory("b", 1, dtype=dt.int64)
    body = (Atomic(n, kind, a, (ZERO,), ex.index(value)), Store(b, (ZERO,), n))
    array, old = np.array([start]), np.zeros(1, np.int64)
    run(Kernel("k", (a, b), body), [array, old])
    assert (array[0], old[0]) == (after, start)


def test_print_and_let_and_blocks(capsys):
    body = (Block("outer", (Let(n, ex.index(4)),)), Print("n is", (n * 2,)))
    run(Kernel("k", (), body), [])
    assert capsys.readouterr().out == "n is 8\n"


def test_assertions_report_message_value_and_bound():
    with pytest.raises(BoundsError, match="gather: found 5, expected within 3"):
        run(Kernel("k", (), (Assert(ex.index(5).lt(3), "gather", ex.index(5), ex.index(3)),)), [])


def test_names_do_not_leak_out_of_bodies():
    a = memory("a", 1)
    body = (If(ex.index(0).lt(n), (Let(x, ex.const(1.0, dt.float32)),)), Store(a, (ZERO,), x))
    with pytest.raises(VerifyError):
        run(Kernel("k", (a,), (Let(n, ex.index(1)), *body)), [np.zeros(1, np.float32)])


def test_unknown_callee():
    with pytest.raises(UnsupportedError, match="mystery"):
        run(Kernel("k", (), (Call((), "mystery", ()),)), [])


def test_forty_nested_loops():
    a = memory("a", 1, dtype=dt.int64)
    body = (Load(n, a, (ZERO,)), Store(a, (ZERO,), n + 1))
    for depth in range(40):
        body = (For(ex.var(f"d{depth}"), ex.index(1 + (depth % 20 == 0)), SERIAL, body),)
    array = np.zeros(1, np.int64)
    run(Kernel("k", (a,), body), [array])
    assert array[0] == 4


def test_partial_results_combine_in_a_tree():
    """A combine that is not associative shows the order."""
    a, b = memory("a", 4, dtype=dt.int64), memory("b", 1, dtype=dt.int64)
    s = ex.var("s")
    acc = Acc(s, ZERO, s + n, lhs(s) * 10 + rhs(s))
    reduce = Reduce((Axis(i, ex.index(4), "vector"),), (acc,), (Load(n, a, (i,)),))
    out = np.zeros(1, np.int64)
    run(Kernel("k", (a, b), (reduce, Store(b, (ZERO,), s))), [np.array([1, 2, 3, 4]), out])
    assert out[0] == (1 * 10 + 3) * 10 + (2 * 10 + 4)


def test_a_million_statements_take_seconds():
    a, b = memory("a", 500, 400), memory("b", 500)
    s = ex.var("s", dt.float32)
    reduce = Reduce((Axis(j, ex.index(400), SERIAL),),
                    (Acc(s, ex.const(0.0, dt.float32), s + x, lhs(s) + rhs(s)),),
                    (Load(x, a, (i, j)),))  # fmt: skip
    k = Kernel("k", (a, b), (For(i, ex.index(500), PARALLEL, (reduce, Store(b, (i,), s))),))
    arrays = [np.ones((500, 400), np.float32), np.zeros(500, np.float32)]
    assert processor.timed(lambda: run(k, arrays)) < 300 * processor.unit()
