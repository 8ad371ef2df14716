"""How often kernels evaluate what they inline: counted, and verified not to compound.

`weft.kernelize.common.index_maps` says so while a graph is cut; this module follows the finished
kernels from element to element instead, as `weft.kernelize.common.emit` does, so that one checks
the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.errors import VerifyError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.kernelize.common import indexing
from weft.kernelize.common.cost import is_leaf
from weft.kernelize.common.index_maps import Map
from weft.kernelize.common.sizes import upper_bound
from weft.rules.index import simplify

if TYPE_CHECKING:
    from weft.kernelize.common.group import Group
    from weft.kernelize.fusion.fuse import Fusion

__all__ = ["count_evaluations", "verify_evaluations"]

_MOST: Final = 20_000  # evaluations that are followed of one element
_KINDS: Final = frozenset({"elementwise", "rowwise", "contraction"})

Maps = dict[Node, set[Map]]


def verify_evaluations(fusion: Fusion) -> None:
    """Check that no kernel's evaluations compound.

    What a kernel reads under several index maps inlines nothing that it reads under several itself,
    unless the value comes from indices alone and takes a few operations.

    Raises
    ------
    VerifyError
        If a kernel does, or evaluates more than 20,000 values for an element.
    """
    for group in fusion.groups:
        if group.kind not in _KINDS:
            continue
        for member in group.members:
            for root in (member,) if member.op.is_elementwise else member.args:
                if root is member or not (root in fusion.stored or is_leaf(root)):
                    _verify(root, group, fusion)


def _verify(root: Node, group: Group, fusion: Fusion) -> None:
    maps = count_evaluations(root, fusion)
    several = [n for n, found in maps.items() if len(found) > 1]
    for node in several:
        if node is root:
            continue
        inner = count_evaluations(node, fusion)
        worst = max((n for n in inner if n is not node and _counts(n, fusion)),
                    key=lambda n: len(inner[n]), default=node)
        if len(inner[worst]) > 1:
            raise VerifyError(
                "kernelize", found=f"{node!r} read under {len(maps[node])} index maps by kernel "
                f"{group.number}, and {worst!r} under {len(inner[worst])} by it",
                expected="one of them stored")


def _counts(node: Node, fusion: Fusion) -> bool:
    """Whether a value takes work: no movement, and more than a few operations of indices."""
    return node.op.group != "movement" and not fusion.costs.is_free(node)


def count_evaluations(root: Node, fusion: Fusion) -> Maps:
    """Return the index maps under which an element of a value evaluates each inlined value.

    Raises
    ------
    VerifyError
        If there are more than 20,000.
    """
    index: tuple[Expr, ...] = tuple([
        ex.var(f"i{a}") if upper_bound(d) != 1 else ex.index(0) for a, d in enumerate(root.shape)])
    env = {v: (0, max(upper_bound(d) - 1, 1)) for v, d in zip(index, root.shape, strict=True)
           if v.op is Op.VAR}
    found: Maps = {}
    stack: list[tuple[Node, Map]] = [(root, (index, None))]
    total = 0
    while stack:
        node, at = stack.pop()
        in_memory = node in fusion.stored or is_leaf(node)
        if (in_memory and node is not root) or not node.op.arity:
            continue
        seen = found.setdefault(node, set())
        if at in seen:
            continue
        seen.add(at)
        total += 1
        if total > _MOST:
            raise VerifyError("kernelize", found=f"more than {_MOST} evaluations for {root!r}")
        stack.extend(_operands(node, at, env))
    return found


def _operands(node: Node, at: Map, env: dict[Expr, tuple[int, int]]) -> list[tuple[Node, Map]]:
    """Return the operands of an evaluation, each with where it is evaluated."""
    index, mask = at
    if node.op.group == "movement":
        where = indexing.source(node, index)
        own = None if where.mask is None else simplify(where.mask, env)
        place = tuple([simplify(e, env) for e in where.place])
        return [(node.args[0], (place, indexing.both(mask, own)))]
    if node.op is Op.GATHER:
        axis = node.attr.axis
        loaded = ex.var(f"loaded{id(node.args[1])}") + indexing.flatten(index, node.shape)
        if upper_bound(node.args[0].shape[axis]) == 1:
            loaded = ex.index(0)
        place = (*index[:axis], simplify(loaded, env), *index[axis + 1:])
        return [(node.args[0], (place, mask)), (node.args[1], at)]
    return [(a, at) for a in node.args]
