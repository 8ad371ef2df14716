"""Attention as a loop nest: blocks of queries that walk the keys once, with an online softmax.

    for batch .. { for ib in blocks of queries {
      qt[e, q] = Q                                    queries of the block, transposed
      m[q] = -inf; l[q] = 0; acc[d, q] = 0
      for kb in blocks of keys that the block can see {
        s[j, q] = sum over e of qt[e, q] * K[j, e]
        s = f(s); m' = max(m, max s); scale = exp(m - m'); s = exp(s - m')
        l = l * scale + sum s;  acc[d, q] = acc[d, q] * scale + sum over j of s[j, q] * V[j, d]
      }
      O[q, d] = acc[d, q] / l[q]
    } }

Every loop over q is independent from query to query, so that queries are the lanes of vectors: no
result crosses lanes and no tail of keys, terms or channels needs a mask. Names of loops say what
they are to `weft.strategies.attention`: ``q*`` run over the queries of a block, ``ku`` and ``du``
over the rows of a tile.

Values differ from the graph's by rounding only: a row without any score is NaN (or 0) as there, NaN
and infinite scores spread alike, and keys that are skipped because they are hidden from a whole
block still let their NaN or infinite values through, as a weight of 0 times them does.

Ref: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao et al.,
FlashAttention, 2022.
"""

from __future__ import annotations

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, Axis, For, Load, Memory, Reduce, Store
from weft.kernelize.attention import Attention
from weft.kernelize.attention_tiles import (
    Sections,
    accumulate,
    int_of,
    padded,
    rounded,
    tile_of,
    total_of,
)
from weft.kernelize.cost import upper_bound
from weft.kernelize.emit import Emitter
from weft.kernelize.group import Group
from weft.kernelize.indexing import Index
from weft.target import Target


