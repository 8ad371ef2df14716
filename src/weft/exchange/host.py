"""Between host arrays (NumPy, the buffer protocol) and leaves of the graph."""

import ctypes
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

import numpy as np

from weft import driver
from weft.errors import DTypeError, UnsupportedError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Node, Storage
from weft.ir.op import Op

__all__ = [
    "Span", "as_array", "dtype_of", "fill", "head", "hold", "integer", "leaf", "leaf_storage",
    "of_interface", "overlap", "put_back", "share", "share_span", "store", "view",
]  # fmt: skip

_types: Final[dict[Any, DType]] = {}
_int64_at: Final = ctypes.c_int64.from_address
_WORK: Final = 1000  # steps after which two arrays are taken to overlap
_NO_COMPLEX: Final = "there are no complex numbers yet: keep real and imaginary parts apart"


def dtype_of(array: np.ndarray[Any, Any], operation: str) -> DType:
    """Return the Weft type of an array's elements.

    Raises
    ------
    DTypeError
        If Weft has no such type (complex, object, text, dates).
    """
    found = _types.get(array.dtype)  # NumPy takes its time to tell a name
    if found is not None:
        return found
    try:
        found = _types[array.dtype] = dt.as_dtype(array.dtype)
        return found
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

    def __init__(self, buffer: Any, typestr: str, shape: tuple[int, ...], writable: bool,
                 offset: int, strides: tuple[int, ...] | None) -> None:  # fmt: skip
        self.buffer = buffer
        self.__array_interface__ = {
            "data": (buffer.address + offset, not writable), "typestr": typestr, "shape": shape,
            "strides": strides, "version": 3,
        }  # fmt: skip


