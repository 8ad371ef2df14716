"""Tensors in files: safetensors, and NumPy's npy and npz. Nothing runs on load.

What is loaded from safetensors and npy lies in the file, which is mapped into memory: opening one
takes as long as its header, and elements are read when they are looked at.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from weft import driver
from weft.errors import DTypeError, ParseError
from weft.exchange import host
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir.node import HOST
from weft.ir.op import storage_only
from weft.tensors.api.creation import tensor
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import describe, place_of

if TYPE_CHECKING:
    from weft.interop import file_kinds, numpy_files, safetensors, stored
else:
    file_kinds = Late("weft.interop.file_kinds")
    numpy_files = Late("weft.interop.numpy_files")
    safetensors = Late("weft.interop.safetensors")
    stored = Late("weft.interop.stored")

__all__ = ["Loaded", "from_file", "load", "save"]

_STRUCTURE: Final = "weft.structure"  # of nested containers, in the metadata
_HEAD: Final = 512  # bytes that tell what a file is
_DEEPEST: Final = 100
_WIDEST: Final = 64  # bits
_PLAIN: Final = (bool, int, float, str, type(None))
_NO_RESERVE: Final = 0x4000  # MAP_NORESERVE of Linux, which Python names from 3.13 on


class Loaded(dict[Any, Any]):
    """What a file holds by name: a dict, with the file's metadata.

    Attributes
    ----------
    metadata : dict of str to str
        Text by name. `save` writes it again, if nothing else is said.
    """

    metadata: dict[str, str]

    def __init__(self, values: Mapping[Any, Any], metadata: Mapping[str, str]) -> None:
        super().__init__(values)
        self.metadata = dict(metadata)


# save


def save(tensors: Any, path: str | os.PathLike[str], *, metadata: Mapping[str, str] | None = None
         ) -> None:  # fmt: skip
    """Write tensors to a file, which is replaced at once or not at all.

    Tensors in files (``device="disk"``) pass through memory a piece at a time, and may be of the
    very file that is replaced: they go on reading what they read before.

    Parameters
    ----------
    tensors
        A dict of tensors by name: a state dict, or several of them and those of optimisers in
        nested dicts, lists and tuples, with numbers and text between. Arrays are converted.
    path
        Where to. A name in ``.npz`` makes an archive of NumPy's, of named tensors alone, and one in
        ``.npy`` a file of a single tensor; all others are safetensors.
    metadata
        Text by name that is kept with the tensors; by default that of what `load` returned.

    Raises
    ------
    DTypeError
        If there is something that no file holds.
    CopyError
        If a file that a tensor lies in was written to since it was opened.

    Examples
    --------
    >>> net = weft.nn.Linear(3, 2)
    >>> opt = weft.optim.Adam(net.parameters())
    >>> weft.save({"model": net.state_dict(), "optimizer": opt.state_dict()}, "run.safetensors")
    """
    target = _path(path, "save")
    if numpy_files.is_numpy(target):
        return _save_numpy(tensors, target)
    if not isinstance(tensors, Mapping):
        raise DTypeError("save", found=describe(tensors), expected="a dict of tensors by name")
    kept = getattr(tensors, "metadata", {}) if metadata is None else metadata
    if not isinstance(kept, Mapping) or not all(
        isinstance(t, str) and not safetensors.is_broken(t) for pair in kept.items() for t in pair
    ):
        raise DTypeError("save", found=f"metadata {describe(kept)}", expected="text by name")
    text = {k: v for k, v in kept.items() if k != _STRUCTURE}
    made: dict[str, Tensor] = {}
    structure = _taken_apart(tensors, made, "", 0)
    if not all(isinstance(k, str) and _is_array(v) for k, v in tensors.items()):
        text[_STRUCTURE] = json.dumps(structure, separators=(",", ":"))
    head, order = safetensors.header_text({n: (t.dtype, t.shape) for n, t in made.items()}, text)

    def write(file: IO[bytes]) -> None:
        file.write(head)
        for name in order:
            _write_bytes(file, made[name])

    return _replace(target, write)


def _write_bytes(file: IO[bytes], value: Tensor) -> None:
    """Write the elements in row-major order; those that lie in a file by pieces."""
    if value.device not in storage_only:
        file.write(_bytes(value))
        return
    for piece in stored.pieces(value):
        file.write(piece)


def _save_numpy(tensors: Any, target: str) -> None:
    if target.endswith(".npy"):
        if not _is_array(tensors):
            raise DTypeError("save", found=describe(tensors), expected="one tensor for a .npy file",
                             hint="a .npz file holds several by name")
        one = _tensor(tensors)
        head = numpy_files.npy_bytes(one.dtype, one.shape)

        def write(file: IO[bytes]) -> None:
            file.write(head)
            _write_bytes(file, one)

        return _replace(target, write)
    if not isinstance(tensors, Mapping) or not all(
        isinstance(k, str) and _is_array(v) for k, v in tensors.items()
    ):
        raise DTypeError("save", found=describe(tensors),
                         expected="a dict of tensors by name for a .npz file",
                         hint="safetensors hold nested dicts and numbers, too")
    named = {name: _tensor(value) for name, value in tensors.items()}
    arrays = {name: (numpy_files.npy_bytes(t.dtype, t.shape), partial(_write_bytes, value=t))
              for name, t in named.items()}  # fmt: skip
    return _replace(target, lambda file: numpy_files.write_npz(file, arrays))


def _path(path: Any, operation: str) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise DTypeError(operation, found=describe(path), expected="the path of a file")
    found = os.fspath(path)
    return found if isinstance(found, str) else os.fsdecode(found)


def _is_array(value: object) -> bool:
    return isinstance(value, (Tensor, np.ndarray, np.generic)) or hasattr(value, "__dlpack__")


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else tensor(value)


def _bytes(value: Tensor) -> memoryview:
    """Return the elements in row-major order."""
    return np.ascontiguousarray(value.detach().numpy()).reshape(-1).view(np.uint8).data


def _taken_apart(value: Any, made: dict[str, Tensor], name: str, depth: int) -> Any:
    """Return containers in JSON, and put their tensors into `made`, by where they stand."""
    if depth > _DEEPEST:
        raise DTypeError("save", found=f"containers more than {_DEEPEST} deep", expected="an end")
    if type(value) in _PLAIN:
        if not _fits(value):
            raise DTypeError("save", found=f"{describe(value)} at {name!r}",
                             expected="text of Unicode characters, and numbers of 64 bits")
        return value
    if _is_array(value):
        while name in made or name == safetensors.METADATA:  # a key with a dot in it
            name += "~"
        made[name] = _tensor(value)
        return {"tensor": name}
    inner = f"{name}." if name else ""
    if isinstance(value, Mapping):
        for key in value:
            if type(key) not in (str, int) or not _fits(key):
                raise DTypeError("save", found=f"the key {describe(key)} in {name or 'the dict'}",
                                 expected="text or whole numbers of 64 bits")
        return {"dict": [[k, _taken_apart(v, made, f"{inner}{k}", depth + 1)]
                         for k, v in value.items()]}  # fmt: skip
    if isinstance(value, (list, tuple)):
        items = [_taken_apart(v, made, f"{inner}{i}", depth + 1) for i, v in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": items}
    raise DTypeError("save", found=f"a {type(value).__name__} at {name!r}",
                     expected="tensors, numbers, text, and dicts, lists and tuples of them")


def _fits(value: Any) -> bool:
    """Whether a file can hold a value of one of the types `_PLAIN`."""
    if isinstance(value, str):
        return not safetensors.is_broken(value)
    return not isinstance(value, int) or value.bit_length() <= _WIDEST


def _replace(target: str, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file beside `target`, and let it take its place when it is whole."""
    import tempfile  # 3 ms that few programs need

    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "save: there is no such folder", folder)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".weft-")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


