"""Nodes with Python operators, so that a rule reads as the formula it is.

    Value(g) * (1.0 - y * y)

Operands have one shape and dtype; a number becomes a constant of that shape.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.node import Node
from weft.ir.op import Op, Operation

Number = int | float


class Value:
    """A node under operators.

    Attributes
    ----------
    node : Node
        What it stands for.
    """

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def like(self, number: Number) -> Node:
        """Return a constant of this shape and dtype."""
        return infer.full(self.node.shape, number, self.node.dtype)

    def _apply(self, op: Operation, other: Value | Number, swap: bool = False) -> Value:
        second = other.node if isinstance(other, Value) else self.like(other)
        pair = (second, self.node) if swap else (self.node, second)
        return Value(infer.elementwise(op, *pair))

    def __add__(self, other: Value | Number) -> Value:
        return self._apply(Op.ADD, other)

    def __radd__(self, other: Number) -> Value:
        return self._apply(Op.ADD, other, swap=True)

    def __sub__(self, other: Value | Number) -> Value:
        return self._apply(Op.SUB, other)

    def __rsub__(self, other: Number) -> Value:
        return self._apply(Op.SUB, other, swap=True)

    def __mul__(self, other: Value | Number) -> Value:
        # a seed of ones is the usual start of a gradient; x * 1 is x for every x
        if is_one(self) and isinstance(other, Value):
            return other
        return self if is_one(other) else self._apply(Op.MUL, other)

    def __rmul__(self, other: Number) -> Value:
        return self * other

    def __truediv__(self, other: Value | Number) -> Value:
        return self if is_one(other) else self._apply(Op.DIV, other)

    def __rtruediv__(self, other: Number) -> Value:
        return self._apply(Op.DIV, other, swap=True)

    def __neg__(self) -> Value:
        return apply(Op.NEG, self)

    def __and__(self, other: Value) -> Value:
        return self._apply(Op.AND, other)

    def __or__(self, other: Value) -> Value:
        return self._apply(Op.OR, other)

    def lt(self, other: Value | Number) -> Value:
        """Return ``self < other``."""
        return self._apply(Op.LT, other)

    def le(self, other: Value | Number) -> Value:
        """Return ``self <= other``."""
        return self._apply(Op.LE, other)

    def eq(self, other: Value | Number) -> Value:
        """Return ``self == other``."""
        return self._apply(Op.EQ, other)

    def ne(self, other: Value | Number) -> Value:
        """Return ``self != other``."""
        return self._apply(Op.NE, other)

    def cast(self, dtype: dt.DType) -> Value:
        """Return the value in another type."""
        return Value(infer.cast(self.node, dtype))


def constant_of(node: Node) -> bool | int | float | None:
    """Return the value that every element has, if `node` is an expanded constant."""
    while node.op is Op.EXPAND or node.op is Op.RESHAPE:
        node = node.args[0]
    return node.attr if node.op is Op.CONST else None


def definition(node: Node) -> Node:
    """Return the node that a leaf was realized from: both are one value, used before and after."""
    while True:
        base = node.args[0] if node.op is Op.RESHAPE else node
        origin: Node | None = base.attr.origin if base.op is Op.BUFFER else None
        if origin is None or not infer.same_shape(origin.shape, node.shape):
            return node
        node = origin


def is_one(value: Value | Number) -> bool:
    """Whether every element is 1."""
    known = constant_of(value.node) if isinstance(value, Value) else value
    return known is not None and known == 1


def apply(op: Operation, *args: Value) -> Value:
    """Return ``op(*args)``."""
    return Value(infer.elementwise(op, *(a.node for a in args)))


def where(condition: Value, a: Value | Number, b: Value | Number) -> Value:
    """Return `a` where `condition` holds, else `b` (one of them is a value)."""
    like = a if isinstance(a, Value) else b
    assert isinstance(like, Value)
    first = a.node if isinstance(a, Value) else like.like(a)
    second = b.node if isinstance(b, Value) else like.like(b)
    return Value(infer.elementwise(Op.WHERE, condition.node, first, second))


def keep_axes(x: Node, axes: Sequence[int], like: Node) -> Node:
    """Return a reduction over `axes`, its axes put back and repeated to the shape of `like`."""
    ones = tuple(1 if a in axes else d for a, d in enumerate(like.shape))
    return infer.expand(infer.reshape(x, ones), like.shape)
