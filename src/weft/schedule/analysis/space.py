"""The loop nest as schedule primitives see it: finding, copying and replacing parts by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Kernel, Location, Memory, Reduce, Stmt

SEPARATOR: Final = "."
HEAVY: Final = frozenset({
    Op.EXP, Op.EXP2, Op.EXPM1, Op.LOG, Op.LOG2, Op.LOG10, Op.LOG1P, Op.SIN, Op.COS, Op.TAN,
    Op.ASIN, Op.ACOS, Op.ATAN, Op.SINH, Op.COSH, Op.TANH, Op.ASINH, Op.ACOSH, Op.ATANH, Op.ERF,
    Op.ERFC, Op.SIGMOID, Op.POW, Op.ATAN2, Op.FMOD, Op.MOD, Op.FLOORDIV,
})  # what becomes many operations


class Site:
    """A loop found by name.

    Attributes
    ----------
    kernel : Kernel
        The kernel it is part of.
    stmt : For or Reduce
        The statement that binds the loop variable.
    axis : int
        Which axis of a REDUCE, -1 for a FOR.
    parents : tuple of Stmt
        The statements around it, outermost first.
    """

    __slots__ = ("axis", "kernel", "parents", "stmt")

    def __init__(self, kernel: Kernel, stmt: Stmt, axis: int, parents: tuple[Stmt, ...]) -> None:
        self.kernel, self.stmt, self.axis, self.parents = kernel, stmt, axis, parents

    @property
    def var(self) -> Expr:
        """The loop variable."""
        return self.loop.var if self.axis < 0 else self.reduce.axes[self.axis].var

    @property
    def extent(self) -> Expr:
        """The number of iterations."""
        return self.loop.extent if self.axis < 0 else self.reduce.axes[self.axis].extent

    @property
    def kind(self) -> str:
        """The axis kind."""
        return self.loop.kind if self.axis < 0 else self.reduce.axes[self.axis].kind

    @property
    def loop(self) -> For:
        """The statement as a FOR."""
        assert isinstance(self.stmt, For)
        return self.stmt

    @property
    def reduce(self) -> Reduce:
        """The statement as a REDUCE."""
        assert isinstance(self.stmt, Reduce)
        return self.stmt

    @property
    def body(self) -> Body:
        """The statements inside the loop."""
        return self.stmt.bodies()[0]


def scan(kernel: Kernel) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    """Yield each statement with the statements around it, in program order."""
    stack: list[tuple[Stmt, tuple[Stmt, ...]]] = [(s, ()) for s in reversed(kernel.body)]
    while stack:
        stmt, parents = stack.pop()
        yield stmt, parents
        bodies = stmt.bodies()
        if bodies:
            inner = (*parents, stmt)
            for body in reversed(bodies):
                stack += [(s, inner) for s in reversed(body)]


def find_loop(kernel: Kernel, name: str, primitive: str) -> Site:
    """Return the loop or reduce axis with this name.

    Raises
    ------
    ScheduleError
        If there is none; the message lists those that exist.
    """
    known = []
    for stmt, parents in scan(kernel):
        if isinstance(stmt, For):
            if stmt.var.attr == name:
                return Site(kernel, stmt, -1, parents)
            known.append(stmt.var.attr)
        elif isinstance(stmt, Reduce):
            for number, axis in enumerate(stmt.axes):
                if axis.var.attr == name:
                    return Site(kernel, stmt, number, parents)
                known.append(axis.var.attr)
    raise ScheduleError(f"{primitive}({name})", found=f"no loop {name!r} in kernel {kernel.name}",
                        expected="one of " + (", ".join(known) or "(there are no loops)"))


def find_for(kernel: Kernel, name: str, primitive: str) -> Site:
    """Return the FOR with this name; a reduce axis is an error."""
    site = find_loop(kernel, name, primitive)
    if site.axis >= 0:
        raise ScheduleError(f"{primitive}({name})", found="an axis of a REDUCE",
                            expected="a FOR loop", hint="use rfactor or decompose_reduction first")
    return site


def find_reduce(kernel: Kernel, name: str, primitive: str) -> Site:
    """Return the REDUCE that has an accumulator of this name (its `axis` is -1)."""
    known = []
    for stmt, parents in scan(kernel):
        if isinstance(stmt, Reduce):
            names = [a.var.attr for a in stmt.accumulators]
            if name in names:
                return Site(kernel, stmt, -1, parents)
            known.extend(names)
    raise ScheduleError(f"{primitive}({name})", found=f"no accumulator {name!r}",
                        expected="one of " + (", ".join(known) or "(there is no REDUCE)"))


def find_memory(kernel: Kernel, name: str, primitive: str) -> Memory:
    """Return the parameter or allocation with this name."""
    known = {m.name: m for m in kernel.params}
    known.update((s.memory.name, s.memory) for s in traverse.walk(kernel.body)
                 if isinstance(s, st.Alloc))
    if name not in known:
        raise ScheduleError(f"{primitive}({name})", found=f"no memory {name!r}",
                            expected="one of " + ", ".join(known))
    return known[name]


def names_of(kernel: Kernel) -> set[str]:
    """Return every name that is taken in the kernel."""
    taken = {m.name for m in kernel.params}
    for stmt in traverse.walk(kernel.body):
        if isinstance(stmt, st.Alloc):
            taken.add(stmt.memory.name)
        elif isinstance(stmt, st.Block):
            taken.add(stmt.name)
        elif isinstance(stmt, Reduce):
            taken.update(a.var.attr for a in stmt.axes)
        taken.update(v.attr for v in stmt.binds())
    return taken


class Names:
    """Makes names that are unique in a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.taken = names_of(kernel)

    def fresh(self, base: str) -> str:
        """Return `base`, or `base` with the first free number behind it."""
        name, number = base, 0
        while name in self.taken:
            number += 1
            name = f"{base}{number}"
        self.taken.add(name)
        return name

    def var(self, base: str, like: Expr) -> Expr:
        """Return a fresh variable with the type of `like`."""
        return ex.var(self.fresh(base), like.dtype, like.lanes)

    def index(self, base: str) -> Expr:
        """Return a fresh loop variable."""
        return ex.var(self.fresh(base))


