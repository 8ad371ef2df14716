"""Every row of the op table, natively, against the interpreter's scalar functions."""

import math

import numpy as np
import pytest
from compiled import evaluate

from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret_scalar import function
from weft.ir.op import SCALAR_OPS, Op
from weft.passes import transcendental

FLOATS = [d for d in dt.ALL if d.is_float]
EXACT_OPS = [
    op
    for op in SCALAR_OPS
    if op not in (Op.CAST, Op.BITCAST, Op.WHERE, Op.MAD)
    and (op not in transcendental.TRANSCENDENTALS or op in (Op.RECIPROCAL, Op.POW))
]


def special(d):
    """Values at which something may go wrong, as a NumPy array."""
    if d.is_bool:
        return np.array([False, True])
    if d.is_integer:
        lo, hi = d.min, d.max
        values = {lo, lo + 1, hi, hi - 1, 0, 1, 2, 3, 5, 7, 8, d.bits - 1, d.bits, d.bits + 1, 100}
        if d.kind == "i":
            values |= {-1, -2, -3, -7, -8, -100}
        return np.array(sorted(values), d.numpy)
    values = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 7.0, 0.1, -1e-3, 100.0, 1e30,
              -1e30, 1e-40, -1e-40, math.inf, -math.inf, math.nan, 5e-324, 65504.0, 448.0, 1e308]
    with np.errstate(over="ignore"):
        return np.array(values).astype(d.numpy)


def operands(d, arity, rng, count=200):
    grids = np.meshgrid(*[special(d)] * arity) if arity < 3 else None
    if grids is None:
        picks = rng.choice(special(d), (arity, 600))
        return [picks[k] for k in range(arity)]
    columns = [g.ravel() for g in grids]
    bits = rng.integers(0, 256, (arity, count * d.itemsize), dtype=np.uint8)
    random = [b.view(d.numpy) if not d.is_bool else b % 2 == 1 for b in bits]
    return [np.concatenate([c, r]) for c, r in zip(columns, random, strict=True)]


def python(array, d):
    if d.is_float:
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            return array.astype(np.float64).tolist()
    return array.tolist()


def expected(op, d, result, columns):
    fn = function(op, d, result)
    return [fn(*row) for row in zip(*(python(c, d) for c in columns), strict=True)]


def check(got, want, d, columns):
    """Bitwise equality, except that one NaN is as good as another."""
    got = python(got, d)
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        same = g == w and (not d.is_float or math.copysign(1, g) == math.copysign(1, w))
        both_nan = g != g and w != w
        assert same or both_nan, f"{[c[k] for c in columns]}: got {g}, expected {w}"


@pytest.mark.grid
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("op", EXACT_OPS, ids=lambda op: op.name)
def test_op(op, lanes, rng):
    dtypes = [d for d in dt.ALL if d.kind in op.kinds]
    if op in transcendental.TRANSCENDENTALS and op is not Op.RECIPROCAL:
        dtypes = [d for d in dtypes if not d.is_float]
    for d in dtypes:
        columns = operands(d, op.arity, rng)
        names = [ex.var(f"x{k}", d) for k in range(op.arity)]
        result = dt.bool_ if op.result == "bool" else d
        root = ex.make(op, result, tuple(names))
        (got,) = evaluate([root], names, columns, lanes)
        check(got, expected(op, d, result, columns), result, columns)


@pytest.mark.grid
@pytest.mark.parametrize("op", [Op.FLOORDIV, Op.MOD, Op.FMOD, Op.SHL, Op.SHR, Op.POW],
                         ids=lambda op: op.name)  # fmt: skip
def test_op_by_constant(op, rng):
    for d in (dt.int8, dt.int32, dt.int64, dt.uint8, dt.uint64):
        (column,) = operands(d, 1, rng)
        x = ex.var("x", d)
        constants = special(d).tolist()
        roots = [ex.make(op, d, (x, ex.const(c, d))) for c in constants]
        for got, c in zip(evaluate(roots, [x], [column], 16), constants, strict=True):
            whole = np.full_like(column, c)
            check(got, expected(op, d, d, [column, whole]), d, [column, whole])


@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.text)
def test_mad_rounds_once(d, rng):
    columns = operands(d, 3, rng)
    names = [ex.var(f"x{k}", d) for k in range(3)]
    (got,) = evaluate([ex.make(Op.MAD, d, tuple(names))], names, columns, 16)
    check(got, expected(Op.MAD, d, d, columns), d, columns)


