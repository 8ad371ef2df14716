"""An evaluator of scalar expressions on NumPy scalars, written from the head of weft.ir.op alone.

It shares no code with constant folding or the interpreter, so that one checks the other.
"""

import math

import ml_dtypes  # noqa: F401 - registers bfloat16 and the 8-bit floats with NumPy
import numpy as np

from weft.ir import dtype as dt
from weft.ir.expr import toposort
from weft.ir.op import Op

np.seterr(all="ignore")


def to_type(value, d):
    """Return `value` as what the evaluator holds for type d: an int, a bool or a NumPy float."""
    if d.is_bool:
        return bool(value)
    return int(value) if d.is_integer else d.numpy.type(value)


def wrap(value, d):
    return int(np.array([value & ((1 << d.bits) - 1)], dtype=f"u{d.itemsize}").astype(d.numpy)[0])


def cast(value, source, d):
    if d.is_bool:
        return bool(value != 0)
    if source.kind != "f":
        if d.is_integer:
            return wrap(int(value), d)
        if d.bits >= 32:
            return np.array(int(value)).astype(d.numpy)[()]
        return d.numpy.type(np.array(int(value)).astype(np.float32))
    if d.is_integer:
        wide = float(value)
        if math.isnan(wide):
            return 0
        if math.isinf(wide):
            return d.max if wide > 0 else d.min
        return min(max(int(wide), d.min), d.max)
    return d.numpy.type(value)


INTEGER = {
    Op.NEG: lambda d, a: -a,
    Op.NOT: lambda d, a: ~a,
    Op.ABS: lambda d, a: abs(a),
    Op.POPCOUNT: lambda d, a: bin(a & ((1 << d.bits) - 1)).count("1"),
    Op.CLZ: lambda d, a: len(f"{a & ((1 << d.bits) - 1):0{d.bits}b}".split("1")[0]),
    Op.ADD: lambda d, a, b: a + b,
    Op.SUB: lambda d, a, b: a - b,
    Op.MUL: lambda d, a, b: a * b,
    Op.FLOORDIV: lambda d, a, b: a // b if b else 0,
    Op.MOD: lambda d, a, b: a % b if b else 0,
    Op.FMOD: lambda d, a, b: int(math.copysign(1, a)) * (abs(a) % abs(b)) if b else 0,
    Op.POW: lambda d, a, b: pow(a, b, 1 << d.bits),
    Op.MIN: lambda d, a, b: min(a, b),
    Op.MAX: lambda d, a, b: max(a, b),
    Op.AND: lambda d, a, b: a & b,
    Op.OR: lambda d, a, b: a | b,
    Op.XOR: lambda d, a, b: a ^ b,
    Op.SHL: lambda d, a, b: a << b if 0 <= b < d.bits else 0,
    Op.SHR: lambda d, a, b: a >> b if 0 <= b < d.bits else -(a < 0),
    Op.MULHI: lambda d, a, b: (a * b) >> d.bits,
}


def _ordered(pick):
    def choose(a, b):
        if np.isnan(a) or np.isnan(b):
            return a.dtype.type(np.nan)
        if a == b:
            return a if np.signbit(a) == (pick is min) else b
        return pick(a, b)

    return choose


FLOAT = {
    Op.NEG: np.negative,
    Op.ABS: np.abs,
    Op.SQRT: np.sqrt,
    Op.RECIPROCAL: lambda a: a.dtype.type(1) / a,
    Op.FLOOR: np.floor,
    Op.CEIL: np.ceil,
    Op.TRUNC: np.trunc,
    Op.ROUND: np.rint,
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.FMOD: np.fmod,
    Op.MIN: _ordered(min),
    Op.MAX: _ordered(max),
    Op.COPYSIGN: np.copysign,
}
COMPARE = {
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
}


