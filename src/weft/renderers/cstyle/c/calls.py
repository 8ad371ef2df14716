"""What C kernels ask of the process: functions by their symbols, printing, clocks."""

from __future__ import annotations

import sys
from typing import Protocol

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import Value
from weft.renderers.cstyle.c.context import CWords
from weft.renderers.cstyle.c.text import c_string
from weft.renderers.cstyle.narrow import convert_narrow, is_narrow
from weft.renderers.cstyle.operations import define
from weft.renderers.cstyle.text import TERNARY, Names, Text

__all__ = ["call_function", "clock", "label", "print_line"]


class Caller(CWords, Protocol):
    """A writer that declares what is outside of the kernel."""

    imports: dict[str, None]
    names: Names

    def external(self, name: str, text: str) -> None:
        """Declare a function of the process, once."""
        ...


def label(name: str) -> str:
    """Return the string literal of a symbol as assemblers know it."""
    return c_string(f"_{name}" if sys.platform == "darwin" else name)


def call_function(w: Caller, inst: li.CallInst) -> None:
    """Call a scalar function of the process by its symbol.

    It gets a name of its own: C has declarations of many functions built in.
    """
    if len(inst.vars) > 1 or any(v.lanes > 1 for v in (*inst.vars, *inst.args)):
        raise UnsupportedError("render", found=f"a call of {inst.callee}",
                               expected="scalar arguments and at most one result")
    result = w.type(inst.vars[0].dtype) if inst.vars else "void"
    params = ", ".join(w.type(a.dtype) for a in inst.args) or "void"
    kind = f"{result} ({params})"
    name = f"call{w.number_of(f'{inst.callee} {kind}')}"
    w.external(name, f"extern {result} {name}({params}) __asm__({label(inst.callee)});")
    w.imports[inst.callee] = None
    text = w.call(name, *(w.operand(a) for a in inst.args))
    if inst.vars:
        w.declare(inst.vars[0], text)
    else:
        w.emit(f"{text.text};")


def print_line(w: Caller, inst: li.PrintInst) -> None:
    """Print a line by one call of printf, so that lines of different threads do not mix."""
    forms, args = [], []
    for a in inst.args:
        form, text = _printable(w, a)
        forms.append(form)
        args.append(text)
    line = inst.text.replace("%", "%%")
    line = line.format(*forms) if line.endswith("\n") else " ".join([line, *forms]) + "\n"
    w.emit(f"printf({', '.join([c_string(line), *args])});")


def _printable(w: CWords, value: Value) -> tuple[str, str]:
    """Return printf's conversion and the argument for it."""
    if value.lanes > 1:
        raise UnsupportedError("print", found=f"a vector of {value.lanes} lanes",
                               expected="a scalar")
    d, text = value.dtype, w.operand(value)
    if d.kind == "b":
        return "%s", f'{text.at(TERNARY + 1)} ? "True" : "False"'
    if d.kind == "f":
        if is_narrow(d):
            text = convert_narrow(w, text, d, dt.float32, 1)
        return "%s", f"weft_number({text.text}, {int(d.bits < 64)}, (char[64]){{ 0 }})"
    word = "unsigned long long" if d is dt.uint64 else "long long"
    return ("%llu" if d is dt.uint64 else "%lld"), f"({word})({text.text})"


def clock(w: Caller, inst: li.ClockInst) -> None:
    """Read the processor's counter where programs may, else the system's clock in nanoseconds."""
    if inst.kind == "cycles" and w.target.arch == "x86_64":
        w.declare(inst.result, Text("(i64)__builtin_ia32_rdtsc()"))
        return
    monotonic = 1 if sys.platform == "linux" else 6
    w.external("clock_gettime", "extern int clock_gettime(int, void *);")
    name = define(w, "now_i64", "i64", "void", "i64 time[2] = { 0, 0 };",
                  f"clock_gettime({monotonic}, time);", "return time[0] * 1000000000ll + time[1];")
    w.declare(inst.result, w.call(name))
