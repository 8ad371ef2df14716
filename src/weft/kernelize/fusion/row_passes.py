"""The passes of a kernel over its rows, and what each repeats of those before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from weft.ir.node import Node
from weft.ir.op import Op
from weft.kernelize.common import cost
from weft.kernelize.common.cost import is_leaf
from weft.kernelize.common.sizes import elements

if TYPE_CHECKING:
    from weft.kernelize.common.group import Group
    from weft.kernelize.fusion.grouping import Grouping

__all__ = ["merged_repeat", "passes_of", "passes_repeat"]


def passes_repeat(fusion: Grouping, group: Group, node: Node, below: Iterable[Node]) -> bool:
    """Whether a newcomer's pass over rows would repeat too many operations of earlier passes.

    Passes share what they read of memory, reductions, and buffers of what has transcendentals; the
    rest each computes for itself, also values that the group stores.
    """
    level = _levels(fusion, group)
    last = _level(level, below)
    if not last:
        return False
    stored = sum([fusion.costs._count(n) for n in _through(fusion, level, below)
                  if level[n] < last])  # fmt: skip
    if stored > cost.REPEATED:
        return True
    known = {n for m in group.members if level[m] < last for n in _of_rows(fusion, group, m)}
    return _weight(known.intersection(_of_rows(fusion, group, node))) > cost.REPEATED


def merged_repeat(fusion: Grouping, group: Group) -> bool:
    """Whether a pass of a group would repeat too many operations of its earlier passes."""
    known: set[Node] = set()
    for members in passes_of(fusion, group):
        own = {n for m in members for n in _of_rows(fusion, group, m)}
        if _weight(known & own) > cost.REPEATED:
            return True
        known |= own
    return False


def _weight(nodes: Iterable[Node]) -> int:
    return sum(map(cost.weight_of, nodes))


def _levels(fusion: Grouping, group: Group) -> dict[Node, int]:
    """Return the members of a group with how many reductions over its rows they come after."""
    level: dict[Node, int] = {}
    for member in group.members:
        level[member] = _level(level, fusion.reads.get(member, ()))
    return level


def _level(level: Mapping[Node, int], below: Iterable[Node]) -> int:
    return max([level[d] + (d.op in (Op.REDUCE, Op.ARGREDUCE)) for d in below if d in level],
               default=0)


def _through(fusion: Grouping, level: Mapping[Node, int], below: Iterable[Node]) -> set[Node]:
    """Return the stored values of a group, but reductions, that a newcomer computes again."""
    found: set[Node] = set()
    stack = [d for d in below if d in level]
    while stack:
        node = stack.pop()
        if node not in found and node.op not in (Op.REDUCE, Op.ARGREDUCE):
            found.add(node)
            stack.extend(d for d in fusion.reads[node] if d in level)
    return found


def _of_rows(fusion: Grouping, group: Group, member: Node) -> list[Node]:
    """Return what a pass computes for each element of a row to have the value of a member."""
    points = elements(group.full)
    found: dict[Node, None] = {}
    stack = [member] if member.op.is_elementwise else list(member.args)
    while stack:
        node = stack.pop()
        outside = node in fusion.stored and node is not member and node not in group.members
        if (node in found or is_leaf(node) or node.op in cost.HEAVY
                or node.op in (Op.REDUCE, Op.ARGREDUCE) or 2 * elements(node.shape) <= points
                or outside):
            continue
        found[node] = None
        stack.extend(node.args)
    return list(found)


def passes_of(fusion: Grouping, group: Group) -> list[list[Node]]:
    """Return the members of a group by the pass over its rows that computes them."""
    if group.kind in ("contraction", "attention"):
        return [group.members]
    level = _levels(fusion, group)
    found: list[list[Node]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for member, number in level.items():
        found[number].append(member)
    return found
