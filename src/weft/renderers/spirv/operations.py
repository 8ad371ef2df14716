"""The rows of the op table for scalars: what writes each of them into the block that is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir.linear import Compute
from weft.ir.op import Op, Operation
from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.conversions import bitcast, cast
from weft.renderers.spirv.floats import copysign, extreme, fmod, mad, rounded
from weft.renderers.spirv.function import Term
from weft.renderers.spirv.integers import absolute, counted, divided, mulhi, shl, shr
from weft.renderers.spirv.values import Values, is_narrow, wrapped

__all__ = ["ROWS", "Row", "is_foreign"]

Row = Callable[[Values, Compute], Term]


def _const(v: Values, inst: Compute) -> Term:
    return v.literal(inst.attr, inst.result.dtype)


def _arithmetic(operator: str) -> Row:
    def row(v: Values, inst: Compute) -> Term:
        d = inst.result.dtype
        if d.kind == "f":
            a, b = (v.unfolded(x) for x in inst.args)
            return a.op(operator, b)
        a, b = (v.term(x) for x in inst.args)
        return wrapped(a.op(operator, b), d)

    return row


def _bitwise(operator: str) -> Row:
    def row(v: Values, inst: Compute) -> Term:
        a, b = (v.term(x) for x in inst.args)
        return a.op(operator, b)

    return row


def _compare(operator: str) -> Row:
    def row(v: Values, inst: Compute) -> Term:
        a, b = (v.term(x) for x in inst.args)
        d = inst.args[0].dtype
        if d.is_bool and operator[0] == "<":  # false is less than true
            return ~a & b if operator == "<" else ~a | b
        return a.op(f"s{operator}" if d.kind == "i" and operator[0] == "<" else operator, b)

    return row


def _neg(v: Values, inst: Compute) -> Term:
    made = -v.term(inst.args[0])
    d = inst.result.dtype
    return made if d.kind == "f" else wrapped(made, d)


def _not(v: Values, inst: Compute) -> Term:
    made = ~v.term(inst.args[0])
    d = inst.result.dtype
    return made if d.is_bool else wrapped(made, d)


def _abs(v: Values, inst: Compute) -> Term:
    if inst.result.dtype.kind != "f":
        return absolute(v, inst)
    return _extended(spv.F_ABS)(v, inst)


def _extended(number: int) -> Row:
    def row(v: Values, inst: Compute) -> Term:
        x = v.term(inst.args[0])
        return v.f.extended(number, x.kind, x)

    return row


def _extreme(is_min: bool) -> Row:
    def row(v: Values, inst: Compute) -> Term:
        x, y = (v.term(a) for a in inst.args)
        d = inst.result.dtype
        if d.is_bool:
            return x & y if is_min else x | y
        if d.kind == "f":
            return extreme(v.f, x, y, is_min)
        less = x.slt(y) if d.kind == "i" else x.lt(y)
        return less.choose(x, y) if is_min else less.choose(y, x)

    return row


def _division(v: Values, inst: Compute) -> Term:
    if inst.args[0].dtype.kind != "f":
        return divided(v, inst)
    if inst.op is not Op.FMOD:
        raise v.lacks(inst)
    return fmod(v, inst)


def _copysign(v: Values, inst: Compute) -> Term:
    x, y = (v.term(a) for a in inst.args)
    return copysign(v.f, x, y)


def _where(v: Values, inst: Compute) -> Term:
    c, a, b = (v.term(x) for x in inst.args)
    return c.choose(a, b)


def _unlikely(v: Values, inst: Compute) -> Term:
    return v.term(inst.args[0])


ROWS: Final[dict[Operation, Row]] = {
    Op.CONST: _const,
    Op.NEG: _neg,
    Op.NOT: _not,
    Op.ABS: _abs,
    Op.SQRT: _extended(spv.SQRT),
    Op.FLOOR: rounded,
    Op.CEIL: rounded,
    Op.TRUNC: rounded,
    Op.ROUND: rounded,
    Op.COPYSIGN: _copysign,
    Op.MAD: mad,
    Op.POPCOUNT: counted,
    Op.CLZ: counted,
    Op.ADD: _arithmetic("+"),
    Op.SUB: _arithmetic("-"),
    Op.MUL: _arithmetic("*"),
    Op.DIV: _arithmetic("/"),
    Op.FLOORDIV: _division,
    Op.MOD: _division,
    Op.FMOD: _division,
    Op.MIN: _extreme(True),
    Op.MAX: _extreme(False),
    Op.AND: _bitwise("&"),
    Op.OR: _bitwise("|"),
    Op.XOR: _bitwise("^"),
    Op.SHL: shl,
    Op.SHR: shr,
    Op.MULHI: mulhi,
    Op.LT: _compare("<"),
    Op.LE: _compare("<="),
    Op.EQ: _compare("=="),
    Op.NE: _compare("!="),
    Op.WHERE: _where,
    Op.UNLIKELY: _unlikely,
    Op.CAST: cast,
    Op.BITCAST: bitcast,
}
_ANY_DTYPE: Final = (Op.CAST, Op.BITCAST, Op.WHERE)


def is_foreign(inst: Compute) -> bool:
    """Whether the operands are vectors, or narrow floats, with which nothing is computed."""
    if any(v.lanes > 1 for v in (inst.result, *inst.args)):
        return True
    return bool(inst.args) and inst.op not in _ANY_DTYPE and is_narrow(inst.args[-1].dtype)
