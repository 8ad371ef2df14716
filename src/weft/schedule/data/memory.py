"""Primitives that move or rearrange data: stage, layout, pad, flatten, inline, stream, hoist."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.stmt import Alloc, Body, For, Kernel, Let, Load, Memory, Stmt, Store
from weft.ir.traverse import Rewriter
from weft.schedule.analysis import guard as gd
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.sliding import PAIR
from weft.schedule.analysis.space import Edit, Names, Site, constant, find_loop, find_memory, scan

MAX_EXTENT: Final = 1 << 22  # iterations of a loop over which a copy may extend


def stage(kernel: Kernel, memory: str, loop: str, layout: tuple[str, ...], scope: str = "local",
          skew: int = 0, masked: bool = False) -> Kernel:
    """Copy the part of a memory that one iteration reads ("stage_mem" in Exo, "cache_read" in TVM).

    for j.o: for k: for j.i: ... b[k, j.o*16 + j.i] ...
    ->  for j.o: { alloc b.s[n, 16]; for k.s: for j.i.s: b.s[k.s, j.i.s] = b[k.s, j.o*16 + j.i.s]
                   for k: for j.i: ... b.s[k, j.i] ... }

    Parameters
    ----------
    memory : str
        Read, and not written, inside `loop`.
    loop : str
        The copy is made at the start of each iteration of this loop.
    layout : tuple of str
        The loops inside it over which the part extends, in the order of the dimensions of the copy:
        a packed layout is a choice of order. Each needs a constant extent, or one of a known bound
        that does not change inside `loop`. Loops that a split made of one, ``i.o&i.i``, are one
        dimension.
    scope : str
        ``local``, ``register`` or ``shared``.
    skew : int
        Unused elements behind each row of the copy, against cache-set conflicts.
    masked : bool
        Whether the copy takes the mask of the loads along and has a 0 where it does not hold, so
        that the loads of the copy have none.

    Raises
    ------
    ScheduleError
        If the loads differ by more than these loops, or a mask to take along does.
    """
    what = f"stage({memory}, {loop}, layout={'+'.join(layout)})"
    site = find_loop(kernel, loop, "stage")
    if site.axis >= 0:
        raise ScheduleError(what, found="an axis of a REDUCE", expected="a FOR loop")
    source = find_memory(kernel, memory, "stage")
    return _Stage(kernel, site, source, layout, scope, skew, masked, what).apply()


class _Stage:
    """One staged copy."""

    def __init__(self, kernel: Kernel, site: Site, source: Memory, layout: tuple[str, ...],
                 scope: str, skew: int, masked: bool, what: str) -> None:
        self.edit, self.site, self.source, self.what = Edit(kernel), site, source, what
        self.scope, self.skew, self.masked = scope, skew, masked
        self.space = sub.Space(kernel)
        if source in traverse.stores(site.body):
            raise ScheduleError(what, found=f"stores to {source.name} inside {site.var.attr}",
                                expected="a memory that is only read there")
        self.loads = [s for s in traverse.walk(site.body)
                      if isinstance(s, Load) and s.memory is source]
        if not self.loads:
            raise ScheduleError(what, found=f"no load of {source.name} inside {site.var.attr}",
                                expected="something to copy")
        inside = sub.bound_inside(site.body)
        by_name = {v.attr: v for v in self.space.extents if v in inside}
        groups = [tuple(name.split(PAIR)) for name in layout]
        missing = [name for names in groups for name in names if name not in by_name]
        if missing:
            raise ScheduleError(what, found=f"no loop {', '.join(missing)} inside {site.var.attr}",
                                expected="one of " + ", ".join(by_name))
        self.groups = [tuple([by_name[name] for name in names]) for names in groups]
        self.dims = [v for group in self.groups for v in group]
        self.counts = [self._count(group, inside) for group in self.groups]
        self.extents = [self.space.ranges.of(n).hi for n in self.counts]
        self.variables = [self.edit.names.index(f"{group[0].attr}.s") for group in self.groups]
        self.places = tuple([self._place(group) for group in self.groups])
        self._check(inside)

    def _place(self, group: tuple[Expr, ...]) -> Expr:
        """Return where in their dimension the iterations of some loops are."""
        place = group[0]
        for v in group[1:]:
            place = place * self.space.extents[v] + v
        return place

    def _count(self, group: tuple[Expr, ...], inside: set[Expr]) -> Expr:
        """Return how often loops run: valid at the start of the loop around, with a bound."""
        count = ex.index(1)
        for var in group:
            n = self.space.extents[var]
            count = count * n
            if ex.free_vars([n]) & inside or self.space.ranges.of(count).hi > MAX_EXTENT:
                raise ScheduleError(self.what, found=f"{var.attr} in {n!r}",
                                    expected="constant extents", hint="split the loop first")
        return count

    def _check(self, inside: set[Expr]) -> None:
        """Check that all loads have one subscript, which varies with the dimensions only."""
        for stmt, parents in scan(self.edit.kernel):
            if stmt in self.loads:
                around = {v for p in parents for v in _loop_vars(p)}
                outside = [v.attr for v in self.dims if v not in around]
                if outside:
                    raise ScheduleError(self.what, found=f"a load outside {', '.join(outside)}",
                                        expected="loads inside all loops of the layout")
        first = [self.space.poly(i) for i in self.loads[0].index]
        for load in self.loads:
            if [self.space.poly(i) for i in load.index] != first:
                raise ScheduleError(self.what, found="loads with different subscripts",
                                    expected="one subscript to copy")
            if self.masked and not (load.mask is self.loads[0].mask and gd.is_zero(load.fill)):
                raise ScheduleError(self.what, found="loads with different masks",
                                    expected="one mask to take along")
        varying = [self.space.symbols(atom) for poly in first for key in poly for atom in key]
        mask = self.loads[0].mask
        if self.masked and mask is not None:
            varying.append(self.space.symbols(mask))
        for symbols in varying:
            others = (symbols & inside) - set(self.dims)
            if others:
                names = ", ".join(sorted(v.attr for v in others))
                raise ScheduleError(self.what, found=f"a subscript that varies with {names}",
                                    expected="loops of the layout only",
                                    hint="add the loop to the layout")

    def apply(self) -> Kernel:
        edit, source = self.edit, self.source
        shape = list(self.extents)
        shape[-1] += self.skew
        copy = Memory(edit.names.fresh(f"{source.name}.s"), source.dtype,
                      tuple(map(ex.index, shape)), self.scope)
        index = self._moved(self.loads[0].index)
        left = sorted(v.attr for v in ex.free_vars(index) & sub.bound_inside(self.site.body))
        if left:  # a clamped start, which counts as one point with the loop inside it
            raise ScheduleError(self.what, found=f"a subscript that varies with {', '.join(left)}",
                                expected="loops of the layout only")
        value = edit.names.var(f"{source.name}.v", self.loads[0].var)
        within = self._asked(index)
        body: Body = (Load(value, source, index, within),
                      Store(copy, tuple(self.variables), value))
        for var, count in zip(reversed(self.variables), reversed(self.counts), strict=True):
            body = (For(var, count, st.SERIAL, body),)
        chosen = set(self.loads)
        places = self.places
        back = dict(zip(self.variables, places, strict=True))
        zero = [] if within is None else [  # where the copy has a 0 already
            gd.slack(self.space, ex.substitute([c], back)[0]) for c in gd.parts(within)]

        def asked(load: Load) -> Expr | None:
            if self.masked:
                return None
            if load.mask is None or load.fill is not None:
                return load.mask
            left = [c for c in gd.parts(load.mask) if gd.slack(self.space, c) not in zero]
            return gd.conjunction(left) if left else None

        class Redirect(Rewriter):
            def visit(self, stmt: Stmt) -> Stmt:
                if isinstance(stmt, Load) and stmt in chosen:
                    return Load(stmt.var, copy, places, asked(stmt), stmt.fill)
                return stmt

        rewriter = Redirect(edit.kernel)
        inner = rewriter.body(self.site.body)
        edit.locations = rewriter.locations
        edit.locate(self.loads[0], *body)
        loop = self.site.loop
        new = For(loop.var, loop.extent, loop.kind, (Alloc(copy), *body, *inner))
        return edit.replace(self.site.parents, loop, (new,))

    def _moved(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return expressions of the loops of the layout as ones of the loops of the copy."""
        resolved = [_resolve(self.space, e, self.site) for e in exprs]
        mapping = {v: ex.index(0) for v in self.dims}
        mapping |= {g[-1]: w for g, w in zip(self.groups, self.variables, strict=True)}
        moved = ex.substitute(resolved, mapping)
        whole = dict(zip(self.variables, self.places, strict=True))
        if any(len(g) > 1 for g in self.groups) and any(
                a is not b for a, b in zip(ex.substitute(moved, whole), resolved, strict=True)):
            raise ScheduleError(self.what, found="loops that are not one together",
                                expected="pairs of loops that a split made")
        return tuple(moved)

    def _asked(self, index: tuple[Expr, ...]) -> Expr | None:
        """Return the mask of the copy, None if it needs none."""
        load = self.loads[0]
        if not self.masked or load.mask is None:
            return self._within(index)
        (mask,) = self._moved((load.mask,))
        within = None if gd.stays(self.space, load) else self._within(index)
        return mask if within is None else mask & within

    def _within(self, index: tuple[Expr, ...]) -> Expr | None:
        """Return the mask that keeps the copy inside the memory; None where it cannot leave it."""
        ranges = self.space.ranges
        env = dict(ranges.env)
        env.update({v: (0, n - 1) for v, n in zip(self.variables, self.extents, strict=True)})
        ranges = type(ranges)(env)
        mask: Expr | None = None
        for i, size in zip(index, self.source.shape, strict=True):
            span = ranges.of(i)
            if span.hi >= ranges.of(size).lo:
                mask = gd.both(mask, i.lt(size))
            if span.lo < 0:
                mask = gd.both(mask, ex.index(0).le(i))
        return mask


