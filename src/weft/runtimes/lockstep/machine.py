"""The interpreter device: a kernel of threads, statement by statement, all threads in step.

A run takes some whole blocks at once. Every statement is carried out for all threads that reach it
before the next one is: the threads that do not are masked. That is one of the orders that a device
may choose, so a correct kernel gives its results; the sanitiser tells what other orders would do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from weft.errors import BoundsError, LaunchError, UnsupportedError, VerifyError
from weft.ir.analysis.spin_locks import waits_for_lock
from weft.ir.interpret.interpret_code import where_of
from weft.ir.stmt import (
    LEFT,
    PARTLY,
    Alloc,
    Barrier,
    Block,
    Body,
    Collective,
    For,
    If,
    Kernel,
    Let,
    Memory,
    Stmt,
    While,
)  # fmt: skip
from weft.ir.traverse import walk
from weft.runtimes.lockstep.checks import Checks
from weft.runtimes.lockstep.memory import Storage
from weft.runtimes.lockstep.threads import Grid, Threads
from weft.runtimes.lockstep.values import Array
from weft.runtimes.lockstep.waits import waits_for_others

__all__ = ["CONTROL", "Endless", "Handlers", "Machine"]

_LANES: Final = 4096  # threads that run at once, where blocks do not wait for each other
_MOST_LANES: Final = 1 << 20  # ... and where all blocks wait for each other
_PATIENCE: Final = 1024  # turns of a loop that no thread leaves
_COPIES: Final = 1 << 24  # elements of the memories that each of those threads or blocks has

Handlers = Mapping[type[Stmt], Callable[["Machine", Any], None]]


class Endless(LaunchError):
    """A kernel has carried out more statements than it may.

    Attributes
    ----------
    stmt : Stmt
        Where it was.
    """

    def __init__(self, name: str, stmt: Stmt, where: tuple[str, int] | None) -> None:
        super().__init__(name, found="a kernel that does not end",
                         expected="fewer statements than the limit", where=where,
                         hint="do its threads wait for each other? else allow more steps=")
        self.stmt = stmt


class Machine(Threads):
    """Runs one kernel.

    Attributes
    ----------
    known : mapping
        Names that the kernel knows, exceptions among them.
    partly : tuple of str
        Names of memories of whose elements parts are written.
    """

    def __init__(self, kernel: Kernel, addresses: Sequence[int], variables: Mapping[str, int],
                 grid: Grid, handlers: Handlers, *, sanitise: bool = False,
                 seed: int | None = None, limit: int = 10_000_000,
                 known: Mapping[str, object] = MappingProxyType({})) -> None:  # fmt: skip
        super().__init__(kernel, variables, grid)
        self._handlers, self.known = handlers, known
        self.seed, self._left = seed, limit
        self.partly: tuple[str, ...] = dict(kernel.meta.hints).get(PARTLY, ())
        for memory, address in zip(kernel.params, addresses, strict=True):
            shape = tuple(int(n[0]) for n in self.formula(memory, memory.shape)({}))
            self.storages[memory] = Storage.at(memory, address, shape)
        self._late = {s for s in walk(kernel.body) if isinstance(s, If) and s.orelse
                      and _meets(s.then) and not _meets(s.orelse)}
        self._locks = {s for s in walk(kernel.body)
                       if isinstance(s, While) and waits_for_lock(s)}
        self.checks = Checks(self) if sanitise else None
        self.enter(np.zeros(0, np.bool_))

    # --- the run

    def run(self) -> None:
        """Run all blocks.

        Raises
        ------
        BoundsError
            If an index is out of bounds and nobody collects findings.
        LaunchError
            If an assertion fails and nobody collects findings, or if the kernel does not end.
        """
        total = self.grid.blocks[0] * self.grid.blocks[1] * self.grid.blocks[2]
        order = None
        if self.seed is not None:
            order = np.random.default_rng(self.seed).permutation(total)
        count = self._together()
        with np.errstate(all="ignore"):
            for first in range(0, total, count):
                last = min(first + count, total)
                self._blocks(np.arange(first, last) if order is None else order[first:last])

    def _together(self) -> int:
        """Return how many blocks may run in step: one where a block may wait for another."""
        blocks = self.grid.blocks[0] * self.grid.blocks[1] * self.grid.blocks[2]
        if any(isinstance(s, Barrier) and s.scope == "grid" for s in walk(self.kernel.body)):
            if blocks * self.per_block > _MOST_LANES:
                raise LaunchError(self.kernel.name, found=f"{blocks} blocks that wait for all",
                                  expected=f"at most {_MOST_LANES} threads in all")
            return blocks
        if waits_for_others(self.kernel):
            return 1
        private = 0
        for s in walk(self.kernel.body):
            if isinstance(s, Alloc) and s.memory.shape:
                sizes = self.formula(s, s.memory.shape)({})
                size = int(np.prod([int(n[0]) for n in sizes], dtype=np.int64))
                private += size * (1 if s.memory.scope == "shared" else self.per_block)
        return max(1, min(_LANES // self.per_block, _COPIES // max(private, 1)))

    def _blocks(self, blocks: Array) -> None:
        self.begin(blocks)
        if self.checks is not None:
            self.checks.begin()
        self.enter(np.ones(self.count, np.bool_))
        self.body(self.kernel.body)

    # --- statements

    def body(self, body: Body) -> None:
        """Carry out statements for the threads that run."""
        for position, s in enumerate(body):
            if not self.active:
                return
            if s in self._locks and self.active > 1 and not _meets(body[position:]):
                self._in_turn(body[position:])
                return
            self.step(s)
            handler = self._handlers.get(type(s))
            if handler is None:
                raise UnsupportedError("interpret", found=type(s).__name__)
            handler(self, s)

    def _in_turn(self, body: Body) -> None:
        """Carry out statements for one thread after another: they take a lock and give it back."""
        for thread in np.flatnonzero(self.mask):
            self.nested(body, self.lanes == thread)

    def step(self, s: Stmt) -> None:
        """Count one more statement, or turn of a loop."""
        self._left -= 1
        if self._left < 0:
            raise Endless(self.kernel.name, s, where_of(self.kernel.locations.get(s)))

    def nested(self, body: Body, mask: Array) -> None:
        """Carry out a nested body for some of the threads that run, then go on with all."""
        outer, losses = self.mask, self.losses
        if self.enter(mask):
            self.body(body)
        self.back(outer, losses)

    def _let(self, s: Let) -> None:
        if self.checks is not None and self.checks.undefined.any:
            self.checks.undefined.pass_on(s.var, self.checks.undefined.of(s)[0])
        self.names[s.var] = self.values(s)[0]

    def _for(self, s: For) -> None:
        place = self.places.get(s.kind)
        if place is not None:
            self.names[s.var] = place
            self.body(s.body)
            return
        extent = self.values(s)[0]
        outer, losses = self.mask, self.losses
        most = int(self.picked(extent).max(initial=0))
        uniform = len(extent) == 1
        way = None if self.checks is None else self.checks.undefined.way
        for k in range(most):
            mask = outer if uniform else outer & (extent > k)
            if self.checks is not None:
                self.checks.turn(s)
            if not self.back(mask, losses):
                break
            self.step(s)
            self.names[s.var] = np.array([k], np.int64)
            self.body(s.body)
        self.back(outer, losses)
        if self.checks is not None:
            self.checks.undefined.way = way

    def _while(self, s: While) -> None:
        outer, losses = self.mask, self.losses
        turns, active, state = 0, self.active, 0
        way = None if self.checks is None else self.checks.undefined.way
        while self.active:
            turns = turns + 1 if self.active == active else 0
            active = self.active
            if turns % _PATIENCE == _PATIENCE - 1:
                state = self._state()
            elif turns and turns % _PATIENCE == 0 and state == self._state():
                raise Endless(self.kernel.name, s, where_of(self.kernel.locations.get(s)))
            self.body(s.head)
            if not self.active:
                break
            mask = self.mask & self.values(s)[0]
            if self.checks is not None:
                self.checks.turn(s)
            if not self.enter(mask):
                break
            inner = self.losses
            self.body(s.body)
            self.back(mask, inner)
        self.back(outer, losses)
        if self.checks is not None:
            self.checks.undefined.way = way

    def _state(self) -> int:
        """Return a number for all that memory holds: a turn that changes nothing has no end."""
        return hash(tuple(hash(storage.data.tobytes()) for storage in self.storages.values()))

    def _if(self, s: If) -> None:
        test = self.values(s)[0]
        if self.checks is None:
            self._choose(s, test)
            return
        way = self.checks.undefined.way
        self.checks.branch(s)
        self._choose(s, test)
        self.checks.undefined.way = way

    def _choose(self, s: If, test: Array) -> None:
        if len(test) == 1:
            self.nested(s.then if test[0] else s.orelse, self.mask)
            return
        before, losses = self.mask, self.losses
        sides = [(s.then, before & test), (s.orelse, before & ~test)]
        if s in self._late:
            sides.reverse()
        for body, mask in sides:
            if body:
                self.nested(body, mask)
        self.back(before, losses)

    def _block(self, s: Block) -> None:
        if s.name == LEFT:
            self.left |= self.mask
        self.body(s.body)

    # --- memory

    def storage(self, memory: Memory) -> Storage:
        """Return where a memory is kept."""
        found = self.storages.get(memory)
        if found is None:
            raise VerifyError("interpret", found=f"the memory {memory.name}",
                              expected="a parameter or an alloc before its use")
        return found

    def elements(self, s: Stmt, storage: Storage, index: Sequence[Array]) -> tuple[Array, Array]:
        """Return the elements that threads access, and which threads those are.

        Threads with an index out of bounds are not among them.
        """
        inside: Any = True
        flat: Any = 0
        for i, n in zip(index, storage.shape, strict=True):
            inside = inside & (i >= 0) & (i < n)
            flat = flat * n + i
        lanes = self.chosen
        if index:
            flat, good = self.picked(flat), self.picked(inside)
            if not good.all():
                self._outside(s, storage, index, good)
                lanes, flat = lanes[good], flat[good]
        else:
            flat = np.zeros(len(lanes), np.int64)
        if storage.first is not None:
            flat = flat + storage.first[lanes]
        return flat, lanes

    def _outside(self, s: Stmt, storage: Storage, index: Sequence[Array], good: Array) -> None:
        first = int(np.argmin(good))
        places = [int(self.picked(i)[first]) for i in index]
        value, bound = next((i, n) for i, n in zip(places, storage.shape, strict=True)
                            if not 0 <= i < n)
        bad = np.zeros(self.count, np.bool_)
        bad[self.chosen[~good]] = True
        self.out_of_bounds(s, bad, value, bound, storage.memory.name)

    def out_of_bounds(self, s: Stmt, bad: Array, value: int, bound: int, name: str) -> None:
        """Report an index outside of an array."""
        if self.checks is not None:
            self.checks.out_of_bounds(s, bad, value, bound, name)
            return
        raise BoundsError(self.kernel.name, found=f"index {value}",
                          expected=f"an index from 0 to {bound - 1}",
                          where=where_of(self.kernel.locations.get(s)))


def _meets(body: Body) -> bool:
    """Whether threads wait for each other in a body; who leaves in another branch goes first."""
    return any(isinstance(s, Barrier | Collective) for s in walk(body))


CONTROL: Final[dict[type[Stmt], Callable[[Machine, Any], None]]] = {
    Let: Machine._let, For: Machine._for, While: Machine._while, If: Machine._if,
    Block: Machine._block,
}  # fmt: skip