@pytest.mark.grid
@pytest.mark.parametrize("lanes", [1, 2, 16, 64])
@pytest.mark.parametrize("source", dt.ALL, ids=lambda d: d.text)
def test_cast(source, lanes, rng):
    (column,) = operands(source, 1, rng)
    x = ex.var("x", source)
    targets = [d for d in dt.ALL if d is not source]
    made = evaluate([ex.cast(x, d) for d in targets], [x], [column], lanes)
    for got, d in zip(made, targets, strict=True):
        check(got, expected(Op.CAST, source, d, [column]), d, [column])


def ties(d):
    """Doubles at, and beside, the midpoints between neighbours of a narrow float."""
    codes = np.arange(1 << (d.bits - 1), dtype=np.uint16 if d.bits == 16 else np.uint8)
    with np.errstate(invalid="ignore"):
        values = codes.view(d.numpy).astype(np.float64)
    values = values[np.isfinite(values)]
    middle = (values[1:] + values[:-1]) / 2
    beside = [np.nextafter(middle, 0), middle, np.nextafter(middle, np.inf)]
    return np.concatenate([np.concatenate(beside), -np.concatenate(beside)])


@pytest.mark.parametrize("target", [None, "generic"])
@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.float8_e4m3fn, dt.float8_e5m2],
                         ids=lambda d: d.text)  # fmt: skip
def test_narrow_floats_exactly(d, target):
    """All bit patterns are read exactly, and every rounding decision is right, f32 and f64."""
    host = cpu.host_target()
    if target:  # the bit arithmetic, where the host has instructions
        host = host.replace(native_conversions=frozenset())
    codes = np.arange(1 << d.bits, dtype=np.uint16 if d.bits == 16 else np.uint8).view(d.numpy)
    x = ex.var("x", d)
    (wide,) = evaluate([ex.cast(x, dt.float32)], [x], [codes], 16, host)
    want = codes.astype(np.float32)
    np.testing.assert_array_equal(wide, want)
    np.testing.assert_array_equal(np.signbit(wide), np.signbit(want))
    y = ex.var("y", dt.float32)
    (back,) = evaluate([ex.cast(y, d)], [y], [want], 16, host)
    number = ~np.isnan(want)
    as_bits = codes.view(np.uint8 if d.bits == 8 else np.uint16)
    back_bits = back.view(as_bits.dtype)
    np.testing.assert_array_equal(back_bits[number], as_bits[number])
    assert np.isnan(back.astype(np.float32)[~number]).all()
    doubles = ties(d)
    singles = doubles.astype(np.float32)
    (rounded,) = evaluate([ex.cast(y, d)], [y], [singles], 16, host)
    np.testing.assert_array_equal(rounded.view(as_bits.dtype), singles.astype(d.numpy).view(
        as_bits.dtype))
    z = ex.var("z", dt.float64)
    (from_double,) = evaluate([ex.cast(z, d)], [z], [doubles], 16, host)
    fn = function(Op.CAST, dt.float64, d)
    picks = slice(None) if d.bits == 8 else slice(None, None, 7)
    check(from_double[picks], [fn(v) for v in doubles[picks].tolist()], d, [doubles[picks]])


@pytest.mark.parametrize("lanes", [1, 2, 4, 64])
def test_where_and_bitcast(lanes, rng):
    for d in dt.ALL:
        a, b = operands(d, 2, rng)
        c = rng.random(len(a)) < 0.5
        names = [ex.var("c", dt.bool_), ex.var("a", d), ex.var("b", d)]
        roots = [ex.make(Op.WHERE, d, tuple(names))]
        if not d.is_bool:
            twin = {"u": dt.signed, "i": dt.unsigned, "f": dt.unsigned}[d.kind](d.bits)
            roots.append(ex.bitcast(names[1], twin))
        made = evaluate(roots, names, [c, a, b], lanes)
        check(made[0], python(np.where(c, a, b), d), d, [c, a, b])
        if len(made) > 1:
            np.testing.assert_array_equal(made[1], a.view(made[1].dtype))


def test_a_byte_other_than_one_is_true():
    x = ex.var("x", dt.bool_)
    bytes_ = np.array([0, 1, 2, 128, 255, 0, 64], np.uint8)
    for lanes in (1, 16):
        (got,) = evaluate([ex.unary(Op.NOT, x)], [x], [bytes_.view(np.bool_)], lanes)
        assert got.view(np.uint8).tolist() == [1, 0, 0, 0, 0, 1, 0]
