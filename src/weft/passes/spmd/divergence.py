"""What differs between the threads of a block, and what they keep over its barriers.

The divergence analysis of one version of the code of a block; `weft.passes.spmd.threads` writes the
loops that follow from it.
"""

from __future__ import annotations

import math
from typing import Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    Address,
    Alloc,
    Atomic,
    Barrier,
    Body,
    Call,
    Clock,
    Collective,
    For,
    If,
    Let,
    Load,
    Memory,
    Stmt,
    Store,
    While,
)
from weft.ir.tile import MatrixAccess, MatrixMultiply
from weft.ir.traverse import walk
from weft.passes.spmd.block import WARP, ThreadBlock
from weft.passes.spmd.control_flow import always_leaves, has_barrier, leaves, memories_read
from weft.passes.spmd.grid_stride import goes_through_a_grid

__all__ = ["MUCH", "Divergence"]

_PRIVATE: Final = ("local", "register")
MUCH: Final = 128 << 10  # bytes that the threads of a block keep over barriers


class Divergence:
    """What is known of the threads of one version of a block.

    Attributes
    ----------
    varying : set of Expr
        Names that may differ between threads.
    uniform_cells : set of Memory
        Memories of a thread's own that hold the same in all of them.
    in_step : set of Stmt
        Loops over a grid whose turns all threads make before the next.
    spilled : dict of Memory to Memory
        What holds something over a barrier, and where all threads have theirs.
    kept, values : dict
        Names that are used behind a barrier: where they are kept, or what they are computed from.
    departs : bool
        Whether threads leave while others go on and wait for each other. What is the same in all
        threads is then so in those that are still there.
    """

    def __init__(self, nest: ThreadBlock) -> None:
        self.nest = nest
        self.lanes, self.axes, self.count = nest.lanes, nest.axes, nest.count
        self.fresh, self.memory_names = nest.fresh, nest.memory_names
        self.locations, self.names, self.counts = nest.locations, nest.names, nest.counts
        self.bound, self.allocated = nest.bound, nest.allocated
        self.varying: set[Expr] = {axis.var for axis in self.axes}
        self.uniform_cells: set[Memory] = set()
        self.spilled: dict[Memory, Memory] = dict(nest.shared)
        self.kept: dict[Expr, Memory] = {}
        self.values: dict[Expr, Expr] = {}
        self.in_step: set[Stmt] = set()
        self.lets: dict[Expr, Expr] = {}
        self.exits_early = False

    def placed(self, stmt: Stmt, source: Stmt) -> Stmt:
        """Return a statement at the place of the one that it comes from."""
        if source in self.locations:
            self.locations[stmt] = self.locations[source]
        return stmt

    def analyse(self, body: Body) -> None:
        """Find what differs between threads, and what they keep over barriers."""
        self.lets = {s.var: s.value for s in walk(body) if isinstance(s, Let)}
        self.exits_early = self.nest.exits_early and leaves(body)
        self._find_varying(body)
        together = self._find_in_step(body)
        if together:
            self._forget()
            self._find_varying(body)
        self._find_crossing(body)
        if together and self.kept_bytes > MUCH:  # rather each thread alone
            self.in_step.clear()
            self._forget()
            self._find_varying(body)
            self._find_crossing(body)

    def _forget(self) -> None:
        self.varying = {axis.var for axis in self.axes}
        self.spilled = dict(self.nest.shared)
        self.kept, self.values = {}, {}

    @property
    def homes(self) -> list[Memory]:
        """What threads keep over barriers, for all threads."""
        shared = self.nest.shared
        return [*(home for memory, home in self.spilled.items() if memory not in shared),
                *self.kept.values()]

    @property
    def kept_bytes(self) -> int:
        """How much memory that takes; it lies on the stack."""
        total = 0
        for memory in self.homes:
            sizes = [int(e.attr) if e.op is Op.CONST else 0 for e in memory.shape]
            total += math.prod(sizes) * memory.dtype.itemsize
        return total

    def splits(self, s: Stmt) -> bool:
        """Whether threads wait for each other in a statement."""
        return any((isinstance(inner, Barrier | Collective) and inner.scope == "block")
                   or inner in self.in_step for inner in walk((s,)))

    def _find_in_step(self, body: Body) -> bool:
        """Find the loops over a grid whose turns all threads are to make before the next."""
        if self.exits_early or self.lanes >= self.count or self.lanes < 2 or self.nest.neighbours:
            return False  # that is so anyway, or there is no vector to read
        lets = {s.var: s.value for s in walk(body) if isinstance(s, Let)}
        stack = [body]
        while stack:
            for s in stack.pop():
                varies = (isinstance(s, For) and self.differs(s.extent)) or (
                    isinstance(s, While) and self.differs(s.condition))
                if varies and not has_barrier(s) and goes_through_a_grid(
                        s, lets, self.nest.turns):
                    self.in_step.add(s)
                    stack.extend(s.bodies())
        return bool(self.in_step)

    def _find_varying(self, body: Body) -> None:
        """Find the names that may differ between threads, and the cells that do not."""
        levels = set(self._levels(body))
        private = {s.memory for s in walk(body) if isinstance(s, Alloc)
                   and s.memory.scope in _PRIVATE}
        inner = {s.memory for s in walk(body)
                 if isinstance(s, Store | Atomic) and s not in levels}
        self.uniform_cells = {m for m in private if m not in inner and not m.shape}
        while True:
            known = len(self.varying), len(self.uniform_cells)
            self._spread(body, False, True)
            if known == (len(self.varying), len(self.uniform_cells)):
                return

    def _levels(self, body: Body) -> list[Stmt]:
        """Return the statements that no barrier-free loop or condition holds."""
        found: list[Stmt] = []
        stack = [body]
        while stack:
            for s in stack.pop():
                found.append(s)
                if self.splits(s):
                    stack.extend(s.bodies())
        return found

    def _spread(self, body: Body, diverges: bool, last: bool = False) -> None:
        turns = self.nest.turns  # count up for all who are there
        for position, s in enumerate(body):
            final = last and position == len(body) - 1
            if isinstance(s, Let):
                if diverges or self.differs(s.value):
                    self.varying.add(s.var)
            elif isinstance(s, Load):
                if s.memory not in self.uniform_cells or (diverges and s.memory not in turns):
                    self.varying.add(s.var)
            elif isinstance(s, Store):
                if s.memory in self.uniform_cells and s.memory not in turns and (
                    diverges or self.differs(s.value)
                ):
                    self.uniform_cells.discard(s.memory)
            elif isinstance(s, Address | Atomic | Call | Clock) or (
                isinstance(s, Collective) and s.scope == "warp"
            ):
                self.varying.update(s.binds())
            elif isinstance(s, For):
                if not self.splits(s):  # others turn for the whole block, as far as threads agree
                    self.varying.add(s.var)
                self._spread(s.body, diverges or self.differs(s.extent))
            elif isinstance(s, While):
                apart = diverges or self.differs(s.condition)
                self._spread(s.head, apart)
                self._spread(s.body, apart)
            elif isinstance(s, If):
                # Behind a last condition nobody asks what those do who left there.
                apart = diverges or self.differs(s.condition)
                loses = (final or self.exits_early) and self.is_leaving(s) and (
                    final or self.loses(s))
                for inner in s.bodies():
                    stays = loses and any(map(self.splits, inner))
                    self._spread(inner, diverges if stays else apart, final)
            else:
                for inner in s.bodies():
                    self._spread(inner, diverges)

    def is_leaving(self, s: If) -> bool:
        """Whether at most one branch of a condition has barriers."""
        return not (any(map(self.splits, s.then)) and any(map(self.splits, s.orelse)))

    def loses(self, s: If) -> bool:
        """Whether all who go one way at a condition leave, and others wait for each other."""
        inside = any(map(self.splits, s.then))
        return self.exits_early and always_leaves(s.orelse if inside else s.then)

    def differs(self, e: Expr) -> bool:
        """Whether a value may differ between the threads of a block."""
        return any(v in self.varying for v in ex.free_vars([e]))

    def is_shared(self, s: Stmt) -> bool:
        """Whether a statement is computed once for the whole block."""
        if isinstance(s, Let):
            return s.var not in self.varying
        if isinstance(s, Load):  # in a loop that threads leave apart its name may be kept
            return s.memory in self.uniform_cells and s.var not in self.varying
        if isinstance(s, Store | Alloc):
            return s.memory in self.uniform_cells
        return False

    def _lanes_of_arrays(self, memory: Memory, body: Body) -> int:
        """Return how many threads have the elements of an array of their own side by side."""
        if not memory.shape or self.lanes < 2 or not self.axes or any(
                isinstance(s, Address) and s.memory is memory for s in walk(body)):
            return 1
        return math.gcd(int(self.axes[-1].extent.attr), self.lanes)

    def _find_crossing(self, body: Body) -> None:
        """Find what is made between two barriers and used between others."""
        made: dict[Expr, int] = {}
        homes: dict[Memory, set[int]] = {}
        fragments: set[Memory] = set()
        used: dict[Expr, set[int]] = {}
        pure: dict[Expr, Expr] = {}
        read: set[Memory] = set()
        self.region = 0

        def look(part: Body, inside: bool) -> None:
            for s in part:
                if not inside and self.splits(s):
                    self.region += 1
                if not inside and not self.is_shared(s):
                    read.update(memories_read(s))
                elif not inside and isinstance(s, Store) and s.memory in read:
                    self.region += 1  # as `_split` does
                if not isinstance(s, While):
                    note(s.exprs())
                for var in s.binds():
                    made[var] = self.region
                if isinstance(s, Let):
                    pure[s.var] = s.value
                # Where it is made counts, too: a turn of a loop may use what the one before left.
                for memory in (s.memory,) if isinstance(s, Alloc) else (*s.reads(), *s.writes()):
                    if memory.scope in _PRIVATE:
                        homes.setdefault(memory, set()).add(self.region)
                if isinstance(s, MatrixAccess | MatrixMultiply):
                    fragments.update(m for m in (*s.reads(), *s.writes()) if m.scope in _PRIVATE)
                for k, inner in enumerate(s.bodies()):
                    look(inner, inside or not self.splits(s))
                    if isinstance(s, While) and k == 0:
                        self.region += not inside and self.splits(s) and self.differs(s.condition)
                        note(s.exprs())
                    if not inside and self.splits(s):
                        self.region += 1
                if self.exits_early and not inside and leaves((s,)):
                    self.region += 1  # behind it, who has left is not there

        def note(exprs: tuple[Expr, ...]) -> None:
            for v in ex.free_vars(exprs):
                used.setdefault(v, set()).add(self.region)

        look(body, False)
        for memory, regions in homes.items():
            if len(regions) > 1 and memory not in self.uniform_cells:
                name = self.fresh(memory.name, self.memory_names)
                # The same element of the threads of a vector, or of a warp, side by side.
                wide = WARP if memory in fragments else self._lanes_of_arrays(memory, body)
                shape: tuple[Expr, ...] = (ex.index(self.count), *memory.shape)
                if wide > 1:
                    shape = (ex.index(-(-self.count // wide)), *memory.shape, ex.index(wide))
                self.spilled[memory] = Memory(name, memory.dtype, shape, "local")
        crossing = {v for v, regions in used.items() if v in self.varying and v in made
                    and regions - {made[v]}}
        axes = {axis.var for axis in self.axes}
        for v in made:
            if v not in crossing:
                continue
            value = pure.get(v)
            if value is not None and all(
                w in axes or w not in self.varying or w in self.values
                for w in ex.free_vars([value])
            ):
                self.values[v] = ex.substitute([value], self.values)[0]
            else:
                name = self.fresh(f"{v.attr}.kept", self.memory_names)
                self.kept[v] = Memory(name, v.dtype, (ex.index(self.count),), "local")
