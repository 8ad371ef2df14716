"""A structured emitter of LLVM IR text: typed values, branches, loops, memory, calls and exits.

A `Module` collects functions; declarations of what they call and of the objects that they refer to
follow from their uses. A `Code` writes one function in order: names and labels are fresh, a block
that is not ended goes on to the next one, and allocations stand in the entry. Variables that change
are memory (`Code.variable`), which LLVM's SROA turns into values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

__all__ = ["Code", "Module", "Operand", "Value"]

# What functions from outside return; the others a pointer.
_RETURNS: Final = {
    "PyDict_Next": "i32", "PyDict_Size": "i64", "PyErr_Clear": "void", "PyErr_Fetch": "void",
    "PyErr_Restore": "void", "PyEval_RestoreThread": "void", "PyFloat_AsDouble": "double",
    "PyList_Append": "i32", "PyList_SetSlice": "i32", "PyList_Size": "i64",
    "PyLong_AsLongLong": "i64", "PyLong_AsUnsignedLongLong": "i64",
    "PyLong_AsUnsignedLongLongMask": "i64", "PyObject_RichCompareBool": "i32",
    "PyThreadState_GetID": "i64", "PyTuple_SetItem": "i32", "PyTuple_Size": "i64",
    "Py_DecRef": "void", "Py_IncRef": "void", "free": "void", "llvm.ctlz.i64": "i64",
    "llvm.fabs.f64": "double", "llvm.memmove.p0.p0.i64": "void", "llvm.memset.p0.i64": "void",
    "llvm.smax.i32": "i32", "llvm.smax.i64": "i64", "llvm.smin.i32": "i32", "llvm.smin.i64": "i64",
    "llvm.umax.i64": "i64", "llvm.umin.i64": "i64", "pow": "double",
    "weft_int64_of": "i64", "weft_run": "i32",
}  # fmt: skip
# How many parameters come before those of any number.
_VARIADIC: Final = {"PyErr_Format": 2, "PyObject_CallFunction": 2, "Py_BuildValue": 1,
                    "PyObject_CallFunctionObjArgs": 1, "PyObject_CallMethodObjArgs": 2,
                    "prctl": 1, "syscall": 1}  # fmt: skip
_BYTES: Final = {"i8": 1, "i32": 4, "i64": 8, "ptr": 8}  # of what is read and written atomically
_PARAMETER: Final = re.compile(r"(\w+)(?: \w+)* %(\w+)")


class Value:
    """A value of LLVM IR: its text and its type. Operators write the instruction.

    Comparisons are signed; those of floats are false for NaN, but for `ne`.
    """

    __slots__ = ("code", "text", "type")

    def __init__(self, code: Code, text: str, kind: str) -> None:
        self.code, self.text, self.type = code, text, kind

    def _binary(self, operation: str, other: Operand) -> Value:
        real = "f" if self.type in ("double", "float") else ""
        return self.code.new(f"{real}{operation} {self.type} {self.text}, {_text(other)}",
                             self.type)

    def _compare(self, test: str, other: Operand) -> Value:
        if self.type in ("double", "float"):
            test = {"eq": "oeq", "ne": "une"}.get(test, "o" + test[1:])
            return self.code.new(f"fcmp {test} {self.type} {self.text}, {_text(other)}", "i1")
        return self.code.new(f"icmp {test} {self.type} {self.text}, {_text(other)}", "i1")

    def __add__(self, other: Operand) -> Value:
        return self._binary("add", other)

    def __sub__(self, other: Operand) -> Value:
        return self._binary("sub", other)

    def __mul__(self, other: Operand) -> Value:
        return self._binary("mul", other)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary("div", other)

    def __and__(self, other: Operand) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Operand) -> Value:
        return self._binary("or", other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary("xor", other)

    def __lshift__(self, other: Operand) -> Value:
        return self._binary("shl", other)

    def __rshift__(self, other: Operand) -> Value:
        """Shift right without a sign."""
        return self._binary("lshr", other)

    def __lt__(self, other: Operand) -> Value:
        return self._compare("slt", other)

    def __le__(self, other: Operand) -> Value:
        return self._compare("sle", other)

    def __gt__(self, other: Operand) -> Value:
        return self._compare("sgt", other)

    def __ge__(self, other: Operand) -> Value:
        return self._compare("sge", other)

    def eq(self, other: Operand) -> Value:
        """Compare; None is the null pointer."""
        return self._compare("eq", other)

    def ne(self, other: Operand) -> Value:
        """Compare; None is the null pointer."""
        return self._compare("ne", other)

    def test(self, test: str, other: Operand) -> Value:
        """Compare integers by LLVM's name of the comparison (``ult``)."""
        return self._compare(test, other)

    def cast(self, operation: str, kind: str) -> Value:
        """Convert by an instruction (``zext``, ``bitcast``) to another type."""
        return self.code.new(f"{operation} {self.type} {self.text} to {kind}", kind)


