"""The primitive `precompute`: compute a name for a whole panel before the loops that use it."""

from __future__ import annotations

from collections.abc import Iterator

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.stmt import Alloc, Body, For, Kernel, Let, Load, Memory, Reduce, Stmt, Store
from weft.schedule.analysis import guard as gd
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.sliding import PAIR, find_slide
from weft.schedule.analysis.space import Copy, Edit, Site, constant, find_loop, scan
from weft.schedule.data.memory import MAX_EXTENT


def precompute(kernel: Kernel, name: str, loop: str, layout: tuple[str, ...],
               scope: str = "local", skew: int = 0, written: str = "") -> Kernel:
    """Compute a name for all iterations of inner loops at the start of one around them.

    ("compute_at" in Halide and TVM. `stage` copies what is in memory, this what is made of it.)

    for j.o: for k: for j.i: { load x = b[k, j.o*16 + j.i]; let y = cast.f32(x); ... y ... }
    ->  for j.o: { alloc y.p[n, 16]
                   for k.p: for j.i.p: { load x.p = b[...]; let y.p = cast.f32(x.p)
                                         store y.p[k.p, j.i.p] = y.p }
                   for k: for j.i: { load y = y.p[k, j.i]; ... y ... } }

    Points outside of a memory that is read give values that nobody uses: their loads are masked.

    Parameters
    ----------
    name : str
        Bound inside `loop` by a LET or a LOAD, or the only accumulator of a REDUCE. What it is
        computed from may only read memories that are not written inside `loop`.
    loop : str
        The values are computed at the start of each iteration of this loop.
    layout : tuple of str
        The loops inside it over which the value varies, in the order of the dimensions of the
        array: a packed layout is a choice of order. Each needs an extent with a bound. A pair
        ``i&k`` is one dimension, for loops that move a window together: what overlapping windows
        share is computed once.
    scope : str
        ``local`` or ``register``.
    skew : int
        Unused elements behind each row, against cache-set conflicts.
    written : str
        A loop of the layout whose iterations are written out innermost: what does not vary with it
        is computed once for all of them. It may run fewer times than its bound.

    Raises
    ------
    ScheduleError
        If the value varies with other loops inside, or is not made of names and loads alone.
    """
    what = f"precompute({name}, {loop}, layout={'+'.join(layout)})"
    site = find_loop(kernel, loop, "precompute")
    if site.axis >= 0:
        raise ScheduleError(what, found="an axis of a REDUCE", expected="a FOR loop")
    if written and written not in layout:
        raise ScheduleError(what, found=f"{written} to be written out",
                            expected="a loop of the layout")
    return _Precompute(kernel, site, name, layout, scope, skew, written, what).apply()


