"""Arrays as a whole in kernels: their steps, their axes turned, all their indices."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.frontend.kernel import addresses, complexes, fields, scalars
from weft.frontend.kernel.elements import ComplexOf, itemsize_of, rows
from weft.frontend.kernel.values import (
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
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr

if TYPE_CHECKING:
    from weft.frontend.kernel.calls import Calls
    from weft.frontend.kernel.expressions import Expressions

__all__ = [
    "at", "attribute", "element", "enumerated", "extreme", "indices_of", "total", "transposed",
    "turned", "type_of", "walked",
]  # fmt: skip

Array = View | Fields


def attribute(c: Expressions, array: Array, node: ast.Attribute) -> Value | None:
    """Return strides, nbytes, flat or real, None where a kind of array does not have it."""
    if isinstance(array, Fragment) or (isinstance(array, Fields) and array.kind is not complex):
        return None
    part = array.parts[0] if isinstance(array, Fields) else array
    bytes_of = itemsize_of(part.dtype)
    if node.attr == "real" and part is array:
        return array
    if node.attr == "nbytes":
        size = ex.index(bytes_of if part is array else 2 * bytes_of)
        for extent in array.shape:
            size = size * extent
        return size
    if node.attr == "flat" and array.shape:
        if len(part.memory.shape) == 1 and not all(
            _in_rows(p, len(array.shape)) for p in _parts(array)
        ):
            return Known(Indices(array.shape, array))
        return fields.reshaped(c, array, [Known(-1)], node)
    if node.attr == "strides":
        addresses.as_stored(c, part, node)
        steps = [step * bytes_of for step in rows(part.memory.shape)]
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


def size(flat: Value) -> Expr:
    """Return the number of all elements of an array, given as they are walked row by row."""
    assert isinstance(flat, Known)
    total = ex.index(1)
    for extent in flat.value.shape:
        total = total * extent
    return total


def at(c: Expressions, flat: Indices, node: ast.Subscript) -> Array:
    """Return the element of an array at a place of all its elements, row by row."""
    total, item = _places(flat)
    place = c.bind(c.index(c.visit(node.slice), total, node.slice), "place", node)
    return one(c, flat.array, item(place), node)


def turned(array: Array) -> Array:
    """Return an array with its axes in the opposite order."""
    if isinstance(array, Fields):
        n = array.ndim
        parts = tuple(p.replace(axes=(*reversed(p.axes[:n]), *p.axes[n:])) for p in array.parts)
        return array.replace(parts=parts)
    return array.replace(axes=tuple(reversed(array.axes)))


def walked(c: Calls, shown: Indices, node: ast.AST) -> tuple[Expr, Callable[[Expr], Value]]:
    """Return how many indices there are, and what a loop over them gets at a place."""
    total, item = _places(shown)
    if shown.array is None:
        return total, lambda k: Group(item(k))
    return total, lambda k: element(c, shown.array, item(k), node)


def _places(shown: Indices) -> tuple[Expr, Callable[[Expr], tuple[Value, ...]]]:
    """Return how many indices there are, and what tells those at a place."""
    total = ex.index(1)
    for extent in shown.shape:
        total = total * extent

    def item(k: Expr) -> tuple[Value, ...]:
        found: list[Value] = []
        for extent in reversed(shown.shape[1:]):
            found.insert(0, k % extent)
            k = k // extent
        return (k, *found) if shown.shape else ()

    return total, item


def one(c: Expressions, array: Array, place: tuple[Value, ...], node: ast.AST) -> Array:
    """Return the part of an array at some indices."""
    parts: list[Any] = [(node, i) for i in place]
    return c.part(array, parts, node) if isinstance(array, View) else (
        fields.part(c, array, parts, node))


def element(c: Calls, array: Array, place: tuple[Value, ...], node: ast.AST) -> Value:
    """Return the element of an array at some indices."""
    return c.read(one(c, array, place, node), node)


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


def extreme(c: Calls, node: ast.Call, array: View, largest: bool) -> Value:
    """Return ``max`` or ``min`` of an array: as Python's, of what it compares one by one."""
    return c.inline(_largest if largest else _least, [array], {}, node)


def _total(array: Any) -> Any:
    found = 0
    for k in range(array.shape[0]):
        found += array[k]
    return found


def total(c: Calls, node: ast.Call, array: View) -> Value:
    """Return Python's ``sum`` of an array, which begins with the integer 0."""
    return c.inline(_total, [array], {}, node)


def indices_of(c: Calls, node: ast.Call, *sizes: Value) -> Value:
    """Return ``np.ndindex`` of a shape or of sizes."""
    given = sizes[0].items if len(sizes) == 1 and isinstance(sizes[0], Group) else sizes
    shape = tuple(scalars.convert(c.scalar(v, node, "an integer"), dt.int64) for v in given)
    return Known(Indices(shape))


def enumerated(c: Calls, node: ast.Call, array: Value) -> Value:
    """Return ``np.ndenumerate`` of an array."""
    if not isinstance(array, View | Fields) or isinstance(array, Fragment) or not array.shape:
        raise c.wrong(node, f"numpy.ndenumerate of {describe(array)}", "it is for arrays")
    return Known(Walk((Known(Indices(array.shape)), Known(Indices(array.shape, array)))))


def transposed(c: Calls, node: ast.Call, array: Value) -> Value:
    """Return ``np.transpose`` of an array."""
    if not isinstance(array, View | Fields) or isinstance(array, Fragment):
        raise c.wrong(node, f"numpy.transpose of {describe(array)}", "it is for arrays")
    return turned(array)


def type_of(c: Calls, node: ast.Call, value: Value) -> Value:
    """Return ``type(x)``: of a number the type that makes numbers like it."""
    if complexes.is_complex(value) and isinstance(value, Group):
        return Known(ComplexOf(c.scalar(value.items[0], node).dtype))
    if isinstance(value, Group) and value.kind is not None:
        return Known(value.kind)
    return Known(c.scalar(value, node, "a number").dtype)
