"""What was found out about types when the same lines were read before.

A function with several returns is read a second time once the types of what it returns are known,
and a loop as often as its names need wider cells. Were each of these readings to find out anew what
the functions and loops inside of it need, the time would double with each level. So a loop that is
read again on the same way, with names that hold the same, begins with the cells that it ended with;
a function begins with the types that it returned in the call before, and is read from the beginning
if they turn out to be others.
"""

from __future__ import annotations

import ast
from typing import Any

from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.lang.core.values import Fields, Group, Known, View

__all__ = ["TypeCache", "is_plain", "standing"]


class TypeCache:
    """The types of earlier readings.

    Attributes
    ----------
    returned : dict
        By function and types of arguments: the types that its first reading found, and the last.
    """

    def __init__(self) -> None:
        self.returned: dict[Any, tuple[Any, Any]] = {}
        self._loops: dict[Any, tuple[Any, dict[str, Any], frozenset[str]]] = {}

    def of_loop(self, way: list[str], node: ast.AST,
                held: Any) -> tuple[dict[str, Any], frozenset[str]] | None:  # fmt: skip
        """Return the cells that a loop needed where names held the same, None if it is new."""
        before = self._loops.get((*way, node))
        return before[1:] if before is not None and before[0] == held else None

    def note_loop(self, way: list[str], node: ast.AST, held: Any, widths: dict[str, Any],
                  early: set[str]) -> None:  # fmt: skip
        """Note the cells that a loop needs."""
        if all(map(is_plain, widths.values())):
            self._loops[(*way, node)] = held, dict(widths), frozenset(early)


def is_plain(types: Any) -> bool:
    """Whether types are those of numbers and tuples of them, which no variable is part of."""
    if isinstance(types, Group):
        return types.kind in (None, complex) and all(map(is_plain, types.items))
    return isinstance(types, DType)


def standing(value: Any) -> Any:
    """Return what types can depend on of what a name holds; equal where they are the same."""
    if isinstance(value, Expr):
        return value.dtype, value.attr if value.op is Op.CONST else None
    if isinstance(value, Memory):
        return Memory, value.dtype
    if isinstance(value, View):
        return value.memory, len(value.axes), value.readonly, value.seen
    if isinstance(value, Fields):
        return value.names, value.kind, tuple(map(standing, value.parts))
    if isinstance(value, Group):
        return value.names, value.kind, tuple(map(standing, value.items))
    if isinstance(value, Known) and isinstance(value.value, list | dict | set):
        return object()  # it may have changed
    return value
