"""Gradients of elementwise operations: a formula for each operand of each row of the op table.

In the formulas g is the gradient of the result and y the result, which is reused where the formula
allows (exp, tanh, sqrt …).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from weft.graph.formula import Value, apply, constant_of, where
from weft.ir import infer
from weft.ir.node import Node
from weft.ir.op import Op, Operation

Rule = Callable[[Node, Node], Node | None]


def _rule(formula: Callable[..., Value]) -> Rule:
    """Wrap ``formula(g, y, *operands)``."""

    def run(node: Node, g: Node) -> Node | None:
        return formula(Value(g), Value(node), *map(Value, node.args)).node

    return run


def _nothing(node: Node, g: Node) -> Node | None:
    """Return no gradient: a step function is flat."""
    return None


def _abs(g: Value, y: Value, x: Value) -> Value:
    return where(x.lt(0.0), -g, where(x.eq(0.0), 0.0, g))


def _div_right(g: Value, y: Value, a: Value, b: Value) -> Value:
    return -(g / b * y)


def _mod_right(g: Value, y: Value, a: Value, b: Value) -> Value:
    return -(g * apply(Op.FLOORDIV, a, b))


def _fmod_right(g: Value, y: Value, a: Value, b: Value) -> Value:
    return -(g * apply(Op.TRUNC, a / b))


def _pow_left(g: Value, y: Value, a: Value, b: Value) -> Value:
    exponent = constant_of(b.node)
    if exponent == 1:
        return g
    if exponent == 2:
        return g * (a * 2.0)
    if exponent is not None and exponent != 0:
        return g * (b * apply(Op.POW, a, Value(b.like(exponent - 1.0))))
    return where(b.eq(0.0), 0.0, g * (b * apply(Op.POW, a, b - 1.0)))


def _pow_right(g: Value, y: Value, a: Value, b: Value) -> Value:
    flat = a.eq(0.0) & Value(b.like(0.0)).le(b)  # 0 ** b stays 0 for b >= 0
    return where(flat, 0.0, g * (y * apply(Op.LOG, a)))


def _over_square(g: Value, a: Value, b: Value) -> Value:
    square = a * a + b * b
    return where(square.eq(0.0), 0.0, g / square)  # at the origin, which has no angle


def _copysign(g: Value, y: Value, a: Value, b: Value) -> Value:
    return where(a.eq(0.0), 0.0, where(a.eq(y), g, -g))


def _winner(first: Value, second: Value, g: Value) -> Value:
    """Return `g` unless ``second < first``, half of it where they tie, all of it if one is NaN."""
    return where(second.lt(first), 0.0, where(first.eq(second), g * 0.5, g))


def _mul_left(node: Node, g: Node) -> Node:
    """Return the gradient of the left factor, and of a square the whole of it, rounded once.

    Twice the root of a finite square is finite, twice a gradient need not be.
    """
    a, b = node.args
    return (Value(g) * (Value(b) if a is not b else Value(a) + Value(a))).node


def _mul_right(node: Node, g: Node) -> Node | None:
    a, b = node.args
    return None if a is b else (Value(g) * Value(a)).node


def _where_left(node: Node, g: Node) -> Node:
    return where(Value(node.args[0]), Value(g), 0.0).node


def _where_right(node: Node, g: Node) -> Node:
    return where(Value(node.args[0]), 0.0, Value(g)).node


def _cast(node: Node, g: Node) -> Node:
    return infer.cast(g, node.args[0].dtype)


_ERF: Final = 2.0 / math.sqrt(math.pi)
_LN2: Final = math.log(2.0)
_LN10: Final = math.log(10.0)


def _exp_minus_square(x: Value) -> Value:
    return apply(Op.EXP, -(x * x))


_UNARY: Final[dict[Operation, Callable[..., Value]]] = {
    Op.NEG: lambda g, y, x: -g,
    Op.ABS: _abs,  # g * sign(x), 0 at 0
    Op.SQRT: lambda g, y, x: g * 0.5 / y,  # 1 / (2 sqrt(x))
    Op.RSQRT: lambda g, y, x: g * (y * y * y * -0.5),  # -x ** -1.5 / 2
    Op.RECIPROCAL: lambda g, y, x: -(g * (y * y)),  # -1 / x ** 2
    Op.EXP: lambda g, y, x: g * y,
    Op.EXP2: lambda g, y, x: g * (y * _LN2),
    Op.EXPM1: lambda g, y, x: g * apply(Op.EXP, x),  # y + 1 would lose what y has not
    Op.LOG: lambda g, y, x: g / x,
    Op.LOG2: lambda g, y, x: g / (x * _LN2),
    Op.LOG10: lambda g, y, x: g / (x * _LN10),
    Op.LOG1P: lambda g, y, x: g / (x + 1.0),
    Op.SIN: lambda g, y, x: g * apply(Op.COS, x),
    Op.COS: lambda g, y, x: -(g * apply(Op.SIN, x)),
    Op.TAN: lambda g, y, x: g * (y * y + 1.0),
    Op.ASIN: lambda g, y, x: g * apply(Op.RSQRT, (1.0 - x) * (x + 1.0)),  # 1 / sqrt(1 - x**2)
    Op.ACOS: lambda g, y, x: -(g * apply(Op.RSQRT, (1.0 - x) * (x + 1.0))),
    Op.ATAN: lambda g, y, x: g / (x * x + 1.0),
    Op.SINH: lambda g, y, x: g * apply(Op.COSH, x),
    Op.COSH: lambda g, y, x: g * apply(Op.SINH, x),
    Op.TANH: lambda g, y, x: g * apply(Op.MAD, -y, y, Value(y.like(1.0))),  # 1 - y**2
    Op.ASINH: lambda g, y, x: g * apply(Op.RSQRT, x * x + 1.0),
    Op.ACOSH: lambda g, y, x: g * apply(Op.RSQRT, (x - 1.0) * (x + 1.0)),  # 1 / sqrt(x**2 - 1)
    Op.ATANH: lambda g, y, x: g / ((1.0 - x) * (x + 1.0)),  # 1 / (1 - x**2)
    Op.ERF: lambda g, y, x: g * (_exp_minus_square(x) * _ERF),  # 2 / sqrt(pi) exp(-x**2)
    Op.ERFC: lambda g, y, x: g * (_exp_minus_square(x) * -_ERF),
    Op.SIGMOID: lambda g, y, x: g * (y * (1.0 - y)),
}

_BINARY: Final[dict[Operation, tuple[Callable[..., Value], Callable[..., Value]]]] = {
    Op.ADD: (lambda g, y, a, b: g, lambda g, y, a, b: g),
    Op.SUB: (lambda g, y, a, b: g, lambda g, y, a, b: -g),
    Op.DIV: (lambda g, y, a, b: g / b, _div_right),  # 1 / b, -a / b ** 2
    Op.MOD: (lambda g, y, a, b: g, _mod_right),  # a - floor(a / b) * b
    Op.FMOD: (lambda g, y, a, b: g, _fmod_right),  # a - trunc(a / b) * b
    Op.POW: (_pow_left, _pow_right),  # b a ** (b - 1), y log(a)
    Op.ATAN2: (  # of (a, b): b / (a**2 + b**2), -a / (a**2 + b**2)
        lambda g, y, a, b: _over_square(g, a, b) * b,
        lambda g, y, a, b: -(_over_square(g, a, b) * a),
    ),
    Op.MIN: (lambda g, y, a, b: _winner(a, b, g), lambda g, y, a, b: _winner(b, a, g)),
    Op.MAX: (lambda g, y, a, b: _winner(b, a, g), lambda g, y, a, b: _winner(a, b, g)),
}

RULES: Final[dict[Operation, tuple[Rule, ...]]] = {
    **{op: (_rule(formula),) for op, formula in _UNARY.items()},
    **{op: (_rule(left), _rule(right)) for op, (left, right) in _BINARY.items()},
    **dict.fromkeys((Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND), (_nothing,)),
    Op.FLOORDIV: (_nothing, _nothing),
    Op.MUL: (_mul_left, _mul_right),  # b, a
    Op.COPYSIGN: (_rule(_copysign), _nothing),  # g where the sign is kept, else -g
    Op.WHERE: (_nothing, _where_left, _where_right),  # the chosen operand's
    Op.MAD: (  # a * b + c
        _rule(lambda g, y, a, b, c: g * b),
        _rule(lambda g, y, a, b, c: g * a),
        _rule(lambda g, y, a, b, c: g),
    ),
    Op.CAST: (_cast,),  # of floats: the gradient in the operand's type
}
