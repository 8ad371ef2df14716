"""Interval analysis of integer and bool expressions, aware of wrap-around.

A range is inclusive. What an expression depends on comes from an environment: a mapping from
expressions (usually loop variables) to a pair ``(lo, hi)``, where `hi` may be an int64 expression
(``j`` below a symbolic ``n`` has ``(0, n - 1)``), of which only the range counts here;
`weft.rules.index` reasons with the expression itself. Facts that hold only under a condition
belong in an environment and never on an expression: see `assume`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from weft.ir.dtype import DType
from weft.ir.expr import Expr, binary, index
from weft.ir.op import Op, Operation

Limit = int | Expr
Env = Mapping[Expr, tuple[Limit, Limit]]


class Range(NamedTuple):
    """An inclusive interval of integers."""

    lo: int
    hi: int

    @property
    def is_single(self) -> bool:
        """Whether there is one value only."""
        return self.lo == self.hi

    def hull(self, other: Range) -> Range:
        """Return the smallest interval that holds both."""
        return Range(min(self.lo, other.lo), max(self.hi, other.hi))

    def within(self, other: Range) -> bool:
        """Whether every value of this interval is one of `other`."""
        return other.lo <= self.lo and self.hi <= other.hi


BIT: Final = Range(0, 1)
TRUE: Final = Range(1, 1)
FALSE: Final = Range(0, 0)
INT64: Final = Range(-(1 << 63), (1 << 63) - 1)


def full(d: DType) -> Range:
    """Return every value of an integer type or of bool."""
    return Range(int(d.min), int(d.max))


class Ranges:
    """The ranges of many expressions in one environment, each computed once.

    Parameters
    ----------
    env : mapping from Expr to (lo, hi)
        What is known; any expression may be a key.
    """

    __slots__ = ("_memo", "env")

    def __init__(self, env: Env | None = None) -> None:
        self.env: Env = env or {}
        self._memo: dict[Expr, Range] = {}

    def of(self, e: Expr) -> Range:
        """Return the range of an integer or bool expression (of every lane, for a vector)."""
        memo = self._memo
        found = memo.get(e)
        if found is not None:
            return found
        stack = [e]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            missing = [a for a in self._needs(node) if a not in memo]
            if missing:
                stack.extend(missing)
                continue
            memo[node] = self._compute(node)
            stack.pop()
        return memo[e]

    def _needs(self, e: Expr) -> list[Expr]:
        """Return what must be known first: integer operands, and limits of the environment."""
        needs = [a for a in e.args if a.dtype.kind != "f"]
        known = self.env.get(e)
        if known is not None:
            needs.extend(limit for limit in known if isinstance(limit, Expr))
        return needs

    def _limit(self, limit: Limit, upper: bool) -> int:
        if isinstance(limit, Expr):
            return self._memo[limit].hi if upper else self._memo[limit].lo
        return limit

    def _compute(self, e: Expr) -> Range:
        if e.dtype.kind == "f":
            raise TypeError(f"a float has no integer range: {e!r}")
        plain = self._derive(e)
        known = self.env.get(e)
        if known is None:
            return plain
        lo = max(plain.lo, self._limit(known[0], False))
        hi = min(plain.hi, self._limit(known[1], True))
        # A contradiction means code that never runs: any range is true of it, an empty one is not
        # a range.
        return Range(lo, hi) if lo <= hi else plain

    def _derive(self, e: Expr) -> Range:
        op = e.op
        whole = full(e.dtype)
        if op is Op.CONST:
            return Range(int(e.attr), int(e.attr))
        if op is Op.VARIABLE:
            return Range(e.attr.min, e.attr.max)
        rule = _RULES.get(op)
        if rule is None or any(a.dtype.kind == "f" for a in e.args):
            return whole
        found = rule(e, *(self._memo[a] for a in e.args))
        return found if found.within(whole) else whole


def bounds(e: Expr, env: Env | None = None) -> Range:
    """Return the inclusive range of the values of an integer or bool expression."""
    return Ranges(env).of(e)


def prove_true(condition: Expr, env: Env | None = None) -> bool:
    """Whether a bool expression holds for every value of the environment."""
    return Ranges(env).of(condition) == TRUE


def prove_false(condition: Expr, env: Env | None = None) -> bool:
    """Whether a bool expression fails for every value of the environment."""
    return Ranges(env).of(condition) == FALSE


def loop_range(extent: Expr) -> tuple[int, Limit]:
    """Return the environment entry of a loop variable: 0 to ``extent - 1``.

    The variable of a loop that runs at all; an extent below 1 leaves nothing to be wrong about.
    """
    if extent.op is Op.CONST:
        return 0, max(extent.attr - 1, 0)
    return 0, binary(Op.SUB, extent, index(1))


def assume(env: Env, condition: Expr, holds: bool = True) -> dict[Expr, tuple[Limit, Limit]]:
    """Return the environment of the branch where a condition holds (or fails).

    It understands comparisons of an integer expression with anything of known range,
    conjunctions, disjunctions that fail, and negations; the rest adds nothing.
    """
    refined = dict(env)
    stack = [(condition, holds)]
    while stack:
        e, truth = stack.pop()
        if e.op is Op.NOT:
            stack.append((e.args[0], not truth))
        elif (e.op is Op.AND and truth) or (e.op is Op.OR and not truth):
            stack.extend((a, truth) for a in e.args)
        elif e.op in _COMPARISONS and e.args[0].dtype.is_integer:
            _narrow(refined, e, truth)
    return refined


_COMPARISONS: Final = (Op.LT, Op.LE, Op.EQ, Op.NE)


def _narrow(env: dict[Expr, tuple[Limit, Limit]], e: Expr, truth: bool) -> None:
    a, b = e.args
    op = e.op
    if op is Op.NE:
        op, truth = Op.EQ, not truth
    if op is Op.EQ and not truth:
        return  # one value less, which an interval cannot say
    ranges = Ranges(env)
    ra, rb = ranges.of(a), ranges.of(b)
    if op is Op.EQ:
        _meet(env, a, rb.lo, rb.hi)
        _meet(env, b, ra.lo, ra.hi)
        return
    if not truth:  # not a < b is b <= a, and not a <= b is b < a
        a, b, ra, rb = b, a, rb, ra
        op = Op.LE if op is Op.LT else Op.LT
    gap = 1 if op is Op.LT else 0
    _meet(env, a, None, rb.hi - gap)
    _meet(env, b, ra.lo + gap, None)


def _meet(env: dict[Expr, tuple[Limit, Limit]], e: Expr, lo: int | None, hi: int | None) -> None:
    """Narrow the entry of `e`; a symbolic limit is kept, because it proves more than a number."""
    if e.op is Op.CONST:
        return
    whole = full(e.dtype)
    old_lo, old_hi = env.get(e, (whole.lo, whole.hi))
    if lo is not None and isinstance(old_lo, int):
        old_lo = max(old_lo, lo)
    if hi is not None and isinstance(old_hi, int):
        old_hi = min(old_hi, hi)
    if isinstance(old_lo, int) and isinstance(old_hi, int) and old_lo > old_hi:
        return
    env[e] = (old_lo, old_hi)


# One function an op: (expression, ranges of its operands) -> range in ideal arithmetic. `_derive`
# widens what leaves the type to every value of the type, because it may have wrapped around.


def _neg(e: Expr, x: Range) -> Range:
    return Range(-x.hi, -x.lo)


def _not(e: Expr, x: Range) -> Range:
    if e.dtype.kind == "i":
        return Range(~x.hi, ~x.lo)
    top = int(e.dtype.max)
    return Range(top - x.hi, top - x.lo)


def _abs(e: Expr, x: Range) -> Range:
    if x.lo >= 0:
        return x
    return Range(0 if x.hi >= 0 else -x.hi, max(-x.lo, x.hi))


def _popcount(e: Expr, x: Range) -> Range:
    if x.lo < 0:
        return Range(0, e.dtype.bits)
    return Range(1 if x.lo > 0 else 0, x.hi.bit_length())


def _clz(e: Expr, x: Range) -> Range:
    bits = e.dtype.bits
    if x.lo < 0:
        return Range(0, bits)
    return Range(bits - x.hi.bit_length(), bits - x.lo.bit_length())


def _add(e: Expr, x: Range, y: Range) -> Range:
    return Range(x.lo + y.lo, x.hi + y.hi)


def _sub(e: Expr, x: Range, y: Range) -> Range:
    if e.args[0] is e.args[1]:
        return FALSE
    return Range(x.lo - y.hi, x.hi - y.lo)


def _corners(values: list[int]) -> Range:
    return Range(min(values), max(values))


def _mul(e: Expr, x: Range, y: Range) -> Range:
    return _corners([a * b for a in x for b in y])


def _signs(y: Range) -> list[Range]:
    """Split a divisor range into its negative and positive parts."""
    parts = []
    if y.lo < 0:
        parts.append(Range(y.lo, min(y.hi, -1)))
    if y.hi > 0:
        parts.append(Range(max(y.lo, 1), y.hi))
    return parts


def _floordiv(e: Expr, x: Range, y: Range) -> Range:
    values = [a // b for part in _signs(y) for a in x for b in part]
    if y.lo <= 0 <= y.hi:
        values.append(0)
    return _corners(values)


def _mod(e: Expr, x: Range, y: Range) -> Range:
    found = FALSE if y.lo <= 0 <= y.hi else None
    for part in _signs(y):
        piece = _mod_by(x, part)
        found = piece if found is None else found.hull(piece)
    assert found is not None
    return found


def _mod_by(x: Range, y: Range) -> Range:
    if y.is_single and x.lo // y.lo == x.hi // y.lo:
        return Range(x.lo % y.lo, x.hi % y.lo)
    if y.lo > 0:
        if x.lo >= 0 and x.hi < y.lo:
            return x
        return Range(0, min(y.hi - 1, x.hi) if x.lo >= 0 else y.hi - 1)
    if y.hi < x.lo and x.hi <= 0:
        return x
    return Range(max(y.lo + 1, x.lo) if x.hi <= 0 else y.lo + 1, 0)


def _fmod(e: Expr, x: Range, y: Range) -> Range:
    most = max(abs(y.lo), abs(y.hi), 1) - 1
    return Range(max(-most, min(x.lo, 0)), min(most, max(x.hi, 0)))


def _min(e: Expr, x: Range, y: Range) -> Range:
    return Range(min(x.lo, y.lo), min(x.hi, y.hi))


def _max(e: Expr, x: Range, y: Range) -> Range:
    return Range(max(x.lo, y.lo), max(x.hi, y.hi))


def _and(e: Expr, x: Range, y: Range) -> Range:
    if e.dtype.is_bool:
        return _min(e, x, y)
    tops = [r.hi for r in (x, y) if r.lo >= 0]
    return Range(0, min(tops)) if tops else full(e.dtype)


def _or(e: Expr, x: Range, y: Range) -> Range:
    if e.dtype.is_bool:
        return _max(e, x, y)
    if x.lo < 0 or y.lo < 0:
        return full(e.dtype)
    return Range(max(x.lo, y.lo), (1 << max(x.hi, y.hi).bit_length()) - 1)


def _xor(e: Expr, x: Range, y: Range) -> Range:
    if x.lo < 0 or y.lo < 0:
        return full(e.dtype)
    if x.is_single and y.is_single:
        return Range(x.lo ^ y.lo, x.lo ^ y.lo)
    return Range(0, (1 << max(x.hi, y.hi).bit_length()) - 1)


def _shl(e: Expr, x: Range, y: Range) -> Range:
    if y.lo < 0 or y.hi >= e.dtype.bits:
        return full(e.dtype)
    return _corners([a << b for a in x for b in y])


def _shr(e: Expr, x: Range, y: Range) -> Range:
    bits = e.dtype.bits  # a negative or too large amount acts as the width does
    lo = max(0, min(y.lo, bits))
    hi = bits if y.lo < 0 or y.hi > bits else y.hi
    return _corners([a >> b for a in x for b in (lo, hi)])


def _mulhi(e: Expr, x: Range, y: Range) -> Range:
    product = _mul(e, x, y)
    return Range(product.lo >> e.dtype.bits, product.hi >> e.dtype.bits)


def _truth(always: bool, never: bool) -> Range:
    return TRUE if always else FALSE if never else BIT


def _lt(e: Expr, x: Range, y: Range) -> Range:
    return _truth(x.hi < y.lo, x.lo >= y.hi or e.args[0] is e.args[1])


def _le(e: Expr, x: Range, y: Range) -> Range:
    return _truth(x.hi <= y.lo or e.args[0] is e.args[1], x.lo > y.hi)


def _eq(e: Expr, x: Range, y: Range) -> Range:
    same = e.args[0] is e.args[1] or (x == y and x.is_single)
    return _truth(same, x.hi < y.lo or y.hi < x.lo)


def _ne(e: Expr, x: Range, y: Range) -> Range:
    found = _eq(e, x, y)
    return Range(1 - found.hi, 1 - found.lo)


def _where(e: Expr, c: Range, x: Range, y: Range) -> Range:
    if c.is_single:
        return x if c.lo else y
    return x.hull(y)


def _cast(e: Expr, x: Range) -> Range:
    if e.dtype.is_bool:
        return _truth(x.lo > 0 or x.hi < 0, x == FALSE)
    return x


def _same(e: Expr, x: Range) -> Range:
    return x


def _ramp(e: Expr, x: Range) -> Range:
    return Range(x.lo, x.hi + e.lanes - 1)


def _places(e: Expr, x: Range) -> Range:
    return Range(x.lo, x.hi + 15 * int(e.attr) + 15)


_RULES: Final[dict[Operation, Callable[..., Range]]] = {
    Op.NEG: _neg, Op.NOT: _not, Op.ABS: _abs, Op.POPCOUNT: _popcount, Op.CLZ: _clz,
    Op.ADD: _add, Op.SUB: _sub, Op.MUL: _mul, Op.FLOORDIV: _floordiv, Op.MOD: _mod,
    Op.FMOD: _fmod, Op.MIN: _min, Op.MAX: _max, Op.AND: _and, Op.OR: _or, Op.XOR: _xor,
    Op.SHL: _shl, Op.SHR: _shr, Op.MULHI: _mulhi, Op.LT: _lt, Op.LE: _le, Op.EQ: _eq,
    Op.NE: _ne, Op.WHERE: _where, Op.CAST: _cast, Op.BROADCAST: _same, Op.RAMP: _ramp,
    Op.PLACES: _places, Op.EXTRACT: _same, Op.HALF: _same, Op.REVERSE: _same,
    Op.UNLIKELY: _same,
}  # fmt: skip

