"""Every row of the op table in C: operation, type and width, against the scalar interpreter."""

import itertools
import math

import numpy as np
import pytest
from c_compiled import COMPILERS, evaluate, target
from compiled import elementwise
from hypothesis import given, settings
from hypothesis import strategies as st
from test_llvm_ops import EXACT_OPS, FLOATS, check, expected, operands, python, special, ties
from test_llvm_programs import programs

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret import interpret
from weft.ir.interpret.interpret_scalar import function
from weft.ir.op import Op
from weft.passes.transcendental import TRANSCENDENTALS
from weft.renderers.cstyle.c.renderer import CRenderer

WIDTHS = (1, 2, 3, 4, 8, 32)
NARROW = (dt.float16, dt.bfloat16, dt.float8_e4m3fn, dt.float8_e5m2)

pytestmark = pytest.mark.parametrize("compiler", COMPILERS)


def job(op, d, result, columns):
    names = [ex.var(f"{d.text}_{k}", d) for k in range(op.arity)]
    return ex.make(op, result, tuple(names)), names, columns


def compare(op, jobs, compiler, lanes):
    for got, (root, _, columns) in zip(evaluate(jobs, compiler, lanes), jobs, strict=True):
        d = root.args[-1].dtype
        check(got, expected(op, d, root.dtype, columns), root.dtype, columns)


@pytest.mark.grid
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("op", EXACT_OPS, ids=lambda op: op.name)
def test_B8_op_by_type_and_width(op, lanes, compiler, rng):
    dtypes = [d for d in dt.ALL if d.kind in op.kinds]
    if op in TRANSCENDENTALS and op is not Op.RECIPROCAL:
        dtypes = [d for d in dtypes if not d.is_float]
    compare(op, [job(op, d, dt.bool_ if op.result == "bool" else d, operands(d, op.arity, rng))
                 for d in dtypes], compiler, lanes)  # fmt: skip


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("op", [Op.FLOORDIV, Op.MOD, Op.FMOD, Op.SHL, Op.SHR, Op.POW],
                         ids=lambda op: op.name)  # fmt: skip
def test_B8_op_by_constant(op, lanes, compiler, rng):
    for d in (dt.int8, dt.int32, dt.int64, dt.uint8, dt.uint64):
        (column,) = operands(d, 1, rng)
        x = ex.var("x", d)
        jobs = [(ex.make(op, d, (x, ex.const(c, d))), [x], [column]) for c in special(d).tolist()]
        for got, (root, _, _) in zip(evaluate(jobs, compiler, lanes), jobs, strict=True):
            whole = np.full_like(column, root.args[1].attr if root.op is op else 0)
            if root.op is op:  # others were folded
                check(got, expected(op, d, d, [column, whole]), d, [column, whole])


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8, 32])
def test_B8_mad_rounds_once(lanes, compiler, rng):
    jobs = [job(Op.MAD, d, d, operands(d, 3, rng)) for d in FLOATS]
    compare(Op.MAD, jobs, compiler, lanes)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8, 16])
def test_B8_cast(lanes, compiler, rng):
    """All pairs of types in one kernel: what is out of range, too, has its documented value."""
    jobs = []
    for source in dt.ALL:
        (column,) = operands(source, 1, rng)
        x = ex.var(source.text, source)
        jobs += [(ex.cast(x, to), [x], [column]) for to in dt.ALL if to is not source]
    for got, (root, (x,), columns) in zip(evaluate(jobs, compiler, lanes), jobs, strict=True):
        check(got, expected(Op.CAST, x.dtype, root.dtype, columns), root.dtype, columns)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 32])
