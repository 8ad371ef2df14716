"""The primitive that finds the place of an extreme in two steps: its block, then where in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from weft.errors import ScheduleError
from weft.ir import dtype as dt
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
    If,
    Kernel,
    Let,
    Load,
    Memory,
    Reduce,
    Stmt,
    Store,
    lhs,
    rhs,
)
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.space import Edit, Site, constant, find_reduce


def search(kernel: Kernel, accumulator: str, lanes: int, steps: int) -> Kernel:
    """Find the place of a maximum or minimum by the block that it is in.

    reduce k in n (best, at) { x = a[k];  (x, k) if x comes before best, else (best, at) }
    ->  alloc best.l[lanes]; alloc at.l[lanes]; (they start with the worst value and block 0)
        for k.o in ceil(n/B): for k.l in lanes: {
            x0, x1.. = a[min(k.o*B, n - B) + (0, 1.. steps)*lanes + k.l]
            best.l[k.l] = the larger of it and the largest x, NaN if any x is;
            at.l[k.l] = k.o if it grew }
        reduce k.h in lanes (best.t) {max(best.t, best.l[k.h])}
        if best.t is no NaN:
            reduce k.j in lanes (at.b) { the first at.l[k.j] with best.l[k.j] = best.t }
            reduce k.f in B (at.f) { the first k.f of block at.b with x = best.t }
        else: reduce k.g in n (at.g) { the first k.g where x is NaN }

    A step costs a maximum and, for floats, half a test for NaN; places are kept for whole blocks
    only. Blocks of B = lanes * steps elements; the last one overlaps the one before.

    Parameters
    ----------
    accumulator : str
        The extreme of a pair (value, place) that `kernelize` makes: the first of equals, NaN before
        everything. The REDUCE has one axis of constant extent, and its body only names and loads.

    Raises
    ------
    ScheduleError
        If the REDUCE is no such search or has fewer elements than a block.
    """
    what = f"search({accumulator}, {lanes}, {steps})"
    site = find_reduce(kernel, accumulator, "search")
    found = _match(kernel, site, what)
    if not 0 < lanes * steps <= found.extent:
        raise ScheduleError(what, found=f"{found.extent} elements",
                            expected=f"at least the {lanes * steps} of a block")
    return _Search(Edit(kernel), site, found, lanes, steps).apply()


class _Found(NamedTuple):
    """A search: its axis and extent, the element, the place of element 0, what is wanted."""

    axis: Axis
    extent: int
    value: Expr
    base: Expr
    largest: bool


def _match(kernel: Kernel, site: Site, what: str) -> _Found:
    stmt = site.reduce
    wanted = ScheduleError(what, found="another reduction", expected="a value and its place")
    if len(stmt.accumulators) != 2 or len(stmt.axes) != 1:
        raise wanted
    a, b = stmt.accumulators
    axis = stmt.axes[0]
    n = constant(axis.extent)
    if a.update.op is not Op.WHERE or b.update.op is not Op.WHERE or n is None or (
            axis.kind != st.SERIAL or n >= dt.int32.max):
        raise wanted
    condition, value, kept = a.update.args
    place = b.update.args[1]
    if kept is not a.var or b.update.args[0] is not condition or b.update.args[2] is not b.var:
        raise wanted
    largest = next((m for m in (True, False)
                    if prefer(m, value, place, a.var, b.var) is condition), None)
    if largest is None or not all(isinstance(s, Let | Load) for s in stmt.body) or {
            a.var, b.var} & {v for s in stmt.body for v in ex.free_vars(s.exprs())}:
        raise wanted
    (base,) = ex.substitute([place], {axis.var: ex.index(0)})
    if sub.Space(kernel).stride(place, axis.var) != 1 or sub.bound_inside(
            stmt.body) & ex.free_vars([place]):
        raise wanted
    return _Found(axis, n, value, base, largest)


def prefer(largest: bool, x: Expr, place: Expr, best: Expr, at: Expr) -> Expr:
    """Return what decides whether (x, place) comes before (best, at), as `kernelize` writes it."""
    better = x.gt(best) if largest else x.lt(best)
    equal = x.eq(best)
    if x.dtype.is_float:
        nan, best_nan = x.ne(x), best.ne(best)
        better = better | (nan & ~best_nan)
        equal = equal | (nan & best_nan)
    return better | (equal & place.lt(at))


class _Search:
    """One search and the statements that it becomes."""

    def __init__(self, edit: Edit, site: Site, found: _Found, lanes: int, steps: int) -> None:
        self.edit, self.site, self.stmt, self.found = edit, site, site.reduce, found
        self.lanes, self.steps, self.size = lanes, steps, lanes * steps
        self.best, self.at = (a.var for a in self.stmt.accumulators)
        narrow = found.value.dtype.is_float and found.value.dtype.itemsize < 4
        self.dtype = dt.float32 if narrow else found.value.dtype

    def _name(self, suffix: str, dtype: dt.DType, of: Expr | None = None) -> Expr:
        base = (self.best if of is None else of).attr
        return ex.var(self.edit.names.fresh(f"{base}.{suffix}"), dtype)

    def _element(self, place: Expr, suffix: str) -> tuple[Body, Expr]:
        """Return the statements that make one element, and the element."""
        names = {v: self.edit.names.var(f"{v.attr}.{suffix}", v) for s in self.stmt.body
                 for v in s.binds()}
        mapping = {self.found.axis.var: place, **names}
        made: list[Stmt] = []
        for s in self.stmt.body:
            (new,) = self.edit.copy((s.replace(var=names[s.binds()[0]]),), mapping)
            made.append(new)
        (value,) = ex.substitute([self.found.value], mapping)
        return tuple(made), ex.cast(value, self.dtype)

    def _better(self, new: Expr, old: Expr) -> Expr:
        """Return the better of two elements; either one if one of them is NaN."""
        if not self.dtype.is_float:
            return ex.maximum(new, old) if self.found.largest else ex.minimum(new, old)
        return ex.where(old.lt(new) if self.found.largest else new.lt(old), new, old)

    def _start(self, block: Expr) -> Expr:
        return ex.minimum(block * self.size, ex.index(self.found.extent - self.size))

    def apply(self) -> Kernel:
        """Return the kernel with the search in the place of the REDUCE."""
        k, names, d = str(self.found.axis.var.attr), self.edit.names, self.dtype
        first = ex.cast(self.stmt.accumulators[0].init, d)
        tops = Memory(names.fresh(f"{self.best.attr}.l"), d, (ex.index(self.lanes),), "register")
        blocks = Memory(names.fresh(f"{self.at.attr}.l"), dt.int32, tops.shape, "register")
        begin, last, other = (names.index(f"{k}.{s}") for s in "zhj")
        made: list[Stmt] = [
            Alloc(tops), Alloc(blocks),
            For(begin, tops.shape[0], st.SERIAL, (
                Store(tops, (begin,), first), Store(blocks, (begin,), ex.const(0, dt.int32)))),
            self._blocks(k, tops, blocks)]
        top, lane = self._name("t", d), self._name("w", d)
        join = ex.maximum if self.found.largest else ex.minimum
        made.append(Reduce((Axis(last, tops.shape[0]),), (
            Accumulator(top, first, join(top, lane), join(lhs(top), rhs(top))),),
            (Load(lane, tops, (last,)),)))
        block, value = self._name("b", dt.int32, self.at), self._name("v", d)
        place = self._name("u", dt.int32, self.at)
        none = ex.const(dt.int32.max, dt.int32)
        inside: list[Stmt] = [Reduce((Axis(other, tops.shape[0]),), (
            Accumulator(block, none, ex.minimum(block, ex.where(value.eq(top), place, none)),
                        ex.minimum(lhs(block), rhs(block))),),
            (Load(value, tops, (other,)), Load(place, blocks, (other,))))]
        start = self._name("a", dt.int64, self.at)
        here = self._first(f"{k}.f", self.size, start, lambda x: x.eq(top))
        inside += [Let(start, self._start(ex.cast(block, dt.int64))), here[0]]
        whole = here[1]
        if d.is_float:
            found = Memory(names.fresh(f"{self.at.attr}.h"), dt.int64, (ex.index(1),), "local")
            there = self._first(f"{k}.g", self.found.extent, ex.index(0), lambda x: x.ne(x))
            one = (ex.index(0),)
            whole = self._name("p", dt.int64, self.at)
            made += [Alloc(found), If(top.eq(top), (*inside, Store(found, one, here[1])),
                                      (there[0], Store(found, one, there[1]))),
                     Load(whole, found, one)]
        else:
            made += inside
        made.append(Let(self.at, self.found.base + whole))
        if self._is_used():
            again, x = self._element(whole, "e")
            made += [*again, Let(self.best, ex.cast(x, self.best.dtype))]
        return self.edit.replace(self.site.parents, self.stmt, tuple(made))

    def _blocks(self, k: str, tops: Memory, blocks: Memory) -> For:
        """Return the loop over blocks that keeps the best element of each lane and its block."""
        outer, lane = self.edit.names.index(f"{k}.o"), self.edit.names.index(f"{k}.l")
        start = self._start(outer)
        body: list[Stmt] = []
        elements: list[Expr] = []
        for step in range(self.steps):
            made, x = self._element(start + (lane + step * self.lanes), f"s{step}")
            body += made
            elements.append(x)
        nan = None
        for x in elements if self.dtype.is_float else ():
            nan = x.ne(x) if nan is None else nan | x.ne(x)
        while len(elements) > 1:
            joined = [self._better(*pair) for pair in zip(elements[::2], elements[1::2],
                                                          strict=False)]
            elements = joined + elements[len(elements) // 2 * 2:]
        m, old, at = self._name("m", tops.dtype), self._name("x", tops.dtype), self._name(
            "y", dt.int32)
        body += [Let(m, elements[0]), Load(old, tops, (lane,)), Load(at, blocks, (lane,))]
        grew = old.lt(m) if self.found.largest else m.lt(old)
        best = ex.where(grew, m, old)
        if nan is not None:
            best = ex.where(nan, ex.const(float("nan"), tops.dtype), best)
        body += [Store(tops, (lane,), best),
                 Store(blocks, (lane,), ex.where(grew, ex.cast(outer, dt.int32), at))]
        rounds = -(-self.found.extent // self.size)
        return For(outer, ex.index(rounds), st.SERIAL, (
            For(lane, tops.shape[0], st.SERIAL, tuple(body)),))

    def _first(self, name: str, count: int, start: Expr,
               wanted: Callable[[Expr], Expr]) -> tuple[Stmt, Expr]:
        """Return a search for the first of `count` elements that is wanted, and its place."""
        var = self.edit.names.index(name)
        suffix = name.rpartition(".")[2]
        found = self._name(suffix, dt.int32, self.at)
        body, x = self._element(start + var, suffix)
        none = ex.const(dt.int32.max, dt.int32)
        update = ex.minimum(found, ex.where(wanted(x), ex.cast(var, dt.int32), none))
        reduce = Reduce((Axis(var, ex.index(count)),), (Accumulator(
            found, none, update, ex.minimum(lhs(found), rhs(found))),), body)
        return reduce, start + ex.cast(found, dt.int64)

    def _is_used(self) -> bool:
        return any(self.best in ex.free_vars(s.exprs())
                   for s in traverse.walk(self.edit.kernel.body)
                   if s is not self.stmt and s not in self.stmt.body)
