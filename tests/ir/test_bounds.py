"""Interval analysis against brute force, wrap-around included."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalar_semantics import INTEGER, evaluate
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import (
    FALSE,
    INT64,
    TRUE,
    Range,
    Ranges,
    assume,
    bounds,
    full,
    loop_range,
    prove_false,
    prove_true,
)
from weft.ir.op import Op

OPS = [op for op in INTEGER if op is not Op.POW]
SMALL = [dt.int8, dt.uint8, dt.bool_]


def operands(op, d, rng):
    ranges = []
    for _ in range(op.arity):
        a, b = sorted(rng.choices(range(int(d.min), int(d.max) + 1), k=2))
        ranges.append((a, min(b, a + 12)))
    return ranges


@pytest.mark.grid
@pytest.mark.parametrize("op", [*OPS, Op.LT, Op.LE, Op.EQ, Op.NE], ids=lambda o: o.name)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_every_value_is_inside(op, seed):
    rng = random.Random(seed)
    for d in SMALL:
        if d.kind not in op.kinds:
            continue
        names = [ex.var(n, d) for n in "xy"[: op.arity]]
        env = dict(zip(names, operands(op, d, rng), strict=True))
        e = ex.make(op, dt.bool_ if op.result == "bool" else d, tuple(names))
        found = bounds(e, env)
        for values in itertools.product(*(range(lo, hi + 1) for lo, hi in env.values())):
            value = evaluate(e, dict(zip(names, values, strict=True)))
            assert found.lo <= value <= found.hi, (e, env, values, value, found)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_random_expressions(seed):
    rng = random.Random(seed)
    d = rng.choice([dt.int8, dt.uint8])
    names = [ex.var(n, d) for n in "xyz"]
    env = {v: r for v, r in zip(names, operands(Op.WHERE, d, rng), strict=True)}
    pool = list(names) + [ex.const(rng.randint(int(d.min), int(d.max)), d) for _ in range(2)]
    for _ in range(6):
        op = rng.choice([o for o in OPS if d.kind in o.kinds])
        pool.append(ex.make(op, d, tuple(rng.choices(pool, k=op.arity))))
    condition = ex.make(Op.LT, dt.bool_, tuple(rng.choices(pool, k=2)))
    e = ex.cast(ex.make(Op.WHERE, d, (condition, pool[-1], pool[-2])), dt.int16)
    found = bounds(e, env)
    for _ in range(30):
        point = {v: rng.randint(*env[v]) for v in names}
        assert found.lo <= evaluate(e, point) <= found.hi


def test_index_arithmetic_is_tight():
    i, j = ex.var("i"), ex.var("j")
    env = {i: (0, 11), j: (0, 511)}
    flat = i * 512 + j
    assert bounds(flat, env) == (0, 12 * 512 - 1)
    assert bounds(flat // 512, env) == (0, 11)
    assert bounds(flat % 512, env) == (0, 511)
    assert bounds(j % 1000, env) == (0, 511)
    assert bounds(ex.minimum(j, 7) - 1, env) == (-1, 6)


def test_what_may_overflow_is_everything():
    x = ex.var("x", dt.int32)
    assert bounds(x + 1) == full(dt.int32)
    assert bounds(x + 1, {x: (0, 10)}) == (1, 11)
    i = ex.var("i")
    assert bounds(i * 2, {i: (0, 1 << 62)}) == INT64
    assert bounds(-ex.var("u", dt.uint8), {ex.var("u", dt.uint8): (1, 2)}) == full(dt.uint8)


def test_variables_and_symbolic_limits():
    n = ex.Variable("n", 1, 100)
    i = ex.var("i")
    assert bounds(n) == (1, 100)
    assert bounds(i, {i: loop_range(n)}) == (0, 99)
    assert loop_range(ex.index(8)) == (0, 7)
    assert loop_range(ex.index(0)) == (0, 0)


def test_an_impossible_range_proves_nothing():
    i = ex.var("i")
    assert bounds(i, {i: (5, 3)}) == INT64


def test_vectors():
    i = ex.var("i")
    env = {i: (0, 16)}
    assert bounds(ex.ramp(i, 8), env) == (0, 23)
    assert bounds(ex.broadcast(i, 8), env) == (0, 16)
    assert bounds(ex.extract(ex.ramp(i, 8), 3), env) == (0, 23)


def test_floats_have_no_range():
    x = ex.var("x", dt.float32)
    with pytest.raises(TypeError):
        bounds(x)
    assert bounds(x.lt(1.0)) == (0, 1)
    assert bounds(ex.cast(x, dt.int8)) == full(dt.int8)
    assert bounds(ex.cast(ex.bitcast(x, dt.int32) & 7, dt.int64)) == (0, 7)


def test_prove():
    i = ex.var("i")
    assert prove_true(i.lt(10), {i: (0, 9)})
    assert prove_false(i.lt(0), {i: (0, 9)})
    assert not prove_true(i.lt(9), {i: (0, 9)})
    assert prove_true(i.le(i))


def test_assume():
    i, n = ex.var("i"), ex.Variable("n", 1, 64)
    inside = assume({}, i.ge(0) & i.lt(n))
    assert bounds(i, inside) == (0, 63)
    assert bounds(i, assume({}, i.eq(3))) == (3, 3)
    assert bounds(i, assume({}, i.ne(3), holds=False)) == (3, 3)
    assert bounds(i, assume({}, i.ne(3))) == INT64
    outside = assume({i: (0, 99)}, i.lt(10), holds=False)
    assert bounds(i, outside) == (10, 99)
    neither = assume({i: (0, 99)}, i.lt(10) | i.gt(20), holds=False)
    assert bounds(i, neither) == (10, 20)
    assert bounds(i, assume({i: (0, 99)}, ~(i.le(50)))) == (51, 99)
    assert bounds(i, assume({i: (0, 9)}, i.gt(20))) == (0, 9)


@pytest.mark.slow
def test_a_long_chain():
    e = i = ex.var("i")
    for _ in range(100_000):
        e = ex.maximum(e, 0)
        e = ex.minimum(e, i)
    assert bounds(e, {i: (0, 4)}) == (0, 4)


def test_ranges_answers_many_questions_once():
    i = ex.var("i")
    ranges = Ranges({i: (0, 4)})
    assert ranges.of(i.lt(5)) == TRUE
    assert ranges.of(i.lt(0)) == FALSE
    assert Range(0, 4).hull(Range(-1, 2)) == (-1, 4)
    assert not Range(0, 4).is_single
