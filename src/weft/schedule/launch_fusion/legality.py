"""Consecutive launches of kernels as one launch, where that changes no result.

Every thread of the joined kernel does what it would do in the first launch, then what it would do
in the second one. That is the same if no element that one launch writes is touched in the other
one by another thread (`weft.schedule.launch_fusion.conflicts`); where only threads of one block
meet, a barrier of the block goes between the two. The rest is refused, with the reason:

* another grid or block, a barrier of the whole grid, relaxed arithmetic;
* arrays that overlap and are not the same view;
* checks that are not proved to hold: after a failure nothing of the next launch may have happened;
* printing in both;
* atomic operations on elements that other threads touch, unless both are the same commutative
  integer operation whose result nobody looks at;
* more shared memory than a block may have, more registers than a thread may have.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence
from typing import Final

from weft.errors import said, shown_file
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import (
    LEFT,
    Alloc,
    Assert,
    Atomic,
    Barrier,
    Block,
    Collective,
    Fence,
    For,
    If,
    Let,
    Load,
    Memory,
    Prefetch,
    Print,
    Stmt,
    Store,
    While,
)
from weft.ir.traverse import variables, walk
from weft.schedule.analysis.resources import registers, shared_bytes
from weft.schedule.launch_fusion import conflicts
from weft.schedule.launch_fusion.footprint import Footprint, Touch, footprint, shape_variables
from weft.schedule.launch_fusion.fused_kernel import joined
from weft.schedule.launch_fusion.launches import Array, Group, Limits, Part
from weft.schedule.launch_fusion.rename import renamed

__all__ = ["group"]

_KNOWN: Final = (Alloc, Assert, Atomic, Barrier, Block, Collective, Fence, For, If, Let, Load,
                 Prefetch, Print, Store, While)  # fmt: skip
_COMMUTE: Final = ("add", "sub", "min", "max", "and", "or", "xor")
_MOST_PAIRS: Final = 4096
_MOST_LOOPS: Final = 16  # pairs of loops of two launches


def group(parts: Sequence[Part], limits: Limits | None = None) -> tuple[list[Group], list[str]]:
    """Return the launches in groups that may run as one, and why no more of them may.

    Parameters
    ----------
    parts : sequence of Part
        The launches, in order.
    limits : Limits or None
        What one kernel may need.
    """
    limits = limits or Limits()
    same = _Same(parts)
    views = [_View(number, part, same) for number, part in enumerate(parts)]
    groups: list[Group] = []
    reasons: list[str] = []
    current = _Growing(views[0], limits, same)
    for view in views[1:]:
        reason = current.take(view)
        if reason is not None:
            reasons.append(f"not fused: {reason}")
            groups.append(current.done())
            current = _Growing(view, limits, same)
    groups.append(current.done())
    return groups, reasons


class _Same:
    """What the launches have in common: views of the same memory, and equal sizes."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.memories: dict[tuple[int, int], Memory] = {}  # (part, parameter): one memory for all
        self.arrays: dict[Memory, tuple[int, int]] = {}
        self.variables: dict[str, tuple[int, str]] = {}
        self.names: list[dict[Expr, Expr]] = []
        self.overlaps: dict[tuple[int, int], list[tuple[int, int]]] = {}
        by_value: dict[int, Expr] = {}
        by_view: dict[tuple[object, ...], Memory] = {}
        seen: list[tuple[tuple[int, int], Array]] = []
        for number, part in enumerate(parts):
            names = self._named(number, part, by_value)
            self.names.append(names)
            for position, (memory, array) in enumerate(
                zip(part.kernel.params, part.arrays, strict=True)
            ):
                at = number, position
                view: tuple[object, ...] = (array.address, array.nbytes, memory.dtype.name,
                                            len(memory.shape), array.layout)
                if not array.nbytes:
                    view = at  # nothing overlaps
                known = by_view.get(view)
                if known is None:
                    shape = tuple(ex.substitute(memory.shape, names))
                    known = Memory(f"{memory.name}.{number}", memory.dtype, shape)
                    by_view[view] = known
                    self.arrays[known] = at
                    self.overlaps[at] = [other for other, a in seen if _overlap(a, array)]
                    seen.append((at, array))
                self.memories[at] = known

    def _named(self, number: int, part: Part, by_value: dict[int, Expr]) -> dict[Expr, Expr]:
        """Return the name in all launches of each variable of one; equal sizes share theirs."""
        shapes = shape_variables(part.kernel)
        names: dict[Expr, Expr] = {}
        for e in sorted(variables(part.kernel), key=lambda e: str(e.attr.name)):
            value = part.variables[e.attr.name]
            made = by_value.get(value) if e.attr.name in shapes else None
            if made is None:
                made = ex.Variable(f"{e.attr.name}.{number}", e.attr.min, e.attr.max)
                self.variables[made.attr.name] = number, e.attr.name
                if e.attr.name in shapes:
                    by_value[value] = made
            names[e] = made
        return names


