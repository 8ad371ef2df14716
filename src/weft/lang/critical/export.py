"""Critical functions as files: a C header, an object, a shared library."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from weft.driver.critical import Code
from weft.errors import CompileError, LibraryNotFoundError, UnsupportedError
from weft.imports import importing
from weft.ir.dtype import DType
from weft.lang.critical.names import identifiers

__all__ = ["header", "link", "prototype", "save", "writing"]

_LINKERS: Final = ("cc", "gcc", "clang", "ld.lld", "ld")  # all of them know -shared and -o
_WRITABLE: Final = "a file in a folder that exists and can be written"

_PREAMBLE: Final = """\
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef WEFT_FAILURE
#define WEFT_FAILURE
/* What stopped a call: its code, and two numbers about it (an index and its bound). */
typedef struct weft_failure {
    int32_t code, unused, check, padding;
    int64_t value, bound;
} weft_failure;
#endif
"""


def _c_type(d: DType) -> str:
    if d.is_bool:
        return "bool"
    if d.is_float:
        return {64: "double", 32: "float"}.get(d.bits, "uint16_t")  # else the bits
    return f"{'u' * (d.kind == 'u')}int{d.bits}_t"


def header(code: Code, doc: str) -> str:
    """Return the C header of a function."""
    arrays = {w.name: w.memory for w in code.words if w.dtype is None}
    kinds = list(_element_types(code))
    parts = []
    results = [f"result{k if len(code.results) > 1 else ''}" for k in range(len(code.results))]
    names = identifiers([w.name for w in code.words], ("failure", *results))
    for word, name in zip(code.words, names, strict=True):
        if word.dtype is None:
            d, written = kinds[arrays[word.name]]
            parts.append(f"{'' if written else 'const '}{_c_type(d)} *{name}")
        else:
            parts.append(f"{_c_type(word.dtype)} {name}")
    parts += [f"{_c_type(d)} *{name}" for d, name in zip(code.results, results, strict=True)]
    parts.append("weft_failure *failure")
    guard = f"WEFT_{code.name.upper()}_H"
    notes = [line.strip() for line in doc.strip().splitlines() if line.strip()]
    notes += ["", "Returns 0, or one of these codes; *failure tells more unless it is NULL.",
              "   -1: an address is NULL"]
    for number, (message, statement) in enumerate(code.messages, 1):
        place = code.places[statement] if 0 <= statement < len(code.places) else None
        where = f", line {place.line}" if place is not None else ""
        notes.append(f"{number:5}: {message}{where}")
    comment = "\n".join(f" * {line}".rstrip().replace("*/", "* /") for line in notes)
    listed = ",\n    ".join(parts)
    return (f"#ifndef {guard}\n#define {guard}\n\n{_PREAMBLE}\n/*\n{comment}\n */\n"
            f"int32_t {code.name}(\n    {listed});\n\n"
            "#ifdef __cplusplus\n}\n#endif\n\n#endif\n")


def prototype(code: Code) -> Any:
    """Return the type of a function for ctypes; every address is a `c_void_p`."""
    kinds = [ctypes.c_void_p if w.dtype is None else _ctypes_type(w.dtype) for w in code.words]
    return ctypes.CFUNCTYPE(ctypes.c_int32, *kinds,
                            *[ctypes.c_void_p] * (len(code.results) + 1))


def _ctypes_type(d: DType) -> Any:
    if d.is_bool:
        return ctypes.c_bool
    if d.is_float:
        return {64: ctypes.c_double, 32: ctypes.c_float}.get(d.bits, ctypes.c_uint16)
    return getattr(ctypes, f"c_{'u' * (d.kind == 'u')}int{d.bits}")


def _element_types(code: Code) -> list[tuple[DType, bool]]:
    """Return the type of each array's elements, and whether the function writes to it."""
    with importing:
        from weft.runtimes.native.calls.critical_ir import Array, Struct

    found: list[tuple[DType, bool]] = []
    stack = list(code.params.values())[::-1]
    while stack:
        param = stack.pop()
        if isinstance(param, Struct):
            stack.extend(reversed(param.items))
        elif isinstance(param, Array):
            found.append((param.dtype, param.written))
    return found


def save(code: Code, doc: str, path: str) -> None:
    """Write a function to a file of the kind that its suffix names."""
    target = Path(path)
    if target.suffix not in (".so", ".dylib", ".o", ".h"):
        raise UnsupportedError(f"save {code.name}", found=f"the suffix {target.suffix!r}",
                               expected=".so, .dylib, .o or .h")
    if target.suffix in (".so", ".dylib"):
        link([code], target)
        target = target.with_suffix(".h")
    with writing(target):
        if target.suffix == ".h":
            target.write_text(header(code, doc), encoding="utf-8")
        else:
            target.write_bytes(code.core)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn what the system says of a file that cannot be written into an error of Weft."""
    try:
        yield
    except OSError as error:
        raise CompileError(f"save {target.name}", found=f"{target}: {error.strerror}",
                           expected=_WRITABLE) from error


def link(codes: Sequence[Code], target: Path) -> None:
    """Make a shared library of some functions."""
    title = f"save {target.name}"
    if target.is_dir() or not os.access(target.parent, os.W_OK):
        raise CompileError(title, found=str(target), expected=_WRITABLE)
    linker = next((found for name in _LINKERS if (found := shutil.which(name))), None)
    if linker is None:
        raise LibraryNotFoundError(title, found="no linker",
                                   expected="one of " + ", ".join(_LINKERS),
                                   hint="or save an object: .o")
    with tempfile.TemporaryDirectory() as folder:
        made = [os.path.join(folder, f"function{k}.o") for k in range(len(codes))]
        for code, file in zip(codes, made, strict=True):
            Path(file).write_bytes(code.core)
        done = subprocess.run([linker, "-shared", "-o", str(target), *made], capture_output=True,
                              text=True, check=False, timeout=60)
    if done.returncode:
        raise CompileError(title, found=done.stderr.strip()[-500:],
                           expected=f"a shared library from {linker}")
