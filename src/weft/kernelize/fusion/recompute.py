"""Which values of several kernels are stored instead of computed again in each of them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from weft.ir.node import Node
from weft.ir.op import Op
from weft.kernelize.common import cost
from weft.kernelize.common.cost import is_leaf
from weft.kernelize.common.sizes import elements, upper_bound
from weft.kernelize.fusion.row_passes import passes_of

if TYPE_CHECKING:
    from weft.kernelize.common.cost import Costs
    from weft.kernelize.common.group import Group
    from weft.kernelize.fusion.grouping import Grouping

__all__ = ["computed_again", "read_again", "repeated"]

RECOMPUTE: Final = 4  # a kernel with this many times fewer points computes a value again


def read_again(fusion: Grouping) -> list[Node]:
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


def computed_again(fusion: Grouping) -> list[Node]:
    """Return the inlined values with several readers that cost less to store than to compute again.

    Each kernel that inlines a value repeats its operations, and so does each further pass of one
    over its rows; where a kernel repeats a value along an axis outside of its own, it does so for
    each index of that axis. Without a limit a value that each of a chain's kernels or passes reads
    and passes on would be computed by all of them from the chain's beginning.
    """
    costs = fusion.costs
    kernels: Counter[Node] = Counter()
    times: Counter[Node] = Counter()  # that an element is computed, in all of them
    for group in fusion.groups:
        seen: Counter[Node] = Counter()
        for members in passes_of(fusion, group):
            for node, often in _evaluated(fusion, group, members).items():
                # What has transcendentals is kept from pass to pass in a buffer of a row.
                seen[node] = max(seen[node], often) if node in costs.heavy else seen[node] + often
        for node, often in seen.items():
            if costs.readers[node] > 1 and node.op.is_elementwise:
                kernels[node] += 1
                times[node] += often
    chosen: list[Node] = []
    for node in costs.nodes:  # operands first: what is stored makes what reads it cheap
        if times[node] < 2 or node in costs.stored:
            continue
        dear = (kernels[node] - 1) * costs.operations(node) > cost.REPEATED or (
            (times[node] - 1) * _own_operations(costs, node) > cost.PASSED
            and not _is_statistic(costs, node))
        if dear and costs.reads(node):
            costs.store_late(node, "computed by several kernels or passes")
            chosen.append(node)
    return chosen


def _own_operations(costs: Costs, node: Node) -> int:
    """Return about how many operations an element of an inlined value takes, if rows are known.

    What has fewer elements than the value is computed once for many, and not counted.
    """
    size = elements(node.shape)
    found: set[Node] = set()
    stack, total = [node], 0
    while stack and total <= cost.PASSED:
        top = stack.pop()
        if top in found or top in costs.stored or is_leaf(top) or 2 * elements(top.shape) <= size:
            continue
        found.add(top)
        total += cost.weight_of(top)
        stack.extend(top.args)
    return total


def _is_statistic(costs: Costs, node: Node) -> bool:
    """Whether a value is made of reductions alone, as a mean and a deviation are.

    Each kernel of a norm and of its gradient makes them of the sums.
    """
    return all(s.op in (Op.REDUCE, Op.ARGREDUCE) for s in costs.sources(node))


def _evaluated(fusion: Grouping, group: Group, members: Sequence[Node]) -> dict[Node, int]:
    """Return the values that some members inline, each with how often an element is computed."""
    costs = fusion.costs
    found: dict[Node, int] = {}
    heap: list[tuple[int, Node]] = []  # readers before what they read
    often: dict[Node, int] = {}

    def reads(node: Node, times: int) -> None:
        for arg in node.args:
            if arg in fusion.stored or is_leaf(arg):
                continue
            if arg not in often:
                heapq.heappush(heap, (-costs.place[arg], arg))
            often[arg] = max(often.get(arg, 0), times)

    for member in members:
        reads(member, 1)
    while heap:
        node = heapq.heappop(heap)[1]
        found[node] = often[node]
        reads(node, often[node] * (_repeats(node, group) if node.op is Op.EXPAND else 1))
    return found


def _repeats(node: Node, group: Group) -> int:
    """Return how often a kernel computes each element of what an expand repeats.

    What does not vary along the innermost loops is computed before them.
    """
    if group.kind in ("contraction", "attention"):
        return 1
    inner = node.args[0].shape
    lead = node.ndim - len(inner)
    own = {lead + a for a, d in enumerate(inner) if upper_bound(d) != 1}
    wide = [a for a, d in enumerate(node.shape) if upper_bound(d) != 1]
    loops = group.inner_axes if group.kind == "rowwise" and node.shape == group.full else wide[-1:]
    if own.isdisjoint(loops):
        return 1
    return elements([node.shape[a] for a in wide if a not in own])


def _replaces_contraction(fusion: Grouping, node: Node) -> bool:
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


def repeated(fusion: Grouping) -> list[Node]:
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