def _overlap(a: Array, b: Array) -> bool:
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes


class _View:
    """One launch in the names of all, and what is asked of it once."""

    def __init__(self, number: int, part: Part, same: _Same) -> None:
        self.number, self.part = number, part
        self.params = {m: same.memories[number, k] for k, m in enumerate(part.kernel.params)}
        self.kernel = renamed(part.kernel, number, same.names[number], self.params)
        self.originals: dict[Memory, str] = {}
        for old, new in self.params.items():
            self.originals.setdefault(new, old.name)
        self.values = {str(new.attr.name): part.variables[old.attr.name]
                       for old, new in same.names[number].items()}
        self.written = {s.memory for s in walk(self.kernel.body)
                        if isinstance(s, Store | Atomic)} & set(self.params.values())
        self._footprint: Footprint | None = None

    @property
    def orders(self) -> bool:
        """Whether threads tell each other when memory may be read, in other ways than barriers."""
        return bool(self.footprint.fences) or any(
            isinstance(s, Atomic) and s.order != "relaxed" for s in walk(self.kernel.body))

    @property
    def footprint(self) -> Footprint:
        if self._footprint is None:
            self._footprint = footprint(self.kernel, self.values)
        return self._footprint

    def unfit(self) -> str | None:
        """Return why this launch can be a part of no other one."""
        name = self.part.name
        if self.part.apart:
            return f"{name} {self.part.apart}"
        if self.kernel.meta.fastmath:
            return f"{name} may round otherwise in another kernel (fastmath)"
        for s in walk(self.kernel.body):
            if isinstance(s, Block) and s.name == LEFT:
                return f"threads leave {name} while others go on, {self.place(s)}"
            if not isinstance(s, _KNOWN):
                return f"{name} uses {type(s).__name__}, {self.place(s)}"
        found = self.footprint
        if found.grid_barriers:
            return f"{name} waits for the whole grid, {self.place(found.grid_barriers[0])}"
        if found.failing:
            s = found.failing[0]
            assert isinstance(s, Assert)
            return (f"{name} may fail ({said(s.message)}), and nothing else must have run, "
                    f"{self.place(s)}")
        return None

    def place(self, s: Stmt) -> str:
        """Return the file and the line of a statement."""
        location = self.kernel.locations.get(s)
        if location is None:
            return "of unknown place"
        return f"{shown_file(location.file)}:{location.line}"

    def element(self, touch: Touch) -> str:
        """Return an access as it is written in the source."""
        location = self.kernel.locations.get(touch.stmt)
        if location is not None and location.column:  # else it is the place of the launch
            text = linecache.getline(location.file, location.line)[location.column:].rstrip()
            found = _subscript(text) if not isinstance(touch.stmt, Atomic) else None
            if found is not None:
                return found
        index = getattr(touch.stmt, "index", ())
        return f"{self.originals[touch.memory]}[{', '.join(map(ex.show, index))}]"


