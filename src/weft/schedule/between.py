"""The primitive that asks for memory between runs of steps, where a loop leaves time to."""

from __future__ import annotations

from math import prod
from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import For, Kernel, Load, Prefetch, Store
from weft.ir.traverse import walk
from weft.schedule import subscripts as sub
from weft.schedule.prefetch import LINE_BYTES
from weft.schedule.space import Edit, constant, find_for, find_memory

MOST_HINTS: Final = 32  # in one turn
PAGE_BYTES: Final = 4096  # where a core's own look-ahead ends


def prefetch_between(kernel: Kernel, memory: str, rows: str, first: str, turns: str,
                     ahead: str = "", lines: int = 0) -> Kernel:
    """Ask for lines of rows, a few in each turn of a loop that holds runs of steps.

    for i: { for k.o in 6: { for k.i in m: { for r in 6: ... a[i*6 + r, k.o*m + k.i] ... } } }
    ->  for i: { for k.o in 6: { prefetch a[(i+1)*6 + k.o, 0]; prefetch a[(i+1)*6 + k.o, 16]
                                 for k.i in m: { ... } } }
    (rows = r, first = turns = k.o, ahead = i, lines = 2)

    As `prefetch_rows`, but no run of steps is split for it, which costs more than the requests do.
    It changes speed only, and no machine faults on addresses beyond an array.

    Parameters
    ----------
    memory : str
        Read or written once in `rows`.
    rows : str
        The loop of constant extent that moves from row to row.
    first, turns : str
        The outermost and the innermost of the loops whose iterations share the rows, all of
        constant extents. The hints stand in the innermost one.
    ahead : str
        A loop around them whose next iteration is asked for; the present one if empty.
    lines : int
        How many lines of each row, and of each page of a row; all of them if 0.

    Raises
    ------
    ScheduleError
        If there is no such access, the loops do not nest like this, or a turn had too many hints.
    """
    what = f"prefetch_between({memory}, {rows}, {first}, {turns}, {ahead}, {lines})"
    site, row = find_for(kernel, turns, what), find_for(kernel, rows, what).loop
    source, space = find_memory(kernel, memory, what), sub.Space(kernel)
    around = [p for p in (*site.parents, site.stmt) if isinstance(p, For)]
    names = [p.var.attr for p in around]
    if first not in names or (ahead and ahead not in names[:names.index(first)]):
        raise ScheduleError(what, found=f"{first} or {ahead} not around {turns}",
                            expected="loops around the loop of turns")
    shared = around[names.index(first):]
    extents = [constant(p.extent) or 0 for p in shared]
    access = next((s for s in walk(row.body) if isinstance(s, Load | Store)
                   and s.memory is source), None)
    step, column = _column(space, access, row, {p.var for p in around[:-1]})
    if access is None or column is None or not prod(extents):
        raise ScheduleError(what, found=f"no rows of {memory} in {rows}, or loops that vary",
                            expected="an access with contiguous rows, loops of constant extents")
    width, length = LINE_BYTES // source.dtype.itemsize, constant(source.shape[-1]) or 0
    total = constant(row.extent) or 0
    if lines:  # of the whole row, page by page
        page = PAGE_BYTES // source.dtype.itemsize
        parts = max(length // page, 1)
    else:
        page, parts = 0, 1
        lines = -(-(constant(space.extents[column]) or 0) // width)
    share = -(-total * parts // prod(extents))
    if not 0 < share * lines <= MOST_HINTS or step == 0:
        raise ScheduleError(what, found=f"{share * lines} hints in a turn",
                            expected=f"1 to {MOST_HINTS}")
    turn: Expr = ex.index(0)
    for loop, extent in zip(shared, extents, strict=True):
        turn = turn * extent + loop.var
    places = {v: ex.index(0) for v in ex.free_vars(access.index)
              if v not in {p.var for p in around[:-1]} and v in space.extents}
    if ahead:
        places[around[names.index(ahead)].var] = around[names.index(ahead)].var + 1
    edit, hints = Edit(kernel), []
    for n in range(share):
        at = ex.minimum(turn * share + n, ex.index(total * parts - 1))
        places[row.var], begin = at // parts, at % parts * page
        for line in range(lines):
            places[column] = begin + line * width
            hints.append(Prefetch(source, tuple(ex.substitute(access.index, places))))
            edit.locate(access, hints[-1])
    return edit.replace(site.parents, site.stmt,
                        (site.stmt.with_bodies((*hints, *site.loop.body)),))


def _column(space: sub.Space, access: Load | Store | None, row: For,
            outside: set[Expr]) -> tuple[int, Expr | None]:
    """Return how far a row lies from the next one, and the loop along a row."""
    if access is None:
        return 0, None
    flat = space.flat(access.memory, access.index)
    inside = [v for v in ex.free_vars(access.index) if v in space.extents and v not in outside]
    along = [v for v in inside if v is not row.var and space.stride(flat, v) == 1]
    return abs(space.stride(flat, row.var) or 0), along[0] if along else None
