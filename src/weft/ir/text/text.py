"""Canonical text of kernels at loop level; `parse_*` reads it back exactly.

One statement stands on one line; regions are in braces. Every attribute of a kernel is in its
text but source locations, which stand in a table behind it where asked for. Cache keys are made of
`canonical_text`, in which names are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from weft.ir import stmt as st
from weft.ir import tile as ti
from weft.ir import traverse
from weft.ir.dtype import DType
from weft.ir.expr import Expr, make
from weft.ir.op import Op
from weft.ir.stmt import Body, Kernel, Memory, Meta, Stmt
from weft.ir.text.text_expr import ExprPrinter, name, ordered, print_expr, quoted, typed_name

__all__ = ["INDENT", "canonical_text", "canonicalise", "meta_lines", "meta_text", "print_expr",
           "print_kernel", "stmt_text"]  # fmt: skip

INDENT: Final = "  "

class _Names:
    """The printed names of a kernel: its own, or numbers in the order of binding."""

    def __init__(self, kernel: Kernel, canonical: bool) -> None:
        self.types: dict[str, tuple[DType, int]] = {}
        self.vars: dict[str, str] = {}
        self.memories: dict[str, str] = {}
        self.blocks: dict[str, str] = {}
        self.canonical = canonical
        self.count = 0
        for memory in kernel.params:
            self._memory(memory, "p")
        for stmt in traverse.walk(kernel.body):
            if isinstance(stmt, st.Reduce):
                for axis in stmt.axes:
                    self._var(axis.var)
                for acc in stmt.accumulators:
                    self._accumulator(acc.var)
                continue
            for var in stmt.binds():
                self._var(var)
            if isinstance(stmt, st.Alloc):
                self._memory(stmt.memory, "m")
            elif isinstance(stmt, st.Block) and canonical:
                self.blocks.setdefault(stmt.name, f"b{len(self.blocks)}")

    def _var(self, var: Expr) -> None:
        if var.attr in self.types:
            return
        self.types[var.attr] = (var.dtype, var.lanes)
        if self.canonical:
            self.vars[var.attr] = f"v{self.count}"
            self.count += 1

    def _accumulator(self, var: Expr) -> None:
        self._var(var)
        for part in (st.lhs(var), st.rhs(var)):
            self.types.setdefault(part.attr, (part.dtype, part.lanes))
            if self.canonical:
                self.vars.setdefault(part.attr, self.vars[var.attr] + part.attr[-2:])

    def _memory(self, memory: Memory, letter: str) -> None:
        if self.canonical:
            self.memories.setdefault(memory.name, f"{letter}{len(self.memories)}")

    def memory(self, memory: Memory) -> str:
        return name(self.memories.get(memory.name, memory.name))

    def block(self, text: str) -> str:
        return name(self.blocks.get(text, text))


class _KernelPrinter:
    """Prints one loop-level kernel."""

    def __init__(self, kernel: Kernel, canonical: bool) -> None:
        self.kernel = kernel
        self.names = _Names(kernel, canonical)
        self.lines: list[str] = []
        self.indent = ""
        self.exprs = ExprPrinter(_roots(kernel), self.names.types, self.names.vars)

    def run(self) -> str:
        kernel, lines = self.kernel, self.lines
        title = "kernel" if self.names.canonical else kernel.name
        lines.append(f"kernel {name(title)} {meta_text(kernel.meta)}")
        lines.extend(meta_lines(kernel.meta))
        for memory in kernel.params:
            declared = self.declaration(memory)
            lines.append(f"param {declared}")
        lines.append("{")
        self.body(kernel.body)
        lines.append("}")
        return "\n".join(lines) + "\n"

    def show(self, e: Expr) -> str:
        return self.exprs.show(e, self.lines, self.indent)

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def declaration(self, memory: Memory) -> str:
        shape = ", ".join([self.show(e) for e in memory.shape])
        scope = "" if memory.scope == "global" else f" {memory.scope}"
        return f"{self.names.memory(memory)}: {memory.dtype.text}[{shape}]{scope}"

    def bind(self, var: Expr) -> str:
        return typed_name(var, self.names.vars.get(var.attr, var.attr))

    def place(self, memory: Memory, index: tuple[Expr, ...]) -> str:
        return f"{self.names.memory(memory)}[{', '.join([self.show(e) for e in index])}]"

    def body(self, body: Body) -> None:
        """Print statements; the stack holds what is left of each open region."""
        stack: list[Iterator[Any]] = [iter(body)]
        self.indent += INDENT
        while stack:
            item = next(stack[-1], None)
            if item is None:
                stack.pop()
                self.indent = self.indent[: -len(INDENT)]
            elif isinstance(item, Stmt):
                inner = _PRINT[type(item)](self, item)
                if inner is not None:
                    stack.append(inner)
                    self.indent += INDENT
            elif isinstance(item, tuple):  # the second body of a statement
                middle, second = item
                self.indent = self.indent[: -len(INDENT)]
                self.line(middle)
                self.indent += INDENT
                stack[-1] = iter((*second, _Close()))
            else:
                item.close(self)

    # one method a statement; one with bodies returns what stands inside it

    def let(self, s: st.Let) -> None:
        value = self.show(s.value)
        self.line(f"let {self.bind(s.var)} = {value}")

    def load(self, s: st.Load) -> None:
        place = self.place(s.memory, s.index)
        self.line(f"load {self.bind(s.var)} = {place}" + self.options(mask=s.mask, fill=s.fill))

    def store(self, s: st.Store) -> None:
        place = self.place(s.memory, s.index)
        value = self.show(s.value)
        streaming = " streaming" if s.streaming else ""
        self.line(f"store {place} = {value}" + self.options(mask=s.mask) + streaming)

    def options(self, **exprs: Expr | None) -> str:
        shown = [f" {key} {self.show(e)}" for key, e in exprs.items() if e is not None]
        return "".join(shown)

    def alloc(self, s: st.Alloc) -> None:
        declared = self.declaration(s.memory)
        align = f" align {s.align}" if s.align != 16 else ""
        base = "" if s.base is None else f" over {self.names.memory(s.base)}"
        self.line(f"alloc {declared}{align}{base}")

    def loop(self, s: st.For) -> Iterator[Any]:
        extent = self.show(s.extent)
        self.line(f"for {self.bind(s.var)} in {extent} {s.kind} {{")
        return iter((*s.body, _Close()))

    def while_(self, s: st.While) -> Iterator[Any]:
        self.line("while endless {" if s.endless else "while {")
        return iter((*s.head, _Test(s), *s.body, _Close()))

    def if_(self, s: st.If) -> Iterator[Any]:
        condition = self.show(s.condition)
        self.line(f"if {condition} {{")
        if not s.orelse:
            return iter((*s.then, _Close()))
        return iter((*s.then, ("} else {", s.orelse)))

    def block(self, s: st.Block) -> Iterator[Any]:
        self.line(f"block {self.names.block(s.name)} {{")
        return iter((*s.body, _Close()))

    def reduce(self, s: st.Reduce) -> Iterator[Any]:
        axes = [f"{self.bind(a.var)} in {self.show(a.extent)} {a.kind}" for a in s.axes]
        self.line(f"reduce {', '.join(axes)} {{")
        self.indent += INDENT
        for acc in s.accumulators:
            init = self.show(acc.init)
            self.line(f"acc {self.bind(acc.var)} = {init}")
        self.indent = self.indent[: -len(INDENT)]
        return iter((*s.body, _Update(s), _Close()))

    def barrier(self, s: st.Barrier) -> None:
        options = self.options(mask=s.mask)
        self.line(f"barrier {s.scope}{options}")

    def fence(self, s: st.Fence) -> None:
        self.line(f"fence {s.scope}{ordered(s.order, 'seq_cst')}")

    def collective(self, s: st.Collective) -> None:
        args = ", ".join([self.show(a) for a in s.args])
        options = self.options(mask=s.mask)
        self.line(f"collective {self.bind(s.var)} = {s.kind}({args}) {s.scope} {s.width}{options}")

    def atomic(self, s: st.Atomic) -> None:
        place = self.place(s.memory, s.index)
        value = self.show(s.value)
        compare = self.options(compare=s.compare)
        self.line(f"atomic {self.bind(s.var)} = {s.kind} {place}, {value}{compare} {s.scope}"
                  f"{ordered(s.order, 'relaxed')}")

    def clock(self, s: st.Clock) -> None:
        self.line(f"clock {self.bind(s.var)} = {s.kind}")

    def address(self, s: st.Address) -> None:
        self.line(f"address {self.bind(s.var)} = {self.names.memory(s.memory)}")

    def matrix_load(self, s: ti.MatrixLoad) -> None:
        fragment, memory = self.place(s.fragment, s.at), self.steps(s)
        self.line(f"matrix_load {fragment} {s.use} {_sizes(s.shape)} = {memory}")

    def matrix_store(self, s: ti.MatrixStore) -> None:
        fragment, memory = self.place(s.fragment, s.at), self.steps(s)
        self.line(f"matrix_store {fragment} {s.use} {_sizes(s.shape)} = {memory}")

    def steps(self, s: ti.MatrixAccess) -> str:
        place = self.place(s.memory, s.index)
        row, column = (", ".join([self.show(e) for e in part]) for part in (s.row, s.column))
        return f"{place} row [{row}] column [{column}]"

    def matrix_multiply(self, s: ti.MatrixMultiply) -> None:
        result, left, right, addend = (self.place(*part) for part in (
            (s.result, s.result_at), (s.left, s.left_at), (s.right, s.right_at),
            (s.addend, s.addend_at)))
        precision = f" {s.precision}" if s.precision else ""
        self.line(f"matrix_multiply {result} = {left}, {right}, {addend} {_sizes(s.shape)}"
                  f"{precision}")

    def async_copy(self, s: ti.AsyncCopy) -> None:
        target, source = self.place(s.memory, s.index), self.place(s.source, s.source_index)
        self.line(f"async_copy {target} = {source} {s.count} {s.cache}")

    def copy_commit(self, s: ti.CopyCommit) -> None:
        self.line("copy_commit")

    def copy_wait(self, s: ti.CopyWait) -> None:
        self.line(f"copy_wait {s.pending}")

    def call(self, s: st.Call) -> None:
        args = ", ".join([self.show(a) for a in s.args])
        results = ", ".join(map(self.bind, s.vars))
        self.line(f"call {results}{' = ' if results else ''}{name(s.callee)}({args})")

    def assert_(self, s: st.Assert) -> None:
        condition = self.show(s.condition)
        options = self.options(value=s.value, bound=s.bound)
        self.line(f"assert {condition} {quoted(s.message)}{options}")

    def print_(self, s: st.Print) -> None:
        args = ", ".join([self.show(a) for a in s.args])
        self.line(f"print {quoted(s.text)}({args})")

    def prefetch(self, s: st.Prefetch) -> None:
        place = self.place(s.memory, s.index)
        self.line(f"prefetch {place}")


def _sizes(shape: tuple[int, ...]) -> str:
    return " ".join(map(str, shape))


class _Close:
    """The end of a region."""

    def close(self, printer: _KernelPrinter) -> None:
        printer.lines.append(printer.indent[: -len(INDENT)] + "}")


class _Test:
    """The test between the head and the body of a while loop."""

    def __init__(self, stmt: st.While) -> None:
        self.stmt = stmt

    def close(self, printer: _KernelPrinter) -> None:
        condition = printer.show(self.stmt.condition)
        printer.lines.append(f"{printer.indent[: -len(INDENT)]}}} test {condition} {{")


class _Update:
    """The updates at the end of a reduction."""

    def __init__(self, stmt: st.Reduce) -> None:
        self.stmt = stmt

    def close(self, printer: _KernelPrinter) -> None:
        for acc in self.stmt.accumulators:
            update, combine = printer.show(acc.update), printer.show(acc.combine)
            bound = name(printer.names.vars.get(acc.var.attr, acc.var.attr))
            printer.line(f"update %{bound} = {update} combine {combine}")


_PRINT: Final[dict[type[Stmt], Callable[[_KernelPrinter, Any], Iterator[Any] | None]]] = {
    st.Let: _KernelPrinter.let, st.Load: _KernelPrinter.load, st.Store: _KernelPrinter.store,
    st.Alloc: _KernelPrinter.alloc, st.For: _KernelPrinter.loop, st.While: _KernelPrinter.while_,
    st.If: _KernelPrinter.if_, st.Block: _KernelPrinter.block, st.Reduce: _KernelPrinter.reduce,
    st.Barrier: _KernelPrinter.barrier, st.Fence: _KernelPrinter.fence,
    st.Collective: _KernelPrinter.collective, st.Atomic: _KernelPrinter.atomic,
    st.Call: _KernelPrinter.call, st.Assert: _KernelPrinter.assert_,
    st.Print: _KernelPrinter.print_, st.Prefetch: _KernelPrinter.prefetch,
    st.Clock: _KernelPrinter.clock, st.Address: _KernelPrinter.address,
    ti.MatrixLoad: _KernelPrinter.matrix_load,
    ti.MatrixStore: _KernelPrinter.matrix_store,
    ti.MatrixMultiply: _KernelPrinter.matrix_multiply, ti.AsyncCopy: _KernelPrinter.async_copy,
    ti.CopyCommit: _KernelPrinter.copy_commit, ti.CopyWait: _KernelPrinter.copy_wait,
}  # type: ignore[dict-item, unused-ignore]  # fmt: skip


def _roots(kernel: Kernel) -> Iterator[Expr]:
    for memory in kernel.params:
        yield from memory.shape
    for stmt in traverse.walk(kernel.body):
        yield from stmt.exprs()


def meta_text(meta: Meta) -> str:
    """Return what the head of a kernel says of it."""
    parts = [f"kind={name(meta.kind)}"]
    if meta.flops:
        parts.append(f"flops={meta.flops}")
    if meta.traffic:
        parts.append(f"traffic={meta.traffic}")
    if meta.fastmath:
        parts.append("fastmath")
    return " ".join(parts)


def meta_lines(meta: Meta) -> list[str]:
    """Return the lines below the head: the schedule, and hints."""
    lines = [f"schedule {quoted(line)}" for line in meta.schedule]
    return lines + [f"hint {quoted(key)} {quoted(repr(value))}" for key, value in meta.hints]


def print_kernel(kernel: Kernel, locations: bool = False) -> str:
    """Return the exact text of a loop-level kernel, with a table of source places if asked."""
    text = _KernelPrinter(kernel, False).run()
    return text + _location_table(kernel) if locations else text


def stmt_text(stmt: Stmt) -> str:
    """Return the first line of one statement, for messages."""
    printer = _KernelPrinter(Kernel("", (), (stmt,)), False)
    printer.body((stmt,))
    return next(line.strip() for line in printer.lines if not line.strip().startswith("$"))


def canonical_text(kernel: Kernel) -> str:
    """Return the text of ``canonicalise(kernel)``, equal for kernels that differ in names only."""
    return _KernelPrinter(kernel, True).run()


def _location_table(kernel: Kernel) -> str:
    lines = []
    for position, stmt in enumerate(traverse.walk(kernel.body)):
        place = kernel.locations.get(stmt)
        if place is not None:
            lines.append(f"location {position} {quoted(place.file)} {place.line} {place.column}")
    return "".join(line + "\n" for line in lines)


def canonicalise(kernel: Kernel) -> Kernel:
    """Return the kernel with names, memories and blocks numbered in the order of binding.

    Names of symbolic variables stay: a launch binds them by name.
    """
    names = _Names(kernel, True)
    renaming = _Renaming(names)
    params = tuple(map(renaming.memory, kernel.params))
    body = renaming.body(kernel.body)
    places = {renaming.stmts[s]: place for s, place in kernel.locations.items()
              if s in renaming.stmts}  # fmt: skip
    return Kernel("kernel", params, body, kernel.meta, places)


class _Renaming:
    """Rebuilds statements with other names; expressions are rebuilt without folding."""

    def __init__(self, names: _Names) -> None:
        self.names = names
        self.exprs: dict[Expr, Expr] = {}
        self.stmts: dict[Stmt, Stmt] = {}

    def body(self, body: Body) -> Body:
        return tuple([self.stmt(s) for s in body])

    def stmt(self, stmt: Stmt) -> Stmt:
        fields = [self.field(value) for value in stmt.values()]
        if isinstance(stmt, st.Block):
            fields[0] = self.names.blocks[stmt.name]
        made = self.stmts[stmt] = type(stmt)(*fields)
        return made

    def field(self, value: Any) -> Any:
        if isinstance(value, Expr):
            return self.expr(value)
        if isinstance(value, tuple):
            return tuple([self.field(v) for v in value])
        if isinstance(value, Stmt):
            return self.stmt(value)
        if isinstance(value, Memory):
            return self.memory(value)
        if isinstance(value, st.Axis | st.Accumulator):
            return type(value)(*map(self.field, value.values()))
        return value

    def memory(self, memory: Memory) -> Memory:
        shape = tuple(map(self.expr, memory.shape))
        return Memory(self.names.memories.get(memory.name, memory.name), memory.dtype, shape,
                      memory.scope)

    def expr(self, e: Expr) -> Expr:
        memo = self.exprs
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
            attr = self.names.vars.get(node.attr, node.attr) if node.op is Op.VAR else node.attr
            args = tuple([memo[a] for a in node.args])
            memo[node] = make(node.op, node.dtype, args, attr, node.lanes)
        return memo[e]
