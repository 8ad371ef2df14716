"""Blocks that lie side by side and fill the same tiles, run together.

Blocks of a tiled product that have the same row of the grid load the same tile of the left matrix,
those of one column the same tile of the right one. On a GPU each loads its own. Here a rectangle of
blocks goes through the tiles in step, as if it were one block: what each stretch between two
barriers does is done for all of its blocks before the next, a shared array that is the same for a
row or a column of them is there once, and is filled by one of them::

    for block: for tile: { fill left; fill right; multiply }
    ->  for blocks: for tile: { for row: fill left[row]; for column: fill right[column];
                                for row: for column: multiply left[row], right[column] }

A shared array is the same along an axis of the grid if nothing that is stored in it, nor where and
whether that is stored, depends on the block's index on this axis. What blocks read of global memory
is the same for all that read the same element: if one of them wrote to it meanwhile, it would race
with the others. The order in which blocks run is nobody's business, so nothing else changes; each
thread does the same operations in the same order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    PARALLEL,
    Alloc,
    Assert,
    Barrier,
    Body,
    For,
    If,
    Kernel,
    Let,
    Load,
    Memory,
    Stmt,
    Store,
    While,
)
from weft.ir.traverse import Rewriter, walk
from weft.passes.divergence import has_barrier

__all__ = ["Neighbours", "Room", "Stretch", "neighbours_of"]

_ROWS, _COLUMNS, _THREADS = 1, 2, 4  # what something depends on
_BLOCKS: Final = _ROWS | _COLUMNS
_EVERYTHING: Final = _BLOCKS | _THREADS
_MOST: Final = 32  # blocks along an axis
_BROADER: Final = 4  # how many more columns than rows: lines of a page, and not pages
_SHARES: Final = 4  # groups of blocks that each of the processor's threads should have
_PLAIN: Final = (Alloc, Assert, Barrier, For, If, Let, Load, Store, While)


class Room(NamedTuple):
    """What blocks that run together can have: bytes of near memory; threads that share them."""

    nbytes: int
    threads: int


class Stretch(NamedTuple):
    """Statements between two barriers, and whether they are for each row and each column."""

    rows: bool
    columns: bool
    body: Body


class Dependence:
    """Which axes of the grid, and whether threads, what a kernel computes depends on."""

    def __init__(self, body: Body, seeds: dict[Expr, int]) -> None:
        self._names = dict(seeds)
        self._memories = {s.memory: _EVERYTHING for s in walk(body)
                          if isinstance(s, Store) and s.memory.scope == "global"}
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
                found |= self.of_memory(s.memory) | _THREADS
            elif isinstance(s, Store):
                self._memories[s.memory] = self.of_memory(s.memory) | found | control
            if isinstance(s, Let | Load):
                self._names[s.var] = self._names.get(s.var, 0) | found
            for inner in s.bodies():
                self._spread(inner, control | found)


class Neighbours:
    """A rectangle of blocks of a grid that are run as one block.

    Attributes
    ----------
    kernel : Kernel
        With all that follows.
    body : Body
        What a block does, with indices of the blocks of the rectangle as outermost axes of threads.
    rows, columns : For
        The axes of the grid.
    most : (int, int)
        Blocks of the rectangle along each of them, at most.
    here : (Expr, Expr)
        How many there are, at the end of the grid fewer.
    names : set of str
        All names that are taken.
    """

    def __init__(self, kernel: Kernel, axes: Sequence[For], body: Body, most: tuple[int, int],
                 found: Dependence) -> None:  # fmt: skip
        self.names = {str(v.attr) for s in walk(kernel.body) for v in s.binds()}
        self.rows, self.columns = axes
        self.most = most
        self._first = self._fresh("first.y"), self._fresh("first.x")
        self._place = self._fresh("beside.y"), self._fresh("beside.x")
        self.here = self._fresh("rows"), self._fresh("columns")
        shared = {}
        for s in body:
            if isinstance(s, Alloc):
                depends = found.of_memory(s.memory)
                more = tuple(ex.index(n) for n, bit in zip(most, (_ROWS, _COLUMNS), strict=True)
                             if depends & bit)
                index = tuple(p for p, bit in zip(self._place, (_ROWS, _COLUMNS), strict=True)
                              if depends & bit)
                shared[s.memory] = s.memory.replace(shape=(*more, *s.memory.shape)), index
        rewriter = _Moved(kernel, shared, {
            a.var: first + place
            for a, first, place in zip(axes, self._first, self._place, strict=True)})
        allocs = tuple(s for s in body if isinstance(s, Alloc))
        inner = rewriter.body(tuple(s for s in body if not isinstance(s, Alloc)))
        for place, count in zip(reversed(self._place), reversed(most), strict=True):
            inner = (For(place, ex.index(count), "thread.z", inner),)
        self.body = (*rewriter.body(allocs), *inner)
        self.kernel = kernel.replace(locations=rewriter.locations)
        self._found: tuple[Body, Dependence] | None = None

    def _fresh(self, base: str) -> Expr:
        """Return a variable with a name that nothing has."""
        name = next(n for n in itertools.chain((base,), (f"{base}.{k}" for k in itertools.count()))
                    if n not in self.names)
        self.names.add(name)
        return ex.var(name, dt.int64)

    def loop(self, axes: Sequence[For], room: Room, index: Expr, body: Body) -> Body:
        """Return the loop over the rectangles of the grid; `axes` are those further out."""
        rows, columns = self.rows.extent, self.columns.extent
        share = ex.maximum(rows * columns // (_SHARES * room.threads), 1)  # blocks of a rectangle
        across = ex.minimum(ex.maximum(share // self.most[0], ex.minimum(share, _BROADER)),
                            self.most[1])
        down = ex.minimum(ex.maximum(share // across, 1), self.most[0])
        wide = (columns + (across - 1)) // across
        total = (rows + (down - 1)) // down * wide
        place = index % total if axes else index
        lets: list[Stmt] = [
            Let(self._first[0], place // wide * down), Let(self._first[1], place % wide * across),
            Let(self.here[0], ex.minimum(rows - self._first[0], down)),
            Let(self.here[1], ex.minimum(columns - self._first[1], across))]
        for axis in reversed(axes):
            lets.append(Let(axis.var, index // total if axis is axes[0]
                            else index // total % axis.extent))
            total = total * axis.extent
        return (For(index, total, PARALLEL, (*lets, *body)),)

    def stretches(self, whole: Body, axes: Sequence[For], body: Sequence[Stmt],
                  kept: dict[Expr, Memory]) -> list[Stretch]:  # fmt: skip
        """Return what stands between two barriers of `whole`, in parts for fewer blocks.

        `axes` are those of threads; what is in `kept` is needed behind the barrier.
        """
        if self._found is None or self._found[0] is not whole:
            seeds = {self._place[0]: _ROWS, self._place[1]: _COLUMNS}
            self._found = whole, Dependence(whole, seeds | {a.var: _THREADS for a in axes})
        return _stretches(tuple(body), self._found[1], kept)


class _Moved(Rewriter):
    """Puts shared arrays beside each other, and the indices of blocks in terms of their place."""

    def __init__(self, kernel: Kernel, shared: dict[Memory, tuple[Memory, tuple[Expr, ...]]],
                 names: dict[Expr, Expr]) -> None:  # fmt: skip
        super().__init__(kernel)
        self._shared, self._names = shared, names

    def visit(self, stmt: Stmt) -> Stmt | Body:
        if any(v in self._names for v in ex.free_vars(stmt.exprs())):
            old, stmt = stmt, stmt.map_exprs(lambda e: ex.substitute([e], self._names)[0])
            self.carry(old, stmt)
        if isinstance(stmt, Load | Store) and stmt.memory in self._shared:
            memory, place = self._shared[stmt.memory]
            return stmt.replace(memory=memory, index=(*place, *stmt.index))
        if isinstance(stmt, Alloc) and stmt.memory in self._shared:
            return stmt.replace(memory=self._shared[stmt.memory][0])
        return stmt


def neighbours_of(kernel: Kernel, axes: Sequence[For], body: Body,
                  room: Room) -> Neighbours | None:  # fmt: skip
    """Return blocks side by side along the last two axes, if they share tiles in a loop."""
    if len(axes) < 2 or not any(isinstance(s, Alloc) for s in body):
        return None
    inner, threads, count = body, {}, 1
    shared = [s for s in body if isinstance(s, Alloc)]
    inner = body[len(shared):]
    while len(inner) == 1 and isinstance(inner[0], For) and inner[0].kind.startswith("thread."):
        if inner[0].extent.op is not Op.CONST:
            return None
        threads[inner[0].var] = _THREADS
        count *= int(inner[0].extent.attr)
        inner = inner[0].body
    if any(s.base is not None or s.memory.scope != "shared" for s in shared) or not all(
            isinstance(s, _PLAIN) for s in walk(inner)):
        return None
    waiting = [s for s in walk(inner) if has_barrier(s)]
    if not any(isinstance(s, For) for s in waiting) or any(
            s.scope != "block" for s in walk(inner) if isinstance(s, Barrier)):
        return None
    found = Dependence(inner, {axes[-2].var: _ROWS, axes[-1].var: _COLUMNS, **threads})
    if any(isinstance(s, While) or found.of(s.exprs()) for s in waiting):
        return None
    sizes = {0: 0, _ROWS: 0, _COLUMNS: 0, _BLOCKS: _kept(inner) * count}
    for s in shared:
        sizes[found.of_memory(s.memory) & _BLOCKS] += _bytes(s.memory)
    if not sizes[_ROWS] or not sizes[_COLUMNS]:
        return None
    most = _most(sizes, room.nbytes)
    if most == (1, 1):
        return None
    return Neighbours(kernel, axes[-2:], body, most, found)


def _most(sizes: dict[int, int], room: int) -> tuple[int, int]:
    """Return how many blocks along each axis find room.

    Tiles of more columns are more lines of the same rows of a matrix, those of more rows are as
    many rows more, each in another page.
    """
    rows = columns = 1
    while True:
        more = (rows, columns * 2) if columns < _BROADER * rows else (rows * 2, columns)
        nbytes = (sizes[0] + more[0] * sizes[_ROWS] + more[1] * sizes[_COLUMNS]
                  + more[0] * more[1] * sizes[_BLOCKS])
        if nbytes > room or max(more) > _MOST:
            return rows, columns
        rows, columns = more


def _bytes(memory: Memory) -> int:
    return math.prod(int(e.attr) for e in memory.shape) * memory.dtype.itemsize


def _kept(body: Body) -> int:
    """Return about how many bytes a thread keeps over barriers."""
    total = 0
    for s in body:
        if isinstance(s, Alloc):
            total += _bytes(s.memory)
        elif has_barrier(s):
            total += sum(map(_kept, s.bodies()))
    return total


# --- what stands between two barriers


def _stretches(body: Body, found: Dependence, kept: dict[Expr, Memory]) -> list[Stretch]:
    """Return parts of a body, each for those blocks for which it does something of its own.

    Names and checks are part of each that follows them.
    """
    whole = [Stretch(True, True, body)]
    kinds = [_kind(s, found, kept) for s in body]
    classes = list(dict.fromkeys(k for k in kinds if k is not None))
    if classes in ([], [_BLOCKS]):
        return whole
    parts = [_part(body, kinds, k) for k in classes]
    for s in body:
        if isinstance(s, Assert) and not any(
                s in part and not found.of(s.exprs()) & _BLOCKS & ~k
                for k, part in zip(classes, parts, strict=True)):
            return whole  # some of the blocks would not be checked
    for place, part in enumerate(parts):
        written = _touched(part, writes=True)
        if any(written & _touched(other) for other in parts[:place] + parts[place + 1:]):
            return whole
    return [Stretch(bool(k & _ROWS), bool(k & _COLUMNS), part)
            for k, part in zip(classes, parts, strict=True)]


def _touched(body: Body, writes: bool = False) -> set[Memory | str]:
    """Return the memories that statements access; those of arguments, which may overlap, as one."""
    return {"global" if m.scope == "global" else m
            for s in walk(body) for m in (s.writes() if writes else (*s.reads(), *s.writes()))}


def _kind(s: Stmt, found: Dependence, kept: dict[Expr, Memory]) -> int | None:
    """Return the axes along which a statement must be done for each block, None for names."""
    if isinstance(s, Let | Load):
        return _BLOCKS if s.var in kept else None
    if isinstance(s, Assert):
        return None
    own = {t.memory for t in walk((s,)) if isinstance(t, Alloc)}
    kind = 0
    for t in walk((s,)):
        if any(v in kept for v in t.binds()):
            return _BLOCKS
        if isinstance(t, Assert | Alloc):
            kind |= found.of(t.exprs()) | (_BLOCKS if isinstance(t, Alloc) and t is s else 0)
        for m in t.writes():
            if m not in own:
                kind |= found.of_memory(m) if m.scope == "shared" else _BLOCKS
    return kind & _BLOCKS


def _part(body: Body, kinds: Sequence[int | None], kind: int) -> Body:
    """Return the statements of a kind, with the names that they need and the checks before them."""
    needed: set[Expr] = set()
    out: list[Stmt] = []
    for s, own in zip(reversed(body), reversed(kinds), strict=True):
        if own == kind or (own is None and out and isinstance(s, Assert)) or any(
                v in needed for v in s.binds()):
            out.append(s)
            for t in walk((s,)):
                needed.update(ex.free_vars(t.exprs()))
    return tuple(reversed(out))
