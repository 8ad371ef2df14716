"""Attention: blocks of queries that walk the keys once, with an online softmax.

In the nest of `weft.kernelize.attention.attention_nest`, with queries for rows and keys for
columns, a block also keeps a maximum and a sum for each query::

    m[q] = -inf; l[q] = 0
    for each block of keys:
      s = f(s); m' = max(m, max s); scale = exp(m - m'); s = exp(s - m')
      l = l * scale + sum s;  acc = acc * scale + s x V
    O[q, d] = acc[d, q] / l[q]

Values differ from the graph's by rounding only: a row without any score is NaN (or 0) as there, NaN
and infinite scores spread alike, and keys that are skipped because they are hidden from a whole
block still let their NaN or infinite values through, as a weight of 0 times them does.

Ref: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao et al.,
FlashAttention, 2022.
"""

from __future__ import annotations

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import Axis, Load, Memory, Reduce, Store
from weft.kernelize.attention.attention_nest import Nest
from weft.kernelize.attention.attention_tiles import accumulate, total_of
from weft.kernelize.common.group import Group
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import upper_bound
from weft.kernelize.fusion.attention_parts import Attention, Part
from weft.target import Target


class Softmax(Nest):
    """The sections of an attention with its softmax."""

    def __init__(self, match: Attention, group: Group, sources: dict[Node, Memory],
                 stored: dict[Node, Memory], target: Target | None) -> None:
        super().__init__((match,), group, sources, stored, target)
        self.match = match

    def clear_sums(self) -> None:
        """Emit what maxima, sums and results begin with."""
        self.rows_of_softmax()
        super().clear_sums()
        self.clear("m", self.m, float("-inf"))
        self.clear("l", self.l)

    def rows_of_softmax(self) -> None:
        """Allocate what a block keeps of each row."""
        self.m, self.l, self.scale = (self.local(name) for name in ("m", "l", "scale"))
        self.lost = Memory("lost", self.dtype, (ex.index(self.match.channels),), "local")
        if self.reach is not None:
            self.em.alloc(self.lost)

    def values(self) -> None:
        """Emit the new maxima and sums, and the weights in place of the scores."""
        em, match = self.em, self.match
        lane, loops = self.lanes("4")
        row, live = self.stand("row4", self.rows), self.live(4)
        mapping = self.row_of(lane, row, 4)
        em.open()
        j, col = em.loop_var("j4", self.most), self.stand("col4", match.columns)
        mapping[col] = self.start + j
        self.read_tiles(row, col, j, lane)
        logit = ex.cast(em.value(match.p, self.at(match.at_p, row=row, col=col), live), self.dtype)
        em.staged.clear()
        if match.p is not self.products[0].node:
            em.emit(Store(self.tiles[0], self.score_at(j, lane), logit))
        inner = em.close()
        top = self.bound("top")
        em.emit(
            Reduce((Axis(j, self.count),), (accumulate(Op.MAX, top, logit, float("-inf")),), inner)
        )
        shift, scale = self.rescaled(lane, top)
        total = self.weigh(lane, shift)
        old = em.fresh("old", self.dtype)
        em.emit(Load(old, self.l, (lane,)))
        em.emit(Store(self.l, (lane,), old * scale + total))
        self.close(loops, mapping)

    def rescaled(self, lane: Expr, top: Expr) -> tuple[Expr, Expr]:
        """Emit the new maximum of a row; return what to subtract, and the factor of its sums."""
        em = self.em
        before = em.fresh("before", self.dtype)
        em.emit(Load(before, self.m, (lane,)))
        after = self.let("after", ex.maximum(before, top))
        infinite = after.eq(ex.const(float("-inf"), self.dtype))
        shift = self.let("shift", ex.where(infinite, ex.const(0.0, self.dtype), after))
        scale = self.let("rescale", ex.unary(Op.EXP, before - shift))
        em.emit(Store(self.m, (lane,), after))
        assert self.scale is not None
        em.emit(Store(self.scale, (lane,), scale))
        return shift, scale

    def weigh(self, lane: Expr, shift: Expr) -> Expr:
        """Emit the weights in place of the scores, and return their sum."""
        em, tile = self.em, self.tiles[0]
        self.holds = [tile]
        em.open()
        j = em.loop_var("j5", self.most)
        read = em.fresh("s", self.dtype)
        em.emit(Load(read, tile, (j, lane)))
        weight = self.let("weight", ex.unary(Op.EXP, read - shift))
        em.emit(Store(tile, (j, lane), weight))
        inner = em.close()
        total = self.bound("total")
        em.emit(Reduce((Axis(j, self.count),), (total_of(total, weight),), inner))
        return total

    def finish(self) -> None:
        """Emit the results, and the largest score and the sum of each row for the gradients."""
        if self.reach is not None:
            self.hidden_values()
        super().finish()
        kept = [(self.stored[node], memory) for node, memory in
                zip(self.match.softmax, (self.m, self.l), strict=True) if node in self.stored]
        if kept:
            self._rows(kept)

    def hidden_values(self) -> None:
        """Emit what a weight of 0 makes of the values behind the last visible key: 0 or NaN."""
        em, match = self.em, self.match
        d = self.section(d7=match.channels)["d7"]
        em.open()
        j, col = (em.loop_var(name, upper_bound(match.columns)) for name in ("j7", "col7"))
        value = em.value(match.b, self.at(match.at_b, col=col, d=d))
        inner = em.close()
        lost = self.bound("loss")
        zero = ex.const(0.0, self.dtype)
        em.emit(Reduce((Axis(j, self.columns - self.end),),
                       (total_of(lost, ex.cast(value, self.dtype) * zero),), inner))
        em.emit(Store(self.lost, (d,), lost))
        self.close([(d, match.channels)], {col: self.end + j})

    def result(self, number: int, d: Expr, lane: Expr) -> Expr:
        """Emit a sum over the sum of its weights."""
        return self.quotient(lane, d, self.result_at(d, lane))

    def quotient(self, lane: Expr, d: Expr, place: Index, there: Expr | None = None) -> Expr:
        """Emit the sum at a place over the sum of its weights, if the channel is `there`."""
        em = self.em
        total, whole = em.fresh("l", self.dtype), em.fresh("sum", self.dtype)
        em.emit(Load(total, self.l, (lane,)))
        em.emit(Load(whole, self.sums[0], place))
        if self.reach is not None:
            lost = em.fresh("lost", self.dtype)
            em.emit(Load(lost, self.lost, (d,), there))
            whole = whole + lost
        if self.match.guarded:
            empty = total.eq(ex.const(0.0, self.dtype))
            total = ex.where(empty, ex.const(1.0, self.dtype), total)
        return whole / total

    def part_of(self, member: Node) -> Part | None:
        """Return the attention that a member is made of; what is kept for gradients is not."""
        return None if member in self.match.softmax else self.match

    def _rows(self, kept: list[tuple[Memory, Memory]]) -> None:
        """Emit what is kept of each row."""
        em = self.em
        lane, loops = self.lanes("9")
        row, live = self.stand("row9", self.rows), self.live(9)
        for to, memory in kept:
            value = em.fresh("kept", self.dtype)
            em.emit(Load(value, memory, (lane,)))
            em.emit(Store(to, self.at(self.match.at_rows, row=row), value, live))
        self.close(loops, self.row_of(lane, row, 9))


__all__ = ["Softmax"]
