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

Values that differ from the graph's by rounding only: a row without any finite score is NaN as
there, NaN and infinite scores spread alike, and keys that are skipped because they are hidden from
a whole block still let their NaN or infinite values through, as a weight of 0 times them does.

Ref: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao et al.,
FlashAttention, 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import (
    SERIAL,
    Accumulator,
    Axis,
    Body,
    For,
    Let,
    Load,
    Memory,
    Reduce,
    Stmt,
    Store,
    lhs,
    rhs,
)
from weft.kernelize.attention import QUERIES, Attention
from weft.kernelize.emit import Emitter
from weft.kernelize.group import Group
from weft.kernelize.indexing import Index

KEYS: Final = 64  # keys of one block: their scores stay in the first cache
ROWS: Final = 8  # keys or channels whose results a tile holds at once

Mapping = dict[Expr, Expr]


def lower_attention(match: Attention, group: Group, sources: dict[Node, Memory],
                    stored: dict[Node, Memory]) -> Emitter:
    """Return the nest of an attention and of what its kernel stores beside or instead of it."""
    return _Nest(match, group, sources, stored).run()


def _block(n: int) -> int:
    return min(QUERIES, 1 << (n - 1).bit_length())


def _tile(n: int) -> int:
    """Return the rows of a tile: little waste first, then many."""
    if n <= ROWS:
        return n
    return min(range(ROWS, ROWS // 2, -1), key=lambda r: -(-n // r) * r - n)


class _Nest:
    """The sections of the nest, in order."""

    def __init__(self, match: Attention, group: Group, sources: dict[Node, Memory],
                 stored: dict[Node, Memory]) -> None:
        self.match, self.group, self.stored = match, group, stored
        self.em = Emitter(sources, hoist=True)
        self.dtype = match.out.dtype
        self.queries, self.channels = (_int(match.out.shape[a])
                                       for a in (match.query, match.channel))
        self.names = {"i": f"r{match.query}", "d": f"r{match.channel}"}
        self.block = _block(self.queries)
        self.rows = _tile(self.channels)
        self.key_rows = min(ROWS, match.keys)
        width = ex.index(self.block)
        ceil = -(-self.channels // self.rows) * self.rows
        keys = -(-min(KEYS, match.keys) // self.key_rows) * self.key_rows
        self.qt = self._local("qt", match.terms, width)
        self.s = self._local("s", keys, width)
        self.acc = self._local("acc", ceil, width)
        self.m, self.l, self.scale = (
            Memory(name, self.dtype, (width,), "local") for name in ("m", "l", "scale"))
        self.lost = Memory("lost", self.dtype, (ex.index(self.channels),), "local")

    def _local(self, name: str, rows: int, width: Expr) -> Memory:
        return Memory(name, self.dtype, (ex.index(rows), width), "local")

    def run(self) -> Emitter:
        """Return the emitter whose outermost scope is the kernel's body."""
        em, match = self.em, self.match
        em.open()
        loops: list[tuple[Expr, int]] = []
        for axis, dim in enumerate(match.out.shape):
            if axis not in (match.query, match.channel) and dim != 1:
                v = em.loop_var(f"r{axis}", _int(dim))
                loops.append((v, _int(dim)))
        blocks = -(-self.queries // self.block)
        self.ib = em.loop_var("ib", blocks)
        loops.append((self.ib, blocks))
        self.first = self.ib * self.block
        self.end = self._last_key()
        for memory in (self.qt, self.s, self.acc, self.m, self.l, self.scale):
            em.alloc(memory)
        if match.reach is not None:
            em.alloc(self.lost)
        self._start()
        em.open()
        self.kb = em.loop_var("kb", -(-match.keys // KEYS))
        self.count = ex.minimum(self.end - self.kb * KEYS, KEYS)
        self._scores()
        self._softmax()
        self._values()
        self.em.emit(For(self.kb, (self.end + (KEYS - 1)) // KEYS, SERIAL, em.close()))
        if match.reach is not None:
            self._hidden_values()
        self._finish()
        body = em.close()
        for v, n in reversed(loops):
            body = (For(v, ex.index(n), SERIAL, body),)
        em.scope.body.extend(body)
        return em

    def _last_key(self) -> Expr:
        """Return one more than the last key that any query of the block sees."""
        keys = ex.index(self.match.keys)
        if self.match.reach is None:
            return keys
        seen = self.first + (self.block + self.match.reach)
        return ex.maximum(ex.minimum(seen, keys), 0)

    # A section emits values in terms of stand-ins for the query, the key and the channel, whose
    # ranges are known; what they stand for takes their place when the section is closed.

    def _section(self, **ranges: int) -> dict[str, Expr]:
        """Open a scope with loop variables and stand-ins of the given sizes."""
        self.em.open()
        return {name: self.em.loop_var(self.names.get(name, name), n)
                for name, n in ranges.items()}

    def _place(self, index: Index, **known: Expr) -> Index:
        mapping = {ex.var(self.names.get(name, name)): value for name, value in known.items()}
        return tuple(self.em.simplify(e) for e in ex.substitute(index, mapping))

    def _live(self, number: int) -> Expr | None:
        """Return a stand-in for whether the query of a lane exists."""
        if self.queries % self.block == 0:
            return None
        live = ex.var(f"live{number}", dt.bool_)
        self.em.bind(live)
        return live

    def _close(self, loops: Sequence[tuple[Expr, Expr | int]], mapping: Mapping) -> None:
        """Close a section: what stands in becomes what it stands for."""
        body = _replace(self.em, self.em.close(), mapping)
        for v, n in reversed(loops):
            body = (For(v, ex.index(n) if isinstance(n, int) else n, SERIAL, body),)
        self.em.scope.body.extend(body)

    def _query(self, v: dict[str, Expr], number: int) -> Mapping:
        at = self.first + v[f"q{number}"]
        i = v.get(f"i{number}", ex.var(self.names["i"]))
        return {i: at, ex.var(f"live{number}", dt.bool_): at.lt(self.queries)}

    # sections

    def _start(self) -> None:
        em, match = self.em, self.match
        v = self._section(q1=self.block, e1=match.terms, i1=self.queries)
        value = em.value(match.q, self._place(match.at_q, i=v["i1"], e=v["e1"]), self._live(1))
        em.emit(Store(self.qt, (v["e1"], v["q1"]), ex.cast(value, self.dtype)))
        self._close([(v["q1"], self.block), (v["e1"], match.terms)], self._query(v, 1))

        v = self._section(q2=self.block)
        em.emit(Store(self.m, (v["q2"],), ex.const(float("-inf"), self.dtype)))
        em.emit(Store(self.l, (v["q2"],), ex.const(0.0, self.dtype)))
        em.open()
        d = em.loop_var("d2", _int(self.acc.shape[0].attr))
        em.emit(Store(self.acc, (d, v["q2"]), ex.const(0.0, self.dtype)))
        em.emit(For(d, self.acc.shape[0], SERIAL, em.close()))
        self._close([(v["q2"], self.block)], {})

    def _scores(self) -> None:
        """Emit ``s[j, q] = sum over e of qt[e, q] * K[j, e]``, a tile of keys at a time."""
        em, match, rows = self.em, self.match, self.key_rows
        tiles = -(-min(KEYS, match.keys) // rows)
        v = self._section(kt=tiles, ku=rows, q3=self.block, k3=match.keys)
        em.open()
        e = em.loop_var("e3", match.terms)
        key = em.value(match.k, self._place(match.at_k, k=v["k3"], e=e))
        query = em.fresh("query", self.dtype)
        em.emit(Load(query, self.qt, (e, v["q3"])))
        score = ex.var("score", self.dtype)
        em.bind(score)
        inner = em.close()
        em.bind(score)
        em.emit(Reduce((Axis(e, ex.index(match.terms)),),
                       (_sum(score, query * ex.cast(key, self.dtype)),), inner))
        row = v["kt"] * rows + v["ku"]
        em.emit(Store(self.s, (row, v["q3"]), score))
        at = ex.minimum(self.kb * KEYS + row, match.keys - 1)  # rows past the end are not read
        count = (self.count + (rows - 1)) // rows
        self._close([(v["kt"], count), (v["ku"], rows), (v["q3"], self.block)], {v["k3"]: at})

    def _softmax(self) -> None:
        """Emit the new maxima and sums, and the weights in place of the scores."""
        em, match = self.em, self.match
        v = self._section(q4=self.block, i=self.queries)
        live = self._live(4)
        mapping = self._query(v, 4)
        em.open()
        j, k = em.loop_var("j4", KEYS), em.loop_var("k", match.keys)
        mapping[k] = self.kb * KEYS + j
        em.staged[match.scores] = (self._place(match.at_scores), self.s, (j, v["q4"]))
        logit = em.value(match.logits, self._place(match.at_logits), live)
        logit = ex.cast(logit, self.dtype)
        em.staged.clear()
        if match.logits is not match.scores:
            em.emit(Store(self.s, (j, v["q4"]), logit))
        inner = em.close()
        top = self._bound("top")
        em.emit(Reduce((Axis(j, self.count),), (_accumulate(Op.MAX, top, logit, float("-inf")),),
                       inner))
        before = em.fresh("before", self.dtype)
        em.emit(Load(before, self.m, (v["q4"],)))
        after = self._let("after", ex.maximum(before, top))
        infinite = after.eq(ex.const(float("-inf"), self.dtype))
        shift = self._let("shift", ex.where(infinite, ex.const(0.0, self.dtype), after))
        scale = self._let("rescale", ex.unary(Op.EXP, before - shift))
        em.emit(Store(self.m, (v["q4"],), after))
        em.emit(Store(self.scale, (v["q4"],), scale))
        em.open()
        j = em.loop_var("j5", KEYS)
        read = em.fresh("s", self.dtype)
        em.emit(Load(read, self.s, (j, v["q4"])))
        weight = self._let("weight", ex.unary(Op.EXP, read - shift))
        em.emit(Store(self.s, (j, v["q4"]), weight))
        inner = em.close()
        total = self._bound("total")
        em.emit(Reduce((Axis(j, self.count),), (_sum(total, weight),), inner))
        old = em.fresh("old", self.dtype)
        em.emit(Load(old, self.l, (v["q4"],)))
        em.emit(Store(self.l, (v["q4"],), old * scale + total))
        self._close([(v["q4"], self.block)], mapping)

    def _values(self) -> None:
        """Emit ``acc[d, q] = acc[d, q] * scale + sum over j of s[j, q] * V[j, d]``."""
        em, match, rows = self.em, self.match, self.rows
        tiles = -(-self.channels // rows)
        v = self._section(dt=tiles, du=rows, q5=self.block, d5=self.channels)
        em.open()
        j, k = em.loop_var("j6", KEYS), em.loop_var("k6", match.keys)
        value = em.value(match.v, self._place(match.at_v, k=k, d=v["d5"]))
        weight = em.fresh("w", self.dtype)
        em.emit(Load(weight, self.s, (j, v["q5"])))
        inner = em.close()
        result = self._bound("result")
        em.emit(Reduce((Axis(j, self.count),),
                       (_sum(result, weight * ex.cast(value, self.dtype)),), inner))
        row = v["dt"] * rows + v["du"]
        old, scale = em.fresh("old", self.dtype), em.fresh("scale", self.dtype)
        em.emit(Load(old, self.acc, (row, v["q5"])))
        em.emit(Load(scale, self.scale, (v["q5"],)))
        em.emit(Store(self.acc, (row, v["q5"]), old * scale + result))
        at = row if self.channels % rows == 0 else ex.minimum(row, self.channels - 1)
        self._close([(v["dt"], tiles), (v["du"], rows), (v["q5"], self.block)],
                    {v["d5"]: at, k: self.kb * KEYS + j})

    def _hidden_values(self) -> None:
        """Emit what a weight of 0 makes of the values behind the last visible key: 0 or NaN."""
        em, match = self.em, self.match
        v = self._section(d7=self.channels)
        em.open()
        j, k = em.loop_var("j7", match.keys), em.loop_var("k7", match.keys)
        value = em.value(match.v, self._place(match.at_v, k=k, d=v["d7"]))
        inner = em.close()
        lost = self._bound("loss")
        zero = ex.const(0.0, self.dtype)
        em.emit(Reduce((Axis(j, ex.index(match.keys) - self.end),),
                       (_sum(lost, ex.cast(value, self.dtype) * zero),), inner))
        em.emit(Store(self.lost, (v["d7"],), lost))
        self._close([(v["d7"], self.channels)], {k: self.end + j})

    def _finish(self) -> None:
        """Emit the results, and members that follow them element by element."""
        em, match = self.em, self.match
        v = self._section(q8=self.block, i=self.queries, d=self.channels)
        d, live = v["d"], self._live(8)
        read, total = em.fresh("sum", self.dtype), em.fresh("l", self.dtype)
        em.emit(Load(total, self.l, (v["q8"],)))
        em.emit(Load(read, self.acc, (d, v["q8"])))
        whole = read
        if match.reach is not None:
            lost = em.fresh("lost", self.dtype)
            em.emit(Load(lost, self.lost, (d,)))
            whole = read + lost
        rows = tuple(ex.index(0) if n == 1 else ex.var(f"r{a}")
                     for a, n in enumerate(match.out.shape))
        em.bound[match.out] = (self._index(match.out, rows), whole / total)
        for member in self.group.members:
            if member in self.stored:
                index = self._index(member, rows)
                em.emit(Store(self.stored[member], index, em.value(member, index, live), live))
        self._close([(v["q8"], self.block), (d, self.channels)], self._query(v, 8))

    def _index(self, node: Node, rows: Index) -> Index:
        index = self.group.place(node, rows, ())
        assert index is not None  # fuse admitted the member
        return tuple(map(self.em.simplify, index))

    def _bound(self, name: str) -> Expr:
        made = ex.var(name, self.dtype)
        self.em.bind(made)
        return made

    def _let(self, name: str, value: Expr) -> Expr:
        made = self._bound(name)
        self.em.emit(Let(made, value))
        return made


def _int(size: object) -> int:
    assert isinstance(size, int)
    return size


def _sum(acc: Expr, term: Expr) -> Accumulator:
    return _accumulate(Op.ADD, acc, term, 0.0)


def _accumulate(op: object, acc: Expr, value: Expr, start: float) -> Accumulator:
    assert op in (Op.ADD, Op.MAX)
    return Accumulator(acc, ex.const(start, acc.dtype), ex.binary(op, acc, value),
                       ex.binary(op, lhs(acc), rhs(acc)))


def _replace(em: Emitter, body: Body, mapping: Mapping) -> Body:
    """Return a body with other expressions in place of names; source places are kept."""
    if not mapping:
        return body

    def change(e: Expr) -> Expr:
        return ex.substitute([e], mapping)[0]

    def visit(stmt: Stmt) -> Stmt:
        made = stmt.map_exprs(change)
        inside = made.bodies()
        if inside:
            made = made.with_bodies(*[tuple(visit(s) for s in b) for b in inside])
        if stmt in em.locations:
            em.locations[made] = em.locations[stmt]
        return made

    return tuple(visit(s) for s in body)


__all__ = ["lower_attention"]
