"""Arrays of numba.cuda: memory of the host, which kernels use as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.compat.numba_types import NumbaType, adopted
from weft.errors import LaunchError

__all__ = [
    "DeviceArray", "In", "InOut", "Out", "as_cuda_array", "device_array", "device_array_like",
    "is_cuda_array", "managed_array", "mapped_array", "mapped_array_like", "pinned_array",
    "pinned_array_like", "to_device",
]  # fmt: skip


class DeviceArray(np.ndarray[Any, Any]):
    """An array in the memory that kernels use."""

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> Any:
        """Return a copy of the array, in `ary` if it is given."""
        del stream
        if ary is None:
            return np.array(self, copy=True, subok=False)
        if ary.shape != self.shape or ary.dtype != self.dtype:
            raise LaunchError("copy_to_host", found=f"{ary.dtype}{ary.shape}",
                              expected=f"{self.dtype}{self.shape}")
        np.copyto(ary, self.view(np.ndarray))
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Set the array to the values of another one."""
        del stream
        np.copyto(self.view(np.ndarray), np.asarray(ary))

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

    def bind(self, stream: Any = 0) -> DeviceArray:
        """Return the array itself: there is one order of work."""
        del stream
        return self

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceArray]:
        """Yield the parts of an array of one axis, of `section` elements each."""
        del stream
        for start in range(0, self.size, section):
            yield self[start:start + section].view(DeviceArray)


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
    """Return a copy of an array for kernels."""
    del stream, copy
    if to is not None:
        to.copy_to_device(obj)
        return to
    return np.array(obj, copy=True).view(DeviceArray)


def device_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C",
                 stream: Any = 0) -> Any:  # fmt: skip
    """Return a new array for kernels, not initialised."""
    del stream
    if strides is not None:
        raise LaunchError("device_array", found="strides", expected="an array in C or F order")
    try:
        made = np.empty(shape, _dtype(dtype), order="F" if order == "F" else "C")
    except (TypeError, ValueError) as error:
        raise LaunchError("device_array", found=f"{shape!r} of {dtype!r}: {error}",
                          expected="sizes that are not negative, and a dtype") from error
    return made.view(DeviceArray)


def device_array_like(ary: Any, stream: Any = 0) -> Any:
    """Return a new array for kernels with the shape, type and layout of another one."""
    del stream
    return np.empty_like(np.asarray(ary)).view(DeviceArray)


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
    return np.asarray(obj).view(DeviceArray)


def is_cuda_array(obj: Any) -> bool:
    """Whether an object is an array for kernels."""
    return isinstance(obj, DeviceArray)
