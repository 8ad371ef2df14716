"""The outer form of a contraction: a tile of rows x vectors of results in registers."""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import For, Load
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Access, Space, accesses
from weft.strategies.common.accumulation_error import (
    chain_levels,
    chain_steps,
    cut_sums,
    register_tile,
)
from weft.strategies.common.contraction_pattern import (
    LINE_POINTS,
    Parameters,
    Pattern,
    copy_loops,
    copy_strided,
    cost_of_moves,
    epilogue_cost,
    is_wished,
    native_lanes,
    order_loops,
    tile_rows,
    tile_split,
    time_of_moves,
    work_of,
)
from weft.strategies.common.contraction_prefetches import prefetch_operands
from weft.strategies.common.convolution_pattern import find_windows, sum_chains
from weft.strategies.common.nest import (
    Cost,
    Plan,
    find,
    flat_stride,
    loop_of,
    power_above,
    product,
    registers,
    shares_evenly,
    size_of,
)
from weft.strategies.common.tile_sizes import (
    BROAD,
    FEW_STEPS,
    FEW_STEPS_FAR,
    in_halves,
    is_filled_up,
    lies_near,
    row_vectors,
    rows_once,
    scattered,
    share_rows,
    sharing_rows,
    should_share_rows,
    span,
    step_of,
    tall_rows,
    tile_height,
)
from weft.strategies.gemm.register_tile_packed import pack_operands_first, wide_tile
from weft.strategies.gemm.register_tile_transposed import is_far, transposed_tile

_USUAL: Final = Parameters()


def register_tile_cost(plan: Plan, pattern: Pattern, p: Parameters) -> int | None:
    """Return about how many cycles the outer form takes, None if it does not fit."""
    found = _outer_loops(plan, pattern, p)
    return None if found is None else found[0]