# load


def load(path: str | os.PathLike[str], *, device: object = None) -> Any:
    """Return the named tensors of a safetensors or npz file, or the tensor of an npy file.

    What a file is, its first bytes tell. Tensors of safetensors and npy files are read from the
    file when they are looked at; it must not be cut short or written to while they are used
    (`save` replaces files as a whole). Nothing in a file is ever run: pickles are refused.

    Parameters
    ----------
    path : str or os.PathLike
        Of the file.
    device : str, optional
        Where the tensors are to be. On ``"disk"`` they stay in the file: they and their slices are
        read by each copy to another device, as in ``x.to("cpu")``. Such a file may be replaced or
        deleted, and if it is written to, reading is an error. For a device with memory of its own
        values are read straight into that, when they are looked at. By default, and for ``"cpu"``,
        the file is mapped into memory.

    Returns
    -------
    dict or Tensor
        A dict with the attribute ``metadata``, nested as it was given to `save`.

    Raises
    ------
    ParseError
        If the file does not follow its format, or is of a kind that Weft does not read: the message
        says which, and what to do.
    DTypeError
        If an element type is none of Weft's.
    AllocationError
        If the arrays of an npz file do not fit into memory.
    DeviceError
        If the device is unknown or absent.
    UnsupportedError
        If the tensors are to stay in a file that has no place for each of them: an npz archive, or
        elements in the other byte order.

    Examples
    --------
    >>> weft.save({"x": weft.ones(3)}, "x.safetensors", metadata={"made by": "an example"})
    >>> found = weft.load("x.safetensors")
    >>> found["x"].tolist(), found.metadata
    ([1.0, 1.0, 1.0], {'made by': 'an example'})
    """
    name = _path(path, "load")
    place = HOST if device is None else place_of(device, "load") or HOST
    if place != HOST:
        return _load_to(name, place)
    with open(name, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD)
        if safetensors.begins(head, size):
            return _load_safetensors(file, head, size)
        if head.startswith(file_kinds.NUMPY):
            return _load_npy(file, size)
    if head.startswith((file_kinds.ZIP, file_kinds.EMPTY_ZIP)):
        found = numpy_files.read_npz(name, driver.memory_limit())
        return Loaded({key: Tensor._from_node(host.hold(h.array(data), h.dtype))
                       for key, (h, data) in found.items()}, {})  # fmt: skip
    length = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and length <= safetensors.LONGEST_HEADER:
        raise ParseError("load", found=f"{size} bytes, of which {length} were to be a header",
                         expected="a whole safetensors file",
                         hint="it was not written or downloaded to its end")
    kind = file_kinds.kind_of(head, size)
    raise ParseError("load", found=kind.name, expected="a file of safetensors, npy or npz",
                     hint=kind.hint)


