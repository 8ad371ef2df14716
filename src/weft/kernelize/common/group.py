"""One future kernel: which nodes it stores, which reductions it holds, over which domain."""

from __future__ import annotations

from weft.ir.infer import same_dim, same_shape
from weft.ir.node import Node, Shape
from weft.ir.op import Op
from weft.kernelize.common.indexing import Index, flatten, unflatten
from weft.kernelize.common.sizes import elements, same_size


class Group:
    """A set of nodes to be computed by one kernel.

    Attributes
    ----------
    kind : str
        ``elementwise``, ``rowwise``, ``contraction``, ``attention``, ``scan``, ``sort``,
        ``scatter`` or ``launch``.
    members : list of Node
        Stored candidates in topological order: reductions and elementwise values.
    rows, inner : Shape
        The iteration domain: rows outside, the reduced (or, elementwise, all) axes inside.
    row_axes, inner_axes : tuple of int
        Where the domain's axes stand in an array of the full domain shape `full`.
    why : list of str
        Why the members are together, for ``weft explain``.
    """

    __slots__ = ("full", "inner", "inner_axes", "kind", "members", "number", "row_axes", "rows",
                 "weight", "why")  # fmt: skip

    def __init__(self, number: int, first: Node, kind: str, weight: int) -> None:
        self.number, self.kind, self.weight = number, kind, weight
        self.members: list[Node] = [first]
        self.why: list[str] = []
        if first.op in (Op.REDUCE, Op.ARGREDUCE):
            self.set_domain(first)
        else:
            self.full = first.shape
            self.rows: Shape = ()
            self.inner: Shape = first.shape
            self.row_axes: tuple[int, ...] = ()
            self.inner_axes = tuple(range(first.ndim))

    def set_domain(self, reduction: Node) -> None:
        """Take rows and inner axes from a reduction."""
        self.full = reduction.args[0].shape
        self.inner_axes = reduced_axes(reduction)
        self.row_axes = tuple(a for a in range(len(self.full)) if a not in self.inner_axes)
        self.rows = tuple(self.full[a] for a in self.row_axes)
        self.inner = tuple(self.full[a] for a in self.inner_axes)

    def take_domain(self, other: Group) -> None:
        """Take the domain of another group."""
        self.full, self.rows, self.inner = other.full, other.rows, other.inner
        self.row_axes, self.inner_axes = other.row_axes, other.inner_axes

    @property
    def anchors(self) -> list[Node]:
        """The reductions of the group."""
        return [m for m in self.members if m.op in (Op.REDUCE, Op.ARGREDUCE)]

    def place(self, node: Node, rows: Index, inner: Index) -> Index | None:
        """Return the index at which `node` is computed at a point of the domain.

        None if the node is neither of the row shape nor of the full shape.
        """
        if node.op in (Op.REDUCE, Op.ARGREDUCE):
            return _regroup(rows, self.rows, node.shape)
        if same_shape(node.shape, self.full):
            index = list(rows + inner)
            for value, axis in zip(rows + inner, self.row_axes + self.inner_axes, strict=True):
                index[axis] = value
            return tuple(index)
        if same_size(node.shape, self.rows) and elements(self.inner) != 1:
            return _regroup(rows, self.rows, node.shape)
        if self.inner_axes == tuple(range(len(self.rows), len(self.full))):
            return _regroup(rows + inner, self.rows + self.inner, node.shape)
        return None

    def place_operand(self, reduction: Node, rows: Index, inner: Index) -> Index | None:
        """Return the index into the operand of a member reduction at a point of the domain."""
        axes = reduced_axes(reduction)
        shape = reduction.args[0].shape
        kept = tuple(a for a in range(len(shape)) if a not in axes)
        outer = _regroup(rows, self.rows, tuple(shape[a] for a in kept))
        deep = _regroup(inner, self.inner, tuple(shape[a] for a in axes))
        if outer is None or deep is None:
            return None
        index = list(outer + deep)
        for value, axis in zip(outer + deep, kept + axes, strict=True):
            index[axis] = value
        return tuple(index)

    def is_row_level(self, node: Node) -> bool:
        """Whether a member has one value a row."""
        if node.op in (Op.REDUCE, Op.ARGREDUCE):
            return True
        return not same_shape(node.shape, self.full) and (
            same_size(node.shape, self.rows) and elements(self.inner) != 1
        )


def reduced_axes(node: Node) -> tuple[int, ...]:
    """Return the axes a reduction removes."""
    return node.attr.axes if node.op is Op.REDUCE else (node.attr.axis,)


def _regroup(index: Index, have: Shape, want: Shape) -> Index | None:
    """Carry an index of shape `have` over to a shape of as many elements."""
    if same_shape(have, want):
        return index
    if not same_size(have, want):
        return None
    significant = [i for i, d in zip(index, have, strict=True) if not same_dim(d, 1)]
    if [d for d in have if not same_dim(d, 1)] == [d for d in want if not same_dim(d, 1)]:
        zero = flatten((), ())
        rest = iter(significant)
        return tuple(zero if same_dim(d, 1) else next(rest) for d in want)
    return unflatten(flatten(index, have), want)
