"""Reading the text of expressions and of kernels at loop level, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir import stmt as st
from weft.ir import tile as ti
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.stmt import Kernel, Location, Memory, Stmt
from weft.ir.text.text_head import Head, place_of
from weft.ir.text.text_lexer import Line, Names


def parse_expr(text: str) -> Expr:
    """Return the expression that `print_expr` printed.

    Raises
    ------
    ParseError
        If the text is malformed; its ``where`` names the line.
    """
    names = Names()
    rows = [row for row in text.splitlines() if row.strip()]
    for number, row in enumerate(rows[:-1], 1):
        line = Line(row, number, names)
        line.temporary()
        line.end()
    line = Line(rows[-1] if rows else "", len(rows), names)
    found = line.expr()
    line.end()
    return found


class _Region:
    """An open region of a loop-level kernel, and how it becomes a statement."""

    __slots__ = ("accumulators", "body", "close", "first", "kind", "second", "updates")

    def __init__(self, kind: str, close: Callable[[_Region], Stmt | None]) -> None:
        self.kind, self.close = kind, close
        self.body: list[Stmt] = []
        self.first: tuple[Stmt, ...] | None = None
        self.second: Expr | None = None
        self.accumulators: list[tuple[Expr, Expr]] = []
        self.updates: list[tuple[str, Expr, Expr]] = []


class _KernelParser:
    """Reads one loop-level kernel."""

    def __init__(self, text: str) -> None:
        self.names = Names()
        self.head = Head()
        self.stack: list[_Region] = []
        self.text = text

    def run(self) -> Kernel:
        line, lines = self.head.opened(self.text, "kernel", self.names)
        root = _Region("kernel", lambda r: None)
        self.stack.append(root)
        for line in lines:
            self.statement(line)
            line.end()
            if not self.stack:
                break
        if self.stack:
            line.fail("}", "the end of the text")
        places = [(line, self._location(line)) for line in lines]
        kernel = Kernel(self.head.name, tuple(self.head.params), tuple(root.body),
                        self.head.finished())  # fmt: skip
        if not places:
            return kernel
        order = list(traverse.walk(kernel.body))
        table: dict[Stmt, Location] = {}
        for line, (position, place) in places:
            if not 0 <= position < len(order):
                line.fail(f"a statement number below {len(order)}", str(position))
            table[order[position]] = place
        return kernel.replace(locations=table)

    def _location(self, line: Line) -> tuple[int, Location]:
        line.expect("location")
        found = line.integer(), place_of(line)
        line.end()
        return found

    def statement(self, line: Line) -> None:
        first = line.peek()
        if first.startswith("$"):
            line.temporary()
            return
        if first == "}":
            self.closing(line)
            return
        reader = _READ.get(first)
        if reader is None:
            line.fail("a statement")
        line.at += 1
        made = reader(self, line)
        if made is not None:
            self.stack[-1].body.append(made)

    def closing(self, line: Line) -> None:
        region = self.stack[-1]
        line.expect("}")
        if line.take("else"):
            if region.kind != "if" or region.first is not None:
                line.fail("an open if", "else")
            line.expect("{")
            region.first, region.body = tuple(region.body), []
            return
        if line.take("test"):
            if region.kind != "while" or region.first is not None:
                line.fail("an open while", "test")
            region.second = line.expr()
            line.expect("{")
            region.first, region.body = tuple(region.body), []
            return
        if region.kind == "while" and region.first is None:
            line.fail("test", "}")
        if len(region.updates) != len(region.accumulators):
            line.fail(f"{len(region.accumulators)} updates", f"{len(region.updates)}")
        self.stack.pop()
        made = region.close(region)
        if made is not None:
            self.stack[-1].body.append(made)

    def open(self, line: Line, kind: str, close: Callable[[_Region], Stmt | None]) -> None:
        line.expect("{")
        self.stack.append(_Region(kind, close))

    # one method a statement

    def let(self, line: Line) -> Stmt:
        var = line.binder()
        line.expect("=")
        return st.Let(var, line.expr())

    def load(self, line: Line) -> Stmt:
        var = line.binder()
        line.expect("=")
        memory, index = self.place(line)
        return st.Load(var, memory, index, line.option("mask"), line.option("fill"))

    def place(self, line: Line) -> tuple[Memory, tuple[Expr, ...]]:
        memory = line.memory()
        line.expect("[")
        return memory, line.exprs("]")

    def store(self, line: Line) -> Stmt:
        memory, index = self.place(line)
        line.expect("=")
        return st.Store(memory, index, line.expr(), line.option("mask"), line.take("streaming"))

    def alloc(self, line: Line) -> Stmt:
        memory = line.declaration()
        align = line.integer() if line.take("align") else 16
        return st.Alloc(memory, align, line.memory() if line.take("over") else None)

    def loop(self, line: Line) -> None:
        axis = self.axis(line)
        self.open(line, "for", lambda r: st.For(axis.var, axis.extent, axis.kind, tuple(r.body)))

    def axis(self, line: Line) -> st.Axis:
        var = line.binder()
        line.expect("in")
        extent = line.expr()
        return st.Axis(var, extent, line.one_of(st.AXIS_KINDS, "an axis kind"))

    def while_(self, line: Line) -> None:
        endless = line.take("endless")

        def close(r: _Region) -> Stmt:
            assert r.first is not None
            assert r.second is not None
            return st.While(r.first, r.second, tuple(r.body), endless)

        self.open(line, "while", close)

    def if_(self, line: Line) -> None:
        condition = line.expr()

        def close(r: _Region) -> Stmt:
            body = tuple(r.body)
            return st.If(condition, body) if r.first is None else st.If(condition, r.first, body)

        self.open(line, "if", close)

    def block(self, line: Line) -> None:
        name = line.name()
        self.open(line, "block", lambda r: st.Block(name, tuple(r.body)))

    def reduce(self, line: Line) -> None:
        axes = [self.axis(line)]
        while line.take(","):
            axes.append(self.axis(line))

        def close(r: _Region) -> Stmt:
            accumulators = tuple(
                st.Accumulator(var, init, update, combine)
                for (var, init), (_, update, combine) in zip(r.accumulators, r.updates, strict=True)
            )
            return st.Reduce(tuple(axes), accumulators, tuple(r.body))

        self.open(line, "reduce", close)

    def accumulator(self, line: Line) -> None:
        region = self.stack[-1]
        if region.kind != "reduce" or region.body:
            line.fail("accumulators at the start of a reduction", "acc")
        var = line.binder()
        for part in (st.lhs(var), st.rhs(var)):
            self.names.types[part.attr] = (var.dtype, var.lanes)
        line.expect("=")
        region.accumulators.append((var, line.expr()))

    def update(self, line: Line) -> None:
        region = self.stack[-1]
        at = len(region.updates)
        if region.kind != "reduce" or at >= len(region.accumulators):
            line.fail("an accumulator of this reduction", "update")
        name = line.var_name()
        if name != region.accumulators[at][0].attr:
            line.fail(f"the update of %{region.accumulators[at][0].attr}", f"%{name}")
        line.expect("=")
        value = line.expr()
        line.expect("combine")
        region.updates.append((name, value, line.expr()))

    def barrier(self, line: Line) -> Stmt:
        return st.Barrier(line.name(), line.option("mask"))

    def fence(self, line: Line) -> Stmt:
        return st.Fence(line.name(), line.order(st.FENCE_ORDERS, "seq_cst"))

    def collective(self, line: Line) -> Stmt:
        var = line.binder()
        line.expect("=")
        kind = line.name()
        line.expect("(")
        args = line.exprs(")")
        scope, width = line.name(), line.integer()
        return st.Collective(var, kind, args, line.option("mask"), width, scope)

    def atomic(self, line: Line) -> Stmt:
        var = line.binder()
        line.expect("=")
        kind = line.name()
        memory, index = self.place(line)
        line.expect(",")
        value = line.expr()
        compare, scope = line.option("compare"), line.name()
        order = line.order(st.ORDERS, "relaxed")
        return st.Atomic(var, kind, memory, index, value, compare, scope, order)

    def clock(self, line: Line) -> Stmt:
        var = line.binder()
        line.expect("=")
        return st.Clock(var, line.one_of(st.CLOCKS, "a clock"))

    def address(self, line: Line) -> Stmt:
        var = line.binder()
        line.expect("=")
        return st.Address(var, line.memory())

    def matrix(self, kind: type[ti.MatrixAccess], line: Line) -> Stmt:
        fragment, at = self.place(line)
        use, shape = line.one_of(ti.USES, "a use"), self.sizes(line)
        line.expect("=")
        memory, index = self.place(line)
        steps = []
        for word in ("row", "column"):
            line.expect(word)
            line.expect("[")
            steps.append(line.exprs("]"))
        return kind(fragment, at, use, shape, memory, index, *steps)

    def sizes(self, line: Line) -> tuple[int, int, int]:
        return line.integer(), line.integer(), line.integer()

    def matrix_multiply(self, line: Line) -> Stmt:
        result = self.place(line)
        line.expect("=")
        left = self.place(line)
        line.expect(",")
        right = self.place(line)
        line.expect(",")
        addend = self.place(line)
        shape = self.sizes(line)
        precision = line.name() if line.more else ""
        return ti.MatrixMultiply(*result, *left, *right, *addend, shape, precision)

    def async_copy(self, line: Line) -> Stmt:
        target = self.place(line)
        line.expect("=")
        source = self.place(line)
        return ti.AsyncCopy(*target, *source, line.integer(), line.one_of(ti.CACHES, "a cache"))

    def call(self, line: Line) -> Stmt:
        results: list[Expr] = []
        while line.peek().startswith("%"):
            results.append(line.binder())
            if not line.take(","):
                line.expect("=")
                break
        callee = line.name()
        line.expect("(")
        return st.Call(tuple(results), callee, line.exprs(")"))

    def assert_(self, line: Line) -> Stmt:
        condition = line.expr()
        return st.Assert(condition, line.string(), line.option("value"), line.option("bound"))

    def print_(self, line: Line) -> Stmt:
        text = line.string()
        line.expect("(")
        return st.Print(text, line.exprs(")"))

    def prefetch(self, line: Line) -> Stmt:
        return st.Prefetch(*self.place(line))


_READ: Final[dict[str, Callable[[_KernelParser, Line], Stmt | None]]] = {
    "let": _KernelParser.let, "load": _KernelParser.load, "store": _KernelParser.store,
    "alloc": _KernelParser.alloc, "for": _KernelParser.loop, "while": _KernelParser.while_,
    "if": _KernelParser.if_, "block": _KernelParser.block, "reduce": _KernelParser.reduce,
    "acc": _KernelParser.accumulator, "update": _KernelParser.update,
    "barrier": _KernelParser.barrier, "fence": _KernelParser.fence,
    "collective": _KernelParser.collective, "atomic": _KernelParser.atomic,
    "call": _KernelParser.call,
    "assert": _KernelParser.assert_, "print": _KernelParser.print_,
    "prefetch": _KernelParser.prefetch, "clock": _KernelParser.clock,
    "address": _KernelParser.address,
    "matrix_load": lambda p, line: p.matrix(ti.MatrixLoad, line),
    "matrix_store": lambda p, line: p.matrix(ti.MatrixStore, line),
    "matrix_multiply": _KernelParser.matrix_multiply, "async_copy": _KernelParser.async_copy,
    "copy_commit": lambda p, line: ti.CopyCommit(),
    "copy_wait": lambda p, line: ti.CopyWait(line.integer()),
}  # type: ignore[dict-item, unused-ignore]  # fmt: skip


def parse_kernel(text: str) -> Kernel:
    """Return the loop-level kernel that `print_kernel` printed, with its location table if any.

    Raises
    ------
    ParseError
        If the text is malformed; its ``where`` names the line.
    """
    return _KernelParser(text).run()
