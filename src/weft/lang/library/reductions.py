"""Reductions of whole arrays in kernels: ``np.sum``, ``a.mean()``, ``np.nanmax``, ``a.argmin()``.

They are loops of one thread, written as Python, in NumPy's order of elements and with its rules for
nan; sums go one behind the other. What they begin with, a zero or a one, has the type of the
result.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.lang.core import array_union, scalars
from weft.lang.core.values import Fields, Fragment, Group, Value, View, describe
from weft.lang.values import arrays, complex_numbers

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["method", "reduced"]


def _sum(array: Any, zero: Any) -> Any:
    found = zero
    for place in np.ndindex(array.shape):
        found += array[place]
    return found


def _prod(array: Any, one: Any) -> Any:
    found = one
    for place in np.ndindex(array.shape):
        found *= array[place]
    return found


def _mean(array: Any, zero: Any) -> Any:
    found = zero
    for place in np.ndindex(array.shape):
        found += array[place]
    return found / array.size


def _var(array: Any, zero: Any) -> Any:
    mean = _mean(array, zero)
    found = zero.real
    for place in np.ndindex(array.shape):
        away = array[place] - mean
        found += away.real * away.real + away.imag * away.imag
    return found / array.size


def _std(array: Any, zero: Any) -> Any:
    return math.sqrt(_var(array, zero))


def _any(array: Any) -> Any:
    found = False
    for place in np.ndindex(array.shape):
        found = found or array[place] != 0
    return found


def _all(array: Any) -> Any:
    found = True
    for place in np.ndindex(array.shape):
        found = found and array[place] != 0
    return found


def _count_nonzero(array: Any) -> Any:
    found = 0
    for place in np.ndindex(array.shape):
        if array[place] != 0:
            found += 1
    return found


def _min(array: Any, first: Any) -> Any:
    found = first
    for place in np.ndindex(array.shape):
        value = array[place]
        if found == found and not value >= found:
            found = value
    return found


def _max(array: Any, first: Any) -> Any:
    found = first
    for place in np.ndindex(array.shape):
        value = array[place]
        if found == found and not value <= found:
            found = value
    return found


def _argmin(array: Any, first: Any) -> Any:
    found, at = first, 0
    for k, place in enumerate(np.ndindex(array.shape)):
        value = array[place]
        if found == found and not value >= found:
            found, at = value, k
    return at


def _argmax(array: Any, first: Any) -> Any:
    found, at = first, 0
    for k, place in enumerate(np.ndindex(array.shape)):
        value = array[place]
        if found == found and not value <= found:
            found, at = value, k
    return at


def _ptp(array: Any, first: Any) -> Any:
    return _max(array, first) - _min(array, first)


def _nansum(array: Any, zero: Any) -> Any:
    found = zero
    for place in np.ndindex(array.shape):
        value = array[place]
        if value == value:
            found += value
    return found


def _nanprod(array: Any, one: Any) -> Any:
    found = one
    for place in np.ndindex(array.shape):
        value = array[place]
        if value == value:
            found *= value
    return found


def _numbers(array: Any) -> Any:
    """Return how many elements are numbers."""
    found = 0
    for place in np.ndindex(array.shape):
        value = array[place]
        if value == value:
            found += 1
    return found


def _nanmean(array: Any, zero: Any) -> Any:
    return _nansum(array, zero) / _numbers(array)


def _nanvar(array: Any, zero: Any) -> Any:
    mean = _nanmean(array, zero)
    found = zero.real
    for place in np.ndindex(array.shape):
        value = array[place]
        if value == value:
            away = value - mean
            found += away.real * away.real + away.imag * away.imag
    return found / _numbers(array)


def _nanstd(array: Any, zero: Any) -> Any:
    return math.sqrt(_nanvar(array, zero))


def _nanmin(array: Any, first: Any) -> Any:
    found = first
    for place in np.ndindex(array.shape):
        value = array[place]
        if value == value and not found <= value:
            found = value
    return found


def _nanmax(array: Any, first: Any) -> Any:
    found = first
    for place in np.ndindex(array.shape):
        value = array[place]
        if value == value and not found >= value:
            found = value
    return found


# How each is begun: with a number of the type of the elements (integers in 64 bits), with a float,
# with an element, with nothing.
_WHOLE, _FLOAT, _FIRST, _NOTHING = "whole", "float", "first", "nothing"
_TEXTS: Final[dict[str, tuple[Callable[..., Any], str]]] = {
    "sum": (_sum, _WHOLE), "prod": (_prod, _WHOLE), "nansum": (_nansum, _WHOLE),
    "nanprod": (_nanprod, _WHOLE), "mean": (_mean, _FLOAT), "var": (_var, _FLOAT),
    "std": (_std, _FLOAT), "nanmean": (_nanmean, _FLOAT), "nanvar": (_nanvar, _FLOAT),
    "nanstd": (_nanstd, _FLOAT), "min": (_min, _FIRST), "max": (_max, _FIRST),
    "nanmin": (_nanmin, _FIRST), "nanmax": (_nanmax, _FIRST), "argmin": (_argmin, _FIRST),
    "argmax": (_argmax, _FIRST), "ptp": (_ptp, _FIRST), "any": (_any, _NOTHING),
    "all": (_all, _NOTHING), "count_nonzero": (_count_nonzero, _NOTHING),
}  # fmt: skip


def reduced(c: Context, node: ast.Call, name: str, array: Value) -> Value:
    """Return what a reduction gives; integers are added and multiplied in 64 bits."""
    if array_union.is_array_union(array):
        assert isinstance(array, Group)
        return array_union.apply(c, array, lambda option: reduced(c, node, name, option), node)
    if not isinstance(array, View | Fields) or isinstance(array, Fragment):
        raise c.wrong(node, f"{name} of {describe(array)}", f"{name} is for arrays, "
                      "+, min and max for numbers")
    text, start = _TEXTS[name]
    if isinstance(array, Fields) and (array.kind is not complex or start == _FIRST):
        raise c.wrong(node, f"{name} of {describe(array)}")
    if name == "ptp" and isinstance(array, View) and array.dtype is dt.bool_:
        raise c.wrong(node, f"ptp of {describe(array)}", "bools have no difference")
    if start == _NOTHING:
        return c.inline(text, [array], {}, node)
    if start == _FIRST:
        for extent in array.shape:
            c.require(extent.ge(1), f"ValueError: {name} of an array without elements", node)
        first = arrays.element(c, array, (ex.index(0),) * len(array.shape), node)
        return c.inline(text, [array, first], {}, node)
    value = 1 if "prod" in name else 0
    if isinstance(array, Fields):
        d = array.parts[0].dtype
        begun: Value = complex_numbers.group(ex.const(value, d), ex.const(0, d))
        return c.inline(text, [array, begun], {}, node)
    d = array.dtype
    if not d.is_float:
        d = dt.float64 if start == _FLOAT else dt.uint64 if d.kind == "u" else dt.int64
    if start != _FLOAT or d.bits > 16:
        return c.inline(text, [array, ex.const(value, d)], {}, node)
    found = c.inline(text, [array, ex.const(value, dt.float32)], {}, node)  # as NumPy does
    assert isinstance(found, Expr)
    return scalars.convert(found, d)


def method(c: Context, owner: Value, node: ast.Call, func: ast.Attribute) -> Value | None:
    """Return what item, transpose or a reduction gives, None of what is no array or number."""
    if func.attr == "item" and isinstance(owner, Expr) and not node.args:
        return owner
    if array_union.is_array_union(owner):
        assert isinstance(owner, Group)
        if func.attr == "transpose":
            return array_union.part(c, owner, arrays.turned, node)
        return array_union.apply(c, owner, lambda option: _of_array(c, option, node, func), node)
    if not isinstance(owner, View | Fields) or isinstance(owner, Fragment) or not (
        owner.shape or func.attr == "item"
    ):
        return None
    return _of_array(c, owner, node, func)


def _of_array(c: Context, owner: View | Fields, node: ast.Call, func: ast.Attribute) -> Value:
    args, named = c.arguments(node)
    if args or named:
        raise c.wrong(node, f"{func.attr} with arguments",
                      "kernels take it of a whole array: write a loop over what is wanted")
    if func.attr == "transpose":
        return arrays.turned(owner)
    if func.attr == "item":
        for extent in owner.shape:
            c.require(extent.eq(1), "ValueError: item of an array with other than one element",
                      node)
        return arrays.element(c, owner, (ex.index(0),) * len(owner.shape), func)
    return reduced(c, node, func.attr, owner)
