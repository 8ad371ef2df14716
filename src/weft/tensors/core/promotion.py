"""Type promotion and broadcasting of operands, with weakly typed Python scalars."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, cast

from weft.errors import DTypeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Dim, Shape
from weft.ir.op import Operation
from weft.tensors.core.devices import together
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.runtime_scalars import constant, fits
from weft.tensors.core.tensor_value import Scalar

__all__ = ["CATEGORY", "binary", "broadcast_shapes", "common_dtype", "result_dtype", "scalar_dtype"]

CATEGORY: Final = {"b": 0, "u": 1, "i": 1, "f": 2}


def scalar_dtype(value: Scalar, other: DType) -> DType:
    """Return the type in which a weak Python scalar meets `other`."""
    if isinstance(value, bool):
        return other
    if isinstance(value, int):
        return dt.int64 if other.is_bool else other
    return other if other.is_float else dt.float32


def result_dtype(a: TensorCore, b: TensorCore) -> DType:
    """Return the type in which two tensors meet; a 0-d tensor does not widen its own kind."""
    da, db = a.dtype, b.dtype
    if da is db:
        return da
    if bool(a.shape) != bool(b.shape):
        strong, weak = (da, db) if a.shape else (db, da)
        return _stronger(strong, weak)
    return dt.promote(da, db)


def common_dtype(operands: Iterable[object]) -> DType:
    """Return the type in which tensors, arrays, dtypes and Python's numbers meet."""
    found: list[DType | None] = [None, None, None]  # of those with axes, without, and of numbers
    for x in operands:
        rank = 2 if type(x) in (bool, int, float) else 0
        kind = dt.of_value(cast(Scalar, x)) if rank else dt.as_dtype(getattr(x, "dtype", x))
        if getattr(x, "shape", None) == ():
            rank = 1
        known = found[rank]
        found[rank] = kind if known is None else dt.promote(known, kind)
    strong, zero, number = found
    kinds = [k for k in (strong, zero, number) if k is not None]
    out = kinds.pop()
    while kinds:
        out = _stronger(kinds.pop(), out)
    return out


def _stronger(strong: DType, weak: DType) -> DType:
    return strong if CATEGORY[weak.kind] <= CATEGORY[strong.kind] else dt.promote(strong, weak)


def broadcast_shapes(operation: str, *shapes: Shape) -> Shape:
    """Return the common shape of operands.

    Raises
    ------
    ShapeError
        If sizes neither agree nor are 1.
    """
    if not shapes:
        return ()
    first, rest = shapes[0], shapes[1:]
    if len(rest) == 1 and (not rest[0] or not first):
        return first or rest[0]
    if all(s == first for s in rest):
        return first
    ndim = max(map(len, shapes))
    out: list[Dim] = [1] * ndim
    for shape in shapes:
        for i, n in enumerate(shape, ndim - len(shape)):
            if infer.same_dim(out[i], n) or infer.same_dim(n, 1):
                continue
            if not infer.same_dim(out[i], 1):
                raise ShapeError(
                    operation, found=" and ".join(str(tuple(s)) for s in shapes),
                    expected="sizes that agree or are 1, counted from the last axis",
                )
            out[i] = n
    return tuple(out)


def binary(self: TensorCore, other: object, op: Operation, name: str,
           kind: Callable[[DType], DType] | None = None, reverse: bool = False
           ) -> TensorCore:  # fmt: skip
    """Return ``op(self, other)`` broadcast and promoted; `kind` adjusts the common dtype."""
    value = self._coerce(other, name)
    x = self._read()
    if isinstance(value, TensorCore):
        dtype = result_dtype(self, value)
        y, second = value._read(), value
    else:
        dtype = scalar_dtype(value, self.dtype)
        if op.result == "bool" and dtype.is_integer and not fits(value, dtype):
            dtype = dt.float64 if not -(1 << 63) <= value < 1 << 63 else dt.int64
        y, second = None, None
    if kind is not None:
        dtype = kind(dtype)
    if dtype.is_storage_only:
        dtype = dt.float32
    if dtype.kind not in op.kinds:
        raise DTypeError(name, found=_operand_names(self, value),
                         expected=f"a type of kind {_kind_names(op.kinds)}")
    if x.dtype is not dtype:
        x = infer.cast(x, dtype)
    if y is None:
        y = nd.spread(constant(value, dtype, name), x.shape)
    elif y.dtype is not dtype:
        y = infer.cast(y, dtype)
    if x.device is not y.device and y.device and x.device:
        x, y = together((x, y))
    if x.shape != y.shape:
        shape = broadcast_shapes(name, x.shape, y.shape)
        x, y = infer.expand(x, shape), infer.expand(y, shape)
    return self._wrap(infer.elementwise(op, y, x) if reverse else infer.elementwise(op, x, y),
                      second)  # fmt: skip


def _operand_names(a: TensorCore, b: TensorCore | Scalar) -> str:
    return f"{a.dtype.name} and " + (b.dtype.name if isinstance(b, TensorCore) else repr(b))


def _kind_names(kinds: str) -> str:
    names = {"b": "bool", "u": "unsigned", "i": "integer", "f": "float"}
    return " or ".join(names[k] for k in kinds)
