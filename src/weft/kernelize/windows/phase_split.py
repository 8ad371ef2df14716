"""Cut the nest of a strided adjoint by remainders: each becomes a dense convolution.

What undoes windows with a step s (the gradient of a strided convolution by its input, a transposed
convolution) asks at each position i for the taps k with ``(i - k * d) % s == 0``: at most one term
in s of the nest is there at all. Written out by the remainder of i by s (the phases of a polyphase
filter), each nest has the taps of its own remainder, no condition but the borders, and plain
steps in its subscripts, so that it is scheduled as any other convolution:

    for i in n: out[i] = sum over k in K: where((i - k) % 2 == 0, g[(i - k) // 2], 0) * w[k]
    ->  for i in (n + 1) // 2: out[2*i] = sum over k in (K + 1) // 2: g[i - k] * w[2*k]
        for i in n // 2: out[2*i + 1] = sum over k in K // 2: g[i - k] * w[2*k + 1]

Windows whose taps lie `d` apart on a picture of at most `d` points have one tap in it, or none. By
the remainder of the position by d, which one that is follows from the position alone:

    for i in n: out[i] = sum over k in K: where(0 <= i - k * 2 < 1, g[i - k * 2], 0) * w[k]
    ->  for i in (n + 1) // 2: out[2*i] = g[0] * w[i]
        for i in n // 2: out[2*i + 1] = 0

A term that is left out counts as 0 times its weight, as in a convolution with zero padding.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Kernel
from weft.kernelize.windows.iteration_space import (
    Env,
    Nest,
    Piece,
    affine,
    positive,
    split_nests,
    zero_unless,
)
from weft.schedule.analysis.space import constant

MOST: Final = 16  # nests that one becomes
LONG_ROW: Final = 16  # positions of a row whose remainders are written together
SHORT_SUM: Final = 64  # terms of a sum that is written out for each remainder


class _Condition(Record):
    """``(row * var + start - tap * axis) % step == 0``; None for an axis on which nothing hangs.

    With `points` it is ``row * var + start - tap * axis`` that lies below these, and above 0. No
    ``var``: of a picture of one position, whose taps are the same ones everywhere.
    """

    var: Expr | None
    axis: Expr | None
    row: int
    tap: int
    start: int
    step: int
    points: int = 0

    @property
    def nests(self) -> int:
        """Nests that one becomes."""
        return 1 if self.var is None else self.step


def split_phases(kernel: Kernel, rows: bool = True) -> Kernel:
    """Return the kernel with each sum over every s-th tap cut into its remainders.

    Without `rows` a long innermost loop stays whole if its sums are short: what is no contraction
    is bound by memory, and is scheduled so that the remainders of a row are written together.
    """
    return split_nests(kernel, _pieces, "_", rows)


def _pieces(nest: Nest) -> list[Piece]:
    found = _conditions(nest)
    return [_phase(nest, found, rest)
            for rest in itertools.product(*[range(c.nests) for c in found]) if found]


def _conditions(nest: Nest) -> list[_Condition]:
    """Return what tells which taps a position has; nothing if it does not depend on remainders."""
    if not nest.known() or any(f.kind != st.SERIAL for f in nest.chain):
        return []
    last, env = nest.rows[-1], nest.env()
    terms = math.prod(nest.counts[a] for a in nest.axes)
    rows = nest.dense or nest.counts[last] < LONG_ROW or terms > SHORT_SUM or _multiplies(nest)
    found: dict[Expr, _Condition] = {}
    axes: set[Expr] = set()
    divided = [made for term in zero_unless(nest.reduce)
               for made in [_condition(term, nest, env)] if made]
    for made in [*divided, *_few_points(nest, env)]:
        if made.var is None or made.var in found or made.axis in axes or not (
                rows or made.var is not last):
            continue
        found[made.var] = made
        if made.axis is not None:
            axes.add(made.axis)
    nests = math.prod(c.nests for c in found.values())
    if not found or nests > MOST:
        return []
    single = {c.axis: c for c in divided if c.var is None and c.axis not in axes}
    return [*found.values(), *single.values()]


def _multiplies(nest: Nest) -> bool:
    """Whether both of two factors are read again for other results: channels of one picture."""
    loads = [s for s in nest.reduce.body if isinstance(s, st.Load)]
    several = {v for v in nest.rows if nest.counts[v] != 1}
    seen = [ex.free_vars(s.index) & several for s in loads]
    return len(seen) == 2 and not seen[0] <= seen[1] and not seen[1] <= seen[0]


def _condition(term: Expr, nest: Nest, env: Env) -> _Condition | None:
    """Return ``p % step == 0`` taken apart, None if it is no such condition."""
    if term.op is not Op.EQ or not ex.is_const(term.args[1], 0) or term.args[0].op is not Op.MOD:
        return None
    place, by = term.args[0].args
    step = constant(by)
    linear = affine(place, env, env)
    if step is None or step < 2 or linear is None:
        return None
    steps, start = linear
    mine, taps = ([v for v in steps if v in some] for some in (nest.rows, nest.axes))
    if len(mine) > 1 or len(taps) > 1 or (mine and math.gcd(steps[mine[0]], step) != 1):
        return None
    axis, tap = (taps[0], -steps[taps[0]]) if taps else (None, 0)
    if not mine:
        return None if axis is None else _Condition(None, axis, 0, tap, start, step)
    return _Condition(mine[0], axis, steps[mine[0]], tap, start, step)


def _few_points(nest: Nest, env: Env) -> list[_Condition]:
    """Return where taps are so far apart that at most one of a window is in the picture."""
    # Of ``row - tap * axis``: what it is at least, and at most.
    limits: dict[tuple[Expr, Expr, int], tuple[list[int], list[int]]] = {}
    for term in zero_unless(nest.reduce):
        above = positive(term)
        linear = None if above is None else affine(above, env, env)
        if linear is None:
            continue
        steps, rest = linear
        mine, moved = ([v for v in steps if v in some] for some in (nest.rows, nest.axes))
        if (len(mine), len(moved)) != (1, 1):
            continue
        row, tap = steps[mine[0]], steps[moved[0]]
        if abs(row) == 1:
            below = limits.setdefault((mine[0], moved[0], -row * tap), ([], []))
            below[row < 0].append(1 - rest if row > 0 else rest - 1)
    out: list[_Condition] = []
    for (var, axis, tap), (least, most) in limits.items():
        if not least or not most or abs(tap) < 2:
            continue
        start, points = -max(least), min(most) - max(least) + 1
        sign = 1 if tap > 0 else -1
        places = [divmod(i + start, abs(tap)) for i in range(nest.counts[var])]
        if 1 <= points <= abs(tap) and all(
                0 <= sign * past < nest.counts[axis] for past, place in places if place < points):
            out.append(_Condition(var, axis, 1, tap, start, abs(tap), points))
    return out


def _phase(nest: Nest, found: list[_Condition], rest: tuple[int, ...]) -> Piece:
    """Return the part of the positions with some remainders."""
    counts: dict[Expr, int] = {}
    points: dict[Expr, Expr] = {}
    empty = False  # whether no tap meets these positions: their sums are 0
    for c, r in zip(found, rest, strict=True):
        # row * (step * v + r) + start - tap * k must divide by step: every m-th k, from the first
        every = c.step // math.gcd(c.tap, c.step)
        first = next((k for k in range(every)
                      if (c.row * r + c.start - c.tap * k) % c.step == 0), None)
        if c.var is not None:
            points[c.var] = c.var * c.step + r
            counts[c.var] = -(-max(nest.counts[c.var] - r, 0) // c.step)
        if c.var is not None and c.axis is not None and c.points:
            past, place = divmod(r + c.start, c.step)
            empty = empty or place >= c.points
            points[c.axis] = (c.var + past) * (1 if c.tap > 0 else -1)
            counts[c.axis] = 1
            continue
        if c.axis is None or first is None:
            empty = empty or first is None
            continue
        points[c.axis] = c.axis * every + first
        counts[c.axis] = -(-max(nest.counts[c.axis] - first, 0) // every)
    left = nest.counts | counts
    return Piece(counts, points, empty or any(left[a] == 0 for a in nest.axes),
                 single=tuple([a for a in nest.axes if left[a] == 1]))