class Copy:
    """Copies statements with expressions replaced and, if asked, every bound name refreshed.

    ``mapping`` replaces expressions (usually variables). With `names`, each binder and allocation
    inside what is copied is renamed to ``name + suffix``, so that a subtree can stand twice.
    Source locations go with the copies.
    """

    def __init__(self, locations: dict[Stmt, Location], mapping: Mapping[Expr, Expr],
                 names: Names | None = None, suffix: str = "") -> None:
        self.locations = locations
        self.memo: dict[Expr, Expr] = dict(mapping)
        self.memories: dict[Memory, Memory] = {}
        self.names, self.suffix = names, suffix

    def expr(self, e: Expr) -> Expr:
        """Return `e` with the mapping applied."""
        memo = self.memo
        found = memo.get(e)
        if found is not None:
            return found
        stack = [e]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            missing = [a for a in node.args if a not in memo]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            args = tuple([memo[a] for a in node.args])
            memo[node] = node if args == node.args else ex.rebuild(node, args)
        return memo[e]

    def bind(self, var: Expr) -> Expr:
        """Return the name that a binder gets in the copy."""
        if self.names is None:
            return self.memo.get(var, var)
        new = self.names.var(var.attr + self.suffix, var)
        self.memo[var] = new
        return new

    def memory(self, memory: Memory) -> Memory:
        """Return the memory that stands for `memory` in the copy."""
        return self.memories.get(memory, memory)

    def body(self, body: Body) -> Body:
        """Copy the statements of a body."""
        return tuple([self.stmt(s) for s in body])

    def stmt(self, stmt: Stmt) -> Stmt:
        """Copy one statement; the same object if nothing in it changes."""
        new = self._stmt(stmt)
        if new is not stmt and stmt in self.locations and new not in self.locations:
            self.locations[new] = self.locations[stmt]
        return new

    def _stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, st.Let):
            value = self.expr(stmt.value)
            var = self.bind(stmt.var)
            return stmt if value is stmt.value and var is stmt.var else st.Let(var, value)
        if isinstance(stmt, st.Load | st.Store | st.Atomic | st.Prefetch):
            return self._access(stmt)
        if isinstance(stmt, For):
            extent = self.expr(stmt.extent)
            var = self.bind(stmt.var)
            body = self.body(stmt.body)
            if var is stmt.var and extent is stmt.extent and _same(body, stmt.body):
                return stmt
            return For(var, extent, stmt.kind, body)
        if isinstance(stmt, Reduce):
            return self._reduce(stmt)
        if isinstance(stmt, st.Alloc):
            return self._alloc(stmt)
        if isinstance(stmt, st.While):
            head = self.body(stmt.head)
            return st.While(head, self.expr(stmt.condition), self.body(stmt.body), stmt.endless)
        if isinstance(stmt, st.Block) and self.names is not None:
            name = self.names.fresh(stmt.name + self.suffix)
            return st.Block(name, self.body(stmt.body))
        if isinstance(stmt, st.Call):
            args = tuple(map(self.expr, stmt.args))
            return st.Call(tuple(map(self.bind, stmt.vars)), stmt.callee, args)
        before = stmt.exprs()
        changed = stmt
        if any(self.expr(e) is not e for e in before):
            changed = stmt.map_exprs(self.expr)
        bodies = stmt.bodies()
        if bodies:
            copies = tuple([self.body(b) for b in bodies])
            if any(not _same(a, b) for a, b in zip(copies, bodies, strict=True)):
                changed = changed.with_bodies(*copies)
        return changed

    def _access(self, stmt: st.Load | st.Store | st.Atomic | st.Prefetch) -> Stmt:
        new: Stmt = stmt
        if any([self.expr(e) is not e for e in stmt.exprs()]):
            new = stmt.map_exprs(self.expr)
        if self.memories and stmt.memory in self.memories:
            new = new.replace(memory=self.memories[stmt.memory])
        if isinstance(stmt, st.Load | st.Atomic):
            var = self.bind(stmt.var)
            if var is not stmt.var:
                new = new.replace(var=var)
        return new

    def _alloc(self, stmt: st.Alloc) -> Stmt:
        memory = stmt.memory
        shape = tuple([self.expr(e) for e in memory.shape])
        if self.names is not None:
            new = Memory(self.names.fresh(memory.name + self.suffix), memory.dtype, shape,
                         memory.scope)
        elif shape != memory.shape:
            new = memory.replace(shape=shape)
        else:
            return stmt
        self.memories[memory] = new
        return st.Alloc(new)

    def _reduce(self, stmt: Reduce) -> Stmt:
        extents = [self.expr(a.extent) for a in stmt.axes]
        inits = [self.expr(a.init) for a in stmt.accumulators]
        axes = tuple([st.Axis(self.bind(a.var), extent, a.kind)
                      for a, extent in zip(stmt.axes, extents, strict=True)])
        accumulator_vars = [a.var for a in stmt.accumulators]
        for var in accumulator_vars:
            new = self.bind(var)
            if new is not var:
                self.memo[st.lhs(var)], self.memo[st.rhs(var)] = st.lhs(new), st.rhs(new)
        body = self.body(stmt.body)
        accumulators = tuple([
            st.Accumulator(self.memo.get(a.var, a.var), init, self.expr(a.update),
                           self.expr(a.combine))
            for a, init in zip(stmt.accumulators, inits, strict=True)])
        if axes == stmt.axes and accumulators == stmt.accumulators and _same(body, stmt.body):
            return stmt
        return Reduce(axes, accumulators, body)


