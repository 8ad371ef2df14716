"""The primitive `specialize`: code of its own for iterations that lie inside of a picture."""

from __future__ import annotations

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import For, If, Kernel, Store
from weft.ir.traverse import walk
from weft.schedule.analysis import guard as gd
from weft.schedule.analysis.space import Edit, constant, find_for, find_loop
from weft.schedule.analysis.subscripts import Space
from weft.schedule.loops.omit import Known


def specialize(kernel: Kernel, loop: str, position: str) -> Kernel:
    """Give a loop code without the conditions that hold in all of it ("specialize" in Halide).

    for k: for i in 8: y[i] = where(o*8 + i + k < n, f(y[i]), y[i])
    ->  if o*8 + max of i + k < n: for k: for i in 8: y[i] = f(y[i])
        else: for k.u: for i.u in 8: y[i.u] = where(o*8 + i.u + k.u < n, f(y[i.u]), y[i.u])

    Parameters
    ----------
    loop : str
        A loop with stores of values that a condition lets keep what they are.
    position : str
        A loop: the conditions count that vary with it.

    Raises
    ------
    ScheduleError
        If none of the conditions is a comparison of sums of loops that is known outside of `loop`,
        or one of them never holds in all of it.
    """
    what = f"specialize({loop}, {position})"
    site = find_for(kernel, loop, "specialize")
    along = find_loop(kernel, position, "specialize").var
    space = Space(kernel)
    inside = {s.var: s.extent for s in walk((site.loop,)) if isinstance(s, For)}
    bound = {v for s in walk((site.loop,)) for v in s.binds()} | set(inside)
    asked = [c for s in walk(site.body) if isinstance(s, Store)
             for e in ex.toposort([s.value]) if e.op is Op.WHERE for c in gd.parts(e.args[0])]
    found = {c: least for c in asked if along in ex.free_vars([c])
             for least in [_least(space, c, inside, bound)] if least is not None}
    if not found:
        raise ScheduleError(what, found=f"no condition of {position} that is known before {loop}",
                            expected="some")
    condition = gd.conjunction([ex.index(0).le(least) for least in dict.fromkeys(found.values())])
    if any(space.ranges.of(least).hi < 0 for least in found.values()):
        raise ScheduleError(what, found="iterations that reach out everywhere",
                            expected="some that lie inside")
    edit = Edit(kernel)
    copy = edit.duplicate((site.loop,), {}, ".u")
    rewriter = Known(kernel, set(found))
    whole = rewriter.body((site.loop,))
    edit.locations |= rewriter.locations
    return edit.replace(site.parents, site.loop, (If(condition, whole, copy),))


def _least(space: Space, condition: Expr, inside: dict[Expr, Expr],
           bound: set[Expr]) -> Expr | None:
    """Return what is at least 0 if a condition holds in all iterations of some loops.

    None if that is unknown.
    """
    slack = gd.slack(space, condition)
    if slack is None:
        return None
    total: Expr = ex.index(0)
    for monomial, step in slack.items():
        free = ex.free_vars(monomial)
        if not free & bound:
            term: Expr = ex.index(step)
            for atom in monomial:
                term = term * atom
            total = total + term
            continue
        n = constant(inside[monomial[0]]) if monomial[0] in inside and len(monomial) == 1 else None
        if n is None:
            return None
        total = total + min(step * (n - 1), 0)
    return total


__all__ = ["specialize"]
