"""Transposing a matrix: ``transpose(a)`` or ``transpose(a, b)``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft.compat.arrays import DeviceArray, as_cuda_array, device_array
from weft.errors import ShapeError, outermost
from weft.lang.device import gpu as _gpu
from weft.lang.launch.launch import KernelFunction
from weft.lang.launch.options import Options, cdiv

__all__ = ["transpose"]

gpu: Any = _gpu  # what kernels compute with: to Python these are no numbers
_TILE: Final = 16


def _turned(source: Any, result: Any) -> None:
    """Turn a tile of 16 x 16 elements by way of shared memory: both sides go along their rows."""
    tile = gpu.shared.array((_TILE, _TILE + 1), source.dtype)
    x, y = gpu.threadIdx.x, gpu.threadIdx.y
    row, column = gpu.blockIdx.y * _TILE + y, gpu.blockIdx.x * _TILE + x
    if row < source.shape[0] and column < source.shape[1]:
        tile[y, x] = source[row, column]
    gpu.syncthreads()
    row, column = gpu.blockIdx.x * _TILE + y, gpu.blockIdx.y * _TILE + x
    if row < result.shape[0] and column < result.shape[1]:
        result[row, column] = tile[x, y]


def _turned_records(source: Any, result: Any) -> None:
    """Turn elements that have fields, one a thread: shared memory holds numbers."""
    row, column = gpu.blockIdx.y * _TILE + gpu.threadIdx.y, gpu.blockIdx.x * _TILE + gpu.threadIdx.x
    if row < source.shape[0] and column < source.shape[1]:
        result[column, row] = source[row, column]


_kernel: Final = KernelFunction(_turned, Options(True))
_of_records: Final = KernelFunction(_turned_records, Options(True))


@outermost
def transpose(a: Any, b: Any = None) -> Any:
    """Return the transpose of a matrix, in `b` if it is given.

    Raises
    ------
    ShapeError
        If `a` has not two axes, or `b` not the shape of the transpose.
    """
    held = as_cuda_array(a)
    if held.ndim != 2:
        raise ShapeError("transpose", found=f"an array of {held.ndim} axes", expected="two axes")
    rows, columns = held.shape
    made = device_array((columns, rows), held.dtype) if b is None else b
    if tuple(made.shape) != (columns, rows):
        raise ShapeError("transpose", found=f"a result of {tuple(made.shape)}",
                         expected=str((columns, rows)))
    if held.size:
        grid = (cdiv(columns, _TILE), cdiv(rows, _TILE))
        kernel = _kernel if held.dtype.fields is None else _of_records
        kernel[grid, (_TILE, _TILE)](np.asarray(held), np.asarray(as_cuda_array(made)))
    return made.view(DeviceArray) if b is None else b
