"""Functions of several tensors: joining, contracting, broadcasting.

Operands may be anything that makes a tensor; arrays are copied, as in `weft.tensors.api.functions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir import infer
from weft.tensors.api.creation import tensor
from weft.tensors.api.tensor import Tensor
from weft.tensors.core import promotion
from weft.tensors.core.arguments import items_of
from weft.tensors.core.axis_names import takes_axis
from weft.tensors.docs.documented import fill_docstrings
from weft.tensors.ops import contraction, join
from weft.tensors.ops.movement import ints

__all__ = ["broadcast_arrays", "broadcast_shapes", "broadcast_tensors", "cat", "concat",
           "concatenate", "einsum", "hstack", "meshgrid", "stack", "vstack"]  # fmt: skip


def _operand(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else tensor(value)


@takes_axis
def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Return tensors joined along an axis.

    Parameters
    ----------
    {tensors}
    dim : int
        The axis along which they are joined; ``axis=`` is another name.

    {Returns: common}
    {Raises: catsizes}

    Examples
    --------
    >>> weft.cat([weft.zeros(1), weft.ones(2)]).tolist()
    [0.0, 1.0, 1.0]
    """
    return join.cat([_operand(t) for t in items_of(tensors, "cat")], dim)


def concat(tensors: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Return tensors joined along an axis; None joins them flattened.

    Parameters
    ----------
    {tensors}
    axis : int or None
        The axis along which they are joined.

    {Returns: common}
    {Raises: cat}

    Examples
    --------
    >>> weft.concat([weft.zeros(1, 1), weft.ones(2)], axis=None).tolist()
    [0.0, 1.0, 1.0]
    """
    if axis is None:
        return join.cat([_operand(t).ravel() for t in items_of(tensors, "concat")], 0)
    return cat(tensors, axis)


concatenate = concat


@takes_axis
def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Return tensors of one shape joined along a new axis.

    Parameters
    ----------
    tensors : sequence of Tensor or array
        All of one shape.
    dim : int
        Where the new axis stands in the result; ``axis=`` is another name.

    {Returns: common}
    {Raises: stacksizes}

    Examples
    --------
    >>> weft.stack([weft.zeros(2), weft.ones(2)], 1).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    return join.stack([_operand(t) for t in items_of(tensors, "stack")], dim)


def hstack(tensors: Sequence[Any]) -> Tensor:
    """Return tensors joined along axis 1 (vectors and numbers along axis 0).

    {Parameters: tensors}
    {Returns: common}
    {Raises: cat}

    Examples
    --------
    >>> weft.hstack([1, weft.tensor([2, 3])]).tolist()
    [1, 2, 3]
    """
    given = map(_operand, items_of(tensors, "hstack"))
    parts = [p if p.shape else p.reshape(1) for p in given]
    return join.cat(parts, 1 if parts and len(parts[0].shape) > 1 else 0)


def vstack(tensors: Sequence[Any]) -> Tensor:
    """Return tensors joined along axis 0, vectors as rows.

    {Parameters: tensors}

    Returns
    -------
    Tensor
        In the dtype in which all meet; at least 2-d.

    {Raises: cat}

    Examples
    --------
    >>> weft.vstack([weft.zeros(2), weft.ones(2)]).shape
    (2, 2)
    """
    parts = [_operand(t) for t in items_of(tensors, "vstack")]
    return join.cat([p.reshape(1, -1) if len(p.shape) < 2 else p for p in parts], 0)


def einsum(equation: str, *operands: Any) -> Tensor:
    """Return the sum of products that an equation names: ``"bij,bjk->bik"``.

    Parameters
    ----------
    equation : str
        A letter for each axis; those absent behind ``->`` are summed over.
    *operands : Tensor or array
        One for each term; ``...`` stands for axes that broadcast.

    {Returns: einsum}
    {Raises: einsum}

    Examples
    --------
    >>> weft.einsum("i,j->ij", [1, 2], [3, 4]).tolist()
    [[3, 4], [6, 8]]
    """
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    return contraction.einsum(equation, *[_operand(t) for t in operands])


def meshgrid(*tensors: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Return the coordinates of the points of a grid, an array for each axis.

    Parameters
    ----------
    *tensors : Tensor or array
        The coordinates along each axis.
    {indexing}

    Returns
    -------
    tuple of Tensor
        Of one shape, as many as axes.

    {Raises: indexing}

    Examples
    --------
    >>> weft.meshgrid([1, 2, 3], [4, 5])[1].tolist()
    [[4, 4, 4], [5, 5, 5]]
    """
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple) and any(
        isinstance(t, Tensor) for t in tensors[0]
    ):
        tensors = tuple(tensors[0])
    return join.meshgrid(*[_operand(t) for t in tensors], indexing=indexing)


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Return views of tensors broadcast to their common shape.

    Parameters
    ----------
    *tensors : Tensor or array
        Of any shapes that broadcast.

    Returns
    -------
    tuple of Tensor
        All of one shape.

    {Raises: broadcast}

    Examples
    --------
    >>> weft.broadcast_tensors(weft.ones(2, 1), [1, 2, 3])[1].shape
    (2, 3)
    """
    return join.broadcast_tensors(*[_operand(t) for t in tensors])


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """Return `broadcast_tensors` as a list, as the array API has it.

    Parameters
    ----------
    *arrays : Tensor or array
        Of any shapes that broadcast.

    Returns
    -------
    list of Tensor
        All of one shape.

    {Raises: broadcast}

    Examples
    --------
    >>> len(weft.broadcast_arrays(weft.ones(2, 1), weft.ones(3)))
    2
    """
    return list(broadcast_tensors(*arrays))


def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to: ``()`` for none.

    Parameters
    ----------
    *shapes : int or sequence of int
        A number is a shape of one axis.

    Returns
    -------
    tuple of int
        The common shape.

    Raises
    ------
    ShapeError
        If they do not broadcast.

    Examples
    --------
    >>> weft.broadcast_shapes((2, 1), 3)
    (2, 3)
    """
    sizes = [infer.check_shape(ints((s,), "broadcast_shapes"), "broadcast_shapes") for s in shapes]
    return tuple(int(n) for n in promotion.broadcast_shapes("broadcast_shapes", *sizes))


fill_docstrings(globals())
