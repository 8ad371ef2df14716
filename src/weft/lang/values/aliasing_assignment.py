"""Assignments between parts of one array that have elements in common.

NumPy sets them as if all were read before any is written. Here the elements are set one by one, in
an order in which none is read after it was written. With ``w`` where a place is written and ``r``
where one is read, place ``q`` has to come before ``p`` if ``r(q) == w(p)``. Each axis of an array
goes along an axis of the memory of its own, so an order for each axis is one for all of them:

* equal steps: up if the part which is read is ahead, else down
* unlike steps of one sign: up on one side of the place that both have in common, down on the other
* an axis on which one row is read for all: that row is set last
* a row that a column is set to: the one place that both have in common is set last or first

In memory of one axis (arrays of any strides) the places go by their addresses, the axis of long
steps outside. Where none of these serves the elements that are read are copied, if they are known
to be few; else the kernel is stopped where the parts have elements in common.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Alloc
from weft.lang.core import array_union
from weft.lang.core.element_types import array_of
from weft.lang.core.emitter import negation
from weft.lang.core.values import Fields, View, ViewAxis

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["Order", "ordered"]

_MOST_COPIED: Final = 4096  # bytes that a thread copies
_MESSAGE: Final = "an assignment of an array's own elements in reverse order"

Array = View | Fields


class Shift(Record):
    """An axis that is walked down where `down` holds."""

    down: Expr

    def place(self, i: Expr, extent: Expr) -> Expr:
        """Return the place along the axis at turn `i`."""
        first = ex.where(self.down, extent - 1, ex.index(0))
        return first + i * ex.where(self.down, ex.index(-1), ex.index(1))


class Halves(Record):
    """An axis that is walked down from its end to a place, or with ``upper`` not set below it."""

    middle: Expr
    upper: Expr

    def place(self, i: Expr, extent: Expr) -> Expr:
        """Return the place along the axis at turn `i`."""
        below = i.lt(self.middle)
        return ex.where(self.upper, ex.where(below, i, extent - 1 + self.middle - i),
                        ex.where(below, self.middle - 1 - i, i))


class Last(Record):
    """An axis of which one place comes last; none if `last` is not on it."""

    last: Expr

    def place(self, i: Expr, extent: Expr) -> Expr:
        """Return the place along the axis at turn `i`."""
        inside = ex.binary(Op.AND, ex.index(0).le(self.last), self.last.lt(extent))
        early = ex.binary(Op.OR, ex.unary(Op.NOT, inside), i.lt(self.last))
        return ex.where(early, i, ex.where(i.eq(extent - 1), self.last, i + 1))


class Either(Record):
    """An axis that goes in one order where `test` holds, else in another one."""

    test: Expr
    then: Last
    orelse: Any

    def place(self, i: Expr, extent: Expr) -> Expr:
        """Return the place along the axis at turn `i`."""
        return ex.where(self.test, self.then.place(i, extent), self.orelse.place(i, extent))


class Order(Record):
    """In which order the elements of an array are set.

    ``axes`` says it for some of its axes; the last axis is the inner loop, or with ``swapped`` the
    first one.
    """

    axes: tuple[tuple[int, Shift | Halves | Last | Either], ...] = ()
    swapped: Expr = ex.const(False, dt.bool_)

    def extents(self, shape: Sequence[Expr]) -> list[Expr]:
        """Return how many turns the loops make, from the outer one to the inner one."""
        return [ex.where(self.swapped, b, a) for a, b in zip(shape, reversed(shape), strict=True)]

    def place(self, turns: Sequence[Expr], shape: Sequence[Expr]) -> list[Expr]:
        """Return the place that is set in a turn of these loops."""
        found = [ex.where(self.swapped, b, a)
                 for a, b in zip(turns, reversed(turns), strict=True)]
        for k, axis in self.axes:
            found[k] = axis.place(found[k], shape[k])
        return found


_AS_WRITTEN: Final = Order()


def ordered(c: Context, array: Any, values: Sequence[Any],
            node: ast.AST) -> tuple[list[Any], Order]:  # fmt: skip
    """Return the order in which the elements of an array are set to what arrays have there.

    The arrays come back, too: a copy in place of each that no order serves.
    """
    found, order = [], _AS_WRITTEN
    for value in values:
        if array_union.is_array_union(array) or array_union.is_array_union(value):
            _require_apart_each(c, array, value, node)
        elif (pairs := _pairs(array, value)):
            own = _order(c, array, value, pairs, node)
            if own is None or (order != _AS_WRITTEN and own not in (order, _AS_WRITTEN)):
                value = _copy(c, pairs, value, node)
            elif own != _AS_WRITTEN:
                order = own
        found.append(value)
    return found, order


def _parts(array: Array) -> Iterator[View]:
    if isinstance(array, Fields):
        for part in array.parts:
            yield from _parts(part)
    else:
        yield array


def _are_alike(array: Array, value: Array) -> bool:
    if isinstance(array, Fields) and isinstance(value, Fields):
        return len(array.parts) == len(value.parts) and all(
            map(_are_alike, array.parts, value.parts))
    return type(array) is type(value)


def _pairs(array: Any, value: Any) -> list[tuple[View, View]]:
    """Return the parts of both that lie in one memory, unless they are the same elements."""
    if not isinstance(value, View | Fields) or not value.shape or array == value:
        return []
    if _are_alike(array, value):
        return [(w, r) for w, r in zip(_parts(array), _parts(value), strict=True)
                if w.memory is r.memory]
    return [(w, r) for w in _parts(array) for r in _parts(value) if w.memory is r.memory]


def _order(c: Context, array: Array, value: Array, pairs: list[tuple[View, View]],
           node: ast.AST) -> Order | None:  # fmt: skip
    """Return an order in which no element is read after it was written, None if there is none."""
    w, r = pairs[0]
    if not _are_alike(array, value) or w.dtype is not r.dtype:
        return None
    n, m = len(array.shape), len(value.shape)
    beside: list[ViewAxis | None] = [None] * (n - m)
    for a, b in zip(w.axes[n - m:n], r.axes[:m], strict=True):
        spread = ex.is_const(b.step, 0) or (
            ex.is_const(b.extent, 1) and not ex.is_const(a.extent, 1))
        if not spread and a.extent is not b.extent:
            same = a.extent.eq(b.extent)
            if not c.holds(same):
                c.require(_either(same, _all_apart(pairs)), _MESSAGE, node)
        beside.append(None if spread else b)
    both = [(k, a, b) for k, (a, b) in enumerate(zip(w.axes[:n], beside, strict=True))
            if not ex.is_const(a.extent, 1)]
    if len(w.starts) == 1 and len(both) > 1:
        return _by_address(c, both, w, r, pairs, node)
    orders = []
    for k, axis, other in both:
        own = _along(c, axis, other, w, r, [read for _, _, read in both], node)
        if own is None:
            return None
        orders.append((k, own))
    return Order(tuple(orders))


def _along(c: Context, a: ViewAxis, b: ViewAxis | None, w: View, r: View,
           read: list[ViewAxis | None], node: ast.AST,
           ) -> Shift | Halves | Last | Either | None:  # fmt: skip
    """Return in which order the places of an axis are set, None if no order serves."""
    ahead = w.starts[a.axis] - r.starts[a.axis]
    if b is None:
        if any(other is not None and other.axis == a.axis for other in read):
            return None
        return Last(c.bind(ex.unary(Op.NEG, ahead) // a.step, "last", node))
    if b.step.op is Op.WHERE and ex.is_const(b.step.args[1], 0):  # one element for all, perhaps
        more = b.replace(step=b.step.args[2])
        last = _along(c, a, None, w, r, [axis for axis in read if axis is not b], node)
        own = _along(c, a, more, w, r, [more if axis is b else axis for axis in read], node)
        return Either(b.step.args[0], last, own) if isinstance(last, Last) and own else None
    if a.axis != b.axis:
        return _crossing(c, a, b, w, r, read, node)
    if a.step is b.step or a.step == b.step:
        down = ex.where(a.step.lt(0), ahead.lt(0), ex.index(0).lt(ahead))
        return Shift(c.bind(down, "down", node))
    opposite = a.step.lt(0).ne(b.step.lt(0))
    if c.holds(opposite):
        return None
    if not c.holds(negation(opposite)):
        c.require(_either(negation(opposite), _apart(w, r)), _MESSAGE, node)
    return _halves(c, a, b, ahead, node)


def _halves(c: Context, a: ViewAxis, b: ViewAxis, ahead: Expr, node: ast.AST) -> Halves:
    """Return the order along an axis for steps of one sign."""
    sign = ex.where(b.step.lt(0), ex.index(-1), ex.index(1))
    away, ahead = (a.step - b.step) * sign, ahead * sign  # away: more ahead from place to place
    size = ex.where(away.eq(0), ex.index(1), ex.maximum(away, ex.unary(Op.NEG, away)))
    upper = c.bind(ex.index(0).lt(away), "upper", node)
    middle = ex.where(upper, ex.unary(Op.NEG, ahead) // size + 1, (ahead + size - 1) // size)
    whole = ex.where(ex.index(0).lt(ahead), a.extent, ex.index(0))
    middle = ex.where(away.eq(0), whole, ex.minimum(ex.maximum(middle, 0), a.extent))
    return Halves(c.bind(middle, "middle", node), upper)


def _crossing(c: Context, a: ViewAxis, b: ViewAxis, w: View, r: View,
              read: list[ViewAxis | None], node: ast.AST) -> Shift | None:  # fmt: skip
    """Return the order of an axis that is written along one axis and read along another."""
    others = [axis.axis for axis in read if axis is not None and axis is not b]
    if a.axis in others or b.axis in [axis.axis for axis in w.axes if axis.step != ex.index(0)]:
        return None
    written = (r.starts[a.axis] - w.starts[a.axis]) // a.step
    first = (w.starts[b.axis] - r.starts[b.axis]) // b.step
    return Shift(c.bind(written.lt(first), "down", node))


def _by_address(c: Context, both: list[tuple[int, ViewAxis, ViewAxis | None]], w: View,
                r: View, pairs: list[tuple[View, View]], node: ast.AST,
                ) -> Order | None:  # fmt: skip
    """Return the order of places in memory of one axis, None if they do not move together."""
    if any(b is None or (a.step is not b.step and a.step != b.step) for _, a, b in both):
        return None
    ahead = w.starts[0] - r.starts[0]
    axes = [a for _, a, _ in both]
    inward, outward = _is_nested(axes), _is_nested(axes[::-1])
    fits = _either(inward, outward, ahead.eq(0))
    if not c.holds(fits):
        c.require(_either(fits, _all_apart(pairs)), _MESSAGE, node)
    down = ex.index(0).lt(ahead)
    turned = tuple((k, Shift(c.bind(ex.where(a.step.lt(0), ahead.lt(0), down), "down", node)))
                   for k, a, _ in both)
    return Order(turned, c.bind(ex.unary(Op.NOT, inward), "swapped", node))


def _is_nested(axes: Sequence[ViewAxis]) -> Expr:
    """Whether each step of an axis is longer than the ways along all further axes together."""
    way, found = ex.index(0), ex.const(True, dt.bool_)
    for axis in reversed(axes):
        step = ex.maximum(axis.step, ex.unary(Op.NEG, axis.step))
        found = ex.binary(Op.AND, found, way.lt(step))
        way = way + (axis.extent - 1) * step
    return found


def _either(*conditions: Expr) -> Expr:
    return reduce(lambda a, b: ex.binary(Op.OR, a, b), conditions)


def _copy(c: Context, pairs: list[tuple[View, View]], value: Array,
          node: ast.AST) -> Array:  # fmt: skip
    """Return a copy of an array; stop the kernel where it may be large and is overwritten."""
    apart = _all_apart(pairs)
    if c.holds(apart):
        return value
    sizes = [(part.shape, part.dtype.itemsize) for part in _parts(value)]
    if any(n.op is not Op.CONST for shape, _ in sizes for n in shape) or (
        sum(math.prod(int(n.attr) for n in shape) * size for shape, size in sizes) > _MOST_COPIED
    ):
        c.require(apart, _MESSAGE, node)
        return value
    copy = _like(c, value, node)
    c.write(copy, value, node)
    return copy


def _like(c: Context, array: Array, node: ast.AST) -> Array:
    """Return a local array for a copy of an array."""
    if isinstance(array, Fields):
        return array.replace(parts=tuple(_like(c, part, node) for part in array.parts))
    made = array_of(c.name("copy"), array.dtype, array.shape, "local", c.flat)
    c.emit(Alloc(made.memory, 16), node)
    return made


def _all_apart(pairs: list[tuple[View, View]]) -> Expr:
    return reduce(lambda a, b: ex.binary(Op.AND, a, b), (_apart(w, r) for w, r in pairs))


def _apart(w: View, r: View) -> Expr:
    """Whether two parts of a memory have no common elements, as far as their ends tell.

    Nothing is in the way of parts of one element, or of none.
    """
    unit = min(min(p.dtype.itemsize, p.memory.dtype.itemsize) for p in (w, r))
    apart = reduce(lambda a, b: ex.binary(Op.AND, a, b), (n.le(1) for n in w.shape))
    apart = _either(apart, *(n.le(0) for n in w.shape))
    for k in range(len(w.starts)):
        (low, high), (other_low, other_high) = (_ends(p, k, unit) for p in (w, r))
        apart = _either(apart, high.lt(other_low), other_high.lt(low))
    return apart


def _ends(part: View, axis: int, unit: int) -> tuple[Expr, Expr]:
    """Return the first and the last index along an axis of the memory, in units of bytes there."""
    own = min(part.dtype.itemsize, part.memory.dtype.itemsize)
    scale, width = (own // unit, part.dtype.itemsize // unit) if axis == len(part.starts) - 1 else (
        1, 1)
    low = high = part.starts[axis]
    for a in part.axes:
        if a.axis == axis:
            end = (a.extent - 1) * a.step
            low, high = low + ex.minimum(end, 0), high + ex.maximum(end, 0)
    return low * scale, high * scale + (width - 1)


def _require_apart_each(c: Context, array: Any, value: Any, node: ast.AST) -> None:
    """Stop the kernel where one of several arrays is set to elements of its own."""
    for k, option in enumerate(array_union.options_of(array)):
        for j, other in enumerate(array_union.options_of(value)):
            fits = [_apart(w, r) for w, r in _pairs(option, other)]
            for held, place in ((array, k), (value, j)):
                if array_union.is_array_union(held):
                    fits = [_either(fit, held.items[0].ne(place)) for fit in fits]
            for fit in fits:
                c.require(fit, _MESSAGE, node)