def _subscript(text: str) -> str | None:
    """Return the name and the brackets at the start of a line of source."""
    head = re.match(r"[A-Za-z_][\w.]*\s*(?=[\[(])", text)
    if head is None:
        return None
    depth = 0
    for position in range(head.end(), len(text)):
        depth += (text[position] in "([{") - (text[position] in ")]}")
        if not depth:
            return text[: position + 1]
    return None


class _Growing:
    """A group to which launches are added as long as they fit."""

    def __init__(self, first: _View, limits: Limits, same: _Same) -> None:
        self.views = [first]
        self.limits, self.same = limits, same
        self.barriers: set[int] = set()
        self.shared_elements: set[Memory] = set()  # other threads of the block touch them

    def take(self, view: _View) -> str | None:
        """Add a launch, or return why it does not fit."""
        first, part = self.views[0].part, view.part
        if (part.grid, part.block) != (first.grid, first.block):
            return (f"{part.name} runs on {part.grid} blocks of {part.block}, "
                    f"{self.views[-1].part.name} on {first.grid} blocks of {first.block}")
        for known in ([*self.views, view] if len(self.views) == 1 else [view]):
            reason = known.unfit()
            if reason is not None:
                return reason
        reason = self._printing(view) or self._overlapping(view)
        if reason is not None:
            return reason
        met: set[Memory] = set()
        barrier = False
        for earlier in self.views:
            found = self._meeting(earlier, view, met)
            if isinstance(found, str):
                return found
            barrier |= found and not any(earlier.number < b for b in self.barriers)
        barriers = self.barriers | ({view.number} if barrier else set())
        reason = self._resources(view, barriers, self.shared_elements | met)
        if reason is not None:
            return reason
        self.barriers = barriers
        self.shared_elements |= met
        self.views.append(view)
        return None

    def _printing(self, view: _View) -> str | None:
        for earlier in self.views:
            if earlier.footprint.printing and view.footprint.printing:
                return (f"{view.part.name} prints after {earlier.part.name} has, "
                        f"{view.place(view.footprint.printing[0])}")
        return None

    def _overlapping(self, view: _View) -> str | None:
        """Return what is said of arrays that overlap without being the same view."""
        views = [*self.views, view]
        memories = {m: v for v in views for m in v.params.values()}
        written = {m for v in views for m in v.written}
        for memory, owner in memories.items():
            at = self.same.arrays[memory]
            for other_at in self.same.overlaps[at]:
                other = self.same.memories[other_at]
                if other not in memories or not {memory, other} & written:
                    continue
                second = memories[other]
                return (f"{owner.originals[memory]} of {owner.part.name} and "
                        f"{second.originals[other]} of {second.part.name} overlap and are "
                        "different views")
        return None

    def _meeting(self, earlier: _View, view: _View, met: set[Memory]) -> bool | str:
        """Return whether a barrier must go between two launches, or why they cannot be one."""
        needs = False
        common = (earlier.written & view.originals.keys()) | (
            view.written & earlier.originals.keys())
        before = [t for t in earlier.footprint.touches if t.memory in common]
        after = [t for t in view.footprint.touches if t.memory in common]
        if len(before) * len(after) > _MOST_PAIRS:
            return f"{view.part.name} has too many accesses to compare"
        for a in before:
            for b in after:
                if a.memory is not b.memory or not (a.writes or b.writes) or _commute(
                    earlier, a, view, b
                ):
                    continue
                distance = conflicts.meet(earlier.footprint, a, view.footprint, b)
                if distance == conflicts.GRID:
                    return _reason(earlier, a, view, b)
                if distance == conflicts.BLOCK:
                    needs = True
                    met.add(a.memory)
        return needs

    def _resources(self, view: _View, barriers: set[int], met: set[Memory]) -> str | None:
        views = [*self.views, view]
        shared = sum(shared_bytes(v.kernel) for v in views)
        name = view.part.name
        if shared > self.limits.shared:
            return (f"{name} would bring the shared memory of a block to {shared} bytes, "
                    f"of {self.limits.shared}")
        most = min(v.part.most_registers for v in views)
        alone = max(registers(v.kernel.body) for v in views)
        together = registers(joined(self._made(views, barriers, met)).body)
        if together > max(most, alone):
            return f"{name} would bring a thread to {together} registers, of {most}"
        return None

    def done(self) -> Group:
        """Return the group."""
        return self._made(self.views, self.barriers, self.shared_elements)

    def _made(self, views: Sequence[_View], barriers: set[int], met: set[Memory]) -> Group:
        kernels = tuple(v.kernel for v in views)
        memories = dict.fromkeys(m for v in views for m in v.params.values())
        used = {str(e.attr.name) for k in kernels for e in variables(k)}
        used |= {str(e.attr.name) for m in memories for e in ex.variables(m.shape)}
        own: set[Memory] = set()
        if len(views) > 1 and not any(v.orders for v in views):
            atomic = {s.memory for k in kernels for s in walk(k.body) if isinstance(s, Atomic)}
            own = set(memories) - atomic - met
        loops = frozenset(pair for k, late in enumerate(views) for early in views[:k]
                          for pair in _free_loops(early, late)) if own else frozenset()
        return Group(tuple(v.number for v in views), kernels, frozenset(barriers),
                     frozenset(own), {m: self.same.arrays[m] for m in memories},
                     {n: at for n, at in self.same.variables.items() if n in used}, loops)


