"""The rows of one native call, as they are assembled (see `weft.runtimes.native.calls.rows`)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from weft.runtimes.native.calls.rows import ROW_WORDS, Table

__all__ = ["Object", "Operand", "Program", "Turns", "lock_words"]


class Object(NamedTuple):
    """An operand that is an integer object, and not its value."""

    value: object


Operand = int | object
# How to take a lock for the time of the call and to give it back (without waiting: acquire(False)
# says whether it was free), and the address of the word that is 1 meanwhile.
Turns = tuple[object, object, int]


class Program:
    """Rows and tables, and what has to live as long as they.

    Operands are integers, objects (their address, and they are kept alive), or what `table`
    returns. Words of the frame are numbered: word 0 takes what nobody reads. Rows that may run
    other code of Python stand before those that read addresses of memory.

    Parameters
    ----------
    operations
        The operations that the code knows, in their order.
    nwords
        How many words of the frame are taken: word 0 and the arguments.
    """

    def __init__(self, operations: Table, nwords: int) -> None:
        self.nwords = nwords
        self._numbers: Final = {name: number for number, name in enumerate(operations, 1)}
        self._checks: list[tuple[Operand, ...]] = []
        self._reads: list[tuple[Operand, ...]] = []
        self._keep: list[object] = []
        self._tables: list[tuple[array[int], Sequence[Operand]]] = []

    def words(self, count: int = 1) -> int:
        """Return the first of new words."""
        self.nwords += count
        return self.nwords - count

    def keep(self, value: object) -> None:
        """Keep something alive as long as the rows."""
        self._keep.append(value)

    def table(self, words: Sequence[Operand]) -> int:
        """Return the address of a table of operands."""
        found = array("q", bytes(8 * max(len(words), 1)))
        self._tables.append((found, words))
        return found.buffer_info()[0]

    def check(self, operation: str, *operands: Operand) -> None:
        """Add a row that may run other code, or looks at what cannot change."""
        self._checks.append((operation, *operands))

    def read(self, operation: str, *operands: Operand) -> None:
        """Add a row that comes last before the run: reading addresses."""
        self._reads.append((operation, *operands))

    def _assembled(self, rows: Sequence[tuple[Operand, ...]]) -> array[int]:
        """Return rows as words, and fill the tables."""
        words = array("q")
        for operation, *operands in rows:
            row = [self._numbers[str(operation)], *map(self._word, operands)]
            words.extend(row + [0] * (ROW_WORDS - len(row)))
        for table, items in self._tables:
            for i, item in enumerate(items):
                table[i] = self._word(item)
        return words

    def _word(self, operand: Operand) -> int:
        if type(operand) is int:
            return operand
        value = operand.value if isinstance(operand, Object) else operand
        self._keep.append(value)
        return id(value)


def lock_words(turns: Turns | None) -> dict[str, int]:
    """Return the words of a context that say how a call takes its turn."""
    acquire, give, writing = (0, 0, 0) if turns is None else (id(turns[0]), id(turns[1]), turns[2])
    return {"acquire": acquire, "give": give, "writing": writing}
