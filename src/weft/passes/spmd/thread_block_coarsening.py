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

Where threads return early before the loop, blocks go together if none of their threads does, which
the corners of the rectangle tell; else they run one after the other.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    PARALLEL,
    SERIAL,
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
from weft.passes.common.lanes import linear
from weft.passes.spmd.control_flow import has_barrier
from weft.passes.spmd.dependence import BLOCKS, COLUMNS, ROWS, Dependence, axis_bits, changed
from weft.passes.spmd.grid_stride_uniform import holds_for_all, opened
from weft.passes.spmd.lane_axis import lanes_last

__all__ = ["CoarsenedBlocks", "Room", "Stretch", "coarsened_blocks"]

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


class CoarsenedBlocks:
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
    everyone : Expr or None
        What holds if no thread of a rectangle returns early; the body is for such rectangles.
    """

    def __init__(self, kernel: Kernel, axes: Sequence[For], shared: Sequence[Alloc],
                 threads: Sequence[For], body: Body, most: tuple[int, int],
                 found: Dependence) -> None:  # fmt: skip
        self.names = {str(v.attr) for s in walk(kernel.body) for v in s.binds()}
        self.rows, self.columns = axes
        self.most = most
        self._first = self._fresh("first.y"), self._fresh("first.x")
        self._place = self._fresh("beside.y"), self._fresh("beside.x")
        self._here = self._fresh("rows"), self._fresh("columns")
        self.here = tuple(ex.maximum(ex.minimum(var, n), 1)  # says the bounds, too
                          for var, n in zip(self._here, most, strict=True))
        self.everyone: Expr | None = None
        homes = {}
        for s in shared:
            depends = found.of_memory(s.memory)
            own = [k for k, bit in enumerate((ROWS, COLUMNS)) if depends & bit]
            shape = (*(ex.index(most[k]) for k in own), *s.memory.shape)
            homes[s.memory] = s.memory.replace(shape=shape), tuple(self._place[k] for k in own)
        rewriter = _Moved(kernel, homes, {
            a.var: first + place
            for a, first, place in zip(axes, self._first, self._place, strict=True)})
        inner = rewriter.body(body)
        for axis in reversed(threads):
            inner = (For(axis.var, axis.extent, axis.kind, inner),)
        for place, number in zip(reversed(self._place), reversed(most), strict=True):
            inner = (For(place, ex.index(number), "thread.z", inner),)
        self.body = (*rewriter.body(tuple(shared)), *inner)
        self.kernel = kernel.replace(locations=rewriter.locations)
        self._found: tuple[Body, Dependence] | None = None

    def _fresh(self, base: str) -> Expr:
        """Return a variable with a name that nothing has."""
        name = next(n for n in itertools.chain((base,), (f"{base}.{k}" for k in itertools.count()))
                    if n not in self.names)
        self.names.add(name)
        return ex.var(name, dt.int64)

    def finds_who_stays(self, conditions: Sequence[tuple[Expr, bool]], threads: Sequence[For],
                        body: Body) -> bool:  # fmt: skip
        """Find out how to tell that no thread of a rectangle returns early; whether that is so."""
        lets = {s.var: s.value for s in walk(body) if isinstance(s, Let)}
        made = {v for s in walk(body) for v in s.binds()} | {a.var for a in threads}
        ends = [{axis.var: end} for axis, first, here in zip(
            (self.rows, self.columns), self._first, self.here, strict=True)
            for end in (first, first + (here - 1))]
        corners = [row | column for row in ends[:2] for column in ends[2:]]

        def test(comparison: Expr) -> Expr | None:
            """Return what says that a comparison of sums holds in the corners, so everywhere."""
            (whole,) = opened((comparison,), lets)
            if not _is_sum_of(whole, (self.rows.var, self.columns.var)):
                return None
            found = [holds_for_all(ex.substitute([whole], corner)[0], {}, threads,
                                   made.__contains__) for corner in corners]
            known = [e for e in dict.fromkeys(found) if e is not None]
            return functools.reduce(_and, known) if None not in found else None

        for condition, stays in conditions:
            found = _everywhere(opened((condition,), lets)[0], stays, test)
            if found is None:
                return False
            self.everyone = found if self.everyone is None else _and(self.everyone, found)
        return True

    def alone(self, body: Body) -> Body:
        """Return the blocks of a rectangle one after the other."""
        row, column = self._fresh("upper"), self._fresh("left")
        lets = (Let(self.rows.var, self._first[0] + row),
                Let(self.columns.var, self._first[1] + column))
        inner = For(column, self.here[1], SERIAL, (*lets, *body))
        return (For(row, self.here[0], SERIAL, (inner,)),)

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
            Let(self._here[0], ex.minimum(rows - self._first[0], down)),
            Let(self._here[1], ex.minimum(columns - self._first[1], across))]
        for axis in reversed(axes):
            lets.append(Let(axis.var, index // total if axis is axes[0]
                            else index // total % axis.extent))
            total = total * axis.extent
        return (For(index, total, PARALLEL, (*lets, *body)),)

    def stretches(self, whole: Body, axes: Sequence[For], body: Sequence[Stmt],
                  kept: Container[Expr | Memory]) -> list[Stretch]:  # fmt: skip
        """Return what stands between two barriers of `whole`, in parts for fewer blocks.

        `axes` are those of threads; what is in `kept` outlives the stretch.
        """
        if self._found is None or self._found[0] is not whole:
            seeds = {self._place[0]: ROWS, self._place[1]: COLUMNS}
            self._found = whole, Dependence(whole, seeds | axis_bits(axes))
        return _stretches(tuple(body), self._found[1], kept)


def _is_sum_of(comparison: Expr, indices: Sequence[Expr]) -> bool:
    """Whether indices are but terms of what is compared, so that it is extreme in corners."""
    if comparison.op not in (Op.LT, Op.LE) or any(
            a.dtype is not dt.int64 for a in comparison.args):
        return False
    left, right = comparison.args
    terms, _ = linear(right - left, {})
    return not any(i in ex.free_vars([t]) for t in terms if t not in indices for i in indices)


def _and(a: Expr, b: Expr) -> Expr:
    return ex.binary(Op.AND, a, b)


def _everywhere(e: Expr, holds: bool, test: Callable[[Expr], Expr | None]) -> Expr | None:
    """Return what says that a condition holds (or that it does not) for all, None if unknown."""
    if e.op is Op.NOT:
        return _everywhere(e.args[0], not holds, test)
    if e.op in (Op.AND, Op.OR) and e.dtype.is_bool:
        parts = [_everywhere(a, holds, test) for a in e.args]
        known = [p for p in parts if p is not None]
        if (e.op is Op.AND) == holds:
            return functools.reduce(_and, known) if None not in parts else None
        return functools.reduce(lambda a, b: ex.binary(Op.OR, a, b), known) if known else None
    if not holds and e.op in (Op.LT, Op.LE):
        left, right = e.args
        e = right.le(left) if e.op is Op.LT else right.lt(left)
    elif not holds:
        return None
    return test(e)


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


def coarsened_blocks(kernel: Kernel, axes: Sequence[For], body: Body, room: Room,
                  lanes: int) -> CoarsenedBlocks | None:  # fmt: skip
    """Return blocks side by side along the last two axes, if they share tiles in a loop.

    Their columns are those of the axis whose threads become lanes.
    """
    shared = [s for s in body if isinstance(s, Alloc)]
    inner = body[len(shared):]
    if len(axes) < 2 or not shared or any(
            s.base is not None or s.memory.scope != "shared" for s in shared):
        return None
    threads: list[For] = []
    while len(inner) == 1 and isinstance(inner[0], For) and inner[0].kind.startswith("thread."):
        threads.append(inner[0])
        inner = inner[0].body
    if any(a.extent.op is not Op.CONST for a in threads) or not all(
            isinstance(s, _PLAIN) for s in walk(inner)):
        return None
    axes = axes[-2:]
    if threads and lanes_last(threads, inner, lanes)[-1].kind[-1] == axes[0].kind[-1]:
        axes = axes[::-1]
    seeds = {axes[-2].var: ROWS, axes[-1].var: COLUMNS, **axis_bits(threads)}
    found = Dependence(inner, seeds)
    inner, conditions = _without_returns(inner, found)
    own = changed(inner, found, threads)
    if conditions or own:
        found = Dependence(inner, seeds, own)
    waiting = [s for s in walk(inner) if has_barrier(s)]
    if not any(isinstance(s, For | While) for s in waiting) or any(
            s.scope != "block" for s in walk(inner) if isinstance(s, Barrier)) or any(
            found.of(s.exprs()) for s in waiting):
        return None
    count = math.prod(int(a.extent.attr) for a in threads)
    sizes = {0: 0, ROWS: 0, COLUMNS: 0, BLOCKS: _kept(inner) * count}
    for s in shared:
        sizes[found.of_memory(s.memory) & BLOCKS] += _bytes(s.memory)
    if not sizes[ROWS] or not sizes[COLUMNS]:
        return None
    most = _most(sizes, room.nbytes)
    if most == (1, 1):
        return None
    made = CoarsenedBlocks(kernel, axes, shared, threads, inner, most, found)
    return made if made.finds_who_stays(conditions, threads, inner) else None


def _without_returns(body: Body, found: Dependence) -> tuple[Body, list[tuple[Expr, bool]]]:
    """Return what threads do that do not return early, and the conditions of that.

    A condition comes with whether it holds for those who stay.
    """
    conditions: list[tuple[Expr, bool]] = []
    before: Body = ()
    while body and isinstance(body[-1], If) and found.of(body[-1].exprs()):
        last = body[-1]
        inside = [any(map(has_barrier, part)) for part in last.bodies()]
        if sum(inside) != 1:
            break
        conditions.append((last.condition, inside[0]))
        before = (*before, *body[:-1])
        body = last.then if inside[0] else last.orelse
    return (*before, *body), conditions


def _most(sizes: dict[int, int], room: int) -> tuple[int, int]:
    """Return how many blocks along each axis find room.

    Tiles of more columns are more lines of the same rows of a matrix, those of more rows are as
    many rows more, each in another page.
    """
    rows = columns = 1
    while True:
        more = (rows, columns * 2) if columns < _BROADER * rows else (rows * 2, columns)
        nbytes = (sizes[0] + more[0] * sizes[ROWS] + more[1] * sizes[COLUMNS]
                  + more[0] * more[1] * sizes[BLOCKS])
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


def _stretches(body: Body, found: Dependence, kept: Container[Expr | Memory]) -> list[Stretch]:
    """Return parts of a body, each for those blocks for which it does something of its own.

    Names, registers and checks are part of each that follows them.
    """
    own = {s.memory for s in body if isinstance(s, Alloc) and s.memory not in kept}
    kinds = [_kind(s, found, kept, own) for s in body]
    classes = list(dict.fromkeys(k for k in kinds if k is not None))
    whole = [Stretch(True, True, body)]
    if classes in ([], [BLOCKS]):
        return whole
    parts = [_part(body, kinds, k, own) for k in classes]
    for s, kind in zip(body, kinds, strict=True):
        checks = found.of([e for t in walk((s,)) if isinstance(t, Assert) for e in t.exprs()])
        if kind is None and any(isinstance(t, Assert) for t in walk((s,))) and not any(
                s in part and not checks & BLOCKS & ~k
                for k, part in zip(classes, parts, strict=True)):
            return whole  # some of the blocks would not be checked
    for place, part in enumerate(parts):
        written = _touched(part, own, writes=True)
        if any(written & _touched(other, own) for other in parts[:place] + parts[place + 1:]):
            return whole
        read = own & {m for s in walk(part) for m in s.reads()}
        if any(s not in part for s in body if any(m in read for t in walk((s,))
                                                  for m in t.writes())):
            return whole  # a register is set beside something that is not part of this
    return [Stretch(bool(k & ROWS), bool(k & COLUMNS), part)
            for k, part in zip(classes, parts, strict=True)]


def _touched(body: Body, own: Container[Memory], writes: bool = False) -> set[Memory | str]:
    """Return the memories that statements access; those of arguments, which may overlap, as one."""
    return {"global" if m.scope == "global" else m for s in walk(body)
            for m in (s.writes() if writes else (*s.reads(), *s.writes())) if m not in own}


def _kind(s: Stmt, found: Dependence, kept: Container[Expr | Memory],
          own: Container[Memory]) -> int | None:  # fmt: skip
    """Return the axes along which a statement must be done for each block.

    None if it only makes names, sets registers of its stretch, or checks something.
    """
    if any(v in kept for t in walk((s,)) for v in t.binds()):
        return BLOCKS
    if isinstance(s, Let | Load | Assert | Alloc):
        return None
    inner = {t.memory for t in walk((s,)) if isinstance(t, Alloc)}
    written = [m for t in walk((s,)) for m in t.writes() if m not in inner]
    if written and all(m in own for m in written):
        return None
    kind = 0 if written else BLOCKS
    for t in walk((s,)):
        if isinstance(t, Assert):
            kind |= found.of(t.exprs())
    for m in written:
        kind |= found.of_memory(m) if m.scope == "shared" else 0 if m in own else BLOCKS
    return kind & BLOCKS


def _part(body: Body, kinds: Sequence[int | None], kind: int, own: Container[Memory]) -> Body:
    """Return the statements of a kind, with what they need and the checks before them."""
    needed: set[Expr | Memory] = set()
    out: list[Stmt] = []
    for s, found in zip(reversed(body), reversed(kinds), strict=True):
        made: list[Expr | Memory] = [s.memory] if isinstance(s, Alloc) else [
            *s.binds(), *(m for t in walk((s,)) for m in t.writes() if m in own)]
        if found == kind or (found is None and (
                (out and isinstance(s, Assert)) or any(v in needed for v in made))):
            out.append(s)
            for t in walk((s,)):
                needed.update(ex.free_vars(t.exprs()))
                needed.update(m for m in (*t.reads(), *t.writes()) if m in own)
    return tuple(reversed(out))
