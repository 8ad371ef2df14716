"""Cut a graph into kernels.

Stored nodes (results, reductions, cut points) are visited operands first. Each joins the group of
a node it reads when the join is legal, else it starts a group. Legality is symbolic: the indices
at which the newcomer reads each member must be the indices at which the member is computed in the
same iteration of the domain, and no third group may stand between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.op import Op
from weft.kernelize.common import cost
from weft.kernelize.common.contractions import is_contraction
from weft.kernelize.common.cost import Costs, is_leaf
from weft.kernelize.common.group import Group
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import elements
from weft.kernelize.fusion import attention_match
from weft.kernelize.fusion.attention_match import Found
from weft.kernelize.fusion.attention_parts import Attention
from weft.kernelize.fusion.domain import Domains
from weft.kernelize.fusion.epilogue_split import split_from_products
from weft.kernelize.fusion.grouping import Grouping
from weft.kernelize.fusion.recompute import computed_again, read_again, repeated
from weft.kernelize.fusion.row_passes import merged_repeat, passes_repeat

GROUP_LIMIT: Final = 600  # inlined operations of one kernel
ROUNDS: Final = 8  # how often a graph is cut at most; two or three times are the rule
STREAMS: Final = 3  # arrays of a product's size that its epilogue may read and write
_ATTENTION: Final = "attention: an online softmax needs each score once, so that none is stored"
_GRADIENT: Final = "gradient of an attention: scores are made again, so that none is stored"
_NONE: Final[frozenset[Node]] = frozenset()
_ALONE: Final = frozenset({Op.SCAN, Op.RECURRENCE, Op.SORT, Op.SCATTER, Op.PACK,
                          Op.LAUNCH, Op.CONTIGUOUS})


class Fusion(Grouping):
    """The result: groups in a legal order, and which group computes each stored node.

    Attributes
    ----------
    attention : Found
        The outputs that are computed together with all between them and the scores, and their
        gradients.
    left : frozenset of Node
        Values that no product computes behind its tiles.
    """

    def __init__(self, costs: Costs, found: Found, domains: Domains,
                 left: frozenset[Node] = _NONE) -> None:  # fmt: skip
        super().__init__(costs)
        self.attention, self.left = found, left
        self._domains = domains
        self._reach: dict[Node, frozenset[Node]] = {}
        self._before: list[int] = []  # per group: bit set of the groups it depends on
        self._readers: dict[Node, list[Group]] = {}
        for node in costs.nodes:
            self._visit(node)

    def below(self, node: Node) -> frozenset[Node]:
        """Return the stored nodes read to compute the value of `node` where it is used."""
        return self._reach[node]

    def _visit(self, node: Node) -> None:
        below = _NONE
        for arg in node.args:
            reach = self._reach[arg]
            below = reach if not below else below if reach <= below else below | reach
        if node.op is Op.PROJECT:  # stands for its sort or launch
            self._reach[node] = frozenset((node,))
            self.home[node] = self.home[node.args[0]]
            self.home[node].members.append(node)
            return
        if is_leaf(node):
            self._reach[node] = _NONE
            return
        if node not in self.stored:
            self._reach[node] = below
            return
        self.reads[node] = below
        self._reach[node] = frozenset((node,))
        if node not in self.attention.rows:
            self._place(node, below)

    def _place(self, node: Node, below: frozenset[Node]) -> None:
        kind = self._kind(node)
        for group in self._candidates(node, below, kind):
            why = self._join(group, node, below, kind)
            if why:
                group.why.append(why)
                self._add(group, node, below)
                self._merge_others(group, node, below)
                return
        group = Group(len(self.groups), node, kind, self.costs._count(node))
        if node.op is Op.LAUNCH:
            group.why.extend(node.attr.why)
        if kind == "attention":
            group.why.append(_GRADIENT if node in self.attention.parts else _ATTENTION)
        elif node in self.attention.misfits:
            group.why.append(self.attention.misfits[node])
        self.groups.append(group)
        self._before.append(0)
        rows = [row for row, out in self.attention.rows.items() if out is node]
        self.home.update(dict.fromkeys(rows, group))
        self._add(group, node, below, new=True)
        for row in rows:
            self._add(group, row, self.reads[row])

    def _kind(self, node: Node) -> str:
        if node.op in (Op.SCAN, Op.SORT, Op.SCATTER, Op.PACK, Op.LAUNCH):
            return node.op.name
        if node.op is Op.RECURRENCE:
            return "scan"
        if node in self.attention.outputs or node in self.attention.parts:
            return "attention"
        if node.op is Op.ARGREDUCE:
            return "rowwise"
        if node.op is Op.REDUCE:
            return "contraction" if is_contraction(node, self.costs.varies) else "rowwise"
        return "elementwise"

    def _candidates(self, node: Node, below: frozenset[Node], kind: str) -> list[Group]:
        """Return the groups worth a try: those it reads, the latest first, then siblings."""
        if node in self.attention.parts:
            kernels = self.attention.kernels
            return [g for g in self.groups if g.members
                    and kernels.get(g.members[0]) == kernels[node]]
        if node.op in _ALONE or kind in ("contraction", "attention"):
            return []
        if self.stored[node].startswith("cut"):
            return []
        direct = {self.home[d].number: self.home[d] for d in below}
        found = [direct[n] for n in sorted(direct, reverse=True)]
        for dependency in below:
            for sibling in self._readers.get(dependency, ())[-4:]:
                if sibling.number not in direct:
                    found.append(sibling)
        if not below or node.op in (Op.REDUCE, Op.ARGREDUCE):
            for leaf in self.leaves(node):
                found.extend(self._readers.get(leaf, ())[-2:])
        return list(dict.fromkeys(found))

    def _add(self, group: Group, node: Node, below: frozenset[Node], new: bool = False) -> None:
        if not new:
            group.members.append(node)
            group.weight += self.costs._count(node)
        self.home[node] = group
        depends = 0
        for dependency in below:
            home = self.home[dependency]
            if home is not group:
                depends |= 1 << home.number | self._before[home.number]
        shares = not below or node.op in (Op.REDUCE, Op.ARGREDUCE)
        for source in (*below, *(self.leaves(node) if shares else ())):
            if elements(source.shape) == 1:
                continue  # a scalar is no reason to share a kernel
            readers = self._readers.setdefault(source, [])
            if group not in readers:
                readers.append(group)
        if new:
            self._before[group.number] = depends  # nothing can come after it yet
        else:
            self._depend(group, depends)

    def _depend(self, group: Group, depends: int) -> None:
        """Record that `group` comes after the groups of a bit set, and so do its dependents."""
        if depends & ~self._before[group.number]:
            self._before[group.number] |= depends
            mine = 1 << group.number
            for other, before in enumerate(self._before):
                if before & mine:
                    self._before[other] = before | depends

    def _acyclic(self, group: Group, below: Iterable[Node]) -> bool:
        """Whether no dependency of a newcomer itself depends on the group."""
        mine = 1 << group.number
        return not any(
            self._before[self.home[d].number] & mine for d in below if self.home[d] is not group
        )

    def _join(self, group: Group, node: Node, below: frozenset[Node], kind: str) -> str:
        """Return why `node` may join, or an empty text."""
        if group.members[0].op in _ALONE:
            return ""
        if group.weight + self.costs._count(node) > GROUP_LIMIT or not self._acyclic(group, below):
            return ""
        if group.kind == "rowwise" and passes_repeat(self, group, node, below):
            return ""
        reads = any(self.home[d] is group for d in below)
        if kind == "attention":
            return "" if reads else "reads the same tiles of scores"
        if kind == "elementwise":
            return self._join_elementwise(group, node, below)
        return self._join_reduction(group, node, reads)

    def _beside(self, group: Group, below: Iterable[Node]) -> Group | None:
        """Return the part of a group that a newcomer follows: one of the gradients it makes."""
        parts = [m for m in group.members if m in self.attention.parts]
        if len(parts) < 2:
            return group
        found = self._gradients_of(group, below)
        if len(found) != 1:
            return None
        trial = Group(-1, found.pop(), "attention", 0)
        first = trial.members[0]
        trial.members += [m for m in group.members if m not in self.attention.parts
                          and first in self._gradients_of(group, self.reads[m])]
        return trial

    def _gradients_of(self, group: Group, below: Iterable[Node]) -> set[Node]:
        """Return the gradients of a group that some of its members are made of."""
        found: set[Node] = set()
        stack = [d for d in below if self.home[d] is group]
        while stack:
            node = stack.pop()
            if node in self.attention.parts:
                found.add(node)
            else:
                stack.extend(d for d in self.reads[node] if self.home[d] is group)
        return found

    def _join_elementwise(self, group: Group, node: Node, below: frozenset[Node]) -> str:
        reads = any(self.home[d] is group for d in below)
        size = elements(node.shape)
        domain = elements(group.rows) * elements(group.inner)
        if group.kind == "elementwise":
            if size != domain or not self._reads_in_place(group, node):
                return ""
            return "stored beside values of the same shape" if reads else "shares its inputs"
        if not reads:
            return ""
        if group.kind in ("contraction", "attention"):
            trial = None if node in self.left else self._beside(group, below)
            if trial is None or size != elements(trial.rows) or (
                self._streams(trial, node) > STREAMS
            ):
                return ""
            return f"epilogue of the {group.kind}" if self._reads_in_place(trial, node) else ""
        if size not in (domain, elements(group.rows)):
            return ""
        return "reads row results of the same row" if self._reads_in_place(group, node) else ""

    def _streams(self, group: Group, node: Node) -> int:
        """Return how many arrays of a product's size its epilogue would read and write."""
        size = elements(group.rows)
        seen = {m for m in (*group.members, node) if m in self.stored}
        for member in (*group.members[1:], node):
            below = self.reads.get(member, _NONE)
            seen.update(s for s in (*below, *self.leaves(member)) if elements(s.shape) == size)
        return len(seen)

    def _join_reduction(self, group: Group, node: Node, reads: bool) -> str:
        shape = node.args[0].shape
        if group.kind in ("contraction", "attention") or elements(shape) != elements(group.full):
            return ""
        trial = Group(-1, node, "rowwise", 0)
        if group.kind == "elementwise":
            if not reads:
                return ""
            trial.members = [*group.members, node]
            if not all(self._reads_in_place(trial, m) for m in trial.members):
                return ""
            group.set_domain(node)
            group.kind = "rowwise"
            return "reduces a value that is also stored"
        if elements(trial.inner) != elements(group.inner):
            return ""
        if not self._reads_in_place(group, node) or not (
                reads or self._same_walk(group, node)):
            return ""
        return "reduces the same rows again" if reads else "reduces the same rows of its inputs"

    def _same_walk(self, group: Group, reduction: Node) -> bool:
        """Whether a reduction goes through its operand as the group goes through its own.

        Rows and columns of a square array are as many and as long, and yet not the same.
        """
        if elements(group.rows) != elements(group.inner):
            return True
        domain = self._domains.of(group)
        walk = domain.position_of_operand(group.anchors[0])
        return walk is not None and walk is domain.position_of_operand(reduction)

    def _reads_in_place(self, group: Group, node: Node) -> bool:
        """Whether `node` reads every member of `group` at the point where it is computed."""
        domain = self._domains.of(group)
        index = domain.place(node)
        if index is not None and node.op in (Op.REDUCE, Op.ARGREDUCE):
            index = domain.place_of_operand(node)
            stack = [] if index is None else [(node.args[0], index)]
        else:
            stack = [] if index is None else list(domain.reads(node, index))
        if index is None:
            return False
        members = frozenset(group.members)
        expected: dict[Node, Index] = {}
        for member in group.members:
            if member not in self.attention.rows:
                place = domain.place(member)
                if place is None:
                    return False
                expected[member] = place
        seen: set[tuple[Node, Index]] = set()
        while stack:
            at, where = stack.pop()
            if not self._reach[at] & members or (at, where) in seen:
                continue
            seen.add((at, where))
            if at in expected:
                if where != expected[at]:
                    return False
                continue
            if at in self.attention.rows and at in members:
                return False
            if at not in self.stored or at in members:
                stack.extend(domain.reads(at, where))
        return True

    def _merge_others(self, group: Group, node: Node, below: frozenset[Node]) -> None:
        """Merge further row-wise groups of the same rows that the newcomer reads."""
        if group.kind != "rowwise":
            return
        for other in list(dict.fromkeys(self.home[d] for d in below)):
            if other is group or other.kind != "rowwise" or not self._mergeable(group, other):
                continue
            members = [*other.members, *group.members]
            trial = Group(-1, other.anchors[0], "rowwise", 0)
            trial.members = members
            if not merged_repeat(self, trial) and all(
                    self._reads_in_place(trial, m) for m in members):
                self._absorb(group, other)

    def _mergeable(self, group: Group, other: Group) -> bool:
        if elements(other.full) != elements(group.full):
            return False
        if elements(other.inner) != elements(group.inner):
            return False
        if group.weight + other.weight > GROUP_LIMIT:
            return False
        mine, theirs = 1 << group.number, 1 << other.number
        between = self._before[group.number] & ~theirs
        return not any(
            between >> g.number & 1 and self._before[g.number] & theirs for g in self.groups
        ) and not self._before[other.number] & mine

    def _absorb(self, group: Group, other: Group) -> None:
        for member in other.members:
            self.home[member] = group
        domain = other.anchors[0]
        group.members = [*other.members, *group.members]
        group.set_domain(domain)
        group.why = [*other.why, *group.why, "rows of both are the same"]
        group.weight += other.weight
        other.members = []
        mine, theirs = 1 << group.number, 1 << other.number
        self._before[group.number] &= ~theirs
        for number, before in enumerate(self._before):
            if before & theirs and number != group.number:
                self._before[number] = before & ~theirs | mine | self._before[group.number]
        self._depend(group, self._before[other.number])
        for readers in self._readers.values():
            if other in readers:
                readers[:] = dict.fromkeys(group if g is other else g for g in readers)

    def ordered(self) -> list[Group]:
        """Return the groups so that each follows those it depends on, members in graph order."""
        position = {n: i for i, n in enumerate(self.costs.nodes)}
        live = [g for g in self.groups if g.members]
        for group in live:
            group.members.sort(key=position.__getitem__)
        depends = {
            g.number: {self.home[d].number for m in g.members for d in self.reads.get(m, ())}
            - {g.number} for g in live
        }
        by_number = {g.number: g for g in live}
        done: dict[int, None] = {}
        for group in live:
            stack = [group.number]
            while stack:
                top = stack[-1]
                waiting = [d for d in depends[top] if d not in done]
                if waiting and top not in done:
                    stack.extend(waiting)
                else:
                    done[top] = None
                    stack.pop()
        return [by_number[n] for n in done]


