"""The source of a kernel: its syntax tree, its names from outside, and what is wrong in it."""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import linecache
from collections.abc import Callable
from typing import Any, Final

from weft.errors import KernelError, shown_file, underlined
from weft.ir.record import Record
from weft.ir.stmt import Location
from weft.lang.source.closures import closed_over
from weft.lang.source.liveness import named
from weft.lang.source.matching import unfolded
from weft.lang.source.texts import definition_of

__all__ = ["Problem", "Problems", "Source", "Stop", "read_source"]

_CALLS: Final = 3  # places that lead to a problem which a message names
_SHOWN: Final = 20  # problems of one kernel that a message spells out


class Problem(Record):
    """One thing that is wrong in a kernel: where it stands, and what to do about it.

    ``line`` counts from 1; ``column`` and ``end`` count characters of the line from 0. ``calls``
    says for a device function where it is called, innermost first.
    """

    message: str
    file: str
    line: int
    column: int = 0
    end: int = 0
    hint: str = ""
    calls: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return ``file:line:column: message`` with the line, a caret and the hint."""
        rows = [f"{shown_file(self.file)}:{self.line}:{self.column + 1}: {self.message}"]
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if text.strip():
            indent = len(text) - len(text.lstrip())
            start = max(self.column, indent)
            end = max(min(self.end, len(text)), start + 1)
            rows.append("    " + text[indent:])
            rows.append("    " + underlined(text[indent:], start - indent, end - indent))
        if self.hint:
            rows.append(f"    {self.hint}")
        rows.extend(f"    called at {place}" for place in self.calls[:_CALLS])
        return "\n".join(rows)


class Stop(Exception):
    """Ends the compilation of one statement: its problem has been noted."""


class Source:
    """One function as it was written.

    Attributes
    ----------
    function : callable
        The Python function.
    tree : ast.FunctionDef
        Its definition; positions count from the start of the file.
    file, name : str
        Where it stands and what it is called.
    caller : (Source, ast.AST), or None
        For a function of Weft's own the call that it is read in place of: its statements stand
        there, as users see them.
    """

    caller: tuple[Source, ast.AST] | None = None

    def __init__(self, function: Callable[..., Any], tree: ast.FunctionDef, file: str) -> None:
        self.function, self.tree, self.file = function, tree, file
        self.name = function.__name__
        known = function.__globals__
        names = [name for name in function.__code__.co_names if name in known]
        self.outside: dict[str, Any] = {**{n: known[n] for n in names}, **closed_over(function)}
        self.assigned = named(tree.body)

    def lookup(self, name: str) -> tuple[bool, Any]:
        """Return whether a name from outside the function is known, and what it holds now."""
        if name in self.outside:
            return True, self.outside[name]
        if name in self.function.__globals__:  # of nested scopes, which closurevars leaves out
            return True, self.function.__globals__[name]
        if hasattr(builtins, name):
            return True, getattr(builtins, name)
        return False, None

    def names(self) -> tuple[str, ...]:
        """Return all names from outside that the function may use."""
        return (*self.outside, *self.function.__globals__, *dir(builtins))

    def in_place_of(self, caller: Source, call: ast.AST) -> Source:
        """Return the function as what a call of it means."""
        found = copy.copy(self)
        found.caller = (caller, call) if caller.caller is None else caller.caller
        return found

    def place(self, node: ast.AST) -> Location:
        """Return where a node stands."""
        if self.caller is not None:
            source, call = self.caller
            return source.place(call)
        return Location(self.file, getattr(node, "lineno", self.tree.lineno),
                        getattr(node, "col_offset", 0))


class Problems:
    """The problems of one kernel, in the order in which they were met."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.found: list[Problem] = []

    def note(self, source: Source, node: ast.AST, message: str, hint: str = "",
             calls: tuple[str, ...] = ()) -> None:  # fmt: skip
        """Keep a problem, unless the same was met before."""
        if source.caller is not None:
            source, node = source.caller
        line = getattr(node, "lineno", source.tree.lineno)
        start = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", None)
        if end is None or getattr(node, "end_lineno", line) != line:
            end = len(linecache.getline(source.file, line).rstrip())
        problem = Problem(message, source.file, line, start, end, hint, calls)
        if all(problem != known.replace(calls=calls) for known in self.found):
            self.found.append(problem)

    def stop(self, source: Source, node: ast.AST, message: str, hint: str = "",
             calls: tuple[str, ...] = ()) -> Stop:  # fmt: skip
        """Keep a problem and return what ends its statement."""
        self.note(source, node, message, hint, calls)
        return Stop()

    def check(self) -> None:
        """Raise an error of all problems, if there are any."""
        if not self.found:
            return
        self.found.sort(key=lambda p: (p.file, p.line, p.column))
        count = len(self.found)
        title = f"{self.kernel}: {count} error{'s' if count > 1 else ''}"
        rows = [title, *map(str, self.found[:_SHOWN])]
        if count > _SHOWN:
            rows.append(f"... and {count - _SHOWN} more")
        first = self.found[0]
        error = KernelError("\n".join(rows), where=(first.file, first.line, ""))
        error.problems = tuple(self.found)
        raise error


def read_source(function: Callable[..., Any]) -> Source:
    """Return the source of a Python function.

    Raises
    ------
    KernelError
        If Python does not have it, or it is not a plain function.
    """
    name = getattr(function, "__name__", repr(function))
    if not inspect.isfunction(function):
        raise KernelError(f"kernel {name}", found=type(function).__name__ + " " + name,
                          expected="a function that is made by def")
    definition, file = definition_of(function)
    if not isinstance(definition, ast.FunctionDef):
        code = function.__code__
        raise KernelError(f"kernel {name}", found=type(definition).__name__,
                          expected="a plain def",
                          where=(code.co_filename, code.co_firstlineno, ""))
    _count_characters(definition, file)
    return Source(function, unfolded(definition), file)


def _count_characters(definition: ast.FunctionDef, file: str) -> None:
    """Let columns count characters: Python's trees count the bytes of a line in UTF-8."""
    lines = linecache.getlines(file)
    if all(map(str.isascii, lines[definition.lineno - 1:definition.end_lineno])):
        return
    for node in ast.walk(definition):
        for row, column in (("lineno", "col_offset"), ("end_lineno", "end_col_offset")):
            number, octets = getattr(node, row, None), getattr(node, column, None)
            if number is not None and octets is not None and 0 < number <= len(lines):
                before = lines[number - 1].encode()[:octets]
                setattr(node, column, len(before.decode(errors="replace")))

