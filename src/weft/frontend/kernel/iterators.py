"""Iterators in kernels: ``iter`` and ``next``.

An iterator is what it goes over and a register with the place of its next item, so that ``next``,
loops and functions that are given it take the items one after the other, whoever asks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.frontend.kernel import chosen
from weft.frontend.kernel.elements import is_text
from weft.frontend.kernel.values import Group, Known, Value, Walk, describe
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Memory

if TYPE_CHECKING:
    from weft.frontend.kernel.loops import Loops
    from weft.frontend.kernel.source import Source

__all__ = ["Iterator", "asks_for_next", "is_iterator", "iterator_of", "next_of", "walked"]


class Iterator:
    """What ``iter(items)`` is: the items, and the cell with the place of the next one."""

    __slots__ = ("cell", "items")

    def __init__(self, items: Value, cell: Memory) -> None:
        self.items, self.cell = items, cell


def is_iterator(value: Value) -> bool:
    """Whether a value is an iterator."""
    return isinstance(value, Known) and isinstance(value.value, Iterator)


def asks_for_next(source: Source) -> bool:
    """Whether a function calls ``next``, for which ``enumerate`` and ``zip`` are iterators."""
    return any(isinstance(n, ast.Name) and n.id == "next" for n in ast.walk(source.tree))


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

    def taken(k: Expr) -> Value:
        c.put(it.cell, first + k + 1, node)
        return item(first + k)

    return ex.maximum(extent - first, 0), taken


def _parts(c: Loops, items: Any, node: Any) -> tuple[Expr, Callable[[Expr], Value]]:
    row = isinstance(items, Group) and not chosen.is_chosen(items) and not is_text(items)
    if not row:
        return c.walk(items, node)
    return ex.index(len(items.items)), lambda k: c.among(list(items.items), k, node)