def _load_to(name: str, device: str) -> Any:
    """Return what a file holds on a device whose memory is not that of this process."""
    found = stored.opened(name, device)
    if found is None:  # it is read whole anyway, or of a kind that this refuses
        whole = load(name)
        moved = _moved(whole, device)
        return Loaded(moved, whole.metadata) if isinstance(whole, Loaded) else moved
    values, metadata = found
    if not isinstance(values, dict):
        return values
    structure = metadata.pop(_STRUCTURE, None)
    return Loaded(values if structure is None else _put_together(structure, values), metadata)


def _moved(part: Any, device: str) -> Any:
    """Return containers with their tensors on another device."""
    if isinstance(part, Tensor):
        return part.to(device=device)
    if isinstance(part, dict):
        return {k: _moved(v, device) for k, v in part.items()}
    if isinstance(part, (list, tuple)):
        return type(part)([_moved(v, device) for v in part])
    return part


def from_file(path: str | os.PathLike[str], dtype: object, shape: Sequence[int] | int | None = None,
              offset: int = 0, *, device: object = "disk") -> Tensor:  # fmt: skip
    """Return a tensor whose elements are bytes of a file, in row-major order and little endian.

    Parameters
    ----------
    path : str or os.PathLike
        Of the file.
    dtype : DType
        Of the elements.
    shape : int or sequence of int, optional
        By default one axis, as long as the file has elements behind `offset`.
    offset : int, optional
        Bytes of the file before the first element.
    device : str, optional
        By default the tensor stays in the file, as with ``weft.load(path, device="disk")``.

    Returns
    -------
    Tensor
        Its elements are read when somebody looks at them, or copies them.

    Raises
    ------
    ParseError
        If the file has not as many bytes.
    ShapeError, DTypeError, RangeError
        If `shape`, `dtype` or `offset` are none.
    DeviceError
        If the device is unknown or absent.

    Examples
    --------
    >>> weft.save(weft.arange(6, dtype=weft.int16), "x.npy")
    >>> x = weft.from_file("x.npy", weft.int16, (2, 3), offset=128)
    >>> x.device, x[1].tolist()
    ('disk', [3, 4, 5])
    """
    name = _path(path, "from_file")
    made = stored.raw(name, dt.as_dtype(dtype), shape, offset)
    return made.to(device=device)


