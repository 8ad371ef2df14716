"""Functions composed of others, with a tensor as the first argument or several of them.

Operands may be anything that makes a tensor; arrays are copied, as in `weft.tensors.api.functions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import ShapeError
from weft.ir import infer
from weft.tensors.api.combined import cat, stack
from weft.tensors.api.creation import zeros
from weft.tensors.api.functions import _operand
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import items_of
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "cartesian_prod",
           "column_stack", "cumulative_sum", "dstack", "expand_dims", "matrix_transpose",
           "repeat", "row_stack", "take_along_axis", "unstack", "vecdot", "where"]  # fmt: skip


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Return `x` where a condition holds, else `y`; alone, the positions where it holds.

    Parameters
    ----------
    condition : Tensor
        Booleans; broadcasts with `x` and `y`.
    x, y : Tensor or number
        Given both, or neither.

    Returns
    -------
    Tensor or tuple of Tensor
        Of the broadcast shape; or int64 positions for each axis.

    {Raises: broadcast}

    Examples
    --------
    >>> weft.where(weft.tensor([True, False]), 1, 2).tolist()
    [1, 2]
    """
    chooser = _operand(condition)
    if x is None and y is None:
        return chooser.nonzero(as_tuple=True)
    return chooser.where(x, y)


def expand_dims(x: Any, axis: Any = 0) -> Tensor:
    """Return `x` with an axis of size 1 before axis `axis`.

    Parameters
    ----------
    {x:array}
    axis : int or tuple of int
        Where the new axes stand in the result.

    Returns
    -------
    Tensor
        A view with one axis more, or several.

    Raises
    ------
    AxisError
        If there is no such place.

    Examples
    --------
    >>> weft.expand_dims(weft.ones(2, 3), 1).shape
    (2, 1, 3)
    """
    out = _operand(x)
    places = axis if isinstance(axis, tuple) else (axis,)
    rank = len(out.shape) + len(places)
    for at in sorted(infer.check_axis(a, rank, "expand_dims") for a in places):
        out = out.unsqueeze(at)
    return out


