"""The reader of kernels, given values and places instead of syntax."""

from __future__ import annotations

from typing import Any

from weft.frontend.build.places import BuiltSource, Place
from weft.frontend.kernel import warp
from weft.frontend.kernel.loops import Functions
from weft.frontend.kernel.source import Problems
from weft.frontend.kernel.values import Value
from weft.ir.stmt import Location, Stmt

__all__ = ["Lowering"]

_ = warp  # which enters its intrinsics in the table of all


class Lowering(Functions):
    """Types and emits what a builder asks for, by the rules of `@weft.kernel`."""

    def __init__(self, source: BuiltSource, problems: Problems) -> None:
        super().__init__(source, problems)


    def arguments(self, node: Any) -> tuple[list[Value], dict[str, Value]]:
        """Return the values that a call was given."""
        return list(node.given), dict(node.named)

    def placed(self, stmt: Stmt, place: Place) -> Stmt:
        """Note where a statement stands that is put into a body by hand."""
        self.locations[stmt] = Location(place.file, place.lineno, place.col_offset)
        return stmt
