"""What the parts of the C renderer may ask of the writer that they write for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from weft.ir.dtype import DType
from weft.ir.linear import Compute, Value
from weft.ir.op import Operation
from weft.ir.stmt import Memory
from weft.renderers.cstyle.context import Words
from weft.renderers.cstyle.text import Text

__all__ = ["CWords", "Mask", "padded"]


class Mask(NamedTuple):
    """A vector of bools: 0 and -1 in lanes of integers.

    Attributes
    ----------
    width : int
        Bits of a lane as it was made; 0 for one that is made in any width with no more effort.
    render : callable
        Returns its text for a width: for its own if it has one.
    """

    width: int
    render: Callable[[int], str]


def padded(lanes: int) -> int:
    """Return the lanes that a vector of so many takes: C has powers of two."""
    return 1 << (lanes - 1).bit_length()


class CWords(Words, Protocol):
    """The writer of one kernel, as `weft.renderers.cstyle.c.renderer.CWriter` has it."""

    @property
    def streams(self) -> bool:
        """Whether vectors are stored past the caches where a kernel asks for it."""
        ...

    def every(self, mask: str, d: DType, lanes: int) -> str:
        """Return whether a mask for vectors of a type is of all lanes, "" if that is dear."""
        ...

    def vector_call(self, op: Operation, d: DType, lanes: int, names: str) -> list[str]:
        """Return the statements that compute a function of vectors, if the language has it."""
        ...

    def emit(self, line: str) -> None:
        """Append a line to the block that is open."""
        ...

    def vector(self, kind: str, size: int, lanes: int) -> str:
        """Return a vector of elements of a type of `size` bytes."""
        ...

    def unaligned(self, d: DType, lanes: int) -> str:
        """Return the type of a vector in memory."""
        ...

    def mask_type(self, width: int, lanes: int) -> str:
        """Return the type of masks with lanes of so many bits."""
        ...

    def mask(self, value: Value, width: int) -> str:
        """Return a vector of bools with lanes of so many bits."""
        ...

    def natural(self, value: Value) -> Mask:
        """Return a vector of bools as it was made."""
        ...

    def maker(self, value: Value) -> Compute | None:
        """Return the CONST, BROADCAST or RAMP that made a vector, else None."""
        ...

    def is_splat(self, value: Value) -> bool:
        """Return whether all lanes of a vector are known to be one element."""
        ...

    def scalar(self, value: Value) -> Text:
        """Return the one element of such a vector; any other vector as it is.

        For an operator whose other operand is a vector.
        """
        ...

    def number_of(self, word: str) -> int:
        """Return a number for a word, the same for an equal one."""
        ...

    def memory(self, memory: Memory) -> str:
        """Return the name of an array."""
        ...

    def stored(self, d: DType) -> str:
        """Return the type of elements in memory."""
        ...

    def declare(self, value: Value, text: Text | str) -> None:
        """Write a constant of the block."""
        ...
