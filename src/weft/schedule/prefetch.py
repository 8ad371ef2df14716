"""The primitives that ask for memory before it is needed."""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import SERIAL, Body, For, Kernel, Load, Prefetch, Reduce
from weft.ir.traverse import walk
from weft.schedule import dependence as dep
from weft.schedule.memory import MAX_EXTENT
from weft.schedule.space import Edit, find_for, find_loop, find_memory

LINE_BYTES: Final = 64  # of a cache line, on nearly every machine; a wrong guess costs speed only


def prefetch(kernel: Kernel, memory: str, loop: str, ahead: str, distance: int = 1) -> Kernel:
    """Ask for what a later iteration of an outer loop reads ("prefetch" in TVM and Halide).

    for i: { for j: a[i, j] ...; for k: { x = a[i, k]; ... } }        (loop = k, ahead = i)
    ->  for i: { for j: a[i, j] ...; for k: { prefetch a[i + 1, k]; x = a[i, k]; ... } }

    It changes speed only. The addresses beyond the last iteration are asked for in vain; no
    machine faults on them.

    Parameters
    ----------
    memory : str
        Read in `loop`.
    loop : str
        The innermost loop, or reduce axis, around the load; the work there hides the latency.
    ahead : str
        A loop around it, whose variable is part of the load's subscript.
    distance : int
        Iterations of `ahead`, at least 1.

    Raises
    ------
    ScheduleError
        If the loop does not read the memory, or reads it at a place that `ahead` does not change.
    """
    what = f"prefetch({memory}, {loop}, {ahead}, {distance})"
    site = find_loop(kernel, loop, "prefetch")
    source = find_memory(kernel, memory, "prefetch")
    outer = find_loop(kernel, ahead, "prefetch")
    if distance < 1 or not any(p is outer.stmt for p in site.parents):
        raise ScheduleError(what, found=f"{ahead} at distance {distance}",
                            expected=f"a loop around {loop} and a distance of at least 1")
    body = site.body
    found = next((s for s in body if isinstance(s, Load) and s.memory is source), None)
    if found is None or outer.var not in ex.free_vars(found.index):
        raise ScheduleError(what, found=f"no load of {memory} in {loop} that {ahead} moves",
                            expected="a load at a place that varies with the outer loop")
    index = tuple(ex.substitute(found.index, {outer.var: outer.var + distance}))
    at = next(p for p, s in enumerate(body) if s is found)
    edit = Edit(kernel)
    hint = Prefetch(source, index)
    edit.locate(found, hint)
    new: Body = (*body[:at], hint, *body[at:])
    stmt = site.stmt
    assert isinstance(stmt, For | Reduce)
    return edit.replace(site.parents, stmt, (stmt.with_bodies(new),))


def prefetch_panel(kernel: Kernel, memory: str, copy: str, loop: str, ahead: str) -> Kernel:
    """Ask for what the next copy of a panel reads, a share in each iteration of a loop.

    for i: { for r: for c in 64: t[r, c] = a[i, r, c]; for j in n: ... t ... }
    ->  for i: { for r: for c in 64: t[r, c] = a[i, r, c]
                 for j in n: { for r.f in rows/n: for c.f in 4: prefetch a[i + 1, j.., c.f*16]
                               ... t ... } }                   (copy = r, loop = j, ahead = i)

    Short rows that lie apart are no pattern that a processor fetches ahead by itself, and a copy
    that asked for them right before would wait for each handful of lines. The rows (what moves
    farthest in memory) are dealt out to the iterations of `loop`.

    Parameters
    ----------
    memory : str
        Read by one load in the loop `copy`.
    copy : str
        The outermost loop of the copy.
    loop : str
        A FOR loop of constant extent; the work in it hides the latency.
    ahead : str
        A loop around both, whose variable is part of the load's subscript.

    Raises
    ------
    ScheduleError
        If there is no such load, or the loops do not nest like this.
    """
    what = f"prefetch_panel({memory}, {copy}, {loop}, {ahead})"
    source, outer = find_memory(kernel, memory, "prefetch_panel"), find_for(kernel, ahead, what)
    first, site = find_for(kernel, copy, what), find_for(kernel, loop, what)
    if not all(any(p is outer.stmt for p in s.parents) for s in (first, site)):
        raise ScheduleError(what, found=f"{copy} and {loop} not inside {ahead}",
                            expected="a loop around both")
    found = [s for s in walk(first.body) if isinstance(s, Load) and s.memory is source]
    if len(found) != 1 or outer.var not in ex.free_vars(found[0].index):
        raise ScheduleError(what, found=f"{len(found)} loads of {memory} that {ahead} moves",
                            expected="one")
    space = dep.Space(kernel)
    inside = {first.var} | {s.var for s in walk(first.body) if isinstance(s, For)}
    flat = space.flat(source, found[0].index)
    moves: dict[Expr, int] = {}
    for var in inside & ex.free_vars(found[0].index):
        step = space.stride(flat, var)
        if not step:
            raise ScheduleError(what, found=f"a subscript not linear in {var.attr}",
                                expected="sums of loop variables times constants")
        moves[var] = abs(step)
    count = space.ranges.of(site.loop.extent).hi
    if not moves or not 1 <= count <= MAX_EXTENT:
        raise ScheduleError(what, found=f"{loop} in {site.loop.extent!r}",
                            expected="a constant extent, and loops of a copy that move")
    edit = Edit(kernel)
    far = max(moves, key=lambda v: (moves[v], str(v.attr)))
    places: dict[Expr, Expr] = {outer.var: outer.var + 1}
    loops: list[tuple[Expr, int]] = []
    for var in sorted(moves, key=lambda v: (-moves[v], str(v.attr))):
        n = space.ranges.of(space.extents[var]).hi
        every = max(LINE_BYTES // (moves[var] * source.dtype.itemsize), 1)
        times = -(-n // every)
        share = -(-times // count) if var is far else times
        point = edit.names.index(f"{var.attr}.f")
        loops.append((point, share))
        turn = site.loop.var * share + point if var is far else point
        places[var] = ex.minimum(turn * every, ex.index(n - 1))
    (hint,) = [Prefetch(source, tuple(ex.substitute(found[0].index, places)))]
    edit.locate(found[0], hint)
    nest: Body = (hint,)
    for point, n in reversed(loops):
        nest = (For(point, ex.index(n), SERIAL, nest),)
    return edit.replace(site.parents, site.stmt,
                        (site.stmt.with_bodies((*nest, *site.body)),))
