"""Reading the text of expressions and of kernels at loop and kernel level, exactly."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir import stmt as st
from weft.ir import tile as ti
from weft.ir import traverse
from weft.ir.expr import Expr, make
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.op import BY_NAME, Op
from weft.ir.stmt import Kernel, Location, Memory, Meta, Stmt
from weft.ir.text_lexer import Line, Names


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


class _Head:
    """The lines of a kernel before its brace."""

    def __init__(self) -> None:
        self.name = ""
        self.meta = Meta()
        self.schedule: list[str] = []
        self.hints: list[tuple[str, Any]] = []
        self.params: list[Memory] = []
        self.variables: list[Expr] = []
        self.messages: list[tuple[str, Location | None]] = []

    def title(self, line: Line, keyword: str) -> None:
        line.expect(keyword)
        self.name = line.name()
        fields: dict[str, Any] = {}
        while line.more:
            key = line.one_of(("kind", "flops", "traffic", "fastmath"), "an attribute")
            if key == "fastmath":
                fields[key] = True
                continue
            line.expect("=")
            fields[key] = line.name() if key == "kind" else line.integer()
        self.meta = Meta(**fields)

    def read(self, line: Line) -> bool:
        """Read one line; False at the brace."""
        if line.take("{"):
            return False
        if line.peek().startswith("$"):
            line.temporary()
        elif line.take("schedule"):
            self.schedule.append(line.string())
        elif line.take("hint"):
            self.hints.append((line.string(), _python(line)))
        elif line.take("param"):
            self.params.append(line.declaration())
        elif line.take("variable"):
            line.expect("@")
            self.variables.append(make(Op.VARIABLE, dt.int64, (), line.bounds()))
        elif line.take("message"):
            text = line.string()
            self.messages.append((text, _place(line) if line.more else None))
        else:
            line.fail("schedule, hint, param, variable, message or {")
        return True

    def finished(self) -> Meta:
        return self.meta.replace(schedule=tuple(self.schedule), hints=tuple(self.hints))


def _python(line: Line) -> Any:
    text = line.string()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        line.fail("a Python literal", text)


def _place(line: Line) -> Location:
    return Location(line.string(), line.integer(), line.integer())


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
        self.head = _Head()
        self.stack: list[_Region] = []
        self.rows = text.splitlines()

    def run(self) -> Kernel:
        rows = [(n, row) for n, row in enumerate(self.rows, 1) if row.strip()]
        lines = (Line(row, n, self.names) for n, row in rows)
        line = next(lines, Line("", 1, self.names))
        self.head.title(line, "kernel")
        for line in lines:
            more = self.head.read(line)
            line.end()
            if not more:
                break
        else:
            line.fail("{", "the end of the text")
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
        found = line.integer(), _place(line)
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
        def close(r: _Region) -> Stmt:
            assert r.first is not None
            assert r.second is not None
            return st.While(r.first, r.second, tuple(r.body))

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
        return st.Fence(line.name())

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
        order = line.one_of(st.ORDERS, "an order") if line.more else "relaxed"
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


class _LinearParser:
    """Reads one kernel at kernel level."""

    def __init__(self, text: str) -> None:
        self.names = Names()
        self.head = _Head()
        self.values: dict[str, Value] = {}
        self.code: list[Inst] = []
        self.stack: list[str] = []
        self.rows = text.splitlines()

    def run(self) -> LinearKernel:
        rows = [(n, row) for n, row in enumerate(self.rows, 1) if row.strip()]
        lines = (Line(row, n, self.names) for n, row in rows)
        line = next(lines, Line("", 1, self.names))
        self.head.title(line, "linear")
        for line in lines:
            more = self.head.read(line)
            line.end()
            if not more:
                break
        else:
            line.fail("{", "the end of the text")
        self.stack.append("kernel")
        for line in lines:
            self.instruction(line)
            line.end()
        if self.stack:
            line.fail("}", "the end of the text")
        head = self.head
        return LinearKernel(head.name, tuple(head.params), tuple(head.variables),
                            tuple(self.code), tuple(head.messages), head.finished())

    def instruction(self, line: Line) -> None:
        if not self.stack:
            line.fail("the end of the text")
        first = line.peek()
        if first.startswith("$"):
            line.temporary()
        elif first == "}":
            self.closing(line)
        elif first.startswith("%"):
            self.code.append(self.assignment(line))
        else:
            reader = _READ_LINEAR.get(first)
            if reader is None:
                line.fail("an instruction")
            line.at += 1
            self.code.append(reader(self, line))

    def closing(self, line: Line) -> None:
        line.expect("}")
        kind = self.stack[-1]
        if line.take("else", "{"):
            if kind != "if":
                line.fail("an open if", "else")
            self.stack[-1] = "else"
            self.code.append(li.Else())
        elif line.take("test"):
            if kind != "while":
                line.fail("an open while", "test")
            self.stack[-1] = "body"
            self.code.append(li.WhileTest(self.value(line)))
            line.expect("{")
        else:
            if kind == "while":
                line.fail("test", "}")
            self.stack.pop()
            end = {"for": li.EndLoop, "if": li.EndIf, "else": li.EndIf, "body": li.EndWhile}
            if kind in end:
                self.code.append(end[kind]())

    # --- values

    def define(self, line: Line) -> Value:
        text = line.peek()
        name = line.var_name() if not text.startswith('%"') else self._quoted(line)
        head, _, tail = name.rpartition(".")
        if not tail.isdigit():
            line.fail("a value like %x.7 or %7", text)
        dtype, lanes = line.type() if line.take(":") else (dt.int64, 1)
        if text in self.values:
            line.fail("a value that is defined once", text)
        made = self.values[text] = Value(head, int(tail), dtype, lanes)
        return made

    def _quoted(self, line: Line) -> str:
        text = line.peek()[1:]
        line.at += 1
        inside, _, tail = text.rpartition(".")
        return f"{line.unquoted(inside)}.{tail}"

    def value(self, line: Line) -> Value:
        found = self.values.get(line.peek())
        if found is None:
            line.fail("a value that is defined before")
        line.at += 1
        return found

    def values_to(self, line: Line, closing: str = "") -> tuple[Value, ...]:
        """Return values separated by commas, up to the closing token or the end of the line."""
        found: list[Value] = []
        while (line.more if not closing else not line.take(closing)):
            if found:
                line.expect(",")
            found.append(self.value(line))
        return tuple(found)

    def option(self, line: Line, key: str) -> Value | None:
        return self.value(line) if line.take(key) else None

    def at(self, line: Line) -> tuple[Memory, Value]:
        memory = line.memory()
        line.expect("[")
        offset = self.value(line)
        line.expect("]")
        return memory, offset

    # --- instructions

    def assignment(self, line: Line) -> Inst:
        result = self.define(line)
        line.expect("=")
        if line.take("load"):
            memory, offset = self.at(line)
            mask = self.option(line, "mask")
            return li.LoadInst(result, memory, offset, mask, self.option(line, "fill"))
        if line.take("variable"):
            slot = line.integer()
            line.expect("@")
            return li.VariableInst(result, slot, line.bounds())
        if line.take("atomic"):
            kind = line.name()
            memory, offset = self.at(line)
            line.expect(",")
            value = self.value(line)
            compare = self.option(line, "compare")
            return li.AtomicInst(result, kind, memory, offset, value, compare, line.name())
        if line.take("const"):
            return li.Compute(result, Op.CONST, (), line.literal(result.dtype))
        head, _, detail = line.name().partition(".")
        op = BY_NAME.get(head)
        if op is None or op.group not in li.COMPUTE_GROUPS or (detail and not detail.isdigit()):
            line.at -= 1
            line.fail("an operation")
        return li.Compute(result, op, self.values_to(line), int(detail) if detail else None)

    def store(self, line: Line) -> Inst:
        memory, offset = self.at(line)
        line.expect("=")
        value = self.value(line)
        mask = self.option(line, "mask")
        return li.StoreInst(memory, offset, value, mask, line.take("streaming"))

    def storage(self, line: Line) -> Inst:
        memory = line.declaration()
        line.expect("size")
        size = line.integer()
        align = line.integer() if line.take("align") else 16
        return li.StorageInst(memory, size, line.memory() if line.take("over") else None, align)

    def clock(self, line: Line) -> Inst:
        result = self.define(line)
        line.expect("=")
        return li.ClockInst(result, line.one_of(st.CLOCKS, "a clock"))

    def address(self, line: Line) -> Inst:
        result = self.define(line)
        line.expect("=")
        return li.AddressInst(result, line.memory())

    def loop(self, line: Line) -> Inst:
        var = self.define(line)
        line.expect("in")
        extent = self.value(line)
        kind = line.one_of(li.LOOP_KINDS, "a loop kind")
        line.expect("{")
        self.stack.append("for")
        return li.Loop(var, extent, kind)

    def while_(self, line: Line) -> Inst:
        line.expect("{")
        self.stack.append("while")
        return li.WhileBegin()

    def if_(self, line: Line) -> Inst:
        condition = self.value(line)
        line.expect("{")
        self.stack.append("if")
        return li.IfBegin(condition)

    def assert_(self, line: Line) -> Inst:
        condition = self.value(line)
        message = line.integer()
        value = self.option(line, "value")
        return li.AssertInst(condition, message, value, self.option(line, "bound"))

    def barrier(self, line: Line) -> Inst:
        return li.BarrierInst(line.name())

    def fence(self, line: Line) -> Inst:
        return li.FenceInst(line.name())

    def call(self, line: Line) -> Inst:
        results: list[Value] = []
        while line.peek().startswith("%"):
            results.append(self.define(line))
            if not line.take(","):
                line.expect("=")
                break
        callee = line.name()
        line.expect("(")
        return li.CallInst(tuple(results), callee, self.values_to(line, ")"))

    def print_(self, line: Line) -> Inst:
        text = line.string()
        line.expect("(")
        return li.PrintInst(text, self.values_to(line, ")"))

    def prefetch(self, line: Line) -> Inst:
        return li.PrefetchInst(*self.at(line))


_READ_LINEAR: Final[dict[str, Callable[[_LinearParser, Line], Inst]]] = {
    "store": _LinearParser.store, "storage": _LinearParser.storage, "for": _LinearParser.loop,
    "while": _LinearParser.while_, "if": _LinearParser.if_, "assert": _LinearParser.assert_,
    "barrier": _LinearParser.barrier, "fence": _LinearParser.fence, "call": _LinearParser.call,
    "print": _LinearParser.print_,
    "prefetch": _LinearParser.prefetch, "clock": _LinearParser.clock,
    "address": _LinearParser.address,
}  # fmt: skip


def parse_linear(text: str) -> LinearKernel:
    """Return the kernel at kernel level that `print_linear` printed.

    Raises
    ------
    ParseError
        If the text is malformed; its ``where`` names the line.
    """
    return _LinearParser(text).run()
