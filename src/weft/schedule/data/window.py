"""The primitive `window`: copy the box of a memory that one iteration of a loop reads."""

from __future__ import annotations

from math import gcd

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.bounds import Ranges
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Body, For, Kernel, Load, Memory, Stmt, Store
from weft.ir.traverse import Rewriter, stores, walk
from weft.schedule.analysis import guard as gd
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.space import Edit, Site, find_loop, find_memory
from weft.schedule.analysis.subscripts import ONE

MAX_ELEMENTS = 1 << 22


def window(kernel: Kernel, memory: str, loop: str, order: tuple[int, ...] = (),
           skew: int = 0) -> Kernel:
    """Copy the box of a memory that one iteration reads ("stage_window" in Exo).

    for i.o: for i.i in 8: for k in 3: ... x[i.o*8 + i.i + k - 1] (where inside, else 0) ...
    ->  for i.o: { alloc x.w[10]; for x.d0 in 10: x.w[x.d0] = x[i.o*8 + x.d0 - 1] (where inside)
                   for i.i in 8: for k in 3: ... x.w[i.i + k] ... }

    Unlike `stage`, whose copy has one dimension for each loop, the copy has one for each dimension
    of the memory along which the loops move, so overlapping windows are read once, and so are those
    of several loads, in whichever loops they are. What lies outside the memory is 0 in the copy: a
    mask that only keeps a load inside the memory is no longer needed and goes away, with the choice
    of 0 that stands for it. Elements that all loops step over are left out.

    Parameters
    ----------
    memory : str
        Read, and not written, inside `loop`.
    loop : str
        The copy is made at the start of each iteration of this loop.
    order : tuple of int
        Dimensions of the memory in the order they have in the copy; those along which nothing
        moves do not count. By default the order of the memory.
    skew : int
        Unused elements behind each row of the copy, against cache-set conflicts.

    Raises
    ------
    ScheduleError
        If a load begins elsewhere by more than a constant, or is not linear in the loops inside.
    """
    what = f"window({memory}, {loop})"
    site = find_loop(kernel, loop, "window")
    if site.axis >= 0:
        raise ScheduleError(what, found="an axis of a REDUCE", expected="a FOR loop")
    return _Window(kernel, site, find_memory(kernel, memory, "window"), order, skew, what).apply()


