"""How operands meet: dtype promotion, weak Python scalars, broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from weft.errors import DTypeError, ShapeError
from weft.frontend.core import Scalar, TensorCore
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Dim, Shape
from weft.ir.op import Operation

__all__ = ["CATEGORY", "binary", "broadcast_shapes", "result_dtype", "scalar_dtype"]

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
        if CATEGORY[weak.kind] <= CATEGORY[strong.kind]:
            return strong
    return dt.promote(da, db)


def broadcast_shapes(operation: str, *shapes: Shape) -> Shape:
    """Return the common shape of operands.

    Raises
    ------
    ShapeError
        If sizes neither agree nor are 1.
    """
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
        if op.result == "bool" and dtype.is_integer and not dtype.min <= value <= dtype.max:
            dtype = dt.float64 if not -(1 << 63) <= value < 1 << 63 else dt.int64
        y, second = None, None
    if kind is not None:
        dtype = kind(dtype)
    if dtype.is_storage_only:
        dtype = dt.float32
    if dtype.kind not in op.kinds:
        raise DTypeError(name, found=_operand_names(self, value),
                         expected=f"a type of kind {_kind_names(op.kinds)}")
    x = infer.cast(x, dtype)
    if y is None:
        y = nd.const(dt.check_value(cast(Scalar, value), dtype, name), dtype)
    else:
        y = infer.cast(y, dtype)
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
