"""NumPy arrays that a kernel knows from outside.

It has copies of them, which it can only read; arrays of the device it has as they are.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.exchange import host as exchange
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.stmt import Memory
from weft.lang.core.element_types import Packed, RecordOf, array_of, as_element, made
from weft.lang.core.values import Constant, Fields, Group, Known, Value, View

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["bytes_of", "known_bytes", "listed", "view_of"]


@cache
def bytes_of(value: bytes) -> Any:
    """Return bytes as an array of uint8, the same one each time."""
    return np.frombuffer(value, np.uint8)


def known_bytes(c: Context, value: Any) -> bytes | None:
    """Return the bytes that a kernel knows as an array of uint8, None of anything else."""
    for constant in c.constants.values():
        if constant.view is value and value.readonly and constant.memories[0].dtype is dt.uint8:
            return bytes(constant.arrays[0].tobytes())
    return None


def view_of(c: Context, array: Any, node: ast.AST) -> View | Fields:
    """Return a copy of a NumPy array that kernels can only read, or an array of the device."""
    found = c.constants.get(id(array))
    if found is None:
        held = exchange.as_array(array, "an array from outside of the kernel")
        element = as_element(held.dtype)
        if element is None:
            raise c.wrong(node, f"an array of {held.dtype}", "a type that kernels lack")
        live = _live(held, element) if hasattr(array, "__cuda_array_interface__") else None
        copies: list[Any] = []
        memories: list[Memory] = []
        shape = tuple(map(ex.index, held.shape))

        def keep(name: str, d: DType, extents: tuple[Expr, ...]) -> View:
            view = array_of(c.name(name), d, extents, "global", c.flat,
                            readonly=live is None or not held.flags.writeable)
            memories.append(view.memory)
            return view

        view = made("constant", element, shape, keep)
        if live is None:
            _copies(held, element, copies)
        else:
            copies.append(live)
        c.kept.append(array)  # so that no other array takes its identity
        found = c.constants[id(array)] = Constant(tuple(memories), tuple(copies), view, node)
    return found.view


def listed(c: Context, value: Value, node: ast.AST) -> Value:
    """Return a list from outside as an array of its numbers, or as a tuple of other things."""
    if not isinstance(value, Known) or not isinstance(value.value, list):
        return value
    held = c.lists.get(id(value.value))
    if held is None:
        try:
            made = np.array(value.value)
        except ValueError:  # rows of unlike lengths
            made = np.array(None)
        # The list is kept so that no other one takes its identity.
        held = c.lists[id(value.value)] = value.value, made if made.dtype.kind in "biufc" else None
    if held[1] is None or not held[1].size:
        return Group(tuple(c.outside(v, node) for v in value.value))
    return view_of(c, held[1], node)


def _live(array: Any, element: Any) -> Any:
    """Return the memory of an array of the device, None if it does not lie in order."""
    if isinstance(element, RecordOf) or not (
        array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative
    ):
        return None
    held = np.asarray(array)
    return element.numbers_of(held) if isinstance(element, Packed) else held


def _copies(array: Any, element: Any, found: list[Any]) -> None:
    """Add copies of the parts of a NumPy array, in the order in which `made` asks for them."""
    if isinstance(element, RecordOf):
        for name, inner, _ in element.fields:
            _copies(array[name], inner, found)
    elif isinstance(element, Packed):
        found.append(np.array(element.numbers_of(array), element.number.numpy, order="C"))
    else:
        found.append(np.array(array, dtype=element.numpy, order="C"))
