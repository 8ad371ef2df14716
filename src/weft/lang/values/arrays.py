"""Arrays as a whole in kernels: their steps, their axes turned, all their indices."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.lang.core import array_union, scalars
from weft.lang.core.element_types import ComplexOf, count_of, rows
from weft.lang.core.kind import Iterations, kind_of
from weft.lang.core.values import (
    FLAT,
    Fields,
    Fragment,
    Group,
    Indices,
    Known,
    Value,
    View,
    Walk,
    describe,
)
from weft.lang.values import addresses, complex_numbers, records
from weft.lang.values.structs import KnownKind

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["KIND", "at", "attribute", "element", "enumerated", "extreme", "indices_of", "total",
           "transposed", "turned", "type_of", "walked_together"]  # fmt: skip

Array = View | Fields


def attribute(c: Context, array: Array, element: Any, node: ast.Attribute) -> Value | None:
    """Return strides, nbytes, flat or real of an array, None of other attributes."""
    part = array.parts[0] if isinstance(array, Fields) else array
    if node.attr == "real" and part is array:
        return array
    if node.attr == "nbytes":
        return count_of((ex.index(element.itemsize), *array.shape))
    if node.attr == "flat" and array.shape:
        if len(part.memory.shape) == 1 and not all(
            _in_rows(p, len(array.shape)) for p in _parts(array)
        ):
            return Group((array,), (), FLAT)
        return records.reshaped(c, array, [Known(-1)], node)
    if node.attr == "strides":
        addresses.as_stored(c, part, node)
        steps = [step * part.dtype.itemsize for step in rows(part.memory.shape)]
        axes = part.axes[:len(array.shape)]
        return Group(tuple(axis.step * steps[axis.axis] for axis in axes))
    return None


def _parts(array: Array) -> list[View]:
    if isinstance(array, Fields):
        return [view for part in array.parts for view in _parts(part)]
    return [array]


def _in_rows(array: View, ndim: int) -> bool:
    """Whether it is known that elements that follow each other have the same distance."""
    axes = array.axes[:ndim]
    return all(axis.step is step or axis.step == step for axis, step in zip(
        axes, (step * axes[-1].step for step in rows(array.shape[:ndim])), strict=True))


def size(c: Context, flat: Group) -> Expr:
    """Return the number of all elements of an array, given as they are walked row by row."""
    return _places(elements(c, flat))[0]


def elements(c: Context, flat: Group) -> Indices:
    """Return all elements of an array, for a loop over them."""
    return Indices(array_union.shape(flat.items[0]), flat.items[0])


def at(c: Context, flat: Group, node: ast.Subscript) -> Any:
    """Return the element of an array at a place of all its elements, row by row."""
    shown = elements(c, flat)
    total, item = _places(shown)
    place = c.bind(c.index(c.visit(node.slice), total, node.slice), "place", node)
    return one(c, shown.array, item(place), node)


def turned(array: Array) -> Array:
    """Return an array with its axes in the opposite order."""
    if isinstance(array, Fields):
        n = array.ndim
        parts = tuple(p.replace(axes=(*reversed(p.axes[:n]), *p.axes[n:])) for p in array.parts)
        return array.replace(parts=parts)
    return array.replace(axes=tuple(reversed(array.axes)))


def _places(shown: Indices) -> tuple[Expr, Callable[[Expr], tuple[Value, ...]]]:
    """Return how many indices there are, and what tells those at a place."""
    def item(k: Expr) -> tuple[Value, ...]:
        found: list[Value] = []
        for extent in reversed(shown.shape[1:]):
            found.insert(0, k % extent)
            k = k // extent
        return (k, *found) if shown.shape else ()

    return count_of(shown.shape), item


def one(c: Context, array: Any, place: tuple[Value, ...], node: ast.AST) -> Any:
    """Return the part of an array at some indices."""
    parts: list[Any] = [(node, i) for i in place]
    return kind_of(array).part(c, array, parts, node)


def element(c: Context, array: Any, place: tuple[Value, ...], node: ast.AST) -> Value:
    """Return the element of an array at some indices."""
    return c.read(one(c, array, place, node), node)


def walked_together(c: Context, node: ast.Call, given: Value) -> Value:
    """Return ``np.nditer`` of an array, or of several whose shapes are broadcast: row by row."""
    arrays: list[Any] = list(kind_of(given).items(given) or (given,))
    for array in arrays:
        if not isinstance(array, View | Fields) or isinstance(array, Fragment):
            raise c.wrong(node, f"numpy.nditer of {describe(array)}", "it is for arrays")
    shape: list[Expr] = []
    for k in range(1, 1 + max((len(a.shape) for a in arrays), default=0)):
        extent, *others = [a.shape[-k] for a in arrays if len(a.shape) >= k]
        for other in others:
            if other != extent:
                extent = ex.where(extent.eq(1), other, extent)
        shape.insert(0, extent)
    shown = [Known(Indices(tuple(shape), records.spread(c, array, shape, node), True))
             for array in arrays]
    return shown[0] if arrays[0] is given else Known(Walk(tuple(shown)))


def _least(array: Any) -> Any:
    found = array[0]
    for k in range(1, array.shape[0]):
        if array[k] < found:
            found = array[k]
    return found


def _largest(array: Any) -> Any:
    found = array[0]
    for k in range(1, array.shape[0]):
        if array[k] > found:
            found = array[k]
    return found


def extreme(c: Context, node: ast.Call, array: View, largest: bool) -> Value:
    """Return ``max`` or ``min`` of an array: as Python's, of what it compares one by one."""
    return c.inline(_largest if largest else _least, [array], {}, node)


