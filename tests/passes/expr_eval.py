"""Pure expressions on NumPy arrays: one array operation a node, fused multiply-adds exact."""

import numpy as np

from weft.ir.expr import toposort
from weft.ir.lookup import values_of
from weft.ir.op import Op


def _two_sum(a, b):
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _to_odd(total, error):
    """Move an inexact sum to its odd neighbour, which cannot be taken for a tie."""
    bits = total.view(np.int64)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where((error != 0) & (bits & 1 == 0), bits + step, bits).view(np.float64)


def _scalb(a, n):
    whole = np.floor(np.clip(np.nan_to_num(n), -5000, 5000)).astype(np.int32)
    return np.where(np.isnan(n), a.dtype.type(np.nan), np.ldexp(a, whole))


def _number(choose):
    return lambda a, b: np.where(np.isnan(a), b, np.where(np.isnan(b), a, choose(a, b)))


def _mad_single(a, b, c):
    total, error = _two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    odd = np.where(np.isfinite(total) & (total != 0), _to_odd(total, error), total)
    return odd.astype(np.float32)


def _split(a):
    high = a * 134217729.0
    high = high - (high - a)
    return high, a - high


def _mad_double(a, b, c):
    """Fused multiply-add of float64 (Boldo and Melquiond 2008); plain far from 1, at specials."""
    a, b, c = np.broadcast_arrays(a, b, c)
    plain = a * b + c
    # Operands are brought near 1, so that the error of the product neither overflows nor vanishes.
    (ma, ea), (mb, eb) = np.frexp(a), np.frexp(b)
    cs = np.ldexp(c, -(ea + eb))
    (ah, al), (bh, bl) = _split(ma), _split(mb)
    high = ma * mb
    low = al * bl - (((high - ah * bh) - al * bh) - ah * bl)
    th, tl = _two_sum(cs, low)
    vh, vl = _two_sum(high, th)
    rest, lost = _two_sum(tl, vl)
    exact = np.ldexp(vh + _to_odd(rest, lost), ea + eb)
    usual = (np.abs(exact) >= 2.0**-1022) & np.isfinite(exact) & (np.abs(cs) < 2.0**200)
    return np.where(usual & (a != 0) & (b != 0), exact, plain)  # a product of 0 has no exponent


def _mad(a, b, c):
    return (_mad_single if c.dtype == np.float32 else _mad_double)(a, b, c)


def _shift(fn, fill):
    def shifted(x, by):
        bits = x.dtype.itemsize * 8
        inside = (by >= 0) & (by < bits)
        return np.where(inside, fn(x, np.where(inside, by, 0).astype(x.dtype)), fill(x))

    return shifted


def _mulhi(a, b):
    assert a.dtype == np.uint32, a.dtype
    return (a.astype(np.uint64) * b.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)


_OPS = {
    Op.NEG: np.negative,
    Op.NOT: np.invert,
    Op.ABS: np.abs,
    Op.SQRT: np.sqrt,
    Op.FLOOR: np.floor,
    Op.CEIL: np.ceil,
    Op.TRUNC: np.trunc,
    Op.ROUND: np.rint,
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.COPYSIGN: np.copysign,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
    Op.SHL: _shift(np.left_shift, np.zeros_like),
    Op.SHR: _shift(np.right_shift, lambda x: np.where(x < 0, -1, 0).astype(x.dtype)),
    Op.MULHI: _mulhi,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
    Op.WHERE: np.where,
    Op.MAD: _mad,
    Op.SCALB: _scalb,
    Op.MAXNUM: _number(np.maximum),
    Op.MINNUM: _number(np.minimum),
    Op.UNLIKELY: lambda a: a,
    Op.NANOF: lambda a, b: np.where(np.isnan(a), a, b),
}


def evaluate(root, bindings):
    """Return `root` with arrays for its variables; `bindings` maps VAR expressions to arrays."""
    values = dict(bindings)
    with np.errstate(all="ignore"):
        for e in toposort([root]):
            if e in values:
                continue
            args = [values[a] for a in e.args]
            to = e.dtype.numpy
            if e.op is Op.CONST:
                values[e] = np.array([e.attr], dtype=to)
            elif e.op is Op.CAST:
                values[e] = args[0].astype(to)
            elif e.op is Op.BITCAST:
                values[e] = args[0].view(to)
            elif e.op is Op.LOOKUP:
                table = np.array(values_of(e.attr), to)
                values[e] = table[args[0] % len(table)]
            else:
                values[e] = _OPS[e.op](*args)
            assert values[e].dtype == to, e.op
    return values[root]
