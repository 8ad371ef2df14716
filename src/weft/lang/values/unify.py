"""Values of several kinds that meet: of times the finer unit, of texts the longer one."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir.op import Op
from weft.ir.stmt import Stmt
from weft.lang.core import array_union, optional, sliding_view
from weft.lang.core.element_types import COMPLEX, TextOf, TimeOf, is_text, text_of
from weft.lang.core.kind import kind_of
from weft.lang.core.values import Group, Known, View
from weft.lang.values import complex_numbers, enums

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.values import times
else:
    times = Late("weft.lang.values.times")

__all__ = ["agreed", "common", "joined", "width"]


def joined(values: list[Any]) -> Any:
    """Return the kind in which values meet, None where they do not or have one kind already."""
    found = {id(v.kind): v.kind for v in values if _has_kind(v)}
    kinds = list(found.values())
    alone = all(map(_has_kind, values))
    if not kinds or (alone and len(kinds) == 1):
        return None
    if all(isinstance(kind, TimeOf) for kind in kinds):
        return reduce(lambda a, b: a and times.both(a, b), kinds) if alone else None
    letters = {kind.letter for kind in kinds}
    if len(letters) > 1:
        return None
    letter, = letters
    sizes = [_size(v, letter) for v in values]
    return None if None in sizes else text_of(letter, max(size for size in sizes if size))


def _has_kind(value: Any) -> bool:
    return isinstance(value, Group) and isinstance(value.kind, TimeOf | TextOf)


def width(kind: TimeOf | TextOf) -> Group:
    """Return the types of the cells of a time or a text."""
    return Group((kind.number,) * math.prod(kind.axes), (), kind)


def _size(value: Any, letter: str) -> int | None:
    """Return how many codes a text of bytes (S) or characters (U) has, None of what is none."""
    if is_text(value):
        return len(value.items)
    if letter == "S":
        is_known = isinstance(value, View) and value.readonly and len(value.axes) == 1 and (
            value.dtype is dt.uint8 and value.axes[0].extent.op is Op.CONST)
        return int(value.axes[0].extent.attr) if is_known else None
    if enums.is_member(value) and all(isinstance(o, str) for o in value.kind.options):
        return max(map(len, value.kind.options))
    return len(value.value) if isinstance(value, Known) and isinstance(value.value, str) else None


def common(c: Context, values: list[Any]) -> Group | None:
    """Return cells, or their types, of the kind of group in which values meet, None without one.

    Values may be in cells themselves.
    """
    if all(array_union.is_array(v) or sliding_view.is_sliding_view(v) for v in values):
        known = not any(map(sliding_view.is_sliding_view, values))
        union = array_union.joined(values) if known else None
        if union is not None and all(map(c.is_visible, union.options)):
            return array_union.width(union)
        parts = sliding_view.joined(values, c.is_visible)
        return None if parts is None else sliding_view.width(parts)
    if c.wraps and any(optional.is_optional(v) or optional.is_none(v) for v in values) and all(
        optional.fits(v) or c.number_of(v) is not None for v in values
    ):
        return optional.width(optional.kind_of(values))
    kind = joined(values)
    if kind is not None:
        return width(kind)
    if any(map(complex_numbers.is_complex, values)):
        return Group((dt.float64, dt.float64), COMPLEX, complex)
    if all(isinstance(v, Known | Group) for v in values) and any(v != values[0] for v in values):
        return next(filter(enums.is_member, (enums.as_member(c, v) for v in values)), None)
    return None


def agreed(c: Context, values: list[Any], node: ast.AST,
           bodies: Sequence[list[Stmt]] | None = None) -> list[Any]:  # fmt: skip
    """Return values that meet as values of one kind, where they have one in common.

    What that needs is written at the ends of `bodies`, one for each value, or here.
    """
    like = common(c, values)
    if like is None:
        return values
    found = []
    for k, value in enumerate(values):
        with c.extending(c.out if bodies is None else bodies[k]):
            found.append(kind_of(like).take(c, value, like, node))
    return found
