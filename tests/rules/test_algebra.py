"""Every rule, with inputs made from its own pattern: both sides agree bit for bit."""

import math
import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalar_semantics import bits, cast, evaluate, same, specials
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import Ranges
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.rewriting.pattern import P, match
from weft.ir.rewriting.rewrite import FASTMATH, RANGE, Rule, RuleSet, rewrite
from weft.rules import algebra, fastmath, fold
from weft.rules.algebra import ALGEBRA, holds

KINDS = {
    "b": [dt.bool_],
    "u": [dt.uint8, dt.uint16, dt.uint32, dt.uint64],
    "i": [dt.int8, dt.int16, dt.int32, dt.int64],
    "f": [dt.float16, dt.bfloat16, dt.float32, dt.float64],
}
EXACT = [r for r in ALGEBRA if r.valid != RANGE]
BY_RANGE = [r for r in ALGEBRA if r.valid == RANGE]


def types(kinds):
    return [d for kind in kinds for d in KINDS[kind]]


def kinds_of(pattern, kinds="buif"):
    """Return the dtype kinds that the operands of a pattern's root share with its holes."""
    if pattern.value is not None:
        return "b" if isinstance(pattern.value, bool) else "f" if (
            isinstance(pattern.value, float)
        ) else "buif"
    kinds = "".join(k for k in kinds if k in pattern.kinds)
    args = pattern.args[1:] if pattern.op is Op.WHERE else pattern.args
    for arg in args:
        inner = "b" if arg.op is not None and arg.op.result == "bool" else kinds_of(arg)
        kinds = "".join(k for k in kinds if k in inner)
    return kinds


class Instance:
    """An expression made from a pattern: holes become variables, constants are drawn."""

    def __init__(self, rng, ranges=None):
        self.rng, self.names, self.values, self.known = rng, {}, {}, ranges

    def make(self, pattern, d):
        if pattern.value is not None:
            return ex.const(pattern.value, d)
        if pattern.args:
            return self.operation(pattern, d)
        if pattern.name not in self.names:
            if pattern.op is Op.CONST:
                made = ex.make(Op.CONST, d, (), self.rng.choice(self.constants(d)))
            else:
                made = ex.var(pattern.name, d)
            self.names[pattern.name] = made
        return self.names[pattern.name]

    def constants(self, d):
        if d.is_float:
            return [fold.normalise(v, d) for v in specials(d)]
        powers = [] if d.is_bool else [1 << k for k in range(d.bits - 1)]
        return specials(d) + powers

    def operation(self, pattern, d):
        if pattern.op.result == "bool":
            d = self.rng.choice(types(kinds_of(pattern)))
        args = [self.make(a, dt.bool_ if pattern.op is Op.WHERE and n == 0 else d)
                for n, a in enumerate(pattern.args)]  # fmt: skip
        result = dt.bool_ if pattern.op.result == "bool" else args[-1].dtype
        return ex.make(pattern.op, result, tuple(args))


def instance(rule, rng):
    made = Instance(rng)
    pattern = rule.pattern
    if pattern.op.result == "bool" or (pattern.args[0].op and pattern.op is Op.NOT):
        inner = pattern.args[0]
        if pattern.op is Op.NOT and inner.op.result == "bool":
            return made, made.make(pattern, dt.bool_)
    return made, made.make(pattern, rng.choice(types(kinds_of(pattern))))


def leaves(e):
    return [v for v in ex.toposort([e]) if v.op is Op.VAR]


def assert_equal(before, after, env):
    a, b = evaluate(before, env), evaluate(after, env)
    assert same(a, b, before.dtype), f"{before} = {a!r}, {after} = {b!r} where {env}"


@pytest.mark.grid
@pytest.mark.parametrize("rule", EXACT, ids=lambda r: r.name)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_rule_keeps_every_bit(rule, seed):
    rng = random.Random(seed)
    _, before = instance(rule, rng)
    after = rule.apply(before, Ranges())
    if after is None:
        return
    assert (after.dtype, after.lanes) == (before.dtype, before.lanes)
    for _ in range(8):
        env = {v: rng.choice(specials(v.dtype)) for v in leaves(before)}
        assert_equal(before, after, env)


@pytest.mark.parametrize("rule", EXACT, ids=lambda r: r.name)
def test_rule_applies_to_its_own_pattern(rule):
    rng = random.Random(7)
    made = (rule.apply(instance(rule, rng)[1], Ranges()) for _ in range(400))
    assert any(after is not None for after in made)


@pytest.mark.parametrize("rule", EXACT, ids=lambda r: r.name)
def test_every_pair_of_special_values(rule):
    """All special values of each type, not a sample: two holes at most stay cheap."""
    rng = random.Random(rule.name)
    for _ in range(6):
        _, before = instance(rule, rng)
        after = rule.apply(before, Ranges())
        names = leaves(before)
        if after is None or len(names) > 2:
            continue
        choices = [specials(v.dtype) for v in names]
        for first in choices[0] if choices else [None]:
            for second in choices[1] if len(choices) > 1 else [None]:
                env = dict(zip(names, (first, second), strict=False))
                assert_equal(before, after, env)


