"""The primitive `matrix`: nests over square tiles as operations on whole matrices."""

from __future__ import annotations

from itertools import permutations
from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.ir.stmt import Body, For, Kernel, Load, Memory, Stmt, Store
from weft.schedule.analysis.space import Edit, Site, constant, find_for, find_memory, perfect
from weft.schedule.analysis.subscripts import Linear
from weft.schedule.data.memory import swap_memory

SIDE: Final = 16  # rows and columns of a matrix
LANES: Final = SIDE * SIDE
PRODUCTS: Final[dict[Operation, Operation]] = {
    Op.DOT2: Op.MATRIX2, Op.DOT4: Op.MATRIX4, Op.DOT4S: Op.MATRIX4S}  # fmt: skip


def matrix(kernel: Kernel, loop: str) -> Kernel:
    """Carry out a nest over a tile of 16 x 16 results as one operation on matrices.

    for i in 16: for j in 16: for q in 16: c[t, i, j] = dot2(c[t, i, j], a[u, i, q], b[v, q, j])
    ->  load a: u32x256 = a[u, 0]; load b: u32x256 = b[v, 0]; load c: f32x256 = c[t, 0]
        c[t, 0] = matrix2(c, a, b)

    for i in 16: for j in 16: w[t, i, j] = c[t, i, j]    ->  the copy of a whole matrix
    for i in 16: for j in 16: c[t, i, j] = constant      ->  the store of a whole matrix

    The memories must be allocated in the kernel, with 16 and 16 as their last dimensions; these
    become one dimension of 256. The rows of a factor may as well be parts of longer ones: then all
    dimensions of its memory become one.

    b[v + q, y, x + j]  ->  load b: u32x256 = b[places(...)]

    Raises
    ------
    ScheduleError
        If the nest is none of these.
    """
    what = f"matrix({loop})"
    site = find_for(kernel, loop, "matrix")
    nest = perfect(site.loop)
    if len(nest) not in (2, 3) or any(constant(f.extent) != SIDE for f in nest):
        raise ScheduleError(what, found=f"{len(nest)} loops of {[f.extent for f in nest]}",
                            expected=f"two or three nested loops of {SIDE}")
    memories, body = _Nest(nest, what, Linear(kernel)).whole()
    for memory in memories:
        if memory in kernel.params:
            raise ScheduleError(what, found=f"the parameter {memory.name}",
                                expected="memories allocated in the kernel")
    made = Edit(kernel).replace(site.parents, site.loop, body)
    for memory, has_longer_rows in memories.items():
        made = _merged(made, memory, has_longer_rows)
    return made


def refresh(kernel: Kernel, loop: str, kept: str, target: str) -> Kernel:
    """Store a matrix that a loop keeps in registers in each of its turns, too.

    for q: { c[t, 0] = matrix2(c[t, 0], ...) };  w[t, 0] = c[t, 0]
    ->  for q: { c[t, 0] = matrix2(c[t, 0], ...); w[0, 0] = c[0, 0] };  w[t, 0] = c[t, 0]

    What the loop stores is written over behind it. Processors put the path by which tile registers
    are stored to sleep, and a store that comes after some hundred nanoseconds without another
    takes a quarter of a microsecond. A store in each turn hides behind the products.

    Parameters
    ----------
    kept, target : str
        Memories of matrices, allocated in the kernel: the one that the loop keeps, and the one
        that all of it is copied to right behind the loop.

    Raises
    ------
    ScheduleError
        If the target is not written right behind the loop, or is used in it.
    """
    what = f"refresh({loop}, {kept}, {target})"
    site = find_for(kernel, loop, "refresh")
    source, memory = (find_memory(kernel, name, "refresh") for name in (kept, target))
    behind = _next_stores(kernel, site)
    alike = source.shape == memory.shape and source.dtype is memory.dtype
    if memory not in traverse.stores(behind) or not alike:
        raise ScheduleError(what, found=f"{target} of {memory.shape}",
                            expected=f"a copy of {kept}, written right behind {loop}")
    used = {m for s in traverse.walk(site.loop.body) for m in (*s.reads(), *s.writes())}
    if memory in used or source not in used:
        raise ScheduleError(what, found=f"{loop} with {[m.name for m in used]}",
                            expected=f"a loop that updates {kept} and leaves {target} alone")
    edit = Edit(kernel)
    place = (ex.index(0),) * len(source.shape)
    value = edit.names.var(f"{kept}.now", ex.broadcast(ex.const(0, source.dtype), LANES))
    body = (*site.loop.body, Load(value, source, place), Store(memory, place, value))
    return edit.replace(site.parents, site.loop, (site.loop.with_bodies(body),))


def _next_stores(kernel: Kernel, site: Site) -> Body:
    """Return the first statement that stores behind a loop, or else behind the loops around it."""
    inner: Stmt = site.loop
    for holder in (*reversed(site.parents), None):
        siblings = next((b for b in holder.bodies() if any(s is inner for s in b)), ()) if (
            holder is not None) else kernel.body
        at = next(p for p, s in enumerate(siblings) if s is inner)
        for stmt in siblings[at + 1 :]:
            if traverse.stores((stmt,)):
                return (stmt,)
        if not isinstance(holder, For):
            return ()
        inner = holder
    return ()


