"""Sums over the scores of an attention as a loop nest: its results, or its gradients.

    for batch .. { for ib in blocks of rows {
      acc[d, q] = 0                                   per sum
      for further axes .. {
        x[e, q] = X                                   rows of the block, transposed, per product
        for cb in blocks of columns that the block can see {
          s[j, q] = sum over e of x[e, q] * Y[j, e]   per product
          s = P(s)                                    per sum
          acc[d, q] += sum over j of s[j, q] * B[j, d]
      } }
      G[q, d] = acc[d, q]                             per sum
    } }

What P is, and what else a block keeps, subclasses say: an online softmax
(`weft.kernelize.attention.attention_softmax`), or the values of gradients
(`weft.kernelize.attention.attention_gradient_nest`). The products here are of vectors of floats;
`weft.kernelize.attention.attention_matrix` has products of matrices of words.

Every loop over q is independent from row to row, so that rows are the lanes of vectors: no result
crosses lanes, no tail of columns, terms or channels needs a mask, and no two threads add to one
element. Names of loops say what they are to `weft.strategies.attention`: ``q*`` run over the rows
of a block, ``ku`` and ``du`` over the rows of a tile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.stmt import SERIAL, Axis, For, Load, Memory, Reduce, Store
from weft.kernelize.attention.attention_tiles import (
    COLUMNS,
    Sections,
    both,
    int_of,
    padded,
    rounded,
    tile_of,
    total_of,
    zero_outside,
)
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.group import Group
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import upper_bound
from weft.kernelize.fusion.attention_parts import Part, Product
from weft.target import Target


class Nest(Sections, ABC):
    """The sections of the nest, in order.

    Parameters
    ----------
    parts : sequence of Part
        The sums, which have the same rows and columns.
    group : Group
        What the kernel makes.
    sources, stored : dict of Node to Memory
        Arrays that it reads, and those that it writes.
    target : Target, optional
        For what the kernel is made.

    Attributes
    ----------
    scratch : tuple of Memory
        Arrays that the kernel needs besides.
    tiled, splits : bool
        What may not be tidied of the nest, and what must be: see `weft.kernelize.common.tidy.tidy`.
    """

    tiled, splits = False, True
    unit = 1  # columns that are looked at come in multiples, as far as there are any

    def __init__(self, parts: Sequence[Part], group: Group, sources: dict[Node, Memory],
                 stored: dict[Node, Memory], target: Target | None) -> None:
        self.parts, self.group, self.stored = parts, group, stored
        self.part = part = parts[0]
        super().__init__(Emitter(sources, hoist=True), part.out.dtype, part.rows, target)
        self.columns, self.reach = as_expr(part.columns), part.reach
        found: dict[Node, Product] = {}
        for each in parts:
            for product in each.products:
                found.setdefault(product.node, product)
        self.products = list(found.values())
        self.scale: Memory | None = None
        self.holds: list[Memory] = []  # the values of each sum
        self.scratch: tuple[Memory, ...] = ()

    def run(self) -> Emitter:
        """Return the emitter whose outermost scope is the kernel's body."""
        em, part = self.em, self.part
        em.open()
        loops = self.open_loops(part.batches)
        self.before_blocks()
        loops.append(self.open_blocks())
        self.buffers()
        self.clear_sums()
        em.open()
        others = self.open_loops(part.others)
        self.read_rows()
        self._blocks()
        self.wrap(others, em.close())
        self.finish()
        self.after_blocks(loops)
        self.wrap(loops, em.close())
        return em

    def before_blocks(self) -> None:
        """Emit what a batch begins with."""

    def after_blocks(self, loops: list[tuple[Expr, Expr]]) -> None:
        """Emit what a batch ends with, and close the loops that it follows."""

    def _range(self) -> tuple[Expr, Expr]:
        """Return the first column that the block of rows sees, and the end of the last one."""
        reach, first = self.reach, self.first
        if reach is None:
            return ex.index(0), self.columns
        if self.part.by_key:  # query i sees the keys up to i + reach
            return ex.minimum(ex.maximum(first - reach, 0), self.columns), self.columns
        seen = first + (self.block + reach + (self.unit - 1))
        whole = seen // self.unit * self.unit
        return ex.index(0), ex.maximum(ex.minimum(whole, self.columns), 0)

    def _blocks(self) -> None:
        """Emit what the block of rows does with each block of columns."""
        em, part = self.em, self.part
        begin, self.end = map(em.simplify, self._range())
        em.open()
        cb = em.loop_var("cb", -(-upper_bound(part.columns) // self.most))
        self.start = begin + cb * self.most
        self.count = em.simplify(ex.minimum(self.end - self.start, self.most))
        self.multiply()
        made = frozenset(p.node for p in self.products)
        self.staged = self.stage("", part.p, part.at_p, part.columns, self.start, made)
        self.values()
        self.accumulate()
        blocks = ex.maximum(self.end - begin + (self.most - 1), 0) // self.most
        em.emit(For(cb, em.simplify(blocks), SERIAL, em.close()))

    @abstractmethod
    def values(self) -> None:
        """Emit what each sum multiplies with, in place of the products, and note where it is."""

    def read_tiles(self, row: Expr, col: Expr, j: Expr, lane: Expr) -> None:
        """Let values be made of the products and staged arrays of a row and a column."""
        em = self.em
        for product, tile in zip(self.products, self.tiles, strict=False):
            place = self.at(product.at, row=row, col=col)
            em.staged[product.node, place] = tile, self.score_at(j, lane)
        for node, index, tile in self.staged:
            em.staged[node, self.at(index, row=row, col=col)] = tile, (j, lane)

    def finish(self) -> None:
        """Emit the results of a block, and members that follow them element by element."""
        for number, part in enumerate(self.parts):
            self.write(number, part)

    def write(self, number: int, part: Part) -> None:
        """Emit a result of a block, and members that follow it element by element."""
        name = f"8_{number}"
        lane, loops = self.lanes(name)
        row, d = self.stand(f"row{name}", self.rows), self.stand(f"d{name}", part.channels)
        value = self.result(number, d, lane)
        self.store(part, self.at(part.at_out, row=row, d=d), value, self.live(name))
        self.close([*loops, (d, part.channels)], self.row_of(lane, row, name))

    def result(self, number: int, d: Expr, lane: Expr) -> Expr:
        """Emit a result."""
        read = self.em.fresh("sum", self.dtype)
        self.em.emit(Load(read, self.sums[number], self.result_at(d, lane)))
        return read

    def store(self, part: Part, place: Index, value: Expr, live: Expr | None) -> None:
        """Emit a result, where it is stored, and members that follow it element by element."""
        em = self.em
        em.bound[part.out] = (place, value)
        for member in self.group.members:
            if member not in self.stored or self.part_of(member) is not part:
                continue
            index = place
            if member is not part.out:
                found = Group(-1, part.out, "attention", 0).place(member, place, ())
                assert found is not None  # fuse admitted the member
                index = tuple(map(em.simplify, found))
            em.emit(Store(self.stored[member], index, em.value(member, index, live), live))

    def part_of(self, member: Node) -> Part | None:
        """Return the sum that a member is made of."""
        return self.part

    # --- products of vectors of floats

    def buffers(self) -> None:
        """Allocate what holds rows, scores and sums of a block."""
        most = min(self.most, upper_bound(self.part.columns))
        height = rounded(most, tile_of(most, whole=False))
        self.x = [self.local(f"x{n}", padded(p.terms)) for n, p in enumerate(self.products)]
        self.tiles = [self.local(f"s{n}", height) for n in range(self.tile_count())]
        self.sums = [self.local(f"acc{n}", rounded(p.channels, tile_of(p.channels)))
                     for n, p in enumerate(self.parts)]

    def tile_count(self) -> int:
        """Return how many tiles of values there are at once."""
        return max(len(self.products), len(self.parts))

    def sum_rows(self, number: int) -> int:
        """Return how many channels a buffer of sums has."""
        return int_of(self.sums[number].shape[0].attr)

    def score_at(self, j: Expr, lane: Expr) -> Index:
        """Return where the score of a column of the block and of a lane is kept."""
        return (j, lane)

    def result_at(self, d: Expr, lane: Expr) -> Index:
        """Return where the sum of a channel and of a lane is kept."""
        return (d, lane)

    def clear_sums(self) -> None:
        """Emit sums of 0."""
        em = self.em
        for n, to in enumerate(self.sums):
            height = self.sum_rows(n)
            lane, loops = self.lanes(f"2_{n}")
            em.open()
            d = em.loop_var(f"d2_{n}", height)
            em.emit(Store(to, self.result_at(d, lane), ex.const(0.0, self.dtype)))
            em.emit(For(d, ex.index(height), SERIAL, em.close()))
            self.close(loops, {})

    def read_rows(self) -> None:
        """Emit ``x[e, q]``, the rows of the block at term e; rows behind the terms get zeros."""
        for n, (product, to) in enumerate(zip(self.products, self.x, strict=True)):
            em, height, terms = self.em, int_of(to.shape[0].attr), product.terms
            v = self.section(**{f"q1_{n}": self.block, f"e1_{n}": height, f"i1_{n}": self.rows})
            lane, term, stand = v.values()
            within = None if height == terms else term.lt(terms)
            value = em.value(product.rows, self.at(product.at_rows, row=stand, e=term),
                             both(self.live(f"1_{n}"), within))
            value = zero_outside(value, within)
            em.emit(Store(to, (term, lane), ex.cast(value, self.dtype)))
            self.close([(lane, self.block), (term, height)], self.row_of(lane, stand, f"1_{n}"))

    def multiply(self) -> None:
        """Emit ``s[j, q] = sum over e of x[e, q] * column j`` for each product."""
        columns = self.part.columns
        size = tile_of(upper_bound(columns), whole=False)
        tiles = -(-min(COLUMNS, upper_bound(columns)) // size)
        for n, product in enumerate(self.products):
            em = self.em
            v = self.section(**{f"kt_{n}": tiles, f"ku_{n}": size, f"q3_{n}": self.block,
                                f"k3_{n}": columns})
            tile, unit, lane, stand = v.values()
            score = self.bound(f"score_{n}")
            em.open()
            e = em.loop_var(f"e3_{n}", product.terms)
            value = em.value(product.columns, self.at(product.at_columns, col=stand, e=e))
            row = em.fresh("row", self.dtype)
            em.emit(Load(row, self.x[n], (e, lane)))
            total = total_of(score, row * ex.cast(value, self.dtype))
            em.emit(Reduce((Axis(e, ex.index(product.terms)),), (total,), em.close()))
            j = tile * size + unit
            em.emit(Store(self.tiles[n], (j, lane), score))
            here = ex.minimum(self.start + j, self.columns - 1)  # nothing is read past the end
            self.close([(tile, (self.count + (size - 1)) // size), (unit, size),
                        (lane, self.block)], {stand: here})

    def accumulate(self) -> None:
        """Emit ``acc[d, q] += sum over j of values[j, q] * B at column j and channel d``."""
        for n, part in enumerate(self.parts):
            em, channels = self.em, part.channels
            size = tile_of(channels)
            tiles = -(-channels // size)
            v = self.section(**{f"dt_{n}": tiles, f"du_{n}": size, f"q5_{n}": self.block,
                                f"d5_{n}": channels})
            tile, unit, lane, stand = v.values()
            em.open()
            j, col = em.loop_var(f"j6_{n}", COLUMNS), self.stand(f"col6_{n}", part.columns)
            value = em.value(part.b, self.at(part.at_b, col=col, d=stand))
            weight = em.fresh("w", self.dtype)
            em.emit(Load(weight, self.holds[n], (j, lane)))
            inner = em.close()
            result = self.bound(f"result_{n}")
            total = total_of(result, weight * ex.cast(value, self.dtype))
            em.emit(Reduce((Axis(j, self.count),), (total,), inner))
            d = tile * size + unit
            self.add(self.sums[n], (d, lane), lane, result)
            here = d if channels % size == 0 else ex.minimum(d, channels - 1)
            self.close([(tile, tiles), (unit, size), (lane, self.block)],
                       {stand: here, col: self.start + j})

    def add(self, to: Memory, place: Index, row: Expr, value: Expr) -> None:
        """Emit what a block of columns adds to a sum, which may have to be scaled before."""
        em = self.em
        old = em.fresh("old", self.dtype)
        em.emit(Load(old, to, place))
        before = old
        if self.scale is not None:
            factor = em.fresh("scale", self.dtype)
            em.emit(Load(factor, self.scale, (row,)))
            before = old * factor
        em.emit(Store(to, place, before + value))


__all__ = ["Nest"]
