"""Calls of critical functions from Python as LLVM IR: objects taken apart, results made.

``weft_call(self, args, nargsf, kwnames)`` is of the vectorcall protocol. Arguments of another type
or layout than the function was compiled for go to the function at ``weft_next``, whose last one is
Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.runtimes.native.calls import calls_ir
from weft.runtimes.native.calls import objects as py
from weft.runtimes.native.calls.critical_ir import (
    FAILURE,
    Array,
    Param,
    Scalar,
    Struct,
    Word,
    bare_type,
    frame,
    passed,
)
from weft.runtimes.native.common.emitter import Code, Module, Value

__all__ = ["Caller", "call_module", "missing"]

_WRITEABLE: Final = 0x400  # flags of NumPy arrays, with those of the layout


class _Call(Code):
    """Writes `weft_call`."""

    def __init__(self, module: Module) -> None:
        super().__init__(module, "ptr @weft_call(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) "
                         "nounwind align 64")  # fmt: skip
        self.weights = ", !prof !0"
        self.late: list[tuple[Array, Value]] = []  # arrays, whose memory is looked up last
        self.given: list[Value | int] = []  # what it is given; a number is that of an array
        self.owned: list[Value] = []
        self.kinds: list[type] = []
        self.names: list[str] = []

    def kind(self, kind: type) -> Value:
        if kind is tuple:
            return self.symbol("weft_tuple")
        if kind not in self.kinds:
            self.kinds.append(kind)
        return self.symbol(f"weft_kind_{self.kinds.index(kind)}")

    def release(self) -> None:
        """Give back what the call owns."""
        for place in self.owned:
            self.call("Py_DecRef", self.load(place))

    # arguments ----------------------------------------------------------------------

    def take(self, param: Param, thing: Value) -> None:
        """Take one argument apart."""
        if isinstance(param, Scalar):
            d = param.dtype
            value = (self.real(d, thing, param.exact) if d.is_float else
                     py.truth(self, thing).cast("zext", "i8") if d.is_bool else
                     self.whole(d, thing))
            self.given.append(passed(value, d))
        elif isinstance(param, Array):
            self.need(py.is_a(self, thing, "weft_array_type"))
            self.given.append(len(self.late))
            self.late.append((param, thing))
        elif isinstance(param, Struct):
            self.need(py.is_a(self, thing, self.kind(param.kind)))
            if not param.attributes:
                self.need(self.call("PyTuple_Size", thing).eq(len(param.items)))
            for k, item in enumerate(param.items):
                self.take(item, self.attribute(thing, param.names[k]) if param.attributes else
                          self.call("PyTuple_GetItem", thing, k))

    def attribute(self, thing: Value, name: str) -> Value:
        """Return a field of an object; the call owns it."""
        if name not in self.names:
            self.names.append(name)
        symbol = self.symbol(f"weft_name_{self.names.index(name)}")
        found = self.call("PyObject_GetAttr", thing, symbol)
        self.owned.append(self.slot())
        self.store(self.owned[-1], 0, found)
        self.need(found.ne(None), "clear")
        return found

    def real(self, d: DType, thing: Value, exact: bool) -> Value:
        """Return a float, from an int or one of NumPy's, too, if the annotation asks for it."""
        is_float = py.is_a(self, thing, "weft_float")
        if exact:
            self.need(is_float)
            found = self.load(thing, "float.value", "double")
        else:
            found = py.real(self, thing, is_float, ("weft_np_float64", "weft_int"))
        return found if d.bits == 64 else found.cast("fptrunc", "float")

    def whole(self, d: DType, thing: Value) -> Value:
        """Return an integer in its range."""
        unsigned = d is dt.uint64
        found = py.integer(self, thing,
                           "PyLong_AsUnsignedLongLong" if unsigned else "PyLong_AsLongLong")
        if d.bits == 64:
            return found
        self.need((found >= int(d.min)) & (found <= int(d.max)))
        return found.cast("trunc", f"i{d.bits}")

    def memory(self, param: Array, thing: Value) -> list[Value]:
        """Return address and sizes of an array."""
        same = self.load(thing, "array.descr").eq(self.symbol(f"weft_dtype_{param.dtype.text}"))
        self.need(same & self.load(thing, "array.nd", "i32").eq(len(param.shape)))
        wanted = self.module.layout["array.good"] | (_WRITEABLE if param.written else 0)
        self.need((self.load(thing, "array.flags", "i32") & wanted).eq(wanted))
        found = [self.load(thing, "array.data")]
        sizes = self.load(thing, "array.dimensions")
        for k, known in enumerate(param.shape):
            size = self.word(sizes, k)
            if known is None:
                found.append(size)
            else:
                self.need(size.eq(known))
        return found

    # results ------------------------------------------------------------------------

    def give(self, result: Param, places: list[Value]) -> Value:
        """Return a new object of a result; `places` are those of its numbers, from the last."""
        if result is None:
            none = self.symbol("weft_none")
            self.call("Py_IncRef", none)
            return none
        if isinstance(result, Scalar):
            return self.number(result.dtype, places.pop())
        assert isinstance(result, Struct)
        items = [self.give(item, places) for item in result.items]
        made = self.call("PyTuple_New", len(items))
        for k, item in enumerate(items):
            self.call("PyTuple_SetItem", made, k, item)
        if result.kind is tuple:
            return made
        found = self.call("PyObject_CallObject", self.kind(result.kind), made)
        self.call("Py_DecRef", made)
        return found

    def number(self, d: DType, place: Value) -> Value:
        value = self.load(place, 0, bare_type(d))
        if d.is_bool:
            found = self.select(value.ne(0), self.symbol("weft_true"), self.symbol("weft_false"))
            self.call("Py_IncRef", found)
            return found
        if d.is_float:
            if d.bits == 16:
                value = value.cast("bitcast", "bfloat" if d is dt.bfloat16 else "half")
            if d.bits < 64:
                value = value.cast("fpext", "double")
            return self.call("PyFloat_FromDouble", value)
        if d.bits < 64:
            value = value.cast("sext" if d.kind == "i" else "zext", "i64")
        unsigned = d is dt.uint64
        return self.call("PyLong_FromUnsignedLongLong" if unsigned else "PyLong_FromLongLong",
                         value)  # fmt: skip


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
        Other objects.
    functions : list of str
        Functions of Python.
    """

    text: str
    kinds: list[type]
    names: list[str]
    others: list[str]
    functions: list[str]


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
    m = Module(layout)
    frame(m, name, words, nresults)
    if layout is None:
        return Caller(m.text, [], [], [], [])
    m.hold("weft_next", "global ptr null")
    m.include('!0 = !{!"branch_weights", i32 1048575, i32 1}')
    c = _Call(m)
    _write(c, name, list(params.values()), result, nresults)
    others = [s for s in m.outside if not s.startswith(("weft_kind_", "weft_name_"))]
    return Caller(m.text, c.kinds, c.names, others, m.named("Py"))


def _write(c: _Call, name: str, params: list[Param], result: Param, nresults: int) -> None:
    """Write what takes the arguments, calls the function and returns its result."""
    this, args, nargs, kwnames = c.params
    failure, places = c.alloca(FAILURE), [c.alloca("i64") for _ in range(nresults)]
    c.need((nargs & 0x7FFFFFFFFFFFFFFF).eq(len(params)) & kwnames.eq(None))
    for k, param in enumerate(params):
        c.take(param, c.word(args, k, "ptr"))
    looked_up = [c.memory(param, thing) for param, thing in c.late]
    given = [value for item in c.given
             for value in ([item] if isinstance(item, Value) else looked_up[item])]
    code = c.call(name, *given, *places, failure, returns="i32")
    c.need(code.eq(0), "bad")
    made = c.give(result, places[::-1])
    c.release()
    c.ret(made)
    c.begin("bad")
    value, bound = c.load(failure, 16, "i64"), c.load(failure, 24, "i64")
    c.release()
    c.ret(c.call("PyObject_CallFunction", c.symbol("weft_failed"), c.literal("iLL"), code,
                 value, bound))  # fmt: skip
    c.begin("clear")
    c.call("PyErr_Clear")
    c.begin("miss")
    c.release()
    following = c.load(c.symbol("weft_next"))
    c.ret(c.new(f"tail call ptr {following.text}(ptr {this.text}, ptr {args.text}, "
                f"i64 {nargs.text}, ptr {kwnames.text})", "ptr"))  # fmt: skip


def missing() -> Module:
    """Return the module with the last function of the chain: it calls the method ``_miss``."""
    m = Module()
    c = m.define("ptr @weft_missing(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) nounwind")
    this, args, nargs, kwnames = c.params
    calls_ir.call_method(c, this, "weft_name_miss", args, nargs, kwnames)
    return m
