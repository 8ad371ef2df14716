"""Arrays of numba.cuda: memory of the host, which kernels use as it is."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.compat.numba_types import NumbaType, adopted, typeof
from weft.errors import LaunchError, raised
from weft.exchange import host as exchange

__all__ = [
    "DeviceArray", "DeviceMemoryError", "In", "InOut", "Out", "as_cuda_array", "device_array",
    "device_array_like", "from_cuda_array_interface", "is_cuda_array", "managed_array",
    "mapped_array", "mapped_array_like", "pinned_array", "pinned_array_like", "to_device",
]  # fmt: skip


class DeviceMemoryError(LaunchError, MemoryError):
    """There is not so much memory: a `MemoryError`, and what programs catch of a driver."""


class DeviceArray(np.ndarray[Any, Any]):
    """An array in the memory that kernels use.

    Attributes
    ----------
    stream : Stream or int
        The stream that it was made with, or bound to, which its parts and views have, too; 0
        without one.
    """

    stream: Any = 0

    def __array_finalize__(self, obj: Any) -> None:
        stream = getattr(obj, "stream", 0)
        if stream is not self.stream:
            self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """What libraries read that take each other's arrays; here of memory of the host."""
        interface = {**self.__array_interface__, "stream": int(self.stream) or None}
        return interface if self.size else {**interface, "data": (0, False)}

    @property
    def device_ctypes_pointer(self) -> Any:
        """Where the first element lies."""
        return ctypes.c_void_p(self.__array_interface__["data"][0])

    @property
    def _numba_type_(self) -> Any:
        """Numba's type of the array."""
        return typeof(self)

    @property
    def gpu_data(self) -> DeviceMemory:
        """Its memory: that of two arrays is equal where both begin at one place."""
        return self.view(DeviceMemory)

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> Any:
        """Return a copy of the array, in `ary` if it is given."""
        del stream
        if ary is None:
            return np.array(self, copy=True, subok=False)
        if isinstance(ary, np.void) and self.shape == () and ary.dtype == self.dtype:
            for name in self.dtype.names or ():
                ary[name] = self[name]
            return ary
        if ary.shape != self.shape or ary.dtype != self.dtype:
            raise LaunchError("copy_to_host", found=f"{ary.dtype}{ary.shape}",
                              expected=f"{self.dtype}{self.shape}")
        np.copyto(ary, self.view(np.ndarray))
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Set the array to the values of another one."""
        del stream
        np.copyto(self.view(np.ndarray), np.asarray(ary))

    def getitem(self, item: Any, stream: Any = 0) -> Any:
        """Return an element or a part, as ``array[item]``."""
        part = self[item]
        return part.bind(stream) if stream and isinstance(part, DeviceArray) else part

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        """Set an element or a part, as ``array[key] = value``."""
        del stream
        self[key] = value

    def is_c_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return bool(self.flags.c_contiguous)

    def is_f_contiguous(self) -> bool:
        """Whether the elements lie in column-major order without gaps."""
        return bool(self.flags.f_contiguous)

    @property
    def alloc_size(self) -> int:
        """Bytes of the array."""
        return self.nbytes

    def get_ipc_handle(self) -> None:
        """Refuse: arrays lie in the memory of one process."""
        raise LaunchError("IPC handle", found="an array in the memory of this process",
                          expected="multiprocessing.shared_memory, and an array on its buffer",
                          hint="kernels take such arrays as they are")

    def bind(self, stream: Any = 0) -> DeviceArray:
        """Return the array with another stream, over the same memory."""
        return _on(self.view(), stream)

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceArray]:
        """Yield the parts of an array of one axis, of `section` elements each."""
        for start in range(0, self.size, section):
            part = self[start:start + section].view(DeviceArray)
            yield _on(part, stream) if stream else part


class DeviceMemory(DeviceArray):
    """The memory of an array, compared by its address."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMemory) and self._address == other._address

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self._address)

    @property
    def _address(self) -> int:
        return int(self.__array_interface__["data"][0])


def _on(array: DeviceArray, stream: Any) -> DeviceArray:
    """Return a new array, after noting its stream."""
    array.stream = stream or 0
    return array


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
    """Return a copy of an array for kernels."""
    del copy
    if to is not None:
        to.copy_to_device(obj)
        return to
    held = exchange.as_array(obj, "to_device") if is_cuda_array(obj) else obj
    return _on(np.array(held, copy=True).view(DeviceArray), stream)


