"""The primitive that asks for memory before it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    SERIAL,
    UNROLLED,
    Body,
    For,
    If,
    Kernel,
    Load,
    Memory,
    Prefetch,
    Reduce,
    Stmt,
    Store,
)
from weft.ir.traverse import walk
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.space import Edit, Site, constant, find_for, find_loop
from weft.schedule.data.memory import MAX_EXTENT
from weft.schedule.data.requests import LINE_BYTES, Request, deal, each_line

PAGE_BYTES: Final = 4096  # where a core's own look-ahead ends
MOST_ASKED: Final = 32  # lines that one iteration asks for


def prefetch(kernel: Kernel, memory: str, loop: str, ahead: str, distance: int = 1,
             granularity: str = "access", count: int = 0, read: str = "", first: str = "",
             around: str = "") -> Kernel:  # fmt: skip
    """Ask for what a later iteration of an outer loop touches ("prefetch" in TVM, Halide).

    for i: { for j: a[i, j] ...; for k: { x = a[i, k]; ... } }        (loop = k, ahead = i)
    ->  for i: { for j: a[i, j] ...; for k: { prefetch a[i + 1, k]; x = a[i, k]; ... } }

    It changes speed only. The addresses beyond the last iteration are asked for in vain; no
    machine faults on them. The granularity says what an iteration of `loop` asks for:

    * ``access``: what its own access touches `distance` iterations of `ahead` later; a store to two
      lines waits for both.
    * ``pages``: lines of the next block of `distance` iterations, from `count` places side by side,
      a power of two. A core has more lines under way from several pages than its own look-ahead
      fetches from one. If `ahead` is not `loop` itself, a block is one of its iterations, ``for p
      in 4: prefetch a[i + 1, p * 1024 + o * 16]``, or, of short rows, as many as there are places:
      ``a[i // 4 * 4 + 4 + p, ...]``. Where iterations do not share out evenly, a few lines are left
      to that look-ahead.
    * ``panel``: a share of what `read`, the loops of a copy, reads in the next iteration: ``for r.f
      in rows/n: for c.f in 4: prefetch a[i + 1, j.., c.f * 16]``. Short rows that lie apart are no
      pattern that a processor fetches ahead by itself.
    * ``row``: a row of it, before each of the runs of steps that `loop` is split into. A core has
      few requests under way at once, and loads of a tile would wait behind them. Steps that read
      the operand as it lies are `read` themselves.
    * ``lines``: as many of its lines as make up all of them, in a loop: for steps that take as long
      as a few requests, like products of matrices. Of a loop between that is written out only the
      first iteration asks.
    * ``rows``: some of the rows that `read` goes through, written out: all lines of each, or
      `count` of each of its pages. Runs of steps stay whole, where splitting costs more than the
      requests do.

    Parameters
    ----------
    memory : str
        Read in `loop`, or in the loop `read`; for ``access`` and ``rows`` it may be written.
    loop : str
        Where requests stand; the work there hides the latency. A reduce axis only for ``access``.
    ahead : str
        A loop around it, whose variable is part of the subscript.
    distance : int
        Iterations of `ahead`, at least 1; with 0, ``rows`` asks for what is touched in the present.
    granularity, count : str, int
        See above.
    read : str
        The outermost loop of the copy, or the one that moves from row to row; `loop` if empty.
    first : str
        The outermost of the loops whose iterations share the requests, `loop` if empty.
    around : str
        A loop around `ahead` that moves on when `ahead` begins anew; none if empty.

    Raises
    ------
    ScheduleError
        If there is no such access, or `ahead` does not move it, the loops do not nest like this, or
        an iteration would ask for less than a line or for too many.
    """
    what = f"prefetch({memory}, {loop}, {ahead}, {distance}, {granularity})"
    made = GRANULARITIES.get(granularity)
    if made is None or distance < (granularity != "rows"):
        raise ScheduleError(what, found=f"{granularity} at distance {distance}",
                            expected="a distance of at least 1, and one of "
                                     + ", ".join(GRANULARITIES))
    request = Request(kernel, what, memory, loop, ahead, distance, read, first, around)
    return made(request, count)


def _hint(edit: Edit, access: Load | Store, places: dict[Expr, Expr]) -> Prefetch:
    hint = Prefetch(access.memory, tuple(ex.substitute(access.index, places)))
    edit.locate(access, hint)
    return hint


def _asking(edit: Edit, site: Site, asked: Iterable[Stmt], before: Stmt | None = None) -> Kernel:
    """Return the kernel with requests at the beginning of a loop, or before a statement of it."""
    at = next((n for n, s in enumerate(site.body) if s is before), 0)
    stmt = site.stmt
    assert isinstance(stmt, For | Reduce)
    new = (*site.body[:at], *asked, *site.body[at:])
    return edit.replace(site.parents, stmt, (stmt.with_bodies(new),))


def _access(r: Request, count: int) -> Kernel:
    outer = find_loop(r.kernel, r.ahead, r.what)
    if not any(p is outer.stmt for p in r.site.parents):
        raise r.wrong(f"{r.ahead} at distance {r.distance}", f"a loop around {r.loop}")
    found = next((s for s in r.site.body
                  if isinstance(s, Load | Store) and s.memory is r.source), None)
    if found is None or outer.var not in ex.free_vars(found.index):
        raise r.wrong(f"no access to {r.source.name} in {r.loop} that {r.ahead} moves",
                      "an access at a place that varies with the outer loop")
    edit = Edit(r.kernel)
    hint = _hint(edit, found, {outer.var: outer.var + r.distance})
    return _asking(edit, r.site, (hint,), found)


def _pages(r: Request, places: int) -> Kernel:
    site, outer = (find_for(r.kernel, name, r.what) for name in (r.loop, r.ahead))
    block, space = r.distance, r.space
    load, lane, step = _row_of(space, site, r.source)
    width = LINE_BYTES // r.source.dtype.itemsize
    each = step // width  # lines of an iteration
    if load is None or each < 1:
        raise r.wrong(f"no such load of {r.source.name} in {r.loop}",
                      "whole lines one after the other")
    inside = outer.stmt is site.stmt
    around = any(p is outer.stmt for p in site.parents) and outer.var in ex.free_vars(load.index)
    if places < 1 or places & (places - 1) or not (
            inside or (around and block in (1, places))):
        raise r.wrong(f"{r.ahead} in blocks of {block}, {places} places",
                      f"a loop around {r.loop} that moves the load, or {r.loop}")
    var, turn = site.loop.var, site.loop.var
    count = block if inside else r.most(site.loop.extent) * block
    following = (outer.var // block + 1) * block
    if inside:
        turn = var % block
    elif block > 1:
        turn = outer.var % block * (count // block) + var
    apart = -(-count * each // places)  # lines
    edit, hints = Edit(r.kernel), []
    for place, line in _side_by_side(turn, each, places):
        if block > 1 and not inside:
            moved, begin = {outer.var: following + place}, line * width
        else:
            begin = (place * apart + line) * width
            moved = {} if inside else {outer.var: following}
        start = following * step if inside else ex.index(0)
        hints.append(_hint(edit, load, moved | {var: ex.index(0), lane: start + begin}))
    return _asking(edit, site, hints)


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


def _panel(r: Request, count: int) -> Kernel:
    outer, load, moves = r.load()
    turn, count = r.turn([r.site.loop])
    if not moves or not 1 <= count <= MAX_EXTENT:
        raise r.wrong(f"{r.loop} in {r.site.extent!r}",
                      "a constant extent, and loops of a copy that move")
    edit = Edit(r.kernel)
    far = max(moves, key=lambda v: (moves[v], str(v.attr)))
    places = r.later(outer, [p for p in r.site.parents if isinstance(p, For)])
    loops: list[tuple[Expr, int]] = []
    for var in sorted(moves, key=lambda v: (-moves[v], str(v.attr))):
        n = r.most(r.space.extents[var])
        every = each_line(moves[var], r.source)
        times = -(-n // every)
        share = -(-times // count) if var is far else times
        point = edit.names.index(f"{var.attr}.f")
        loops.append((point, share))
        places[var] = ex.minimum((turn * share + point if var is far else point) * every,
                                 ex.index(n - 1))
    nest: Body = (_hint(edit, load, places),)
    for point, n in reversed(loops):
        nest = (For(point, ex.index(n), SERIAL, nest),)
    return _asking(edit, r.site, nest)


def _row(r: Request, count: int) -> Kernel:
    rows = deal(r)
    places = r.later(rows.outer, rows.loops)
    for n, v in enumerate(rows.along):
        rest = prod(rows.known[w] for w in rows.along[n + 1:])
        here = rows.row // rest if rest > 1 else rows.row
        places[v] = here if n == 0 else here % rows.known[v]
    edit = Edit(rows.kernel)
    return _asking(edit, rows.head, [_hint(edit, rows.load, places | line) for line in rows.lines])


def _lines(r: Request, count: int) -> Kernel:
    outer, loads, moves = r.loads()
    loops = [p for p in (*r.site.parents, r.site.loop) if isinstance(p, For)]
    shared = r.shared(loops)
    near = min(moves.values())
    if near >= len(loads):
        loads = loads[:1]  # the others read between its elements
    known = {v: r.most(r.space.extents[v]) for v in moves}
    order = sorted(moves, key=lambda v: (moves[v], str(v.attr)))
    run = near  # elements side by side
    along: list[Expr] = []
    while len(along) < len(order) and moves[order[len(along)]] == run:
        along.append(order[len(along)])
        run *= known[along[-1]]
    rows = order[len(along):]
    line = LINE_BYTES // r.source.dtype.itemsize
    lines = -(-run // line) + any(moves[v] % line for v in rows)
    turn, turns = r.turn(p for p in shared if p.kind != UNROLLED)
    total = lines * prod(known[v] for v in rows)
    share = -(-total // turns)
    if not 1 <= share * len(loads) <= MOST_ASKED:
        raise r.wrong(f"{total * len(loads)} lines for {turns} steps",
                      f"at most {MOST_ASKED} in each")
    edit = Edit(r.kernel)
    n = edit.names.index(f"{r.loop}.n")
    place = ex.minimum(turn * share + n, ex.index(total - 1))
    first = ex.minimum(place % lines * line, ex.index(run - near))
    index = r.later(outer, loops) | {v: first // moves[v] % known[v] for v in along}
    place = place // lines
    for v in rows:
        index[v] = place % known[v]
        place = place // known[v]
    # The requests of a step are written once: their addresses take more code than its products.
    asked: Body = (For(n, ex.index(share), SERIAL,
                       tuple([_hint(edit, load, index) for load in loads])),)
    for p in shared:
        if p.kind == UNROLLED:
            asked = (If(p.var.eq(0), asked),)
    return _asking(edit, r.site, asked)


def _rows(r: Request, lines: int) -> Kernel:
    row = find_for(r.kernel, r.read, r.what).loop
    source, space = r.source, r.space
    around = [p for p in (*r.site.parents, r.site.stmt) if isinstance(p, For)]
    names = [p.var.attr for p in around]
    if r.first not in names or (r.distance and r.ahead not in names[:names.index(r.first)]):
        raise r.wrong(f"{r.first} or {r.ahead} not around {r.loop}",
                      "loops around the loop of turns")
    shared = around[names.index(r.first):]
    access = next((s for s in walk(row.body) if isinstance(s, Load | Store)
                   and s.memory is source), None)
    step, column = _column(space, access, row, {p.var for p in around[:-1]})
    if access is None or column is None or not all(constant(p.extent) for p in shared):
        raise r.wrong(f"no rows of {source.name} in {r.read}, or loops that vary",
                      "an access with contiguous rows, loops of constant extents")
    width, length = LINE_BYTES // source.dtype.itemsize, constant(source.shape[-1]) or 0
    total = constant(row.extent) or 0
    page, parts = 0, 1
    if lines:  # of the whole row, page by page
        page = PAGE_BYTES // source.dtype.itemsize
        parts = max(length // page, 1)
    else:
        lines = -(-(constant(space.extents[column]) or 0) // width)
    turn, turns = r.turn(shared)
    share = -(-total * parts // turns)
    if not 0 < share * lines <= MOST_ASKED or step == 0:
        raise r.wrong(f"{share * lines} hints in a turn", f"1 to {MOST_ASKED}")
    places = {v: ex.index(0) for v in ex.free_vars(access.index)
              if v not in {p.var for p in around[:-1]} and v in space.extents}
    if r.distance:
        outer = around[names.index(r.ahead)].var
        places[outer] = outer + r.distance
    edit, hints = Edit(r.kernel), []
    for n in range(share):
        at = ex.minimum(turn * share + n, ex.index(total * parts - 1))
        places[row.var], begin = at // parts, at % parts * page
        hints += [_hint(edit, access, places | {column: begin + line * width})
                  for line in range(lines)]
    return _asking(edit, r.site, hints)


def _column(space: sub.Space, access: Load | Store | None, row: For,
            outside: set[Expr]) -> tuple[int, Expr | None]:
    """Return how far a row lies from the next one, and the loop along a row."""
    if access is None:
        return 0, None
    flat = space.flat(access.memory, access.index)
    inside = [v for v in ex.free_vars(access.index) if v in space.extents and v not in outside]
    along = [v for v in inside if v is not row.var and space.stride(flat, v) == 1]
    return abs(space.stride(flat, row.var) or 0), along[0] if along else None


GRANULARITIES: Final[dict[str, Callable[[Request, int], Kernel]]] = {
    "access": _access, "pages": _pages, "panel": _panel, "row": _row, "lines": _lines,
    "rows": _rows,
}  # fmt: skip

__all__ = ["prefetch"]
