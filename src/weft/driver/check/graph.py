"""Interpret graphs with NumPy, one whole-array operation for each node.

`evaluate` gives each node its value by the rules at the head of ``weft/ir/op.py``: sums of floats
are taken in float64 and rounded once, transcendentals are computed in float64, and 16-bit floats
round once an operation. Tests and ``WEFT_CHECK=1`` compare with it; no result that a user receives
is computed here.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from weft.driver.check.scalars import Array, cast, elementwise, maximum, minimum, widen
from weft.driver.host_memory import to_host
from weft.errors import BoundsError
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.ir.op import Op, Operation
from weft.ir.size import evaluate as evaluate_size
from weft.ir.size import evaluate_all
from weft.ir.stmt import For
from weft.ir.text.text_parse import parse_kernel
from weft.ir.traverse import walk
from weft.runtimes.lockstep.run import Grid, run

__all__ = ["Environment", "array_of", "evaluate", "open_index", "operation",
           "value_of"]

_F64: Final = np.float64


class Environment:
    """What graphs are evaluated with.

    Attributes
    ----------
    arrays : mapping of Storage to array
        Values of leaves; those of other leaves are read from their buffers.
    variables : mapping of str to int
        Values of symbolic sizes.
    """

    __slots__ = ("arrays", "variables")

    def __init__(self, arrays: Mapping[Storage, Array] = MappingProxyType({}),
                 variables: Mapping[str, int] = MappingProxyType({})) -> None:  # fmt: skip
        self.arrays, self.variables = arrays, variables

    def shape(self, node: Node) -> tuple[int, ...]:
        """Return the sizes of a node for the values of the variables."""
        return evaluate_all(node.shape, self.variables)

    def size(self, dim: nd.Dim) -> int:
        """Return one size."""
        return evaluate_size(dim, self.variables)


def array_of(buffer: Any, dtype: Any, shape: Sequence[int]) -> Array:
    """Return the buffer's memory as an array: a view that it must outlive, or a copy from afar."""
    count = math.prod(shape)
    if not buffer.in_process:
        return array_of(to_host(buffer), dtype, shape).copy()
    raw = (ctypes.c_char * max(buffer.nbytes, 1)).from_address(buffer.address)
    return np.frombuffer(raw, dtype=dtype.numpy, count=count).reshape(shape)


def evaluate(nodes: Iterable[Node], env: Environment | None = None) -> dict[Node, Any]:
    """Return the value of each node below `nodes`: an array, or a tuple of them.

    Raises
    ------
    BoundsError
        If an index that is data is out of range.
    """
    values: dict[Node, Any] = {}
    env = env or Environment()
    with np.errstate(all="ignore"):
        for node in nd.toposort(nodes):
            values[node] = value_of(node, [values[a] for a in node.args], env)
    return values


def value_of(node: Node, args: Sequence[Any], env: Environment) -> Any:
    """Return the value of one node, an array or a tuple of them, with its dtype and shape."""
    value = operation(node, args, env)
    if node.op in (Op.SORT, Op.PACK, Op.LAUNCH):
        return value
    value = np.asarray(value)
    assert value.dtype == node.dtype.numpy, (node, value.dtype)
    assert value.shape == env.shape(node), (node, value.shape)
    return value


def operation(node: Node, args: Sequence[Any], env: Environment) -> Any:
    """Return the value of one node for values of its operands."""
    op = node.op
    if op.group in ("unary", "binary", "ternary"):
        return elementwise(op, node.dtype, args)
    return _SPECIAL[op](node, args, env)


# leaves


def _buffer(node: Node, args: Sequence[Any], env: Environment) -> Array:
    storage = node.attr
    if storage in env.arrays:
        return env.arrays[storage]
    assert storage.buffer is not None, "a placeholder without a value"
    return array_of(storage.buffer, storage.dtype, (env.size(storage.size),)).copy()


def _iota(node: Node, args: Sequence[Any], env: Environment) -> Array:
    return np.arange(env.size(node.shape[0])).astype(node.dtype.numpy)


# movement


def _slice(node: Node, args: Sequence[Any], env: Environment) -> Array:
    (x,) = args
    starts = map(env.size, node.attr.starts)
    index = tuple(np.arange(n) * step + start for start, step, n
                  in zip(starts, node.attr.steps, env.shape(node), strict=True))
    return x[np.ix_(*index)] if index else x  # type: ignore[no-any-return]


def _pad(node: Node, args: Sequence[Any], env: Environment) -> Array:
    (x,) = args
    out = np.full(env.shape(node), node.attr.value, node.dtype.numpy)
    before = map(env.size, node.attr.before)
    out[tuple(slice(b, b + n) for b, n in zip(before, x.shape, strict=True))] = x
    return out


def _window(node: Node, args: Sequence[Any], env: Environment) -> Array:
    a = node.attr
    count = env.size(node.shape[a.axis])
    index = np.arange(count)[:, None] * a.step + np.arange(a.size)[None] * a.dilation
    return np.moveaxis(np.take(args[0], index, axis=a.axis), a.axis + 1, -1)


