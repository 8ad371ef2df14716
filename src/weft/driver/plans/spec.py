"""Plans as data, as they lie on disk."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from weft.errors import WeftError
from weft.ir.plan.plan import Launch, Parallel, parse_plan, print_plan
from weft.ir.plan.plan import Plan as HostPlan

__all__ = ["Panels", "Spec"]

_FORMAT: Final = 4


class Panels(NamedTuple):
    """Copies of an input that a plan reads from an input of its own, behind those of the graph.

    Attributes
    ----------
    key : str
        What fills them.
    nbytes : int
        Their size.
    source : int
        The input that they are copies of.
    """

    key: str
    nbytes: int
    source: int


class Spec(NamedTuple):
    """A plan as data, as it lies on disk.

    Attributes
    ----------
    host : weft.ir.plan.plan.Plan
        The host program.
    checks : tuple of tuple of int
        For each launch the checked nodes, by position in the graph's operands-first order.
    outputs : tuple of (str, int)
        For each result ``("leaf", input slot)`` or ``("new", output slot)``.
    nanoseconds : int
        Estimated time of one call.
    panels : tuple of Panels
        The inputs behind those of the graph.
    """

    host: HostPlan
    checks: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[str, int], ...]
    nanoseconds: int
    panels: tuple[Panels, ...] = ()

    def pack(self) -> bytes:
        """Return the cache entry."""
        parts = [_FORMAT, print_plan(self.host), self.checks, self.outputs, self.nanoseconds,
                 self.panels]
        return json.dumps(parts, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Spec | None:
        """Return the plan of a cache entry, or None if it is not one."""
        try:
            version, text, checks, outputs, nanoseconds, panels = json.loads(data)
            if version != _FORMAT:
                return None
            host = parse_plan(text)
            regions = [s.steps for s in host.steps if isinstance(s, Parallel)]
            if not all(r and all(isinstance(s, Launch) for s in r) for r in regions):
                return None  # which no plan of ours has, and `groups` does not number
            return cls(
                host, tuple(tuple(map(int, c)) for c in checks),
                tuple((str(kind), int(slot)) for kind, slot in outputs), int(nanoseconds),
                tuple(Panels(str(key), int(n), int(source)) for key, n, source in panels),
            )
        except (ValueError, TypeError, RecursionError, WeftError):
            return None
