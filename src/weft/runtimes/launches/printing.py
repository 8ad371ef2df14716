"""What kernels on a device have printed: words behind the status record, and their text."""

from __future__ import annotations

import contextlib
import struct
import sys
from collections import deque
from typing import Any, Final

from weft.ir.dtype import DType, from_text
from weft.ir.text.print_format import shown

__all__ = ["HEAD", "Lines", "lines_of", "room_of", "show", "text_of"]

Lines = tuple[tuple[str, tuple[DType, ...]], ...]

HEAD: Final = 8  # bytes before the words: how many there are, or would be if all had found room
_WORD: Final = 8


def lines_of(said: Any) -> Lines:
    """Return the lines that a kernel prints, as its image says: texts, and types of the values.

    Raises
    ------
    KeyError, TypeError, ValueError
        If the image says anything else.
    """
    return tuple([(str(text), tuple([from_text(name) for name in names])) for text, names in said])


def room_of(words: int) -> int:
    """Return the bytes that so many words take, with what stands before them."""
    return HEAD + _WORD * words


def text_of(lines: Lines, memory: memoryview) -> tuple[str, str]:
    """Return what a launch has printed, line by line, and what to say where room was missing."""
    used = int.from_bytes(memory[:4], sys.byteorder)
    words = memory[HEAD:].cast("q")
    at, end = 0, min(used, len(words))
    out: list[str] = []
    while at < end and 0 <= words[at] < len(lines):
        text, dtypes = lines[words[at]]
        values = (_value(words[at + 1 + k], d) for k, d in enumerate(dtypes))
        out.append(text.format(*(shown(v, d) for v, d in zip(values, dtypes, strict=True))))
        at += 1 + len(dtypes)
    lost = used > len(words)
    return "".join(out), "weft: lines that a kernel printed found no room\n" * lost


def show(texts: deque[tuple[str, str]]) -> None:
    """Print texts that launches have made; streams that take none are passed over, as by printf."""
    while texts:
        try:
            out, complaint = texts.popleft()
        except IndexError:  # another thread has taken it
            return
        with contextlib.suppress(OSError, ValueError):
            print(out, end="", flush=True)
        with contextlib.suppress(OSError, ValueError):
            print(complaint, end="", file=sys.stderr)


def _value(word: int, dtype: DType) -> int | float | bool:
    """Return the value that a word holds."""
    if dtype.is_bool:
        return bool(word)
    if not dtype.is_float:
        return word & ((1 << 64) - 1) if dtype.kind == "u" else word
    kind = "d" if dtype.bits == 64 else "f"
    found: float = struct.unpack_from(f"={kind}", struct.pack("=q", word))[0]
    return found
