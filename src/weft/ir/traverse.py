"""Walk and rewrite the statements of a kernel, iteratively or bottom-up, keeping source places."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Body, Kernel, Location, Memory, Stmt


def walk(body: Body) -> Iterator[Stmt]:
    """Yield every statement, outer before inner, in program order."""
    stack = list(reversed(body))
    while stack:
        stmt = stack.pop()
        yield stmt
        bodies = stmt.bodies()
        if bodies:
            for inner in reversed(bodies):
                stack.extend(reversed(inner))


def stores(body: Body) -> dict[Memory, None]:
    """Return the memories written in `body`, in order of first write."""
    return dict.fromkeys(m for s in walk(body) for m in s.writes())


def variables(kernel: Kernel) -> set[Expr]:
    """Return the symbolic variables of a kernel: of its statements and of its parameters' sizes."""
    roots = [e for s in walk(kernel.body) for e in s.exprs()]
    return ex.variables([*roots, *(n for m in kernel.params for n in m.shape)])


def loads(body: Body) -> dict[Memory, None]:
    """Return the memories read in `body`, in order of first read."""
    return dict.fromkeys(m for s in walk(body) for m in s.reads())


class Tally:
    """How many passes over a whole kernel were made in this process (see `weft explain`)."""

    passes = 0


class Rewriter:
    """One bottom-up pass over a kernel that keeps source locations.

    Subclass and override `visit` (called on each statement after its bodies were rewritten; return
    a statement, or a tuple of statements to splice in its place).
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.locations: dict[Stmt, Location] = dict(kernel.locations)

    def run(self) -> Kernel:
        """Return the rewritten kernel."""
        Tally.passes += 1
        body = self.body(self.kernel.body)
        if body is self.kernel.body:
            return self.kernel
        return self.kernel.replace(body=body, locations=self.locations)

    def body(self, body: Body) -> Body:
        """Rewrite each statement of a body; the same object if nothing changed."""
        out: list[Stmt] = []
        changed = False
        for stmt in body:
            new = self.stmt(stmt)
            changed |= new is not stmt
            if isinstance(new, tuple):
                out.extend(new)
                for made in new:
                    self.carry(stmt, made)
            else:
                out.append(new)
                self.carry(stmt, new)
        return tuple(out) if changed else body

    def carry(self, old: Stmt, new: Stmt) -> None:
        """Give `new` the source location of `old` unless it has its own."""
        if new is not old and old in self.locations and new not in self.locations:
            self.locations[new] = self.locations[old]

    def stmt(self, stmt: Stmt) -> Stmt | Body:
        """Rewrite the bodies of a statement, then visit it."""
        bodies = stmt.bodies()
        if bodies:
            new = tuple(map(self.body, bodies))
            if any(a is not b for a, b in zip(new, bodies, strict=True)):
                changed = stmt.with_bodies(*new)
                self.carry(stmt, changed)
                stmt = changed
        return self.visit(stmt)

    def visit(self, stmt: Stmt) -> Stmt | Body:
        """Return what replaces `stmt`."""
        return stmt


def map_exprs(kernel: Kernel, fn: Callable[[Expr], Expr],
              first: Callable[[Stmt], Stmt | Body] | None = None) -> Kernel:  # fmt: skip
    """Apply `fn` to every expression of the kernel (unchanged statements are kept).

    What `first` makes of a statement is put in its place before that, in the same pass.
    """

    def mapped(stmt: Stmt) -> Stmt:
        return stmt if all(fn(e) is e for e in stmt.exprs()) else stmt.map_exprs(fn)

    class Mapper(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt | Body:
            made = stmt if first is None else first(stmt)
            return tuple(map(mapped, made)) if isinstance(made, tuple) else mapped(made)

    return Mapper(kernel).run()
