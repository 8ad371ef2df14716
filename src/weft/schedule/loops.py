"""Primitives that change the loops of a nest and leave its statements as they are.

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
from weft.ir.stmt import Axis, Body, For, Kernel, Let, Reduce, Stmt
from weft.schedule import dependence as dep
from weft.schedule import guard as gd
from weft.schedule import subscripts as sub
from weft.schedule.space import Copy, Edit, Site, ceildiv, constant, find_for, find_loop

TAILS: Final = ("mask", "peel", "pad", "trim", "overlap", "clamp")
MAX_UNROLL: Final = 1024
MAX_LANES: Final = 64


def split(kernel: Kernel, loop: str, factor: int, tail: str = "mask") -> Kernel:
    """Split one loop into two ("split" in Halide and TVM, "divide_loop" in Exo).

    for i in n: s[i]  ->  for i.o in n/f: for i.i in f: s[i.o*f + i.i]

    Where f does not divide n, `tail` says what happens to the rest:

    * ``mask``: for i.o in ceil(n/f): for i.i in f: if i.o*f + i.i < n: s. On a reduce axis the
      condition masks the loads of the body and keeps the accumulators.
    * ``peel``: n//f whole rounds, then ``for i.t in n%f: s[(n//f)*f + i.t]``; a REDUCE becomes two,
      whose results are combined.
    * ``pad``: the iterations past n run too; every access must stay within its memory
      ("pad_and_split"; see `pad`).
    * ``trim``: the last round of i.i is shorter: ``for i.i in min(f, n - i.o*f)``. Not for reduce
      axes.
    * ``overlap``: the last round starts at n - f and repeats work ("ShiftInwards" in Halide);
      needs n >= f, independent iterations, and a body that does not read what it writes.

    * ``clamp``: the iterations past n repeat the last one, ``s[min(i.o*f + i.i, n-1)]``; as
      ``overlap``, but for any n. For loops that are unrolled: neighbours may be the same.

    The order of iterations does not change (but for ``overlap``).

    Parameters
    ----------
    factor : int
        Iterations of the inner loop, at least 1.

    Raises
    ------
    ScheduleError
        If the tail policy is not legal here. Ref: Halide, PLDI 2013.
    """
    what = f"split({loop}, {factor}, tail={tail})"
    if factor < 1 or tail not in TAILS:
        raise ScheduleError(what, found=f"factor {factor}, tail {tail!r}",
                            expected="a factor of at least 1 and a tail of " + ", ".join(TAILS))
    site = find_loop(kernel, loop, "split")
    if site.kind not in (st.SERIAL, st.PARALLEL):
        raise ScheduleError(what, found=f"a loop of kind {site.kind}", expected="a serial loop",
                            hint="split before unroll and vectorize")
    edit = Edit(kernel)
    n = constant(site.extent)
    if (n is not None and n % factor == 0) or _divides(kernel, site.extent, factor):
        tail = "exact"
    return _SplitAxis(edit, site, factor, tail, what).apply()


def _divides(kernel: Kernel, extent: Expr, factor: int) -> bool:
    if constant(extent) is not None:
        return False
    return all(c % factor == 0 for c in sub.Space(kernel).poly(extent).values())


class _SplitAxis:
    """One split: the parts that FOR and REDUCE share."""

    def __init__(self, edit: Edit, site: Site, factor: int, tail: str, what: str) -> None:
        self.edit, self.site, self.factor, self.tail, self.what = edit, site, factor, tail, what
        name = site.var.attr
        self.outer, self.inner = edit.names.index(f"{name}.o"), edit.names.index(f"{name}.i")
        self.point = self.outer * factor + self.inner

    def apply(self) -> Kernel:
        if self.site.axis >= 0:
            return self._reduce()
        return self._for()

    def _for(self) -> Kernel:
        site, edit, f = self.site, self.edit, self.factor
        loop, n = site.loop, site.extent
        point, rounds, width = self.point, ceildiv(n, f), ex.index(f)
        rest: tuple[Stmt, ...] = ()
        if self.tail == "exact":
            rounds = n // f
        elif self.tail == "peel":
            rounds = n // f
            rest = (_tail(edit, loop, rounds * f, n - rounds * f),)
        elif self.tail == "trim":
            width = ex.minimum(ex.index(f), n - self.outer * f)
        elif self.tail == "overlap":
            self._may_overlap()
            point = ex.minimum(self.outer * f, n - f) + self.inner
        elif self.tail == "clamp":
            self._may_repeat()
            point = ex.minimum(point, n - 1)
        elif self.tail == "pad":
            self._may_pad(rounds * f)
        body = edit.copy(loop.body, {loop.var: point})
        if self.tail == "mask":
            body = (st.If(point.lt(n), body),)
        nest = For(self.outer, rounds, loop.kind, (For(self.inner, width, st.SERIAL, body),))
        return edit.replace(site.parents, loop, (nest, *rest))

    def _may_overlap(self) -> None:
        loop = self.site.loop
        space = sub.Space(self.edit.kernel)
        if space.ranges.of(loop.extent).lo < self.factor:
            raise ScheduleError(self.what, found=f"an extent of {loop.extent!r}",
                                expected=f"at least {self.factor} iterations",
                                hint='tail="mask" works for any extent')
        self._may_repeat()

    def _may_repeat(self) -> None:
        loop = self.site.loop
        space = sub.Space(self.edit.kernel)
        found = dep.carried(space, loop.var, loop.body) or dep.idempotent(loop.body)
        if found is not None:
            raise ScheduleError(self.what, found=found,
                                expected="independent iterations that may run twice",
                                hint='tail="peel" or "mask" repeats nothing')

    def _may_pad(self, extent: Expr) -> None:
        """Check that no access leaves its memory when the loop runs to `extent`."""
        loop = self.site.loop
        body = self.edit.kernel.with_body((loop.replace(extent=extent),))
        ranges = sub.Space(body).ranges
        own = {s.memory for s in traverse.walk(self.edit.kernel.body) if isinstance(s, st.Alloc)}
        for access in sorted(sub.accesses(loop.body), key=lambda a: not a.write):
            if access.write and access.memory not in own:
                raise ScheduleError(self.what, found=f"{access!r} past the end",
                                    expected="stores to allocated memories only")
            for i, size in zip(access.index, access.memory.shape, strict=True):
                span = ranges.of(i)
                if span.lo < 0 or span.hi >= ranges.of(size).lo:
                    raise ScheduleError(
                        self.what, found=f"{access!r} with a size of {size!r}",
                        expected=f"room for {extent!r} iterations", hint="pad the memory first")

    def _reduce(self) -> Kernel:
        site, edit, f = self.site, self.edit, self.factor
        stmt, n = site.reduce, site.extent
        if self.tail in ("trim", "overlap", "pad", "clamp"):
            raise ScheduleError(self.what, found="an axis of a REDUCE",
                                expected='tail="mask" or "peel"',
                                hint="each point must be counted once")
        if self.tail == "peel":
            return self._peel_reduce()
        rounds = n // f if self.tail == "exact" else ceildiv(n, f)
        copied = self._copied(stmt, self.point, rounds)
        if self.tail == "mask":
            inside = self.point.lt(n)
            copied = Reduce(copied.axes, gd.keep(copied.accumulators, inside),
                            gd.guard(copied.body, inside, self.what))
        return edit.replace(site.parents, stmt, (copied,))

    def _copied(self, stmt: Reduce, point: Expr, rounds: Expr) -> Reduce:
        at = self.site.axis
        axis = stmt.axes[at]
        copy = Copy(self.edit.locations, {axis.var: point})
        pair = (Axis(self.outer, rounds, axis.kind), Axis(self.inner, ex.index(self.factor)))
        accumulators = tuple([a.replace(update=copy.expr(a.update)) for a in stmt.accumulators])
        return Reduce(stmt.axes[:at] + pair + stmt.axes[at + 1 :], accumulators,
                      copy.body(stmt.body))

    def _peel_reduce(self) -> Kernel:
        site, edit, f = self.site, self.edit, self.factor
        stmt, n, at = site.reduce, site.extent, site.axis
        rounds = n // f
        main = self._copied(stmt, self.point, rounds)
        last = edit.names.index(f"{site.var.attr}.t")
        (rest,) = edit.duplicate((stmt,), {}, ".t")
        assert isinstance(rest, Reduce)
        old = rest.axes[at].var
        copy = Copy(edit.locations, {old: rounds * f + last})
        axes = (*rest.axes[:at], Axis(last, n - rounds * f), *rest.axes[at + 1 :])
        accumulators = tuple([a.replace(update=copy.expr(a.update)) for a in rest.accumulators])
        rest = Reduce(axes, accumulators, copy.body(rest.body))
        return edit.replace(site.parents, stmt, _joined(edit, stmt, main, rest))


def _joined(edit: Edit, stmt: Reduce, main: Reduce, rest: Reduce) -> Body:
    """Return both REDUCEs and the LETs that combine them under the names of `stmt`."""
    whole = {a.var: edit.names.var(f"{a.var.attr}.m", a.var) for a in stmt.accumulators}
    rename = Copy(edit.locations, dict(whole) | {st.lhs(a): st.lhs(b) for a, b in whole.items()}
                  | {st.rhs(a): st.rhs(b) for a, b in whole.items()})
    accumulators = tuple([
        a.replace(var=whole[a.var], update=rename.expr(a.update), combine=rename.expr(a.combine))
        for a in main.accumulators])
    main = Reduce(main.axes, accumulators, main.body)
    names = {st.lhs(a.var): whole[a.var] for a in stmt.accumulators}
    names |= {st.rhs(a.var): b.var
              for a, b in zip(stmt.accumulators, rest.accumulators, strict=True)}
    values = ex.substitute([a.combine for a in stmt.accumulators], names)
    lets = tuple([Let(a.var, v) for a, v in zip(stmt.accumulators, values, strict=True)])
    return (main, rest, *lets)


def _tail(edit: Edit, loop: For, start: Expr, count: Expr) -> For:
    """Return a copy of `loop` for its last `count` iterations, all names ending in ``.t``."""
    var = edit.names.index(f"{loop.var.attr}.t")
    body = edit.duplicate(loop.body, {loop.var: start + var}, ".t")
    return For(var, count, st.SERIAL, body)


def peel(kernel: Kernel, loop: str, count: int = 1) -> Kernel:
    """Take the last iterations out of a loop ("peel", "cut_loop" in Exo, "partition" in TVM).

    for i in n: s[i]  ->  for i in n-c: s[i];  for i.t in c: s[n-c + i.t]

    Raises ScheduleError if the loop may have fewer than `count` iterations.
    """
    site = find_for(kernel, loop, "peel")
    edit = Edit(kernel)
    least = sub.Space(kernel).ranges.of(site.extent).lo
    if count < 1 or least < count:
        raise ScheduleError(f"peel({loop}, {count})", found=f"an extent of {site.extent!r}",
                            expected=f"at least {max(count, 1)} iterations to peel from")
    most = site.extent - count
    main = site.loop.replace(extent=most)
    return edit.replace(site.parents, site.stmt,
                        (main, _tail(edit, site.loop, most, ex.index(count))))


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

    On a reduce axis each step gets its own partial result. The extent must be constant.
    """
    site = find_loop(kernel, loop, "unroll")
    n = constant(site.extent)
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
        if isinstance(stmt, st.While | st.Call | st.Print | st.Atomic | st.Barrier):
            return f"a {type(stmt).__name__} in the body"
        if isinstance(stmt, st.Load) and stmt.var.lanes > 1:
            return "statements that are vectors already"
        if isinstance(stmt, For) and stmt.kind not in (st.SERIAL, st.UNROLLED):
            return f"the {stmt.kind} loop {stmt.var.attr} in the body"
        if isinstance(stmt, Reduce) and any(a.kind == st.VECTOR for a in stmt.axes):
            return "a REDUCE with a vector axis in the body"
    return None


def parallel(kernel: Kernel, loop: str) -> Kernel:
    """Share the iterations of a loop out to threads ("parallel" in Halide and TVM).

    for i in n serial: s  ->  for i in n parallel: s      (an implicit barrier follows)

    Raises ScheduleError if an iteration may depend on another, or on a reduce axis (`rfactor`
    makes one parallel).
    """
    what = f"parallel({loop})"
    site = find_for(kernel, loop, "parallel")
    if site.kind != st.SERIAL:
        raise ScheduleError(what, found=f"a loop of kind {site.kind}", expected="a serial loop")
    for parent in site.parents:
        if isinstance(parent, For) and parent.kind != st.SERIAL:
            raise ScheduleError(what, found=f"the {parent.kind} loop {parent.var.attr} around it",
                                expected="serial loops around a parallel one")
    _independent(kernel, site, what, "rfactor or privatize removes dependences of reductions")
    return _mark(site, st.PARALLEL)


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
