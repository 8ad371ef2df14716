"""Fuse an adjacent prologue or epilogue nest into a loop's first or last iteration."""

from __future__ import annotations

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import (
    SERIAL,
    Alloc,
    Body,
    For,
    If,
    Kernel,
    Let,
    Load,
    Memory,
    Prefetch,
    Reduce,
    Stmt,
    Store,
)
from weft.ir.traverse import stores, walk
from weft.schedule.analysis.space import Edit, Site, constant, find_for


def fuse_prologue_epilogue(kernel: Kernel, nest: str, loop: str, into: str) -> Kernel:
    """Fuse a nest right before or behind a loop into its first or last iteration, part by part.

    for j.b: t[j.b] = 0; for k in n: for j: t[j] += ...; for j.e: y[j.e] = t[j.e]
    ->  for j.b: t[j.b] = 0; for k in n: for j: { t[j] += ...; if k == n - 1: y[j] = t[j] }
    (nest = j.e, loop = k, into = j; with nest = j.b before the work on ``t[j]`` where ``k == 0``)

    What was just computed is in cache, and results are stored while others are computed.

    Parameters
    ----------
    nest : str
        A loop right before or behind `loop`. It and as many loops inside it as stand between `loop`
        and `into` have the constant lengths of those, in their order.
    loop : str
        A loop in order, of a constant length of at least 1.
    into : str
        A loop inside it, with nothing but loops around.

    Raises
    ------
    ScheduleError
        If the loops do not match, or the nest and the loop meet in a memory of which an iteration
        of the loops does not have a part of its own.
    """
    what = f"fuse_prologue_epilogue({nest}, {loop}, {into})"
    site, inner = find_for(kernel, loop, what), find_for(kernel, into, what)
    moved = find_for(kernel, nest, what)
    body = site.parents[-1].bodies()[0] if site.parents else kernel.body
    at = next((n for n, s in enumerate(body) if s is site.stmt), -1)
    behind = at + 1 < len(body) and body[at + 1] is moved.stmt
    if not behind and not (at > 0 and body[at - 1] is moved.stmt):
        raise ScheduleError(what, found=f"{nest} somewhere else", expected=f"right beside {loop}")
    pairs, rest = _pairs(what, site, inner, moved)
    _check(what, site, rest, pairs)
    edit = Edit(kernel)
    count = constant(site.loop.extent) or 1
    place = ex.index(count - 1 if behind else 0)
    piece: Body = edit.copy(rest, pairs)
    guarded = (If(site.loop.var.eq(place), piece),)
    old: Stmt = inner.loop
    new = old.with_bodies((*inner.body, *guarded) if behind else (*guarded, *inner.body))
    within = inner.parents[len(site.parents):]
    for parent in reversed(within):
        (held,) = parent.bodies()
        old, new = parent, parent.with_bodies(tuple([new if s is old else s for s in held]))
    both = (site.stmt, moved.stmt) if behind else (moved.stmt, site.stmt)
    return _replace_two(edit, site, both, new)


def _replace_two(edit: Edit, site: Site, both: tuple[Stmt, Stmt], new: Stmt) -> Kernel:
    """Return the kernel with two neighbouring statements replaced by one."""
    if not site.parents:
        kept = tuple([new if s is both[0] else s for s in edit.kernel.body if s is not both[1]])
        return edit.kernel.replace(body=kept, locations=edit.locations)
    parent = site.parents[-1]
    bodies = [tuple([new if s is both[0] else s for s in b if s is not both[1]])
              for b in parent.bodies()]
    return edit.replace(site.parents[:-1], parent, (parent.with_bodies(*bodies),))


def _pairs(what: str, site: Site, inner: Site, moved: Site) -> tuple[dict[Expr, Expr], Body]:
    """Return which loop stands for each of the nest, and what is inside those."""
    within = [*inner.parents[len(site.parents):], inner.stmt]
    loops = [p for p in within if isinstance(p, For) and p.kind == SERIAL]
    if not within or within[0] is not site.stmt or len(loops) != len(within) or not (
            constant(site.loop.extent) or 0):
        raise ScheduleError(what, found="other statements than loops in order, or an open length",
                            expected="loops in order around the piece")
    pairs: dict[Expr, Expr] = {}
    body: Body = (moved.stmt,)
    for loop in loops[1:]:
        found = body[0] if len(body) == 1 else None
        if not isinstance(found, For) or constant(found.extent) is None or (
                constant(found.extent) != constant(loop.extent)):
            raise ScheduleError(what, found="loops of other lengths", expected="those of the nest")
        pairs[found.var] = loop.var
        body = found.body
    if not pairs:
        raise ScheduleError(what, found="no loop inside", expected="a piece for each iteration")
    return pairs, body


def _check(what: str, site: Site, rest: Body, pairs: dict[Expr, Expr]) -> None:
    """Refuse memories in which a piece meets other iterations of the loops."""
    if not all(isinstance(s, For | Let | Load | Store) for s in walk(rest)) or not all(
            isinstance(s, For | If | Let | Load | Store | Reduce | Alloc | Prefetch)
            for s in walk(site.loop.body)):
        raise ScheduleError(what, found="other statements than loops, loads and stores",
                            expected="no more than those")
    inside, moved = _accesses(site.loop.body), _accesses(rest)
    written = {*stores(site.loop.body), *stores(rest)}
    for memory in written & inside.keys() & moved.keys():
        for end, var in pairs.items():
            places = [{n for n, e in enumerate(index) if e is end} for index in moved[memory]]
            places += [{n for n, e in enumerate(index) if e is var} for index in inside[memory]]
            if not set.intersection(*places):
                raise ScheduleError(what, found=f"{memory.name}, met in several iterations",
                                    expected=f"a dimension that is {var.attr} everywhere")


def _accesses(body: Body) -> dict[Memory, list[tuple[Expr, ...]]]:
    """Return the subscripts of each memory."""
    found: dict[Memory, list[tuple[Expr, ...]]] = {}
    for stmt in walk(body):
        if isinstance(stmt, Load | Store):
            found.setdefault(stmt.memory, []).append(stmt.index)
    return found