class Form(Enum):
    """How far values may share kernels."""

    ALL = "as far as it is legal"
    NO_ATTENTION = "without kernels for attentions"
    ALONE = "one kernel for each operation"


def fuse(outputs: Sequence[Node], form: Form = Form.ALL,
         suits: Callable[[Attention, bool], str] | None = None) -> Fusion:  # fmt: skip
    """Return the kernels of a graph.

    An expensive value that several kernels would compute again is stored, what a product would
    compute better elsewhere leaves it, and the graph is cut once more with that knowledge. What
    `suits` says of attentions: see `weft.kernelize.fusion.attention_match.find`.
    """
    if form is Form.ALONE:
        order = nd.toposort(outputs)
        terms = {n.args[0] for n in order if n.op is Op.REDUCE}  # of products: far larger than both
        alone = [n for n in order if n.op.arity and n not in terms and n.op not in cost.TUPLES
                 and (n.op.is_elementwise or n.op in cost.ANCHORS)]
        costs = Costs(outputs, dict.fromkeys(alone, "cut: computed alone"))
        return Fusion(costs, Found(), Domains())
    found = attention_match.find(outputs, suits) if form is Form.ALL else Found()
    extra = dict.fromkeys((*found.outputs, *found.parts, *found.rows), "attention")
    first = dict.fromkeys(found.rows.values())  # what they keep is known before it is read
    left, domains = _NONE, Domains()
    for _ in range(ROUNDS):
        costs = Costs(outputs, extra, found.inside, tuple(first))
        fusion = Fusion(costs, found, domains, left)
        again = dict.fromkeys(repeated(fusion), "expensive value used by several kernels")
        again.update(dict.fromkeys(read_again(fusion), "sum of arrays used by several kernels"))
        again.update(dict.fromkeys(computed_again(fusion), "computed by several kernels"))
        more = left.union(split_from_products(fusion))
        if not again and more == left:
            break
        left = more
        extra.update(again)
    return fusion