class _Window:
    """One copied box."""

    def __init__(self, kernel: Kernel, site: Site, source: Memory, order: tuple[int, ...],
                 skew: int, what: str) -> None:
        self.edit, self.site, self.source, self.what = Edit(kernel), site, source, what
        self.skew = skew
        self.space = sub.Linear(kernel)
        self.inside = sub.bound_inside(site.body)
        if source in stores(site.body):
            raise ScheduleError(what, found=f"stores to {source.name} inside {site.var.attr}",
                                expected="a memory that is only read there")
        self.loads = [s for s in walk(site.body) if isinstance(s, Load) and s.memory is source]
        if not self.loads:
            raise ScheduleError(what, found=f"no load of {source.name} inside {site.var.attr}",
                                expected="something to copy")
        starts = [self._start(load) for load in self.loads]
        shifts = [[self._distance(e, first) for e, first in zip(start, starts[0], strict=True)]
                  for start in starts]
        self.moves = [[self._move(i) for i in load.index] for load in self.loads]
        dims = range(len(source.shape))
        self.low = [min(shift[d] + sum(min(0, n) for n in self._lengths(move[d]))
                        for shift, move in zip(shifts, self.moves, strict=True)) for d in dims]
        high = [max(shift[d] + sum(max(0, n) for n in self._lengths(move[d]))
                    for shift, move in zip(shifts, self.moves, strict=True)) for d in dims]
        # What all loops step over is left out.
        self.steps = [gcd(*[s[d] for s in shifts], *[
            c for m in self.moves for v, c in m[d].items() if self._extent(v) > 1]) or 1
            for d in dims]  # fmt: skip
        self.sizes = [(top - low) // step + 1
                      for low, top, step in zip(self.low, high, self.steps, strict=True)]
        self.shifts = shifts
        total = 1
        for size in self.sizes:
            total *= size
        if total > MAX_ELEMENTS:
            raise ScheduleError(what, found=f"a box of {total} elements",
                                expected=f"at most {MAX_ELEMENTS}", hint="copy further inside")
        kept = order or tuple(dims)
        if sorted(kept) != list(dims):
            raise ScheduleError(what, found=f"order {order}",
                                expected=f"a permutation of {len(dims)} dimensions")
        self.kept = [d for d in kept if self.sizes[d] > 1] or [kept[-1]]
        self.start = [s + low for s, low in zip(starts[0], self.low, strict=True)]

    def _start(self, load: Load) -> list[Expr]:
        """Return the subscripts where nothing has moved yet, valid at the start of the loop."""
        moves = [self._move(i) for i in load.index]
        still = {v: ex.index(0) for m in moves for v in m}
        first = ex.substitute([self._resolve(i) for i in load.index], still)
        if ex.free_vars(first) & self.inside:
            raise ScheduleError(self.what, found="a tile whose start is computed twice",
                                expected="sums of loop variables times constants")
        return first

    def _distance(self, e: Expr, first: Expr) -> int:
        """Return by how much a subscript is larger than that of the first load."""
        found = self.space.poly(e - first)
        if any(key != ONE for key in found):
            raise ScheduleError(self.what, found="loads with different subscripts",
                                expected="one box to copy")
        return found.get(ONE, 0)

    def _lengths(self, move: dict[Expr, int]) -> list[int]:
        """Return how far each loop moves."""
        return [c * (self._extent(v) - 1) for v, c in move.items()]

    def _is_start(self, e: Expr) -> bool:
        """Whether a value is where a tile of an overlapping split inside begins: 0 at first."""
        return e.op is Op.MIN and ex.free_vars([e]) <= self.inside and (
            self.space.ranges.of(e).lo == 0)

    def _extent(self, var: Expr) -> int:
        """Return how often a loop runs at most: a shorter round reads less of its box."""
        if var not in self.space.extents:
            return self.space.ranges.of(var).hi + 1
        n = self.space.extents[var]
        most = self.space.ranges.of(n).hi
        if most > MAX_ELEMENTS or any(v.op is Op.VARIABLE for v in ex.toposort([n])):
            raise ScheduleError(self.what, found=f"{var.attr} in {n!r}",
                                expected="constant extents", hint="split the loop first")
        return max(most, 1)

    def _move(self, subscript: Expr) -> dict[Expr, int]:
        """Return by how much a subscript moves per step of each loop inside."""
        out: dict[Expr, int] = {}
        for monomial, coefficient in self.space.poly(subscript).items():
            moving = set().union(*[self.space.symbols(a) for a in monomial]) & self.inside
            if not moving:
                continue
            if len(monomial) != 1 or not (
                    monomial[0] in self.space.extents or self._is_start(monomial[0])):
                names = ", ".join(sorted(v.attr for v in moving))
                raise ScheduleError(self.what, found=f"a subscript not linear in {names}",
                                    expected="sums of loop variables times constants")
            out[monomial[0]] = coefficient
        return out

    def _resolve(self, e: Expr) -> Expr:
        values = self.space.values
        while True:
            lets = {v: values[v] for v in ex.free_vars([e]) if v in self.inside and v in values}
            if not lets:
                return e
            (e,) = ex.substitute([e], lets)

    def apply(self) -> Kernel:
        edit, source = self.edit, self.source
        variables = {d: edit.names.index(f"{source.name}.d{d}") for d in range(len(self.sizes))
                     if self.sizes[d] > 1 or d in self.kept}
        shape = [self.sizes[d] for d in self.kept]
        shape[-1] += self.skew
        copy = Memory(edit.names.fresh(f"{source.name}.w"), source.dtype,
                      tuple(map(ex.index, shape)), "local")
        index = tuple([s + variables[d] * self.steps[d] if d in variables else s
                       for d, s in enumerate(self.start)])
        value = edit.names.var(f"{source.name}.v", self.loads[0].var)
        body: Body = (Load(value, source, index, self._within(index, variables)),
                      Store(copy, tuple([variables[d] for d in self.kept]), value))
        for d in reversed(variables):
            body = (For(variables[d], ex.index(self.sizes[d]), st.SERIAL, body),)
        places = {load: self._place(shift, moves) for load, shift, moves in zip(
            self.loads, self.shifts, self.moves, strict=True)}
        inner = self._redirect(copy, places)
        edit.locate(self.loads[0], *body)
        loop = self.site.loop
        new = For(loop.var, loop.extent, loop.kind, (Alloc(copy), *body, *inner))
        return edit.replace(self.site.parents, loop, (new,))

    def _place(self, shift: list[int], moves: list[dict[Expr, int]]) -> tuple[Expr, ...]:
        """Return where in the copy a load finds its element."""
        found = []
        for d in self.kept:
            place = ex.index((shift[d] - self.low[d]) // self.steps[d])
            for var, factor in moves[d].items():
                place = place + var * (factor // self.steps[d])
            found.append(place)
        return tuple(found)

    def _redirect(self, copy: Memory, places: dict[Load, tuple[Expr, ...]]) -> Body:
        free: dict[Expr, Expr] = {}  # loaded values that no longer need a choice, and their masks
        for load in self.loads:
            if load.mask is not None and gd.is_zero(load.fill) and self._only_bounds(load):
                free[load.var] = load.mask

        class Redirect(Rewriter):
            def visit(self, stmt: Stmt) -> Stmt:
                if isinstance(stmt, Load) and stmt in places:
                    if stmt.var in free:
                        return Load(stmt.var, copy, places[stmt])
                    return Load(stmt.var, copy, places[stmt], stmt.mask, stmt.fill)
                if free and stmt.exprs():
                    return gd.unmasked(stmt, free)
                return stmt

        rewriter = Redirect(self.edit.kernel)
        inner = rewriter.body(self.site.body)
        self.edit.locations = rewriter.locations
        return inner

    def _only_bounds(self, load: Load) -> bool:
        """Whether the mask of a load says no more than that its subscripts are inside."""
        space = self.space
        bounds = []
        for i, size in zip(load.index, load.memory.shape, strict=True):
            bounds.append(gd.tight(space.poly(i)))
            bounds.append(gd.tight(space.poly(size - i - 1)))
        stack = [self._resolve(load.mask)] if load.mask is not None else []
        while stack:
            e = stack.pop()
            if e.op is Op.AND:
                stack.extend(e.args)
            elif e.op in (Op.LT, Op.LE):
                slack = e.args[1] - e.args[0] - (1 if e.op is Op.LT else 0)
                if gd.tight(space.poly(slack)) not in bounds:
                    return False
            else:
                return False
        return True

    def _within(self, index: tuple[Expr, ...], variables: dict[int, Expr]) -> Expr | None:
        """Return the mask that keeps the copy inside the memory; None where it cannot leave it."""
        env = dict(self.space.ranges.env)
        env.update({v: (0, self.sizes[d] - 1) for d, v in variables.items()})
        ranges = Ranges(env)
        mask: Expr | None = None
        for i, size in zip(index, self.source.shape, strict=True):
            span = ranges.of(i)
            if span.hi >= ranges.of(size).lo:
                mask = gd.both(mask, i.lt(size))
            if span.lo < 0:
                mask = gd.both(mask, ex.index(0).le(i))
        return mask
