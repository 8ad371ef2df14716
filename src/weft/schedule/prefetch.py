"""The primitives that ask for memory before it is needed."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import SERIAL, Body, For, Kernel, Load, Memory, Prefetch, Reduce, Store
from weft.ir.traverse import walk
from weft.schedule import subscripts as sub
from weft.schedule.memory import MAX_EXTENT
from weft.schedule.space import Edit, Site, find_for, find_loop, find_memory
from weft.schedule.split import split

LINE_BYTES: Final = 64  # of a cache line, on nearly every machine; a wrong guess costs speed only
MOST_LINES: Final = 8  # that are asked for at once


def prefetch(kernel: Kernel, memory: str, loop: str, ahead: str, distance: int = 1) -> Kernel:
    """Ask for what a later iteration of an outer loop touches ("prefetch" in TVM, Halide).

    for i: { for j: a[i, j] ...; for k: { x = a[i, k]; ... } }        (loop = k, ahead = i)
    ->  for i: { for j: a[i, j] ...; for k: { prefetch a[i + 1, k]; x = a[i, k]; ... } }

    It changes speed only. The addresses beyond the last iteration are asked for in vain; no
    machine faults on them.

    Parameters
    ----------
    memory : str
        Read or written in `loop`: a store to two lines waits for both.
    loop : str
        The innermost loop, or reduce axis, around the access; the work there hides the latency.
    ahead : str
        A loop around it, whose variable is part of the subscript.
    distance : int
        Iterations of `ahead`, at least 1.

    Raises
    ------
    ScheduleError
        If the loop does not touch the memory, or does so at a place that `ahead` does not change.
    """
    what = f"prefetch({memory}, {loop}, {ahead}, {distance})"
    site = find_loop(kernel, loop, "prefetch")
    source = find_memory(kernel, memory, "prefetch")
    outer = find_loop(kernel, ahead, "prefetch")
    if distance < 1 or not any(p is outer.stmt for p in site.parents):
        raise ScheduleError(what, found=f"{ahead} at distance {distance}",
                            expected=f"a loop around {loop} and a distance of at least 1")
    body = site.body
    found = next((s for s in body if isinstance(s, Load | Store) and s.memory is source), None)
    if found is None or outer.var not in ex.free_vars(found.index):
        raise ScheduleError(what, found=f"no access to {memory} in {loop} that {ahead} moves",
                            expected="an access at a place that varies with the outer loop")
    index = tuple(ex.substitute(found.index, {outer.var: outer.var + distance}))
    at = next(p for p, s in enumerate(body) if s is found)
    edit = Edit(kernel)
    hint = Prefetch(source, index)
    edit.locate(found, hint)
    new: Body = (*body[:at], hint, *body[at:])
    stmt = site.stmt
    assert isinstance(stmt, For | Reduce)
    return edit.replace(site.parents, stmt, (stmt.with_bodies(new),))


def prefetch_places(kernel: Kernel, memory: str, loop: str, ahead: str, places: int = 4,
                    block: int = 1) -> Kernel:  # fmt: skip
    """Ask for what a later iteration reads, in several places side by side.

    for i: { for o in 64: for e in 64: { x = a[i, o * 64 + e]; ... } }
    ->  for i: { for o in 64: { for p in 4: prefetch a[i + 1, p * 1024 + o * 16]
                                for e in 64: { x = a[i, o * 64 + e]; ... } } }
    (loop = o, ahead = i, places = 4)

    A core has more lines under way from several pages than its own look-ahead fetches from one.
    Where iterations do not share out evenly, a few lines are left to that look-ahead.
    Short rows are asked for in blocks: with block = places = 4, ``a[i // 4 * 4 + 4 + p, ...]``. If
    `ahead` is the loop itself, each block of its iterations asks for the next one.

    Parameters
    ----------
    memory : str
        Read in `loop`, contiguously: by its iterations one after the other.
    loop : str
        A FOR loop around the loop over lanes; the work there hides the latency.
    ahead : str
        A loop around it, whose variable is part of the load's subscript, or `loop` itself.
    places : int
        Parts of a block that are asked for side by side, a power of two.
    block : int
        Iterations of `ahead` that are asked for together: one, or of a loop around as many as there
        are places.

    Raises
    ------
    ScheduleError
        If there is no such load, or an iteration does not read whole lines.
    """
    what = f"prefetch_places({memory}, {loop}, {ahead}, {places}, {block})"
    site, outer = find_for(kernel, loop, what), find_for(kernel, ahead, what)
    source, space = find_memory(kernel, memory, what), sub.Space(kernel)
    load, lane, step = _row_of(space, site, source)
    width = LINE_BYTES // source.dtype.itemsize
    each = step // width  # lines of an iteration
    if load is None or each < 1:
        raise ScheduleError(what, found=f"no such load of {memory} in {loop}",
                            expected="whole lines one after the other")
    inside = outer.stmt is site.stmt
    around = any(p is outer.stmt for p in site.parents) and outer.var in ex.free_vars(load.index)
    if places < 1 or places & (places - 1) or not (
            inside or (around and block in (1, places))):
        raise ScheduleError(what, found=f"{ahead} in blocks of {block}, {places} places",
                            expected=f"a loop around {loop} that moves the load, or {loop}")
    var, turn = site.loop.var, site.loop.var
    count = block if inside else space.ranges.of(site.loop.extent).hi * block
    following = (outer.var // block + 1) * block
    if inside:
        turn = var % block
    elif block > 1:
        turn = outer.var % block * (count // block) + var
    apart = -(-count * each // places)  # lines
    hints = []
    for place, line in _side_by_side(turn, each, places):
        if block > 1 and not inside:
            moved, first = {outer.var: following + place}, line * width
        else:
            first = (place * apart + line) * width
            moved = {} if inside else {outer.var: following}
        start = following * step if inside else ex.index(0)
        moved.update({var: ex.index(0), lane: start + first})
        hints.append(Prefetch(source, tuple(ex.substitute(load.index, moved))))
    edit = Edit(kernel)
    edit.locate(load, *hints)
    return edit.replace(site.parents, site.stmt,
                        (site.stmt.with_bodies((*hints, *site.loop.body)),))


def _row_of(space: sub.Space, site: Site,
            source: Memory) -> tuple[Load | None, Expr, int]:
    """Return the load of contiguous lanes in a loop, the lane, and elements of an iteration."""
    var = site.loop.var
    for inner in [s for s in walk(site.loop.body) if isinstance(s, For)]:
        lane = inner.var
        for load in walk(inner.body):
            if not isinstance(load, Load) or load.memory is not source or (
                    {var, lane} & ex.free_vars(load.index[:-1])):
                continue
            if _overlaps(load.index[-1], lane):
                return load, lane, space.ranges.of(inner.extent).hi
            flat = space.flat(source, load.index)
            if space.stride(flat, lane) == 1:
                return load, lane, space.stride(flat, var) or 0
    return None, var, 0


def _overlaps(e: Expr, lane: Expr) -> bool:
    """Whether a subscript is ``min(o*f, n - f) + lane``, of a last vector that repeats work."""
    return e.op is Op.ADD and e.args[1] is lane and e.args[0].op is Op.MIN


def _side_by_side(turn: Expr, each: int, places: int) -> list[tuple[Expr, Expr]]:
    """Return the places and lines in them that one turn asks for, `each` of them."""
    if each < places:  # the places take turns
        turns = places // each
        return [(turn % turns * each + n, turn // turns) for n in range(each)]
    near = each // places
    return [(ex.index(place), turn * near + n) for place in range(places) for n in range(near)]


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
    site = find_for(kernel, loop, what)
    space, outer, load, moves = _copied(kernel, what, memory, copy, site, ahead)
    source = load.memory
    count = space.ranges.of(site.loop.extent).hi
    if not moves or not 1 <= count <= MAX_EXTENT:
        raise ScheduleError(what, found=f"{loop} in {site.loop.extent!r}",
                            expected="a constant extent, and loops of a copy that move")
    edit = Edit(kernel)
    far = max(moves, key=lambda v: (moves[v], str(v.attr)))
    places: dict[Expr, Expr] = {outer: outer + 1}
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
    hint = Prefetch(source, tuple(ex.substitute(load.index, places)))
    edit.locate(load, hint)
    nest: Body = (hint,)
    for point, n in reversed(loops):
        nest = (For(point, ex.index(n), SERIAL, nest),)
    return edit.replace(site.parents, site.stmt,
                        (site.stmt.with_bodies((*nest, *site.body)),))


def prefetch_rows(kernel: Kernel, memory: str, copy: str, tile: str, steps: str, ahead: str,
                  around: str = "") -> Kernel:
    """Ask for what the next copy of a panel reads, a row at a time between runs of steps.

    for j: { for r in m: for c in 32: t[r, c] = a[r, j*32 + c]; for i in n: for k in m: ... t ... }
    ->  for j: { for r in m: for c in 32: t[r, c] = a[r, j*32 + c]
                 for i in n: for k.o in m/f:
                     { prefetch a[i * (m/f) + k.o, (j+1)*32]; prefetch a[..., (j+1)*32 + 16]
                       for k.i in f: ... t ... } }
    (copy = r, tile = i, steps = k, ahead = j; f = n, for as many rows as steps)

    As `prefetch_panel`, but dealt out so finely that requests hardly queue up: a core has few of
    them under way at once, and loads of the tile would wait behind them. Their addresses are
    computed outside of the steps, where arithmetic takes the place of products. Steps that read
    the operand as it lies are the `copy` themselves.

    Parameters
    ----------
    memory : str
        Read by one load in the loop `copy`.
    copy : str
        The outermost loop of the copy.
    tile : str
        The outermost of the loops, of known length, whose steps share the rows.
    steps : str
        The innermost of them, of bounded length; it is split.
    ahead : str
        A loop around all, whose variable is part of the load's subscript.
    around : str
        A loop around `ahead` that moves on when `ahead` begins anew; none if empty.

    Raises
    ------
    ScheduleError
        If there is no such load, the loops do not nest like this, there are fewer steps than rows,
        or rows have too many lines.
    """
    names = ", ".join((memory, copy, tile, steps, ahead, around)).rstrip(", ")
    what = f"prefetch_rows({names})"
    rows = deal(kernel, what, memory, copy, tile, steps, ahead)
    places = next_panel(rows.kernel, what, rows.loops, rows.outer, around)
    for n, v in enumerate(rows.along):
        rest = prod(rows.known[w] for w in rows.along[n + 1:])
        here = rows.row // rest if rest > 1 else rows.row
        places[v] = here if n == 0 else here % rows.known[v]
    edit, load, head = Edit(rows.kernel), rows.load, rows.head
    hints = []
    for line in rows.lines:
        hints.append(Prefetch(load.memory, tuple(ex.substitute(load.index, places | line))))
        edit.locate(load, hints[-1])
    return edit.replace(head.parents, head.stmt,
                        (head.stmt.with_bodies((*hints, *head.body)),))


class Rows(Record):
    """The rows of a panel, dealt out to runs of the steps that use another panel.

    `row` is the one whose turn it is in an iteration of the loop `head` over runs, `along` are the
    loops of the copy whose iterations are rows, `lines` the places of a row's lines in the others;
    `known` is the most that each loop runs. `loops` are those around `head`, and `first` of them is
    the outermost that shares the rows; `outer` is the variable that chooses the panel.
    """

    kernel: Kernel
    head: Site
    loops: list[For]
    first: int
    outer: Expr
    load: Load
    along: list[Expr]
    known: dict[Expr, int]
    lines: list[dict[Expr, Expr]]
    row: Expr


def deal(kernel: Kernel, what: str, memory: str, copy: str, tile: str, steps: str,
         ahead: str) -> Rows:  # fmt: skip
    """Split `steps` into runs, as many as there are rows of a panel for a tile; see `Rows`.

    Raises
    ------
    ScheduleError
        If there is no such load, the loops do not nest like this, there are fewer steps than rows,
        or rows have too many lines.
    """
    site = find_for(kernel, steps, what)
    space, outer, load, moves = _copied(kernel, what, memory, copy, site, ahead)
    loops = [p for p in site.parents if isinstance(p, For)]
    at = next((n for n, p in enumerate(loops) if p.var.attr == tile), None)
    if at is None or not any(p.var is outer for p in loops[:at]):
        raise ScheduleError(what, found=f"{tile} not between {ahead} and {steps}",
                            expected="a loop inside the one and around the other")
    known = {v: space.ranges.of(space.extents[v]).hi for v in moves}
    shared = loops[at:at + 1] if copy == steps else loops[at:]
    turns = prod(space.ranges.of(p.extent).hi for p in shared)
    length = space.ranges.of(site.extent).hi
    size = load.memory.dtype.itemsize
    along = [site.var]
    if copy != steps:  # as few loops as leave a handful of lines in a row
        order = sorted(moves, key=lambda v: (-moves[v], str(v.attr)))
        least = (n for n in range(1, len(order)) if prod(
            len(_starts(moves, known, v, size)) for v in order[n:]) <= MOST_LINES)
        along = order[:next(least, max(len(order) - 1, 1))]
    rows = prod(known.get(v, 0) for v in along)
    if not 1 <= rows <= turns * length or rows > MAX_EXTENT:
        raise ScheduleError(what, found=f"{rows} rows for {turns * length} steps",
                            expected="at least a step for each row")
    lines = _lines(what, moves, known, along, size)
    share = -(-rows // turns)
    most = length // share
    run = next((f for f in range(most, most // 2, -1) if length % f == 0), most)
    runs = -(-length // run)
    kernel = split(kernel, steps, run, "trim")
    head = find_for(kernel, f"{steps}.o", what)
    row: Expr = ex.index(0)
    for p in shared:
        row = row * space.ranges.of(p.extent).hi + p.var
    row = row * runs + head.var
    if turns * runs > rows:
        row = ex.minimum(row, ex.index(rows - 1))
    return Rows(kernel, head, loops, at, outer, load, along, known, lines, row)


def _lines(what: str, moves: dict[Expr, int], known: dict[Expr, int], along: list[Expr],
           size: int) -> list[dict[Expr, Expr]]:
    """Return the places of the lines of a row along the loops that do not choose the row."""
    columns = [v for v in moves if v not in along]
    lines = [dict(zip(columns, at, strict=True))
             for at in product(*[_starts(moves, known, v, size) for v in columns])]
    if any(moves[v] * size % LINE_BYTES for v in along):  # rows begin in a line, end in one more
        lines.append({v: known[v] - 1 for v in columns})
    if len(lines) > MOST_LINES:
        raise ScheduleError(what, found=f"{len(lines)} lines in a row",
                            expected=f"at most {MOST_LINES}")
    return [{v: ex.index(c) for v, c in line.items()} for line in lines]


def _starts(moves: dict[Expr, int], known: dict[Expr, int], v: Expr, size: int) -> range:
    """Return the iterations of a loop that begin a line."""
    return range(0, known[v], max(LINE_BYTES // (moves[v] * size), 1))


def next_panel(kernel: Kernel, what: str, loops: list[For], outer: Expr,
               around: str) -> dict[Expr, Expr]:
    """Return the next iteration of a loop, and of the one around it where that begins anew."""
    if not around:
        return {outer: outer + 1}
    wider = find_for(kernel, around, what).loop
    begun = next(p for p in loops if p.var is outer).extent
    return {outer: (outer + 1) % begun, wider.var: wider.var + (outer + 1) // begun}


def _copied(kernel: Kernel, what: str, memory: str, copy: str, site: Site, ahead: str,
            ) -> tuple[sub.Space, Expr, Load, dict[Expr, int]]:
    """Return the load of a copy, the loop to look ahead in, and how far each loop moves it."""
    space, outer, loads, moves = copied_loads(kernel, what, memory, copy, site, ahead)
    if len(loads) != 1:
        raise ScheduleError(what, found=f"{len(loads)} loads of {memory} that {ahead} moves",
                            expected="one")
    return space, outer, loads[0], moves


def copied_loads(kernel: Kernel, what: str, memory: str, copy: str, site: Site, ahead: str,
                 ) -> tuple[sub.Space, Expr, list[Load], dict[Expr, int]]:
    """Return the loads of a copy, the loop to look ahead in, and how far each loop moves them.

    Raises
    ------
    ScheduleError
        If there are none, or loops move them differently or not linearly.
    """
    source, outer = find_memory(kernel, memory, what), find_for(kernel, ahead, what)
    first = find_for(kernel, copy, what)
    if not all(any(p is outer.stmt for p in s.parents) for s in (first, site)):
        raise ScheduleError(what, found=f"{copy} and {site.loop.var.attr} not inside {ahead}",
                            expected="a loop around both")
    loads = [s for s in walk(first.body) if isinstance(s, Load) and s.memory is source]
    if not loads or any(outer.var not in ex.free_vars(s.index) for s in loads):
        raise ScheduleError(what, found=f"{len(loads)} loads of {memory} that {ahead} moves",
                            expected="one")
    space = sub.Space(kernel)
    inside = {first.var} | {s.var for s in walk(first.body) if isinstance(s, For)}
    flat = [space.flat(source, s.index) for s in loads]
    moves: dict[Expr, int] = {}
    for var in inside & ex.free_vars(loads[0].index):
        step = space.stride(flat[0], var)
        if not step or any(space.stride(f, var) != step for f in flat):
            raise ScheduleError(what, found=f"a subscript not linear in {var.attr}",
                                expected="sums of loop variables times constants")
        moves[var] = abs(step)
    return space, outer.var, loads, moves


__all__ = ["prefetch", "prefetch_panel", "prefetch_places", "prefetch_rows"]
