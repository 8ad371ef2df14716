"""The primitive `strip`: go through the rows of a copied box as if they were one row."""

from __future__ import annotations

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.stmt import Alloc, Body, For, Kernel, Load, Memory, Reduce, Stmt, Store
from weft.ir.traverse import walk
from weft.schedule.analysis.space import Copy, Edit, Site, constant, find_for, find_memory, perfect
from weft.schedule.analysis.subscripts import Space
from weft.schedule.data.memory import swap_memory


def strip(kernel: Kernel, loop: str, memory: str) -> Kernel:
    """Sum for the rows of a box as for one long row, and take out the results afterwards.

    for y in h: for x in w: { reduce k, l (s=0) {s + b.w[y + k, x + l]*c[k, l]}; store a[y, x] = s }
    ->  alloc s.l[(h-1)*p + w]
        for y_x in (h-1)*p + w: { reduce k, l (s=0) {s + b.w[y_x + k*p + l]*c[k, l]}
                                  store s.l[y_x] = s }
        for y.l in h: for x.l in w: { s = s.l[y.l*p + x.l]; store a[y.l, x.l] = s }

    Short rows then fill vectors. What lies between two rows in the box is summed as well, and
    nobody reads it. The rows of the box have p elements: where they begin and end with zeros, the
    end of one is the beginning of the next.

    Parameters
    ----------
    loop : str
        The outermost loop of a perfect nest of at least two, the last of which go through rows
        and along them. It ends in a REDUCE and what uses its results.
    memory : str
        A copy that `window` made, along whose last two dimensions these loops move it.

    Raises
    ------
    ScheduleError
        If the loops move anything else that is summed, or the copy by other steps than 1.
    """
    what = f"strip({loop}, {memory})"
    site = find_for(kernel, loop, "strip")
    chain = perfect(site.loop)
    sizes = [constant(f.extent) for f in chain]
    if len(chain) < 2 or any(f.kind != st.SERIAL for f in chain) or None in sizes:
        raise ScheduleError(what, found=f"{len(chain)} loops",
                            expected="two or more serial ones of constant extents")
    return _Strip(kernel, site, chain, find_memory(kernel, memory, "strip"), what).apply()


class _Strip:
    """One nest on its way to a strip."""

    def __init__(self, kernel: Kernel, site: Site, chain: list[For], box: Memory,
                 what: str) -> None:
        self.kernel, self.site, self.chain, self.box, self.what = kernel, site, chain, box, what
        self.space = Space(kernel)
        body = chain[-1].body
        if not isinstance(body[0], Reduce) or any(isinstance(s, Reduce | For) for s in body[1:]):
            raise ScheduleError(what, found="other statements than one REDUCE and its uses",
                                expected="a REDUCE that comes first")
        self.reduce, self.rest = body[0], body[1:]
        self.y, self.x = chain[-2].var, chain[-1].var
        self._check_moves()
        rows, row = (constant(n) or 0 for n in box.shape[-2:])
        self.pitch = row - self._shared(row)
        self.length = (rows - 1) * self.pitch + row

    def _check_moves(self) -> None:
        """Make sure that the two loops move the box alone, by its last two dimensions."""
        loops = {self.y, self.x}
        loads = [s for s in walk((self.reduce,)) if isinstance(s, Load)]
        mine = {s for s in loads if s.memory is self.box}
        others = [e for s in walk((self.reduce,)) if s not in mine for e in s.exprs()]
        moved = [e for s in mine for e in (*s.index[:-2], s.mask, s.fill) if e is not None]
        steps = {tuple(self.space.stride(i, v) for i in s.index[-2:] for v in (self.y, self.x))
                 for s in mine}
        if steps != {(1, 0, 0, 1)} or any(
                self.space.symbols(e) & loops for e in (*others, *moved)):
            raise ScheduleError(self.what, found=f"sums that move by {steps}",
                                expected=f"loads of {self.box.name}[..., {self.y.attr} + ..., "
                                         f"{self.x.attr} + ...] alone")

    def _shared(self, row: int) -> int:
        """Return how many zeros all rows of the box begin and end with, as `window` copied them."""
        copied = [(s, v) for s in walk(self.kernel.body) if isinstance(s, Store)
                  and s.memory is self.box for v in walk(self.kernel.body)
                  if isinstance(v, Load) and v.var is s.value]
        if len(copied) != 1 or copied[0][1].fill is not None:
            return 0
        store, load = copied[0]
        n = constant(load.memory.shape[-1])
        place, start = (self.space.poly(i) for i in (store.index[-1], load.index[-1]))
        step = next((start.get(m, 0) // c for m, c in place.items() if m), 0)
        first = {m: start.get(m, 0) - step * place.get(m, 0) for m in {*start, *place}}
        if n is None or step < 1 or any(c for m, c in first.items() if m):
            return 0
        inside = [at for at in range(row) if 0 <= first.get((), 0) + step * at < n]
        return min(inside[0], row - 1 - inside[-1]) if inside else 0

    def apply(self) -> Kernel:
        edit, chain = Edit(self.kernel), self.chain
        high, width = (constant(f.extent) or 0 for f in chain[-2:])
        along = edit.names.index(f"{self.y.attr}_{self.x.attr}")
        extent = ex.index((high - 1) * self.pitch + width)
        outer = [f.var for f in chain[:-2]]
        shape = (*[f.extent for f in chain[:-2]], extent)
        sums = [a.var for a in self.reduce.accumulators]
        memories = [Memory(edit.names.fresh(f"{v.attr}.l"), v.dtype, shape, "local") for v in sums]
        flat = Memory(self.box.name, self.box.dtype,
                      (*self.box.shape[:-2], ex.index(self.length)), self.box.scope)
        index = {f.var: edit.names.index(f"{f.var.attr}.l") for f in chain}
        left = Copy(edit.locations, index, edit.names, ".l")
        place = index[self.y] * self.pitch + index[self.x]
        loads = tuple([Load(left.bind(v), m, (*[index[o] for o in outer], place))
                       for v, m in zip(sums, memories, strict=True)])
        after: Body = (*loads, *left.body(self.rest))
        stores = tuple([Store(m, (*outer, along), v)
                        for v, m in zip(sums, memories, strict=True)])
        first: Body = (*edit.copy((self.reduce,), {self.y: ex.index(0), self.x: along}), *stores)
        first = (For(along, extent, st.SERIAL, first),)
        for f in reversed(chain[:-2]):
            first = (For(f.var, f.extent, st.SERIAL, first),)
        for f in reversed(chain):
            after = (For(index[f.var], f.extent, st.SERIAL, after),)
        new: tuple[Stmt, ...] = (*map(Alloc, memories), *first, *after)
        made = edit.replace(self.site.parents, chain[0], new)
        return swap_memory(made, self.box, flat, lambda i: (*i[:-2], i[-2] * self.pitch + i[-1]))
