"""The class of arrays for kernels, by numba's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compat.arrays import DeviceArray, device_array_like, to_device
from weft.errors import LaunchError

__all__ = ["DeviceArray", "DeviceNDArray", "DeviceNDArrayBase", "DeviceRecord", "ManagedNDArray",
           "MappedNDArray", "array_core", "auto_device", "from_array_like", "from_record_like",
           "is_contiguous", "is_cuda_ndarray", "verify_cuda_ndarray_interface"]  # fmt: skip

DeviceNDArray = DeviceNDArrayBase = ManagedNDArray = MappedNDArray = DeviceArray
from_array_like = from_record_like = device_array_like


def is_contiguous(ary: Any) -> bool:
    """Whether elements lie in row-major order without gaps, apart from axes that repeat them."""
    return bool(array_core(ary).flags.c_contiguous)


def array_core(ary: Any) -> Any:
    """Return the part of an array that its broadcast axes repeat."""
    return ary[tuple(0 if step == 0 else slice(None) for step in ary.strides)]


class DeviceRecord(DeviceArray):
    """An array of one record, without axes."""

    def __new__(cls, dtype: Any, stream: Any = 0, gpu_data: Any = None) -> DeviceRecord:
        """Return a new one, or one over given memory."""
        del stream
        held = bytearray(np.dtype(dtype).itemsize) if gpu_data is None else np.asarray(gpu_data)
        return np.ndarray.__new__(cls, (), dtype, held)


def is_cuda_ndarray(obj: Any) -> bool:
    """Whether an object is an array of `to_device` or `device_array`."""
    return isinstance(obj, DeviceArray)


def verify_cuda_ndarray_interface(obj: Any) -> None:
    """Refuse what is no such array.

    Raises
    ------
    LaunchError
        If it is none.
    """
    if not is_cuda_ndarray(obj):
        raise LaunchError("verify_cuda_ndarray_interface", found=type(obj).__name__,
                          expected="an array of to_device or device_array")


def auto_device(obj: Any, stream: Any = 0, copy: bool = True,
                user_explicit: bool = False) -> tuple[DeviceArray, bool]:  # fmt: skip
    """Return an array for kernels with the values of another one, and whether it is a new one."""
    del copy, user_explicit
    if is_cuda_ndarray(obj):
        return obj, False
    return to_device(obj, stream), True
