"""Primitives that change how a REDUCE is carried out.

They may change the order in which terms meet, and so the rounding of a float sum: reassociation is
a property of REDUCE. The order is still fixed by the schedule, so results repeat exactly.
"""

from __future__ import annotations

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    Accumulator,
    Alloc,
    Axis,
    Body,
    For,
    Kernel,
    Let,
    Load,
    Memory,
    Reduce,
    Stmt,
    Store,
)
from weft.schedule.analysis import dependence as dep
from weft.schedule.analysis import guard as gd
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.space import Copy, Edit, Site, constant, find_loop, find_reduce


def contract(kernel: Kernel, accumulator: str) -> Kernel:
    """Add products with one rounding instead of two (fused multiply-add, "contraction" in C).

    reduce k (s) {s + a * b}  ->  reduce k (s) {mad(a, b, s)}

    Legal for float sums of products: contractions are defined up to the rounding of their terms.
    """
    site = find_reduce(kernel, accumulator, "contract")
    stmt = site.reduce
    new = tuple([a.replace(update=_fused(a)) for a in stmt.accumulators])
    if all(a.update is b.update for a, b in zip(new, stmt.accumulators, strict=True)):
        raise ScheduleError(f"contract({accumulator})", found="no sum of products of floats",
                            expected="an update s + a * b")
    return Edit(kernel).replace(site.parents, stmt, (Reduce(stmt.axes, new, stmt.body),))


def _fused(a: Accumulator) -> Expr:
    u = a.update
    if u.op is not Op.ADD or not u.dtype.is_float or u.dtype.itemsize < 4:
        return u
    for this, other in (u.args, u.args[::-1]):
        if this is a.var and other.op is Op.MUL:
            return ex.mad(other.args[0], other.args[1], a.var)
    return u


def rfactor(kernel: Kernel, axis: str) -> Kernel:
    """Keep one partial result per iteration of an axis ("rfactor" in Halide and TVM).

    reduce x, k (s) {s + a[x, k]}
    ->  alloc s.rf[n]
        for x in n: { reduce k (s.p) {s.p + a[x, k]}; store s.rf[x] = s.p }
        reduce x.c in n (s) {combine(s, s.rf[x.c])}

    The loop over x has independent iterations and may become parallel; the partial results meet in
    the order of x, whatever the number of threads.

    Parameters
    ----------
    axis : str
        An axis of constant extent of a REDUCE that has another axis (split it first if not).
    """
    what = f"rfactor({axis})"
    site = find_loop(kernel, axis, "rfactor")
    if site.axis < 0:
        raise ScheduleError(what, found="a FOR loop", expected="an axis of a REDUCE")
    stmt = site.reduce
    if len(stmt.axes) < 2:
        raise ScheduleError(what, found="the only axis", expected="another axis beside it",
                            hint=f"split({axis}, factor) first")
    if constant(site.extent) is None:
        raise ScheduleError(what, found=f"an extent of {site.extent!r}",
                            expected="a constant number of partial results")
    if dep.carried(sub.Space(kernel), site.var, site.body) is not None:
        _no_effects(site.reduce, what)
    edit = Edit(kernel)
    partial = {a.var: edit.names.var(f"{a.var.attr}.p", a.var) for a in stmt.accumulators}
    inner = renamed(edit, stmt, partial)
    rest = tuple(a for number, a in enumerate(stmt.axes) if number != site.axis)
    memories = [Memory(edit.names.fresh(f"{a.var.attr}.rf"), a.var.dtype, (site.extent,), "local")
                for a in stmt.accumulators]
    stores = tuple([Store(m, (site.var,), partial[a.var])
                    for m, a in zip(memories, stmt.accumulators, strict=True)])
    loop = For(site.var, site.extent, st.SERIAL,
               (Reduce(rest, inner.accumulators, inner.body), *stores))
    last = edit.names.index(f"{axis}.c")
    final = combination(edit, stmt, memories, (), (Axis(last, site.extent),))
    return edit.replace(site.parents, stmt, (*map(Alloc, memories), loop, final))


def _no_effects(stmt: Reduce, what: str) -> None:
    written = set(traverse.stores(stmt.body)) - sub.private(stmt.body)
    if written:
        names = ", ".join(sorted(m.name for m in written))
        raise ScheduleError(what, found=f"a body that stores to {names}",
                            expected="a body that only reads",
                            hint="the points of the reduction would be visited in another order")
    for s in traverse.walk(stmt.body):
        if isinstance(s, st.Call | st.Print | st.Atomic | st.Barrier):
            raise ScheduleError(what, found=f"a {type(s).__name__} in the body",
                                expected="a body that only reads")