def test_B8_where_and_bitcast(lanes, compiler, rng):
    jobs, wanted = [], []
    for d in dt.ALL:
        a, b = operands(d, 2, rng)
        c = rng.random(len(a)) < 0.5
        names = [ex.var(f"c{d.text}", dt.bool_), ex.var(f"a{d.text}", d), ex.var(f"b{d.text}", d)]
        jobs.append((ex.make(Op.WHERE, d, tuple(names)), names, [c, a, b]))
        wanted.append(np.where(c, a, b))
        if not d.is_bool:
            twin = {"u": dt.signed, "i": dt.unsigned, "f": dt.unsigned}[d.kind](d.bits)
            jobs.append((ex.bitcast(names[1], twin), names[1:2], [a]))
            wanted.append(a.view(twin.numpy))
    for got, want, (root, _, columns) in zip(evaluate(jobs, compiler, lanes), wanted, jobs,
                                             strict=True):
        check(got, python(want, root.dtype), root.dtype, columns)


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_masks_of_all_widths_meet(lanes, compiler, rng):
    """Comparisons of 8 to 64 bits, joined, choose between values of 8 to 64 bits."""
    a, b = (ex.var("a", dt.int8), ex.var("b", dt.float64))
    c, d, e = ex.var("c", dt.float32), ex.var("d", dt.bool_), ex.var("e", dt.int64)
    mask = (a.lt(3) & b.lt(0.5)) | (c.lt(0.0) ^ d) | e.eq(2) & ex.make(Op.NOT, dt.bool_, (d,))
    roots = [ex.where(mask, a, ex.const(-1, dt.int8)), ex.where(mask, b, b + b),
             ex.where(mask & a.lt(7), c, -c), ex.cast(mask, dt.int64), mask,
             ex.make(Op.LT, dt.bool_, (mask, d)), ex.make(Op.LE, dt.bool_, (d, mask)),
             ex.where(d, mask, e.lt(5)), ex.make(Op.MAX, dt.bool_, (mask, d)),
             ex.make(Op.EQ, dt.bool_, (mask, a.lt(0))), ex.cast(mask, dt.float32),
             ex.cast(ex.cast(mask, dt.float16), dt.float64)]  # fmt: skip
    n = 64
    columns = [rng.integers(-8, 8, n).astype(np.int8), rng.standard_normal(n),
               rng.standard_normal(n).astype(np.float32), rng.random(n) < 0.5,
               rng.integers(0, 9, n)]  # fmt: skip
    jobs = [(r, [a, b, c, d, e], columns) for r in roots]
    rows = list(zip(*(x.tolist() for x in columns), strict=True))
    for got, (root, names, _) in zip(evaluate(jobs, compiler, lanes), jobs, strict=True):
        want = [interpret.evaluate(root, dict(zip(names, row, strict=True))) for row in rows]
        check(got, want, root.dtype, columns)


# narrow floats


@pytest.mark.parametrize("form", ["instructions", "arithmetic"])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("d", NARROW, ids=lambda d: d.text)
def test_B5_narrow_floats_exactly(d, lanes, form, compiler):
    """All bit patterns are read exactly, and every rounding is right: subnormals, ties, NaN."""
    described = target()
    if form == "arithmetic":  # which processors with conversions do not need
        described = described.replace(native_conversions=frozenset())
    raw = np.dtype(f"u{d.itemsize}")
    codes = np.arange(1 << d.bits, dtype=raw).view(d.numpy)
    with np.errstate(over="ignore", invalid="ignore"):
        singles = ties(d).astype(np.float32)
        edges = np.concatenate([singles, -singles, np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, 65520.0, 65519.996, 448.0,
             464.0, 480.0, 57344.0, 61440.0], np.float32)])  # fmt: skip
    x, y = ex.var("x", d), ex.var("y", dt.float32)
    wide, back, rounded = evaluate(
        [(ex.cast(x, dt.float32), [x], [codes]),
         (ex.cast(ex.cast(x, dt.float32), d), [x], [codes]),
         (ex.cast(y, d), [y], [edges])], compiler, lanes, described)  # fmt: skip
    want = codes.astype(np.float32)
    np.testing.assert_array_equal(wide, want)
    np.testing.assert_array_equal(np.signbit(wide), np.signbit(want))
    number = ~np.isnan(want)
    np.testing.assert_array_equal(back.view(raw)[number], codes.view(raw)[number])
    assert np.isnan(back.astype(np.float32)[~number]).all()
    with np.errstate(over="ignore"):
        wanted = edges.astype(d.numpy)
    is_nan = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(rounded.view(raw)[~is_nan], wanted.view(raw)[~is_nan])
    assert np.isnan(rounded.astype(np.float32)[is_nan]).all()


@pytest.mark.parametrize("d", NARROW, ids=lambda d: d.text)
def test_B5_float64_is_rounded_once(d, compiler):
    doubles = ties(d)[:: 1 if d.bits == 8 else 13]
    z = ex.var("z", dt.float64)
    (got,) = evaluate([(ex.cast(z, d), [z], [doubles])], compiler, 8)
    fn = function(Op.CAST, dt.float64, d)
    check(got, [fn(v) for v in doubles.tolist()], d, [doubles])


# what else


