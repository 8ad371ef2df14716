"""Functions on dtypes, sizes and equality: conversion, promotion, comparison."""

from __future__ import annotations

from typing import Any

from weft.errors import ShapeError
from weft.ir import dtype as dt
from weft.tensors.api.functions import _operand
from weft.tensors.api.tensor import Tensor
from weft.tensors.core import promotion
from weft.tensors.core.arguments import check_tensor, choice
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.tensor_value import realize_all
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["allclose", "astype", "can_cast", "equal", "is_tensor", "isdtype", "numel",
           "promote_types", "realize", "result_type"]  # fmt: skip


def astype(x: Any, dtype: object, *, copy: bool = True) -> Tensor:
    """Return the elements converted to a dtype.

    Parameters
    ----------
    {x:array}
    dtype : DType
        To convert to.
    copy : bool
        False returns `x` itself where it has the dtype.

    {Returns: of_x}
    {Raises: weftdtype}

    Examples
    --------
    >>> weft.astype([1.5, 2.5], weft.int32).tolist()
    [1, 2]
    """
    return _operand(x).astype(dtype, copy=copy)


def equal(a: Any, b: Any) -> Any:
    """Return where elements are equal.

    Parameters
    ----------
    a, b : Tensor, array or number
        Broadcast with each other.

    Returns
    -------
    Tensor
        Booleans of the broadcast shape.

    {Raises: broadcast}

    Examples
    --------
    >>> weft.equal([1, 2], 2).tolist()
    [False, True]
    """
    return _operand(a).eq(b)


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
             ) -> bool:  # fmt: skip
    """Return whether all elements are close; computes them.

    Parameters
    ----------
    {both}
    rtol, atol : float
        ``|a - b| <= atol + rtol * |b|`` is close.
    equal_nan : bool
        Whether NaN is close to NaN.

    Returns
    -------
    bool
        True if there are no elements.

    {Raises: broadcast}

    Examples
    --------
    >>> weft.allclose([1.0], weft.tensor([1.000001]))
    True
    """
    return bool(_operand(a).isclose(b, rtol, atol, equal_nan).all())


def result_type(*operands: Any) -> dt.DType:
    """Return the dtype in which operands meet.

    Parameters
    ----------
    *operands : Tensor, array, DType or number
        Tensors without axes do not widen the kind of those with axes, and numbers that of neither.

    Returns
    -------
    DType
        That of the result of their sum.

    {Raises: none}

    Examples
    --------
    >>> weft.result_type(weft.int8, weft.float16).name
    'float16'
    """
    if not operands:
        raise ShapeError("result_type", found="no operands", expected="at least one")
    return promotion.common_dtype(operands)


def realize(*tensors: TensorCore) -> None:
    """Compute several tensors in one plan.

    Parameters
    ----------
    *tensors : Tensor
        Each has its values in memory afterwards.

    Raises
    ------
    DTypeError
        If something is no tensor.

    Examples
    --------
    >>> a = weft.ones(2) + 1
    >>> weft.realize(a, a * 2)
    """
    realize_all([check_tensor(t, "realize") for t in tensors])


def is_tensor(value: object) -> bool:
    """Return whether a value is a tensor.

    Parameters
    ----------
    value : object
        Anything.

    Returns
    -------
    bool
        True for `Tensor` and its subclasses.

    Examples
    --------
    >>> weft.is_tensor([1.0])
    False
    """
    return isinstance(value, Tensor)


def numel(x: Tensor) -> int:
    """Return the number of elements of a tensor.

    {Parameters: x}

    Returns
    -------
    int
        The product of its sizes.

    Raises
    ------
    DTypeError
        If it is no tensor.

    Examples
    --------
    >>> weft.numel(weft.ones(2, 3))
    6
    """
    return check_tensor(x, "numel").numel()


def promote_types(a: object, b: object) -> dt.DType:
    """Return the dtype in which two dtypes meet.

    Parameters
    ----------
    a, b : DType
        Or names of them.

    Returns
    -------
    DType
        The smallest that both fit, as of operands with axes.

    {Raises: dtypes}

    Examples
    --------
    >>> weft.promote_types(weft.int32, weft.float16).name
    'float16'
    """
    return dt.promote(dt.as_dtype(a), dt.as_dtype(b))


_KINDS = {"b": 0, "u": 1, "i": 2, "f": 3}


def can_cast(a: Any, b: object) -> bool:
    """Return whether elements of a type can become another without losing their kind.

    Parameters
    ----------
    a : DType or Tensor
        The type of the elements.
    b : DType
        What they are to become.

    Returns
    -------
    bool
        False for floats as integers, numbers as bools, and signed integers as unsigned.

    {Raises: dtypes}

    Examples
    --------
    >>> weft.can_cast(weft.float32, weft.int32), weft.can_cast(weft.int32, weft.float32)
    (False, True)
    """
    return _KINDS[dt.as_dtype(getattr(a, "dtype", a)).kind] <= _KINDS[dt.as_dtype(b).kind]


def isdtype(dtype: object, kind: Any) -> bool:
    """Return whether a dtype is of a kind, as the array API has it.

    Parameters
    ----------
    dtype : DType
        Or its name.
    kind : str, DType, or tuple of them
        ``bool``, ``signed integer``, ``unsigned integer``, ``integral``, ``real floating``,
        ``complex floating``, ``numeric``, or a dtype.

    Returns
    -------
    bool
        True if it is of one of them.

    Raises
    ------
    RangeError
        If there is no such kind.
    DTypeError
        If `dtype` is none of Weft's types.

    Examples
    --------
    >>> weft.isdtype(weft.float32, "real floating")
    True
    """
    found = dt.as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, k) for k in kind)
    if not isinstance(kind, str):
        return found is dt.as_dtype(kind)
    kinds = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
             "real floating": "f", "complex floating": "", "numeric": "iuf"}  # fmt: skip
    choice(kind, tuple(kinds), "isdtype", "kind")
    return found.kind in kinds[kind]


fill_docstrings(globals())
