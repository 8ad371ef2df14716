"""Recognise the quotient of a softmax, whose divisor is known to be an ordinary number."""

from __future__ import annotations

from typing import Final

from weft.ir.node import Node
from weft.ir.op import Op

_SPREADS: Final = frozenset({Op.EXPAND, Op.RESHAPE, Op.DETACH})


def is_weight(node: Node) -> bool:
    """Whether a node is ``exp(x - max(x)) / sum(exp(x - max(x)))``.

    The sum is between 1 and the number of terms, or NaN: its reciprocal is a normal number, and
    multiplying by it costs one rounding more than the division, far below those of the sum.
    """
    if node.op is not Op.DIV or node.args[0].op is not Op.EXP:
        return False
    exp, total = node.args[0], _base(node.args[1])
    shifted = exp.args[0]
    if total.op is not Op.REDUCE or total.attr.kind != "sum" or total.args[0] is not exp or (
        shifted.op is not Op.SUB
    ):
        return False
    top = _base(shifted.args[1])
    return (top.op is Op.REDUCE and top.attr.kind == "max" and top.args[0] is shifted.args[0]
            and top.attr.axes == total.attr.axes)


def _base(node: Node) -> Node:
    """Return what is spread over the row."""
    while node.op in _SPREADS:
        node = node.args[0]
    return node
