"""Pass slices of arrays in memory as arrays at an offset.

So ``data[100:200]`` and ``data[200:300]`` are one kernel with two addresses, and the steps of a
loop over ``x[i]`` or ``x[:, i]`` are equal. Slices that are not contiguous are so only where
several of a graph divide an axis between them: they become strided views of what they span.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from weft.driver.graph_key import Structure
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node, Shape, Storage
from weft.ir.op import Op

# Elements of a slice that a kernel reads under a mask, below which it stays a part of its array:
# the lanes of a vector beyond a short array may lie in a page that is missing, which takes hundreds
# of cycles to find out at every load, also where no lane is wanted.
_SHORT: Final = 64
_SEVERAL: Final = 4  # slices along an axis, from which on they are arrays if not contiguous

Parts = dict[Storage, tuple[Storage, int]]  # a part: the storage it lies in, and its byte offset


class _Form(NamedTuple):
    """The shape of the array and of a slice, and its steps: all but where the slice begins."""

    whole: Shape
    shape: tuple[int, ...]
    steps: tuple[int, ...]


class _Layout(NamedTuple):
    """Where a slice lies: its first element, how many it spans, and its strides."""

    parent: Storage
    first: int
    span: int
    form: _Form
    strides: tuple[int, ...]
    is_contiguous: bool

    def of(self, whole: Node) -> Node:
        """Return the slice as a view of the elements that it spans."""
        if self.is_contiguous:
            return infer.reshape(whole, self.form.shape)
        return infer.strided(whole, self.form.shape, 0, self.strides)


class Cut(NamedTuple):
    """A graph with contiguous slices as leaves, where each of these lies, and its structure."""

    outputs: Sequence[Node]
    parts: Parts
    structure: Structure


def cut_slices(outputs: Sequence[Node]) -> Cut | None:
    """Return a graph with contiguous slices as leaves; None if it has none."""
    made, parts = take_slices(outputs)
    return Cut(made, parts, Structure(made)) if parts else None


def take_slices(outputs: Sequence[Node]) -> tuple[list[Node], Parts]:
    """Return the graph with such slices as leaves, and where each of the new leaves lies."""
    parts: Parts = {}
    known: dict[tuple[Storage, int, int], Storage] = {}
    new: dict[Node, Node] = {}
    order = nd.toposort(outputs)
    chosen = _chosen(order)
    for node in order:
        layout = chosen.get(node)
        if layout is None:
            args = tuple([new[a] for a in node.args])
            new[node] = node if args == node.args else nd.with_args(node, args)
            continue
        parent, first, span = layout.parent, layout.first, layout.span
        storage = known.get((parent, first, span))
        if storage is None:
            storage = known[parent, first, span] = Storage(parent.dtype, span, None, parent.device)
        parts[storage] = parent, first * parent.dtype.itemsize
        new[node] = layout.of(nd.buffer(storage))
    return [_own(new[o], parts) for o in outputs], parts


def _chosen(order: Sequence[Node]) -> dict[Node, _Layout]:
    """Return the slices that become arrays of their own."""
    padded = _padded(order)
    found = {node: layout for node in order if (layout := _layout(node)) is not None
             and not (node in padded and (_is_short(node) or not layout.is_contiguous))}
    alike: dict[tuple[Storage, _Form], set[tuple[int, ...]]] = {}
    for node, layout in found.items():
        alike.setdefault((layout.parent, layout.form), set()).add(node.attr.starts)
    return {node: layout for node, layout in found.items() if layout.is_contiguous
            or _divide_an_axis(alike[layout.parent, layout.form], layout.form)}


def _divide_an_axis(starts: set[tuple[int, ...]], form: _Form) -> bool:
    """Whether slices of one form are several, differ along one axis, and do not overlap."""
    axes = [axis for axis in range(len(form.shape)) if len({s[axis] for s in starts}) > 1]
    if len(axes) != 1 or len(starts) < _SEVERAL:
        return False
    axis, = axes
    length = (form.shape[axis] - 1) * form.steps[axis] + 1
    return all(b - a >= length for a, b in pairwise(sorted(s[axis] for s in starts)))


def _padded(order: Sequence[Node]) -> set[Node]:
    """Return what pads read, and what that is a reshape of."""
    found: set[Node] = set()
    for node in order:
        if node.op is Op.PAD:
            inner = node.args[0]
            found.add(inner)
            while inner.op is Op.RESHAPE:
                inner = inner.args[0]
                found.add(inner)
    return found


def _is_short(node: Node) -> bool:
    """Whether a slice is short, of an array that is not."""
    whole = nd.size(node.args[0].shape) if node.args else 0
    size = nd.size(node.shape)
    return (not isinstance(size, Expr) and not isinstance(whole, Expr)
            and size < _SHORT <= whole)


def _own(output: Node, parts: Parts) -> Node:
    """Return a result, which never is a window on somebody else's memory."""
    root = nd.base(output)
    return infer.contiguous(output) if root.op is Op.BUFFER and root.attr in parts else output


def _layout(node: Node) -> _Layout | None:
    """Return where a slice of an array in memory lies; None if it is none, or of unknown size."""
    if node.op is not Op.SLICE or nd.base(node.args[0]).op is not Op.BUFFER:
        return None
    first, span, stride = 0, 1, 1
    is_whole, is_contiguous = True, True  # every axis behind this one is taken whole
    shape: list[int] = []
    strides: list[int] = []
    for start, step, size, full in zip(
        reversed(node.attr.starts), reversed(node.attr.steps), reversed(node.shape),
        reversed(node.args[0].shape), strict=True,
    ):  # fmt: skip
        if isinstance(start, Expr) or isinstance(size, Expr) or isinstance(full, Expr):
            return None
        if size == 0 or (size > 1 and step < 0):
            return None
        is_contiguous = is_contiguous and (size == 1 or (step == 1 and is_whole))
        is_whole = is_whole and size == full
        first += start * stride
        span += (size - 1) * step * stride
        shape.append(size)
        strides.append(step * stride if size > 1 else 0)
        stride *= full
    form = _Form(node.args[0].shape, tuple(reversed(shape)), node.attr.steps)
    return _Layout(nd.base(node.args[0]).attr, first, span, form, tuple(reversed(strides)),
                   is_contiguous)
