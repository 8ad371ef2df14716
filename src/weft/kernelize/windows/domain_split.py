"""Cut the nest of sums that are not there for some positions: those are 0, and cost nothing.

Where all factors of all terms of a sum are 0 outside of a range of positions (a gradient of windows
that do not reach the end of a picture), the range becomes a nest without the condition:

    for i in 3: out[i] = sum over k: where(i < 2, g[k], 0) * where(i < 2, w[i, k], 0)
    ->  for i in 2: out[i] = sum over k: g[k] * w[i, k]
        for i in 1: out[i + 2] = 0

A condition of one factor alone is no reason: its zeros make a NaN of another's infinity.
"""

from __future__ import annotations

from weft.ir.expr import Expr
from weft.ir.stmt import Kernel
from weft.kernelize.windows.iteration_space import (
    Nest,
    Piece,
    affine,
    factors,
    positive,
    split_nests,
)

Range = tuple[int, int]


def split_domain(kernel: Kernel) -> Kernel:
    """Return the kernel with each sum that is 0 outside of a range of positions cut there."""
    return split_nests(kernel, _pieces, "_r")


def _pieces(nest: Nest) -> list[Piece]:
    cut: dict[Expr, Range] = {}
    out: list[Piece | None] = []
    for var, (low, high) in _ranges(nest).items():
        for outside in ((0, low), (high, nest.counts[var])):
            out.append(_piece(cut | {var: outside}, empty=True))
        cut[var] = low, high
    if cut:
        out.append(_piece(cut, empty=False))
    return [piece for piece in out if piece is not None]


def _piece(cut: dict[Expr, Range], *, empty: bool) -> Piece | None:
    if any(low >= high for low, high in cut.values()):
        return None
    return Piece({v: high - low for v, (low, high) in cut.items()},
                 {v: v + low for v, (low, _) in cut.items() if low}, empty)


def _ranges(nest: Nest) -> dict[Expr, Range]:
    """Return the loops outside of whose ranges all terms are 0, with these."""
    known = factors(nest.reduce)
    if not known or not nest.known(axes=False):
        return {}
    env = {v: (0, nest.counts[v] - 1) for v in nest.rows}
    out: dict[Expr, Range] = {}
    for term in (c for c in known[-1] if all(c in other for other in known)):
        above = positive(term)
        linear = None if above is None else affine(above, env, env)
        if linear is None or len(linear[0]) > 1:
            continue
        steps, rest = linear
        if not steps:  # a condition that never holds, or always does
            if rest <= 0:
                return {nest.rows[0]: (0, 0)}
            continue
        (var, step), = steps.items()
        if step not in (1, -1):
            continue
        n = nest.counts[var]
        low, high = out.get(var, (0, n))  # step * var + rest > 0
        low, high = (max(low, 1 - rest), high) if step == 1 else (low, min(high, rest))
        low = min(low, n)  # the condition may hold for none
        out[var] = low, max(low, high)
    return {v: r for v, r in out.items() if r != (0, nest.counts[v])}
