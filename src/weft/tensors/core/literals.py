"""Numbers that the user writes down, alone or in nested lists, checked against a type."""

from __future__ import annotations

import math
from typing import Any, Final, TypeVar

import numpy as np

from weft.errors import DTypeError, RangeError, ShapeError
from weft.exchange import host
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.tensors.core.lazy_tensor import TensorCore

__all__ = ["check_range", "of_list", "source", "whole"]

T = TypeVar("T", bound=TensorCore)

_EXACT: Final = 2.0**53  # from here on, a float64 does not tell an integer from its neighbours


def source(target: T, value: object, operation: str) -> object:
    """Return what is written into `target`, with lists and arrays as tensors of its type.

    Raises
    ------
    RangeError
        If the type cannot hold a number of a list or an array. (Tensors are converted by value.)
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | range):
        array, _ = of_list(value, target.dtype, operation)
    elif isinstance(value, np.ndarray):
        host.dtype_of(value, operation)
        array = value
        check_range(array, target.dtype, operation)
    else:
        return value
    return target._from_node(target._beside(host.store(array, target.dtype)))


def whole(value: Any, dtype: DType) -> Any:
    """Return a number as it is stored in a type: integers take it without its fraction.

    What is not finite, or no float of Python's, is returned as it is.
    """
    if type(value) is float and dtype.is_integer and math.isfinite(value):
        return int(value)
    return value


def of_list(data: Any, wanted: DType | None, operation: str
            ) -> tuple[np.ndarray[Any, Any], DType]:  # fmt: skip
    """Return nested lists as an array that may be stored as the type beside it.

    Raises
    ------
    ShapeError, DTypeError, RangeError
        If they are ragged, hold other things than numbers, or numbers that `wanted` cannot hold.
    """
    try:
        plain = _plain(data)
    except RecursionError:
        raise ShapeError(operation, found="lists nested without end",
                         expected="a rectangular array") from None
    try:
        array = np.array(plain)
        if array.dtype == np.float64 and array.size and np.abs(array).max() >= _EXACT:
            array = np.array(plain, object)  # NumPy turns large ints of mixed size into floats
    except ValueError:
        raise ShapeError(operation, found="nested lists of unequal lengths",
                         expected="a rectangular array") from None
    if array.dtype == object:
        flat = [v for v in np.ravel(array).tolist()]
        if not all(isinstance(v, bool | int | float) for v in flat):
            if any(isinstance(v, list | tuple) for v in flat):
                raise ShapeError(operation, found="nested lists of unequal lengths",
                                 expected="a rectangular array")
            raise DTypeError(operation, found=f"a list of {type(flat[0]).__name__}",
                             expected="numbers")
        kind = wanted or (dt.float32 if any(isinstance(v, float) for v in flat) else dt.int64)
        values = [dt.check_value(v, kind, operation) for v in flat]
        exact = np.array(values, np.float64 if kind.is_float else kind.numpy)
        return exact.reshape(array.shape), kind
    if array.dtype.kind not in "biuf":
        raise DTypeError(operation, found=f"a list of {array.dtype}", expected="numbers")
    kind = wanted or _natural(plain, array, operation)
    check_range(array, kind, operation)
    return array, kind


def _plain(data: Any) -> Any:
    """Return nested lists with tensors replaced by their values."""
    if isinstance(data, TensorCore):
        return np.asarray(data)
    if isinstance(data, list | tuple) and any(isinstance(v, list | tuple | TensorCore)
                                              for v in data):  # fmt: skip
        return [_plain(v) for v in data]
    return data


def _natural(plain: Any, array: np.ndarray[Any, Any], operation: str) -> DType:
    if array.dtype.kind == "b":
        return dt.bool_
    first = plain
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if array.dtype.kind in "iu":
        if isinstance(first, np.ndarray | np.generic):
            return dt.as_dtype(array.dtype)
        if array.size and array.dtype.kind == "u" and array.max() > dt.int64.max:
            raise RangeError(operation, found=str(array.max()), expected="a value of int64")
        return dt.int64
    if isinstance(first, np.ndarray | np.generic):
        return dt.as_dtype(first.dtype)
    return dt.float32


def check_range(array: np.ndarray[Any, Any], kind: DType, operation: str) -> None:
    """Raise a RangeError where an integer type cannot hold an element."""
    if not kind.is_integer or array.size == 0 or array.dtype.kind == "b":
        return
    if array.dtype.kind == "f":
        wide = array.astype(np.float64)  # in which max + 1, a power of two, is exact
        bad = array[~((wide >= kind.min) & (wide < float(kind.max) + 1.0))]
    elif array.dtype.kind in "iu":
        low, high = int(array.min()), int(array.max())
        if low >= kind.min and high <= kind.max:
            return
        bad = array[(array < kind.min) if low < kind.min else (array > kind.max)]
    else:
        return
    if bad.size:
        raise RangeError(operation, found=str(bad.ravel()[0]),
                         expected=f"a value of {kind.name}, {kind.min} to {kind.max}")
