"""Which axis of a block becomes the lanes of vectors.

Neighbours on the first axis (x) are neighbours in a warp, and most kernels let them work on
neighbouring elements. Kernels that call the first axis the rows of a matrix do not: with x as lanes
each of their accesses would gather elements of as many rows. Where nothing depends on warps, the
axis is taken along which accesses are consecutive or the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Atomic, Body, For, Let, Load, Store, While
from weft.ir.traverse import walk
from weft.passes.common.lanes import linear

__all__ = ["CLEARLY", "consecutive", "lanes_last"]

CLEARLY: Final = 2  # how many times less another axis has to cost, if nobody asks for it

_DEEPER: Final = 8  # how much more often an access in a loop takes place
_MOST: Final = 4096  # what one access counts at most
_SAME, _CONSECUTIVE, _APART = 0, 1, 8  # what an access costs


def lanes_last(axes: Sequence[For], body: Body, lanes: int, least: int = CLEARLY) -> list[For]:
    """Return the axes of threads, the one that becomes lanes last.

    It is another one than was last if its accesses cost `least` times less.
    """
    found = list(axes)
    fit = [a for a in axes if int(a.extent.attr) % lanes == 0 or lanes % int(a.extent.attr) == 0]
    if len(axes) < 2 or lanes < 2 or axes[-1] not in fit:
        return found
    lets = {s.var: s.value for s in walk(body) if isinstance(s, Let)}
    accesses = list(_accesses(body))
    costs = {a.var: _cost(a.var, accesses, lets) for a in fit if int(a.extent.attr) >= lanes // 2}
    last = axes[-1]
    best = min((a for a in fit if a.var in costs), key=lambda a: costs[a.var], default=last)
    if last.var in costs and least * costs[best.var] < costs[last.var]:
        found.remove(best)
        found.append(best)
    return found


def consecutive(axis: Expr, index: tuple[Expr, ...], lets: dict[Expr, Expr]) -> bool:
    """Return whether neighbours on an axis reach the same element or elements side by side."""
    return _kind(axis, index, lets) != _APART


def _accesses(body: Body) -> list[tuple[tuple[Expr, ...], int]]:
    """Return the indices of all accesses to arrays, and how often they take place, roughly."""
    found: list[tuple[tuple[Expr, ...], int]] = []
    stack = [(body, 1)]
    while stack:
        part, weight = stack.pop()
        for s in part:
            if isinstance(s, Load | Store | Atomic) and s.index:
                found.append((s.index, weight))
            more = weight * _DEEPER if isinstance(s, For | While) else weight
            stack.extend((inner, min(more, _MOST)) for inner in s.bodies())
    return found


def _cost(axis: Expr, accesses: Sequence[tuple[tuple[Expr, ...], int]],
          lets: dict[Expr, Expr]) -> int:  # fmt: skip
    """Return what accesses cost if an axis becomes lanes."""
    total = 0
    for index, weight in accesses:
        total += weight * _kind(axis, index, lets)
    return total


def _kind(axis: Expr, index: tuple[Expr, ...], lets: dict[Expr, Expr]) -> int:
    last = len(index) - 1
    kind = _SAME
    for place, e in enumerate(index):
        symbols, _ = linear(e, lets)
        for symbol, times in symbols.items():
            if symbol is axis:
                kind = max(kind, _CONSECUTIVE if place == last and times == 1 else _APART)
            elif symbol.args and axis in ex.free_vars([symbol]):
                return _APART
    return kind
