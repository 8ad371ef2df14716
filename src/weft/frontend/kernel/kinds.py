"""Times of several units and texts of several lengths that meet: in the finer, the longer one."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from weft.frontend.kernel import members
from weft.frontend.kernel.elements import TextOf, TimeOf, is_text, is_time, text_of
from weft.frontend.kernel.values import Group, Known, View
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir.op import Op

if TYPE_CHECKING:
    from weft.frontend.kernel import strings, times
    from weft.frontend.kernel.expressions import Expressions
else:
    strings = Late("weft.frontend.kernel.strings")
    times = Late("weft.frontend.kernel.times")

__all__ = ["agreed", "as_kind", "joined", "width"]


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
    sizes = [_size(v) for v in values]
    if None in sizes or len(letters) > 1:
        return None
    return text_of(*letters, max(size for size in sizes if size))


def _has_kind(value: Any) -> bool:
    return isinstance(value, Group) and isinstance(value.kind, TimeOf | TextOf)


def width(kind: TimeOf | TextOf) -> Group:
    """Return the types of the cells of a time or a text."""
    types = (dt.int64,) if isinstance(kind, TimeOf) else (kind.codes,) * kind.count
    return Group(types, (), kind)


def _size(value: Any) -> int | None:
    """Return how many codes a text has, None of what is none."""
    if is_text(value):
        return len(value.items)
    if members.is_member(value) and all(isinstance(o, str) for o in value.kind.options):
        return max(map(len, value.kind.options))
    if isinstance(value, View) and value.readonly and len(value.axes) == 1 and (
        value.dtype is dt.uint8 and value.axes[0].extent.op is Op.CONST
    ):
        return int(value.axes[0].extent.attr)  # bytes that are known
    return len(value.value) if isinstance(value, Known) and isinstance(value.value, str) else None


def as_kind(c: Expressions, value: Any, kind: Any) -> Any:
    """Return a time or a text as one of a kind in which it meets others."""
    if isinstance(kind, TextOf):
        return strings.as_text(c, value, kind.letter, kind.count)
    return times.in_kind(value, kind) if is_time(value) else value


def agreed(c: Expressions, values: list[Any]) -> list[Any]:
    """Return values that meet as values of one kind, where they have one in common."""
    kind = joined(values)
    return values if kind is None else [as_kind(c, v, kind) for v in values]
