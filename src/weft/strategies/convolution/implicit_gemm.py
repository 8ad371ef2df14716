"""The window form of a contraction: convolutions as a matrix product that is never written out.

The operand that is read through windows (overlapping, strided, or masked where they reach over the
border) is read where it lies if nothing outside of it is asked for there. Else it is copied row by
row into a box of its own: read once, without masks, with its zeros in place. The lanes run along
the output channels, so any stride and any width fill the registers; the rows of the register tile
are neighbouring positions.
"""

from __future__ import annotations

from typing import Final

from weft.ir import expr as ex
from weft.ir import traverse
from weft.ir.stmt import PARALLEL, For, Load
from weft.schedule.analysis.space import constant, scan
from weft.schedule.analysis.subscripts import Space, accesses
from weft.strategies.common.accumulation_error import chain_steps, short_chains
from weft.strategies.common.contraction_pattern import (
    LINE_POINTS,
    Parameters,
    Pattern,
    block_sums,
    copy_loops,
    copy_strided,
    epilogue_cost,
    native_lanes,
    order_loops,
    tile_rows,
    tile_split,
    work_of,
)
from weft.strategies.common.convolution_pattern import (
    Windowed,
    copy_box,
    even_block,
    is_adjoint,
    is_convolution,
    lies_near,
    prepare,
    run_past,
    sum_chains,
    taps_last,
)
from weft.strategies.common.nest import (
    Cost,
    Plan,
    chain_of,
    find,
    flat_stride,
    loop_of,
    product,
    registers,
    shares_evenly,
    size_of,
)
from weft.strategies.convolution.epilogue_transpose import finish_block, turned

COPY_SHARE: Final = 32  # copying weights should take no more than one part of so many
MOST_TILES: Final = 2  # of a row that is written out
EDGE: Final = 64  # positions at the ends of a row that are looked at
MOST_TAPS: Final = 28  # of a gradient by weights in a tile of one vector: windows of 5 x 5
WRITTEN: Final = 12  # taps of a row are written out if one of so many is outside
MOST_EDGES: Final = 4  # positions of a row with branches of their own
COPIED_POSITIONS: Final = 400  # results of a channel from which on copying its weights is cheap