def _unwindow(node: Node, args: Sequence[Any], env: Environment) -> Array:
    a, x = node.attr, args[0]
    out = np.zeros(env.shape(node), x.dtype)
    for w in range(x.shape[-1]):
        for o in range(x.shape[a.axis]):
            i = o * a.step + w * a.dilation
            if i >= out.shape[a.axis]:
                continue
            target: list[Any] = [slice(None)] * x.ndim
            target[a.axis], target[-1] = i, w
            source = list(target)
            source[a.axis] = o
            out[tuple(target)] = x[tuple(source)]
    return out


def _strided(node: Node, args: Sequence[Any], env: Environment) -> Array:
    shape = env.shape(node)
    index = np.full(shape, node.attr.offset)
    for axis, stride in enumerate(node.attr.strides):
        along = [1] * len(shape)
        along[axis] = shape[axis]
        index = index + (np.arange(shape[axis]) * stride).reshape(along)
    return args[0][index]  # type: ignore[no-any-return]


# reductions and scans


def _reduce(node: Node, args: Sequence[Any], env: Environment) -> Array:
    kind, axes, x = node.attr.kind, node.attr.axes, args[0]
    dtype = node.dtype
    if kind in ("any", "all"):
        return np.asarray(getattr(np, kind)(x, axis=axes))
    if kind in ("max", "min"):
        return _extreme(kind, widen(x), axes).astype(dtype.numpy)
    total: Any = np.sum if kind == "sum" else np.prod
    if not dtype.is_float:
        return np.asarray(total(x, axis=axes, dtype=x.dtype))
    wide = np.float32 if dtype.bits < 32 else x.dtype
    return np.asarray(total(x.astype(_F64), axis=axes)).astype(wide).astype(dtype.numpy)


def _extreme(kind: str, x: Array, axes: tuple[int, ...]) -> Array:
    found = np.asarray(getattr(np, "a" + kind)(x, axis=axes))
    if x.dtype.kind != "f":
        return found
    zero = (x == 0) & (np.signbit(x) == (kind == "min"))  # -0 is below +0
    sign = np.where(np.any(zero, axis=axes) == (kind == "min"), -1.0, 1.0)
    return np.where(found == 0, np.copysign(found, sign), found)


def _argreduce(node: Node, args: Sequence[Any], env: Environment) -> Array:
    find: Any = np.argmax if node.attr.kind == "max" else np.argmin
    return np.asarray(find(widen(args[0]), axis=node.attr.axis)).astype(np.int64)


def _scan(node: Node, args: Sequence[Any], env: Environment) -> Array:
    kind, axis, x = node.attr.kind, node.attr.axis, args[0]
    if kind in ("max", "min"):
        return _running(kind, x, axis)
    if not node.dtype.is_float:
        return np.asarray((np.cumsum if kind == "sum" else np.cumprod)(x, axis=axis, dtype=x.dtype))
    wide = np.float32 if node.dtype.bits < 32 else x.dtype
    if kind == "logsumexp":
        found = np.logaddexp.accumulate(x.astype(_F64), axis=axis)
    else:
        found = (np.cumsum if kind == "sum" else np.cumprod)(x.astype(_F64), axis=axis)
    return np.asarray(found).astype(wide).astype(x.dtype)


def _running(kind: str, x: Array, axis: int) -> Array:
    out: Any = np.moveaxis(widen(x).copy(), axis, 0)
    pick = _EXTREMES[kind] if x.dtype.kind not in "biu" else getattr(np, kind + "imum")
    for i in range(1, len(out)):
        out[i] = pick(out[i - 1], out[i])
    return np.asarray(np.moveaxis(out, 0, axis).astype(x.dtype))


_EXTREMES: Final[Mapping[str, Callable[[Array, Array], Array]]] = {"min": minimum, "max": maximum}


def _recurrence(node: Node, args: Sequence[Any], env: Environment) -> Array:
    a, b = (np.moveaxis(x.astype(_F64), node.attr.axis, 0) for x in args)
    out = b.copy()
    for i in range(1, len(out)):
        out[i] = a[i] * out[i - 1] + b[i]
    wide = np.float32 if node.dtype.bits < 32 else args[0].dtype
    return np.asarray(np.moveaxis(out, 0, node.attr.axis).astype(wide).astype(args[0].dtype))


def _backwards(function: Callable[[Node, Sequence[Any], Environment], Array]
               ) -> Callable[[Node, Sequence[Any], Environment], Array]:  # fmt: skip
    """Apply a scan from the end of its axis if the node says so."""
    def apply(node: Node, args: Sequence[Any], env: Environment) -> Array:
        if not node.attr.reverse:
            return function(node, args, env)
        flipped = [np.flip(a, node.attr.axis) for a in args]
        return np.flip(function(node, flipped, env), node.attr.axis)
    return apply


