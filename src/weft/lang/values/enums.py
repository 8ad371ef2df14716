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

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.lang.core import scalars
from weft.lang.core.kind import GROUPS
from weft.lang.core.promotion import unify
from weft.lang.core.values import Group, Known, Members, Value
from weft.lang.values.structs import GroupKind

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["apply", "as_member", "at", "is_member"]


def is_member(value: Any) -> bool:
    """Whether a value is one of several things that are known."""
    return isinstance(value, Group) and isinstance(value.kind, Members)


def as_member(c: Context, value: Any) -> Any:
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


class MemberKind(GroupKind):
    """One of several things that are known; what operators mean for it."""

    rank = 3

    def truth(self, c: Context, value: Any, node: ast.AST) -> Expr | bool:
        """Return whether a member is true, as those are that say nothing of it."""
        told = apply(c, value, bool)
        return True if told is None else c.scalar(told, node)

    def take(self, c: Context, value: Any, like: Any, node: ast.AST) -> Any:
        """Return a member of an enumeration, or a text, as one of several."""
        return as_member(c, value)

    def attribute(self, c: Context, owner: Any, node: ast.Attribute) -> Value:
        """Return what a member has under a name."""
        told = apply(c, owner, lambda option: getattr(option, node.attr))
        return super().attribute(c, owner, node) if told is None else told

    def length(self, c: Context, value: Any, node: ast.AST) -> Value:
        """Return the length of a text."""
        size = apply(c, value, len)
        return super().length(c, value, node) if size is None else size

    def compare(self, c: Context, op: type[ast.cmpop], left: Any, right: Any,
                node: ast.AST) -> Value | None:  # fmt: skip
        """Return whether two members are one, None for other comparisons."""
        if op not in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot):
            return None
        a, b = as_member(c, left), as_member(c, right)
        if not (is_member(a) and is_member(b)) or a.kind is not b.kind:
            return Known(op in (ast.NotEq, ast.IsNot))
        return scalars.apply_compare(op, a.items[0], b.items[0])


GROUPS[Members] = MemberKind()


def apply(c: Context, owner: Group, tell: Callable[[Any], Any]) -> Value | None:
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
