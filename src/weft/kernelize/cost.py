"""What decides where a graph is cut: weights of inlined work, and values kept in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from weft.ir import node as nd
from weft.ir.bounds import bounds
from weft.ir.expr import Expr
from weft.ir.infer import same_dim
from weft.ir.node import Dim, Node
from weft.ir.op import Op

SIZE_LIMIT: Final = 400  # inlined operations of one value; longer chains are cut into kernels
SMALL: Final = 4  # operands of so few operations are counted at each use
HEAVY_REUSE: Final = 4  # an expensive value repeated this often by an expand is kept in memory
ROOT_REUSE: Final = 1024  # the same for roots of parameters, in values of at least so many elements

ROW: Final = 16  # elements, from which on rows move as a whole: a line
COSTLY: Final = 48  # inlined operations of a value that is kept if several values read it
WIDE: Final = 5  # arrays read by a value with several readers that is kept without a further look

ANCHORS: Final = frozenset({Op.REDUCE, Op.ARGREDUCE, Op.SCAN, Op.RECURRENCE, Op.SORT, Op.SCATTER,
                            Op.PACK, Op.LAUNCH, Op.CONTIGUOUS})  # fmt: skip
TUPLES: Final = frozenset({Op.SORT, Op.PACK, Op.LAUNCH})  # of which parts are stored
HEAVY: Final = frozenset({
    Op.EXP, Op.EXP2, Op.EXPM1, Op.LOG, Op.LOG2, Op.LOG10, Op.LOG1P, Op.SIN, Op.COS, Op.TAN,
    Op.ASIN, Op.ACOS, Op.ATAN, Op.SINH, Op.COSH, Op.TANH, Op.ASINH, Op.ACOSH, Op.ATANH, Op.ERF,
    Op.ERFC, Op.SIGMOID, Op.POW, Op.ATAN2, Op.GATHER, Op.MULHI,
})  # fmt: skip
ROOTS: Final = frozenset({Op.SQRT, Op.RSQRT})
_NOTHING: Final[Mapping[Node, tuple[Node, ...]]] = {}
_TRANSPARENT: Final = frozenset({Op.CAST, Op.DETACH})


def is_leaf(node: Node) -> bool:
    """Whether the node is an array in memory: a buffer under any number of reshapes."""
    return nd.base(node).op is Op.BUFFER


def upper_bound(dim: Dim) -> int:
    """Return a size, the largest one if it is symbolic."""
    if not isinstance(dim, Expr):
        return dim
    return bounds(dim, {})[1]


def elements(shape: Sequence[Dim]) -> int:
    """Return the (largest possible) number of elements of a shape."""
    total = 1
    for dim in shape:
        total *= upper_bound(dim)
    return total


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
        for node in self.nodes:
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
            return
        weight = self._count(node)
        if weight > SIZE_LIMIT:
            self.stored[node] = f"cut: more than {SIZE_LIMIT} operations in one kernel"
            weight = 0
        elif weight >= COSTLY and self._is_shared(node):
            self.stored[node] = "costly value with several readers"
            weight = 0
        elif self._is_wide(node):
            self.stored[node] = f"read from {WIDE} arrays or more, by several values"
            weight = 0
        elif node.op in HEAVY or any(a in self.heavy for a in node.args):
            self.heavy.add(node)
        if node.op in ROOTS or any(a in self.roots for a in node.args):
            self.roots.add(node)
        self.weight[node] = weight

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

    def keep(self, node: Node, why: str) -> None:
        """Have a node stored."""
        if not is_leaf(node) and node.op.arity != 0 and node.op not in TUPLES:
            self.stored.setdefault(node, why)
            self.weight[node] = 0
            self.heavy.discard(node)
            self.roots.discard(node)

    def _keep_operand(self, node: Node) -> None:
        """Store a computed operand of a contraction, which reads it many times.

        Where all read its rows in another order, they are stored in that order: then axes that were
        apart may be one.
        """
        turned: Node | None = None
        while node.op.group == "movement" or node.op in _TRANSPARENT:
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
            for part in _operand_chain(node, self._varies):
                self._varies[part] = _varies(part, self._varies)
            found = self._varies[node]
        return found


def _operand_chain(node: Node, done: dict[Node, frozenset[int]]) -> list[Node]:
    """Return the nodes whose `varies` is still needed for `node`, operands first."""
    order: list[Node] = []
    stack = [node]
    while stack:
        top = stack.pop()
        if top in done:
            continue
        order.append(top)
        if _looks_through(top):
            stack.extend(top.args)
    return list(reversed(order))


def _looks_through(node: Node) -> bool:
    return node.op in (Op.EXPAND, Op.PERMUTE, Op.RESHAPE) or node.op.group == "convert"


def _varies(node: Node, done: dict[Node, frozenset[int]]) -> frozenset[int]:
    own = frozenset(a for a, d in enumerate(node.shape) if not same_dim(d, 1))
    if not _looks_through(node):
        return own
    inner = done[node.args[0]]
    if node.op is Op.PERMUTE:
        return frozenset(a for a, source in enumerate(node.attr) if source in inner)
    if node.op is Op.EXPAND:
        lead = node.ndim - node.args[0].ndim
        return frozenset(a for a in own if a >= lead and a - lead in inner)
    if node.op is Op.RESHAPE:
        # only reshapes that add or drop axes of size 1 keep the correspondence
        before = [a for a, d in enumerate(node.args[0].shape) if not same_dim(d, 1)]
        after = sorted(own)
        if [node.args[0].shape[a] for a in before] != [node.shape[a] for a in after]:
            return own
        return frozenset(n for o, n in zip(before, after, strict=True) if o in inner)
    return inner


Varies = Callable[[Node], frozenset[int]]


def is_contraction(node: Node, varies: Varies) -> bool:
    """Whether a node is a sum of products whose operands each repeat along some kept axis.

    That is the reuse that tiles and registers exploit: matmul, convolution, outer products; a row
    of dot products (each element used once) is row-wise work instead.
    """
    operands = contraction_operands(node)
    if not operands or node.attr.kind != "sum":
        return False
    return _repeats(node, operands[0], varies) and _repeats(node, operands[1], varies)


def contraction_operands(node: Node) -> tuple[Node, ...]:
    """Return the two factors under a summed product, or nothing."""
    if node.op is not Op.REDUCE:
        return ()
    product = node.args[0]
    while product.op in _TRANSPARENT:
        product = product.args[0]
    return product.args if product.op is Op.MUL else ()


def _repeats(node: Node, operand: Node, varies: Varies) -> bool:
    moving = varies(operand)
    product = node.args[0]
    reduced = node.attr.axes
    if not any(a in moving for a in reduced):
        return False
    return any(
        a not in moving and a not in reduced and not same_dim(d, 1)
        for a, d in enumerate(product.shape)
    )

