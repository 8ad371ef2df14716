"""Tensors that stay in their files, on the device ``disk``: only heads are read on opening."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from weft.driver.context import context
from weft.errors import DeviceError, ParseError, UnsupportedError
from weft.exchange import host
from weft.imports import Late
from weft.interop import safetensors
from weft.interop.file_kinds import EMPTY_ZIP, NUMPY, ZIP
from weft.ir import infer
from weft.ir.dtype import DType
from weft.ir.node import Storage
from weft.ir.op import storage_only
from weft.runtimes.base import View
from weft.runtimes.memory.disk_device import Place
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import count_of
from weft.tensors.ops.movement import ints

if TYPE_CHECKING:
    from weft.interop import numpy_files
    from weft.runtimes.memory.disk_device import DiskPool
    from weft.runtimes.memory.stored_file import StoredFile
else:
    numpy_files = Late("weft.interop.numpy_files")

__all__ = ["DEVICE", "opened", "pieces", "raw"]

DEVICE: Final = "disk"
_HEAD: Final = 512  # bytes that tell what a file is
_NUMPY_HEAD: Final = 1 << 14  # bytes that hold the longest head of an npy file
_PIECE: Final = 4 << 20  # bytes


def opened(name: str, device: str) -> tuple[dict[str, Tensor] | Tensor, dict[str, str]] | None:
    """Return what a file holds, to be read when it gets to a device, and the file's metadata.

    None for a file that does not have a place for each tensor, or is of another kind.

    Raises
    ------
    ParseError, DTypeError
        If the file does not follow its format.
    UnsupportedError
        If tensors are to stay in a file that has no place for each of them.
    """
    try:
        pool = _pool()
    except DeviceError:  # disabled: whoever asks for it was told before
        return None
    file = pool.open(name)
    head = _bytes_of(file, 0, _HEAD)
    if safetensors.begins(head, file.size):
        begin = 8 + int.from_bytes(head[:8], "little")
        entries, metadata = safetensors.parse(_bytes_of(file, 8, begin - 8), file.size - begin)
        return {e.name: _tensor(file, begin + e.start, e.dtype, e.shape).to(device=device)
                for e in entries}, metadata  # fmt: skip
    what = "a zip archive" if head.startswith((ZIP, EMPTY_ZIP)) else ""
    if head.startswith(NUMPY):
        npy = numpy_files.read_head(io.BytesIO(_bytes_of(file, 0, _NUMPY_HEAD)), "an npy file")
        npy.check_size(file.size)
        if npy.stored.isnative:
            shape = npy.shape[::-1] if npy.fortran else npy.shape
            made = _tensor(file, npy.size, npy.dtype, shape)
            return (made.T if npy.fortran and len(shape) > 1 else made).to(device=device), {}
        what = f"elements of type {npy.stored.str}"
    if what and device in storage_only:
        raise UnsupportedError("load", found=f"{what} that is to stay on {device}",
                               expected="safetensors, or npy in the byte order of this machine",
                               hint="load it without device=, and save it as safetensors")
    return None


def raw(name: str, dtype: DType, shape: Any, offset: Any) -> Tensor:
    """Return bytes of a file as a tensor that stays there, see `weft.from_file`."""
    offset = count_of(offset, "from_file", 0)
    file = _pool().open(name)
    rest = max(file.size - offset, 0)
    if shape is None:
        dims: tuple[int, ...] = (rest // dtype.itemsize,)
        wanted = -(-rest // dtype.itemsize) * dtype.itemsize
    else:
        dims = cast("tuple[int, ...]", infer.check_shape(ints((shape,), "from_file"), "from_file"))
        wanted = math.prod(dims) * dtype.itemsize
    if wanted > rest or offset > file.size:
        raise ParseError("from_file", found=f"{file.size:,} bytes, {rest:,} of them behind the "
                         f"offset of {offset:,}", expected=f"{wanted:,} for {dtype.name}{dims}")
    return _tensor(file, offset, dtype, dims)


def pieces(value: Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor in a file, in row-major order; each until the next is asked for.

    A view with gaps is read at once.
    """
    try:
        storage = value._storage()
    except DeviceError:
        yield np.ascontiguousarray(value.numpy()).reshape(-1).view(np.uint8).data
        return
    buffer = storage.buffer
    stage = memoryview(bytearray(min(buffer.nbytes, _PIECE)))
    for at in range(0, buffer.nbytes, _PIECE):
        piece = stage[: min(_PIECE, buffer.nbytes - at)]
        buffer.pool.pool_to_host(View(buffer, at), piece)
        yield piece


def _pool() -> DiskPool:
    found: DiskPool = context(DEVICE).runtime.pool
    return found


def _bytes_of(file: StoredFile, offset: int, most: int) -> bytes:
    """Return bytes of a file from an offset on, as many as there are."""
    data = bytearray(max(min(most, file.size - offset), 0))
    file.read(offset, memoryview(data))
    return bytes(data)


def _tensor(file: StoredFile, offset: int, dtype: DType, shape: Sequence[int]) -> Tensor:
    """Return a tensor over a part of a file."""
    count = math.prod(shape)
    buffer = _pool().hold(Place(file, offset, dtype.is_bool), count * dtype.itemsize)
    return Tensor._from_node(host.leaf(Storage(dtype, count, buffer), shape))
