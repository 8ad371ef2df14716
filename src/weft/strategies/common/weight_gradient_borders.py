"""Sums along the pictures of a gradient by weights, without what lies outside of them.

Each step multiplies one place of the results' picture with the places around it in the other, one
for each tap of the window, and at an end of a row some of those are padding. The steps there have
code of their own, in which their taps are missing; whether a tap's row is inside is asked before
its products: a branch that depends on the row alone, which processors foresee.
"""

from __future__ import annotations

from typing import Final

from weft.ir import expr as ex
from weft.ir.record import Record
from weft.ir.stmt import Axis, For, Load, Reduce
from weft.schedule.analysis.subscripts import Space
from weft.strategies.common.contraction_pattern import Pattern
from weft.strategies.common.convolution_pattern import Windowed, is_adjoint
from weft.strategies.common.nest import Plan, chain_of, find, size_of

MOST_PEELED: Final = 3  # steps at an end of a row that are written out


class Edge(Record):
    """An axis of the sum, the position that moves the images beside it, and its places.

    At the ``first`` and ``last`` of these some taps lie outside. ``apart``: the places or the taps
    are no neighbours in the images.
    """

    axis: Axis
    tap: For
    first: int
    last: int
    apart: bool

    @property
    def inside(self) -> int:
        """Places with all taps inside, less than 1 if there are none."""
        return size_of(self.axis.extent) - self.first - self.last


def find_edges(plan: Plan, pattern: Pattern, found: Windowed) -> list[Edge]:
    """Return the edges of a gradient by weights, none if the convolution is another."""
    space, out = Space(plan.kernel), []
    sums = taken = 1
    for i, n in zip(found.image.index, found.image.memory.shape, strict=True):
        free = ex.free_vars([i])
        axes = [a for a in pattern.reduce.axes if a.var in free]
        taps = [f for f in found.positions if f.var in free]
        if len(axes) != 1 or len(taps) != 1:
            continue
        sums, taken = sums * size_of(axes[0].extent), taken * size_of(taps[0].extent)
        if size_of(axes[0].extent) <= size_of(taps[0].extent):
            continue
        place, size = space.poly(i), size_of(n)
        start, step, tap = (place.get(m, 0) for m in ((), (axes[0].var,), (taps[0].var,)))
        count = size_of(axes[0].extent)
        partly = [not all(0 <= start + step * x + tap * q < size
                          for q in range(size_of(taps[0].extent))) for x in range(count)]
        first = next((x for x, out in enumerate(partly) if not out), count)
        last = next((x for x, out in enumerate(reversed(partly)) if not out), count)
        out.append(Edge(axes[0], taps[0], first, last, (step, tap) != (1, 1)))
    return out if sums > taken else []  # else windows of a picture that is low or narrow


def omit_edges(plan: Plan, name: str, edges: list[Edge], along: Axis) -> bool:
    """Leave out what lies outside, except at ends `along` rows that are too long to write out."""
    still = [e.tap.var.attr for e in edges if e.axis is along and (
        max(e.first, e.last) > MOST_PEELED or e.inside < 1)]
    return plan.attempt("omit", name, *still)


def skip_edges(plan: Plan, edges: list[Edge], along: Axis,
               loops: list[str]) -> None:
    """Branch around taps whose rows lie outside, in all these loops, and peel the ends of rows."""
    for loop in loops:
        plan.attempt("branch", loop)
    for e in edges:
        if e.axis is not along or max(e.first, e.last) > MOST_PEELED or e.inside < 1:
            continue
        name, count = along.var.attr, size_of(along.extent)
        if e.first:
            plan.schedule.peel(name, count - e.first).unroll(name)
            name, count = f"{name}.t", count - e.first
        if e.last:
            plan.schedule.peel(name, e.last).unroll(f"{name}.t")


def omit_padding(plan: Plan, root: str) -> None:
    """Do as `omit_gradient` does in a nest that is none of the forms of contractions."""
    loop = find(plan.kernel, root)
    assert loop is not None
    rows = chain_of(loop)
    reduces = [s for s in rows[-1].body if isinstance(s, Reduce)]
    if len(reduces) == 1:
        omit_gradient(plan, Pattern(tuple(rows), reduces[0], frozenset(), frozenset()))


def omit_gradient(plan: Plan, pattern: Pattern) -> None:
    """Multiply no weight with what lies outside, in a gradient by the images of a convolution.

    Strided ones leave the results of some positions each, and may have one point of each window.
    """
    loads = [s for s in pattern.reduce.body if isinstance(s, Load)]
    images = [s for s in loads if s.mask is not None]
    if len(loads) != 2 or not images or len(pattern.reduce.accumulators) != 1:
        return
    space = Space(plan.kernel)
    if any(is_adjoint(space, pattern, Windowed(image, loads[image is loads[0]], [], [], []))
           for image in images):
        plan.attempt("omit", str(pattern.reduce.accumulators[0].var.attr), alone=True)
