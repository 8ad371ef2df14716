"""Arrays whose elements have parts: indexing, reading and writing, part for part."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, For, If
from weft.lang.core import optional, scalars
from weft.lang.core.element_types import COMPLEX, ComplexOf, TextOf, TimeOf, count_of, rows
from weft.lang.core.emitter import negation
from weft.lang.core.indexing import is_new
from weft.lang.core.kind import Subscripts, kind_of
from weft.lang.core.values import (
    Fields,
    Group,
    Known,
    Value,
    View,
    ViewAxis,
    axes_of,
    describe,
)
from weft.lang.values import aliasing_assignment, complex_numbers, times

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.values import strings
else:
    strings = Late("weft.lang.values.strings")

__all__ = ["FlatNeeded", "assign", "element_of", "named", "part", "read", "reshaped", "spread",
           "write"]  # fmt: skip

class FlatNeeded(Exception):
    """An array gets another shape: its memory must have one axis."""


def part(c: Context, array: Fields, indices: Subscripts, node: ast.AST) -> Fields:
    """Return the part of an array at some indices and slices."""
    dots = [k for k, (_, v) in enumerate(indices) if isinstance(v, Known) and v.value is Ellipsis]
    if dots:
        missing = array.ndim - len(indices) + 1 + sum(map(is_new, indices))
        fill = ast.copy_location(ast.Slice(), indices[dots[0]][0])
        indices[dots[0]:dots[0] + 1] = [(fill, None)] * missing
    new = sum(map(is_new, indices))
    count = len(indices) - new
    if count > array.ndim:
        raise c.wrong(node, f"{count} indices into an array of {axes_of(array.ndim)}")
    parts: list[View | Fields] = []
    for inner in array.parts:
        parts.append(kind_of(inner).part(c, inner, indices, node))
    kept = sum(value is None for _, value in indices)
    return array.replace(parts=tuple(parts), ndim=array.ndim - count + kept + new)


def named(c: Context, array: Fields, name: str, node: ast.AST) -> View | Fields:
    """Return the array of a part."""
    if name not in array.names:
        raise c.wrong(node, f"{describe(array)} has no field {name!r}",
                      f"its fields: {', '.join(array.names)}")
    found: View | Fields = array.parts[array.names.index(name)]
    return found


def element_of(array: View | Fields) -> Any:
    """Return the type of the elements of an array, None of records."""
    if isinstance(array, View):
        return array.dtype
    return ComplexOf(array.parts[0].memory.dtype) if array.kind is complex else array.kind


def read(c: Context, array: Fields, node: ast.AST) -> Value:
    """Return an element that is a complex number as its parts; anything else as it is."""
    if array.ndim or array.kind is None:
        return array
    if isinstance(array.kind, TextOf):
        return strings.read(c, array, node)
    if array.kind is not complex:
        return times.read(c, array, node)
    parts = tuple(c.read(p, node) for p in array.parts)
    return Group(parts, COMPLEX, complex)


def write(c: Context, array: Fields, value: Value, node: ast.AST) -> None:
    """Store a complex number, or a record field for field."""
    value = optional.present(c, value, node)
    if array.ndim:
        assign(c, array, value, node)
        return
    if array.kind is complex:
        z = complex_numbers.as_complex(c, value, node)
        d = array.parts[0].memory.dtype
        for inner, x in zip(array.parts, z.items, strict=True):
            c.write(inner, scalars.convert(x, d), node)
        return
    if isinstance(array.kind, TextOf):
        strings.stored(c, array, value, node)
        return
    if isinstance(array.kind, TimeOf):
        c.write(array.parts[0], times.stored(c, value, array.kind, node), node)
        return
    if isinstance(value, Fields) and value.names == array.names and not value.ndim:
        items = [value.parts[k] for k in range(len(value.names))]
    elif isinstance(value, Group) and len(value.items) == len(array.parts):
        items = list(value.items)
    else:
        raise c.wrong(node, f"cannot store {describe(value)} in {describe(array)}")
    found = [c.read(v, node) if isinstance(v, View | Fields) else v for v in items]
    for inner, item in zip(array.parts, found, strict=True):
        c.write(inner, item, node)


def assign(c: Context, array: View | Fields, value: Value, node: ast.AST) -> None:
    """Store a number in every element of an array, or the elements of another array."""
    value = optional.present(c, value, node)
    if isinstance(array, Fields) and isinstance(array.kind, TextOf):
        value = strings.as_text(c, value, array.kind.letter)
    if isinstance(value, View | Fields) and value.shape:
        if len(value.shape) > len(array.shape):
            raise c.wrong(node, f"cannot store {describe(value)} in {describe(array)}")
        pairs = list(zip(reversed(array.shape), reversed(value.shape), strict=False))
        short = _is_short(c, pairs)
        if short is not None:
            with c.into((short,)) as then:
                _assign_ordered(c, array, spread(c, value, array.shape, node), node)
            with c.into((negation(short),)) as orelse:
                _assign_alike(c, array, value, node)
            c.emit(If(short, tuple(then), tuple(orelse)), node)
            return
        _assign_alike(c, array, value, node)
        return
    if isinstance(value, Group) and _is_row(array, value):
        _assign_row(c, array, value, node)
        return
    if isinstance(value, View):
        value = c.read(value, node)
    value = value if complex_numbers.is_complex(value) or isinstance(value, Fields | Group) else (
        c.bind(c.scalar(value, node), "value", node))
    _assign(c, array, value, aliasing_assignment.Order(), [], node)


def spread(c: Context, array: Any, shape: Sequence[Expr], node: ast.AST,
           ndim: int | None = None) -> Any:  # fmt: skip
    """Return an array of which axes of one element are seen as so long as a shape has them.

    It has as many axes of its own as `ndim` says, all if that is left out.
    """
    ndim = len(array.shape) if ndim is None else ndim
    if isinstance(array, Fields):
        return array.replace(parts=tuple(spread(c, p, shape, node, ndim) for p in array.parts),
                             ndim=array.ndim - ndim + len(shape))
    axes = [ViewAxis(n, 0, ex.index(0)) for n in shape[:len(shape) - ndim]]
    for axis, n in zip(array.axes[:ndim], shape[len(axes):], strict=True):
        if axis.extent == n:
            axes.append(axis)
            continue
        one_ = axis.extent.eq(1)
        c.require(ex.binary(Op.OR, one_, axis.extent.eq(n)),
                  "operands could not be broadcast together", node, axis.extent, n)
        step = ex.where(one_, ex.index(0), axis.step)
        axes.append(axis.replace(extent=n, step=step, cut=None))
    return array.replace(axes=(*axes, *array.axes[ndim:]))


def _is_short(c: Context, pairs: list[tuple[Expr, Expr]]) -> Expr | None:
    """Return whether a slice has one element where more are assigned, None if that cannot be."""
    found = None
    for n, m in pairs:
        if n is m or m.op in (Op.CONST, Op.VARIABLE) or not (
            c.ranges.of(m).lo <= 1 <= c.ranges.of(m).hi
        ):
            continue
        test = ex.binary(Op.AND, m.eq(1), n.ne(1))
        found = test if found is None else ex.binary(Op.OR, found, test)
    return found


def _assign_alike(c: Context, array: View | Fields, value: View | Fields,
                  node: ast.AST) -> None:  # fmt: skip
    """Store the elements of an array that is as long as another one, or known to be shorter."""
    for n, m in zip(reversed(array.shape), reversed(value.shape), strict=False):
        if not ex.is_const(m, 1):
            c.require(n.eq(m), "the shapes of an assignment differ", node)
    _assign_ordered(c, array, value, node)


def _assign_ordered(c: Context, array: View | Fields, value: View | Fields,
                    node: ast.AST) -> None:  # fmt: skip
    """Store the elements of an array in an order in which none is read after it was written."""
    (value,), order = aliasing_assignment.ordered(c, array, [value], node)
    _assign(c, array, value, order, [], node)


def _is_row(array: View | Fields, value: Group) -> bool:
    """Whether a value is a tuple of elements for an array of one axis."""
    numbers = isinstance(array, View) or array.kind is not None
    return numbers and len(array.shape) == 1 and value.kind is None


def _assign_row(c: Context, array: View | Fields, row: Group, node: ast.AST) -> None:
    """Store the items of a tuple, one behind the other; one item is stored in all elements."""
    if len(row.items) == 1:
        assign(c, array, row.items[0], node)
        return
    c.require(array.shape[0].eq(len(row.items)),
              f"ValueError: {len(row.items)} items for a part of an array of another size", node)
    for k, item in enumerate(row.items):
        c.write(_at(array, [ex.index(k)]), item, node)


def _assign(c: Context, array: View | Fields, value: Value, order: aliasing_assignment.Order,
            turns: list[Expr], node: ast.AST) -> None:  # fmt: skip
    if len(turns) < len(array.shape):
        extent = order.extents(array.shape)[len(turns)]
        var = c.fresh("i", dt.int64)
        with c.into() as body:
            c.visible_in(var)
            c.limits[var] = (0, extent - 1)
            _assign(c, array, value, order, [*turns, var], node)
        c.emit(For(var, extent, SERIAL, tuple(body)), node)
        return
    place = order.place(turns, array.shape)
    if isinstance(value, View | Fields) and value.shape:
        own = place[len(place) - len(value.shape):]
        at = [ex.index(0) if ex.is_const(n, 1) else i
              for i, n in zip(own, value.shape, strict=True)]
        value = c.read(_at(value, at), node)
    c.write(_at(array, place), value, node)


def _at(array: View | Fields, place: list[Expr]) -> Any:
    """Return an element of an array, whose indices are known to be inside."""
    if isinstance(array, Fields):
        parts = tuple(_at(p, place) for p in array.parts)
        return array.replace(parts=parts, ndim=array.ndim - len(place))
    starts = list(array.starts)
    for i, a in zip(place, array.axes, strict=False):
        starts[a.axis] = starts[a.axis] + i * a.step
    return array.replace(starts=tuple(starts), axes=array.axes[len(place):])


def reshaped(c: Context, array: View | Fields, sizes: list[Value],
             node: ast.AST) -> View | Fields:  # fmt: skip
    """Return a contiguous array in another shape; one size may be -1, which the others tell."""
    total = count_of(array.shape)
    given = [c.scalar(v, node, "an integer") for v in sizes]
    if not given or any(x.dtype.is_float for x in given):
        raise c.wrong(node, f"a shape of {', '.join(map(describe, sizes)) or 'nothing'}",
                      "sizes are integers, one of them perhaps -1")
    shape = [scalars.convert(x, dt.int64) for x in given]
    open_ = [k for k, n in enumerate(shape) if ex.is_const(n, -1)]
    if len(open_) > 1:
        raise c.wrong(node, "a shape with more than one -1")
    count = count_of(tuple(n for k, n in enumerate(shape) if k not in open_))
    if open_:
        c.require(count.ne(0), "a shape that does not fit the array", node)
        shape[open_[0]] = total // count
        count = count * shape[open_[0]]
    elif any(_may_be_open(c, n) for n in shape):
        count = count_of(tuple(ex.where(n.eq(-1), ex.index(1), n) if _may_be_open(c, n) else n
                               for n in shape))
        rest = total // ex.where(count.eq(0), ex.index(1), count)
        shape = [ex.where(n.eq(-1), rest, n) if _may_be_open(c, n) else n for n in shape]
        count = count_of(tuple(shape))
    c.require(count.eq(total), "a shape that does not fit the array", node)
    return _reshaped(c, array, tuple(shape), len(array.shape), node)


def _may_be_open(c: Context, size: Expr) -> bool:
    """Whether a size may be -1 when the kernel runs."""
    return c.ranges.of(size).lo < 0


def _reshaped(c: Context, array: View | Fields, shape: tuple[Expr, ...], ndim: int,
              node: ast.AST) -> View | Fields:  # fmt: skip
    if isinstance(array, Fields):
        parts = tuple(_reshaped(c, p, shape, ndim, node) for p in array.parts)
        return array.replace(parts=parts, ndim=array.ndim - ndim + len(shape))
    if len(array.memory.shape) > 1:
        raise FlatNeeded
    axes, rest = array.axes[:ndim], array.axes[ndim:]
    unit = axes[-1].step if axes else ex.index(1)
    for axis, step in zip(axes, rows(tuple(a.extent for a in axes)), strict=True):
        wanted = step * unit
        if axis.step is not wanted and axis.step != wanted:
            same = ex.binary(Op.OR, axis.step.eq(wanted), axis.extent.le(1))
            c.require(same, "a reshape of an array that is not contiguous", node)
    made = tuple(ViewAxis(n, 0, step * unit)
                 for n, step in zip(shape, rows(shape) if shape else [], strict=True))
    return array.replace(axes=(*made, *rest))
