"""Summaries of stretches of a row: what a stretch does to a running value carried into it.

A stretch of a scan is summarised by a few values. Those of two neighbours make that of both, so a
row can be cut anywhere, and the running value before each part follows from the parts before it.

=============  =====================================================  ==============================
scan           summary                                                running value
=============  =====================================================  ==============================
sum, extreme,  its total                                              the same
int. product
float32 sum    its total, and what its additions lost                 the same
log-sum        its logarithm                                          the same
product        its total, the least and the largest running product   the product
recurrence     factor, offset, and the largest of each on the way     the value
=============  =====================================================  ==============================

Products of floats and recurrences are `is_ordered`: a running value passes a whole stretch only
where no value in between can leave the range of the type, and else element by element.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, For, Let, Load, Memory, Store
from weft.kernelize.common.sizes import upper_bound
from weft.kernelize.scans.running_value import Scan, corrected, lost_by_sum

__all__ = ["Summary", "past_product", "past_recurrence", "summary_of"]

MARGIN: Final = 64.0  # factor by which intermediate values stay away from the ends of the range

Values = tuple[Expr, ...]
Read = Callable[[Expr], Values]  # the operands of an element of a stretch


def summary_of(scan: Scan) -> Summary:
    """Return how stretches of a scan are summarised."""
    if scan.is_linear:
        return _Recurrence(scan)
    if scan.is_product:
        return _Product(scan)
    if scan.is_logarithm:
        return _Logarithm(scan)
    return _Compensated(scan) if scan.is_compensated else _Total(scan)


class Summary(ABC):
    """How stretches of one scan are summarised and joined.

    Attributes
    ----------
    parts, carried : tuple of (str, DType)
        The values of a summary, and of a running value, in their order.
    is_ordered : bool
        Whether a running value passes a stretch by `past`, and not by `join`.
    """

    is_ordered = False

    def __init__(self, scan: Scan, *parts: tuple[str, DType]) -> None:
        self.scan, self.em, self.wide = scan, scan.em, scan.wide
        self.parts = parts or (("total", scan.wide),)
        self.carried = (("value", scan.wide),) if self.is_ordered else self.parts

    def nothing(self) -> Values:
        """Return the summary of no element, and, where they are alike, the value before a row."""
        return (self.scan.neutral(),)

    def start(self) -> Values:
        """Return the running value before a row."""
        return (self.scan.neutral(),) if self.is_ordered else self.nothing()

    def fill(self) -> Values:
        """Return operands of an element that changes no running value."""
        return (self.scan.neutral(),)

    @abstractmethod
    def add(self, before: Values, element: Values) -> Values:
        """Return the summary of a stretch with one more element."""

    @abstractmethod
    def join(self, first: Values, second: Values) -> Values:
        """Return the summary of two neighbouring stretches."""

    def step(self, before: Values, element: Values) -> Values:
        """Return the running value with one more element."""
        return self.add(before, element)

    def value(self, running: Values) -> Expr:
        """Return the result that a running value stands for."""
        return running[0]

    def past(self, running: Values, known: Values) -> tuple[Expr, Values]:
        """Return whether a running value may pass a stretch as a whole, and what it is then."""
        return ex.const(True, dt.bool_), self.join(running, known)

    def of(self, name: str, count: int | Expr, read: Read) -> Values:
        """Emit the summary of so many elements."""
        registers = self.registers(self.parts, self.nothing())
        self.walk(name, count, read, registers, self.add)
        return self.load(registers)

    def walk(self, name: str, count: int | Expr, read: Read, registers: Sequence[Memory],
             step: Callable[[Values, Values], Values],
             out: Callable[[Expr, Values], None] | None = None) -> None:  # fmt: skip
        """Emit a loop over elements that updates values, and does something with each of them."""
        em = self.em
        em.open()
        extent = ex.index(count) if isinstance(count, int) else count
        k = em.loop_var(name, upper_bound(extent))
        after = self.let(step(self.load(registers), read(k)))
        self.store(registers, after)
        if out is not None:
            out(k, after)
        em.emit(For(k, extent, SERIAL, em.close()))

    def registers(self, parts: Sequence[tuple[str, DType]], values: Values) -> list[Memory]:
        """Emit registers with values."""
        made = [Memory(self.em.fresh(name, dtype).attr, dtype, (), "register")
                for name, dtype in parts]  # fmt: skip
        for memory in made:
            self.em.alloc(memory)
        self.store(made, values)
        return made

    def load(self, memories: Sequence[Memory], *index: Expr) -> Values:
        """Emit loads of values at one index."""
        names = [self.em.fresh(m.name, m.dtype) for m in memories]
        for name, memory in zip(names, memories, strict=True):
            self.em.emit(Load(name, memory, index))
        return tuple(names)

    def store(self, memories: Sequence[Memory], values: Values, *index: Expr) -> None:
        """Emit stores of values at one index."""
        for memory, value in zip(memories, values, strict=True):
            self.em.emit(Store(memory, index, value))

    def let(self, values: Values) -> Values:
        """Emit names for values."""
        return tuple(map(self.let_one, values))

    def let_one(self, value: Expr) -> Expr:
        """Emit a name for a value."""
        if value.op is Op.VAR:
            return value
        name = self.em.fresh("part", value.dtype)
        self.em.emit(Let(name, value))
        return name


class _Total(Summary):
    """Sums, extremes and products of integers, which are joined in any grouping."""

    def add(self, before: Values, element: Values) -> Values:
        return (self.scan.join(before[0], element[0]),)

    def join(self, first: Values, second: Values) -> Values:
        return (self.scan.join(first[0], second[0]),)


class _Compensated(Summary):
    """Sums of float32 with what their additions lost (Neumaier, 1974)."""

    def __init__(self, scan: Scan) -> None:
        super().__init__(scan, ("total", scan.wide), ("lost", scan.wide))

    def nothing(self) -> Values:
        return (self.scan.neutral(), self.scan.neutral())

    def add(self, before: Values, element: Values) -> Values:
        after = self.let_one(before[0] + element[0])
        return after, before[1] + lost_by_sum(before[0], element[0], after)

    def join(self, first: Values, second: Values) -> Values:
        after = self.let_one(first[0] + second[0])
        return after, (first[1] + second[1]) + lost_by_sum(first[0], second[0], after)

    def value(self, running: Values) -> Expr:
        return corrected(*running)


class _Logarithm(_Total):
    """Logarithms of sums of exponentials: of a stretch, relative to its largest element."""

    def of(self, name: str, count: int | Expr, read: Read) -> Values:
        wide, zero = (("top", self.wide),), ex.const(0, self.wide)
        tops = self.registers(wide, self.nothing())
        self.walk(name, count, read, tops, lambda top, x: (ex.maximum(top[0], x[0]),))
        (top,) = self.load(tops)
        endless = self.let_one(ex.unary(Op.ABS, top).eq(float("inf")))
        base = self.let_one(ex.where(endless, zero, top))
        sums = self.registers(wide, (zero,))
        self.walk(f"{name}e", count, read, sums,
                  lambda total, x: (total[0] + ex.unary(Op.EXP, x[0] - base),))
        (total,) = self.load(sums)
        return (ex.where(endless, top, base + ex.unary(Op.LOG, total)),)


class _Product(Summary):
    """Products of floats: the total, the least and the largest magnitude on the way to it."""

    is_ordered = True

    def __init__(self, scan: Scan) -> None:
        super().__init__(scan, *((name, scan.wide) for name in ("total", "least", "most")))

    def nothing(self) -> Values:
        return (self.scan.neutral(),) * 3

    def add(self, before: Values, element: Values) -> Values:
        after = self.let_one(before[0] * element[0])
        size = self.let_one(ex.unary(Op.ABS, after))
        return (after, *self._reach(before, size, size))

    def join(self, first: Values, second: Values) -> Values:
        size = self.let_one(ex.unary(Op.ABS, first[0]))
        low, high = self.let((size * second[1], size * second[2]))
        return (first[0] * second[0], *self._reach(first, low, high))

    def _reach(self, before: Values, low: Expr, high: Expr) -> Values:
        return (ex.where(low.lt(before[1]), low, before[1]),
                ex.where(before[2].lt(high), high, before[2]))

    def step(self, before: Values, element: Values) -> Values:
        return (before[0] * element[0],)

    def past(self, running: Values, known: Values) -> tuple[Expr, Values]:
        safe, after = past_product(running[0], *known)
        return safe, (after,)


class _Recurrence(Summary):
    """Linear recurrences: factor and offset, and the largest magnitude of each on the way."""

    is_ordered = True

    def __init__(self, scan: Scan) -> None:
        self.exact = dt.float64 if scan.wide is dt.float32 and scan.has_double else scan.wide
        super().__init__(scan, *((name, self.exact) for name in (
            "factor", "offset", "steepest", "farthest")))

    def nothing(self) -> Values:
        one, none = (ex.const(n, self.exact) for n in (1, 0))
        return one, none, one, none

    def fill(self) -> Values:
        return tuple(ex.const(n, self.wide) for n in (1, 0))

    def add(self, before: Values, element: Values) -> Values:
        a, b = (ex.cast(e, self.exact) for e in element)
        factor, offset = self.let((a * before[0], ex.mad(a, before[1], b)))
        return (factor, offset, self._larger(before[2], ex.unary(Op.ABS, factor)),
                self._larger(before[3], ex.unary(Op.ABS, offset)))

    def join(self, first: Values, second: Values) -> Values:
        steep, far = (ex.unary(Op.ABS, value) for value in first[:2])
        reach = ex.mad(second[2], far, second[3])
        return (second[0] * first[0], ex.mad(second[0], first[1], second[1]),
                self._larger(first[2], second[2] * steep), self._larger(first[3], reach))

    def _larger(self, most: Expr, size: Expr) -> Expr:
        size = self.let_one(size)
        return ex.where(most.lt(size), size, most)

    def step(self, before: Values, element: Values) -> Values:
        return (ex.mad(element[0], before[0], element[1]),)

    def past(self, running: Values, known: Values) -> tuple[Expr, Values]:
        safe, after = past_recurrence(running[0], *known)
        return safe, (after,)


def past_product(carry: Expr, total: Expr, least: Expr, most: Expr) -> tuple[Expr, Expr]:
    """Return whether ``carry * total`` is what the loop over a stretch finds, and that."""
    size, wide = ex.unary(Op.ABS, carry), carry.dtype
    infinity = ex.const(float("inf"), wide)
    low, high = (ex.const(v, wide) for v in _range(wide))
    inside = low.le(least) & low.le(size * least) & (size * most).le(high)
    # A stretch of no infinite value has none if all its running products are finite; a zero or a
    # product that died away shows in the last one.
    zero = size.eq(0) & ex.unary(Op.ABS, total).lt(infinity)
    endless = size.eq(infinity) & ex.const(0, wide).lt(ex.unary(Op.ABS, total))
    return inside | zero | endless | carry.ne(carry), carry * total


def past_recurrence(carry: Expr, factor: Expr, offset: Expr, steepest: Expr,
                    farthest: Expr) -> tuple[Expr, Expr]:  # fmt: skip
    """Return whether ``carry * factor + offset`` is what the loop finds, and that."""
    wide, exact = carry.dtype, factor.dtype
    before = ex.cast(carry, exact)
    high = ex.const(_range(wide)[1], exact)
    reach = ex.unary(Op.ABS, before) * steepest + farthest
    inside = reach.le(high) & ex.unary(Op.ABS, factor).le(high) & (
        ex.unary(Op.ABS, offset).le(high))
    after = ex.cast(ex.mad(before, factor, offset), wide)
    lost = carry.ne(carry)
    return inside | lost, ex.where(lost, carry, after)


def _range(wide: DType) -> tuple[float, float]:
    """Return the magnitudes between which a factor of `MARGIN` changes nothing."""
    return {"f32": (2.0**-126 * MARGIN, 2.0**127 / MARGIN),
            "f64": (2.0**-1022 * MARGIN, 2.0**1023 / MARGIN)}[wide.text]
