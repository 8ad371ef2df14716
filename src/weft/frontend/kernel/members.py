"""Names that hold one of several things that are known: members of an enumeration, and texts.

Such a name holds a number, which says which of them it means: a group of one item, whose kind lists
them. So it lives in cells and meets as other numbers do. A member that is known stays one that is
known until it meets another one.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.frontend.kernel import scalars
from weft.frontend.kernel.promotion import unify
from weft.frontend.kernel.values import Group, Known, Value
from weft.ir import expr as ex
from weft.ir.expr import Expr

if TYPE_CHECKING:
    from weft.frontend.kernel.expressions import Expressions

__all__ = ["Members", "agreed", "apply", "as_member", "at", "compare", "is_member"]


class Members:
    """What a group is that stands for one of several things; texts are noted as they come."""

    def __init__(self, name: str, options: list[Any]) -> None:
        self.__name__ = name
        self.options = options


def is_member(value: Any) -> bool:
    """Whether a value is one of several things that are known."""
    return isinstance(value, Group) and isinstance(value.kind, Members)


def as_member(c: Expressions, value: Any) -> Any:
    """Return a member of an enumeration, or a text, as one of several; anything else as it is."""
    thing = value.value if isinstance(value, Known) else None
    if isinstance(thing, str) and not isinstance(thing, enum.Enum):
        kind = c.members.setdefault(str, Members("text", []))
        if thing not in kind.options:
            kind.options.append(thing)
        return _chosen(ex.index(kind.options.index(thing)), kind)
    if not isinstance(thing, enum.Enum) or isinstance(thing, int | float):
        return value
    kind = c.members.setdefault(type(thing), Members(type(thing).__name__, list(type(thing))))
    place = [k for k, option in enumerate(kind.options) if option is thing]
    return _chosen(ex.index(place[0]), kind) if place else value


def agreed(c: Expressions, values: list[Any]) -> list[Any]:
    """Return values that meet, with members as numbers where they are not all the same one."""
    kinds = (Known, Group)
    if not all(isinstance(v, kinds) for v in values) or all(v == values[0] for v in values[1:]):
        return values
    return [as_member(c, v) for v in values]


def compare(c: Expressions, kind: type[ast.cmpop], left: Value, right: Value) -> Value | None:
    """Return whether two members are one, None for other values and comparisons."""
    if not (is_member(left) or is_member(right)) or kind not in (
        ast.Eq, ast.NotEq, ast.Is, ast.IsNot
    ):
        return None
    a, b = as_member(c, left), as_member(c, right)
    if not (is_member(a) and is_member(b)) or a.kind is not b.kind:
        return Known(kind in (ast.NotEq, ast.IsNot))
    return scalars.apply_compare(kind, a.items[0], b.items[0])


def apply(c: Expressions, owner: Group, tell: Callable[[Any], Any]) -> Value | None:
    """Return what a member tells: a number or a text, None where not all members tell one."""
    kind: Any = owner.kind
    which: Expr = owner.items[0]
    try:
        known = [Known(tell(option)) for option in kind.options]
    except (AttributeError, TypeError):
        return None
    texts = [as_member(c, value) for value in known]
    if all(map(is_member, texts)) and all(t.kind is texts[0].kind for t in texts):
        return _chosen(at(which, [t.items[0] for t in texts]), texts[0].kind)
    numbers = [c.known_scalar(value.value) for value in known]
    held = [number for number in numbers if number is not None]
    if len(held) < len(known):
        return None
    d = held[0].dtype
    for number in held[1:]:
        d = unify(d, number.dtype)
    return at(which, [scalars.convert(number, d) for number in held])


def at(which: Expr, values: list[Expr]) -> Expr:
    """Return the number at a place among several; beyond them the last one."""
    found = values[-1]
    for k in reversed(range(len(values) - 1)):
        found = ex.where(which.eq(k), values[k], found)
    return found


def _chosen(which: Expr, kind: Members) -> Group:
    return Group((which,), (), kind)
