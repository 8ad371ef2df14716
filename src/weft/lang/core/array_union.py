"""Names that hold one array on some ways and another on others, such as two buffers in turn.

Such a name holds a number, which says which of several arrays it means: a group of one item, whose
kind lists the arrays. So it lives in cells and meets as other numbers do; an access asks for it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import If
from weft.lang.core.values import Fields, Group, Known, Value, View

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["Chosen", "apply", "as_array_union", "is_array", "is_array_union", "joined",
           "options_of", "shape", "unwrapped"]  # fmt: skip

_MOST = 8  # arrays that one name may mean


class Chosen:
    """What a group is that stands for one of several arrays."""

    __name__ = "array"

    def __init__(self, options: tuple[View | Fields, ...]) -> None:
        self.options = options


def is_array_union(value: Any) -> bool:
    """Whether a value is one of several arrays."""
    return isinstance(value, Group) and isinstance(value.kind, Chosen)


def is_array(value: Any) -> bool:
    """Whether a value is an array, or one of several."""
    return isinstance(value, View | Fields) or is_array_union(value)


def options_of(value: Any) -> tuple[Any, ...]:
    """Return the arrays that a value may mean."""
    return tuple(value.kind.options) if is_array_union(value) else (value,)


def joined(values: list[Any]) -> Chosen | None:
    """Return what stands for one of the arrays of some values, None if they are too unlike."""
    found: list[Any] = []
    for value in values:
        for option in options_of(value):
            if all(option is not f and option != f for f in found):
                found.append(option)
    first = found[0]
    alike = all(type(o) is type(first) and len(o.shape) == len(first.shape)
                and _dtypes(o) == _dtypes(first) for o in found)
    return Chosen(tuple(found)) if alike and len(found) <= _MOST else None


def _dtypes(array: View | Fields) -> Any:
    if isinstance(array, Fields):
        return (array.names, array.kind, tuple(map(_dtypes, array.parts)))
    return array.dtype


def as_array_union(value: Any, kind: Chosen) -> Group | None:
    """Return an array as one of those of a kind, None if it may be another one."""
    places = []
    for option in options_of(value):
        place = [k for k, o in enumerate(kind.options) if o is option or o == option]
        if not place:
            return None
        places.append(place[0])
    which: Any = ex.index(places[-1])
    if is_array_union(value):
        held: Expr = value.items[0]
        for k in reversed(range(len(places) - 1)):
            which = ex.where(held.eq(k), ex.index(places[k]), which)
    return Group((which,), (), kind)


def width(kind: Chosen) -> Group:
    """Return the types of the cells of a choice."""
    return Group((dt.int64,), (), kind)


def unwrapped(value: Any) -> Any:
    """Return a value with the arrays themselves where a choice has only one of them."""
    if is_array_union(value):
        return value.kind.options[0] if len(value.kind.options) == 1 else value
    if isinstance(value, Group):
        return value.replace(items=tuple(map(unwrapped, value.items)))
    return value


def apply(c: Context, value: Group, use: Callable[[Any], Value], node: ast.AST) -> Value:
    """Return what `use` gives for the array that is meant; its statements run for that one only."""
    options = options_of(value)
    which: Expr = value.items[0]

    def at(position: int) -> Value:
        if position == len(options) - 1:
            return use(options[position])
        test = which.eq(position)
        with c.into((test,)) as then:
            a = use(options[position])
        with c.into() as orelse:
            b = at(position + 1)
        if isinstance(a, Known) and isinstance(b, Known) and a == b:
            if then or orelse:
                c.emit(If(test, tuple(then), tuple(orelse)), node)
            return a
        return c.select(test, a, then, b, orelse, node)

    return at(0)


def part(c: Context, value: Group, use: Callable[[Any], Any], node: ast.AST) -> Group:
    """Return a part of the array that is meant: the parts of all of them, one chosen."""
    which: Expr = value.items[0]
    found = []
    for k, option in enumerate(options_of(value)):
        test = which.eq(k)
        with c.into((test,)) as body:
            found.append(use(option))
        if body:
            c.emit(If(test, tuple(body)), node)
    return Group(value.items, (), Chosen(tuple(found)))


def shape(value: Any) -> tuple[Expr, ...]:
    """Return the sizes of an array, or of the one that is meant."""
    options = options_of(value)
    sizes = list(options[-1].shape)
    for k in reversed(range(len(options) - 1)):
        sizes = [ex.where(value.items[0].eq(k), a, b)
                 for a, b in zip(options[k].shape, sizes, strict=True)]
    return tuple(sizes)
