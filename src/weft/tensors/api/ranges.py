"""Tensors of numbers at equal distances, and of positions: ranges, identities, triangles."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from weft.errors import AllocationError, DTypeError, RangeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.tensors.api.creation import finished, tensor
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import count_of, number, place_of
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["arange", "eye", "linspace", "logspace", "tril_indices", "triu_indices"]

_PLACES: Final = 1 << 24  # what triangle indices are picked from


def arange(start: Scalar, end: Scalar | None = None, step: Scalar = 1, *, dtype: object = None,
           device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return ``start, start + step, ...`` below `end`.

    Parameters
    ----------
    start : number
        The first element; 0 if it is the only argument, which is the end then.
    end : number, optional
        The first number that is left out.
    step : number
        May be negative, not 0.
    dtype : DType, optional
        int64 for integers and float32 for floats by default.
    {options:rest}

    Returns
    -------
    Tensor
        1-d, of ``ceil((end - start) / step)`` elements.

    Raises
    ------
    ShapeError
        If the step is 0.
    RangeError
        If a bound is not finite, or an element does not fit `dtype`.

    Examples
    --------
    >>> weft.arange(1, 7, 2).tolist()
    [1, 3, 5]
    """
    place = place_of(device, "arange")
    if end is None:
        start, end = 0, start
    given: tuple[Any, ...] = (start, end, step)
    numbers: tuple[Any, ...] = tuple(v if isinstance(v, Expr) else number(v, "arange")
                                     for v in given)  # fmt: skip
    start, end, step = numbers
    whole = all(isinstance(v, int | Expr) for v in numbers)
    if not whole and not all(math.isfinite(v) for v in numbers):
        raise RangeError("arange", found=f"{start} to {end} by {step}", expected="finite numbers")
    if step == 0:
        raise ShapeError("arange", found="a step of 0", expected="another step")
    kind = (dt.int64 if whole else dt.float32) if dtype is None else _number_kind(dtype, "arange")
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
    return finished(infer.cast(node, kind), requires_grad, place)


def _affine(x: Node, start: Scalar, step: Scalar, kind: DType) -> Node:
    if step != 1:
        x = infer.elementwise(Op.MUL, x, infer.full(x.shape, step, kind))
    return x if start == 0 else infer.elementwise(Op.ADD, x, infer.full(x.shape, start, kind))


def _number_kind(dtype: object, operation: str) -> DType:
    """Return the type of a range of numbers, which bool cannot hold.

    Raises
    ------
    DTypeError
        If it is bool, or none of Weft's types.
    """
    kind = dt.as_dtype(dtype)
    if kind.is_bool:
        raise DTypeError(operation, found="dtype bool", expected="a type of numbers",
                         hint="compare the numbers with something to get booleans")
    return kind


def linspace(start: Scalar, end: Scalar, steps: int, *, dtype: object = None,
             device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return `steps` numbers from `start` to `end`, both included, at equal distances.

    Parameters
    ----------
    start, end : number
        The first and the last element.
    {steps dtype:float32 options:rest}

    {Returns: steps}
    {Raises: steptype}

    Examples
    --------
    >>> weft.linspace(0, 1, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    place = place_of(device, "linspace")
    kind = _number_kind(dt.float32 if dtype is None else dtype, "linspace")
    start, end = number(start, "linspace"), number(end, "linspace")
    steps = count_of(steps, "linspace", 0)
    index = infer.cast(infer.iota(steps), dt.float64)
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    forward = _affine(index, float(start), step, dt.float64)
    left = infer.elementwise(Op.SUB, infer.full((steps,), float(steps - 1), dt.float64), index)
    backward = infer.elementwise(Op.SUB, infer.full((steps,), float(end), dt.float64),
                                 _affine(left, 0.0, step, dt.float64))  # fmt: skip
    early = infer.elementwise(Op.LT, index, infer.full((steps,), steps / 2, dt.float64))
    node = infer.elementwise(Op.WHERE, early, forward, backward)
    return finished(infer.cast(node, kind), requires_grad, place)


def logspace(start: Scalar, end: Scalar, steps: int, base: Scalar = 10.0, *,
             dtype: object = None, device: object = None, requires_grad: bool = False
             ) -> Tensor:  # fmt: skip
    """Return `steps` powers of `base` with exponents at equal distances.

    Parameters
    ----------
    start, end : number
        The first and the last exponent.
    {steps}
    base : number
        Above 0.
    {dtype:float32 options:rest}

    {Returns: steps}
    {Raises: steptype}

    Examples
    --------
    >>> weft.logspace(0, 3, 4, base=2.0).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    kind = _number_kind(dt.float32 if dtype is None else dtype, "logspace")
    exponents = linspace(start, end, steps, dtype=dt.float64, device=device)
    made = exponents.mul(math.log2(base)).exp2().astype(kind)
    return made.requires_grad_() if requires_grad else made


def eye(n: int, m: int | None = None, *, dtype: object = None, device: object = None,
        requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return a matrix with ones on the diagonal.

    Parameters
    ----------
    n : int
        Rows.
    m : int, optional
        Columns; as many as rows by default.
    {options:float32}

    Returns
    -------
    Tensor
        Shape ``[n, m]``.

    {Raises: negative}

    Examples
    --------
    >>> weft.eye(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    place = place_of(device, "eye")
    columns = n if m is None else m
    rows = infer.expand(infer.reshape(infer.iota(n), (n, 1)), (n, columns))
    same = infer.elementwise(Op.EQ, rows, infer.expand(infer.iota(columns), (n, columns)))
    kind = dt.float32 if dtype is None else dt.as_dtype(dtype)
    return finished(infer.cast(same, kind), requires_grad, place)


def tril_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """Return the positions of the lower triangle of a matrix.

    Parameters
    ----------
    {rows}
    offset : int
        Of the highest diagonal that belongs to it, above the main one.

    {Returns: triangle}
    {Raises: large}

    Examples
    --------
    >>> weft.tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle_places(row, col, lambda i, j: j <= i + offset)


def triu_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """Return the positions of the upper triangle of a matrix.

    Parameters
    ----------
    {rows}
    offset : int
        Of the lowest diagonal that belongs to it, above the main one.

    {Returns: triangle}
    {Raises: large}

    Examples
    --------
    >>> weft.triu_indices(2, 2).tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle_places(row, col, lambda i, j: j >= i + offset)


def _triangle_places(row: int, col: int, keep: Any) -> Tensor:
    infer.check_shape((row, col), "triangle indices")
    if row * col > _PLACES:
        raise AllocationError("triangle indices", found=f"a triangle of {row} by {col}",
                              expected=f"at most {_PLACES} places")
    places = [(i, j) for i in range(row) for j in range(col) if keep(i, j)]
    return tensor(np.array(places, np.int64).reshape(-1, 2).T)


fill_docstrings(globals())