def _mapped(file: IO[bytes], size: int) -> memoryview:
    """Return the bytes of a file; a write to them would not reach it."""
    import mmap  # which programs that load nothing do not need

    if hasattr(mmap, "MAP_PRIVATE"):
        flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", _NO_RESERVE)
        made = mmap.mmap(file.fileno(), size, flags, mmap.PROT_READ | mmap.PROT_WRITE)
    else:
        made = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    return memoryview(made).toreadonly()


def _load_safetensors(file: IO[bytes], head: bytes, size: int) -> Any:
    length = int.from_bytes(head[:8], "little")
    file.seek(8)
    entries, metadata = safetensors.parse(file.read(length), size - 8 - length)
    data = _mapped(file, size)[8 + length :]
    found = {e.name: _view_of(data[e.start : e.end], e) for e in entries}
    structure = metadata.pop(_STRUCTURE, None)
    return Loaded(found if structure is None else _put_together(structure, found), metadata)


def _view_of(data: memoryview, entry: safetensors.Entry) -> Tensor:
    raw = np.frombuffer(data, np.uint8)
    if entry.dtype is dt.bool_ and raw.size and raw.max() > 1:
        raise ParseError("load", found=f"the byte {raw.max()} in {entry.name!r:.60}",
                         expected="0 or 1 for a bool", hint="the file is damaged")
    return Tensor._from_node(host.hold(raw.view(entry.dtype.numpy).reshape(entry.shape),
                                       entry.dtype))  # fmt: skip


def _load_npy(file: IO[bytes], size: int) -> Tensor:
    file.seek(0)
    head = numpy_files.read_head(file, "an npy file")
    head.check_size(size)
    data = _mapped(file, size)[head.size :]
    head.check(data, "an npy file")
    array = head.array(data)
    if not head.fortran or len(head.shape) < 2:
        return Tensor._from_node(host.hold(array, head.dtype))
    return Tensor._from_node(host.hold(array.T, head.dtype)).T


def _put_together(text: str, found: dict[str, Tensor]) -> dict[Any, Any]:
    """Return the containers that `_taken_apart` made JSON of, with the tensors in their places."""
    left = dict(found)
    try:
        made = _rebuilt(json.loads(text), left, 0)
    except (ValueError, RecursionError, KeyError):
        made = None
    if not isinstance(made, dict) or left:
        lost = f" without {next(iter(left))!r:.60}" if isinstance(made, dict) else ""
        raise ParseError("load", found=f"the structure {text!r:.80}{lost}",
                         expected="one that weft.save wrote",
                         hint="the file was changed by another program")
    return made


def _rebuilt(part: Any, left: dict[str, Tensor], depth: int) -> Any:
    """Return a value or containers, for which tensors are taken out of `left`.

    Raise ValueError or KeyError for what `save` never wrote, such as a tensor in two places.
    """
    if type(part) in _PLAIN and _fits(part):
        return part
    if depth > _DEEPEST:
        raise ValueError(depth)
    match part:
        case {"tensor": str(name), **others} if not others:
            return left.pop(name)
        case {"dict": [*pairs], **others} if not others:
            made = dict(_rebuilt_pair(p, left, depth + 1) for p in pairs)
            if len(made) == len(pairs):
                return made
        case {"list": [*items], **others} if not others:
            return [_rebuilt(i, left, depth + 1) for i in items]
        case {"tuple": [*items], **others} if not others:
            return tuple(_rebuilt(i, left, depth + 1) for i in items)
    raise ValueError(part)


def _rebuilt_pair(part: Any, left: dict[str, Tensor], depth: int) -> tuple[Any, Any]:
    match part:
        case [str() | int() as key, value] if type(key) is not bool and _fits(key):
            return key, _rebuilt(value, left, depth)
    raise ValueError(part)