def view(buffer: Any, dtype: DType, shape: tuple[int, ...], writable: bool, offset: int = 0,
         strides: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:  # fmt: skip
    """Return an array over a buffer's memory, without a copy.

    Offset and strides count elements; without strides the array is contiguous, in row-major order.
    Of memory that is not in this process the array is a copy.
    """
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    if not buffer.in_process:
        buffer = driver.to_host(buffer)
    item = dtype.itemsize
    steps = None if strides is None else tuple([s * item for s in strides])
    if dtype.kind == "f" and dtype.bits < 32 and dtype is not dt.float16:
        raw = np.asarray(_Window(buffer, f"<u{item}", shape, writable, offset * item, steps))
        return raw.view(dtype.numpy)
    return np.asarray(_Window(buffer, dtype.numpy.str, shape, writable, offset * item, steps))


class _Elsewhere(NamedTuple):
    """A place that nothing may read."""

    address: int
    in_process: bool = True


def located(address: int, dtype: DType, shape: tuple[int, ...],
            strides: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:  # fmt: skip
    """Return an array that begins at an address, to compare where it lies: nothing may read it."""
    return view(_Elsewhere(address), dtype, shape, False, 0, strides)


def fill(dtype: DType, array: np.ndarray[Any, Any]) -> Any:
    """Return a new buffer with the elements of `array`, in row-major order, as `dtype`."""
    buffer = driver.allocate(max(array.size * dtype.itemsize, 1))
    if array.size:
        np.copyto(view(buffer, dtype, array.shape, True), array, casting="unsafe")
    return buffer


def head(buffer: Any, nbytes: int) -> Any:
    """Return a new buffer with the first bytes of one of ours."""
    return driver.first_bytes(buffer, nbytes)


def integer(buffer: Any) -> int:
    """Return the int64 at the beginning of a buffer of ours."""
    if not buffer.in_process:
        buffer = driver.to_host(buffer)
    return _int64_at(buffer.address).value


def store(array: np.ndarray[Any, Any], dtype: DType, device: str | None = None) -> Node:
    """Return a leaf that holds a copy of `array`, converted to `dtype`.

    With "" as `device`, a graph on any device may read it, which a few numbers are made for.
    """
    return leaf(Storage(dtype, array.size, fill(dtype, array), device), array.shape)


def share(array: np.ndarray[Any, Any], dtype: DType) -> Storage | None:
    """Return a storage over the memory of `array`, or None if its layout needs a copy."""
    if not array.flags.c_contiguous or not array.dtype.isnative or not array.flags.aligned:
        return None
    address = array.__array_interface__["data"][0]
    readonly = not array.flags.writeable
    buffer = driver.from_host(address, array.nbytes, array, readonly)
    return Storage(dtype, array.size, buffer, shared=True)


def hold(array: np.ndarray[Any, Any], dtype: DType) -> Node:
    """Return a leaf over the memory of an array that nobody writes to: a mapped file, or bytes.

    What is not aligned, or in the other byte order, is copied.
    """
    storage = share(array, dtype)
    if storage is None:
        return store(array, dtype)
    storage.shared = storage.buffer.exposed = False
    return leaf(storage, array.shape)


class Span(NamedTuple):
    """Memory from the first to the last element of an array; offset and strides in elements."""

    storage: Storage
    offset: int
    strides: tuple[int, ...]


def share_span(array: np.ndarray[Any, Any], dtype: DType) -> Span | None:
    """Return the memory that a strided array lies in, or None if its layout needs a copy."""
    item = array.itemsize
    if not array.dtype.isnative or not array.flags.aligned or array.size == 0 or any(
        s % item for s in array.strides
    ):
        return None
    strides = tuple(s // item if n > 1 else 0
                    for n, s in zip(array.shape, array.strides, strict=True))  # fmt: skip
    ends = [(n - 1) * s for n, s in zip(array.shape, strides, strict=True)]
    offset = -sum(min(0, e) for e in ends)
    size = offset + sum(max(0, e) for e in ends) + 1
    address = array.__array_interface__["data"][0] - offset * item
    buffer = driver.from_host(address, size * item, array, not array.flags.writeable)
    return Span(Storage(dtype, size, buffer, shared=True), offset, strides)


def overlap(a: Any, b: Any) -> bool:
    """Return whether two buffers have elements in common, or may have where that is hard to tell.

    Columns of one matrix lie between each other's elements and have none.
    """
    if not (a.in_process and b.in_process):
        return a is b
    if a.address >= b.address + b.nbytes or b.address >= a.address + a.nbytes:
        return False
    if not isinstance(a.owner, np.ndarray) or not isinstance(b.owner, np.ndarray):
        return True
    try:
        return np.shares_memory(a.owner, b.owner, max_work=cast(Any, _WORK))
    except np.exceptions.TooHardError:
        return True


def put_back(storage: Storage, buffer: Any) -> None:
    """Copy a new value into memory that is shared, as far as it is shared.

    What lies between the elements of a strided array is left alone: it is somebody else's, who may
    be writing to it.
    """
    size = int(cast(Any, storage.size))
    if not size:
        return
    target = view(storage.buffer, storage.dtype, (size,), True)
    values = view(buffer, storage.dtype, (size,), False)
    owner = storage.buffer.owner
    if isinstance(owner, np.ndarray) and owner.size < size:
        offset = owner.__array_interface__["data"][0] - storage.buffer.address
        target, values = (
            np.ndarray(owner.shape, a.dtype, a.view(np.uint8), offset, owner.strides)
            for a in (target, values)
        )
    np.copyto(target, values)


class _Told:
    """An array as an interface of another library describes it."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__, self.owner = interface, owner


def of_interface(told: dict[str, Any], owner: Any, operation: str) -> np.ndarray[Any, Any]:
    """Return an array over memory of the host that a ``__cuda_array_interface__`` describes.

    Raises
    ------
    UnsupportedError
        If it has a mask, or lies in memory that this process cannot read: that of a GPU.
    """
    if told.get("mask") is not None:
        raise UnsupportedError(operation, found="an array with a mask", expected="one without")
    names = ("shape", "typestr", "data", "strides", "descr")
    held = {name: told[name] for name in names if told.get(name) is not None}
    array = np.asarray(_Told({**held, "version": 3}, owner)) if all(held["shape"]) else np.empty(
        held["shape"], held["typestr"])
    if array.size:
        ends = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
        first = held["data"][0]
        if not _readable(first + sum(min(0, e) for e in ends),
                         first + sum(max(0, e) for e in ends) + array.itemsize):
            raise UnsupportedError(operation, found="memory of a GPU",
                                   expected="memory of the host: copy it there first")
    return array


def _readable(first: int, end: int) -> bool:
    """Whether bytes belong to memory of the host that this process may read."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                span, rights, _, _, _, *path = line.split(maxsplit=5)
                start, stop = (int(place, 16) for place in span.split("-"))
                if start <= first < stop:
                    if rights[0] != "r" or (path and path[0].startswith("/dev/nv")):
                        return False
                    first = stop
                if first >= end:
                    return True
    except OSError:
        pass
    return False


def as_array(value: Any, operation: str) -> np.ndarray[Any, Any]:
    """Return an array over a foreign value: NumPy, buffer protocol, DLPack, ``__array__``."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        from weft.exchange import dlpack

        return dlpack.consume(value)
    if hasattr(value, "__array__"):
        return np.asarray(value)
    told = getattr(value, "__cuda_array_interface__", None)
    if told is not None:
        return of_interface(told, value, operation)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        raise DTypeError(
            operation, found=f"a {type(value).__name__}", expected="a tensor, an array or a number",
            hint=_NO_COMPLEX if isinstance(value, complex) else
            "weft.tensor([...]) makes a tensor of a list" if isinstance(value, list | tuple) else
            None,
        ) from None
