"""The texts that a program compiles while it runs, for kernels that are made of them.

A generator of kernels runs `exec` on a text, or compiles a syntax tree, and decorates what comes of
it later, when the text is gone. Python tells of what it compiles; what has no file of its own is
kept here for a while. Whether a text is that of a function is for others to find out.
"""

from __future__ import annotations

import ast
import os
import sys
from collections import deque
from typing import Any, Final

__all__ = ["heard"]

_KEPT: Final = 128  # texts: those of named tuples and data classes are among them
_LONGEST: Final = 1 << 17  # characters of a text that is kept

_texts: Final[deque[str | bytes | ast.AST]] = deque(maxlen=_KEPT)


def _listen(event: str, args: tuple[Any, ...]) -> None:
    """Keep a text that is about to be compiled; the program goes on as it would without."""
    if event != "compile":
        return
    text, name = args
    if name == "<unknown>" or (isinstance(name, str) and os.path.isfile(name)):
        return  # parsed only, or linecache has it
    if isinstance(text, ast.Module | ast.Interactive) or (
        isinstance(text, str | bytes) and len(text) <= _LONGEST
    ):
        _texts.append(text)


def heard(name: str) -> list[str]:
    """Return the texts, newest first, that may have a function of this name in them."""
    found: list[str] = []
    wanted = "lambda" if name == "<lambda>" else f"def {name}"
    for text in reversed(list(_texts)):
        if isinstance(text, ast.AST):
            if not any(isinstance(n, ast.Lambda | ast.FunctionDef) for n in ast.walk(text)):
                continue
            text = _written(text)
        elif isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        if wanted in text and text not in found:
            found.append(text)
    return found


def _written(tree: ast.AST) -> str:
    """Return a syntax tree as text, empty if it is none: a program may build it in any way."""
    try:
        return ast.unparse(tree)
    except (AttributeError, TypeError, ValueError, RecursionError):
        return ""


sys.addaudithook(_listen)
