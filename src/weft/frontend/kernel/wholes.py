"""NumPy's functions of whole arrays in kernels: ``np.sin(x, out)``, each thread for all elements.

A kernel makes no arrays, so the one for the results is given. Arrays and numbers are broadcast to
its shape as NumPy does; what they cannot be is a ValueError of the kernel.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontend.kernel import arrays
from weft.frontend.kernel.values import Fields, Fragment, Group, Known, Value, View, axes_of
from weft.ir import expr as ex
from weft.ir.op import Op

if TYPE_CHECKING:
    from weft.frontend.kernel.calls import Calls

__all__ = ["applied", "is_array"]


def is_array(value: Any) -> bool:
    """Whether a value is an array with axes."""
    return isinstance(value, View | Fields) and not isinstance(value, Fragment) and (
        bool(value.shape))


def applied(c: Calls, callee: Any, args: list[Value], named: dict[str, Value],
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
    shape: Any = out.shape  # type: ignore[union-attr]
    for value in given[:count]:
        if is_array(value):
            _check(c, name, value, shape, node)
    c.inline(_apply, [Known(callee), out, *given[:count]], {}, node)
    return out


def _check(c: Calls, name: str, array: Any, shape: Any, node: ast.Call) -> None:
    """Note what stops a thread where an array does not fit the shape of the results."""
    if len(array.shape) > len(shape):
        raise c.wrong(node, f"numpy.{name} of an array of {axes_of(len(array.shape))} for one of "
                      f"{len(shape)}", "the array for the results has the shape of all together")
    for extent, size in zip(array.shape, shape[len(shape) - len(array.shape):], strict=True):
        if extent is not size:
            fits = ex.binary(Op.OR, extent.eq(size), extent.eq(1))
            c.require(fits, f"ValueError: operands of numpy.{name} that cannot be broadcast to the "
                      "array for the results", node)


def _apply(function: Any, out: Any, *given: Any) -> None:
    """Set all elements; read in place of the call."""
    for place in np.ndindex(out.shape):
        out[place] = function(*_elements(place, given))


class _Elements:
    """The elements of several arrays at one place of the results, and numbers as they are."""

    def __call__(self, *args: Any) -> Any:
        """Return them; only kernels call this."""
        return args

    def __weft_call__(self, reader: Any, args: list[Any], node: ast.AST) -> Value:
        """Return them in a kernel."""
        place, given = args
        return Group(tuple(self._one(reader, value, place.items, node) for value in given.items))

    def _one(self, c: Calls, value: Any, place: tuple[Any, ...], node: ast.AST) -> Value:
        if not is_array(value):
            return value  # type: ignore[no-any-return]
        last = place[len(place) - len(value.shape):]
        index = tuple(ex.where(extent.eq(1), ex.index(0), i)
                      for i, extent in zip(last, value.shape, strict=True))
        return arrays.element(c, value, index, node)


_elements = _Elements()