Operand = Value | int | None


def _text(operand: Operand) -> str:
    if operand is None:
        return "null"
    return operand.text if isinstance(operand, Value) else str(operand)


class Module:
    """Functions of one module, and what they need from outside.

    Parameters
    ----------
    layout
        Numbers by name, such as offsets of members in bytes.
    """

    def __init__(self, layout: Mapping[str, int] | None = None) -> None:
        self.layout = layout or {}
        self.functions: dict[str, str] = {}  # from outside: how each is declared
        self._returns: dict[str, str] = {}  # what functions of the module return
        self._symbols: dict[str, None] = {}
        self._globals: dict[str, str] = {}
        self._included: list[str] = []
        self._literals: dict[str, str] = {}
        self._codes: list[Code] = []

    def define(self, head: str) -> Code:
        """Begin a function: ``internal i1 @same(ptr %a, ptr %b) nounwind``."""
        return Code(self, head)

    def add(self, code: Code) -> None:
        """Note a function, which others may call from now on."""
        before, _, rest = code.head.partition("@")
        self._returns[rest.partition("(")[0]] = before.split()[-1]
        self._codes.append(code)

    def include(self, text: str, **returns: str) -> None:
        """Take text as it is, which defines functions that return these types."""
        self._included.append(text)
        self._returns |= returns

    def hold(self, name: str, text: str) -> None:
        """Define a global: ``internal global i64 0``."""
        self._globals[name] = f"@{name} = {text}"

    def refer(self, name: str) -> None:
        """Note the use of an object, here or outside."""
        self._symbols[name] = None

    def literal(self, text: str) -> str:
        """Return the name of a text of the module, which ends in a zero."""
        name = self._literals.setdefault(text, f"text.{len(self._literals)}")
        self.hold(name, f'private constant [{len(text) + 1} x i8] c"{text}\\00"')
        return name

    def signature(self, name: str, kinds: list[str], returns: str = "") -> str:
        """Return what a call of a function writes before its name, and declare it."""
        kind = self._returns.get(name)
        if kind is not None:
            return kind
        kind = returns or _RETURNS.get(name, "ptr")
        fixed = _VARIADIC.get(name)
        given = ", ".join(kinds if fixed is None else [*kinds[:fixed], "..."])
        self.functions[name] = f"declare {kind} @{name}({given})"
        return kind if fixed is None else f"{kind} ({given})"

    @property
    def outside(self) -> list[str]:
        """The objects from outside."""
        return [name for name in self._symbols
                if name not in self._globals and name not in self._returns]

    @property
    def text(self) -> str:
        """The whole module."""
        outside = [f"@{name} = external global i8" for name in self.outside]
        functions = (text for name, text in self.functions.items() if name not in self._returns)
        return "\n".join([*outside, *self._globals.values(), *functions,
                          *self._included, *(code.text for code in self._codes)]) + "\n"

    def named(self, prefix: str) -> list[str]:
        """Return the functions from outside whose names begin so."""
        return [name for name in self.functions if name.startswith(prefix)]


