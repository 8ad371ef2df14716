"""The safetensors format: its header checked as the specification demands, and written.

The format (Hugging Face, safetensors 0.4): eight bytes with the length of the header, little
endian; the header, a JSON object that gives each tensor's dtype, shape and place; then all data
without holes or overlaps.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from weft.errors import DTypeError, ParseError, WeftError
from weft.ir import dtype as dt
from weft.ir.dtype import DType

__all__ = [
    "LONGEST_HEADER", "METADATA", "NAMES", "Entry", "begins", "can_be_addressed",
    "header_text", "is_broken", "parse", "repeated",
]  # fmt: skip

METADATA: Final = "__metadata__"
NAMES: Final = {
    "BOOL": dt.bool_, "U8": dt.uint8, "I8": dt.int8, "U16": dt.uint16, "I16": dt.int16,
    "U32": dt.uint32, "I32": dt.int32, "U64": dt.uint64, "I64": dt.int64, "F16": dt.float16,
    "BF16": dt.bfloat16, "F32": dt.float32, "F64": dt.float64, "F8_E4M3": dt.float8_e4m3fn,
    "F8_E5M2": dt.float8_e5m2,
}  # fmt: skip
_OTHERS: Final = ("C64", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2", "F4")
_BY_DTYPE: Final = {d: name for name, d in NAMES.items()}
LONGEST_HEADER: Final = 100_000_000  # bytes, as in the reference implementation
_MOST_AXES: Final = 64  # of an array of NumPy, as which values are looked at
_EXPECTED: Final = "a safetensors file"
_HEAD: Final = 8


class Entry(NamedTuple):
    """A tensor in a file: bytes `start` to `end` behind the header."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    start: int
    end: int


def begins(head: bytes, size: int) -> bool:
    """Whether a file of `size` bytes may be one of these: a length that fits, and a brace."""
    length = int.from_bytes(head[:_HEAD], "little")
    return (len(head) > _HEAD and 2 <= length <= min(LONGEST_HEADER, size - _HEAD)
            and head[_HEAD] == ord("{"))  # fmt: skip


def parse(header: bytes, size: int) -> tuple[list[Entry], dict[str, str]]:
    """Return what a header tells of the `size` bytes behind it: tensors in its order, metadata.

    Raises
    ------
    ParseError
        If it is no JSON object, names something twice, or does not describe every byte once.
    DTypeError
        If a tensor has a type that Weft has not.
    """
    try:
        parts = json.loads(header.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except WeftError:
        raise
    except (ValueError, RecursionError) as error:
        _refuse(f"a header that is no JSON object ({_reason(error)})")
    if not isinstance(parts, dict):
        _refuse("a header that is no JSON object")
    metadata = parts.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        _refuse(f"{METADATA} that is {metadata!r:.60}", "text for each name")
    entries = [_entry(name, entry) for name, entry in parts.items()]
    _check_places(entries, size)
    return entries, metadata


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        _refuse(f"the name {repeated(n for n, _ in pairs)!r:.60} twice in a header",
                "each name once")
    for text in (*found, *found.values()):
        if isinstance(text, str) and is_broken(text):
            _refuse(f"the text {text!r:.60}", "Unicode characters")
    return found


def repeated(names: Iterable[str]) -> str | None:
    """Return a name that stands twice among some, None if there is none."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def is_broken(text: str) -> bool:
    """Whether a text has halves of characters in it, which no file can hold."""
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def _no_number(text: str) -> NoReturn:
    _refuse(f"{text} in a header", "numbers of JSON")


def _reason(error: Exception) -> str:
    return "nested without end" if isinstance(error, RecursionError) else f"{error}"[:80]


def _refuse(found: str, expected: str = _EXPECTED) -> NoReturn:
    raise ParseError("load", found=found, expected=expected,
                     hint="the file is damaged, or was not written by a library of safetensors")


def _whole(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)


def _entry(name: str, entry: Any) -> Entry:
    """Return the description of one tensor, checked by itself."""
    def refuse(expected: str) -> NoReturn:
        _refuse(f"the entry {name!r:.60}: {entry!r:.120}", expected)

    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        refuse("dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not _whole(shape) or not _whole(offsets) or len(offsets) != 2:
        refuse("a shape and two data_offsets of whole numbers, none below 0")
    if kind in _OTHERS:
        raise DTypeError("load", found=f"{name!r:.60} of {kind}", expected=", ".join(NAMES),
                         hint="convert it with the library that wrote it")
    if not isinstance(kind, str) or kind not in NAMES:
        refuse("a dtype among " + ", ".join(NAMES))
    dtype = NAMES[kind]
    start, end = offsets
    if not can_be_addressed(shape, dtype.itemsize):
        refuse(f"at most {_MOST_AXES} axes, and sizes that can be addressed")
    if end - start != math.prod(shape) * dtype.itemsize:
        _refuse(f"{name!r:.60} in {end - start} bytes",
                f"{math.prod(shape) * dtype.itemsize} bytes for {dtype.name}{shape}")
    return Entry(name, dtype, tuple(shape), start, end)


def can_be_addressed(shape: Sequence[int], itemsize: int) -> bool:
    """Whether an array may have a shape, whose sizes are 0 or more and of any length.

    Axes of no elements do not make the others fit.
    """
    if len(shape) > _MOST_AXES or any(n >> 63 for n in shape):
        return False  # before they are multiplied, which may take minutes
    return math.prod(n for n in shape if n) * itemsize < 1 << 63


def _check_places(entries: list[Entry], size: int) -> None:
    """Raise a ParseError unless the entries describe every byte exactly once."""
    at, before = 0, "the header"
    for entry in sorted(entries, key=lambda e: (e.start, e.end)):
        if entry.start != at:
            what = "a hole" if entry.start > at else "an overlap"
            _refuse(f"{what} between {before!s:.60} and {entry.name!r:.60}, at byte {at}",
                    "tensors one behind the other")
        at, before = entry.end, repr(entry.name)
    if at != size:
        _refuse(f"{size} bytes of data", f"{at}, up to the end of {before:.60}")


def header_text(values: Mapping[str, tuple[DType, tuple[int, ...]]], metadata: Mapping[str, str]
                ) -> tuple[bytes, list[str]]:  # fmt: skip
    """Return the beginning of a file, and the names in the order of their data.

    Wide elements come first, so that all lie at multiples of their size.
    """
    order = sorted(values, key=lambda name: -values[name][0].itemsize)
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    places: dict[str, list[int]] = {}
    start = 0
    for name in order:
        dtype, shape = values[name]
        end = start + math.prod(shape) * dtype.itemsize
        places[name], start = [start, end], end
    for name, (dtype, shape) in values.items():
        header[name] = {"dtype": _BY_DTYPE[dtype], "shape": list(shape),
                        "data_offsets": places[name]}  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _HEAD)
    return len(text).to_bytes(_HEAD, "little") + text, order