def _total(array: Any) -> Any:
    found = 0
    for k in range(array.shape[0]):
        found += array[k]
    return found


def total(c: Context, node: ast.Call, array: View) -> Value:
    """Return Python's ``sum`` of an array, which begins with the integer 0."""
    return c.inline(_total, [array], {}, node)


def indices_of(c: Context, node: ast.Call, *sizes: Value) -> Value:
    """Return ``np.ndindex`` of a shape or of sizes."""
    given = sizes[0].items if len(sizes) == 1 and isinstance(sizes[0], Group) else sizes
    shape = tuple(scalars.convert(c.scalar(v, node, "an integer"), dt.int64) for v in given)
    return Known(Indices(shape))


def enumerated(c: Context, node: ast.Call, array: Value) -> Value:
    """Return ``np.ndenumerate`` of an array."""
    if not isinstance(array, View | Fields) or isinstance(array, Fragment) or not array.shape:
        raise c.wrong(node, f"numpy.ndenumerate of {describe(array)}", "it is for arrays")
    return Known(Walk((Known(Indices(array.shape)), Known(Indices(array.shape, array)))))


def transposed(c: Context, node: ast.Call, array: Value) -> Value:
    """Return ``np.transpose`` of an array."""
    if not isinstance(array, View | Fields) or isinstance(array, Fragment):
        raise c.wrong(node, f"numpy.transpose of {describe(array)}", "it is for arrays")
    return turned(array)


def type_of(c: Context, node: ast.Call, value: Value) -> Value:
    """Return ``type(x)``: of a number the type that makes numbers like it."""
    if complex_numbers.is_complex(value) and isinstance(value, Group):
        return Known(ComplexOf(c.scalar(value.items[0], node).dtype))
    if isinstance(value, Group) and value.kind is not None:
        return Known(value.kind)
    return Known(c.scalar(value, node, "a number").dtype)


class IndicesKind(KnownKind):
    """All indices of a shape, or the elements of an array there."""

    def iterate(self, c: Context, value: Any, node: ast.expr) -> Iterations:
        """Return the number of indices, and the index or the element of each iteration."""
        shown: Indices = value.value
        total, item = _places(shown)
        if shown.array is None:
            return total, lambda k: Group(item(k))
        if shown.cells:
            return total, lambda k: one(c, shown.array, item(k), node)
        return total, lambda k: element(c, shown.array, item(k), node)


KIND = IndicesKind()
