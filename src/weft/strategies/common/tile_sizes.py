"""Tiles of the outer form: how wide and how high they are, and who shares what they read."""

from __future__ import annotations

from typing import Final

from weft.ir.record import Record
from weft.ir.stmt import For
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Access, Space, accesses
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    is_wished,
    may_repeat,
    native_lanes,
    time_of_moves,
)
from weft.strategies.common.nest import Cost, Plan, flat_stride, product, registers, size_of

FEW_STEPS: Final = 16  # of a sum, in which no more is read again than is written
FEW_STEPS_FAR: Final = 64  # the same for results that the second cache does not hold
BROAD: Final = Parameters(rows=6, vectors=4)  # a tile of nearly as many registers as there are
TALLEST: Final = 14  # rows of a tile, more of which would only be more code
EVEN: Final = 0.9  # of the threads have work on average, or rows are shared out instead
SHORT_ROW: Final = 2048  # bytes of a row, of whose pieces a core asks for lines of the next one
MOST_PIECES: Final = 7  # of a row of a tile: more would leave too few rows


def row_vectors(plan: Plan, pattern: Pattern, p: Parameters, row: For, wide: For
                ) -> tuple[int, int]:
    """Return how many vectors make a row of results and their elements, 0 if tiles do better.

    An odd number of halves wastes less than whole vectors where a row is hardly longer than these
    and two halves are multiplied in the time of a whole one. An odd number of whole ones is no
    multiple of a broader tile. Where units take nothing but whole ones, the last may overlap, and
    a long row that the second cache gives is cut into two: it gives a low tile too little in time.
    Many rows read it from panels instead. Few vectors are read as they lie from the second cache as
    a whole there: strips of them would read the other operand, often more, once each.
    """
    native, n = native_lanes(plan, pattern), constant(wide.extent)
    if plan.target.vector_bytes <= 32 or n is None or n <= native or scattered(
            plan, pattern, wide):
        return 0, native
    space = Space(plan.kernel)
    reads = [a for a in accesses(pattern.reduce.body) if flat_stride(space, a, wide.var) != 0]
    points = product(a.extent for a in pattern.reduce.axes)
    most = plan.target.l2_bytes * 3 // 4 if plan.target.whole_vectors else p.panel_bytes
    if any(flat_stride(space, a, wide.var) != 1 or span(space, pattern, a, wide) > min(
            most, n * points * a.memory.dtype.itemsize) for a in reads):
        return 0, native  # what does not lie close together becomes a panel, or several
    for lanes in (native // 2, native) if in_halves(plan) else (native,):
        pieces = -(-n // lanes)
        odd = pieces % 2 or (n % lanes and not in_halves(plan))
        if not odd or pieces > MOST_PIECES:
            continue
        near = all(span(space, pattern, a, wide) <= plan.target.l1_bytes for a in reads)
        if lanes < native or near or pieces <= BROAD.vectors + 1:
            return pieces, lanes
        if plan.target.whole_vectors:
            many = size_of(row.extent) >= sharing_rows(plan, p, pattern, wide)
            pieces = 0 if many else -(-pieces // 2)
        return pieces, lanes
    return 0, native


def sharing_rows(plan: Plan, p: Parameters, pattern: Pattern, wide: For) -> int:
    """Return the rows from which on they share a copy of a panel.

    Fewer do where a vector across two lines takes as long as two multiplications more, and least
    where the lines of a strip fall into the same few places of the first cache.
    """
    if not plan.target.whole_vectors:
        return p.pack_rows
    space, axis = Space(plan.kernel), pattern.reduce.axes[-1]
    steps = [(flat_stride(space, a, axis.var) or 0) * a.memory.dtype.itemsize
             for a in accesses(pattern.reduce.body) if flat_stride(space, a, wide.var) == 1]
    crowded = any(step and step % (plan.costs.page_bytes // 2) == 0 for step in steps)
    return p.pack_rows // 2 if crowded else p.pack_rows * 2 // 3


def in_halves(plan: Plan) -> bool:
    """Whether a vector is worked on in two halves, so that half of one takes half the time."""
    return plan.target.vector_bytes > 32 and not plan.target.whole_vectors


class Step(Record):
    """What a step of a tile reads: ``native`` elements fill a vector, a row has ``line`` bytes."""

    native: int
    line: int

    def time(self, plan: Plan, rows: int, vectors: int) -> int:
        """Return about how long a step takes, in products.

        Unless the first cache holds a panel beside the rows of a tile, the second one gives it, a
        line in the time of one product or two.
        """
        if not plan.target.whole_vectors:
            return rows * vectors + vectors
        near = self.line * (rows + vectors * self.native) <= plan.target.l1_bytes
        costs = plan.costs
        return rows * vectors + (costs.near_step_cost // vectors if near else costs.whole_step_cost)


def step_of(pattern: Pattern, native: int) -> Step:
    """Return what a step of a contraction reads."""
    points = product(a.extent for a in pattern.reduce.axes)
    return Step(native, points * Cost(pattern.rows[-1].body).itemsize)


def tall_rows(plan: Plan, n: int, vectors: int, step: Step) -> int:
    """Return how many of `n` rows a tile takes that fills the registers: the least time."""
    most = min((registers(plan) - 1 - vectors) // vectors, TALLEST)
    return min(range(min(most, n), most // 2, -1), default=n,
               key=lambda r: -(-n // r) * step.time(plan, r, vectors))


def tile_height(plan: Plan, pattern: Pattern, p: Parameters, row: For, pieces: int) -> int:
    """Return the rows of a tile of some vectors: with those of one row, they are in registers."""
    if plan.target.whole_vectors and p.rows == Parameters().rows and not is_wished(plan):
        # Rows as they lie have vectors across two lines: no cache is near enough for these.
        far = Step(native_lanes(plan, pattern), plan.target.l1_bytes)
        return tall_rows(plan, size_of(row.extent), pieces, far)
    n, most = size_of(row.extent), (registers(plan) - 1 - pieces) // pieces
    return min(range(min(p.rows, most, n), 0, -1), key=lambda r: -(-n // r) * (
        max(r * pieces, r + pieces, 8) + plan.costs.step_cost))


def is_filled_up(plan: Plan, pattern: Pattern, p: Parameters, wide: For) -> bool:
    """Whether a row is one and a part of another vector of a panel, rather than two that overlap.

    It is read twice otherwise, by tiles that take units of whole vectors too little in a step.
    """
    native, n = native_lanes(plan, pattern), constant(wide.extent)
    if not plan.target.whole_vectors or n is None or not native < n < 2 * native:
        return False
    cost, space = Cost(pattern.rows[-1].body), Space(plan.kernel)
    points = product(a.extent for a in pattern.reduce.axes)
    return 2 * points * native * cost.itemsize <= p.panel_bytes and any(
        flat_stride(space, a, wide.var) not in (0, 1) for a in accesses(pattern.reduce.body))


def rows_once(plan: Plan, pattern: Pattern, row: For, wide: For) -> bool:
    """Whether rows come from memory and the other operand, of less, from the second cache."""
    line = step_of(pattern, native_lanes(plan, pattern)).line
    rows, columns = (line * size_of(loop.extent) for loop in (row, wide))
    far = max(rows, size_of(row.extent) * size_of(wide.extent) * line // max(product(
        a.extent for a in pattern.reduce.axes), 1))
    return plan.target.whole_vectors and far > plan.target.l2_bytes // 2 and (
        2 * columns <= min(rows, plan.target.l2_bytes // 2))


def share_rows(plan: Plan, pattern: Pattern, row: For, rows: int, rest: list[str]) -> str:
    """Give each thread rows of its own, and so its own copies; return the loop over these."""
    name, n = str(row.var.attr), constant(row.extent)
    share = 0 if n is None else -(-n // plan.threads)
    if share < 2 * rows or not may_repeat(pattern):
        return name
    plan.schedule.split(name, share, "overlap")
    rest.append(f"{name}.o")
    return f"{name}.i"


def should_share_rows(plan: Plan, pattern: Pattern, row: For, wide: For, strips: int,
                      packed: dict[str, bool]) -> bool:
    """Whether threads take rows rather than strips of columns.

    Strips may be uneven, or end within a line of the results, which goes from thread to thread in
    every row then, or among lines that the other thread's core asks for ahead. Threads that share
    rows each read, or copy, the other operand as a whole.
    """
    if packed and strips < EVEN * -(-strips // plan.threads) * plan.threads:
        return True
    space, line = Space(plan.kernel), plan.target.line_bytes
    written = [a for a in accesses(pattern.rows[-1].body) if a.write]
    cut = [a for a in written if flat_stride(space, a, wide.var) == 1 and (
        (flat_stride(space, a, row.var) or 0) * a.memory.dtype.itemsize % line
        or size_of(wide.extent) * a.memory.dtype.itemsize <= SHORT_ROW)]
    moved = product([wide.extent, *[a.extent for a in pattern.reduce.axes]])
    time = time_of_moves(plan, pattern, moved) if True in packed.values() else (
        moved * Cost(pattern.rows[-1].body).itemsize // plan.costs.lane_move_bytes)
    shared = plan.costs.line_transfer_cycles * len(cut) * size_of(row.extent)
    return time * (plan.threads - 1) < shared * plan.threads


def span(space: Space, pattern: Pattern, access: Access, wide: For) -> int:
    """Return the bytes from the first to the last element that one tile of results may read."""
    steps = [(a.extent, flat_stride(space, access, a.var)) for a in pattern.reduce.axes]
    steps.append((wide.extent, flat_stride(space, access, wide.var)))
    if any(step is None for _, step in steps):
        return size_of(access.memory.size) * access.memory.dtype.itemsize
    return access.memory.dtype.itemsize * (
        1 + sum((size_of(extent) - 1) * abs(step or 0) for extent, step in steps))


def lies_near(plan: Plan, pattern: Pattern, wide: For) -> bool:
    """Whether the first cache holds what one row of tiles reads along `wide`.

    The second one does where few steps lead to results that it does not hold: these take longer.
    """
    space, near = Space(plan.kernel), plan.target.l1_bytes
    written = [a.memory for a in accesses(pattern.rows[-1].body) if a.write]
    if product(a.extent for a in pattern.reduce.axes) <= FEW_STEPS and all(
            size_of(m.size) * m.dtype.itemsize > plan.target.l2_bytes for m in written):
        near = plan.target.l2_bytes // 2
    return all(2 * span(space, pattern, a, wide) <= near
               for a in accesses(pattern.reduce.body) if flat_stride(space, a, wide.var) != 0)


def scattered(plan: Plan, pattern: Pattern, wide: For) -> bool:
    """Whether neighbours along `wide` are not neighbours in a result."""
    space = Space(plan.kernel)
    return any(flat_stride(space, a, wide.var) not in (0, 1)
               for a in accesses(pattern.rows[-1].body) if a.write)
