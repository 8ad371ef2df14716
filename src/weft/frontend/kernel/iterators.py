"""Iterators in kernels: ``iter`` and ``next``.

An iterator is what it goes over and a register with the place of its next item, so that ``next``,
loops and functions that are given it take the items one after the other, whoever asks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.frontend.kernel import chosen
from weft.frontend.kernel.elements import is_text
from weft.frontend.kernel.values import Group, Iterator, Known, Range, Value, Walk, describe
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op

if TYPE_CHECKING:
    from weft.frontend.kernel.loops import Loops
    from weft.frontend.kernel.source import Source

__all__ = [
    "has_more", "inside", "is_iterator", "is_kept", "iterator_of", "next_of", "side_by_side",
    "walked",
]  # fmt: skip


def is_iterator(value: Value) -> bool:
    """Whether a value is an iterator."""
    return isinstance(value, Known) and isinstance(value.value, Iterator)


def inside(value: Value) -> Iterator | None:
    """Return the iterator that a loop goes over, with a count beside it or not, or None."""
    known = value.value if isinstance(value, Known) else None
    if isinstance(known, Walk):
        return next(filter(None, map(inside, known.parts)), None)
    return known if isinstance(known, Iterator) else None


def is_kept(source: Source, node: ast.Call, parts: Sequence[Value]) -> bool:
    """Whether a function asks ``enumerate`` and ``zip`` for items from several places.

    It may call ``next``, or go more than once over what a name holds.
    """
    single = not any(isinstance(p, Group) for p in parts)
    return any((isinstance(n, ast.Name) and n.id == "next") or (
        single and isinstance(n, ast.Assign | ast.NamedExpr) and n.value is node
    ) for n in ast.walk(source.tree))


def iterator_of(c: Loops, value: Value, node: ast.AST) -> Value:
    """Return ``iter(value)``, which is an iterator itself if the value is one."""
    if is_iterator(value):
        return value
    if isinstance(value, Known) and isinstance(value.value, Walk) and any(
        map(is_iterator, value.value.parts)
    ):
        raise c.wrong(node, "an iterator of iterators side by side", "call next on each of them")
    cell = c.cell("place", dt.int64, node)
    c.put(cell, ex.index(0), node)
    return Known(Iterator(value, cell))


def next_of(c: Loops, value: Value, node: ast.Call) -> Value:
    """Return ``next(value)``, and go on to the item behind it."""
    it = value.value if isinstance(value, Known) else None
    if not isinstance(it, Iterator):
        raise c.wrong(node, f"next of {describe(value)}", "it is for iterators: it = iter(x)")
    extent, item = _parts(c, it.items, node)
    place = c.get(it.cell, "place", node)
    c.require(place.lt(extent), "StopIteration: next of an iterator at its end", node,
              c.this_thread())
    c.put(it.cell, place + 1, node)
    return item(place)


def walked(c: Loops, it: Iterator, node: ast.expr) -> tuple[Expr, Callable[[Expr], Value]]:
    """Return how many items a loop over an iterator gets, and what takes each of them."""
    extent, item = _parts(c, it.items, node)
    first = c.get(it.cell, "place", node)

    def taken(_: Expr) -> Value:
        place = c.get(it.cell, "place", node)  # others may have taken items since the last turn
        c.put(it.cell, place + 1, node)
        return item(place)

    return ex.maximum(extent - first, 0), taken


def has_more(c: Loops, it: Iterator, node: ast.expr) -> Expr:
    """Return whether there is a next item."""
    return c.get(it.cell, "place", node).lt(_parts(c, it.items, node)[0])


def side_by_side(c: Loops, walk: Walk, node: ast.expr) -> Value | list[Callable[[], Value]]:
    """Return what zip and enumerate go over; where a tuple tells how many there are, each item.

    Items are taken in their turns, as turns before may have changed them.
    """
    parts: list[Any] = [
        side_by_side(c, p.value, node) if isinstance(p, Known) and isinstance(p.value, Walk) else p
        for p in (c.walkable(part, node) for part in walk.parts)
    ]
    if any(map(is_iterator, parts)) and not is_count(parts[0]):
        raise c.wrong(node, "a loop over zip of iterators", "call next for each of them")
    rows = [_turns(p) for p in parts]
    counts = [len(row) for row in rows if row is not None]
    if not counts:
        return Known(Walk(tuple(parts)))
    walks = [c.walk(p, node) for p, row in zip(parts, rows, strict=True) if row is None]
    ends = [end for end, _ in walks]
    count = min(counts + [max(int(n.attr), 0) for n in ends if n.op is Op.CONST])
    for n in ends:
        c.require(ex.index(count).le(n), "zip of a tuple and of what is shorter", node)

    def taken(k: int) -> Value:
        others = iter(walks)
        return Group(tuple(next(others)[1](ex.index(k)) if row is None else row[k]()
                           for row in rows))

    return [partial(taken, k) for k in range(count)]


def _turns(part: Any) -> list[Callable[[], Value]] | None:
    """Return what takes each item of a tuple, None of other things."""
    if isinstance(part, list):
        return part
    return [partial(part.items.__getitem__, k) for k in range(len(part.items))] if _is_row(
        part) else None


def _is_row(items: Any) -> bool:
    return isinstance(items, Group) and not chosen.is_chosen(items) and not is_text(items)


def is_count(part: Value) -> bool:
    """Whether a part of what a loop goes over is the count of ``enumerate``."""
    return isinstance(part, Known) and isinstance(part.value, Range) and (
        ex.is_const(part.value.stop, 1 << 62))


def _parts(c: Loops, items: Any, node: Any) -> tuple[Expr, Callable[[Expr], Value]]:
    if not _is_row(items):
        return c.walk(items, node)
    return ex.index(len(items.items)), lambda k: c.among(list(items.items), k, node)
