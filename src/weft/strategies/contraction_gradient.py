"""Gradients of bfloat16 convolutions by their weights, as products of matrices (AMX tiles).

A weight is the sum of products of two images, one of them moved by the place of the weight: words
are pairs of positions. Those of the gradient of the results are the rows of tiles; those of the
image are turned, the channels of a position side by side, with zeros around, and the tile for
another place of the weights begins elsewhere in the same copy, whatever the stride. Images and rows
of them are gone through block by block, while the sums of all weights wait near.
"""

from __future__ import annotations

import itertools
from typing import Final

from weft.ir.dtype import bfloat16, uint32
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Load
from weft.schedule.matrix import SIDE
from weft.schedule.sliding import PAIR
from weft.schedule.space import constant
from weft.schedule.subscripts import Access, Space
from weft.schedule.tensorize import SIDES, narrow_factors
from weft.strategies.contraction_dot import loop_names, panel, whole
from weft.strategies.contraction_image import (
    Windowed,
    find_windows,
    is_convolution,
)
from weft.strategies.contraction_matrix import keep_tiles
from weft.strategies.contraction_pattern import MAC_SPEED, Parameters, Pattern, tile_split
from weft.strategies.nest import (
    PARALLEL_WORK,
    Plan,
    flat_stride,
    loop_of,
    parallelise,
    power_above,
    product,
    size_of,
    work,
)

GROUP: Final = 2  # elements of a word
FEWEST: Final = 3  # channels of the image, and of results
CLOSE: Final = 4  # elements between neighbours that are read as vectors
FILLED: Final = 32  # results of one place of the weights
GATHERED: Final = 1.2  # times as long where the words of the gradient do not lie side by side


