"""Contractions on devices of threads: a group for each block of results, a tile for each thread.

A group copies a block of each operand into its memory, in steps along a reduced axis, and each of
its threads adds products up for a tile of results that it keeps in registers::

    for block parallel:
      for t thread.x: s[t, :, :] = 0
      for k.o:
        for t thread.x: copy a[block rows, k.o] and b[k.o, block columns]
        for t thread.x: for k.i: s[t, :, :] += a.w[k.i, rows of t] * b.w[k.i, columns of t]
      for t thread.x: out[rows of t, columns of t] = epilogue(s[t, :, :])

Neighbouring threads have neighbouring columns, so that a warp stores whole transfers and reads
different banks; rows of a copy that is turned on the way are moved against each other for that.

Rows may be one loop, or all loops that index the one operand alone as a single loop; the same is
true of columns and of terms. So convolutions are implicit matrix products: their rows are images,
lines and columns of results, their terms channels and taps, and the copies hold what the windows
show, zeros of the padding among it. The form that takes less time by the figures of the target is
chosen, the other where that is not legal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from weft.errors import ScheduleError
from weft.ir.stmt import Axis, For
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Access, Space, accesses
from weft.strategies.common.aliased_operands import separate_aliases
from weft.strategies.common.contraction_pattern import Pattern, match
from weft.strategies.common.nest import Plan, flat_stride, power_above, product, size_of
from weft.strategies.threads.sharing import (
    copy_block,
    copy_points,
    fuse_all,
    fuse_axes,
    sectors_of,
)
from weft.target import (
    BANKS,
    BYTE_COST,
    COPY_STEPS,
    GROUP_SIDES,
    SECTOR_BYTES,
    THREAD_TILES,
    Target,
)

__all__ = ["schedule_contraction"]

_WHY: Final = "blocks of {0}x{1} results by groups, {2}x{3} by each thread, {4} terms a step"
_TEXT: Final = "{0}x{1}/{2}x{3}/{4}"  # of a block, as a search names it
_LEAST: Final = 16  # rows, columns and terms from which on blocks pay
_FEW: Final = 4  # rows that are enough beside many columns, and columns beside many rows


class _Block(NamedTuple):
    """Results of a group along one axis, those of a thread, and the terms of a step."""

    rows: int
    columns: int
    tall: int
    wide: int
    terms: int

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.tall * self.wide)


class _Form(NamedTuple):
    """The loops over rows and columns of blocks, and the axes of terms, each as one loop."""

    rows: tuple[For, ...]
    columns: tuple[For, ...]
    axes: tuple[Axis, ...]

    @property
    def parts(self) -> tuple[tuple[For | Axis, ...], ...]:
        return self.rows, self.columns, self.axes

    @property
    def sizes(self) -> tuple[int, int, int]:
        rows, columns, terms = (product(loop.extent for loop in part) for part in self.parts)
        return rows, columns, terms

    @property
    def is_joined(self) -> bool:
        return any(len(part) > 1 for part in self.parts)


def schedule_contraction(plan: Plan, root: str) -> bool:
    """Schedule a nest if it is a contraction with enough rows, columns and terms; whether it is."""
    pattern = match(plan, root)
    if pattern is None:
        return False
    apart = separate_aliases(plan, pattern)
    if apart:
        pattern = match(plan, root)
        assert pattern is not None
    for form, block in _choices(plan, pattern):
        saved = plan.schedule.mark()
        try:
            _apply(plan, pattern, form, block)
        except ScheduleError as error:
            plan.schedule.reset(saved)
            plan.why.append(f"not {error.operation}: {error.found}")
            continue
        if apart:
            plan.schedule.unite()
        plan.why.append(_WHY.format(*block))
        return True
    return False


def _choices(plan: Plan, pattern: Pattern) -> list[tuple[_Form, _Block]]:
    """Return the forms that are large enough with their blocks, what takes the least time first."""
    found = []
    for form in dict.fromkeys(_forms(plan, pattern)):
        if _is_large(form):
            found += [(*best, form) for best in [_block(plan, pattern, form)] if best is not None]
    found.sort(key=lambda choice: choice[0])
    first = plan.pick("form", 0, range(len(found)))
    return [(form, block) for _, block, form in (*found[first:], *found[:first])]


def _is_large(form: _Form) -> bool:
    """Whether there are enough rows, columns and terms for blocks."""
    rows, columns, terms = form.sizes
    few, many = sorted((rows, columns))
    enough = few >= _LEAST or (form.is_joined and few >= _FEW and many >= _LEAST * _LEAST)
    return enough and terms >= _LEAST


def _forms(plan: Plan, pattern: Pattern) -> Iterator[_Form]:
    """Yield the forms of a contraction: of the longest loops, and of all.

    Columns are what lies side by side in the result.
    """
    left = [r for r in pattern.rows if r.var in pattern.left and r.var not in pattern.right]
    right = [r for r in pattern.rows if r.var in pattern.right and r.var not in pattern.left]
    if not left or not right:
        return
    space = Space(plan.kernel)
    written = [a for a in accesses(pattern.rows[-1].body) if a.write]

    def lies_along(loop: For) -> bool:
        return any(flat_stride(space, a, loop.var) == 1 for a in written)

    def form(rows: list[For], columns: list[For], axes: list[Axis]) -> _Form:
        if any(map(lies_along, rows)):
            rows, columns = columns, rows
        return _Form(tuple(rows), tuple(columns), tuple(axes))

    row, column = (max(loops, key=lambda r: (lies_along(r), size_of(r.extent)))
                   for loops in (left, right))
    yield form([row], [column], [max(pattern.reduce.axes, key=lambda a: size_of(a.extent))])
    reads = [a for a in accesses(pattern.reduce.body) if a.memory.scope == "global"]

    def least_step(axis: Axis) -> int:
        steps = [flat_stride(space, a, axis.var) for a in reads]
        return min((abs(s) for s in steps if s), default=0)

    axes = sorted(pattern.reduce.axes, key=least_step, reverse=True)
    if all(constant(loop.extent) is not None for part in (left, right, axes) for loop in part[1:]):
        yield form(left, right, axes)  # else places in a joined loop would be real divisions


def _block(plan: Plan, pattern: Pattern, form: _Form) -> tuple[int, _Block] | None:
    """Return the block that takes the least time, and that; None if no memory of groups has room.

    The unit is a multiply-add. An element that is copied takes the time of its part of a transfer,
    and where loops were joined that of the quotients which say where it is.
    """
    space = Space(plan.kernel)
    reads = [a for a in accesses(pattern.reduce.body) if a.memory.scope == "global"]
    itemsize = max((a.memory.dtype.itemsize for a in reads), default=1)
    rows, columns, terms = form.sizes
    others = product(r.extent for r in pattern.rows if r not in (*form.rows, *form.columns))
    steps = product(a.extent for a in pattern.reduce.axes if a not in form.axes)
    copied = [(_side(space, a, form) is form.rows, _copy_cost(plan, space, a, form)) for a in reads]
    times: dict[str, tuple[int, _Block]] = {}
    for block in _blocks(plan.target, itemsize, rows, columns):
        count = others * -(-rows // block.rows) * -(-columns // block.columns)
        results = block.rows * block.columns
        shared = block.threads * (block.tall + block.wide)  # reads of the group's memory
        copies = sum((block.rows if is_row else block.columns) * cost for is_row, cost in copied)
        time = (-(-count // max(plan.threads, 1)) * steps * -(-terms // block.terms) * block.terms
                * (results + shared + copies))  # fmt: skip
        times[_TEXT.format(*block)] = time, block
    if not times:
        return None
    best = min(times, key=lambda text: times[text][0])
    return times[plan.pick("block", best, times, form)]


def _copy_cost(plan: Plan, space: Space, access: Access, form: _Form) -> int:
    """Return the multiply-adds in whose time one element of an operand is copied."""
    side = _side(space, access, form)
    sectors = min(sectors_of(space, access, part) for part in (side, form.axes))
    quotients = len(side) + len(form.axes) - 2
    return int(sectors * SECTOR_BYTES * BYTE_COST) + quotients * plan.costs.quotient_cycles


def _side(space: Space, access: Access, form: _Form) -> tuple[For, ...]:
    """Return the rows or the columns, whichever an operand varies with."""
    is_row = any(flat_stride(space, access, r.var) != 0 for r in form.rows)
    return form.rows if is_row else form.columns


def _is_turned(space: Space, access: Access, form: _Form) -> bool:
    """Whether the terms of an operand lie side by side in memory rather than its rows."""
    along = sectors_of(space, access, form.axes)
    return along < sectors_of(space, access, _side(space, access, form))


def _blocks(target: Target, itemsize: int, rows: int, columns: int) -> list[_Block]:
    """Return the blocks that a group has threads, registers and memory for, the largest first."""
    side = next((s for s in GROUP_SIDES if s * s <= target.max_items), 0)
    if not side:
        return []
    high, across = min(power_above(rows), side), min(power_above(columns), side)
    if high < across:  # threads of a column that are too many for it are better beside it
        across = side * side // high
    elif across < high:
        high = side * side // across
    found = []
    for tall in reversed(THREAD_TILES):
        for wide in reversed(THREAD_TILES):
            if 0 < target.item_registers < tall * wide + tall + wide:
                continue
            for terms in COPY_STEPS:
                block = _Block(high * tall, across * wide, tall, wide, terms)
                skewed = block.rows + block.columns + 2 * BANKS // terms
                if 2 * skewed * terms * itemsize <= target.shared_bytes:
                    found.append(block)
                    break
    return found


def _apply(plan: Plan, pattern: Pattern, form: _Form, block: _Block) -> None:
    schedule = plan.schedule
    name = pattern.reduce.accumulators[0].var.attr
    space = Space(plan.kernel)
    turned = {a.memory: _is_turned(space, a, form) for a in accesses(pattern.reduce.body)}
    if form.is_joined:
        plan.attempt("unmask", name)
    plan.attempt("contract", name)
    names, i, j, k = _joined(plan, pattern, form)
    schedule.split(i, block.rows).split(f"{i}.i", block.rows // block.tall)
    schedule.split(j, block.columns).split(f"{j}.i", block.columns // block.wide)
    outer = [*[n for n in names if n not in (i, j)], f"{i}.o", f"{j}.o"]
    threads, tile = [f"{i}.i.i", f"{j}.i.i"], [f"{i}.i.o", f"{j}.i.o"]
    for loop in dict.fromkeys([*names, f"{i}.o", f"{i}.i.o", f"{i}.i.i", f"{j}.o"]):
        plan.attempt("sink", loop)
    schedule.reorder(*outer, *threads, *tile)
    axes = [a.var.attr for a in pattern.reduce.axes if a not in form.axes]
    schedule.split(k, block.terms)
    if axes:
        schedule.reorder(*axes, f"{k}.o", f"{k}.i")
    schedule.decompose_reduction(name, threads[0], scope="local")
    schedule.reorder(*threads, f"{k}.i", *tile)
    for memory, is_turned in turned.items():
        if form.is_joined:
            skew = max(BANKS // block.terms, 1) if is_turned else 0
            copy_points(plan, memory, f"{k}.o", (i, j), skew, block.threads)
        else:
            copy_block(plan, memory, f"{k}.o", block.terms, block.threads)
    for suffix in (".z", "", ".f"):
        schedule.bind(*[f"{t}{suffix}" for t in threads])
        for loop in tile:
            schedule.unroll(f"{loop}{suffix}")
    schedule.parallel(*outer)


def _joined(plan: Plan, pattern: Pattern, form: _Form) -> tuple[list[str], str, str, str]:
    """Make one loop of the rows, the columns and the terms of a form.

    Returns the names of all loops around the sum, and of these three.
    """
    names = [r.var.attr for r in pattern.rows]
    rows, columns, axes = ([loop.var.attr for loop in part] for part in form.parts)
    if not form.is_joined:
        return names, rows[0], columns[0], axes[0]
    others = [n for n in names if n not in (*rows, *columns)]
    plan.schedule.reorder(*others, *rows, *columns)
    i, j = fuse_all(plan, rows), fuse_all(plan, columns)
    k = fuse_axes(plan, pattern.reduce.accumulators[0].var.attr, axes)
    return [*others, i, j], i, j, k
