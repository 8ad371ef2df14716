"""Sections of a nest of attention: loops over a block of rows with everything in tiles.

A section emits values in terms of stand-ins for the row, the column and the channel, whose ranges
are known; what they stand for takes their place when the section is closed. Stand-ins of sections
at different depths have different names, because a name says to which loop a load may move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import (
    SERIAL,
    Accumulator,
    Body,
    For,
    Let,
    Memory,
    Store,
    lhs,
    rhs,
)
from weft.kernelize.common import indexing
from weft.kernelize.common.cost import is_leaf
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import upper_bound
from weft.kernelize.fusion.attention_index import SEARCH
from weft.schedule.analysis.space import Copy
from weft.target import Target

COLUMNS: Final = 64  # columns of one block: their scores stay in the first cache
ROWS: Final = 8  # columns or channels whose results a tile holds at once
LANES: Final = 32  # rows of one block at most: the lanes of its vectors
WASTE: Final = 16  # lanes that wait are fewer than one in so many, or blocks are smaller
SINGLE: Final = 5  # the same where a smaller block is a single vector that units take whole

PADDING: Final = 16  # columns and terms that are turned in registers come in multiples
MOST_STAGED: Final = 4  # masks and biases of which tiles are kept

Mapping = dict[Expr, Expr]


class Sections:
    """Loops over a block of rows, and buffers as wide as it.

    Parameters
    ----------
    em : Emitter
        Builds the kernel.
    dtype : DType
        Type of scores and sums.
    rows : Dim
        How many rows there are; a block of them is in the lanes of vectors.
    target : Target, optional
        For what the kernel is made.

    Attributes
    ----------
    most : int
        Columns of one block.
    """

    most = COLUMNS

    def __init__(self, em: Emitter, dtype: DType, rows: nd.Dim, target: Target | None) -> None:
        self.em, self.dtype, self.rows = em, dtype, rows
        self.first = ex.index(0)
        self.blocks_of(_block(upper_bound(rows), _waste(dtype, target)))

    def blocks_of(self, rows: int) -> None:
        """Take blocks of some rows."""
        self.block = rows
        self.blocks = (as_expr(self.rows) + (rows - 1)) // rows

    def open_loops(self, batches: Sequence[tuple[Expr, nd.Dim]]) -> list[tuple[Expr, Expr]]:
        """Return loops over batches or further axes, whose variables the current scope knows."""
        return [(self.em.loop_var(str(v.attr), upper_bound(n)), as_expr(n)) for v, n in batches]

    def open_blocks(self) -> tuple[Expr, Expr]:
        """Return the loop over blocks of rows, whose variable the current scope knows."""
        block = self.em.loop_var("ib", -(-upper_bound(self.rows) // self.block))
        self.first = block * self.block
        return block, self.em.simplify(self.blocks)

    def local(self, name: str, *sizes: int) -> Memory:
        """Return a buffer of some rows, as wide as the block."""
        shape = (*(ex.index(n) for n in sizes), ex.index(self.block))
        made = Memory(name, self.dtype, shape, "local")
        self.em.alloc(made)
        return made

    def section(self, **ranges: nd.Dim) -> dict[str, Expr]:
        """Open a scope with loop variables and stand-ins of the given sizes."""
        self.em.open()
        return {name: self.em.loop_var(name, upper_bound(n)) for name, n in ranges.items()}

    def stand(self, name: str, size: nd.Dim) -> Expr:
        """Return one more variable of the section that is open."""
        return self.em.loop_var(name, upper_bound(size))

    def lanes(self, name: str) -> tuple[Expr, list[tuple[Expr, Expr | int]]]:
        """Open a section over the rows of a block; return the row in it and the loops over it."""
        lane = self.section(**{f"q{name}": self.block})[f"q{name}"]
        return lane, [(lane, self.block)]

    def at(self, index: Index, **known: Expr) -> Index:
        """Return an index with stand-ins in place of the names that a match uses."""
        mapping = {ex.var(name): value for name, value in known.items()}
        return tuple(self.em.simplify(e) for e in ex.substitute(index, mapping))

    def live(self, number: object) -> Expr | None:
        """Return a stand-in for whether the row of a lane exists."""
        if isinstance(self.rows, int) and self.rows % self.block == 0:
            return None
        live = ex.var(f"live{number}", dt.bool_)
        self.em.bind(live)
        return live

    def row_of(self, lane: Expr, row: Expr, number: object) -> Mapping:
        """Return what a row and its stand-in for being there stand for."""
        at = self.first + lane
        return {row: at, ex.var(f"live{number}", dt.bool_): at.lt(as_expr(self.rows))}

    def close(self, loops: Sequence[tuple[Expr, Expr | int]], mapping: Mapping) -> None:
        """Close a section: what stands in becomes what it stands for."""
        body = self.em.close()
        self.wrap(loops, Copy(self.em.locations, mapping).body(body) if mapping else body)

    def wrap(self, loops: Sequence[tuple[Expr, Expr | int]], body: Body) -> None:
        """Emit a body in loops, the outermost first."""
        for v, n in reversed(loops):
            body = (For(v, ex.index(n) if isinstance(n, int) else n, SERIAL, body),)
        self.em.scope.body.extend(body)

    def stage(self, name: str, root: Node, at: Index, columns: nd.Dim, start: Expr,
              made: frozenset[Node]) -> list[tuple[Node, Index, Memory]]:  # fmt: skip
        """Emit copies of arrays that `root` reads along the columns: masks and biases.

        Lanes are rows, and a vector of such an array would be gathered. Its tile is read along the
        columns instead and turned in registers. Returned are the array, its index in terms of
        ``row`` and ``col``, and ``tile[j, q]``. Nodes of `made` are not looked into.
        """
        em, out = self.em, []
        row, col = ex.var("row"), ex.var("col")
        height = rounded(min(self.most, upper_bound(columns)), PADDING)
        for number, (node, place) in enumerate(self._strided(root, at, row, col, made)):
            tag = f"{name}_m{number}"
            tile = Memory(f"t{tag}", node.dtype, (ex.index(height), ex.index(self.block)), "local")
            em.alloc(tile)
            v = self.section(**{f"q1{tag}": self.block, f"e1{tag}": height,
                                f"i1{tag}": self.rows, f"k1{tag}": columns})
            lane, unit, stand, across = v.values()
            inside = ex.var(f"inside{tag}", dt.bool_)
            em.bind(inside)
            value = em.value(node, self.at(place, row=stand, col=across),
                             both(self.live(tag), inside))
            em.emit(Store(tile, (unit, lane), value))
            here = start + unit
            self.close([(lane, self.block), (unit, height)],
                       {**self.row_of(lane, stand, tag), across: here,
                        inside: here.lt(as_expr(columns))})
            out.append((node, place, tile))
        return out

    def _strided(self, root: Node, at: Index, row: Expr, col: Expr,
                 made: frozenset[Node]) -> list[tuple[Node, Index]]:  # fmt: skip
        """Return the arrays read along `col` while `row` is far apart."""
        found: dict[tuple[Node, Index], None] = {}
        stack = [(root, at)]
        seen: set[tuple[Node, Index]] = set()
        while stack and len(seen) < SEARCH:
            node, index = stack.pop()
            if (node, index) in seen or node in made:
                continue
            seen.add((node, index))
            if is_leaf(node) or node in self.em.sources:
                near = index and col in ex.free_vars(index[-1:]) and (
                    row not in ex.free_vars(index[-1:]) and row in ex.free_vars(index[:-1]))
                if near and len(found) < MOST_STAGED:
                    found[node, index] = None
            elif node.op.group == "movement":
                moved = indexing.source(node, index).place
                stack.append((node.args[0], tuple(map(self.em.simplify, moved))))
            elif node.op.is_elementwise or node.op in (Op.CAST, Op.DETACH):
                stack.extend((a, index) for a in node.args)
        nodes = [n for n, _ in found]
        return [f for f in found if nodes.count(f[0]) == 1]  # one staged place for each

    def clear(self, name: str, to: Memory, value: float = 0.0) -> None:
        """Emit one value for each row of a block."""
        lane, loops = self.lanes(f"2{name}")
        self.em.emit(Store(to, (lane,), ex.const(value, self.dtype)))
        self.close(loops, {})

    def bound(self, name: str) -> Expr:
        """Return a name known from the current scope on."""
        made = ex.var(name, self.dtype)
        self.em.bind(made)
        return made

    def let(self, name: str, value: Expr) -> Expr:
        """Emit a named value."""
        made = self.bound(name)
        self.em.emit(Let(made, value))
        return made


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """Return the conjunction of two masks, either of which may be absent."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


