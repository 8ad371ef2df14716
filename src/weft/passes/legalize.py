"""Decompose what the target lacks: narrow-float arithmetic, transcendentals, integer powers.

Works on expressions at loop level, before vectorisation. It asks ``target.supports(op, dtype)``
and replaces, until nothing is left to replace:

* arithmetic on float16, bfloat16 and the 8-bit floats -> float32, rounded once per operation;
* casts between a narrow float and anything but float32 -> by way of float32, rounded once;
* transcendental functions -> `weft.passes.transcendental`;
* FLOORDIV and MOD of floats -> FMOD and a correction, exact where fmod is;
* POW of integers -> repeated squaring;
* dot products of packed words -> one product after the other.

Limits: accumulators and memory keep their type; atomics on narrow floats are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from weft.errors import UnsupportedError
from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.lookup import values_of
from weft.ir.op import Op, Operation
from weft.ir.stmt import Body, Kernel, Stmt
from weft.ir.traverse import map_exprs
from weft.target import Target

__all__ = ["Legalizer", "is_legal", "legalize"]

Decompose = Callable[[Operation, tuple[Expr, ...]], Expr | None]


def legalize(kernel: Kernel, target: Target,
             first: Callable[[Stmt], Stmt | Body] | None = None) -> Kernel:  # fmt: skip
    """Return the kernel with every expression in operations that the target has.

    What `first` makes of a statement is legalized in its place, in the same pass.

    Raises
    ------
    UnsupportedError
        For an operation that the target lacks and that has no decomposition.
    """
    return map_exprs(kernel, Legalizer(target).one, first)


def is_legal(e: Expr, target: Target) -> bool:
    """Return whether the target has this one operation (its operands apart)."""
    if e.op is Op.CAST:
        source, to = e.args[0].dtype, e.dtype
        narrow = source if _is_narrow(source) else to if _is_narrow(to) else None
        if narrow is None:
            return target.supports(Op.CAST, to)
        return (source if narrow is to else to) is dt.float32 and target.supports(Op.CAST, narrow)
    return target.supports(e.op, e.args[-1].dtype if e.args else e.dtype)


def _is_narrow(d: DType) -> bool:
    return d.kind == "f" and d.bits < 32


class Legalizer:
    """Rewrites expressions for one target and remembers what it has rewritten.

    Parameters
    ----------
    target : Target
        What is asked for each operation.
    decompose : callable, optional
        ``(op, args) -> Expr or None`` for the transcendental functions.
    """

    def __init__(self, target: Target, decompose: Decompose | None = None) -> None:
        tables = target.supports(Op.LOOKUP, dt.uint32)
        self.double = target.computes(dt.float64)
        self.target = target
        self.decompose = decompose or partial(_plain, tables=tables, double=self.double)
        self._done: dict[Expr, Expr] = {}

    def one(self, root: Expr) -> Expr:
        """Return `root` in legal operations."""
        found = self._done.get(root)
        return self._rewrite(root, frozenset()) if found is None else found

    def all(self, roots: Iterable[Expr]) -> list[Expr]:
        """Return each of `roots` in legal operations."""
        return [self.one(root) for root in roots]

    def _rewrite(self, root: Expr, above: frozenset[tuple[str, str]]) -> Expr:
        """Rewrite bottom-up; `above` holds the decompositions that led here."""
        done = self._done
        for e in self._pending(root):
            args = tuple(done[a] for a in e.args)
            new = _fold(e if args == e.args else ex.rebuild(e, args))
            if new not in done and not is_legal(new, self.target):
                key = (new.op.name, (new.args[-1] if new.args else new).dtype.text)
                expanded = None if key in above and new.op is not Op.CAST else self._expand(new)
                if expanded is None:
                    raise self._lacks(new)
                final = self._rewrite(expanded, above | {key})
                done[new] = final
                new = final
            else:
                new = done.get(new, new)
            done[e] = done[new] = new
        return done[root]

    def _lacks(self, e: Expr) -> UnsupportedError:
        """Return the error for an operation that the target lacks."""
        name, double = self.target.name, dt.float64
        if double in (e.dtype, *(a.dtype for a in e.args)) and not self.target.supports(
                Op.ADD, double):
            return UnsupportedError(
                "legalize", found=f"{e.op.name} of float64, which {name} lacks",
                expected="float32 or integers",
                hint="compute with dtype=weft.float32; in kernels a number such as 0.5 is float64 "
                     "until it meets a float32: write weft.float32(0.5)")
        found = f"{e.op.name} of {(e.args[-1] if e.args else e).dtype.text}"
        return UnsupportedError("legalize", found=found, expected=f"an operation of {name}")

    def _pending(self, root: Expr) -> list[Expr]:
        """Return what is not rewritten yet below `root`, operands first."""
        seen: dict[Expr, None] = {}
        stack = [(root, iter(root.args))]
        while stack:
            node, rest = stack[-1]
            for arg in rest:
                if arg not in seen and arg not in self._done:
                    stack.append((arg, iter(arg.args)))
                    break
            else:
                seen[node] = None
                stack.pop()
        return list(seen)

    def _expand(self, e: Expr) -> Expr | None:
        """Return what stands for one operation that the target lacks."""
        if e.op is Op.CAST:
            return _cast(e.args[0], e.dtype, self.double)
        operand = e.args[-1].dtype if e.args else e.dtype
        if _is_narrow(operand):
            return _narrow(e)
        if e.op is Op.LOOKUP:
            return _choose(e)
        if not self.double and operand is dt.float32 and e.op is Op.FLOORDIV:
            return _floordiv_in_single(*e.args)
        own = _OWN.get((e.op, operand.kind))
        return own(*e.args) if own is not None else self.decompose(e.op, e.args)


def _plain(op: Operation, args: tuple[Expr, ...], tables: bool, double: bool) -> Expr | None:
    """See `weft.passes.transcendental.decompose`, which few kernels need."""
    with importing:
        from weft.passes.transcendental import decompose

    return decompose(op, args, tables=tables, double=double)


def _scale(x: Expr, n: Expr) -> Expr:
    with importing:
        from weft.passes.transcendental.exponential import scale

    return scale(x, n if _is_rounded(n) else ex.unary(Op.FLOOR, n))


def _is_rounded(n: Expr) -> bool:
    """Return whether a number was rounded to a whole one by adding and subtracting a large one.

    That is at least 1.5 * 2**mantissa: beside a smaller one, negative numbers keep a fraction.
    """
    if n.op is not Op.SUB or n.args[1].op is not Op.CONST:
        return False
    total, large = n.args
    if large.attr == 1.0 and _is_rounded(total):
        return True
    least = 1.5 * 2.0 ** (52 if n.dtype.bits == 64 else 23)
    return total.op in (Op.ADD, Op.MAD) and total.args[-1] is large and large.attr >= least


def _choose(e: Expr) -> Expr:
    """Write a LOOKUP as a tree of selects, one level for each bit of the index."""
    index = e.args[0]
    found = [ex.const(v, e.dtype, e.lanes) for v in values_of(e.attr)]
    bit = 0
    while len(found) > 1:
        is_set = ((index >> bit) & 1).ne(0)
        found = [ex.where(is_set, b, a) for a, b in zip(found[::2], found[1::2], strict=True)]
        bit += 1
    return found[0]


def _number(op: Operation, a: Expr, b: Expr) -> Expr:
    """Write MAXNUM or MINNUM as MAX or MIN between tests for NaN."""
    return ex.where(a.ne(a), b, ex.where(b.ne(b), a, ex.binary(op, a, b)))


def _fold(e: Expr) -> Expr:
    """Drop a narrowing of what was widened from the same type: it changes nothing."""
    if e.op is Op.CAST and e.args[0].op is Op.CAST:
        inner = e.args[0].args[0]
        if inner.dtype is e.dtype and _is_narrow(e.dtype) and e.args[0].dtype is dt.float32:
            return inner
    return e


# narrow floats


def _narrow(e: Expr) -> Expr:
    """``op(x)`` of a narrow float -> ``cast(op(cast(x, f32)), narrow)``; signs by their bits."""
    d = e.args[0].dtype
    if e.op in (Op.NEG, Op.ABS, Op.COPYSIGN):
        bits = dt.unsigned(d.bits)
        sign = 1 << (d.bits - 1)
        x = ex.bitcast(e.args[0], bits)
        if e.op is Op.NEG:
            return ex.bitcast(x ^ sign, d)
        if e.op is Op.ABS:
            return ex.bitcast(x & (sign - 1), d)
        return ex.bitcast((x & (sign - 1)) | (ex.bitcast(e.args[1], bits) & sign), d)
    wide = tuple(ex.cast(a, dt.float32) if a.dtype is d else a for a in e.args)
    if e.op.result == "bool":
        return ex.make(e.op, e.dtype, wide, e.attr, e.lanes)
    return ex.cast(ex.make(e.op, dt.float32, wide, e.attr, e.lanes), d)


def _cast(x: Expr, to: DType, double: bool = True) -> Expr | None:
    """Route a cast with a narrow float on one side by way of float32."""
    source = x.dtype
    if _is_narrow(source):
        return None if to is dt.float32 else ex.cast(ex.cast(x, dt.float32), to)
    if not _is_narrow(to) or source is dt.float32:
        return None
    if source.kind in "bui" and source.bits <= 16:
        return ex.cast(ex.cast(x, dt.float32), to)  # exact in 24 bits
    if source.kind in "ui" and not double:
        return ex.cast(_integer_to_odd(x), to)
    if source.kind in "ui":
        x = ex.cast(_sticky(x) if source.bits > 53 else x, dt.float64)
    return ex.cast(round_to_odd(x), to)


def _sticky(x: Expr) -> Expr:
    """Reduce a 64-bit integer to one that float64 holds, with its lost bits in the last one."""
    limit = 1 << 53
    low = x & 0x7FF
    odd = ex.where(low.ne(0), ex.const(0x800, x.dtype, x.lanes), 0)
    fits = x.le(limit)
    if x.dtype.kind == "i":
        fits = fits & x.ge(-limit)
    return ex.where(fits, x, (x ^ low) | odd)


def _integer_to_odd(x: Expr) -> Expr:
    """Round an integer to float32 as `round_to_odd` does."""
    near = ex.cast(x, dt.float32)
    back = ex.cast(near, x.dtype)
    bits = ex.bitcast(near, dt.uint32)
    beyond = ex.where(x.lt(0), back.lt(x), back.gt(x)) if x.dtype.kind == "i" else back.gt(x)
    other = ex.where(beyond, bits - 1, bits + 1)
    return ex.bitcast(ex.where(back.ne(x) & (bits & 1).eq(0), other, bits), dt.float32)


def round_to_odd(x: Expr) -> Expr:
    """Round float64 to float32 so that rounding the result again cannot see a false tie.

    An inexact result takes the neighbour with an odd last bit. Ref: Boldo and Melquiond,
    "Emulation of a FMA and correctly rounded sums", 2008.
    """
    near = ex.cast(x, dt.float32)
    back = ex.cast(near, dt.float64)
    bits = ex.bitcast(near, dt.uint32)
    is_even = (bits & 1).eq(0)
    beyond = ex.unary(Op.ABS, back).gt(ex.unary(Op.ABS, x))
    other = ex.where(beyond, bits - 1, bits + 1)
    return ex.bitcast(ex.where(back.ne(x) & is_even, other, bits), dt.float32)


# floats


def _float_mod(x: Expr, y: Expr) -> Expr:
    """Return the remainder with the sign of the divisor, as Python computes it."""
    rest = ex.binary(Op.FMOD, x, y)
    zero = ex.const(0.0, x.dtype, x.lanes)
    differ = (rest.lt(zero) ^ y.lt(zero)) & rest.ne(zero)
    signed = ex.where(rest.eq(zero), ex.binary(Op.COPYSIGN, zero, y), rest)
    return ex.where(differ, rest + y, signed)


def _float_floordiv(x: Expr, y: Expr) -> Expr:
    """Return the floor of the quotient as Python does; of float32 in float64, then rounded."""
    if x.dtype is dt.float32:
        return ex.cast(_float_floordiv(ex.cast(x, dt.float64), ex.cast(y, dt.float64)), x.dtype)
    zero, one = ex.const(0.0, x.dtype, x.lanes), ex.const(1.0, x.dtype, x.lanes)
    rest = ex.binary(Op.FMOD, x, y)
    quotient = (x - rest) / y
    differ = (rest.lt(zero) ^ y.lt(zero)) & rest.ne(zero)
    quotient = ex.where(differ, quotient - one, quotient)
    floor = ex.unary(Op.FLOOR, quotient)
    floor = ex.where((quotient - floor).gt(0.5), floor + one, floor)
    signed = ex.binary(Op.COPYSIGN, zero, x / y)
    exact = ex.where(quotient.eq(zero), signed, floor)
    return ex.where(y.eq(zero), x / y, exact)


def _floordiv_in_single(x: Expr, y: Expr) -> Expr:
    """Return what `_float_floordiv` does of float32, by a fused multiply-add.

    The remainder of a quotient that is rounded to a whole number is exact, and tells on which side
    the quotient is. From 2**24 on quotients are whole; one whose floor lies half-way between two
    of them is rounded to the even one.
    """
    zero = ex.const(0.0, x.dtype, x.lanes)
    quotient = x / y
    floor = ex.unary(Op.FLOOR, quotient)
    rest = ex.where(floor.eq(zero), x, ex.mad(-floor, y, x))
    too_far = (rest.lt(zero) ^ y.lt(zero)) & rest.ne(zero)
    small = ex.where(too_far, floor - 1.0, floor)
    bits = ex.bitcast(quotient, dt.uint32)
    half = ex.bitcast((bits & 0x7F800000) - (24 << 23), x.dtype)  # of the last place
    odd = (bits & 1).ne(0)
    large = ex.where(odd & (rest / y).lt(1.0 - half), quotient - (half + half), quotient)
    size = ex.unary(Op.ABS, quotient)
    found = ex.where(size.lt(2.0**24), small, large)
    found = ex.where(ex.unary(Op.ABS, x).lt(math.inf), found, ex.const(math.nan, x.dtype, x.lanes))
    return ex.where(y.eq(zero), quotient, found)


# integers


def _integer_pow(x: Expr, y: Expr) -> Expr:
    """Repeated squaring, wrapping around; a negative exponent gives the truncated limit."""
    d, one = x.dtype, ex.const(1, x.dtype, x.lanes)
    if y.op is Op.CONST and y.attr >= 0:
        return _power_by_constant(x, int(y.attr), one)
    result, base = one, x
    bits = d.bits - (d.kind == "i")
    for bit in range(bits):
        is_set = ((y >> bit) & 1).ne(0)
        result = ex.where(is_set, result * base, result)
        if bit < bits - 1:
            base = base * base
    if d.kind == "u":
        return result
    sign = ex.where((y & 1).ne(0), x, one)  # of 1 and -1
    limit = ex.where(x.eq(1) | x.eq(-1), sign, 0)
    return ex.where(y.lt(0), limit, result)


def _power_by_constant(x: Expr, exponent: int, one: Expr) -> Expr:
    result: Expr | None = None
    base = x
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if exponent:
            base = base * base
    return one if result is None else result


# dot products of packed words


def _flushed(x: Expr) -> Expr:
    least = ex.const(2.0**-126, x.dtype, x.lanes)
    zero = ex.binary(Op.COPYSIGN, ex.const(0.0, x.dtype, x.lanes), x)
    return ex.where(ex.unary(Op.ABS, x).lt(least), zero, x)


def _dot2(total: Expr, a: Expr, b: Expr) -> Expr:
    total = _flushed(total)
    for upper in (True, False):
        x, y = (_flushed(ex.bitcast(w & 0xFFFF0000 if upper else w << 16, dt.float32))
                for w in (a, b))
        total = _flushed(ex.mad(x, y, total))
    return total


def _dot4(total: Expr, a: Expr, b: Expr) -> Expr:
    for place in (0, 8, 16, 24):
        total = total + ex.bitcast((a >> place) & 0xFF, dt.int32) * _signed_byte(b, place)
    return total


def _dot4s(total: Expr, a: Expr, b: Expr) -> Expr:
    for place in (0, 8, 16, 24):
        total = total + _signed_byte(a, place) * _signed_byte(b, place)
    return total


def _signed_byte(word: Expr, place: int) -> Expr:
    return ex.bitcast(word << 24 - place, dt.int32) >> 24


_OWN: Final[dict[tuple[Operation, str], Callable[..., Expr]]] = {
    (Op.MOD, "f"): _float_mod,
    (Op.FLOORDIV, "f"): _float_floordiv,
    (Op.POW, "i"): _integer_pow,
    (Op.POW, "u"): _integer_pow,
    (Op.SCALB, "f"): _scale,
    (Op.MAXNUM, "f"): lambda a, b: _number(Op.MAX, a, b),
    (Op.MINNUM, "f"): lambda a, b: _number(Op.MIN, a, b),
    (Op.NANOF, "f"): lambda a, b: ex.where(a.ne(a), a, b),
    (Op.DOT2, "u"): _dot2,
    (Op.DOT4, "u"): _dot4,
    (Op.DOT4S, "u"): _dot4s,
}
