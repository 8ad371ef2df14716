"""Checked builders of graph nodes: the shape and dtype of every operation.

The front end broadcasts and promotes before it calls these, so that operands of an elementwise
node have one shape and, but for WHERE's condition and casts, one dtype.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from weft.errors import AxisError, DTypeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.expr import Expr, needs_size
from weft.ir.history import History
from weft.ir.node import Dim, Node, Shape
from weft.ir.op import Op, Operation
from weft.ir.size import canonical, span_of

REDUCE_KINDS = ("sum", "prod", "max", "min", "any", "all")
SCAN_KINDS = ("sum", "prod", "max", "min")
SCATTER_KINDS = ("set", "add", "prod", "max", "min")
MAX_ELEMENTS = 1 << 63


def as_int(value: object, operation: str) -> int:
    """Return a whole number: an int, or what says it is one (NumPy's integers do).

    Raises
    ------
    DTypeError
        If it is anything else; a float is, also where it has no fraction.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        plain = isinstance(value, (str, bytes, float, list, tuple, dict, type(None)))
        found = f"{value!r:.60}" if plain else f"a {type(value).__name__}"
        raise DTypeError(operation, found=found, expected="an integer") from None


def check_shape(shape: Sequence[Dim], operation: str) -> Shape:
    """Return `shape` as a tuple of sizes.

    Raises
    ------
    DTypeError
        If a size is no integer.
    ShapeError
        If a size is negative, or there are 2**63 elements (beside a 0, 2**59: strides are bytes).
    """
    total = 1
    for dim in shape:
        if type(dim) is not int:
            return _symbolic_shape(shape, operation)
        if dim < 0:
            raise ShapeError(operation, found=f"the size {dim} in {tuple(shape)}",
                             expected="sizes of at least 0")
        total *= dim
    if total >= MAX_ELEMENTS:
        raise ShapeError(operation, found=f"{tuple(shape)}, {total} elements",
                         expected="fewer than 2**63 elements")
    if not total and math.prod([d for d in shape if d]) >= MAX_ELEMENTS >> 4:
        raise ShapeError(operation, found=str(tuple(shape)), expected="sizes below 2**59 beside 0")
    return tuple(shape)


def _symbolic_shape(shape: Sequence[Dim], operation: str) -> Shape:
    """Return a shape of which a size is no int: one spelling for each symbolic size."""
    sizes = tuple([canonical(d) if isinstance(d, Expr) else as_int(d, operation) for d in shape])
    most = 1
    for dim in sizes:
        low, high = span_of(dim)
        if low < 0:
            raise ShapeError(operation, found=f"the size {dim} in {sizes}, as small as {low}",
                             expected="sizes of at least 0")
        most *= high
    if most >= MAX_ELEMENTS:
        raise ShapeError(operation, found=f"{sizes}, up to {most} elements",
                         expected="fewer than 2**63 elements")
    return sizes


def check_axis(axis: int, ndim: int, operation: str) -> int:
    """Return the axis counted from the front.

    Raises
    ------
    AxisError
        If there is no such axis.
    DTypeError
        If it is no integer.
    """
    if type(axis) is not int:
        axis = as_int(axis, operation)
    if not -ndim <= axis < ndim:
        raise AxisError(operation, found=f"axis {axis} of an array with {ndim} axes",
                        expected=f"{-ndim} to {ndim - 1}" if ndim else "no axis")
    return axis % ndim


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two sizes are provably equal."""
    if a is b:
        return True
    if isinstance(a, Expr) or isinstance(b, Expr):
        return canonical(a) == canonical(b)
    return a == b


def same_shape(a: Shape, b: Shape) -> bool:
    """Whether two shapes are provably equal."""
    if a is b:
        return True
    if len(a) != len(b):
        return False
    return all(x is y or same_dim(x, y) for x, y in zip(a, b, strict=True))


def elementwise(op: Operation, *args: Node) -> Node:
    """Return ``op(*args)``, all of one shape."""
    if op.arity == 2 == len(args):  # what most are, and right
        x, y = args
        dtype = x.dtype
        if x.shape == y.shape and dtype is y.dtype and dtype.kind in op.kinds:
            return nd.make(op, dt.bool_ if op.result == "bool" else dtype, x.shape, args)
    first = args[1] if op is Op.WHERE else args[0]
    if op.arity != len(args):
        raise DTypeError(op.name, found=f"{len(args)} operands", expected=f"{op.arity}")
    for arg in args:
        if arg.shape is not first.shape and not same_shape(arg.shape, first.shape):
            raise ShapeError(op.name, found=" and ".join(str(a.shape) for a in args),
                             expected="one shape")
    values = args
    if op is Op.WHERE:
        values = args[1:]
        if args[0].dtype is not dt.bool_:
            raise DTypeError("where", found=f"a condition of {args[0].dtype.name}", expected="bool")
    if first.dtype.kind not in op.kinds or any(a.dtype is not first.dtype for a in values):
        raise DTypeError(op.name, found=" and ".join(a.dtype.name for a in args),
                         expected=f"one type, of kind {op.kinds!r} (b bool, u/i integer, f float)")
    return nd.make(op, dt.bool_ if op.result == "bool" else first.dtype, first.shape, args)


def cast(x: Node, dtype: DType) -> Node:
    """Return `x` converted to `dtype`."""
    return x if x.dtype is dtype else nd.make(Op.CAST, dtype, x.shape, (x,))


def bitcast(x: Node, dtype: DType) -> Node:
    """Return the bits of `x` as another type of equal width."""
    if x.dtype.itemsize != dtype.itemsize or x.dtype.is_bool or dtype.is_bool:
        raise DTypeError("bitcast", found=f"{x.dtype.name} to {dtype.name}",
                         expected="two non-bool types of equal width")
    return x if x.dtype is dtype else nd.make(Op.BITCAST, dtype, x.shape, (x,))


def full(shape: Shape, value: bool | int | float | Expr, dtype: DType) -> Node:
    """Return a constant, or a size, expanded to `shape`."""
    if isinstance(value, Expr):
        return expand(cast(of_size(value), dtype), shape)
    return expand(nd.const(value, dtype), shape)


def of_size(size: Dim) -> Node:
    """Return a size as a 0-d int64 array."""
    done: dict[Expr, Node] = {}
    root = as_expr(canonical(size))
    for e in ex.toposort([root]):
        if e.op is Op.CONST:
            done[e] = nd.const(e.attr, dt.int64)
        elif e.op is Op.VARIABLE:
            done[e] = nd.variable(e)
        else:
            done[e] = elementwise(e.op, *[done[a] for a in e.args])
    return done[root]


def iota(n: Dim, dtype: DType = dt.int64) -> Node:
    """Return ``0, 1, ..., n - 1``."""
    return nd.make(Op.IOTA, dtype, check_shape((n,), "arange"))


def reshape(x: Node, shape: Sequence[Dim]) -> Node:
    """Return the elements of `x`, in row-major order, in another shape.

    A reshape of a reshape stays one, so that gradients find each on their way.
    """
    shape = check_shape(shape, "reshape")
    if same_shape(x.shape, shape):
        return x
    a, b = nd.size(x.shape), nd.size(shape)
    if not same_dim(a, b):
        raise ShapeError("reshape", found=f"{x.shape} to {shape}",
                         expected=f"{a} elements, not {b}")
    return nd.make(Op.RESHAPE, x.dtype, shape, (x,))


def permute(x: Node, axes: Sequence[int]) -> Node:
    """Return `x` with its axes reordered: ``out.shape[i] = x.shape[axes[i]]``."""
    order = tuple(check_axis(a, x.ndim, "permute") for a in axes)
    if sorted(order) != list(range(x.ndim)):
        raise AxisError("permute", found=f"axes {tuple(axes)}",
                        expected=f"each of the {x.ndim} axes once")
    if order == tuple(range(x.ndim)):
        return x
    return nd.make(Op.PERMUTE, x.dtype, tuple(x.shape[a] for a in order), (x,), order)


def expand(x: Node, shape: Sequence[Dim]) -> Node:
    """Return `x` broadcast to `shape`: axes are added in front, sizes of 1 repeated."""
    shape = check_shape(shape, "expand")
    if same_shape(x.shape, shape):
        return x
    lead = len(shape) - x.ndim
    if lead < 0 or any(not same_dim(a, b) and not same_dim(a, 1)
                       for a, b in zip(x.shape, shape[max(lead, 0):], strict=False)):
        raise ShapeError("expand", found=f"{x.shape} to {shape}",
                         expected="equal sizes, or 1, counted from the last axis")
    if lead and x.ndim:
        x = reshape(x, (1,) * lead + x.shape)
        if same_shape(x.shape, shape):
            return x
    return nd.make(Op.EXPAND, x.dtype, shape, (x,))


def slice_(x: Node, starts: Sequence[Dim], sizes: Sequence[Dim],
           steps: Sequence[int] | None = None) -> Node:  # fmt: skip
    """Return ``out[i] = x[start + i * step]`` with `sizes` elements an axis."""
    steps = tuple(steps) if steps is not None else (1,) * x.ndim
    sizes = check_shape(sizes, "slice")
    if not len(starts) == len(sizes) == len(steps) == x.ndim:
        raise ShapeError("slice", found=f"{len(starts)} starts for {x.ndim} axes",
                         expected="one an axis")
    for axis, (start, n, step) in enumerate(zip(starts, sizes, steps, strict=True)):
        given: object = step
        if isinstance(given, Expr):
            raise needs_size(f"a step of {step!r}")
        dim = x.shape[axis]
        if isinstance(start, Expr) or isinstance(n, Expr) or isinstance(dim, Expr) or n == 0:
            continue
        last = start + (n - 1) * step
        if step == 0 or not (0 <= start < dim and 0 <= last < dim):
            raise ShapeError("slice", found=f"{start} to {last} on axis {axis} of {x.shape}",
                             expected="indices inside the array")
    if same_shape(x.shape, sizes) and all(s == 1 for s in steps):
        return x
    starts = tuple([canonical(s) for s in starts])
    return nd.make(Op.SLICE, x.dtype, sizes, (x,), nd.SliceAttr(starts, steps))


def pad(x: Node, before: Sequence[Dim], after: Sequence[Dim],
        value: bool | int | float = 0) -> Node:  # fmt: skip
    """Return `x` with `value` around it; amounts are at least 0 (slice first to crop)."""
    if not len(before) == len(after) == x.ndim:
        raise ShapeError("pad", found=f"{len(before)} and {len(after)} amounts",
                         expected=f"one for each of {x.ndim} axes")
    if any(not isinstance(p, Expr) and p < 0 for p in (*before, *after)):
        raise ShapeError("pad", found=f"{tuple(before)}, {tuple(after)}", expected="amounts >= 0")
    before = [canonical(b) for b in before]
    shape = check_shape([_add(_add(s, b), a)
                         for s, b, a in zip(x.shape, before, after, strict=True)], "pad")
    if same_shape(shape, x.shape):
        return x
    attr = nd.PadAttr(tuple(before), dt.check_value(value, x.dtype, "pad"))
    return nd.make(Op.PAD, x.dtype, shape, (x,), attr)


def _add(a: Dim, b: Dim) -> Dim:
    return b + a if isinstance(b, Expr) else a + b


def window(x: Node, axis: int, size: int, step: int = 1, dilation: int = 1) -> Node:
    """Return sliding windows: ``out[.., o, .., w] = x[.., o * step + w * dilation, ..]``.

    The axis keeps the number of whole windows; the window is appended as the last axis.
    """
    axis = check_axis(axis, x.ndim, "window")
    size, step, dilation = (as_int(n, "window") for n in (size, step, dilation))
    span = (size - 1) * dilation + 1
    dim = x.shape[axis]
    if isinstance(dim, Expr):
        raise ShapeError("window", found=f"the symbolic size {dim!r}", expected="a fixed size")
    if size < 1 or step < 1 or dilation < 1 or span > dim or step >= MAX_ELEMENTS:
        raise ShapeError("window", found=f"size {size}, step {step}, dilation {dilation} on axis "
                         f"{axis} of {x.shape}", expected="at least 1 each, and a window that fits")
    shape = (*x.shape[:axis], (dim - span) // step + 1, *x.shape[axis + 1:], size)
    return nd.make(Op.WINDOW, x.dtype, check_shape(shape, "window"), (x,),
                   nd.WindowAttr(axis, size, step, dilation))


def unwindow(x: Node, axis: int, step: int, dilation: int, length: int) -> Node:
    """Return the adjoint view of `window` (the last axis is the window; sum over it to fold)."""
    axis = check_axis(axis, x.ndim - 1, "unwindow")
    shape = (*x.shape[:axis], length, *x.shape[axis + 1:])
    return nd.make(Op.UNWINDOW, x.dtype, check_shape(shape, "unwindow"), (x,),
                   nd.UnwindowAttr(axis, step, dilation))


def strided(x: Node, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Node:
    """Return ``out[i, j] = x[offset + i * strides[0] + j * strides[1]]`` of a flat array."""
    dims = check_shape(shape, "strided")
    total = x.shape[0]
    low = high = offset
    for n, stride in zip(shape, strides, strict=True):
        low, high = low + min(0, (n - 1) * stride), high + max(0, (n - 1) * stride)
    if x.ndim != 1 or (0 not in dims and (
        low < 0 or (not isinstance(total, Expr) and high >= total)
    )):
        raise ShapeError("strided", found=f"elements {low} to {high} of {x.shape}",
                         expected="indices inside a flat array")
    row_major = tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))
    if offset == 0 and tuple(strides) == row_major and same_dim(math.prod(shape), total):
        return reshape(x, dims)
    return nd.make(Op.STRIDED, x.dtype, dims, (x,), nd.StridedAttr(offset, tuple(strides)))


def reduce(x: Node, kind: str, axes: Sequence[int], single: bool = False) -> Node:
    """Return `x` reduced over `axes` (dropped), in the dtype of `x`.

    Sums and products of 8- and 16-bit floats accumulate in f32 and round once; max and min
    propagate NaN. An empty max or min has no value. For `single` see `ReduceAttr`.
    """
    order = tuple(sorted(check_axis(a, x.ndim, kind) for a in axes))
    if len(set(order)) != len(order):
        raise AxisError(kind, found=f"axes {tuple(axes)}", expected="each axis at most once")
    if (kind in ("any", "all")) != x.dtype.is_bool and kind not in ("max", "min"):
        raise DTypeError(kind, found=x.dtype.name,
                         expected="bool" if kind in ("any", "all") else "a number type")
    if kind in ("max", "min") and any(same_dim(x.shape[a], 0) for a in order):
        raise ShapeError(kind, found=f"an empty axis in {x.shape}", expected="at least one element")
    if not order:
        return x
    shape = tuple(s for a, s in enumerate(x.shape) if a not in order)
    return nd.make(Op.REDUCE, x.dtype, shape, (x,), nd.ReduceAttr(kind, order, single))


def argreduce(x: Node, kind: str, axis: int) -> Node:
    """Return the int64 index of the first largest (``max``) or smallest (``min``) element."""
    axis = check_axis(axis, x.ndim, f"arg{kind}")
    if same_dim(x.shape[axis], 0):
        raise ShapeError(f"arg{kind}", found=f"an empty axis in {x.shape}",
                         expected="at least one element")
    shape = x.shape[:axis] + x.shape[axis + 1:]
    return nd.make(Op.ARGREDUCE, dt.int64, shape, (x,), nd.ArgAttr(kind, axis))


def scan(x: Node, kind: str, axis: int, reverse: bool = False) -> Node:
    """Return the inclusive running sum, product, maximum, minimum, or logarithm of a sum.

    With `reverse` the last element comes first.
    """
    axis = check_axis(axis, x.ndim, f"cum{kind}")
    if x.dtype.is_bool or (kind == "logsumexp" and not x.dtype.is_float):
        raise DTypeError(f"cum{kind}", found=x.dtype.name,
                         expected="a float type" if kind == "logsumexp" else "a number type")
    return nd.make(Op.SCAN, x.dtype, x.shape, (x,), nd.ScanAttr(kind, axis, reverse))


def recurrence(a: Node, b: Node, axis: int, reverse: bool = False) -> Node:
    """Return h with ``h[0] = b[0]`` and ``h[k] = a[k] * h[k - 1] + b[k]`` along an axis.

    Raises
    ------
    ShapeError, DTypeError
        If the operands are not of one shape and one float type.
    """
    axis = check_axis(axis, b.ndim, "recurrence")
    if not same_shape(a.shape, b.shape):
        raise ShapeError("recurrence", found=f"{a.shape} and {b.shape}", expected="one shape")
    if a.dtype is not b.dtype or not b.dtype.is_float:
        raise DTypeError("recurrence", found=f"{a.dtype.name} and {b.dtype.name}",
                         expected="one float type")
    return nd.make(Op.RECURRENCE, b.dtype, b.shape, (a, b), nd.ScanAttr("linear", axis, reverse))


def sort(x: Node, axis: int, descending: bool = False, keep: int = -1) -> tuple[Node, Node]:
    """Return the sorted values and their int64 indices; stable, NaN counts as largest.

    `keep` elements of the order are wanted, the first ones; all for -1.
    """
    axis = check_axis(axis, x.ndim, "sort")
    shape = x.shape if keep < 0 else tuple(
        keep if a == axis else d for a, d in enumerate(x.shape))
    both = nd.make(Op.SORT, x.dtype, shape, (x,), nd.SortAttr(axis, descending, keep))
    return (nd.make(Op.PROJECT, x.dtype, shape, (both,), 0),
            nd.make(Op.PROJECT, dt.int64, shape, (both,), 1))


def launch(code: str, name: str, args: Sequence[Node], writes: Sequence[int],
           fresh: Sequence[int] = (), why: Sequence[str] = ()) -> tuple[Node, ...]:  # fmt: skip
    """Return what a kernel of blocks and threads leaves in the arrays that it writes to.

    Raises
    ------
    ShapeError
        If it writes to none, or to what is no operand.
    """
    if not writes or any(not 0 <= w < len(args) for w in writes) or not {*fresh} <= {*writes}:
        raise ShapeError("launch", found=f"results {tuple(writes)}", expected="operands by number")
    first = args[writes[0]]
    whole = nd.make(Op.LAUNCH, first.dtype, first.shape, tuple(args),
                    nd.LaunchAttr(code, name, tuple(writes), tuple(fresh), tuple(why)))
    return tuple(nd.make(Op.PROJECT, args[w].dtype, args[w].shape, (whole,), k)
                 for k, w in enumerate(writes))


def _check_index(x: Node, index: Node, axis: int, operation: str) -> None:
    if not index.dtype.is_integer:
        raise DTypeError(operation, found=f"an index of {index.dtype.name}", expected="an integer")
    if index.ndim != x.ndim or any(
        a != axis and not isinstance(m, Expr) and not isinstance(n, Expr) and m > n
        for a, (m, n) in enumerate(zip(index.shape, x.shape, strict=False))
    ):
        raise ShapeError(operation, found=f"an index of shape {index.shape} into {x.shape}",
                         expected=f"equal ranks, and no larger size but on axis {axis}")


def gather(x: Node, index: Node, axis: int, what: str = "gather") -> Node:
    """Return ``out[i, j] = x[index[i, j], j]`` (axis 0); `index` is checked when it runs."""
    axis = check_axis(axis, x.ndim, what)
    _check_index(x, index, axis, what)
    return nd.make(Op.GATHER, x.dtype, index.shape, (x, index), nd.GatherAttr(axis, what))


def scatter(base: Node, index: Node, updates: Node, axis: int, kind: str = "set",
            what: str = "scatter") -> Node:  # fmt: skip
    """Return `base` with ``out[index[i, j], j] (op)= updates[i, j]`` (axis 0), in order.

    Of bool, a sum is whether any is true and a product whether all are.
    """
    axis = check_axis(axis, base.ndim, what)
    _check_index(base, index, axis, what)
    if base.dtype.is_bool:
        kind = {"add": "max", "prod": "min"}.get(kind, kind)
    if not same_shape(index.shape, updates.shape) or updates.dtype is not base.dtype:
        raise ShapeError(what, found=f"updates {updates.dtype.name}{list(updates.shape)}",
                         expected=f"{base.dtype.name}{list(index.shape)}, as the index and base")
    return nd.make(Op.SCATTER, base.dtype, base.shape, (base, index, updates),
                   nd.ScatterAttr(axis, kind, what))


def pack(x: Node, flags: Node) -> tuple[Node, Node]:
    """Return a row that begins with the elements of `x` whose flag is true, and how many they are.

    They keep their order. What is behind them is whatever was in the row's memory.

    Raises
    ------
    ShapeError, DTypeError
        If the operands are not two rows of one length, the second one of bool.
    """
    if x.ndim != 1 or not same_shape(x.shape, flags.shape):
        raise ShapeError("pack", found=f"{x.shape} and {flags.shape}", expected="rows of a length")
    if not flags.dtype.is_bool:
        raise DTypeError("pack", found=flags.dtype.name, expected="flags of bool")
    both = nd.make(Op.PACK, x.dtype, x.shape, (x, flags))
    return (nd.make(Op.PROJECT, x.dtype, x.shape, (both,), 0),
            nd.make(Op.PROJECT, dt.int64, (), (both,), 1))


def contiguous(x: Node) -> Node:
    """Return `x`, to be held in memory of its own."""
    return nd.make(Op.CONTIGUOUS, x.dtype, x.shape, (x,))


def copy(x: Node, device: str) -> Node:
    """Return `x` on a device: a copy of it, or, of what is on none, computed there."""
    return x if x.device == device else nd.make(Op.COPY, x.dtype, x.shape, (x,), device)


def detach(x: Node) -> Node:
    """Return `x` as a constant of differentiation."""
    return nd.make(Op.DETACH, x.dtype, x.shape, (x,))


def overwritten(x: Node, history: Node, replaced: bool = False) -> Node:
    """Return the value `x` with the gradient of another node (see `weft.ir.history.History`).

    Parameters
    ----------
    x
        The elements.
    history
        What was recorded of the tensor that has them, of the shape and dtype of `x`.
    replaced
        Whether gradients go to `x`, and zeros to `history`; else they go to `history` alone.
    """
    return nd.make(Op.DETACH, x.dtype, x.shape, (x,), History(history, replaced))




def as_expr(dim: Dim) -> Expr:
    """Return a size, fixed or symbolic, as an int64 expression."""
    return dim if isinstance(dim, Expr) else ex.index(dim)
