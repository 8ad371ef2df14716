"""Reading the lines of a kernel's text before its brace, at both levels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from weft.ir import dtype as dt
from weft.ir.expr import Expr, make
from weft.ir.op import Op
from weft.ir.stmt import Location, Memory, Meta
from weft.ir.text.text_lexer import Line, Names

__all__ = ["Head", "place_of"]


class Head:
    """The lines of a kernel before its brace."""

    def __init__(self) -> None:
        self.name = ""
        self.meta = Meta()
        self.schedule: list[str] = []
        self.hints: list[tuple[str, Any]] = []
        self.params: list[Memory] = []
        self.variables: list[Expr] = []
        self.messages: list[tuple[str, Location | None]] = []

    def opened(self, text: str, keyword: str, names: Names) -> tuple[Line, Iterator[Line]]:
        """Read all up to the brace; return the line of the brace and those that follow."""
        rows = [(n, row) for n, row in enumerate(text.splitlines(), 1) if row.strip()]
        lines = (Line(row, n, names) for n, row in rows)
        line = next(lines, Line("", 1, names))
        self.title(line, keyword)
        for line in lines:
            more = self.read(line)
            line.end()
            if not more:
                return line, lines
        line.fail("{", "the end of the text")

    def title(self, line: Line, keyword: str) -> None:
        """Read the first line: what it is, its name and attributes."""
        line.expect(keyword)
        self.name = line.name()
        fields: dict[str, Any] = {}
        while line.more:
            key = line.one_of(("kind", "flops", "traffic", "fastmath"), "an attribute")
            if key == "fastmath":
                fields[key] = True
                continue
            line.expect("=")
            fields[key] = line.name() if key == "kind" else line.integer()
        self.meta = Meta(**fields)

    def read(self, line: Line) -> bool:
        """Read one line; False at the brace."""
        if line.take("{"):
            return False
        if line.peek().startswith("$"):
            line.temporary()
        elif line.take("schedule"):
            self.schedule.append(line.string())
        elif line.take("hint"):
            self.hints.append((line.string(), _python(line)))
        elif line.take("param"):
            self.params.append(line.declaration())
        elif line.take("variable"):
            line.expect("@")
            self.variables.append(make(Op.VARIABLE, dt.int64, (), line.bounds()))
        elif line.take("message"):
            text = line.string()
            self.messages.append((text, place_of(line) if line.more else None))
        else:
            line.fail("schedule, hint, param, variable, message or {")
        return True

    def finished(self) -> Meta:
        """Return what was read, without parameters and messages."""
        return self.meta.replace(schedule=tuple(self.schedule), hints=tuple(self.hints))


def _python(line: Line) -> Any:
    text = line.string()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        line.fail("a Python literal", text)


def place_of(line: Line) -> Location:
    """Read a file, a line and a column."""
    return Location(line.string(), line.integer(), line.integer())