def schedule_window(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the window form; whether it fits and pays."""
    return try_in_place(plan, pattern, p, Convolution)


def try_in_place(plan: Plan, pattern: Pattern, p: Parameters,
                 kind: type[Convolution]) -> bool:
    """Schedule a convolution that reads the image where it lies, if that needs no masks.

    Else a box is copied, in which what lies outside is 0. Returns whether the form fits.
    """
    found, saved, reasons = prepare(plan, pattern, p), plan.schedule.mark(), len(plan.why)
    if found is None:
        return False
    image = found[0].image.memory
    for boxed in (False, True):
        ordered = taps_last(plan, pattern, found[0], found[0].positions[-1:])
        made = kind(plan, ordered, *found, p, boxed)
        fits = made.apply()
        if not fits or made.boxed or not any(
                isinstance(s, Load) and s.memory is image and s.mask is not None
                for s in traverse.walk(plan.kernel.body)):
            break
        plan.schedule.reset(saved)
        del plan.why[reasons:]
    return fits


class Convolution:
    """One convolution on its way through the primitives."""

    def __init__(self, plan: Plan, pattern: Pattern, found: Windowed, lanes: int,
                 p: Parameters, boxed: bool) -> None:
        self.plan, self.pattern, self.found, self.p = plan, pattern, found, p
        self.chains = sum_chains(plan, pattern, found, p)
        self.lanes = lanes
        self.rows = p.window_rows if registers(plan) >= 32 else 6
        if lanes <= native_lanes(plan, pattern):
            self.rows = self.rows * 3 // 2
            if registers(plan) >= 32 and not is_convolution(Space(plan.kernel), pattern, found):
                self.rows = max(self.rows, MOST_TAPS)
        self.name = pattern.reduce.accumulators[0].var.attr
        self.itemsize = Cost(pattern.rows[-1].body).itemsize
        self.axes = [a.var.attr for a in pattern.reduce.axes]
        self.cut = self.axes[0]  # the axis that is cut if the reduction is
        self.length = 0  # of its blocks
        self.blocked = self.packed = False
        self.x = found.positions[-1].var.attr  # the loop along a row, or a share of one
        self.written = False  # whether a row's taps are written out
        self.taps: list[str] = []  # the axes of these
        self.boxed = boxed  # whether to copy what is read of the images
        self.omitted = self._omit()

    def apply(self) -> bool:
        """Apply the schedule; whether it fits."""
        plan, found = self.plan, self.found
        schedule = plan.schedule
        amount = work_of(plan, self.pattern)
        o, x = found.channels[0].var.attr, found.positions[-1].var.attr
        width = size_of(found.positions[-1].extent)
        if amount >= plan.costs.parallel_work and self._half_tiles_share():
            self.lanes, self.rows = self.lanes // 2, self.rows * 3 // 2
        tile_split(plan, o, found.channels[0].extent, self.lanes)
        rest = [f.var.attr for f in found.positions[:-1]]
        high = self._second(width)
        group = high if high > 1 else self._group(width)
        inner = [x, f"{o}.i"]
        if high > 1 or group > 1:
            y = rest.pop()
            tile_split(plan, y, found.positions[-2].extent, group)
            inner.insert(0, f"{y}.i")
            rest.append(f"{y}.o")
        near = [*[f.var.attr for f in found.shared], *rest]
        last = self._channels_last(near)
        outer = [*near, f"{o}.o"] if last else [
            *[f.var.attr for f in found.shared], f"{o}.o", *rest]
        outer = self._chunks(outer, f"{o}.o", amount)
        # The lanes go inside alone first: while other loops stand still, that is easy to prove.
        for loop in [*inner, *outer]:
            schedule.sink(loop)
        below = [f.var.attr for f in chain_of(loop_of(self.plan, f"{o}.i"))]
        if below[1:]:
            schedule.reorder(*below[1:], below[0])
        order = order_loops(plan, outer, inner, amount)
        # The loop whose iteration reads one box: the innermost outer one; there may be none but
        # that of the channels, which stands outside all of them.
        image, weight = found.image.memory, found.weight.memory
        last = last and f"{o}.o" in order[1:] and order[-1] == f"{o}.o"
        if last and len(order) < 2:
            return False
        if last:
            self._pack(weight.name, order[0], f"{o}.i", f"{o}.o")
            self.packed = True
        loops = [*order, *inner]
        place = self._block(loops, f"{o}.o", len(order))
        if place is None:
            return False
        order = loops[:-len(inner)]
        box = order[-2] if last else order[-1]
        self._copy(f"{self.cut}.o" if self.blocked and (
            last or place not in order) else box, self.length)
        if not self.packed and (self.blocked or f"{o}.o" in order):
            self._pack(weight.name, f"{self.cut}.o" if self.blocked else f"{o}.o", f"{o}.i")
        if self.blocked:
            finish_block(plan, self.pattern, self.p, x, f"{o}.i")
        rows = self._rows(x, width, inner[0] if high > 1 else "", high)
        self._tile(rows, f"{o}.i")
        plan.why.append(f"contraction: windows of {image.name} copied without masks, results in "
                        f"registers along {', '.join(rows)} and {o}.i")
        return True

    def _copy(self, loop: str, steps: int) -> None:
        """Copy the box that a loop's turn reads, unless it is as near where it lies.

        Windows of one point read all anew: a box is read in the order of memory.
        """
        counts = {a.var: size_of(a.extent) for a in self.pattern.reduce.axes}
        if steps:
            cut = next(v for v in counts if v.attr == self.cut)
            counts[cut] = steps
        x = self.found.positions[-1]
        counts[x.var] = min(size_of(x.extent), self.rows)
        self.boxed |= len(self.axes) < 2 or not lies_near(self.plan, self.found.image, counts)
        if self.boxed:
            copy_box(self.plan, self.found.image, loop)

    def _omit(self) -> bool:
        """Leave out terms that lie outside of the image, if they are many enough for the branches.

        Those of a row are known when a short row is written out; else each position at an end of
        a tile has a branch. In a gradient of weights, whose tile has all taps, each step would have
        several. In one of images nothing else will do: 0 times an infinite weight would be NaN.
        """
        plan, x = self.plan, self.found.positions[-1]
        space, width = Space(plan.kernel), size_of(x.extent)
        image = self.found.image
        adjoint = is_adjoint(space, self.pattern, self.found)
        beside = [(space.poly(i), size_of(n), a) for a in self.pattern.reduce.axes
                  for i, n in zip(image.index, image.memory.shape, strict=True)
                  if {x.var, a.var} <= ex.free_vars([i])]
        if any(size_of(a.extent) > width for _, _, a in beside):
            return adjoint and plan.attempt("omit", self.name, alone=adjoint)
        edges = outside = taps = 0
        for place, n, axis in beside:
            start, step, tap = (place.get(m, 0) for m in ((), (x.var,), (axis.var,)))
            taps = size_of(axis.extent)
            ends = [p for p in range(width) if min(p, width - 1 - p) < EDGE]
            counts = [sum(not 0 <= start + step * p + tap * q < n for q in range(taps))
                      for p in ends]
            edges += sum(c > 0 for c in counts)
            outside += sum(counts)
        if width <= MOST_TILES * self.rows and outside * WRITTEN >= width * taps:
            self.written = plan.attempt("omit", self.name, alone=adjoint)
            if self.written:
                self.taps = [a.var.attr for _, _, a in beside]
                # Chains have so many terms less.
                chain = self.chains.nested_chain * width * taps // max(width * taps - outside, 1)
                self.chains = self.chains.replace(nested_chain=chain)
            return self.written
        still = [x.var.attr] if edges > MOST_EDGES and not adjoint else []
        return plan.attempt("omit", self.name, *still, alone=adjoint)

    def _half_tiles_share(self) -> bool:
        """Whether threads share out tiles of half as many channels, and nothing else as well.

        Else each iteration of the loop that they share copies the weights, if it cannot be cut.
        """
        plan, found, threads = self.plan, self.found, self.plan.threads
        native = native_lanes(plan, self.pattern)
        if threads < 2 or found.shared or self.lanes <= native or len(found.positions) < 3:
            return False
        n, channels = size_of(found.positions[0].extent), size_of(found.channels[0].extent)
        each = product(f.extent for f in found.positions[1:])
        cut = any(n % d == 0 and shares_evenly(n // d, threads) for d in range(2, n // threads + 1))
        return (not cut and COPY_SHARE * native >= 2 * plan.costs.lane_moves * each
                and not shares_evenly(-(-channels // self.lanes), threads)
                and shares_evenly(-(-channels // (self.lanes // 2)), threads))

    def _chunks(self, outer: list[str], channel: str, amount: int) -> list[str]:
        """Cut the loop that threads share into runs that copy the weights once.

        The loop stands outside the copy, so each of its iterations would copy them again: nothing
        for large images, most of the time for small ones and for gradients of weights.
        """
        plan, threads = self.plan, self.plan.threads
        sizes = {name: size_of(loop_of(self.plan, name).extent) for name in outer}
        good = [x for x in outer if shares_evenly(sizes[x], threads)]
        positions = {f.var.attr for f in self.found.positions}
        if not plan.is_worth_threads(amount) or not good or good[0] not in positions or (
                constant(loop_of(plan, good[0]).extent) is None):
            return outer
        shared, n = good[0], sizes[good[0]]
        each = product(f.extent for f in self.found.positions) // n  # results that share a weight
        moves = plan.costs.lane_moves * max(each, 1)
        wanted = COPY_SHARE * native_lanes(plan, self.pattern) // moves
        lengths = [d for d in range(2, n // threads + 1)
                   if n % d == 0 and shares_evenly(n // d, threads)]
        if wanted >= 4 and not lengths:  # uneven runs wait less than each iteration would copy
            lengths = [d for d in range(2, n // threads + 1)
                       if n % d == 0 and 5 * (-(n // d) % threads) <= n // d]
        if wanted < 2 or not lengths:
            return outer
        plan.schedule.split(shared, next((d for d in lengths if d >= wanted), lengths[-1]))
        at = outer.index(shared)
        return [f"{shared}.o", *outer[:at], f"{shared}.i", *outer[at + 1 :]]

    def _rows(self, x: str, width: int, above: str, high: int) -> list[str]:
        """Cut a row of positions into tiles; return the loops of a tile but for its lanes."""
        tile = tile_rows(width, self.rows // max(high, 1))
        if width > tile:
            tile_split(self.plan, x, loop_of(self.plan, x).extent, tile)
            self.plan.schedule.sink(f"{x}.i")
            if above:
                self.plan.schedule.reorder(f"{x}.o", above)
            x = f"{x}.i"
        return [above, x] if above else [x]

    def _around(self, loop: For) -> list[For]:
        """Return the loops over reduced axes around the update of a tile."""
        parents = next(p for s, p in scan(self.plan.kernel) if s is loop)
        found = [s for s in parents if isinstance(s, For)]
        return [s for s in found if s.var.attr.removesuffix(".i") in self.axes]

    def _second(self, width: int, count: int = 0) -> int:
        """Return how many rows of positions a tile takes where one is too short to fill it."""
        positions = self.found.positions
        if len(positions) < 2 or 2 * width > self.rows or constant(positions[-2].extent) is None:
            return 1
        vectors = max(self.lanes // native_lanes(self.plan, self.pattern), 1)
        n = count or size_of(positions[-2].extent)

        def cycles(high: int) -> int:  # of one step of all tiles, and of what surrounds one tile
            points = high * width
            return -(-n // high) * (max(points * vectors, vectors + points // 2, 8) + 1)

        return min(range(min(self.rows // width, n), 0, -1), key=cycles)

    def _group(self, width: int) -> int:
        """Return how many rows of positions share one box: neighbours read mostly the same."""
        positions = self.found.positions
        if len(positions) < 2 or constant(positions[-2].extent) is None:
            return 1
        space = Space(self.plan.kernel)
        around, step = 1, 1
        channels = 1
        for i in self.found.image.index:
            moves = {a.var: space.stride(i, a.var) for a in self.pattern.reduce.axes}
            span = sum(abs(m or 0) * (size_of(a.extent) - 1) for a, m in
                       zip(self.pattern.reduce.axes, moves.values(), strict=True)) + 1
            if space.stride(i, positions[-2].var):
                around, step = span, abs(space.stride(i, positions[-2].var) or 1)
            elif space.stride(i, positions[-1].var):
                channels *= span + width * abs(space.stride(i, positions[-1].var) or 1)
            else:
                channels *= span
        most = self.p.panel_bytes * 3 // 4 // max(channels * self.itemsize, 1)
        return tile_rows(size_of(positions[-2].extent),
                         max(min((most - around) // step + 1, 8), 1))

    def _block(self, loops: list[str], channel: str, outer: int) -> str | None:
        """Cut the reduction if the weights of a tile are more than the first cache holds.

        A panel of moderate size is copied once, and read block by block; of a larger one each
        block is copied for itself. Returns the outermost loop of the block, "" if none is needed,
        None if none fits. One of the first `outer` loops may be cut for it, also in the list.
        """
        reduce, p = self.pattern.reduce, self.p
        points = product(a.extent for a in reduce.axes)
        panel = points * self.lanes * self.itemsize
        if panel <= p.window_bytes:
            return ""
        whole = self.packed or (panel <= p.whole_bytes and channel in loops)
        room = (p.window_bytes if whole else p.panel_bytes // 2) // (self.lanes * self.itemsize)
        for axis in reduce.axes:  # of a gradient of weights the images, or the rows of all
            depth = size_of(axis.extent)
            one = points // depth  # points of the thinnest block
            most = min(room // one, max(p.chain // one, 2))
            if depth > 1 and most >= (1 if one >= p.chain else 2):
                break
        else:
            return "" if panel <= p.panel_bytes else None
        self.cut = axis.var.attr
        last = self.packed
        if whole and not self.packed:
            self._pack(self.found.weight.memory.name, channel, f"{channel[:-2]}.i")
            self.packed = True
        nests = [find(self.plan.kernel, name) for name in loops]
        first = max(loops.index(channel) - last if channel in loops else -1,
                    *[at for at, f in enumerate(nests) if f is not None and f.kind == PARALLEL],
                    -1) + 1
        room = min(p.panel_bytes, p.whole_bytes) // self.itemsize
        for at in range(first, len(loops) - 1):  # whole rows of a tile at least
            held = product(f.extent for f in nests[at:] if f is not None)
            if held > room and at < outer:
                extent = size_of(loop_of(self.plan, loops[at]).extent)
                inside = self._part(loops, at, room * extent // held)
                if inside:
                    loops[at : at + 1] = inside
                    at, held = at + 1, room
            if held <= room:
                self.length = even_block(depth, most)
                self.plan.schedule.block_reduction(self.name, loops[at], self.cut, self.length)
                self.blocked = True
                return loops[at]
        return "" if panel <= p.panel_bytes else None

    def _part(self, loops: list[str], at: int, most: int) -> list[str]:
        """Cut a loop of which not all results can wait, if those inside are no whole line.

        Results that leave for many of its iterations together leave as they lie in memory.
        """
        inside = {name.split(".")[0] for name in loops[at + 1:]}
        line = product(f.extent for f in self.found.positions if f.var.attr in inside)
        n = constant(loop_of(self.plan, loops[at]).extent) or 1
        part = max([d for d in range(1, most + 1) if n % d == 0], default=1)
        if line >= LINE_POINTS or part < 2:
            return []
        self.plan.schedule.split(loops[at], part)
        return [f"{loops[at]}.o", f"{loops[at]}.i"]

    def _channels_last(self, outer: list[str]) -> bool:
        """Whether a box serves all channels: all weights are near, and copied seldom enough."""
        found = self.found
        if not outer:
            return False
        channels = -(-size_of(found.channels[0].extent) // self.lanes) * self.lanes
        points = product(a.extent for a in self.pattern.reduce.axes)
        several = product(loop_of(self.plan, name).extent for name in outer)
        positions = product(f.extent for f in [*found.shared, *found.positions])
        first = size_of(loop_of(self.plan, outer[0]).extent)
        return (channels > self.lanes and points * channels * self.itemsize <= self.p.whole_bytes
                and several > 1 and positions // first >= COPIED_POSITIONS)

    def _pack(self, memory: str, loop: str, column: str, *before: str,
              ahead: tuple[str, str] | None = None) -> None:
        """Copy weights into a panel; `ahead`: in a loop, fetch what the next of another reads."""
        plan = self.plan
        axes = [f"{a}.i" if self.blocked and a == self.cut else a for a in self.axes]
        space = Space(plan.kernel)
        weight = next(a for a in accesses(self.pattern.reduce.body) if a.memory.name == memory)
        steps_of = {a: flat_stride(space, weight, x.var)
                    for a, x in zip(axes, self.pattern.reduce.axes, strict=True)}
        axes.sort(key=lambda a: -abs(steps_of[a] or 0))  # as they lie: neighbours are read in turn
        for tap in self.found.apart:  # whose weights are others: none of its loops is outside
            if any(isinstance(f, For) and f.var is tap.var
                   for f in traverse.walk(loop_of(plan, loop).body)):
                loop = tap.var.attr
        if not plan.attempt("stage", memory, loop, (*before, *axes, column)):
            return
        space = Space(plan.kernel)
        inner = loop_of(self.plan, f"{column}.s")
        steps = {flat_stride(space, a, inner.var) for a in accesses(inner.body) if not a.write}
        if steps == {1}:
            plan.schedule.vectorize(f"{column}.s")
        else:
            loops = [loop_of(self.plan, f"{a}.s") for a in [*axes, column]]
            if ahead and self._piece(space, loops) < plan.costs.followed_run_bytes:
                plan.attempt("prefetch", memory, *ahead, granularity="panel", read=f"{axes[0]}.s")
            copy_strided(plan, [f"{a}.s" for a in axes], f"{column}.s")

    def _piece(self, space: Space, loops: list[For]) -> int:
        """Return how many bytes a copy reads that lie one behind the other."""
        read = next(a for a in accesses(loops[-1].body) if not a.write)
        steps = sorted((abs(flat_stride(space, read, f.var) or 0), size_of(f.extent))
                       for f in loops)
        count = 1
        for step, extent in steps:
            if step == count:
                count *= extent
        return count * self.itemsize

    def _skip(self, rows: list[str]) -> None:
        """Compute no terms that lie outside of the image: most of the time in a small one."""
        plan, x = self.plan, self.found.positions[-1].var
        around = self._around(loop_of(self.plan, rows[0]))
        if self.written:
            if rows[-1] != self.x:
                plan.attempt("unroll", f"{self.x}.o")
            beside = [ex.free_vars([i]) for i in self.found.image.index]
            for axis in around:
                if any(x in i and axis.var in i for i in beside):
                    plan.attempt("unroll", axis.var.attr)
                    # All taps of a position, then the next one: few places are in registers. Of
                    # two rows, each tap would ask for its row again.
                    if len(rows) == 1:
                        plan.attempt("reorder", *rows, axis.var.attr)
        for loop in [*[a.var.attr for a in around], *rows]:
            plan.attempt("branch", loop)

    def _tile(self, rows: list[str], column: str) -> None:
        schedule, name = self.plan.schedule, self.name
        run_past(self.plan, rows[0])
        # The error of a sum grows with the terms of one chain.
        if not self.blocked:
            p = short_chains(self.pattern, self.chains) if self.found.shared else self.chains
            steps = chain_steps(self.pattern, p, whole=self.taps)
            if steps:
                schedule.block_reduction(name, rows[0], *steps)
                self.blocked = True
                finish_block(self.plan, self.pattern, self.p, rows[-1], column)
        elif self.length:
            steps = chain_steps(self.pattern, self.chains, (self.cut, self.length),
                                whole=self.taps)
            if steps:
                name = f"{name}.b"
                block_sums(self.plan, name, rows[0], steps, column)
        if self.blocked:
            schedule.decompose_reduction(f"{name}.b", rows[0])
            copies = [*[f"{r}.f" for r in rows], f"{column}.f"]
        else:
            schedule.decompose_reduction(self.name, rows[0], spill=True)
            copies = copy_loops(self.plan, rows[0])
        for nest in ([*[f"{r}.z" for r in rows], f"{column}.z"], [*rows, column], copies):
            for row in nest[:-1]:
                schedule.unroll(row)
            schedule.vectorize(nest[-1])
        if self.omitted:
            self._skip(rows)
        if self.blocked:
            return
        last = [f"{r}.f" for r in rows]
        if epilogue_cost(self.pattern) > self.p.spill:
            schedule.vectorize(f"{column}.f")
            return
        if not turned(self.plan, f"{column}.f", last[-1:], *last[:-1]):
            schedule.vectorize(f"{column}.f")