def _same(a: Body, b: Body) -> bool:
    return all(x is y for x, y in zip(a, b, strict=True))


class Edit:
    """One change of a kernel: collects source locations, then replaces statements."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.locations: dict[Stmt, Location] = dict(kernel.locations)
        self._names: Names | None = None

    @property
    def names(self) -> Names:
        """The maker of fresh names."""
        if self._names is None:
            self._names = Names(self.kernel)
        return self._names

    def locate(self, like: Stmt, *made: Stmt) -> None:
        """Give new statements (and the loops directly inside them) the location of `like`."""
        if like not in self.locations:
            return
        place = self.locations[like]
        for stmt in traverse.walk(made):
            self.locations.setdefault(stmt, place)

    def copy(self, body: Iterable[Stmt], mapping: Mapping[Expr, Expr]) -> Body:
        """Return `body` with expressions replaced."""
        return Copy(self.locations, mapping).body(tuple(body))

    def duplicate(self, body: Iterable[Stmt], mapping: Mapping[Expr, Expr], suffix: str) -> Body:
        """Return a second copy of `body`, every bound name made fresh."""
        return Copy(self.locations, mapping, self.names, suffix).body(tuple(body))

    def replace(self, parents: tuple[Stmt, ...], old: Stmt, new: Body) -> Kernel:
        """Return the kernel with `old` (below `parents`) replaced by the statements `new`."""
        self.locate(old, *new)
        for parent in reversed(parents):
            changed = parent.with_bodies(*[_splice(b, old, new) for b in parent.bodies()])
            if parent in self.locations:
                self.locations[changed] = self.locations[parent]
            old, new = parent, (changed,)
        return self.kernel.replace(body=_splice(self.kernel.body, old, new),
                                   locations=self.locations)


def _splice(body: Body, old: Stmt, new: Body) -> Body:
    for position, stmt in enumerate(body):
        if stmt is old:
            return body[:position] + new + body[position + 1 :]
    return body


def constant(e: Expr) -> int | None:
    """Return the value of an integer constant, else None."""
    return int(e.attr) if e.op is Op.CONST else None


def ceildiv(e: Expr, factor: int) -> Expr:
    """Return ``ceil(e / factor)`` for a non-negative `e`."""
    return (e + (factor - 1)) // factor


def perfect(loop: For) -> list[For]:
    """Return `loop` and the loops perfectly nested in it, outermost first."""
    chain = [loop]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], For):
        chain.append(chain[-1].body[0])
    return chain
