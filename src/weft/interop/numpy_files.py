"""NumPy's files, npy and npz, read and written without ever unpickling.

The format (NumPy enhancement proposal 1, versions 1 to 3): six bytes, the version, the length of a
header that is a literal of Python (the type, the order, the shape), and the elements. An npz file
is a zip archive of such files.
"""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Callable, Mapping
from typing import IO, Any, Final, NamedTuple, NoReturn

import numpy as np

from weft.errors import AllocationError, DTypeError, ParseError, UnsupportedError, WeftError
from weft.interop.file_kinds import NUMPY, PYTORCH, FileKind
from weft.interop.safetensors import can_be_addressed, repeated
from weft.ir import dtype as dt
from weft.ir.dtype import DType

__all__ = ["Head", "npy_bytes", "read_head", "read_npz", "write_npz"]

_LONGEST_HEADER: Final = 10_000  # characters, as NumPy takes them from files it does not trust
_ALIGNED: Final = 64  # bytes before the elements are a multiple of these
_SUFFIX: Final = ".npy"
_CODECS: Final = (0, 8)  # of zip archives: stored, deflated
_PIECE: Final = 1 << 20  # bytes that are read at once


class Head(NamedTuple):
    """What a file of one array begins with: its elements follow behind `size` bytes."""

    dtype: DType
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    size: int

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return math.prod(self.shape) * self.stored.itemsize

    def check_size(self, size: int) -> None:
        """Raise a ParseError unless a whole file of `size` bytes holds these elements alone."""
        if self.size + self.nbytes != size:
            raise ParseError("load", found=f"an npy file of {size} bytes",
                             expected=f"{self.size + self.nbytes} for {self.dtype.name}"
                             f"{self.shape}", hint="it was not written or downloaded to its end")

    def check(self, data: Any, name: str) -> None:
        """Raise a ParseError if there are other bytes than 0 and 1 in bools."""
        raw = np.frombuffer(data, np.uint8)
        if self.dtype.is_bool and raw.size and raw.max() > 1:
            _refuse(name, f"the byte {raw.max()} for a bool")

    def array(self, data: Any) -> np.ndarray[Any, Any]:
        """Return the elements that lie in `data`, without a copy."""
        flat = np.frombuffer(data, self.stored, math.prod(self.shape))
        if self.fortran:
            return flat.reshape(self.shape[::-1]).T
        return flat.reshape(self.shape)


def read_head(file: IO[bytes], name: str) -> Head:
    """Return the head of an npy file.

    Raises
    ------
    ParseError, DTypeError, UnsupportedError
        If it is damaged, or holds what no tensor can.
    """
    start = file.read(8)
    if len(start) < 8 or start[:6] != NUMPY or start[6] not in (1, 2, 3):
        _refuse(name, f"a beginning of {start!r}")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _LONGEST_HEADER:
        _refuse(name, f"a header of {length} bytes")
    text = file.read(length)
    try:
        parts = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin1"))
        repr(parts)  # which messages show; a number may have too many digits for it
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        _refuse(name, f"the header {text!r:.80}")
    if len(text) < length or not isinstance(parts, dict) or parts.keys() != {
        "descr", "fortran_order", "shape"
    }:
        _refuse(name, f"the header {text!r:.80}")
    shape, order = parts["shape"], parts["fortran_order"]
    if not isinstance(shape, tuple) or type(order) is not bool or not (
        all(type(n) is int and n >= 0 for n in shape)
    ):
        _refuse(name, f"the header {text!r:.80}")
    dtype, stored = _types(parts["descr"], name)
    if not can_be_addressed(shape, stored.itemsize):
        _refuse(name, f"the shape {shape!r:.80}")
    return Head(dtype, stored, shape, order, 8 + width + length)


def _types(descr: Any, name: str) -> tuple[DType, np.dtype[Any]]:
    if isinstance(descr, str) and descr.lstrip("<>|=")[:1] == "O":
        raise UnsupportedError("load", found=f"{name} with objects of Python",
                               expected="numbers",
                               hint="objects are pickled, and Weft never unpickles")
    try:
        stored = np.dtype(descr) if isinstance(descr, str) else None
        if stored is not None and stored.kind in "biuf" and stored.subdtype is None:
            return dt.as_dtype(stored), stored
    except (TypeError, ValueError, SyntaxError, DTypeError):
        pass
    raise DTypeError("load", found=f"{name} with elements of type {descr!r:.60}",
                     expected="bool, integers or floats of at most 64 bits")


