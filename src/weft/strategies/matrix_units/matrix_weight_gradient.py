"""Gradients of bfloat16 convolutions by their weights, as products of matrices (AMX tiles).

A weight is the sum of products of two images, one of them moved by the place of the weight: words
are pairs of positions. Those of the gradient of the results are the rows of tiles; those of the
image are turned, the channels of a position side by side, with zeros around, and the tile for
another place of the weights begins elsewhere in the same copy, whatever the stride. Channels that
are few make columns together with places of the weights: the image is copied for each of these
then. Images and rows of them are gone through block by block, while the sums of all weights wait
near. Threads share what they have least to do for: channels of either image, or the terms of all
sums, which meet last.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from typing import Final

from weft.ir.dtype import bfloat16, uint32
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Load
from weft.schedule.analysis.sliding import PAIR
from weft.schedule.analysis.subscripts import Access, Space
from weft.schedule.data.matrix import SIDE
from weft.schedule.data.tensorize import SIDES, narrow_factors
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    block_sums,
    is_fixed,
    tile_split,
    work_of,
)
from weft.strategies.common.convolution_pattern import Windowed, find_windows, is_convolution
from weft.strategies.common.nest import (
    Plan,
    flat_stride,
    loop_of,
    parallelise,
    power_above,
    product,
    size_of,
    work,
)
from weft.strategies.matrix_units.dot_instructions import panel, transpose_words, whole
from weft.strategies.matrix_units.matrix_gemm import keep_tiles, tile_side

GROUP: Final = 2  # elements of a word
FEWEST: Final = 3  # channels of the image, and of results
LARGE_WINDOW: Final = 20  # places of the weights for which two channels of results are enough
CLOSE: Final = 4  # elements between neighbours that are read as vectors
FILLED: Final = 20  # results of one place of the weights, of several
FILLED_ALONE: Final = 32  # and of the only one
MOST_JOINED: Final = 2 * SIDE  # columns that channels and places of the weights make together
GATHERED: Final = 1.2  # times as long where the words of the gradient do not lie side by side
FETCH: Final = 34  # copies of an element in whose time a matrix comes from the second cache
ADD: Final = 1  # and in which a block adds to a sum that waits near
SCATTER: Final = 12  # and in which a result is stored


class _Share(Record):
    """What a thread takes: channels of the image and of results, points of an axis.

    Each thread sums ``part`` points of the axis ``parted``, all of them where that is empty.
    """

    columns: int
    rows: int
    parted: str = ""
    part: int = 0


class _Sizes(Record):
    """How a sum is cut: ``pairs`` and ``along`` are axes, that of words and that of matrices.

    ``counts`` are the points of each axis in a block, ``rows`` and ``columns`` of a tile are
    channels of results and of the image.
    """

    pairs: str
    along: str
    counts: tuple[int, ...]
    rows: int
    columns: int
    share: _Share


def schedule_gradient(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the form of products along positions; whether it fits.

    Raises
    ------
    ScheduleError
        If one copy does not serve all places of the weights.
    """
    if not plan.target.supports(Op.MATRIX2, uint32) or len(pattern.reduce.axes) < 2:
        return False
    factors = narrow_factors(pattern.reduce)
    found = find_windows(plan, pattern) or _find_images(plan, pattern)
    if found is None or factors is None or factors[0].dtype is not bfloat16:
        return False
    if found.weight.var not in factors or not is_fixed(pattern) or (
            is_convolution(Space(plan.kernel), pattern, found)):
        return False
    if len(found.channels) != 1 or not found.positions:
        return False
    side = SIDES[factors.index(found.weight.var)]
    gradient = _Gradient(plan, pattern, found, side)
    sizes = gradient.sizes(p)
    if sizes is None:
        return False
    for joined in gradient.joins(sizes):
        other = _Gradient(plan, pattern, found, side, joined)
        cut = other.sizes(p)
        if cut is not None and other.time(cut) < gradient.time(sizes):
            gradient, sizes = other, cut
    gradient.apply(sizes)
    plan.why.append(f"contraction: {sizes.rows}×{sizes.columns} results in tiles of "
                    f"{SIDE}×{SIDE} along {sizes.along}, all places of one copy ({Op.DOT2.name})")
    return True


