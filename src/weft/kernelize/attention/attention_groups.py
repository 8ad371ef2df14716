"""Attention for devices of threads: a group for a block of queries, with an online softmax.

The nest of `weft.kernelize.attention.attention_softmax` with a tile of each product for every
thread. Of the N x N threads of a group, thread (a, b) has the queries ``u*N + a``, the keys
``k*N + b`` of a block and the channels ``c*N + b``; all threads share the keys of all queries out
between them for the softmax::

    x[e, q] = Q                                         rows of the block, transposed
    for cb in blocks of keys {
      for a, b: for k, u: s[j, q] = f(sum over e of x[e, q] * K[j, e])
      for p, q: part[p, q] = max over the keys of share p of s[j, q]
      for q:    m' = max(m, max over p of part);  scale = exp(m - m')
      for p, q: s = exp(s - m');  share[p, q] = share[p, q] * scale + sum over its keys of s
      for a, b: for c, u: acc[a, b, c, u] = acc * scale + sum over j of s[j, q] * V[j, d]
    }
    l[q] = sum over p of share[p, q]
    for a, b: for c, u: O[q, d] = acc[a, b, c, u] / l[q]

All loops have constant ends. A key past the last one has a score of -inf and values of 0. Names of
loops say what they are to `weft.strategies.threads.attention`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import Accumulator, Axis, Load, Memory, Reduce, Store
from weft.kernelize.attention.attention_softmax import Softmax
from weft.kernelize.attention.attention_tiles import (
    accumulate,
    both,
    padded,
    total_of,
    zero_outside,
)
from weft.kernelize.common.group import Group
from weft.kernelize.common.sizes import elements, upper_bound
from weft.kernelize.fusion.attention_parts import Attention, Part
from weft.target import (
    BANKS,
    BYTE_COST,
    COPY_STEPS,
    FLAG_BYTES,
    GROUP_SIDES,
    THREAD_TILES,
    Target,
)

__all__ = ["GroupSoftmax", "block_of"]

_REGISTERS: Final = 128  # words of the tiles of a thread
_WEIGHT_COST: Final = 16  # the same of a weight
_BARRIER_COST: Final = 1024  # the same of a barrier of a group


class Block(NamedTuple):
    """Threads along the queries and along the keys; what a thread has of queries and of keys."""

    side: int
    tall: int
    span: int

    @property
    def rows(self) -> int:
        return self.side * self.tall

    @property
    def keys(self) -> int:
        return self.side * self.span

    @property
    def shares(self) -> int:
        """How many threads share the keys of a query between them."""
        return self.side // self.tall


def block_of(match: Attention, target: Target) -> Block | None:
    """Return the block that takes the least time, None if no memory of groups holds one."""
    keys, rows = upper_bound(match.columns), upper_bound(match.rows)
    heads = max(elements(match.out.shape) // (match.channels * max(rows, 1)), 1)
    for side in (n for n in GROUP_SIDES if n * n <= target.max_items):
        best: tuple[int, Block] | None = None
        for block in (Block(side, tall, span) for tall in THREAD_TILES for span in THREAD_TILES):
            step = _step(block, match, target)
            if step is None:
                continue
            groups = -(-heads * -(-rows // block.rows) // max(target.cores, 1))
            time = groups * -(-keys // block.keys) * _time(block, match, step)
            if best is None or time < best[0]:
                best = time, block
        if best is not None:
            return best[1]
    return None


def _step(block: Block, match: Attention, target: Target) -> int | None:
    """Return how many terms of a block fit into the memory that is left; None if none do."""
    scores, size = match.products[0], match.out.dtype.itemsize
    skew = BANKS // block.side
    deep = -(-match.channels // block.side)
    if block.tall * (deep + max(deep, block.span)) * size > 4 * _REGISTERS:
        return None
    kept = (padded(scores.terms) * (block.rows + 1) + block.keys * (block.rows + skew)
            + 5 * block.rows + 2 * block.shares * (block.rows + skew))
    if match.reach is not None:
        kept += 2 * match.channels + block.side**2
    room = target.shared_bytes - FLAG_BYTES - kept * size
    for step in COPY_STEPS:
        pitch = block.keys + max(BANKS // step, 1)
        if step * (pitch + deep * block.side) * size <= room:
            return step
    return None


def _time(block: Block, match: Attention, step: int) -> int:
    """Return what a group does with a block of keys, in multiply-adds."""
    terms, keys, size = match.products[0].terms, block.keys, match.out.dtype.itemsize
    deep = -(-match.channels // block.side)
    products = block.tall * (block.span * terms + deep * keys)
    reads = (block.tall + block.span) * terms + (block.tall + deep) * keys
    weights = block.rows * keys * _WEIGHT_COST
    copies = keys * (terms + match.channels) * size * BYTE_COST
    barriers = 2 * (-(-terms // step) + -(-keys // step)) + 3
    return block.side**2 * (products + reads) + weights + copies + barriers * _BARRIER_COST


class GroupSoftmax(Softmax):
    """The sections of the nest, in order."""

    tiled, splits = True, False

    def __init__(self, match: Attention, group: Group, sources: dict[Node, Memory],
                 stored: dict[Node, Memory], target: Target) -> None:
        super().__init__(match, group, sources, stored, target)
        block = block_of(match, target)
        assert block is not None  # fuse asked
        self.blocks_of(block.rows)
        self.side, self.tall, self.span = block.side, block.tall, block.span
        self.shares = block.shares
        self.most = self.unit = block.keys
        self.deep = -(-match.channels // self.side)
        keys = match.columns
        self.is_ragged = not isinstance(keys, int) or keys % block.keys != 0

    def buffers(self) -> None:
        """Allocate what holds rows, scores and sums of a block."""
        self.x = [self.local("x0", padded(self.products[0].terms))]
        self.tiles = [self.local("s0", self.most)]
        shape = map(ex.index, (self.side, self.side, self.deep, self.tall))
        self.sums = [Memory("acc0", self.dtype, tuple(shape), "local")]
        self.em.alloc(self.sums[0])
        self.share, self.part_top = (self.local(n, self.shares) for n in ("share", "part"))
        self.shift = self.local("shift")

    def clear_sums(self) -> None:
        """Emit what maxima, sums and results begin with."""
        self.rows_of_softmax()
        _, _, loops = self._tile("2", "c", self.deep)
        self.em.emit(Store(self.sums[0], tuple(v for v, _ in loops), ex.const(0.0, self.dtype)))
        self.close(loops, {})
        self.clear("m", self.m, float("-inf"))
        p, lane, loops = self._share("l")
        self.em.emit(Store(self.share, (p, lane), ex.const(0.0, self.dtype)))
        self.close(loops, {})

    def _tile(self, name: str, inner: str,
              count: int) -> tuple[Expr, Expr, list[tuple[Expr, Expr | int]]]:  # fmt: skip
        """Open a section over tiles of threads; return the query, the other place and the loops."""
        v = self.section(**{f"a{name}": self.side, f"b{name}": self.side, f"{inner}{name}": count,
                            f"u{name}": self.tall})
        a, b, c, u = v.values()
        loops: list[tuple[Expr, Expr | int]] = [
            (a, self.side), (b, self.side), (c, count), (u, self.tall)]
        return u * self.side + a, c * self.side + b, loops

    def _share(self, name: str) -> tuple[Expr, Expr, list[tuple[Expr, Expr | int]]]:
        """Open a section over the shares of keys of all queries."""
        p, lane = self.section(**{f"p{name}": self.shares, f"q{name}": self.block}).values()
        return p, lane, [(p, self.shares), (lane, self.block)]

    def _inside(self, name: str) -> Expr | None:
        """Return a stand-in for whether a key exists."""
        if not self.is_ragged:
            return None
        inside = ex.var(f"inside{name}", dt.bool_)
        self.em.bind(inside)
        return inside

    def _column(self, col: Expr, j: Expr, inside: Expr | None) -> dict[Expr, Expr]:
        """Return what a key and its stand-in for being there stand for."""
        here = self.start + j
        return {col: here} if inside is None else {col: here, inside: here.lt(self.columns)}

    def multiply(self) -> None:
        """Emit the logits of a block of keys."""
        em, match, product = self.em, self.match, self.products[0]
        lane, j, loops = self._tile("3", "k", self.span)
        row, col = self.stand("row3", self.rows), self.stand("col3", match.columns)
        live, inside = self.live(3), self._inside("3")
        score = self.bound("score")
        em.open()
        terms = padded(product.terms)
        e = em.loop_var("e3", terms)
        there = None if terms == product.terms else e.lt(product.terms)
        value = em.value(product.columns, self.at(product.at_columns, col=col, e=e),
                         both(inside, there))
        value = zero_outside(value, there)
        factor = em.fresh("row", self.dtype)
        em.emit(Load(factor, self.x[0], (e, lane)))
        total = total_of(score, factor * ex.cast(value, self.dtype))
        em.emit(Reduce((Axis(e, ex.index(terms)),), (total,), em.close()))
        em.bound[product.node] = self.at(product.at, row=row, col=col), score
        place = self.at(match.at_p, row=row, col=col)
        logit = ex.cast(em.value(match.p, place, both(live, inside)), self.dtype)
        del em.bound[product.node]
        if inside is not None:
            logit = ex.where(inside, logit, ex.const(float("-inf"), self.dtype))
        em.emit(Store(self.tiles[0], (j, lane), logit))
        self.close(loops, {**self.row_of(lane, row, 3), **self._column(col, j, inside)})

    def values(self) -> None:
        """Emit the new maxima and sums, and the weights in place of the scores."""
        self._largest()
        self._new_maxima()
        self._weights()
        self.holds = list(self.tiles)

    def stage(self, *_: object) -> list[tuple[Node, tuple[Expr, ...], Memory]]:
        """Leave masks and biases where they are: neighbouring threads have neighbouring keys."""
        return []

    def _largest(self) -> None:
        em = self.em
        p, lane, loops = self._share("a")
        em.open()
        j, read = em.loop_var("ja", self.most // self.shares), em.fresh("s", self.dtype)
        em.emit(Load(read, self.tiles[0], (j * self.shares + p, lane)))
        inner, top = em.close(), self.bound("top")
        em.emit(Reduce((Axis(j, ex.index(self.most // self.shares)),),
                       (accumulate(Op.MAX, top, read, float("-inf")),), inner))
        em.emit(Store(self.part_top, (p, lane), top))
        self.close(loops, {})

    def _combine(self, name: str, parts: Memory, lane: Expr, read: Expr,
                 combined: Accumulator) -> None:  # fmt: skip
        """Emit what the parts of a query, one of each share of its keys, make together."""
        em = self.em
        em.open()
        p = em.loop_var(name, self.shares)
        em.emit(Load(read, parts, (p, lane)))
        em.emit(Reduce((Axis(p, ex.index(self.shares)),), (combined,), em.close()))

    def _new_maxima(self) -> None:
        em = self.em
        lane, loops = self.lanes("b")
        read, top = em.fresh("part", self.dtype), self.bound("highest")
        self._combine("pb", self.part_top, lane, read,
                      accumulate(Op.MAX, top, read, float("-inf")))
        shift, _ = self.rescaled(lane, top)
        em.emit(Store(self.shift, (lane,), shift))
        self.close(loops, {})

    def _weights(self) -> None:
        em = self.em
        p, lane, loops = self._share("c")
        assert self.scale is not None
        shift, scale, old = (em.fresh(n, self.dtype) for n in ("shift", "scale", "old"))
        em.emit(Load(shift, self.shift, (lane,)))
        em.open()
        j, read = em.loop_var("jc", self.most // self.shares), em.fresh("s", self.dtype)
        at = (j * self.shares + p, lane)
        em.emit(Load(read, self.tiles[0], at))
        weight = self.let("weight", ex.unary(Op.EXP, read - shift))
        em.emit(Store(self.tiles[0], at, weight))
        inner, total = em.close(), self.bound("total")
        em.emit(Reduce((Axis(j, ex.index(self.most // self.shares)),),
                       (total_of(total, weight),), inner))
        em.emit(Load(scale, self.scale, (lane,)))
        em.emit(Load(old, self.share, (p, lane)))
        em.emit(Store(self.share, (p, lane), old * scale + total))
        self.close(loops, {})

    def accumulate(self) -> None:
        """Emit what the values of a block of keys add to the results."""
        em, match = self.em, self.match
        lane, d, loops = self._tile("5", "c", self.deep)
        stand, there, known = self._channel("5", d)
        em.open()
        j, col = em.loop_var("j5", self.most), self.stand("col5", match.columns)
        inside = self._inside("5")
        value = em.value(match.b, self.at(match.at_b, col=col, d=stand), both(inside, there))
        value = zero_outside(value, inside)
        weight = em.fresh("w", self.dtype)
        em.emit(Load(weight, self.tiles[0], (j, lane)))
        inner, result = em.close(), self.bound("result")
        total = total_of(result, weight * ex.cast(value, self.dtype))
        em.emit(Reduce((Axis(j, ex.index(self.most)),), (total,), inner))
        self.add(self.sums[0], tuple(v for v, _ in loops), lane, result)
        self.close(loops, {**known, **self._column(col, j, inside)})

    def _channel(self, name: str, d: Expr) -> tuple[Expr, Expr | None, dict[Expr, Expr]]:
        """Return stand-ins for a channel and for its being there, and what they stand for."""
        channels = self.match.channels
        stand = self.stand(f"d{name}", channels)
        if channels % self.side == 0:
            return stand, None, {stand: d}
        there = ex.var(f"there{name}", dt.bool_)
        self.em.bind(there)
        return stand, there, {stand: d, there: d.lt(channels)}

    def finish(self) -> None:
        """Emit the results, and the largest score and the sum of each row for the gradients."""
        em = self.em
        lane, loops = self.lanes("d")
        read, total = em.fresh("part", self.dtype), self.bound("all")
        self._combine("pd", self.share, lane, read, total_of(total, read))
        em.emit(Store(self.l, (lane,), total))
        self.close(loops, {})
        super().finish()

    def hidden_values(self) -> None:
        """Emit what a weight of 0 makes of the values behind the last visible key: 0 or NaN."""
        em, match, zero = self.em, self.match, ex.const(0.0, self.dtype)
        shares = max(self.side * self.side // match.channels, 1)
        lost = Memory("losses", self.dtype, (ex.index(shares), *self.lost.shape), "local")
        em.alloc(lost)
        p, d = self.section(p7=shares, d7=match.channels).values()
        em.open()
        j, col = (em.loop_var(name, upper_bound(match.columns)) for name in ("j7", "col7"))
        inside = ex.var("inside7", dt.bool_)
        em.bind(inside)
        value = em.value(match.b, self.at(match.at_b, col=col, d=d), inside)
        value = zero_outside(value, inside)
        inner, loss = em.close(), self.bound("loss")
        rounds = (self.columns - self.end + (shares - 1)) // shares
        em.emit(Reduce((Axis(j, em.simplify(rounds)),),
                       (total_of(loss, ex.cast(value, self.dtype) * zero),), inner))
        em.emit(Store(lost, (p, d), loss))
        here = self.end + (j * shares + p)
        self.close([(p, shares), (d, match.channels)],
                   {col: here, inside: here.lt(self.columns)})
        d = self.section(d9=match.channels)["d9"]
        em.open()
        p, read = em.loop_var("p9", shares), em.fresh("loss", self.dtype)
        em.emit(Load(read, lost, (p, d)))
        inner, loss = em.close(), self.bound("all_lost")
        em.emit(Reduce((Axis(p, ex.index(shares)),), (total_of(loss, read),), inner))
        em.emit(Store(self.lost, (d,), loss))
        self.close([(d, match.channels)], {})

    def write(self, number: int, part: Part) -> None:
        """Emit a result of a block, and members that follow it element by element."""
        lane, d, loops = self._tile("8", "c", self.deep)
        row, live = self.stand("row8", self.rows), self.live(8)
        stand, there, known = self._channel("8", d)
        sums = tuple(v for v, _ in loops)
        value = self.quotient(lane, stand, sums, there)
        self.store(part, self.at(part.at_out, row=row, d=stand), value, both(live, there))
        self.close(loops, {**self.row_of(lane, row, 8), **known})
