"""Reading the text of kernels at kernel level, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir import stmt as st
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.op import BY_NAME, Op
from weft.ir.stmt import FENCE_ORDERS, ORDERS, Memory
from weft.ir.text.text_head import Head
from weft.ir.text.text_lexer import Line, Names

__all__ = ["parse_linear"]


class _LinearParser:
    """Reads one kernel at kernel level."""

    def __init__(self, text: str) -> None:
        self.names = Names()
        self.head = Head()
        self.values: dict[str, Value] = {}
        self.code: list[Inst] = []
        self.stack: list[str] = []
        self.text = text

    def run(self) -> LinearKernel:
        line, lines = self.head.opened(self.text, "linear", self.names)
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
            return li.AtomicInst(result, kind, memory, offset, value, compare, line.name(),
                                 line.order(ORDERS, "relaxed"))
        if line.take("const"):
            return li.Compute(result, Op.CONST, (), line.literal(result.dtype))
        head, _, detail = line.name().partition(".")
        op = BY_NAME.get(head)
        lanes = op is Op.SHUFFLE and all(map(str.isdigit, detail.split("_")))
        if op is None or op.group not in li.COMPUTE_GROUPS or not (
            lanes or not detail or detail.isdigit()
        ):
            line.at -= 1
            line.fail("an operation")
        attr = detail if lanes else int(detail) if detail else None
        return li.Compute(result, op, self.values_to(line), attr)

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

    def special(self, line: Line) -> Inst:
        result = self.define(line)
        line.expect("=")
        return li.SpecialInst(result, line.one_of(li.REGISTERS, "a special register"))

    def address(self, line: Line) -> Inst:
        result = self.define(line)
        line.expect("=")
        return li.AddressInst(result, line.memory())

    def loop(self, line: Line) -> Inst:
        var = self.define(line)
        line.expect("in")
        extent = self.value(line)
        kind = line.one_of(li.LOOP_KINDS, "a loop kind")
        begin = self.option(line, "begin")
        step = self.option(line, "step")
        line.expect("{")
        self.stack.append("for")
        return li.Loop(var, extent, kind, begin, step)

    def while_(self, line: Line) -> Inst:
        endless = line.take("endless")
        line.expect("{")
        self.stack.append("while")
        return li.WhileBegin(endless)

    def if_(self, line: Line) -> Inst:
        condition = self.value(line)
        line.expect("{")
        self.stack.append("if")
        return li.IfBegin(condition)

    def assert_(self, line: Line) -> Inst:
        condition = self.value(line)
        message = line.integer()
        value = self.option(line, "value")
        bound = self.option(line, "bound")
        return li.AssertInst(condition, message, value, bound, not line.take("goes_on"))

    def barrier(self, line: Line) -> Inst:
        return li.BarrierInst(line.name())

    def fence(self, line: Line) -> Inst:
        return li.FenceInst(line.name(), line.order(FENCE_ORDERS, "seq_cst"))

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
    "address": _LinearParser.address, "special": _LinearParser.special,
}  # fmt: skip


def parse_linear(text: str) -> LinearKernel:
    """Return the kernel at kernel level that `print_linear` printed.

    Raises
    ------
    ParseError
        If the text is malformed; its ``where`` names the line.
    """
    return _LinearParser(text).run()