def _free_loops(early: _View, late: _View) -> Iterator[tuple[Expr, Expr]]:
    """Yield counters of loops, one of each launch, whose turns do not need each other."""
    counters = [[s.var for s in walk(v.kernel.body) if isinstance(s, For)
                 and not s.kind.startswith(("block.", "thread."))] for v in (early, late)]
    if not all(counters) or len(counters[0]) * len(counters[1]) > _MOST_LOOPS:
        return
    common = (early.written & late.originals.keys()) | (late.written & early.originals.keys())
    for x in counters[0]:
        before = [t for t in early.footprint.touches if x in t.loops and t.memory in common]
        for y in counters[1]:
            after = [t for t in late.footprint.touches if y in t.loops and t.memory in common]
            if all(conflicts.same_turn(early.footprint, a, x, late.footprint, b, y)
                   for a in before for b in after
                   if a.memory is b.memory and (a.writes or b.writes)):
                yield x, y


def _commute(earlier: _View, a: Touch, view: _View, b: Touch) -> bool:
    """Whether two atomic operations give the same memory in any order."""
    x, y = a.stmt, b.stmt
    if not (isinstance(x, Atomic) and isinstance(y, Atomic)):
        return False
    kinds = {"add" if s.kind == "sub" else s.kind for s in (x, y)}
    if len(kinds) > 1 or not kinds <= set(_COMMUTE) or a.memory.dtype.is_float:
        return False
    return not any(
        s.var in ex.free_vars(e for other in walk(v.kernel.body) for e in other.exprs())
        for s, v in ((x, earlier), (y, view))
    )


def _reason(earlier: _View, a: Touch, view: _View, b: Touch) -> str:
    """Return why two accesses cannot be in one launch."""
    second = view.part.name
    atomic = isinstance(a.stmt, Atomic) or isinstance(b.stmt, Atomic)
    if isinstance(b.stmt, Load):
        how = "changes atomically" if atomic else "writes"
        return (f"{second} reads {view.element(b)}, which another block {how}, "
                f"{view.place(b.stmt)}")
    did = ("changes atomically" if isinstance(a.stmt, Atomic) else
           "writes" if a.writes else "reads")
    does = "changes" if isinstance(b.stmt, Atomic) else "writes"
    return (f"{second} {does} {view.element(b)}, which another block of {earlier.part.name} {did}, "
            f"{view.place(b.stmt)}")