class _Precompute:
    """One panel of values."""

    def __init__(self, kernel: Kernel, site: Site, name: str, layout: tuple[str, ...],
                 scope: str, skew: int, written: str, what: str) -> None:
        self.edit, self.site, self.what = Edit(kernel), site, what
        self.scope, self.skew, self.written = scope, skew, written
        self.space = sub.Space(kernel)
        self.target, around = self._find(name)
        self.var = next(v for v in self.target.binds() if v.attr == name)
        inside = sub.bound_inside(site.body)
        self.needed = self._slice(around, inside)
        self._check_reads()
        loops = {v.attr: v for p in around for v in _loop_vars(p)}
        names = [x.split(PAIR) for x in layout]
        missing = [x for some in names for x in some if x not in loops]
        if missing:
            raise ScheduleError(what, found=f"no loop {', '.join(missing)} around {name}",
                                expected="one of " + ", ".join(loops))
        self.dims = [loops[some[0]] for some in names]
        chain = (*self.needed, self.target)
        self.slides = {
            loops[some[0]]: find_slide(sub.Linear(kernel), chain, loops[some[0]], loops[some[1]],
                                       what)
            for some in names if len(some) == 2}
        apart = {s.loops[1] for s in self.slides.values()}
        own = {v for s in traverse.walk((*self.needed, self.target)) for v in _bound_by(s)}
        used = {v for s in traverse.walk((*self.needed, self.target)) for e in s.exprs()
                for v in ex.free_vars([e])}
        varying = (used & inside) - own - set(self.dims) - apart
        if varying:
            shown = ", ".join(sorted(v.attr for v in varying))
            raise ScheduleError(what, found=f"a value that varies with {shown}",
                                expected="loops of the layout only",
                                hint="add the loop to the layout")
        self.counts = [self._count(v, inside) for v in self.dims]
        self.extents = [self.space.ranges.of(n).hi for n in self.counts]

    def _find(self, name: str) -> tuple[Stmt, tuple[Stmt, ...]]:
        """Return the statement that binds the name, and those between it and the loop."""
        depth = len(self.site.parents) + 1
        for stmt, parents in scan(self.edit.kernel):
            if len(parents) < depth or parents[depth - 1] is not self.site.stmt:
                continue
            single = isinstance(stmt, Let | Load) or (
                isinstance(stmt, Reduce) and len(stmt.accumulators) == 1)
            if single and any(v.attr == name for v in stmt.binds()):
                return stmt, parents[depth:]
        raise ScheduleError(self.what, found=f"no name {name!r} inside {self.site.var.attr}",
                            expected="a LET, a LOAD or a REDUCE with one result")

    def _slice(self, around: tuple[Stmt, ...], inside: set[Expr]) -> Body:
        """Return the names and loads that the value is computed from, in order."""
        before: list[Stmt] = []
        for holder, child in zip((self.site.stmt, *around), (*around, self.target), strict=True):
            for body in holder.bodies():
                if any(s is child for s in body):
                    at = next(p for p, s in enumerate(body) if s is child)
                    before.extend(body[:at])
        used = {v for s in traverse.walk((self.target,)) for e in s.exprs()
                for v in ex.free_vars([e])}
        kept: list[Stmt] = []
        for stmt in reversed(before):
            if not used & inside & set(stmt.binds()):
                continue
            if not isinstance(stmt, Let | Load):
                raise ScheduleError(self.what, found=f"a {type(stmt).__name__} that it needs",
                                    expected="names and loads")
            kept.append(stmt)
            used |= ex.free_vars(stmt.exprs())
        return tuple(reversed(kept))

    def _check_reads(self) -> None:
        written = traverse.stores(self.site.body)
        for stmt in traverse.walk((*self.needed, self.target)):
            if isinstance(stmt, Load) and stmt.memory in written:
                raise ScheduleError(
                    self.what, found=f"stores to {stmt.memory.name} in {self.site.var.attr}",
                    expected="memories that are only read there")
            if not isinstance(stmt, Let | Load | Reduce):
                raise ScheduleError(self.what, found=f"a {type(stmt).__name__}",
                                    expected="names, loads and a REDUCE")

    def _count(self, var: Expr, inside: set[Expr]) -> Expr:
        slide = self.slides.get(var)
        if slide is not None:
            a, b = (self.space.ranges.of(self.space.extents[v]).hi for v in slide.loops)
            return ex.index(slide.count((a, b)))
        n = self.space.extents[var]
        if var.attr == self.written:
            n = ex.index(self.space.ranges.of(n).hi)
        if ex.free_vars([n]) & inside or self.space.ranges.of(n).hi > MAX_EXTENT:
            raise ScheduleError(self.what, found=f"{var.attr} in {n!r}",
                                expected="constant extents", hint="split the loop first")
        return n

    def apply(self) -> Kernel:
        edit = self.edit
        variables = [edit.names.index(f"{v.attr}.p") for v in self.dims]
        shape = list(self.extents)
        shape[-1] += self.skew
        memory = Memory(edit.names.fresh(f"{self.var.attr}.p"), self.var.dtype,
                        tuple(map(ex.index, shape)), self.scope)
        inside = tuple([self._masked(s) for s in (*self.needed, self.target)])
        mapping = dict(zip(self.dims, variables, strict=True))
        for slide in self.slides.values():  # one of the loops counts all places
            counted = mapping[slide.loops[0]]
            mapping.update({v: ex.index(0) for v in slide.loops})
            mapping[slide.one] = counted
        copy = Copy(edit.locations, mapping, edit.names, ".p")
        body = copy.body(inside)
        body += (Store(memory, tuple(variables), copy.expr(self.var)),)
        loops = list(zip(variables, self.counts, strict=True))
        if self.written:
            body = self._written_out(body, loops.pop([v.attr for v in self.dims].index(
                self.written)))
        for var, count in reversed(loops):
            body = (For(var, count, st.SERIAL, body),)
        edit.locate(self.target, *body)
        loop = self.site.loop
        places = [self.slides[v].place if v in self.slides else v for v in self.dims]
        rest = self._redirected(Load(self.var, memory, tuple(places)))
        new = For(loop.var, loop.extent, loop.kind, (Alloc(memory), *body, *rest))
        return edit.replace(self.site.parents, loop, (new,))

    def _written_out(self, body: Body, loop: tuple[Expr, Expr]) -> Body:
        """Return the body for all iterations of a loop: what varies with it comes once for each."""
        var, count = loop
        varying = {var}
        same: list[Stmt] = []
        rest: list[Stmt] = []
        for stmt in body:
            moves = any(ex.free_vars(s.exprs()) & varying for s in traverse.walk((stmt,)))
            varying.update(stmt.binds() if moves else ())
            (rest if moves else same).append(stmt)
        turns = [self.edit.duplicate(rest, {var: ex.index(n)}, f"{n}")
                 for n in range(constant(count) or 0)]
        return (*same, *[s for turn in turns for s in turn])

    def _masked(self, stmt: Stmt) -> Stmt:
        """Keep every load inside its memory, whatever condition stood around it."""
        if isinstance(stmt, Reduce):
            return stmt.with_bodies(tuple([self._masked(s) for s in stmt.body]))
        if not isinstance(stmt, Load):
            return stmt
        ranges, mask = self.space.ranges, stmt.mask
        for i, size in zip(stmt.index, stmt.memory.shape, strict=True):
            point = self._resolve(i)
            span = ranges.of(point)
            if span.hi >= ranges.of(size).lo:
                mask = gd.both(mask, point.lt(size))
            if span.lo < 0:
                mask = gd.both(mask, ex.index(0).le(point))
        return stmt if mask is stmt.mask else stmt.replace(mask=mask)

    def _resolve(self, e: Expr) -> Expr:
        values = self.space.values
        own = {v for s in self.needed for v in s.binds()}
        while True:
            lets = {v: values[v] for v in ex.free_vars([e]) if v in own and v in values}
            if not lets:
                return e
            (e,) = ex.substitute([e], lets)

    def _redirected(self, instead: Load) -> Body:
        """Return the body of the loop with the value loaded, and without what only it needed."""
        target = self.target
        dead = self._dead()

        class Redirect(traverse.Rewriter):
            def visit(self, stmt: Stmt) -> Stmt | Body:
                if stmt is target:
                    return instead
                return () if stmt in dead else stmt

            def stmt(self, stmt: Stmt) -> Stmt | Body:
                return instead if stmt is target else super().stmt(stmt)

        rewriter = Redirect(self.edit.kernel)
        body = rewriter.body(self.site.body)
        self.edit.locations = rewriter.locations
        return body

    def _dead(self) -> set[Stmt]:
        """Return the statements of the slice that nothing else uses."""
        chain = set(self.needed) | {self.target}
        used = {v for s in _outside(self.site.body, chain) for e in s.exprs()
                for v in ex.free_vars([e])}
        dead: set[Stmt] = set()
        for stmt in reversed(self.needed):
            if used & set(stmt.binds()):
                used |= ex.free_vars(stmt.exprs())
            else:
                dead.add(stmt)
        return dead


def _outside(body: Body, chain: set[Stmt]) -> Iterator[Stmt]:
    """Yield the statements below a body that are not below one of the chain."""
    stack = list(reversed(body))
    while stack:
        stmt = stack.pop()
        if stmt in chain:
            continue
        yield stmt
        for inner in reversed(stmt.bodies()):
            stack.extend(reversed(inner))


def _bound_by(stmt: Stmt) -> tuple[Expr, ...]:
    """Return what a statement binds for itself and what is inside it."""
    own = tuple(stmt.binds())
    if isinstance(stmt, Reduce):
        for a in stmt.accumulators:
            own += (a.var, st.lhs(a.var), st.rhs(a.var))
    return own + _loop_vars(stmt)


def _loop_vars(stmt: Stmt) -> tuple[Expr, ...]:
    if isinstance(stmt, Reduce):
        return tuple([a.var for a in stmt.axes])
    return (stmt.var,) if isinstance(stmt, For) else ()
