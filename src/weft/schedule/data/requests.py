"""What is asked for ahead of time, where it stands, and how rows of a panel are dealt out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod
from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import For, Kernel, Load, Memory
from weft.ir.traverse import walk
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.space import Site, find_for, find_loop, find_memory
from weft.schedule.data.memory import MAX_EXTENT
from weft.schedule.loops.split import split

LINE_BYTES: Final = 64  # of a cache line, on nearly every machine; a wrong guess costs speed only
MOST_LINES: Final = 8  # of a row that is asked for at once


class Request:
    """What is asked for, and where."""

    def __init__(self, kernel: Kernel, what: str, memory: str, loop: str, ahead: str, distance: int,
                 read: str, first: str, around: str) -> None:
        self.kernel, self.what, self.distance = kernel, what, distance
        self.loop, self.ahead, self.around = loop, ahead, around
        self.read, self.first = read or loop, first or loop
        self.site = find_loop(kernel, loop, what)
        self.source = find_memory(kernel, memory, what)
        self.space = sub.Space(kernel)

    def wrong(self, found: str, expected: str) -> ScheduleError:
        """Return the error that says why this is not possible."""
        return ScheduleError(self.what, found=found, expected=expected)

    def most(self, extent: Expr) -> int:
        """Return the most iterations of a loop."""
        return self.space.ranges.of(extent).hi

    def shared(self, loops: list[For]) -> list[For]:
        """Return the loops from the first that shares the requests on; it is inside of `ahead`."""
        names = [p.var.attr for p in loops]
        at = names.index(self.first) if self.first in names else 0
        if self.ahead not in names[:at]:
            raise self.wrong(f"{self.first} not between {self.ahead} and {self.loop}",
                             "a loop inside the one and around the other")
        return loops[at:]

    def turn(self, loops: Iterable[For]) -> tuple[Expr, int]:
        """Return the number of an iteration of nested loops, and how many there are at most."""
        turn, count = ex.index(0), 1
        for p in loops:
            most = self.most(p.extent)
            turn, count = turn * most + p.var, count * most
        return turn, count

    def loads(self) -> tuple[Expr, list[Load], dict[Expr, int]]:
        """Return the loop to look ahead in, the loads of a copy, and how far its loops move them.

        Raises
        ------
        ScheduleError
            If there are none, or loops move them differently or not linearly.
        """
        outer, first = (find_for(self.kernel, name, self.what) for name in (self.ahead, self.read))
        if not all(any(p is outer.stmt for p in s.parents) for s in (first, self.site)):
            raise self.wrong(f"{self.read} and {self.loop} not inside {self.ahead}",
                             "a loop around both")
        loads = [s for s in walk(first.body) if isinstance(s, Load) and s.memory is self.source]
        if not loads or any(outer.var not in ex.free_vars(s.index) for s in loads):
            raise self.wrong(f"{len(loads)} loads of {self.source.name} that {self.ahead} moves",
                             "one")
        inside = {first.var} | {s.var for s in walk(first.body) if isinstance(s, For)}
        flat = [self.space.flat(self.source, s.index) for s in loads]
        moves: dict[Expr, int] = {}
        for var in inside & ex.free_vars(loads[0].index):
            step = self.space.stride(flat[0], var)
            if not step or any(self.space.stride(f, var) != step for f in flat):
                raise self.wrong(f"a subscript not linear in {var.attr}",
                                 "sums of loop variables times constants")
            moves[var] = abs(step)
        return outer.var, loads, moves

    def load(self) -> tuple[Expr, Load, dict[Expr, int]]:
        """As `loads`, of a copy with one load."""
        outer, loads, moves = self.loads()
        if len(loads) != 1:
            raise self.wrong(f"{len(loads)} loads of {self.source.name} that {self.ahead} moves",
                             "one")
        return outer, loads[0], moves

    def later(self, outer: Expr, loops: list[For]) -> dict[Expr, Expr]:
        """Return the later iteration of a loop, and of the one around it where it begins anew."""
        after = outer + self.distance
        if not self.around:
            return {outer: after}
        wider = find_for(self.kernel, self.around, self.what).loop
        begun = next(p for p in loops if p.var is outer).extent
        return {outer: after % begun, wider.var: wider.var + after // begun}


def each_line(move: int, source: Memory) -> int:
    """Return how many iterations of a loop stay in a line."""
    return max(LINE_BYTES // (move * source.dtype.itemsize), 1)


class Rows(Record):
    """The rows of a panel, dealt out to runs of the steps that use another panel.

    `row` is the one whose turn it is in an iteration of the loop `head` over runs, `along` are the
    loops of the copy whose iterations are rows, `lines` the places of a row's lines in the others;
    `known` is the most that each loop runs. `loops` are those around `head`; `outer` is the
    variable that chooses the panel.
    """

    kernel: Kernel
    head: Site
    loops: list[For]
    outer: Expr
    load: Load
    along: list[Expr]
    known: dict[Expr, int]
    lines: list[dict[Expr, Expr]]
    row: Expr


def deal(r: Request) -> Rows:
    """Split steps into runs, as many as there are rows of a panel for a tile; see `Rows`.

    Raises
    ------
    ScheduleError
        If there is no such load, the loops do not nest like this, there are fewer steps than rows,
        or rows have too many lines.
    """
    outer, load, moves = r.load()
    loops = [p for p in r.site.parents if isinstance(p, For)]
    shared = r.shared(loops)
    known = {v: r.most(r.space.extents[v]) for v in moves}
    row, turns = r.turn(shared[:1] if r.read == r.loop else shared)
    length = r.most(r.site.extent)
    along = [r.site.var]
    if r.read != r.loop:  # as few loops as leave a handful of lines in a row
        order = sorted(moves, key=lambda v: (-moves[v], str(v.attr)))
        least = (n for n in range(1, len(order)) if prod(
            -(-known[v] // each_line(moves[v], r.source)) for v in order[n:]) <= MOST_LINES)
        along = order[:next(least, max(len(order) - 1, 1))]
    rows = prod(known.get(v, 0) for v in along)
    if not 1 <= rows <= turns * length or rows > MAX_EXTENT:
        raise r.wrong(f"{rows} rows for {turns * length} steps", "at least a step for each row")
    lines = _lines_of(r, moves, known, along)
    most = length // -(-rows // turns)
    run = next((f for f in range(most, most // 2, -1) if length % f == 0), most)
    runs = -(-length // run)
    kernel = split(r.kernel, r.loop, run, "trim")
    head = find_for(kernel, f"{r.loop}.o", r.what)
    row = row * runs + head.var
    if turns * runs > rows:
        row = ex.minimum(row, ex.index(rows - 1))
    return Rows(kernel, head, loops, outer, load, along, known, lines, row)


def _lines_of(r: Request, moves: dict[Expr, int], known: dict[Expr, int],
              along: list[Expr]) -> list[dict[Expr, Expr]]:
    """Return the places of the lines of a row along the loops that do not choose the row."""
    columns = [v for v in moves if v not in along]
    lines = [dict(zip(columns, at, strict=True)) for at in product(
        *[range(0, known[v], each_line(moves[v], r.source)) for v in columns])]
    if any(moves[v] * r.source.dtype.itemsize % LINE_BYTES for v in along):
        lines.append({v: known[v] - 1 for v in columns})  # rows begin in a line, end in one more
    if len(lines) > MOST_LINES:
        raise r.wrong(f"{len(lines)} lines in a row", f"at most {MOST_LINES}")
    return [{v: ex.index(c) for v, c in line.items()} for line in lines]
