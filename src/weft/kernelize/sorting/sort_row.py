"""A long row as vectors: reads and writes of as many elements as a vector has lanes.

A float row is sorted with infinities for NaNs. In a row that holds NaNs or negative zeros those and
all zeros are written once more, in the order in which they came.
"""

from __future__ import annotations

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import VECTOR, Load, Memory, Store
from weft.kernelize.common.rows import at
from weft.kernelize.sorting.sort_network import Network

_NONE, _ONE = ex.index(0), ex.index(1)


class Row(Network):
    """What a sort of a long row is written in; `away` is as much room as a row has elements."""

    out: Memory
    away: Memory
    odd: Expr  # whether the row has NaNs or negative zeros
    dtype: DType
    lanes: int
    start: Expr  # of a part in the result
    room: Expr  # ... in the second array
    there: Expr  # whether a part lies in the second array

    # vectors and registers

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

    def _held(self, place: Expr, mask: Expr, fill: Expr) -> Expr:
        """Read a vector of a part from where it lies."""
        there = self._let(mask & self._every(self.there))
        x = self._vector(self.away, self.room + place, there, fill)
        return self._vector(self.out, self.start + place, self._let(mask ^ there), x)

    def _lanes_of(self, size: Expr) -> Expr:
        """Return a mask of all lanes, of which no compiler knows that: a part is longer than those.

        Only sizes that 32 bits hold may be compared as they are.
        """
        return self._first_lanes(ex.minimum(size, ex.index(self.lanes)))

    @property
    def _largest(self) -> Expr:
        d = self.dtype
        return ex.const(float("inf") if d.is_float else int(d.max), d)

    # what is to be sorted

    def _clean(self, value: Expr) -> Expr:
        """Return a value, infinity if it is a NaN."""
        if not self.dtype.is_float:
            return value
        largest = ex.broadcast(self._largest, value.lanes)
        return ex.where(value.lt(largest), value, largest)

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

    def _copy(self, source: Expr, target: Expr, count: Expr) -> None:
        """Copy so many elements from the second array to the result."""
        lanes = self.lanes
        j = self._loop("j", max(self.n // lanes, 1))
        self._put_vector(self.out, target + j * lanes,
                         self._vector(self.away, source + j * lanes))
        self._end(j, count // lanes)
        mask = self._let(self._first_lanes(count % lanes))
        done = self._let(count - count % lanes)
        rest = self._vector(self.away, source + done, mask)
        self._put_vector(self.out, target + done, rest, mask)

    # NaNs and negative zeros

    def _watch(self) -> None:
        """Begin to note, lane by lane, which bits NaNs lose, and the least bits as an integer."""
        k = self.key_type
        self.lost, self.least = (Memory(name, k, (ex.index(self.lanes),), "local")
                                 for name in ("lost", "least"))
        for memory in (self.lost, self.least) if self.dtype.is_float else ():
            self.em.alloc(memory)
            self._put_vector(memory, _NONE, ex.const(0, k, self.lanes))

    def _seen(self, x: Expr) -> Expr:
        """Note what is odd in a vector, and return it clean."""
        if not self.dtype.is_float:
            return x
        clean, k = self._let(self._clean(x)), self.key_type
        bits = self._let(ex.bitcast(x, k))
        lost, least = (self._vector(m, _NONE) for m in (self.lost, self.least))
        self._put_vector(self.lost, _NONE, lost | (bits ^ ex.bitcast(clean, k)))
        self._put_vector(self.least, _NONE, ex.minimum(least, bits))
        return clean

    def _flag(self) -> None:
        """Note whether the row has a NaN or a negative zero, whose bits are the least integer."""
        if not self.dtype.is_float:
            return
        k, lanes = self.key_type, self.lanes
        lost, least = (self._vector(m, _NONE) for m in (self.lost, self.least))
        odd = self._let(lost.ne(ex.const(0, k, lanes)) | least.eq(ex.const(int(k.min), k, lanes)))
        self.odd = self._let(_any(odd))

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

    def _restore_row(self) -> None:
        """Write zeros and NaNs again, in the order in which they came."""
        lanes = self.lanes
        self.next_zero = self._register("next_zero", self._ahead_of_zeros())
        self.next_nan = self._register("next_nan", _NONE)
        whole, rest = divmod(self.n, lanes)
        b = self._loop("b", max(whole, 1))
        self._pick(self._line(b * lanes))
        self._end(b, ex.index(whole))
        if rest:
            self._pick(self._line(ex.index(whole * lanes), ex.index(self.n)))
        nans = self._get(self.next_nan)
        first = _NONE if self.node.attr.descending else self._let(ex.index(self.n) - nans)
        self._copy(_NONE, first, nans)

    def _ahead_of_zeros(self) -> Expr:
        """Count by halving the elements of the sorted row that are ahead of its zeros."""
        most = self.n.bit_length()
        count, zero = self._register("count", _NONE), ex.const(0, self.dtype)
        i = self._loop("i", most)
        more = self._let(self._get(count) + ex.binary(Op.SHL, _ONE, ex.index(most - 1) - i))
        last = self._let(ex.minimum(more, ex.index(self.n)) - 1)
        x = self._element(self.out, *self._at(self.out, last))
        ahead = zero.lt(x) if self.node.attr.descending else x.lt(zero)
        self._set(count, ex.where(ahead & more.le(self.n), more, self._get(count)))
        self._end(i, ex.index(most))
        return self._get(count)

    def _pick(self, x: Expr) -> None:
        """Write the zeros of a vector to their place, its NaNs to the second array."""
        em = self.em
        zeros = self._let(x.eq(ex.const(0, self.dtype, self.lanes)))
        nans = self._let(x.ne(x))
        odd = self._let(_any(zeros | nans))
        em.open()
        for memory, end, mine in ((self.out, self.next_zero, zeros),
                                  (self.away, self.next_nan, nans)):
            place, count = self._get(end), self._counted(mine)
            self._put_vector(memory, place, ex.compress(mine, x),
                             self._let(self._first_lanes(count)))
            self._set(end, place + count)
        self._if(odd, em.close())


def _any(flags: Expr) -> Expr:
    return ex.bits(flags).ne(ex.const(0, dt.uint64))
