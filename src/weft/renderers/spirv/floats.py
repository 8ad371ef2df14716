"""Operations on floats that no instruction of Vulkan gives as `weft.ir.op` has them.

Extremes order zeros and keep NaN; the remainder is exact; a multiply-add is rounded once, also
where the device's own is not. A float64 is rounded to an integer by its bits: Mesa's driver for
processors without AVX-512 loses the sign of zeros and the fractions of large numbers.
"""

from __future__ import annotations

from typing import Final

from weft.ir.linear import Compute
from weft.ir.op import Op, Operation
from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.function import Function, Term
from weft.renderers.spirv.integers import clz
from weft.renderers.spirv.values import Values
from weft.renderers.spirv.wide import Pair, Single

__all__ = ["copysign", "extreme", "fmod", "mad", "rounded"]

_MANTISSA = {"f32": 23, "f64": 52}


def extreme(f: Function, x: Term, y: Term, is_min: bool) -> Term:
    """Return the smaller or larger of two floats: NaN if either is, -0 < +0."""
    a, b = x.bits(), y.bits()
    equal = (a | b if is_min else a & b).bitcast(x.kind)
    found = x.ne(y).choose(x + y, equal)  # which differ only where one is NaN
    first, second = (x.lt(y), y.lt(x)) if is_min else (y.lt(x), x.lt(y))
    return first.choose(x, second.choose(y, found))


def copysign(f: Function, x: Term, y: Term) -> Term:
    """COPYSIGN."""
    sign = 1 << (int(x.kind[1:]) - 1)
    return ((x.bits() & (sign - 1)) | (y.bits() & sign)).bitcast(x.kind)


# rounding to integers

_ROUNDINGS: Final[dict[Operation, int]] = {
    Op.FLOOR: spv.FLOOR, Op.CEIL: spv.CEIL, Op.TRUNC: spv.TRUNC, Op.ROUND: spv.ROUND_EVEN,
}  # fmt: skip


def rounded(v: Values, inst: Compute) -> Term:
    """FLOOR, CEIL, TRUNC and ROUND, exactly and with the sign of zeros."""
    x, op = v.term(inst.args[0]), inst.op
    if x.kind == "f32":
        return v.f.extended(_ROUNDINGS[op], x.kind, x)
    callee = v.module.function(f"{op.name.lower()}_{x.kind}", x.kind, (x.kind,),
                               lambda f, x: _rounded(f, x, op))  # fmt: skip
    return v.f.call(callee, x)


def _rounded(f: Function, x: Term, op: Operation) -> Term:
    whole = _truncated(f, x)
    if op is Op.TRUNC:
        return whole
    if op is Op.FLOOR:
        return x.lt(whole).choose(whole - 1.0, whole)
    if op is Op.CEIL:
        return whole.lt(x).choose(whole + 1.0, whole)
    part = f.extended(spv.F_ABS, x.kind, x - whole)  # exact
    is_odd = whole.ne(_truncated(f, whole * 0.5) * 2.0)
    is_away = f.const(x.kind, 0.5).lt(part) | (part.eq(0.5) & is_odd)
    return is_away.choose(whole + copysign(f, f.const(x.kind, 1.0), x), whole)


def _truncated(f: Function, x: Term) -> Term:
    """Clear the bits of a float64 below one; infinities and NaN are as they are."""
    m = _MANTISSA[x.kind]
    raw = x.bits()
    exponent = (raw >> m) & 0x7FF
    count = f.const(raw.kind, 1023 + m) - exponent
    kept = (raw >> (count & 63)) << (count & 63)
    is_small = exponent.lt(1023)
    found = is_small.choose(raw & (1 << 63), count.slt(1).choose(raw, kept))
    return found.bitcast(x.kind)


# remainder


def fmod(v: Values, inst: Compute) -> Term:
    """FMOD, exactly: long division of the significands."""
    x, y = (v.term(a) for a in inst.args)
    callee = v.module.function(f"fmod_{x.kind}", x.kind, (x.kind, x.kind), _fmod)
    return v.f.call(callee, x, y)


def _fmod(f: Function, x: Term, y: Term) -> Term:
    kind, m = x.kind, _MANTISSA[x.kind]
    bits = int(kind[1:])
    sign, infinity = 1 << (bits - 1), ((1 << (bits - 1 - m)) - 1) << m
    raw = x.bits().to("u64")
    a, b = raw & (sign - 1), y.bits().to("u64") & (sign - 1)
    is_nan = b.eq(0) | f.const("u64", infinity - 1).lt(a) | f.const("u64", infinity).lt(b)
    is_less = a.lt(b)
    plain = is_nan | is_less
    one = f.const("u64", 1)
    ex, mx = _parts(a, m)
    ey, my = _parts(b, m)
    divisor = is_nan.choose(one, my)
    left = f.variable(plain.choose(one - 1, ex - ey))
    rest = f.variable(mx.op("%", divisor))
    step = 63 - m  # bits that a word has room for before a remainder of m + 1 bits

    def turn() -> None:
        n = left.get()
        count = n.lt(step).choose(n, step)
        rest.set((rest.get() << count).op("%", divisor))
        left.set(n - count)

    f.repeat(lambda: left.get().ne(0), turn)
    r = rest.get()
    shift = clz(f, r).to("u64") - step
    normal = ((r << (shift & 63)) & ((1 << m) - 1)) | ((ey - shift) << m)
    found = shift.lt(ey).choose(normal, r << ((ey - 1) & 63))
    found = r.eq(0).choose(r, found) | (raw & sign)
    result = found.to(f"u{bits}").bitcast(kind)
    return is_nan.choose(f.const(kind, float("nan")), is_less.choose(x, result))


