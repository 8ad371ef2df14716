"""What decides where a graph is cut: weights of inlined work, and values kept in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from weft.ir import node as nd
from weft.ir.infer import same_dim
from weft.ir.node import Node
from weft.ir.op import Op
from weft.kernelize.common.contractions import (
    TRANSPARENT,
    contraction_operands,
    is_contraction,
    operand_chain,
    varying_axes,
)
from weft.kernelize.common.index_maps import IndexMaps
from weft.kernelize.common.sizes import elements, upper_bound

SIZE_LIMIT: Final = 400  # inlined operations of one value; longer chains are cut into kernels
MOST_HEAVY: Final = 16  # transcendentals of one value: tens of milliseconds to compile each
SMALL: Final = 4  # operands of so few operations are counted at each use
HEAVY_REUSE: Final = 4  # an expensive value repeated this often by an expand is kept in memory
ROOT_REUSE: Final = 1024  # the same for roots of parameters, in values of at least so many elements

ROW: Final = 16  # elements, from which on rows move as a whole: a line
COSTLY: Final = 48  # inlined operations of a value that is kept if several values read it
WIDE: Final = 5  # arrays read by a value with several readers that is kept without a further look

# What a value is evaluated for again, because it is read under several index maps, may cost less
# than this many operations an element, what it takes to write the value and to read it again; and
# its operations may be written so many times more often in a kernel than they are in the graph.
STORE: Final = 10
COPIES: Final = 160
REPEATED: Final = 24  # operations an element that further kernels or passes may compute again
PASSED: Final = 160  # the same of all kernels and passes, for values along the innermost axis
HEAVY_OPERATIONS: Final = 16  # of a transcendental
QUOTIENT_OPERATIONS: Final = 8  # of a division or a root

ANCHORS: Final = frozenset({Op.REDUCE, Op.ARGREDUCE, Op.SCAN, Op.RECURRENCE, Op.SORT, Op.SCATTER,
                            Op.PACK, Op.LAUNCH, Op.CONTIGUOUS})  # fmt: skip
TUPLES: Final = frozenset({Op.SORT, Op.PACK, Op.LAUNCH})  # of which parts are stored
HEAVY: Final = frozenset({
    Op.EXP, Op.EXP2, Op.EXPM1, Op.LOG, Op.LOG2, Op.LOG10, Op.LOG1P, Op.SIN, Op.COS, Op.TAN,
    Op.ASIN, Op.ACOS, Op.ATAN, Op.SINH, Op.COSH, Op.TANH, Op.ASINH, Op.ACOSH, Op.ATANH, Op.ERF,
    Op.ERFC, Op.SIGMOID, Op.POW, Op.ATAN2, Op.GATHER, Op.MULHI,
})  # fmt: skip
ROOTS: Final = frozenset({Op.SQRT, Op.RSQRT})
_QUOTIENTS: Final = frozenset({Op.DIV, Op.RECIPROCAL})
_LONG: Final = HEAVY - {Op.GATHER, Op.MULHI}
_FROM_INDEX: Final = frozenset({Op.CONST, Op.IOTA, Op.VARIABLE})
_NOTHING: Final[Mapping[Node, tuple[Node, ...]]] = {}


def weight_of(node: Node) -> int:
    """Return about how many operations a node is by itself."""
    if not node.op.is_elementwise or node.op in TRANSPARENT:
        return 0
    if node.op in HEAVY:
        return HEAVY_OPERATIONS
    quotient = node.dtype.is_float and (node.op in ROOTS or node.op in _QUOTIENTS)
    return QUOTIENT_OPERATIONS if quotient else 1


def is_leaf(node: Node) -> bool:
    """Whether the node is an array in memory: a buffer under any number of reshapes."""
    return nd.base(node).op is Op.BUFFER


class Costs:
    """Weights of a graph, and the nodes that must be stored for its kernels to stay small.

    Attributes
    ----------
    nodes : list of Node
        The graph, operands first.
    stored : dict of Node to str
        Nodes to be kept in memory, with the reason.
    attention : mapping of Node to tuple of Node
        Nodes inside an attention, each with the operands that every block of rows reads again.
        They are not stored, but for results.
    first : sequence of Node
        Nodes that come, with all below them, before the rest.
    readers : Counter of Node
        How many nodes have a node as an operand.
    place : dict of Node to int
        Positions in `nodes`.
    wide : set of Node
        Inlined values with several readers that are computed from several arrays of their size.
    """

    def __init__(self, outputs: Sequence[Node], extra: dict[Node, str],
                 attention: Mapping[Node, tuple[Node, ...]] = _NOTHING,
                 first: Sequence[Node] = ()) -> None:  # fmt: skip
        self.nodes = nd.toposort((*first, *outputs))
        self.attention = attention
        self.stored: dict[Node, str] = dict.fromkeys(outputs, "result")
        self.stored.update(extra)
        self.weight: dict[Node, int] = {}
        self.heavy: set[Node] = set()
        self.roots: set[Node] = set()
        self._varies: dict[Node, frozenset[int]] = {}
        self.readers = Counter(a for node in self.nodes for a in set(node.args))
        self.wide: set[Node] = set()
        self.maps = IndexMaps(self.nodes, self.readers)
        self._heavies: dict[Node, int] = {}  # transcendentals of a value that are inlined, if any
        self._from_index: set[Node] = set()  # values that no array tells, such as masks
        self.place = {node: i for i, node in enumerate(self.nodes)}
        self._users: dict[Node, list[Node]] = {}
        for node in self.nodes:
            for operand in set(node.args):
                self._users.setdefault(operand, []).append(node)
            self._visit(node)

    def _visit(self, node: Node) -> None:
        if node in self.attention:
            for operand in self.attention[node]:
                self._keep_operand(operand)
            if node not in self.stored:
                self.weight[node] = 0
                return
        if node.op in ANCHORS:
            self.stored.setdefault(node, node.op.name)
            if node not in self.attention and is_contraction(node, self.varies):
                for operand in contraction_operands(node):
                    self._keep_operand(operand)
            for operand in node.args if node.op is Op.PACK else ():
                self.keep(nd.base(operand), "operand of a pack")
            if node.op is Op.LAUNCH:
                for k, operand in enumerate(node.args):
                    if k not in node.attr.fresh:
                        self.keep(nd.base(operand), "operand of a launch")
        elif node.op is Op.PROJECT:
            self.stored.setdefault(node, "one of several results")
        elif node.op is Op.EXPAND:
            self._keep_repeated(node)
        elif node.op is Op.WINDOW and node.attr.size > node.attr.step:
            self._keep_windowed(node)
        if node in self.stored or is_leaf(node) or node.op.arity == 0:
            self.weight[node] = 0
            if node.op.is_elementwise or node.op is Op.GATHER:
                self._store_operands(node)
            return
        weight = self._count(node)
        if weight > SIZE_LIMIT:
            self.keep(node, f"cut: more than {SIZE_LIMIT} operations in one kernel")
            weight = 0
        elif self._count_heavy(node) > MOST_HEAVY:
            self.keep(node, f"cut: more than {MOST_HEAVY} transcendentals in one kernel")
            weight = 0
        elif weight >= COSTLY and self._is_shared(node):
            self.keep(node, "costly value with several readers")
            weight = 0
        elif self._is_wide(node):
            self.keep(node, f"read from {WIDE} arrays or more, by several values")
            weight = 0
        self._inline(node, weight)

    def _inline(self, node: Node, weight: int) -> None:
        """Note what a value costs that its readers compute, unless it has to be stored."""
        self.weight[node] = weight
        if node in self.stored:
            self._heavies.pop(node, None)
            self._store_operands(node)
            return
        if node.op in HEAVY or any(a in self.heavy for a in node.args):
            self.heavy.add(node)
        if node.op in ROOTS or any(a in self.roots for a in node.args):
            self.roots.add(node)
        if self._follow(node):
            self._store_repeated(node)

    def _follow(self, node: Node) -> bool:
        """Note what an inlined value reads; return whether it reads something more often."""
        from_index = all(a.op in _FROM_INDEX or a in self._from_index for a in node.args)
        if from_index:
            self._from_index.add(node)
        return self.maps.inline(node, self.is_free(node))

    def is_free(self, node: Node) -> bool:
        """Whether an inlined value comes from indices alone and takes a few operations."""
        return node in self._from_index and self.weight[node] <= STORE

    def _store_operands(self, node: Node) -> None:
        """Store what a stored value would evaluate too often."""
        if self.maps.inline(node, True):
            self._store_repeated(node)
        self.maps.store(node)

    def _store_repeated(self, node: Node) -> None:
        """Store what a value would evaluate so often that writing and reading it costs less.

        What is read under several index maps inlines nothing that is read under several by itself:
        the number of evaluations would be the product, and grow with the power of a chain's length.
        """
        while self.maps.repeats(node):
            counts = self.maps.counts(node)
            dear = [n for n, count in counts.items()
                    if count > 1 and self._is_dear(n, count, node)]
            if not dear:
                return
            last = self._read_by_most(max(dear, key=self.place.__getitem__), counts)
            self.store_late(last, f"read under {max(counts[last], 2)} index maps by one value")

    def _read_by_most(self, node: Node, counts: Mapping[Node, int]) -> Node:
        """Return what to store instead of a value that is read twice: what more readers inline.

        An assigned slice is read by itself, as the middle of the array, and at several offsets
        as a part of the array, of which only the first is known yet.
        """
        if counts[node] != 2:
            return node
        above = [n for n in counts if self.readers[n] > max(2, self.readers[node])
                 and not self.maps.repeats(n) and self.maps.counts(n)[node] == 1]
        return max(above, key=self.place.__getitem__, default=node)

    def _is_dear(self, node: Node, count: int, reader: Node) -> bool:
        """Whether a value that a reader evaluates `count` times a point is better stored."""
        if self.maps.repeats(node):
            return True
        points = elements(reader.shape)
        once = max(points, elements(node.shape))
        again = (count * points - once) * self.operations(node)
        return again > STORE * once or (count - 1) * self.weight[node] > COPIES

    def operations(self, node: Node) -> int:
        """Return about how many operations an element of an inlined value takes."""
        return self.weight[node] + HEAVY_OPERATIONS * (node in self.heavy)

    def store_late(self, node: Node, why: str) -> None:
        """Store a value that others have inlined already, and note what those cost now."""
        self.stored[node] = why
        self._forget(node)
        for user in self._inlining(node):
            self.heavy.discard(user)
            self.roots.discard(user)
            self._count_heavy(user)
            self._inline(user, self._count(user))

    def _forget(self, node: Node) -> None:
        self._heavies.pop(node, None)
        self.weight[node] = 0
        self.heavy.discard(node)
        self.roots.discard(node)
        self.maps.store(node)

    def _inlining(self, node: Node) -> list[Node]:
        """Return the values so far that inline another one, operands first.

        What an attention makes is inlined in none, and so is not stored for their sake.
        """
        above: set[Node] = set()
        stack = [node]
        while stack:
            for user in self._users.get(stack.pop(), ()):
                if user not in above and user in self.weight and user not in self.stored and (
                        user not in self.attention):  # fmt: skip
                    above.add(user)
                    stack.append(user)
        return sorted(above, key=self.place.__getitem__)

    def _is_wide(self, node: Node) -> bool:
        """Whether a value with several readers is computed from many arrays as large as it is.

        Without a limit a sum that grows from layer to layer would be computed from its beginning
        by every kernel that reads it.
        """
        if self.readers[node] < 2 or not node.op.is_elementwise:
            return False
        reads = self.reads(node)
        if len(reads) > 1:
            self.wide.add(node)
        return len(reads) >= WIDE

    def reads(self, node: Node) -> frozenset[Node]:
        """Return the arrays of about a node's size or larger that it is computed from."""
        size = elements(node.shape)
        return frozenset(a for a in self.sources(node) if 2 * elements(a.shape) >= size)

    def sources(self, node: Node) -> frozenset[Node]:
        """Return the arrays in memory that the value of a node is computed from."""
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = list(node.args)
        while stack:
            top = stack.pop()
            if top in seen:
                continue
            seen.add(top)
            if top in self.stored or is_leaf(top):
                found[nd.base(top)] = None
            elif top.op is Op.GATHER:  # of the gathered array only what is asked for is read
                found[top] = None
            else:
                stack.extend(top.args)
        return frozenset(found)

    def _is_shared(self, node: Node) -> bool:
        """Whether several values read what expensive operations made (random bits, mostly).

        Unsigned integers are left out: they are steps inside a generator.
        """
        return (self.readers[node] > 1 and node.dtype.kind != "u"
                and any(a in self.heavy for a in node.args))

    def _count(self, node: Node) -> int:
        """Count the inlined operations below `node`: distinct ones where operands may share."""
        parts = sorted(self.weight[a] for a in node.args)
        if len(parts) < 2 or parts[-2] <= SMALL:
            return 1 + sum(parts)
        seen: set[Node] = set()
        stack = [node]
        while stack and len(seen) <= SIZE_LIMIT:
            top = stack.pop()
            if top in seen or (top is not node and not self.weight[top]):
                continue
            seen.add(top)
            stack.extend(top.args)
        return len(seen)

    def _count_heavy(self, node: Node) -> int:
        """Count the transcendentals below `node`, as `_count` counts operations."""
        self._heavies.pop(node, None)
        count = (node.op in _LONG) + sum([self._heavies.get(a, 0) for a in node.args])
        if count > MOST_HEAVY:
            seen: set[Node] = set()
            stack = [node]
            while stack:
                top = stack.pop()
                if top not in seen and (top is node or self._heavies.get(top)):
                    seen.add(top)
                    stack.extend(top.args)
            count = sum([n.op in _LONG for n in seen])
        if count:
            self._heavies[node] = count
        return count

    def keep(self, node: Node, why: str) -> None:
        """Have the array that a node shows stored.

        Of a reshape that is its base: two shapes of one array would be two arrays of the kernel
        that stores them and one of a kernel that reads them, for readers name memory by its base.
        """
        base = nd.base(node)
        if is_leaf(base) or base.op.arity == 0 or base.op in TUPLES:
            return
        self.stored.setdefault(base, why)
        inlined = bool(self.maps.of(base))
        while node is not base:
            self._forget(node)
            node = node.args[0]
        self._forget(base)
        for user in self._inlining(base) if inlined else ():
            self._follow(user)

    def _keep_operand(self, node: Node) -> None:
        """Store a computed operand of a contraction, which reads it many times.

        Where all read its rows in another order, they are stored in that order: then axes that were
        apart may be one.
        """
        turned: Node | None = None
        while node.op.group == "movement" or node.op in TRANSPARENT:
            if is_leaf(node) or node in self.stored:
                return
            turned = node if self._moves_rows(node) else None
            node = node.args[0]
        if node.op.arity != 0 and elements(node.shape) > 1:
            fits = turned is not None and node not in self.stored and node.op.is_elementwise
            self.keep(turned if turned and fits else node, "operand of a contraction")

    def _moves_rows(self, node: Node) -> bool:
        """Whether a node is the one reader of a value, and puts its rows into another order."""
        return (node.op is Op.PERMUTE and node.attr[-1] == node.ndim - 1
                and self.readers[node.args[0]] == 1
                and upper_bound(node.shape[-1]) >= ROW)

    def _keep_repeated(self, node: Node) -> None:
        """Store an expensive value that outer axes would repeat."""
        inner = node.args[0]
        if inner in self.roots and inner not in self.heavy:
            # An epilogue takes the root anew for each of its tiles.
            if (elements(node.shape) >= ROOT_REUSE * max(elements(inner.shape), 64)
                    and all(is_leaf(s) for s in self.sources(inner))):
                self.keep(inner, "root of parameters repeated by a broadcast")
            return
        if inner not in self.heavy:
            return
        lead = node.ndim - inner.ndim
        first_own = next((a for a, d in enumerate(inner.shape) if not same_dim(d, 1)), None)
        if first_own is None:
            if any(elements(s.shape) == 1 and not is_leaf(s) for s in self.sources(inner)):
                self.keep(inner, "expensive scalar beside one that is stored")
            return
        repeats = 1
        for axis in range(lead + first_own):
            repeats *= upper_bound(node.shape[axis])
        if repeats >= HEAVY_REUSE:
            self.keep(inner, "expensive value repeated by a broadcast")

    def _keep_windowed(self, window: Node) -> None:
        """Store what overlapping windows repeat in place of the contraction it is computed from.

        Nothing more is stored than before, and each value is computed once, as an epilogue.
        """
        node = window.args[0]
        while node.op.group == "movement" and not is_leaf(node) and node not in self.stored:
            node = node.args[0]
        if node.op.is_elementwise and node not in self.stored and self._ends_contraction(node):
            self.keep(node, "end of a contraction that windows repeat")

    def _ends_contraction(self, node: Node) -> bool:
        """Whether nothing else is computed from a contraction of its shape, nor on the way."""
        size, inside = elements(node.shape), Counter(set(node.args))
        stack, found = list(inside), False
        while stack:
            top = stack.pop()
            if is_leaf(top) or len(inside) > SIZE_LIMIT:
                continue
            if top in self.stored:
                found |= elements(top.shape) == size and is_contraction(top, self.varies)
                continue
            for a in set(top.args):
                inside[a] += 1
                if inside[a] == 1:
                    stack.append(a)
        return found and all(self.readers[n] == count for n, count in inside.items()
                             if elements(n.shape) == size and not is_leaf(n) and n.op.arity)

    def varies(self, node: Node) -> frozenset[int]:
        """Return the axes along which the value can differ (an expand repeats the others)."""
        found = self._varies.get(node)
        if found is None:
            for part in operand_chain(node, self._varies):
                self._varies[part] = varying_axes(part, self._varies)
            found = self._varies[node]
        return found
