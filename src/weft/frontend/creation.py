"""Making tensors: from data, from numbers, from other libraries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft.errors import AllocationError, DTypeError, ShapeError
from weft.exchange import dlpack, host
from weft.frontend import literals, views
from weft.frontend.arguments import check_device, check_tensor
from weft.frontend.core import Scalar, TensorCore, adopt
from weft.frontend.movement import ints
from weft.frontend.tensor import Tensor
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op

__all__ = [
    "arange", "as_tensor", "asarray", "empty", "empty_like", "eye", "from_dlpack", "from_numpy",
    "full", "full_like", "linspace", "logspace", "ones", "ones_like", "tensor", "tril_indices",
    "triu_indices", "zeros", "zeros_like",
]  # fmt: skip


_PLACES: Final = 1 << 24  # what triangle indices are picked from


def _finish(node: Node, requires_grad: bool) -> Tensor:
    out = Tensor._from_node(node)
    return out.requires_grad_() if requires_grad else out


def tensor(data: Any, dtype: object = None, device: object = None, requires_grad: bool = False
           ) -> Tensor:  # fmt: skip
    """Return a tensor with a copy of `data`: numbers, nested lists, or any array.

    Python ints make int64, floats float32, bools bool; arrays keep their type.

    Raises
    ------
    RangeError
        If a value does not fit `dtype`.
    ShapeError
        If nested lists are ragged.
    DTypeError
        If the elements are nothing Weft has a type for.
    """
    check_device(device, "tensor")
    wanted = None if dtype is None else dt.as_dtype(dtype)
    if isinstance(data, Tensor):
        copied = data.detach().clone()
        copied = copied if wanted is None else copied.astype(wanted)
        return copied.requires_grad_() if requires_grad else copied
    # float64 of NumPy is a Python float, too, but names its type
    if isinstance(data, bool | int | float) and not isinstance(data, np.generic):
        kind = wanted or dt.of_value(data)
        value = dt.check_value(data, kind, "tensor")
        return _finish(nd.const(value, kind), requires_grad)
    if isinstance(data, list | tuple | range):
        array, kind = literals.of_list(data, wanted, "tensor")
    else:
        array = np.asarray(data) if isinstance(data, np.generic) else host.as_array(data, "tensor")
        kind = wanted or host.dtype_of(array, "tensor")
        literals.check_range(array, kind, "tensor")
    return _finish(host.store(array, kind), requires_grad)


def asarray(data: Any, dtype: object = None, device: object = None, copy: bool | None = None
            ) -> Tensor:  # fmt: skip
    """Return `data` as a tensor; with ``copy=False`` over the same memory, or an error.

    By default memory is shared where its layout allows, as in the array API.

    Raises
    ------
    DTypeError
        If ``copy=False`` and a copy would be needed.
    """
    check_device(device, "asarray")
    wanted = None if dtype is None else dt.as_dtype(dtype)
    if isinstance(data, Tensor):
        if copy:
            return tensor(data, wanted)
        return data if wanted is None else data.astype(wanted)
    shared = None
    if copy is not True and not isinstance(data, bool | int | float | list | tuple | range):
        array = host.as_array(data, "asarray")
        kind = host.dtype_of(array, "asarray")
        if wanted is None or wanted is kind:
            shared = _share(array, kind)
    if shared is not None:
        return shared
    if copy is False:
        raise DTypeError("asarray", found=f"{type(data).__name__} that needs a copy",
                         expected="aligned memory of the wanted type")
    return tensor(data, wanted)


def _share(array: np.ndarray[Any, Any], kind: DType) -> Tensor | None:
    storage, shape = host.share(array, kind), array.shape
    path: list[views.Step] = []
    if storage is None:
        span = host.share_span(array, kind)
        if span is None:
            return None
        storage = span.storage
        found = views.steps_to(shape, span.offset, span.strides)
        if found is None:  # elements that overlap can be read where they are, but not written
            flat = nd.buffer(storage)
            return Tensor._from_node(views.strided(flat, shape, span.offset, span.strides))
        shape, path = found
    out = Tensor._from_node(host.leaf(storage, shape))
    if array.flags.writeable:
        adopt(out, storage)
    for step in path:
        out = out._view(step)
    return out


def as_tensor(data: Any, dtype: object = None, device: object = None) -> Tensor:
    """Return `data` as a tensor, sharing memory where its layout allows."""
    return asarray(data, dtype, device)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """Return a tensor over the memory of a NumPy array.

    Strides need no copy; memory that is not aligned, or in the other byte order, does. A write
    through the tensor reaches the array when the tensor is realized.
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError("from_numpy", found=type(array).__name__, expected="a NumPy array")
    return asarray(array)


