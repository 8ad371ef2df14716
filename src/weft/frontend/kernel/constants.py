"""NumPy arrays that a kernel knows from outside: copies of them, which it can only read."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.frontend.kernel.elements import ComplexOf, RecordOf, array_of, as_element, made
from weft.frontend.kernel.values import Fields, View
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.stmt import Memory

if TYPE_CHECKING:
    from weft.frontend.kernel.expressions import Expressions

__all__ = ["Constant", "view_of"]


class Constant(NamedTuple):
    """A NumPy array from outside, as it was when the kernel was compiled: copies of its parts."""

    memories: tuple[Memory, ...]
    arrays: tuple[Any, ...]
    view: View | Fields
    node: ast.AST


def view_of(c: Expressions, array: Any, node: ast.AST) -> View | Fields:
    """Return a copy of a NumPy array that kernels can only read."""
    found = c.constants.get(id(array))
    if found is None:
        element = as_element(array.dtype)
        if element is None:
            raise c.wrong(node, f"an array of {array.dtype}", "a type that kernels lack")
        copies: list[Any] = []
        memories: list[Memory] = []
        shape = tuple(map(ex.index, array.shape))

        def keep(name: str, d: DType, extents: tuple[Expr, ...]) -> View:
            view = array_of(c.name(name), d, extents, "global", c.flat, readonly=True)
            memories.append(view.memory)
            return view

        view = made("constant", element, shape, keep)
        _copies(array, element, copies)
        c.kept.append(array)  # so that no other array takes its identity
        found = c.constants[id(array)] = Constant(tuple(memories), tuple(copies), view, node)
    return found.view


def _copies(array: Any, element: Any, found: list[Any]) -> None:
    """Add copies of the parts of a NumPy array, in the order in which `made` asks for them."""
    if isinstance(element, RecordOf):
        for name, inner, _ in element.fields:
            _copies(array[name], inner, found)
    elif isinstance(element, ComplexOf):
        found.append(np.stack((array.real, array.imag), -1).astype(element.dtype.numpy, order="C"))
    else:
        found.append(np.array(array, dtype=element.numpy, order="C"))