def matrix_transpose(x: Any) -> Tensor:
    """Return the last two axes exchanged.

    Parameters
    ----------
    x : Tensor or array
        Shape ``[..., m, n]``.

    Returns
    -------
    Tensor
        A view of shape ``[..., n, m]``.

    {Raises: twoaxes}

    Examples
    --------
    >>> weft.matrix_transpose(weft.ones(2, 3)).shape
    (3, 2)
    """
    return _operand(x).mT


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    """Return elements picked along an axis, as the array API and NumPy have it.

    Parameters
    ----------
    {x:array}
    indices : Tensor of integers
        Of as many axes; negative ones count from the end.
    axis : int
        The axis.

    Returns
    -------
    Tensor
        Of the shape of `indices`, broadcast with the other axes of `x`.

    Raises
    ------
    ShapeError
        If there are not as many axes.
    BoundsError
        If an index is out of range; told when the result is computed.

    Examples
    --------
    >>> weft.take_along_axis([[1, 2], [3, 4]], [[1], [0]], axis=1).tolist()
    [[2], [3]]
    """
    return _operand(x).take_along_dim(_operand(indices), axis)


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Return each element of an axis repeated in place, as the array API and NumPy have it.

    Parameters
    ----------
    {x:array}
    repeats : int, or Tensor of int
        How often, or one number for each element.
    axis : int, optional
        The axis; None flattens first.

    Returns
    -------
    Tensor
        As of `Tensor.repeat_interleave`. (The method `Tensor.repeat` is PyTorch's: it repeats the
        whole tensor.)

    {Raises: counts}

    Examples
    --------
    >>> weft.repeat([1, 2], 2).tolist()
    [1, 1, 2, 2]
    """
    return _operand(x).repeat_interleave(repeats, axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return all slices of an axis, as the array API has it.

    Parameters
    ----------
    {x:axes}
    axis : int
        The axis, which the slices lack.

    {Returns: views}
    {Raises: dim}

    Examples
    --------
    >>> [part.tolist() for part in weft.unstack([[1, 2], [3, 4]])]
    [[1, 2], [3, 4]]
    """
    return _operand(x).unbind(axis)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: object = None,
                   include_initial: bool = False) -> Tensor:  # fmt: skip
    """Return running sums along an axis, as the array API has it.

    Parameters
    ----------
    {x:axes}
    axis : int, optional
        The axis; may be left out of a vector.
    dtype : DType, optional
        That of the sums.
    include_initial : bool
        Whether a 0 stands before the sums.

    Returns
    -------
    Tensor
        Of the shape of `x`, one longer with the 0.

    Raises
    ------
    ShapeError
        If there are several axes and none is named.

    Examples
    --------
    >>> weft.cumulative_sum([1, 2, 3], include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    given = _operand(x)
    if axis is None and len(given.shape) != 1:
        raise ShapeError("cumulative_sum", found=f"{given.shape}", expected="axis=")
    at = given._axis(0 if axis is None else axis, "cumulative_sum")
    sums: Tensor = given.cumsum(at, dtype=dtype)
    if not include_initial:
        return sums
    lead = tuple(1 if a == at else n for a, n in enumerate(sums.shape))
    return cat([zeros(*lead, dtype=sums.dtype), sums], at)


def vecdot(a: Any, b: Any, /, *, axis: int = -1) -> Tensor:
    """Return sums of products along an axis.

    Parameters
    ----------
    {both}
    axis : int
        The axis of the vectors.

    Returns
    -------
    Tensor
        Without the axis.

    {Raises: broadcast}

    Examples
    --------
    >>> weft.vecdot([1, 2], [3, 4]).item()
    11
    """
    return _operand(a).mul(_operand(b)).sum(axis)


def _at_least(x: Any, count: int) -> Tensor:
    found = _operand(x)
    while len(found.shape) < count:
        found = found.unsqueeze(0 if len(found.shape) < 2 else -1)
    return found


def _each(tensors: tuple[Any, ...], count: int) -> Any:
    if len(tensors) == 1 and not isinstance(tensors[0], list | tuple):
        return _at_least(tensors[0], count)
    given = tensors[0] if len(tensors) == 1 else tensors
    return tuple(_at_least(t, count) for t in given)


def atleast_1d(*tensors: Any) -> Any:
    """Return tensors with at least one axis.

    {Parameters: tensors:each}

    Returns
    -------
    Tensor, or tuple of Tensor
        Numbers become vectors.

    {Raises: makesnone}

    Examples
    --------
    >>> weft.atleast_1d(weft.tensor(1.0)).shape
    (1,)
    """
    return _each(tensors, 1)


def atleast_2d(*tensors: Any) -> Any:
    """Return tensors with at least two axes; vectors become rows.

    {Parameters: tensors:each}

    Returns
    -------
    Tensor, or tuple of Tensor
        Views with axes of size 1 in front.

    {Raises: makesnone}

    Examples
    --------
    >>> weft.atleast_2d(weft.ones(3)).shape
    (1, 3)
    """
    return _each(tensors, 2)


def atleast_3d(*tensors: Any) -> Any:
    """Return tensors with at least three axes; vectors become ``[1, n, 1]``.

    {Parameters: tensors:each}

    Returns
    -------
    Tensor, or tuple of Tensor
        Views with axes of size 1.

    {Raises: makesnone}

    Examples
    --------
    >>> weft.atleast_3d(weft.ones(3)).shape
    (1, 3, 1)
    """
    return _each(tensors, 3)


def dstack(tensors: Sequence[Any]) -> Tensor:
    """Return tensors joined along axis 2.

    Parameters
    ----------
    tensors : sequence of Tensor or array
        Those with fewer axes count as of `atleast_3d`.

    {Returns: common}
    {Raises: cat}

    Examples
    --------
    >>> weft.dstack([weft.zeros(2), weft.ones(2)]).shape
    (1, 2, 2)
    """
    return cat([_at_least(t, 3) for t in items_of(tensors, "dstack")], 2)


def column_stack(tensors: Sequence[Any]) -> Tensor:
    """Return tensors joined along axis 1, vectors as columns.

    Parameters
    ----------
    tensors : sequence of Tensor or array
        Of equal length.

    {Returns: common}
    {Raises: cat}

    Examples
    --------
    >>> weft.column_stack([weft.tensor([1, 2]), weft.tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    parts = [_operand(t) for t in items_of(tensors, "column_stack")]
    return cat([p.reshape(-1, 1) if len(p.shape) < 2 else p for p in parts], 1)


def row_stack(tensors: Sequence[Any]) -> Tensor:
    """Return tensors joined along axis 0, vectors as rows: `vstack`.

    {Parameters: tensors}
    {Returns: common}
    {Raises: cat}

    Examples
    --------
    >>> weft.row_stack([weft.zeros(2), weft.ones(2)]).shape
    (2, 2)
    """
    return cat([_at_least(t, 2) for t in items_of(tensors, "row_stack")], 0)


def block_diag(*tensors: Any) -> Tensor:
    """Return a matrix with matrices along its diagonal, and zeros elsewhere.

    Parameters
    ----------
    *tensors : Tensor or array
        Matrices; vectors count as rows.

    {Returns: common}

    Raises
    ------
    ShapeError
        If one has more than two axes, or there are none.

    Examples
    --------
    >>> weft.block_diag(weft.tensor([1]), weft.tensor([[2], [3]])).tolist()
    [[1, 0], [0, 2], [0, 3]]
    """
    parts = [_at_least(t, 2) for t in tensors]
    if any(len(p.shape) > 2 for p in parts):
        raise ShapeError("block_diag", found="more than two axes", expected="matrices")
    width, before, rows = sum(p.shape[1] for p in parts), 0, []
    for part in parts:
        rows.append(part.pad((before, width - before - part.shape[1])))
        before += part.shape[1]
    return cat(rows, 0)


def cartesian_prod(*tensors: Any) -> Tensor:
    """Return all combinations of one element of each vector, as rows.

    Parameters
    ----------
    *tensors : Tensor or array
        Vectors of one dtype.

    Returns
    -------
    Tensor
        Of shape ``[combinations, vectors]``; a single vector as it is.

    {Raises: none}

    Examples
    --------
    >>> weft.cartesian_prod([1, 2], [3, 4]).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    parts = [_operand(t) for t in tensors]
    if len(parts) == 1:
        return parts[0]
    total = 1
    for p in parts:
        total *= p.numel()
    columns, inner = [], total
    for p in parts:
        inner //= max(p.numel(), 1)
        columns.append(p.repeat_interleave(inner).repeat(total // max(p.numel() * inner, 1)))
    return stack(columns, 1)


fill_docstrings(globals())
