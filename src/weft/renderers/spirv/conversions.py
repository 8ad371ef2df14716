"""Conversions between all types; floats below 32 bits by integer arithmetic on their bits.

The steps of narrow floats are those of `weft.renderers.cstyle.narrow`: exact in both directions,
through subnormal results, without subnormal float32 on the way where the result is none.
"""

from __future__ import annotations

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Compute
from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.function import Function, Term
from weft.renderers.spirv.values import Values, is_narrow, register, wrapped

__all__ = ["bitcast", "cast", "narrowed", "widened"]


def cast(v: Values, inst: Compute) -> Term:
    """CAST.

    Raises
    ------
    UnsupportedError
        For a narrow float and anything but float32: `weft.passes.legalize` takes that apart.
    """
    source, to = inst.args[0].dtype, inst.result.dtype
    x = v.term(inst.args[0])
    if source is to:
        return x
    if is_narrow(source) or is_narrow(to):
        if dt.float32 not in (source, to):
            raise UnsupportedError("render", found=f"a cast from {source.name} to {to.name}",
                                   expected="casts of narrow floats from and to float32",
                                   hint="legalize the kernel first")
        return narrowed(v, x, to) if source is dt.float32 else widened(v, x, source)
    if to.is_bool:
        return x.ne(0)
    if source.is_bool:
        return x.choose(v.literal(1, to), v.literal(0, to))
    if source.kind == "f":
        if to.kind == "f":
            return v.f.emit(spv.F_CONVERT, register(to), x.id)
        return _saturated(v, x, source, to)
    if to.kind == "f":
        opcode = spv.CONVERT_S_TO_F if source.kind == "i" else spv.CONVERT_U_TO_F
        return v.f.emit(opcode, register(to), x.id)
    kind = register(to)
    t = x.extended(kind) if source.kind == "i" else x.to(kind)
    holds = to.bits > source.bits and (source.kind == "u" or to.kind == "i")
    return t if holds else wrapped(t, to)


def bitcast(v: Values, inst: Compute) -> Term:
    """BITCAST."""
    source, to = inst.args[0].dtype, inst.result.dtype
    x = v.term(inst.args[0])
    if source.is_bool and not to.is_bool:
        return x.choose(v.f.const("u32", 1), 0)
    if to.is_bool:
        return x if source.is_bool else x.ne(0)
    if to.bits < 32:
        return wrapped(x, to)
    return x.bitcast(register(to))


def _saturated(v: Values, x: Term, source: DType, to: DType) -> Term:
    """Convert a float to an integer: truncated, limits beyond the range, 0 for NaN."""
    kind = register(to)
    callee = v.module.function(f"{to.text}_of_{source.text}", kind, (x.kind,),
                               lambda f, x: _saturate(f, x, to))  # fmt: skip
    return v.f.call(callee, x)


def _saturate(f: Function, x: Term, to: DType) -> Term:
    kind, low = register(to), int(to.min)
    opcode = spv.CONVERT_F_TO_S if to.kind == "i" else spv.CONVERT_F_TO_U
    # Beyond the range an instruction may give anything: it is given a number that fits.
    least, above = f.const(x.kind, float(low)), f.const(x.kind, float(int(to.max) + 1))
    inside = f.emit(spv.LOGICAL_AND, "bool", least.op("<=", x).id, x.lt(above).id)
    number = f.emit(opcode, kind, inside.choose(x, 0.0).id)
    below = x.lt(0.0).choose(f.const(kind, low), 0)
    outside = above.op("<=", x).choose(f.const(kind, int(to.max)), below)
    return inside.choose(number, outside)


def widened(v: Values, x: Term, d: DType) -> Term:
    """Return a narrow float as float32."""
    if d is dt.bfloat16:
        return (x << 16).bitcast("f32")
    callee = v.module.function(f"f32_of_{d.text}", "f32", ("u32",), lambda f, x: _widen(f, x, d))
    return x.f.call(callee, x)


def _widen(f: Function, wide: Term, d: DType) -> Term:
    m, bias = d.mantissa, (1 << (d.exponent - 1)) - 1
    magnitude = wide & ((1 << (d.bits - 1)) - 1)
    sign = (wide ^ magnitude) << (32 - d.bits)
    shifted = magnitude << (23 - m)
    if d is dt.float8_e4m3fn:
        is_finite, special = magnitude.ne(0x7F), magnitude | 0x7FC00000
    else:
        is_finite, special = magnitude.lt(((1 << d.exponent) - 1) << m), shifted | 0x7F800000
    normal = shifted + ((127 - bias) << 23)
    number = f.emit(spv.CONVERT_U_TO_F, "f32", magnitude.id)
    small = (number * 2.0 ** (1 - bias - m)).bits()  # a subnormal: its integer times a power of 2
    finite = magnitude.lt(1 << m).choose(small, normal)
    return (is_finite.choose(finite, special) | sign).bitcast("f32")


def narrowed(v: Values, x: Term, d: DType) -> Term:
    """Return float32 rounded to a narrow float."""
    callee = v.module.function(f"{d.text}_of_f32", "u32", ("f32",), lambda f, x: _round(f, x, d))
    return x.f.call(callee, x)


def _nearest(x: Term, drop: int) -> Term:
    return (x + ((1 << (drop - 1)) - 1) + ((x >> drop) & 1)) >> drop


def _round(f: Function, x: Term, d: DType) -> Term:
    raw = x.bits()
    magnitude = raw & 0x7FFFFFFF
    is_nan = f.const("u32", 0x7F800000).lt(magnitude)
    if d is dt.bfloat16:
        return is_nan.choose((raw >> 16) | 0x40, _nearest(raw, 16))
    m, bias = d.mantissa, (1 << (d.exponent - 1)) - 1
    top = ((1 << d.exponent) - 1) << m
    infinity, nan = (0x7F, 0x7F) if d is dt.float8_e4m3fn else (top, top | 1 << (m - 1))
    sign = (raw ^ magnitude) >> (32 - d.bits)
    normal = _nearest(magnitude - ((127 - bias) << 23), 23 - m)
    moved = magnitude.bitcast("f32") + 2.0 ** (24 - bias - m)  # which rounds a subnormal
    small = moved.bits() - ((127 - bias + 23 - m + 1) << 23)
    finite = magnitude.lt((128 - bias) << 23).choose(small, normal)
    capped = finite.lt(infinity).choose(finite, infinity)
    return is_nan.choose(f.const("u32", nan), capped) | sign