class _Nest:
    """A nest over the points of a matrix, and what it does to the matrix as a whole."""

    def __init__(self, nest: list[For], what: str, space: Linear) -> None:
        self.what, self.space = what, space
        self.vars = [f.var for f in nest]
        self.body = nest[-1].body
        self.memories: dict[Memory, bool] = {}  # whether matrices are parts of longer rows

    def whole(self) -> tuple[dict[Memory, bool], Body]:
        """Return the memories that hold the matrices, and the statements on whole ones."""
        store = self.body[-1]
        loads = self.body[:-1]
        if not isinstance(store, Store) or not all(isinstance(s, Load) for s in loads):
            raise self._error("statements beside loads and one store")
        i, j = self.vars[:2]
        out: list[st.Stmt] = []
        places = {}
        values: dict[Expr, Expr] = {}
        for load in loads:
            assert isinstance(load, Load)
            index, places[load.var] = self._place(load)
            values[load.var] = ex.var(str(load.var.attr), load.var.dtype, LANES)
            out.append(Load(values[load.var], load.memory, index))
        index, at = self._place(store)
        if at != (i, j):
            raise self._error("a store that is turned")
        value = store.value
        if value.op is Op.CONST:
            if loads or len(self.vars) != 2:
                raise self._error("a constant beside loads")
            made = ex.broadcast(value, LANES)
        elif value in values and len(self.vars) == 2 and len(loads) == 1:
            if places[value] != (i, j):
                raise self._error("a load that is turned")
            made = values[value]
        elif value.op in PRODUCTS and len(self.vars) == 3 and len(loads) == 3:
            q = self.vars[2]
            total, a, _ = value.args
            found = {places[x]: x for x in value.args if x in places}
            if set(found) != {(i, j), (i, q), (q, j)} or found[i, j] is not total:
                raise self._error("a product that is no product of matrices")
            if found[i, q] is not a and value.op is Op.DOT4:
                # unsigned bytes come first: the rows of the first operand are those of the result
                raise self._error("unsigned bytes on the right")
            made = ex.matrix(PRODUCTS[value.op], values[total], values[found[i, q]],
                             values[found[q, j]])
        else:
            raise self._error(f"the value {value!r}")
        out.append(Store(store.memory, index, made))
        return self.memories, tuple(out)

    def _place(self, stmt: Load | Store) -> tuple[tuple[Expr, ...], tuple[Expr, Expr]]:
        """Return the subscripts of the matrix that an access falls into, and the loops inside."""
        shape, index = stmt.memory.shape, stmt.index
        inner = set(self.vars)
        if stmt.mask is not None:
            raise self._error(f"a masked access of {stmt.memory.name}")
        if constant(shape[-1]) == LANES:  # the last two dimensions are one already
            for x, y in permutations(self.vars, 2):
                if index[-1] is x * SIDE + y and not ex.free_vars(index[:-1]) & inner:
                    return (*index[:-1], ex.index(0)), (x, y)
        x, y = index[-2:]
        if [constant(n) for n in shape[-2:]] != [SIDE, SIDE] or x not in inner or (
                y not in inner or x is y or ex.free_vars(index[:-2]) & inner):
            if isinstance(stmt, Load) and len(self.vars) == 3:
                return self._pitched(stmt)
            raise self._error(f"{stmt.memory.name} of {shape} at {index}")
        self.memories[stmt.memory] = False
        return (*index[:-2], ex.index(0)), (x, y)

    def _pitched(self, load: Load) -> tuple[tuple[Expr, ...], tuple[Expr, Expr]]:
        """Return where a factor lies whose rows are parts of longer ones, and the loops inside."""
        moves = dict.fromkeys(self.vars, 0)
        flat = _flat(load.memory, load.index)
        for monomial, factor in self.space.poly(flat, expand=True).items():
            moving = set().union(*[self.space.symbols(s) for s in monomial]) & moves.keys()
            if moving and (len(monomial) > 1 or monomial[0] not in moves):
                raise self._error(f"the subscripts {load.index!r} of {load.memory.name}")
            if moving:
                moves[monomial[0]] += factor
        rows = [v for v, move in moves.items() if move >= SIDE]
        columns = [v for v, move in moves.items() if move == 1]
        still = [v for v, move in moves.items() if not move]
        if [len(rows), len(columns), len(still)] != [1, 1, 1]:
            raise self._error(f"steps {list(moves.values())} of {load.memory.name}")
        self.memories[load.memory] = True
        first = ex.substitute(list(load.index), dict.fromkeys(self.vars, ex.index(0)))
        place = ex.places(_flat(load.memory, tuple(first)), moves[rows[0]])
        return (place,), (rows[0], columns[0])

    def _error(self, found: str) -> ScheduleError:
        return ScheduleError(self.what, found=found,
                             expected="a product, a copy or a constant of 16 x 16 points")


def _flat(memory: Memory, index: tuple[Expr, ...]) -> Expr:
    """Return the place of an element among all of a memory."""
    place = ex.index(0)
    for i, n in zip(index, memory.shape, strict=True):
        place = place * n + i
    return place


def _merged(kernel: Kernel, memory: Memory, has_longer_rows: bool) -> Kernel:
    """Make the last two dimensions of a memory one, or all of them where matrices are parts."""
    if constant(memory.shape[-1]) == LANES:
        return kernel
    if has_longer_rows:
        return swap_memory(kernel, memory, memory.replace(shape=(memory.size,)),
                           lambda index: index if len(index) < len(memory.shape)
                           else (_flat(memory, index),))
    new = memory.replace(shape=(*memory.shape[:-2], ex.index(LANES)))

    def remap(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if len(index) < len(memory.shape):
            return index  # of a whole matrix
        return (*index[:-2], index[-2] * SIDE + index[-1])

    return swap_memory(kernel, memory, new, remap)


__all__ = ["LANES", "SIDE", "matrix", "refresh"]
