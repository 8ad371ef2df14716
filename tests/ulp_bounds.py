"""How far results of floats may be from the exact ones, in units of the last place.

A function has several forms, and a device takes the form that its target asks for, whichever driver
compiles it: so the bound of a device follows from its target. All tests of accuracy take it from
here, and the page of accuracy shows it.
"""

from weft.ir import dtype as dt
from weft.ir.op import Op
from weft.passes.transcendental import FROM_TABLES, TRANSCENDENTALS, WITHOUT_DOUBLE

ROUNDED = 0.51  # right roundings, and what float64 has computed and is rounded once more
# float32 where the device computes float64, or where the form needs none.
SINGLE = {
    Op.RECIPROCAL: ROUNDED, Op.RSQRT: 1.5, Op.EXP: 1.0, Op.EXP2: 1.0, Op.EXPM1: 1.2, Op.LOG: 1.0,
    Op.LOG2: 1.1, Op.LOG10: 1.0, Op.LOG1P: 2.0, Op.SIN: 0.6, Op.COS: 0.6, Op.TAN: 0.6,
    Op.ASIN: 2.0, Op.ACOS: 2.0, Op.ATAN: 2.0, Op.SINH: 2.0, Op.COSH: 2.0, Op.TANH: 2.0,
    Op.ASINH: 2.0, Op.ACOSH: 2.0, Op.ATANH: 2.0, Op.ERF: 2.0, Op.ERFC: 1.0, Op.SIGMOID: 2.0,
    Op.POW: 1.0, Op.ATAN2: 2.0,
}  # fmt: skip
# float32 where it has tables in registers.
TABLES = {
    Op.COS: 0.59, Op.ERF: 0.63, Op.ERFC: 0.8, Op.EXP: 0.78, Op.EXPM1: 0.53, Op.LOG: 0.9,
    Op.LOG10: 1.0, Op.LOG1P: 0.67, Op.LOG2: 1.1, Op.SIN: 0.59, Op.TAN: 0.55, Op.TANH: 0.57,
}  # fmt: skip
# float32 where it computes no float64.
WITHOUT = {**SINGLE, Op.SIN: 0.75, Op.COS: 0.75, Op.TAN: 0.9}
DOUBLE = dict.fromkeys(TRANSCENDENTALS, 2.0) | {
    Op.RECIPROCAL: ROUNDED, Op.RSQRT: 1.5, Op.EXP: 1.0, Op.EXP2: 1.0, Op.LOG: 1.0, Op.ERFC: 3.0,
}  # fmt: skip


def bound(target, op, d):
    """Return the error that a device may make in a function of floats of a type.

    Parameters
    ----------
    target : Target
        The device.
    op : Operation
        A transcendental function, or one that is rounded rightly.
    d : DType
        A float type of at least 16 bits.
    """
    if op not in TRANSCENDENTALS or d.bits < 32:
        return ROUNDED
    if d is dt.float64:
        return DOUBLE[op]
    if target.supports(Op.LOOKUP, dt.uint32) and op in FROM_TABLES:
        return TABLES[op]
    if not target.computes(dt.float64) and op in WITHOUT_DOUBLE:
        return WITHOUT[op]
    return SINGLE[op]
