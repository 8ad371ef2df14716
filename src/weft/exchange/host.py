"""Between host arrays (NumPy, the buffer protocol) and leaves of the graph."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import driver
from weft.errors import DTypeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Node, Storage
from weft.ir.op import Op

__all__ = ["as_array", "dtype_of", "fill", "leaf", "leaf_storage", "share", "store", "view"]


def dtype_of(array: np.ndarray[Any, Any], operation: str) -> DType:
    """Return the Weft type of an array's elements.

    Raises
    ------
    DTypeError
        If Weft has no such type (complex, object, text, dates).
    """
    try:
        return dt.as_dtype(array.dtype)
    except DTypeError:
        raise DTypeError(
            operation, found=f"an array of {array.dtype}",
            expected="one of " + ", ".join(d.name for d in dt.ALL),
        ) from None


def leaf(storage: Storage, shape: Sequence[int]) -> Node:
    """Return the leaf node that reads `storage` in a shape."""
    return infer.reshape(nd.buffer(storage), shape)


def leaf_storage(node: Node) -> Storage | None:
    """Return the storage behind a leaf (BUFFER under any RESHAPEs), None for other nodes."""
    root = nd.base(node)
    if root.op is Op.BUFFER:
        storage: Storage = root.attr
        return storage
    return None


class _Window:
    """Host memory offered to NumPy; it keeps the buffer alive as long as an array views it."""

    __slots__ = ("__array_interface__", "buffer")

    def __init__(self, buffer: Any, typestr: str, shape: tuple[int, ...], writable: bool) -> None:
        self.buffer = buffer
        self.__array_interface__ = {
            "data": (buffer.address, not writable), "typestr": typestr, "shape": shape,
            "version": 3,
        }  # fmt: skip


def view(buffer: Any, dtype: DType, shape: tuple[int, ...], writable: bool) -> np.ndarray[Any, Any]:
    """Return an array over a buffer's memory, without a copy."""
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    if dtype.kind == "f" and dtype.bits < 32 and dtype is not dt.float16:
        raw = np.asarray(_Window(buffer, f"<u{dtype.itemsize}", shape, writable))
        return raw.view(dtype.numpy)
    return np.asarray(_Window(buffer, dtype.numpy.str, shape, writable))


def fill(dtype: DType, array: np.ndarray[Any, Any]) -> Any:
    """Return a new buffer with the elements of `array`, in row-major order, as `dtype`."""
    buffer = driver.allocate(max(array.size * dtype.itemsize, 1))
    if array.size:
        np.copyto(view(buffer, dtype, array.shape, True), array, casting="unsafe")
    return buffer


def store(array: np.ndarray[Any, Any], dtype: DType) -> Node:
    """Return a leaf that holds a copy of `array`, converted to `dtype`."""
    return leaf(Storage(dtype, array.size, fill(dtype, array)), array.shape)


def share(array: np.ndarray[Any, Any], dtype: DType) -> Storage | None:
    """Return a storage over the memory of `array`, or None if its layout needs a copy."""
    if not array.flags.c_contiguous or not array.dtype.isnative or not array.flags.aligned:
        return None
    address = array.__array_interface__["data"][0]
    readonly = not array.flags.writeable
    buffer = driver.from_host(address, array.nbytes, array, readonly)
    return Storage(dtype, array.size, buffer, shared=True)


def as_array(value: Any, operation: str) -> np.ndarray[Any, Any]:
    """Return an array over a foreign value: NumPy, buffer protocol, DLPack, ``__array__``."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        from weft.exchange import dlpack

        return dlpack.consume(value)
    if hasattr(value, "__array__"):
        return np.asarray(value)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        raise DTypeError(
            operation, found=f"a {type(value).__name__}",
            expected="a number, a nested list of numbers, or an array",
        ) from None
