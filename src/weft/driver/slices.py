"""Contiguous slices of arrays in memory are arrays of their own, at an offset.

So ``data[100:200]`` and ``data[200:300]`` are one kernel with two addresses, and the steps of a
loop over ``x[i]`` are equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node, Storage
from weft.ir.op import Op

Parts = dict[Storage, tuple[Storage, int]]  # a part: the storage it lies in, and its byte offset


def take_slices(outputs: Sequence[Node]) -> tuple[list[Node], Parts]:
    """Return the graph with such slices as leaves, and where each of the new leaves lies."""
    parts: Parts = {}
    known: dict[tuple[Storage, int, int], Storage] = {}
    new: dict[Node, Node] = {}
    for node in nd.toposort(outputs):
        part = _part(node, known)
        if part is not None:
            storage, parent, offset = part
            parts[storage] = parent, offset
            new[node] = infer.reshape(nd.buffer(storage), node.shape)
        else:
            new[node] = nd.with_args(node, tuple([new[a] for a in node.args]))
    return [_own(new[o], parts) for o in outputs], parts


def _own(output: Node, parts: Parts) -> Node:
    """Return a result, which never is a window on somebody else's memory."""
    root = nd.base(output)
    return infer.contiguous(output) if root.op is Op.BUFFER and root.attr in parts else output


def _part(node: Node, known: dict[tuple[Storage, int, int], Storage]) -> (
    tuple[Storage, Storage, int] | None
):
    """Return a contiguous slice's new storage, its parent, and its byte offset."""
    if node.op is not Op.SLICE or nd.base(node.args[0]).op is not Op.BUFFER:
        return None
    position = _position(node)
    if position is None:
        return None
    parent: Storage = nd.base(node.args[0]).attr
    first, count = position
    storage = known.get((parent, first, count))
    if storage is None:
        storage = Storage(parent.dtype, count, None, parent.device)
        known[parent, first, count] = storage
    return storage, parent, first * parent.dtype.itemsize


def _position(node: Node) -> tuple[int, int] | None:
    """Return the first element and the number of elements of a slice if it is contiguous."""
    first, count, stride = 0, 1, 1
    whole = True  # every axis behind this one is taken whole
    for start, step, size, full in zip(
        reversed(node.attr.starts), reversed(node.attr.steps), reversed(node.shape),
        reversed(node.args[0].shape), strict=True,
    ):  # fmt: skip
        if isinstance(start, Expr) or isinstance(size, Expr) or isinstance(full, Expr):
            return None
        if size == 0 or (size > 1 and (step != 1 or not whole)):
            return None
        whole = whole and size == full
        first += start * stride
        count *= size
        stride *= full
    return first, count
