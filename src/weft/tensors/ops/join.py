"""Concatenate and stack tensors; broadcast several to one shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

from weft.errors import DTypeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.node import Dim, Node
from weft.ir.op import Op
from weft.tensors.core import views
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.promotion import broadcast_shapes
from weft.tensors.core.tensor_value import Scalar

__all__ = ["broadcast_tensors", "cat", "cat_nodes", "meshgrid", "stack"]

T = TypeVar("T", bound=TensorCore)


def cat_nodes(nodes: Sequence[Node], axis: int) -> Node:
    """Return nodes joined along an axis: each padded to the whole, chosen by position."""
    nodes = [n for n in nodes if not infer.same_dim(n.shape[axis], 0)] or list(nodes[:1])
    if len(nodes) == 1:
        return nodes[0]
    total = sum(cast(int, n.shape[axis]) for n in nodes)
    position = infer.iota(total)
    ndim = nodes[0].ndim
    shape = (*nodes[0].shape[:axis], total, *nodes[0].shape[axis + 1 :])
    position = infer.reshape(position, [total if a == axis else 1 for a in range(ndim)])
    zero: Scalar = False if nodes[0].dtype.is_bool else 0
    parts, ends, start = [], [], 0
    for n in nodes:
        size = cast(int, n.shape[axis])
        before = [start if a == axis else 0 for a in range(ndim)]
        after = [total - start - size if a == axis else 0 for a in range(ndim)]
        parts.append(infer.pad(n, before, after, zero))
        start += size
        ends.append(start)
    return _choose(position, parts, ends, shape)


def _choose(position: Node, parts: list[Node], ends: list[int], shape: tuple[Dim, ...]) -> Node:
    """Return part i where ``ends[i-1] <= position < ends[i]``, as a balanced tree of choices."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    bound = infer.full(position.shape, ends[half - 1], dt.int64)
    before = infer.expand(infer.elementwise(Op.LT, position, bound), shape)
    return infer.elementwise(Op.WHERE, before, _choose(position, parts[:half], ends[:half], shape),
                             _choose(position, parts[half:], ends[half:], shape))  # fmt: skip


def _promoted(tensors: Sequence[T], name: str) -> list[Node]:
    if not tensors:
        raise ShapeError(name, found="no tensors", expected="at least one")
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = dt.promote(dtype, t.dtype)
    return [infer.cast(t._read(), dtype) for t in tensors]


def cat(tensors: Sequence[T], dim: int = 0) -> T:
    """Join tensors along an axis, as `weft.cat`; vectors without elements join anything."""
    _check_dim(dim, "cat")
    nodes = _promoted(tensors, "cat")
    # PyTorch lets an empty vector join anything.
    kept = [n for n in nodes if n.shape != (0,)] or nodes[:1]
    axis = infer.check_axis(dim, kept[0].ndim, "cat")
    for n in kept[1:]:
        if n.ndim != kept[0].ndim or any(
            a != axis and not infer.same_dim(s, t)
            for a, (s, t) in enumerate(zip(n.shape, kept[0].shape, strict=True))
        ):
            raise ShapeError("cat", found=" and ".join(str(t.shape) for t in tensors),
                             expected=f"equal sizes but on axis {axis}")
    return tensors[0]._wrap(_with_empty(cat_nodes(kept, axis), tensors), *tensors)


def _check_dim(dim: object, operation: str) -> None:
    """Raise a DTypeError if tensors were given one by one, so that the second is the axis."""
    if isinstance(dim, TensorCore):
        raise DTypeError(operation, found="a tensor for dim", expected="an axis",
                         hint=f"put the tensors in a list: {operation}([a, b])")


def _with_empty(node: Node, tensors: Sequence[TensorCore]) -> Node:
    """Return joined tensors as a node on which those without elements have an influence, too.

    Their gradients are there, if empty.
    """
    for t in tensors:
        if t._requires_grad and node.dtype.is_float and any(infer.same_dim(n, 0) for n in t.shape):
            node = infer.overwritten(node, t._read(), True)
    return node


def stack(tensors: Sequence[T], dim: int = 0) -> T:
    """Join tensors of one shape along a new axis, as `weft.stack`."""
    _check_dim(dim, "stack")
    nodes = _promoted(tensors, "stack")
    shape = nodes[0].shape
    axis = infer.check_axis(dim, len(shape) + 1, "stack")
    if any(not infer.same_shape(n.shape, shape) for n in nodes):
        raise ShapeError("stack", found=" and ".join(str(t.shape) for t in tensors),
                         expected="one shape")
    wide = [infer.reshape(n, (*shape[:axis], 1, *shape[axis:])) for n in nodes]
    return tensors[0]._wrap(_with_empty(cat_nodes(wide, axis), tensors), *tensors)


def broadcast_tensors(*tensors: T) -> tuple[T, ...]:
    """Return views of tensors broadcast to their common shape."""
    shape = broadcast_shapes("broadcast_tensors", *(t.shape for t in tensors))
    return tuple(t._view(views.Expand(shape)) for t in tensors)


def meshgrid(*tensors: T, indexing: str = "xy") -> tuple[T, ...]:
    """Return views with the coordinates of a grid's points, as `weft.meshgrid`."""
    if indexing not in ("xy", "ij"):
        raise ShapeError("meshgrid", found=f"indexing={indexing!r:.40}", expected="'xy' or 'ij'")
    shape = tuple(t.numel() for t in tensors)
    swap = (1, 0, *range(2, len(tensors)))
    grids = []
    for i, t in enumerate(tensors):
        row = t._view(views.Reshape(tuple(n if j == i else 1 for j, n in enumerate(shape))))
        grid = row._view(views.Expand(shape))
        grids.append(grid._view(views.Permute(swap)) if indexing == "xy" and len(shape) > 1
                     else grid)  # fmt: skip
    return tuple(grids)
