"""Canonical text of kernels at kernel level; `text_parse_linear` reads it back exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from weft.ir import linear as li
from weft.ir.linear import Inst, LinearKernel, Value, typename
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.ir.text.text import INDENT, meta_lines, meta_text
from weft.ir.text.text_expr import ExprPrinter, name, number, ordered, quoted
from weft.ir.text.text_expr import variable as variable_text

__all__ = ["inst_text", "print_linear", "value_text"]


def value_text(v: Value) -> str:
    """Return a value where it is used: ``%7`` or ``%x.7``."""
    return f"%{name(v.name)}.{v.id}" if v.name else f"%{v.id}"


def _defined(v: Value) -> str:
    if v.dtype.text == "i64" and v.lanes == 1:
        return value_text(v)
    return f"{value_text(v)}: {typename(v.dtype, v.lanes)}"


def _values(values: tuple[Value, ...]) -> str:
    return ", ".join(map(value_text, values))


def _options(**values: Value | None) -> str:
    return "".join([f" {key} {value_text(v)}" for key, v in values.items() if v is not None])


def _compute(i: li.Compute) -> str:
    if i.op is Op.CONST:
        shown = repr(int(i.attr)) if i.result.dtype.is_integer else number(i.attr)
        return f"{_defined(i.result)} = const {shown}"
    head = i.op.name if i.attr is None else f"{i.op.name}.{i.attr}"
    return f"{_defined(i.result)} = {head} {_values(i.args)}".rstrip()


def _memory(memory: Memory, shapes: ExprPrinter, lines: list[str], indent: str = "") -> str:
    shape = ", ".join([shapes.show(e, lines, indent) for e in memory.shape])
    scope = "" if memory.scope == "global" else f" {memory.scope}"
    return f"{name(memory.name)}: {memory.dtype.text}[{shape}]{scope}"


def _storage(inst: li.StorageInst) -> str:
    declared = _memory(inst.memory, ExprPrinter(inst.memory.shape), [])
    return f"storage {declared} size {inst.size}{_over(inst)}"


def _over(inst: li.StorageInst) -> str:
    align = "" if inst.align == 16 else f" align {inst.align}"
    return align if inst.base is None else f"{align} over {name(inst.base.name)}"


def _at(memory: Memory, offset: Value) -> str:
    return f"{name(memory.name)}[{value_text(offset)}]"


def _atomic(i: li.AtomicInst) -> str:
    compare = _options(compare=i.compare)
    return (f"{_defined(i.result)} = atomic {i.kind} {_at(i.memory, i.offset)}, "
            f"{value_text(i.value)}{compare} {i.scope}{ordered(i.order, 'relaxed')}")


def _call(i: li.CallInst) -> str:
    results = ", ".join(map(_defined, i.vars))
    return f"call {results}{' = ' if results else ''}{name(i.callee)}({_values(i.args)})"


_LINES: Final[dict[type[Inst], Callable[[Any], str]]] = {
    li.Compute: _compute,
    li.VariableInst: lambda i: (
        f"{_defined(i.result)} = variable {i.slot} @{name(i.bounds.name)}"
        f"[{i.bounds.min}..{i.bounds.max}]"
    ),
    li.LoadInst: lambda i: (
        f"{_defined(i.result)} = load {_at(i.memory, i.offset)}"
        + _options(mask=i.mask, fill=i.fill)
    ),
    li.StoreInst: lambda i: (
        f"store {_at(i.memory, i.offset)} = {value_text(i.value)}{_options(mask=i.mask)}"
        + (" streaming" if i.streaming else "")
    ),
    li.StorageInst: _storage,
    li.Loop: lambda i: (
        f"for {_defined(i.var)} in {value_text(i.extent)} {i.kind}"
        + _options(begin=i.begin, step=i.step) + " {"
    ),
    li.EndLoop: lambda i: "}",
    li.WhileBegin: lambda i: "while endless {" if i.endless else "while {",
    li.WhileTest: lambda i: f"}} test {value_text(i.condition)} {{",
    li.EndWhile: lambda i: "}",
    li.IfBegin: lambda i: f"if {value_text(i.condition)} {{",
    li.Else: lambda i: "} else {",
    li.EndIf: lambda i: "}",
    li.AssertInst: lambda i: (
        f"assert {value_text(i.condition)} {i.message}" + _options(value=i.value, bound=i.bound)
        + ("" if i.stops else " goes_on")
    ),
    li.BarrierInst: lambda i: f"barrier {i.scope}",
    li.FenceInst: lambda i: f"fence {i.scope}{ordered(i.order, 'seq_cst')}",
    li.AddressInst: lambda i: f"address {_defined(i.result)} = {name(i.memory.name)}",
    li.SpecialInst: lambda i: f"special {_defined(i.result)} = {i.register}",
    li.ClockInst: lambda i: f"clock {_defined(i.result)} = {i.kind}",
    li.AtomicInst: _atomic,
    li.CallInst: _call,
    li.PrintInst: lambda i: f"print {quoted(i.text)}({_values(i.args)})",
    li.PrefetchInst: lambda i: f"prefetch {_at(i.memory, i.offset)}",
}


def inst_text(inst: Inst) -> str:
    """Return one instruction as one line of text."""
    return _LINES[type(inst)](inst)


def print_linear(kernel: LinearKernel) -> str:
    """Return the exact text of a kernel at kernel level, messages with their places included."""
    lines = [f"linear {name(kernel.name)} {meta_text(kernel.meta)}", *meta_lines(kernel.meta)]
    shapes = ExprPrinter([e for memory in li.memories(kernel) for e in memory.shape])
    for memory in kernel.params:
        declared = _memory(memory, shapes, lines)
        lines.append(f"param {declared}")
    lines += [f"variable {variable_text(v)}" for v in kernel.variables]
    for text, place in kernel.messages:
        at = "" if place is None else f" {quoted(place.file)} {place.line} {place.column}"
        lines.append(f"message {quoted(text)}{at}")
    lines.append("{")
    indent = INDENT
    for inst in kernel.code:
        if isinstance(inst, li.CLOSERS + li.MIDDLES):
            indent = indent[: -len(INDENT)] or INDENT
        if isinstance(inst, li.StorageInst):
            declared = _memory(inst.memory, shapes, lines, indent)
            lines.append(f"{indent}storage {declared} size {inst.size}{_over(inst)}")
            continue
        lines.append(indent + inst_text(inst))
        if isinstance(inst, li.OPENERS + li.MIDDLES):
            indent += INDENT
    lines.append("}")
    return "\n".join(lines) + "\n"
