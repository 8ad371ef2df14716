"""What a contraction is, and what its forms share: sizes of tiles, order of loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.errors import ScheduleError
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import For, Load, Reduce
from weft.schedule.analysis.dependence import idempotent
from weft.schedule.analysis.guard import factors
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Space, accesses
from weft.strategies.common.nest import (
    Cost,
    Plan,
    chain_of,
    find,
    flat_stride,
    parallelise,
    power_above,
    product,
    shares_evenly,
    size_of,
    work,
)
from weft.target import ARRAY_BYTES, Target

BUSY: Final = 0.8  # of the threads have work on average: enough where sharing shares copies, too
LINE_POINTS: Final = 16  # elements of a row that are copied before the next row


class Parameters(Record):
    """What a contraction may be tuned by.

    ``rows`` results along the axis that is not a vector, ``vectors`` registers along the one that
    is; ``inner_rows`` and ``inner_columns`` the longest sides of a tile of the inner form;
    ``spill`` the weighted operations of an epilogue from which on it runs in a loop of its own
    instead of unrolled;
    ``pack_rows`` the rows from which on an operand is copied into panels of at most
    ``panel_bytes``, and ``turn_rows`` those from which on it is also turned for that;
    ``stream_depth`` the rows of a matrix that are read side by side where few rows are multiplied
    with it, ``stream_bytes`` the results of a tile of rows that are kept meanwhile, ``stream_rows``
    the rows that are no longer few, and ``stream_sums`` how many blocks one sum may have;
    ``far_block`` the rows, columns and steps of a block where both operands are copied, ``chain``
    the terms that are added to one another before their sum joins the result (``nested_chain``
    where a sum goes over several axes), and ``far_depth`` the least steps for it, in blocks;
    ``wide_rows`` the rows of results for which all panels are copied anew; ``window_rows`` the
    positions of a tile of a convolution and ``window_bytes`` the weights of a block of its
    channels; ``whole_bytes`` the weights that are copied at once, more are gone through block by
    block, while ``sum_bytes`` of results wait;
    ``dot_rows`` the rows of a tile of packed words, ``dot_least`` the rows from which on words pay,
    ``dot_turned`` those from which on it pays to turn an operand for them,
    ``dot_bytes`` the panels that share one copy of the rows, ``dot_depth`` the steps of a block
    if these are few, and ``matrix_bytes`` the same for tiles of matrices.
    """

    rows: int = 8
    vectors: int = 2
    inner_rows: int = 6
    inner_columns: int = 6
    spill: int = 24
    pack_rows: int = 48
    turn_rows: int = 4
    panel_bytes: int = 256 << 10
    stream_depth: int = 16
    stream_bytes: int = 64 << 10
    stream_rows: int = 400
    stream_sums: int = 160
    far_block: int = 256
    far_depth: int = 5
    wide_rows: int = 512
    chain: int = 192
    nested_chain: int = 72
    window_rows: int = 14
    window_bytes: int = 40 << 10
    whole_bytes: int = 200 << 10
    sum_bytes: int = 224 << 10
    dot_rows: int = 12
    dot_least: int = 4
    dot_turned: int = 48
    dot_bytes: int = 256 << 10
    dot_depth: int = 512
    matrix_bytes: int = 1 << 20


# What a search may choose instead of the parameters, for each form those that it looks at.
_TILE: Final = {"rows": (2, 4, 6, 8, 10, 12, 14, 16), "vectors": (1, 2, 4)}
_PANEL: Final = {"pack_rows": (8, 16, 24, 48, 96, 1 << 30),
                 "panel_bytes": (32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20)}
SPACES: Final[dict[str, dict[str, tuple[int, ...]]]] = {
    "outer": {**_TILE, **_PANEL, "turn_rows": (4, 16, 64, 1 << 30), "spill": (0, 24, 1 << 30),
              "far_block": (64, 128, 256, 512), "far_depth": (1, 2, 3, 5, 8, 1 << 20)},
    "dot": {"dot_rows": (4, 6, 8, 10, 12, 14), "vectors": (1, 2, 4),
            "dot_bytes": (64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20)},
    "matrix": {"matrix_bytes": (64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20)},
    "parts": {},
    "gradient": {"matrix_bytes": (256 << 10, 512 << 10, 1 << 20)},
    "slide": {"matrix_bytes": (64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20)},
    "taps": {"matrix_bytes": (64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20)},
    "filter": {},
    "strip": {},
    "inner": {"inner_rows": (1, 2, 3, 4, 6, 8), "inner_columns": (1, 2, 3, 4, 6, 8)},
    "window": {**_PANEL, "window_rows": (6, 8, 10, 12, 14, 16, 20, 24),
               "window_bytes": (20 << 10, 40 << 10, 80 << 10, 256 << 10),
               "spill": (0, 24, 1 << 30)},
    "deep": {"window_rows": (6, 8, 10, 12, 14, 16, 20, 24),
             "window_bytes": (20 << 10, 40 << 10), "sum_bytes": (56 << 10, 112 << 10, 224 << 10)},
    "position": {"rows": _TILE["rows"], "panel_bytes": _PANEL["panel_bytes"]},
    "lines": {},
    "stream": {"stream_depth": (4, 8, 16, 32, 64),
               "stream_bytes": (8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10)},
}


def usual(target: Target) -> Parameters:
    """Return the parameters for a target: panels take a quarter of a large second cache."""
    default = Parameters()
    quarter = min(target.l2_bytes // 4, ARRAY_BYTES)
    return default.replace(panel_bytes=max(default.panel_bytes, quarter),
                           dot_bytes=max(default.dot_bytes, quarter))


def picked(plan: Plan, space: dict[str, tuple[int, ...]]) -> Parameters:
    """Return the parameters with a decision for each name of a space."""
    default = usual(plan.target)
    return default.replace(**{name: plan.pick(f"contraction.{name}", getattr(default, name), values)
                              for name, values in space.items()})


def is_wished(plan: Plan) -> bool:
    """Whether a user gave the rows of a tile, which stay so even if they are the usual ones."""
    return bool(plan.choices.given.get("contraction.wished"))


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
    if len(reduce.accumulators) != 1 or any(traverse.stores(reduce.body)):
        return None
    if not all(isinstance(s, Load | st.Let) for s in reduce.body):
        return None
    factors = factors_of_sum(reduce)
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


def factors_of_sum(reduce: Reduce) -> tuple[Expr, Expr] | None:
    """Return a and b of an update ``s + a*b``, names inside the body written out."""
    acc = reduce.accumulators[0]
    if acc.combine.op is not Op.ADD or acc.combine.args != (st.lhs(acc.var), st.rhs(acc.var)):
        return None
    return factors(acc, reduce.body)


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


def is_fixed(pattern: Pattern, around: Sequence[For] = ()) -> bool:
    """Whether the sizes of all reduced axes, and of all loops but those `around`, are constants."""
    extents = [r.extent for r in pattern.rows if r not in around]
    extents += [a.extent for a in pattern.reduce.axes]
    return all(constant(e) is not None for e in extents)


def native_lanes(plan: Plan, pattern: Pattern) -> int:
    """Return how many elements fill a vector register."""
    return max(plan.target.vector_bytes // Cost(pattern.rows[-1].body).itemsize, 1)


def cost_of_moves(plan: Plan, pattern: Pattern, other: For) -> int:
    """Return the cycles that turning an operand takes, which the loop `other` does not move."""
    loops = [r.extent for r in pattern.rows if r is not other]
    return time_of_moves(plan, pattern, product([*loops, *[a.extent for a in pattern.reduce.axes]]))


def work_of(plan: Plan, pattern: Pattern, *, waits: bool = False) -> int:
    """Return the weighted operations of a contraction, whose terms take less than their weight.

    Those of a vector times a matrix, each of whose elements `waits` for memory, gain less.
    """
    rate = plan.costs.waiting_term_rate if waits else plan.costs.term_rate
    return work((pattern.rows[0],)) // rate


def time_of_moves(plan: Plan, pattern: Pattern, count: int) -> int:
    """Return the cycles of one multiplication each in which so many elements change places."""
    moved = count * Cost(pattern.rows[-1].body).itemsize
    wait = 1
    if plan.target.whole_vectors:
        wait = plan.costs.lane_move_wait - (moved <= plan.target.l2_bytes)
    return moved * wait // plan.costs.lane_move_bytes


def tile_rows(n: int, most: int) -> int:
    """Return how many rows a tile takes: little waste first, then many."""
    if n <= most:
        return max(n, 1)
    return min(range(most, most // 2, -1), key=lambda r: (-(-n // r) * r - n) / n)


def tile_split(plan: Plan, name: str, extent: Expr, factor: int, rows: bool = False) -> None:
    """Split a loop of the tile: whole tiles if possible, overlapping ones else.

    Of a symbolic number of `rows` the last tile repeats the last one, without masks.
    """
    n = constant(extent)
    if n is None and rows and plan.attempt("split", name, factor, "clamp"):
        return
    if n is not None and n >= factor and n % factor and plan.attempt(
            "split", name, factor, "overlap"):
        return
    plan.schedule.split(name, factor, "mask")


def order_loops(plan: Plan, outer: list[str], inner: list[str], amount: int,
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
    if threads > 1 and amount >= plan.costs.parallel_work and not keep:
        good = [x for x in outer if shares_evenly(sizes[x], threads)]
        if good and good[0] != outer[0]:
            outer = [good[0], *[x for x in outer if x != good[0]]]
    schedule.reorder(*outer, *inner)
    around = outer[:-1] if keep else []  # of what is copied, which one thread would do alone
    busy = [sizes[x] / (-(-sizes[x] // threads) * threads) for x in around if sizes[x]]
    parallelise(plan, around if max(busy, default=0) >= BUSY else outer, amount)
    return outer


def may_repeat(pattern: Pattern) -> bool:
    """Whether results may be computed twice: not where an epilogue updates what it reads."""
    return idempotent(pattern.rows[-1].body) is None


def epilogue_cost(pattern: Pattern) -> int:
    """Return the weighted operations behind the reduction, for one result."""
    body = pattern.rows[-1].body
    at = next(p for p, s in enumerate(body) if isinstance(s, Reduce))
    return Cost(body[at + 1 :]).ops


def lane_sums(plan: Plan, name: str, tile: list[str], lanes: str, steps: list[tuple[str, int]],
              apart: bool = False) -> None:
    """Keep a tile of results in registers, each as a vector of partial sums.

    `tile` are the loops of the tile, `lanes` the reduced axis of the vectors, `steps` the result of
    `lane_chains`; they are loops already where blocks of the sum keep them ``apart``.
    """
    schedule = plan.schedule
    partial: tuple[str, ...] = () if apart else (lanes,)
    for cut in steps:
        name, partial = block_sums(plan, name, tile[0], cut, lanes, tile, partial), ()
    schedule.decompose_reduction(name, tile[0], partial=partial)
    for suffix in (".z", "", ".f"):
        for loop in tile:
            schedule.unroll(f"{loop}{suffix}")
        schedule.vectorize(f"{lanes}{suffix}")


def block_sums(plan: Plan, name: str, loop: str, cut: tuple[str, int], lanes: str,
               tile: Sequence[str] = (), partial: tuple[str, ...] = (),
               shared: bool = False) -> str:  # fmt: skip
    """Cut a sum along an axis into blocks of a length; return the name of a block's sum.

    Sums are begun and ended as vectors along `lanes`, and for the loops of a `tile` written out.
    Blocks may be `shared` out: none waits for another then.
    """
    schedule, known = plan.schedule, _loops_and_axes(plan)
    if shared:
        schedule.share_reduction(name, loop, *cut)
    else:
        schedule.block_reduction(name, loop, *cut, partial=partial)
    for made in sorted(_loops_and_axes(plan) - known):  # others may have names like these
        if made.startswith((f"{lanes}.begin", f"{lanes}.end")):
            schedule.vectorize(made)
        elif any(made.startswith((f"{x}.begin", f"{x}.end")) for x in tile):
            schedule.unroll(made)
    return f"{name}.b"


def loop_names(plan: Plan) -> list[str]:
    """Return the names of all loops, in their order."""
    return [str(s.var.attr) for s in traverse.walk(plan.kernel.body) if isinstance(s, For)]


def _loops_and_axes(plan: Plan) -> set[str]:
    """Return the names of all loops and of all axes of sums, such as those of lanes that meet."""
    return {*loop_names(plan), *[str(a.var.attr) for s in traverse.walk(plan.kernel.body)
                                 if isinstance(s, Reduce) for a in s.axes]}


def loops_since(plan: Plan, known: list[str]) -> list[str]:
    """Return the names of the loops that are not among the `known` ones, in their order."""
    return [name for name in loop_names(plan) if name not in known]


def copy_loops(plan: Plan, row: str) -> list[str]:
    """Return the loops that copy a tile out of its registers: a panel may have taken their names.

    They are the nest behind the one that updates the tile.
    """
    for stmt in traverse.walk(plan.kernel.body):
        for body in stmt.bodies():
            names = [s.var.attr if isinstance(s, For) else "" for s in body]
            if f"{row}.z" in names:
                loop = body[names.index(f"{row}.z") + 2]
                assert isinstance(loop, For)
                return [f.var.attr for f in chain_of(loop)]
    raise ScheduleError(f"copy of {row}", found="no tile in registers")


def copy_strided(plan: Plan, axes: list[str], column: str) -> None:
    """Schedule the copy of a panel whose source is contiguous along the reduced axes.

    A square of vectors is read along the rows of the source, turned in registers, and written
    along the rows of the panel: no element is moved alone, and of each row of the source a whole
    line is read before the next row is turned to (rows that lie a large power of two apart would
    throw each other out of the cache).
    """
    schedule = plan.schedule
    together = max(_reaching(plan, axes, column), 1)
    for inner in reversed(axes[-together:-1]):  # neighbours in the source, whosever they are
        loops = [find(plan.kernel, inner), find(plan.kernel, axes[-1])]
        if any(f is not None and constant(f.extent) is None for f in loops) and (
                loops[1] is not None and size_of(loops[1].extent) >= LINE_POINTS // 2):
            break  # a short last block: a place in it would be a division
        if not plan.attempt("fuse", inner, axes[-1]):
            break
        axes = [*axes[:-2], f"{inner}_{axes[-1]}"]
    last = find(plan.kernel, axes[-1])
    wide = find(plan.kernel, column)
    if last is None or wide is None:
        raise ScheduleError(f"copy of {column}", found="no loops of a panel")
    lanes = min(LINE_POINTS, power_above(size_of(wide.extent) + 1) // 2)
    outer, inside = [], [axes[-1], column]
    whole = constant(wide.extent)
    if whole is not None and whole % lanes:  # first: then both may overlap, and no loops change
        schedule.split(column, lanes, "overlap").reorder(f"{column}.o", axes[-1], f"{column}.i")
        column = inside[1] = f"{column}.i"
        wide = find(plan.kernel, column)
        assert wide is not None
    for at, factor in enumerate((LINE_POINTS, lanes)):
        name = inside[at]
        fixed = constant((last, wide)[at].extent)
        if fixed is None or factor < fixed:
            # The last of several blocks may be shorter: what it has beyond squares goes alone.
            schedule.split(name, factor, "peel" if fixed is None else "overlap")
            outer.append(f"{name}.o")
            inside[at] = f"{name}.i"
    if whole is None or whole % lanes == 0:
        schedule.reorder(*outer, *inside)
    schedule.unroll(inside[0]).vectorize(inside[1])


def _reaching(plan: Plan, axes: list[str], column: str) -> int:
    """Return how many of the last axes a copy reads on through, from where an inner one ends.

    A square must not reach over a gap: its rows would be gathered element by element, each at a
    place that is found by division.
    """
    found = [find(plan.kernel, name) for name in [*axes, column]]
    loops = [f for f in found if f is not None]
    if len(loops) < len(found):
        return len(axes)
    space = Space(plan.kernel)
    read = [a for a in accesses(loops.pop().body) if not a.write]
    count = 1
    for at, loop in enumerate(reversed(loops)):
        inner = loops[-1]
        if any(flat_stride(space, a, loop.var) != (flat_stride(space, a, inner.var) or 0) * count
               for a in read):
            return at
        count *= size_of(loop.extent)
    return len(axes)
