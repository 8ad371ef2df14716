"""Movement operations in their plainest form: merged with each other, repetition outermost.

Each builder takes an operand that is plain already and returns a node of the asked shape. EXPAND
goes to the outside of every other movement, so that what repeats a value is always seen.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.infer import same_dim, same_shape
from weft.ir.node import Dim, Node, Shape
from weft.ir.op import Op, Operation

_bits: Final = struct.Struct("<d").pack


def constant(node: Node) -> Node | None:
    """Return the 0-d constant that a node repeats, if it does."""
    if node.op is Op.EXPAND:
        node = node.args[0]
    return node if node.op is Op.CONST else None


def same_value(a: bool | int | float, b: bool | int | float) -> bool:
    """Whether two constants are one value, zeros told apart by sign."""
    if isinstance(a, float) and isinstance(b, float):
        return _bits(a) == _bits(b)
    return a == b


def _repeats(inner: Node, outer: Shape, axis: int) -> bool:
    """Whether an expand of `inner` (of equal rank) to `outer` repeats values along `axis`."""
    return same_dim(inner.shape[axis], 1) and not same_dim(outer[axis], 1)


def _filled(node: Node, shape: Shape) -> Node | None:
    """Return the same scalar repeated to another shape, if `node` repeats one."""
    if node.op is Op.EXPAND and node.args[0].ndim == 0:
        return expand(node.args[0], shape)
    return node if node.op is Op.CONST and not shape else None


def expand(x: Node, shape: Shape) -> Node:
    """Return `x` broadcast to `shape`."""
    if same_shape(x.shape, shape):
        return x
    if x.op is Op.EXPAND:
        return expand(x.args[0], shape)  # expand(expand(x)) -> expand(x)
    if x.ndim and x.ndim < len(shape):
        return expand(reshape(x, (1,) * (len(shape) - x.ndim) + x.shape), shape)
    return infer.expand(x, shape)


def reshape(x: Node, shape: Shape) -> Node:
    """Return the elements of `x` in another shape."""
    if same_shape(x.shape, shape):
        return x
    if x.op is Op.RESHAPE:
        return reshape(x.args[0], shape)  # reshape(reshape(x)) -> reshape(x)
    if x.op is Op.EXPAND:
        found = _filled(x, shape)
        if found is not None:
            return found
        short = _short_shape(x.args[0].shape, x.shape, shape)
        if short is not None:  # reshape(expand(x)) -> expand(reshape(x))
            return expand(reshape(x.args[0], short), shape)
    return infer.reshape(x, shape)


def only_ones(before: Shape, after: Shape) -> bool:
    """Whether a reshape only adds or drops axes of size 1."""
    return same_shape(tuple(d for d in before if not same_dim(d, 1)),
                      tuple(d for d in after if not same_dim(d, 1)))  # fmt: skip


def _short_shape(inner: Shape, outer: Shape, target: Shape) -> Shape | None:
    """Return the shape that `inner` takes where its expansion `outer` is reshaped to `target`.

    Runs of axes with equal products go together; each must be repeated as a whole or not at all.
    """
    if only_ones(outer, target):
        rest = iter([i for i, o in zip(inner, outer, strict=True) if not same_dim(o, 1)])
        return tuple(1 if same_dim(d, 1) else next(rest) for d in target)
    if any(isinstance(d, Expr) or d == 0 for d in (*outer, *target)):
        return None
    result: list[Dim] = []
    i = j = 0
    while i < len(outer) or j < len(target):
        a, b = i, j
        left: Dim = 1
        right: Dim = 1
        while a == i or b == j or left != right:
            if a < len(outer) and (b == len(target) or left <= right):
                left, a = left * outer[a], a + 1
            elif b < len(target):
                right, b = right * target[b], b + 1
            else:
                break
        repeated = [not same_dim(o, 1) and same_dim(n, 1)
                    for n, o in zip(inner[i:a], outer[i:a], strict=True) if not same_dim(o, 1)]
        if any(repeated) and not all(repeated):
            return None
        result.extend([1] * (b - j) if any(repeated) else target[j:b])
        i, j = a, b
    return tuple(result)


def permute(x: Node, order: Sequence[int]) -> Node:
    """Return `x` with its axes reordered."""
    order = tuple(order)
    if order == tuple(range(x.ndim)):
        return x
    shape = tuple(x.shape[a] for a in order)
    if x.op is Op.PERMUTE:  # permute(permute(x)) -> permute(x)
        return permute(x.args[0], [x.attr[a] for a in order])
    long = [a for a in order if not same_dim(x.shape[a], 1)]
    if long == sorted(long):  # only axes of size 1 move
        return reshape(x, shape)
    if x.op is Op.EXPAND:  # permute(expand(x)) -> expand(permute(x))
        return _filled(x, shape) or expand(permute(x.args[0], order), shape)
    return infer.permute(x, order)


def slice_(x: Node, starts: Sequence[Dim], sizes: Shape, steps: Sequence[int]) -> Node:
    """Return ``out[i] = x[start + i * step]``."""
    steps = [1 if same_dim(n, 1) else s for n, s in zip(sizes, steps, strict=True)]
    if same_shape(x.shape, sizes) and all(s == 1 for s in steps):
        return x
    found = _filled(x, sizes)
    if found is not None:
        return found
    if x.op is Op.SLICE and not any(same_dim(n, 0) for n in sizes):
        first = x.attr  # slice(slice(x)) -> slice(x)
        return slice_(x.args[0],
                      [_add(s0, _times(s, k0)) for s0, s, k0
                       in zip(first.starts, starts, first.steps, strict=True)],
                      sizes, [k0 * k for k0, k in zip(first.steps, steps, strict=True)])
    if x.op is Op.EXPAND:
        inner = x.args[0]  # slice(expand(x)) -> expand(slice(x))
        own = [not _repeats(inner, x.shape, a) for a in range(x.ndim)]
        sliced = slice_(inner, [s if o else 0 for s, o in zip(starts, own, strict=True)],
                        tuple(n if o else 1 for n, o in zip(sizes, own, strict=True)),
                        [k if o else 1 for k, o in zip(steps, own, strict=True)])
        return expand(sliced, sizes)
    if x.op is Op.PAD and all(s == 1 for s in steps):
        found = _crop(x, starts, sizes)
        if found is not None:
            return found
    return infer.slice_(x, starts, sizes, steps)


def _add(a: Dim, b: Dim) -> Dim:
    return b + a if isinstance(b, Expr) else a + b


def _times(a: Dim, b: int) -> Dim:
    return a * b


def _crop(padded: Node, starts: Sequence[Dim], sizes: Shape) -> Node | None:
    """slice(pad(x)) -> pad(slice(x)), with less padding."""
    x, before = padded.args[0], padded.attr.before
    if any(isinstance(d, Expr) for d in (*starts, *sizes, *before, *x.shape)):
        return None
    begins, lengths, lows, highs = [], [], [], []
    for start, n, b, dim in zip(starts, sizes, before, x.shape, strict=True):
        low = min(max(b - start, 0), n)
        high = min(max(start + n - b - dim, 0), n)
        begins.append(max(start - b, 0))
        lengths.append(n - low - high)
        lows.append(low)
        highs.append(high)
    if any(n <= 0 for n in lengths):
        return expand(nd.const(padded.attr.value, padded.dtype), sizes) if 0 not in sizes else None
    return pad(slice_(x, begins, tuple(lengths), [1] * len(lengths)), lows, sizes,
               padded.attr.value)


def pad(x: Node, before: Sequence[Dim], shape: Shape, value: bool | int | float) -> Node:
    """Return `x` with `value` around it, so that the result has `shape`."""
    if same_shape(x.shape, shape):
        return x
    known = constant(x)
    if known is not None and same_value(known.attr, value):
        return expand(known, shape)  # pad(c, c) -> c
    if x.op is Op.PAD and same_value(x.attr.value, value):  # pad(pad(x)) -> pad(x)
        return pad(x.args[0], [_add(a, b) for a, b in zip(x.attr.before, before, strict=True)],
                   shape, value)
    if x.op is Op.EXPAND and x.args[0].ndim:
        inner = x.args[0]
        kept = [_repeats(inner, x.shape, a) and same_dim(x.shape[a], shape[a])
                for a in range(x.ndim)]
        if any(kept):  # pad(expand(x)) -> expand(pad(x)) along axes without padding
            near = tuple(1 if k else d for k, d in zip(kept, x.shape, strict=True))
            far = tuple(1 if k else d for k, d in zip(kept, shape, strict=True))
            return expand(pad(expand(inner, near), before, far, value), shape)
    return nd.make(Op.PAD, x.dtype, shape, (x,), nd.PadAttr(tuple(before), value))


def window(x: Node, attr: nd.WindowAttr, shape: Shape) -> Node:
    """Return sliding windows of `x`."""
    found = _filled(x, shape)
    if found is not None:
        return found
    if attr.size == 1 and attr.step == 1:  # one element each
        return reshape(x, shape)
    if x.op is Op.EXPAND:
        inner = x.args[0]
        if _repeats(inner, x.shape, attr.axis):  # windows of equal elements
            return expand(reshape(inner, (*inner.shape, 1)), shape)
        source = tuple(inner.shape)
        short = (*source[:attr.axis], shape[attr.axis], *source[attr.axis + 1:], attr.size)
        return expand(window(inner, attr, short), shape)  # window(expand(x)) -> expand(window(x))
    return nd.make(Op.WINDOW, x.dtype, shape, (x,), attr)


def unwindow(x: Node, attr: nd.UnwindowAttr, shape: Shape) -> Node:
    """Return the adjoint view of windows."""
    known = constant(x)
    if known is not None and same_value(known.attr, dt.check_value(0, x.dtype, "zero")):
        return expand(known, shape)
    if x.op is Op.EXPAND and x.args[0].ndim:
        inner, last = x.args[0], x.ndim - 1
        kept = [a not in (attr.axis, last) and _repeats(inner, x.shape, a) for a in range(x.ndim)]
        if any(kept):  # unwindow(expand(x)) -> expand(unwindow(x)) along the other axes
            near = tuple(1 if k else d for k, d in zip(kept, x.shape, strict=True))
            far = tuple(1 if k else d for k, d in zip(kept, shape, strict=True))
            return expand(unwindow(expand(inner, near), attr, far), shape)
    return nd.make(Op.UNWINDOW, x.dtype, shape, (x,), attr)


def strided(x: Node, attr: nd.StridedAttr, shape: Shape) -> Node:
    """Return a strided view of a flat array."""
    return _filled(x, shape) or nd.make(Op.STRIDED, x.dtype, shape, (x,), attr)


def constant_along(x: Node, axis: int) -> bool:
    """Whether values repeat along an axis."""
    return x.op is Op.EXPAND and (x.args[0].ndim == 0 or _repeats(x.args[0], x.shape, axis))


BUILDERS: Final[dict[Operation, Callable[[Node, Node], Node]]] = {
    Op.RESHAPE: lambda n, x: reshape(x, n.shape),
    Op.PERMUTE: lambda n, x: permute(x, n.attr),
    Op.EXPAND: lambda n, x: expand(x, n.shape),
    Op.SLICE: lambda n, x: slice_(x, n.attr.starts, n.shape, n.attr.steps),
    Op.PAD: lambda n, x: pad(x, n.attr.before, n.shape, n.attr.value),
    Op.WINDOW: lambda n, x: window(x, n.attr, n.shape),
    Op.UNWINDOW: lambda n, x: unwindow(x, n.attr, n.shape),
    Op.STRIDED: lambda n, x: strided(x, n.attr, n.shape),
}
"""``(node, operand) -> the same movement of the operand``, plain."""


def flip(x: Node, axis: int) -> Node:
    """Return `x` reversed along an axis."""
    last: list[Dim] = [0] * x.ndim
    size = x.shape[axis]
    last[axis] = size - 1
    if not isinstance(size, Expr) and size == 0:
        return x
    steps = [1] * x.ndim
    steps[axis] = -1
    return infer.slice_(x, last, x.shape, steps)
