"""What became of the loops of a compute function, and why."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from weft.errors import shown_file
from weft.ir import stmt as st
from weft.ir.expr import Expr, show
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Axis, For, Kernel, Reduce, Stmt
from weft.ir.traverse import walk
from weft.rules.polynomial import Poly
from weft.schedule.analysis.dependence import Conflict, carried
from weft.schedule.analysis.subscripts import Space

if TYPE_CHECKING:
    from weft.lang.compute.translate import Written

__all__ = ["LoopReport", "Report", "report"]

_ORDER: Final = (st.PARALLEL, st.VECTOR, st.UNROLLED, st.SERIAL)

_NUMBERED: Final = re.compile(r"_cell(_\d+)?$")


class LoopReport(Record):
    """What became of one loop.

    Attributes
    ----------
    name : str
        Its variable.
    file, line : str, int
        Where it stands.
    kinds : tuple of str
        How it runs: ``parallel`` (on threads), ``vector``, ``unrolled``, ``serial``; a loop that
        was cut has several.
    reduction : bool
        Whether it adds up (or the like), so that its terms may be taken in another order.
    carried : str
        What keeps its iterations from being independent; empty if they are.
    """

    name: str
    file: str
    line: int
    kinds: tuple[str, ...]
    reduction: bool = False
    carried: str = ""

    def __str__(self) -> str:
        """Return a line about it."""
        words = [*self.kinds] or ["gone"]
        if self.reduction:
            words.append("reduction")
        text = f"line {self.line}: for {self.name}: {', '.join(words)}"
        return f"{text}; {self.carried}" if self.carried else text


class Report(Record):
    """What became of a compute function.

    Attributes
    ----------
    loops : tuple of LoopReport
        Its loops in the order of the source.
    why : str
        What the strategies say.
    schedule : tuple of str
        The steps of the schedule.
    checks : tuple of str
        Conditions on sizes that are tested at each call instead of every index.
    broken : tuple of str
        Loops that were said to be independent and are not known to be.
    """

    loops: tuple[LoopReport, ...]
    why: str
    schedule: tuple[str, ...]
    checks: tuple[str, ...]
    broken: tuple[str, ...]

    def __str__(self) -> str:
        """Return the whole as text."""
        rows = [*map(str, self.loops), f"strategy: {self.why}"]
        rows += [f"tested at each call: {c}" for c in self.checks]
        rows += [f"    {step}" for step in self.schedule]
        return "\n".join(rows)


def report(written: Written, kernel: Kernel, scheduled: Kernel) -> Report:
    """Return what became of the loops of a function on the way from source to schedule."""
    found = _loops(kernel)
    kinds = _kinds(scheduled)
    space = Space(kernel)
    loops: list[LoopReport] = []
    broken: list[str] = []
    seen = {v for v, _ in found}
    live = _live(written.kernel)
    for var, place in written.places.items():
        if var not in live:
            continue
        name = str(var.attr)
        reduction, carries = False, ""
        for v, stmt in found:
            if v is not var:
                continue
            if isinstance(stmt, Reduce):
                reduction = True
            elif isinstance(stmt, For):
                conflict = carried(space, var, stmt.body)
                carries = "" if conflict is None else _reason(conflict, kernel, space)
        where = place.place
        if carries and place.independent:
            broken.append(f"{shown_file(where.file)}:{where.line}: the loop over {place.name} is "
                          f"not known to have independent iterations and runs in order: {carries}")
        ran = tuple(k for k in _ORDER if k in kinds.get(name, ())) if var in seen else ()
        loops.append(LoopReport(place.name, where.file, where.line, ran, reduction, carries))
    hints = dict(scheduled.meta.hints)
    checks = tuple(repr(s.condition) for s in kernel.body if isinstance(s, st.Assert))
    loops.sort(key=lambda r: (r.file, r.line))
    return Report(tuple(loops), str(hints.get("why", "")), scheduled.meta.schedule, checks,
                  tuple(broken))


def _live(kernel: Kernel) -> set[Expr]:
    return {s.var for s in walk(kernel.body) if isinstance(s, For)}


def _loops(kernel: Kernel) -> list[tuple[Expr, Stmt]]:
    out: list[tuple[Expr, Stmt]] = []
    for stmt in walk(kernel.body):
        if isinstance(stmt, For):
            out.append((stmt.var, stmt))
        elif isinstance(stmt, Reduce):
            out.extend((a.var, stmt) for a in stmt.axes)
    return out


def _kinds(kernel: Kernel) -> Mapping[str, set[str]]:
    """Return how the loops that a loop was cut into run, by its name."""
    kinds: dict[str, set[str]] = {}
    for stmt in walk(kernel.body):
        axes: tuple[For | Axis, ...] = ()
        if isinstance(stmt, For):
            axes = (stmt,)
        elif isinstance(stmt, Reduce):
            axes = stmt.axes
        for axis in axes:
            kinds.setdefault(str(axis.var.attr).split(".")[0], set()).add(axis.kind)
    return kinds


def _reason(conflict: Conflict, kernel: Kernel, space: Space) -> str:
    """Return what keeps iterations from being independent, in the words of the source."""
    both = [a for a in (conflict.first, conflict.second) if hasattr(a, "stmt")]
    if not both:
        return str(conflict)  # effects in an order
    parts = []
    for access in dict.fromkeys(both):
        place = kernel.locations.get(access.stmt)
        memory = access.memory
        text = "" if place is None else _source_text(place, memory)
        if not text:
            text = _NUMBERED.sub("", memory.name) if memory.scope == "register" else memory.name
            if access.index:
                text += f"[{', '.join(_shown(space.poly(i)) for i in access.index)}]"
        at = f"line {place.line} " if place is not None else ""
        parts.append(f"{at}{'writes' if access.write else 'reads'} {text}")
    return ", ".join(parts)


def _source_text(place: st.Location, memory: st.Memory) -> str:
    """Return the element that stands at a place of the source, empty if it is another's."""
    line = linecache.getline(place.file, place.line)[place.column:]
    found = re.match(r"\w+", line)
    if found is None or found.group() != memory.name:
        return ""
    depth = 0
    for at, char in enumerate(line):
        depth += (char in "[(") - (char in ")]")
        if depth == 0 and char == "]":
            return line[:at + 1]
    return ""


def _shown(p: Poly) -> str:
    """Return a subscript as it might stand in the source."""
    text = ""
    for key, value in sorted(p.items(), key=lambda term: not term[0]):
        atoms = "*".join(_name(a) for a in key)
        size = "" if abs(value) == 1 and atoms else str(abs(value)) + ("*" if atoms else "")
        sign = (" - " if text else "-") if value < 0 else " + " if text else ""
        text += sign + size + atoms
    return text or "0"


def _name(atom: Expr) -> str:
    text = str(atom.attr) if atom.op is Op.VAR else show(atom)
    return text if atom.op is Op.VAR or text.isidentifier() else f"({text})"
