"""Let sums over the taps of windows go over the points of a small picture instead.

Where a picture has fewer points along an axis than its windows have taps, most taps of each window
lie outside of it. The points themselves are fewer:

    reduce k in 5: where(0 <= i - k < 1, f(g[i - k], k), 0)
    ->  reduce q in 1: where(0 <= i - q < 5, f(g[q], i - q), 0)

Gradients of pooling and of convolutions without padding meet such pictures: they are the results.
"""

from __future__ import annotations

import math

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Body, For, Kernel, Load, Reduce
from weft.kernelize.remainders import Env, zero_unless
from weft.rules.index import linear_coefficients, simplify
from weft.schedule.guard import both
from weft.schedule.space import Edit, constant, perfect


class _Turn(Record):
    """``sign * axis + rest`` is the place in a picture of `size` points."""

    axis: st.Axis
    sign: int
    rest: Expr
    size: int


def sum_over_pictures(kernel: Kernel) -> Kernel:
    """Return the kernel with each sum over more taps than a picture has points turned."""
    for stmt in kernel.body:
        if not isinstance(stmt, For):
            continue
        chain = perfect(stmt)
        body = chain[-1].body
        reduces = [s for s in body if isinstance(s, Reduce)]
        if len(reduces) != 1 or any(isinstance(s, For | st.If | st.Alloc) for s in body):
            continue
        old = reduces[0]
        env: Env = {}
        for var, extent in [*[(f.var, f.extent) for f in chain],
                            *[(a.var, a.extent) for a in old.axes]]:
            n = constant(extent)
            if n is not None and n > 0:
                env[var] = (0, int(n) - 1)
        new, turned = old, set[Expr]()
        dense = kernel.meta.kind == "contraction"
        product = dense or _multiplies(old)
        # Several points would make windows of the weights, too; one has a weight for each result.
        most = 1 if dense else math.inf
        while True:
            turn = _find(new, env, turned, product, most)
            if turn is None:
                break
            turned.add(turn.axis.var)
            env[turn.axis.var] = (0, turn.size - 1)
            new = _apply(new, turn, env)
        if new is old:
            continue
        edit = Edit(kernel)
        made: Body = tuple([new if s is old else s for s in body])
        for loop in reversed(chain):
            made = (For(loop.var, loop.extent, loop.kind, made),)
        kernel = edit.replace((), stmt, made)
    return kernel


def _find(reduce: Reduce, env: Env, turned: set[Expr], product: bool,
          most: float) -> _Turn | None:
    """Return an axis with more taps than points, on which a place depends with a step of 1."""
    zero = set(zero_unless(reduce))
    for load in reduce.body:
        if not isinstance(load, Load) or load.mask is None or not _parts(load.mask) <= zero:
            continue
        for index, extent in zip(load.index, load.memory.shape, strict=True):
            size = constant(extent)
            if size is None or size < 1:
                continue
            for axis in reduce.axes:
                taps = constant(axis.extent)
                if taps is None or size >= taps or axis.var in turned:
                    continue
                linear = linear_coefficients(simplify(index, env), [axis.var], env)
                sign = None if linear is None else linear[0].get(axis.var)
                if linear is None or not isinstance(sign, int) or abs(sign) != 1:
                    continue
                turn = _Turn(axis, sign, linear[1], int(size))
                tap = simplify(_tap(turn), env | {axis.var: (0, turn.size - 1)})
                inside = simplify(_inside(tap, int(taps)), env | {axis.var: (0, turn.size - 1)})
                # A product that needs a new condition for its other factor stays as it is.
                if not product or (ex.is_const(inside, True) and size <= most):
                    return turn
    return None


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


def _tap(turn: _Turn) -> Expr:
    q = turn.axis.var
    return q - turn.rest if turn.sign > 0 else turn.rest - q


def _inside(tap: Expr, taps: int) -> Expr:
    return ex.index(0).le(tap) & tap.lt(taps)


def _apply(reduce: Reduce, turn: _Turn, env: Env) -> Reduce:
    """Return the sum over the points of the picture; `env` has the axis as it is then."""
    axis = turn.axis
    tap = simplify(_tap(turn), env)
    inside = simplify(_inside(tap, int(axis.extent.attr)), env)

    def plain(e: Expr) -> Expr:
        if axis.var not in ex.free_vars([e]):
            return e
        return simplify(ex.substitute([e], {axis.var: tap})[0], env)

    always = ex.is_const(inside, True)
    body = []
    for stmt in reduce.body:
        made = stmt.map_exprs(plain)
        if isinstance(made, Load):
            mask = made.mask
            if not always:
                mask = both(mask, inside)
            elif mask is not None and ex.is_const(mask, True):
                mask = None
            made = made.replace(mask=mask)
        body.append(made)
    acc = reduce.accumulators[0]
    update = plain(acc.update)
    if not always:
        term = next(a for a in update.args if a is not acc.var)
        zero = ex.const(0, term.dtype)
        update = acc.var + ex.where(inside, term, zero)
    axes = tuple([st.Axis(a.var, ex.index(turn.size), a.kind) if a.var is axis.var else a
                  for a in reduce.axes])
    return Reduce(axes, (acc.replace(update=update),), tuple(body))


def _parts(e: Expr) -> set[Expr]:
    out, stack = set[Expr](), [e]
    while stack:
        part = stack.pop()
        if part.op is Op.AND:
            stack.extend(part.args)
        else:
            out.add(part)
    return out
