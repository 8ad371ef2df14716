"""Value-preserving identities of scalar expressions, one line a rule.

Every rule keeps each bit of the result but the sign and payload of a NaN. What floats forbid is
not here: ``x + 0.0`` is 0.0 where x is -0.0, ``x * 0.0`` is NaN where x is infinite. Rules marked
INTEGER match integers and bools only; rules marked RANGE hold where a range is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import Env, Ranges
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.rewriting.pattern import Match, P, absolute, mad, maximum, minimum, op, where
from weft.ir.rewriting.rewrite import INTEGER, RANGE, Rule, RuleSet, rewrite
from weft.rules.fold import FOLDS, normalise, round_float

x, y, z = P.var("x"), P.var("y"), P.var("z")
f, g, h = P.var("x", "f"), P.var("y", "f"), P.var("z", "f")
i, j = P.var("x", "ui"), P.var("y", "ui")
n, m = P.var("x", "bui"), P.var("y", "bui")  # whatever is ordered without NaN
s, u, b = P.var("x", "i"), P.var("x", "u"), P.var("x", "b")
signed = P.var("x", "if")
test = P.var("c", "b")
c1, c2 = P.const("a", "ui"), P.const("b", "ui")
float_constant = P.const("a", "f")
any_constant = P.const("a", "bui")


def _zero(x: Expr, **_: Expr) -> Expr:
    return ex.const(0, x.dtype, x.lanes)


def _ones(x: Expr, **_: Expr) -> Expr:
    return ex.const(-1 if x.dtype.kind == "i" else x.dtype.max, x.dtype, x.lanes)


def _true(x: Expr, **_: Expr) -> Expr:
    return ex.const(True, dt.bool_, x.lanes)


def _false(x: Expr, **_: Expr) -> Expr:
    return ex.const(False, dt.bool_, x.lanes)


def _constant(value: int, like: Expr) -> Expr:
    return ex.make(Op.CONST, like.dtype, (), dt.wrap(value, like.dtype), like.lanes)


def _is_ones(a: Expr) -> bool:
    return bool(a.attr == (-1 if a.dtype.kind == "i" else a.dtype.max))


def _power(a: Expr) -> int | None:
    """Return k where the integer constant is 2**k."""
    value = a.attr
    return value.bit_length() - 1 if value > 0 and value & (value - 1) == 0 else None


def _and_ones(x: Expr, a: Expr) -> Expr | None:
    return x if _is_ones(a) else None


def _or_ones(x: Expr, a: Expr) -> Expr | None:
    return a if _is_ones(a) else None


def _xor_ones(x: Expr, a: Expr) -> Expr | None:
    return ex.unary(Op.NOT, x) if _is_ones(a) else None


def _sum(x: Expr, a: Expr, b: Expr) -> Expr:
    return ex.binary(Op.ADD, x, _constant(a.attr + b.attr, a))


def _sub_const(x: Expr, a: Expr) -> Expr | None:
    return None if a.attr == 0 else ex.binary(Op.ADD, x, _constant(-a.attr, a))


def _product(x: Expr, a: Expr, b: Expr) -> Expr:
    return ex.binary(Op.MUL, x, _constant(a.attr * b.attr, a))


def _mul_minus_one(x: Expr, a: Expr) -> Expr | None:
    return ex.unary(Op.NEG, x) if a.attr == -1 else None


def _meet(x: Expr, a: Expr, b: Expr) -> Expr:
    return ex.binary(Op.AND, x, _constant(a.attr & b.attr, a))


def _join(x: Expr, a: Expr, b: Expr) -> Expr:
    return ex.binary(Op.OR, x, _constant(a.attr | b.attr, a))


def _differ(x: Expr, a: Expr, b: Expr) -> Expr:
    return ex.binary(Op.XOR, x, _constant(a.attr ^ b.attr, a))


def _shift_left_twice(x: Expr, a: Expr, b: Expr) -> Expr:
    width = x.dtype.bits
    if not (0 <= a.attr < width and 0 <= b.attr < width) or a.attr + b.attr >= width:
        return _zero(x)
    return ex.binary(Op.SHL, x, _constant(a.attr + b.attr, a))


def _shift_right_twice(x: Expr, a: Expr, b: Expr) -> Expr | None:
    width = x.dtype.bits
    if not (0 <= a.attr < width and 0 <= b.attr < width):
        return None
    return ex.binary(Op.SHR, x, _constant(min(a.attr + b.attr, width - 1), a)) if (
        x.dtype.kind == "i" or a.attr + b.attr < width
    ) else _zero(x)


def _div_power(x: Expr, a: Expr) -> Expr | None:
    shift = _power(a)
    return None if shift is None else ex.binary(Op.SHR, x, _constant(shift, a))


def _mod_power(x: Expr, a: Expr) -> Expr | None:
    return None if _power(a) is None else ex.binary(Op.AND, x, _constant(a.attr - 1, a))


def _equal_const(x: Expr, a: Expr, b: Expr) -> Expr:
    return ex.binary(Op.EQ, x, _constant(b.attr - a.attr, a))


def _min_const(x: Expr, a: Expr) -> Expr | None:
    if a.attr == x.dtype.max:
        return x
    return a if a.attr == x.dtype.min else None


def _max_const(x: Expr, a: Expr) -> Expr | None:
    if a.attr == x.dtype.min:
        return x
    return a if a.attr == x.dtype.max else None


def _min_consts(x: Expr, a: Expr, b: Expr) -> Expr:
    return ex.binary(Op.MIN, x, _constant(min(a.attr, b.attr), a))


def _max_consts(x: Expr, a: Expr, b: Expr) -> Expr:
    return ex.binary(Op.MAX, x, _constant(max(a.attr, b.attr), a))


def _min_infinity(x: Expr, a: Expr) -> Expr | None:
    return x if a.attr == math.inf else None


def _max_infinity(x: Expr, a: Expr) -> Expr | None:
    return x if a.attr == -math.inf else None


def _below_const(x: Expr, a: Expr) -> Expr | None:
    return _false(x) if a.attr == x.dtype.min else None


def _above_const(x: Expr, a: Expr) -> Expr | None:
    return _false(x) if a.attr == x.dtype.max else None


def _at_most_const(x: Expr, a: Expr) -> Expr | None:
    if a.attr == x.dtype.max:
        return _true(x)
    return None if x.dtype.is_bool else ex.binary(Op.LT, x, _constant(a.attr + 1, a))


def _at_least_const(x: Expr, a: Expr) -> Expr | None:
    if a.attr == x.dtype.min:
        return _true(x)
    return None if x.dtype.is_bool else ex.binary(Op.LT, _constant(a.attr - 1, a), x)


def _div_exactly(x: Expr, a: Expr) -> Expr | None:
    """Divide by a power of two whose inverse the type holds: both round the same real number."""
    value = float(normalise(a.attr, a.dtype))
    if value == 0 or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    inverse = 1.0 / value
    if not math.isfinite(inverse) or round_float(inverse, a.dtype) != inverse or abs(value) == 1:
        return None
    return ex.binary(Op.MUL, x, ex.make(Op.CONST, a.dtype, (), inverse, a.lanes))


def holds(wide: DType, narrow: DType) -> bool:
    """Whether `wide` holds every value of `narrow` exactly (NaN counts as one value)."""
    if wide is narrow or narrow.is_bool:
        return True
    if wide.is_bool or (narrow.kind == "f" and wide.kind != "f"):
        return False
    if wide.kind == "f" and narrow.kind == "f":
        return wide.mantissa >= narrow.mantissa and wide.exponent >= narrow.exponent
    if wide.kind == "f":
        digits = narrow.bits - (narrow.kind == "i")
        return wide.mantissa + 1 >= digits and (1 << (wide.exponent - 1)) > narrow.bits
    if narrow.kind == "i" and wide.kind == "u":
        return False
    return wide.bits - (wide.kind == "i") >= narrow.bits - (narrow.kind == "i")


def _cast_chain(e: Expr) -> Expr | None:
    """cast(cast(x)) -> cast(x) where the middle type loses nothing, or wraps to more bits."""
    middle = e.args[0]
    if middle.op is not Op.CAST:
        return None
    inner = middle.args[0]
    if inner.dtype.is_integer and e.dtype.kind == "f" and not holds(dt.float32, inner.dtype):
        return None  # a device may pass through float32 on its way to a narrow float
    if middle.dtype is dt.float32 and inner.dtype is not e.dtype and any(
        d.kind == "f" and d.bits < 32 for d in (inner.dtype, e.dtype)
    ):
        return None  # processors convert narrow floats from and to float32 alone
    if middle.dtype.is_float and inner.dtype.is_integer and e.dtype.is_integer and (
        not holds(e.dtype, inner.dtype)
    ):
        return None  # a float saturates where an integer wraps
    wraps = inner.dtype.is_integer and middle.dtype.is_integer and e.dtype.is_integer
    if holds(middle.dtype, inner.dtype) or (wraps and e.dtype.bits <= middle.dtype.bits):
        return ex.cast(inner, e.dtype)
    return None


def _bitcast_chain(e: Expr) -> Expr | None:
    """bitcast(bitcast(x)) -> bitcast(x)."""
    return ex.bitcast(e.args[0].args[0], e.dtype) if e.args[0].op is Op.BITCAST else None


_INTEGRAL: Final = (Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND)
_INTEGRAL_RULES: Final = tuple(
    # floor(ceil(x)) -> ceil(x)
    Rule(f"{outer.name}_of_{inner.name}", op(outer, op(inner, f)), op(inner, f))
    for outer in _INTEGRAL
    for inner in _INTEGRAL
)

ARITHMETIC: Final = (
    Rule("add_negative_zero", f + -0.0, f),  # x + -0.0 -> x
    Rule("sub_zero", f - 0.0, f),  # x - 0.0 -> x
    Rule("negative_zero_sub", -0.0 - f, -f),  # -0.0 - x -> -x
    Rule("mul_one", f * 1.0, f),  # x * 1 -> x
    Rule("mul_minus_one", f * -1.0, -f),  # x * -1 -> -x
    Rule("div_one", f / 1.0, f),  # x / 1 -> x
    Rule("div_minus_one", f / -1.0, -f),  # x / -1 -> -x
    Rule("div_power", f / float_constant, _div_exactly),  # x / 2**k -> x * 2**-k
    Rule("neg_neg", op(Op.NEG, -x), x),  # --x -> x
    Rule("add_neg", f + (-g), f - g),  # x + -y -> x - y
    Rule("sub_neg", f - (-g), f + g),  # x - -y -> x + y
    Rule("mul_negs", (-f) * (-g), f * g),  # -x * -y -> x * y
    Rule("div_negs", (-f) / (-g), f / g),  # -x / -y -> x / y
    Rule("abs_neg", absolute(-signed), absolute(signed)),  # abs(-x) -> abs(x)
    Rule("abs_abs", absolute(absolute(x)), absolute(x)),  # abs(abs(x)) -> abs(x)
    Rule("abs_square", absolute(f * f), f * f),  # abs(x * x) -> x * x
    Rule("min_same", minimum(x, x), x),  # min(x, x) -> x
    Rule("max_same", maximum(x, x), x),  # max(x, x) -> x
    Rule("min_infinity", minimum(f, float_constant), _min_infinity),  # min(x, inf) -> x
    Rule("max_infinity", maximum(f, float_constant), _max_infinity),  # max(x, -inf) -> x
    Rule("mad_one", mad(f, 1.0, g), f + g),  # x * 1 + y -> x + y
    Rule("mad_no_add", mad(f, g, -0.0), f * g),  # x * y + -0.0 -> x * y
    Rule("mad_negs", mad(-f, -g, h), mad(f, g, h)),  # -x * -y + z -> x * y + z
)  # fmt: skip

SELECTION: Final = (
    Rule("where_same", where(test, x, x), x),  # where(c, x, x) -> x
    Rule("where_true", where(True, x, y), x),  # where(true, x, y) -> x
    Rule("where_false", where(False, x, y), y),  # where(false, x, y) -> y
    Rule("where_not", where(~test, x, y), where(test, y, x)),  # where(!c, x, y) -> where(c, y, x)
    Rule("where_then", where(test, where(test, x, y), z), where(test, x, z)),
    # where(c, where(c, x, y), z) -> where(c, x, z)
    Rule("where_else", where(test, z, where(test, x, y)), where(test, z, y)),
    # where(c, z, where(c, x, y)) -> where(c, z, y)
    Rule("where_bool", where(test, True, False), test),  # where(c, true, false) -> c
    Rule("where_not_bool", where(test, False, True), ~test),  # where(c, false, true) -> !c
    Rule("where_and", where(test, b, False), test & b),  # where(c, x, false) -> c & x
    Rule("where_or", where(test, True, b), test | b),  # where(c, true, x) -> c | x
    Rule("where_less", where(n.lt(m), n, m), minimum(n, m), INTEGER),  # x < y ? x : y -> min
    Rule("where_greater", where(n.lt(m), m, n), maximum(n, m), INTEGER),  # x < y ? y : x -> max
    Rule("where_equal", where(n.eq(m), n, m), m, INTEGER),  # x == y ? x : y -> y
)

COMPARISON: Final = (
    Rule("less_same", x.lt(x), _false),  # x < x -> false
    Rule("at_most_same", n.le(n), _true, INTEGER),  # x <= x -> true
    Rule("equal_same", n.eq(n), _true, INTEGER),  # x == x -> true
    Rule("unequal_same", n.ne(n), _false, INTEGER),  # x != x -> false
    Rule("not_equal", ~(x.eq(y)), x.ne(y)),  # !(x == y) -> x != y
    Rule("not_unequal", ~(x.ne(y)), x.eq(y)),  # !(x != y) -> x == y
    Rule("not_less", ~(n.lt(m)), m.le(n), INTEGER),  # !(x < y) -> y <= x
    Rule("not_at_most", ~(n.le(m)), m.lt(n), INTEGER),  # !(x <= y) -> y < x
    Rule("below_least", n.lt(any_constant), _below_const, INTEGER),  # x < MIN -> false
    Rule("above_most", op(Op.LT, any_constant, n), _above_const, INTEGER),  # MAX < x -> false
    Rule("at_most_const", n.le(any_constant), _at_most_const, INTEGER),  # x <= 3 -> x < 4
    Rule("at_least_const", op(Op.LE, any_constant, n), _at_least_const, INTEGER),
    # 3 <= x -> 2 < x
    Rule("equal_sum", (i + c1).eq(c2), _equal_const, INTEGER),  # x + 1 == 4 -> x == 3
    Rule("equal_true", b.eq(True), b),  # x == true -> x
    Rule("equal_false", b.eq(False), ~b),  # x == false -> !x
    Rule("unequal_false", b.ne(False), b),  # x != false -> x
    Rule("unequal_true", b.ne(True), ~b),  # x != true -> !x
)

LOGIC: Final = (
    Rule("not_not", ~(~n), n),  # ~~x -> x
    Rule("and_same", n & n, n),  # x & x -> x
    Rule("or_same", n | n, n),  # x | x -> x
    Rule("xor_same", n ^ n, _zero),  # x ^ x -> 0
    Rule("and_zero", n & 0, _zero),  # x & 0 -> 0
    Rule("or_zero", n | 0, n),  # x | 0 -> x
    Rule("xor_zero", n ^ 0, n),  # x ^ 0 -> x
    Rule("and_ones", n & any_constant, _and_ones),  # x & ~0 -> x
    Rule("or_ones", n | any_constant, _or_ones),  # x | ~0 -> ~0
    Rule("xor_ones", n ^ any_constant, _xor_ones),  # x ^ ~0 -> ~x
    Rule("and_not", n & ~n, _zero),  # x & ~x -> 0
    Rule("or_not", n | ~n, _ones),  # x | ~x -> ~0
    Rule("and_absorbs", n & (n | m), n),  # x & (x | y) -> x
    Rule("or_absorbs", n | (n & m), n),  # x | (x & y) -> x
    Rule("and_again", n & (n & m), n & m),  # x & (x & y) -> x & y
    Rule("or_again", n | (n | m), n | m),  # x | (x | y) -> x | y
    Rule("and_consts", (i & c1) & c2, _meet),  # (x & 6) & 3 -> x & 2
    Rule("or_consts", (i | c1) | c2, _join),  # (x | 1) | 2 -> x | 3
    Rule("xor_consts", (i ^ c1) ^ c2, _differ),  # (x ^ 1) ^ 3 -> x ^ 2
)

INTEGERS: Final = (
    Rule("int_add_zero", i + 0, i, INTEGER),  # x + 0 -> x
    Rule("int_sub_zero", i - 0, i, INTEGER),  # x - 0 -> x
    Rule("int_sub_same", i - i, _zero, INTEGER),  # x - x -> 0
    Rule("int_mul_one", i * 1, i, INTEGER),  # x * 1 -> x
    Rule("int_mul_zero", i * 0, _zero, INTEGER),  # x * 0 -> 0
    Rule("int_mul_minus_one", s * c1, _mul_minus_one, INTEGER),  # x * -1 -> -x
    Rule("int_add_consts", (i + c1) + c2, _sum, INTEGER),  # (x + 1) + 2 -> x + 3
    Rule("int_sub_const", i - c1, _sub_const, INTEGER),  # x - 1 -> x + -1
    Rule("int_mul_consts", (i * c1) * c2, _product, INTEGER),  # (x * 2) * 3 -> x * 6
    Rule("int_add_neg", i + (-j), i - j, INTEGER),  # x + -y -> x - y
    Rule("int_sub_neg", i - (-j), i + j, INTEGER),  # x - -y -> x + y
    Rule("int_neg_sub", -(i - j), j - i, INTEGER),  # -(x - y) -> y - x
    Rule("int_mul_negs", (-i) * (-j), i * j, INTEGER),  # -x * -y -> x * y
    Rule("int_add_sub", (i - j) + j, i, INTEGER),  # (x - y) + y -> x
    Rule("int_sub_add", (i + j) - j, i, INTEGER),  # (x + y) - y -> x
    Rule("int_div_one", i // 1, i, INTEGER),  # x // 1 -> x
    Rule("int_mod_one", i % 1, _zero, INTEGER),  # x % 1 -> 0
    Rule("int_mod_same", i % i, _zero, INTEGER),  # x % x -> 0, also where x is 0
    Rule("int_zero_div", op(Op.FLOORDIV, 0, i), _zero, INTEGER),  # 0 // x -> 0
    Rule("int_zero_mod", op(Op.MOD, 0, i), _zero, INTEGER),  # 0 % x -> 0
    Rule("int_mod_mod", (i % j) % j, i % j, INTEGER),  # (x % y) % y -> x % y
    Rule("int_div_power", i // c1, _div_power, INTEGER),  # x // 8 -> x >> 3
    Rule("int_mod_power", i % c1, _mod_power, INTEGER),  # x % 8 -> x & 7
    Rule("shift_left_none", i << 0, i, INTEGER),  # x << 0 -> x
    Rule("shift_right_none", i >> 0, i, INTEGER),  # x >> 0 -> x
    Rule("shift_left_twice", (i << c1) << c2, _shift_left_twice, INTEGER),  # x << 1 << 2 -> x << 3
    Rule("shift_right_twice", (i >> c1) >> c2, _shift_right_twice, INTEGER),
    # x >> 1 >> 2 -> x >> 3
    Rule("abs_unsigned", absolute(u), u, INTEGER),  # abs(x) -> x
    Rule("min_const", minimum(n, any_constant), _min_const, INTEGER),  # min(x, MAX) -> x
    Rule("max_const", maximum(n, any_constant), _max_const, INTEGER),  # max(x, MIN) -> x
    Rule("min_consts", minimum(minimum(i, c1), c2), _min_consts, INTEGER),
    # min(min(x, 3), 5) -> min(x, 3)
    Rule("max_consts", maximum(maximum(i, c1), c2), _max_consts, INTEGER),
    # max(max(x, 3), 5) -> max(x, 5)
    Rule("min_min", minimum(minimum(x, y), y), minimum(x, y)),  # min(min(x, y), y) -> min(x, y)
    Rule("max_max", maximum(maximum(x, y), y), maximum(x, y)),  # max(max(x, y), y) -> max(x, y)
    Rule("max_of_min", maximum(n, minimum(n, m)), n, INTEGER),  # max(x, min(x, y)) -> x
    Rule("min_of_max", minimum(n, maximum(n, m)), n, INTEGER),  # min(x, max(x, y)) -> x
)


def _never_negative(ranges: Ranges, found: Match) -> bool:
    return all(ranges.of(e).lo >= 0 for e in found.values())


def _never_above(ranges: Ranges, found: Match) -> bool:
    return ranges.of(found["x"]).hi <= ranges.of(found["y"]).lo


def _below(ranges: Ranges, found: Match) -> bool:
    return ranges.of(found["x"]).lo >= 0 and _never_equal(ranges, found)


def _never_equal(ranges: Ranges, found: Match) -> bool:
    return ranges.of(found["x"]).hi < ranges.of(found["y"]).lo


BY_RANGE: Final = (
    Rule("abs_known", absolute(s), s, RANGE, _never_negative),  # abs(x) -> x
    Rule("fmod_known", op(Op.FMOD, i, j), i % j, RANGE, _never_negative),  # fmod(x, y) -> x % y
    Rule("min_known", minimum(n, m), n, RANGE, _never_above),  # min(x, y) -> x
    Rule("max_known", maximum(n, m), m, RANGE, _never_above),  # max(x, y) -> y
    Rule("min_known_right", minimum(m, n), n, RANGE, _never_above),  # min(y, x) -> x
    Rule("max_known_right", maximum(m, n), m, RANGE, _never_above),  # max(y, x) -> y
    Rule("div_known", i // j, _zero, RANGE, _below),  # x // y -> 0
    Rule("mod_known", i % j, i, RANGE, _below),  # x % y -> x
    Rule("less_known", n.lt(m), _true, RANGE, _never_equal),  # x < y -> true
    Rule("not_above_known", m.lt(n), _false, RANGE, _never_above),  # y < x -> false
    Rule("at_most_known", n.le(m), _true, RANGE, _never_above),  # x <= y -> true
    Rule("above_known", m.le(n), _false, RANGE, _never_equal),  # y <= x -> false
    Rule("unequal_known", n.ne(m), _true, RANGE, _never_equal),  # x != y -> true
    Rule("unequal_known_right", m.ne(n), _true, RANGE, _never_equal),  # y != x -> true
    Rule("equal_known_right", m.eq(n), _false, RANGE, _never_equal),  # y == x -> false
    Rule("equal_known", n.eq(m), _false, RANGE, _never_equal),  # x == y -> false
)

def _cast_step(e: Expr) -> Expr | None:
    folded = FOLDS[Op.CAST](e)
    return _cast_chain(e) if folded is None else folded


def _bitcast_step(e: Expr) -> Expr | None:
    folded = FOLDS[Op.BITCAST](e)
    return _bitcast_chain(e) if folded is None else folded


ALGEBRA: Final = RuleSet(
    (*SELECTION, *ARITHMETIC, *COMPARISON, *LOGIC, *INTEGERS, *_INTEGRAL_RULES, *BY_RANGE),
    FOLDS | {Op.CAST: _cast_step, Op.BITCAST: _bitcast_step},
)


def simplify(roots: Iterable[Expr], env: Env | None = None) -> list[Expr]:
    """Return expressions of equal value, simplified by every rule of this file."""
    return rewrite(roots, ALGEBRA, env)

