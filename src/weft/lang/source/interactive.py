"""Source of functions that were typed in: where Python itself does not keep it.

Notebooks, and Python from 3.13 on, put what is typed into `linecache`. Elsewhere this finds the
text:

* of consoles made of the module `code`, in the frame that runs it;
* of Python's own prompt before 3.13, in the history of readline;
* of ``python -c``, in the command line, and of ``python < file``, in that file;
* of `exec`, among the strings of whoever calls it.

What is found is compiled and compared with the function, so it is never another function's, or an
older one's.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import os
import stat
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from weft.driver.lru_table import room
from weft.lang.source.source_audit import parsed, unaudited

__all__ = ["note", "same", "shown", "typed"]

_MOST_LINES: Final = 2000  # of the history, that are looked through
_FRAMES: Final = 6  # callers whose strings may be the text that is running
_LONGEST: Final = 1 << 24  # bytes of a program

_FORM: Final = ("CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL", "RESUME")

_MOST_NOTED: Final = 1024  # functions whose texts are kept
_KEPT: Final = 64  # texts that were run under one name, such as "<string>"

# what consoles and `exec` ran: for the functions in it, and by name of the file for those they call
_noted: Final[dict[types.CodeType, list[str]]] = {}
_recent: Final[dict[str, list[str]]] = {}
_files: Final[dict[str, str]] = {}  # names of text that has no file


def note(function: Any) -> None:
    """Keep the text that a console or `exec` is running, if a function is from there."""
    code = getattr(function, "__code__", None)
    if code is None or linecache.getline(code.co_filename, code.co_firstlineno):
        return
    kept: list[str] = []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != code.co_filename:
        frame = frame.f_back
    beyond = 0
    while frame is not None and beyond < _FRAMES:  # one of them runs the text
        for text in (*frame.f_locals.values(), *frame.f_code.co_consts):
            if isinstance(text, str) and f"def {code.co_name}" in text and text not in kept:
                kept.append(text)
        frame, beyond = frame.f_back, beyond + 1
    room(_noted, _MOST_NOTED)[code] = kept
    recent = _recent.setdefault(code.co_filename, [])
    recent += [text for text in kept if text not in recent]
    del recent[:-_KEPT]


def typed(function: Callable[..., Any]) -> tuple[list[str], int, str] | None:
    """Return the lines of a function that was typed in, the number of the first, and a file name.

    None if they cannot be found.
    """
    code = function.__code__
    if os.path.isfile(code.co_filename):
        return None
    noted = _noted.get(code) or reversed(_recent.get(code.co_filename, ()))
    for text in (*noted, *_given(code.co_filename), *_history(code.co_name)):
        found = _definition(text, code)
        if found is not None:
            first, last = found  # what follows may be indented less
            return text.splitlines(keepends=True)[first - 1:last], first, _file(text)
    return None


def shown(name: str, lines: Sequence[str], first: int) -> str:
    """Return a file name under which `linecache` has these lines."""
    if linecache.getline(name, first):
        return name
    return _file("\n" * (first - 1) + "".join(lines))


def _file(text: str) -> str:
    """Return a name under which `linecache` has a text."""
    name = _files.get(text)
    if name is None:
        name = _files[text] = f"<typed {len(_files) + 1}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    return name


def _definition(text: str, wanted: types.CodeType) -> tuple[int, int | None] | None:
    """Return the lines on which a text defines a function, decorators included."""
    try:
        tree = parsed(text)
        module = compile(unaudited(tree), wanted.co_filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    codes = [module]
    for code in codes:
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    if not any(same(code, wanted) for code in codes):
        return None
    for node in reversed(list(ast.walk(tree))):
        if isinstance(node, ast.FunctionDef) and node.name == wanted.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return first, node.end_lineno
    return None


def same(a: types.CodeType, b: types.CodeType) -> bool:
    """Whether two functions do the same, wherever they stand."""
    pairs = [(a, b)]
    for one, other in pairs:
        if one.co_name != other.co_name or one.co_varnames != other.co_varnames:
            return False
        if _parts(one) != _parts(other) and _steps(one) != _steps(other):
            return False
        pairs += zip(_inner(one), _inner(other), strict=True)  # as many: steps load them
    return True


def _inner(code: types.CodeType) -> list[types.CodeType]:
    """Return the functions in a function; classes would know what they are called in full."""
    return [c for c in code.co_consts
            if isinstance(c, types.CodeType) and c.co_flags & inspect.CO_OPTIMIZED]


def _parts(code: types.CodeType) -> tuple[Any, ...]:
    """Return what a function is made of; functions may do the same of other parts."""
    values = [repr(c) for c in code.co_consts if not isinstance(c, types.CodeType)]
    return code.co_code, code.co_names, code.co_freevars, code.co_cellvars, values


def _steps(code: types.CodeType) -> list[tuple[str, Any]]:
    """Return what a function does, without what depends on the module that it is compiled in.

    Python calls a method of a name another way if the module imports that name.
    """
    found: list[tuple[str, Any]] = []
    for step in dis.get_instructions(code):
        name = "LOAD_ATTR" if step.opname == "LOAD_METHOD" else step.opname
        if name in _FORM:
            continue
        jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
        value = step.argval
        found.append((name, None if jumps else "code" if isinstance(value, types.CodeType)
                      else repr(value)))
    return found


def _given(name: str) -> Iterator[str]:
    """Yield the program that Python was started with, if it is no file of its own."""
    if name == "<string>" and "-c" in sys.orig_argv[1:-1]:
        yield sys.orig_argv[sys.orig_argv.index("-c") + 1]
    if name != "<stdin>":
        return
    try:
        state = os.fstat(0)
        if stat.S_ISREG(state.st_mode) and state.st_size < _LONGEST:
            yield os.pread(0, state.st_size, 0).decode()
    except (OSError, UnicodeDecodeError, AttributeError):
        return  # no such file, or a system without it


def _history(name: str) -> Iterator[str]:
    """Yield statements that the history of the prompt has and that may define a name, last first.

    The history leaves out a line that is equal to the one before it: what it tells is checked.
    """
    readline = sys.modules.get("readline")
    if readline is None:
        return
    count = readline.get_current_history_length()
    first = max(count - _MOST_LINES, 0)
    lines = [readline.get_history_item(k + 1) or "" for k in range(first, count)]
    for start in range(len(lines) - 1, -1, -1):
        if not lines[start].startswith(f"def {name}"):
            continue
        end = start + 1
        while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t#)]}"):
            end += 1
        while start and lines[start - 1].startswith("@"):
            start -= 1
        yield "\n".join(lines[start:end]) + "\n"
