"""Numbers that may be None, in kernels for numba: whether there is one, and the number.

A name that holds None on some ways and a number on others, and what a function returns that gives
one of them, is a group of two scalars, so it lives in cells and meets as a tuple does. It is asked
with ``is None``; where it is used as a number it must be one, else the kernel stops with TypeError.
"""

from __future__ import annotations

import ast
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

from weft.frontend.kernel.values import Group, Known, Value
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op

if TYPE_CHECKING:
    from weft.frontend.kernel.reading import Reading

__all__ = [
    "Optional", "as_optional", "is_none", "is_optional", "number", "present", "there", "truth",
    "width",
]  # fmt: skip


class _Optional:
    """What a group is that stands for a number or None."""

    __name__ = "number or None"


Optional: Final[Any] = _Optional()


def is_none(value: Any) -> bool:
    """Whether a value is None."""
    return isinstance(value, Known) and value.value is None


def is_optional(value: Any) -> bool:
    """Whether a value, cells or types are those of a number that may be None."""
    return isinstance(value, Group) and value.kind is Optional


def as_optional(value: Any, number: Expr | None) -> Group | None:
    """Return a value as a number that may be None, None if it is neither.

    `number` is the value as a scalar, if it is one.
    """
    if is_optional(value):
        return value  # type: ignore[no-any-return]
    if is_none(value):
        return Group((ex.const(False, dt.bool_), ex.const(False, dt.bool_)), (), Optional)
    if isinstance(value, Group) and value.kind is complex:
        return Group((ex.const(True, dt.bool_), value), (), Optional)
    return None if number is None else Group((ex.const(True, dt.bool_), number), (), Optional)


def width(d: DType | Group) -> Group:
    """Return the types of the cells of a number that may be None."""
    return Group((dt.bool_, d), (), Optional)


def there(value: Any, kind: type[ast.cmpop]) -> Value:
    """Return ``value is None``, or ``value is not None``."""
    held: Expr = value.items[0]
    return held if kind in (ast.IsNot, ast.NotEq) else ex.unary(Op.NOT, held)


def number(c: Reading, value: Any, node: ast.AST) -> Any:
    """Return the number that a value is, which the kernel sees to."""
    c.require(value.items[0], "TypeError: expected a number, got None", node, c.this_thread())
    return value.items[1]


def present(c: Reading, value: Value, node: ast.AST) -> Value:
    """Return the number that an operand is that may be None; other operands as they are."""
    found: Value = number(c, value, node) if is_optional(value) else value
    return found


def truth(value: Any) -> Expr:
    """Return whether there is a number that is not 0."""
    x = value.items[1]
    parts = [p.ne(0) for p in (x.items if isinstance(x, Group) else (x,))]
    return ex.binary(Op.AND, value.items[0], reduce(partial(ex.binary, Op.OR), parts))