def mad(a, b, c, d):
    """Fuse exactly: rationals for the finite case, plain arithmetic for the rest."""
    from fractions import Fraction

    if np.isfinite(a) and np.isfinite(b) and np.isinf(c):
        return c  # a * b alone may overflow, but is finite
    if not all(np.isfinite(v) for v in (a, b, c)):
        return d.numpy.type(a * b + c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return d.numpy.type(a * b + c) if a == 0 or b == 0 else d.numpy.type(0)
    if d is dt.float64:
        try:
            return np.float64(float(exact))
        except OverflowError:
            return np.float64(np.inf if exact > 0 else -np.inf)
    return d.numpy.type(_nearest(exact, dt.float32))  # 16-bit types compute in float32


def _nearest(exact, d):
    """Round a rational to a float32 by looking at its neighbours."""
    try:
        guess = d.numpy.type(float(exact))
    except OverflowError:
        return d.numpy.type(np.inf if exact > 0 else -np.inf)
    from fractions import Fraction

    if not np.isfinite(guess):
        limit = Fraction(float(np.finfo(d.numpy).max)) + Fraction(2) ** 103
        return guess if abs(exact) >= limit else np.copysign(np.finfo(d.numpy).max, guess)
    near = [guess, *(np.nextafter(guess, d.numpy.type(end)) for end in (np.inf, -np.inf))]
    near = [v for v in near if np.isfinite(v)]
    best = min(abs(Fraction(float(v)) - exact) for v in near)
    ties = [v for v in near if abs(Fraction(float(v)) - exact) == best]
    even = [v for v in ties if v.view(np.uint32) % 2 == 0]
    result = (even or ties)[0]
    return np.copysign(result, d.numpy.type(1 if exact > 0 else -1))


def bits(value, d):
    """Return the bit pattern of a value."""
    if not d.is_float:
        return int(value) & ((1 << max(d.bits, 8)) - 1)
    return int.from_bytes(np.array(value, dtype=d.numpy).tobytes(), "little")


def apply(e, values):
    source = e.args[0].dtype
    if e.op is Op.CAST:
        return cast(values[0], source, e.dtype)
    if e.op is Op.BITCAST:
        raw = bits(values[0], source).to_bytes(source.itemsize, "little")
        return to_type(np.frombuffer(raw, dtype=e.dtype.numpy)[0], e.dtype)
    if e.op is Op.WHERE:
        return values[1] if values[0] else values[2]
    if e.op in COMPARE:
        return bool(COMPARE[e.op](*values))
    if source.is_bool:
        return bool(INTEGER[e.op](dt.bool_, *map(int, values)) & 1)
    if source.is_integer:
        return wrap(INTEGER[e.op](source, *values), source)
    if e.op is Op.MAD:
        return mad(*values, source)
    if source.bits < 32:
        values = [np.float32(v) for v in values]
    return source.numpy.type(FLOAT[e.op](*values))


def evaluate(e, env):
    """Return the value of `e`; env maps VARs and VARIABLEs to values."""
    done = {}
    for node in toposort([e]):
        if node.op is Op.CONST:
            done[node] = to_type(node.attr, node.dtype)
        elif node in env:
            done[node] = to_type(env[node], node.dtype)
        else:
            done[node] = apply(node, [done[a] for a in node.args])
    return done[e]


def same(a, b, d):
    """Whether two values of type d are equal bit for bit, all NaNs being one."""
    if d.is_float and (np.isnan(a) or np.isnan(b)):
        return bool(np.isnan(a) and np.isnan(b))
    return bits(a, d) == bits(b, d)


FLOATS = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 2.0, 3.0, -2.5, 0.1, 1e-3]


def specials(d):
    """Return the values where rules break: zeros, infinities, NaN, subnormals, extremes."""
    if d.is_bool:
        return [False, True]
    if d.is_integer:
        near = [0, 1, 2, 3, 5, 7, 8, d.bits - 1, d.bits, d.bits + 1]
        signed = [-1, -2, -3, -8] if d.kind == "i" else []
        return [*near, *signed, d.min, d.min + 1, d.max, d.max - 1, d.max // 2 + 1]
    tiny = 2.0 ** (2 - (1 << (d.exponent - 1)))
    least = tiny * 2.0**-d.mantissa
    huge = (2.0 - 2.0**-d.mantissa) * 2.0 ** ((1 << (d.exponent - 1)) - 1)
    return [*FLOATS, tiny, -tiny, least, -least, tiny - least, huge, -huge, huge / 2, 1 + d.eps]
