"""Elementwise nests: every point on its own, so the question is what to walk along.

The loop with unit stride becomes the vector; where loads and stores disagree (a transpose), a tile
is copied through the first cache level. The outermost loop goes to the threads.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import For
from weft.ir.traverse import walk
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Access, Space
from weft.schedule.loops.loops import vector_obstacle
from weft.strategies.common.nest import (
    HEAVY_COST,
    MAX_LANES,
    Cost,
    Plan,
    chain_of,
    find,
    loop_of,
    parallelise,
    power_above,
    size_of,
    strides,
    work,
)
from weft.strategies.common.prefetches import fetch_blocks, fetch_vectors, fetch_written

TILE_ROWS: Final = 16  # most of a tile that is transposed in registers; no more than its columns
TILE_LANES: Final = 32  # columns
TILE_LEAST: Final = 4  # of both
FEW_LANES: Final = 8  # of a vector: tiles write two side by side of what is beyond the caches, if
LEAST_PAIRS: Final = 16  # ... rows are so many vectors long
LONGEST_TILED: Final = 120  # weighted operations of a body of which a tile has a copy a row
BEYOND_L2: Final = 4  # second caches: larger outputs of tiles are written past the caches
SIDE_BY_SIDE: Final = 8  # points of an innermost loop that are written out
LEAST_DENSE: Final = 8  # vectors of a row that is picked from columns side by side
FILL_WEIGHT: Final = 4  # of a store that fills: who shares the rest had better own its lines
FOUND_WEIGHT: Final = 6  # of what looks elements up one by one, beside work in vectors
LEAST_FOUND: Final = 2  # elements of a row that is looked up, from where it is read as a vector
QUOTIENTS: Final = frozenset({Op.DIV, Op.SQRT, Op.RSQRT, Op.RECIPROCAL})
FEW_STEPS: Final = 8  # of a vector, of which a masked one is a large part
SHORT_BODY: Final = 24  # weighted operations up to which several vectors are in flight
MANY_REGISTERS: Final = 32  # of vectors


def schedule_nest(plan: Plan, root: str, shared: bool = True) -> None:
    """Schedule one nest of perfectly nested loops, named by its outermost one.

    Threads share out a loop of it, if it is worth that, or none of them if it is not `shared`.
    """
    loop = find(plan.kernel, root)
    assert loop is not None
    chain = chain_of(loop)
    body = chain[-1].body
    amount = work((loop,)) if shared else 0
    if all(isinstance(s, st.Store) and ex.is_const(s.value) for s in body):
        amount *= FILL_WEIGHT
    if vector_obstacle(body) is not None or any(isinstance(s, st.Reduce) for s in walk(body)):
        parallelise(plan, [c.var.attr for c in chain], amount)
        return
    space = Space(plan.kernel)
    table = {c.var: strides(space, body, c.var) for c in chain}
    scores = {c.var: _score(table[c.var]) for c in chain if size_of(c.extent) > 1}
    if not scores:
        return
    best = max(reversed(scores), key=scores.__getitem__)
    if scores[best] <= 0:
        parallelise(plan, [c.var.attr for c in chain], amount)
        return
    across = None if work(body) > LONGEST_TILED else _transposed(chain, table, best)
    if across is not None and (_dense(plan, chain, table, best, across[0], amount)
                               or _tile(plan, chain, best, *across, amount)):
        return
    if _side_by_side(plan, chain, table, amount):
        return
    names = [c.var.attr for c in chain]
    if names[-1] != best.attr:
        order = [name for name in names if name != best.attr] + [best.attr]
        if plan.attempt("reorder", *order):
            names = order
            plan.why.append(f"{best.attr} has unit stride: innermost")
        elif scores.get(chain[-1].var, 0) > 0:
            best = chain[-1].var
        else:
            parallelise(plan, names, amount)
            return
    extent = next(c.extent for c in chain if c.var is best)
    varying = _varying(body, best)
    cost = Cost(varying)
    if _looks_up(varying) and cost.ops <= SHORT_BODY and not cost.heavy:
        plan.why.append(f"{best.attr} looks elements up one by one")
        parallelise(plan, names, FOUND_WEIGHT * amount)
        return
    streamed = _will_stream(plan)
    most = MAX_LANES if streamed else _most_lanes(plan, varying, best, cost)
    outer = split_for_vectors(plan, best.attr, extent, cost, peel=streamed, most=most)
    names = [*names[:-1], outer if outer is not None else best.attr]
    parallelise(plan, names, amount)
    if streamed and outer is not None:
        fetch_blocks(plan, names[:-1], outer)
    elif outer is not None:
        fetch_vectors(plan, outer)
    if len(names) > 1:
        fetch_written(plan, names[-2])


def _varying(body: st.Body, var: Expr) -> st.Body:
    """Return the statements that differ along a loop: an index read once for a row does not."""
    known = {var}
    kept = []
    for stmt in body:
        if not known.isdisjoint(ex.free_vars(stmt.exprs())):
            known.update(stmt.binds())
            kept.append(stmt)
    return tuple(kept)


def _looks_up(body: st.Body) -> bool:
    """Whether an element is read at a place that was read itself.

    A gather instruction takes longer than as many loads, unless much is done with the elements.
    """
    read: set[Expr] = set()
    for stmt in body:
        if isinstance(stmt, st.Load) and not read.isdisjoint(ex.free_vars(stmt.index)):
            return True
        if isinstance(stmt, st.Load) or (isinstance(stmt, st.Let) and not read.isdisjoint(
                ex.free_vars((stmt.value,)))):
            read.update(stmt.binds())
    return False


def _side_by_side(plan: Plan, chain: list[For],
                  table: dict[Expr, list[tuple[Access, int | None]]], amount: int) -> bool:
    """Write out a short innermost loop whose points differ in what they compute.

    The loop around it becomes the vector: the stores of all copies together fill whole vectors
    (see `weft.passes.vector.strided`), and what the copies share is computed once.
    """
    last = chain[-1]
    count = constant(last.extent)
    if len(chain) < 2 or count is None or not 2 <= count <= SIDE_BY_SIDE:
        return False
    if count >= LEAST_FOUND and _looks_up(last.body):
        return False  # the row that was found is a vector: lanes along rows would gather it
    around = chain[-2]
    if size_of(around.extent) < plan.target.vector_bytes // 4:
        return False
    loads = [(a, s) for a, s in table[around.var] if not a.write]
    stores = [s for a, s in table[around.var] if a.write]
    if any(s != count for s in stores) or any(s not in (0, 1, count) for _, s in loads):
        return False
    cost = Cost(last.body)
    plan.schedule.unroll(last.var.attr)
    streamed = _will_stream(plan)
    most = max(plan.target.vector_bytes // cost.itemsize, 1)
    outer = split_for_vectors(plan, around.var.attr, around.extent, cost, streamed, most)
    names = [c.var.attr for c in chain[:-2]]
    parallelise(plan, [*names, outer if outer is not None else around.var.attr], amount)
    plan.why.append(f"{last.var.attr} is written out")
    return True


def _will_stream(plan: Plan, most: int = 0) -> bool:
    before = len(plan.schedule.trace)
    plan.stream_outputs(most)
    return len(plan.schedule.trace) > before


def _score(found: list[tuple[Access, int | None]]) -> float:
    """Return how well a loop suits as the vector: unit strides for it, strided ones against it."""
    total = 0.0
    for access, stride in found:
        if access.write:
            total += {1: 4.0, -1: 3.5, 0: -4.0, None: -3.0}.get(stride, -4.0)
        else:
            total += {1: 2.0, -1: 1.5, 0: 0.5, None: -1.0}.get(stride, -2.0)
    return total


def _transposed(chain: list[For], table: dict[Expr, list[tuple[Access, int | None]]],
                best: Expr) -> tuple[Expr, list[Access]] | None:
    """Return a loop along which some loads run while they stride over `best`, and those loads."""
    for other in chain:
        if other.var is best:
            continue
        along = {id(a.stmt) for a, s in table[other.var] if s == 1 and not a.write}
        over = [a for a, s in table[best] if not a.write and s not in (0, 1, -1, None)
                and id(a.stmt) in along]
        if over and len({a.memory for a in over}) <= 2:
            return other.var, over
    return None


def _dense(plan: Plan, chain: list[For], table: dict[Expr, list[tuple[Access, int | None]]],
           inner: Expr, outer: Expr, amount: int) -> bool:
    """Take a few columns apart that lie side by side, all of them from each vector that is read.

    for a: for b: y[a, b] = x[b, a]  ->  for b.o: for a (unrolled): for b.i: y[a, b] = x[b, a]

    Tiles would cover so few columns twice, or leave some of them over.
    """
    count = size_of(next(c.extent for c in chain if c.var is outer))
    loads = [step for access, step in table[inner] if not access.write]
    if not 2 <= count <= SIDE_BY_SIDE or any(step != count for step in loads):
        return False
    names = [c.var.attr for c in chain if c.var not in (inner, outer)]
    extent = next(c.extent for c in chain if c.var is inner)
    cost, saved = Cost(chain[-1].body), plan.schedule.mark()
    most = max(plan.target.vector_bytes // cost.itemsize, 1)
    if size_of(extent) < LEAST_DENSE * most:
        return False
    try:
        plan.schedule.reorder(*names, inner.attr, outer.attr).unroll(outer.attr)
    except ScheduleError:
        plan.schedule.reset(saved)
        return False
    streamed = _will_stream(plan)
    split = split_for_vectors(plan, inner.attr, extent, cost, streamed, most)
    if split is None:
        plan.schedule.reset(saved)
        return False
    parallelise(plan, [*names, split], amount)
    plan.why.append(f"all {count} of {outer.attr} from each vector that is read")
    return True


def _tile(plan: Plan, chain: list[For], inner: Expr, outer: Expr, loads: list[Access],
          amount: int) -> bool:
    """Transpose tiles in registers: vectors along one loop, copies of them along the other.

    The strided loads of neighbouring copies then become whole rows (see
    `weft.passes.vector.strided`). Lines that come from afar in pairs are written in pairs where
    vectors have few lanes.
    """
    names = [c.var.attr for c in chain]
    sizes = {c.var: size_of(c.extent) for c in chain}
    space = Space(plan.kernel)
    saved = plan.schedule.mark()
    far = [x.memory.name for x in loads
           if space.stride(space.flat(x.memory, x.index), inner) is None]
    streamed = _stream_tiles(plan, space, chain, inner, bool(far))
    full = native = plan.target.vector_bytes // max(x.memory.dtype.itemsize for x in loads)
    far_away = sum(size_of(m.size) * m.dtype.itemsize for m in plan.kernel.params)
    pairs = (not streamed and full <= FEW_LANES and far_away > 2 * plan.target.l2_bytes > 0
             and sizes[inner] >= LEAST_PAIRS * full)
    if pairs:
        native *= 2
    elif not streamed and native < TILE_LANES and _between_lines(plan, space, chain[-1].body,
                                                                 (inner, outer)):
        native //= 2
    columns = plan.pick("tile columns", max(min(native, TILE_LANES), 4), (4, 8, 16, 32))
    again = sizes[inner] * plan.target.line_bytes > plan.target.l1_bytes  # lines are read again
    rows = full if pairs else min(TILE_ROWS, max(full, columns) if again else columns)
    rows = plan.pick("tile rows", rows, (4, 8, 16))
    while rows > TILE_LEAST and rows > sizes[outer]:
        rows //= 2
    while columns > TILE_LEAST and columns > sizes[inner]:
        columns //= 2
    if sizes[inner] < columns or sizes[outer] < rows:
        plan.schedule.reset(saved)
        return False
    a, b = outer.attr, inner.attr
    rest = [name for name in names if name not in (a, b)]
    fixed = all(constant(c.extent) is not None for c in chain if c.var in (outer, inner))
    order, lane = [f"{a}.o", f"{b}.o"], f"{b}.i"
    try:
        schedule = plan.schedule
        if names != [*rest, a, b]:
            schedule.reorder(*rest, a, b)
        if not fixed:
            _whole_tiles(plan, a, b, rows, columns)
        elif streamed and not far:
            lane = _along_rows(plan, a, b, rows, columns)
            order.reverse()
        else:
            schedule.tile(a, b, rows, columns, "overlap")
        parallelise(plan, [*rest, *order], amount)
        for memory in dict.fromkeys(far):
            _copy_tiles(plan, a, b, memory)
        schedule.unroll(f"{a}.i").vectorize(lane)
    except ScheduleError:
        plan.schedule.reset(saved)
        return False
    plan.why.append(f"{a} and {b} are transposed: tiles of {rows}×{columns} in registers")
    return True


def _stream_tiles(plan: Plan, space: Space, chain: list[For], inner: Expr, far: bool) -> bool:
    """Write tiles past the caches where every row begins with a line, or in its middle.

    Rows that begin anywhere hardly ever have a whole line to write: they go through the caches.
    Tiles write a line here and a line there, each of which would be read first: where a vector is
    a line, it pays as soon as outputs are well beyond the second cache.
    """
    target, body = plan.target, chain[-1].body
    writes = [(a, step) for c in chain if c.var is not inner
              for a, step in strides(space, body, c.var) if a.write]
    if any(step is None or step * a.memory.dtype.itemsize % (target.line_bytes // 2)
           for a, step in writes):
        return False
    least = min(a.memory.dtype.itemsize for a, _ in writes)
    lines = min(target.vector_bytes, TILE_LANES * least) >= target.line_bytes
    beyond = BEYOND_L2 * target.l2_bytes
    return _will_stream(plan, beyond if lines and not far and 0 < beyond < plan.costs.stream_bytes
                        else 0)


def _between_lines(plan: Plan, space: Space, body: st.Body, loops: tuple[Expr, Expr]) -> bool:
    """Whether rows of a tile begin anywhere in a line of the cache.

    Of vectors as long as a line nearly all then touch two, of vectors half as long every second.
    """
    apart = [step * a.memory.dtype.itemsize for loop in loops
             for a, step in strides(space, body, loop) if step is not None and step > 1]
    return any(distance % plan.target.line_bytes for distance in apart)


def _along_rows(plan: Plan, a: str, b: str, rows: int, columns: int) -> str:
    """Cut tiles that walk along what is read, in pairs that write two lines; return their lanes.

    for a: for b: s  ->  for b.o: for a.o: for b.m in 2: for a.i: for b.i: s

    Lines written past the caches may come in any order, and a pair of them is what memory takes
    best. What is read comes through the caches, in which all of it would stand in few sets if tiles
    walked across its rows.
    """
    schedule = plan.schedule
    size = size_of(loop_of(plan, b).extent)
    pair = 2 if size >= 2 * columns else 1
    schedule.split(b, pair * columns, "overlap").split(a, rows, "overlap")
    schedule.split(f"{b}.i", columns)
    schedule.reorder(f"{b}.o", f"{a}.o", f"{b}.i.o", f"{a}.i", f"{b}.i.i")
    return f"{b}.i.i"


def _whole_tiles(plan: Plan, a: str, b: str, rows: int, columns: int) -> None:
    """Cut whole tiles from symbolic sizes; what is left at the edges runs in vectors of its own.

    for a: for b: s  ->  for a.o { for b.o: for a.i: for b.i: s; for b.t: for a.i: s }
                         for a.t: for b: s
    """
    schedule = plan.schedule
    loops = {name: find(plan.kernel, name) for name in (a, b)}
    fixed = {name: loop is not None and constant(loop.extent) is not None
             for name, loop in loops.items()}
    schedule.split(a, rows, "overlap" if fixed[a] else "peel")
    edge = find(plan.kernel, f"{a}.t")
    if edge is not None:
        (inside,) = [s.var.attr for s in walk(edge.body) if isinstance(s, For)]
        schedule.split(inside, columns, "mask").vectorize(f"{inside}.i")
    schedule.reorder(b, f"{a}.i")
    schedule.split(b, columns, "overlap" if fixed[b] else "peel")
    if not fixed[b]:
        edge = next(s for s in walk(plan.kernel.body) if isinstance(s, For)
                    and s.var.attr.startswith(f"{b}.t") and any(
                        isinstance(x, For) and x.var.attr.startswith(f"{a}.i") for x in s.body))
        (inside,) = [s.var.attr for s in walk(edge.body) if isinstance(s, For)]
        schedule.vectorize(inside)
    schedule.reorder(f"{a}.i", f"{b}.i")


def _copy_tiles(plan: Plan, a: str, b: str, memory: str) -> None:
    """Copy tiles row by row where rows lie a symbolic distance apart: registers turn the copy."""
    before = {v.attr for s in walk(plan.kernel.body) for v in s.binds()}
    plan.schedule.stage(memory, f"{b}.o", (f"{b}.i", f"{a}.i"))
    made = [s.var.attr for s in walk(plan.kernel.body)
            if isinstance(s, For) and s.var.attr not in before]
    plan.schedule.unroll(made[0]).vectorize(made[1])


def _most_lanes(plan: Plan, varying: st.Body, var: Expr, cost: Cost) -> int:
    """Return the most lanes of a vector: half a register if most of the time goes into quotients.

    Dividers are half as wide as units that take vectors whole, which wait for the second half.
    """
    divides = _quotients(varying, var) * plan.costs.quotient_cycles >= cost.ops > 0
    if divides and plan.target.whole_vectors:
        return max(plan.target.vector_bytes // (2 * cost.itemsize), 1)
    return MAX_LANES


def _quotients(varying: st.Body, var: Expr) -> int:
    """Return how many divisions and square roots of floats differ along a loop."""
    moving = {var, *(v for s in varying for v in s.binds())}
    count = 0
    for e in ex.toposort([e for s in varying for e in s.exprs()]):
        if not moving.isdisjoint(e.args):
            moving.add(e)
            count += e.op in QUOTIENTS and e.dtype.is_float
    return count


def vector_lanes(plan: Plan, extent: int, cost: Cost, most: int = MAX_LANES,
                 turns: bool = False, steps: int = FEW_STEPS) -> int:
    """Return how many elements one vector statement takes: several registers if it is short.

    `most` limits them, for bodies with private memory of which every lane has its own. With
    `turns`, vectors of a long body take turns, too: not in sums, which wait for the next row.
    What is no multiple of the lanes takes fewer of them rather than less than `steps` of all.
    """
    native = max(plan.target.vector_bytes // cost.itemsize, 1)
    native = min(native, most)
    if extent < native:
        return power_above(extent)
    lanes = min(native * _in_flight(plan, cost, turns), most)
    while lanes > native and (extent < 2 * lanes or (extent % lanes and extent < steps * lanes)):
        lanes //= 2
    return lanes


def _in_flight(plan: Plan, cost: Cost, turns: bool) -> int:
    """Return how many vectors of a body are worked on at a time.

    A transcendental is a chain of operations that wait for each other, so that several take turns:
    where there are registers for it.
    """
    if turns and cost.heavy == 1 and plan.target.vector_registers >= MANY_REGISTERS:
        return 4 if cost.ops - HEAVY_COST <= SHORT_BODY else 2
    if cost.heavy:
        return 1
    return 4 if cost.ops <= SHORT_BODY else 2


def pick_lanes(plan: Plan, name: str, default: int, extent: int, cost: Cost,
               most: int = MAX_LANES) -> int:
    """Return the lanes of a vector statement as decided: half a register to four of them."""
    native = max(plan.target.vector_bytes // cost.itemsize, 2)
    most = min(most, power_above(extent))
    options = [n for n in (native // 2, native, 2 * native, 4 * native) if 2 <= n <= most]
    return plan.pick("lanes", default, options, name) if default > 1 else default


def split_for_vectors(plan: Plan, name: str, extent: Expr, cost: Cost, peel: bool = False,
                      most: int = MAX_LANES) -> str | None:
    """Make the vectors of a loop; return the name of the loop over them, None if left scalar.

    Where the lanes do not divide the extent, the last vector overlaps the one before if that is
    legal, else it is masked: in a loop of its own if the main loop is long.
    """
    n = constant(extent)
    size = size_of(extent)
    lanes = vector_lanes(plan, size, cost, most, turns=True)
    lanes = pick_lanes(plan, name, lanes, size, cost, most)
    if lanes < 2:
        return None
    schedule = plan.schedule
    saved = schedule.mark()
    try:
        if n is not None and n % lanes == 0:
            schedule.split(name, lanes)
        elif n is not None and n >= lanes and not peel and plan.attempt(
                "split", name, lanes, "overlap"):
            pass
        elif n is None or n >= 4 * lanes:
            schedule.split(name, lanes, "peel")
            native = max(plan.target.vector_bytes // cost.itemsize, 1)
            schedule.split(f"{name}.t", min(native, lanes), "mask").vectorize(f"{name}.t.i")
        else:
            schedule.split(name, lanes, "mask")
        schedule.vectorize(f"{name}.i")
    except ScheduleError:
        schedule.reset(saved)
        return None
    plan.why.append(f"{name} in vectors of {lanes}")
    return f"{name}.o"
