"""The outer form where results leave the caches and sums are short: panels before the tiles.

Results are written rows at a time, from left to right. Strips of them, one below the other, would
be fetched and written in pieces of lines, and no prefetcher follows them.
"""

from __future__ import annotations

from typing import Final

from weft.ir.stmt import For, Load
from weft.schedule.analysis.subscripts import Space
from weft.strategies.common.accumulation_error import chain_steps, register_tile
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    copy_strided,
    is_fixed,
    may_repeat,
)
from weft.strategies.common.nest import Cost, Plan, parallelise, product, size_of
from weft.strategies.gemm.register_tile_transposed import copy_tile, lies_apart

WIDE: Final = 4  # panels side by side from which on rows of results are longer than strips of them
FEW_TERMS: Final = 24  # of a sum, in whose time results are hardly written
EQUAL: Final = 2  # equal blocks may be so much smaller than those of which the last overlaps
WASTE: Final = 24  # columns of which one may be computed twice


def pack_operands_first(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For, rows: int,
                 lanes: int, amount: int) -> bool:
    """Whether the panels of whole rows are copied before their first result.

    The second cache holds them where sums are short. Where these have few terms, results that the
    first does not hold are reason enough, and many rows share the copy.
    """
    if not is_fixed(pattern):
        return False
    written = size_of(row.extent) * size_of(wide.extent) * Cost(pattern.rows[-1].body).itemsize
    few = product(a.extent for a in pattern.reduce.axes) <= FEW_TERMS and (
        size_of(row.extent) >= 4 * p.pack_rows)
    if few and size_of(wide.extent) >= 2 * lanes:
        far, least = plan.target.l1_bytes, 2 * lanes
    else:
        far, least = plan.target.l2_bytes, WIDE * lanes
    return (written > far and size_of(row.extent) >= 2 * p.pack_rows and _is_short(pattern, p)
            and _wide_columns(plan, pattern, p, wide, lanes) >= least
            and _blocks(plan, pattern, p, row, wide, rows, lanes, amount) is not None)


def _blocks(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For, rows: int,
            lanes: int, amount: int) -> tuple[int, int] | None:
    """Return the rows that share a copy of all panels, and the columns that have theirs at once.

    The last ones overlap those before them. What must not be computed twice is cut into blocks of
    whole tiles that are equal, if there are any of about that size.
    """
    n, m = size_of(row.extent), size_of(wide.extent)
    parts = plan.threads if plan.is_worth_threads(amount) else 1
    count = -(-max(-(-n // p.wide_rows), parts) // parts) * parts
    most = (min(-(-n // (count * rows)) * rows, n), _wide_columns(plan, pattern, p, wide, lanes))
    if may_repeat(pattern):
        return most
    sizes = [max((d for d in range(unit, block + 1, unit) if total % d == 0), default=0)
             for total, unit, block in ((n, rows, most[0]), (m, lanes, most[1]))]
    fit = all(size * EQUAL >= block for size, block in zip(sizes, most, strict=True))
    return (sizes[0], sizes[1]) if fit else None


def _is_short(pattern: Pattern, p: Parameters) -> bool:
    """Whether a sum does not start anew, or once."""
    axes = pattern.reduce.axes
    return chain_steps(pattern, p) is None or (
        len(axes) == 1 and 4 * size_of(axes[0].extent) <= 5 * p.chain)


def _wide_columns(plan: Plan, pattern: Pattern, p: Parameters, wide: For, lanes: int) -> int:
    """Return how many columns have their panels at once, 0 if none divide them well."""
    most = min(p.panel_bytes, plan.target.l2_bytes // 2)
    points = product(a.extent for a in pattern.reduce.axes)
    n, each = size_of(wide.extent), points * lanes * Cost(pattern.rows[-1].body).itemsize
    panels = -(-n // lanes)
    # The last columns overlap those before them: that is computed twice.
    fits = (c for c in range(min(most // each, panels), 0, -1)
            if WASTE * -(-panels // c) * c <= (WASTE + 1) * panels)
    return next(fits, 0) * lanes


def wide_tile(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For, rows: int,
              lanes: int, amount: int, memory: str, strided: bool) -> bool:
    """Schedule tiles from left to right, with all panels copied before; `amount` is the work."""
    schedule = plan.schedule
    i, j = row.var.attr, wide.var.attr
    outer = [r.var.attr for r in pattern.rows if r is not row and r is not wide]
    blocks = _blocks(plan, pattern, p, row, wide, rows, lanes, amount)
    assert blocks is not None
    size, width = blocks
    if width < size_of(wide.extent):
        schedule.split(j, width, "overlap")
        outer.append(f"{j}.o")
        j = f"{j}.i"
    schedule.split(i, size, "overlap")
    top, i = f"{i}.o", f"{i}.i"
    schedule.split(j, lanes, "overlap").split(i, rows, "overlap")
    inner = [f"{i}.o", f"{j}.o", f"{i}.i", f"{j}.i"]
    for loop in [*outer, top, *inner]:
        schedule.sink(loop)
    schedule.reorder(*outer, top, *inner)
    parallelise(plan, [*outer, top], amount)
    space = Space(plan.kernel)
    load = next(s for s in pattern.reduce.body if isinstance(s, Load) and s.memory.name == memory)
    used = set().union(*[space.symbols(e) for e in load.index])
    dims = [a.var.attr for a in pattern.reduce.axes if a.var in used]
    schedule.stage(memory, top, (f"{j}.o", *dims, f"{j}.i"))
    if strided:
        copy_strided(plan, [f"{d}.s" for d in dims], f"{j}.i.s")
    else:
        schedule.vectorize(f"{j}.i.s")
    plan.why.append(f"{memory} copied into panels, all of a row before its first result")
    others = [s.memory.name for s in pattern.reduce.body
              if isinstance(s, Load) and s.memory.name != memory]
    if len(others) == 1 and lies_apart(plan, pattern, row):
        copy_tile(plan, others[0], f"{i}.o")
        plan.why.append(f"{others[0]} copied tile by tile")
    register_tile(plan, pattern, p, f"{i}.i", [f"{j}.i"])
    plan.why.append(f"contraction: {rows}×{lanes} results in registers along {i} and {j}")
    return True
