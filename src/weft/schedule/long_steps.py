"""The primitive that asks for memory in steps that take as long as several requests."""

from __future__ import annotations

from math import prod
from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import SERIAL, UNROLLED, Body, For, If, Kernel, Prefetch
from weft.schedule.prefetch import LINE_BYTES, copied_loads, next_panel
from weft.schedule.space import Edit, find_for

MOST_ASKED: Final = 32  # lines in one step


def prefetch_lines(kernel: Kernel, memory: str, copy: str, tile: str, steps: str,
                   ahead: str, around: str = "") -> Kernel:  # fmt: skip
    """Ask for what the next copy of a panel reads, some lines in each of long steps.

    for j: { for q: for c in 32: t[q, c] = f(a[2*q, j*32 + c], a[2*q + 1, j*32 + c])
             for i in n: for k in m: ... t ... }
    ->  for j: { for q: ...
                 for i in n: for k in m: { prefetch a[.., (j+1)*32 + ..]; ...; ... t ... } }
    (copy = q, tile = i, steps = k, ahead = j)

    As `prefetch_rows`, for steps like products of matrices, which take as long as a few requests
    and their addresses: none is split, there may be fewer of them than rows, and rows may have any
    number of lines. Of a loop between that is written out only the first iteration asks.

    Parameters
    ----------
    memory : str
        Read in the loop `copy`, by loads whose subscripts differ by constants.
    copy, tile, steps, ahead, around : str
        As for `prefetch_rows`.

    Raises
    ------
    ScheduleError
        If there are no such loads, the loops do not nest like this, or a step would have to ask for
        too many lines.
    """
    what = f"prefetch_lines({memory}, {copy}, {tile}, {steps}, {ahead}, {around})"
    site = find_for(kernel, steps, what)
    space, outer, loads, moves = copied_loads(kernel, what, memory, copy, site, ahead)
    loops = [p for p in (*site.parents, site.loop) if isinstance(p, For)]
    at = next((n for n, p in enumerate(loops) if p.var.attr == tile), None)
    if at is None or not any(p.var is outer for p in loops[:at]):
        raise ScheduleError(what, found=f"{tile} not between {ahead} and {steps}",
                            expected="a loop inside the one and around the other")
    near = min(moves.values())
    if near >= len(loads):
        loads = loads[:1]  # the others read between its elements
    known = {v: space.ranges.of(space.extents[v]).hi for v in moves}
    order = sorted(moves, key=lambda v: (moves[v], str(v.attr)))
    run = near  # elements side by side
    along: list[Expr] = []
    while len(along) < len(order) and moves[order[len(along)]] == run:
        along.append(order[len(along)])
        run *= known[along[-1]]
    rows = order[len(along):]
    line = LINE_BYTES // loads[0].memory.dtype.itemsize
    lines = -(-run // line) + any(moves[v] % line for v in rows)
    turns, turn = 1, ex.index(0)
    sweeps = [p for p in loops[at:] if p.kind == UNROLLED]
    for p in loops[at:]:
        if p in sweeps:
            continue
        most = space.ranges.of(p.extent).hi
        turns, turn = turns * most, turn * most + p.var
    total = lines * prod(known[v] for v in rows)
    share = -(-total // turns)
    if not 1 <= share * len(loads) <= MOST_ASKED:
        raise ScheduleError(what, found=f"{total * len(loads)} lines for {turns} steps",
                            expected=f"at most {MOST_ASKED} in each")
    beyond = next_panel(kernel, what, loops, outer, around)
    edit = Edit(kernel)
    n = edit.names.index(f"{steps}.n")
    place = ex.minimum(turn * share + n, ex.index(total - 1))
    first = ex.minimum(place % lines * line, ex.index(run - near))
    index = beyond | {v: first // moves[v] % known[v] for v in along}
    place = place // lines
    for v in rows:
        index[v] = place % known[v]
        place = place // known[v]
    hints: list[Prefetch] = []
    for load in loads:
        hints.append(Prefetch(load.memory, tuple(ex.substitute(load.index, index))))
        edit.locate(load, hints[-1])
    # The requests of a step are written once: their addresses take more code than its products.
    asked: Body = (For(n, ex.index(share), SERIAL, tuple(hints)),)
    for p in sweeps:
        asked = (If(p.var.eq(0), asked),)
    return edit.replace(site.parents, site.stmt,
                        (site.stmt.with_bodies((*asked, *site.body)),))


__all__ = ["prefetch_lines"]
