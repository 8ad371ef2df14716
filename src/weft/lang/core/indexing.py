"""Parts of arrays in kernels: elements, slices, what an array tells of itself."""

from __future__ import annotations

import ast
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Load
from weft.lang.core import scalars
from weft.lang.core.context import VISIT, Context
from weft.lang.core.values import (
    Group,
    Known,
    Value,
    View,
    ViewAxis,
    axes_of,
)

__all__ = ["Indexing", "clipped", "is_new", "slice_of", "written_out"]

_FAR: Final = (1 << 63) - 1  # an end that is left out, for numba


def is_new(part: tuple[ast.expr, Any]) -> bool:
    """Whether a part of a subscript is None, which makes an axis of one element."""
    return isinstance(part[1], Known) and part[1].value is None


class Held(ast.expr):
    """Stands in a subscript for a value that has been read."""

    def __init__(self, value: Value, node: ast.AST) -> None:
        super().__init__()
        self.value = value
        ast.copy_location(self, node)


def slice_of(start: Value, stop: Value, step: Value) -> Group:
    """Return what ``slice(start, stop, step)`` is; what is left out is what numba has for it.

    So its parts are numbers, which change from turn to turn of a loop and meet behind branches.
    """
    step = Known(1) if _is_none(step) else step
    down = step.lt(0) if isinstance(step, Expr) else (
        isinstance(step, Known) and isinstance(step.value, int) and step.value < 0)
    start = _left_out(down, _FAR, 0) if _is_none(start) else start
    stop = _left_out(down, -_FAR - 1, _FAR) if _is_none(stop) else stop
    return Group((start, stop, step), ("start", "stop", "step"), slice)


def _is_none(value: Value) -> bool:
    return isinstance(value, Known) and value.value is None


def _left_out(down: Expr | bool, low: int, high: int) -> Value:
    """Return the end of a slice that is left out: one where it goes down, another where up."""
    if isinstance(down, bool):
        return Known(low if down else high)
    return ex.where(down, ex.index(low), ex.index(high))


def clipped(c: Context, owner: Group, size: Expr, node: ast.AST) -> Group:
    """Return ``owner.indices(size)``: start, stop and step of a slice of so many elements."""
    given = [c.scalar(v, node, "an integer") for v in owner.items]
    for e in given:
        if e.dtype.is_float:
            raise c.wrong(node, f"a slice with an end of {e.dtype.name}", "convert it with int()")
    start, stop, step = (scalars.convert(e, dt.int64) for e in given)
    c.require(step.ne(0), "a slice with step 0", node)
    down = step.lt(0)
    least, most = ex.where(down, ex.index(-1), ex.index(0)), ex.where(down, size - 1, size)
    ends = [ex.where(e.lt(0), ex.maximum(e + size, least), ex.minimum(e, most))
            for e in (start, stop)]
    return Group((*ends, step))


def written_out(value: Value | None, key: ast.expr) -> ast.Slice | None:
    """Return a slice that is a value as one that stands in a subscript, None for other values."""
    if not isinstance(value, Group) or value.kind is not slice:
        return None
    ends = [None if isinstance(v, Known) and v.value is None else Held(v, key)
            for v in value.items]
    return ast.copy_location(ast.Slice(*ends), key)


