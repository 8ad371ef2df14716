"""Cut the sums of windows to the taps that lie inside of the picture for some position.

Where a picture has few positions along an axis, some taps meet padding alone:

    for i in n: out[i] = sum over p in 3, q in 3: where(0 < p < 2, x[p - 1, i + q], 0) * w[p, q]
    ->  for i in n: out[i] = sum over q in 3: x[0, i + q] * w[1, q]

The padding of a convolution counts as nothing or as zeros. That of other sums counts as zeros,
which an infinity makes a NaN of: the load has to overlap itself along another axis.
"""

from __future__ import annotations

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Kernel, Load, Reduce
from weft.kernelize.remainders import Env, known_ranges, only_sum, unmasked, zero_unless
from weft.rules.index import linear_coefficients, simplify
from weft.schedule.guard import parts
from weft.schedule.space import Edit, constant, perfect

Taps = dict[Expr, tuple[int, int]]


def cut_taps(kernel: Kernel) -> Kernel:
    """Return the kernel without the taps of windows that lie outside for all positions."""
    for stmt in kernel.body:
        if not isinstance(stmt, For):
            continue
        chain = perfect(stmt)
        reduce = only_sum(chain)
        env = None if reduce is None else known_ranges(chain, reduce)
        if reduce is None or env is None:
            continue
        taps = _taps(reduce, env)
        if any(_overlaps(s, chain, taps, env) for s in reduce.body if isinstance(s, Load)):
            edit = Edit(kernel)
            kernel = edit.replace((), stmt, _nest(edit, chain, reduce, taps, env))
    return kernel


def _taps(reduce: Reduce, env: Env) -> Taps:
    """Return the first and the last but one of the taps that are not all outside, by axis."""
    asked = {c for s in reduce.body if isinstance(s, Load) and s.mask is not None
             for c in parts(s.mask)}
    axes = [a.var for a in reduce.axes]
    found: Taps = {}
    for term in zero_unless(reduce):
        if term not in asked or term.op is not Op.LT or term.args[0].dtype is not dt.int64:
            continue
        linear = linear_coefficients(simplify(term.args[1] - term.args[0], env), list(env), env)
        rest = None if linear is None else constant(linear[1])
        if linear is None or rest is None:
            continue
        steps = {v: c for v, c in linear[0].items() if not isinstance(c, Expr) and c != 0}
        mine = [v for v in steps if v in axes]
        if len(mine) != 1 or len(steps) != len(linear[0]):
            continue
        var, step = mine[0], steps.pop(mine[0])
        rest += sum(max(c, 0) * env[v][1] for v, c in steps.items())  # at the best position
        low, high = found.get(var, (0, env[var][1] + 1))  # step * var + rest > 0
        found[var] = (max(low, -rest // step + 1), high) if step > 0 else (
            low, min(high, -(rest // step)))
    return {v: (low, high) for v, (low, high) in found.items()
            if low < high and (low, high) != (0, env[v][1] + 1)}


def _overlaps(load: Load, chain: list[For], taps: Taps, env: Env) -> bool:
    """Whether positions of a load that has such taps share elements by some of the others."""
    if load.mask is None or not ex.free_vars([load.mask]) & taps.keys():
        return False
    rows = [f.var for f in chain]
    for i in load.index:
        linear = linear_coefficients(simplify(i, env), list(env), env)
        steps = {} if linear is None else {
            v: abs(c) for v, c in linear[0].items() if not isinstance(c, Expr) and c != 0}
        counts = {v: env[v][1] + 1 for v in steps} | {v: high - low for v, (low, high)
                                                      in taps.items()}
        if any(steps[v] * (counts[v] - 1) >= steps[r]
               for r in steps if r in rows for v in steps if v not in rows):
            return True
    return False


def _nest(edit: Edit, chain: list[For], reduce: Reduce, taps: Taps, env: Env) -> Body:
    """Return a nest whose sums have some taps alone."""
    counts = {a.var: int(a.extent.attr) for a in reduce.axes} | {
        v: high - low for v, (low, high) in taps.items()}
    single = [v for v in taps if counts[v] == 1]
    if len(single) == len(reduce.axes):
        single = single[1:]
    points = {v: ex.index(low) if v in single else v + low for v, (low, _) in taps.items()}
    inner: Env = env | {v: (0, n - 1) for v, n in counts.items()}

    def plain(e: Expr) -> Expr:
        return simplify(ex.substitute([e], points)[0], inner)

    acc = reduce.accumulators[0]
    axes = tuple([st.Axis(a.var, ex.index(counts[a.var]), a.kind)
                  for a in reduce.axes if a.var not in single])
    made = Reduce(axes, (acc.replace(update=plain(acc.update)),),
                  tuple([unmasked(s.map_exprs(plain)) for s in reduce.body]))
    body: Body = tuple([made if s is reduce else s for s in chain[-1].body])
    for loop in reversed(chain):
        body = (For(loop.var, loop.extent, loop.kind, body),)
    return edit.duplicate(body, {}, "_t")
