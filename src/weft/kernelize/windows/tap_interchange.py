"""Let sums over the taps of windows go over the points of a small picture instead.

Where a picture has fewer points along an axis than its windows have taps, most taps of each window
lie outside of it. The points themselves are fewer:

    reduce k in 5: where(0 <= i - k < 1, f(g[i - k], k), 0)
    ->  reduce q in 1: where(0 <= i - q < 5, f(g[q], i - q), 0)

Gradients of pooling and of convolutions without padding meet such pictures: they are the results.
"""

from __future__ import annotations

import math
from functools import partial

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Axis, Kernel, Load, Reduce
from weft.kernelize.windows.iteration_space import Env, Nest, Piece, split_nests, zero_unless
from weft.rules.index import linear_coefficients, simplify
from weft.schedule.analysis.guard import parts
from weft.schedule.analysis.space import constant


def interchange_taps(kernel: Kernel) -> Kernel:
    """Return the kernel with each sum over more taps than a picture has points turned."""
    find = partial(_points, turned=set())
    while (made := split_nests(kernel, find)) is not kernel:  # an axis of each nest at a time
        kernel = made
    return kernel


def _points(nest: Nest, turned: set[Expr]) -> list[Piece]:
    """Return an axis with more taps than points, on which a place depends with a step of 1."""
    zero, env = set(zero_unless(nest.reduce)), nest.env()
    product = nest.dense or _multiplies(nest.reduce)
    # Several points would make windows of the weights, too; one has a weight for each result.
    most = 1 if nest.dense else math.inf
    for load in nest.reduce.body:
        if not isinstance(load, Load) or load.mask is None or not set(parts(load.mask)) <= zero:
            continue
        for index, extent in zip(load.index, load.memory.shape, strict=True):
            size = constant(extent)
            for axis in nest.reduce.axes:
                if axis.var in turned or size is None or not (
                        1 <= size < nest.counts.get(axis.var, 0)):
                    continue
                piece = _turn(axis, index, int(size), env)
                # A product that needs a new condition for its other factor stays as it is.
                if piece is not None and (
                        not product or (piece.inside is None and size <= most)):
                    turned.add(axis.var)
                    return [piece]
    return []


def _turn(axis: Axis, index: Expr, size: int, env: Env) -> Piece | None:
    """Return the sum over the points of a picture, ``index == sign * axis + rest`` of `size`."""
    linear = linear_coefficients(simplify(index, env), [axis.var], env)
    sign = None if linear is None else linear[0].get(axis.var)
    if linear is None or not isinstance(sign, int) or abs(sign) != 1:
        return None
    env = env | {axis.var: (0, size - 1)}
    tap = simplify(axis.var - linear[1] if sign > 0 else linear[1] - axis.var, env)
    inside = simplify(ex.index(0).le(tap) & tap.lt(int(axis.extent.attr)), env)
    return Piece({axis.var: size}, {axis.var: tap},
                 inside=None if ex.is_const(inside, True) else inside)


def _multiplies(reduce: Reduce) -> bool:
    """Whether each term is a product of arrays: a convolution, also where channels stay apart."""
    axes = {a.var for a in reduce.axes}
    lets: dict[Expr, Expr] = {}
    read = set[Expr]()  # what an array gives that is another one at other taps
    for stmt in reduce.body:
        if isinstance(stmt, Load) and ex.free_vars(stmt.index) & axes:
            read.add(stmt.var)
        elif isinstance(stmt, st.Let):
            lets[stmt.var] = stmt.value
            if ex.free_vars([stmt.value]) & read:
                read.add(stmt.var)
    stack = [a for acc in reduce.accumulators for a in acc.update.args if a is not acc.var]
    while stack:
        e = stack.pop()
        if e in lets:
            stack.append(lets[e])
        elif e.op is Op.MUL:
            if all(ex.free_vars([a]) & read for a in e.args):
                return True
            stack.extend(e.args)
        elif e.op is Op.CAST:
            stack.extend(e.args)
        elif e.op is Op.WHERE:
            stack.append(e.args[1])
    return False
