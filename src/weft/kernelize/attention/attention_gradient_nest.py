"""Gradients of attention: tiles of scores are made again, from what the forward kernel kept.

In the nest of `weft.kernelize.attention.attention_nest`, P is made element by element of the
products: the scores and the gradient of the weights. Rows are queries for the gradient of queries,
and keys for those of keys and values, which share their tiles in one kernel. Columns that are
hidden from a whole block are left out: what they would add is 0, or no number where a value of
theirs is none.

With many heads the gradient of queries is made beside those of keys and values: each tile adds to
its rows of an array, ``total[j, d] += sum over q of s[j, q] * B[q, d]``, one block after the other,
so that the order of its sums is fixed as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, Axis, For, Let, Load, Memory, Reduce, Store
from weft.kernelize.attention.attention_nest import Nest
from weft.kernelize.attention.attention_tiles import COLUMNS, rounded, tile_of, total_of
from weft.kernelize.common.group import Group
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import upper_bound
from weft.kernelize.fusion.attention_parts import Part
from weft.target import Target

_WIDTH: Final = 16  # channels of a gradient across are padded to a multiple


class Gradients(Nest):
    """The sections of the gradients of one attention that have the same rows."""

    def __init__(self, parts: Sequence[Part], group: Group, sources: dict[Node, Memory],
                 stored: dict[Node, Memory], target: Target | None) -> None:
        by_key = [p for p in parts if p.by_key]
        self.across = next((p for p in parts if by_key and not p.by_key), None)
        super().__init__(by_key or parts, group, sources, stored, target)
        if any(p.reach is None for p in parts):
            self.reach = None

    def tile_count(self) -> int:
        """Return how many tiles of values there are at once."""
        return max(len(self.products), len(self.parts) + (self.across is not None))

    def values(self) -> None:
        """Emit what each gradient multiplies with, in place of the products."""
        em, part = self.em, self.part
        v = self.section(q4=self.block, row4=self.rows)
        lane, row, live = v["q4"], v["row4"], self.live(4)
        mapping = self.row_of(lane, row, 4)
        em.open()
        j, col = em.loop_var("j4", COLUMNS), self.stand("col4", part.columns)
        mapping[col] = self.start + j
        self.read_tiles(row, col, j, lane)
        place = self.at(part.at_weights, row=row, col=col)
        em.bound[part.weights] = (place, self._weight(place, live))
        values = [em.value(p.p, self.at(p.at_p, row=row, col=col), live) for p in self.parts]
        if self.across is not None:  # its rows are columns here
            turned = self.at(self.across.at_p, row=col, col=row)
            values.append(em.value(self.across.p, turned, live))
        em.staged.clear()
        del em.bound[part.weights]
        held: dict[Expr, Memory] = {}
        for value in values:
            if value not in held:
                held[value] = self.tiles[len(held)]
                em.emit(Store(held[value], (j, lane), ex.cast(value, self.dtype)))
        self.holds = [held[value] for value in values]
        inner = em.close()
        em.emit(For(j, self.count, SERIAL, inner))
        self.close([(lane, self.block)], mapping)

    def _weight(self, place: Index, live: Expr | None) -> Expr:
        """Emit the weights: by one reciprocal a row instead of a quotient a score."""
        em, weights = self.em, self.part.weights
        if weights.op is not Op.DIV:
            value = em.value(weights, place, live)
        else:
            exp, total = (em.value(a, place, live) for a in weights.args)
            inverse = em.fresh("inverse", self.dtype, em.level(total))
            em.place(Let(inverse, ex.unary(Op.RECIPROCAL, total)), total)
            value = exp * inverse
        return self.let("weight", value)

    # Gradients across: a row of theirs is a column of the tiles, so every block of rows adds to it.

    def before_blocks(self) -> None:
        """Emit zeros for the sums of all columns, in an array that is padded to whole tiles."""
        part, em = self.across, self.em
        if part is None:
            return
        self.width = rounded(part.channels, min(_WIDTH, 1 << (part.channels - 1).bit_length()))
        height = self.columns + COLUMNS
        sizes = (*(as_expr(n) for _, n in part.batches), em.simplify(height), ex.index(self.width))
        self.total = Memory("total", self.dtype, sizes)
        self.scratch = (self.total,)
        self.packed = Memory("packed", self.dtype,
                             (ex.index(self.block), ex.index(self.width)), "local")
        v = self.section(c0=upper_bound(part.rows) + COLUMNS, q2_c=self.width)
        em.emit(Store(self.total, (*self._batch(), v["c0"], v["q2_c"]),
                      ex.const(0.0, self.dtype)))
        self.close([(v["c0"], self.total.shape[-2]), (v["q2_c"], self.width)], {})
        em.open()

    def clear_sums(self) -> None:
        """Emit sums of 0, and the rows of what is multiplied across."""
        super().clear_sums()
        if self.across is not None:
            self._pack(self.across)

    def accumulate(self) -> None:
        """Emit what a block of columns adds to the sums."""
        super().accumulate()
        if self.across is not None:
            self._add_across()

    def after_blocks(self, loops: list[tuple[Expr, Expr]]) -> None:
        """Emit the gradient across, and members that follow it element by element."""
        part = self.across
        if part is None:
            return
        self.wrap([loops.pop()], self.em.close())
        v = self.section(c9=part.rows, d9=part.channels)
        column, d = v.values()
        read = self.em.fresh("sum", self.dtype)
        self.em.emit(Load(read, self.total, (*self._batch(), column, d)))
        self.store(part, self.at(part.at_out, row=column, d=d), read, None)
        self.close([(column, as_expr(part.rows)), (d, part.channels)], {})

    def _batch(self) -> Index:
        return tuple(v for v, _ in self.part.batches)

    def _pack(self, part: Part) -> None:
        """Emit ``packed[q, d]``: the factor of the gradient across, at the rows of the block."""
        em = self.em
        em.alloc(self.packed)
        v = self.section(p1=self.block, row1=self.rows, q2_p=self.width)
        lane, row, d = v.values()
        live, place = self.live("p1"), self.at(part.at_b, col=row, d=d)
        if self.width != part.channels:
            inside = d.lt(part.channels)
            live = inside if live is None else live & inside
        value = em.value(part.b, place, live)
        em.emit(Store(self.packed, (lane, d), ex.cast(value, self.dtype)))
        self.close([(lane, self.block), (d, self.width)], self.row_of(lane, row, "p1"))

    def _add_across(self) -> None:
        """Emit ``total[j, d] += sum over q of s[j, q] * packed[q, d]``, in tiles of columns."""
        em = self.em
        size = tile_of(upper_bound(self.part.columns), whole=False)
        tiles = -(-min(COLUMNS, upper_bound(self.part.columns)) // size)
        v = self.section(ct=tiles, cu=size, q6=self.width)
        tile, unit, d = v.values()
        em.open()
        lane = em.loop_var("q7", self.block)
        value, factor = em.fresh("w", self.dtype), em.fresh("row", self.dtype)
        j = tile * size + unit
        em.emit(Load(value, self.holds[-1], (j, lane)))
        em.emit(Load(factor, self.packed, (lane, d)))
        inner = em.close()
        across = self.bound("across")
        here = ex.minimum(as_expr(self.rows) - self.first, self.block)
        em.emit(Reduce((Axis(lane, here),), (total_of(across, value * factor),), inner))
        last = em.simplify(self.total.shape[-2] - COLUMNS)
        first = ex.minimum(self.start, last)  # which it is: a batch keeps to its part of the array
        place = (*self._batch(), first + j, d)
        old = em.fresh("old", self.dtype)
        em.emit(Load(old, self.total, place))
        em.emit(Store(self.total, place, old + across))
        self.close([(tile, (self.count + (size - 1)) // size), (unit, size), (d, self.width)], {})

    def part_of(self, member: Node) -> Part | None:
        """Return the gradient that a member is made of."""
        made = {p.out: p for p in (*self.parts, *([self.across] if self.across else []))}
        stack, seen = [member], {member}
        while stack:
            node = stack.pop()
            if node in made:
                return made[node]
            for arg in node.args:
                if arg not in seen and (arg in made or arg not in self.em.sources):
                    seen.add(arg)
                    stack.append(arg)
        return self.part


__all__ = ["Gradients"]
