"""The walk over a kernel that all languages of C's family share, one table row an instruction.

A language is a subclass of `Writer`: it names types, spells what differs, and replaces rows of two
tables, `INSTRUCTIONS` (instruction -> method) and `ROWS` (operation -> function that returns the
expression). What is here writes scalars: loads, stores, arithmetic, loops, branches, and one
function. Vectors, parallel regions and failures are `weft.renderers.cstyle.c.renderer`; a language
whose kernels run one element a thread needs none of them.

Pure values that are used once, near to their definition, are written where they are used; others
become constants of the block. Dead ones are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from weft.errors import UnsupportedError, VerifyError
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.dtype import DType
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.op import Op, Operation
from weft.ir.stmt import Memory
from weft.renderers import ranges
from weft.renderers.base import PLAIN, Source, Style
from weft.renderers.cstyle.context import Row
from weft.renderers.cstyle.operations import ROWS
from weft.renderers.cstyle.text import (
    ADD,
    ATOM,
    EQUALITY,
    KEYWORDS,
    TERNARY,
    UNARY,
    Names,
    Text,
    atom,
    literal,
)  # fmt: skip
from weft.renderers.cstyle.uses import Uses
from weft.renderers.primitives import check
from weft.target import Target

__all__ = ["LONGEST", "CStyleRenderer", "Writer", "is_foreign"]

LONGEST: Final = 64  # characters of an expression that is written where it is used
_PLAIN: Final = {"b": "bool", "i": "i{bits}", "u": "u{bits}", "f": "f{bits}"}


class Writer:
    """Writes one kernel in one language; the state of that.

    Attributes
    ----------
    TYPES : mapping of dtype to str
        What types are called in registers; narrow floats are carried as their bits.
    AXES : mapping of str to str
        Expressions of the hardware axes (``block.x``), where the language has them.
    FLOATS : mapping of operation to str
        Functions of floats that the language has, exactly as the op table defines them.
    ROWS : mapping of operation to function
        How operations are written: ``row(writer, instruction) -> Text``.
    INSTRUCTIONS : mapping of instruction class to str
        The method that writes each instruction.
    WRAPS : bool
        Whether signed arithmetic wraps around; else it is written in unsigned types.
    INLINE : str
        What stands before a function of the prelude.
    SPACE : str
        What stands before the type behind a pointer in the prelude; `helper` knows what it means.
    INT128 : bool
        Whether there are integers of 128 bits.
    COUNTS : tuple of str
        Functions of 64 bits: how many are set, and how many zeros lead (of no zero).
    lines : list of str
        What is written of the function.
    sizes : dict of str to str
        What variables of the kernel are called, by name.
    helpers : dict
        Functions that the text needs, by name, each behind those that it calls itself.
    """

    TYPES: ClassVar[Mapping[DType, str]] = {
        **{d: _PLAIN[d.kind].format(bits=d.bits) for d in dt.ALL},
        dt.float16: "f16", dt.bfloat16: "bf16", dt.float8_e4m3fn: "f8e4m3",
        dt.float8_e5m2: "f8e5m2",
    }  # fmt: skip
    AXES: ClassVar[Mapping[str, str]] = {}
    FLOATS: ClassVar[Mapping[Operation, str]] = {
        Op.SQRT: "sqrt", Op.FLOOR: "floor", Op.CEIL: "ceil", Op.TRUNC: "trunc", Op.ROUND: "rint",
        Op.ABS: "fabs", Op.COPYSIGN: "copysign", Op.FMOD: "fmod", Op.MAD: "fma",
    }  # fmt: skip
    ROWS: ClassVar[Mapping[Operation, Row]] = ROWS
    INSTRUCTIONS: ClassVar[Mapping[type[Inst], str]] = {
        li.Compute: "compute", li.VariableInst: "variable", li.LoadInst: "load",
        li.StoreInst: "store", li.StorageInst: "storage", li.Loop: "loop", li.EndLoop: "end",
        li.WhileBegin: "while_begin", li.WhileTest: "while_test", li.EndWhile: "end",
        li.IfBegin: "if_begin", li.Else: "otherwise", li.EndIf: "end", li.AssertInst: "check",
        li.BarrierInst: "barrier", li.FenceInst: "fence", li.AtomicInst: "atomic",
        li.CallInst: "call_function", li.PrintInst: "print_line", li.PrefetchInst: "prefetch",
        li.ClockInst: "clock", li.AddressInst: "address", li.SpecialInst: "special_register",
    }  # fmt: skip
    WRAPS: ClassVar[bool] = False
    INLINE: ClassVar[str] = "static inline"
    SPACE: ClassVar[str] = ""
    INT128: ClassVar[bool] = True
    COUNTS: ClassVar[tuple[str, str]] = ("__builtin_popcountll", "__builtin_clzll")
    RESERVED: ClassVar[frozenset[str]] = KEYWORDS

    def __init__(self, target: Target, kernel: LinearKernel, name: str) -> None:
        self.target, self.kernel, self.name = target, kernel, name
        self.lines: list[str] = []
        self.depth = 1
        self.helpers: dict[str, str] = {}
        self.names = Names(self.RESERVED | frozenset(self.TYPES.values()))
        self.memories: dict[str, str] = {m.name: self.names.take(m.name) for m in kernel.params}
        self.sizes: dict[str, str] = {v.attr.name: self.names.take(v.attr.name)
                                      for v in kernel.variables}
        self.texts: dict[int, Text] = {}
        self.numbers: dict[int, Any] = {}  # values of constants, by value id
        self.fixed: set[int] = set()  # values that are made of constants alone
        self.ranges: dict[int, ranges.Range] = {}
        self.uses = Uses(kernel.code)
        self.imports: dict[str, None] = {}
        self.changed = {i.memory.name for i in kernel.code
                        if isinstance(i, li.StoreInst | li.AtomicInst)}

    # the text of a kernel

    def source(self) -> str:
        """Return the whole text: helpers, and the function."""
        self.code(0, len(self.kernel.code))
        parts = [self.prelude(), *self.helpers.values(), self.head() + " {", *self.lines, "}"]
        return "\n".join(part for part in parts if part) + "\n"

    def prelude(self) -> str:
        """Return what the language needs before everything else."""
        return ""

    def head(self) -> str:
        """Return the head of the function."""
        params = [self.parameter(m) for m in self.kernel.params]
        params += [f"{self.type(dt.int64)} {name}" for name in self.sizes.values()]
        return f"void {self.name}({', '.join(params)})"

    def parameter(self, memory: Memory) -> str:
        """Return the declaration of an array that is a parameter."""
        const = "" if memory.name in self.changed else "const "
        return f"{const}{self.stored(memory.dtype)} *{self.memories[memory.name]}"

    # words

    def emit(self, line: str) -> None:
        """Append a line to the block that is open."""
        self.lines.append("  " * self.depth + line)

    def open(self, line: str) -> None:
        """Begin a block."""
        self.emit(line)
        self.depth += 1

    def close(self) -> None:
        """End a block."""
        self.depth -= 1
        self.emit("}")

    def type(self, d: DType, lanes: int = 1) -> str:
        """Return the type of values in registers."""
        if lanes > 1:
            raise UnsupportedError("render", found=f"a vector of {lanes} lanes",
                                   expected=f"scalars, for {self.target.name}")
        return self.TYPES[d]

    def stored(self, d: DType) -> str:
        """Return the type of elements in memory: a byte for bool."""
        return self.type(dt.uint8 if d.is_bool else d)

    def helper(self, name: str, text: Callable[[], str]) -> str:
        """Return the name of a function of the prelude, which is written once."""
        if name not in self.helpers:
            made = text()
            self.helpers[name] = made
        return name

    def call(self, name: str, *arguments: Text | str) -> Text:
        """Return a call."""
        words = (a if isinstance(a, str) else a.text for a in arguments)
        return atom(f"{name}({', '.join(words)})")

    def cast(self, d: DType, text: Text) -> Text:
        """Return a conversion in the language's own way: of integers, and where it is exact."""
        return Text(f"({self.type(d)}){text.at(UNARY)}", UNARY)

    def bitcast(self, text: Text, source: DType, to: DType) -> Text:
        """Return the same bits as a value of another type of that width."""
        a, b = self.type(source), self.type(to)
        if source.kind != "f" and to.kind != "f":
            return self.cast(to, text)
        if a == b:
            return text
        if source.bits < 32:  # narrow floats are their bits
            return self.cast(to, text)
        name = self.helper(f"{b}_from_{a}_bits", lambda: (
            f"static inline {b} {b}_from_{a}_bits({a} x) {{\n"
            f"  union {{ {a} from; {b} to; }} bits = {{ x }};\n  return bits.to;\n}}"))
        return self.call(name, text)

    def choose(self, condition: str, a: str, b: str, d: DType, lanes: int) -> str:
        """Return `a` where a comparison of values of `d` holds, else `b`; all are of `d`."""
        return f"({condition} ? {a} : {b})"

    def converted(self, text: str, source: DType, to: DType, lanes: int) -> str:
        """Return a value converted as C does; narrow floats are their bits."""
        return self.cast(to, Text(text, ATOM)).text

    def same_bits(self, text: str, source: DType, to: DType, lanes: int) -> str:
        """Return the bits of a value as those of another type of that width."""
        return self.bitcast(Text(text, ATOM), source, to).text

    def function_name(self, op: Operation, d: DType) -> str:
        """Return the name of a function of floats."""
        return self.FLOATS[op]

    def literal(self, value: Any, d: DType) -> Text:
        """Return a scalar constant."""
        if d.kind == "f" and d.bits >= 32 and not math.isfinite(value):
            text = self.special(float(value), d)
            return Text(text, UNARY if text[:1] == "-" else ATOM)
        return literal(value, d)

    def special(self, value: float, d: DType) -> str:
        """Return an infinity or NaN."""
        return "NAN" if value != value else "INFINITY" if value > 0 else "-INFINITY"

    # values

    def operand(self, value: Value) -> Text:
        """Return what a value is called."""
        text = self.texts.get(value.id)
        if text is None:
            raise VerifyError("render", found=f"{value!r} used before its definition")
        return text

    def arg(self, value: Value, level: int = 0) -> str:
        """Return the text of a value for a place of this level."""
        return self.operand(value).at(level)

    def number(self, value: Value) -> Any:
        """Return the Python value of a constant, else None."""
        return self.numbers.get(value.id)

    def declare(self, value: Value, text: Text | str) -> None:
        """Write a constant of the block."""
        name = self.named(value)
        words = text if isinstance(text, str) else text.text
        self.emit(f"const {self.type(value.dtype, value.lanes)} {name} = {words};")
        self.texts[value.id] = atom(name)

    def named(self, value: Value) -> str:
        """Return a new identifier for a value: its name, if it has one, and its number."""
        return self.names.take(f"{value.name or 'v'}_{value.id}")

    def define(self, value: Value, text: Text) -> None:
        """Write a pure value where it is used, or as a constant of the block."""
        if value.id in self.uses.near and len(text.text) <= LONGEST:
            self.texts[value.id] = text
        else:
            self.declare(value, text)

    # instructions

    def code(self, begin: int, end: int) -> None:
        """Write the instructions from `begin` up to `end`."""
        position = begin
        while position < end:
            inst = self.kernel.code[position]
            if position not in self.uses.dead:
                position = self.instruction(inst, position)
            position += 1

    def instruction(self, inst: Inst, position: int) -> int:
        """Write one instruction; return the position of the last one that is written."""
        name = self.INSTRUCTIONS.get(type(inst))
        if name is None:
            raise UnsupportedError("render", found=type(inst).__name__,
                                   expected=f"an instruction of {self.target.name}")
        getattr(self, name)(inst)
        return position

    def compute(self, inst: li.Compute) -> None:
        """Write a pure operation."""
        result = inst.result
        if inst.op is Op.CONST:
            self.numbers[result.id] = inst.attr
        elif inst.op is Op.BROADCAST and inst.args[0].id in self.numbers:
            self.numbers[result.id] = self.numbers[inst.args[0].id]
        ranges.record(self.ranges, inst)
        text = self.row(inst)(self, inst)
        if self.fixed.issuperset(a.id for a in inst.args) and len(text.text) <= LONGEST:
            self.fixed.add(result.id)
            self.texts[result.id] = text
        else:
            self.define(result, text)

    def row(self, inst: li.Compute) -> Row:
        """Return what writes an operation on these types.

        Raises
        ------
        UnsupportedError
            For a row, or a row of this dtype, that should have been decomposed.
        """
        row = self.ROWS.get(inst.op)
        if row is None or any(v.lanes > 1 for v in (inst.result, *inst.args)) or is_foreign(inst):
            raise self.lacks(inst)
        return row

    def lacks(self, inst: li.Compute) -> UnsupportedError:
        """Return the error of an operation that the language does not have."""
        value = inst.args[-1] if inst.args else inst.result
        lanes = f" x {value.lanes}" if value.lanes > 1 else ""
        return UnsupportedError("render", found=f"{inst.op.name} of {value.dtype.name}{lanes}",
                                expected="what the target supports",
                                hint="legalize the kernel first")

    def variable(self, inst: li.VariableInst) -> None:
        """Read a symbolic size."""
        self.ranges[inst.result.id] = inst.bounds.min, inst.bounds.max
        self.texts[inst.result.id] = atom(self.sizes[inst.bounds.name])

    def memory(self, memory: Memory) -> str:
        """Return the name of an array."""
        return self.memories[memory.name]

    def element(self, memory: Memory, offset: Value) -> Text:
        """Return one element, to be read or written."""
        return atom(f"{self.memory(memory)}[{self.arg(offset)}]")

    def load(self, inst: li.LoadInst) -> None:
        """Write a load of one element."""
        value = inst.result
        text = self.from_memory(self.element(inst.memory, inst.offset), value.dtype)
        if inst.mask is not None and not self.number(inst.mask):
            fill = self.literal(0, value.dtype) if inst.fill is None else self.operand(inst.fill)
            choice = f"{self.arg(inst.mask, UNARY)} ? {text.at(TERNARY + 1)} : "
            text = Text(choice + fill.at(TERNARY + 1), TERNARY)
        self.declare(value, text)

    def store(self, inst: li.StoreInst) -> None:
        """Write a store of one element."""
        text = self.to_memory(self.operand(inst.value), inst.value.dtype)
        line = f"{self.element(inst.memory, inst.offset).text} = {text.text};"
        if inst.mask is not None and not self.number(inst.mask):
            line = f"if ({self.arg(inst.mask)}) {line}"
        self.emit(line)

    def from_memory(self, text: Text, d: DType) -> Text:
        """Return what was read as a value; any byte but 0 is true."""
        return Text(f"{text.at(ADD)} != 0", EQUALITY) if d.is_bool else text

    def to_memory(self, text: Text, d: DType) -> Text:
        """Return a value as it lies in memory."""
        return text

    def storage(self, inst: li.StorageInst) -> None:
        """Declare an array of the block."""
        memory = inst.memory
        name = self.memories[memory.name] = self.names.take(memory.name)
        if inst.base is not None:
            kind = self.stored(memory.dtype)
            self.emit(f"{kind} *const {name} = ({kind} *){self.memory(inst.base)};")
        else:
            self.emit(f"{self.stored(memory.dtype)} {name}[{max(inst.size, 1)}];")

    def loop(self, inst: li.Loop) -> None:
        """Begin a loop; one over a hardware axis is a block with the index in it."""
        axis = self.AXES.get(inst.kind)
        if axis is None and inst.kind not in (li.SERIAL, li.PARALLEL):
            raise UnsupportedError("render", found=f"a loop over {inst.kind}",
                                   expected="loops, with blocks and threads made loops before")
        ranges.record_loop(self.ranges, inst.var, inst.extent)
        if axis is not None:
            self.open("{")
            self.declare(inst.var, axis)
        else:
            begin = "0" if inst.begin is None else self.arg(inst.begin)
            self.open_loop(inst, begin, self.arg(inst.extent, ADD))

    def open_loop(self, inst: li.Loop, begin: str, end: str) -> None:
        """Begin a loop over [begin, end)."""
        name = self.named(inst.var)
        self.texts[inst.var.id] = atom(name)
        remark = "" if inst.kind == li.SERIAL else f"  // {inst.kind}"
        turn = f"{name}++" if inst.step is None else f"{name} += {self.arg(inst.step)}"
        head = f"for ({self.type(dt.int64)} {name} = {begin}; {name} < {end}; {turn})"
        self.open(f"{head} {{{remark}")

    def end(self, inst: Inst) -> None:
        """End the innermost region."""
        self.close()

    def while_begin(self, inst: li.WhileBegin) -> None:
        """Begin the head of a while loop."""
        self.open("for (;;) {")

    def while_test(self, inst: li.WhileTest) -> None:
        """Write the test of a while loop."""
        self.emit(f"if (!{self.arg(inst.condition, UNARY)}) break;")

    def if_begin(self, inst: li.IfBegin) -> None:
        """Begin a branch."""
        self.open(f"if ({self.arg(inst.condition)}) {{")

    def otherwise(self, inst: Inst) -> None:
        """Begin the other branch."""
        self.depth -= 1
        self.open("} else {")

    def _refuse(self, inst: Any) -> None:
        raise UnsupportedError("render", found=type(inst).__name__,
                               expected=f"an instruction of {self.target.name}")

    # What no two languages write alike: each that has it brings its own.
    check = barrier = fence = atomic = call_function = print_line = clock = address = _refuse
    special_register = _refuse

    def prefetch(self, inst: li.PrefetchInst) -> None:
        """Ask for nothing: a prefetch is no more than a hint."""


