"""Which values of several kernels are stored instead of computed again in each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.ir.node import Node
from weft.kernelize import cost
from weft.kernelize.cost import elements, is_leaf

if TYPE_CHECKING:
    from weft.kernelize.fuse import Fusion

__all__ = ["read_again", "repeated"]

RECOMPUTE: Final = 4  # a kernel with this many times fewer points computes a value again


def read_again(fusion: Fusion) -> list[Node]:
    """Return the inlined values that are cheaper to store than to compute in each of their kernels.

    Cheaper means fewer arrays read and written (a write counts twice, for what it evicts). Where
    the result of a contraction has no other reader, the value is stored in its place.
    """
    users: dict[Node, set[int]] = {}
    costs = fusion.costs
    for group in fusion.groups:
        seen: set[Node] = set()
        stack = [a for m in group.members for a in m.args]
        while stack:
            top = stack.pop()
            if top in seen or top in fusion.stored or is_leaf(top):
                continue
            seen.add(top)
            if top in costs.wide:
                users.setdefault(top, set()).add(group.number)
            stack.extend(top.args)
    chosen: list[Node] = []
    for node in costs.nodes:  # operands first: what is stored makes what reads it narrow
        kernels = len(users.get(node, ()))
        if kernels < 2:
            continue
        arrays = len(costs.reads(node))
        saved = arrays * kernels - arrays - kernels
        if saved > (-2 if _replaces_contraction(fusion, node) else 2) and arrays > 1:
            costs.stored[node] = "sum of arrays used by several kernels"
            chosen.append(node)
    return chosen


def _replaces_contraction(fusion: Fusion, node: Node) -> bool:
    """Whether `node` is the one thing computed from a contraction or an attention of its shape."""
    stack = list(node.args)
    while stack:
        top = stack.pop()
        if fusion.costs.readers[top] > 1:
            continue
        home = fusion.home.get(top)
        if home is not None:
            if home.kind in ("contraction", "attention") and len(home.members) == 1:
                return True
        elif not is_leaf(top):
            stack.extend(top.args)
    return False


def repeated(fusion: Fusion) -> list[Node]:
    """Return the expensive inlined values that more than one kernel computes."""
    users: dict[Node, set[int]] = {}
    costs = fusion.costs
    for group in fusion.groups:
        seen: set[Node] = set()
        points = elements(group.full)
        stack = [a for m in group.members for a in m.args]
        while stack:
            top = stack.pop()
            if top in seen or top in fusion.stored or top not in costs.heavy:
                continue
            seen.add(top)
            if points * RECOMPUTE >= elements(top.shape):
                users.setdefault(top, set()).add(group.number)
            stack.extend(top.args)
    shared = {n for n, groups in users.items() if len(groups) > 1 and n.op in cost.HEAVY}
    inner = {a for n in shared for a in _below(n, shared)}
    return [n for n in shared if n not in inner]


def _below(node: Node, among: set[Node]) -> set[Node]:
    """Return the nodes of `among` strictly below `node` through nodes of heavy chains."""
    found: set[Node] = set()
    stack = list(node.args)
    seen: set[Node] = set()
    while stack:
        top = stack.pop()
        if top in seen:
            continue
        seen.add(top)
        if top in among:
            found.add(top)
        if len(seen) < cost.SIZE_LIMIT:
            stack.extend(top.args)
    return found
