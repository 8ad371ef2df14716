"""The primitives that add up in blocks, so that rounding errors grow with their number only."""

from __future__ import annotations

from collections.abc import Callable

from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Body, For, Kernel, Let, Load, Memory, Reduce, Stmt, Store
from weft.schedule.analysis.space import Edit, find_for, find_loop, find_memory
from weft.schedule.loops.reduction import renamed
from weft.schedule.loops.split import split


def cascade(kernel: Kernel, axis: str) -> Kernel:
    """Combine the points of each iteration of the outermost axis among themselves first.

    reduce o, i (s) {s + a[o, i]}
    ->  reduce o (s) { reduce i (s.b) {s.b + a[o, i]};  combine(s, s.b) }

    Points are visited in the same order. A float sum of n terms in blocks of b loses
    ``b + n / b`` roundings at most instead of n ("cascaded" or blocked summation: Higham, The
    accuracy of floating point summation, 1993).

    Raises
    ------
    ScheduleError
        If it is not the first of several axes, or the body looks at a running value.
    """
    what = f"cascade({axis})"
    site = find_loop(kernel, axis, "cascade")
    if site.axis != 0 or len(site.reduce.axes) < 2:
        raise ScheduleError(what, found="no outermost axis of several",
                            expected="the first axis of a REDUCE with another one",
                            hint=f"split({axis}, factor) first")
    stmt = site.reduce
    running = {a.var for a in stmt.accumulators}
    if any(running & ex.free_vars(s.exprs()) for s in traverse.walk(stmt.body)):
        raise ScheduleError(what, found="a body that reads a running value",
                            expected="a body that only the updates look at")
    edit = Edit(kernel)
    block = {a.var: edit.names.var(f"{a.var.attr}.b", a.var) for a in stmt.accumulators}
    inner = renamed(edit, stmt, block)
    mapping = {st.lhs(a.var): a.var for a in stmt.accumulators}
    mapping |= {st.rhs(a.var): block[a.var] for a in stmt.accumulators}
    updates = ex.substitute([a.combine for a in stmt.accumulators], mapping)
    outer = tuple([a.replace(update=u) for a, u in zip(stmt.accumulators, updates, strict=True)])
    blocks = Reduce(stmt.axes[1:], inner.accumulators, inner.body)
    return edit.replace(site.parents, stmt, (Reduce(stmt.axes[:1], outer, (blocks,)),))


def promote(kernel: Kernel, axis: str) -> Kernel:
    """Carry float32 sums in float64 and round them once.

    reduce o (s) {s + x}  ->  reduce o (s.d: f64) {s.d + cast(x)};  s = cast(s.d)

    Meant for the few terms that blocks leave: each of them would be rounded to the whole sum.

    Raises
    ------
    ScheduleError
        If the axis is not one of a REDUCE, or that does anything but add up float32 values.
    """
    site = find_loop(kernel, axis, "promote")
    sums = [] if site.axis < 0 else [(a, _term(a)) for a in site.reduce.accumulators]
    if not sums or any(term is None for _, term in sums):
        raise ScheduleError(f"promote({axis})", found="no sums of float32 values",
                            expected="an axis of a REDUCE with updates s + x")
    edit, stmt = Edit(kernel), site.reduce
    wide = {a.var: edit.names.var(f"{a.var.attr}.d", ex.var("d", dt.float64)) for a, _ in sums}
    made = tuple([st.Accumulator(
        wide[a.var], ex.cast(a.init, dt.float64), wide[a.var] + ex.cast(term, dt.float64),
        st.lhs(wide[a.var]) + st.rhs(wide[a.var])) for a, term in sums if term is not None])
    rounded = [Let(a.var, ex.cast(wide[a.var], dt.float32)) for a, _ in sums]
    return edit.replace(site.parents, stmt, (Reduce(stmt.axes, made, stmt.body), *rounded))


def _term(a: st.Accumulator) -> Expr | None:
    """Return what a sum of float32 values adds in each step, None if it is no such sum."""
    if a.var.dtype is not dt.float32 or a.update.op is not Op.ADD or a.combine.op is not Op.ADD:
        return None
    terms = [x for x in a.update.args if x is not a.var]
    return terms[0] if len(terms) == 1 and a.var not in ex.free_vars(terms) else None


