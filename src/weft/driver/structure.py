"""The structure of a graph: what its plan is keyed by, apart from the arrays at its leaves."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node, Storage
from weft.ir.op import Op

_pack: Final = struct.Struct("<d").pack


class Structure:
    """A graph numbered operands first.

    Attributes
    ----------
    nodes : list of Node
    leaves : list of Storage
        Distinct arrays in memory in the order they are met: the inputs of the plan.
    key : tuple
        Equal exactly for graphs that one plan computes.
    """

    __slots__ = ("key", "leaves", "nodes")

    def __init__(self, outputs: Sequence[Node]) -> None:
        self.nodes = nd.toposort(outputs)
        self.leaves: list[Storage] = []
        number: dict[Node, int] = {}
        rows: list[tuple[Any, ...]] = []
        for i, node in enumerate(self.nodes):
            number[node] = i
            op, attr = node.op, node.attr
            if op is Op.BUFFER:
                attr = len(self.leaves)
                self.leaves.append(node.attr)
            elif op is Op.CONST and type(attr) is float:
                attr = _pack(attr)
            elif op is Op.PAD:
                attr = repr(attr)  # tells -0.0 from 0.0
            rows.append((op.name, node.dtype.text, node.shape,
                         tuple([number[a] for a in node.args]), attr))
        self.key = (tuple(rows), tuple([number[o] for o in outputs]))

    def text(self) -> str:
        """Return the key as text that is the same in every process."""
        symbols: dict[Expr, None] = {}
        for node in self.nodes:
            symbols.update(dict.fromkeys(d for d in node.shape if isinstance(d, Expr)))
            places: tuple[nd.Dim, ...] = ()
            if node.op is Op.SLICE:
                places = node.attr.starts
            elif node.op is Op.PAD:
                places = node.attr.before
            symbols.update(dict.fromkeys(d for d in places if isinstance(d, Expr)))
        if not symbols:
            return repr(self.key)
        from weft.ir.text_expr import print_expr  # names alone do not tell the bounds

        return "\n".join((repr(self.key), *map(print_expr, symbols)))
