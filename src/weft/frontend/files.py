"""Tensors in files, in the safetensors format: a JSON header, then the bytes. Nothing runs on load.

The format (Hugging Face, safetensors 0.4): eight bytes with the length of the header, little
endian; the header, which gives each tensor's dtype, shape and place; then all data in order.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from weft.errors import DTypeError, ParseError
from weft.exchange import host
from weft.frontend.arguments import describe
from weft.frontend.creation import tensor
from weft.frontend.tensor import Tensor
from weft.ir import dtype as dt

__all__ = ["load", "save"]

_NAMES: Final = {
    "BOOL": dt.bool_, "U8": dt.uint8, "I8": dt.int8, "U16": dt.uint16, "I16": dt.int16,
    "U32": dt.uint32, "I32": dt.int32, "U64": dt.uint64, "I64": dt.int64, "F16": dt.float16,
    "BF16": dt.bfloat16, "F32": dt.float32, "F64": dt.float64, "F8_E4M3": dt.float8_e4m3fn,
    "F8_E5M2": dt.float8_e5m2,
}  # fmt: skip
_BY_DTYPE: Final = {d: name for name, d in _NAMES.items()}
_LONGEST_HEADER: Final = 100_000_000  # bytes, as in the reference implementation


def save(tensors: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write named tensors (a state dict) to a file, which is replaced at once or not at all."""
    if not isinstance(tensors, Mapping):
        raise DTypeError("save", found=describe(tensors), expected="a dict of tensors by name")
    made = {name: value if isinstance(value, Tensor) else tensor(value)
            for name, value in tensors.items()}  # fmt: skip
    header: dict[str, Any] = {}
    chunks = []
    start = 0
    for name, value in made.items():
        data = np.ascontiguousarray(value.detach().numpy()).reshape(-1).view(np.uint8)
        header[name] = {"dtype": _BY_DTYPE[value.dtype], "shape": list(value.shape),
                        "data_offsets": [start, start + data.size]}  # fmt: skip
        chunks.append(data)
        start += data.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    target = os.path.abspath(os.fspath(path))
    import tempfile  # 3 ms that few programs need

    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".weft-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(len(text).to_bytes(8, "little"))
            file.write(text)
            for data in chunks:
                file.write(data.data)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return the named tensors of a file.

    Raises
    ------
    ParseError
        If the file does not follow the format.
    """
    with open(path, "rb") as file:
        content = file.read()
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > min(_LONGEST_HEADER, len(content) - 8):
        raise ParseError("load", found=f"{len(content)} bytes with a header of {size}",
                         expected="a safetensors file")
    try:
        header = json.loads(content[8 : 8 + size])
        entries = {str(k): v for k, v in header.items() if k != "__metadata__"}
    except (ValueError, AttributeError) as error:
        raise ParseError("load", found=f"a header that is no JSON object ({error})",
                         expected="a safetensors file") from None
    data = memoryview(content)[8 + size :]
    return {name: _entry(name, entry, data) for name, entry in entries.items()}


def _entry(name: str, entry: Any, data: memoryview) -> Tensor:
    try:
        dtype = _NAMES[entry["dtype"]]
        shape = tuple(int(n) for n in entry["shape"])
        start, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise ParseError("load", found=f"the entry {name!r}: {entry!r} ({error!r})",
                         expected="dtype, shape and data_offsets") from None
    if min(shape, default=0) < 0 or not 0 <= start <= end <= len(data) or (
        end - start != math.prod(shape) * dtype.itemsize
    ):
        raise ParseError("load", found=f"{name!r} at {start} to {end} of {len(data)} bytes",
                         expected=f"{math.prod(shape) * dtype.itemsize} bytes for {shape}")
    array = np.frombuffer(data[start:end], np.uint8).view(dtype.numpy).reshape(shape)
    return Tensor._from_node(host.store(array, dtype))
