"""What the steps of a kernel depend on: axes of its grid, and axes of the threads of a block."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Alloc, Body, For, Let, Load, Memory, Store
from weft.ir.traverse import walk
from weft.passes.spmd.control_flow import has_barrier
from weft.passes.spmd.grid_stride_uniform import opened

__all__ = ["BLOCKS", "COLUMNS", "ROWS", "Dependence", "axis_bits", "changed"]

ROWS, COLUMNS = 1, 2  # what something depends on
BLOCKS: Final = ROWS | COLUMNS
THREADS: Final = 4 | 8 | 16  # each axis of threads
EVERYTHING: Final = BLOCKS | THREADS


def axis_bits(threads: Sequence[For]) -> dict[Expr, int]:
    """Return what stands for each of at most three axes of threads."""
    return {axis.var: 4 << k for k, axis in enumerate(threads)}


class Dependence:
    """Which axes of the grid and of its blocks what a kernel computes depends on.

    Parameters
    ----------
    body : Body
        What a block does.
    seeds : dict of Expr to int
        The indices along these axes, and what stands for them.
    own : container of Memory
        Shared arrays that each block has for itself, whatever they hold.
    """

    def __init__(self, body: Body, seeds: dict[Expr, int],
                 own: Container[Memory] = ()) -> None:  # fmt: skip
        self._names = dict(seeds)
        self._memories = {s.memory: EVERYTHING for s in walk(body)
                          if isinstance(s, Store) and s.memory.scope == "global"}
        self._memories |= {s.memory: BLOCKS for s in walk(body)
                           if isinstance(s, Store) and s.memory in own}
        self._cells = _uniform(body)
        known = -1
        while known != (known := sum(self._names.values()) + sum(self._memories.values())):
            self._spread(body, 0)

    def of(self, exprs: Sequence[Expr]) -> int:
        """Return what expressions depend on."""
        found = 0
        for v in ex.free_vars(exprs):
            found |= self._names.get(v, 0)
        return found

    def of_memory(self, memory: Memory) -> int:
        """Return what the content of a memory depends on."""
        return self._memories.get(memory, 0)

    def _spread(self, body: Body, control: int) -> None:
        for s in body:
            found = self.of(s.exprs())
            if isinstance(s, Load):
                found |= self.of_memory(s.memory)
                found |= 0 if s.memory in self._cells and not control else THREADS
            elif isinstance(s, Store):
                self._memories[s.memory] = self.of_memory(s.memory) | found | control
            if isinstance(s, Let | Load):
                self._names[s.var] = self._names.get(s.var, 0) | found
            for inner in s.bodies():
                self._spread(inner, control | found)


def _uniform(body: Body) -> set[Memory]:
    """Return registers that are set only where all threads of a block come by together."""
    apart: set[Memory] = set()
    found: set[Memory] = set()
    stack = [body]
    while stack:
        for s in stack.pop():
            if isinstance(s, Alloc) and s.memory.scope == "register" and not s.memory.shape:
                found.add(s.memory)
            elif has_barrier(s):
                stack.extend(s.bodies())
            else:
                apart.update(m for part in s.bodies() for t in walk(part) for m in t.writes())
    return found - apart


def changed(body: Body, found: Dependence, threads: Sequence[For]) -> set[Memory]:
    """Return shared arrays that may lose what threads read before they reach the next barrier.

    Nothing but such a stretch between two barriers can be run again without a difference: what it
    reads of an array is what it stored before, or an element that several threads read, which
    none of them may then store to.
    """
    several = [bit for axis, bit in zip(threads, axis_bits(threads).values(), strict=True)
               if int(axis.extent.attr) > 1]
    lets = {s.var: s.value for s in walk(body) if isinstance(s, Let)}
    out: set[Memory] = set()

    def read(part: Body, written: set[Memory], stored: set[object],
             control: int) -> None:  # fmt: skip
        """Find what is read of what a stretch writes, and was not stored before."""
        for s in part:
            if isinstance(s, Load) and s.memory in written:
                depends = control | found.of(s.index)
                if (s.memory, opened(s.index, lets)) not in stored and all(
                        depends & bit for bit in several):
                    out.add(s.memory)
            elif isinstance(s, Store):
                stored.add((s.memory, opened(s.index, lets)))
            for inner in s.bodies():
                read(inner, written, set(stored), control | found.of(s.exprs()))

    stack = [body]
    while stack:
        stretch: Body = ()
        for s in (*stack.pop(), None):
            if s is not None and not has_barrier(s):
                stretch = (*stretch, s)
                continue
            written = {m for t in walk(stretch) for m in t.writes() if m.scope == "shared"}
            if written:
                read(stretch, written, set(), 0)
            stretch = ()
            stack.extend(s.bodies() if s is not None else ())
    return out
