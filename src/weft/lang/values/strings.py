"""Texts in kernels: elements of ``U12``, characters, and of ``S12``, bytes.

A text is its codes, and zeros behind them: a group of numbers, whose kind says how many. So texts
live in cells, meet and return as tuples do, and an array of them is one of codes with one axis
more. As in NumPy, zeros at the end do not count, and what is stored is cut off or filled with them.
Where texts of unlike lengths meet they get the longer one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.lang.core import scalars
from weft.lang.core.element_types import TextOf, is_text, text_of
from weft.lang.core.emitter import negation
from weft.lang.core.kind import Iterations
from weft.lang.core.values import Fields, Group, Known, Value, View, describe
from weft.lang.values import enums
from weft.lang.values.structs import GroupKind

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.values import constants
else:
    constants = Late("weft.lang.values.constants")

__all__ = ["KIND", "as_text", "ordinal", "read", "stored"]

_ORDERS: Final = {ast.Lt: (ast.Lt, False), ast.LtE: (ast.Lt, True),
                  ast.Gt: (ast.Gt, False), ast.GtE: (ast.Gt, True)}  # strictly, and where equal


def _codes(kind: TextOf, text: str | bytes) -> list[Expr]:
    return [ex.const(ord(c) if isinstance(c, str) else c, kind.number) for c in text]


def _known(c: Context, value: Any) -> str | bytes | None:
    """Return a text that is known when the kernel is compiled."""
    if isinstance(value, Known):
        return str(value.value) if isinstance(value.value, str) else None
    return constants.known_bytes(c, value) if isinstance(value, View) else None


def as_text(c: Context, value: Any, letter: str, count: int = 0) -> Any:
    """Return a text that is known, or one of several, by its codes; other values as they are.

    It has at least `count` codes; a text that has codes gets zeros behind them.
    """
    if enums.is_member(value) and letter == "U":
        options = value.kind.options
        if not all(isinstance(option, str) for option in options):
            return value
        size = max(count, *map(len, options))
        kind = text_of(letter, size)
        rows = [_codes(kind, option.ljust(size, "\0")) for option in options]
        return Group(tuple(enums.at(value.items[0], list(column))
                           for column in zip(*rows, strict=True)), (), kind)
    if is_text(value):
        codes = list(value.items)
        if value.kind.letter != letter or len(codes) >= count:
            return value
    else:
        known = _known(c, value)
        if known is None or isinstance(known, str) != (letter == "U"):
            return value
        codes = _codes(text_of(letter, 1), known)
    kind = text_of(letter, max(count, len(codes), 1))
    missing = kind.count - len(codes)
    return Group((*codes, *[ex.const(0, kind.number)] * missing), (), kind)


# --- elements


def _place(array: Fields, k: Expr) -> View:
    """Return a code of an element."""
    codes: View = array.parts[0]
    axis = codes.axes[-1]
    starts = list(codes.starts)
    starts[axis.axis] = starts[axis.axis] + k * axis.step
    found: View = codes.replace(starts=tuple(starts), axes=codes.axes[:-1])
    return found


def read(c: Context, array: Fields, node: ast.AST) -> Group:
    """Return an element of an array of texts."""
    kind: TextOf = array.kind
    return Group(tuple(c.scalar(c.read(_place(array, ex.index(k)), node), node)
                       for k in range(kind.count)), (), kind)


def stored(c: Context, array: Fields, value: Value, node: ast.AST) -> None:
    """Store a text in an element, as far as there is room."""
    kind: TextOf = array.kind
    text = as_text(c, value, kind.letter, kind.count)
    if not is_text(text) or text.kind.letter != kind.letter:
        raise c.wrong(node, f"cannot store {describe(value)} in an array of {kind.__name__}",
                      "U has texts, S has bytes: b'...'")
    for k, code in enumerate(text.items[:kind.count]):
        c.write(_place(array, ex.index(k)), code, node)


# --- what a text tells


def length(text: Group) -> Expr:
    """Return how many codes there are before the zeros at the end."""
    found: Expr = _folded([ex.where(code.ne(0), ex.index(k + 1), ex.index(0))
                           for k, code in enumerate(text.items)], ex.maximum)
    return found


def _folded(values: list[Any], fold: Callable[[Any, Any], Any]) -> Any:
    """Return values put together two by two, so that the longest chain of them is short."""
    while len(values) > 1:
        rest = values[len(values) // 2 * 2:]
        values = [*(fold(a, b) for a, b in zip(values[::2], values[1::2], strict=False)), *rest]
    return values[0]


def at(text: Group, place: Expr) -> Value:
    """Return what is at a place: the number of a byte, or a text of one character."""
    _, found = _folded(list(enumerate(text.items)), lambda a, b: (
        a[0], ex.where(place.lt(b[0]), a[1], b[1])))
    if text.kind.letter == "S":
        return ex.cast(found, dt.uint32)
    return Group((found,), (), text_of("U", 1))


def item(c: Context, text: Group, node: ast.Subscript) -> Value:
    """Return ``text[i]``, or a slice from the beginning whose ends are known."""
    if isinstance(node.slice, ast.Slice):
        return _cut(c, text, node.slice, node)
    place = scalars.convert(c.scalar(c.visit(node.slice), node, "an integer"), dt.int64)
    size = length(text)
    place = c.bind(ex.where(place.lt(0), place + size, place), "place", node)
    inside = ex.binary(Op.AND, ex.index(0).le(place), place.lt(size))
    c.require(inside, "index out of bounds", node, place, size)
    return at(text, place)


def _cut(c: Context, text: Group, key: ast.Slice, node: ast.AST) -> Value:
    ends = []
    for end, default in ((key.lower, 0), (key.upper, len(text.items))):
        held = Known(default) if end is None else c.visit(end)
        ends.append(default if held == Known(None) else c.known_int(held, node, "the end of a "
                                                                    "slice of a text"))
    if min(ends) < 0 or key.step is not None:
        raise c.wrong(node, "a slice of a text from its end, or with a step",
                      "its length is known only when the kernel runs")
    codes = text.items[slice(*ends)] or (ex.const(0, text.kind.number),)
    return Group(codes, (), text_of(text.kind.letter, len(codes)))


def ordinal(c: Context, text: Group, node: ast.AST) -> Expr:
    """Return ``ord(text)`` of one character."""
    one = length(text).eq(1)
    c.require(one, "TypeError: ord() of a text that has not one character", node, length(text))
    return scalars.convert(text.items[0], dt.int64)


class TextKind(GroupKind):
    """A text; what operators mean for it."""

    rank = 5

    def truth(self, c: Context, value: Any, node: ast.AST) -> Expr:
        """Return whether there is a code that counts."""
        found: Expr = _folded([code.ne(0) for code in value.items], partial(ex.binary, Op.OR))
        return found

    def length(self, c: Context, value: Any, node: ast.AST) -> Expr:
        """Return how many codes there are before the zeros at the end."""
        return length(value)

    def items(self, value: Any) -> None:
        """Return None: how many characters there are is known when the kernel runs."""

    def iterate(self, c: Context, value: Any, node: ast.expr) -> Iterations:
        """Return the number of characters, and the character of each iteration."""
        return length(value), lambda k: at(value, k)

    def index(self, c: Context, owner: Any, node: ast.Subscript) -> Value:
        """Return a character, or a slice from the beginning whose ends are known."""
        return item(c, owner, node)

    def take(self, c: Context, value: Any, like: Any, node: ast.AST) -> Any:
        """Return a text with the length of others, which is not shorter."""
        return as_text(c, value, like.kind.letter, like.kind.count)

    def contains(self, c: Context, owner: Any, item: Value, node: ast.AST) -> None:
        """Return None: kernels do not search in texts."""

    def compare(self, c: Context, op: type[ast.cmpop], left: Any, right: Any,
                node: ast.AST) -> Value | None:  # fmt: skip
        """Return a comparison of two texts; None of anything else. Unlike kinds are not equal."""
        given: tuple[Any, Any] = left, right
        letter = next(v.kind.letter for v in given if is_text(v))
        sides = [as_text(c, v, letter) for v in given]
        if not all(is_text(v) and v.kind.letter == letter for v in sides):
            other = any(_known(c, v) is not None or (is_text(v) and v.kind.letter != letter)
                        for v in sides)
            return Known(op is ast.NotEq) if other and op in (ast.Eq, ast.NotEq) else None
        if op not in _ORDERS and op not in (ast.Eq, ast.NotEq):
            return None
        ended = [(_known(c, v) or "")[-1:] in ("\0", b"\0") for v in (left, right)]
        zero = ex.const(0, sides[0].kind.number)
        pairs = list(zip_longest(*(v.items for v in sides), fillvalue=zero))
        if op in (ast.Eq, ast.NotEq):
            if any(ended):  # a text of an array has no such end
                return Known(op is ast.NotEq)
            found: Expr = _folded([a.eq(b) for a, b in pairs], partial(ex.binary, Op.AND))
            return found if op is ast.Eq else negation(found)
        strict, equal = _ORDERS[op]
        if any(ended):  # the longer one is the larger one
            equal = ended[1] if strict is ast.Lt else ended[0]
        same, before = _folded([(a.eq(b), scalars.apply_compare(strict, a, b)) for a, b in pairs],
                               _ordered)
        return ex.binary(Op.OR, before, same) if equal else before


KIND = TextKind()


def _ordered(a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """Return whether both parts of two texts are equal, and whether the first differs in order."""
    later = ex.binary(Op.AND, a[0], b[1])
    return ex.binary(Op.AND, a[0], b[0]), ex.binary(Op.OR, a[1], later)