def schedule_outer(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the outer form; whether it fits."""
    found = _outer_loops(plan, pattern, p)
    return found is not None and _outer_tile(plan, pattern, p, *found)


def _outer_loops(plan: Plan, pattern: Pattern, p: Parameters) -> tuple[int, For, For] | None:
    """Return the loops that give the tile its rows and its vectors, and what they cost.

    None if there are none. A single panel is turned by one thread, and the others wait.
    """
    space = Space(plan.kernel)
    inside = accesses(pattern.reduce.body)
    best: tuple[int, For, For] | None = None
    for loop in reversed(pattern.rows):
        row = _partner(pattern, loop.var)
        if size_of(loop.extent) < 2 or row is None:
            continue
        strided = [a for a in inside if flat_stride(space, a, loop.var) not in (0, 1)]
        if strided and not _may_pack(plan, pattern, p, loop, row, strided):
            continue
        if all(flat_stride(space, a, loop.var) == 0 for a in inside):
            continue
        cost = _cost(plan, pattern, p, row, loop)
        if strided:
            alone = size_of(loop.extent) <= _lanes(plan, loop, row, pattern, p)
            cost += cost_of_moves(plan, pattern, row) * (plan.threads if alone else 1)
        if scattered(plan, pattern, loop):
            results = product(r.extent for r in pattern.rows)
            # Vectors that are not full are not turned: their elements leave one by one.
            full = size_of(loop.extent) >= native_lanes(plan, pattern)
            cost += (time_of_moves(plan, pattern, results) if full
                     else plan.costs.lane_store_cycles * results)
        if best is None or cost < best[0]:
            best = (cost, row, loop)
    return best


def _cost(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For) -> int:
    """Return the cycles of the multiplications: whole registers, and loads where tiles are thin."""
    native = native_lanes(plan, pattern)
    n, lanes = size_of(wide.extent), _lanes(plan, wide, row, pattern, p)
    rows = _rows(plan, p, row, lanes, pattern)
    results = product(r.extent for r in pattern.rows)
    leave = results * epilogue_cost(pattern) // min(native, n)
    pieces, width = row_vectors(plan, pattern, p, row, wide)
    if pieces:
        rows = tile_height(plan, pattern, p, row, pieces)
        steps = product(a.extent for a in pattern.reduce.axes) * results // n
        each = 2 * width // native
        groups = -(-n // (pieces * width))
        slow = max(each * rows * pieces, rows + pieces, 8)
        if plan.target.whole_vectors:
            slow = 2 * step_of(pattern, native).time(plan, rows, pieces)
        return groups * steps * slow // (2 * rows) + leave
    vectors = max(lanes // native, 1)
    count = -(-n // lanes) * vectors if constant(wide.extent) is None or n < lanes else (
        -(-n // native))
    points = product([*[a.extent for a in pattern.reduce.axes],
                      *[r.extent for r in pattern.rows if r is not wide]])
    # One vector of the operand a cycle, two elements of the other; four multiplications in flight,
    # twice as many in vectors of half the width where units are no wider.
    each = 1 if 2 * lanes <= native and in_halves(plan) else 2
    slow = max(each * rows * vectors, 2 * vectors + rows, 4 * each)
    if plan.target.whole_vectors:
        slow = 2 * step_of(pattern, native).time(plan, rows, vectors)
    return points * count * slow // (2 * rows * vectors) + leave


def _partner(pattern: Pattern, column: Expr) -> For | None:
    """Return the loop that gives a tile its rows: absent from the operand along `column`."""
    if (column in pattern.left) == (column in pattern.right):
        return None
    other = pattern.left if column in pattern.right else pattern.right
    rows = [r for r in pattern.rows if r.var in other and size_of(r.extent) > 1]
    alone = [r for r in rows if not (r.var in pattern.left and r.var in pattern.right)]
    return max(alone or rows, key=lambda r: size_of(r.extent), default=None)


def _may_pack(plan: Plan, pattern: Pattern, p: Parameters, wide: For, row: For,
              strided: list[Access]) -> bool:
    """Whether copying an operand into panels along `wide` pays, and is possible."""
    memories = {a.memory for a in strided}
    if row.var in pattern.left and row.var in pattern.right:
        return False  # each row would read a panel of its own
    return (len(memories) == 1 and size_of(row.extent) >= p.turn_rows
            and all(constant(a.extent) is not None for a in pattern.reduce.axes)
            and 4 * size_of(wide.extent) >= plan.target.vector_bytes // 4
            and _panel_lanes(plan, pattern, p, row, wide) > 0)


def _panel_lanes(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For) -> int:
    """Return how wide a panel may be: narrower for long reductions, 0 if none fits."""
    cost = Cost(pattern.rows[-1].body)
    native = max(plan.target.vector_bytes // cost.itemsize, 1)
    points = product(a.extent for a in pattern.reduce.axes)
    lanes = _lanes(plan, wide, row, pattern, p)
    if _block(plan, pattern, p, row, wide) is not None:
        return lanes
    while points * lanes * cost.itemsize > p.panel_bytes:
        if lanes <= native:
            return 0
        lanes //= 2
    return lanes


class _Block(Record):
    """How a long reduction is cut: the axis, points of a block, tiles of rows that share one."""

    axis: str
    points: int
    tiles: int


def _block(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For) -> _Block | None:
    """Return how to cut the reduction so that what one block reads stays in cache.

    A panel that the caches of one core do not hold has to be cut.
    """
    extents = [a.extent for a in pattern.reduce.axes] + [row.extent]
    if any(constant(e) is None for e in extents):
        return None
    points = product(extents[:-1])
    itemsize = Cost(pattern.rows[-1].body).itemsize
    lanes = _lanes(plan, wide, row, pattern, p)
    space = Space(plan.kernel)
    panel = points * lanes * itemsize
    if panel <= p.panel_bytes:
        return None
    if size_of(wide.extent) <= 2 * lanes and size_of(row.extent) < 2 * p.pack_rows and not any(
            flat_stride(space, a, wide.var) not in (0, 1) for a in accesses(pattern.reduce.body)):
        return None  # narrow enough to be read as it lies
    room = p.panel_bytes // 2 // (lanes * itemsize)  # points of a block
    for axis in pattern.reduce.axes:  # an outer one leaves what is contiguous in one piece
        others = points // max(size_of(axis.extent), 1)
        most = min(room // max(others, 1), size_of(axis.extent))
        if size_of(axis.extent) > 1 and most * others >= p.pack_rows:
            break
    else:
        return None
    depth = size_of(axis.extent)
    blocks = -(-depth // most)
    rows = _rows(plan, p, row, lanes, pattern)
    count = -(-size_of(row.extent) // rows)
    fitting = p.panel_bytes // (rows * lanes * itemsize)
    tiles = max(d for d in range(1, min(fitting, count) + 1) if count % d == 0)
    if tiles * rows < min(p.pack_rows, size_of(row.extent)):
        return None
    length = -(-depth // blocks)
    if length > LINE_POINTS:  # whole squares, but for the last block
        length = -(-length // LINE_POINTS) * LINE_POINTS
    return _Block(axis.var.attr, length, tiles)


def _rows(plan: Plan, p: Parameters, row: For, lanes: int, pattern: Pattern) -> int:
    """Return how many rows a tile of so many elements a row has."""
    n, native = size_of(row.extent), native_lanes(plan, pattern)
    points = product(a.extent for a in pattern.reduce.axes)
    results = product(r.extent for r in pattern.rows) * plan.target.vector_bytes // native
    few = FEW_STEPS if results <= plan.target.l2_bytes else FEW_STEPS_FAR
    tall = (plan.target.whole_vectors and p.rows == _USUAL.rows and points > few
            and constant(row.extent) is not None)
    if not is_wished(plan) and (_is_broad(p) or tall):
        return tall_rows(plan, n, max(lanes // native, 1), step_of(pattern, native))
    return tile_rows(n, p.rows if registers(plan) >= 32 else p.rows // 2)


def _is_broad(p: Parameters) -> bool:
    return (p.rows, p.vectors) == (BROAD.rows, BROAD.vectors)


def _broad(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For) -> Parameters:
    """Return parameters of lower, broader tiles where those take less time.

    They read less for each product, and longer rows where a panel is copied: both count where
    panels lie in the second cache and come from memory.
    """
    n, m = constant(row.extent), constant(wide.extent)
    if (n is None or m is None or registers(plan) < 32 or is_wished(plan)
            or (p.rows, p.vectors) != (_USUAL.rows, _USUAL.vectors)):
        return p
    packed = n >= sharing_rows(plan, p, pattern, wide) and bool(
        _packed(plan, pattern, p, row, wide))
    if not packed and not (plan.target.whole_vectors and n > p.rows // 2):
        return p
    q = p.replace(rows=BROAD.rows, vectors=BROAD.vectors)
    lanes, broad = (_lanes(plan, wide, row, pattern, x) for x in (p, q))
    if broad <= lanes or (packed and not _packed(plan, pattern, q, row, wide)):
        return p
    block = _block(plan, pattern, q, row, wide)
    if block is not None and (block.tiles * _rows(plan, q, row, broad, pattern) < n or (
            plan.target.whole_vectors and _block(plan, pattern, p, row, wide) is None)):
        return p  # fewer rows would share a copy, or sums be cut that need not be
    times = [_time(plan, pattern, n, m, _rows(plan, x, row, w, pattern), w)
             for x, w in ((p, lanes), (q, broad))]
    return q if times[1] < times[0] + packed else p  # rows as they lie are better read once


def _time(plan: Plan, pattern: Pattern, n: int, m: int, rows: int, lanes: int) -> int:
    """Return about how long `n` rows of `m` results take on a thread, in tiles of this size."""
    native, strips = native_lanes(plan, pattern), -(-m // (lanes * plan.threads))
    vectors = lanes // native
    if not plan.target.whole_vectors:
        return (rows * vectors + 1) * -(-n // rows) * strips
    step, far = step_of(pattern, native), plan.target.l2_bytes
    time, copy = plan.costs.far_row_rate * step.time(plan, rows, vectors), 0
    if n * step.line > far:
        time += rows * plan.target.vector_bytes // native  # strips of columns read all rows anew
    if m * step.line > far:
        copy = plan.costs.far_row_rate * plan.costs.far_row_wait
    return (time * -(-n // rows) + copy) * strips


def _lanes(plan: Plan, wide: For, row: For, pattern: Pattern, p: Parameters) -> int:
    native = max(plan.target.vector_bytes // Cost(pattern.rows[-1].body).itemsize, 1)
    n = size_of(wide.extent)
    if n < native:
        return power_above(n)
    vectors = p.vectors
    if size_of(row.extent) <= p.rows // 2:
        vectors *= 2  # few rows: keep as many results in flight
    best = native
    if is_filled_up(plan, pattern, p, wide):
        return 2 * native
    while best * 2 <= min(n, native * vectors, 64):
        best *= 2
    while best > native and constant(wide.extent) is not None:
        waste, less = -(-n // best) * best, -(-n // (best // 2)) * (best // 2)
        if waste * 8 <= less * 9:
            break
        best //= 2
    return best


def _outer_tile(plan: Plan, pattern: Pattern, p: Parameters, cost: int, row: For,
                wide: For) -> bool:
    schedule = plan.schedule
    name = pattern.reduce.accumulators[0].var.attr
    lanes = _lanes(plan, wide, row, pattern, p)
    rows = _rows(plan, p, row, lanes, pattern)
    windows = find_windows(plan, pattern)
    chains = p if windows is None else sum_chains(plan, pattern, windows, p)
    if is_far(plan, pattern, p, row, wide):
        return transposed_tile(plan, pattern, p, row, wide, rows, lanes)
    p = _broad(plan, pattern, p, row, wide)
    lanes = _lanes(plan, wide, row, pattern, p)
    packed = _packed(plan, pattern, p, row, wide)
    apart = scattered(plan, pattern, wide)
    block = None
    if packed:
        lanes = _panel_lanes(plan, pattern, p, row, wide)
        block = _block(plan, pattern, p, row, wide)
    rows = _rows(plan, p, row, lanes, pattern)
    i, j = row.var.attr, wide.var.attr
    pieces, width = row_vectors(plan, pattern, p, row, wide)
    if pieces:
        rows, lanes = tile_height(plan, pattern, p, row, pieces), width
    amount = max(work_of(plan, pattern), plan.costs.shared_result_cost * cost)
    if not pieces and block is None and packed and not apart and pack_operands_first(
            plan, pattern, p, row, wide, rows, lanes, amount):
        return wide_tile(plan, pattern, p, row, wide, rows, lanes, amount,
                         *next(iter(packed.items())))
    n = size_of(wide.extent)
    rest = [r.var.attr for r in pattern.rows if r is not row and r is not wide]
    if pieces and pieces * width < n - n % -width:  # two groups of vectors
        schedule.split(j, pieces * width, "overlap")
        rest, j = [*rest, f"{j}.o"], f"{j}.i"
    # A panel that is no power of two wide is copied in squares that overlap, without masks.
    narrow = True in packed.values() and n < lanes and n & (n - 1) > 0 and (
        block is None and constant(wide.extent) is not None)
    if narrow:
        schedule.split(j, n)
    else:
        loop = find(plan.kernel, j)
        assert loop is not None
        tile_split(plan, j, loop.extent, lanes)
    strips = -(-n // lanes)
    from_left = not packed and (lies_near(plan, pattern, wide) or rows_once(
        plan, pattern, row, wide))  # rows of results are written from left to right
    if (plan.is_worth_threads(amount) and block is None and not rest and not pieces
            and not (from_left and shares_evenly(-(-size_of(row.extent) // rows), plan.threads))
            and should_share_rows(plan, pattern, row, wide, strips, packed)):
        i = share_rows(plan, pattern, row, rows, rest)
    tile_split(plan, i, loop_of(plan, i).extent, rows, rows=True)
    if pieces:
        order_loops(plan, [*rest, f"{i}.o"], [f"{i}.i", f"{j}.o", f"{j}.i"], amount)
        register_tile(plan, pattern, p, f"{i}.i", [f"{j}.o", f"{j}.i"])
        plan.why.append(f"contraction: {rows}×{pieces}×{lanes} results in registers along {i} "
                        f"and {j}, whose rows fill these vectors better")
        return True
    outer = [f"{j}.o", f"{i}.o"]
    if from_left:
        outer.reverse()
    order = order_loops(plan, [*rest, *outer], [f"{i}.i", f"{j}.i"],
                        amount, keep=True in packed.values())
    if block is not None and order[-2:] == [f"{j}.o", f"{i}.o"]:
        ((memory, strided),) = packed.items()
        _blocked_tile(plan, pattern, p, block, memory, strided, row, j, apart)
        plan.why.append(f"contraction: {rows}×{lanes} results in registers along {i} and {j}")
        return True
    for memory, strided in packed.items():
        if order.index(f"{j}.o") < order.index(f"{i}.o"):
            _pack(plan, pattern, memory, f"{j}.o", f"{j}.i", strided)
        elif strided:
            return False
    how = f"contraction: {rows}×{lanes} results in registers along {i} and {j}"
    if narrow:
        j = f"{j}.i"
        schedule.split(j, lanes).reorder(f"{j}.o", f"{i}.i", f"{j}.i")
    levels = chain_levels(pattern, chains)
    if levels:
        name = cut_sums(plan, name, f"{i}.i", f"{j}.i", levels)
        if apart:
            schedule.unroll(f"{i}.i.end")
        _unrolled_tile(plan, name, i, j)
        plan.why.append(f"{how}, at most {p.chain} terms in one sum")
        prefetch_operands(plan, pattern, packed, row, f"{i}.o", f"{j}.o", broad=_is_broad(p))
        return True
    spill = epilogue_cost(pattern) > p.spill
    schedule.decompose_reduction(name, f"{i}.i", spill=spill)
    copy = copy_loops(plan, f"{i}.i") if spill else [f"{i}.i.f", f"{j}.i.f"]
    for rows_loop, columns in ([f"{i}.i.z", f"{j}.i.z"], [f"{i}.i", f"{j}.i"], copy):
        schedule.unroll(rows_loop).vectorize(columns)
    if spill:
        schedule.vectorize(f"{j}.i.f")
    plan.why.append(how + (", epilogue from a local copy" if spill else ""))
    prefetch_operands(plan, pattern, packed, row, f"{i}.o", f"{j}.o", broad=_is_broad(p))
    return True


def _unrolled_tile(plan: Plan, name: str, i: str, j: str) -> None:
    """Keep the results of a tile in registers while its terms are added."""
    plan.schedule.decompose_reduction(name, f"{i}.i")
    for suffix in (".z", "", ".f"):
        plan.schedule.unroll(f"{i}.i{suffix}").vectorize(f"{j}.i{suffix}")


def _blocked_tile(plan: Plan, pattern: Pattern, p: Parameters, block: _Block, memory: str,
                  strided: bool, row: For, j: str, scattered: bool) -> None:
    """Sum block by block into results that stay in cache, each from a panel of its own."""
    schedule, i = plan.schedule, row.var.attr
    name = pattern.reduce.accumulators[0].var.attr
    top = f"{i}.o"
    loop = find(plan.kernel, top)
    assert loop is not None
    if block.tiles < size_of(loop.extent):
        schedule.split(top, block.tiles)
        top = f"{top}.i"
    schedule.block_reduction(name, top, block.axis, block.points)
    axes = [f"{a.var.attr}.i" if a.var.attr == block.axis else a.var.attr
            for a in pattern.reduce.axes]
    schedule.stage(memory, f"{block.axis}.o", (*axes, f"{j}.i"))
    if strided:
        copy_strided(plan, [f"{a}.s" for a in axes], f"{j}.i.s")
    else:
        schedule.vectorize(f"{j}.i.s")
    if scattered:  # neighbouring rows of results leave together, turned in registers
        schedule.unroll(f"{i}.i.end")
    schedule.vectorize(f"{j}.i.begin").vectorize(f"{j}.i.end")
    name = f"{name}.b"
    steps = chain_steps(pattern, p, (block.axis, block.points))
    if steps:
        schedule.block_reduction(name, f"{i}.i", *steps)
        schedule.vectorize(f"{j}.i.begin1").vectorize(f"{j}.i.end1")
        name = f"{name}.b"
    _unrolled_tile(plan, name, i, j)
    plan.why.append(f"{memory} copied into panels over {block.points} of {block.axis} at a time")
    prefetch_operands(plan, pattern, {memory: strided}, row, top, f"{block.axis}.o",
              "" if top != f"{i}.o" else f"{j}.o", broad=_is_broad(p))


def _packed(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For) -> dict[str, bool]:
    """Return the operand to copy into panels (and whether it is strided), if that pays.

    A panel is what one column of tiles reads: contiguous, so that it neither misses the TLB nor
    falls into a few sets of the cache. It pays when many rows of tiles read it again.
    """
    space = Space(plan.kernel)
    found = {a.memory: flat_stride(space, a, wide.var) for a in accesses(pattern.reduce.body)
             if flat_stride(space, a, wide.var) != 0}
    if len(found) != 1 or any(isinstance(s, Load) and s.mask is not None
                              for s in pattern.reduce.body):
        return {}
    ((memory, stride),) = found.items()
    if stride != 1:
        return {memory.name: True}
    whole = max(span(space, pattern, a, wide) for a in accesses(pattern.reduce.body)
                if a.memory == memory)
    fixed = all(constant(a.extent) is not None for a in pattern.reduce.axes)
    pays = (fixed and whole > plan.target.l1_bytes
            and size_of(row.extent) >= sharing_rows(plan, p, pattern, wide)
            and _panel_lanes(plan, pattern, p, row, wide) > 0)
    return {memory.name: False} if pays else {}


def _pack(plan: Plan, pattern: Pattern, memory: str, loop: str, column: str,
          strided: bool) -> None:
    """Copy a panel at the start of `loop`, laid out as the tiles read it."""
    schedule = plan.schedule
    axes = [a.var.attr for a in pattern.reduce.axes]
    space = Space(plan.kernel)
    load = next(s for s in pattern.reduce.body if isinstance(s, Load) and s.memory.name == memory)
    used = set().union(*[space.symbols(i) for i in load.index])
    dims = tuple(a.var.attr for a in pattern.reduce.axes if a.var in used)
    if not dims:  # a tile reads it once
        return
    if not plan.attempt("stage", memory, loop, (*dims, column)):
        if strided:
            raise ScheduleError(f"stage({memory})", found="a panel that cannot be copied")
        return
    inner = f"{column}.s"
    if strided:
        copy_strided(plan, [f"{d}.s" for d in dims], inner)
    else:
        schedule.vectorize(inner)
    plan.why.append(f"{memory} copied into panels over {', '.join(axes)}")
