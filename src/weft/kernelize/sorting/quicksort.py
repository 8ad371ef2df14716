"""Loop nests that sort rows by parting them, for processors that pack the lanes of a vector.

A part of the row is read a vector at a time. What is at most the pivot is packed to the front of
the part's place in the result, the rest into a second array, and stays there: each side is parted
again from where it lies, and what fits into registers is sorted there and written to its place.

The pivot is the mean of medians of a sample, in the order of the bits, where every distribution has
one; if it leaves one side nearly empty, the next pivot halves the range of the values of the part,
so that no data takes more than a few passes a bit. Where all elements of a sample are equal, the
whole part may be, and is looked through first; so is every row, which may rise or fall as a whole.
A long row is cut into four parts
first, by medians of a larger sample: that is two passes in one over memory beyond the caches, and
threads share the parts where rows are few.

Ref: Hoare, "Quicksort", 1962; Bramas, "A novel hybrid quicksort algorithm vectorized using
AVX-512", 2017.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import PARALLEL, SERIAL, Memory, Prefetch, Store, While
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.rows import at, close_rows, open_rows
from weft.kernelize.sorting import sort_network as network
from weft.kernelize.sorting.sort_pivots import Pivots
from weft.kernelize.sorting.sort_registers import COUNT, Registers, lower, upper
from weft.target import Target

LEAST: Final = 256  # elements of a row that is parted, and of
BESIDE: Final = {4: 768, 8: 848}  # ... a row beside others, which a network sorts in lanes
LONG: Final = 1 << 15  # ... that is cut first, into parts that threads share if rows are few
PARTS, SAMPLE = 4, 16  # of a long row; vectors that their pivots are chosen from
AHEAD: Final = 2048  # bytes by which a prefetch of what is to be sorted is ahead
STACK: Final = 64  # parts that wait: the smaller one is always first, so their logarithm
TOGETHER: Final = 4  # vectors that are asked at a time whether they are in order, or alike
POOR: Final = 4  # a side below 1 / 2**4 of its part is nearly empty
_NONE, _ONE = ex.index(0), ex.index(1)
Outermost = tuple[Memory, Callable[[Expr, Expr], Expr]]  # lane by lane, and how it is chosen
_FALSE, _TRUE = (ex.const(flag, dt.bool_) for flag in (False, True))


def suits(node: Node, target: Target | None) -> bool:
    """Whether the values of a sort are to be parted on a target."""
    d, axis, shape = node.dtype, node.attr.axis, node.args[0].shape
    if target is None or not target.supports(Op.COMPRESS, d) or axis != len(shape) - 1:
        return False
    n = shape[axis]
    least = BESIDE.get(d.itemsize, LEAST) if network.suits(node) else LEAST
    return all(isinstance(s, int) for s in shape) and isinstance(n, int) and n >= least


class Parts(Pivots):
    """The lowering of one sort of which the values are wanted."""

    def __init__(self, em: Emitter, node: Node, out: Memory, target: Target) -> None:
        self.em, self.node, self.out = em, node, out
        self.axis, self.shape = node.attr.axis, node.args[0].shape
        d = self.dtype = node.dtype
        self.n, self.lanes = int(self.shape[self.axis]), target.lanes(d)
        self.key_type = {4: dt.int32, 8: dt.int64}[d.itemsize] if d.is_float else d
        self.names = 0
        rows = 1
        for size in self.shape[:-1]:
            rows *= int(size)
        self.long = self.n >= LONG
        self.shared = self.long and rows < PARTS
        self.away = Memory("away", d, (*out.shape[:-1], ex.index(self.n)))
        self.borders = Memory("borders", dt.int64, (ex.index(PARTS + 1),), "local")
        self.rooms = Memory("rooms", dt.int64, (ex.index(PARTS),), "local")
        self.bounds = Memory("bounds", self.key_type, (ex.index(PARTS + 1),), "local")

    def emit(self) -> None:
        """Emit the nest that sorts."""
        self._sort_rows()

    # rows

    def _sort_rows(self) -> None:
        em = self.em
        loops, self.index = open_rows(em, self.shape, self.axis)
        self._watch()
        in_order = self._look_along()
        em.open()
        last = ex.index(self.n - self.lanes)
        self._put_vector(self.out, last, self._seen(self._line(last)))
        end = em.close()
        em.open()
        if self.long:
            self._cut()
        else:
            limits = self._fill()
            self._sort_part((_NONE, ex.index(self.n), *limits, _NONE, _FALSE, _FALSE))
        self._if(in_order, end, em.close())
        self._flag()
        em.open()
        self._turn()
        other_way = ~self.falling if self.node.attr.descending else self.falling & ~self.rising
        self._if(other_way, em.close())
        if self.dtype.is_float:
            em.open()
            self._restore_row()
            self._if(self.odd, em.close())
        close_rows(em, loops, self.shape, self.axis)

    def _fill(self) -> tuple[Expr, Expr]:
        """Copy the row to the result.

        Return keys that no element is below or above. Those of integers are the extremes: few
        values are often neighbours, so that parts of one value are known by their limits.
        """
        found: list[Outermost] = []
        if not self.dtype.is_float:
            found = self._outermost(self._line(_NONE))
        self._copy_row(found)
        return self._keys_of(found) if found else self._limits

    def _copy_row(self, found: Sequence[Outermost]) -> None:
        whole, rest = divmod(self.n, self.lanes)
        b = self._loop("b", max(whole, 1))
        x = self._seen(self._line(b * self.lanes))
        self._put_vector(self.out, b * self.lanes, x)
        self._look(found, x)
        self._end(b, ex.index(whole))
        if rest:
            place, there = ex.index(whole * self.lanes), self._first_lanes(ex.index(rest))
            x = self._seen(self._line(place, ex.index(self.n)))
            self._put_vector(self.out, place, x, there)
            self._look(found, ex.where(there, x, self._every(ex.extract(x, 0))) if found else x)

    def _look_along(self) -> Expr:
        """Return whether the row rises or falls, as far as it takes to see that it does neither.

        All elements but the last are written to the result on the way.
        """
        em, last = self.em, self.n - 1 - self.lanes
        rises, falls = (self._register(name, _TRUE) for name in ("rises", "falls"))
        place = self._register("place", _NONE)
        em.open()
        going = self._let((self._get(rises) | self._get(falls))
                          & self._get(place).lt(last + self.lanes))
        head = em.close()
        em.open()
        first, ups, downs = self._get(place), self._every(_FALSE), self._every(_FALSE)
        for q in range(TOGETHER):
            at = self._let(ex.minimum(first + q * self.lanes, ex.index(last)))
            x, after = self._seen(self._line(at)), self._let(self._clean(self._line(at + 1)))
            self._put_vector(self.out, at, x)
            ups, downs = self._let(ups | x.lt(after)), self._let(downs | after.lt(x))
        for register, against in ((rises, downs), (falls, ups)):
            self._set(register, self._get(register) & ex.bits(against).eq(0))
        self._set(place, first + TOGETHER * self.lanes)
        em.emit(While(head, going, em.close()))
        self.rising, self.falling = self._get(rises), self._get(falls)
        return self._let(self.rising | self.falling)

    # long rows

    def _cut(self) -> None:
        """Cut the row into parts of known ranges, and sort those.

        The first and the last grow from the ends of the result, the others from those of the
        second array. A whole vector behind the first or second never meets the other end: as
        much is still to be dealt.
        """
        n = ex.index(self.n)
        for memory in (self.borders, self.bounds, self.rooms):
            self.em.alloc(memory)
        self._choose()
        self.pivots = [self._let(self._every(self._value_of(self._element(
            self.bounds, ex.index(q))))) for q in range(1, PARTS)]
        self.every = self._let(self.pivots[0].le(self.pivots[-1]))
        self.ends = [self._register("end", e) for e in (_NONE, _NONE, n, n)]
        self._deal_row()
        first, second, third, fourth = map(self._get, self.ends)
        starts = (_NONE, first, first + second, fourth, n)
        for memory, places in ((self.borders, starts),
                               (self.rooms, (second, _NONE, third, first + second))):
            for q, place in enumerate(places):
                self.em.emit(Store(memory, (ex.index(q),), place))
        part = self._loop("part", PARTS)
        start, end = (self._element(self.borders, part + q) for q in range(2))
        low, high = (self._element(self.bounds, part + q) for q in range(2))
        room = self._element(self.rooms, part)
        there = self._let(part.eq(1) | part.eq(2))
        size = self._let(end - start)
        poor = ex.index(self.n - (self.n >> POOR)).lt(size)
        self._sort_part((start, size, low + 1, high, room, there, poor))
        self._end(part, ex.index(PARTS), PARALLEL if self.shared else SERIAL)

    def _deal_row(self) -> None:
        """Write all lanes of the row to their parts."""
        lanes = self.lanes
        whole, rest = divmod(self.n, lanes)
        b = self._loop("b", max(whole, 1))
        self._fetch(b * lanes)
        self._deal(self._seen(self._line(b * lanes)))
        self._end(b, ex.index(whole))
        if rest:
            x = self._seen(self._line(ex.index(whole * lanes), ex.index(self.n)))
            self._deal(x, self._first_lanes(ex.index(rest)))

    def _fetch(self, place: Expr) -> None:
        """Ask for what is read soon: hardware looks ahead within a page only."""
        memory = self.em.sources.get(self.node.args[0])
        if memory is not None and len(memory.shape) == len(self.shape):
            ahead = ex.minimum(place + AHEAD // self.dtype.itemsize, ex.index(self.n - 1))
            self.em.emit(Prefetch(memory, at(self.index, self.axis, ahead)))

    def _deal(self, x: Expr, there: Expr | None = None) -> None:
        """Write the lanes of a vector to their parts."""
        below = [self._let(x.le(pivot)) for pivot in self.pivots]
        every = self.every if there is None else there
        flags = [below[0], *(self._let(b ^ a) for a, b in itertools.pairwise(below)),
                 self._let(every ^ below[-1])]
        if there is not None:
            flags = [self._let(mine & there) for mine in flags]
        for q, (mine, end) in enumerate(zip(flags, self.ends, strict=True)):
            memory, place = self.away if q in (1, 2) else self.out, self._get(end)
            count = self._counted(mine)
            packed = ex.compress(mine, x)
            to = place if q < PARTS // 2 else self._let(place - count)
            whole = there is None and q < PARTS // 2
            self._put_vector(memory, to, packed, None if whole else self._first_lanes(count))
            self._set(end, place + count if q < PARTS // 2 else to)

    def _choose(self) -> None:
        """Choose pivots from a sample: of each lane's elements in order, medians of all lanes."""
        lanes, step = self.lanes, (self.n - self.lanes) // (SAMPLE - 1)
        sample = Memory("sample", self.dtype, (ex.index(SAMPLE * lanes),), "local")
        self.em.alloc(sample)
        i = self._loop("i", SAMPLE)
        self._put_vector(sample, i * lanes, self._let(self._clean(self._line(i * step))))
        self._end(i, ex.index(SAMPLE))
        line = [self._vector(sample, ex.index(q * lanes)) for q in range(SAMPLE)]
        Registers(self.dtype, lanes, self._let).columns(line)
        for q, x in enumerate(line):
            self._put_vector(sample, ex.index(q * lanes), x)
        low, high = self._limits
        for q, key in ((0, low - 1), (PARTS, high)):
            self.em.emit(Store(self.bounds, (ex.index(q),), key))
        part = self._loop("q", PARTS - 1)
        middle = self._let((part + 1) * (SAMPLE // PARTS))
        pair = [self._let(self._middle(self._vector(sample, (middle - t) * lanes)))
                for t in (1, 0)]
        key = self._limited(self._between_keys(*pair), low, high)
        self.em.emit(Store(self.bounds, (part + 1,), key))
        self._end(part, ex.index(PARTS - 1))

    # parts

    def _sort_part(self, part: tuple[Expr, ...]) -> None:
        """Sort part of the row.

        A part has a place in the result, a size, the keys of its least and largest value, as much
        room in the second array, and whether it lies there; and whether its pivot was poor.
        """
        em = self.em
        k = self.key_type
        kinds = {"start": dt.int64, "size": dt.int64, "low": k, "high": k, "room": dt.int64,
                 "there": dt.bool_, "poor": dt.bool_}
        self.stack = [Memory(f"waiting_{name}", kind, (ex.index(STACK),), "local")
                      for name, kind in kinds.items()]
        for memory in self.stack:
            em.alloc(memory)
        self._push(_NONE, part)
        depth = self._register("depth", _ONE)
        em.open()
        waiting = self._get(depth)
        head = em.close()
        em.open()
        top = self._let(waiting - 1)
        self._set(depth, top)
        start, size, low, high, room, there, poor = (
            self._element(m, top) for m in self.stack)
        self.start, self.room, self.there = start, room, there
        em.open()
        self._in_registers(size)
        short = em.close()
        em.open()
        self._long(size, low, high, poor, top, depth)
        self._if(size.le(COUNT * self.lanes), short, em.close())
        em.emit(While(head, _NONE.lt(waiting), em.close()))

    def _long(self, size: Expr, low: Expr, high: Expr, poor: Expr, top: Expr,
              depth: Memory) -> None:  # fmt: skip
        """Part what is too long for registers, or put it to its place if all elements are alike."""
        em, line = self.em, self._sampled(size)
        alike, equal = self._alike(line), self._register("equal", _FALSE)
        one = self._every(ex.extract(line[0], 0))
        em.open()
        self._set(equal, self._all_equal(size, one, self.there | low.lt(high)))
        self._if(alike, em.close())
        unequal = self._let(~self._get(equal))
        em.open()
        limits = self._register("low", low), self._register("high", high)
        em.open()
        for limit, key in zip(limits, self._extremes(size), strict=True):
            self._set(limit, key)
        self._if(poor | alike, em.close())
        low, high = map(self._get, limits)
        self._part(size, low, high, self._pivot(line, size, low, high, poor), top, depth)
        self._if(unequal, em.close())

    def _all_equal(self, size: Expr, one: Expr, open_yet: Expr) -> Expr:
        """Return whether a part is of one value, and put it to its place as far as it is.

        If nothing is `open_yet`, it is, and lies there.
        """
        em, last = self.em, self._let(size - self.lanes)
        equal, place = (self._register("same", _TRUE),
                        self._register("place", ex.where(open_yet, _NONE, size)))
        every, there = self._let(self._lanes_of(size)), self._let(self._every(self.there))
        em.open()
        going = self._let(self._get(equal) & self._get(place).lt(size))
        head = em.close()
        em.open()
        first, unlike = self._get(place), self._every(_FALSE)
        for q in range(TOGETHER):
            at = self._let(ex.minimum(first + q * self.lanes, last))
            x = self._held(at, every, one)
            self._put_vector(self.out, self.start + at, x, there)
            unlike = self._let(unlike | x.ne(one))
        self._set(equal, ex.bits(unlike).eq(0))
        self._set(place, first + TOGETHER * self.lanes)
        em.emit(While(head, going, em.close()))
        return self._get(equal)

    def _extremes(self, size: Expr) -> tuple[Expr, Expr]:
        """Return the keys of the least and the largest element of a part."""
        lanes = self.lanes
        every, none = self._let(self._lanes_of(size)), self._every(self._largest)
        found = self._outermost(self._held(size - lanes, every, none))
        b = self._loop("b", max(self.n // lanes, 1))
        self._look(found, self._held(b * lanes, every, none))
        self._end(b, size // lanes)
        return self._keys_of(found)

    def _outermost(self, x: Expr) -> list[Outermost]:
        """Begin to look for extremes, lane by lane, with the first vector."""
        found: list[Outermost] = []
        for name, choose in (("smallest", lower), ("largest", upper)):
            memory = Memory(f"{name}{self._number()}", self.dtype, (ex.index(self.lanes),), "local")
            self.em.alloc(memory)
            self._put_vector(memory, _NONE, x)
            found.append((memory, choose))
        return found

    def _look(self, found: Sequence[Outermost], x: Expr) -> None:
        for memory, choose in found:
            self._put_vector(memory, _NONE, choose(self._vector(memory, _NONE), x))

    def _keys_of(self, found: Sequence[Outermost]) -> tuple[Expr, Expr]:
        """Return the keys of the extremes of all lanes."""
        keys = []
        for memory, choose in found:
            x = self._vector(memory, _NONE)
            while x.lanes > 1:
                x = self._let(choose(ex.half(x, 0), ex.half(x, 1)))
            keys.append(self._key_of(x))
        return keys[0], keys[1]

    def _push(self, depth: Expr, entry: tuple[Expr, ...]) -> None:
        for memory, item in zip(self.stack, entry, strict=True):
            self.em.emit(Store(memory, (depth,), item))

    def _in_registers(self, size: Expr) -> None:
        """Sort a part that fits into registers."""
        lanes, line, masks = self.lanes, [], []
        largest = self._every(self._largest)
        whole = self._let(self._every(ex.cast(size, dt.int32)))
        for q in range(COUNT):
            masks.append(self._let(ex.ramp(ex.const(q * lanes, dt.int32), lanes).lt(whole)))
            line.append(self._held(ex.index(q * lanes), masks[-1], largest))
        line = Registers(self.dtype, lanes, self._let).sort(line)
        for q, (x, mask) in enumerate(zip(line, masks, strict=True)):
            self._put_vector(self.out, self.start + q * lanes, x, mask)

    def _part(self, size: Expr, low: Expr, high: Expr, key: Expr, top: Expr,
              depth: Memory) -> None:  # fmt: skip
        """Part by a pivot, and push both sides."""
        below = self._split(size, self._let(self._every(self._value_of(key))))
        above = self._let(size - below)
        bad = self._let(ex.minimum(below, above).lt(ex.binary(Op.SHR, size, ex.index(POOR))))
        left = (self.start, below, low, key, self.room + above, _FALSE, bad)
        right = (self.start + below, above, key + 1, high, self.room, _TRUE, bad)
        larger = self._let(above.lt(below))
        self._push(top, tuple(ex.where(larger, a, b) for a, b in zip(left, right, strict=True)))
        self._push(top + 1, tuple(ex.where(larger, b, a)
                                  for a, b in zip(left, right, strict=True)))
        self._set(depth, top + 2)

    def _split(self, size: Expr, pivot: Expr) -> Expr:
        """Part by a pivot; return how many elements are at most the pivot."""
        em, lanes = self.em, self.lanes
        ends = self._register("left", _NONE), self._register("right", _NONE)
        every = self._let(self._lanes_of(size))
        loops = []
        for memory, first in ((self.away, self.room), (self.out, self.start)):
            em.open()
            b = self._loop("b", max(self.n // lanes, 1))
            x = self._vector(memory, first + b * lanes)
            self._share(x, self._let(x.le(pivot)), every, ends)
            self._end(b, size // lanes)
            loops.append(em.close())
        self._if(self.there, *loops)
        rest = self._let(size % lanes)
        within = self._let(self._first_lanes(rest))
        x = self._held(size - rest, within, ex.broadcast(ex.const(0, self.dtype), lanes))
        self._share(x, self._let(x.le(pivot) & within), within, ends, masked=True)
        return self._get(ends[0])

    def _share(self, x: Expr, small: Expr, every: Expr, ends: tuple[Memory, Memory],
               masked: bool = False) -> None:  # fmt: skip
        """Write a vector's small lanes to the result, the others to the second array."""
        sides = ((self.out, self.start, small), (self.away, self.room, self._let(every ^ small)))
        for end, (memory, first, mine) in zip(ends, sides, strict=True):
            place, count = self._get(end), self._counted(mine)
            self._put_vector(memory, first + place, ex.compress(mine, x),
                             self._let(self._first_lanes(count)) if masked else None)
            self._set(end, place + count)
