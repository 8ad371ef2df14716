"""The primitives that make statistics of several rows at once: distribute and lift."""

from __future__ import annotations

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.stmt import Alloc, Body, For, Kernel, Let, Load, Memory, Reduce, Stmt, Store
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.space import HEAVY, Copy, Edit, constant, find_for, find_loop
from weft.schedule.data.memory import MAX_EXTENT


def distribute(kernel: Kernel, loop: str, count: int) -> Kernel:
    """Carry out the first statements of a loop for all iterations before the rest ("fission").

    for i in n: { reduce k (s) {s + a[i, k]};  store b[i] = log(s) }
    ->  alloc s.d[n]
        for i.d in n: { reduce k (s) {s + a[i.d, k]};  store s.d[i.d] = s }
        for i in n: { load s.d0 = s.d[i];  store b[i] = log(s.d0) }

    What the rest reads of them is kept in arrays, but for what was loaded: that is loaded again.

    Parameters
    ----------
    loop : str
        A serial loop of constant extent.
    count : int
        How many statements of its body come first. They may name, load and reduce, no more, and
        no memory that the rest writes.

    Raises
    ------
    ScheduleError
        If the order of a write and a read would change.
    """
    what = f"distribute({loop}, {count})"
    site = find_for(kernel, loop, "distribute")
    body, n = site.loop.body, constant(site.extent)
    if site.kind != st.SERIAL or n is None or n > MAX_EXTENT:
        raise ScheduleError(what, found=f"a {site.kind} loop over {site.extent!r}",
                            expected="a serial loop of constant extent", hint="split it first")
    if not 0 < count < len(body):
        raise ScheduleError(what, found=f"{len(body)} statements", expected="some on either side")
    first, rest = body[:count], body[count:]
    for stmt in traverse.walk(first):
        if not isinstance(stmt, Let | Load | Reduce):
            raise ScheduleError(what, found=f"a {type(stmt).__name__} among the first",
                                expected="names, loads and reductions")
    written = traverse.stores(rest)
    if any(isinstance(s, st.Call | st.Atomic) for s in traverse.walk(rest)) or (
            set(written) & set(traverse.loads(first))):
        raise ScheduleError(what, found="writes of the rest to what the first statements read",
                            expected="separate memories")
    edit = Edit(kernel)
    used = {v for s in traverse.walk(rest) for v in ex.free_vars(s.exprs())}
    again, kept = _needed(first, used)
    index = edit.names.index(f"{loop}.d")
    memories = [Memory(edit.names.fresh(f"{v.attr}.d"), v.dtype, (site.extent,), "local")
                for v in kept]
    before = edit.copy(first, {site.var: index})
    before += tuple([Store(m, (index,), v) for m, v in zip(memories, kept, strict=True)])
    copy = Copy(edit.locations, {}, edit.names, ".d0")
    loads = copy.body(tuple(again))
    for memory, v in zip(memories, kept, strict=True):
        loads += (Load(copy.bind(v), memory, (site.var,)),)
    after = Copy(edit.locations, copy.memo).body(rest)
    return edit.replace(site.parents, site.loop, (
        *map(Alloc, memories), For(index, site.extent, st.SERIAL, before),
        For(site.var, site.extent, st.SERIAL, (*loads, *after))))


def _needed(first: Body, used: set[Expr]) -> tuple[list[Stmt], list[Expr]]:
    """Return the loads to repeat and the names to keep, of what the rest uses."""
    again: list[Stmt] = []
    kept: list[Expr] = []
    bound = sub.bound_inside(first)
    for stmt in first:
        names = [v for v in stmt.binds() if v in used]
        if names and isinstance(stmt, Load) and not bound & ex.free_vars(stmt.exprs()):
            again.append(stmt)
        else:
            kept += names
    return again, kept


def lift(kernel: Kernel, loop: str) -> Kernel:
    """Name the transcendental values of a loop that do not vary in it.

    for j: store b[i, j] = a[i, j] - log(s)  ->  let b.h = log(s); for j: store ... a[i, j] - b.h

    Raises
    ------
    ScheduleError
        If there is no such value.
    """
    site = find_loop(kernel, loop, "lift")
    stmt = site.stmt
    varying = sub.bound_inside((stmt,))
    for inner in traverse.walk((stmt,)):
        if isinstance(inner, Reduce):
            for a in inner.accumulators:
                varying |= {st.lhs(a.var), st.rhs(a.var)}
    fixed = {e: not varying & ex.free_vars([e])
             for e in ex.toposort([e for s in traverse.walk((stmt,)) for e in s.exprs()])}
    found = [e for e, still in fixed.items() if still and e.op in HEAVY and e.dtype.is_float]
    inner_ones = {e for o in found for e in ex.toposort([o]) if e is not o}
    found = [e for e in found if e not in inner_ones]
    if not found:
        raise ScheduleError(f"lift({loop})", found="nothing of the kind that stays the same",
                            expected=f"a value that does not vary with {loop}")
    edit = Edit(kernel)
    lets: list[Stmt] = []
    mapping: dict[Expr, Expr] = {}
    for e in found:
        name = ex.var(edit.names.fresh(f"{loop}.h"), e.dtype)
        lets.append(Let(name, e))
        mapping[e] = name
    return edit.replace(site.parents, stmt, (*lets, *edit.copy((stmt,), mapping)))
