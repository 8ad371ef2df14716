"""What the sanitiser finds: records, and what collects a bounded number of them."""

from __future__ import annotations

from typing import Final

from weft.errors import shown_file
from weft.ir.record import Record
from weft.ir.stmt import Location

__all__ = ["KINDS", "Collector", "Finding", "Thread", "Where"]

Triple = tuple[int, int, int]
Thread = tuple[Triple, Triple]  # (block, thread), each as x, y, z

RACE: Final = "race"
MISSING_BARRIER: Final = "missing-barrier"
UNINITIALISED: Final = "uninitialised"
OUT_OF_BOUNDS: Final = "out-of-bounds"
MISALIGNED: Final = "misaligned"
DIVERGENCE: Final = "barrier-divergence"
WARP_MASK: Final = "warp-mask"
UNCOMMITTED: Final = "uncommitted-copy"
ASSERTION: Final = "assertion"
ENDLESS: Final = "endless"
KINDS: Final = (RACE, MISSING_BARRIER, UNINITIALISED, OUT_OF_BOUNDS, MISALIGNED, DIVERGENCE,
                WARP_MASK, UNCOMMITTED, ASSERTION, ENDLESS)

_MOST: Final = 256  # findings of one run
_NOWHERE: Final = Location("", 0)


class Finding(Record):
    """One thing that a kernel does wrong.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    file, line : str and int
        Where it happens; of two accesses in conflict, the one that came later.
    threads : tuple of ((int, int, int), (int, int, int))
        Block and thread of each thread of the first case that was seen.
    message : str
        What happens, in a sentence.
    lines : tuple of int
        All lines that take part, the earlier one first: of two accesses in conflict both, of a
        shuffle from nobody its own and that where its value is used.
    count : int
        How often it was seen.
    """

    kind: str
    file: str
    line: int
    threads: tuple[Thread, ...]
    message: str
    lines: tuple[int, ...] = ()
    count: int = 1

    def __str__(self) -> str:
        """Return ``file:line: kind: message``."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{shown_file(self.file)}:{self.line}: {self.kind}: {self.message}{times}"


Where = Location | None


class Collector:
    """Keeps the first finding of each kind at each line, and counts the others.

    Attributes
    ----------
    dropped : int
        Findings at further lines that were not kept because there were too many.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int, str], tuple[Finding, int]] = {}
        self.dropped = 0

    def is_new(self, kind: str, place: Where, subject: str) -> bool:
        """Whether a finding would be kept; if not, it is counted."""
        place = place or _NOWHERE
        key = (kind, place.file, place.line, subject)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = known[0], known[1] + 1
            return False
        if len(self._found) >= _MOST:
            self.dropped += 1
            return False
        return True

    def add(self, kind: str, place: Where, subject: str, threads: tuple[Thread, ...],
            message: str, other: Where = None, later: Where = None) -> None:  # fmt: skip
        """Keep a finding about a subject (the name of a memory), after `is_new`.

        `other` and `later` are places before and behind this one that take part.
        """
        place = place or _NOWHERE
        lines = tuple(p.line for p in (other, place, later) if p is not None)
        made = Finding(kind, place.file, place.line, threads, message, lines)
        self._found[kind, place.file, place.line, subject] = made, 1

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings by line.

        Where threads of two blocks are in conflict, so are often threads of one block, but the
        barrier that is missing there would not be enough: only the race is told.
        """
        races = {(f.file, f.lines, key[-1]) for key, (f, _) in self._found.items()
                 if f.kind == RACE}
        found = [f.replace(count=count) for key, (f, count) in self._found.items()
                 if f.kind != MISSING_BARRIER or (f.file, f.lines, key[-1]) not in races]
        return tuple(sorted(found, key=lambda f: (f.file, f.line, KINDS.index(f.kind))))
