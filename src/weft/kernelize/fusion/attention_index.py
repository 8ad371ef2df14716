"""Read indices off a graph for attention: where values are read, and on which axes they depend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.kernelize.common import indexing
from weft.kernelize.common.cost import is_leaf
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import upper_bound
from weft.rules.index import simplify

SEARCH: Final = 256  # nodes looked at between the contractions


class NoFit(Exception):
    """Why something that looks like attention is not computed by one kernel."""


class Reader:
    """Loop variables with their ranges, and what is read in terms of them."""

    def __init__(self) -> None:
        self.env: dict[Expr, tuple[int, int]] = {}

    def var(self, name: str, size: nd.Dim) -> Expr:
        """Return a variable for an axis; 0 for one of a single place."""
        most = upper_bound(size)
        if most == 1:
            return ex.index(0)
        if most < 1:
            raise NoFit("a size of 0")
        made = ex.var(name)
        self.env[made] = (0, most - 1)
        return made

    def simplified(self, index: Expr) -> Expr:
        """Return an index in its plainest form."""
        return simplify(index, self.env)

    def source(self, node: Node, index: Index) -> Index:
        """Return where a movement reads its operand."""
        return tuple(map(self.simplified, indexing.source(node, index).place))

    def reads(self, root: Node, index: Index) -> Iterator[tuple[Node, Index]]:
        """Yield what a value is made of element by element, each with the index it is read at."""
        stack = [(root, index)]
        seen: set[tuple[Node, Index]] = set()
        while stack:
            top = node, index = stack.pop()
            if top in seen or is_leaf(node):
                continue
            seen.add(top)
            if len(seen) > SEARCH:
                raise NoFit("too many operations on the scores")
            yield top
            if node.op.is_elementwise or node.op in (Op.CAST, Op.DETACH):
                stack.extend((a, index) for a in node.args)
            elif node.op.group == "movement":
                stack.append((node.args[0], self.source(node, index)))

    def variables(self, node: Node, index: Index) -> set[Expr]:
        """Return the loop variables that a value depends on."""
        out: set[Expr] = set()
        stack = [(node, index)]
        seen: set[tuple[Node, Index]] = set()
        while stack:
            top, where = stack.pop()
            if (top, where) in seen or (top.op.arity == 0 and top.op is Op.CONST):
                continue
            seen.add((top, where))
            if len(seen) > SEARCH:
                return set(self.env)
            if top.op.group == "movement" and not is_leaf(top):
                found = indexing.source(top, where)
                if found.mask is not None:
                    out.update(ex.free_vars([found.mask]))
                stack.append((top.args[0], tuple(map(self.simplified, found.place))))
            elif (top.op.is_elementwise or top.op is Op.CAST) and top.args:
                stack.extend((a, where) for a in top.args)
            else:
                out.update(ex.free_vars(where))
        return out


def base_of(node: Node) -> Node:
    """Return the node below movements and casts that lose nothing."""
    while (node.op.group == "movement" and node.op not in (Op.PAD, Op.UNWINDOW)) or (
        node.op is Op.CAST and dt.promote(node.dtype, node.args[0].dtype) is node.dtype
    ):
        node = node.args[0]
    return node


def unguarded(node: Node, empty: float, instead: float) -> tuple[Node, bool]:
    """Return the row result below movements, and whether it is replaced where it is `empty`."""
    base = base_of(node)
    if base.op is not Op.WHERE:
        return base, False
    condition, yes, no = base.args
    if condition.op is not Op.EQ or condition.args[0] is not no or not (
        is_fill(condition.args[1], empty) and is_fill(yes, instead)
    ):
        return base, False
    return base_of(no), True


def is_fill(node: Node, value: float) -> bool:
    """Whether every element is one constant."""
    while node.op is Op.EXPAND or node.op is Op.RESHAPE:
        node = node.args[0]
    return node.op is Op.CONST and bool(node.attr == value)


__all__ = ["SEARCH", "NoFit", "Reader", "base_of", "is_fill", "unguarded"]
