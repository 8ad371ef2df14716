"""Declarative patterns over expressions, written with Python operators.

    x, y = P.var("x"), P.var("y")
    x + (-y)                  matches add(x, neg(y))
    where(P.var("c"), x, x)   a name that stands twice must be the same expression

A number matches a constant of that value in every lane (True and False only bools); 0 and 0.0 do
not match -0.0, nor the other way round. Operands of commutative operations match in either order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from weft.ir import expr as ex
from weft.ir.dtype import DType, bool_
from weft.ir.expr import Expr, Scalar
from weft.ir.op import Op, Operation

Match = dict[str, Expr]


class Pattern:
    """A pattern: an operation over patterns, a named hole, or a constant.

    Attributes
    ----------
    op : Operation or None
        None for a hole.
    args : tuple of Pattern
        Patterns of the operands.
    name : str
        What the matched expression is called ("" for none).
    kinds : str
        The dtype kinds that a hole accepts, of ``buif``.
    value : bool, int, float or None
        The value of a literal.
    """

    __slots__ = ("args", "kinds", "name", "op", "value")

    def __init__(self, op: Operation | None, args: tuple[Pattern, ...] = (), name: str = "",
                 kinds: str = "buif", value: Scalar | None = None) -> None:  # fmt: skip
        self.op, self.args, self.name, self.kinds, self.value = op, args, name, kinds, value

    def __repr__(self) -> str:
        if self.value is not None:
            return repr(self.value)
        if not self.args:
            return self.name
        return f"{self.op.name if self.op else ''}({', '.join(map(repr, self.args))})"

    def __add__(self, other: Operand) -> Pattern:
        return op(Op.ADD, self, other)

    def __radd__(self, other: Scalar) -> Pattern:
        return op(Op.ADD, other, self)

    def __sub__(self, other: Operand) -> Pattern:
        return op(Op.SUB, self, other)

    def __rsub__(self, other: Scalar) -> Pattern:
        return op(Op.SUB, other, self)

    def __mul__(self, other: Operand) -> Pattern:
        return op(Op.MUL, self, other)

    def __rmul__(self, other: Scalar) -> Pattern:
        return op(Op.MUL, other, self)

    def __truediv__(self, other: Operand) -> Pattern:
        return op(Op.DIV, self, other)

    def __rtruediv__(self, other: Scalar) -> Pattern:
        return op(Op.DIV, other, self)

    def __floordiv__(self, other: Operand) -> Pattern:
        return op(Op.FLOORDIV, self, other)

    def __rfloordiv__(self, other: Scalar) -> Pattern:
        return op(Op.FLOORDIV, other, self)

    def __mod__(self, other: Operand) -> Pattern:
        return op(Op.MOD, self, other)

    def __rmod__(self, other: Scalar) -> Pattern:
        return op(Op.MOD, other, self)

    def __and__(self, other: Operand) -> Pattern:
        return op(Op.AND, self, other)

    def __or__(self, other: Operand) -> Pattern:
        return op(Op.OR, self, other)

    def __xor__(self, other: Operand) -> Pattern:
        return op(Op.XOR, self, other)

    def __lshift__(self, other: Operand) -> Pattern:
        return op(Op.SHL, self, other)

    def __rlshift__(self, other: Scalar) -> Pattern:
        return op(Op.SHL, other, self)

    def __rshift__(self, other: Operand) -> Pattern:
        return op(Op.SHR, self, other)

    def __rrshift__(self, other: Scalar) -> Pattern:
        return op(Op.SHR, other, self)

    def __neg__(self) -> Pattern:
        return op(Op.NEG, self)

    def __invert__(self) -> Pattern:
        return op(Op.NOT, self)

    def lt(self, other: Operand) -> Pattern:
        """Return the pattern ``self < other``."""
        return op(Op.LT, self, other)

    def le(self, other: Operand) -> Pattern:
        """Return the pattern ``self <= other``."""
        return op(Op.LE, self, other)

    def eq(self, other: Operand) -> Pattern:
        """Return the pattern ``self == other``."""
        return op(Op.EQ, self, other)

    def ne(self, other: Operand) -> Pattern:
        """Return the pattern ``self != other``."""
        return op(Op.NE, self, other)


Operand = Pattern | Scalar


class P:
    """The leaves of patterns."""

    @staticmethod
    def var(name: str, kinds: str = "buif") -> Pattern:
        """Return a hole that matches any expression of these dtype kinds."""
        return Pattern(None, (), name, kinds)

    @staticmethod
    def const(name: str, kinds: str = "buif") -> Pattern:
        """Return a hole that matches any constant of these dtype kinds."""
        return Pattern(Op.CONST, (), name, kinds)

    @staticmethod
    def value(value: Scalar) -> Pattern:
        """Return the pattern of one constant (a plain number inside an operator does the same)."""
        return Pattern(Op.CONST, (), "", "buif", value)


def op(operation: Operation, *operands: Operand) -> Pattern:
    """Return the pattern of an operation; numbers become literals."""
    args = tuple(a if isinstance(a, Pattern) else P.value(a) for a in operands)
    return Pattern(operation, args, "", operation.kinds)


def where(c: Operand, a: Operand, b: Operand) -> Pattern:
    """Return the pattern of a selection."""
    return op(Op.WHERE, c, a, b)


def minimum(a: Operand, b: Operand) -> Pattern:
    """Return the pattern of a minimum."""
    return op(Op.MIN, a, b)


def maximum(a: Operand, b: Operand) -> Pattern:
    """Return the pattern of a maximum."""
    return op(Op.MAX, a, b)


def absolute(x: Operand) -> Pattern:
    """Return the pattern of an absolute value."""
    return op(Op.ABS, x)


def mad(a: Operand, b: Operand, c: Operand) -> Pattern:
    """Return the pattern of a fused multiply-add."""
    return op(Op.MAD, a, b, c)


def is_value(e: Expr, value: Scalar) -> bool:
    """Whether `e` is a constant of this value, zeros told apart by sign."""
    if e.op is not Op.CONST or e.attr != value:
        return False
    if isinstance(value, bool) and not e.dtype.is_bool:
        return False
    return math.copysign(1.0, e.attr) == math.copysign(1.0, value) if e.attr == 0 else True


def match(pattern: Pattern, e: Expr) -> Match | None:
    """Return what the names of `pattern` stand for in `e`, or None if it does not match.

    Patterns are small, so that this one function is recursive.
    """
    found: Match = {}
    return found if _match(pattern, e, found) else None


def _match(pattern: Pattern, e: Expr, found: Match) -> bool:
    if pattern.op is not None and e.op is not pattern.op:
        return False
    if pattern.args:
        return _match_operands(pattern, e, found)
    if pattern.value is not None:
        return is_value(e, pattern.value)
    if e.dtype.kind not in pattern.kinds:
        return False
    return found.setdefault(pattern.name, e) is e


def _match_operands(pattern: Pattern, e: Expr, found: Match) -> bool:
    before = dict(found)
    if all(_match(p, a, found) for p, a in zip(pattern.args, e.args, strict=True)):
        return True
    if not e.op.commutative:
        return False
    found.clear()
    found.update(before)
    swapped = (e.args[1], e.args[0])
    return all(_match(p, a, found) for p, a in zip(pattern.args, swapped, strict=True))


def build(pattern: Pattern, found: Mapping[str, Expr], dtype: DType, lanes: int) -> Expr:
    """Return the expression that `pattern` describes, with its names filled in.

    `dtype` and `lanes` are those of the result; a literal takes the type of its context.
    """
    if pattern.value is not None:
        return ex.const(pattern.value, dtype, lanes)
    if not pattern.args:
        return found[pattern.name]
    operation = pattern.op
    assert operation is not None
    inner = dtype
    if operation.result == "bool":
        inner = _operand_type(pattern, found)
    if operation is Op.WHERE:
        c, a, b = pattern.args
        return ex.where(build(c, found, bool_, lanes), build(a, found, dtype, lanes),
                        build(b, found, dtype, lanes))  # fmt: skip
    args = tuple(build(a, found, inner, lanes) for a in pattern.args)
    return _MAKE[operation.arity](operation, args)


def _operand_type(pattern: Pattern, found: Mapping[str, Expr]) -> DType:
    """Return the type that the operands of a comparison share."""
    stack = list(pattern.args)
    while stack:
        p = stack.pop(0)
        if not p.args and p.value is None:
            return found[p.name].dtype
        if p.op is None or p.op.result != "bool":
            stack.extend(p.args)
    raise ValueError(f"the literals of {pattern!r} have no type")


_MAKE: Final[Mapping[int, Callable[[Operation, tuple[Expr, ...]], Expr]]] = {
    1: lambda o, args: ex.unary(o, args[0]),
    2: lambda o, args: ex.binary(o, args[0], args[1]),
    3: lambda o, args: ex.mad(*args),
}
