"""Loop nests that find the first few elements of the order of a sort, without sorting the rest.

The row is cut into groups of every so-manieth element. The keys of the groups' first elements give
a bound: as many elements as are wanted lie at or below the key of the last group wanted. One more
pass collects what does, which is little more than wanted, and that is sorted by counting. If the
data is laid out so that it is much more, the row is sorted after all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.stmt import (
    SERIAL,
    VECTOR,
    Accumulator,
    Axis,
    For,
    If,
    Let,
    Load,
    Memory,
    Reduce,
    Stmt,
    Store,
    lhs,
    rhs,
)
from weft.kernelize.common.emit import Emitter

LANES: Final = 64  # elements looked at together
MOST: Final = 256  # elements wanted for which counting is the fastest sort
ZERO: Final = (ex.index(0),)


def groups_of(keep: int) -> int:
    """Return the number of groups: twice what is wanted, in whole vectors."""
    return max(-(-2 * keep // LANES), 1) * LANES


def suits(node: Node) -> bool:
    """Whether the first elements of a sort are so few that selecting them pays."""
    n, keep = node.args[0].shape[node.attr.axis], node.attr.keep
    return isinstance(n, int) and 1 <= keep <= MOST and n >= 4 * groups_of(keep)


class Select:
    """The lowering of one row; loops over the rows are open.

    Parameters
    ----------
    em : Emitter
        Takes the statements.
    n, keep : int
        Elements of the row, and of the result.
    key : callable
        The unsigned key of the element at a place, which emits its load, and the element.
    put : callable
        Emits the stores of an element and its place at a position of the result, under a mask.
    """

    def __init__(self, em: Emitter, n: int, keep: int, dtype: DType, unsigned: DType,
                 key: Callable[[Expr], tuple[Expr, Expr]],
                 put: Callable[[Expr, Expr, Expr, Expr], None]) -> None:  # fmt: skip
        self.em, self.n, self.keep, self.key, self.put = em, n, keep, key, put
        self.groups = groups_of(keep)
        self.room = 4 * keep + LANES
        k = self.unsigned = unsigned
        self.least = Memory("least", k, (ex.index(self.groups),), "local")
        self.below = Memory("below", k, (ex.index(self.groups),), "local")
        self.found_key = Memory("found_key", k, (ex.index(self.room),), "local")
        self.found = Memory("found", dtype, (ex.index(self.room),), "local")
        self.found_at = Memory("found_at", dt.int64, (ex.index(self.room),), "local")
        self.ranks = Memory("ranks_found", dt.int32, (ex.index(self.room),), "local")
        self.count = Memory("count", dt.int64, (ex.index(1),), "register")
        self.ties = Memory("ties", dt.int64, (ex.index(1),), "register")

    def emit(self, otherwise: Callable[[], None]) -> None:
        """Emit the selection; `otherwise` emits the sort of the whole row."""
        em = self.em
        for memory in (self.least, self.below, self.found_key, self.found, self.found_at,
                       self.ranks, self.count, self.ties):  # fmt: skip
            em.alloc(memory)
        self._least_of_groups()
        bound = self._bound()
        self._collect(bound)
        count = ex.var("found_count")
        em.emit(Load(count, self.count, ZERO))
        em.open()
        self._order(count)
        then = em.close()
        em.open()
        otherwise()
        em.emit(If(count.le(ex.index(self.room)), then, em.close()))

    def _loop(self, name: str, extent: int) -> Expr:
        self.em.open()
        return self.em.loop_var(name, extent)

    def _end(self, var: Expr, extent: Expr | int, kind: str = SERIAL) -> None:
        body = self.em.close()
        self.em.emit(For(var, ex.index(extent) if isinstance(extent, int) else extent, kind, body))

    def _let(self, name: str, value: Expr) -> Expr:
        var = ex.var(name, value.dtype)
        self.em.emit(Let(var, value))
        return var

    def _least_of_groups(self) -> None:
        """Keep the smallest key of each group: element i is of group i modulo their number."""
        em, k = self.em, self.unsigned
        times, rest = divmod(self.n, self.groups)
        for stage, (count, size) in enumerate(((1, self.groups), (times - 1, self.groups),
                                               (1, rest))):  # fmt: skip
            if not count or not size:
                continue
            j = self._loop(f"j{stage}", count)
            start = j * self.groups + (0, self.groups, times * self.groups)[stage]
            whole = size // LANES
            for part, lanes in enumerate((LANES, size % LANES)):
                if not (whole, lanes)[part]:
                    continue
                many = whole if part == 0 else 1
                g = self._loop(f"g{stage}{part}", many)
                t = self._loop(f"t{stage}{part}", lanes)
                place = g * LANES + t + (whole * LANES if part else 0)
                key, _ = self.key(start + place)
                if stage:
                    before = ex.var(f"least{stage}{part}", k)
                    em.emit(Load(before, self.least, (place,)))
                    key = ex.minimum(before, key)
                em.emit(Store(self.least, (place,), key))
                self._end(t, lanes, VECTOR if lanes == LANES else SERIAL)
                self._end(g, many)
            self._end(j, count)

    def _bound(self) -> Expr:
        """Return the largest key of a group with fewer smaller ones than are wanted."""
        em, k = self.em, self.unsigned
        g, j = self._loop("group", self.groups), ex.var("against")
        mine, other = ex.var("mine", k), ex.var("other", k)
        rank = ex.var("smaller", dt.int32)
        em.emit(Load(mine, self.least, (g,)))
        one, none = ex.const(1, dt.int32), ex.const(0, dt.int32)
        em.emit(Reduce((Axis(j, ex.index(self.groups)),), (Accumulator(
            rank, none, rank + ex.where(other.lt(mine), one, none), lhs(rank) + rhs(rank)),),
            (Load(other, self.least, (j,)),)))  # fmt: skip
        em.emit(Store(self.below, (g,), ex.where(rank.lt(self.keep), mine, ex.const(0, k))))
        self._end(g, self.groups)
        i = ex.var("bound_at")
        key, bound = ex.var("bound_key", k), ex.var("bound", k)
        em.emit(Reduce((Axis(i, ex.index(self.groups)),), (Accumulator(
            bound, ex.const(0, k), ex.maximum(bound, key), ex.maximum(lhs(bound), rhs(bound))),),
            (Load(key, self.below, (i,)),)))  # fmt: skip
        return bound

    def _collect(self, bound: Expr) -> None:
        """Collect elements below the bound, and of those at the bound the first ones."""
        em, k = self.em, self.unsigned
        for memory in (self.count, self.ties):
            em.emit(Store(memory, ZERO, ex.index(0)))
        whole, rest = divmod(self.n, LANES)
        b = self._loop("block", whole)
        em.open()
        t = em.loop_var("look", LANES)
        key, _ = self.key(b * LANES + t)
        body: tuple[Stmt, ...] = em.close()
        least = ex.var("block_least", k)
        em.emit(Reduce((Axis(t, ex.index(LANES), VECTOR),), (Accumulator(
            least, ex.const(k.max, k), ex.minimum(least, key),
            ex.minimum(lhs(least), rhs(least))),), body))  # fmt: skip
        em.open()
        t = self._loop("take", LANES)
        self._take(b * LANES + t, bound, "")
        self._end(t, LANES)
        em.emit(If(least.le(bound), em.close()))
        self._end(b, whole)
        if rest:
            t = self._loop("take_rest", rest)
            self._take(t + whole * LANES, bound, "_rest")
            self._end(t, rest)

    def _take(self, place: Expr, bound: Expr, suffix: str) -> None:
        em = self.em
        key, value = self.key(place)
        key = self._let(f"key{suffix}", key)
        count, ties = ex.var(f"count{suffix}"), ex.var(f"ties{suffix}")
        em.emit(Load(count, self.count, ZERO))
        em.emit(Load(ties, self.ties, ZERO))
        tied = self._let(f"tied{suffix}", key.eq(bound) & ties.lt(self.keep))
        wanted = self._let(f"wanted{suffix}", key.lt(bound) | tied)
        held = self._let(f"held{suffix}", wanted & count.lt(self.room))
        for memory, item in ((self.found_key, key), (self.found, value), (self.found_at, place)):
            em.emit(Store(memory, (count,), item, held))
        one, none = ex.index(1), ex.index(0)
        em.emit(Store(self.count, ZERO, count + ex.where(wanted, one, none)))
        em.emit(Store(self.ties, ZERO, ties + ex.where(tied, one, none)))

    def _order(self, count: Expr) -> None:
        """Give each element found its position: how many are smaller, or equal and before it."""
        em, k = self.em, self.unsigned
        i, j = self._loop("i_found", self.room), ex.var("j_found")
        mine, other = ex.var("mine_found", k), ex.var("other_found", k)
        rank = ex.var("rank_found", dt.int32)
        em.emit(Load(mine, self.found_key, (i,)))
        first = other.lt(mine) | (other.eq(mine) & j.lt(i))
        em.emit(Reduce((Axis(j, count),), (Accumulator(
            rank, ex.const(0, dt.int32), ex.where(first, rank + 1, rank), lhs(rank) + rhs(rank)),),
            (Load(other, self.found_key, (j,)),)))  # fmt: skip
        em.emit(Store(self.ranks, (i,), rank))
        self._end(i, count)
        i = self._loop("m_found", self.room)
        to, value = ex.var("to_found", dt.int32), ex.var("value_found", self.found.dtype)
        at = ex.var("at_found")
        em.emit(Load(to, self.ranks, (i,)))
        em.emit(Load(value, self.found, (i,)))
        em.emit(Load(at, self.found_at, (i,)))
        self.put(ex.cast(to, dt.int64), value, at, to.lt(self.keep))
        self._end(i, count)
