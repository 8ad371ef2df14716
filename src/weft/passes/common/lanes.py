"""Expressions under vectorisation: what is uniform, what counts up, what is a vector.

Inside a vector loop each scalar expression of the source maps to one of three forms:

* uniform: a scalar expression, the same in every lane; broadcast only where a vector uses it;
* `Affine`: ``base + stride * lane`` on int64, which makes contiguous accesses and scalar bounds;
* a vector expression.
"""

from __future__ import annotations

import math
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import Limit, Ranges
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.ir.record import Record
from weft.ir.stmt import Memory


class Affine(Record):
    """The int64 vector ``base + stride * lane`` with a scalar `base` and a constant stride."""

    base: Expr
    stride: int


Mapped = Expr | Affine


class Mask(Record):
    """Which lanes are active: a vector bool, and the scalar that says whether any is."""

    lanes: Expr
    any: Expr


class Scope:
    """What the names of the source mean at one place of the output.

    Names are bound in the scope of their statement and looked up outwards. The results of `Mapper`
    are kept by scope, too: what an outer scope mapped is valid in inner ones, because a name of
    the source is bound once on each path.
    """

    __slots__ = ("depth", "lanes", "mapped", "mask", "memories", "parent")

    def __init__(self, parent: Scope | None, lanes: int, mask: Mask | None) -> None:
        self.parent, self.lanes, self.mask = parent, lanes, mask
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.mapped: dict[Expr, Mapped] = {}
        self.memories: dict[str, tuple[Memory, int]] = {}  # by name, which is unique

    def child(self, lanes: int | None = None, mask: Mask | None = None) -> Scope:
        """Return an inner scope."""
        return Scope(self, lanes or self.lanes, mask or self.mask)

    def holder(self, e: Expr) -> Scope | None:
        """Return the scope, this one or further out, that knows what `e` maps to."""
        scope: Scope | None = self
        while scope is not None:
            if e in scope.mapped:
                return scope
            scope = scope.parent
        return None

    def memory(self, memory: Memory) -> tuple[Memory, int]:
        """Return the memory of the output, and its lanes if each lane has a copy of its own."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.memories.get(memory.name)
            if found is not None:
                return found
            scope = scope.parent
        return memory, 1


_INLINE_NODES: Final = 24
MOST_BITS: Final = 64
_WORDS: Final = 8  # of 64 bits in the vectors of most registers
_NO_WRAP: Final = 1 << 62
_COMPARISONS: Final = (Op.LT, Op.LE, Op.EQ, Op.NE)


def is_small(e: Expr) -> bool:
    """Whether a scalar is worth repeating in place of a name, because index rules see through."""
    count, stack = 0, [e]
    while stack:
        count += 1
        if count > _INLINE_NODES:
            return False
        stack.extend(stack.pop().args)
    return True


def divisor(e: Expr) -> int:
    """Return a number that divides an int64 expression, if none of it wraps around; 0 for 0."""
    done: dict[Expr, int] = {}
    for x in ex.toposort([e]):
        args = [done[a] for a in x.args]
        if x.op is Op.CONST:
            done[x] = abs(int(x.attr))
        elif x.op is Op.MUL:
            done[x] = args[0] * args[1]
        elif x.op is Op.ADD or x.op is Op.SUB:
            done[x] = math.gcd(*args)
        else:
            done[x] = 1
    return done[e]


def linear(e: Expr, lets: dict[Expr, Expr]) -> tuple[dict[Expr, int], int]:
    """Return an int64 expression as coefficients of what it is made of, and a constant."""
    done: dict[Expr, tuple[dict[Expr, int], int]] = {}
    stack = [e]
    while stack:
        x = stack[-1]
        if x in done:
            stack.pop()
            continue
        if x in lets and lets[x].dtype is x.dtype:
            needs: tuple[Expr, ...] = (lets[x],)
        elif x.op in (Op.ADD, Op.SUB, Op.NEG) or (
                x.op is Op.MUL and any(a.op is Op.CONST for a in x.args)):
            needs = x.args
        else:
            needs = ()
        missing = [a for a in needs if a not in done]
        if missing:
            stack.extend(missing)
            continue
        done[x] = _combined(x, [done[a] for a in needs])
        stack.pop()
    return done[e]


def _combined(x: Expr, parts: list[tuple[dict[Expr, int], int]]) -> tuple[dict[Expr, int], int]:
    if not parts:
        return ({}, int(x.attr)) if x.op is Op.CONST else ({x: 1}, 0)
    if len(parts) == 1:
        factors = [-1 if x.op is Op.NEG else 1]
    elif x.op is Op.MUL:
        (a, low), (b, high) = parts
        parts, factors = ([(a, low)], [high]) if not b else ([(b, high)], [low])
    else:
        factors = [1, -1 if x.op is Op.SUB else 1]
    symbols: dict[Expr, int] = {}
    constant = 0
    for (part, more), factor in zip(parts, factors, strict=True):
        constant += factor * more
        for symbol, times in part.items():
            symbols[symbol] = symbols.get(symbol, 0) + factor * times
    return {s: t for s, t in symbols.items() if t}, constant


class Mapper:
    """Maps source expressions to the output in a scope."""

    def __init__(self) -> None:
        self.root = Scope(None, 1, None)
        self.ranges: dict[Expr, tuple[Limit, Limit]] = {}  # of loop variables of the output
        # What is asked of an expression of the output is asked after its names are in `ranges`.
        self._known = Ranges()
        self._known.env = self.ranges

    def map(self, e: Expr, scope: Scope) -> Mapped:
        """Return the form of a source expression in a scope.

        Each result is kept in the outermost scope that knows all names of the expression, so
        copies of a body share what does not differ between them.
        """
        held = scope.holder(e)
        if held is not None:
            return held.mapped[e]
        if not e.args:
            return e
        holders: dict[Expr, Scope] = {}
        stack = [e]
        while stack:
            top = stack[-1]
            if top in holders:
                stack.pop()
                continue
            missing = [a for a in top.args
                       if a not in holders and not self._found(a, scope, holders)]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            held = self.root
            args: list[Mapped] = []
            for a in top.args:
                inside = holders[a]
                args.append(inside.mapped[a])
                if inside.depth > held.depth:
                    held = inside
            held.mapped[top] = self._node(top, args, held)
            holders[top] = held
        return holders[e].mapped[e]

    def _found(self, e: Expr, scope: Scope, holders: dict[Expr, Scope]) -> bool:
        """Note the scope that knows what `e` maps to, if one does; constants are known outside."""
        held: Scope | None = scope
        while held is not None:
            if e in held.mapped:
                holders[e] = held
                return True
            held = held.parent
        if e.args:
            return False
        self.root.mapped[e] = e
        holders[e] = self.root
        return True

    def _node(self, e: Expr, args: list[Mapped], scope: Scope) -> Mapped:
        exprs: list[Expr] = []
        lanes = 1
        for a in args:
            if isinstance(a, Affine):
                continue
            exprs.append(a)
            if a.lanes > lanes:
                lanes = a.lanes
        if len(exprs) < len(args):
            kept = self._affine(e, args, scope.lanes) if lanes == 1 else None
            if kept is not None:
                return kept
            return self._rebuild(e, tuple([self.vector(m, scope.lanes) for m in args]))
        if lanes > 1 and e.op.group != "vector":
            exprs = [ex.broadcast(a, lanes) for a in exprs]
        return self._rebuild(e, tuple(exprs))

    def _rebuild(self, e: Expr, args: tuple[Expr, ...]) -> Expr:
        if e.op is not Op.WHERE:
            return ex.rebuild(e, args)
        return args[1] if self.proves(args[0]) else ex.where(*args)

    def vector(self, m: Mapped, lanes: int) -> Expr:
        """Return a mapped value with one element per lane."""
        if isinstance(m, Expr):
            return ex.broadcast(m, lanes)
        if m.stride == 1:
            return ex.ramp(m.base, lanes)
        count = ex.ramp(ex.index(0), lanes)
        steps = ex.binary(Op.MUL, count, ex.const(m.stride, dt.int64, lanes))
        return ex.binary(Op.ADD, steps, ex.broadcast(m.base, lanes))

    def scalar_vector(self, m: Mapped, lanes: int) -> Expr:
        """Return a value as it is: scalar if uniform, else a vector."""
        return m if isinstance(m, Expr) else self.vector(m, lanes)

    def _affine(self, e: Expr, args: list[Mapped], lanes: int) -> Mapped | None:
        """Return int64 arithmetic that keeps the form ``base + stride * lane``, and comparisons.

        None of `args` is a vector.
        """
        if e.op in _COMPARISONS:
            return self._compared(e, args, lanes)
        if e.dtype is not dt.int64:
            return None
        if e.op is Op.NEG and isinstance(args[0], Affine):
            return Affine(ex.unary(Op.NEG, args[0].base), -args[0].stride)
        if e.op not in (Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD):
            return None
        x, y = (a if isinstance(a, Affine) else Affine(a, 0) for a in args)
        if e.op is Op.ADD:
            return affine(x.base + y.base, x.stride + y.stride)
        if e.op is Op.SUB:
            return affine(x.base - y.base, x.stride - y.stride)
        if e.op is Op.MUL:
            if x.stride == 0:
                x, y = y, x
            if y.stride == 0 and y.base.op is Op.CONST:
                return affine(x.base * y.base, x.stride * int(y.base.attr))
            return None
        return self._divided(e, x, y, lanes)

    def _compared(self, e: Expr, args: list[Mapped], lanes: int) -> Mapped | None:
        """Compare the lane with a scalar: ``base + lane < n`` is ``lane < n - base``.

        One narrow comparison then makes a mask, where int64 lanes would take several registers.
        """
        x, y = (a if isinstance(a, Affine) else Affine(a, 0) for a in args)
        if not (self.stays_in_range(x.base) and self.stays_in_range(y.base)):
            return None  # the difference might wrap around
        step = x.stride - y.stride
        if step == 0:
            return ex.binary(e.op, x.base, y.base)
        if step not in (1, -1) and e.op in (Op.EQ, Op.NE):
            return None
        gap = y.base - x.base if step > 0 else x.base - y.base
        if step not in (1, -1):  # step * lane < gap is lane < gap / step, rounded up
            up = (e.op is Op.LT) == (step > 0)
            gap = (gap + (abs(step) - 1) if up else gap) // abs(step)
        reach = self._known.of(gap)
        d = dt.int32 if reach.lo >= dt.int32.min and reach.hi <= dt.int32.max else dt.int64
        count = ex.ramp(ex.const(0, d), lanes)
        limit = ex.broadcast(ex.cast(gap, d), lanes)
        return ex.binary(e.op, count, limit) if step > 0 else ex.binary(e.op, limit, count)

    def stays_in_range(self, e: Expr) -> bool:
        """Whether an int64 scalar is so far from its limits that lanes of it do not wrap around."""
        reach = self._known.of(e)
        return reach.lo > -_NO_WRAP and reach.hi < _NO_WRAP

    def _divided(self, e: Expr, x: Affine, y: Affine, lanes: int) -> Mapped | None:
        """Divide lanes that all lie between two multiples of a constant divisor."""
        if y.stride or y.base.op is not Op.CONST or y.base.attr <= 0 or x.stride <= 0:
            return None
        reach = self._known.of(x.base)
        if reach.lo <= -_NO_WRAP or reach.hi >= _NO_WRAP:
            return None  # the base may have wrapped around, where divisors are lost
        by = int(y.base.attr)
        if x.stride % by == 0:
            whole, rest = divided(x.base, by)
            return affine(whole, x.stride // by) if e.op is Op.FLOORDIV else rest
        step = math.gcd(divisor(x.base), by)  # base is a multiple of step, modulo `by`
        if x.stride * (lanes - 1) >= step:
            return None
        if e.op is Op.FLOORDIV:
            return x.base // y.base
        return affine(x.base % y.base, x.stride)

    # masks

    def proves(self, condition: Expr) -> bool:
        """Whether a scalar bool of the output always holds."""
        if condition.op is Op.CONST:
            return bool(condition.attr)
        return self._known.of(condition).lo == 1

    def any_lane(self, e: Expr, scope: Scope) -> Expr | None:
        """Return the scalar "any lane" of a source condition that holds for a prefix of lanes."""
        if e.op is Op.AND:
            parts = [self.any_lane(a, scope) for a in e.args]
            if parts[0] is None or parts[1] is None:
                return None
            return conjunction(parts[0], parts[1])
        m = self.map(e, scope)
        if isinstance(m, Expr) and m.lanes == 1:
            return m
        if e.op not in (Op.LT, Op.LE) or e.args[0].dtype is not dt.int64:
            return None
        x, y = (self.map(a, scope) for a in e.args)
        if (isinstance(x, Expr) and x.lanes > 1) or (isinstance(y, Expr) and y.lanes > 1):
            return None
        x, y = (a if isinstance(a, Affine) else Affine(a, 0) for a in (x, y))
        if x.stride < 0 or y.stride > 0:
            return None
        return ex.binary(e.op, x.base, y.base)

    def masked(self, e: Expr, scope: Scope, holds: bool = True) -> Mask:
        """Return the lanes of a scope in which a condition that is not uniform holds."""
        lanes = scope.lanes
        m = self.vector(self.map(e, scope), lanes)
        if not holds:
            m = ex.unary(Op.NOT, m)
        prefix = self.any_lane(e, scope) if holds else None
        outer = scope.mask
        if outer is None:
            return Mask(m, any_of(m) if prefix is None else prefix)
        both = ex.binary(Op.AND, outer.lanes, m)
        # Two prefixes of the lanes meet in one, so both are inhabited if each is.
        if prefix is None or not is_prefix(outer):
            return Mask(both, any_of(both))
        return Mask(both, conjunction(outer.any, prefix))


def divided(e: Expr, by: int) -> tuple[Expr, Expr]:
    """Return quotient and remainder of an int64 expression that does not wrap around."""
    symbols, constant = linear(e, {})
    if any(times % by for times in symbols.values()):
        return e // by, e % by
    whole = ex.index(constant // by)
    for symbol, times in symbols.items():
        whole = ex.binary(Op.ADD, whole, ex.binary(Op.MUL, symbol, ex.index(times // by)))
    return whole, ex.index(constant % by)


def is_prefix(mask: Mask) -> bool:
    """Whether a mask was built from prefixes only (its `any` looks at no vector)."""
    return not any(x.lanes > 1 for x in ex.toposort([mask.any]))


def affine(base: Expr, stride: int) -> Mapped:
    """Return ``base + stride * lane``, or the base alone if that is uniform."""
    return Affine(base, stride) if stride else base


def conjunction(a: Expr, b: Expr) -> Expr:
    """Return ``a and b`` without constants."""
    if a.op is Op.CONST:
        return b if a.attr else a
    if b.op is Op.CONST:
        return a if b.attr else b
    return a if a is b else ex.binary(Op.AND, a, b)


def any_of(v: Expr) -> Expr:
    """Return whether any lane of a vector bool holds."""
    return ex.bits(v).ne(0) if 1 < v.lanes <= MOST_BITS else fold_lanes(v, Op.OR)


def any_test(v: Expr) -> Expr:
    """Return `any_of` a vector bool, where bits of many words are tested in one of their ORs."""
    if v.op is not Op.NE or v.args[0].op is not Op.AND or not ex.is_const(v.args[1], 0):
        return any_of(v)
    words, bits = v.args[0].args
    if bits.op is not Op.CONST or words.lanes <= _WORDS:
        return any_of(v)
    while words.lanes > _WORDS:
        words = ex.binary(Op.OR, ex.half(words, 0), ex.half(words, 1))
    return any_of((words & int(bits.attr)).ne(0))


def fold_lanes(v: Expr, op: Operation) -> Expr:
    """Combine the lanes of a vector by halves with a binary op."""
    while v.lanes > 2:
        v = ex.binary(op, ex.half(v, 0), ex.half(v, 1))
    return ex.binary(op, ex.extract(v, 0), ex.extract(v, 1)) if v.lanes == 2 else v


def first_lane(flags: Expr, values: Expr) -> Expr:
    """Return the value of the first lane whose flag is set."""
    while flags.lanes > 1:
        cut = ex.extract if flags.lanes == 2 else ex.half
        low, high = cut(flags, 0), cut(flags, 1)
        lower = ex.broadcast(any_of(low), low.lanes)
        flags = ex.where(lower, low, high)
        values = ex.where(lower, cut(values, 0), cut(values, 1))
    return values
