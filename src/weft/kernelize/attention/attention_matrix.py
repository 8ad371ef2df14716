"""Attention of bfloat16 as products of 16 x 16 matrices of packed words (AMX tiles).

The nest of `weft.kernelize.attention.attention_softmax` with all factors in square tiles of words,
two elements each. A score is the sum of exact products, in float32. A weight is a float32 and is
multiplied in parts of bfloat16, each the leading 8 bits of what is left: ``w = h + m`` to 2^-16 of
w where all results leave as bfloat16, and ``w = h + m + l`` exactly where not.

    qw[e, t] = Q                                      words of the queries of a block
    for kb in blocks of keys {
      kw[j, e] = K;  vw[d, j] = V                     words of the keys and values of a block
      s[t, j] = kw[j, e] x qw[e, t]                   tiles of products
      s = f(s); m', l as in the other nest
      pw[p, t, j] = part p of exp(s - m')
      acc[d, t] = acc[d, t] * scale + vw[d, j] x pw[p, t, j]
    }

Parts are cut off and not rounded, so that none is negative, and those behind the first are at least
2^-126: an infinite value times a weight stays infinite, and 0 times it is no number. The products
take subnormal elements and weights for 0.

Names of loops say what they are to `weft.strategies.attention_matrix`: ``t*`` run over the tiles of
queries and ``q*`` over the queries of one, ``w*`` over what is packed.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import (
    SERIAL,
    Accumulator,
    Axis,
    For,
    Let,
    Load,
    Memory,
    Reduce,
    Store,
    lhs,
    rhs,
)
from weft.kernelize.attention.attention_softmax import Softmax
from weft.kernelize.attention.attention_tiles import int_of, rounded, total_of
from weft.kernelize.common.cost import is_leaf
from weft.kernelize.common.group import Group
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import elements, upper_bound
from weft.kernelize.fusion.attention_parts import Attention
from weft.target import Target

SIDE: Final = 16  # rows and columns of a matrix
PAIR: Final = 2 * SIDE  # elements along the sum of one
KEYS: Final = 128  # keys of a block
MOST: Final = 8  # tiles of queries in a block
BUSY: Final = 4  # blocks that keep threads busy
COPY: Final = 8  # queries whose softmax takes as long as the copies of keys and values
LEAST: Final = 8  # terms and channels, below which tiles are mostly zeros
_HIGH: Final = 0xFFFF0000
_SMALLEST: Final = 0x00800000  # the bits of 2^-126


def suits(match: Attention, sources: dict[Node, Memory], target: Target | None) -> bool:
    """Whether the factors are made of bfloat16, and the target multiplies matrices of these."""
    if target is None or not target.supports(Op.MATRIX2, dt.uint32):
        return False
    scores = match.products[0]
    return (match.out.dtype is dt.float32 and min(scores.terms, match.channels) >= LEAST
            and upper_bound(match.columns) >= SIDE
            and all(_is_narrow(n, sources) for n in (scores.rows, scores.columns, match.b)))


def _is_narrow(node: Node, sources: dict[Node, Memory]) -> bool:
    """Whether a value is a bfloat16 that is read as a float32."""
    while node.op.group == "movement" and node.op not in (Op.PAD, Op.UNWINDOW):
        if node in sources or is_leaf(node):
            return False
        node = node.args[0]
    return node not in sources and node.op is Op.CAST and node.args[0].dtype is dt.bfloat16


class MatrixSoftmax(Softmax):
    """The sections of the nest, in order."""

    tiled = True
    most = KEYS
    unit = PAIR

    def __init__(self, match: Attention, group: Group, sources: dict[Node, Memory],
                 stored: dict[Node, Memory], target: Target | None) -> None:
        super().__init__(match, group, sources, stored, target)
        self.scores = match.products[0]
        heads = elements(match.out.shape) // (match.channels * upper_bound(self.rows))
        self.blocks_of(_tiles(upper_bound(self.rows), max(heads, 1)) * SIDE)
        self.tile_rows = self.block // SIDE
        self.depth = -(-self.scores.terms // PAIR)
        results = [n.dtype for n in stored if n not in match.softmax]
        self.pieces = 2 if all(d is dt.bfloat16 for d in results) else 3

    def lanes(self, name: str) -> tuple[Expr, list[tuple[Expr, Expr | int]]]:
        """Open a section over the rows of a block; return the row in it and the loops over it."""
        v = self.section(**{f"t{name}": self.tile_rows, f"q{name}": SIDE})
        tile, lane = v.values()
        return tile * SIDE + lane, [(tile, self.tile_rows), (lane, SIDE)]

    def _matrices(self, name: str, dtype: DType, *counts: int) -> Memory:
        """Return a buffer of matrices."""
        shape = (*map(ex.index, counts), ex.index(SIDE), ex.index(SIDE))
        made = Memory(name, dtype, shape, "local")
        self.em.alloc(made)
        return made

    def buffers(self) -> None:
        """Allocate the words of all factors, and the tiles of scores and results."""
        keys = rounded(min(self.most, upper_bound(self.match.columns)), PAIR)
        self.wide = -(-self.match.channels // PAIR) * 2  # pairs of tiles: see `_tiles`
        word = dt.uint32
        self.qw = self._matrices("qw", word, self.depth, self.tile_rows)
        self.kw = self._matrices("kw", word, keys // SIDE, self.depth)
        self.vw = self._matrices("vw", word, self.wide, keys // PAIR)
        self.pw = self._matrices("pw", word, self.pieces, self.tile_rows, keys // PAIR)
        self.tiles = [self._matrices("s", self.dtype, self.tile_rows, keys // SIDE)]
        self.sums = [self._matrices("acc", self.dtype, self.wide, self.tile_rows)]

    def sum_rows(self, number: int) -> int:
        """Return how many channels a buffer of sums has."""
        return self.wide * SIDE

    def score_at(self, j: Expr, lane: Expr) -> Index:
        """Return where the score of a column of the block and of a lane is kept."""
        return self._place(lane // SIDE, j // SIDE, j % SIDE, lane % SIDE)

    def result_at(self, d: Expr, lane: Expr) -> Index:
        """Return where the sum of a channel and of a lane is kept."""
        return self._place(d // SIDE, lane // SIDE, d % SIDE, lane % SIDE)

    def _place(self, *index: Expr) -> Index:
        return tuple(map(self.em.simplify, index))

    @property
    def _is_ragged(self) -> bool:
        """Whether the last block of keys may end within a tile."""
        keys = self.match.columns
        return not isinstance(keys, int) or keys % PAIR != 0

    @property
    def _steps(self) -> Expr:
        """How many words of keys, of a row of a matrix, the block has: at least one."""
        return self.em.simplify(ex.maximum((self.count + (PAIR - 1)) // PAIR, 1))

    def read_rows(self) -> None:
        """Emit the words of the queries."""
        scores = self.scores
        for name, first, count in _runs(scores.terms, PAIR):
            v = self.section(**{f"tw{name}": self.tile_rows, f"wo{name}": count, f"wq{name}": SIDE,
                                f"we{name}": SIDE, f"iw{name}": self.rows})
            tile, step, lane, e, stand = v.values()
            at = step + first
            word = self._along(scores.rows, scores.at_rows, at * SIDE + e, row=stand)
            self.em.emit(Store(self.qw, (at, tile, e, lane), word))
            row = ex.minimum(self.first + (tile * SIDE + lane), as_expr(self.rows) - 1)
            self.close([(step, count), (tile, self.tile_rows), (lane, SIDE), (e, SIDE)],
                       {stand: row})

    def _along(self, node: Node, at: Index, word: Expr, **known: Expr) -> Expr:
        """Emit the word of two elements side by side along the sum."""
        halves, terms = [], self.scores.terms
        for number in range(2):
            e = self.em.simplify(word * 2 + number)
            mask = None if terms % PAIR == 0 else self._mask(e.lt(terms))
            halves.append(self._bits(node, self.at(at, e=e, **known), mask))
        return self._word("word", *halves)

    def _mask(self, condition: Expr) -> Expr | None:
        """Return a condition, None if it always holds."""
        condition = self.em.simplify(condition)
        return None if condition.op is Op.CONST and condition.attr else condition

    def _bits(self, node: Node, at: Index, mask: Expr | None) -> Expr:
        value = self.em.value(node, at, mask)
        assert value.op is Op.CAST
        return ex.cast(ex.bitcast(value.args[0], dt.uint16), dt.uint32)

    def _word(self, name: str, low: Expr, high: Expr) -> Expr:
        made = self.em.fresh(name, dt.uint32)
        self.em.emit(Let(made, low | high << 16))
        return made

    def multiply(self) -> None:
        """Emit the words of a block of keys and values, and the scores."""
        self._keys()
        self._values()
        em = self.em
        pairs = int_of(self.tiles[0].shape[1].attr) // 2
        v = self.section(t3=self.tile_rows, k3=pairs, u3=2, a3=SIDE, q3=SIDE)
        tile, pair, unit, row, lane = v.values()
        em.open()
        step, e = em.loop_var("o3", self.depth), em.loop_var("e3", SIDE)
        left, right = em.fresh("key", dt.uint32), em.fresh("query", dt.uint32)
        at = pair * 2 + unit
        em.emit(Load(left, self.kw, (at, step, row, e)))
        em.emit(Load(right, self.qw, (step, tile, e, lane)))
        inner = em.close()
        score = self.bound("score")
        axes = (Axis(step, ex.index(self.depth)), Axis(e, ex.index(SIDE)))
        em.emit(Reduce(axes, (_products(score, left, right),), inner))
        em.emit(Store(self.tiles[0], (tile, at, row, lane), score))
        self.close([(tile, self.tile_rows), (pair, self._steps), (unit, 2), (row, SIDE),
                    (lane, SIDE)], {})

    def _keys(self) -> None:
        """Emit the words of a block of keys; rows past the last one are like it."""
        scores = self.scores
        most = int_of(self.kw.shape[0].attr)
        for name, first, count in _runs(scores.terms, PAIR):
            v = self.section(**{f"wj{name}": most, f"wr{name}": SIDE, f"wp{name}": count,
                                f"wk{name}": SIDE, f"kw{name}": self.match.columns})
            tile, row, step, e, stand = v.values()
            at = step + first
            word = self._along(scores.columns, scores.at_columns, at * SIDE + e, col=stand)
            self.em.emit(Store(self.kw, (tile, at, row, e), word))
            here = self.start + (tile * SIDE + row)
            if self._is_ragged:
                here = ex.minimum(here, self.columns - 1)
            tiles = self._steps * 2
            self.close([(tile, tiles), (row, SIDE), (step, count), (e, SIDE)], {stand: here})

    def _values(self) -> None:
        """Emit the words of a block of values; those past the last key are 0."""
        em, match = self.em, self.match
        most = int_of(self.vw.shape[1].attr)
        full = match.channels // SIDE
        runs = [("", 0, full), ("_tail", full, self.wide - full)]
        for name, first, count in (run for run in runs if run[2]):
            v = self.section(**{f"wd{name}": count, f"wt{name}": most, f"ww{name}": SIDE,
                                f"wc{name}": SIDE, f"ku{name}": match.columns,
                                f"kv{name}": match.columns, f"dw{name}": match.channels})
            tile, step, word, channel, *stands, d = v.values()
            at = tile + first
            inside = (at * SIDE + channel).lt(match.channels) if name else None
            places = [step * PAIR + word * 2 + number for number in range(2)]
            known = {d: at * SIDE + channel}
            halves = []
            for number, (stand, place) in enumerate(zip(stands, places, strict=True)):
                mask = inside
                if self._is_ragged:
                    there = ex.var(f"there{number}{name}", dt.bool_)
                    em.bind(there)
                    mask = there if inside is None else there & inside
                    known[there] = place.lt(self.count)
                known[stand] = self.start + place
                halves.append(self._bits(match.b, self.at(match.at_b, col=stand, d=d), mask))
            made = self._word("pair", *halves)
            em.emit(Store(self.vw, (at, step, channel, word), made))
            steps = self._steps
            self.close([(step, steps), (tile, count), (word, SIDE), (channel, SIDE)], known)

    def weigh(self, lane: Expr, shift: Expr) -> Expr:
        """Emit the parts of the weights in words, and return the sum of the weights."""
        em = self.em
        whole = self._steps * PAIR
        if self._is_ragged:  # scores past the last key weigh nothing
            em.open()
            last = whole - PAIR + em.loop_var("j6", PAIR)
            em.emit(Store(self.tiles[0], self.score_at(last, lane),
                          ex.const(float("-inf"), self.dtype), self.count.le(last)))
            em.emit(For(ex.var("j6"), ex.index(PAIR), SERIAL, em.close()))
        em.open()
        pair = em.loop_var("j5", self.most // 2)
        rests = []
        for number in range(2):
            read = em.fresh("s", self.dtype)
            em.emit(Load(read, self.tiles[0], self.score_at(pair * 2 + number, lane)))
            rests.append(self.let(f"weight{number}", ex.unary(Op.EXP, read - shift)))
        weights = rests
        for part in range(self.pieces):
            bits = [ex.bitcast(rest, dt.uint32) for rest in rests]
            ends = bits if part == 0 else [ex.maximum(b, _SMALLEST) for b in bits]
            word = em.fresh("parts", dt.uint32)
            em.emit(Let(word, ends[0] >> 16 | ends[1] & _HIGH))
            at = self._place(lane // SIDE, pair // SIDE, pair % SIDE, lane % SIDE)
            em.emit(Store(self.pw, (ex.index(part), *at), word))
            rests = [self.let(f"rest{part}{n}", rest - ex.bitcast(b & _HIGH, self.dtype))
                     for n, (rest, b) in enumerate(zip(rests, bits, strict=True))]
        inner = em.close()
        total = self.bound("total")
        axis = Axis(pair, em.simplify(whole // 2))
        em.emit(Reduce((axis,), (total_of(total, weights[0] + weights[1]),), inner))
        return total

    def accumulate(self) -> None:
        """Emit what the values of a block of keys add to the results."""
        em = self.em
        v = self.section(t5=self.tile_rows, d5=self.wide, a5=SIDE, q5=SIDE)
        tile, at, row, lane = v.values()
        em.open()
        step, part, e = (em.loop_var(n, s) for n, s in
                         (("o5", int_of(self.vw.shape[1].attr)), ("p5", self.pieces), ("e5", SIDE)))
        left, right = em.fresh("value", dt.uint32), em.fresh("weight", dt.uint32)
        em.emit(Load(left, self.vw, (at, step, row, e)))
        em.emit(Load(right, self.pw, (part, tile, step, e, lane)))
        inner = em.close()
        result = self.bound("result")
        axes = (Axis(step, self._steps), Axis(part, ex.index(self.pieces)),
                Axis(e, ex.index(SIDE)))
        em.emit(Reduce(axes, (_products(result, left, right),), inner))
        place = (at, tile, row, lane)
        self.add(self.sums[0], place, tile * SIDE + lane, result)
        self.close([(tile, self.tile_rows), (at, self.wide), (row, SIDE), (lane, SIDE)], {})


def _products(total: Expr, left: Expr, right: Expr) -> Accumulator:
    """Return the accumulator of a sum of products of words."""
    return Accumulator(total, ex.const(0.0, total.dtype), ex.dot(Op.DOT2, total, left, right),
                       lhs(total) + rhs(total))


def _runs(n: int, unit: int) -> list[tuple[str, int, int]]:
    """Return the tiles that cover a size: those that are full, and one that is not."""
    full = n // unit
    found = [("", 0, full)] if full else []
    return found + ([("_tail", full, 1)] if n % unit else [])


def _tiles(rows: int, heads: int) -> int:
    """Return how many tiles of queries a block has: many, unless too many lanes wait.

    With few heads there are some blocks at least, for threads. Tiles of queries, keys and channels
    come in pairs: LLVM ends with a fault for some loops over products of two by one.
    """
    def cost(tiles: int) -> int:
        return -(-rows // (tiles * SIDE)) * (tiles * SIDE + COPY)
    most = max(min(MOST, rows * heads // (BUSY * SIDE)), 2)
    return min(range(most // 2 * 2, 0, -2), key=cost)


__all__ = ["SIDE", "MatrixSoftmax", "suits"]
