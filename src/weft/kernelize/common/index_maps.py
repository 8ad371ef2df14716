"""The index maps under which the value of a node reads other values that are inlined into it.

A kernel evaluates an inlined value once a point for each index map under which the point reads it:
a five-point stencil reads the value before it under five. If that value is a stencil itself, what
it inlines is read under 25, and a chain of stencils under a number that grows with the power of its
length. `weft.kernelize.common.cost` asks here how often a value would be evaluated, and stores
values so that this does not compound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.node import Node, Shape
from weft.ir.op import Op
from weft.kernelize.common import indexing
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import upper_bound
from weft.rules.index import simplify

__all__ = ["IndexMaps", "Reads"]

Map = tuple[Index, Expr | None]
Reads = dict[Map, frozenset[Node]]

_NOTHING: Final[Reads] = {}
_NONE: Final[frozenset[Node]] = frozenset()


class IndexMaps:
    """Index maps of values to what they inline, made from those of their operands.

    Only values that can be read under several maps are followed: those that a movement or more than
    one other node reads. The others are read under the maps of their one reader.

    Parameters
    ----------
    nodes : sequence of Node
        The graph, operands first.
    readers : mapping of Node to int
        How many nodes have a node as an operand.
    """

    def __init__(self, nodes: Sequence[Node], readers: Mapping[Node, int]) -> None:
        self._followed = {a for n in nodes if n.op.group == "movement" or n.op is Op.GATHER
                          for a in n.args}  # fmt: skip
        self._followed.update(n for n, count in readers.items() if count > 1)
        self._reads: dict[Node, Reads] = {}
        self._repeats: set[Node] = set()
        self._moved: dict[Any, _Moved] = {}
        self._identities: dict[Shape, Map] = {}

    def of(self, node: Node) -> Reads:
        """Return the inlined values that a value reads, itself among them, by index map."""
        return self._reads.get(node, _NOTHING)

    def repeats(self, node: Node) -> bool:
        """Whether one element of a value evaluates something that it inlines more than once."""
        return node in self._repeats

    def counts(self, node: Node) -> Counter[Node]:
        """Return under how many index maps a value reads each value that it inlines."""
        return Counter(n for nodes in self.of(node).values() for n in nodes)

    def store(self, node: Node) -> None:
        """Have a value read from memory, so that its readers inline nothing of it."""
        self._reads.pop(node, None)
        self._repeats.discard(node)

    def inline(self, node: Node, free: bool = False) -> bool:
        """Work out what an inlined value reads.

        Parameters
        ----------
        node : Node
            Neither stored nor a leaf; what it inlines has been seen.
        free : bool
            Whether it does not matter how often the value is evaluated.

        Returns
        -------
        bool
            Whether it reads something under several maps that none of its operands does.
        """
        parts = [p for p in self._parts(node) if p]
        reads = _merged(parts)
        if node in self._followed and not free and node.op.group != "movement":
            own = self._identity(node.shape)
            reads = {**reads, own: reads.get(own, _NONE) | {node}}
        self.store(node)
        if not reads:
            return False
        self._reads[node] = reads
        if len(parts) == 1:
            if not self._repeats.isdisjoint(node.args):
                self._repeats.add(node)
            return False
        sets = list(reads.values())
        if len(sets) > 1 and sum(map(len, sets)) > len(frozenset().union(*sets)):
            self._repeats.add(node)
            return True
        return False

    def _parts(self, node: Node) -> list[Reads]:
        """Return what each operand reads, as maps from the indices of a node."""
        if node.op.group == "movement":
            return [self._through(node)]
        if node.op is Op.GATHER:
            return [self._through(node), self.of(node.args[1])]
        return [self.of(a) for a in dict.fromkeys(node.args)]

    def _through(self, node: Node) -> Reads:
        """Return what the first operand of a node reads, where the node reads that operand."""
        reads = self.of(node.args[0])
        if not reads:
            return reads
        key = (node.op, repr(node.attr) if node.op is Op.PAD else node.attr, node.shape,
               node.args[1] if node.op is Op.GATHER else node.args[0].shape)
        moved = self._moved.get(key)
        if moved is None:
            moved = self._moved[key] = _Moved(node)
        found: dict[Map, frozenset[Node]] = {}
        for place, nodes in reads.items():
            to = moved.of(place)
            have = found.get(to)
            found[to] = nodes if have is None else have | nodes
        return found

    def _identity(self, shape: Shape) -> Map:
        found = self._identities.get(shape)
        if found is None:
            found = self._identities[shape] = _variables(shape), None
        return found


class _Moved:
    """What becomes of index maps behind one movement: each is worked out once."""

    __slots__ = ("_env", "_from", "_known", "_mask")

    def __init__(self, node: Node) -> None:
        index = _variables(node.shape)
        self._env = {v: (0, max(upper_bound(d) - 1, 1))
                     for v, d in zip(index, node.shape, strict=True) if v.op is Op.VAR}
        where = _gathered(node, index) if node.op is Op.GATHER else indexing.source(node, index)
        self._from = {_variable(a): e for a, e in enumerate(where.place)}
        self._mask = where.mask
        self._known: dict[Map, Map] = {}

    def of(self, place: Map) -> Map:
        """Return the map from the indices of the node for one from those of its operand."""
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = self._moved(*place)
        return found

    def _moved(self, index: Index, mask: Expr | None) -> Map:
        moved = tuple([simplify(e, self._env) for e in ex.substitute(index, self._from)])
        masks = [] if mask is None else ex.substitute([mask], self._from)
        both = self._mask
        for other in masks:
            both = indexing.both(both, other)
        return moved, None if both is None else indexing.both(None, simplify(both, self._env))


def _variable(axis: int) -> Expr:
    return ex.var(f"i{axis}")


def _variables(shape: Shape) -> Index:
    """Return variables for an index; that of an axis of size 1 is 0."""
    return tuple([_variable(a) if upper_bound(d) != 1 else ex.index(0)
                  for a, d in enumerate(shape)])


def _gathered(node: Node, index: Index) -> indexing.Source:
    """Return where a gather reads: two places are equal if the same element tells them."""
    axis = node.attr.axis
    element = indexing.flatten(index, node.shape)
    loaded = ex.var(f"loaded{id(node.args[1])}") + element
    return indexing.Source((*index[:axis], loaded, *index[axis + 1:]))


def _merged(parts: Sequence[Reads]) -> Reads:
    """Return the maps of several operands that are read at the same index."""
    if len(parts) < 2:
        return parts[0] if parts else _NOTHING
    made = dict(parts[0])
    for part in parts[1:]:
        for place, nodes in part.items():
            have = made.get(place)
            made[place] = nodes if have is None or have <= nodes else (
                have if nodes <= have else have | nodes)
    return made