@pytest.mark.grid
@pytest.mark.parametrize("rule", BY_RANGE, ids=lambda r: r.name)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_rule_by_range(rule, seed):
    rng = random.Random(seed)
    for _ in range(30):
        _, before = instance(rule, rng)
        env = {v: tuple(sorted(rng.choices(specials(v.dtype), k=2))) for v in leaves(before)}
        after = rule.apply(before, Ranges(env))
        if after is not None:
            for _ in range(8):
                values = {v: rng.randint(int(lo), int(hi)) for v, (lo, hi) in env.items()}
                assert_equal(before, after, values)


@pytest.mark.parametrize("rule", BY_RANGE, ids=lambda r: r.name)
def test_rule_by_range_applies(rule):
    names = {"x": (0, 1), "y": (1, 1)} if "equal" not in rule.name else {"x": (0, 0), "y": (1, 1)}
    if rule.name in ("div_known", "mod_known", "less_known", "above_known"):
        names = {"x": (0, 0), "y": (1, 1)}
    made = Instance(random.Random(1))
    before = made.make(rule.pattern, dt.int32)
    env = {v: names[v.attr] for v in leaves(before)}
    assert rule.apply(before, Ranges(env)) is not None
    assert rule.apply(before, Ranges()) is None


def test_names_are_unique_and_validity_is_declared():
    rules = [*ALGEBRA, *fastmath.RULES]
    assert len({r.name for r in rules}) == len(rules)
    for rule in rules:
        assert (rule.valid == RANGE) == (rule.when is not None)
        assert (rule.valid == FASTMATH) == (rule in fastmath.RULES)


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (Rule("add_zero", P.var("x", "f") + 0.0, P.var("x")), [-0.0]),
        (Rule("mul_zero", P.var("x", "f") * 0.0, P.value(0.0)), [math.inf]),
        (
            Rule("neg_sub", -(P.var("x", "f") - P.var("y", "f")), P.var("y") - P.var("x")),
            [1.0, 1.0],
        ),
    ],
    ids=lambda r: getattr(r, "name", ""),
)
def test_the_check_finds_unsound_rules(rule, values):
    """The rules that fast mathematics would like are caught by the inputs above."""
    before = Instance(random.Random(1)).make(rule.pattern, dt.float32)
    after = rule.apply(before, Ranges())
    env = dict(zip(sorted(leaves(before), key=lambda v: v.attr), values, strict=True))
    assert not same(evaluate(before, env), evaluate(after, env), dt.float32)


@pytest.mark.parametrize("rule", fastmath.RULES, ids=lambda r: r.name)
def test_fast_rules_hold_in_real_arithmetic(rule):
    rng = random.Random(3)
    made = Instance(rng)
    made.constants = lambda d: [0.5, 1.5, 3.0]
    before = made.make(rule.pattern, dt.float64)
    after = rule.apply(before, Ranges())
    assert after is not None
    extra = {Op.EXP: np.exp, Op.LOG: np.log, Op.RSQRT: lambda v: 1 / np.sqrt(v)}
    from scalar_semantics import FLOAT

    FLOAT.update(extra)
    for _ in range(20):
        env = {v: rng.uniform(0.1, 4) for v in leaves(before)}
        assert math.isclose(evaluate(before, env), evaluate(after, env), rel_tol=1e-9, abs_tol=1e-9)


# --- constant folding


@pytest.mark.grid
@pytest.mark.parametrize("op", sorted(fold.FOLDABLE, key=lambda o: o.name), ids=lambda o: o.name)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_fold(op, seed):
    rng = random.Random(seed)
    if op.group in ("vector", "convert"):
        return
    for d in types(op.kinds):
        operands = [dt.bool_, d, d] if op is Op.WHERE else [d] * op.arity
        args = tuple(ex.make(Op.CONST, t, (), rng.choice(specials(t))) for t in operands)
        e = ex.make(op, dt.bool_ if op.result == "bool" else d, args)
        folded = fold.fold(e)
        if folded is not None:
            assert_equal(e, folded, {})


@pytest.mark.parametrize("source", dt.ALL, ids=lambda d: d.text)
def test_fold_cast(source):
    for d in dt.ALL:
        for value in specials(source):
            e = ex.make(Op.CAST, d, (ex.make(Op.CONST, source, (), value),))
            folded = fold.fold(e)
            if folded is not None:
                expected = cast(source.numpy.type(value) if source.is_float else value, source, d)
                assert same(evaluate(folded, {}), expected, d), (source, d, value)


