"""The primitives `block_reduction` and `share_reduction`: blocks of a sum run outside a tile."""

from __future__ import annotations

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.stmt import Alloc, Axis, Body, For, Kernel, Load, Memory, Reduce, Stmt, Store
from weft.schedule.analysis.space import Copy, Site, ceildiv, constant, find_reduce
from weft.schedule.loops.reduction import Decompose, combination, renamed


def block_reduction(kernel: Kernel, accumulator: str, loop: str, axis: str, factor: int,
                    partial: tuple[str, ...] = ()) -> Kernel:
    """Cut an axis of a REDUCE into blocks that run outside a tile ("cache blocking" over k).

    for i in n: { reduce k in m (s=0) {s + a[i, k]*b[k]}; store c[i] = s }
    ->  alloc s.t[n]
        for i.begin in n: s.t[i.begin] = 0
        for k.o in m/f: for i in n: { reduce k.i in f (s.b=0) {s.b + a[i, k.o*f + k.i]*...}
                                      s.t[i] = s.t[i] + s.b }
        for i.end in n: { s = s.t[i.end]; store c[i.end] = s }

    What one block reads can then be copied where caches keep it (`stage`, `window`), and is read
    by the whole tile. The last block is shorter where the factor does not divide.

    Parameters
    ----------
    accumulator : str
        Name of an accumulator of the REDUCE.
    loop : str
        The outermost loop of the tile: it and the loops between it and the REDUCE must nest
        perfectly (conditions between them become masks) and have constant extents.
    axis : str
        The axis that is cut.
    factor : int
        Points of a block, at least 1.
    partial : tuple of str
        Reduce axes that become loops of the tile: the sums of the blocks are one for each of their
        iterations, and meet behind the last block, in ``reduce NAME.end``.
    """
    what = f"block_reduction({accumulator}, {loop}, {axis}, {factor})"
    if factor < 1:
        raise ScheduleError(what, found=f"factor {factor}", expected="at least 1")
    site = find_reduce(kernel, accumulator, "block_reduction")
    return _Block(site, loop, axis, factor, partial, what).apply()


def share_reduction(kernel: Kernel, accumulator: str, loop: str, axis: str,
                    factor: int) -> Kernel:
    """Cut an axis of a REDUCE into blocks that run outside a tile and each keep their results.

    for i in n: { reduce k in m (s=0) {s + a[i, k]*b[k]}; store c[i] = s }
    ->  alloc s.h[m/f, n]
        for k.o in m/f: for i in n: { reduce k.i in f (s.b=0) {s.b + a[i, k.o*f + k.i]*...}
                                      s.h[k.o, i] = s.b }
        for i.end in n: { reduce k.c in m/f (s) {s + s.h[k.c, i.end]}; store c[i.end] = s }

    The loop over k.o has independent iterations and may become parallel: few results of a long sum
    are shared out by their terms. They meet in the order of k.o, whatever the number of threads.
    It is `rfactor` for all results of a tile at once.

    Parameters
    ----------
    accumulator, loop, axis, factor
        As `block_reduction` has them.
    """
    what = f"share_reduction({accumulator}, {loop}, {axis}, {factor})"
    if factor < 1:
        raise ScheduleError(what, found=f"factor {factor}", expected="at least 1")
    site = find_reduce(kernel, accumulator, "share_reduction")
    return _Share(site, loop, axis, factor, what).apply()


