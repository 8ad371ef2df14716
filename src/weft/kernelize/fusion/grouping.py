"""Which kernel computes each stored node, as what decides about kernels asks for it."""

from __future__ import annotations

from weft.ir.node import Node
from weft.kernelize.common.cost import Costs, is_leaf
from weft.kernelize.common.group import Group

__all__ = ["Grouping"]


class Grouping:
    """Groups of stored nodes, and what they read.

    Attributes
    ----------
    costs : Costs
        What values cost to compute.
    stored : dict of Node to str
        Every stored node and why it is.
    groups : list of Group
    home : dict of Node to Group
    reads : dict of Node to frozenset of Node
        The stored nodes that each stored node reads directly.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs, self.stored = costs, costs.stored
        self.groups: list[Group] = []
        self.home: dict[Node, Group] = {}
        self.reads: dict[Node, frozenset[Node]] = {}

    def leaves(self, node: Node) -> list[Node]:
        """Return the arrays in memory that `node` inlines (the first few)."""
        out: list[Node] = []
        seen: set[Node] = set()
        stack = list(node.args)
        while stack and len(out) < 4 and len(seen) < 64:
            top = stack.pop()
            if top in seen:
                continue
            seen.add(top)
            if is_leaf(top):
                out.append(top)
            elif top not in self.stored:
                stack.extend(top.args)
        return out
