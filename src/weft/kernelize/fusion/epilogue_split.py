"""Which values a product leaves to the kernel that reads the product anyway.

The epilogue of a contraction saves one reading of its result. It saves nothing where another kernel
reads the result too: an optimiser computes both moments and the parameter from a gradient, more
than fits behind the tiles of a product, so one kernel reads the gradient in any case. What the
product took from it is then read twice, and its tiles wait for arrays that stream by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ir.node import Node
from weft.kernelize.common.sizes import elements

if TYPE_CHECKING:
    from weft.kernelize.common.group import Group
    from weft.kernelize.fusion.grouping import Grouping

__all__ = ["split_from_products"]


def split_from_products(fusion: Grouping) -> list[Node]:
    """Return the values of epilogues that cost no more arrays in another kernel that reads them."""
    results = {n for n, why in fusion.stored.items() if why == "result"}
    readers: dict[Group, list[Group]] = {}
    for group in fusion.groups:
        if group.kind == "elementwise":
            homes = {fusion.home[d] for m in group.members for d in fusion.reads[m]}
            for home in homes:
                if home.kind == "contraction" and len(home.members) > 1:
                    readers.setdefault(home, []).append(group)
    left: list[Node] = []
    for product, others in readers.items():
        size = elements(product.rows)
        brings = [m for m in product.members[1:] if _brings(fusion, product, m, size)]
        same = [g for g in others if elements(g.full) == size]
        if brings and any(_saves(fusion, product, g, results) for g in same):
            left.extend(brings)
    return left


def _brings(fusion: Grouping, product: Group, node: Node, size: int) -> bool:
    """Whether a value of an epilogue reads another array as large as the product."""
    sources = (*fusion.reads[node], *fusion.leaves(node))
    return any(s not in product.members and elements(s.shape) == size for s in sources)


def _saves(fusion: Grouping, product: Group, other: Group, results: set[Node]) -> bool:
    """Whether no more arrays are read and written if `other` computes what it reads of an epilogue.

    Then it reads the result of the product alone, which has to be stored for that. Where it is the
    same number, a kernel that only streams reads and writes them faster than tiles do.
    """
    read = {d for m in other.members for d in fusion.reads[m]} & set(product.members)
    first = product.members[0]
    return len(read) - 1 - (first not in results and first not in read) >= 0
