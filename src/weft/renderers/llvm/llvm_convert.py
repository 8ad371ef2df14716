"""Conversions of the LLVM renderer: exact rounding of the narrow floats, saturating casts.

float16, bfloat16 and the 8-bit floats convert to and from float32 alone; `passes.legalize` routes
every other pair through float32 without rounding twice.
"""

from __future__ import annotations

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Value
from weft.renderers.llvm.llvm_types import FunctionWriter, constant, element, splat, suffix, vector

__all__ = ["cast", "converted"]


def cast(w: FunctionWriter, x: Value, to: DType) -> str:
    """Write a CAST and return the operand text of its result."""
    source, lanes, text = x.dtype, x.lanes, w.ref(x)
    if source is to:
        return text
    if to is dt.bfloat16 and x.id in w.normal:
        # One instruction, but for subnormal numbers: those it would flush.
        halves = vector("bfloat", lanes)
        narrow = w.new(f"fptrunc {vector('float', lanes)} {text} to {halves}")
        return w.new(f"bitcast {halves} {narrow} to {vector('i16', lanes)}")
    if _is_narrow(source) or _is_narrow(to):
        return _narrow(w, text, source, to, lanes)
    a, b = vector(element(source), lanes), vector(element(to), lanes)
    if to.kind == "b":
        if source.kind == "f":
            return w.new(f"fcmp une {a} {text}, {constant(0.0, source, lanes)}")
        return w.new(f"icmp ne {a} {text}, {constant(0, source, lanes)}")
    if source.kind == "f" and to.kind == "f":
        return w.new(f"{'fpext' if to.bits > source.bits else 'fptrunc'} {a} {text} to {b}")
    if source.kind == "f":
        return _to_integer(w, text, source, to, lanes)
    if to.kind == "f":
        return w.new(f"{'sitofp' if source.kind == 'i' else 'uitofp'} {a} {text} to {b}")
    if to.bits == source.bits:
        return text
    if to.bits < source.bits:
        return w.new(f"trunc {a} {text} to {b}")
    return w.new(f"{'sext' if source.kind == 'i' else 'zext'} {a} {text} to {b}")


def converted(w: FunctionWriter, text: str, source: DType, to: DType) -> str:
    """Write the conversion of one number between a narrow float and float32."""
    return _narrow(w, text, source, to, 1)


def _to_integer(w: FunctionWriter, text: str, source: DType, to: DType, lanes: int) -> str:
    """Write float -> integer: truncated, limits beyond the range, 0 for NaN.

    ``llvm.fptosi.sat`` means the same but is taken apart into scalars on x86. Short integers go by
    way of 32 bits, which has vector instructions everywhere.
    """
    a, b, i1 = (vector(t, lanes) for t in (element(source), element(to), "i1"))
    word = "i32" if to.bits < 32 else element(to)
    wide = vector(word, lanes)
    kind = "s" if to.kind == "i" or to.bits < 32 else "u"
    least = constant(float(to.min), source, lanes)
    above = constant(float(to.max + 1), source, lanes)  # a power of two: exact
    is_below = w.new(f"fcmp olt {a} {text}, {least}")
    fits = w.new(f"fcmp olt {a} {text}, {above}")
    raised = w.new(f"select {i1} {is_below}, {a} {least}, {a} {text}")
    inside = w.new(f"select {i1} {fits}, {a} {raised}, {a} {constant(0.0, source, lanes)}")
    found = w.new(f"fpto{kind}i {a} {inside} to {wide}")
    too_big = w.new(f"fcmp oge {a} {text}, {above}")
    value = w.new(f"select {i1} {too_big}, {wide} {splat(word, lanes, str(to.max))}, "
                  f"{wide} {found}")
    return value if wide == b else w.new(f"trunc {wide} {value} to {b}")


def _is_narrow(d: DType) -> bool:
    return d.kind == "f" and d.bits < 32


def _narrow(w: FunctionWriter, text: str, source: DType, to: DType, lanes: int) -> str:
    if to is dt.float32:
        return _widen(w, text, source, lanes)
    if source is not dt.float32:
        raise UnsupportedError("render", found=f"a cast from {source.name} to {to.name}",
                               expected="casts of narrow floats from and to float32",
                               hint="legalize the kernel first")
    return _round(w, text, to, lanes)


def _has_native(w: FunctionWriter, d: DType) -> bool:
    return d.text in w.module.target.native_conversions


