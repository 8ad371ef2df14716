"""Calls of critical functions from Python as LLVM IR text: objects taken apart, results made.

``weft_call(self, args, nargsf, kwnames)`` is of the vectorcall protocol. Arguments of another type
or layout than the function was compiled for go to the function at ``weft_next``, whose last one is
Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.runtimes.critical_ir import (
    FAILURE,
    Array,
    Param,
    Scalar,
    Struct,
    Word,
    bare_type,
    c_type,
    frame,
)

__all__ = ["FUNCTIONS", "Caller", "call_module", "missing"]

_WRITEABLE: Final = 0x400  # flags of NumPy arrays, with those of the layout

FUNCTIONS: Final = (
    "PyErr_Clear", "PyErr_Occurred", "PyFloat_AsDouble", "PyFloat_FromDouble",
    "PyLong_AsLongLong", "PyLong_AsUnsignedLongLong", "PyLong_FromLongLong",
    "PyLong_FromUnsignedLongLong", "PyObject_CallFunction", "PyObject_CallObject",
    "PyObject_GetAttr", "PyObject_Vectorcall", "PyTuple_GetItem", "PyTuple_New",
    "PyTuple_SetItem", "PyTuple_Size", "Py_DecRef", "Py_IncRef",
)  # fmt: skip

_DECLARATIONS: Final = """
@weft_next = global ptr null
@format = private constant [4 x i8] c"iLL\\00"
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyFloat_FromDouble(double)
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsUnsignedLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyLong_FromUnsignedLongLong(i64)
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare ptr @PyObject_CallObject(ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare i64 @PyTuple_Size(ptr)
declare void @Py_DecRef(ptr)
declare void @Py_IncRef(ptr)
"""


class _Call:
    """Writes `weft_call`."""

    def __init__(self, layout: Mapping[str, int]) -> None:
        self.layout = layout
        self.rows: list[str] = []
        self.late: list[tuple[Array, str]] = []  # arrays, whose memory is looked up last
        self.given: list[str] = []
        self.owned = self.count = 0
        self.symbols: dict[str, None] = {}
        self.kinds: list[type] = []
        self.names: dict[str, None] = {}

    def new(self, text: str) -> str:
        self.count += 1
        self.rows.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def put(self, text: str) -> None:
        self.rows.append(f"  {text}")

    def symbol(self, name: str) -> str:
        self.symbols[name] = None
        return f"@{name}"

    def label(self) -> str:
        self.count += 1
        return f"on{self.count}"

    def begin(self, label: str) -> None:
        self.rows.append(f"{label}:")

    def need(self, condition: str) -> None:
        """Go to the next function unless a condition holds."""
        on = self.label()
        self.put(f"br i1 {condition}, label %{on}, label %miss, !prof !0")
        self.begin(on)

    def member(self, thing: str, name: str, kind: str) -> str:
        at = self.new(f"getelementptr i8, ptr {thing}, i64 {self.layout[name]}")
        return self.new(f"load {kind}, ptr {at}")

    def is_a(self, thing: str, kind: str) -> str:
        found = self.member(thing, "ob_type", "ptr")
        return self.new(f"icmp eq ptr {found}, {kind}")

    def kind(self, kind: type) -> str:
        if kind is tuple:
            return self.symbol("weft_tuple")
        if kind not in self.kinds:
            self.kinds.append(kind)
        return self.symbol(f"weft_kind_{self.kinds.index(kind)}")

    # arguments ----------------------------------------------------------------------

    def take(self, param: Param, thing: str) -> None:
        """Take one argument apart."""
        if isinstance(param, Scalar):
            d = param.dtype
            value = (self.real(d, thing, param.exact) if d.is_float else
                     self.truth(thing) if d.is_bool else self.whole(d, thing))
            self.given.append(f"{c_type(d)} {value}")
        elif isinstance(param, Array):
            self.need(self.is_a(thing, self.symbol("weft_array_type")))
            self.late.append((param, thing))
            self.given.append(f"{len(self.late) - 1}")  # filled in later
        elif isinstance(param, Struct):
            self.need(self.is_a(thing, self.kind(param.kind)))
            if not param.attributes:
                size = self.new(f"call i64 @PyTuple_Size(ptr {thing})")
                self.need(self.new(f"icmp eq i64 {size}, {len(param.items)}"))
            for k, item in enumerate(param.items):
                self.take(item, self.attribute(thing, param.names[k]) if param.attributes else
                          self.new(f"call ptr @PyTuple_GetItem(ptr {thing}, i64 {k})"))

    def attribute(self, thing: str, name: str) -> str:
        """Return a field of an object; the call owns it."""
        self.names[name] = None
        number = list(self.names).index(name)
        found = self.new(f"call ptr @PyObject_GetAttr(ptr {thing}, "
                         f"ptr {self.symbol(f'weft_name_{number}')})")
        self.put(f"store ptr {found}, ptr %owned{self.owned}")
        self.owned += 1
        there = self.new(f"icmp ne ptr {found}, null")
        self.clear_unless(there)
        return found

    def clear_unless(self, fine: str) -> None:
        """Where something failed, forget the exception: Python will meet it again."""
        bad, on = self.label(), self.label()
        self.put(f"br i1 {fine}, label %{on}, label %{bad}, !prof !0")
        self.begin(bad)
        self.put("call void @PyErr_Clear()")
        self.put("br label %miss")
        self.begin(on)

    def real(self, d: DType, thing: str, exact: bool) -> str:
        """Return a float, from an int or one of NumPy's, too, if the annotation asks for it."""
        is_float = self.is_a(thing, self.symbol("weft_float"))
        if exact:
            self.need(is_float)
            found = self.member(thing, "float.value", "double")
        else:
            fast, other, slow, on = (self.label() for _ in range(4))
            self.put(f"br i1 {is_float}, label %{fast}, label %{other}, !prof !0")
            self.begin(fast)
            first = self.member(thing, "float.value", "double")
            self.put(f"br label %{on}")
            self.begin(other)
            own = self.is_a(thing, self.symbol("weft_np_float64"))
            whole = self.is_a(thing, self.symbol("weft_int"))
            either = self.new(f"or i1 {own}, {whole}")
            self.put(f"br i1 {either}, label %{slow}, label %miss")
            self.begin(slow)
            second = self.new(f"call double @PyFloat_AsDouble(ptr {thing})")
            doubtful = self.new(f"fcmp oeq double {second}, -1.0")
            raised = self.new("call ptr @PyErr_Occurred()")
            error = self.new(f"icmp ne ptr {raised}, null")
            wrong = self.new(f"and i1 {doubtful}, {error}")
            self.clear_unless(self.new(f"xor i1 {wrong}, true"))
            last = self.rows[-1][:-1]
            self.put(f"br label %{on}")
            self.begin(on)
            found = self.new(f"phi double [ {first}, %{fast} ], [ {second}, %{last} ]")
        return found if d.bits == 64 else self.new(f"fptrunc double {found} to float")

    def whole(self, d: DType, thing: str) -> str:
        """Return an integer in its range."""
        self.need(self.is_a(thing, self.symbol("weft_int")))
        function = "PyLong_AsUnsignedLongLong" if d is dt.uint64 else "PyLong_AsLongLong"
        found = self.new(f"call i64 @{function}(ptr {thing})")
        doubtful, on = self.label(), self.label()
        sure = self.new(f"icmp ne i64 {found}, -1")
        self.put(f"br i1 {sure}, label %{on}, label %{doubtful}, !prof !0")
        self.begin(doubtful)
        raised = self.new("call ptr @PyErr_Occurred()")
        self.clear_unless(self.new(f"icmp eq ptr {raised}, null"))
        self.put(f"br label %{on}")
        self.begin(on)
        if d.bits == 64:
            return found
        low, high = (self.new(f"icmp {test} i64 {found}, {int(end)}")
                     for test, end in (("sge", d.min), ("sle", d.max)))
        self.need(self.new(f"and i1 {low}, {high}"))
        return self.new(f"trunc i64 {found} to i{d.bits}")

    def truth(self, thing: str) -> str:
        yes = self.new(f"icmp eq ptr {thing}, {self.symbol('weft_true')}")
        no = self.new(f"icmp eq ptr {thing}, {self.symbol('weft_false')}")
        self.need(self.new(f"or i1 {yes}, {no}"))
        return self.new(f"zext i1 {yes} to i8")

    def memory(self, param: Array, thing: str) -> list[str]:
        """Return address and sizes of an array."""
        dtype = self.member(thing, "array.descr", "ptr")
        same = self.new(f"icmp eq ptr {dtype}, {self.symbol(f'weft_dtype_{param.dtype.text}')}")
        ndim = self.member(thing, "array.nd", "i32")
        axes = self.new(f"icmp eq i32 {ndim}, {len(param.shape)}")
        self.need(self.new(f"and i1 {same}, {axes}"))
        wanted = self.layout["array.good"] | (_WRITEABLE if param.written else 0)
        flags = self.member(thing, "array.flags", "i32")
        masked = self.new(f"and i32 {flags}, {wanted}")
        self.need(self.new(f"icmp eq i32 {masked}, {wanted}"))
        address = self.member(thing, "array.data", "ptr")
        found = [f"ptr {address}"]
        sizes = self.member(thing, "array.dimensions", "ptr")
        for k, known in enumerate(param.shape):
            at = self.new(f"getelementptr i64, ptr {sizes}, i64 {k}")
            size = self.new(f"load i64, ptr {at}")
            if known is None:
                found.append(f"i64 {size}")
            else:
                self.need(self.new(f"icmp eq i64 {size}, {known}"))
        return found

    # results ------------------------------------------------------------------------

    def give(self, result: Param, numbers: list[int]) -> str:
        """Return a new object of a result; `numbers` are those of its memories, from the last."""
        if result is None:
            none = self.symbol("weft_none")
            self.put(f"call void @Py_IncRef(ptr {none})")
            return none
        if isinstance(result, Scalar):
            return self.number(result.dtype, numbers.pop())
        assert isinstance(result, Struct)
        items = [self.give(item, numbers) for item in result.items]
        made = self.new(f"call ptr @PyTuple_New(i64 {len(items)})")
        for k, item in enumerate(items):
            self.new(f"call i32 @PyTuple_SetItem(ptr {made}, i64 {k}, ptr {item})")
        if result.kind is tuple:
            return made
        found = self.new(f"call ptr @PyObject_CallObject(ptr {self.kind(result.kind)}, ptr {made})")
        self.put(f"call void @Py_DecRef(ptr {made})")
        return found

    def number(self, d: DType, position: int) -> str:
        value = self.new(f"load {bare_type(d)}, ptr %r{position}")
        if d.is_bool:
            yes = self.new(f"icmp ne i8 {value}, 0")
            found = self.new(f"select i1 {yes}, ptr {self.symbol('weft_true')}, "
                             f"ptr {self.symbol('weft_false')}")
            self.put(f"call void @Py_IncRef(ptr {found})")
            return found
        if d.is_float:
            if d.bits == 16:
                kind = "bfloat" if d is dt.bfloat16 else "half"
                value = self.new(f"bitcast i16 {value} to {kind}")
                value = self.new(f"fpext {kind} {value} to double")
            elif d.bits == 32:
                value = self.new(f"fpext float {value} to double")
            return self.new(f"call ptr @PyFloat_FromDouble(double {value})")
        if d.bits < 64:
            value = self.new(f"{'sext' if d.kind == 'i' else 'zext'} i{d.bits} {value} to i64")
        function = "PyLong_FromUnsignedLongLong" if d is dt.uint64 else "PyLong_FromLongLong"
        return self.new(f"call ptr @{function}(i64 {value})")


class Caller(NamedTuple):
    """The module of what calls a function, and what it has to be linked with.

    Attributes
    ----------
    text : str
        The module.
    kinds : list of type
        The classes ``weft_kind_K``.
    names : list of str
        The names of attributes ``weft_name_K``.
    others : list of str
        Other symbols.
    """

    text: str
    kinds: list[type]
    names: list[str]
    others: list[str]


def call_module(name: str, params: Mapping[str, Param], words: Sequence[Word], result: Param,
                nresults: int, layout: Mapping[str, int] | None) -> Caller:  # fmt: skip
    """Return the module of what calls the function, and what it has to be linked with.

    Parameters
    ----------
    name
        Symbol of the function.
    params, words
        Its parameters as Python and as C see them.
    result, nresults
        What it returns, and how many numbers that is.
    layout
        Where members lie in objects; None to leave out the call from Python.
    """
    kinds = ", ".join([*(c_type(w.dtype) for w in words), *["ptr"] * (nresults + 1)])
    parts = [f"declare i32 @{name}({kinds})", frame(name, words, nresults)]
    if layout is None:
        return Caller("\n".join(parts) + "\n", [], [], [])
    c = _Call(layout)
    for k, param in enumerate(params.values()):
        at = c.new(f"getelementptr ptr, ptr %args, i64 {k}")
        c.take(param, c.new(f"load ptr, ptr {at}"))
    looked_up = [c.memory(param, thing) for param, thing in c.late]
    given: list[str] = []
    for item in c.given:
        given.extend(looked_up[int(item)] if item.isdigit() else [item])
    given += [f"ptr %r{k}" for k in range(nresults)]
    code = c.new(f"call i32 @{name}({', '.join([*given, 'ptr %failure'])})")
    c.put(f"%failed = icmp ne i32 {code}, 0")
    c.put("br i1 %failed, label %bad, label %good, !prof !1")
    c.begin("good")
    made = c.give(result, list(reversed(range(nresults))))
    c.rows += _released(c.owned, "g")
    c.put(f"ret ptr {made}")
    slots = [f"  %r{k} = alloca i64" for k in range(nresults)]
    slots += [f"  %owned{k} = alloca ptr\n  store ptr null, ptr %owned{k}"
              for k in range(c.owned)]
    rows = [
        "define ptr @weft_call(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) "
        "nounwind align 64 {",
        "entry:", f"  %failure = alloca {FAILURE}", *slots,
        "  %nargs = and i64 %nargsf, 9223372036854775807",
        f"  %many = icmp eq i64 %nargs, {len(params)}", "  %bare = icmp eq ptr %kwnames, null",
        "  %fits = and i1 %many, %bare", "  br i1 %fits, label %begin, label %miss, !prof !0",
        "begin:", *c.rows,
        "bad:",
        f"  %value.at = getelementptr {FAILURE}, ptr %failure, i64 0, i32 4",
        f"  %bound.at = getelementptr {FAILURE}, ptr %failure, i64 0, i32 5",
        "  %value = load i64, ptr %value.at", "  %bound = load i64, ptr %bound.at",
        *_released(c.owned, "b"),
        "  %raised = call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr @weft_failed, "
        f"ptr @format, i32 {code}, i64 %value, i64 %bound)",
        "  ret ptr %raised",
        "miss:", *_released(c.owned, "m"),
        "  %next = load ptr, ptr @weft_next",
        "  %other = tail call ptr %next(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames)",
        "  ret ptr %other", "}",
    ]  # fmt: skip
    c.symbols["weft_failed"] = None
    parts += [*(f"@{s} = external global i8" for s in c.symbols), _DECLARATIONS, "\n".join(rows),
              '!0 = !{!"branch_weights", i32 1048575, i32 1}',
              '!1 = !{!"branch_weights", i32 1, i32 1048575}']
    others = [s for s in c.symbols if not s.startswith(("weft_kind_", "weft_name_"))]
    return Caller("\n".join(parts) + "\n", c.kinds, list(c.names), others)


def _released(count: int, tag: str) -> list[str]:
    """Return the rows that give back what the call owns."""
    rows = []
    for k in range(count):
        rows += [f"  %{tag}{k} = load ptr, ptr %owned{k}",
                 f"  call void @Py_DecRef(ptr %{tag}{k})"]
    return rows


def missing() -> str:
    """Return the module with the last function of the chain: it calls the method ``_miss``."""
    return """
@weft_name_miss = external global i8
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @Py_DecRef(ptr)
define ptr @weft_missing(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) nounwind {
  %method = call ptr @PyObject_GetAttr(ptr %self, ptr @weft_name_miss)
  %none = icmp eq ptr %method, null
  br i1 %none, label %out, label %on
on:
  %result = call ptr @PyObject_Vectorcall(ptr %method, ptr %args, i64 %nargsf, ptr %kwnames)
  call void @Py_DecRef(ptr %method)
  ret ptr %result
out:
  ret ptr null
}
"""