class Code:
    """One function as it is written.

    Attributes
    ----------
    params : list of Value
        Its parameters.
    rows : list of str
        The instructions so far.
    weights : str
        What is appended to branches that `need` writes.
    """

    def __init__(self, module: Module, head: str) -> None:
        self.module, self.head = module, head
        self.rows: list[str] = []
        self.weights = ""
        self._allocations: list[str] = []
        self._phis: dict[str, str] = {}  # what completes rows whose end was not known
        self._count = 0
        self._block, self._open = "entry", True
        inside = head[head.index("(") + 1 : head.rindex(")")]
        self.params = [Value(self, f"%{name}", kind) for kind, name in _PARAMETER.findall(inside)]
        module.add(self)

    @property
    def text(self) -> str:
        """The function."""
        rows = (row + self._phis.get(row, "") for row in self.rows)
        return "\n".join([f"define {self.head} {{", "entry:", *self._allocations, *rows, "}"])

    # names, blocks, exits

    def new(self, text: str, kind: str) -> Value:
        """Write an instruction that has a value of a type."""
        self._count += 1
        name = f"%t{self._count}"
        self.rows.append(f"  {name} = {text}")
        return Value(self, name, kind)

    def label(self) -> str:
        """Return a fresh label."""
        self._count += 1
        return f"l{self._count}"

    def begin(self, label: str) -> None:
        """Begin a block, to which the one before goes on if it has no end."""
        if self._open:
            self.goto(label)
        self.rows.append(f"{label}:")
        self._block, self._open = label, True

    def goto(self, label: str) -> None:
        """End the block with a jump."""
        self.rows.append(f"  br label %{label}")
        self._open = False

    def branch(self, condition: Value, yes: str, no: str, weights: str = "") -> None:
        """End the block with a branch."""
        self.rows.append(f"  br i1 {condition.text}, label %{yes}, label %{no}{weights}")
        self._open = False

    def ret(self, value: Operand = None, kind: str = "ptr") -> None:
        """Return a value; an integer or null of a type."""
        given = value if isinstance(value, Value) else Value(self, _text(value), kind)
        self.rows.append(f"  ret {given.type} {given.text}")
        self._open = False

    def end(self) -> None:
        """Return nothing."""
        self.rows.append("  ret void")
        self._open = False

    def need(self, condition: Value, otherwise: str = "miss") -> None:
        """Go on if a condition holds, elsewhere otherwise."""
        on = self.label()
        self.branch(condition, on, otherwise, self.weights)
        self.begin(on)

    def leave(self, condition: Value, label: str) -> None:
        """Go elsewhere if a condition holds."""
        on = self.label()
        self.branch(condition, label, on)
        self.begin(on)

    @contextmanager
    def when(self, condition: Value) -> Iterator[Callable[[], None]]:
        """Do what is written inside only if a condition holds; from a call on, only if not."""
        inside, other, on = self.label(), self.label(), self.label()
        self.branch(condition, inside, other)
        self.begin(inside)
        switched = False

        def otherwise() -> None:
            nonlocal switched
            switched = True
            if self._open:
                self.goto(on)
            self.begin(other)

        yield otherwise
        self.begin(on if switched else other)

    @contextmanager
    def unless(self, condition: Value) -> Iterator[None]:
        """Do what is written inside only if a condition does not hold."""
        with self.when(condition) as otherwise:
            otherwise()
            yield

    @contextmanager
    def loop(self, count: Operand, first: Operand = 0) -> Iterator[Value]:
        """Do what is written inside for each number from `first` to below `count`."""
        head, inside, on, before = self.label(), self.label(), self.label(), self._block
        self.begin(head)
        i = self.new("", "i64")
        self.branch(i < count, inside, on)
        self.begin(inside)
        yield i
        after = i + 1
        self._phis[f"  {i.text} = "] = (f"phi i64 [ {_text(first)}, %{before} ], "
                                        f"[ {after.text}, %{self._block} ]")
        self.goto(head)
        self.begin(on)

    def select(self, condition: Value, yes: Value, no: Operand) -> Value:
        """Return one of two values."""
        return self.new(f"select i1 {condition.text}, {yes.type} {yes.text}, "
                        f"{yes.type} {_text(no)}", yes.type)

    # memory

    def constant(self, number: int | str, kind: str) -> Value:
        """Return a number of a type."""
        return Value(self, str(number), kind)

    def symbol(self, name: str) -> Value:
        """Return the address of an object of the module or from outside."""
        self.module.refer(name)
        return Value(self, f"@{name}", "ptr")

    def literal(self, text: str) -> Value:
        """Return the address of a text, which ends in a zero."""
        return self.symbol(self.module.literal(text))

    def alloca(self, kind: str, align: int = 8) -> Value:
        """Take memory for the time of the call."""
        self._count += 1
        self._allocations.append(f"  %t{self._count} = alloca {kind}, align {align}")
        return Value(self, f"%t{self._count}", "ptr")

    def slot(self) -> Value:
        """Take memory for a pointer, which is null as the function begins."""
        place = self.alloca("ptr")
        self._allocations.append(f"  store ptr null, ptr {place.text}")
        return place

    def at(self, address: Value, offset: Operand | str, unit: str = "i8") -> Value:
        """Return an address so many units further on; a name is an offset of the layout."""
        if isinstance(offset, str):
            offset = self.module.layout[offset]
        if offset == 0:
            return address
        return self.new(f"getelementptr {unit}, ptr {address.text}, i64 {_text(offset)}", "ptr")

    def load(self, address: Value, offset: Operand | str = 0, kind: str = "ptr",
             order: str = "") -> Value:  # fmt: skip
        """Read what lies so many bytes behind an address, atomically in an order."""
        place = self.at(address, offset).text
        if order:
            text = f"load atomic {kind}, ptr {place} {order}, align {_BYTES[kind]}"
            return self.new(text, kind)
        return self.new(f"load {kind}, ptr {place}", kind)

    def store(self, address: Value, offset: Operand | str, value: Operand, kind: str = "i64",
              order: str = "") -> None:  # fmt: skip
        """Write so many bytes behind an address; a number or null is of a type."""
        place = self.at(address, offset).text
        given = value if isinstance(value, Value) else Value(self, _text(value), kind)
        how = f"{given.type} {given.text}, ptr {place}"
        self.rows.append(f"  store atomic {how} {order}, align {_BYTES[given.type]}" if order
                         else f"  store {how}")

    def word(self, table: Value, index: Operand, kind: str = "i64") -> Value:
        """Read an item of a table of 64-bit words."""
        return self.load(self.at(table, index, "i64"), 0, kind)

    def put(self, table: Value, index: Operand, value: Operand) -> None:
        """Write an item of a table of 64-bit words."""
        self.store(self.at(table, index, "i64"), 0, value)

    def swap(self, place: Value, old: Operand, new: Operand, order: str,
             kind: str = "i32") -> Value:  # fmt: skip
        """Write a number in place of another; whether that stood there."""
        pair = self.new(f"cmpxchg ptr {place.text}, {kind} {_text(old)}, {kind} {_text(new)} "
                        f"{order} monotonic", f"{{ {kind}, i1 }}")  # fmt: skip
        return self.new(f"extractvalue {pair.type} {pair.text}, 1", "i1")

    def fetch(self, operation: str, place: Value, value: int, order: str,
              kind: str = "i32") -> Value:  # fmt: skip
        """Change a number atomically (``add``, ``sub``); return what it was before."""
        return self.new(f"atomicrmw {operation} ptr {place.text}, {kind} {value} {order}", kind)

    def variable(self, value: Operand) -> Value:
        """Return memory for a value that changes: `load` and `store` it."""
        given = value if isinstance(value, Value) else Value(self, _text(value), "i64")
        place = self.alloca(given.type)
        self.store(place, 0, given)
        return place

    # calls

    def call(self, function: str | Value, *args: Operand, returns: str = "") -> Value:
        """Call a function by its name, or at an address; numbers are of 64 bits, None is null."""
        kinds = ["ptr" if a is None else a.type if isinstance(a, Value) else "i64" for a in args]
        given = ", ".join(f"{k} {_text(a)}" for k, a in zip(kinds, args, strict=True))
        if isinstance(function, Value):
            kind, name = returns, function.text
        else:
            kind, name = self.module.signature(function, kinds, returns), f"@{function}"
        text = f"call {kind} {name}({given})"
        kind = kind.partition(" ")[0]
        if kind == "void":
            self.rows.append(f"  {text}")
            return Value(self, "undef", kind)
        return self.new(text, kind)
