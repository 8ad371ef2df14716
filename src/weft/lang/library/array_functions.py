"""NumPy's functions of whole arrays in kernels: ``np.sin(x, out)``, each thread for all elements.

A kernel makes no arrays, so the one for the results is given. Arrays and numbers are broadcast to
its shape as NumPy does; what they cannot be is a ValueError of the kernel.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.lang.core import array_union
from weft.lang.core.values import (
    Fields,
    Fragment,
    Group,
    Indices,
    Known,
    Value,
    View,
    axes_of,
)
from weft.lang.values import aliasing_assignment, arrays, complex_numbers

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["applied", "is_array"]

_RANKS: Final = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # of what NumPy calls kinds


def is_array(value: Any) -> bool:
    """Whether a value is an array with axes."""
    value = array_union.options_of(value)[0]
    return isinstance(value, View | Fields) and not isinstance(value, Fragment) and (
        bool(value.shape))


def applied(c: Context, callee: Any, args: list[Value], named: dict[str, Value],
            node: ast.Call) -> Value:  # fmt: skip
    """Return the array of results of a function of NumPy, after it was set."""
    name, count = callee.__name__, getattr(callee, "nin", 0)
    given = [*args, *(v for key, v in named.items() if key == "out")]
    if not count or getattr(callee, "nout", 1) != 1 or len(given) - len(args) != len(named):
        raise c.wrong(node, f"numpy.{name} of arrays is not supported in kernels",
                      "a loop over its elements says the same")
    out = given[-1]
    if len(given) != count + 1 or not is_array(out):
        raise c.wrong(node, f"numpy.{name} of an array, with no array for the results",
                      f"kernels make no arrays: numpy.{name}(..., out), or a loop over elements")
    if any(getattr(option, "readonly", False) for option in array_union.options_of(out)):
        raise c.wrong(node, f"numpy.{name}: the array for the results is read-only")
    kind = _result_kind(c, callee, given, node)
    shape = array_union.shape(out)
    for value in given[:count]:
        if is_array(value):
            _check(c, name, array_union.shape(value), shape, node)
    inputs, order = aliasing_assignment.ordered(c, out, given[:count], node)
    turns = Known(Indices(tuple(order.extents(shape)))), Known(_Place(order, shape))
    if kind is None or kind.kind not in "biu":
        c.inline(_apply, [Known(callee), *turns, out, *inputs], {}, node)
    else:
        c.inline(_apply_as, [Known(kind.type), Known(callee), *turns, out, *inputs], {}, node)
    return out


def _result_kind(c: Context, callee: Any, given: list[Value], node: ast.Call) -> Any:
    """Return what NumPy gives for numbers of such types, None where it has no answer.

    It is refused, as NumPy does, for an array that cannot hold it: floats for an array of
    integers, complex numbers for one of floats.
    """
    *kinds, held = map(_kind_of, given)
    if held is None or None in kinds:
        return None
    try:
        result = callee.resolve_dtypes((*kinds, None))[-1]
    except TypeError:  # of numbers that only kernels have such a function for
        return None
    if result.kind not in _RANKS or held.kind not in _RANKS:  # of another package
        return None
    if _RANKS[result.kind] > _RANKS[held.kind]:
        raise c.wrong(node, f"numpy.{callee.__name__} gives {result}, the array for the results "
                      f"holds {held}", "NumPy loses no parts of numbers unasked: convert them in a "
                      "loop, or give an array that holds them")
    return result


def _kind_of(value: Any) -> Any:
    """Return what NumPy calls a number or the elements of an array, None where it has no name."""
    value = array_union.options_of(value)[0]
    if isinstance(value, Known):
        return type(value.value) if type(value.value) in (int, float, complex) else None
    parts = value.parts if isinstance(value, Fields) and value.kind is complex else (
        value.items if complex_numbers.is_complex(value) else (value,))
    d = getattr(parts[0], "dtype", None)
    if d is None or d is dt.bfloat16:
        return None
    return np.dtype(d.numpy) if len(parts) == 1 else np.dtype(f"c{d.itemsize * 2}")


def _check(c: Context, name: str, given: Any, shape: Any, node: ast.Call) -> None:
    """Note what stops a thread where an array does not fit the shape of the results."""
    if len(given) > len(shape):
        raise c.wrong(node, f"numpy.{name} of an array of {axes_of(len(given))} for one of "
                      f"{len(shape)}", "the array for the results has the shape of all together")
    for extent, size in zip(given, shape[len(shape) - len(given):], strict=True):
        if extent is not size:
            fits = ex.binary(Op.OR, extent.eq(size), extent.eq(1))
            c.require(fits, f"ValueError: operands of numpy.{name} that cannot be broadcast to the "
                      "array for the results", node)


def _apply(function: Any, turns: Any, place_of: Any, out: Any, *given: Any) -> None:
    """Set all elements; read in place of the call."""
    for turn in turns:
        place = place_of(turn)
        out[place] = function(*_elements(place, given))


def _apply_as(kind: Any, function: Any, turns: Any, place_of: Any, out: Any,
              *given: Any) -> None:  # fmt: skip
    """Set all elements, in NumPy's type before they become those of the results."""
    for turn in turns:
        place = place_of(turn)
        out[place] = kind(function(*_elements(place, given)))


class _Place:
    """Which element of the results is set in a turn."""

    def __init__(self, order: aliasing_assignment.Order, shape: tuple[Expr, ...]) -> None:
        self.order, self.shape = order, shape

    def __call__(self, turn: Any) -> Any:
        """Return its indices; only kernels call this."""
        return turn

    def __weft_call__(self, reader: Any, args: list[Any], node: ast.AST) -> Value:
        """Return its indices in a kernel."""
        return Group(tuple(self.order.place(args[0].items, self.shape)))


class _Elements:
    """The elements of several arrays at one place of the results, and numbers as they are."""

    def __call__(self, *args: Any) -> Any:
        """Return them; only kernels call this."""
        return args

    def __weft_call__(self, reader: Any, args: list[Any], node: ast.AST) -> Value:
        """Return them in a kernel."""
        place, given = args
        return Group(tuple(self._one(reader, value, place.items, node) for value in given.items))

    def _one(self, c: Context, value: Any, place: tuple[Any, ...], node: ast.AST) -> Value:
        if not is_array(value):
            return value  # type: ignore[no-any-return]
        shape = array_union.shape(value)
        last = place[len(place) - len(shape):]
        index = tuple(ex.where(extent.eq(1), ex.index(0), i)
                      for i, extent in zip(last, shape, strict=True))
        return arrays.element(c, value, index, node)


_elements = _Elements()
