"""Graphs compiled for repeated calls: which arrays a plan reads, scratch memory, native calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from sys import getrefcount
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.background import unvisited
from weft.driver.graph_key import Structure
from weft.driver.plans.plan import check_variables
from weft.driver.plans.plan_cache import plan_for
from weft.driver.slices import Cut, Parts, take_slices
from weft.imports import importing
from weft.ir.node import Node, Storage
from weft.ir.op import Op

if TYPE_CHECKING:
    from weft.driver.plans.layouts import Layouts
    from weft.ir.expr import Expr
    from weft.runtimes.memory.buffer import Buffer
    from weft.runtimes.native.calls.dispatch import Program, Slot

__all__ = ["Binding", "Checked", "Compiled", "Panel"]

_MOST_VALUES: Final = 256  # values of variables that a compiled graph keeps ready
# What refers to an array that only its tensor knew: what that gave away, the caller's list of
# arrays, that of `call`, the list and the name in `_take_over`, and the argument of `getrefcount`.
_OWN_REFERENCES: Final = 6
_KEPT_ARENA: Final = 1 << 20  # bytes of scratch memory that a compiled graph may hold on to

Failure = tuple[int, int, int, int, int]


class Panel(NamedTuple):
    """Copies of a captured array that the caller of a compiled graph keeps.

    Attributes
    ----------
    key : str
        Equal for copies that are made alike.
    nbytes : int
        Their size.
    source : int
        Which of the captured arrays.
    offset : int
        From which of its bytes on.
    """

    key: str
    nbytes: int
    source: int
    offset: int


class Binding(NamedTuple):
    """What a native call of a compiled graph takes.

    Attributes
    ----------
    program : Program
        The rows of the call so far.
    inputs : dict of int to list of (Slot, int)
        Where each input goes that is read (arguments, then captured arrays), with an offset.
    panels : list of Slot
        Where the panels go that the caller keeps.
    outputs : list of (int or Expr, Slot)
        Memory to take, in bytes: the results' first, then perhaps an arena.
    arena : Buffer or None
        An arena that one call at a time may use.
    variables : dict of str to Slot
        Where the values of variables go, one behind the other.
    layouts : Layouts or None
        The plans that variables choose from, if they do.
    place : Slot or None
        Where the arena goes that is as large as the chosen plan says, if there is one.
    """

    program: Program
    inputs: dict[int, list[tuple[Slot, int]]]
    panels: list[Slot]
    outputs: list[tuple[int | Expr, Slot]]
    arena: Buffer | None
    variables: dict[str, Slot]
    layouts: Layouts | None
    place: Slot | None


class Compiled:
    """A graph compiled for repeated calls.

    Parameters
    ----------
    outputs : sequence of Node
        What to compute.
    inputs : sequence of Storage
        Placeholders; other leaves are `captured` and read at each call.
    updates : mapping of int to Storage, optional
        Outputs, each with the captured leaf that its caller will replace by it. Where nothing else
        refers to the leaf's memory at a call, the output may be written over it.
    resident : collection of Storage
        Captured leaves of which the caller keeps copies between calls: those of `panels`, which
        it fills by `fill` and hands to `call`.
    counter : str
        What counts a plan that was not in memory.
    cut : Cut, optional
        The graph with contiguous slices as arrays of their own, if that is known.
    """

    __slots__ = ("_allocate", "_apart", "_arena", "_at", "_in_order", "_limits", "_new_only",
                 "_offsets", "_order", "_places", "_run", "_sizes", "_spare", "_updated",
                 "captured", "native", "nodes", "panels", "plan", "values")  # fmt: skip

    takes_over: Final = True  # whether results may take the memory of what they replace

    def __init__(self, outputs: Sequence[Node], inputs: Sequence[Storage],
                 structure: Structure | None = None,
                 updates: Mapping[int, Storage] | None = None,
                 resident: Collection[Storage] = (), counter: str = "captured plans",
                 cut: Cut | None = None) -> None:  # fmt: skip
        structure = structure or Structure(outputs, updates, resident)
        parts: Parts = {}
        if cut is not None:
            outputs, parts, structure = cut
        elif any(n.op is Op.SLICE for n in structure.nodes):
            with unvisited:
                outputs, parts = take_slices(outputs)
            if parts:
                sliced = {source for source, _ in parts.values()}
                whole = {o: s for o, s in (updates or {}).items() if s not in sliced}
                kept = {*resident, *(s for s, (source, _) in parts.items() if source in resident)}
                structure = Structure(outputs, whole, kept)
        plan = self.plan = plan_for(structure, outputs, counter)
        self.nodes = structure.nodes
        self._places = plan.places(self.nodes)
        self._updated = plan.spec.host.updated
        places = [parts.get(s, (s, 0)) for s in structure.leaves]
        given = dict.fromkeys(inputs)
        self.captured = [s for s in dict.fromkeys(s for s, _ in places) if s not in given]
        slots = {storage: i for i, storage in enumerate((*inputs, *self.captured))}
        # which of inputs + captured each slot of the plan reads, and where; unread ones have none
        self._order = tuple(slots[s] for s, _ in places)
        self._in_order = self._order == tuple(range(len(slots)))
        self._offsets = tuple(offset for _, offset in places) if parts else ()
        # What the caller keeps: of which of `captured`, from which byte on.
        self.panels = tuple([Panel(p.key, p.nbytes, self._order[p.source] - len(inputs),
                                   places[p.source][1]) for p in plan.spec.panels])
        if parts:
            self._offsets += (0,) * len(self.panels)
        self._limits = {
            v.attr.name: (v.attr.min, v.attr.max) for v in plan.spec.host.variables
        }
        self._allocate = plan.context.native.pool.allocate
        self._run, self._sizes, self._arena = plan.call, plan.sizes, plan.arena
        self._apart = plan.apart
        self.native = plan.native
        self.values: tuple[int, ...] = ()
        self._spare: list[Buffer] = []  # arenas of finished calls
        self._at: dict[tuple[int, ...], Compiled] = {}
        self._new_only = plan.spec.outputs == tuple(("new", i) for i in range(len(plan.sizes)))

    def at(self, variables: Mapping[str, int]) -> Compiled:
        """Return the graph for values of its variables: it has none then, and takes no more room.

        Raises
        ------
        VariableError
            If a variable is missing or out of bounds.
        """
        if not self._limits:
            return self
        values = tuple(check_variables(self.plan.variables, self._limits, variables))
        found = self._at.get(values)
        if found is None:
            found = copy(self)
            found.native, found._sizes, found._arena, found._apart = self.plan.at(values)
            found.values, call = values, found.native.call
            found._run = lambda *addresses: call(*addresses, *values)
            found._limits, found._at, found._spare = {}, {}, []
            if len(self._at) >= _MOST_VALUES:
                self._at.clear()
            self._at[values] = found
        return found

    def fill(self, number: int, source: Buffer, target: Buffer) -> None:
        """Copy an array into panels: those of this number, of the array that they name."""
        self.plan.fill(self.plan.spec.panels[number],
                       source.address + self.panels[number].offset, target.address)

    def call(self, inputs: Sequence[Buffer], captured: Sequence[Buffer],
             variables: Mapping[str, int] | None = None,
             panels: Sequence[Buffer] = ()) -> list[Buffer]:  # fmt: skip
        """Run the plan; return a buffer for each output (an input's own if it is passed through).

        Outputs that are computed never share memory, equal though they may be.

        Raises
        ------
        BoundsError, LaunchError
            If a check in a kernel failed.
        VariableError
            If a variable is missing or out of bounds.
        AllocationError
            If memory does not suffice.
        """
        given = [*inputs, *captured] if captured else inputs
        if self._limits:
            return self.at(variables or {}).call(inputs, captured, None, panels)
        if not self._in_order:
            given = [given[i] for i in self._order]
        if panels:
            given = [*given, *panels]
        if self._updated:
            given = self._take_over(list(given))
        made = self.attempt(given)
        if isinstance(made, tuple):
            self.fail(made)
            return []
        if self._new_only:
            return made
        out: list[Buffer] = []
        for kind, slot in self.plan.spec.outputs:
            buffer = given[slot] if kind == "leaf" else made[slot]
            if kind == "new" and any(buffer is other for other in out):
                twin = self._allocate(buffer.nbytes)
                self.plan.context.native.queue.copy(twin, buffer)
                buffer = twin
            out.append(buffer)
        return out

    def attempt(self, given: Sequence[Buffer]) -> list[Buffer] | Failure:
        """Run the plan on its inputs; return the memory it filled, or what a kernel reported."""
        made = [self._allocate(size) for size in self._sizes]
        arena = self._take_arena() if self._arena else None
        addresses = [b.address for b in given]
        if self._offsets:
            addresses = list(map(int.__add__, addresses, self._offsets))
        for buffer in made:
            addresses.append(buffer.address)
        addresses.append(0 if arena is None else arena.address)
        failure: Failure | None = self._run(*addresses)
        if failure is not None:
            return failure
        if arena is not None and self._arena <= _KEPT_ARENA and self._apart is None:
            self._spare.append(arena)
        return made

    @property
    def is_simple(self) -> bool:
        """Whether there is one result, which is new, of inputs that are read as they come."""
        return (self._new_only and len(self._sizes) == 1 and self._in_order and not self._offsets
                and not self._limits)  # fmt: skip

    @property
    def is_direct(self) -> bool:
        """Whether all results are new, and arrays are read whole."""
        return self._new_only and not (self._offsets or self.panels or self._updated)

    def read(self, captured: Sequence[Storage], offsets: Sequence[int], nodes: list[Node]) -> None:
        """Have a graph that is alike read other arrays.

        Parameters
        ----------
        captured
            In place of `captured`.
        offsets
            From which of their bytes on.
        nodes
            Those of the other graph, in the same order, whose lines errors name.
        """
        self.captured = list(captured)
        self._offsets = tuple([offsets[slot] for slot in self._order]) if any(offsets) else ()
        if len(nodes) == len(self.nodes):
            self._places = self.plan.places(nodes)

    def bind(self) -> Binding | None:
        """Return what a native call of this graph takes; None if it is not to be had.

        That is: if results are inputs or copies of each other.
        """
        if not self._new_only:
            return None
        with importing:
            from weft.runtimes.native.calls.dispatch import Program, Slot

        native = self.native
        program = Program(native, self.plan.context.native.pool)
        inputs: dict[int, list[tuple[Slot, int]]] = {}
        for i, source in enumerate(self._order):
            offset = self._offsets[i] if self._offsets else 0
            inputs.setdefault(source, []).append((Slot(1 + i), offset))
        panels = [Slot(1 + len(self._order) + i) for i in range(len(self.panels))]
        first = 1 + native.ninputs
        sizes = self.plan.spec.host.outputs if self._limits else self._sizes
        outputs = [(n, Slot(first + i)) for i, n in enumerate(sizes)]
        place = Slot(first + native.noutputs)
        kept, layouts = None, None
        if self._limits and self.plan.is_sized:
            layouts = self.plan.layouts()
            if layouts is None:
                return None
        takes_arena = bool(self._limits) and self.plan.is_arena_sized
        if takes_arena:
            pass  # of as many bytes as the layout says
        elif 0 < self._arena <= _KEPT_ARENA:
            kept = self._take_arena()
            program.check("set", place, kept.address)
        elif self._arena:
            outputs.append((self._arena, place))
        else:
            program.check("set", place, 0)
        program.check("set", Slot(0), 0)
        for i, size in enumerate(self.values):
            program.check("set", Slot(place + 1 + i), size)
        open_ = self.plan.variables if self._limits else ()
        variables = {name: Slot(place + 1 + i) for i, name in enumerate(open_)}
        return Binding(program, inputs, panels, outputs, kept, variables, layouts,
                       place if takes_arena else None)

    def fail(self, failure: Failure) -> None:
        """Raise the error of a kernel that failed."""
        self.plan.raise_failure(failure, self._places)

    def forget(self) -> None:
        """Let go of the arrays that the graph was captured with."""
        self.nodes, self.captured = [], []

    def _take_over(self, given: list[Buffer]) -> list[Buffer]:
        """Put copies in place of inputs that are written over but known to others as well.

        Another thread may read a tensor at any moment, and must not see it half written: who calls
        this has made sure that nobody comes to know of an input from now on.
        """
        for slot in self._updated:
            buffer = given[slot]
            if getrefcount(buffer) > _OWN_REFERENCES or buffer.pool is None:
                given[slot] = self._allocate(buffer.nbytes)
                self.plan.context.native.queue.copy(given[slot], buffer)
            given[slot].version += 1
        return given

    def _take_arena(self) -> Buffer:
        """Return scratch memory for one call: that of an earlier one, or new."""
        try:
            return self._spare.pop()
        except IndexError:
            if self._apart is not None:
                return self.plan.context.native.pool.arena(self._apart)
            return self._allocate(self._arena)


class Checked(Compiled):
    """A graph compiled for repeated calls, each of which is compared with its meaning."""

    __slots__ = ("_checker",)

    def __init__(self, outputs: Sequence[Node], inputs: Sequence[Storage],
                 structure: Structure | None = None,
                 updates: Mapping[int, Storage] | None = None,
                 resident: Collection[Storage] = (),
                 counter: str = "captured plans") -> None:  # fmt: skip
        with importing:
            from weft.driver.check.compiled import Checker

        super().__init__(outputs, inputs, structure, updates, resident, counter)
        self._checker = Checker(outputs, inputs, self.plan.context)

    def call(self, inputs: Sequence[Buffer], captured: Sequence[Buffer],
             variables: Mapping[str, int] | None = None,
             panels: Sequence[Buffer] = ()) -> list[Buffer]:  # fmt: skip
        """Run the plan and its interpretation.

        Raises
        ------
        CheckError
            If they differ; besides those of `Compiled.call`.
        """
        if self._limits:
            return super().call(inputs, captured, variables, panels)
        sizes = dict(zip(self.plan.variables, self.values, strict=True))
        read = self._checker.before(self.captured, [*inputs, *captured], sizes)
        out = super().call(inputs, captured, None, panels)
        if read is not None:
            self._checker.compare(out, read)
        return out

    def bind(self) -> None:
        """Refuse native calls, which nothing would compare."""

    def forget(self) -> None:
        """Keep the graph: every call is compared with it."""