def device_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C",
                 stream: Any = 0) -> Any:  # fmt: skip
    """Return a new array for kernels, not initialised."""
    try:
        if strides is not None:
            return _on(_spread(shape, np.dtype(_dtype(dtype)), strides), stream)
        made = np.empty(shape, _dtype(dtype), order="F" if order == "F" else "C")
    except MemoryError as error:
        raise DeviceMemoryError("device_array", found=f"{shape!r} of {dtype!r}: {error}",
                                expected="an array that the memory holds") from error
    except (TypeError, ValueError) as error:
        kind = "TypeError" if isinstance(error, TypeError) else "ValueError"
        raise raised(kind)("device_array", found=f"{shape!r} of {dtype!r}: {error}",
                          expected="sizes that are not negative, and a dtype") from error
    return _on(made.view(DeviceArray), stream)


def _spread(shape: Any, kind: np.dtype[Any], strides: Any) -> DeviceArray:
    """Return a new array whose elements lie at distances of so many bytes."""
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    steps = tuple(strides) if isinstance(strides, tuple | list) else (strides,)
    if len(sizes) != len(steps):
        raise ValueError(f"{len(steps)} strides of {len(sizes)} axes")
    ends = [(n - 1) * s for n, s in zip(sizes, steps, strict=True)]
    first = -sum(min(0, e) for e in ends)
    memory = np.empty(first + sum(max(0, e) for e in ends) + kind.itemsize if all(sizes) else 0,
                      np.uint8)
    return np.ndarray(sizes, kind, memory, first if all(sizes) else 0, steps).view(DeviceArray)


def device_array_like(ary: Any, stream: Any = 0) -> Any:
    """Return a new array for kernels with the shape, type and layout of another one."""
    made = np.empty_like(exchange.as_array(ary, "device_array_like")).view(DeviceArray)
    return _on(made, stream)


def pinned_array(shape: Any, dtype: Any = np.float64, strides: Any = None,
                 order: str = "C") -> Any:  # fmt: skip
    """Return a new array of the host."""
    return np.asarray(device_array(shape, dtype, strides, order))


def mapped_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C",
                 stream: Any = 0, portable: bool = False, wc: bool = False) -> Any:  # fmt: skip
    """Return a new array that host and kernels use alike."""
    del portable, wc
    return device_array(shape, dtype, strides, order, stream)


managed_array = mapped_array


def pinned_array_like(ary: Any) -> Any:
    """Return a new array of the host with the shape, type and layout of another one."""
    return np.empty_like(np.asarray(ary))


def mapped_array_like(ary: Any, stream: Any = 0, portable: bool = False,
                      wc: bool = False) -> Any:  # fmt: skip
    """Return a new array that host and kernels use alike, shaped as another one."""
    del portable, wc
    return device_array_like(ary, stream)


class In:
    """An argument that a kernel only reads; kernels take arrays of the host as they are."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Return the array."""
        del copy
        return np.asarray(self.value, dtype)

    @property
    def __array_interface__(self) -> Any:
        """The array's own."""
        return self.value.__array_interface__


Out = InOut = In


def _dtype(dtype: Any) -> Any:
    kind = adopted(dtype)
    return kind.kind if isinstance(kind, NumbaType) else kind


def as_cuda_array(obj: Any, sync: bool = True) -> Any:
    """Return an array over the memory of another one."""
    del sync
    stream = obj.stream if isinstance(obj, DeviceArray) else 0
    return _on(exchange.as_array(obj, "as_cuda_array").view(DeviceArray), stream)


def from_cuda_array_interface(desc: dict[str, Any], owner: Any = None, sync: bool = True) -> Any:
    """Return an array over the memory that the interface of another one describes."""
    del sync
    if desc.get("mask") is not None:
        raise raised("NotImplementedError")("from_cuda_array_interface",
                                            found="an array with a mask", expected="one without")
    return exchange.of_interface(desc, owner, "from_cuda_array_interface").view(DeviceArray)


def is_cuda_array(obj: Any) -> bool:
    """Whether an object is an array for kernels, of this library or another one."""
    return hasattr(obj, "__cuda_array_interface__")
