"""Loop nests of sorts of many short rows: a sorting network, one row a lane.

A network compares the same places whatever the data, so that the rows of a vector are sorted
together without a branch. Sixteen neighbours are sorted in registers; then sorted runs are merged
pairwise (bitonic, every comparison rising: the second run is read backwards first). Places past
the end count as larger than all and are never touched.

A network is not stable, and its keys are what it moves. That shows only where equal values differ
in their bits, zeros of both signs and NaNs: rows that hold such are noted, and a second nest puts
theirs in the order in which they came. Where places are wanted, they are the low bits of the keys
(`Places`): no two are equal then, and the order is that of a stable sort.

Ref: Batcher, "Sorting networks and their applications", AFIPS 1968.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import (
    UNROLLED,
    Accumulator,
    Axis,
    If,
    Load,
    Memory,
    Reduce,
    Store,
    lhs,
    rhs,
)
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.rows import at, close_rows, open_rows
from weft.kernelize.common.writer import Writer

BLOCK: Final = 16  # neighbours that are sorted in registers
PLACE_BITS: Final = 12
LONGEST: Final = 1 << PLACE_BITS  # elements: a vector of rows stays in the second cache
ROWS_LEAST: Final = 8  # rows that fill enough of a vector
NAME: Final = "network"  # of the keys of a row, by which the strategy knows the nest


def suits(node: Node) -> bool:
    """Whether a sort, of which the values alone are wanted, has rows for a network."""
    return node.dtype.itemsize >= 2 and _suits(node)


def suits_places(node: Node) -> bool:
    """Whether a sort has rows for a network whose keys hold the places of their elements."""
    d = node.dtype
    least = 2 if d.is_float else 1
    return not d.is_bool and least <= d.itemsize <= 4 and _suits(node)


def _suits(node: Node) -> bool:
    shape, axis = node.args[0].shape, node.attr.axis
    if not all(isinstance(d, int) for d in shape):
        return False
    sizes = [d for d in shape if isinstance(d, int)]
    side = sizes[axis + 1:] if axis + 1 < len(sizes) else sizes[:axis]
    rows = 1
    for d in side:
        rows *= d
    return 2 <= sizes[axis] <= LONGEST and rows >= ROWS_LEAST


class Network(Writer):
    """The lowering of one sort by a network; `em` holds the nest."""

    def __init__(self, em: Emitter, node: Node, out: Memory, flags: Memory) -> None:
        self.em, self.node, self.out, self.flags = em, node, out, flags
        self._prepare(_SIGNED[node.dtype.itemsize] if node.dtype.is_float else node.dtype)

    def _prepare(self, key_type: DType) -> None:
        node = self.node
        self.axis, self.shape = node.attr.axis, node.args[0].shape
        self.n = int(self.shape[self.axis])
        self.blocks = -(-self.n // BLOCK)
        self.key_type = key_type
        self.keys = Memory(NAME, self.key_type, (ex.index(self.blocks * BLOCK),), "local")
        self.names = 0

    def emit(self) -> None:
        """Emit the nest that sorts, and for floats the one that restores equal values."""
        self._sort_rows()
        if self.node.dtype.is_float:
            self._restore()

    def _sort_rows(self) -> None:
        em, shape = self.em, self.shape
        loops, self.index = open_rows(em, shape, self.axis)
        em.alloc(self.keys)
        self._sort_blocks()
        stages = max(self.blocks - 1, 0).bit_length()
        if stages:
            self._merges(stages)
        self._write()
        self._note()
        close_rows(em, loops, shape, self.axis)

    # keys

    def _key(self, x: Expr, place: Expr) -> Expr:
        """Return an integer in the order of the sort, from which the value can be had back."""
        if x.dtype.is_float:
            x = rising(x)
        return ex.unary(Op.NOT, x) if self.node.attr.descending else x

    def _value(self, key: Expr) -> Expr:
        if self.node.attr.descending:
            key = ex.unary(Op.NOT, key)
        return as_float(key, self.node.dtype) if self.node.dtype.is_float else key

    # the network

    def _fresh(self, prefix: str, dtype: DType | None = None) -> Expr:
        return ex.var(f"{prefix}{self._number()}", dtype or self.key_type)

    def _read(self, place: Expr) -> Expr:
        var = self._fresh("k")
        self.em.emit(Load(var, self.keys, (place,)))
        return var

    def _compare(self, line: list[Expr], a: int, b: int) -> None:
        low, high = ex.minimum(line[a], line[b]), ex.maximum(line[a], line[b])
        line[a], line[b] = self._let(low), self._let(high)

    def _sort_blocks(self) -> None:
        """Make keys of the row and sort each block of neighbours."""
        whole, rest = divmod(self.n, BLOCK)
        if whole:
            b = self._loop("b", whole)
            self._block(b, BLOCK)
            self._end(b, ex.index(whole))
        if rest:
            self._block(ex.index(whole), rest)

    def _block(self, block: Expr, count: int) -> None:
        em = self.em
        line = [self._let(self._key(em.value(self.node.args[0], at(
            self.index, self.axis, place)), place))
            for place in [block * BLOCK + t for t in range(count)]]
        for a, b in batcher(BLOCK):
            if b < count:
                self._compare(line, a, b)
        line += [ex.const(self.key_type.max, self.key_type)] * (BLOCK - count)
        for t, key in enumerate(line):
            em.emit(Store(self.keys, (block * BLOCK + t,), key))

    def _merges(self, stages: int) -> None:
        """Merge runs of 1, 2, 4 ... blocks."""
        stage = self._loop("p", stages)
        half = self._let(ex.binary(Op.SHL, ex.index(1), stage))
        self._pairs(half, mirrored=True)
        inner = self._loop("q", stages)
        self._pairs(self._let(ex.binary(Op.SHR, half, inner + 1)), mirrored=False)
        self._end(inner, stage)
        b = self._loop("b", self.blocks)
        line = [self._read(b * BLOCK + t) for t in range(BLOCK)]
        for low, high in halvings(BLOCK):
            self._compare(line, low, high)
        for t, key in enumerate(line):
            self.em.emit(Store(self.keys, (b * BLOCK + t,), key))
        self._end(b, ex.index(self.blocks))
        self._end(stage, ex.index(stages))

    def _pairs(self, half: Expr, mirrored: bool) -> None:
        """Compare the blocks of both halves of each run of ``2 * half`` blocks, where they are."""
        em, last = self.em, ex.index(self.blocks)
        runs = self._let((last + half * 2 - 1) // (half * 2))
        g = self._loop("g", self.blocks)
        start = self._let(g * half * 2)
        count = self._let(ex.maximum(ex.minimum(last - start - half, half), 0))
        j = self._loop("j", self.blocks)
        high = self._let((start + half + j) * BLOCK)
        low = self._let(((start + half - 1 - j) if mirrored else (start + j)) * BLOCK)
        t = self._loop("t", BLOCK)
        other = (high + (BLOCK - 1)) - t if mirrored else high + t
        a, b = self._read(low + t), self._read(other)
        em.emit(Store(self.keys, (low + t,), ex.minimum(a, b)))
        em.emit(Store(self.keys, (other,), ex.maximum(a, b)))
        self._end(t, ex.index(BLOCK), UNROLLED)
        self._end(j, count)
        self._end(g, runs)

    # results

    def _write(self) -> None:
        whole, rest = divmod(self.n, BLOCK)
        if whole:
            b = self._loop("b", whole)
            self._out_block(b, BLOCK)
            self._end(b, ex.index(whole))
        if rest:
            self._out_block(ex.index(whole), rest)

    def _out_block(self, block: Expr, count: int) -> None:
        line = [self._read(block * BLOCK + t) for t in range(count)]
        for t, key in enumerate(line):
            place = at(self.index, self.axis, block * BLOCK + t)
            self._put(key, place)

    def _put(self, key: Expr, place: Index) -> None:
        self.em.emit(Store(self.out, place, self._value(key)))

    def _note(self) -> None:
        """Note whether the row holds a negative zero or a NaN."""
        if not self.node.dtype.is_float:
            return
        em, k = self.em, self.key_type
        i = ex.var("seen")
        key, found = ex.var("seen_key", k), ex.var("odd", dt.bool_)
        plain = ex.unary(Op.NOT, key) if self.node.attr.descending else key
        odd = plain.eq(ex.const(-1, k)) | plain.eq(ex.const(k.max, k))
        em.emit(Reduce((Axis(i, ex.index(self.n)),), (Accumulator(
            found, ex.const(False, dt.bool_), found | odd, lhs(found) | rhs(found)),),
            (Load(key, self.keys, (i,)),)))  # fmt: skip
        em.emit(Store(self.flags, self._row(self.index), ex.cast(found, dt.uint8)))

    def _row(self, index: Index) -> Index:
        return at(index, self.axis, ex.index(0))

    def _restore(self) -> None:
        """Write zeros and NaNs of noted rows again, in the order in which they came."""
        em, d = self.em, self.node.dtype
        loops, self.index = open_rows(em, self.shape, self.axis, "s")
        flag = ex.var("flag", dt.uint8)
        em.emit(Load(flag, self.flags, self._row(self.index)))
        em.open()
        zero, key = ex.const(0, self.key_type), rising
        i = ex.var("i_before")
        em.open()
        em.env[i] = (0, self.n - 1)
        em.bind(i)
        x = key(em.value(self.node.args[0], at(self.index, self.axis, i)))
        body = em.close()
        below, nans = ex.var("below", dt.int64), ex.var("nans", dt.int64)
        nan = x.eq(ex.const(self.key_type.max, self.key_type))
        ahead = zero.lt(x) if self.node.attr.descending else x.lt(ex.const(-1, self.key_type))
        one, none = ex.index(1), ex.index(0)
        em.emit(Reduce((Axis(i, ex.index(self.n)),), (
            Accumulator(below, none, below + ex.where(ahead, one, none), lhs(below) + rhs(below)),
            Accumulator(nans, none, nans + ex.where(nan, one, none), lhs(nans) + rhs(nans)),
        ), body))  # fmt: skip
        next_zero = Memory("next_zero", dt.int64, (ex.index(1),), "register")
        next_nan = Memory("next_nan", dt.int64, (ex.index(1),), "register")
        first_nan = none if self.node.attr.descending else ex.index(self.n) - nans
        for memory, start in ((next_zero, below), (next_nan, first_nan)):
            em.alloc(memory)
            em.emit(Store(memory, (none,), start))
        i = self._loop("i", self.n)
        value = em.value(self.node.args[0], at(self.index, self.axis, i))
        x = self._let(rising(value))
        tests = (x.eq(zero) | x.eq(ex.const(-1, self.key_type)),
                 x.eq(ex.const(self.key_type.max, self.key_type)))
        for memory, wanted in zip((next_zero, next_nan), tests, strict=True):
            to, chosen = self._fresh("to", dt.int64), self._let(wanted)
            em.emit(Load(to, memory, (none,)))
            em.emit(Store(self.out, at(self.index, self.axis, to), value, chosen))
            em.emit(Store(memory, (none,), to + ex.where(chosen, one, none)))
        self._end(i, ex.index(self.n))
        then = em.close()
        em.emit(If(flag.ne(0), then))
        close_rows(em, loops, self.shape, self.axis)
        assert d.is_float


class Places(Network):
    """A sort of which places are wanted: keys are the order of a value and, below it, its place.

    Values are read again at their places: a key does not tell zeros and NaNs from one another.
    """

    def __init__(self, em: Emitter, node: Node, values: Memory | None,
                 places: Memory | None) -> None:
        self.em, self.node, self.values, self.places = em, node, values, places
        self._prepare(dt.int64 if node.dtype.itemsize > 2 else dt.int32)

    def emit(self) -> None:
        """Emit the nest that sorts."""
        self._sort_rows()

    def _note(self) -> None:
        """Note nothing: keys do not tell equal values from one another."""

    def _key(self, x: Expr, place: Expr) -> Expr:
        if x.dtype.is_float:
            x = rising(x)
            x = ex.where(x.eq(ex.const(-1, x.dtype)), ex.const(0, x.dtype), x)
        x = ex.cast(x, self.key_type)
        if self.node.attr.descending:
            x = ex.unary(Op.NOT, x)
        bits = ex.const(PLACE_BITS, self.key_type)
        return ex.binary(Op.SHL, x, bits) | ex.cast(place, self.key_type)

    def _put(self, key: Expr, place: Index) -> None:
        em = self.em
        mask = ex.const((1 << PLACE_BITS) - 1, self.key_type)
        source = self._let(ex.cast(key & mask, dt.int64))
        if self.places is not None:
            em.emit(Store(self.places, place, ex.cast(source, self.places.dtype)))
        if self.values is not None:
            em.env[source] = (0, self.n - 1)
            value = em.value(self.node.args[0], at(self.index, self.axis, source))
            em.emit(Store(self.values, place, value))


_SIGNED: Final = {2: dt.int16, 4: dt.int32, 8: dt.int64}


def rising(x: Expr) -> Expr:
    """Return a float as a signed integer of its order; negative zero is -1, every NaN the largest.

    A negative float's bits but the sign are inverted, which its own inverse does.
    """
    k = _SIGNED[x.dtype.itemsize]
    bits = ex.bitcast(x, k)
    largest = ex.const(k.max, k)
    magnitude = bits & largest
    turned = ex.where(bits.lt(0), bits ^ largest, bits)
    infinity = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
    return ex.where(ex.const(infinity[x.dtype.text], k).lt(magnitude), largest, turned)


def as_float(key: Expr, d: DType) -> Expr:
    """Return the float of which `rising` made a key."""
    k = key.dtype
    return ex.bitcast(ex.where(key.lt(0), key ^ ex.const(k.max, k), key), d)


def halvings(n: int) -> list[tuple[int, int]]:
    """Return the comparisons that sort a bitonic run: over half of it, a quarter ... neighbours."""
    distances = [n >> k for k in range(1, n.bit_length())]
    return [(low, low + d) for d in distances for low in range(n) if not low & d]


def batcher(n: int) -> list[tuple[int, int]]:
    """Return the comparisons of the odd-even merge sort of a power of two."""
    found = []
    run = 1
    while run < n:
        step = run
        while step:
            for start in range(step % run, n - step, 2 * step):
                for i in range(start, min(start + step, n - step)):
                    if i // (2 * run) == (i + step) // (2 * run):
                        found.append((i, i + step))
            step //= 2
        run *= 2
    return found
