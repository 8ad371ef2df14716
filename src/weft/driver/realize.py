"""Realize nodes, and compile graphs for repeated calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from sys import getrefcount
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.driver import device, report
from weft.driver.constants import as_data, is_plain, is_restless
from weft.driver.plan import check_variables
from weft.driver.plan_cache import is_planned, plan_for, ready
from weft.driver.slices import Parts, take_slices
from weft.driver.structure import Structure, glance
from weft.imports import importing
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.ir.op import Op

_MOST_VALUES: Final = 256  # values of variables that a compiled graph keeps ready
_MOST_READY: Final = 1024  # graphs that `compute` knows
# What refers to an array that only its tensor knows: the tensor, the caller's list of arrays, that
# of `call`, the list and the name in `_take_over`, and the argument of `getrefcount`.
_OWN_REFERENCES: Final = 6
_KEPT_ARENA: Final = 1 << 20  # bytes of scratch memory that a compiled graph may hold on to

Failure = tuple[int, int, int, int, int]

if TYPE_CHECKING:
    from weft.runtimes.buffer import Buffer, FreeList
    from weft.runtimes.dispatch import Program, Slot


def realize(nodes: Sequence[Node], variables: Mapping[str, int] | None = None) -> list[Node]:
    """Compute nodes and return them as leaves (a BUFFER, reshaped).

    A node that already is a leaf is returned as it is. No two results share memory.

    Raises
    ------
    BoundsError
        If an index that is data is out of range; nothing is changed then.
    AllocationError
        If memory does not suffice.
    """
    given, nodes = nodes, [as_data([n])[0] if is_plain(n) else n for n in nodes]
    structure = Structure(nodes)
    run = _eager(nodes, structure)
    if len(nodes) == 1 and nodes[0] is given[0] and run.nodes is structure.nodes:
        _make_ready(run, nodes[0])
    buffers = run.call((), [s.buffer for s in run.captured], variables or {})
    out: list[Node] = []
    for node, (kind, _), buffer in zip(nodes, run.plan.spec.outputs, buffers, strict=True):
        if kind == "leaf":
            out.append(node)
            continue
        made = nd.buffer(Storage(node.dtype, nd.size(node.shape), buffer))
        out.append(infer.reshape(made, node.shape))
    return out


def compute(node: Node, known: Callable[[Node], Node | None] | None) -> Buffer | None:
    """Return the memory with a value that was computed before from other arrays, the short way.

    None means that `realize` has to do it: the graph is large or new, or a kernel has failed.

    Parameters
    ----------
    node
        No leaf.
    known
        Tells the leaf of a node that was realized, if any was.
    """
    found = glance(node, known)
    run: Compiled | None = None if found is None else ready.get(found[0])
    if found is None or run is None or report.active() is not None:
        return None
    buffers = [s.buffer for s in found[1]]
    if None in buffers:
        return None
    made = run.attempt(buffers)
    return None if isinstance(made, tuple) else made[0]  # it will say whose line failed


def _make_ready(run: Compiled, root: Node) -> None:
    """Keep a graph with one result for `compute`, without the arrays that it was made with."""
    found = glance(root, None) if run.is_simple else None
    if found is None or found[0] in ready or found[1] != run.captured:
        return
    if len(ready) >= _MOST_READY:
        ready.clear()
    kept = ready[found[0]] = copy(run)
    kept.nodes, kept.captured = [], []


def _eager(nodes: Sequence[Node], structure: Structure) -> Compiled:
    """Return the compiled graph of nodes that are computed once."""
    if not is_planned(structure) and is_restless(structure):
        return Compiled(as_data(nodes), ())
    return Compiled(nodes, (), structure)


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
    outputs : list of (FreeList, int, Slot)
        Memory to take: the results' first, then perhaps an arena.
    arena : Buffer or None
        An arena that one call at a time may use.
    """

    program: Program
    inputs: dict[int, list[tuple[Slot, int]]]
    panels: list[Slot]
    outputs: list[tuple[FreeList, int, Slot]]
    arena: Buffer | None


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
    """

    __slots__ = ("_allocate", "_arena", "_at", "_in_order", "_limits", "_new_only", "_offsets",
                 "_order", "_places", "_run", "_sizes", "_spare", "_updated", "captured",
                 "native", "nodes", "panels", "plan", "values")  # fmt: skip

    def __init__(self, outputs: Sequence[Node], inputs: Sequence[Storage],
                 structure: Structure | None = None,
                 updates: Mapping[int, Storage] | None = None,
                 resident: Collection[Storage] = ()) -> None:  # fmt: skip
        structure = structure or Structure(outputs, updates, resident)
        parts: Parts = {}
        if any(n.op is Op.SLICE for n in structure.nodes):
            outputs, parts = take_slices(outputs)
            if parts:
                cut = {source for source, _ in parts.values()}
                whole = {o: s for o, s in (updates or {}).items() if s not in cut}
                kept = {*resident, *(s for s, (source, _) in parts.items() if source in resident)}
                structure = Structure(outputs, whole, kept)
        plan = self.plan = plan_for(structure, outputs)
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
        self._allocate = device.runtime().pool.allocate
        self._run, self._sizes, self._arena = plan.call, plan.sizes, plan.arena
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
            found.native, found._sizes, found._arena = self.plan.at(values)
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
                device.runtime().queue.copy(twin, buffer)
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
        if arena is not None and self._arena <= _KEPT_ARENA:
            self._spare.append(arena)
        return made

    @property
    def is_simple(self) -> bool:
        """Whether there is one result, which is new, of inputs that are read as they come."""
        return (self._new_only and len(self._sizes) == 1 and self._in_order and not self._offsets
                and not self._limits)  # fmt: skip

    def bind(self) -> Binding | None:
        """Return what a native call of this graph takes; None if it is not to be had.

        That is: if sizes are left open, or results are inputs or copies of each other.
        """
        if self._limits or not self._new_only:
            return None
        with importing:
            from weft.runtimes.dispatch import Program, Slot

        native, pool = self.native, device.runtime().pool
        program = Program(native)
        inputs: dict[int, list[tuple[Slot, int]]] = {}
        for i, source in enumerate(self._order):
            offset = self._offsets[i] if self._offsets else 0
            inputs.setdefault(source, []).append((Slot(1 + i), offset))
        panels = [Slot(1 + len(self._order) + i) for i in range(len(self.panels))]
        first = 1 + native.ninputs
        outputs = [(pool.blocks(n), n, Slot(first + i)) for i, n in enumerate(self._sizes)]
        place = Slot(first + native.noutputs)
        kept = None
        if 0 < self._arena <= _KEPT_ARENA:
            kept = self._take_arena()
            program.check("set", place, kept.address)
        elif self._arena:
            outputs.append((pool.blocks(self._arena), self._arena, place))
        else:
            program.check("set", place, 0)
        program.check("set", Slot(0), 0)
        for i, size in enumerate(self.values):
            program.check("set", Slot(place + 1 + i), size)
        return Binding(program, inputs, panels, outputs, kept)

    def fail(self, failure: Failure) -> None:
        """Raise the error of a kernel that failed."""
        self.plan.raise_failure(failure, self._places)

    def forget(self) -> None:
        """Let go of the arrays that the graph was captured with."""
        self.nodes, self.captured = [], []

    def _take_over(self, given: list[Buffer]) -> list[Buffer]:
        """Put copies in place of inputs that are written over but known to others as well.

        Another thread may read a tensor at any moment, and must not see it half written.
        """
        alone = threading.active_count() == 1
        for slot in self._updated:
            buffer = given[slot]
            if not alone or getrefcount(buffer) > _OWN_REFERENCES or buffer.pool is None:
                given[slot] = self._allocate(buffer.nbytes)
                device.runtime().queue.copy(given[slot], buffer)
            given[slot].version += 1
        return given

    def _take_arena(self) -> Buffer:
        """Return scratch memory for one call: that of an earlier one, or new."""
        try:
            return self._spare.pop()
        except IndexError:
            return self._allocate(self._arena)


def compile(outputs: Sequence[Node], inputs: Sequence[Storage],
            updates: Mapping[int, Storage] | None = None,
            resident: Collection[Storage] = ()) -> Compiled:  # fmt: skip
    """Return a graph compiled for repeated calls with other inputs."""
    return Compiled(outputs, inputs, updates=updates, resident=resident)