@settings(max_examples=400, deadline=None)
@given(raw=st.integers(0, (1 << 64) - 1))
def test_round_float_is_what_numpy_does(raw):
    value = struct.unpack("<d", raw.to_bytes(8, "little"))[0]
    for d in (dt.float16, dt.bfloat16, dt.float32, dt.float8_e4m3fn, dt.float8_e5m2):
        for v in (value, math.remainder(value, 1e3) if math.isfinite(value) else value):
            through = np.float32(v) if d in (dt.bfloat16,) else v
            if d is dt.bfloat16 and float(through) != v:
                v = float(through)  # ml_dtypes rounds through float32
            expected = np.float64(v).astype(d.numpy) if d is not dt.bfloat16 else (
                np.float32(v).astype(d.numpy)
            )
            if d.bits == 8 and float(np.float32(v)) != v:
                continue
            assert same(d.numpy.type(fold.round_float(v, d)), expected, d), (v, d)


def test_transcendentals_are_not_folded():
    for op in (Op.EXP, Op.SIN, Op.POW, Op.TANH):
        args = (ex.const(0.5, dt.float32),) * op.arity
        assert fold.fold(ex.make(op, dt.float32, args)) is None


# --- casts


def test_holds_agrees_with_values():
    for narrow in dt.ALL:
        for wide in dt.ALL:
            if not holds(wide, narrow):
                continue
            for value in specials(narrow):
                start = narrow.numpy.type(value) if narrow.is_float else value
                there = cast(start, narrow, wide)
                assert same(cast(there, wide, narrow), start, narrow), (narrow, wide, value)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_cast_chains(seed):
    rng = random.Random(seed)
    first, middle, last = rng.choices(dt.ALL, k=3)
    x = ex.var("x", first)
    before = ex.make(Op.CAST, last, (ex.make(Op.CAST, middle, (x,)),))
    (after,) = algebra.simplify([before])
    for value in specials(first):
        assert_equal(before, after, {x: value})


def test_exact_cast_chains_vanish():
    x = ex.var("x", dt.float16)
    wide = ex.cast(x, dt.float32)
    assert algebra.simplify([ex.cast(wide, dt.float16)]) == [x]
    i = ex.var("i", dt.int64)
    narrow = ex.cast(ex.cast(i, dt.int32), dt.int16)
    assert algebra.simplify([narrow]) == [ex.cast(i, dt.int16)]
    kept = ex.cast(ex.cast(ex.var("y", dt.float32), dt.float16), dt.float32)
    assert algebra.simplify([kept]) == [kept]


# --- the engine


def test_rewrite_works_below_the_root_and_shares():
    x, y = ex.var("x", dt.float32), ex.var("y", dt.float32)
    e = ex.binary(Op.MUL, x, 1.0)
    total = (e + y) * (e + y)
    (made,) = algebra.simplify([total])
    assert made is (x + y) * (x + y)


def test_rewrite_ends_on_a_cycle():
    x, y = P.var("x"), P.var("y")
    pattern_neg = -y
    cycle = RuleSet([Rule("swap", x + y, y + x), Rule("swap_sub", x - y, x - (-pattern_neg))])
    a, b = ex.var("a", dt.float32), ex.var("b", dt.float32)
    made = rewrite([a + b, a - b], cycle)
    assert made[0].op is Op.ADD
    assert made[1].op is Op.SUB


@pytest.mark.slow
def test_rewrite_of_a_long_chain():
    e = x = ex.var("x", dt.float32)
    for _ in range(300_000):
        e = ex.unary(Op.NEG, e)
    assert algebra.simplify([e]) == [x]


def test_match_binds_repeated_names_once():
    x = P.var("x")
    a, b = ex.var("a", dt.float32), ex.var("b", dt.float32)
    assert match(x + x, a + a) == {"x": a}
    assert match(x + x, a + b) is None


def test_match_tries_both_orders_of_commutative_operations():
    a, b = ex.var("a", dt.int32), ex.var("b", dt.int32)
    found = match(P.var("x") + (-P.var("y")), (-b) + a)
    assert found == {"x": a, "y": b}
    assert match(P.var("x") - (-P.var("y")), (-b) - a) is None


def test_literals_tell_zeros_and_types_apart():
    x = ex.var("x", dt.float32)
    assert match(P.var("x") + -0.0, x + -0.0) == {"x": x}
    assert match(P.var("x") + -0.0, x + 0.0) is None
    c = ex.var("c", dt.bool_)
    i = ex.where(c, ex.const(1, dt.int8), ex.const(0, dt.int8))
    assert algebra.simplify([i]) == [i]


def test_a_rule_set_refuses_a_rule_for_everything():
    with pytest.raises(ValueError, match="everything"):
        RuleSet([Rule("all", P.var("x"), P.var("x"))])


def test_bits_are_little_endian():
    assert bits(np.float32(1.0), dt.float32) == 0x3F800000
    assert isinstance(ex.var("x", dt.float32), Expr)
