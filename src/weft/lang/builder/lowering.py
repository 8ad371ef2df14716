"""The reader of kernels, given values and places instead of syntax."""

from __future__ import annotations

import ast
from typing import Any

from weft.ir.stmt import Location, Stmt
from weft.lang.builder.places import BuiltSource, Place
from weft.lang.core.values import Value
from weft.lang.reader import translate
from weft.lang.reader.functions import Functions
from weft.lang.source.source import Problems, Stop

__all__ = ["Lowering"]

_ = translate  # which enters all intrinsics in their table


class Lowering(Functions):
    """Types and emits what a builder asks for, by the rules of `@weft.kernel`."""

    def __init__(self, source: BuiltSource, problems: Problems) -> None:
        super().__init__(source, problems)


    def wrong(self, node: ast.AST, message: str, hint: str = "") -> Stop:
        """Note a problem; each place has a file of its own."""
        if isinstance(node, Place):
            self.source.file = node.file
        return super().wrong(node, message, hint)

    def arguments(self, node: Any) -> tuple[list[Value], dict[str, Value]]:
        """Return the values that a call was given."""
        return list(node.given), dict(node.named)

    def placed(self, stmt: Stmt, place: Place) -> Stmt:
        """Note where a statement stands that is put into a body by hand."""
        self.locations[stmt] = Location(place.file, place.lineno, place.col_offset)
        return stmt