def _refuse(name: str, found: str) -> NoReturn:
    raise ParseError("load", found=f"{name} with {found}", expected="a file that numpy.save wrote",
                     hint="the file is damaged")


def read_npz(path: str, limit: int) -> dict[str, tuple[Head, bytearray]]:
    """Return the arrays of an archive by name, each with its head.

    Parameters
    ----------
    path
        The archive.
    limit
        Bytes that the arrays may have together.

    Raises
    ------
    ParseError, DTypeError, UnsupportedError
        If it is damaged, is of another program, or holds what no tensor can.
    AllocationError
        If there is more in it than fits into memory.
    """
    import zipfile  # 8 ms that few programs need

    found: dict[str, tuple[Head, bytearray]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            _check_names([info.filename for info in infos])
            for info in infos:
                _check_member(info)
                with archive.open(info) as file:
                    head, data = _member(file, info, limit)
                limit -= len(data)
                found[info.filename.removesuffix(_SUFFIX)] = head, data
    except (WeftError, MemoryError):
        raise
    except Exception as error:  # zipfile and its codecs have no list of what they raise
        raise ParseError("load", found=f"a damaged zip archive ({str(error)[:80]})",
                         expected="an npz file") from None
    return found


def _check_names(names: list[str]) -> None:
    """Raise an error unless an archive holds arrays alone, each once."""
    if (twice := repeated(names)) is not None:
        raise ParseError("load", found=f"{twice!r:.60} twice in a zip archive",
                         expected="each name once")
    others = [n for n in names if not n.endswith(_SUFFIX)]
    if not others:
        return
    kind = FileKind(f"a zip archive with {others[0]!r:.60}", "unpack it, and load what is in it")
    if any(n.endswith("data.pkl") for n in names):
        kind = PYTORCH
    raise ParseError("load", found=kind.name, expected="safetensors, npy or npz", hint=kind.hint)


def _check_member(info: Any) -> None:
    """Raise an error for what NumPy does not write: passwords, and codecs that take any memory."""
    found = "encrypted" if info.flag_bits & 1 else (
        f"compressed by method {info.compress_type}" if info.compress_type not in _CODECS else "")
    if found:
        raise UnsupportedError("load", found=f"{info.filename!r:.60}, which is {found}",
                               expected="an npz file as numpy.savez_compressed writes it")


def _member(file: IO[bytes], info: Any, limit: int) -> tuple[Head, bytearray]:
    head = read_head(file, f"{info.filename!r:.60}")
    if info.file_size != head.size + head.nbytes:
        _refuse(info.filename, f"{info.file_size - head.size} bytes for {head.nbytes}")
    if head.nbytes > limit:
        raise AllocationError("load", found=f"{head.nbytes} bytes in {info.filename!r:.60}",
                              expected=f"at most {limit}, what Weft may use")
    data = bytearray()
    while piece := file.read(_PIECE):  # grows with what is there, not with what is promised
        data += piece
    if len(data) != head.nbytes:
        _refuse(info.filename, f"{len(data)} bytes for {head.nbytes}")
    head.check(data, info.filename)
    return head, data


def npy_bytes(dtype: DType, shape: tuple[int, ...]) -> bytes:
    """Return what stands before the elements of an array in row-major order.

    Raises
    ------
    DTypeError
        If NumPy has no such type by itself.
    """
    stored = dtype.numpy
    if stored.kind not in "biuf" or np.dtype(stored.str) != stored:
        raise DTypeError("save", found=f"a tensor of {dtype.name}",
                         expected="a type of NumPy's own in files of NumPy",
                         hint="save it as safetensors, or convert it to float32")
    text = f"{{'descr': {stored.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    room = -(len(text) + 11) % _ALIGNED
    text += b" " * room + b"\n"
    if len(text) < 1 << 16:
        return NUMPY + b"\x01\x00" + len(text).to_bytes(2, "little") + text
    return NUMPY + b"\x02\x00" + len(text).to_bytes(4, "little") + text


def write_npz(file: IO[bytes],
              arrays: Mapping[str, tuple[bytes, Callable[[IO[bytes]], None]]]) -> None:  # fmt: skip
    """Write an archive of arrays, each given as what stands before its elements, and a writer."""
    import zipfile

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, (head, write) in arrays.items():
            with archive.open(zipfile.ZipInfo(name + _SUFFIX), "w", force_zip64=True) as member:
                member.write(head)
                write(member)


def is_numpy(path: str) -> bool:
    """Whether a file of this name is to be one of NumPy's."""
    return os.path.splitext(path)[1] in (_SUFFIX, ".npz")
