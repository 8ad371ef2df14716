"""Primitives that change the loops of a nest and leave its statements as they are.

What cuts a loop in two stands in `weft.schedule.loops.split`.

Each is a function ``Kernel -> Kernel`` that addresses loops, and the axes of a REDUCE alike, by the
name of their variable, and raises `ScheduleError` where it cannot prove itself legal.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.stmt import Axis, Body, For, Kernel, Reduce, Stmt
from weft.schedule.analysis import dependence as dep
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.space import Copy, Edit, Site, constant, find_for, find_loop
from weft.schedule.loops.split import split

MAX_UNROLL: Final = 1024
MAX_LANES: Final = 64
_NO_VECTORS: Final = (st.While, st.Call, st.Print, st.Atomic, st.Barrier)


def fuse(kernel: Kernel, outer: str, inner: str) -> Kernel:
    """Make one loop of two perfectly nested ("fuse" in Halide and TVM, "mult_loops" in Exo).

    for i in n: for j in m: s[i, j]  ->  for i_j in n*m: s[i_j // m, i_j % m]

    Works on adjacent axes of a REDUCE too. The order of iterations does not change.
    """
    what = f"fuse({outer}, {inner})"
    site = find_loop(kernel, outer, "fuse")
    edit = Edit(kernel)
    both = edit.names.index(f"{outer}_{inner}")
    if site.axis >= 0:
        axes = site.reduce.axes
        if site.axis + 1 >= len(axes) or axes[site.axis + 1].var.attr != inner:
            raise ScheduleError(what, found=f"axes {', '.join(a.var.attr for a in axes)}",
                                expected=f"{inner} right behind {outer}", hint="reorder first")
        pair = axes[site.axis], axes[site.axis + 1]
        _equal_kinds(what, *[a.kind for a in pair])
        mapping = {pair[0].var: both // pair[1].extent, pair[1].var: both % pair[1].extent}
        copy = Copy(edit.locations, mapping)
        fused = Axis(both, pair[0].extent * pair[1].extent, pair[0].kind)
        new = Reduce((*axes[: site.axis], fused, *axes[site.axis + 2 :]),
                     tuple([a.replace(update=copy.expr(a.update))
                            for a in site.reduce.accumulators]),
                     copy.body(site.reduce.body))
        return edit.replace(site.parents, site.stmt, (new,))
    loop = site.loop
    nested = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(nested, For) or nested.var.attr != inner:
        raise ScheduleError(what, found=f"{outer} does not hold {inner} alone",
                            expected="two perfectly nested loops")
    if loop.var in ex.free_vars([nested.extent]):
        raise ScheduleError(what, found=f"{inner} runs to {nested.extent!r}",
                            expected=f"an extent without {outer}")
    _equal_kinds(what, loop.kind, nested.kind)
    mapping = {loop.var: both // nested.extent, nested.var: both % nested.extent}
    body = edit.copy(nested.body, mapping)
    return edit.replace(site.parents, loop,
                        (For(both, loop.extent * nested.extent, loop.kind, body),))


def _equal_kinds(what: str, *kinds: str) -> None:
    if len(set(kinds)) > 1 or kinds[0] not in (st.SERIAL, st.PARALLEL):
        raise ScheduleError(what, found="loops of kind " + " and ".join(kinds),
                            expected="two loops of one kind, serial or parallel")


def reorder(kernel: Kernel, *loops: str) -> Kernel:
    """Permute perfectly nested loops ("reorder" in Halide and TVM, "reorder_loops" in Exo).

    for i in n: for j in m: s[i, j]  ->  for j in m: for i in n: s[i, j]

    `loops` are named from the outermost inwards as they shall stand; they must be neighbours now.
    Axes of one REDUCE may always change places, because its order is not part of its meaning,
    unless its body writes what it reads.

    Raises
    ------
    ScheduleError
        If the nest is not perfect, an extent depends on a loop that would come to stand inside,
        or a dependence would be reversed.
    """
    what = f"reorder({', '.join(loops)})"
    if len(set(loops)) != len(loops) or not loops:
        raise ScheduleError(what, found="a name given twice, or none", expected="distinct loops")
    sites = [find_loop(kernel, name, "reorder") for name in loops]
    if sites[0].axis >= 0:
        return _reorder_axes(kernel, sites, what)
    return _reorder_loops(kernel, sites, what)


def reverse(kernel: Kernel, axis: str) -> Kernel:
    """Go through an axis of a REDUCE from its last step to its first.

    reduce k in n (s) {s + a[k]}  ->  reduce k in n (s) {s + a[n - 1 - k]}

    Raises
    ------
    ScheduleError
        If it is not the axis of a REDUCE: the order of other loops may matter.
    """
    site = find_loop(kernel, axis, "reverse")
    if site.axis < 0:
        raise ScheduleError(f"reverse({axis})", found="a loop", expected="an axis of a REDUCE")
    stmt = site.reduce
    edit = Edit(kernel)
    last = stmt.axes[site.axis].extent - 1
    at = last - site.var
    if constant(last) is None:
        at = ex.maximum(at, 0)  # which the ranges of `last` and of the axis alone do not say
    copy = Copy(edit.locations, {site.var: at})
    new = Reduce(stmt.axes, tuple([a.replace(update=copy.expr(a.update))
                                   for a in stmt.accumulators]), copy.body(stmt.body))
    return edit.replace(site.parents, stmt, (new,))


def _reorder_axes(kernel: Kernel, sites: list[Site], what: str) -> Kernel:
    stmt = sites[0].reduce
    if any(s.stmt is not stmt for s in sites):
        raise ScheduleError(what, found="loops of different statements",
                            expected="axes of one REDUCE",
                            hint="decompose_reduction turns axes into loops")
    places = sorted(s.axis for s in sites)
    axes = list(stmt.axes)
    for place, site in zip(places, sites, strict=True):
        axes[place] = stmt.axes[site.axis]
    _check_order(kernel, [(a.var, a.extent) for a in stmt.axes],
                 [(a.var, a.extent) for a in axes], stmt.body, what)
    new = Reduce(tuple(axes), stmt.accumulators, stmt.body)
    return Edit(kernel).replace(sites[0].parents, stmt, (new,))


def _reorder_loops(kernel: Kernel, sites: list[Site], what: str) -> Kernel:
    by_depth = sorted(sites, key=lambda s: len(s.parents))
    nest: list[For] = []
    for site in by_depth:
        if site.axis >= 0:
            raise ScheduleError(what, found=f"{site.var.attr} is an axis of a REDUCE",
                                expected="FOR loops only",
                                hint="decompose_reduction turns axes into loops")
        nest.append(site.loop)
    for above, below in pairwise(nest):
        if len(above.body) != 1 or above.body[0] is not below:
            found = f"{above.var.attr} does not hold {below.var.attr} alone"
            raise ScheduleError(what, found=found, expected="perfectly nested neighbours")
    _check_order(kernel, [(f.var, f.extent) for f in nest],
                 [(s.var, s.extent) for s in sites], nest[-1].body, what)
    body = nest[-1].body
    edit = Edit(kernel)
    for site in reversed(sites):
        new = For(site.var, site.extent, site.kind, body)
        edit.locate(site.stmt, new)
        body = (new,)
    return edit.replace(by_depth[0].parents, nest[0], body)


def _check_order(kernel: Kernel, old: list[tuple[Expr, Expr]], new: list[tuple[Expr, Expr]],
                 body: Body, what: str) -> None:
    """Check that extents see their variables and that no exchanged pair carries a dependence."""
    variables = {v for v, _ in old}
    seen: set[Expr] = set()
    for var, extent in new:
        missing = (ex.free_vars([extent]) & variables) - seen
        if missing:
            raise ScheduleError(what, found=f"{var.attr} runs to {extent!r}",
                                expected="an extent that depends on outer loops only")
        seen.add(var)
    if not traverse.stores(body):
        return
    order = [v for v, _ in new]
    space = sub.Space(kernel)
    if dep.independent(space, variables, body):
        return
    for position, (outer, _) in enumerate(old):
        for inner, _ in old[position + 1 :]:
            if order.index(inner) > order.index(outer):
                continue
            found = dep.swappable(space, outer, inner, body, variables - {outer, inner})
            if found is not None:
                pair = f"{outer.attr} and {inner.attr}"
                raise ScheduleError(what, found=found, expected=f"that {pair} may change places")


def tile(kernel: Kernel, outer: str, inner: str, outer_factor: int, inner_factor: int,
         tail: str = "mask") -> Kernel:
    """Cut a two-dimensional iteration space into blocks ("tile" in Halide and TVM).

    for i: for j: s  ->  for i.o: for j.o: for i.i: for j.i: s

    Two splits and a reorder. With a masked tail the condition on i stands inside the loop over j,
    where it does not break the nest.
    """
    kernel = split(kernel, inner, inner_factor, tail)
    kernel = split(kernel, outer, outer_factor, tail)
    kernel = sink(kernel, f"{outer}.i")
    return reorder(kernel, f"{outer}.o", f"{inner}.o", f"{outer}.i", f"{inner}.i")


def sink(kernel: Kernel, loop: str) -> Kernel:
    """Move the condition right inside a loop below the loops nested in it.

    for i: if c: for j: s  ->  for i: for j: if c: s

    Conditions are pure, so testing more often changes nothing. It makes a nest with masked tails
    perfect again.
    """
    site = find_for(kernel, loop, "sink")
    conditions: list[Expr] = []
    chain: list[For] = [site.loop]
    body = site.loop.body
    depth = 0
    while len(body) == 1 and isinstance(body[0], st.If | For):
        inner = body[0]
        if isinstance(inner, For):
            if conditions:
                depth = len(chain)
            chain.append(inner)
            body = inner.body
            continue
        if inner.orelse:
            break
        conditions.append(inner.condition)
        body = inner.then
    if not conditions or not depth:
        return kernel
    condition = conditions[0]
    for other in conditions[1:]:
        condition = condition & other
    body = (st.If(condition, body),)
    for loop_stmt in reversed(chain):
        body = (For(loop_stmt.var, loop_stmt.extent, loop_stmt.kind, body),)
    return Edit(kernel).replace(site.parents, site.stmt, body)


def unroll(kernel: Kernel, loop: str) -> Kernel:
    """Mark a loop to be written out ("unroll" everywhere; done last, by a pass).

    for i in 4: s[i]  ->  s[0]; s[1]; s[2]; s[3]

    On a reduce axis each step gets its own partial result. The extent must be constant, or become
    constant when the loops around that it depends on are written out.
    """
    site = find_loop(kernel, loop, "unroll")
    n = constant(site.extent)
    around = {p.var for p in site.parents if isinstance(p, For) and p.kind == st.UNROLLED}
    needed = ex.free_vars([site.extent])
    if n is None and site.axis < 0 and needed and needed <= around and (
            not ex.variables([site.extent])):
        n = sub.Space(kernel).ranges.of(site.extent).hi
    if n is None or not 0 <= n <= MAX_UNROLL:
        raise ScheduleError(f"unroll({loop})", found=f"an extent of {site.extent!r}",
                            expected=f"a constant of at most {MAX_UNROLL}", hint="split first")
    if site.axis >= 0:
        _independent_axis(site, f"unroll({loop})")
    return _mark(site, st.UNROLLED)


def vectorize(kernel: Kernel, loop: str) -> Kernel:
    """Run the iterations of a loop as lanes of vector instructions ("vectorize" everywhere).

    for i in 16: y[i] = x[i]  ->  y[0:16] = x[0:16]

    The extent must be a constant power of two of at most 64. Iterations must be independent; the
    lanes of a reduce axis keep partial results, which are combined at the end.
    """
    what = f"vectorize({loop})"
    site = find_loop(kernel, loop, "vectorize")
    n = constant(site.extent)
    if n is None or n < 1 or n & (n - 1) or n > MAX_LANES:
        raise ScheduleError(what, found=f"an extent of {site.extent!r}",
                            expected=f"a power of two up to {MAX_LANES}",
                            hint="split the loop by the number of lanes first")
    obstacle = vector_obstacle(site.body)
    if obstacle is not None:
        raise ScheduleError(what, found=obstacle, expected="statements that have a vector form")
    if site.axis < 0:
        _independent(kernel, site, what, "tail=... and split keep the order; or leave it serial")
    else:
        _independent_axis(site, what)
    return _mark(site, st.VECTOR)


def vector_obstacle(body: Body) -> str | None:
    """Return what in a body has no vector form, None if there is nothing."""
    for stmt in traverse.walk(body):
        if isinstance(stmt, _NO_VECTORS):
            return f"a {type(stmt).__name__} in the body"
        if isinstance(stmt, st.Load) and stmt.var.lanes > 1:
            return "statements that are vectors already"
        if isinstance(stmt, For) and stmt.kind not in (st.SERIAL, st.UNROLLED):
            return f"the {stmt.kind} loop {stmt.var.attr} in the body"
        if isinstance(stmt, Reduce) and any(a.kind == st.VECTOR for a in stmt.axes):
            return "a REDUCE with a vector axis in the body"
    return None


def parallel(kernel: Kernel, *loops: str) -> Kernel:
    """Share the iterations of a loop out to threads ("parallel" in Halide and TVM).

    for i in n serial: s  ->  for i in n parallel: s      (an implicit barrier follows)

    Several loops that nest perfectly, given from the outermost inwards, become one.

    Raises ScheduleError if an iteration may depend on another, or on a reduce axis (`rfactor`
    makes one parallel).
    """
    what = f"parallel({', '.join(loops)})"
    return _shared(kernel, loops, st.PARALLEL, (st.SERIAL,), what)


def bind(kernel: Kernel, *loops: str) -> Kernel:
    """Deal the iterations of a loop out to the threads of a group ("bind" in TVM).

    for i in n serial: s  ->  for i in n thread.x: s      (a barrier of the group follows)

    Around it are serial and parallel loops alone: an iteration of a parallel one is a group's.
    Several loops that nest perfectly, given from the outermost inwards, become one. What has one
    iteration is one thread's, whatever it does.

    Raises ScheduleError if an iteration may depend on another, or on a reduce axis (`rfactor`
    makes one a loop).
    """
    return _shared(kernel, loops, st.THREADS, (st.SERIAL, st.PARALLEL), f"bind({', '.join(loops)})")


def _shared(kernel: Kernel, loops: tuple[str, ...], kind: str, around: tuple[str, ...],
            what: str) -> Kernel:  # fmt: skip
    """Return a kernel with serial loops as one of a kind, if it may stand inside of those around.

    Each is proved independent for itself: their subscripts are plain sums before they are fused.
    """
    hint = "rfactor or privatize removes dependences of reductions"
    for name in loops:
        site = find_for(kernel, name, what.partition("(")[0])
        if site.kind != st.SERIAL:
            raise ScheduleError(what, found=f"a loop of kind {site.kind}", expected="a serial loop")
        for parent in site.parents:
            if isinstance(parent, For) and parent.kind not in around:
                raise ScheduleError(what, found=f"the {parent.kind} loop {parent.var.attr} around",
                                    expected=" and ".join(around) + " loops around it")
        if kind != st.THREADS or not ex.is_const(site.extent, 1):  # which is one thread's
            _independent(kernel, site, what, hint)
    whole = loops[0]
    for name in loops[1:]:
        before = {s for s in traverse.walk(kernel.body) if isinstance(s, For)}
        kernel = fuse(kernel, whole, name)
        names = {s.var.attr for s in before}
        (whole,) = [s.var.attr for s in traverse.walk(kernel.body)
                    if isinstance(s, For) and s.var.attr not in names]
    return _mark(find_for(kernel, whole, what), kind)


def _independent(kernel: Kernel, site: Site, what: str, hint: str) -> None:
    found = dep.carried(sub.Space(kernel), site.var, site.body)
    if found is not None:
        raise ScheduleError(what, found=found, expected="independent iterations", hint=hint)


def _independent_axis(site: Site, what: str) -> None:
    found = dep.carried(sub.Space(site.kernel), site.var, site.body)
    if found is not None:
        raise ScheduleError(what, found=found, expected="a body with independent iterations")


def _mark(site: Site, kind: str) -> Kernel:
    if site.axis < 0:
        new: Stmt = site.loop.replace(kind=kind)
    else:
        axes = list(site.reduce.axes)
        axes[site.axis] = axes[site.axis].replace(kind=kind)
        new = Reduce(tuple(axes), site.reduce.accumulators, site.reduce.body)
    return Edit(site.kernel).replace(site.parents, site.stmt, (new,))
