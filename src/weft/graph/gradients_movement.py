"""Gradients of movement operations: each is the adjoint index map, itself made of movement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from weft.graph.formula import Value
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.infer import as_expr, same_dim
from weft.ir.node import Dim, Node, Shape
from weft.ir.op import Op, Operation

Rule = Callable[[Node, Node], Node | None]


def _reshape(node: Node, g: Node) -> Node:
    return infer.reshape(g, node.args[0].shape)


def _permute(node: Node, g: Node) -> Node:
    inverse = [0] * node.ndim
    for out_axis, in_axis in enumerate(node.attr):
        inverse[in_axis] = out_axis
    return infer.permute(g, inverse)


def unbroadcast(g: Node, shape: Shape) -> Node:
    """Return `g` summed over the axes along which an expand of `shape` repeated its values."""
    lead = g.ndim - len(shape)
    axes = [
        a for a, d in enumerate(g.shape)
        if a < lead or (same_dim(shape[a - lead], 1) and not same_dim(d, 1))
    ]
    g, axes = _peel(g, axes)
    return infer.reshape(infer.reduce(g, "sum", axes), shape)


def _peel(g: Node, axes: list[int]) -> tuple[Node, list[int]]:
    """Sum an expanded array over axes it repeats itself: a product with their size."""
    if g.op is not Op.EXPAND:
        return g, axes
    inner = g.args[0]
    lead = g.ndim - inner.ndim
    repeated: list[int] = []
    count = 1
    for a in axes:
        n = g.shape[a]
        if not isinstance(n, Expr) and (a < lead or same_dim(inner.shape[a - lead], 1)):
            repeated.append(a)
            count *= n
    if not repeated:
        return g, axes
    short = tuple(1 if a in repeated else d for a, d in enumerate(g.shape))
    once = infer.expand(infer.reshape(inner, (1,) * lead + inner.shape), short)
    if count == 0:
        return infer.full(short, 0.0, g.dtype), [a for a in axes if a not in repeated]
    return (Value(once) * float(count)).node, [a for a in axes if a not in repeated]


def _expand(node: Node, g: Node) -> Node:
    return unbroadcast(g, node.args[0].shape)


def _slice(node: Node, g: Node) -> Node | None:
    """Put the elements back in their places among zeros."""
    source = node.args[0].shape
    if any(same_dim(d, 0) for d in node.shape):
        return None
    starts, steps = list(node.attr.starts), node.attr.steps
    if any(s < 0 for s in steps):
        g = infer.slice_(g, [n - 1 if s < 0 else 0 for n, s in zip(g.shape, steps, strict=True)],
                         g.shape, [-1 if s < 0 else 1 for s in steps])
        starts = [
            start + (n - 1) * s if s < 0 else start
            for start, n, s in zip(starts, g.shape, steps, strict=True)
        ]
    for axis, step in enumerate(steps):
        if abs(step) != 1 and not same_dim(g.shape[axis], 1):
            g = _dilate(g, axis, abs(step))
    after = [_minus(_minus(d, start), n)
             for d, start, n in zip(source, starts, g.shape, strict=True)]
    return infer.pad(g, starts, after, 0.0)


def _dilate(x: Node, axis: int, step: int) -> Node:
    """Return ``out[i * step] = x[i]``, zero between."""
    n = x.shape[axis]
    wide = infer.reshape(x, (*x.shape, 1))
    length = (n - 1) * step + 1
    spread = infer.unwindow(wide, axis, step, 1, length)  # type: ignore[arg-type]
    return infer.reshape(spread, spread.shape[:-1])


def _minus(a: Dim, b: Dim) -> Dim:
    return as_expr(a) - b if isinstance(b, Expr) else a - b


def _pad(node: Node, g: Node) -> Node:
    return infer.slice_(g, node.attr.before, node.args[0].shape)


def _window(node: Node, g: Node) -> Node:
    a = node.attr
    length = cast(int, node.args[0].shape[a.axis])
    if same_dim(g.shape[a.axis], 1):  # the taps of one window: as many windows of one tap
        order = [*range(a.axis), g.ndim - 1, *range(a.axis + 1, g.ndim - 1), a.axis]
        return _side_by_side(infer.permute(g, order), a.axis, a.dilation, length)
    if a.dilation == 1 and a.step >= a.size:
        return _side_by_side(g, a.axis, a.step, length)
    return infer.reduce(infer.unwindow(g, a.axis, a.step, a.dilation, length), "sum", (-1,))


def _side_by_side(g: Node, axis: int, step: int, length: int) -> Node:
    """Put windows that do not overlap back in a row, without a sum."""
    source = cast("tuple[int, ...]", g.shape)
    last, count, size = g.ndim - 1, source[axis], source[-1]
    order = (*range(axis + 1), last, *range(axis + 1, last))
    nothing = [0] * g.ndim
    gaps = [step - size if a == axis + 1 else 0 for a in range(g.ndim)]
    rows = infer.pad(infer.permute(g, order), nothing, gaps, 0.0)
    flat = infer.reshape(rows, (*source[:axis], count * step, *source[axis + 1:-1]))
    flat = _front(flat, axis, min(count * step, length))
    rest = [length - flat.shape[axis] if a == axis else 0 for a in range(flat.ndim)]
    return infer.pad(flat, [0] * flat.ndim, rest, 0.0)


def _unwindow(node: Node, g: Node) -> Node:
    """Return ``out[.., o, .., w] = g[.., o * step + w * dilation, .., w]``, 0 past the end.

    That is the diagonal w = v of the windows ``[.., o, .., w, v]``.
    """
    a, source = node.attr, cast("tuple[int, ...]", node.args[0].shape)  # windows have fixed sizes
    count, size, length = source[a.axis], source[-1], cast(int, g.shape[a.axis])
    if count == 0 or size == 0:
        return infer.full(source, 0.0, g.dtype)
    missing = (count - 1) * a.step + (size - 1) * a.dilation + 1 - length
    if missing > 0:
        nothing = [0] * g.ndim
        g = infer.pad(g, nothing, [missing if i == a.axis else 0 for i in range(g.ndim)], 0.0)
    wide = infer.window(g, a.axis, size, a.step, a.dilation)
    wide = _front(wide, a.axis, count)
    flat = infer.reshape(wide, (*wide.shape[:-2], size * size))
    ends: Sequence[Dim] = (*flat.shape[:-1], size)
    steps = [1] * (flat.ndim - 1) + [size + 1 if size > 1 else 1]
    return infer.slice_(flat, [0] * flat.ndim, ends, steps)


def _front(x: Node, axis: int, count: Dim) -> Node:
    """Return the first `count` elements of an axis."""
    sizes = tuple(count if a == axis else d for a, d in enumerate(x.shape))
    return infer.slice_(x, [0] * x.ndim, sizes)


def _strided(node: Node, g: Node) -> Node:
    """Add each element where it was read: places may overlap."""
    flat = node.args[0].shape
    index = infer.full(node.shape, node.attr.offset, dt.int64)
    for axis, stride in enumerate(node.attr.strides):
        n = node.shape[axis]
        steps = Value(infer.iota(n)) * stride
        ones = tuple(n if a == axis else 1 for a in range(node.ndim))
        here = infer.expand(infer.reshape(steps.node, ones), node.shape)
        index = infer.elementwise(Op.ADD, index, here)
    zeros = infer.full(flat, 0.0, g.dtype)
    total = (nd.size(node.shape),)
    return infer.scatter(zeros, infer.reshape(index, total), infer.reshape(g, total), 0, "add")


def _rounded_last(rule: Rule) -> Rule:
    """Return a rule that moves and sums what it is given before that is rounded to a shorter type.

    A gradient of bfloat16 is made in float32 where its value was used as float32, as in products:
    their terms would each be rounded, and the sum of them would be no contraction.
    """
    def apply(node: Node, g: Node) -> Node | None:
        source = g.args[0] if g.op is Op.CAST else g
        if not source.dtype.is_float or source.dtype.itemsize <= g.dtype.itemsize:
            return rule(node, g)
        wide = rule(node, source)
        return None if wide is None else infer.cast(wide, g.dtype)

    return apply


_ADJOINT: Final[dict[Operation, Rule]] = {
    Op.RESHAPE: _reshape,  # back to the operand's shape
    Op.PERMUTE: _permute,  # the inverse order
    Op.EXPAND: _expand,  # the sum over what was repeated
    Op.SLICE: _slice,  # dilated by steps, padded by zeros
    Op.PAD: _pad,  # the inner part
    Op.WINDOW: _window,  # the sum over w of unwindow, or windows side by side
    Op.UNWINDOW: _unwindow,  # the diagonal of the windows
    Op.STRIDED: _strided,  # a sum scattered over the flat array
}

RULES: Final[dict[Operation, tuple[Rule, ...]]] = {
    op: (_rounded_last(rule),) for op, rule in _ADJOINT.items()}
