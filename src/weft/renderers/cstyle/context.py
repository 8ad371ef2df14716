"""What the rows of operations may ask of the writer whose tables they are in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from weft.errors import UnsupportedError
from weft.ir.dtype import DType
from weft.ir.linear import Compute, Value
from weft.ir.op import Operation
from weft.renderers.cstyle.text import Text
from weft.renderers.ranges import Ranges
from weft.target import Target

__all__ = ["Row", "Words"]


class Words(Protocol):
    """The writer of one kernel, as `weft.renderers.cstyle.base.Writer` has it."""

    INLINE: ClassVar[str]
    FLOATS: ClassVar[Mapping[Operation, str]]
    WRAPS: ClassVar[bool]
    SPACE: ClassVar[str]
    INT128: ClassVar[bool]
    COUNTS: ClassVar[tuple[str, str]]
    target: Target
    ranges: Ranges

    def type(self, d: DType, lanes: int = 1) -> str:
        """Return the type of values in registers."""
        ...

    def helper(self, name: str, text: Callable[[], str]) -> str:
        """Return the name of a function of the prelude, which is written once."""
        ...

    def call(self, name: str, *arguments: Text | str) -> Text:
        """Return a call."""
        ...

    def cast(self, d: DType, text: Text) -> Text:
        """Return a conversion in the language's own way."""
        ...

    def bitcast(self, text: Text, source: DType, to: DType) -> Text:
        """Return the same bits as a value of another type of that width."""
        ...

    def choose(self, condition: str, a: str, b: str, d: DType, lanes: int) -> str:
        """Return `a` where a comparison of values of `d` holds, else `b`; all are of `d`."""
        ...

    def converted(self, text: str, source: DType, to: DType, lanes: int) -> str:
        """Return values converted as C does."""
        ...

    def same_bits(self, text: str, source: DType, to: DType, lanes: int) -> str:
        """Return the bits of values as those of another type of that width."""
        ...

    def function_name(self, op: Operation, d: DType) -> str:
        """Return the name of a function of floats."""
        ...

    def literal(self, value: Any, d: DType) -> Text:
        """Return a scalar constant."""
        ...

    def operand(self, value: Value) -> Text:
        """Return what a value is called."""
        ...

    def arg(self, value: Value, level: int = 0) -> str:
        """Return the text of a value for a place of this level."""
        ...

    def number(self, value: Value) -> Any:
        """Return the Python value of a constant, else None."""
        ...

    def lacks(self, inst: Compute) -> UnsupportedError:
        """Return the error of an operation that the language does not have."""
        ...


Row = Callable[[Any, Compute], Text]  # the writer is Words, or what a language makes of it
