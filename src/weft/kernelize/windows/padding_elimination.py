"""Cut the sums of windows to the taps that lie inside of the picture for some position.

Where a picture has few positions along an axis, some taps meet padding alone:

    for i in n: out[i] = sum over p in 3, q in 3: where(0 < p < 2, x[p - 1, i + q], 0) * w[p, q]
    ->  for i in n: out[i] = sum over q in 3: x[0, i + q] * w[1, q]

The padding of a convolution counts as nothing or as zeros. That of other sums counts as zeros,
which an infinity makes a NaN of: the load has to overlap itself along another axis.
"""

from __future__ import annotations

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Kernel, Load
from weft.kernelize.windows.iteration_space import (
    Env,
    Nest,
    Piece,
    affine,
    positive,
    split_nests,
    zero_unless,
)
from weft.rules.index import linear_coefficients, simplify
from weft.schedule.analysis.guard import parts

Taps = dict[Expr, tuple[int, int]]


def eliminate_padding(kernel: Kernel) -> Kernel:
    """Return the kernel without the taps of windows that lie outside for all positions."""
    return split_nests(kernel, _inside, "_t", numbered=False)


def _inside(nest: Nest) -> list[Piece]:
    if not nest.known():
        return []
    env = nest.env()
    taps = _taps(nest, env)
    if not any(_overlaps(s, nest, taps, env) for s in nest.reduce.body if isinstance(s, Load)):
        return []
    counts = {v: high - low for v, (low, high) in taps.items()}
    return [Piece(counts, {v: v + low for v, (low, _) in taps.items()},
                  single=tuple([v for v, n in counts.items() if n == 1]))]


def _taps(nest: Nest, env: Env) -> Taps:
    """Return the first and the last but one of the taps that are not all outside, by axis."""
    asked = {c for s in nest.reduce.body if isinstance(s, Load) and s.mask is not None
             for c in parts(s.mask)}
    found: Taps = {}
    for term in zero_unless(nest.reduce):
        above = positive(term) if term in asked else None
        linear = None if above is None else affine(above, env, env)
        mine = [] if linear is None else [v for v in linear[0] if v in nest.axes]
        if linear is None or len(mine) != 1:
            continue
        steps, rest = linear
        var, step = mine[0], steps.pop(mine[0])
        rest += sum(max(c, 0) * env[v][1] for v, c in steps.items())  # at the best position
        low, high = found.get(var, (0, nest.counts[var]))  # step * var + rest > 0
        found[var] = (max(low, -rest // step + 1), high) if step > 0 else (
            low, min(high, -(rest // step)))
    return {v: (low, high) for v, (low, high) in found.items()
            if low < high and (low, high) != (0, nest.counts[v])}


def _overlaps(load: Load, nest: Nest, taps: Taps, env: Env) -> bool:
    """Whether positions of a load that has such taps share elements by some of the others."""
    if load.mask is None or not ex.free_vars([load.mask]) & taps.keys():
        return False
    counts = nest.counts | {v: high - low for v, (low, high) in taps.items()}
    for i in load.index:
        linear = linear_coefficients(simplify(i, env), list(env), env)
        steps = {} if linear is None else {
            v: abs(c) for v, c in linear[0].items() if not isinstance(c, Expr) and c != 0}
        if any(steps[v] * (counts[v] - 1) >= steps[r]
               for r in steps if r in nest.rows for v in steps if v not in nest.rows):
            return True
    return False
