"""Where values are computed, and what they read, at a point of a kernel's iteration domain."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node, Shape
from weft.ir.op import Op
from weft.kernelize.common import indexing
from weft.kernelize.common.group import Group
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import upper_bound
from weft.rules.index import simplify

__all__ = ["Domain", "Domains"]

Reads = Sequence[tuple[Node, Index]]


class Domain:
    """A domain's loop variables, and the simplified indices of nodes in terms of them.

    Indices are kept: groups of one domain are compared again and again while a graph is fused.

    Parameters
    ----------
    group : Group
        One of those that have the domain; what its members are does not matter.
    """

    def __init__(self, group: Group) -> None:
        self._group = Group(-1, group.members[0], "", 0)
        self._group.take_domain(group)
        self._env: dict[Expr, tuple[int, int]] = {}
        self._rows = self._variables(group.rows, "r")
        self._inner = self._variables(group.inner, "k")
        self._places: dict[Node, Index | None] = {}
        self._of_operands: dict[Node, Index | None] = {}
        self._reads: dict[tuple[Node, Index], Reads] = {}

    def _variables(self, shape: Shape, letter: str) -> Index:
        out = []
        for axis, dim in enumerate(shape):
            v = ex.var(f"{letter}{axis}")
            self._env[v] = (0, upper_bound(dim) - 1 if upper_bound(dim) > 0 else 1)
            out.append(v if upper_bound(dim) != 1 else as_expr(0))
        return tuple(out)

    def _simplified(self, index: Index | None) -> Index | None:
        return None if index is None else tuple(simplify(e, self._env) for e in index)

    def place(self, node: Node) -> Index | None:
        """Return the index at which a node is computed at a point, None if it has none."""
        if node not in self._places:
            self._places[node] = self._simplified(
                self._group.place(node, self._rows, self._inner))
        return self._places[node]

    def place_of_operand(self, reduction: Node) -> Index | None:
        """Return the index into the operand of a reduction at a point, None if it has none."""
        if reduction not in self._of_operands:
            self._of_operands[reduction] = self._simplified(
                self._group.place_operand(reduction, self._rows, self._inner))
        return self._of_operands[reduction]

    def position_of_operand(self, reduction: Node) -> Expr | None:
        """Return the position in the flat operand of a reduction at a point, None without one."""
        place = self._group.place_operand(reduction, self._rows, self._inner)
        return None if place is None else simplify(
            indexing.flatten(place, reduction.args[0].shape), self._env)

    def reads(self, node: Node, index: Index) -> Reads:
        """Return the operands of an inlined node with the indices at which it reads them."""
        if node.op.group != "movement" and node.op is not Op.GATHER:
            return [(arg, index) for arg in node.args]
        found = self._reads.get((node, index))
        if found is None:
            found = self._reads[node, index] = self._moved(node, index)
        return found

    def _moved(self, node: Node, index: Index) -> Reads:
        if node.op is Op.GATHER:  # a row result may still be in place along the other axes
            axis = node.attr.axis
            anywhere = (*index[:axis], ex.var("anywhere"), *index[axis + 1:])
            return [(node.args[0], anywhere), (node.args[1], index)]
        place = indexing.source(node, index).place
        return [(node.args[0], tuple(simplify(e, self._env) for e in place))]


class Domains:
    """The domains of a graph's groups."""

    def __init__(self) -> None:
        self._found: dict[tuple[Shape, tuple[int, ...], tuple[int, ...]], Domain] = {}

    def of(self, group: Group) -> Domain:
        """Return the domain of a group as it is now."""
        key = group.full, group.row_axes, group.inner_axes
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Domain(group)
        return found
