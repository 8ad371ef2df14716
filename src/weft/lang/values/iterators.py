"""Iterators in kernels: ``iter`` and ``next``.

An iterator is what it goes over and a register with the place of its next item, so that ``next``,
loops and functions that are given it take the items one after the other, whoever asks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.lang.core.kind import Iterations, kind_of
from weft.lang.core.values import Group, Iterator, Known, Value, Walk, describe
from weft.lang.values.ranges import ENDLESS
from weft.lang.values.structs import KnownKind

if TYPE_CHECKING:
    from weft.lang.core.context import Context
    from weft.lang.source.source import Source

__all__ = ["KIND", "first_of", "is_iterator", "is_kept", "iterator_of", "next_of", "side_by_side",
           "taken"]  # fmt: skip

# what goes once over its argument, and what is walked with it: loops ask that where it stands
_ONCE: Final = frozenset(("all", "any", "enumerate", "iter", "max", "min", "sum", "zip"))


def is_iterator(value: Value) -> bool:
    """Whether a value is an iterator; several side by side are one, too."""
    known = value.value if isinstance(value, Known) else None
    if isinstance(known, Walk):
        return bool(known.parts) and all(map(is_iterator, known.parts))
    return isinstance(known, Iterator)


def first_of(value: Value) -> Iterator | None:
    """Return the first iterator in what a loop goes over, None if there is none."""
    known = value.value if isinstance(value, Known) else None
    if isinstance(known, Walk):
        return next(filter(None, map(first_of, known.parts)), None)
    return known if isinstance(known, Iterator) else None


def is_kept(source: Source, node: ast.Call, parts: Sequence[Value]) -> bool:
    """Whether a function asks ``enumerate`` and ``zip`` for items from several places.

    It may call ``next``, go more than once over what a name holds, or have another function do so.
    """
    tuples = not any(map(first_of, parts)) and any(isinstance(p, Group) for p in parts)
    for n in ast.walk(source.tree):
        if isinstance(n, ast.Name) and n.id == "next":
            return True
        if isinstance(n, ast.Assign | ast.NamedExpr | ast.Return) and n.value is node:
            return not tuples or not isinstance(n, ast.Assign) or _is_read_again(source, n)
        if isinstance(n, ast.Call) and node in n.args and not _goes_once(n):
            return True
    return False


def _is_read_again(source: Source, stmt: ast.Assign) -> bool:
    """Whether what a statement sets may be read more than once before it is set again."""
    names = {t.id for t in stmt.targets if isinstance(t, ast.Name)}
    reads = [n for n in ast.walk(source.tree) if isinstance(n, ast.Name) and n.id in names
             and isinstance(n.ctx, ast.Load)]
    if len(reads) != 1:
        return True
    around = [{id(m) for s in n.body for m in ast.walk(s)} for n in ast.walk(source.tree)
              if isinstance(n, ast.For | ast.While)]
    return any(id(reads[0]) in inner and id(stmt) not in inner for inner in around)


def _goes_once(call: ast.Call) -> bool:
    """Whether a function goes once over what it is given, or hands it on."""
    return isinstance(call.func, ast.Name) and call.func.id in _ONCE


def iterator_of(c: Context, value: Value, node: ast.AST) -> Value:
    """Return ``iter(value)``, which is an iterator itself if the value is one."""
    if is_iterator(value):
        return value
    if isinstance(value, Known) and isinstance(value.value, Walk) and not _in_step(value):
        return Known(Walk(tuple(iterator_of(c, part, node) for part in value.value.parts)))
    cell = c.cell("place", dt.int64, node)
    c.put(cell, ex.index(0), node)
    return Known(Iterator(value, cell))


def _in_step(value: Value) -> bool:
    """Whether one place tells the next item of all that is gone over side by side."""
    known = value.value if isinstance(value, Known) else None
    if isinstance(known, Walk):
        return all(map(_in_step, known.parts))
    return not isinstance(known, Iterator) and kind_of(value).items(value) is None


def next_of(c: Context, value: Value, node: ast.Call) -> Value:
    """Return ``next(value)``, and go on to the item behind it."""
    it = value.value if isinstance(value, Known) else None
    if isinstance(it, Walk) and is_iterator(value):
        return Group(tuple(next_of(c, part, node) for part in it.parts))
    if not isinstance(it, Iterator):
        raise c.wrong(node, f"next of {describe(value)}", "it is for iterators: it = iter(x)")
    extent, item = _parts(c, it.items, node)
    place = c.get(it.cell, "place", node)
    c.require(place.lt(extent), "StopIteration: next of an iterator at its end", node,
              c.this_thread())
    c.put(it.cell, place + 1, node)
    return item(place)


def taken(c: Context, value: Value, going: Expr, turn: Expr,
          node: ast.expr) -> tuple[Expr, Callable[[], Value]]:  # fmt: skip
    """Take an item of each iterator that a loop goes over, up to the first that has none.

    Returns
    -------
    going : Expr
        Whether the loop was `going` and all had an item.
    item : callable
        Gives what was taken; of what is no iterator, the item of this turn.
    """
    known = value.value if isinstance(value, Known) else None
    if isinstance(known, Walk):
        items = []
        for part in known.parts:
            going, item = taken(c, part, going, turn, node)
            items.append(item)
        return going, lambda: Group(tuple(item() for item in items))
    if not isinstance(known, Iterator):
        extent, item_at = _parts(c, c.walkable(value, node), node)
        return _both(going, turn.lt(extent)), partial(item_at, turn)
    extent, item_at = _parts(c, known.items, node)
    place = c.get(known.cell, "place", node)
    going = _both(going, place.lt(extent))
    c.put(known.cell, ex.where(going, place + 1, place), node)
    return going, partial(item_at, place)


def _both(a: Expr, b: Expr) -> Expr:
    return b if ex.is_const(a, True) else ex.binary(Op.AND, a, b)


def side_by_side(c: Context, walk: Walk, node: ast.expr) -> Value | list[Callable[[], Value]]:
    """Return what zip and enumerate go over; where a tuple tells how many there are, each item.

    Items are taken in their turns, as turns before may have changed them.
    """
    parts: list[Any] = [
        side_by_side(c, p.value, node) if isinstance(p, Known) and isinstance(p.value, Walk) else p
        for p in (c.walkable(part, node) for part in walk.parts)
    ]
    rows = [_turns(p) for p in parts]
    counts = [len(row) for row in rows if row is not None]
    if not counts:
        return Known(Walk(tuple(parts)))
    walks = [kind_of(p).iterate(c, p, node)
             for p, row in zip(parts, rows, strict=True) if row is None]
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
    row = None if isinstance(part, list) else kind_of(part).items(part)
    return part if row is None and isinstance(part, list) else None if row is None else [
        partial(row.__getitem__, k) for k in range(len(row))]


def _parts(c: Context, items: Any, node: Any) -> Iterations:
    row = kind_of(items).items(items)
    if row is None:
        return kind_of(items).iterate(c, items, node)
    return ex.index(len(row)), lambda k: c.among(list(row), k, node)


class WalkKind(KnownKind):
    """Things to walk through side by side."""

    def iterate(self, c: Context, value: Any, node: ast.expr) -> Iterations:
        """Return the number of iterations of the shortest, and the items of all in each."""
        parts = [kind_of(part).iterate(c, part, node) for part in value.value.parts]
        if not parts:
            raise c.wrong(node, "a loop over zip of nothing")
        extent = parts[0][0]
        for other, _ in parts[1:]:
            extent = extent if ex.is_const(other, ENDLESS) else (
                other if ex.is_const(extent, ENDLESS) else ex.minimum(extent, other))
        return extent, lambda k: Group(tuple(item(k) for _, item in parts))


KIND = WalkKind()