def _widen(w: FunctionWriter, text: str, source: DType, lanes: int) -> str:
    """Write narrow bits -> float32, exactly."""
    bits, i32, f32 = vector(element(source), lanes), vector("i32", lanes), vector("float", lanes)
    if source is dt.float16 and _has_native(w, source):
        half = vector("half", lanes)
        return w.new(f"fpext {half} {w.new(f'bitcast {bits} {text} to {half}')} to {f32}")

    def c(value: int) -> str:
        return splat("i32", lanes, str(value))

    wide = w.new(f"zext {bits} {text} to {i32}")
    if source is dt.bfloat16:
        return w.new(f"bitcast {i32} {w.new(f'shl {i32} {wide}, {c(16)}')} to {f32}")
    m, bias = source.mantissa, (1 << (source.exponent - 1)) - 1
    magnitude = w.new(f"and {i32} {wide}, {c((1 << (source.bits - 1)) - 1)}")
    sign = w.new(f"shl {i32} {w.new(f'xor {i32} {wide}, {magnitude}')}, {c(32 - source.bits)}")
    shifted = w.new(f"shl {i32} {magnitude}, {c(23 - m)}")
    normal = w.new(f"add {i32} {shifted}, {c((127 - bias) << 23)}")
    # A subnormal is its integer times a power of two, which is exact in float32.
    number = w.new(f"uitofp {i32} {magnitude} to {f32}")
    scaled = w.new(f"fmul {f32} {number}, {constant(2.0 ** (1 - bias - m), dt.float32, lanes)}")
    small = w.new(f"bitcast {f32} {scaled} to {i32}")
    is_small = w.new(f"icmp ult {i32} {magnitude}, {c(1 << m)}")
    i1 = vector("i1", lanes)
    finite = w.new(f"select {i1} {is_small}, {i32} {small}, {i32} {normal}")
    if source is dt.float8_e4m3fn:
        is_special = w.new(f"icmp eq {i32} {magnitude}, {c(0x7F)}")
        special = c(0x7FC00000)
    else:
        is_special = w.new(f"icmp uge {i32} {magnitude}, {c(((1 << source.exponent) - 1) << m)}")
        special = w.new(f"or {i32} {shifted}, {c(0x7F800000)}")
    value = w.new(f"select {i1} {is_special}, {i32} {special}, {i32} {finite}")
    return w.new(f"bitcast {i32} {w.new(f'or {i32} {value}, {sign}')} to {f32}")


def _round(w: FunctionWriter, text: str, to: DType, lanes: int) -> str:
    """Write float32 -> narrow bits, to nearest even."""
    bits, i32, f32 = vector(element(to), lanes), vector("i32", lanes), vector("float", lanes)
    i1 = vector("i1", lanes)
    if to is dt.float16 and _has_native(w, to):
        half = vector("half", lanes)
        if lanes == 1:  # where LLVM computed it in double, it would round that by a library's call
            text = w.intrinsic("llvm.arithmetic.fence.f32", f32, (f32, text))
        return w.new(f"bitcast {half} {w.new(f'fptrunc {f32} {text} to {half}')} to {bits}")

    def c(value: int) -> str:
        return splat("i32", lanes, str(value))

    def nearest(x: str, drop: int) -> str:
        odd = w.new(f"and {i32} {w.new(f'lshr {i32} {x}, {c(drop)}')}, {c(1)}")
        near = w.new(f"add {i32} {x}, {c((1 << (drop - 1)) - 1)}")
        return w.new(f"lshr {i32} {w.new(f'add {i32} {near}, {odd}')}, {c(drop)}")

    raw = w.new(f"bitcast {f32} {text} to {i32}")
    if to is dt.bfloat16:
        is_nan = w.new(f"fcmp uno {f32} {text}, {text}")
        quiet = w.new(f"or {i32} {raw}, {c(0x400000)}")
        odd = w.new(f"and {i32} {w.new(f'lshr {i32} {raw}, {c(16)}')}, {c(1)}")
        near = w.new(f"add {i32} {w.new(f'add {i32} {raw}, {c(0x7FFF)}')}, {odd}")
        code = w.new(f"select {i1} {is_nan}, {i32} {quiet}, {i32} {near}")
        if lanes < 32:
            return w.new(f"trunc {i32} {w.new(f'lshr {i32} {code}, {c(16)}')} to {bits}")
        # The upper halves of two registers at once: one permutation, where each would be shifted,
        # narrowed and joined.
        halves = vector("i16", 2 * lanes)
        both = w.new(f"bitcast {i32} {code} to {halves}")
        picks = ", ".join(f"i32 {2 * i + 1}" for i in range(lanes))
        return w.new(f"shufflevector {halves} {both}, {halves} poison, <{lanes} x i32> <{picks}>")
    m, bias = to.mantissa, (1 << (to.exponent - 1)) - 1
    top = ((1 << to.exponent) - 1) << m
    fn = to is dt.float8_e4m3fn
    infinity, nan = (0x7F, 0x7F) if fn else (top, top | 1 << (m - 1))
    magnitude = w.new(f"and {i32} {raw}, {c(0x7FFFFFFF)}")
    sign = w.new(f"lshr {i32} {w.new(f'xor {i32} {raw}, {magnitude}')}, {c(32 - to.bits)}")
    rebased = w.new(f"sub {i32} {magnitude}, {c((127 - bias) << 23)}")
    normal = nearest(rebased, 23 - m)
    # Adding a power of two whose last place is that of the subnormals rounds in the adder.
    magic = (127 - bias + 23 - m + 1) << 23
    absolute = w.new(f"bitcast {i32} {magnitude} to {f32}")
    power = constant(2.0 ** (24 - bias - m), dt.float32, lanes)
    moved = w.new(f"bitcast {f32} {w.new(f'fadd {f32} {absolute}, {power}')} to {i32}")
    small = w.new(f"sub {i32} {moved}, {c(magic)}")
    is_small = w.new(f"icmp ult {i32} {magnitude}, {c((128 - bias) << 23)}")
    finite = w.new(f"select {i1} {is_small}, {i32} {small}, {i32} {normal}")
    name = f"llvm.umin.{suffix('i32', lanes)}"
    capped = w.intrinsic(name, i32, (i32, finite), (i32, c(infinity)))
    is_nan = w.new(f"icmp ugt {i32} {magnitude}, {c(0x7F800000)}")
    value = w.new(f"select {i1} {is_nan}, {i32} {c(nan)}, {i32} {capped}")
    return w.new(f"trunc {i32} {w.new(f'or {i32} {value}, {sign}')} to {bits}")