def _find_images(plan: Plan, pattern: Pattern) -> Windowed | None:
    """Return two images that are multiplied point by point, as windows of one point make them."""
    loads = [s for s in pattern.reduce.body if isinstance(s, Load)]
    space, last = Space(plan.kernel), pattern.reduce.axes[-1].var
    steps = [flat_stride(space, Access(s), last) or 0 for s in loads]
    if len(loads) != 2 or min(steps) != 1 or max(steps) > CLOSE:
        return None
    seen = [set().union(*[space.symbols(i) for i in s.index]) for s in loads]
    weight, image = sorted((0, 1), key=lambda at: (steps[at], -product(
        r.extent for r in pattern.rows if r.var in seen[at])))
    channels, positions, shared = ([r for r in pattern.rows if (
        r.var in seen[weight], r.var in seen[image]) == both]
        for both in ((True, False), (False, True), (True, True)))
    if not positions or len(channels) + len(positions) + len(shared) != len(pattern.rows):
        return None
    return Windowed(loads[image], loads[weight], channels, positions, shared)


class _Gradient:
    """One gradient on its way through the primitives.

    Columns are channels of the image; where these are few, a place of the weights is ``joined``.
    """

    def __init__(self, plan: Plan, pattern: Pattern, found: Windowed, side: str,
                 joined: str = "") -> None:
        self.plan, self.pattern, self.found, self.side = plan, pattern, found, side
        self.amount = work_of(plan, pattern)
        self.name = str(pattern.reduce.accumulators[0].var.attr)
        self.axes = {str(a.var.attr): size_of(a.extent) for a in pattern.reduce.axes}
        self.steps: dict[str, tuple[int, int]] = {}  # of the image, by axis and by its tap
        self.beside = self._beside()
        channels = [r for r in found.positions if r.var.attr not in self.beside.values()]
        self.column = max(channels or found.positions, key=lambda r: size_of(r.extent))
        if size_of(self.column.extent) < FEWEST:
            self.column = found.positions[-1]
        self.joined = joined
        self.still = [a for a, x in self.beside.items() if x == joined]
        self.width = product(r.extent for r in found.positions
                             if r is self.column or r.var.attr == joined)
        gone = (joined, self.column.var.attr)
        self.beside = {a: x for a, x in self.beside.items() if x not in gone}
        self.apart = [str(r.var.attr) for r in found.positions if r.var.attr not in gone
                      and r.var.attr not in self.beside.values()]
        self.o, self.c = (str(r.var.attr) for r in (found.channels[0], self.column))
        taps = [r for r in found.positions if r.var.attr not in gone]
        self.taps, self.places = [str(r.var.attr) for r in taps], product(r.extent for r in taps)

    def _beside(self) -> dict[str, str]:
        """Return the place of the weights that moves the image along an axis, by axis."""
        space, out = Space(self.plan.kernel), {}
        for i in self.found.image.index:
            seen = space.symbols(i)
            for a, tap in itertools.product(self.pattern.reduce.axes, self.found.positions):
                if a.var in seen and tap.var in seen:
                    out[str(a.var.attr)] = str(tap.var.attr)
                    self.steps[str(a.var.attr)] = (space.stride(i, a.var) or 0,
                                                   space.stride(i, tap.var) or 0)
        return out

    def joins(self, s: _Sizes) -> list[str]:
        """Return which places of the weights can make columns together with the channels.

        The copy has columns for them. Points of the last axis are read as vectors where they lie
        side by side, and not as the two halves of words.
        """
        last = next(reversed(self.axes))
        extents = {str(r.var.attr): size_of(r.extent) for r in self.found.positions}
        return [x for a, x in self.beside.items() if self.width * extents[x] <= MOST_JOINED and (
            a != last or (a != s.pairs and self.steps[a][0] == 1))]

    def sizes(self, p: Parameters) -> _Sizes | None:
        """Return how the sum is cut, None where tiles would hardly be filled or are too large."""
        o, c = size_of(self.found.channels[0].extent), self.width
        few = FEWEST - 1 if self.places >= LARGE_WINDOW else FEWEST
        filled = FILLED if self.places > 1 else FILLED_ALONE
        if o < few or c < FEWEST or o * c < filled:
            return None
        along, pairs = min(itertools.product(reversed(self.axes), reversed(self.axes)),
                           key=lambda x: self._products(*x))
        found = [self._blocks(share, along, pairs, p) for share in self._shares(along, pairs)]
        return min([sizes for sizes in found if sizes is not None], key=self.time, default=None)

    def _shares(self, along: str, pairs: str) -> list[_Share]:
        """Return in which ways threads can share the work: results, or the terms of all sums."""
        o, c = size_of(self.found.channels[0].extent), self.width
        threads = self.plan.threads
        if threads == 1 or self.amount < self.plan.costs.parallel_work:
            return [_Share(c, o)]
        each = whole(-(-c // threads), SIDE)
        if self.found.shared:  # each thread takes groups
            return [_Share(min(each, c), o)]
        out = [_Share(each, o)] if each < c else []
        high = whole(-(-o // threads), SIDE)
        out += [_Share(c, high)] if high < o else []
        out += [_Share(c, o, a, whole(-(-n // threads), self._unit(a, along, pairs)))
                for a, n in self.axes.items() if n >= threads]
        return out or [_Share(c, o)]

    def _blocks(self, share: _Share, along: str, pairs: str, p: Parameters) -> _Sizes | None:
        """Return the blocks of what a thread takes, None where they are too large."""
        rows, columns = tile_side(share.rows), tile_side(share.columns)
        counts = [share.part if a == share.parted else n for a, n in zip(
            self.axes, self._padded(along, pairs), strict=True)]
        kept = min(p.matrix_bytes, self.plan.target.l2_bytes // 2)
        for at, name in enumerate(self.axes):
            unit = self._unit(name, along, pairs)
            n, counts[at] = counts[at], unit
            if self._bytes(counts, pairs, columns, share) <= kept:
                break
        else:
            return None

        def bytes_of(count: int) -> int:
            return self._bytes([*counts[:at], count, *counts[at + 1 :]], pairs, columns, share)

        wanted = range(unit, n + 1, unit)
        most = wanted[bisect_right(wanted, kept, key=bytes_of) - 1]
        counts[at] = -(-n // unit // -(-n // most)) * unit
        if share.parted in (along, pairs):  # of the others the last block is shorter
            block = counts[list(self.axes).index(share.parted)]
            share = share.replace(part=whole(share.part, block))
        return _Sizes(pairs, along, tuple(counts), rows, columns, share)

    def time(self, s: _Sizes) -> float:
        """Return how long a thread takes, in copies of an element."""
        high, across = whole(s.share.rows, s.rows), whole(s.share.columns, s.columns)
        image, points, blocks, threads = across, 1, 1, self.plan.threads
        for (name, n), count in zip(self.axes.items(), s.counts, strict=True):
            many = -(-(s.share.part if name == s.share.parted else n) // count)
            image *= many * self._width(name, count, s.pairs)
            points *= many * count
            blocks *= many
        results = high * across * self.places
        fetched = results / SIDE**2 * points / (GROUP * SIDE) * (SIDE / s.rows + SIDE / s.columns)
        stored = ADD * threads + SCATTER / threads if s.share.parted else SCATTER
        return GROUP * image + high * points + FETCH * fetched + results * (ADD * blocks + stored)

    def _products(self, along: str, pairs: str) -> float:
        """Return what the products of a tile for one place of the weights cost."""
        total = 1
        for count in self._padded(along, pairs):
            total *= count
        return total * (1 if along == next(reversed(self.axes)) else GATHERED)

    def _padded(self, along: str, pairs: str) -> list[int]:
        """Return the points of each axis, filled up to whole words and matrices."""
        return [whole(n, self._unit(a, along, pairs)) for a, n in self.axes.items()]

    def _unit(self, axis: str, along: str, pairs: str) -> int:
        """Return the points of an axis in one matrix."""
        return (SIDE if axis == along else 1) * (GROUP if axis == pairs else 1)

    def _width(self, axis: str, count: int, pairs: str) -> int:
        """Return how many points of the image, or words of them, some points of an axis read."""
        if axis in self.still:
            return -(-count // GROUP) if axis == pairs else count
        step, tap = self.steps.get(axis, (1, 0))
        places = next((size_of(r.extent) for r in self.found.positions
                       if r.var.attr == self.beside.get(axis)), 1)
        return abs(step) * (count - 1) + abs(tap) * (places - 1) + 1  # either may go back

    def _bytes(self, counts: list[int], pairs: str, columns: int, share: _Share) -> int:
        """Return what the copies of a block take."""
        image, gradient = 4 * whole(share.columns, columns), 4 * whole(share.rows, SIDE)
        for name, count in zip(self.axes, counts, strict=True):
            image *= self._width(name, count, pairs)
            gradient *= -(-count // GROUP) if name == pairs else count
        return image + gradient

    def apply(self, s: _Sizes) -> None:
        """Apply the schedule."""
        plan, schedule, name, share = self.plan, self.plan.schedule, self.name, s.share
        self._join()
        for axis, count in zip(self.axes, s.counts, strict=True):
            if axis in (s.along, s.pairs):  # else the last block is shorter
                multiple = plan.threads * share.part if axis == share.parted else count
                schedule.widen(name, axis, multiple, self.side)
        tile_split(plan, self.c, loop_of(plan, self.c).extent, share.columns)
        self.c = f"{self.c}.i"
        tile_split(plan, self.c, loop_of(plan, self.c).extent, s.columns)
        tile_split(plan, f"{self.c}.i", loop_of(plan, f"{self.c}.i").extent, SIDE)
        outer = [str(r.var.attr) for r in self.found.shared]
        top = self.c.removesuffix(".i") + ".o"
        if share.rows < size_of(self.found.channels[0].extent):
            tile_split(plan, self.o, self.found.channels[0].extent, share.rows)
            outer.append(f"{self.o}.o")
            self.o = f"{self.o}.i"
        outer.append(top)
        order = [*outer, f"{self.c}.o", *self.taps, self.o, f"{self.c}.i.o", f"{self.c}.i.i"]
        for loop in order:
            schedule.sink(loop)
        schedule.reorder(*order)
        parallelise(plan, outer, self.amount)
        axes = {a: a for a in self.axes}
        cuts = [(share.parted, share.part)] if share.parted else []
        cuts += [(axis, count) for (axis, n), count in zip(self.axes.items(), s.counts, strict=True)
                 if count < (share.part if axis == share.parted else n)]
        for axis, count in cuts:
            whole_axis = axes[axis]
            name = block_sums(plan, name, f"{self.c}.o", (whole_axis, count), f"{self.c}.i.i",
                              shared=count == share.part and whole_axis == share.parted)
            top, axes[axis] = f"{whole_axis}.o", f"{whole_axis}.i"
        if cuts:  # all results of a channel lie side by side
            ends = [f"{x}.end" for x in (self.o, f"{self.c}.o", *self.taps)]
            schedule.reorder(*ends)
            if share.parted:
                parallelise(plan, [f"{share.parted}.o"], self.amount)
                parallelise(plan, ends[:1], work((loop_of(plan, ends[0]),)))
        self._multiply(s, name, top, axes)

    def _join(self) -> None:
        """Make one loop of the channels of the image and the places that are joined with them."""
        if self.joined:
            pair = self.joined, self.c
            rows = [str(r.var.attr) for r in self.pattern.rows]
            self.plan.schedule.reorder(*[x for x in rows if x not in pair], *pair).fuse(*pair)
            self.c = f"{self.joined}_{self.c}"

    def _multiply(self, s: _Sizes, name: str, top: str, axes: dict[str, str]) -> None:
        """Copy the words of a block, and multiply them."""
        plan, schedule = self.plan, self.plan.schedule
        o, c = self.o, self.c
        schedule.tensorize(name, axes[s.pairs], Op.DOT2.name)
        gradient, image = (f"{name}.{side}" for side in (
            self.side, "left" if self.side == "right" else "right"))
        q = {a: f"{x}.q" if a == s.pairs else x for a, x in axes.items()}
        slides = [f"{q[a]}{PAIR}{self.beside[a]}" if a in self.beside else q[a] for a in axes]
        self._turn(panel(plan, image, top, (f"{c}.o", f"{c}.i.o", *self.apart, *slides,
                                             f"{c}.i.i")))
        depth = q[s.along]
        schedule.split(depth, SIDE)
        rest = [x for a, x in q.items() if a != s.along]
        schedule.reorder(*rest, f"{depth}.o", f"{depth}.i")
        schedule.split(o, s.rows).split(f"{o}.i", SIDE)
        tile = [f"{o}.i.o", f"{c}.i.o", f"{o}.i.i", f"{c}.i.i"]
        order = [f"{c}.o", f"{o}.o", *self.taps, *tile]
        for loop in order:
            schedule.sink(loop)
        schedule.reorder(*order)
        loops = panel(plan, gradient, top, (f"{o}.o", tile[0], *rest, f"{depth}.o", tile[2],
                                            f"{depth}.i"))
        schedule.vectorize(loops[-1])
        keep_tiles(plan, name, tile, gradient, f"{depth}.i")
        schedule.vectorize(f"{tile[3]}.f")

    def _turn(self, loops: list[str]) -> None:
        """Copy an image: vectors are read along its rows and written along channels.

        `loops` are channels in two parts with the axes between them.
        """
        n = size_of(loop_of(self.plan, loops[-2]).extent)
        transpose_words(self.plan, loops[-2], loops[-1], min(SIDE, power_above(n + 1) // 2))
