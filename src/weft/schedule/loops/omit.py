"""The primitives `omit` and `branch`: what lies outside of a picture costs no multiplication."""

from __future__ import annotations

from itertools import takewhile

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, If, Kernel, Load, Memory, Reduce, Stmt, Store
from weft.ir.traverse import Rewriter, walk
from weft.schedule.analysis import guard as gd
from weft.schedule.analysis.space import Edit, find_for, find_loop, find_reduce
from weft.schedule.analysis.subscripts import Space


def omit(kernel: Kernel, accumulator: str, *still: str, alone: bool = False,
         zero: bool = False) -> Kernel:
    """Let what lies outside of a picture take no part in the sums of its windows.

    reduce k (s=0) {s + where(0 <= i + k - 1 < n, x[i + k - 1], 0)*w[k]}
    ->  reduce k (s=0) {where(0 <= i + k - 1 < n, s + x[i + k - 1]*w[k], s)}

    The two differ where `w` is infinite or NaN: what is not there no longer makes a NaN of it.
    Conditions count that keep a subscript inside of its memory and vary with an axis and with a
    loop around the sum; others go on choosing a 0. So do those that were divided by a factor of a
    stride and a dilation: they would be a mask in each step.

    Parameters
    ----------
    accumulator : str
        Name of the accumulator of the REDUCE.
    *still : str
        Loops: conditions that vary with one of them go on choosing a 0, too.
    alone : bool
        Whether conditions of axes, or of loops around the sum, alone count as well, and all
        without which nothing is read: of a gradient by images, where pictures or windows may have
        one point and a stride leaves out places. What is cast behind them counts as well, then.
    zero : bool
        Whether sums go on with 0 * 0 there instead: the other factor is chosen to be 0, too. Where
        a vector of results shares this factor, that costs less than keeping their sums.

    Raises
    ------
    ScheduleError
        If the update is no sum of such products, or has no such condition.
    """
    what = f"omit({', '.join([accumulator, *still])})"
    site = find_reduce(kernel, accumulator, "omit")
    stmt = site.reduce
    if len(stmt.accumulators) != 1:
        raise ScheduleError(what, found="several accumulators", expected="one")
    acc = stmt.accumulators[0]
    update = acc.update
    if update.op is Op.MAD and update.args[2] is acc.var:
        factors = update.args[:2]
    elif update.op is Op.ADD and update.args[0] is acc.var and update.args[1].op is Op.MUL:
        factors = update.args[1].args
    else:
        raise ScheduleError(what, found=f"an update {update!r}", expected="a sum of products")
    loads = {s.var: s for s in stmt.body if isinstance(s, Load)}
    axes = {a.var for a in stmt.axes}
    left = {find_loop(kernel, name, "omit").var for name in still}
    space = Space(kernel)
    parts: list[Expr] = []
    zeros: list[Expr] = []  # of the factors, where they are not 0 already
    for factor in factors:
        before = len(parts)
        known, value = [], factor
        while True:
            if alone and value.op is Op.CAST:  # of a narrow type
                value = value.args[0]
            elif value.op is Op.WHERE and ex.is_const(value.args[2], 0.0):  # one for each axis
                known.extend(gd.parts(value.args[0]))
                value = value.args[1]
            else:
                break
        load = loads.get(value)
        if load is not None and known:
            bounds = gd.bounds(space, load)
            asked = [] if load.mask is None else gd.parts(load.mask)
            for c in known:
                free = ex.free_vars([c])
                inside = gd.slack(space, c) in bounds
                if not free & left and (inside or c in asked if alone else (
                        inside and free & axes and free - axes)):
                    parts.append(c)
        if len(parts) == before:
            zeros.append(factor)
    if not parts:
        raise ScheduleError(what, found="no windows that reach out of a picture", expected="some")
    made = _with_zeros(update, zeros, parts) if zero else ex.where(
        gd.conjunction(parts), update, acc.var)
    new = Reduce(stmt.axes, (acc.replace(update=made),), stmt.body)
    return Edit(kernel).replace(site.parents, stmt, (new,))


