"""The kinds of values in kernels: a class for each, and one dispatch for each thing done with them.

What kernels do with a value is a method of its kind, which `kind_of` finds by type. A module of
`weft.lang.values` defines a kind and adds it to a table here; rare ones are imported when a value
of theirs is met.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.lang.core import scalars
from weft.lang.core.hints import operands, unindexed
from weft.lang.core.values import FIXED, Group, Known, Value, View, describe
from weft.lang.source.source import Stop

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["GROUPS", "SYMBOLS", "THINGS", "VALUES", "Iterations", "Kind", "Subscripts",
           "deciding", "kind_of", "unsupported"]  # fmt: skip

SYMBOLS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.MatMult: "@", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in",
    ast.NotIn: "not in", ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not",
}  # fmt: skip


Iterations = tuple[Expr, Callable[[Expr], Value]]  # of a loop: how many, and the item of each
Subscripts = list[tuple[ast.expr, Any]]  # with the value of an index, None of a slice

_NO_ELEMENTS: Final = "arrays have elements: arguments, gpu.shared.array and gpu.local.array"


class Kind:
    """What kernels do with values of one kind; what a class leaves out is as for a number.

    Attributes
    ----------
    rank : int
        Of two operands, that of the higher rank is asked first what an operator means.
    """

    rank = 0

    def truth(self, c: Context, value: Any, node: ast.AST) -> Expr | bool:
        """Return whether a value is true."""
        return scalars.truth(c.scalar(value, node, "a condition"))

    def binary(self, c: Context, op: type[ast.operator], left: Any, right: Any,
               node: ast.AST) -> Value | None:  # fmt: skip
        """Return ``left op right``, of which one is of this kind; None if it has no meaning."""
        return None

    def compare(self, c: Context, op: type[ast.cmpop], left: Any, right: Any,
                node: ast.AST) -> Value | None:  # fmt: skip
        """Return a comparison, of which one side is of this kind; None if it has no meaning."""
        return None

    def contains(self, c: Context, owner: Any, item: Value, node: ast.AST) -> Value | None:
        """Return ``item in owner``, None if nothing is in values of this kind."""
        return None

    def unary(self, c: Context, op: type[ast.unaryop], value: Any, node: ast.AST) -> Value | None:
        """Return ``op value`` for an operator other than not, None for that of a number."""
        return None

    def take(self, c: Context, value: Any, like: Any, node: ast.AST) -> Any:
        """Return a value as one of the kind of others that it meets; itself if it cannot be one.

        `like` are values, cells or types of cells of this kind.
        """
        return value

    def call(self, c: Context, callee: Any, node: ast.Call) -> Value:
        """Return what a call of a value gives."""
        raise c.wrong(node, f"{describe(callee)} cannot be called", "arrays and tuples are "
                      "indexed by []" if isinstance(callee, View | Group) else "")

    def attribute(self, c: Context, owner: Any, node: ast.Attribute) -> Value:
        """Return the attribute of a value."""
        raise c.wrong(node, f"{describe(owner)} has no {node.attr!r}")

    def length(self, c: Context, value: Any, node: ast.AST) -> Value:
        """Return ``len(value)``."""
        raise c.wrong(node, f"len of {describe(value)}")

    # --- items

    def items(self, value: Any) -> tuple[Any, ...] | None:
        """Return the items of a tuple, over which loops are unrolled; None of other things."""
        return None

    def iterate(self, c: Context, value: Any, node: ast.expr) -> Iterations:
        """Return the number of iterations of a loop over a value, and the item of each."""
        raise c.wrong(node, f"a loop over {describe(value)}",
                      "loops go over range, arrays, tuples, enumerate and zip")

    def index(self, c: Context, owner: Any, node: ast.Subscript) -> Value:
        """Return ``owner[...]``."""
        raise c.wrong(node, f"{describe(owner)} cannot be indexed", unindexed(owner))

    def element(self, c: Context, owner: Any, node: ast.Subscript) -> Any:
        """Return the part of an array that is assigned to; an element has no axes."""
        raise c.wrong(node, f"{describe(owner)} cannot be assigned to",
                      FIXED if isinstance(owner, Group) else _NO_ELEMENTS)

    def part(self, c: Context, array: Any, parts: Subscripts, node: ast.AST) -> Any:
        """Return the part of an array at some indices and slices (None)."""
        raise c.wrong(node, f"{describe(array)} cannot be indexed", unindexed(array))

    def read(self, c: Context, array: Any, node: ast.AST) -> Value:
        """Return what is in an element of an array; other values as they are."""
        held: Value = array
        return held

    def write(self, c: Context, array: Any, value: Value, node: ast.AST) -> None:
        """Store a value in an element, or in every element of a part of an array."""
        raise c.wrong(node, f"{describe(array)} cannot be assigned to", _NO_ELEMENTS)


class NumberKind(Kind):
    """A number that is known only when the kernel runs."""

    def attribute(self, c: Context, owner: Any, node: ast.Attribute) -> Value:
        """Return a part of a number."""
        if node.attr == "real" or (node.attr == "value" and owner.dtype.is_integer):
            held: Expr = owner  # `value`: of a member of an IntEnum, once it is not known which
            return held
        return ex.const(0, owner.dtype) if node.attr == "imag" else super().attribute(
            c, owner, node)


# A kind for each type and what is derived from it, or a module with it as KIND.
VALUES: Final[dict[type, Any]] = {object: Kind(), Expr: NumberKind()}  # by the type of the value
GROUPS: Final[dict[type, Any]] = {}  # by `complex`, or by the type of the group's kind
THINGS: Final[dict[type, Any]] = {}  # by the type of what is known


def kind_of(value: Any) -> Kind:
    """Return the kind of a value."""
    table, key = VALUES, type(value)
    if key is Group:
        table, key = GROUPS, complex if value.kind is complex else type(value.kind)
    elif key is Known:
        table, key = THINGS, type(value.value)
    found = table.get(key)
    return found if isinstance(found, Kind) else _inherited(table, key)


def _inherited(table: dict[type, Any], key: type) -> Kind:
    """Return the kind of the nearest base class that has one."""
    base = next(base for base in key.__mro__ if base in table)
    found = table[base]
    if not isinstance(found, Kind):
        found = table[base] = found.KIND
    kind: Kind = found
    return kind


def deciding(left: Value, right: Value) -> tuple[Kind, ...]:
    """Return the kinds of two operands, first the one that decides; groups are structs, too."""
    a, b = kind_of(left), kind_of(right)
    if a is b and a.rank <= 1:
        return (a,)
    groups = isinstance(left, Group) or isinstance(right, Group)
    found = dict.fromkeys((a, b, GROUPS[object]) if groups else (a, b))
    return tuple(sorted(found, key=lambda kind: -kind.rank))


def unsupported(c: Context, op: type[ast.AST], left: Value, right: Value,
                node: ast.AST) -> Stop:  # fmt: skip
    """Note an operator that two operands do not have."""
    return c.wrong(node, f"unsupported operands for {SYMBOLS[op]}: "
                   f"{describe(left)} and {describe(right)}", operands(op, left, right))
