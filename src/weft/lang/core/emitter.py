"""Statements of a kernel as they come: fresh names, places, cells, and what is known to hold."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import Ranges
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Assert, Let, Load, Location, Memory, Stmt, Store
from weft.lang.core.barrier_check import Fork, diverges
from weft.lang.core.values import Fields, Group, View
from weft.lang.source.source import Problems, Source, Stop

__all__ = ["Emitter", "conjuncts", "negation"]

_INLINE: Final = 24  # nodes of an index that is repeated rather than named

_LOOKED_AT: Final = 64  # statements before a difference


class Emitter:
    """Collects the statements of one kernel.

    Attributes
    ----------
    out : list of Stmt
        The body that is being written.
    source : Source
        The function that is being read; another one inside a call.
    facts : list of set of Expr
        Conditions that hold here, by open branch.
    """

    def __init__(self, source: Source, problems: Problems) -> None:
        self.source, self.problems = source, problems
        self.way: list[Fork] = []  # the open branches and loops
        self._diverging: dict[tuple[Fork, ...], bool] = {}
        self.functions: dict[str, None] = {}  # device functions of users that were called
        self.calls: list[str] = []  # where the open device functions are called
        self.out: list[Stmt] = []
        self.locations: dict[Stmt, Location] = {}
        self.shared: list[Alloc] = []
        self.private: dict[Any, tuple[View, Alloc]] = {}  # of a thread, read behind their bodies
        self.partly: set[str] = set()  # names of memories of whose elements parts are written
        self.env: dict[str, Any] = {}
        self.specials: dict[str, Expr] = {}
        self.sources: dict[Any, Source] = {}  # of device functions
        self.sanitised = False
        self.titles: dict[ast.AST, str] = {}  # what names the values of some calls get
        self.facts: list[set[Expr]] = [set()]
        self.limits: dict[Expr, tuple[int | Expr, int | Expr]] = {}
        self.ranges = Ranges()
        self.ranges.env = self.limits
        self._names: dict[str, int] = {}
        self._scopes: list[set[Expr | Memory]] = [set()]  # variables and cells by open body

    # --- problems

    def wrong(self, node: ast.AST, message: str, hint: str = "") -> Stop:
        """Note a problem; the caller raises what it returns."""
        return self.problems.stop(self.source, node, message, hint, tuple(reversed(self.calls)))

    def check_uniform(self, node: ast.AST) -> None:
        """Note a barrier that only some threads of a block reach."""
        way = tuple(self.way)
        if way not in self._diverging:
            self._diverging[way] = not self.sanitised and diverges(way, self.specials)
        if self._diverging[way]:
            raise self.wrong(node, "a barrier that some threads of a block reach and others do not",
                             "all threads that have not returned must come: put it outside of what "
                             "depends on gpu.threadIdx")

    # --- names and statements

    def name(self, base: str) -> str:
        """Return a name that is unique in the kernel."""
        name, count = base, self._names.get(base, 0)
        if count:
            name = f"{base}.{count}"
        while name != base and name in self._names:  # a base of its own
            count += 1
            name = f"{base}.{count}"
        self._names[base] = count + 1
        self._names.setdefault(name, 1)
        return name

    def fresh(self, base: str, d: DType) -> Expr:
        """Return a new variable, visible up to the end of the body that is being written."""
        var = ex.var(self.name(base), d)
        self._scopes[-1].add(var)
        return var

    def visible_in(self, var: Expr) -> None:
        """Make a variable visible in the body that is being written."""
        self._scopes[-1].add(var)

    def is_visible(self, value: object) -> bool:
        """Whether all variables of a value can be used here."""
        if isinstance(value, Group):
            return all(map(self.is_visible, value.items))
        if isinstance(value, Fields):
            return all(map(self.is_visible, value.parts))
        if isinstance(value, View):
            sizes = (e for axis in value.axes for e in (axis.extent, axis.step))
            return all(map(self.is_visible, (*value.starts, *sizes)))
        if isinstance(value, Memory):
            return value.scope != "register" or any(value in scope for scope in self._scopes)
        if not isinstance(value, Expr):
            return True
        return all(any(v in scope for scope in self._scopes) for v in ex.free_vars([value]))

    def emit(self, stmt: Stmt, node: ast.AST) -> None:
        """Append a statement that comes from a node of the source."""
        self.out.append(stmt)
        self.locate(stmt, node)

    def locate(self, stmt: Stmt, node: ast.AST) -> None:
        """Remember the node of the source that a statement comes from."""
        self.locations[stmt] = self.source.place(node)

    def bind(self, value: Expr, base: str, node: ast.AST) -> Expr:
        """Give a value a name, unless it is cheaper to repeat."""
        if value.op is Op.CONST or value.op is Op.VAR or value.op is Op.VARIABLE:
            return value
        if value.dtype.is_integer and len(ex.toposort([value])) <= _INLINE:
            return value
        var = self.fresh(base, value.dtype)
        self.emit(Let(var, value), node)
        return var

    @contextmanager
    def into(self, facts: Iterable[Expr] = ()) -> Iterator[list[Stmt]]:
        """Write a nested body, in which `facts` hold."""
        outer, inner = self.out, []  # type: ignore[var-annotated]
        self.out = inner
        self.facts.append(set(facts))
        self._scopes.append(set())
        try:
            yield inner
        finally:
            self.out = outer
            self.facts.pop()
            self._scopes.pop()

    @contextmanager
    def extending(self, body: list[Stmt]) -> Iterator[None]:
        """Write on at the end of a body that was closed."""
        outer, self.out = self.out, body
        try:
            yield
        finally:
            self.out = outer

    def mark(self) -> tuple[Any, ...]:
        """Return what `back_to` needs."""
        return (len(self.out), dict(self.env), list(self.problems.found), set(self.facts[-1]),
                len(self.shared))

    def back_to(self, mark: tuple[Any, ...]) -> None:
        """Drop what was written since a mark in the same body."""
        count, self.env, self.problems.found, self.facts[-1], shared = mark
        del self.out[count:], self.shared[shared:]

    # --- what is known

    def holds(self, condition: Expr) -> bool:
        """Whether a condition is known to hold here."""
        if any(condition in known for known in self.facts):
            return True
        return self.ranges.of(condition).lo == 1

    def is_same(self, a: Expr, b: Expr) -> bool:
        """Whether two values are one: computed alike, from what was read with nothing set between.

        It looks at the end of the open body, so it may miss that they are.
        """
        if a is b:
            return True
        lets = {s.var: s.value for s in self.out[-_LOOKED_AT:] if isinstance(s, Let)}
        if _named_by(a, lets).op is not _named_by(b, lets).op:
            return False
        values: dict[Expr, Expr] = {}
        known: dict[tuple[Memory, tuple[Expr, ...]], Expr] = {}
        for s in self.out[-_LOOKED_AT:]:
            if isinstance(s, Let):
                (values[s.var],) = ex.substitute((s.value,), values)
            elif isinstance(s, Load):
                place = s.memory, tuple(ex.substitute(s.index, values))
                values[s.var] = known.setdefault(place, s.var)
            elif isinstance(s, Store) and s.memory.scope == "register":
                known.pop((s.memory, s.index), None)
            elif not isinstance(s, Alloc | Assert):
                known.clear()
        first, second = ex.substitute((a, b), values)
        return first is second or (
            first.op is second.op is Op.MUL and first.args == second.args[::-1])

    def require(self, condition: Expr, message: str, node: ast.AST, value: Expr | None = None,
                bound: Expr | None = None) -> None:  # fmt: skip
        """Stop the kernel where a condition does not hold; it is known to hold from here on."""
        open_ = [c for c in conjuncts(condition) if not self.holds(c)]
        if not open_:
            return
        test = open_[0]
        for more in open_[1:]:
            test = ex.binary(Op.AND, test, more)
        self.emit(Assert(test, message, value, bound), node)
        self.facts[-1].update(open_)

    def this_thread(self) -> Expr | None:
        """Return one more than the number of the thread in the grid; None if there are none."""
        if not self.specials:
            return None
        number: Expr = ex.index(0)
        for level, sizes in (("block", "gridDim"), ("thread", "blockDim")):
            for axis in "zyx":
                size, place = (self.specials[f"{name}.{axis}"] for name in (sizes, level))
                number = number * size + place
        return number + 1

    # --- cells: what changes under a condition or in a loop

    def cell(self, base: str, d: DType, node: ast.AST) -> Memory:
        """Declare a register that holds one value."""
        memory = Memory(self.name(f"{base}.cell"), d, (), "register")
        self._scopes[-1].add(memory)
        self.emit(Alloc(memory), node)
        return memory

    def put(self, memory: Memory, value: Expr, node: ast.AST) -> None:
        """Set a cell."""
        self.emit(Store(memory, (), value), node)

    def get(self, memory: Memory, base: str, node: ast.AST) -> Expr:
        """Read a cell."""
        var = self.fresh(base, memory.dtype)
        self.emit(Load(var, memory, ()), node)
        return var


def _named_by(value: Expr, lets: dict[Expr, Expr]) -> Expr:
    """Return what a variable was set to, through all variables that only name others."""
    while value in lets:
        value = lets[value]
    return value


def conjuncts(condition: Expr) -> list[Expr]:
    """Return the parts of a conjunction."""
    parts, stack = [], [condition]
    while stack:
        c = stack.pop()
        if c.op is Op.AND and c.dtype is dt.bool_:
            stack.extend(reversed(c.args))
        else:
            parts.append(c)
    return parts


def negation(condition: Expr) -> Expr:
    """Return ``not condition``, with comparisons of integers turned round, inside of and, or."""
    if condition.op is Op.NOT:
        return condition.args[0]
    if condition.op in (Op.AND, Op.OR) and condition.dtype is dt.bool_:
        other = Op.OR if condition.op is Op.AND else Op.AND
        return ex.binary(other, *map(negation, condition.args))
    if condition.op in (Op.LT, Op.LE) and condition.args[0].dtype.is_integer:
        a, b = condition.args
        return b.le(a) if condition.op is Op.LT else b.lt(a)
    if condition.op in (Op.EQ, Op.NE) and condition.args[0].dtype.is_integer:
        a, b = condition.args
        return a.ne(b) if condition.op is Op.EQ else a.eq(b)
    return ex.unary(Op.NOT, condition)