def block_sums(kernel: Kernel, memory: str, loop: str, block: int) -> Kernel:
    """Add up blocks of a loop apart, where running sums are an array ("cascaded" summation).

    for k in n: for j in m: s[j] = s[j] + a[k, j]
    ->  for k.o in n/b: {
            alloc s.b[m]
            for j.y in m: s.b[j.y] = 0
            for k.i in b: for j in m: s.b[j] = s.b[j] + a[k.o*b + k.i, j]
            for j.x in m: s[j.x] = s[j.x] + s.b[j.x] }
        for k.t in n%b: for j in m: s[j] = s[j] + a[..., j]

    The loops over the array are named after `memory`: ``s.y0``, ``s.x0`` and so on.

    Raises
    ------
    ScheduleError
        If the loop does anything with the array but add to its elements.
    """
    what = f"block_sums({memory}, {loop}, {block})"
    target = find_memory(kernel, memory, "block_sums")
    site = find_for(kernel, loop, "block_sums")
    stores = [s for s in traverse.walk(site.body) if isinstance(s, Store) and s.memory is target]
    loads = [s for s in traverse.walk(site.body) if isinstance(s, Load) and s.memory is target]
    if len(stores) != 1 or len(loads) != 1 or not _adds_to(stores[0], loads[0], site.body):
        raise ScheduleError(what, found=f"no single s = s + x of {memory} in {loop}",
                            expected="an array of running sums")
    moving = {v for s in traverse.walk(site.body) for v in s.binds()}
    index = stores[0].index
    if any(site.var in ex.free_vars([i]) for i in index):
        raise ScheduleError(what, found=f"an element of {memory} for each {loop}",
                            expected="a loop that adds to all of them")
    made = split(kernel, loop, block, "peel")
    site = find_for(made, f"{loop}.o", "block_sums")
    edit = Edit(made)
    free = [d for d, i in enumerate(index) if moving & ex.free_vars([i])]
    part = Memory(edit.names.fresh(f"{memory}.b"), target.dtype,
                  tuple(target.shape[d] for d in free) or (ex.index(1),), target.scope)
    own = tuple(index[d] for d in free) or (ex.index(0),)

    class Redirect(traverse.Rewriter):
        def visit(self, stmt: Stmt) -> Stmt:
            if isinstance(stmt, Load | Store) and stmt.memory is target:
                return stmt.replace(memory=part, index=own)
            return stmt

    rewriter = Redirect(made)
    body = rewriter.body(site.body)
    edit.locations = rewriter.locations
    zero = ex.const(0, target.dtype)
    loop_stmt = site.loop
    new = For(loop_stmt.var, loop_stmt.extent, loop_stmt.kind, (
        Alloc(part), *_over(edit, part, f"{memory}.y", lambda at: (Store(part, at, zero),)),
        *body, *_over(edit, part, f"{memory}.x",
                      lambda at: _join(edit, target, part, index, free, at))))
    return edit.replace(site.parents, loop_stmt, (new,))


def _adds_to(store: Store, load: Load, body: Body) -> bool:
    """Whether a store adds something to the element that was loaded, and nothing else uses it."""
    value = store.value
    terms = value.args if value.op is Op.ADD else value.args[2:] if value.op is Op.MAD else ()
    if load.var not in terms or load.index != store.index or store.mask or load.mask:
        return False
    rest = [e for s in traverse.walk(body) if s is not store for e in s.exprs()]
    rest += [a for a in value.args if a is not load.var]
    return load.var not in ex.free_vars(rest) and value.args.count(load.var) == 1


def _over(edit: Edit, part: Memory, name: str, inside: Callable[[tuple[Expr, ...]], Body]) -> Body:
    variables = tuple(edit.names.index(f"{name}{d}") for d in range(len(part.shape)))
    body = inside(variables)
    for var, extent in zip(reversed(variables), reversed(part.shape), strict=True):
        body = (For(var, extent, st.SERIAL, body),)
    return body


def _join(edit: Edit, target: Memory, part: Memory, index: tuple[Expr, ...], free: list[int],
          at: tuple[Expr, ...]) -> Body:  # fmt: skip
    place = list(index)
    for d, i in zip(free, at, strict=False):
        place[d] = i
    old = edit.names.fresh(f"{target.name}.u")
    new = edit.names.fresh(f"{target.name}.w")
    a, b = ex.var(old, target.dtype), ex.var(new, target.dtype)
    return (Load(a, target, tuple(place)), Load(b, part, at), Store(target, tuple(place), a + b))
