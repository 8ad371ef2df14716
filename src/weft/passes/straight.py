"""What passes over straight lines of statements share: new names, and which memories overlap."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Alloc, Body, Location, Memory, Stmt
from weft.ir.traverse import Rewriter, walk


class StraightLines(Rewriter):
    """Rewrites the straight lines of each body.

    Parameters
    ----------
    body : Body
        All of what is rewritten: the views in it are known by their memories.
    locations : dict of Stmt to Location
        Source places; those of new statements are added.
    apart : bool
        Whether no two parameters overlap.
    """

    MARK: ClassVar[str]  # in new names, of this pass alone

    def __init__(self, body: Body, locations: dict[Stmt, Location], apart: bool) -> None:
        self.locations, self.apart = locations, apart
        self.made = 0
        self.roots: dict[str, str] = {}
        for s in walk(body):
            if isinstance(s, Alloc) and s.base is not None:
                self.roots[s.memory.name] = self.root(s.base)

    def root(self, memory: Memory) -> str:
        """Return the name of the memory whose bytes these are; a view may be of a view."""
        return self.roots.get(memory.name, memory.name)

    def overlap(self, a: Memory, b: Memory) -> bool:
        """Whether two memories may have bytes in common."""
        if not self.apart and a.scope == b.scope == "global":
            return True
        return self.root(a) == self.root(b)

    def fresh(self, name: str, like: Expr, lanes: int) -> Expr:
        """Return a new name for a value of a dtype like another's."""
        self.made += 1
        return ex.var(f"{name}.{self.MARK}{self.made}", like.dtype, lanes)
