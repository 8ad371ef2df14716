"""Values of kernels as numba's types, for what a program chooses by types."""

from __future__ import annotations

import enum
import inspect
from typing import Any

import numpy as np

from weft.compat import types
from weft.compat.numba_types import (
    ArrayOf,
    Type,
    bfloat16,
    from_dtype,
    int64,
    is_of_numba,
    tuple_type,
)
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.lang.core import optional
from weft.lang.core.element_types import ComplexOf, TextOf, TimeOf, as_dtype
from weft.lang.core.values import Fields, Group, Known, View
from weft.lang.values import complex_numbers
from weft.lang.values.enums import is_member

__all__ = ["type_of"]


def type_of(value: Any, known: bool = False) -> Any:
    """Return numba's type of a value in a kernel; with `known` a literal one where there is."""
    if isinstance(value, Expr):
        return _number(value.dtype)
    if isinstance(value, View):
        return ArrayOf(_number(value.dtype), len(value.axes), _layout(value), value.readonly)
    if isinstance(value, Fields):
        return _of_fields(value)
    if isinstance(value, Group):
        return _of_group(value)
    return _of_object(value.value if isinstance(value, Known) else value, known)


def _number(d: DType) -> Any:
    if d is dt.bfloat16:
        return bfloat16
    return from_dtype(d.numpy)


def _layout(view: View) -> str:
    """Return ``C`` for a view that is a whole array in row-major order, else ``A``."""
    memory = view.memory
    whole = len(view.axes) == len(memory.shape) and all(
        a.axis == k and a.extent is memory.shape[k] for k, a in enumerate(view.axes))
    return "C" if whole or not view.axes else "A"


def _of_fields(value: Fields) -> Any:
    if value.kind is complex:
        element = _complex(type_of(value.parts[0]).dtype)
    elif value.kind is not None:
        element = _of_kind(value.kind)
    else:
        element = types.Record(np.dtype([(name, type_of(part).kind) for name, part in zip(
            value.names, value.parts, strict=True)]))
    return ArrayOf(element, value.ndim, "A") if value.ndim else element


def _complex(part: Any) -> Any:
    return types.complex64 if part == types.float32 else types.complex128


def _of_group(value: Group) -> Any:
    kind: Any = value.kind
    if kind is complex:
        return _complex(type_of(complex_numbers.group(*value.items).items[0]))
    if optional.is_optional(value):
        return types.Optional(type_of(value.items[1]))
    if isinstance(kind, TimeOf | TextOf):
        return _of_kind(kind)
    if is_member(value) and isinstance(kind.options[0], str):
        return types.unicode_type
    if is_member(value):
        return types.EnumMember(type(kind.options[0]), int64)
    items = tuple(map(type_of, value.items))
    if kind is None or (isinstance(kind, type) and issubclass(kind, tuple)):
        return tuple_type(items, kind or tuple)
    return types.Instance(kind, dict(zip(value.names, items, strict=False)))


def _of_kind(kind: TimeOf | TextOf) -> Any:
    return from_dtype(np.dtype(kind.__name__))


def _of_object(value: Any, known: bool) -> Any:
    """Return the type of what is known when the kernel is compiled."""
    if value is None:
        return types.none
    found = _of_literal(value, known)
    if found is not None:
        return found
    if isinstance(value, Type) or is_of_numba(value) or isinstance(value, type | DType):
        d = as_dtype(value)
        return types.Dummy(repr(value)) if d is None else types.NumberClass(_number(d))
    if isinstance(value, ComplexOf):
        return types.NumberClass(_complex(_number(value.dtype)))
    if inspect.ismodule(value):
        return types.Module(value)
    if hasattr(value, "__weft_function__"):
        return types.Dispatcher(value)
    return types.Function(value) if callable(value) else types.Opaque(type(value).__name__)


def _of_literal(value: Any, known: bool) -> Any:
    if isinstance(value, enum.Enum):
        return types.EnumMember(type(value), type_of(value.value))
    if isinstance(value, bool | int | str):
        kind: Any = types.literal(value)
        return kind if known else kind.literal_type
    if isinstance(value, float):
        return types.float64
    if isinstance(value, complex):
        return types.complex128
    if isinstance(value, np.generic):
        return from_dtype(value.dtype)
    return None
