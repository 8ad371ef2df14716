"""What the sanitiser looks at while a kernel runs, and what it says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import said
from weft.ir.analysis.registers import copied, copies, is_register
from weft.ir.expr import Expr
from weft.ir.position import thread_at
from weft.ir.stmt import NEAR, Atomic, For, If, Let, Load, Location, Memory, Stmt, Store, While
from weft.ir.tile import MISALIGNED, ODD_MATRIX, AsyncCopy, MatrixLoad
from weft.ir.traverse import walk
from weft.runtimes.lockstep import findings as fi
from weft.runtimes.lockstep.shadow import (
    GUESS,
    READ,
    UPDATE,
    WRITE,
    Clocks,
    Shadow,
    bits,
    blocks_at_once,
    same_time,
)
from weft.runtimes.lockstep.undefined import Undefined

if TYPE_CHECKING:
    from weft.ir.stmt import Body, Kernel
    from weft.runtimes.lockstep.memory import Storage
    from weft.runtimes.lockstep.threads import Threads
    from weft.runtimes.lockstep.values import Array

__all__ = ["Checks"]

_SHOWN = 8  # threads that a finding names
_STRAYS = 64  # indices out of bounds after which a thread is ended

Arms = tuple[tuple[Stmt, int], ...]


class Checks:
    """Watches a machine.

    Attributes
    ----------
    found : Collector
        What was found.
    clocks : Clocks
        What orders accesses.
    undefined : Undefined
        Follows what a shuffle took from a thread that was not there.
    """

    def __init__(self, machine: Threads) -> None:
        self.machine = machine
        self.found = fi.Collector()
        self.clocks = Clocks(machine.per_block)
        self._events: list[Stmt | None] = [None]  # what accessed memory, by time
        self._arms = _arms(machine.kernel.body)
        self._copies = copies(machine.kernel)
        self._guesses = _guesses(machine.kernel)
        self._subjects = self._find_subjects()
        self._empty: dict[Expr, Array] = {}  # copies of registers that hold nothing
        self.undefined = Undefined(machine, self.place, self.report)
        self._watch_arguments()

    def begin(self) -> None:
        """Start with other blocks."""
        self.clocks.begin(self.machine.tids)
        self._strays = np.zeros(self.machine.count, np.int64)
        self._came: dict[Stmt, int] = {}  # when threads came to each branch last
        self._turn = 0  # when a turn of a loop began
        self._empty.clear()
        self.undefined.begin()

    def _find_subjects(self) -> dict[Stmt, str]:
        """Return what each access is about: a name that means several arrays in turn is one thing.

        It has an access to each of them, all at one place.
        """
        first: dict[tuple[Location | None, type[Stmt]], str] = {}
        return {s: first.setdefault((self.place(s), type(s)), s.memory.name)
                for s in walk(self.machine.kernel.body) if isinstance(s, Load | Store | Atomic)}

    def watch(self, storage: Storage) -> None:
        """Watch the accesses of a memory that several threads share."""
        storage.shadow, storage.offset = Shadow(len(storage.data)), 0

    def _watch_arguments(self) -> None:
        """Watch arguments that are written, and those that lie in the same place."""
        m = self.machine
        written = {memory for s in walk(m.kernel.body) for memory in s.writes()}
        places = []
        for memory in m.kernel.params:
            storage = m.storages[memory]
            first = storage.data.__array_interface__["data"][0]
            places.append((first, first + storage.data.nbytes, storage))
        places.sort(key=lambda p: p[:2])
        groups: list[list[Any]] = []
        end = -1
        for place in places:
            if place[0] >= end or not groups:
                groups.append([])
            groups[-1].append(place)
            end = max(end, place[1])
        for group in groups:
            if not any(s.memory in written for *_, s in group):
                continue
            size = group[0][2].data.itemsize
            first = group[0][0]
            if all(s.data.itemsize == size and (at - first) % size == 0 for at, _, s in group):
                shadow = Shadow((max(last for _, last, _ in group) - first) // size)
                for at, _, storage in group:
                    storage.shadow, storage.offset = shadow, (at - first) // size
            else:  # elements of several sizes in one place
                for _, _, storage in group:
                    self.watch(storage)

    # --- threads and places

    def thread(self, tid: int) -> fi.Thread:
        """Return block and thread of a number in the whole grid."""
        grid = self.machine.grid
        return thread_at(tid, grid.blocks, grid.threads)

    def _threads(self, lanes: Array) -> tuple[fi.Thread, ...]:
        return tuple(self.thread(int(t)) for t in self.machine.tids[lanes[:_SHOWN]])

    def place(self, s: Stmt | None) -> Location | None:
        """Return where a statement stands in the source."""
        return None if s is None else self.machine.kernel.locations.get(s)

    def report(self, kind: str, s: Stmt, lanes: Array, message: str, subject: str = "",
               later: Location | None = None) -> None:  # fmt: skip
        """Report something that some threads do; `later`: another place that takes part."""
        place = self.place(s)
        if self.found.is_new(kind, place, subject):
            threads = self._threads(lanes)
            self.found.add(kind, place, subject, threads, f"{_name(threads[0])} {message}",
                           later=later)

    # --- memory

    def read(self, s: Stmt, storage: Storage, at: Array, lanes: Array) -> None:
        """Note a load of some elements by some threads."""
        if self.undefined.any:
            self.undefined.read(s, storage, at, lanes)
        if storage.pending is not None:
            self._must_have_landed(s, storage, at, lanes)
        self._must_be_written(s, storage, at, lanes)
        if storage.shadow is not None and len(at):
            self._access(GUESS if s in self._guesses else READ, s, storage, at, lanes, None)

    def write(self, s: Stmt, storage: Storage, at: Array, lanes: Array, values: Array) -> None:
        """Note a store of some values, before it is carried out."""
        if self.undefined.any:
            self.undefined.write(s, storage, at, lanes)
        if storage.pending is not None:
            self._must_have_landed(s, storage, at, lanes)
        if storage.shadow is not None and len(at):
            changed = bits(storage.data[at]) != bits(values)
            self._access(WRITE, s, storage, at, lanes, changed)
            pair = same_time(at, values, self.machine.tids[lanes])
            if pair is not None:
                self._race(s, s, storage, pair)
        storage.note_written(at)

    def ask(self, s: AsyncCopy, storage: Storage, at: Array, lanes: Array,
            values: Array) -> None:  # fmt: skip
        """Note a copy on the side that some threads ask for: it may write from now on."""
        if storage.pending is None:
            storage.pending = np.zeros(len(storage.data), np.bool_)
        else:
            self._must_have_landed(s, storage, at, lanes)
        if storage.shadow is not None:
            self._access(WRITE, s, storage, at, lanes, bits(storage.data[at]) != bits(values))
        storage.pending[at] = True

    def land(self, s: AsyncCopy, storage: Storage, at: Array, lanes: Array,
             values: Array) -> None:  # fmt: skip
        """Note that copies have taken place."""
        assert storage.pending is not None
        storage.pending[at] = False
        if storage.shadow is not None:
            self._access(WRITE, s, storage, at, lanes, bits(storage.data[at]) != bits(values))
        storage.note_written(at)

    def _must_have_landed(self, s: Stmt, storage: Storage, at: Array, lanes: Array) -> None:
        """Report accesses of what a copy on the side has not written yet."""
        assert storage.pending is not None
        early = storage.pending[at]
        if early.any():
            memory = storage.memory
            first = int(at[np.argmax(early)]) % max(storage.size, 1)
            what = "asks again for" if isinstance(s, AsyncCopy) else _verb(s)
            self.report(fi.UNCOMMITTED, s, lanes[early], f"{what} element {first} of "
                        f"{memory.scope} memory {memory.name}, whose copy nobody has committed "
                        "and waited for", memory.name)

    def update(self, s: Atomic, storage: Storage, at: Array, lanes: Array) -> None:
        """Note an atomic operation."""
        if self.undefined.any:
            self.undefined.update(s, storage, at, lanes)
        if s.kind != "exch":  # which may be the first to give it a value
            self._must_be_written(s, storage, at, lanes)
        storage.note_written(at)
        if storage.shadow is not None and len(at):
            self._access(UPDATE, s, storage, at, lanes, None)
            if s.scope == "block" and s.memory.scope == "global":
                m = self.machine
                pair = blocks_at_once(at, m.tids[lanes], m.per_block)
                if pair is not None:
                    self._race(s, s, storage, pair)
            self.clocks.synchronise(storage.shadow.number, at + storage.offset, lanes)

    def _access(self, kind: int, s: Stmt, storage: Storage, at: Array, lanes: Array,
                changed: Array | None) -> None:  # fmt: skip
        shadow, clocks = storage.shadow, self.clocks
        assert shadow is not None
        if storage.unit > 1:
            at, lanes = storage.parts(at), np.repeat(lanes, storage.unit)
            changed = None if changed is None else np.repeat(changed, storage.unit)
        if storage.offset:
            at = at + storage.offset
        narrow = isinstance(s, Atomic) and s.scope in NEAR
        found = shadow.access(kind, at, lanes, clocks, changed, narrow)
        self._events.extend([None] * (clocks.now - len(self._events)))
        self._events.append(s)
        for earlier, later, time in found:
            first = self._events[time]
            self._race(first, s, storage, (earlier, later), time)

    def _race(self, first: Stmt | None, second: Stmt, storage: Storage, pair: tuple[int, int],
              time: int | None = None) -> None:  # fmt: skip
        """Report two threads in conflict; the earlier access was at a time, None for right now."""
        earlier, later = pair
        size = self.machine.per_block
        together = time is None or self._one_line(first, second, time)
        curable = earlier // size == later // size and not together and self._can_meet(
            first, second, time or 0)
        kind = fi.MISSING_BARRIER if curable else fi.RACE
        place, other = self.place(second), self.place(first)
        memory = storage.memory
        subject = self._subjects.get(second, memory.name)
        if not self.found.is_new(kind, place, subject):
            return
        threads = self.thread(earlier), self.thread(later)
        line = 0 if other is None else other.line
        message = (f"{_name(threads[1])} {_verb(second)} an element of {memory.scope} memory "
                   f"{memory.name} that {_name(threads[0])} {_verb(first)}"
                   f"{' in the same step' if together else f' in line {line}'}, ")
        message += ("with no barrier between the two" if curable else
                    "and nothing orders the two")
        self.found.add(kind, place, subject, threads, message, other)

    def _one_line(self, first: Stmt | None, second: Stmt, time: int) -> bool:
        """Whether two accesses are of one turn of one line, which no barrier can come between."""
        return first is not None and time > self._turn and self._line(first) == self._line(second)

    def _line(self, s: Stmt) -> object:
        """Return the line of a statement, as something to compare; each without one is alone."""
        place = self.place(s)
        return s if place is None else (place.file, place.line)

    def _can_meet(self, first: Stmt | None, second: Stmt, time: int) -> bool:
        """Whether a barrier can stand between two accesses.

        It cannot between the two arms of a branch, or between its condition and what stands in it,
        unless the branch has come round again.
        """
        if first is None:
            return False
        arms = self._arms[second]
        for position, (b, n) in enumerate(arms):
            a, k = next(iter(self._arms[first][position:]), (None, 0))
            if a is b and k != n:
                return time <= self._came[b]
            if a is not b:
                return time <= self._turn or not any(
                    self._line(first) == self._line(c) for c, _ in arms[position:])
        return True

    def branch(self, s: If) -> None:
        """Note that threads come to a branch."""
        self._came[s] = self.clocks.now
        if self.undefined.any:
            self.undefined.choose(s)

    def turn(self, s: For | While) -> None:
        """Note that threads begin one more turn of a loop, or look whether they do."""
        self._turn = self.clocks.now
        if self.undefined.any:
            self.undefined.choose(s)

    def _must_be_written(self, s: Stmt, storage: Storage, at: Array, lanes: Array) -> None:
        if storage.written is None:
            return
        written = storage.is_written(at)
        if storage.pending is not None:
            written = written | storage.pending[at]
        if written.all():
            return
        memory = storage.memory
        first = int(at[np.argmin(written)]) % max(storage.size, 1)
        index = [int(k) for k in np.unravel_index(first, storage.shape)]
        at_ = index[0] if len(index) == 1 else tuple(index)
        self.report(fi.UNINITIALISED, s, lanes[~written], f"reads element {at_} of {memory.scope} "
                    f"memory {memory.name}, which nothing has written", memory.name)

    # --- registers

    def register_read(self, s: Load, storage: Storage) -> None:
        """Note a read of a register; a copy that nobody looks at is no read."""
        self._empty.pop(s.var, None)
        if self.undefined.any:
            self.undefined.register_read(s, storage)
        if storage.written is None:
            return
        empty = self.machine.mask & ~storage.written
        if not empty.any():
            return
        if s in self._copies:
            self._empty[s.var] = empty
            return
        name = storage.memory.name.partition(".cell")[0]
        self.report(fi.UNINITIALISED, s, np.flatnonzero(empty),
                    f"reads {name} before it has a value", storage.memory.name)

    def register_write(self, s: Store, storage: Storage) -> None:
        """Note a write of a register."""
        if self.undefined.any:
            self.undefined.register_write(s, storage)
        empty = self._empty.get(copied(s.value)) if self._empty else None
        if empty is not None:
            known = np.ones(self.machine.count, np.bool_) if storage.written is None else (
                storage.written)
            storage.written = np.where(self.machine.mask, ~empty, known)
        elif storage.written is not None:
            storage.written = None if self.machine.full else storage.written | self.machine.mask

    # --- failures

    def out_of_bounds(self, s: Stmt, bad: Array, value: int, bound: int, name: str) -> None:
        """Report an index outside of an array; the access does not take place."""
        fresh = bad & (self._strays == 0) if name else bad
        self._strays[bad] += 1
        if fresh.any():
            what = f" of {name}" if name else ""
            self.report(fi.OUT_OF_BOUNDS, s, np.flatnonzero(fresh), f"uses index {value}{what}, "
                        f"which is not from 0 to {bound - 1}")
        if (ended := self._strays > _STRAYS).any():
            self.machine.lose(ended & self.machine.mask)

    def failed(self, s: Any, bad: Array) -> None:
        """Report an assertion that does not hold."""
        if s.message in (MISALIGNED, ODD_MATRIX):
            self.report(fi.MISALIGNED, s, np.flatnonzero(bad), f"makes {s.message}")
            return
        self.report(fi.ASSERTION, s, np.flatnonzero(bad), f"fails: {said(s.message)}")

    # --- barriers and warps

    def barrier(self, s: Stmt, whole: bool = False) -> None:
        """Note a barrier of the block (or of the whole grid) that the threads of the mask reach."""
        m = self.machine
        if self.undefined.any:
            self.undefined.meet(s)
        shape = (1, m.count) if whole else (m.nblocks, m.per_block)
        here = m.mask.reshape(shape)
        absent = ~(m.gone | m.left).reshape(shape) & ~here & here.any(1, keepdims=True)
        if absent.any():
            place = self.place(s)
            if self.found.is_new(fi.DIVERGENCE, place, ""):
                block = int(np.argmax(absent.any(1)))
                base = block * shape[1]
                waits = base + int(np.argmax(here[block]))
                others = base + np.flatnonzero(absent[block])
                threads = self._threads(np.concatenate([[waits], others]))
                self.found.add(fi.DIVERGENCE, place, "", threads,
                               f"{_name(threads[0])} waits at a barrier that {len(others)} "
                               f"threads of its {'grid' if whole else 'block'} do not reach, "
                               f"such as {_name(threads[1])}")
        if whole:
            self.clocks.grid_barrier()
        else:
            self.clocks.barrier(m.chosen)

    def warp(self, s: Stmt, what: str, wrong: Array) -> None:
        """Report threads that name wrong partners in an operation of their warp."""
        self.report(fi.WARP_MASK, s, np.flatnonzero(wrong), what)


def _name(thread: fi.Thread) -> str:
    return f"thread {thread[1]} of block {thread[0]}"


def _verb(s: Stmt | None) -> str:
    if isinstance(s, Load | MatrixLoad):
        return "reads"
    return "updates" if isinstance(s, Atomic) else "writes"


def _arms(body: Body) -> dict[Stmt, Arms]:
    """Return for each statement the branches that it stands in, outermost first."""
    found: dict[Stmt, Arms] = {}
    stack: list[tuple[Body, Arms]] = [(body, ())]
    while stack:
        statements, arms = stack.pop()
        for s in statements:
            found[s] = arms
            for k, inner in enumerate(s.bodies()):
                stack.append((inner, (*arms, (s, k)) if isinstance(s, If) else arms))
    return found


def _guesses(kernel: Kernel) -> set[Load]:
    """Return the reads of what an atomic comparison with the same memory looks at again.

    ``old = x[0]`` in front of a loop of ``cas(x, 0, old, f(old))`` may be out of date, which the
    comparison finds.
    """
    origins: dict[Expr | Memory, list[Expr]] = {}
    loads: dict[Expr, Load] = {}
    work: list[tuple[Expr, Memory]] = []
    for s in walk(kernel.body):
        if isinstance(s, Store) and is_register(s.memory):
            origins.setdefault(s.memory, []).append(copied(s.value))
        elif isinstance(s, Let):
            origins[s.var] = [copied(s.value)]
        elif isinstance(s, Load):
            loads[s.var] = s
        elif isinstance(s, Atomic) and s.compare is not None:
            work.append((copied(s.compare), s.memory))
    found: set[Load] = set()
    seen = set(work)
    while work:
        value, memory = work.pop()
        load = loads.get(value)
        if load is not None and load.memory is memory:
            found.add(load)
        sources = origins.get(value if load is None else load.memory, [])
        fresh = {(source, memory) for source in sources} - seen
        seen |= fresh
        work.extend(fresh)
    return found