def from_dlpack(value: Any, *, device: object = None, copy: bool | None = None) -> Tensor:
    """Return a tensor over the memory of any library's array that speaks DLPack."""
    check_device(device, "from_dlpack")
    if not hasattr(value, "__dlpack__"):
        raise DTypeError("from_dlpack", found=type(value).__name__,
                         expected="an object with __dlpack__")
    return asarray(dlpack.consume(value), copy=copy)


# constants


def full(size: int | Sequence[int], fill_value: Any, *, dtype: object = None,
         device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return a tensor of one value."""
    check_device(device, "full")
    if isinstance(fill_value, TensorCore):
        made = fill_value.detach()
        kind = made.dtype if dtype is None else dt.as_dtype(dtype)
        node = infer.expand(infer.cast(made._read(), kind), (size,) if isinstance(size, int | Expr)
                            else tuple(size))  # fmt: skip
        return _finish(node, requires_grad)
    kind = dt.of_value(fill_value) if dtype is None else dt.as_dtype(dtype)
    shape = infer.check_shape((size,) if isinstance(size, int | Expr) else tuple(size), "full")
    value = dt.check_value(fill_value, kind, "full")
    return _finish(infer.full(shape, value, kind), requires_grad)


def zeros(*size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
          ) -> Tensor:  # fmt: skip
    """Return a tensor of zeros."""
    return full(ints(size, "zeros"), 0, dtype=dt.float32 if dtype is None else dtype,
                device=device, requires_grad=requires_grad)  # fmt: skip


def ones(*size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
         ) -> Tensor:  # fmt: skip
    """Return a tensor of ones."""
    return full(ints(size, "ones"), 1, dtype=dt.float32 if dtype is None else dtype,
                device=device, requires_grad=requires_grad)  # fmt: skip


def empty(*size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
          ) -> Tensor:  # fmt: skip
    """Return a tensor whose values nobody promises (zeros)."""
    return zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)


def full_like(like: TensorCore, fill_value: Scalar, *, dtype: object = None,
              device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return a tensor of one value with the shape and type of another."""
    check_tensor(like, "full_like")
    return full(like.shape, fill_value, dtype=like.dtype if dtype is None else dtype,
                device=device, requires_grad=requires_grad)  # fmt: skip


def zeros_like(like: TensorCore, *, dtype: object = None, device: object = None,
               requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return zeros with the shape and type of another tensor."""
    return full_like(like, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(like: TensorCore, *, dtype: object = None, device: object = None,
              requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return ones with the shape and type of another tensor."""
    return full_like(like, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(like: TensorCore, *, dtype: object = None, device: object = None,
               requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return a tensor whose values nobody promises, like another one."""
    return full_like(like, 0, dtype=dtype, device=device, requires_grad=requires_grad)


# ranges


def arange(start: Scalar, end: Scalar | None = None, step: Scalar = 1, *, dtype: object = None,
           device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return ``start, start + step, ...`` below `end`."""
    check_device(device, "arange")
    if end is None:
        start, end = 0, start
    if step == 0:
        raise ShapeError("arange", found="a step of 0", expected="another step")
    numbers: tuple[Any, ...] = (start, end, step)
    whole = all(isinstance(v, int | Expr) for v in numbers)
    kind = dt.as_dtype(dtype) if dtype is not None else (dt.int64 if whole else dt.float32)
    count: Any = (max(-((start - end) // step), 0) if whole
             else max(math.ceil((end - start) / step), 0))  # fmt: skip
    index = infer.iota(count if isinstance(count, Expr) else int(count))
    if whole and (kind.is_integer or kind.is_float):
        whole_numbers: list[Any] = [v if isinstance(v, Expr) else int(v) for v in numbers]
        first, _, by = whole_numbers
        node = _affine(index, first, by, dt.int64)
    else:
        node = _affine(infer.cast(index, dt.float64), float(start), float(step), dt.float64)
    if whole and kind.is_integer and not isinstance(count, Expr) and count:
        for value in (int(start), int(start) + (int(count) - 1) * int(step)):
            dt.check_value(value, kind, "arange")
    return _finish(infer.cast(node, kind), requires_grad)


def _affine(x: Node, start: Scalar, step: Scalar, kind: DType) -> Node:
    if step != 1:
        x = infer.elementwise(Op.MUL, x, infer.full(x.shape, step, kind))
    return x if start == 0 else infer.elementwise(Op.ADD, x, infer.full(x.shape, start, kind))


def linspace(start: Scalar, end: Scalar, steps: int, *, dtype: object = None,
             device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return `steps` numbers from `start` to `end`, both included, at equal distances."""
    check_device(device, "linspace")
    kind = dt.float32 if dtype is None else dt.as_dtype(dtype)
    if steps < 0:
        raise ShapeError("linspace", found=f"{steps} steps", expected="at least 0")
    index = infer.cast(infer.iota(steps), dt.float64)
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    forward = _affine(index, float(start), step, dt.float64)
    left = infer.elementwise(Op.SUB, infer.full((steps,), float(steps - 1), dt.float64), index)
    backward = infer.elementwise(Op.SUB, infer.full((steps,), float(end), dt.float64),
                                 _affine(left, 0.0, step, dt.float64))  # fmt: skip
    early = infer.elementwise(Op.LT, index, infer.full((steps,), steps / 2, dt.float64))
    node = infer.elementwise(Op.WHERE, early, forward, backward)
    return _finish(infer.cast(node, kind), requires_grad)


def logspace(start: Scalar, end: Scalar, steps: int, base: Scalar = 10.0, *,
             dtype: object = None) -> Tensor:  # fmt: skip
    """Return `steps` powers of `base` with exponents at equal distances."""
    exponents = linspace(start, end, steps, dtype=dt.float64)
    kind = dt.float32 if dtype is None else dt.as_dtype(dtype)
    return exponents.mul(math.log2(base)).exp2().astype(kind)


def eye(n: int, m: int | None = None, *, dtype: object = None, device: object = None,
        requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return a matrix with ones on the diagonal."""
    check_device(device, "eye")
    columns = n if m is None else m
    rows = infer.expand(infer.reshape(infer.iota(n), (n, 1)), (n, columns))
    same = infer.elementwise(Op.EQ, rows, infer.expand(infer.iota(columns), (n, columns)))
    kind = dt.float32 if dtype is None else dt.as_dtype(dtype)
    return _finish(infer.cast(same, kind), requires_grad)


def tril_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """Return the places of the lower triangle as two rows of int64."""
    return _triangle_places(row, col, lambda i, j: j <= i + offset)


def triu_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """Return the places of the upper triangle as two rows of int64."""
    return _triangle_places(row, col, lambda i, j: j >= i + offset)


def _triangle_places(row: int, col: int, keep: Any) -> Tensor:
    infer.check_shape((row, col), "triangle indices")
    if row * col > _PLACES:
        raise AllocationError("triangle indices", found=f"a triangle of {row} by {col}",
                              expected=f"at most {_PLACES} places")
    places = [(i, j) for i in range(row) for j in range(col) if keep(i, j)]
    return tensor(np.array(places, np.int64).reshape(-1, 2).T)