def _parts(magnitude: Term, m: int) -> tuple[Term, Term]:
    """Return exponent and significand of a magnitude, whose value is m * 2**(e + constant)."""
    exponent, fraction = magnitude >> m, magnitude & ((1 << m) - 1)
    is_normal = exponent.ne(0)
    return is_normal.choose(exponent, 1), is_normal.choose(fraction | (1 << m), fraction)


# fused multiply-add


def mad(v: Values, inst: Compute) -> Term:
    """MAD: by the device where it is fused, by float64, or by integers."""
    args = [v.term(a) for a in inst.args]
    kind = args[0].kind
    if v.fused.get(kind):
        return v.f.extended(spv.FMA, kind, *args)
    by_double = kind == "f32" and v.module.has("shaderFloat64")
    callee = v.module.function(f"mad_{kind}", kind, (kind,) * 3,
                               _by_double if by_double else _by_integers)  # fmt: skip
    return v.f.call(callee, *args)


def _by_double(f: Function, x: Term, y: Term, z: Term) -> Term:
    """Add in float64, rounded to odd, so that rounding to float32 cannot see a false tie.

    The product has 48 bits. Ref: Boldo and Melquiond, "Emulation of a FMA and correctly rounded
    sums", 2008.
    """
    a, b, c = (f.emit(spv.F_CONVERT, "f64", t.id) for t in (x, y, z))
    product = a * b
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    bits = total.bits()
    exponent = (bits >> 52) & 0x7FF
    keeps = error.eq(0.0) | (bits & 1).ne(0) | exponent.eq(0x7FF)
    is_away = ~(f.const("f64", 0.0).lt(error) ^ f.const("f64", 0.0).lt(total))
    odd = bits + is_away.choose(f.const("u64", 1), -1)
    return f.emit(spv.F_CONVERT, "f32", keeps.choose(bits, odd).bitcast("f64").id)


def _by_integers(f: Function, x: Term, y: Term, z: Term) -> Term:
    """Multiply and add significands in words of twice the width, and round their sum."""
    kind, m = x.kind, _MANTISSA[x.kind]
    bits = int(kind[1:])
    most = (1 << (bits - 1 - m)) - 1
    bias = most >> 1
    wide = Pair if bits == 64 else Single
    raw = [t.bits().to("u64") for t in (x, y, z)]
    exponents, parts, shifts = [], [], []
    for r in raw:
        e, s = _parts(r & ((1 << (bits - 1)) - 1), m)
        shift = clz(f, s).to("u64") - (63 - m)
        exponents.append(e)
        parts.append(s << (shift & 63))
        shifts.append(shift)
    finite = [((r >> m) & most).ne(most) for r in raw]
    ea, eb, ec = (e - s for e, s in zip(exponents, shifts, strict=True))
    room = 2 * bits - 2 - (2 * m + 2)  # free bits above the product, less two for sums
    product = wide.product(parts[0], parts[1]).left(room)
    addend = wide.of(parts[2]).left(m + room)
    has_addend = parts[2].ne(0)
    # In units of the last bit: exponents of the product, and of the addend in the same place.
    ep = ea + eb - bias
    distance = has_addend.choose(ep - ec, 0)
    is_below = distance.slt(0)  # the product is
    e = is_below.choose(ec, ep)
    product = product.right(is_below.choose(-distance, 0))
    addend = addend.right(is_below.choose(f.const("u64", 0), distance))
    top = bits - 1
    sign = (raw[0] ^ raw[1]) >> top & 1
    differs = (sign ^ (raw[2] >> top)).ne(0)
    total = product.plus(addend.negated_where(differs))
    is_negative = total.is_negative()
    total = total.negated_where(is_negative)
    sign = sign ^ is_negative.choose(f.const("u64", 1), 0)
    sign = total.is_zero().choose(f.const("u64", 0), sign)
    zeros = total.zeros()
    total = total.left_by(zeros)
    # The first bit is bit 2 * bits - 1 now; it was bit m of a significand with exponent e.
    field = e - zeros + (2 * bits - 1 - (2 * m + room))
    lack = f.const("u64", 1) - field
    is_small = field.slt(1)
    total = total.right(is_small.choose(lack, 0))
    field = is_small.choose(f.const("u64", 1), field)
    significand, rest, half = total.split(m + 1)
    is_odd = (significand & 1).ne(0)
    rounds = half.lt(rest) | (half.eq(rest) & is_odd)
    code = ((field - 1) << m) + significand + rounds.choose(f.const("u64", 1), 0)
    infinity = f.const("u64", most << m)
    code = (field.slt(most) & code.lt(infinity)).choose(code, infinity)
    code = total.is_zero().choose(f.const("u64", 0), code) | (sign << top)
    found = code.to(f"u{bits}").bitcast(kind)
    is_plain = ~(finite[0] & finite[1] & finite[2])
    is_plain = is_plain | parts[0].eq(0) | parts[1].eq(0)
    plain = (finite[0] & finite[1] & ~finite[2]).choose(z, x * y + z)
    return is_plain.choose(plain, found)

