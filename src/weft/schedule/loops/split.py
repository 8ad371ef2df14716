"""Primitives that cut a loop: into blocks of iterations, and into its front and its last ones.

Each addresses a loop, or an axis of a REDUCE, by the name of its variable, and raises
`ScheduleError` where it cannot prove itself legal.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.stmt import Axis, Body, For, Kernel, Let, Reduce, Stmt
from weft.schedule.analysis import dependence as dep
from weft.schedule.analysis import guard as gd
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.space import Copy, Edit, Site, ceildiv, constant, find_for, find_loop

TAILS: Final = ("mask", "peel", "pad", "trim", "overlap", "clamp")


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
            body = gd.guard(copied.body, inside, self.what)
            copied = Reduce(copied.axes, tuple([
                a if gd.adds_nothing(a, body) else gd.keep((a,), inside)[0]
                for a in copied.accumulators]), body)
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