def renamed(edit: Edit, stmt: Reduce, new: dict[Expr, Expr]) -> Reduce:
    """Return `stmt` with its accumulators renamed."""
    mapping = dict(new)
    for old, var in new.items():
        mapping[st.lhs(old)], mapping[st.rhs(old)] = st.lhs(var), st.rhs(var)
    copy = Copy(edit.locations, mapping)
    accumulators = tuple([Accumulator(new[a.var], a.init, copy.expr(a.update), copy.expr(a.combine))
                          for a in stmt.accumulators])
    return Reduce(stmt.axes, accumulators, copy.body(stmt.body))


def combination(edit: Edit, stmt: Reduce, memories: list[Memory], at: tuple[Expr, ...],
                axes: tuple[Axis, ...], inside: tuple[Expr, ...] = ()) -> Reduce:
    """Return the REDUCE that combines partial results under the old names.

    They are ``memory[at, axes, inside]``.
    """
    parts = [edit.names.var(f"{a.var.attr}.q", a.var) for a in stmt.accumulators]
    index = (*at, *[a.var for a in axes], *inside)
    body = tuple([Load(p, m, index) for p, m in zip(parts, memories, strict=True)])
    mapping = {st.lhs(a.var): a.var for a in stmt.accumulators}
    mapping |= {st.rhs(a.var): p for a, p in zip(stmt.accumulators, parts, strict=True)}
    updates = ex.substitute([a.combine for a in stmt.accumulators], mapping)
    accumulators = tuple([a.replace(update=u)
                          for a, u in zip(stmt.accumulators, updates, strict=True)])
    return Reduce(axes, accumulators, body)


def decompose_reduction(kernel: Kernel, accumulator: str, loop: str,
                        partial: tuple[str, ...] = (), spill: bool = False,
                        scope: str = "register") -> Kernel:
    """Make the running values of a REDUCE an array of registers, and its axes ordinary loops.

    ("decompose_reduction" in TVM; with the tile loops unrolled it is unroll-and-jam.)

    for i in 4: for j in 8: { reduce k (s=0) {s + a[i,k]*b[k,j]}; store c[i,j] = s }
    ->  alloc register s.r[4, 8]
        for i.z: for j.z: s.r[i.z, j.z] = 0
        for k: for i: for j: s.r[i, j] = s.r[i, j] + a[i,k]*b[k,j]
        for i.f: for j.f: { s = s.r[i.f, j.f]; store c[i.f, j.f] = s }

    Parameters
    ----------
    accumulator : str
        Name of an accumulator of the REDUCE.
    loop : str
        The outermost loop of the tile: it and the loops between it and the REDUCE must nest
        perfectly (conditions between them become masks) and have constant extents.
    partial : tuple of str
        Reduce axes that stay innermost and keep one partial result per iteration, as `rfactor`
        would; they are combined in ``reduce NAME.f``.
    spill : bool
        Copy the results to a local array first (loops ``.s``), so that the loops ``.f`` around a
        long epilogue need not be unrolled.
    scope : str
        ``register`` if the tile will be unrolled, ``local`` for a larger one that stays in cache.
    """
    what = f"decompose_reduction({accumulator}, {loop})"
    return Decompose(find_reduce(kernel, accumulator, "decompose_reduction"), loop, partial, spill,
                      scope, what).apply()


