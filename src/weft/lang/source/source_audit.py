"""The texts that a program compiles while it runs, for kernels that are made of them.

A generator of kernels runs `exec` on a text, or compiles a syntax tree, and decorates what comes of
it later. Often a variable of a caller still holds the text. Where none does, only Python itself can
tell of it, by an event: `listen` makes it tell, and what has no file of its own is kept here for a
while. Whether a text is that of a function is for others to find out.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, TypeGuard, cast

from weft.locks import mutex

__all__ = ["heard", "listen", "parsed", "unaudited"]

_KEPT: Final = 1 << 22  # characters of all texts that are kept
_LONGEST: Final = 1 << 17  # characters of one
_TREE: Final = 1 << 13  # what a syntax tree counts for
_FRAMES: Final = 16  # callers whose variables may hold a text

_TRIES: Final = 9

_UNHEARD: Final = "weft_unheard"  # an attribute of trees

_parsing: Final = mutex()

Text = str | bytes | ast.AST

# Oldest first. Threads compile at the same time, and an error here, or a lock that is held when a
# process forks, would be the program's: each step is one of Python's own, which none cuts in two.
# Beside a tree are the names of its functions, once they were asked for: a program under pytest
# compiles a tree for each of its test files, and to write one as text takes long.
_texts: Final[dict[Text, frozenset[str] | None]] = {}
_held_size: Final = [0]  # what the texts count, or a little less


@functools.cache
def listen() -> None:
    """Keep texts that are compiled from now on.

    Python calls a function for each of its audit events then, for good, and there are events as
    frequent as `id`: this is for programs whose kernels need it.
    """
    sys.addaudithook(_listen)


def _listen(event: str, args: tuple[Any, ...]) -> None:
    """Keep a text that is about to be compiled; the program goes on as it would without."""
    if event != "compile":
        return
    text, name = args
    if name == "<unknown>" or (isinstance(name, str) and os.path.isfile(name)):
        return  # parsed only, or linecache has it
    if getattr(text, _UNHEARD, False):
        return
    if _is_program(text) and _has_functions(text):
        if text in _texts:
            _texts.pop(text, None)
        else:
            _held_size[0] += _weight(text)
        _texts[text] = None
        if _held_size[0] > _KEPT:
            _forget()


def _forget() -> None:
    """Drop the oldest texts, and some more so that this is done now and then only."""
    texts = tuple(_texts)
    size = sum(map(_weight, texts))
    for text in texts:
        if size <= _KEPT * 7 // 8:
            break
        _texts.pop(text, None)
        size -= _weight(text)
    _held_size[0] = size


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a text, in any thread.

    Python up to 3.12 counts in one place how deep the trees of all threads are: where the threads
    change amid two of them, it raises SystemError. So there is one at a time, and another try after
    one that the program itself came between.
    """
    with _parsing:
        for _ in range(_TRIES):
            try:
                return ast.parse(text)
            except SystemError:
                continue
        return ast.parse(text)


def unaudited(tree: ast.Module) -> ast.Module:
    """Return a tree that is compiled to compare it: kept, such trees would drive all others out."""
    setattr(tree, _UNHEARD, True)
    return tree


def heard(name: str) -> list[str]:
    """Return the texts, nearest and newest first, that may have a function of this name in them."""
    found: list[str] = []
    wanted = "lambda" if name == "<lambda>" else f"def {name}"
    for text in (*_held(), *reversed(tuple(_texts))):
        if isinstance(text, ast.AST):
            if name not in _functions(text):
                continue
            text = _written(text)
        elif isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        if wanted in text and text not in found:
            found.append(text)
    return found


def _functions(tree: ast.AST) -> frozenset[str]:
    """Return the names that Python gives the functions and lambdas of a tree."""
    found = _texts.get(tree)
    if found is None:
        found = frozenset(n.name if isinstance(n, ast.FunctionDef) else "<lambda>"
                          for n in ast.walk(tree) if isinstance(n, ast.Lambda | ast.FunctionDef))
        if tree in _texts:  # which forgets it where the tree is compiled again, with changes
            _texts[tree] = found
    return found


def _held() -> Iterator[Text]:
    """Yield the texts that variables of callers hold, and attributes of their objects."""
    frame: FrameType | None = sys._getframe(2)  # the caller of `heard`
    for _ in range(_FRAMES):
        if frame is None:
            return
        values = [*frame.f_locals.values(), *frame.f_code.co_consts]
        if "self" in frame.f_locals:
            values.extend(getattr(frame.f_locals["self"], "__dict__", {}).values())
        for value in values:
            if _is_program(value):
                yield value
        frame = frame.f_back


def _is_program(value: object) -> TypeGuard[Text]:
    return isinstance(value, ast.Module | ast.Interactive) or (
        type(value) in (str, bytes) and len(cast("str | bytes", value)) <= _LONGEST)


def _has_functions(text: Text) -> bool:
    """Whether there may be a function in a text; a program may evaluate many that are none."""
    if isinstance(text, str):
        return "def " in text or "lambda" in text
    return isinstance(text, ast.AST) or b"def " in text or b"lambda" in text


def _weight(text: Text) -> int:
    return _TREE if isinstance(text, ast.AST) else len(text)


def _written(tree: ast.AST) -> str:
    """Return a syntax tree as text, empty if it is none: a program may build it in any way."""
    try:
        return ast.unparse(tree)
    except (AttributeError, TypeError, ValueError, RecursionError):
        return ""
