"""Values that may be None, in kernels for numba: whether there is one, and the value.

A name that holds None on some ways and a number, a tuple or an array on others, and what a function
returns that gives one of them, is a group of two, so it lives in cells and meets as a tuple does.
It is asked with ``is None``; where it is used it must be there, else the kernel stops with
TypeError. In place of None stands a value of the same kind that nobody reads.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.lang.core import array_union
from weft.lang.core.kind import GROUPS, Kind
from weft.lang.core.values import FLAT, Fields, Group, Known, Value, View

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["Optional", "as_optional", "fits", "is_none", "is_optional", "kind_of", "number",
           "present", "there", "types_of", "width"]  # fmt: skip


class _Optional:
    """What a group is that stands for a value or None."""

    __name__ = "value or None"


Optional: Final[Any] = _Optional()


def is_none(value: Any) -> bool:
    """Whether a value is None."""
    return isinstance(value, Known) and value.value is None


def is_optional(value: Any) -> bool:
    """Whether a value, cells or types are those of what may be None."""
    return isinstance(value, Group) and value.kind is Optional


def as_optional(value: Any, number: Expr | None, like: Any = None) -> Group | None:
    """Return a value as one that may be None, None if it cannot.

    `number` is the value as a scalar, if it is one, `like` what others have where it is None.
    """
    if is_optional(value):
        return value  # type: ignore[no-any-return]
    if is_none(value):
        return Group((ex.const(False, dt.bool_), _absent(like)), (), Optional)
    if number is None and not _is_whole(value):
        return None
    return Group((ex.const(True, dt.bool_), value if number is None else number), (), Optional)


def fits(value: Any) -> bool:
    """Whether a value, or what is in a cell, may be what others have in place of None."""
    return isinstance(value, Expr | Memory) or is_none(value) or is_optional(value) or (
        _is_whole(value))


def _is_whole(value: Any) -> bool:
    """Whether a value is a tuple, an array, or a text, a member or a complex number."""
    if isinstance(value, Known):
        return isinstance(value.value, str | enum.Enum | complex | np.complexfloating)
    return isinstance(value, View | Fields) or (isinstance(value, Group) and value.kind is not FLAT)


def _is_number(value: Any) -> bool:
    return isinstance(value, Expr) or (isinstance(value, Group) and value.kind is complex)


def _absent(like: Any) -> Any:
    """Return what stands in place of None where others have values, or cells, like one."""
    if isinstance(like, Group) and like.kind is not Optional:
        return like.replace(items=tuple(map(_absent, like.items)))
    if isinstance(like, Expr):
        return ex.const(0, like.dtype)
    return like if isinstance(like, Known | View | Fields) else ex.const(False, dt.bool_)


def kind_of(values: Iterable[Any]) -> Any:
    """Return what the values that meet have where they are not None."""
    for value in values:
        if value is not None and not is_none(value):
            return value.items[1] if is_optional(value) else value
    return None


def width(d: DType | Group) -> Group:
    """Return the types of the cells of a value that may be None."""
    return Group((dt.bool_, d), (), Optional)


def types_of(value: Any) -> Any:
    """Return the types of the cells that a number or a tuple of numbers needs, None of others."""
    if isinstance(value, Group):
        found = tuple(map(types_of, value.items))
        return None if None in found else value.replace(items=found)
    return value.dtype if isinstance(value, Expr | Memory) else None


def there(value: Any, kind: type[ast.cmpop]) -> Value:
    """Return ``value is None``, or ``value is not None``."""
    held: Expr = value.items[0]
    return held if kind in (ast.IsNot, ast.NotEq) else ex.unary(Op.NOT, held)


def number(c: Context, value: Any, node: ast.AST) -> Any:
    """Return the value that one is that may be None, which the kernel sees to."""
    what = "number" if _is_number(value.items[1]) else "value"
    c.require(value.items[0], f"TypeError: expected a {what}, got None", node, c.this_thread())
    return value.items[1]


def present(c: Context, value: Value, node: ast.AST) -> Value:
    """Return the value that an operand is that may be None; other operands as they are."""
    found: Value = number(c, value, node) if is_optional(value) else value
    return found


class OptionalKind(Kind):
    """What may be None: operators take the value, after the kernel has seen to it."""

    def truth(self, c: Context, value: Any, node: ast.AST) -> Expr | bool:
        """Return whether there is an array, or another thing that is true."""
        held, thing = value.items
        if array_union.is_array(thing):
            found: Expr = held
            return found
        with c.into((held,)) as body:
            true = c.truth(thing, node)
        if isinstance(true, bool):
            return true and c.scalar(held, node)
        if not body:
            return ex.binary(Op.AND, held, true)
        chosen = c.select(held, true, body, Known(False), [], node)
        return c.scalar(chosen, node)

    def take(self, c: Context, value: Any, like: Any, node: ast.AST) -> Any:
        """Return a value or None as what may be either."""
        return as_optional(value, c.number_of(value), like.items[1]) or value


GROUPS[_Optional] = OptionalKind()
