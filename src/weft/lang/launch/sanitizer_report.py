"""What the sanitiser says of a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ir.record import Record

if TYPE_CHECKING:
    from weft.runtimes.lockstep.findings import Finding

__all__ = ["Report"]


class Report(Record):
    """What the sanitiser says of one launch.

    Attributes
    ----------
    findings : tuple of Finding
        What the kernel does wrong, by line; empty if nothing was found. See
        `weft.runtimes.lockstep.findings.Finding`: ``kind``, ``file``, ``line``, ``threads``,
        ``message``, ``lines``, ``count``.
    dropped : int
        Findings that were not kept because there were too many.
    instructions : int
        Statements and operations that were carried out, counted by thread.
    """

    findings: tuple[Finding, ...]
    dropped: int = 0
    instructions: int = 0

    def __str__(self) -> str:
        """Return a line for each finding."""
        rows = [str(f) for f in self.findings]
        if self.dropped:
            rows.append(f"and {self.dropped} more")
        return "\n".join(rows) or "no findings"