class _Block(Decompose):
    """A decomposition whose update is a REDUCE over one block."""

    START = ".begin"
    FINISH = ".end"
    MEMORY = ".t"

    def __init__(self, site: Site, loop: str, axis: str, factor: int, partial: tuple[str, ...],
                 what: str) -> None:
        super().__init__(site, loop, partial, False, "local", what)
        known = [a.var.attr for a in self.serial]
        if axis not in known:
            raise ScheduleError(what, found=f"no axis {axis!r}",
                                expected="one of " + ", ".join(known))
        self.at, self.factor = known.index(axis), factor

    def _update(self, memories: list[Memory]) -> Stmt:
        edit, stmt, f = self.edit, self.stmt, self.factor
        axis = self.serial[self.at]
        outer = edit.names.index(f"{axis.var.attr}.o")
        inner = edit.names.index(f"{axis.var.attr}.i")
        n = constant(axis.extent)
        width = ex.index(f)
        if n is None or n % f:
            width = ex.minimum(width, axis.extent - outer * f)
        parts = {a.var: edit.names.var(f"{a.var.attr}.b", a.var) for a in stmt.accumulators}
        copy = Copy(edit.locations, {axis.var: outer * f + inner})
        part = renamed(edit, stmt, parts)
        accumulators = tuple([a.replace(update=copy.expr(a.update)) for a in part.accumulators])
        axes = (*self.serial[: self.at], Axis(inner, width, axis.kind),
                *self.serial[self.at + 1 :])
        needed = self._needed(stmt.body, tuple(a.update for a in stmt.accumulators))
        terms = part.body
        if self.condition is not None:  # before the axis is cut: then it is plain where loads stay
            needed = self.guarded(needed, self.condition)
            terms = self.guarded(terms, self.condition)
        inside = (*needed, Reduce(axes, accumulators, copy.body(terms)))
        after = self._after(outer, parts, memories)
        body: Body = (*inside, *after)
        for lane in reversed(self.partial):
            body = (For(lane.var, lane.extent, lane.kind, body),)
        return For(outer, ceildiv(axis.extent, f), st.SERIAL, (self._nest({}, body),))

    def _after(self, _block: Expr, parts: dict[Expr, Expr], memories: list[Memory]) -> Body:
        """Return the statements that put away the results of a block."""
        edit, stmt = self.edit, self.stmt
        index = (*[t.var for t in self.tile], *[a.var for a in self.partial])
        before = {a.var: edit.names.var(f"{a.var.attr}.c", a.var) for a in stmt.accumulators}
        both: dict[Expr, Expr] = {st.lhs(v): c for v, c in before.items()}
        both |= {st.rhs(v): b for v, b in parts.items()}
        sums = ex.substitute([a.combine for a in stmt.accumulators], both)
        loads = tuple([Load(c, m, index) for c, m in zip(before.values(), memories, strict=True)])
        stores = tuple([Store(m, index, e) for m, e in zip(memories, sums, strict=True)])
        return (*loads, *stores)


class _Share(_Block):
    """A decomposition whose blocks have memory of their own."""

    MEMORY = ".h"

    def __init__(self, site: Site, loop: str, axis: str, factor: int, what: str) -> None:
        super().__init__(site, loop, axis, factor, (), what)
        self.count = ceildiv(self.stmt.axes[self.at].extent, factor)
        if constant(self.count) is None:
            raise ScheduleError(what, found=f"an extent of {self.stmt.axes[self.at].extent!r}",
                                expected="a constant number of partial results")

    def apply(self) -> Kernel:
        """Return the kernel with the two nests in the place of the REDUCE and its tile."""
        edit = self.edit
        shape = (self.count, *[f.extent for f in self.tile])
        memories = [Memory(edit.names.fresh(a.var.attr + self.MEMORY), a.var.dtype, shape, "local")
                    for a in self.stmt.accumulators]
        new = (*map(Alloc, memories), self._update(memories), self._finish(memories))
        return edit.replace(self.parents, self.chain[0], new)

    def _after(self, block: Expr, parts: dict[Expr, Expr], memories: list[Memory]) -> Body:
        index = (block, *[t.var for t in self.tile])
        return tuple([Store(m, index, v) for m, v in zip(memories, parts.values(), strict=True)])

    def _results(self, memories: list[Memory], at: tuple[Expr, ...]) -> Body:
        last = self.edit.names.index(f"{self.stmt.axes[self.at].var.attr}.c")
        return (combination(self.edit, self.stmt, memories, (), (Axis(last, self.count),), at),)