def _loop_vars(stmt: Stmt) -> tuple[Expr, ...]:
    if isinstance(stmt, st.Reduce):
        return tuple([a.var for a in stmt.axes])
    return (stmt.var,) if isinstance(stmt, For) else ()


def _resolve(space: sub.Space, e: Expr, site: Site) -> Expr:
    """Return `e` with the LETs inside the loop written out, so that it is valid at its start."""
    inside = sub.bound_inside(site.body)
    while True:
        lets = {v: space.values[v] for v in ex.free_vars([e]) if v in inside and v in space.values}
        if not lets:
            return e
        (e,) = ex.substitute([e], lets)


def layout(kernel: Kernel, memory: str, order: tuple[int, ...]) -> Kernel:
    """Permute the dimensions of a memory ("transform_layout" in TVM, "rearrange_dim" in Exo).

    alloc t[n, m]; t[i, j]  ->  alloc t[m, n]; t[j, i]      (order = (1, 0))
    """
    what = f"layout({memory}, {'+'.join(map(str, order))})"
    old = _allocated(kernel, memory, what)
    if sorted(order) != list(range(len(old.shape))):
        raise ScheduleError(what, found=f"order {order}",
                            expected=f"a permutation of {len(old.shape)} dimensions")
    new = old.replace(shape=tuple([old.shape[d] for d in order]))
    return swap_memory(kernel, old, new, lambda index: tuple([index[d] for d in order]))


