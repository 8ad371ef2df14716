"""Movement operations as pure index maps: an output index becomes a source index and a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.infer import as_expr, same_dim
from weft.ir.node import Dim, Node, Shape
from weft.ir.op import Op, Operation
from weft.kernelize.common.sizes import elements

Index = tuple[Expr, ...]


class Source(NamedTuple):
    """Where an element comes from: a place in the operand, valid where `mask` holds."""

    place: Index
    mask: Expr | None = None


def flatten(index: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    """Return the row-major position of `index` in `shape`."""
    position = ex.index(0)
    for i, dim in zip(index, shape, strict=True):
        position = position * as_expr(dim) + i
    return position


def unflatten(position: Expr, shape: Sequence[Dim]) -> Index:
    """Return the index at a row-major position of `shape`."""
    out: list[Expr] = []
    for axis in range(len(shape) - 1, 0, -1):
        dim = as_expr(shape[axis])
        out.append(position % dim)
        position = position // dim
    return (position, *reversed(out)) if shape else ()


def _reshape(node: Node, index: Index) -> Source:
    """Regroup axes: runs of axes with equal products are flattened and split on their own."""
    before, after = node.args[0].shape, node.shape
    if any(same_dim(d, 0) for d in after):
        return Source(tuple(ex.index(0) for _ in before))
    source: list[Expr] = []
    i = j = 0
    while i < len(before) or j < len(after):
        a, b = _matching_run(before, after, i, j)
        position = flatten(index[j:b], after[j:b])
        source.extend(unflatten(position, before[i:a]))
        i, j = a, b
    return Source(tuple(source))


def _matching_run(before: Shape, after: Shape, i: int, j: int) -> tuple[int, int]:
    """Return the ends of the shortest runs of axes from `i` and `j` with equal products.

    Which side grows is decided by the largest sizes where they are symbolic; they are equal if they
    are the same expression. At worst the run is all that is left.
    """
    a, b = i, j
    left: Dim = 1
    right: Dim = 1
    while a < len(before) or b < len(after):
        if (a > i or b > j) and same_dim(left, right):
            break
        if b == len(after) or (a < len(before) and elements((left,)) <= elements((right,))):
            left = _mul(left, before[a])
            a += 1
        else:
            right = _mul(right, after[b])
            b += 1
    # a run of ones at the very end belongs to the last group
    if a == len(before):
        while b < len(after) and same_dim(after[b], 1):
            b += 1
    if b == len(after):
        while a < len(before) and same_dim(before[a], 1):
            a += 1
    return a, b


def _mul(a: Dim, b: Dim) -> Dim:
    return b * a if isinstance(b, Expr) else a * b


def _permute(node: Node, index: Index) -> Source:
    source = [ex.index(0)] * len(index)
    for out_axis, in_axis in enumerate(node.attr):
        source[in_axis] = index[out_axis]
    return Source(tuple(source))


def _expand(node: Node, index: Index) -> Source:
    inner = node.args[0].shape
    lead = len(index) - len(inner)
    return Source(tuple(
        ex.index(0) if same_dim(dim, 1) and not same_dim(node.shape[lead + axis], 1)
        else index[lead + axis] for axis, dim in enumerate(inner)
    ))


def _slice(node: Node, index: Index) -> Source:
    starts, steps = node.attr.starts, node.attr.steps
    return Source(tuple(
        i * step + as_expr(start) for i, start, step in zip(index, starts, steps, strict=True)
    ))


def _pad(node: Node, index: Index) -> Source:
    inner = node.args[0].shape
    mask: Expr | None = None
    source: list[Expr] = []
    for i, before, dim, out in zip(index, node.attr.before, inner, node.shape, strict=True):
        moved = i - as_expr(before)
        source.append(moved)
        if not same_dim(before, 0):
            mask = _and(mask, moved.ge(0))
        if not (same_dim(before, 0) and same_dim(dim, out)):
            mask = _and(mask, moved.lt(as_expr(dim)))
    return Source(tuple(source), mask)


def _window(node: Node, index: Index) -> Source:
    attr = node.attr
    source = list(index[:-1])
    source[attr.axis] = index[attr.axis] * attr.step + index[-1] * attr.dilation
    return Source(tuple(source))


def _unwindow(node: Node, index: Index) -> Source:
    attr = node.attr
    count = as_expr(node.args[0].shape[attr.axis])
    moved = index[attr.axis] - index[-1] * attr.dilation
    mask = moved.ge(0)
    if attr.step > 1:
        mask = mask & (moved % attr.step).eq(0)
    source = list(index)
    source[attr.axis] = moved // attr.step
    mask = mask & source[attr.axis].lt(count)
    return Source(tuple(source), mask)


def _strided(node: Node, index: Index) -> Source:
    position = ex.index(node.attr.offset)
    for i, stride in zip(index, node.attr.strides, strict=True):
        position = position + i * stride
    return Source((position,))


def _and(a: Expr | None, b: Expr) -> Expr:
    if a is None or (a.op is Op.CONST and a.attr):
        return b
    if b.op is Op.CONST:
        return a if b.attr else b
    return a & b


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """Return the conjunction of two optional masks; None if it always holds."""
    joined = a if b is None else _and(a, b)
    return None if joined is not None and ex.is_const(joined, True) else joined


MAPS: Final[dict[Operation, Callable[[Node, Index], Source]]] = {
    Op.RESHAPE: _reshape,
    Op.PERMUTE: _permute,
    Op.EXPAND: _expand,
    Op.SLICE: _slice,
    Op.PAD: _pad,
    Op.WINDOW: _window,
    Op.UNWINDOW: _unwindow,
    Op.STRIDED: _strided,
}


def source(node: Node, index: Index) -> Source:
    """Return where element `index` of a movement node comes from."""
    return MAPS[node.op](node, index)


def fill_value(node: Node) -> bool | int | float:
    """Return the value of a movement node where its mask does not hold."""
    return node.attr.value if node.op is Op.PAD else dt.check_value(0, node.dtype, "fill")
