"""Where the local arrays of a compute function are declared: as deep in its loops as they may be.

An array that is made anew in each turn of a loop belongs to the turn, so that turns may run at the
same time. One that a turn reads before it makes it holds what an earlier turn left there.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import Alloc, Body, For, If, Location, Memory, Stmt
from weft.ir.traverse import loads, stores

__all__ = ["Arrays"]


class Arrays(Record):
    """The local arrays of a function.

    Attributes
    ----------
    allocs : tuple of (Alloc, str)
        What declares each array, and the name that the source gives it.
    exposed : mapping of Expr to frozenset of str
        For each loop, by its variable, the names that a turn may read before it sets them.
    places : dict of Stmt to Location
        Where statements stand; those that are made get that of what they stand for.
    """

    allocs: tuple[tuple[Alloc, str], ...]
    exposed: Mapping[Expr, frozenset[str]]
    places: dict[Stmt, Location]

    def declared(self, body: Body) -> Body:
        """Return a body with the declarations of the arrays that it uses."""
        for alloc, name in self.allocs:
            if _uses((*body,), alloc.memory):
                body = self._declared(body, alloc, name)
        return body

    def _declared(self, body: Body, alloc: Alloc, name: str) -> Body:
        users = [k for k, s in enumerate(body) if _uses((s,), alloc.memory)]
        inner = self._inside(body[users[0]], alloc, name) if len(users) == 1 else None
        if inner is None:
            return (alloc, *body)
        return (*body[:users[0]], inner, *body[users[0] + 1:])

    def _inside(self, stmt: Stmt, alloc: Alloc, name: str) -> Stmt | None:
        """Return a loop or a branch with the declaration in it, None where it must not be there."""
        if isinstance(stmt, For):
            if name in self.exposed.get(stmt.var, (name,)):
                return None
        elif not isinstance(stmt, If):
            return None
        bodies = list(stmt.bodies())
        using = [k for k, b in enumerate(bodies) if _uses(b, alloc.memory)]
        if len(using) != 1:
            return None
        bodies[using[0]] = self._declared(bodies[using[0]], alloc, name)
        made = stmt.with_bodies(*bodies)
        if stmt in self.places:
            self.places[made] = self.places[stmt]
        return made


def _uses(body: Body, memory: Memory) -> bool:
    return memory in loads(body) or memory in stores(body)