def _sort(node: Node, args: Sequence[Any], env: Environment) -> tuple[Array, Array]:
    axis, x = node.attr.axis, widen(args[0])
    if not node.attr.descending:
        order = np.argsort(x, axis=axis, kind="stable")
    else:
        order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(order, axis)
    if node.attr.keep >= 0:
        order = np.take(order, range(node.attr.keep), axis)
    return np.take_along_axis(args[0], order, axis), order.astype(np.int64)


# gathers, scatters, kernels


def open_index(index: Array, axis: int) -> tuple[Any, ...]:
    """Return what indexes an array as a gather along `axis` does."""
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[axis] = index
    return tuple(grid)


def _check(node: Node, index: Array, bound: int) -> None:
    bad = (index < 0) | (index >= bound)
    if not bad.any():
        return
    place = nd.locations.get(node)
    raise BoundsError(node.attr.what, found=f"index {int(index[bad].ravel()[0])}",
                      expected=f"0 to {bound - 1}",
                      where=None if place is None else (place.file, place.line))  # fmt: skip


def _gather(node: Node, args: Sequence[Any], env: Environment) -> Array:
    x, index = args
    _check(node, index, x.shape[node.attr.axis])
    return x[open_index(index, node.attr.axis)]  # type: ignore[no-any-return]


def _scatter(node: Node, args: Sequence[Any], env: Environment) -> Array:
    base, index, updates = args
    axis, kind = node.attr.axis, node.attr.kind
    _check(node, index, base.shape[axis])
    low = node.dtype.is_float and node.dtype.bits < 32
    out = base.astype(np.float32) if low else base.copy()
    combine = {"add": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}.get(kind)
    if node.dtype.is_float and kind in ("max", "min"):
        combine = _EXTREMES[kind]  # type: ignore[assignment]
    for place in np.ndindex(*index.shape):
        target = (*place[:axis], int(index[place]), *place[axis + 1:])
        value = updates[place].astype(out.dtype)
        if combine is not None:
            value = combine(out[target], value)
        out[target] = value.astype(base.dtype)  # each update rounds
    return out.astype(base.dtype)  # type: ignore[no-any-return]


def _pack(node: Node, args: Sequence[Any], env: Environment) -> tuple[Array, Array]:
    x, flags = args
    chosen = x[flags]
    row = np.concatenate([chosen, np.zeros(len(x) - len(chosen), x.dtype)])
    return row, np.asarray(len(chosen), np.int64)


def _launch(node: Node, args: Sequence[Any], env: Environment) -> list[Array]:
    """Return what a kernel leaves in the arrays that it writes, by the interpreter device."""
    kernel = parse_kernel(node.attr.code)
    arrays = [np.array(a, order="C") if k in node.attr.writes else np.ascontiguousarray(a)
              for k, a in enumerate(args)]
    sizes = {s.kind: int(s.extent.attr) for s in walk(kernel.body)
             if isinstance(s, For) and s.kind.startswith(("block.", "thread."))}
    shape = [(sizes.get(f"{level}.x", 1), sizes.get(f"{level}.y", 1), sizes.get(f"{level}.z", 1))
             for level in ("block", "thread")]
    run(kernel, [a.__array_interface__["data"][0] for a in arrays], {}, Grid(*shape))
    return [arrays[w] for w in node.attr.writes]


_SPECIAL: Final[Mapping[Operation, Callable[[Node, Sequence[Any], Environment], Any]]] = {
    Op.CONST: lambda n, a, e: np.asarray(n.attr, n.dtype.numpy),
    Op.VARIABLE: lambda n, a, e: np.asarray(e.variables[n.attr.name], np.int64),
    Op.CAST: lambda n, a, e: cast(a[0], n.dtype),
    Op.BITCAST: lambda n, a, e: a[0].view(n.dtype.numpy),
    Op.BUFFER: _buffer,
    Op.IOTA: _iota,
    Op.RESHAPE: lambda n, a, e: a[0].reshape(e.shape(n)),
    Op.PERMUTE: lambda n, a, e: a[0].transpose(n.attr),
    Op.EXPAND: lambda n, a, e: np.broadcast_to(a[0], e.shape(n)),
    Op.SLICE: _slice,
    Op.PAD: _pad,
    Op.WINDOW: _window,
    Op.UNWINDOW: _unwindow,
    Op.STRIDED: _strided,
    Op.REDUCE: _reduce,
    Op.ARGREDUCE: _argreduce,
    Op.SCAN: _backwards(_scan),
    Op.RECURRENCE: _backwards(_recurrence),
    Op.SORT: _sort,
    Op.LAUNCH: _launch,
    Op.PROJECT: lambda n, a, e: a[0][n.attr],
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.PACK: _pack,
    Op.CONTIGUOUS: lambda n, a, e: a[0],
    Op.DETACH: lambda n, a, e: a[0],
    Op.COPY: lambda n, a, e: a[0],
}