class Indexing(Context):
    """Reads and writes parts of arrays."""

    def part(self, view: View, parts: list[tuple[ast.expr, Value | None]],
             node: ast.AST) -> View:  # fmt: skip
        """Return the part of a view at some indices and slices (None)."""
        dots = [k for k, (_, v) in enumerate(parts)
                if isinstance(v, Known) and v.value is Ellipsis]
        if dots:
            missing = len(view.axes) - len(parts) + 1 + sum(map(is_new, parts))
            fill = ast.copy_location(ast.Slice(), parts[dots[0]][0])
            parts[dots[0]:dots[0] + 1] = [(fill, None)] * missing
        count = len(parts) - sum(map(is_new, parts))
        if count > len(view.axes):
            raise self.wrong(node, f"{count} indices into an array of "
                             f"{axes_of(len(view.axes))}")
        starts, axes = list(view.starts), []
        rest = iter(view.axes)
        for key, value in parts:
            if is_new((key, value)):
                axes.append(ViewAxis(ex.index(1), 0, ex.index(0)))
                continue
            axis = next(rest)
            if value is None:
                assert isinstance(key, ast.Slice)
                first, made = self._sliced(axis, key)
                starts[axis.axis] = starts[axis.axis] + first * axis.step
                axes.append(made)
                continue
            place = self.index(value, axis.extent, key)
            starts[axis.axis] = starts[axis.axis] + place * axis.step
        axes.extend(rest)
        return View(view.memory, tuple(starts), tuple(axes), view.readonly, view.seen)

    def index(self, value: Value, extent: Expr, node: ast.AST) -> Expr:
        """Return an index, checked against its axis."""
        if isinstance(value, View) and not value.axes:  # an array of one number
            held = self.fresh(value.memory.name, value.memory.dtype)
            self.emit(Load(held, value.memory, value.starts), node)
            value = held
        i = self.scalar(value, node, "an integer index")
        if i.dtype.is_float:
            raise self.wrong(node, f"an index of {i.dtype.name}", "convert it with int()")
        i = scalars.convert(i, dt.int64)
        if self.wraps:
            i = i + extent if i.op is Op.CONST and i.attr < 0 else i
            if i.op is not Op.CONST and self.ranges.of(i).lo < 0:
                i = ex.where(i.lt(0), i + extent, i)
        elif i.op is Op.CONST and i.attr < 0 and not self.sanitised:
            raise self.wrong(node, f"index {i.attr} is out of bounds",
                             "kernels do not count from the end: use a.shape[0] - 1")
        if self._is_surely_outside(i, extent):
            raise self.wrong(node, f"index {i.attr} is out of bounds for an axis of {extent.attr}")
        if self.checked:
            inside = ex.binary(Op.AND, ex.index(0).le(i), i.lt(extent))
            self.require(inside, "index out of bounds", node, i, extent)
        return i

    def _is_surely_outside(self, i: Expr, extent: Expr) -> bool:
        """Whether an index is an error of the kernel: outside of its axis wherever it is read.

        numba's kernels stop only where a thread comes there, as sanitised ones do. What stands
        under a condition that is known to be false, such as ``if x.size > 3``, is no error.
        """
        if i.op is not Op.CONST or extent.op is not Op.CONST or 0 <= i.attr < extent.attr:
            return False
        return not (self.sanitised or self.wraps or self.holds(ex.const(False, dt.bool_)))

    def _sliced(self, axis: ViewAxis, key: ast.Slice) -> tuple[Expr, ViewAxis]:
        """Return where a slice of an axis begins, and the axis that it makes."""
        step = ex.index(1) if key.step is None else self._end(self.visit(key.step), key)
        if ex.is_const(step, 0):
            raise self.wrong(key, "a slice with step 0")
        if step.op is not Op.CONST:
            step = self.bind(step, "step", key)
            self.require(step.ne(0), "a slice with step 0", key)
        steps = self.ranges.of(step)
        down = ex.const(steps.hi < 0, dt.bool_) if steps.lo >= 0 or steps.hi < 0 else step.lt(0)
        last = _either(down, axis.extent - 1, axis.extent)
        before = _either(down, ex.index(-1), ex.index(0))  # where a walk down ends
        defaults = _either(down, last, ex.index(0)), _either(down, ex.index(-1), last)
        ends = []
        cut = None
        for end, default in zip((key.lower, key.upper), defaults, strict=True):
            e = None if end is None else self.visit(end)
            if e is None or (isinstance(e, Known) and e.value is None):
                ends.append(default)
                continue
            place = self._end(e, key)
            if self.ranges.of(place).lo < 0:
                place = ex.where(place.lt(0), ex.maximum(place + axis.extent, before), place)
            ends.append(ex.minimum(place, last))
            if key.upper is None and ex.is_const(step, 1):
                cut = ends[0], place, axis.extent
        gap = _either(down, ends[0] - ends[1], ends[1] - ends[0])
        size = _either(down, ex.unary(Op.NEG, step), step)
        turns = (gap + (size - 1)) // size if _is_small(size) else (gap - 1) // size + 1
        count = ex.maximum(turns, 0)
        return ends[0], ViewAxis(count, axis.axis, axis.step * step, cut)

    def _end(self, value: Value, key: ast.Slice) -> Expr:
        """Return an end or the step of a slice; floats are cut off in numba's kernels."""
        place = self.scalar(value, key, "an integer")
        if place.dtype.is_float and not self.wraps:
            raise self.wrong(key, f"a slice with an end of {place.dtype.name}",
                             "convert it with int()")
        return scalars.convert(place, dt.int64)

    def window(self, view: View, position: int, count: int, node: ast.AST) -> View:
        """Return a view of which the first `count` elements along an axis are there.

        A slice such as ``x[i:]`` begins at the end of the axis at the latest. Where so many
        elements follow, it begins at `i`, which is what index rules see through.
        """
        axis = view.axes[position]
        if axis.cut is None:
            if self.checked:
                self.require(ex.index(count).le(axis.extent), "index out of bounds", node,
                             ex.index(count - 1), axis.extent)
            return view
        start, place, whole_ = axis.cut
        if self.checked:
            # not place + count <= whole, which may wrap around
            self.require(place.le(whole_ - count), "index out of bounds", node,
                         place + (count - 1), whole_)
        starts = tuple(ex.substitute(view.starts, {start: place}))
        axes = (*view.axes[:position], axis.replace(extent=whole_ - place, cut=None),
                *view.axes[position + 1:])
        return view.replace(starts=starts, axes=axes)


def _is_small(size: Expr) -> bool:
    """Whether a length of an array and such a step have a sum that does not wrap around."""
    return size.op is Op.CONST and size.attr < 1 << 32


def _either(down: Expr, walk_down: Expr, walk_up: Expr) -> Expr:
    """Return what holds for a slice with a negative step, and for one with a positive step."""
    if down.op is Op.CONST:
        return walk_down if down.attr else walk_up
    return ex.where(down, walk_down, walk_up)


VISIT[Held] = lambda _, node: node.value
