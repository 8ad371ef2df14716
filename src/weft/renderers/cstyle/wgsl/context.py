"""What the parts of the WGSL renderer may ask of the writer that they write for."""

from __future__ import annotations

from typing import Protocol

from weft.ir.dtype import DType
from weft.ir.linear import Compute, Value
from weft.renderers.cstyle.context import Words
from weft.renderers.cstyle.text import Text
from weft.renderers.cstyle.uses import Uses

__all__ = ["WGSLWords"]


class WGSLWords(Words, Protocol):
    """The writer of one launch, as `weft.renderers.cstyle.wgsl.writer.WGSLWriter` has it."""

    uses: Uses

    def emit(self, line: str) -> None:
        """Append a line to the block that is open."""
        ...

    def function(self, name: str) -> str:
        """Return a function of the library, which is written before the kernel."""
        ...

    def accessor(self, array: str, what: str) -> str:
        """Return a function of words of an array: load, store, or one that is atomic."""
        ...

    def hoisted(self, text: Text, d: DType) -> str:
        """Return a name for a value, written before what uses it."""
        ...

    def runtime(self, inst: Compute) -> tuple[Text, ...]:
        """Return operands, of which one at least is no constant."""
        ...

    def kept(self, inst: Compute, text: Text) -> Text:
        """Return a result of float arithmetic so that no driver folds it into what uses it."""
        ...

    def integer(self, text: Text, source: DType, to: DType) -> Text:
        """Return an integer or bool as an integer of another type, wrapped around."""
        ...

    def is_natural(self, value: Value) -> bool:
        """Whether an integer is known not to be negative."""
        ...

    def is_positive(self, value: Value) -> bool:
        """Whether an integer is known to be more than 0."""
        ...