class _Sizes(Record):
    """How a sum is cut: ``pairs`` and ``along`` are axes, that of words and that of matrices.

    ``counts`` are the points of each axis in a block, ``rows`` and ``columns`` of a tile are
    channels of results and of the image, and ``share`` is how many of the latter a thread takes.
    """

    pairs: str
    along: str
    counts: tuple[int, ...]
    rows: int
    columns: int
    share: int


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
    extents = [r.extent for r in pattern.rows] + [a.extent for a in pattern.reduce.axes]
    if found.weight.var not in factors or any(constant(e) is None for e in extents) or (
            is_convolution(Space(plan.kernel), pattern, found)):
        return False
    if len(found.channels) != 1 or not found.positions:
        return False
    gradient = _Gradient(plan, pattern, found, SIDES[factors.index(found.weight.var)])
    sizes = gradient.sizes(p)
    if sizes is None:
        return False
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
    """One gradient on its way through the primitives."""

    def __init__(self, plan: Plan, pattern: Pattern, found: Windowed, side: str) -> None:
        self.plan, self.pattern, self.found, self.side = plan, pattern, found, side
        self.amount = work((pattern.rows[0],)) // MAC_SPEED
        self.name = str(pattern.reduce.accumulators[0].var.attr)
        self.axes = {str(a.var.attr): size_of(a.extent) for a in pattern.reduce.axes}
        self.steps: dict[str, tuple[int, int]] = {}  # of the image, by axis and by its tap
        self.beside = self._beside()
        channels = [r for r in found.positions if r.var.attr not in self.beside.values()]
        self.column = max(channels or found.positions, key=lambda r: size_of(r.extent))
        if size_of(self.column.extent) < FEWEST:
            self.column = found.positions[-1]
        self.beside = {a: x for a, x in self.beside.items() if x != self.column.var.attr}
        self.apart = [str(r.var.attr) for r in found.positions if r is not self.column
                      and r.var.attr not in self.beside.values()]
        self.o, self.c = (str(r.var.attr) for r in (found.channels[0], self.column))
        self.taps = [str(r.var.attr) for r in found.positions if r is not self.column]

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

    def sizes(self, p: Parameters) -> _Sizes | None:
        """Return how the sum is cut, None where tiles would hardly be filled or are too large."""
        o, c = size_of(self.found.channels[0].extent), size_of(self.column.extent)
        if o < FEWEST or c < FEWEST or o * c < FILLED:
            return None
        rows, columns = (2 * SIDE if n > SIDE else SIDE for n in (o, c))
        names = list(self.axes)
        along, pairs = min(itertools.product(reversed(names), reversed(names)),
                           key=lambda x: self._products(*x))
        counts = self._padded(along, pairs)
        kept = min(p.matrix_bytes, self.plan.target.l2_bytes // 2)
        for at, name in enumerate(names):
            unit = (SIDE if name == along else 1) * (GROUP if name == pairs else 1)
            n = counts[at]
            counts[at] = unit
            if self._bytes(counts, pairs, columns) > kept:
                continue
            most = max(k for k in range(unit, n + 1, unit) if self._bytes(
                [*counts[:at], k, *counts[at + 1 :]], pairs, columns) <= kept)
            counts[at] = -(-n // unit // -(-n // most)) * unit
            share = c
            if self.plan.threads > 1 and self.amount >= PARALLEL_WORK and c > SIDE:
                share = min(whole(-(-c // self.plan.threads), SIDE), c)
            return _Sizes(pairs, along, tuple(counts), rows, columns, share)
        return None

    def _products(self, along: str, pairs: str) -> float:
        """Return what the products of a tile for one place of the weights cost."""
        total = 1
        for count in self._padded(along, pairs):
            total *= count
        return total * (1 if along == next(reversed(self.axes)) else GATHERED)

    def _padded(self, along: str, pairs: str) -> list[int]:
        """Return the points of each axis, filled up to whole words and matrices."""
        return [whole(n, (SIDE if a == along else 1) * (GROUP if a == pairs else 1))
                for a, n in self.axes.items()]

    def _bytes(self, counts: list[int], pairs: str, columns: int) -> int:
        """Return what the copies of a block take."""
        o, c = size_of(self.found.channels[0].extent), size_of(self.column.extent)
        image, gradient = 4 * whole(c, columns), 4 * whole(o, SIDE)
        taps = {str(r.var.attr): size_of(r.extent) for r in self.found.positions}
        for name, count in zip(self.axes, counts, strict=True):
            step, tap = self.steps.get(name, (1, 0))
            image *= step * (count - 1) + tap * (taps.get(self.beside.get(name, ""), 1) - 1) + 1
            gradient *= -(-count // GROUP) if name == pairs else count
        return image + gradient

    def apply(self, s: _Sizes) -> None:
        """Apply the schedule."""
        plan, schedule, name = self.plan, self.plan.schedule, self.name
        for axis, count in zip(self.axes, s.counts, strict=True):
            schedule.widen(name, axis, count, self.side)
        tile_split(plan, self.c, self.column.extent, s.share)
        self.c = f"{self.c}.i"
        tile_split(plan, self.c, loop_of(plan, self.c).extent, s.columns)
        tile_split(plan, f"{self.c}.i", loop_of(plan, f"{self.c}.i").extent, SIDE)
        groups = [str(r.var.attr) for r in self.found.shared]
        top = self.c.removesuffix(".i") + ".o"
        order = [*groups, top, f"{self.c}.o", *self.taps, self.o, f"{self.c}.i.o", f"{self.c}.i.i"]
        for loop in order:
            schedule.sink(loop)
        schedule.reorder(*order)
        parallelise(plan, [*groups, top], self.amount)
        axes = {a: a for a in self.axes}
        for (axis, n), count in zip(self.axes.items(), s.counts, strict=True):
            if count < n:
                known = loop_names(plan)
                schedule.block_reduction(name, f"{self.c}.o", axis, count)
                name, top, axes[axis] = f"{name}.b", f"{axis}.o", f"{axis}.i"
                lane = f"{self.c}.i.i"
                made = [x for x in loop_names(plan) if x not in known]
                for loop in [x for x in made if x.startswith((f"{lane}.begin", f"{lane}.end"))]:
                    schedule.vectorize(loop)
        self._multiply(s, name, top, axes)

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
        plan, along = self.plan, loops[-2]
        n = size_of(loop_of(plan, along).extent)
        known = loop_names(plan)
        tile_split(plan, along, loop_of(plan, along).extent, min(SIDE, power_above(n + 1) // 2))
        made = [x for x in loop_names(plan) if x not in known]
        plan.schedule.reorder(*made[:-1], loops[-1], made[-1])
        plan.schedule.unroll(loops[-1]).vectorize(made[-1])
