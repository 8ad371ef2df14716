"""Recognise contractions: sums of products whose operands repeat along kept axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir.infer import same_dim
from weft.ir.node import Node
from weft.ir.op import Op

__all__ = ["TRANSPARENT", "Varies", "contraction_operands", "is_contraction", "operand_chain",
           "varying_axes"]  # fmt: skip

Varies = Callable[[Node], frozenset[int]]
TRANSPARENT: Final = frozenset({Op.CAST, Op.DETACH})  # a factor is looked for below these


def operand_chain(node: Node, done: dict[Node, frozenset[int]]) -> list[Node]:
    """Return the nodes whose `varies` is still needed for `node`, operands first."""
    order: list[Node] = []
    stack = [node]
    while stack:
        top = stack.pop()
        if top in done:
            continue
        order.append(top)
        if _looks_through(top):
            stack.extend(top.args)
    return list(reversed(order))


def _looks_through(node: Node) -> bool:
    return node.op in (Op.EXPAND, Op.PERMUTE, Op.RESHAPE) or node.op.group == "convert"


def varying_axes(node: Node, done: dict[Node, frozenset[int]]) -> frozenset[int]:
    """Return the axes along which a value varies, given those of its operands."""
    own = frozenset(a for a, d in enumerate(node.shape) if not same_dim(d, 1))
    if not _looks_through(node):
        return own
    inner = done[node.args[0]]
    if node.op is Op.PERMUTE:
        return frozenset(a for a, source in enumerate(node.attr) if source in inner)
    if node.op is Op.EXPAND:
        lead = node.ndim - node.args[0].ndim
        return frozenset(a for a in own if a >= lead and a - lead in inner)
    if node.op is Op.RESHAPE:
        # only reshapes that add or drop axes of size 1 keep the correspondence
        before = [a for a, d in enumerate(node.args[0].shape) if not same_dim(d, 1)]
        after = sorted(own)
        if [node.args[0].shape[a] for a in before] != [node.shape[a] for a in after]:
            return own
        return frozenset(n for o, n in zip(before, after, strict=True) if o in inner)
    return inner


def is_contraction(node: Node, varies: Varies) -> bool:
    """Whether a node is a sum of products whose operands each repeat along some kept axis.

    That is the reuse that tiles and registers exploit: matmul, convolution, outer products; a row
    of dot products (each element used once) is row-wise work instead.
    """
    operands = contraction_operands(node)
    if not operands or node.attr.kind != "sum":
        return False
    return _repeats(node, operands[0], varies) and _repeats(node, operands[1], varies)


def contraction_operands(node: Node) -> tuple[Node, ...]:
    """Return the two factors under a summed product, or nothing."""
    if node.op is not Op.REDUCE:
        return ()
    product = node.args[0]
    while product.op in TRANSPARENT:
        product = product.args[0]
    return product.args if product.op is Op.MUL else ()


def _repeats(node: Node, operand: Node, varies: Varies) -> bool:
    moving = varies(operand)
    product = node.args[0]
    reduced = node.attr.axes
    if not any(a in moving for a in reduced):
        return False
    return any(
        a not in moving and a not in reduced and not same_dim(d, 1)
        for a, d in enumerate(product.shape)
    )

