"""Operations on integers: quotients, shifts, counts, products of double width.

Results are those of `weft.ir.op`. Vulkan leaves the sign of a remainder of negative numbers open,
so that remainders are made of quotients; counts are of 32 bits, products of at most 64.
"""

from __future__ import annotations

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Compute
from weft.ir.op import Op
from weft.renderers import ranges
from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.function import Function, Term
from weft.renderers.spirv.values import Values, register, wrapped

__all__ = ["absolute", "clz", "counted", "divided", "mulhi", "shl", "shr"]


def absolute(v: Values, inst: Compute) -> Term:
    """ABS."""
    d, x = inst.result.dtype, v.term(inst.args[0])
    return x if d.kind == "u" else wrapped(x.slt(0).choose(-x, x), d)


# quotients


def divided(v: Values, inst: Compute) -> Term:
    """FLOORDIV, MOD and FMOD."""
    a, b = inst.args
    d, name = a.dtype, inst.op.name
    x, y = v.term(a), v.term(b)
    known: int | None = v.number(b)
    is_natural = d is dt.int64 and ranges.of(v.ranges, a)[0] >= 0
    if known is not None and known > 0 and known & (known - 1) == 0 and (
            inst.op is not Op.FMOD or is_natural or d.kind == "u"):  # fmt: skip
        if inst.op is Op.FLOORDIV:
            count = known.bit_length() - 1
            return x >> count if d.kind == "u" else x.sar(count)
        return x & (known - 1)
    if is_natural and ranges.of(v.ranges, b)[0] > 0:
        operator = "/" if inst.op is Op.FLOORDIV else "%"
        high = max(ranges.of(v.ranges, a)[1], ranges.of(v.ranges, b)[1])
        if high < 1 << 32:
            return x.to("u32").op(operator, y.to("u32")).to("u64")
        return x.op(operator, y)
    is_safe = known is not None and known not in (0, -1)
    if d.kind == "u":
        by = y if is_safe else y.eq(0).choose(v.f.const(y.kind, 1), y)
        found = x.op("/" if inst.op is Op.FLOORDIV else "%", by)
        return found if is_safe else y.eq(0).choose(v.f.const(y.kind, 0), found)
    if is_safe:
        return _signed(name, x, y, y)
    kind = register(d)
    callee = v.module.function(f"{name}_{d.text}", kind, (kind, kind),
                               lambda f, x, y: _guarded(f, name, d, x, y))  # fmt: skip
    return v.f.call(callee, x, y)


def _guarded(f: Function, name: str, d: DType, x: Term, y: Term) -> Term:
    """Divide signed numbers; processors stop at a division by 0 and of the least number by -1."""
    is_zero, is_minus = y.eq(0), y.eq(-1)
    found = _signed(name, x, y, (is_zero | is_minus).choose(f.const(y.kind, 1), y))
    if name != Op.FLOORDIV.name:
        return found  # by 1 there is no rest
    special = is_zero.choose(f.const(x.kind, 0), wrapped(-x, d))
    return (is_zero | is_minus).choose(special, found)


def _signed(name: str, x: Term, y: Term, by: Term) -> Term:
    quotient = x.op("s/", by)
    rest = x - quotient * by
    if name == Op.FMOD.name:
        return rest
    differs = rest.ne(0) & (rest ^ y).slt(0)
    if name == Op.MOD.name:
        return differs.choose(rest + y, rest)
    return differs.choose(quotient - 1, quotient)


# shifts


def shl(v: Values, inst: Compute) -> Term:
    """SHL: 0 by the width or more."""
    a, b = inst.args
    d, x, known = a.dtype, v.term(a), v.number(b)
    if known is not None:
        return wrapped(x << known, d) if 0 <= known < d.bits else v.f.const(x.kind, 0)
    y = v.term(b)
    width = 64 if d.bits == 64 else 32
    return y.lt(d.bits).choose(wrapped(x << (y & (width - 1)), d), 0)


def shr(v: Values, inst: Compute) -> Term:
    """SHR: 0 or the sign by the width or more."""
    a, b = inst.args
    d, x, known = a.dtype, v.term(a), v.number(b)
    if known is not None:
        inside = 0 <= known < d.bits
        if d.kind == "u":
            return x >> known if inside else v.f.const(x.kind, 0)
        return x.sar(known if inside else d.bits - 1)
    y = v.term(b)
    width = 64 if d.bits == 64 else 32
    if d.kind == "u":
        return y.lt(d.bits).choose(x >> (y & (width - 1)), 0)
    return x.sar(y.lt(d.bits).choose(y, d.bits - 1))


# counts


def clz(f: Function, x: Term) -> Term:
    """Return how many zeros lead in a word of 32 or 64 bits, as a word of 32 bits."""
    if x.kind == "u32":
        return f.const("u32", 31) - f.extended(spv.FIND_U_MSB, "u32", x)
    high, low = (x >> 32).to("u32"), x.to("u32")
    return high.ne(0).choose(clz(f, high), clz(f, low) + 32)


def counted(v: Values, inst: Compute) -> Term:
    """POPCOUNT and CLZ."""
    a = inst.args[0]
    x, bits = v.term(a), a.dtype.bits
    if bits < 32:
        x = x & ((1 << bits) - 1)
    if inst.op is Op.CLZ:
        found = clz(v.f, x)
        return found - (32 - bits) if bits < 32 else found.to(x.kind)
    if bits < 64:
        return v.f.emit(spv.BIT_COUNT, "u32", x.id)
    halves = [v.f.emit(spv.BIT_COUNT, "u32", h.to("u32").id) for h in (x, x >> 32)]
    return (halves[0] + halves[1]).to("u64")


# products


def mulhi(v: Values, inst: Compute) -> Term:
    """MULHI."""
    d = inst.result.dtype
    x, y = (v.term(a) for a in inst.args)
    if d.bits < 32:
        return (x * y) >> d.bits if d.kind == "u" else (x * y).sar(d.bits)
    if d.bits == 32:
        if d.kind == "u":
            return ((x.to("u64") * y.to("u64")) >> 32).to("u32")
        return ((x.extended("u64") * y.extended("u64")) >> 32).to("u32")
    callee = v.module.function("mulhi_u64", "u64", ("u64", "u64"), lambda f, x, y: high(x, y))
    found = v.f.call(callee, x, y)
    if d.kind == "u":
        return found
    return found - (x.sar(63) & y) - (y.sar(63) & x)


def high(x: Term, y: Term) -> Term:
    """Return the upper word of the product of two words of 64 bits, from products of 32."""
    half = 0xFFFFFFFF
    low = (x & half) * (y & half)
    one = (x >> 32) * (y & half) + (low >> 32)
    two = (x & half) * (y >> 32) + (one & half)
    return (x >> 32) * (y >> 32) + (one >> 32) + (two >> 32)
