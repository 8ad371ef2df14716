"""Create tensors from data, from numbers, and from arrays of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.config import config
from weft.errors import DTypeError
from weft.exchange import dlpack, host
from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import HOST, Node
from weft.tensors.api.tensor import Tensor
from weft.tensors.core import literals, views
from weft.tensors.core.arguments import check_tensor, place_of
from weft.tensors.core.axis_names import takes_axis
from weft.tensors.core.devices import AUTO, moved
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.owners import adopt
from weft.tensors.core.runtime_scalars import constant
from weft.tensors.core.strides import steps_to, strided
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.docs.documented import fill_docstrings
from weft.tensors.ops.movement import ints

__all__ = ["as_tensor", "asarray", "empty", "empty_like", "from_dlpack", "from_numpy", "full",
           "full_like", "ones", "ones_like", "tensor", "zeros", "zeros_like"]  # fmt: skip


def finished(node: Node, requires_grad: bool, place: str = "") -> Tensor:
    """Return a node as a tensor on a device, learned if asked for."""
    out = Tensor._from_node(moved(node, place))
    return out.requires_grad_() if requires_grad else out


def tensor(data: Any, dtype: object = None, device: object = None, requires_grad: bool = False
           ) -> Tensor:  # fmt: skip
    """Return a tensor with a copy of `data`: numbers, nested lists, or any array.

    Python ints make int64, floats float32, bools bool; arrays keep their type.

    Parameters
    ----------
    data : number, nested lists, array or Tensor
        Arrays by the buffer protocol or DLPack, too.
    dtype : DType, optional
        To convert to.
    {device:new requires_grad}

    Returns
    -------
    Tensor
        The shape of the nested lists or of the array.

    Raises
    ------
    RangeError
        If a value does not fit `dtype`.
    ShapeError
        If nested lists are ragged.
    DTypeError
        If the elements are nothing Weft has a type for.

    Examples
    --------
    >>> weft.tensor([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    place = place_of(device, "tensor")
    wanted = None if dtype is None else dt.as_dtype(dtype)
    if isinstance(data, Tensor):
        copied = data.detach().clone()
        copied = copied if device is None else copied.to(device=device)
        copied = copied if wanted is None else copied.astype(wanted)
        return copied.requires_grad_() if requires_grad else copied
    # float64 of NumPy is a Python float, too, but names its type
    if isinstance(data, bool | int | float) and not isinstance(data, np.generic):
        kind = wanted or dt.of_value(data)
        return finished(constant(data, kind, "tensor"), requires_grad, place)
    if isinstance(data, list | tuple | range):
        array, kind = literals.of_list(data, wanted, "tensor")
    else:
        array = np.asarray(data) if isinstance(data, np.generic) else host.as_array(data, "tensor")
        kind = wanted or host.dtype_of(array, "tensor")
        literals.check_range(array, kind, "tensor")
    return finished(host.store(array, kind), requires_grad, place)


def asarray(data: Any, dtype: object = None, device: object = None, copy: bool | None = None
            ) -> Tensor:  # fmt: skip
    """Return `data` as a tensor; with ``copy=False`` over the same memory, or an error.

    By default memory is shared where its layout allows, as in the array API.

    {Parameters: data copy:always}
    {Returns: itself}

    Raises
    ------
    DTypeError
        If ``copy=False`` and a copy would be needed.

    Examples
    --------
    >>> array = np.zeros(2)
    >>> shared = weft.asarray(array)
    >>> array[0] = 5.0
    >>> shared.tolist()
    [5.0, 0.0]
    """
    place = place_of(device, "asarray")
    wanted = None if dtype is None else dt.as_dtype(dtype)
    if isinstance(data, Tensor):
        if copy:
            return tensor(data, wanted, device)
        there = data if device is None else data.to(device=device)
        return there if wanted is None else there.astype(wanted)
    shared = None
    shares = place in ("", HOST, AUTO) and copy is not True
    if shares and not isinstance(data, bool | int | float | list | tuple | range):
        array = host.as_array(data, "asarray")
        kind = host.dtype_of(array, "asarray")
        if wanted is None or wanted is kind:
            shared = _share(array, kind)
    if shared is not None:
        return shared.to(device=device) if place == AUTO and copy is None else shared
    if copy is False:
        raise DTypeError("asarray", found=f"{type(data).__name__} that needs a copy",
                         expected="aligned memory of the wanted type")
    return tensor(data, wanted, device)


def _share(array: np.ndarray[Any, Any], kind: DType) -> Tensor | None:
    storage, shape = host.share(array, kind), array.shape
    path: list[views.Step] = []
    if storage is None:
        span = host.share_span(array, kind)
        if span is None:
            return None
        storage = span.storage
        found = steps_to(shape, span.offset, span.strides)
        if found is None:  # elements that overlap can be read where they are, but not written
            flat = nd.buffer(storage)
            return Tensor._from_node(strided(flat, shape, span.offset, span.strides))
        shape, path = found
    out = Tensor._from_node(host.leaf(storage, shape))
    if array.flags.writeable:
        adopt(out, storage)
    for step in path:
        out = out._view(step)
    return out


def as_tensor(data: Any, dtype: object = None, device: object = None) -> Tensor:
    """Return `data` as a tensor, sharing memory where its layout allows.

    {Parameters: data}
    {Returns: itself}
    {Raises: notype}

    Examples
    --------
    >>> weft.as_tensor(np.arange(3)).tolist()
    [0, 1, 2]
    """
    return asarray(data, dtype, device)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """Return a tensor over the memory of a NumPy array.

    Strides need no copy; memory that is not aligned, or in the other byte order, does. Each write
    through the tensor reaches the array at once.

    Parameters
    ----------
    array : numpy.ndarray
        Of any dtype that Weft has.

    {Returns: array}

    Raises
    ------
    DTypeError
        If it is no NumPy array, or its dtype is none of Weft's.

    Examples
    --------
    >>> array = np.zeros(2)
    >>> shared = weft.from_numpy(array).add_(1)
    >>> array.tolist()
    [1.0, 1.0]
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError("from_numpy", found=type(array).__name__, expected="a NumPy array")
    return asarray(array)


def from_dlpack(value: Any, *, device: object = None, copy: bool | None = None) -> Tensor:
    """Return a tensor over the memory of any library's array that speaks DLPack.

    Parameters
    ----------
    value : object
        With the method ``__dlpack__``.
    device : str, optional
        The CPU.
    {copy:always}

    {Returns: array}

    Raises
    ------
    DTypeError
        If the object does not speak DLPack, or ``copy=False`` and a copy is needed.

    Examples
    --------
    >>> weft.from_dlpack(np.arange(3)).tolist()
    [0, 1, 2]
    """
    place_of(device, "from_dlpack")
    if not hasattr(value, "__dlpack__"):
        raise DTypeError("from_dlpack", found=type(value).__name__,
                         expected="an object with __dlpack__")
    return asarray(dlpack.consume(value), device=device, copy=copy)


# constants


@takes_axis
def full(size: int | Sequence[int], fill_value: Any, *, dtype: object = None,
         device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return a tensor of one value.

    Parameters
    ----------
    size : int or sequence of int
        The shape; ``shape=`` is another name.
    fill_value : number or 0-d Tensor
        Its type is the default dtype.
    dtype : DType, optional
        That of the elements.
    {device:new requires_grad}

    Returns
    -------
    Tensor
        Of shape `size`; no memory is used until it is written to.

    Raises
    ------
    RangeError
        If the value does not fit `dtype`.
    ShapeError
        If a size is negative.

    Examples
    --------
    >>> weft.full((2, 3), 7).tolist()
    [[7, 7, 7], [7, 7, 7]]
    """
    place = place_of(device, "full")
    if isinstance(fill_value, TensorCore):
        made = fill_value.detach()
        kind = made.dtype if dtype is None else dt.as_dtype(dtype)
        node = infer.expand(infer.cast(made._read(), kind), ints((size,), "full"))
        return finished(node, requires_grad, place)
    if isinstance(fill_value, np.generic):  # which names its type
        dtype = host.dtype_of(np.asarray(fill_value), "full") if dtype is None else dtype
        fill_value = fill_value.item()
    kind = dt.of_value(fill_value) if dtype is None else dt.as_dtype(dtype)
    shape = infer.check_shape(ints((size,), "full"), "full")
    value = constant(literals.whole(fill_value, kind), kind, "full")
    return finished(infer.expand(value, shape), requires_grad, place)


@takes_axis
def zeros(*size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
          ) -> Tensor:  # fmt: skip
    """Return a tensor of zeros.

    {Parameters: size options:float32}
    {Returns: of_size}
    {Raises: negative}

    Examples
    --------
    >>> weft.zeros(2, 3).shape
    (2, 3)
    """
    return full(ints(size, "zeros"), 0, dtype=dt.float32 if dtype is None else dtype,
                device=device, requires_grad=requires_grad)  # fmt: skip


@takes_axis
def ones(*size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
         ) -> Tensor:  # fmt: skip
    """Return a tensor of ones.

    {Parameters: size options:float32}
    {Returns: of_size}
    {Raises: negative}

    Examples
    --------
    >>> weft.ones(3, dtype=weft.int32).tolist()
    [1, 1, 1]
    """
    return full(ints(size, "ones"), 1, dtype=dt.float32 if dtype is None else dtype,
                device=device, requires_grad=requires_grad)  # fmt: skip


@takes_axis
def empty(*size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
          ) -> Tensor:  # fmt: skip
    """Return a tensor whose values nobody promises (zeros, or what ``WEFT_POISON`` asks for).

    {Parameters: size options:float32}
    {Returns: of_size}
    {Raises: negative}

    Examples
    --------
    >>> weft.empty(2, 3).shape
    (2, 3)
    """
    kind = dt.float32 if dtype is None else dt.as_dtype(dtype)
    return full(ints(size, "empty"), _unset(kind), dtype=kind, device=device,
                requires_grad=requires_grad)  # fmt: skip


def _unset(dtype: DType) -> Scalar:
    """Return the value of memory that was filled before its use."""
    if not config().poison:
        return 0
    with importing:
        from weft.passes.memory_checks import pattern
        from weft.runtimes.memory.debug_pool import POISON

    return pattern(dtype, POISON[config().poison])


def full_like(like: TensorCore, fill_value: Scalar, *, dtype: object = None,
              device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return a tensor of one value with the shape and type of another.

    Parameters
    ----------
    {like}
    fill_value : number
        The value of every element.
    {options}

    {Returns: of_like}

    Raises
    ------
    RangeError
        If the value does not fit the dtype.

    Examples
    --------
    >>> weft.full_like(weft.arange(3), 7).tolist()
    [7, 7, 7]
    """
    check_tensor(like, "full_like")
    return full(like.shape, fill_value, dtype=like.dtype if dtype is None else dtype,
                device=like._home() if device is None else device,
                requires_grad=requires_grad)  # fmt: skip


def zeros_like(like: TensorCore, *, dtype: object = None, device: object = None,
               requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return zeros with the shape and type of another tensor.

    {Parameters: like options}
    {Returns: of_like}
    {Raises: like}

    Examples
    --------
    >>> weft.zeros_like(weft.arange(3)).tolist()
    [0, 0, 0]
    """
    return full_like(like, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(like: TensorCore, *, dtype: object = None, device: object = None,
              requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return ones with the shape and type of another tensor.

    {Parameters: like options}
    {Returns: of_like}
    {Raises: like}

    Examples
    --------
    >>> weft.ones_like(weft.arange(3)).tolist()
    [1, 1, 1]
    """
    return full_like(like, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(like: TensorCore, *, dtype: object = None, device: object = None,
               requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return a tensor whose values nobody promises, with the shape and type of another.

    {Parameters: like options}
    {Returns: of_like}
    {Raises: like}

    Examples
    --------
    >>> weft.empty_like(weft.ones(2, 3)).shape
    (2, 3)
    """
    check_tensor(like, "empty_like")
    kind = like.dtype if dtype is None else dt.as_dtype(dtype)
    return full_like(like, _unset(kind), dtype=kind, device=device, requires_grad=requires_grad)


fill_docstrings(globals())
