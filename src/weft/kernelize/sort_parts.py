"""Loop nests that sort rows by parting them, for processors that pack the lanes of a vector.

A part of the row is read a vector at a time. What is at most the pivot is packed to its front, the
rest into a second array, from where it follows. The pivot is the mean of medians of a sample, in
the order of the bits, where every distribution has one; if it leaves one side nearly empty, the
next pivot halves the range of values that a part can have, so that no data takes more than a few
passes a bit. Parts that fit into registers are sorted there. A long row is cut into four parts
first, by a larger sample: that is two passes in one over memory beyond the caches, and threads
share the parts.

Float rows are sorted with infinities for NaNs; rows that hold NaNs or negative zeros are noted, and
the nest that follows restores those, as it does behind networks.

Ref: Hoare, "Quicksort", 1962; Bramas, "A novel hybrid quicksort algorithm vectorized using
AVX-512", 2017.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import (
    PARALLEL,
    VECTOR,
    If,
    Load,
    Memory,
    Prefetch,
    Stmt,
    Store,
    While,
)
from weft.kernelize import sort_network as network
from weft.kernelize.emit import Emitter
from weft.kernelize.rows import at, close_rows, open_rows
from weft.kernelize.sort_network import Network, as_float
from weft.kernelize.sort_registers import SIZES, Registers
from weft.target import Target

LEAST: Final = 256  # elements of a row that is parted, and of
BESIDE: Final = 1 << 11  # ... a row beside others, which a network sorts in lanes
SHARED_FROM: Final = 1 << 15  # ... from which it is cut into parts for the threads
PARTS, SAMPLE = 4, 16  # of a long row; vectors that their pivots are chosen from
AHEAD: Final = 2048  # bytes by which a prefetch of what is to be sorted is ahead
STACK: Final = 64  # parts that wait: the smaller one is always first, so their logarithm
POOR: Final = 4  # a side below 1 / 2**4 of its part is nearly empty
_NONE, _ONE = ex.index(0), ex.index(1)
_FIRST: Final = (_NONE,)


def suits(node: Node, target: Target | None) -> bool:
    """Whether the values of a sort are to be parted on a target."""
    d, axis, shape = node.dtype, node.attr.axis, node.args[0].shape
    if target is None or not target.supports(Op.COMPRESS, d) or axis != len(shape) - 1:
        return False
    n = shape[axis]
    least = BESIDE if network.suits(node) else LEAST
    return all(isinstance(s, int) for s in shape) and isinstance(n, int) and n >= least


class Parts(Network):
    """The lowering of one sort of which the values are wanted."""

    def __init__(self, em: Emitter, node: Node, out: Memory, flags: Memory,
                 target: Target) -> None:  # fmt: skip
        self.em, self.node, self.out, self.flags = em, node, out, flags
        self.axis, self.shape = node.attr.axis, node.args[0].shape
        d = self.dtype = node.dtype
        self.n, self.lanes = int(self.shape[self.axis]), target.lanes(d)
        self.key_type = {4: dt.int32, 8: dt.int64}[d.itemsize] if d.is_float else d
        self.names = 0
        rows = 1
        for size in self.shape[:-1]:
            rows *= int(size)
        self.shared = self.n >= SHARED_FROM and rows < PARTS
        room = self.n + (PARTS + 1) * self.lanes
        self.away = Memory("away", d, (*out.shape[:-1], ex.index(room)))
        self.borders = Memory("borders", dt.int64, (ex.index(PARTS + 1),), "local")
        self.bounds = Memory("bounds", self.key_type, (ex.index(PARTS + 1),), "local")

    # small things

    def _vector(self, memory: Memory, place: Expr, mask: Expr | None = None,
                fill: Expr | None = None) -> Expr:  # fmt: skip
        """Read a vector of the row from an array."""
        var = ex.var(f"x{self._number()}", memory.dtype, self.lanes)
        self.em.emit(Load(var, memory, self._at(memory, place), mask, fill))
        return var

    def _put_vector(self, memory: Memory, place: Expr, value: Expr,
                    mask: Expr | None = None) -> None:  # fmt: skip
        self.em.emit(Store(memory, self._at(memory, place), value, mask))

    def _at(self, memory: Memory, place: Expr) -> tuple[Expr, ...]:
        return at(self.index, self.axis, place) if memory.scope == "global" else (place,)

    def _number(self) -> int:
        self.names += 1
        return self.names

    def _register(self, name: str, start: Expr) -> Memory:
        made = Memory(f"{name}{self._number()}", start.dtype, (ex.index(1),), "register")
        self.em.alloc(made)
        self._set(made, start)
        return made

    def _set(self, register: Memory, value: Expr) -> None:
        self.em.emit(Store(register, _FIRST, value))

    def _get(self, register: Memory) -> Expr:
        var = ex.var(f"g{self._number()}", register.dtype)
        self.em.emit(Load(var, register, _FIRST))
        return var

    def _element(self, memory: Memory, *place: Expr) -> Expr:
        var = ex.var(f"e{self._number()}", memory.dtype)
        self.em.emit(Load(var, memory, place))
        return var

    def _every(self, value: Expr) -> Expr:
        return ex.broadcast(value, self.lanes)

    def _first_lanes(self, count: Expr) -> Expr:
        """Return a mask of so many lanes."""
        lane = ex.ramp(ex.const(0, dt.int32), self.lanes)
        return lane.lt(ex.broadcast(ex.cast(count, dt.int32), self.lanes))

    def _if(self, condition: Expr, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...] = ()) -> None:
        self.em.emit(If(condition, then, orelse))

    def _counted(self, flags: Expr) -> Expr:
        return self._let(ex.cast(ex.unary(Op.POPCOUNT, ex.bits(flags)), dt.int64))

    def _value_of(self, key: Expr) -> Expr:
        return as_float(key, self.dtype) if self.dtype.is_float else key

    @property
    def _limits(self) -> tuple[Expr, Expr]:
        """The keys of the least and of the largest value."""
        k = self.key_type
        if not self.dtype.is_float:
            return ex.const(int(k.min), k), ex.const(int(k.max), k)
        infinity = {4: 0x7F800000, 8: 0x7FF0000000000000}[self.dtype.itemsize]
        return ex.const(-infinity - 1, k), ex.const(infinity, k)

    @property
    def _largest(self) -> Expr:
        d = self.dtype
        return ex.const(float("inf") if d.is_float else int(d.max), d)

    # rows

    def _sort_rows(self) -> None:
        em = self.em
        loops, self.index = open_rows(em, self.shape, self.axis)
        if self.shared:
            self._cut()
        else:
            self._fill()
            self._sort_part(_NONE, ex.index(self.n), _NONE, *self._limits)
        if self.node.attr.descending:
            self._turn()
        close_rows(em, loops, self.shape, self.axis)

    def _clean(self, value: Expr) -> Expr:
        """Return a value, infinity if it is a NaN."""
        if not self.dtype.is_float:
            return value
        largest = ex.broadcast(self._largest, value.lanes)
        return ex.where(value.eq(value), value, largest)

    def _is_odd(self, value: Expr) -> Expr:
        """Whether a value is a NaN or a negative zero."""
        k = self.key_type
        least = ex.broadcast(ex.const(int(k.min), k), value.lanes)
        return value.ne(value) | ex.bitcast(value, k).eq(least)

    def _fill(self) -> None:
        """Copy the row to the result and note whether it holds a NaN or a negative zero."""
        odd = self._register("odd", ex.const(0, dt.uint64))
        whole, rest = divmod(self.n, self.lanes)
        b = self._loop("b", max(whole, 1))
        x = self._seen(self._line(b * self.lanes), odd)
        self._put_vector(self.out, b * self.lanes, x)
        self._end(b, ex.index(whole))
        if rest:
            place = ex.index(whole * self.lanes)
            x = self._seen(self._line(place, ex.index(self.n)), odd)
            self._put_vector(self.out, place, x, self._first_lanes(ex.index(rest)))
        self._flag(self._get(odd))

    def _seen(self, x: Expr, odd: Memory) -> Expr:
        """Note what is odd in a vector, and return it clean."""
        if not self.dtype.is_float:
            return x
        self._set(odd, self._get(odd) | ex.bits(self._let(self._is_odd(x))))
        return self._let(self._clean(x))

    def _flag(self, odd: Expr) -> None:
        """Note whether a row has lanes that are odd."""
        if self.dtype.is_float:
            found = ex.cast(odd.ne(ex.const(0, dt.uint64)), dt.uint8)
            self.em.emit(Store(self.flags, self._row(self.index), found))

    def _turn(self) -> None:
        """Reverse the row."""
        lanes, last = self.lanes, ex.index(self.n)
        whole, rest = divmod(self.n // 2, lanes)
        i = self._loop("turn", max(whole, 1))
        low, high = i * lanes, last - (i + 1) * lanes
        first, second = self._vector(self.out, low), self._vector(self.out, high)
        self._put_vector(self.out, low, ex.reverse(second))
        self._put_vector(self.out, high, ex.reverse(first))
        self._end(i, ex.index(whole))
        i = self._loop("turn", max(rest, 1))
        places = [self._at(self.out, p) for p in (i + whole * lanes, last - 1 - whole * lanes - i)]
        values = [self._element(self.out, *p) for p in places]
        for place, value in zip(places, reversed(values), strict=True):
            self.em.emit(Store(self.out, place, value))
        self._end(i, ex.index(rest))

    # long rows

    def _cut(self) -> None:
        """Cut the row into parts of known ranges, and sort those.

        Two parts grow from the ends of the result, two from those of the second array.
        """
        n, lanes = ex.index(self.n), self.lanes
        for memory in (self.borders, self.bounds):
            self.em.alloc(memory)
        self._choose()
        top = n + 2 * lanes
        self.pivots = [self._let(self._every(self._value_of(self._element(
            self.bounds, ex.index(q))))) for q in range(1, PARTS)]
        self.ends = [self._register("end", e) for e in (_NONE, n, _NONE, top)]
        odd = self._register("odd", ex.const(0, dt.uint64))
        whole, rest = divmod(self.n, lanes)
        b = self._loop("b", max(whole, 1))
        self._fetch(b * lanes)
        self._deal(self._seen(self._line(b * lanes), odd))
        self._end(b, ex.index(whole))
        if rest:
            x = self._seen(self._line(ex.index(whole * lanes), n), odd)
            self._deal(x, self._first_lanes(ex.index(rest)))
        self._flag(self._get(odd))
        first, second, third, fourth = map(self._get, self.ends)
        starts = [_NONE, first]
        for memory, source, count in ((self.out, second, n - second), (self.away, _NONE, third),
                                      (self.away, fourth, top - fourth)):
            self._copy(memory, source, starts[-1], self._let(count))
            starts.append(self._let(starts[-1] + count))
        for q, start in enumerate(starts):
            self.em.emit(Store(self.borders, (ex.index(q),), start))
        part = self._loop("part", PARTS)
        start, end = (self._element(self.borders, part + q) for q in range(2))
        low, high = (self._element(self.bounds, part + q) for q in range(2))
        self._sort_part(start, self._let(end - start), self._let(start + part * lanes),
                        self._let(low + 1), high)
        self._end(part, ex.index(PARTS), PARALLEL)

    def _fetch(self, place: Expr) -> None:
        """Ask for what is read soon: hardware looks ahead within a page only."""
        memory = self.em.sources.get(self.node.args[0])
        if memory is not None and len(memory.shape) == len(self.shape):
            ahead = ex.minimum(place + AHEAD // self.dtype.itemsize, ex.index(self.n - 1))
            self.em.emit(Prefetch(memory, at(self.index, self.axis, ahead)))

    def _deal(self, x: Expr, there: Expr | None = None) -> None:
        """Write the lanes of a vector to their parts."""
        below = [self._let(x.le(pivot)) for pivot in self.pivots]
        for q, end in enumerate(self.ends):
            mine = below[q] if q < PARTS - 1 else there
            if q:
                above = ex.unary(Op.NOT, below[q - 1])
                mine = self._let(above if mine is None else above & mine)
            assert mine is not None
            memory, place = self.away if q // 2 else self.out, self._get(end)
            count = self._counted(mine)
            packed = ex.compress(mine, x)
            if q % 2:
                place = self._let(place - count)
                self._put_vector(memory, place, packed, self._first_lanes(count))
                self._set(end, place)
            else:
                self._put_vector(memory, place, packed,
                                 None if q else self._first_lanes(count))
                self._set(end, place + count)

    def _choose(self) -> None:
        """Choose pivots from a sample: of each lane's elements in order, the means over lanes."""
        step = (self.n - self.lanes) // (SAMPLE - 1)
        line = [self._line(ex.index(i * step)) for i in range(SAMPLE)]
        line = [self._let(self._clean(x)) for x in line]
        registers = Registers(self.lanes, self._let)
        registers.columns(line)
        low, high = self._limits
        keys = [low - 1]
        for q in range(1, PARTS):
            middle = q * SAMPLE // PARTS
            keys.append(self._between(self._mean(line[middle - 1: middle + 1]), low, high))
        for q, key in enumerate((*keys, high)):
            self.em.emit(Store(self.bounds, (ex.index(q),), key))

    def _line(self, place: Expr, end: Expr | None = None) -> Expr:
        """Read a vector of what is to be sorted; behind the end of the row nothing is read."""
        em, lanes = self.em, self.lanes
        held = Memory(f"line{self._number()}", self.dtype, (ex.index(lanes),), "local")
        em.alloc(held)
        t = self._loop("t", lanes)
        there = None if end is None else (place + t).lt(end)
        value = em.value(self.node.args[0], at(self.index, self.axis, place + t), there)
        if there is not None:
            value = ex.where(there, value, self._largest)
        em.emit(Store(held, (t,), value))
        self._end(t, ex.index(lanes), VECTOR)
        return self._vector(held, _NONE)

    def _copy(self, memory: Memory, source: Expr, target: Expr, count: Expr) -> None:
        """Copy so many elements to the result, from another array or further behind."""
        lanes = self.lanes
        j = self._loop("j", max(self.n // lanes, 1))
        self._put_vector(self.out, target + j * lanes, self._vector(memory, source + j * lanes))
        self._end(j, count // lanes)
        mask = self._let(self._first_lanes(count % lanes))
        done = self._let(count - count % lanes)
        rest = self._vector(memory, source + done, mask)
        self._put_vector(self.out, target + done, rest, mask)

    # parts

    def _sort_part(self, first: Expr, count: Expr, away: Expr, low: Expr, high: Expr) -> None:
        """Sort part of the result; `away` is as much room in the second array, and a vector."""
        em, k = self.em, self.key_type
        kinds = {"start": dt.int64, "size": dt.int64, "low": k, "high": k, "poor": dt.bool_}
        self.stack = [Memory(f"waiting_{name}", kind, (ex.index(STACK),), "local")
                      for name, kind in kinds.items()]
        for memory in self.stack:
            em.alloc(memory)
        self._push(_NONE, (_NONE, count, low, high, ex.const(False, dt.bool_)))
        depth = self._register("depth", _ONE)
        em.open()
        waiting = self._get(depth)
        head = em.close()
        em.open()
        top = self._let(waiting - 1)
        self._set(depth, top)
        start, size, low, high, poor = (self._element(m, top) for m in self.stack)
        self.first, self.away_first = self._let(first + start), away
        em.open()
        for least, most in zip((0, *SIZES), SIZES, strict=False):
            em.open()
            self._in_registers(size, most)
            within = ex.index(least * self.lanes).lt(size) & size.le(most * self.lanes)
            self._if(within, em.close())
        short = em.close()
        em.open()
        self._part(start, size, low, high, poor, top, depth)
        long = em.close()
        em.open()
        self._if(size.le(SIZES[-1] * self.lanes), short, long)
        self._if(_ONE.lt(size) & low.lt(high), em.close())
        em.emit(While(head, _NONE.lt(waiting), em.close()))

    def _push(self, depth: Expr, entry: tuple[Expr, ...]) -> None:
        for memory, item in zip(self.stack, entry, strict=True):
            self.em.emit(Store(memory, (depth,), item))

    def _in_registers(self, size: Expr, count: int) -> None:
        """Sort a part that fits into so many registers."""
        lanes, line, masks = self.lanes, [], []
        largest = self._every(self._largest)
        for q in range(count):
            masks.append(self._let(self._first_lanes(size - q * lanes)))
            line.append(self._vector(self.out, self.first + q * lanes, masks[-1], largest))
        line = Registers(lanes, self._let).sort(line)
        for q, (x, mask) in enumerate(zip(line, masks, strict=True)):
            self._put_vector(self.out, self.first + q * lanes, x, mask)

    def _part(self, start: Expr, size: Expr, low: Expr, high: Expr, poor: Expr, top: Expr,
              depth: Memory) -> None:  # fmt: skip
        """Part by a pivot, and push both sides."""
        key = self._pivot(size, low, high, poor)
        below = self._split(size, self._let(self._every(self._value_of(key))))
        above = self._let(size - below)
        bad = self._let(ex.minimum(below, above).lt(ex.binary(Op.SHR, size, ex.index(POOR))))
        left = (start, below, low, key, bad)
        right = (start + below, above, key + 1, high, bad)
        larger = self._let(above.lt(below))
        self._push(top, tuple(ex.where(larger, a, b) for a, b in zip(left, right, strict=True)))
        self._push(top + 1, tuple(ex.where(larger, b, a)
                                  for a, b in zip(left, right, strict=True)))
        self._set(depth, top + 2)

    def _pivot(self, size: Expr, low: Expr, high: Expr, poor: Expr) -> Expr:
        """Return a key from the least to the largest but one."""
        step = self._let((size - self.lanes) // 8)
        line = [self._vector(self.out, self.first + step * i) for i in range(9)]
        median = Registers(self.lanes, self._let).ninther(line)
        one = ex.const(1, self.key_type)
        half = ex.binary(Op.SHR, low, one) + ex.binary(Op.SHR, high, one) + (low & high & one)
        mean = ex.where(poor, half, self._mean([median]))
        return self._let(self._between(mean, low, high))

    def _between(self, key: Expr, low: Expr, high: Expr) -> Expr:
        return ex.minimum(ex.maximum(key, low), high - 1)

    def _mean(self, vectors: list[Expr]) -> Expr:
        """Return the mean of the keys of all lanes, each rounded down before."""
        k, lanes = self.key_type, self.lanes
        total: Expr | None = None
        shift = ex.const((len(vectors) * lanes).bit_length() - 1, k)
        for x in vectors:
            keys = ex.bitcast(x, k)
            if self.dtype.is_float:
                zero, most = (ex.const(v, k, lanes) for v in (0, int(k.max)))
                keys = ex.where(keys.lt(zero), keys ^ most, keys)
            keys = ex.binary(Op.SHR, keys, self._every(shift))
            total = keys if total is None else total + keys
        assert total is not None
        while total.lanes > 1:
            total = self._let(total)
            total = ex.half(total, 0) + ex.half(total, 1)
        return self._let(total)

    def _split(self, size: Expr, pivot: Expr) -> Expr:
        """Part by a pivot; return how many elements are at most the pivot."""
        lanes = self.lanes
        below, above = self._register("left", _NONE), self._register("right", _NONE)
        b = self._loop("b", max(self.n // lanes, 1))
        x = self._vector(self.out, self.first + b * lanes)
        small = self._let(x.le(pivot))
        to, other = self._get(below), self._get(above)
        self._put_vector(self.out, self.first + to, ex.compress(small, x))
        self._put_vector(self.away, self.away_first + other,
                         ex.compress(ex.unary(Op.NOT, small), x))
        count = self._counted(small)
        self._set(below, to + count)
        self._set(above, other + (lanes - count))
        self._end(b, size // lanes)
        rest = self._let(size % lanes)
        there = self._let(self._first_lanes(rest))
        x = self._vector(self.out, self.first + (size - rest), there,
                         ex.broadcast(ex.const(0, self.dtype), lanes))
        small = self._let(x.le(pivot) & there)
        to, other, count = self._get(below), self._get(above), self._counted(small)
        self._put_vector(self.out, self.first + to, ex.compress(small, x),
                         self._let(self._first_lanes(count)))
        large = self._let(ex.unary(Op.NOT, small) & there)
        self._put_vector(self.away, self.away_first + other, ex.compress(large, x))
        total = self._let(to + count)
        self._copy(self.away, self.away_first, self.first + total, self._let(size - total))
        return total