@given(programs(), st.sampled_from([1, 3, 4, 16]), st.integers(0, 1 << 30))
@settings(max_examples=25, deadline=None)
def test_random_programs(compiler, program, lanes, number):
    root, inputs = program
    rng = np.random.default_rng(number)
    columns = [rng.choice(special(v.dtype), 16) for v in inputs]
    (got,) = evaluate([(root, inputs, columns)], compiler, lanes)
    rows = zip(*(python(c, v.dtype) for c, v in zip(columns, inputs, strict=True)), strict=True)
    for g, row in zip(python(got, root.dtype), rows, strict=True):
        want = interpret.evaluate(root, dict(zip(inputs, row, strict=True)))
        signs = not root.dtype.is_float or math.copysign(1, g) == math.copysign(1, want)
        assert (g == want and signs) or (g != g and want != want), (row, g, want)


@pytest.mark.parametrize("lanes", [1, 8])
def test_constants_are_exact(lanes, compiler):
    """Numbers that decimal forms round, signs, limits, infinities; each negated as well."""
    x = ex.var("x", dt.int32)
    jobs, wanted = [], []
    values = {dt.float64: [1e-30, 0.1, -1.0, -0.0, 5e-324, 1.7976931348623157e308, math.inf,
                           -math.inf, math.nan, 123456.75, 16777217.0],
              dt.float32: [1e-30, 0.1, -1.0, -0.0, 1e-45, 3.4028234663852886e38, math.inf],
              dt.int64: [-(1 << 63), (1 << 63) - 1, -1, 1 << 31, -(1 << 31)],
              dt.int32: [-(1 << 31), (1 << 31) - 1], dt.uint64: [(1 << 64) - 1],
              dt.int8: [-128], dt.uint16: [65535], dt.bool_: [True, False]}  # fmt: skip
    for d, constants in values.items():
        for c in constants:
            forms = [ex.const(c, d)] if d.is_bool else [ex.const(c, d), ex.unary(Op.NEG, ex.where(
                x.lt(0), ex.const(0, d), ex.const(c, d)))]
            for form in forms:
                root = ex.where(x.lt(-5), ex.const(0, d), form)
                jobs.append((root, [x], [np.zeros(8, np.int32)]))
                wanted.append((d, interpret.evaluate(form, {x: 0})))
    for got, (d, want) in zip(evaluate(jobs, compiler, lanes), wanted, strict=True):
        check(got, [want] * 8, d, [np.zeros(8)])


@pytest.mark.parametrize("op", [Op.MIN, Op.MAX])
def test_extremes_of_zeros_beside_constants(op, compiler):
    """Compilers that know one of two numbers turn comparisons into extremes without a sign."""
    jobs = []
    for d, c, first in itertools.product((dt.float32, dt.float64), (0.0, -0.0), (True, False)):
        x = ex.var(f"x{len(jobs)}", d)
        values = np.array([0.0, -0.0, 1, -1, np.nan, np.inf, -np.inf, -0.0] * 2, d.numpy)
        pair = (ex.const(c, d), x) if first else (x, ex.const(c, d))
        jobs.append((ex.binary(op, *pair), [x], [values]))
    for lanes in (1, 4):
        found = evaluate(jobs, compiler, lanes)
        for got, (root, (x,), (values,)) in zip(found, jobs, strict=True):
            want = [interpret.evaluate(root, {x: v}) for v in python(values, x.dtype)]
            check(got, want, x.dtype, [values])


def test_what_was_not_legalized_is_refused(compiler):
    x = ex.var("x", dt.float32)
    narrow = ex.unary(Op.NEG, ex.cast(x, dt.bfloat16))
    twice = ex.cast(ex.cast(x, dt.float64), dt.float16)
    for root in (ex.unary(Op.EXP, x), ex.binary(Op.MOD, x, x), narrow, twice):
        for lanes in (1, 8):
            with pytest.raises(UnsupportedError, match="legalize"):
                CRenderer(target()).render(elementwise([root], [x], 16, lanes, legal=False))


def test_the_compiler_contracts_nothing(compiler):
    """A product that is added is rounded first, in scalars, in vectors and at any level."""
    x, y, z = (ex.var(n, dt.float32) for n in "xyz")
    a = np.float32(1 + 2**-12)
    columns = [np.full(16, v, np.float32) for v in (a, a, -1)]
    for lanes in (1, 8):
        for pipeline in ("quick", "short", "O3"):
            (got,) = evaluate([(x * y + z, [x, y, z], columns)], compiler, lanes,
                              pipeline=pipeline)
            assert (got == np.float32(a * a) - np.float32(1)).all()
