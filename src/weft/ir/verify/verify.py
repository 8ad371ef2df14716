"""Verifiers: what a kernel must be at loop level, before and after every pass.

A kernel is legal if every expression is (`weft.ir.verify.verify_expr`), every name is bound once
and used only where it is visible, types, ranks, lanes and masks agree, axes have known kinds, and
barriers stand where control is uniform. Kernel level and graph level have verifiers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, Kernel, Memory, Stmt
from weft.ir.text.text import stmt_text
from weft.ir.verify import verify_tile
from weft.ir.verify.verify_expr import expr_fault, show_type
from weft.ir.verify.verify_graph import verify_graph
from weft.ir.verify.verify_linear import verify_linear

__all__ = ["verify", "verify_graph", "verify_linear"]

ATOMIC_KINDS: Final = (
    "add", "sub", "min", "max", "nanmin", "nanmax", "and", "or", "xor", "exch", "cas", "inc",
    "dec",
)  # fmt: skip
REDUCE_KINDS: Final = (st.SERIAL, st.UNROLLED, st.VECTOR)
ALLOC_SCOPES: Final = ("local", "register", "shared")
VARYING_AXES: Final = (st.PARALLEL, st.VECTOR, "thread.x", "thread.y", "thread.z")


def verify(kernel: Kernel) -> None:
    """Check a loop-level kernel.

    Raises
    ------
    VerifyError
        If it is not legal; the message names the statement, ``where`` its place in the source.
    """
    Verifier(kernel).run()


class _Scope:
    """The names and memories of one open body, and the expressions found legal in it."""

    __slots__ = ("divergent", "legal", "memories", "names")

    def __init__(self, divergent: bool) -> None:
        self.names: list[Expr] = []
        self.memories: list[Memory] = []
        self.legal: list[Expr] = []
        self.divergent = divergent


class Verifier:
    """One check of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.bound: set[str] = set()
        self.blocks: set[str] = set()
        self.memory_names: set[str] = set()
        self.visible: set[Expr] = set()
        self.memories: set[Memory] = set()
        self.legal: set[Expr] = set()
        self.checked: set[Expr] = set()
        self.scopes: list[_Scope] = []
        self.current: Stmt | None = None
        self.barriers = any(isinstance(s, st.Barrier) for s in traverse.walk(kernel.body))
        self.varying: set[Expr] = set()

    # --- the walk

    def run(self) -> None:
        self.open(False)
        for memory in self.kernel.params:
            if memory.scope not in ("global", "constant"):
                self.fail(f"the parameter {memory.name} in scope {memory.scope}",
                          "global or constant")
            self.declare(memory)
            for e in memory.shape:
                self.index(e, f"the shape of {memory.name}")
        work: list[Iterator[Stmt | Callable[[], None]]] = [iter(self.kernel.body)]
        while work:
            item = next(work[-1], None)
            if item is None:
                work.pop()
            elif isinstance(item, Stmt):
                self.current = item
                check = _CHECK.get(type(item))
                if check is None:
                    self.fail(type(item).__name__, "a statement of loop level")
                inner = check(self, item)
                if inner is not None:
                    work.append(inner)
            else:
                item()

    def open(self, divergent: bool) -> None:
        outer = self.scopes[-1].divergent if self.scopes else False
        self.scopes.append(_Scope(outer or divergent))

    def close(self) -> None:
        scope = self.scopes.pop()
        self.visible.difference_update(scope.names)
        self.memories.difference_update(scope.memories)
        self.legal.difference_update(scope.legal)

    def inside(self, body: Body, *after: Callable[[], None]) -> Iterator[Any]:
        """Return a body with what follows it: checks, and the end of its scope."""
        yield from body
        yield from after
        yield self.close

    def fail(self, found: str, expected: str | None = None) -> NoReturn:
        """Raise the error of the current statement."""
        operation, where = f"verify {self.kernel.name}", None
        if self.current is not None:
            operation += f", at `{_first_line(self.current)}`"
            place = self.kernel.locations.get(self.current)
            where = None if place is None else (place.file, place.line)
        raise VerifyError(operation, found=found, expected=expected, where=where)

    # --- names

    def bind(self, var: Expr) -> None:
        if var.op is not Op.VAR or not isinstance(var.attr, str):
            self.fail(f"{var!r} as a binder", "a name")
        fault = expr_fault(var)
        if fault is not None:
            self.fail(fault)
        if var.attr in self.bound:
            self.fail(f"a second binder of %{var.attr}", "names that are unique in the kernel")
        self.bound.add(var.attr)
        self.show(var)

    def show(self, var: Expr) -> None:
        """Make a name visible up to the end of the current body."""
        self.visible.add(var)
        self.scopes[-1].names.append(var)

    def declare(self, memory: Memory) -> None:
        if memory.name in self.memory_names:
            self.fail(f"a second memory {memory.name}", "names that are unique in the kernel")
        if memory.scope not in st.SCOPES:
            self.fail(f"the scope {memory.scope!r}", "one of " + ", ".join(st.SCOPES))
        self.memory_names.add(memory.name)
        self.memories.add(memory)
        self.scopes[-1].memories.append(memory)

    # --- expressions

    def expr(self, e: Expr, what: str, dtype: DType | None = None,
             lanes: int | None = None) -> None:  # fmt: skip
        """Check an expression, its type and that all it names is visible."""
        if e not in self.legal:
            self._walk(e, what)
        if dtype is not None and e.dtype is not dtype:
            self.fail(f"{what} of type {e.dtype.text}", dtype.text)
        if lanes is not None and e.lanes != lanes:
            self.fail(f"{what} with {e.lanes} lanes", f"{lanes}")

    def _walk(self, e: Expr, what: str) -> None:
        legal, checked = self.legal, self.checked
        mine = self.scopes[-1].legal
        stack = [e]
        while stack:
            node = stack.pop()
            if node in legal:
                continue
            if node not in checked:
                fault = expr_fault(node)
                if fault is not None:
                    self.fail(f"in {what}: {fault}")
                checked.add(node)
            if node.op is Op.VAR and node not in self.visible:
                self.fail(f"in {what}: {self._hidden(node)}", "a name that is visible here")
            legal.add(node)
            mine.append(node)
            stack.extend(node.args)

    def _hidden(self, var: Expr) -> str:
        for known in self.visible:
            if known.attr == var.attr:
                shown = show_type((known.dtype, known.lanes))
                return f"%{var.attr} as {show_type((var.dtype, var.lanes))}, bound as {shown}"
        return f"%{var.attr}" + (" outside its scope" if var.attr in self.bound else "")

    def index(self, e: Expr, what: str) -> None:
        self.expr(e, what, dt.int64, 1)

    def is_varying(self, *exprs: Expr | None) -> bool:
        """Whether a value may differ between the threads that a barrier joins."""
        if not self.varying:
            return False
        seen: set[Expr] = set()
        stack = [e for e in exprs if e is not None]
        while stack:
            node = stack.pop()
            if node in self.varying:
                return True
            if node not in seen:
                seen.add(node)
                stack.extend(node.args)
        return False

    def vary(self, *variables: Expr, on: bool) -> None:
        if on and self.barriers:
            self.varying.update(variables)

    def diverges(self, *exprs: Expr) -> bool:
        return self.barriers and self.is_varying(*exprs)

    # --- memory

    def visible_memory(self, memory: Memory) -> None:
        if memory not in self.memories:
            hidden = "outside its scope" if memory.name in self.memory_names else "never declared"
            self.fail(f"the memory {memory.name}, {hidden}", "a parameter or an alloc in scope")

    def access(self, memory: Memory, index: tuple[Expr, ...], lanes: int) -> None:
        self.visible_memory(memory)
        if len(index) != len(memory.shape):
            self.fail(f"{len(index)} indices into {memory.name}, which has "
                      f"{len(memory.shape)} axes", "one index an axis")
        for e in index:
            self.expr(e, f"an index into {memory.name}", dt.int64)
            if e.lanes not in (1, lanes):
                self.fail(f"an index into {memory.name} with {e.lanes} lanes", f"1 or {lanes}")

    def mask(self, mask: Expr | None, lanes: int) -> None:
        if mask is not None:
            self.expr(mask, "the mask", dt.bool_, lanes)

    # --- statements; one with bodies returns what is checked next

    def let(self, s: st.Let) -> None:
        self.expr(s.value, "the value", s.var.dtype, s.var.lanes)
        self.bind(s.var)
        self.vary(s.var, on=self.is_varying(s.value))

    def load(self, s: st.Load) -> None:
        self.access(s.memory, s.index, s.var.lanes)
        self.mask(s.mask, s.var.lanes)
        if s.fill is not None:
            self.expr(s.fill, "the fill value", s.memory.dtype, s.var.lanes)
        if s.var.dtype is not s.memory.dtype:
            self.fail(f"a load of {s.memory.dtype.text} into {s.var.dtype.text}", "one type")
        self.bind(s.var)
        private = s.memory.scope in ("local", "register")
        self.vary(s.var, on=private or self.is_varying(*s.index, s.mask))

    def store(self, s: st.Store) -> None:
        self.access(s.memory, s.index, s.value.lanes)
        self.expr(s.value, "the value", s.memory.dtype)
        self.mask(s.mask, s.value.lanes)
        if s.memory.scope == "constant":
            self.fail(f"a store to the constant {s.memory.name}", "memory that may be written")

    def alloc(self, s: st.Alloc) -> None:
        memory = s.memory
        if memory.scope not in ALLOC_SCOPES:
            self.fail(f"an alloc in scope {memory.scope}", "one of " + ", ".join(ALLOC_SCOPES))
        for e in memory.shape:
            self.index(e, f"the shape of {memory.name}")
            if memory.scope == "register" and e.op is not Op.CONST:
                self.fail(f"the register size {e!r}", "a constant")
        if s.align < 1 or s.align & (s.align - 1):
            self.fail(f"an alignment of {s.align}", "a power of two")
        if s.base is not None:
            self.visible_memory(s.base)
            if s.base.scope != memory.scope:
                self.fail(f"{memory.scope} memory over {s.base.scope} memory", "one scope")
        self.declare(memory)

    def loop(self, s: st.For) -> Iterator[Any]:
        self.index(s.extent, "the extent")
        self.axis_kind(s.kind, st.AXIS_KINDS)
        self.open(self.diverges(s.extent))
        self.loop_var(s.var)
        self.vary(s.var, on=s.kind in VARYING_AXES)
        return self.inside(s.body)

    def loop_var(self, var: Expr) -> None:
        if var.dtype is not dt.int64 or var.lanes != 1:
            self.fail(f"a loop variable of type {show_type((var.dtype, var.lanes))}", "i64")
        self.bind(var)

    def axis_kind(self, kind: str, kinds: tuple[str, ...]) -> None:
        if kind not in kinds:
            self.fail(f"the axis kind {kind!r}", "one of " + ", ".join(kinds))

    def while_(self, s: st.While) -> Iterator[Any]:
        self.open(self.barriers)  # the number of turns is known to each thread alone

        def test() -> None:
            self.current = s
            self.expr(s.condition, "the condition", dt.bool_, 1)

        return self.inside((*s.head, test, *s.body))  # type: ignore[arg-type]

    def if_(self, s: st.If) -> Iterator[Any]:
        self.expr(s.condition, "the condition", dt.bool_, 1)
        divergent = self.diverges(s.condition)
        self.open(divergent)

        def otherwise() -> None:
            self.close()
            self.open(divergent)

        return self.inside((*s.then, otherwise, *s.orelse))  # type: ignore[arg-type]

    def block(self, s: st.Block) -> Iterator[Any]:
        if s.name in self.blocks:
            self.fail(f"a second block {s.name}", "names that are unique in the kernel")
        self.blocks.add(s.name)
        return iter(s.body)

    def reduce(self, s: st.Reduce) -> Iterator[Any]:
        if not s.axes or not s.accumulators:
            self.fail(f"{len(s.axes)} axes, {len(s.accumulators)} accumulators", "at least one")
        for axis in s.axes:
            self.index(axis.extent, "the extent")
            self.axis_kind(axis.kind, REDUCE_KINDS)
        for acc in s.accumulators:
            self.expr(acc.init, f"the start of %{acc.var.attr}", acc.var.dtype, acc.var.lanes)
        self.open(self.diverges(*(a.extent for a in s.axes)))
        for axis in s.axes:
            self.loop_var(axis.var)
            self.vary(axis.var, on=axis.kind == st.VECTOR)
        for acc in s.accumulators:
            self.bind(acc.var)

        def updates() -> None:
            self.current = s
            for acc in s.accumulators:
                self.expr(acc.update, f"the update of %{acc.var.attr}", acc.var.dtype,
                          acc.var.lanes)

        def results() -> None:
            self.current = s
            self.close()
            self.combines(s)
            for acc in s.accumulators:
                self.show(acc.var)
                self.vary(acc.var, on=bool(self.varying))

        return iter((*s.body, updates, results))

    def combines(self, s: st.Reduce) -> None:
        self.open(False)
        for acc in s.accumulators:
            for part in (st.lhs(acc.var), st.rhs(acc.var)):
                self.bind(part)
        for acc in s.accumulators:
            what = f"the combination of %{acc.var.attr}"
            self.expr(acc.combine, what, acc.var.dtype, acc.var.lanes)
        self.close()

    def barrier(self, s: st.Barrier) -> None:
        if s.mask is not None:
            self.expr(s.mask, "the mask", dt.uint32, 1)
        if s.scope == "warp":
            return
        if self.scopes[-1].divergent:
            self.fail("a barrier under a condition or loop that differs between threads",
                      "uniform control")

    def fence(self, s: st.Fence) -> None:
        self.ordering(s, st.FENCE_ORDERS)

    def ordering(self, s: st.Fence | st.Atomic, orders: tuple[str, ...]) -> None:
        if s.scope not in st.THREAD_SCOPES:
            self.fail(f"the scope {s.scope!r}", "one of " + ", ".join(st.THREAD_SCOPES))
        if s.order not in orders:
            self.fail(f"the order {s.order!r}", "one of " + ", ".join(orders))

    def collective(self, s: st.Collective) -> None:
        kinds = st.COUNTS if s.scope == "block" else (*st.SHUFFLES, *st.VOTES, *st.MATCHES)
        if s.kind not in kinds:
            self.fail(f"{s.kind!r} in scope {s.scope}", "one of " + ", ".join(kinds))
        for e in s.args:
            self.expr(e, "an argument", None, 1)
        wanted = s.args[0].dtype if s.kind in st.SHUFFLES else (
            dt.int64 if s.kind == "count" else dt.uint32 if s.kind in ("ballot", *st.MATCHES)
            else dt.bool_)
        if s.var.dtype is not wanted:
            self.fail(f"a result of {s.var.dtype.text}", wanted.text)
        if s.kind not in (*st.SHUFFLES, *st.MATCHES) and s.args[0].dtype is not dt.bool_:
            self.fail(f"a predicate of {s.args[0].dtype.text}", "bool")
        if s.mask is not None:
            self.expr(s.mask, "the mask", dt.uint32, 1)
        if not 1 <= s.width <= 32 or s.width & (s.width - 1):
            self.fail(f"a width of {s.width}", "a power of two up to 32")
        self.bind(s.var)
        self.vary(s.var, on=s.scope != "block")

    def atomic(self, s: st.Atomic) -> None:
        self.access(s.memory, s.index, 1)
        if s.kind not in ATOMIC_KINDS:
            self.fail(f"the atomic {s.kind!r}", "one of " + ", ".join(ATOMIC_KINDS))
        self.expr(s.value, "the value", s.memory.dtype, 1)
        if (s.kind == "cas") != (s.compare is not None):
            self.fail("an atomic with a value to compare" if s.compare is not None else "cas alone",
                      "a value to compare exactly for cas")
        if s.compare is not None:
            self.expr(s.compare, "the compared value", s.memory.dtype, 1)
        self.ordering(s, st.ORDERS)
        if s.var.dtype is not s.memory.dtype or s.var.lanes != 1:
            self.fail(f"the result {show_type((s.var.dtype, s.var.lanes))}", s.memory.dtype.text)
        if s.memory.scope == "constant":
            self.fail(f"an atomic on the constant {s.memory.name}", "memory that may be written")
        self.bind(s.var)
        self.vary(s.var, on=True)

    def clock(self, s: st.Clock) -> None:
        if s.kind not in st.CLOCKS or s.var.dtype is not dt.int64:
            self.fail(f"the clock {s.kind!r} as {s.var.dtype.text}", "an i64 of "
                      + " or ".join(st.CLOCKS))
        self.bind(s.var)
        self.vary(s.var, on=True)

    def address(self, s: st.Address) -> None:
        self.visible_memory(s.memory)
        if s.var.dtype is not dt.int64:
            self.fail(f"an address as {s.var.dtype.text}", "an i64")
        self.bind(s.var)

    def call(self, s: st.Call) -> None:
        for e in s.args:
            self.expr(e, f"an argument of {s.callee}")
        for var in s.vars:
            self.bind(var)
        self.vary(*s.vars, on=True)

    def assert_(self, s: st.Assert) -> None:
        self.expr(s.condition, "the condition", dt.bool_, 1)
        for e in (s.value, s.bound):
            if e is not None:
                self.index(e, "a reported value")

    def print_(self, s: st.Print) -> None:
        for e in s.args:
            self.expr(e, "a printed value")

    def prefetch(self, s: st.Prefetch) -> None:
        self.access(s.memory, s.index, 1)


_CHECK: Final[dict[type[Stmt], Callable[[Verifier, Any], Iterator[Any] | None]]] = {
    st.Let: Verifier.let, st.Load: Verifier.load, st.Store: Verifier.store,
    st.Alloc: Verifier.alloc, st.For: Verifier.loop, st.While: Verifier.while_,
    st.If: Verifier.if_, st.Block: Verifier.block, st.Reduce: Verifier.reduce,
    st.Barrier: Verifier.barrier, st.Fence: Verifier.fence,
    st.Collective: Verifier.collective, st.Atomic: Verifier.atomic, st.Call: Verifier.call,
    st.Assert: Verifier.assert_, st.Print: Verifier.print_, st.Prefetch: Verifier.prefetch,
    st.Clock: Verifier.clock, st.Address: Verifier.address,
    **verify_tile.CHECKS,
}  # type: ignore[dict-item, unused-ignore]  # fmt: skip


def _first_line(stmt: Stmt) -> str:
    try:
        text = stmt_text(stmt)
    except Exception:  # what is malformed may not even print
        return type(stmt).__name__
    return text if len(text) <= 120 else text[:117] + "..."