class Nest(Sections):
    """The sections of the nest, in order."""

    def __init__(self, match: Attention, group: Group, sources: dict[Node, Memory],
                 stored: dict[Node, Memory], target: Target | None) -> None:
        super().__init__(Emitter(sources, hoist=True), match.out.dtype,
                         match.out.shape[match.query], target)
        self.match, self.group, self.stored = match, group, stored
        self.channels = int_of(match.out.shape[match.channel])
        self.names = {"i": f"r{match.query}", "d": f"r{match.channel}"}
        self.keys = as_expr(match.keys)

    def run(self) -> Emitter:
        """Return the emitter whose outermost scope is the kernel's body."""
        em, match = self.em, self.match
        em.open()
        loops = self.open_batches([
            (ex.var(f"r{axis}"), dim) for axis, dim in enumerate(match.out.shape)
            if axis not in (match.query, match.channel) and upper_bound(dim) != 1])
        loops.append(self.open_blocks())
        self.end = em.simplify(self._last_key())
        self._buffers()
        self.m, self.l, self.scale = (self.local(name) for name in ("m", "l", "scale"))
        self.lost = Memory("lost", self.dtype, (ex.index(self.channels),), "local")
        if match.reach is not None:
            em.alloc(self.lost)
        self._start()
        self.clear("m", self.m, float("-inf"))
        self.clear("l", self.l)
        em.open()
        kb = em.loop_var("kb", -(-upper_bound(match.keys) // self.most))
        self.start = kb * self.most
        self.count = em.simplify(ex.minimum(self.end - self.start, self.most))
        self._scores()
        turned = ex.substitute(match.at_logits, {ex.var(self.names["i"]): ex.var("row"),
                                                 ex.var("k"): ex.var("col")})
        self.staged = self.stage("", match.logits, tuple(turned), match.keys, self.start,
                                 frozenset((match.scores,)))
        self._softmax()
        self._add_values()
        em.emit(For(kb, (self.end + (self.most - 1)) // self.most, SERIAL, em.close()))
        if match.reach is not None:
            self._hidden_values()
        self._finish()
        if any(row in self.stored for row in match.softmax):
            self._rows()
        self.wrap(loops, em.close())
        return em

    def _buffers(self) -> None:
        """Allocate what holds queries, scores and results of a block."""
        most = min(self.most, upper_bound(self.match.keys))
        self.qt = self.local("qt", padded(self.match.terms))
        self.s = self.local("s", rounded(most, tile_of(most, whole=False)))
        self.acc = self.local("acc", rounded(self.channels, tile_of(self.channels)))

    def _start(self) -> None:
        """Emit the queries of a block and results of 0."""
        self.transpose("", self.qt, self.match.q, self.match.at_q, "i", self.match.terms)
        self.clear("", self.acc)

    def _scores(self) -> None:
        """Emit the scores of a block of keys."""
        match = self.match
        self.products("", self.s, self.qt, match.k, match.at_k, "k", match.terms, match.keys,
                      self.start, self.count)

    def _score_at(self, j: Expr, lane: Expr) -> Index:
        """Return where the score of a key of the block and of a lane is kept."""
        return (j, lane)

    def _result_at(self, d: Expr, lane: Expr) -> Index:
        """Return where the sum of a channel and of a lane is kept."""
        return (d, lane)

    def _add_values(self) -> None:
        """Emit what the values of a block of keys add to the results."""
        match = self.match
        self.gather("", self.acc, self.s, match.v, match.at_v, "k", self.channels, match.keys,
                    self.start, self.count, self.scale)

    def _last_key(self) -> Expr:
        """Return one more than the last key that any query of the block sees."""
        if self.match.reach is None:
            return self.keys
        seen = self.first + (self.block + self.match.reach)
        return ex.maximum(ex.minimum(seen, self.keys), 0)

    def _softmax(self) -> None:
        """Emit the new maxima and sums, and the weights in place of the scores."""
        em, match = self.em, self.match
        lane, loops = self.lanes("4")
        row = self.stand("i", self.rows)
        live = self.live(4)
        mapping = self.row_of(lane, row, 4)
        em.open()
        j, k = em.loop_var("j4", self.most), em.loop_var("k", upper_bound(match.keys))
        mapping[k] = self.start + j
        place = self._score_at(j, lane)
        em.staged[match.scores] = (self.at(match.at_scores), self.s, place)
        for node, index, tile in self.staged:
            em.staged[node] = (self.at(index, row=row, col=k), tile, (j, lane))
        logit = em.value(match.logits, self.at(match.at_logits), live)
        logit = ex.cast(logit, self.dtype)
        em.staged.clear()
        if match.logits is not match.scores:
            em.emit(Store(self.s, place, logit))
        inner = em.close()
        top = self.bound("top")
        em.emit(Reduce((Axis(j, self.count),), (accumulate(Op.MAX, top, logit, float("-inf")),),
                       inner))
        before = em.fresh("before", self.dtype)
        em.emit(Load(before, self.m, (lane,)))
        after = self.let("after", ex.maximum(before, top))
        infinite = after.eq(ex.const(float("-inf"), self.dtype))
        shift = self.let("shift", ex.where(infinite, ex.const(0.0, self.dtype), after))
        scale = self.let("rescale", ex.unary(Op.EXP, before - shift))
        em.emit(Store(self.m, (lane,), after))
        em.emit(Store(self.scale, (lane,), scale))
        total = self._weigh(lane, shift)
        old = em.fresh("old", self.dtype)
        em.emit(Load(old, self.l, (lane,)))
        em.emit(Store(self.l, (lane,), old * scale + total))
        self.close(loops, mapping)

    def _weigh(self, lane: Expr, shift: Expr) -> Expr:
        """Emit the weights in place of the scores, and return their sum."""
        em = self.em
        em.open()
        j = em.loop_var("j5", self.most)
        read = em.fresh("s", self.dtype)
        em.emit(Load(read, self.s, (j, lane)))
        weight = self.let("weight", ex.unary(Op.EXP, read - shift))
        em.emit(Store(self.s, (j, lane), weight))
        inner = em.close()
        total = self.bound("total")
        em.emit(Reduce((Axis(j, self.count),), (total_of(total, weight),), inner))
        return total

    def _hidden_values(self) -> None:
        """Emit what a weight of 0 makes of the values behind the last visible key: 0 or NaN."""
        em, match = self.em, self.match
        v = self.section(d7=self.channels)
        em.open()
        j, k = (em.loop_var(name, upper_bound(match.keys)) for name in ("j7", "k7"))
        value = em.value(match.v, self.at(match.at_v, k=k, d=v["d7"]))
        inner = em.close()
        lost = self.bound("loss")
        zero = ex.const(0.0, self.dtype)
        em.emit(Reduce((Axis(j, self.keys - self.end),),
                       (total_of(lost, ex.cast(value, self.dtype) * zero),), inner))
        em.emit(Store(self.lost, (v["d7"],), lost))
        self.close([(v["d7"], self.channels)], {k: self.end + j})

    def _finish(self) -> None:
        """Emit the results, and members that follow them element by element."""
        em, match = self.em, self.match
        lane, loops = self.lanes("8")
        row, d = self.stand("i", self.rows), self.stand("d", self.channels)
        live = self.live(8)
        read, total = em.fresh("sum", self.dtype), em.fresh("l", self.dtype)
        em.emit(Load(total, self.l, (lane,)))
        em.emit(Load(read, self.acc, self._result_at(d, lane)))
        whole = read
        if match.reach is not None:
            lost = em.fresh("lost", self.dtype)
            em.emit(Load(lost, self.lost, (d,)))
            whole = read + lost
        rows = tuple(ex.index(0) if n == 1 else ex.var(f"r{a}")
                     for a, n in enumerate(match.out.shape))
        if match.guarded:
            empty = total.eq(ex.const(0.0, self.dtype))
            total = ex.where(empty, ex.const(1.0, self.dtype), total)
        em.bound[match.out] = (self._index(match.out, rows), whole / total)
        for member in self.group.members:
            if member in self.stored and member not in match.softmax:
                index = self._index(member, rows)
                em.emit(Store(self.stored[member], index, em.value(member, index, live), live))
        self.close([*loops, (d, self.channels)], self.row_of(lane, row, 8))

    def _rows(self) -> None:
        """Emit the largest score and the sum of each row, for the gradients."""
        em, match = self.em, self.match
        lane, loops = self.lanes("9")
        row = self.stand("i", self.rows)
        live = self.live(9)
        for node, memory in zip(match.softmax, (self.m, self.l), strict=True):
            if node in self.stored:
                value = em.fresh("kept", self.dtype)
                em.emit(Load(value, memory, (lane,)))
                place = tuple(map(em.simplify, match.at_rows))
                em.emit(Store(self.stored[node], place, value, live))
        self.close(loops, self.row_of(lane, row, 9))

    def _index(self, node: Node, rows: Index) -> Index:
        index = self.group.place(node, rows, ())
        assert index is not None  # fuse admitted the member
        return tuple(map(self.em.simplify, index))


__all__ = ["Nest"]
