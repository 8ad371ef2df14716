"""Loops that do several things, one of them a sum of products: each gets a loop of its own.

    for i: { for j: store c[i, j] = 0; for j: { reduce k ...; store c[i, j] = ... } }
    ->  for i: for j: store c[i, j] = 0;  for i: for j: { reduce k ...; store c[i, j] = ... }

Only then is the nest with the sum one that strategies know ("fission" in Allen & Kennedy, section
5.3). It is legal if what two parts both touch, they touch in the same iteration. Other loops stay
together: what one phase of a row leaves in the caches, the next one finds there.
"""

from __future__ import annotations

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    SERIAL,
    Assert,
    Body,
    Call,
    For,
    Kernel,
    Let,
    Load,
    Print,
    Reduce,
    Stmt,
    Store,
)
from weft.ir.traverse import Rewriter, walk
from weft.schedule.analysis.dependence import apart, same_iteration
from weft.schedule.analysis.subscripts import Space, accesses, bound_inside

__all__ = ["distribute"]


def distribute(kernel: Kernel) -> Kernel:
    """Return the kernel with its sums of products in loops of their own."""
    return _Distribute(kernel).run()


class _Distribute(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.space = Space(kernel)
        self.names = {str(v.attr) for s in walk(kernel.body) for v in s.binds()}

    def visit(self, stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, For) or stmt.kind != SERIAL or len(stmt.body) < 2:
            return stmt
        parts = stmt.body
        if not all(isinstance(s, For) for s in parts) or not any(map(_is_product, parts)):
            return stmt
        if any(isinstance(s, Print | Call) for s in walk(parts)):
            return stmt  # effects in an order
        if not all(self._can_part(stmt, a, b) for k, a in enumerate(parts) for b in parts[k + 1:]):
            return stmt
        made: list[Stmt] = []
        named = False
        for part in parts:
            keeps = _is_product(part) and not named  # the loop that counts keeps its name
            named = named or keeps
            made.append(self._loop(stmt, part, stmt.var if keeps else self._fresh(stmt.var)))
        return tuple(made)

    def _can_part(self, loop: For, first: Stmt, second: Stmt) -> bool:
        inner = bound_inside(loop.body)
        varying = inner | {loop.var}
        return all(
            same_iteration(self.space, a, b, loop.var, inner) or apart(self.space, a, b, varying)
            for a in accesses((first,)) for b in accesses((second,))
            if a.memory is b.memory and (a.write or b.write))

    def _loop(self, loop: For, part: Stmt, var: Expr) -> For:
        body: Body = (part,)
        if var is not loop.var:
            body = _Renamed(self, {loop.var: var}).body(body)
        made = For(var, loop.extent, SERIAL, body)
        self.carry(loop, made)
        return made

    def _fresh(self, like: Expr) -> Expr:
        name, count = str(like.attr), 0
        while name in self.names:
            count += 1
            name = f"{like.attr}_{count}"
        self.names.add(name)
        return ex.var(name, like.dtype)


class _Renamed(Rewriter):
    """Puts other names into a part of a kernel; places of the source go to its rewriter."""

    def __init__(self, owner: Rewriter, names: dict[Expr, Expr]) -> None:
        super().__init__(owner.kernel)
        self.locations = owner.locations
        self.names = names

    def visit(self, stmt: Stmt) -> Stmt:
        return stmt.map_exprs(lambda e: ex.substitute([e], self.names)[0])


def _is_product(stmt: Stmt) -> bool:
    """Whether a nest does nothing but one sum of products."""
    while isinstance(stmt, For) and len(stmt.body) == 1 and isinstance(stmt.body[0], For):
        stmt = stmt.body[0]
    if not isinstance(stmt, For) or not all(
            isinstance(s, Let | Load | Reduce | Store | Assert) for s in stmt.body):
        return False
    sums = [s for s in stmt.body if isinstance(s, Reduce)]
    if len(sums) != 1:
        return False
    values = [a.update for a in sums[0].accumulators]
    values += [s.value for s in sums[0].body if isinstance(s, Let)]
    return any(e.op is Op.MUL and e.dtype is sums[0].accumulators[0].var.dtype
               for e in ex.toposort(values))
