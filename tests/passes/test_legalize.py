"""What legalisation replaces, and that it changes no value."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.backends.cpu import target_from
from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret import evaluate, run
from weft.ir.interpret.interpret_scalar import function
from weft.ir.interpret.interpret_value import round_float
from weft.ir.op import SCALAR_OPS, Op
from weft.ir.stmt import Accumulator, Axis, For, Kernel, Let, Load, Location, Memory, Reduce, Store
from weft.passes import transcendental
from weft.passes.legalize import Legalizer, is_legal, legalize, round_to_odd
from weft.target import Target, native_operations

CPU = target_from("x86_64", "", (), {})
NARROW = [d for d in dt.ALL if d.is_float and d.bits < 32]
F32, F64 = dt.float32, dt.float64


def row(op, d):
    """Return an expression of one op on fresh names, or None if it takes no such type."""
    if d.kind not in op.kinds:
        return None
    names = tuple(ex.var(f"x{k}", d) for k in range(op.arity))
    if op is Op.WHERE:
        return ex.where(ex.var("c", dt.bool_), *names[:2])
    return ex.make(op, dt.bool_ if op.result == "bool" else d, names)


def all_rows():
    for op in SCALAR_OPS:
        for d in dt.ALL:
            if op in (Op.CAST, Op.BITCAST):
                yield from (ex.make(op, to, (ex.var("x", d),)) for to in dt.ALL if to is not d
                            and (op is Op.CAST or to.bits == d.bits > 1))
                continue
            e = row(op, d)
            if e is not None:
                yield e


def test_every_row_becomes_legal():
    """Completeness: no op and dtype of the table is left without native form or decomposition."""
    for e in all_rows():
        done = Legalizer(CPU).one(e)
        assert (done.dtype, done.lanes) == (e.dtype, e.lanes)
        for part in ex.toposort([done]):
            assert is_legal(part, CPU), f"{e!r} keeps {part!r}"


def test_legal_expressions_stay_the_same_object():
    x = ex.var("x", F32)
    e = ex.mad(x, 2.0, x).lt(ex.unary(Op.SQRT, x))
    assert Legalizer(CPU).one(e) is e


def test_lanes_are_kept():
    x = ex.var("x", dt.bfloat16, 8)
    for op in (Op.ADD, Op.NEG, Op.EXP, Op.LT):
        e = ex.make(op, dt.bool_ if op is Op.LT else x.dtype, (x,) * op.arity, None, 8)
        done = Legalizer(CPU).one(e)
        assert done.lanes == 8
        assert all(p.lanes == 8 for p in ex.toposort([done]))


def test_narrow_arithmetic_rounds_once_each(golden):
    x, y = (ex.var(n, dt.bfloat16) for n in "xy")
    f = dt.float32
    product = ex.cast(ex.cast(x, f) * ex.cast(y, f), dt.bfloat16)
    assert Legalizer(CPU).one(x * y) is product
    total = ex.cast(ex.cast(product, f) + ex.cast(x, f), dt.bfloat16)
    assert Legalizer(CPU).one(x * y + x) is total


def test_a_narrowing_of_a_widening_disappears():
    x = ex.var("x", dt.float16)
    assert Legalizer(CPU).one(ex.cast(ex.cast(x, F32), dt.float16)) is x
    rounded = ex.cast(ex.cast(ex.var("y", F32), dt.float16), F32)
    assert Legalizer(CPU).one(rounded) is rounded


def test_a_target_with_the_operation_keeps_it():
    own = CPU.operations | {("add", "bf16"), ("exp", "f32")}
    x, y = ex.var("x", dt.bfloat16), ex.var("y", F32)
    legalizer = Legalizer(CPU.replace(operations=frozenset(own)))
    for e in (x + x, ex.unary(Op.EXP, y)):
        assert legalizer.one(e) is e


def test_what_nobody_can_do_is_an_error():
    bare = Target("toy", "toy", operations=native_operations(without=(Op.SQRT,)))
    with pytest.raises(UnsupportedError, match="sqrt of f32"):
        Legalizer(bare).one(ex.unary(Op.SQRT, ex.var("x", F32)))


def test_the_decomposition_is_pluggable():
    x = ex.var("x", F32)
    assert Legalizer(CPU, lambda op, args: args[0] * 3.0).one(ex.unary(Op.EXP, x)) is x * 3.0
    endless = Legalizer(CPU, lambda op, args: ex.unary(op, args[0] + 1.0))
    with pytest.raises(UnsupportedError, match="exp"):
        endless.one(ex.unary(Op.EXP, x))


@pytest.mark.slow
def test_a_deep_chain():
    e = x = ex.var("x", dt.bfloat16)
    for _ in range(30_000):
        e = e + x
    assert len(ex.toposort([Legalizer(CPU).one(e)])) == 90_001


def test_a_kernel_keeps_its_places_and_its_legal_statements():
    x, y = Memory("x", dt.bfloat16, (ex.index(4),)), Memory("y", F32, (ex.index(4),))
    i, v, acc = ex.var("i"), ex.var("v", dt.bfloat16), ex.var("a", F32)
    load, let = Load(v, x, (i,)), Let(ex.var("w", F32), ex.unary(Op.EXP, ex.cast(v, F32)))
    total = Accumulator(acc, ex.const(0.0, F32), acc + ex.cast(v * v, F32),
                        ex.var("a.l", F32) + ex.var("a.r", F32))  # fmt: skip
    loop = For(i, ex.index(4), "serial", (load, let, Store(y, (i,), let.var)))
    reduce = Reduce((Axis(i, ex.index(4)),), (total,), (load,))
    place = Location("user.py", 3)
    kernel = Kernel("k", (x, y), (loop, reduce), locations={let: place})
    done = legalize(kernel, CPU)
    first = done.body[0]
    assert first.bodies()[0][0] is load
    assert done.locations[first.bodies()[0][1]] == place
    import numpy as np

    data = np.array([0.5, -1.0, 2.0, 0.0], dt.bfloat16.numpy)
    out = np.zeros(4, np.float32)
    run(done, [data, out])
    np.testing.assert_allclose(out, np.exp(data.astype(np.float64)), rtol=1e-6)
    assert legalize(done, CPU) is done


floats = st.one_of(
    st.floats(), st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45]),
    st.floats(-100, 100, width=32),
)  # fmt: skip


def close(got, want):
    same = got == want and math.copysign(1, got) == math.copysign(1, want)
    return same or (got != got and want != want)


EXACT = [op for op in SCALAR_OPS if op not in transcendental.TRANSCENDENTALS and "f" in op.kinds
         and op not in (Op.WHERE, Op.CAST, Op.BITCAST)]  # fmt: skip


@given(st.sampled_from(EXACT), st.sampled_from([*NARROW, F32, F64]), st.data())
def test_floats_keep_their_value(op, d, data):
    e = row(op, d)
    values = [round_float(data.draw(floats), d) for _ in range(op.arity)]
    names = [ex.var(f"x{k}", d) for k in range(op.arity)]
    got = evaluate(Legalizer(CPU).one(e), dict(zip(names, values, strict=True)))
    assert close(got, function(op, d, e.dtype)(*values))


@given(st.sampled_from([d for d in dt.ALL if d.is_integer]), st.data())
def test_integer_powers(d, data):
    small = st.integers(max(d.min, -9), 9)
    x, y = (data.draw(st.one_of(small, st.integers(d.min, d.max))) for _ in range(2))
    a, b = ex.var("a", d), ex.var("b", d)
    expected = function(Op.POW, d, d)(x, y)
    assert evaluate(Legalizer(CPU).one(ex.binary(Op.POW, a, b)), {a: x, b: y}) == expected
    by_constant = Legalizer(CPU).one(ex.binary(Op.POW, a, ex.const(y, d)))
    assert evaluate(by_constant, {a: x}) == expected


@pytest.mark.parametrize("d", [F32, F64])
@pytest.mark.parametrize("power", [-0.5, -2.5, 0.75, 3.0])
@pytest.mark.parametrize("added", [True, False])
def test_powers_that_only_look_rounded_are_rounded_down(d, power, added):
    """What a large number is taken from is whole only if it was added, and left no fraction."""
    large = 2.0 ** (23 if d is F32 else 52)
    x, y = ex.var("x", d), ex.var("y", d)
    value = power if added else round_float(large + power, d)
    n = (ex.binary(Op.ADD, x, ex.const(large, d)) if added else x) - large
    done = Legalizer(CPU).one(ex.scalb(y, n))
    got = evaluate(done, {x: value, y: 1.5})
    assert got == evaluate(ex.scalb(y, n), {x: value, y: 1.5})


@pytest.mark.parametrize("d", [F32, F64])
def test_powers_that_are_rounded_stay_so(d):
    large = 1.5 * 2.0 ** (23 if d is F32 else 52)
    x, y = ex.var("x", d), ex.var("y", d)
    for total in (ex.binary(Op.ADD, x, ex.const(large, d)), ex.mad(x, 2.0, large)):
        for n in (total - large, total - large - 1.0):
            done = ex.toposort([Legalizer(CPU).one(ex.scalb(y, n))])
            assert not any(e.op is Op.FLOOR for e in done)


def test_small_constant_powers_are_short():
    x = ex.var("x", dt.int64)
    assert Legalizer(CPU).one(ex.binary(Op.POW, x, 2)) is x * x
    assert len(ex.toposort([Legalizer(CPU).one(ex.binary(Op.POW, x, 10))])) == 5


@given(st.sampled_from(dt.ALL), st.sampled_from(NARROW), st.data())
def test_casts_to_narrow_floats_round_once(source, to, data):
    if source is to:
        return
    if source.is_float:
        near = st.builds(lambda a, b, k: a * 2.0**k * (1 + b * 2.0**-40), st.integers(-512, 512),
                         st.integers(-1, 1), st.integers(-12, 9))  # fmt: skip
        value = round_float(data.draw(st.one_of(floats, near)), source)
    elif source.is_bool:
        value = data.draw(st.booleans())
    else:
        parts = (st.integers(-1025, 1025), st.integers(0, 53), st.integers(-1, 1))
        ties = st.builds(lambda a, k, b: min(max((a << k) + b, source.min), source.max), *parts)
        value = data.draw(st.one_of(ties, st.integers(source.min, source.max)))
    x = ex.var("x", source)
    got = evaluate(Legalizer(CPU).one(ex.cast(x, to)), {x: value})
    assert close(got, function(Op.CAST, source, to)(value))


@given(floats)
def test_round_to_odd(value):
    x = ex.var("x", F64)
    got = evaluate(round_to_odd(x), {x: value})
    nearest = round_float(value, F32)
    if nearest == value or value != value:
        assert close(got, value)
    else:
        assert abs(got) < math.inf
        import numpy as np

        assert np.float32(got).view(np.uint32) & 1
        limits = np.array([-np.inf, np.inf], np.float32)
        with np.errstate(over="ignore", under="ignore"):
            below, above = np.nextafter(np.float32(got), limits).astype(float)
        assert below < value < above