class Decompose:
    """One decomposition: the tile, its legality, and the three nests it becomes."""

    START = ".z"  # what the names of the first nest end in
    FINISH = ".f"  # ... of the last
    MEMORY = ".r"  # ... of the arrays of results

    def __init__(self, site: Site, loop: str, partial: tuple[str, ...], spill: bool,
                 scope: str, what: str) -> None:
        self.edit, self.stmt, self.what, self.spill = Edit(site.kernel), site.reduce, what, spill
        self.scope = scope
        depth = next((d for d, p in enumerate(site.parents)
                      if isinstance(p, For) and p.var.attr == loop), None)
        if depth is None:
            raise ScheduleError(what, found=f"no loop {loop!r} around the REDUCE",
                                expected="an enclosing FOR loop")
        self.parents = site.parents[:depth]
        self.chain = site.parents[depth:]
        self.tile: list[For] = []
        self.condition: Expr | None = None
        self._read_chain()
        inner = self.chain[-1]
        body = inner.then if isinstance(inner, st.If) else inner.bodies()[0]
        at = next(p for p, s in enumerate(body) if s is self.stmt)
        self.prologue, self.epilogue = body[:at], body[at + 1 :]
        known = {a.var.attr: a for a in self.stmt.axes}
        for name in partial:
            if name not in known:
                raise ScheduleError(what, found=f"no axis {name!r}",
                                    expected="one of " + ", ".join(known))
        self.partial = [known[name] for name in partial]
        self.serial = [a for a in self.stmt.axes if a.var.attr not in partial]
        self._check()

    def _read_chain(self) -> None:
        for position, stmt in enumerate(self.chain):
            last = position == len(self.chain) - 1
            if isinstance(stmt, For):
                if constant(stmt.extent) is None:
                    raise ScheduleError(self.what, found=f"{stmt.var.attr} in {stmt.extent!r}",
                                        expected="constant extents in the tile", hint="split first")
                self.tile.append(stmt)
            elif isinstance(stmt, st.If) and not stmt.orelse:
                self.condition = gd.both(self.condition, stmt.condition)
            else:
                raise ScheduleError(self.what, found=f"a {type(stmt).__name__} in the tile",
                                    expected="loops and conditions only")
            body = stmt.then if isinstance(stmt, st.If) else stmt.bodies()[0]
            if not last and len(body) != 1:
                raise ScheduleError(self.what, found="statements between the loops of the tile",
                                    expected="a perfect nest down to the REDUCE")

    def _check(self) -> None:
        _no_effects(self.stmt, self.what)
        for stmt in self.prologue:
            if not isinstance(stmt, Let | Load):
                raise ScheduleError(self.what, found=f"a {type(stmt).__name__} before the REDUCE",
                                    expected="only names and loads before it")
        tile_vars = {f.var for f in self.tile} | sub.bound_inside(self.prologue)
        for axis in self.stmt.axes:
            if axis.kind == st.VECTOR:
                raise ScheduleError(self.what, found=f"the vector axis {axis.var.attr}",
                                    expected="serial axes", hint="decompose before vectorize")
            if ex.free_vars([axis.extent]) & tile_vars:
                raise ScheduleError(self.what, found=f"{axis.var.attr} in {axis.extent!r}",
                                    expected="extents that do not depend on the tile")
        for axis in self.partial:
            if constant(axis.extent) is None:
                raise ScheduleError(self.what, found=f"{axis.var.attr} in {axis.extent!r}",
                                    expected="a constant number of partial results")
        written = set(traverse.stores(self.epilogue)) - sub.private(self.epilogue)
        read = {*traverse.loads(self.prologue), *traverse.loads(self.stmt.body)}
        both = sorted(m.name for m in written & read)
        if both:
            raise ScheduleError(self.what, found=f"{', '.join(both)} read by the reduction and "
                                "written behind it", expected="separate memories")

    def apply(self) -> Kernel:
        """Return the kernel with the nests in the place of the REDUCE and its tile."""
        edit, stmt = self.edit, self.stmt
        shape = tuple([f.extent for f in self.tile])
        lanes = tuple([a.extent for a in self.partial])
        memories = [Memory(edit.names.fresh(a.var.attr + self.MEMORY), a.var.dtype, shape + lanes,
                           self.scope) for a in stmt.accumulators]
        new = [*map(Alloc, memories), self._start(memories), self._update(memories)]
        source = memories
        if self.spill:
            source = [Memory(edit.names.fresh(f"{m.name[:-2]}.s"), m.dtype, shape, "local")
                      for m in memories]
            new[:0] = map(Alloc, source)
            new.append(self._copy_out(memories, source))
        new.append(self._finish(source))
        return edit.replace(self.parents, self.chain[0], tuple(new))

    def _tile_vars(self, suffix: str) -> dict[Expr, Expr]:
        return {f.var: self.edit.names.index(f"{f.var.attr}{suffix}") for f in self.tile}

    def _nest(self, variables: dict[Expr, Expr], body: Body) -> For:
        for loop in reversed(self.tile):
            body = (For(variables.get(loop.var, loop.var), loop.extent, loop.kind, body),)
        nest = body[0]
        assert isinstance(nest, For)
        return nest

    def _needed(self, users: Body, more: tuple[Expr, ...] = ()) -> Body:
        """Return the statements of the prologue that `users` need."""
        used = ex.free_vars([e for s in traverse.walk(users) for e in s.exprs()] + list(more))
        kept: list[Stmt] = []
        for stmt in reversed(self.prologue):
            if used & set(stmt.binds()):
                kept.append(stmt)
                used |= ex.free_vars(stmt.exprs())
        return tuple(reversed(kept))

    def _start(self, memories: list[Memory]) -> For:
        variables = self._tile_vars(self.START)
        extra = [self.edit.names.index(f"{a.var.attr}{self.START}") for a in self.partial]
        index = (*variables.values(), *extra)
        needed = self._needed((), tuple(a.init for a in self.stmt.accumulators))
        copy = Copy(self.edit.locations, variables, self.edit.names, self.START)
        before = copy.body(needed)
        if self.condition is not None:
            before = gd.guard(before, copy.expr(self.condition), self.what)
        body: Body = tuple([Store(m, index, copy.expr(a.init))
                            for m, a in zip(memories, self.stmt.accumulators, strict=True)])
        for var, axis in zip(reversed(extra), reversed(self.partial), strict=True):
            body = (For(var, axis.extent, st.SERIAL, body),)
        return self._nest(variables, before + body)

    def _update(self, memories: list[Memory]) -> Stmt:
        edit, stmt = self.edit, self.stmt
        index = (*[f.var for f in self.tile], *[a.var for a in self.partial])
        current = {a.var: edit.names.var(f"{a.var.attr}.a", a.var) for a in stmt.accumulators}
        update = renamed(edit, stmt, current)
        inside = self._needed(stmt.body, tuple(a.update for a in stmt.accumulators))
        inside += update.body
        if self.condition is not None:
            inside = self.guarded(inside, self.condition)
        loads = tuple([Load(current[a.var], m, index)
                       for a, m in zip(stmt.accumulators, memories, strict=True)])
        stores = tuple([Store(m, index, a.update)
                        for a, m in zip(update.accumulators, memories, strict=True)])
        body: Body = (*inside, *loads, *stores)
        for axis in reversed(self.partial):
            body = (For(axis.var, axis.extent, axis.kind, body),)
        nest: Stmt = self._nest({}, body)
        for axis in reversed(self.serial):
            nest = For(axis.var, axis.extent, axis.kind, (nest,))
        return nest

    def guarded(self, body: Body, condition: Expr) -> Body:
        """Mask the statements of a term, but for loads that stay in their memories anyhow.

        A result whose condition fails is never read, so it may gather anything; what has to be
        kept is that no load leaves its memory.
        """
        space = sub.Space(self.edit.kernel)

        def visit(stmt: Stmt) -> Stmt:
            if isinstance(stmt, Reduce):
                return stmt.with_bodies(tuple([visit(s) for s in stmt.body]))
            if isinstance(stmt, Load):
                if gd.stays(space, stmt):
                    return stmt
                used = frozenset().union(*map(space.symbols, stmt.index))
                own = [c for c in gd.parts(condition) if space.symbols(c) & used]
                if own:  # what says nothing of its place need not be asked
                    (part,) = gd.guard((stmt,), gd.conjunction(own), self.what)
                    if isinstance(part, Load) and gd.stays(space, part):
                        return part
            (masked,) = gd.guard((stmt,), condition, self.what)
            return masked

        return tuple([visit(s) for s in body])

    def _results(self, memories: list[Memory], at: tuple[Expr, ...]) -> Body:
        """Return the statements that bind the results, of which `memories` may hold parts."""
        if self.partial and len(memories[0].shape) > len(at):
            axes = tuple([Axis(self.edit.names.index(f"{a.var.attr}{self.FINISH}"), a.extent)
                          for a in self.partial])
            return (combination(self.edit, self.stmt, memories, at, axes),)
        return tuple([Load(a.var, m, at)
                      for a, m in zip(self.stmt.accumulators, memories, strict=True)])

    def _copy_out(self, memories: list[Memory], source: list[Memory]) -> For:
        variables = self._tile_vars(".s")
        at = tuple(variables.values())
        temporary = {a.var: self.edit.names.var(f"{a.var.attr}.s", a.var)
                     for a in self.stmt.accumulators}
        body = _renamed_results(self.edit, self._results(memories, at), temporary)
        stores = tuple([Store(m, at, temporary[a.var])
                        for m, a in zip(source, self.stmt.accumulators, strict=True)])
        return self._nest(variables, body + stores)

    def _finish(self, source: list[Memory]) -> For:
        variables = self._tile_vars(self.FINISH)
        at = tuple(variables.values())
        results = self._results(source, at)
        needed = self._needed(self.epilogue)
        first = Copy(self.edit.locations, variables, self.edit.names, self.FINISH)
        before = first.body(needed)
        rest = Copy(self.edit.locations, first.memo).body(self.epilogue)
        body: Body = before + rest
        if self.condition is not None:
            body = (st.If(first.expr(self.condition), body),)
        return self._nest(variables, results + body)


def _renamed_results(edit: Edit, body: Body, new: dict[Expr, Expr]) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Load):
            out.append(stmt.replace(var=new[stmt.var]))
        elif isinstance(stmt, Reduce):
            out.append(renamed(edit, stmt, new))
    return tuple(out)