def _with_zeros(update: Expr, factors: list[Expr], conditions: list[Expr]) -> Expr:
    """Return a sum of products some of whose factors are 0 unless some conditions hold.

    Each condition chooses by itself: what vectors share is chosen before it is spread over lanes.
    """
    new = dict(zip(factors, factors, strict=True))
    for c in conditions:
        new = {f: ex.where(c, e, 0.0) for f, e in new.items()}

    def product(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple([new.get(a, a) for a in args])

    if update.op is Op.MAD:
        return ex.rebuild(update, (*product(update.args[:2]), update.args[2]))
    total, term = update.args
    return ex.rebuild(update, (total, ex.rebuild(term, product(term.args))))


def is_multiple(condition: Expr) -> bool:
    """Whether a condition asks for multiples of a constant: the places that a stride reaches."""
    return (condition.op is Op.EQ and condition.args[0].op is Op.MOD
            and ex.is_const(condition.args[1], 0) and ex.is_const(condition.args[0].args[1]))


def branch(kernel: Kernel, loop: str) -> Kernel:
    """Skip an iteration in which a condition lets every element keep its value.

    for k: for j in 16: y[j] = where(c[k], f(y[j]), y[j])
    ->  for k: if c[k]: for j in 16: y[j] = f(y[j])

    Parts of conditions that vary inside an iteration stay where they are. The others are known in
    it, so that no mask of a load asks them again.

    Raises
    ------
    ScheduleError
        If something else is stored in the loop, or no condition is known where it begins.
    """
    what = f"branch({loop})"
    site = find_for(kernel, loop, "branch")
    inside = {v for s in walk(site.body) for v in s.binds()}
    loads = {s.var: s for s in walk(site.body) if isinstance(s, Load)}
    common: set[Expr] | None = None
    for stmt in walk(site.body):
        if isinstance(stmt, Store):
            kept = _kept(stmt, loads)
            if kept is None:
                raise ScheduleError(what, found=f"a store to {stmt.memory.name}",
                                    expected="elements that keep their value by a condition")
            parts = {c for c in gd.parts(kept) if not ex.free_vars([c]) & inside}
            common = parts if common is None else common & parts
        elif not isinstance(stmt, For | Load | st.Let):
            raise ScheduleError(what, found=f"{type(stmt).__name__} in {loop}",
                                expected="loads and stores")
    if not common:
        raise ScheduleError(what, found="no condition that is known at its start", expected="one")
    moved = common
    edit = Edit(kernel)
    rewriter = Known(kernel, moved)
    condition = gd.conjunction([c for c in gd.parts(_first(site.body)) if c in moved])
    safe = {var for var, load in loads.items() if load.mask is None}
    body = _below(condition, rewriter.body(site.body), site.loop.var, safe)
    edit.locations = rewriter.locations
    old = site.loop
    return edit.replace(site.parents, old, (For(old.var, old.extent, old.kind, body),))


class Known(Rewriter):
    """Statements where some conditions are known to hold: neither masks nor choices ask them."""

    def __init__(self, kernel: Kernel, known: set[Expr]) -> None:
        super().__init__(kernel)
        self.known = known

    def visit(self, stmt: Stmt) -> Stmt:
        """Return a statement without the conditions."""
        if isinstance(stmt, Load) and stmt.mask is not None:
            rest = [c for c in gd.parts(stmt.mask) if c not in self.known]
            return stmt.replace(mask=gd.conjunction(rest) if rest else None)
        return stmt.replace(value=_chosen(stmt.value, self.known)) if isinstance(
            stmt, Store) else stmt


def _below(condition: Expr, body: Body, turn: Expr, safe: set[Expr]) -> Body:
    """Return a body below a condition, but for what vectors read alike in every turn of a loop.

    Those that are read before the branch stay in their registers for the turns behind it: of the
    `safe` ones, which may be read whether or not the condition holds.
    """
    only = body[0]
    if len(body) > 1 or not isinstance(only, For) or only.kind != st.VECTOR:
        return (If(condition, body),)
    reads = takewhile(lambda s: isinstance(s, Load), only.body)
    alike = [s for s in reads if isinstance(s, Load) and s.var in safe
             and turn not in ex.free_vars(s.index)]
    rest = tuple([s for s in only.body if s not in alike])
    return (only.with_bodies((*alike, If(condition, rest))),)


def _kept(stmt: Store, loads: dict[Expr, Load]) -> Expr | None:
    """Return the condition without which a store changes nothing, None if there is none."""
    value = stmt.value
    if value.op is not Op.WHERE or stmt.mask is not None:
        return None
    old = loads.get(value.args[2])
    same = old is not None and _same_place(stmt.memory, stmt.index, old)
    return value.args[0] if same else None


def _chosen(value: Expr, known: set[Expr]) -> Expr:
    """Return a value where some conditions are known to hold: choices do not ask them again."""
    new: dict[Expr, Expr] = {}
    for e in ex.toposort([value]):
        args = tuple([new[a] for a in e.args])
        if e.op is Op.WHERE:
            rest = [c for c in gd.parts(e.args[0]) if c not in known]
            new[e] = ex.where(gd.conjunction(rest), *args[1:]) if rest else args[1]
        else:
            new[e] = ex.rebuild(e, args) if args else e
    return new[value]


def _same_place(memory: Memory, index: tuple[Expr, ...], load: Load) -> bool:
    return load.memory is memory and load.mask is None and all(
        a is b for a, b in zip(load.index, index, strict=True))


def _first(body: Body) -> Expr:
    """Return the condition of the first store: its order is the order of the parts."""
    return next(s.value.args[0] for s in walk(body) if isinstance(s, Store))