def is_foreign(inst: li.Compute) -> bool:
    """Whether the operands are narrow floats, with which nothing is computed."""
    if not inst.args or inst.op in _ANY_DTYPE:
        return False
    d = inst.args[-1].dtype
    return d.kind == "f" and d.bits < 32


_ANY_DTYPE: Final = (Op.CAST, Op.BITCAST, Op.WHERE, Op.BROADCAST, Op.EXTRACT, Op.HALF,
                     Op.REVERSE, Op.SLIDE, Op.SHUFFLE, Op.BITS, Op.WORDS)  # fmt: skip


class CStyleRenderer:
    """Writes kernels of one language.

    Parameters
    ----------
    target : Target
        What the device can do.

    Attributes
    ----------
    LANGUAGE : str
        What `Source.language` says.
    WRITER : type of Writer
        What writes one kernel.
    """

    LANGUAGE: ClassVar[str] = "c"
    WRITER: ClassVar[type[Writer]] = Writer

    def __init__(self, target: Target) -> None:
        self.target = target

    @property
    def device(self) -> str:
        """Name of the device family."""
        return self.target.name

    def render(self, kernel: LinearKernel, name: str | None = None, style: Style = PLAIN
               ) -> Source:  # fmt: skip
        """Return the source of one kernel.

        Of a style, what only asks for faster or smaller code is left to the compiler's pipeline.

        Raises
        ------
        UnsupportedError
            For what the language or the target lacks.
        """
        if style.inlined:
            raise UnsupportedError("render", found="a kernel for a caller in its own module",
                                   expected=f"a function of its own, in {self.LANGUAGE}")
        check(self.target, kernel)
        writer = self.WRITER(self.target, self.prepared(kernel), name or kernel.name)
        text = writer.source()
        return Source(self.LANGUAGE, name or kernel.name, text, tuple(writer.imports))

    def prepared(self, kernel: LinearKernel) -> LinearKernel:
        """Return the kernel as it is written: in what the language has."""
        return kernel

    def decompositor(self) -> Callable[[Operation, DType], bool]:
        """Return a function that tells which (op, dtype) has to be decomposed beforehand."""
        return lambda op, dtype: not self.target.supports(op, dtype)
