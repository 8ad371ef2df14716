"""Places in sources of any language, and the problems that are told with them."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from weft.errors import (
    KernelError,
    Opened,
    WeftError,
    opened,
    outermost_methods,
    user_location,
)
from weft.ir.stmt import Location
from weft.lang.source.source import Problem, Problems, Source

__all__ = ["At", "BuiltSource", "Errors", "Place", "opens", "place_of", "source_text"]


_DEFINITION: Final[Any] = ast.parse("def built(): ...").body[0]
_HERE: Final = "a place (file, line), (file, line, column) or (file, line, column, end column)"


class Place(ast.AST):
    """A place as the readers of kernels know it: a node without content.

    Attributes
    ----------
    file : str
        The file.
    lineno, col_offset, end_lineno, end_col_offset : int
        As in Python's syntax trees: lines from 1, columns from 0.
    given, named : list and dict of Value
        Arguments, where the place is that of a call.
    """

    _fields = ()

    def __init__(self, file: str, line: int, column: int, end: int | None) -> None:
        self.file, self.lineno, self.col_offset = file, line, column
        self.end_lineno, self.end_col_offset = line, end
        self.args: tuple[()] = ()  # which readers of calls look into for a better place
        self.given: list[Any] = []
        self.named: dict[str, Any] = {}


At = tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int] | Place


def place_of(at: Any, default: Any = None) -> Place:
    """Return a place from what was given as ``at=``: lines and columns from 1.

    Without one it is the line of the program that calls the builder.
    """
    if at is None:
        at = default
    if at is None:
        at = user_location() or ("<built>", 1)
    if isinstance(at, Place):
        return at
    parts = tuple(at) if isinstance(at, tuple | list) else ()
    numbers = parts[1:]
    if not 2 <= len(parts) <= 4 or not isinstance(parts[0], str) or any(
        type(n) is not int or n < 1 for n in numbers
    ):
        raise KernelError("build", found=f"at={at!r}", expected=_HERE + ", counted from 1")
    column = numbers[1] - 1 if len(numbers) > 1 else 0
    end = numbers[2] - 1 if len(numbers) > 2 else column + 1 if len(numbers) > 1 else None
    return Place(parts[0], numbers[0], column, end)


class BuiltSource(Source):
    """What stands for a source where statements come from a builder: each brings its place."""

    def __init__(self, name: str, place: Place) -> None:
        self.name, self.file = name, place.file
        self.outside = {}
        self.tree = _DEFINITION
        self.function = lambda: None

    def place(self, node: ast.AST) -> Location:
        """Return where a node stands."""
        if isinstance(node, Place):
            return Location(node.file, node.lineno, node.col_offset)
        return super().place(node)


@outermost_methods
class Errors:
    """Collects what is wrong with a program in another language, to tell it all at once.

    ::

        errors = build.Errors("photo.img")
        for statement in program:
            with errors:                       # goes on behind a statement that is wrong
                translate(statement)
        errors.note("no such image", ("photo.img", 3, 8, 13), "load it first")
        errors.check()                         # raises a KernelError of all of them

    Parameters
    ----------
    name
        What the errors are about, for their first line.
    """

    def __init__(self, name: str) -> None:
        self._problems = Problems(name)

    def note(self, message: str, at: At, hint: str = "") -> None:
        """Keep a problem with its place."""
        place = place_of(at)
        self._problems.note(BuiltSource(self._problems.kernel, place), place, message, hint)

    def __enter__(self) -> Errors:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> bool:
        if not isinstance(error, WeftError):
            return False
        problems = [p for p in getattr(error, "problems", ()) if isinstance(p, Problem)]
        if not problems:
            where = error.where
            problems = [Problem(error.message, where.file if where else self._problems.kernel,
                                where.line if where else 1)]
        for problem in problems:
            if problem not in self._problems.found:
                self._problems.found.append(problem)
        return True

    @property
    def found(self) -> tuple[Any, ...]:
        """Problems so far: each has ``message``, ``file``, ``line``, ``column`` and ``hint``."""
        return tuple(self._problems.found)

    def check(self) -> None:
        """Raise a `weft.KernelError` with all problems, by line, if there are any."""
        self._problems.check()


def source_text(name: str, text: str) -> None:
    """Let errors show the lines of a source that stands in no file."""
    lines = text.splitlines(keepends=True)
    linecache.cache[name] = (len(text), None, lines, name)



@opened
def positioned(holder: Any, at: At) -> Iterator[None]:
    """Set the place of a builder for a while."""
    before = holder.position
    holder.position = place_of(at)
    try:
        yield
    finally:
        holder.position = before


_P = ParamSpec("_P")
_Given = TypeVar("_Given")


def opens(method: Callable[Concatenate[Any, _P], Iterator[_Given]]
          ) -> Callable[Concatenate[Any, _P], Opened[_Given]]:  # fmt: skip
    """Make a generator method one that opens a body: for ``with``, which it cannot go without.

    The builder keeps what no ``with`` statement has got, to tell at its end.
    """
    made = opened(method)

    @functools.wraps(method)
    def call(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> Opened[_Given]:
        found = made(self, *args, **kwargs)
        self._waiting.append((found, method.__name__, place_of(kwargs.get("at"), self.position)))
        return found

    return cast("Callable[Concatenate[Any, _P], Opened[_Given]]", call)
