"""Making statements conditional: the masks of a split whose factor does not divide."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, Load, Stmt
from weft.rules.polynomial import Poly
from weft.schedule.analysis.subscripts import Space


def both(a: Expr | None, b: Expr) -> Expr:
    """Return the conjunction of a mask, which may be absent, and a condition."""
    if a is None:
        return b
    parts = [a]
    while parts:  # what is said already is not said again
        part = parts.pop()
        if part is b:
            return a
        if part.op is Op.AND:
            parts.extend(part.args)
    return a & b


def guard(body: Body, condition: Expr, primitive: str) -> Body:
    """Let a body touch nothing unless `condition` holds; the names it binds stay visible.

    load x = a[i]  ->  load x = a[i] where c
    store a[i] = x ->  store a[i] = x where c
    reduce (s = f)  ->  reduce (s = where(c, f, s))
    """
    return tuple([_guard(s, condition, primitive) for s in body])


def _guard(stmt: Stmt, condition: Expr, primitive: str) -> Stmt:
    if isinstance(stmt, st.Let | st.Alloc):
        return stmt
    if isinstance(stmt, st.Load | st.Store):
        return stmt.replace(mask=both(stmt.mask, condition))
    if isinstance(stmt, st.Assert):
        return stmt.replace(condition=stmt.condition | ex.unary(Op.NOT, condition))
    if isinstance(stmt, st.Reduce):
        made = st.Reduce(stmt.axes, keep(stmt.accumulators, condition), stmt.body)
        return made.with_bodies(guard(stmt.body, condition, primitive))
    if isinstance(stmt, st.For | st.Block | st.If):
        return stmt.with_bodies(*[guard(b, condition, primitive) for b in stmt.bodies()])
    if isinstance(stmt, st.While | st.Print | st.Prefetch):
        return st.If(condition, (stmt,))
    raise ScheduleError(primitive, found=f"a {type(stmt).__name__} in the body",
                        expected="statements that a mask can switch off",
                        hint='choose a factor that divides the extent, or tail="peel"')


def keep(accumulators: tuple[st.Accumulator, ...],
         condition: Expr) -> tuple[st.Accumulator, ...]:
    """Let each accumulator keep its value unless `condition` holds."""
    return tuple([a.replace(update=ex.where(condition, a.update, a.var)) for a in accumulators])


def is_zero(e: Expr | None) -> bool:
    """Whether what a load gives where it is masked is +0."""
    return e is None or (e.op is Op.CONST and not e.attr and str(e.attr)[:1] != "-")


def factors(accumulator: st.Accumulator, body: Body) -> tuple[Expr, Expr] | None:
    """Return a and b of an update ``s + a*b``, names inside the body written out."""
    var, u = accumulator.var, accumulator.update
    values = {s.var: s.value for s in body if isinstance(s, st.Let)}
    if u.op is Op.MAD and u.args[2] is var:
        return u.args[0], u.args[1]
    if u.op is not Op.ADD or var not in u.args:
        return None
    term = u.args[1] if u.args[0] is var else u.args[0]
    while term in values or term.op is Op.CAST:
        term = values[term] if term in values else term.args[0]
    return (term.args[0], term.args[1]) if term.op is Op.MUL else None


def adds_nothing(accumulator: st.Accumulator, body: Body) -> bool:
    """Whether a sum stays what it is where the loads of a body are masked.

    A product of two zeros is +0, and a sum that began at +0 is never -0, so it keeps each bit.
    """
    found = factors(accumulator, body) if is_zero(accumulator.init) else None
    values = {s.var: s.value for s in body if isinstance(s, st.Let)}
    zeros = {s.var for s in body if isinstance(s, Load) and s.mask is not None and is_zero(s.fill)}

    def vanishes(e: Expr) -> bool:
        while e in values or e.op is Op.CAST:
            e = values[e] if e in values else e.args[0]
        return e in zeros

    return found is not None and all(map(vanishes, found))


def parts(e: Expr) -> list[Expr]:
    """Return the conditions of a conjunction, in order."""
    out: list[Expr] = []
    stack = [e]
    while stack:
        part = stack.pop()
        if part.op is Op.AND:
            stack.extend(reversed(part.args))
        else:
            out.append(part)
    return out


def unmasked(stmt: Stmt, free: Mapping[Expr, Expr]) -> Stmt:
    """Replace ``where(mask, value, 0)`` by the value, which is 0 where its mask does not hold.

    A part of the mask chooses the same: where the part does not hold, neither does the mask. A
    window that was widened axis by axis has one choice for each, one around the other.

    Parameters
    ----------
    free : mapping from Expr to Expr
        Masks by the names of such values.
    """
    found: dict[Expr, Expr] = {}
    for e in ex.toposort(list(stmt.exprs())):
        if e.op is not Op.WHERE or not is_zero(e.args[2]):
            continue
        value = found.get(e.args[1], e.args[1])
        if value in free and set(parts(e.args[0])) <= set(parts(free[value])):
            found[e] = value
    return stmt.map_exprs(lambda e: ex.substitute([e], found)[0]) if found else stmt


def conjunction(conditions: list[Expr]) -> Expr:
    """Return what holds where all of some conditions do, at least one."""
    whole = conditions[0]
    for c in conditions[1:]:
        whole = whole & c
    return whole


def slack(space: Space, condition: Expr) -> Poly | None:
    """Return what is at least 0 where a comparison of indices holds, None if it is none."""
    if condition.op not in (Op.LT, Op.LE) or condition.args[0].dtype is not dt.int64:
        return None
    a, b = condition.args
    return space.poly(b - a - (1 if condition.op is Op.LT else 0))


def tight(poly: Poly) -> Poly:
    """Return a polynomial that is at least 0 for the same integers: of ``2*x - 1``, ``x - 1``."""
    factor = gcd(*[c for monomial, c in poly.items() if monomial]) or 1
    found = {monomial: c // factor for monomial, c in poly.items()}
    return {monomial: c for monomial, c in found.items() if c}


def bounds(space: Space, load: Load) -> list[Poly]:
    """Return what is at least 0 where a load is inside of its memory."""
    return [space.poly(e) for i, size in zip(load.index, load.memory.shape, strict=True)
            for e in (i, size - i - 1)]


def stays(space: Space, load: Load) -> bool:
    """Whether a load is inside of its memory wherever its own mask holds.

    What else is asked around it may then be left out of it, if nobody reads what it gives there.
    """
    asked = [] if load.mask is None else [slack(space, c) for c in parts(load.mask)]
    known = [tight(p) for p in asked if p is not None]
    for i, size in zip(load.index, load.memory.shape, strict=True):
        if space.within(i, size):
            continue
        lo = space.ranges.of(i).lo >= 0 or tight(space.poly(i)) in known
        hi = space.ranges.of(i).hi < space.ranges.of(size).lo or _below(space, i, size, known)
        if not (lo and hi):
            return False
    return True


def _below(space: Space, i: Expr, size: Expr, known: list[Poly]) -> bool:
    """Whether ``i < size`` is among what is known, or ``x < size * c`` of an i that is x // c."""
    while tight(space.poly(size - i - 1)) not in known:
        if i.op is not Op.FLOORDIV or i.args[1].op is not Op.CONST or i.args[1].attr < 1:
            return False
        i, size = i.args[0], size * i.args[1]
    return True