def zero_outside(value: Expr, mask: Expr | None) -> Expr:
    """Return a value that was loaded under a mask, 0 where it does not hold, as the load is."""
    loaded = value.args[0] if value.op is Op.CAST else value
    if mask is None or loaded.op is Op.VAR:
        return value
    return ex.where(mask, value, ex.const(0, value.dtype))


def _waste(dtype: DType, target: Target | None) -> int:
    """Return how many rows one lane that waits is worth.

    A single vector of sums for each row of a tile needs a load for each product. Where units take
    vectors whole, two of them are a quarter faster.
    """
    single = target is not None and target.whole_vectors and (
        LANES // 2 * dtype.itemsize == target.vector_bytes)
    return SINGLE if single else WASTE


def _block(rows: int, waste: int) -> int:
    """Return how many rows a block has: many, unless half of them waste far fewer lanes."""
    most = min(LANES, 1 << max(rows - 1, 0).bit_length())
    half = most // 2
    saved = rounded(rows, most) - rounded(rows, half) if half else 0
    return half if most == LANES and saved * waste > rows else most


def tile_of(n: int, whole: bool = True) -> int:
    """Return the rows of a tile: little waste first, then many.

    Columns (not `whole`) come in blocks whose last one may be cut anyway.
    """
    if n <= ROWS or not whole:
        return min(n, ROWS)
    return min(range(ROWS, ROWS // 2, -1), key=lambda r: -(-n // r) * r - n)


def padded(n: int) -> int:
    """Return how many terms of rows are read: whole vectors, unless there are few."""
    return rounded(n, PADDING) if n > PADDING // 2 else n


def rounded(n: int, tile: int) -> int:
    """Return the next multiple of a tile."""
    return -(-n // tile) * tile


def int_of(size: object) -> int:
    """Return a size that is known to be a number."""
    assert isinstance(size, int)
    return size


def total_of(acc: Expr, term: Expr) -> Accumulator:
    """Return the accumulator of a sum."""
    return accumulate(Op.ADD, acc, term, 0.0)


def accumulate(op: object, acc: Expr, value: Expr, start: float) -> Accumulator:
    """Return the accumulator of a sum or a maximum."""
    assert op in (Op.ADD, Op.MAX)
    return Accumulator(acc, ex.const(start, acc.dtype), ex.binary(op, acc, value),
                       ex.binary(op, lhs(acc), rhs(acc)))


__all__ = ["COLUMNS", "LANES", "PADDING", "ROWS", "Mapping", "Sections", "accumulate", "both",
           "int_of", "padded", "rounded", "tile_of", "total_of", "zero_outside"]