def pad(kernel: Kernel, memory: str, dimension: int, multiple: int) -> Kernel:
    """Enlarge one dimension of an allocated memory ("pad" in TVM, "bound_storage" in Halide).

    alloc t[13]  ->  alloc t[16]      (multiple = 16)

    The new elements are never part of a result; they let loops run past the end (`split` with
    tail="pad") and keep rows aligned.
    """
    what = f"pad({memory}, {dimension}, {multiple})"
    old = _allocated(kernel, memory, what)
    if not 0 <= dimension < len(old.shape) or multiple < 1:
        raise ScheduleError(what, found=f"{len(old.shape)} dimensions",
                            expected="a dimension of the memory and a positive multiple")
    shape = list(old.shape)
    shape[dimension] = (shape[dimension] + (multiple - 1)) // multiple * multiple
    return swap_memory(kernel, old, old.replace(shape=tuple(shape)), lambda index: index)


def flatten(kernel: Kernel, memory: str, room: int = 0) -> Kernel:
    """Make an allocated memory one row of all its elements, in the order in which they lie.

    alloc t[8, 13]; t[i, j]  ->  alloc t[104 + r]; for t.e in r: t[104 + t.e] = 0; t[i*13 + j]

    What runs past the end of a row then reads the next one, and behind the last `room` zeros.
    """
    what = f"flatten({memory}, {room})"
    old, names = _allocated(kernel, memory, what), Names(kernel)
    sizes = [n for n in map(constant, old.shape) if n is not None]
    if len(sizes) < max(len(old.shape), 1) or room < 0:
        raise ScheduleError(what, found=f"a shape of {old.shape!r}",
                            expected="dimensions of constant sizes, and no negative room")
    place, total = names.index(f"{memory}.e"), prod(sizes)
    new = old.replace(shape=(ex.index(total + room),))
    zeros: Body = () if not room else (st.For(place, ex.index(room), st.SERIAL, (
        Store(new, (place + total,), ex.const(0, new.dtype)),)),)

    def flat(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        at = index[0]
        for i, n in zip(index[1:], sizes[1:], strict=True):
            at = at * n + i
        return (at,)

    return _put_behind(swap_memory(kernel, old, new, flat), new, zeros)


def _put_behind(kernel: Kernel, memory: Memory, stmts: Body) -> Kernel:
    """Return the kernel with statements right behind the allocation of a memory."""

    class Put(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt | Body:
            return (stmt, *stmts) if isinstance(stmt, Alloc) and stmt.memory is memory else stmt

    return Put(kernel).run()


def _allocated(kernel: Kernel, name: str, what: str) -> Memory:
    memory = find_memory(kernel, name, what)
    if memory in kernel.params:
        raise ScheduleError(what, found=f"the parameter {name}",
                            expected="a memory allocated in the kernel",
                            hint="stage makes a copy whose layout is free")
    return memory


def swap_memory(kernel: Kernel, old: Memory, new: Memory,
                 remap: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]) -> Kernel:
    """Return the kernel with a memory replaced, and its subscripts by `remap`."""

    class Swap(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt:
            if isinstance(stmt, Alloc) and stmt.memory is old:
                return Alloc(new)
            if isinstance(stmt, Load | Store | st.Atomic | st.Prefetch) and stmt.memory is old:
                return stmt.replace(memory=new, index=remap(stmt.index))
            return stmt

    return Swap(kernel).run()


def stream(kernel: Kernel, memory: str) -> Kernel:
    """Write a memory past the caches (non-temporal stores; "store_in ... nontemporal").

    store y[i] = v  ->  store.streaming y[i] = v

    It changes speed only: worth it for an output that does not fit the last-level cache.
    """
    target = find_memory(kernel, memory, "stream")

    class Mark(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt:
            if isinstance(stmt, Store) and stmt.memory is target and not stmt.streaming:
                return stmt.replace(streaming=True)
            return stmt

    return Mark(kernel).run()


def inline(kernel: Kernel, name: str) -> Kernel:
    """Write a named value out where it is used ("compute_inline" in TVM, "inline" in Halide).

    let t = x + 1; let y = t * t  ->  let y = (x + 1) * (x + 1)
    """
    found = next((s for s, _ in scan(kernel) if isinstance(s, Let) and s.var.attr == name), None)
    if found is None:
        raise ScheduleError(f"inline({name})", found=f"no let {name!r}", expected="a LET to inline")
    edit = Edit(kernel)
    parents = next(p for s, p in scan(kernel) if s is found)
    around = kernel.body if not parents else _holder(parents[-1], found)
    position = next(p for p, s in enumerate(around) if s is found)
    rest = edit.copy(around[position + 1 :], {found.var: found.value})
    return _replace_body(edit, parents, around, around[:position] + rest)


def _holder(parent: Stmt, child: Stmt) -> Body:
    return next(b for b in parent.bodies() if any(s is child for s in b))


def _replace_body(edit: Edit, parents: tuple[Stmt, ...], old: Body, new: Body) -> Kernel:
    if not parents:
        return edit.kernel.replace(body=new, locations=edit.locations)
    parent = parents[-1]
    bodies = [new if b is old else b for b in parent.bodies()]
    changed = parent.with_bodies(*bodies)
    if isinstance(parent, st.While | st.Reduce):
        # the condition and the updates see the names of the body
        mapping = {s.var: s.value for s in old if isinstance(s, Let) and s not in new}
        (changed,) = edit.copy((changed,), mapping)
    return edit.replace(parents[:-1], parent, (changed,))


def hoist(kernel: Kernel, name: str) -> Kernel:
    """Move a name or load out of the innermost loop around it, if it does not vary there.

    for j: { load x = a[i]; s[x, j] }  ->  load x = a[i]; for j: s[x, j]      ("lift" in Exo)

    Raises
    ------
    ScheduleError
        If it varies with the loop, the loop may run zero times and the load is not masked, or the
        memory is written in the loop.
    """
    what = f"hoist({name})"
    found, parents = next(
        ((s, p) for s, p in scan(kernel)
         if isinstance(s, Let | Load) and s.var.attr == name), (None, ()))
    if found is None or not parents or not isinstance(parents[-1], For):
        raise ScheduleError(what, found="nothing of this name right inside a loop",
                            expected="a LET or LOAD in the body of a FOR")
    loop = parents[-1]
    assert isinstance(loop, For)
    used = ex.free_vars(found.exprs())
    position = next(p for p, s in enumerate(loop.body) if s is found)
    varying = used & ({loop.var} | sub.bound_inside(loop.body))
    if varying:
        raise ScheduleError(what, found=f"uses of {', '.join(sorted(v.attr for v in varying))}",
                            expected=f"nothing that varies with {loop.var.attr}")
    if isinstance(found, Load):
        if found.memory in traverse.stores(loop.body):
            raise ScheduleError(what, found=f"stores to {found.memory.name} in {loop.var.attr}",
                                expected="a memory that is only read there")
        if sub.Space(kernel).ranges.of(loop.extent).lo < 1:
            raise ScheduleError(what, found=f"{loop.var.attr} in {loop.extent!r}",
                                expected="at least one iteration")
    rest = loop.body[:position] + loop.body[position + 1 :]
    new = For(loop.var, loop.extent, loop.kind, rest)
    return Edit(kernel).replace(parents[:-1], loop, (found, new))
