"""Contractions: sums of products over axes that the output does not have.

They are found from the index pattern, whichever front end wrote them: matmul in any layout,
batched, einsum, convolution over windows, matrix times vector. Two forms:

* **outer**: an output axis has unit stride in one operand and is absent from the other. A tile of
  rows x vectors of results lives in registers; each step of the reduced axes reads one piece of
  each operand and updates the whole tile.
* **inner**: the reduced axis has unit stride in both operands (``x @ w.T``, matrix times vector).
  A tile of results is kept as vectors of partial sums along the reduced axis.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import For, Load, Reduce
from weft.schedule.dependence import Access, Space, accesses
from weft.schedule.loops import vector_obstacle
from weft.schedule.space import constant
from weft.strategies.nest import (
    PARALLEL_WORK,
    Cost,
    Plan,
    chain_of,
    find,
    flat_stride,
    parallelise,
    power_above,
    product,
    size_of,
    work,
)

MAC_SPEED: Final = 6  # a term of a contraction is cheaper than its weight: data in registers


class Parameters(Record):
    """What a contraction may be tuned by.

    ``rows`` results along the axis that is not a vector, ``vectors`` registers along the one that
    is; ``inner_rows`` and ``inner_columns`` the tile of the inner form; ``spill`` the weighted
    operations of an epilogue from which on it runs in a loop of its own instead of unrolled;
    ``pack_rows`` the rows from which on an operand is copied into panels of at most
    ``panel_bytes``.
    """

    rows: int = 8
    vectors: int = 2
    inner_rows: int = 4
    inner_columns: int = 4
    spill: int = 24
    pack_rows: int = 48
    panel_bytes: int = 256 << 10


class Pattern(Record):
    """A contraction as found: loops by what they index.

    ``left`` and ``right`` are the loop variables that the two factors depend on.
    """

    rows: tuple[For, ...]
    reduce: Reduce
    left: frozenset[Expr]
    right: frozenset[Expr]


def match(plan: Plan, root: str) -> Pattern | None:
    """Return the contraction in a nest, None if it is not one."""
    loop = find(plan.kernel, root)
    if loop is None:
        return None
    rows = chain_of(loop)
    body = rows[-1].body
    found = [s for s in body if isinstance(s, Reduce)]
    if len(found) != 1 or any(isinstance(s, For | st.Alloc | st.While | st.If) for s in body):
        return None
    reduce = found[0]
    if len(reduce.accumulators) != 1 or any(st.stores(reduce.body)):
        return None
    if not all(isinstance(s, Load | st.Let) for s in reduce.body):
        return None
    factors = _factors(reduce)
    if factors is None:
        return None
    space = Space(plan.kernel)
    loaded = {s.var: s for s in reduce.body if isinstance(s, Load)}
    loaded |= {s.var: s for s in body if isinstance(s, Load)}
    left, right = (_depends(space, f, loaded) for f in factors)
    outputs = {r.var for r in rows}
    if not (left ^ right) & outputs:
        return None  # the same rows in both: a row-wise product, not a contraction
    return Pattern(tuple(rows), reduce, left, right)


def _factors(reduce: Reduce) -> tuple[Expr, Expr] | None:
    """Return a and b of an update ``s + a*b``, names inside the body written out."""
    acc = reduce.accumulators[0]
    if acc.combine.op is not Op.ADD or acc.combine.args != (st.lhs(acc.var), st.rhs(acc.var)):
        return None
    lets = {s.var: s.value for s in reduce.body if isinstance(s, st.Let)}
    u = acc.update
    if u.op is Op.MAD and u.args[2] is acc.var:
        return u.args[0], u.args[1]
    if u.op is not Op.ADD or acc.var not in u.args:
        return None
    term = u.args[1] if u.args[0] is acc.var else u.args[0]
    while term in lets or term.op is Op.CAST:
        term = lets[term] if term in lets else term.args[0]
    return (term.args[0], term.args[1]) if term.op is Op.MUL else None


def _depends(space: Space, factor: Expr, loaded: dict[Expr, Load]) -> frozenset[Expr]:
    """Return the loop variables that a factor varies with, through the loads it uses."""
    out: set[Expr] = set()
    stack = list(space.symbols(factor))
    seen: set[Expr] = set()
    while stack:
        symbol = stack.pop()
        if symbol in seen:
            continue
        seen.add(symbol)
        load = loaded.get(symbol)
        if load is None:
            out.add(symbol)
        else:
            for e in load.exprs():
                stack.extend(space.symbols(e))
    return frozenset(out)


def schedule_contraction(plan: Plan, pattern: Pattern, parameters: Parameters | None = None,
                         ) -> bool:
    """Schedule a contraction; whether one of the forms fits."""
    p = parameters or Parameters()
    if vector_obstacle(pattern.rows[-1].body) is not None:
        return False
    name = pattern.reduce.accumulators[0].var.attr
    saved = plan.schedule.mark()
    reasons = len(plan.why)
    forms = [_outer, _inner]
    if _inner_lanes(plan, pattern) > _outer_lanes(plan, pattern, p):
        forms.reverse()
    for form in forms:
        plan.attempt("contract", name)
        try:
            if form(plan, pattern, p):
                return True
        except ScheduleError:
            pass
        plan.schedule.reset(saved)
        del plan.why[reasons:]
    return False


def _tile_rows(n: int, most: int) -> int:
    """Return how many rows a tile takes: little waste first, then many."""
    if n <= most:
        return max(n, 1)
    return min(range(most, most // 2, -1), key=lambda r: (-(-n // r) * r - n) / n)


def _outer(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    found = _outer_loops(plan, pattern, p)
    return found is not None and _outer_tile(plan, pattern, p, *found)


def _outer_lanes(plan: Plan, pattern: Pattern, p: Parameters) -> int:
    """Return how many lanes of one register the outer form would fill, 0 if it does not fit."""
    found = _outer_loops(plan, pattern, p)
    return 0 if found is None else min(size_of(found[1].extent), _native(plan, pattern))


def _inner_lanes(plan: Plan, pattern: Pattern) -> int:
    """Return how many lanes of one register the inner form would fill, 0 if it does not fit."""
    axis = _inner_axis(plan, pattern)
    return 0 if axis is None else min(size_of(axis.extent), _native(plan, pattern))


def _native(plan: Plan, pattern: Pattern) -> int:
    return max(plan.target.vector_bytes // Cost(pattern.rows[-1].body).itemsize, 1)


def _outer_loops(plan: Plan, pattern: Pattern, p: Parameters) -> tuple[For, For] | None:
    """Return the loops that give the tile its rows and its vectors, None if there are none."""
    space = Space(plan.kernel)
    inside = accesses(pattern.reduce.body)
    stored = [a for a in accesses(pattern.rows[-1].body) if a.write]
    best: tuple[tuple[int, ...], For, For] | None = None
    for number, loop in enumerate(pattern.rows):
        row = _partner(pattern, loop.var)
        if size_of(loop.extent) < 2 or row is None:
            continue
        strided = [a for a in inside if flat_stride(space, a, loop.var) not in (0, 1)]
        if strided and not _may_pack(plan, pattern, p, loop, row, strided):
            continue
        if all(flat_stride(space, a, loop.var) == 0 for a in inside):
            continue
        score = (sum(flat_stride(space, a, loop.var) == 1 for a in stored) * 2
                 + (size_of(loop.extent) >= plan.target.vector_bytes // 4) - 3 * bool(strided),
                 number)
        if best is None or score > best[0]:
            best = (score, row, loop)
    return None if best is None else best[1:]


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
    return (len(memories) == 1 and size_of(row.extent) >= p.pack_rows
            and constant(wide.extent) is not None
            and all(constant(a.extent) is not None for a in pattern.reduce.axes)
            and size_of(wide.extent) >= plan.target.vector_bytes // 4
            and _panel_lanes(plan, pattern, p, row, wide) > 0)


def _panel_lanes(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For) -> int:
    """Return how wide a panel may be: narrower for long reductions, 0 if none fits."""
    cost = Cost(pattern.rows[-1].body)
    native = max(plan.target.vector_bytes // cost.itemsize, 1)
    points = product(a.extent for a in pattern.reduce.axes)
    lanes = _lanes(plan, wide, row, pattern, p)
    while points * lanes * cost.itemsize > p.panel_bytes:
        if lanes <= native:
            return 0
        lanes //= 2
    return lanes


def _registers(plan: Plan) -> int:
    return max(getattr(plan.target, "vector_registers", 16), 8)


def _lanes(plan: Plan, wide: For, row: For, pattern: Pattern, p: Parameters) -> int:
    native = max(plan.target.vector_bytes // Cost(pattern.rows[-1].body).itemsize, 1)
    n = size_of(wide.extent)
    if n < native:
        return power_above(n)
    vectors = p.vectors
    if size_of(row.extent) <= p.rows // 2:
        vectors *= 2  # few rows: keep as many results in flight
    best = native
    while best * 2 <= min(n, native * vectors, 64):
        best *= 2
    while best > native and constant(wide.extent) is not None:
        waste, less = -(-n // best) * best, -(-n // (best // 2)) * (best // 2)
        if waste * 8 <= less * 9:
            break
        best //= 2
    return best


def _outer_tile(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For) -> bool:
    schedule = plan.schedule
    name = pattern.reduce.accumulators[0].var.attr
    lanes = _lanes(plan, wide, row, pattern, p)
    most = p.rows if _registers(plan) >= 32 else p.rows // 2
    rows = _tile_rows(size_of(row.extent), most)
    packed = _packed(plan, pattern, p, row, wide)
    if packed:
        lanes = _panel_lanes(plan, pattern, p, row, wide)
    i, j = row.var.attr, wide.var.attr
    _tile_split(plan, j, wide.extent, lanes)
    _tile_split(plan, i, row.extent, rows)
    rest = [r.var.attr for r in pattern.rows if r is not row and r is not wide]
    order = _order(plan, [*rest, f"{j}.o", f"{i}.o"], [f"{i}.i", f"{j}.i"],
                   work((pattern.rows[0],)) // MAC_SPEED, keep=True in packed.values())
    for memory, strided in packed.items():
        if order.index(f"{j}.o") < order.index(f"{i}.o"):
            _pack(plan, pattern, memory, f"{j}.o", f"{j}.i", strided)
        elif strided:
            return False
    spill = _epilogue_cost(pattern) > p.spill
    schedule.decompose_reduction(name, f"{i}.i", spill=spill)
    copy = _copy_loops(plan, f"{i}.i") if spill else (f"{i}.i.f", f"{j}.i.f")
    for rows_loop, columns in ((f"{i}.i.z", f"{j}.i.z"), (f"{i}.i", f"{j}.i"), copy):
        schedule.unroll(rows_loop).vectorize(columns)
    if spill:
        schedule.vectorize(f"{j}.i.f")
    plan.why.append(f"contraction: {rows}×{lanes} results in registers along {i} and {j}"
                    + (", epilogue from a local copy" if spill else ""))
    return True


def _copy_loops(plan: Plan, row: str) -> tuple[str, str]:
    """Return the loops that copy a tile out of its registers: a panel may have taken their names.

    They are the nest behind the one that updates the tile.
    """
    for stmt in st.walk(plan.kernel.body):
        for body in stmt.bodies():
            names = [s.var.attr if isinstance(s, For) else "" for s in body]
            if f"{row}.z" in names:
                rows = body[names.index(f"{row}.z") + 2]
                assert isinstance(rows, For)
                columns = rows.body[0]
                assert isinstance(columns, For)
                return rows.var.attr, columns.var.attr
    raise ScheduleError(f"copy of {row}", found="no tile in registers")


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
    whole = size_of(memory.size) * memory.dtype.itemsize
    fixed = all(constant(a.extent) is not None for a in pattern.reduce.axes)
    pays = (fixed and whole > plan.target.l1_bytes and size_of(row.extent) >= p.pack_rows
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
    if not plan.attempt("stage", memory, loop, (*dims, column)):
        if strided:
            raise ScheduleError(f"stage({memory})", found="a panel that cannot be copied")
        return
    inner = f"{column}.s"
    if strided:
        schedule.unroll(inner)
    else:
        schedule.vectorize(inner)
    plan.why.append(f"{memory} copied into panels over {', '.join(axes)}")


def _tile_split(plan: Plan, name: str, extent: Expr, factor: int) -> None:
    """Split a loop of the tile: whole tiles if possible, overlapping ones else."""
    n = constant(extent)
    if n is not None and n >= factor and n % factor and plan.attempt(
            "split", name, factor, "overlap"):
        return
    plan.schedule.split(name, factor, "mask")


def _order(plan: Plan, outer: list[str], inner: list[str], amount: int,
           keep: bool = False) -> list[str]:
    """Bring the loops into order, tile innermost, and share the outer ones out to threads.

    A loop that shares out evenly comes first, unless the order has to be kept.

    Returns the outer loops as they stand then.
    """
    schedule = plan.schedule
    for name in [*inner, *outer]:
        schedule.sink(name)
    sizes = {}
    for name in outer:
        loop = find(plan.kernel, name)
        assert loop is not None
        sizes[name] = size_of(loop.extent)
    threads = plan.threads
    if threads > 1 and amount >= PARALLEL_WORK and not keep:
        good = [x for x in outer if sizes[x] and
                (sizes[x] % threads == 0 or sizes[x] >= 4 * threads)]
        if good and good[0] != outer[0]:
            outer = [good[0], *[x for x in outer if x != good[0]]]
    schedule.reorder(*outer, *inner)
    parallelise(plan, outer, amount)
    return outer


def _epilogue_cost(pattern: Pattern) -> int:
    body = pattern.rows[-1].body
    at = next(p for p, s in enumerate(body) if s is pattern.reduce)
    return Cost(body[at + 1 :]).ops


def _inner_axis(plan: Plan, pattern: Pattern) -> st.Axis | None:
    """Return the reduced axis along which both operands are contiguous, None if none is."""
    space = Space(plan.kernel)
    inside = accesses(pattern.reduce.body)
    native = _native(plan, pattern)
    along = [a for a in pattern.reduce.axes if 2 * size_of(a.extent) >= max(native, 4)
             and all(flat_stride(space, x, a.var) in (0, 1) for x in inside)
             and any(flat_stride(space, x, a.var) == 1 for x in inside)]
    return max(along, key=lambda a: size_of(a.extent), default=None)


def _inner(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    native = _native(plan, pattern)
    axis = _inner_axis(plan, pattern)
    if axis is None:
        return False
    lefts = [r for r in pattern.rows if r.var in pattern.left - pattern.right]
    rights = [r for r in pattern.rows if r.var in pattern.right - pattern.left]
    tile = [max(side, key=lambda r: size_of(r.extent)) for side in (lefts, rights) if side]
    tile = [r for r in tile if constant(r.extent) is not None and size_of(r.extent) > 1]
    if not tile:
        return False
    schedule = plan.schedule
    name = pattern.reduce.accumulators[0].var.attr
    sizes = [_tile_rows(size_of(r.extent), most) for r, most
             in zip(tile, (p.inner_rows, p.inner_columns), strict=False)]
    k = axis.var.attr
    lanes = min(native, power_above(size_of(axis.extent)))
    while product(ex.index(s) for s in sizes) * lanes < 8 * native and lanes < 64 and (
            size_of(axis.extent) >= 4 * lanes):
        lanes *= 2
    schedule.split(k, lanes, "mask")
    for loop, size in zip(tile, sizes, strict=True):
        _tile_split(plan, loop.var.attr, loop.extent, size)
    rest = [r.var.attr for r in pattern.rows if all(r is not t for t in tile)]
    names = [r.var.attr for r in reversed(tile)]
    _order(plan, [*rest, *[f"{t}.o" for t in names]], [f"{t}.i" for t in reversed(names)],
           work((pattern.rows[0],)) // MAC_SPEED)
    first = f"{tile[0].var.attr}.i"
    schedule.decompose_reduction(name, first, partial=(f"{k}.i",))
    for suffix in (".z", "", ".f"):
        for loop in tile:
            schedule.unroll(f"{loop.var.attr}.i{suffix}")
        schedule.vectorize(f"{k}.i{suffix}")
    shape = "×".join(map(str, sizes))
    plan.why.append(f"contraction: {shape} results as {lanes} partial sums along {k}")
    return True
