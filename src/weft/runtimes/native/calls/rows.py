"""Rows of native calls: what a call does with its arguments, one operation a row, in LLVM IR.

A row has 8 words: the number of its operation and up to 7 operands, of which the first is most
often the word of the frame with the argument. The frame of a call is an array of words; word 0
takes what nobody reads. A row that does not fit ends the walk: a row may be strict, but must never
be lax. Here are the operations that captured functions and kernels share, and the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from weft.runtimes.native.calls import objects as py
from weft.runtimes.native.calls.objects import ADDRESS, OFFSET, SIZES
from weft.runtimes.native.common.emitter import Code, Module, Value

__all__ = ["OPERATIONS", "ROW_WORDS", "Operation", "Operations", "Row", "Table", "address",
           "array_sizes", "attribute_of", "borrow", "walk"]  # fmt: skip

ROW_WORDS: Final = 8


class Row(Code):
    """The function that walks rows, and in it one operation at a time.

    Rows that do not fit go to ``miss``, or to ``clear`` if an exception has to go first; to
    ``good`` if nothing is left to do.
    """

    def __init__(self, module: Module, attributes: str) -> None:
        super().__init__(module, "internal i32 @walk_rows(ptr %frame, ptr %first, ptr %last) "
                         f"{attributes} nounwind")  # fmt: skip
        self.frame, self.first, self.last = self.params
        self._operands: dict[tuple[int, str], Value] = {}
        self._start = 0

    def start(self, label: str) -> None:
        """Begin an operation."""
        self.begin(label)
        self._operands, self._start = {}, len(self.rows)

    def _operand(self, number: int, kind: str) -> Value:
        """Return an operand, which is read as the operation begins."""
        found = self._operands.get((number, kind))
        if found is None:
            name = f"%w{self._start}.{number}.{kind}"
            self.rows[self._start : self._start] = (
                f"  {name}.at = getelementptr i64, ptr %row, i64 {number}",
                f"  {name} = load {kind}, ptr {name}.at")
            found = self._operands[number, kind] = Value(self, name, kind)
        return found

    def w(self, number: int) -> Value:
        """Return an operand as a number."""
        return self._operand(number, "i64")

    def p(self, number: int) -> Value:
        """Return an operand as an address."""
        return self._operand(number, "ptr")

    def given(self, number: int = 1) -> Value:
        """Return the object in the word of the frame that an operand names."""
        return self.word(self.frame, self.w(number), "ptr")

    def number(self, operand: int, kind: str = "i64") -> Value:
        """Return the number in the word of the frame that an operand names."""
        return self.word(self.frame, self.w(operand), kind)

    def give(self, operand: int, value: Value) -> None:
        """Put a value into the word of the frame that an operand names."""
        self.put(self.frame, self.w(operand), value)


Operation = Callable[[Row], None]
Table = Mapping[str, Operation]


class Operations(dict[str, Operation]):
    """Operations by name: those that functions, decorated with it, write."""

    def __call__(self, write: Operation) -> Operation:
        """Take a function's operation under its name."""
        self[write.__name__.rstrip("_")] = write
        return write


def walk(module: Module, operations: Table, attributes: str) -> None:
    """Write the function that runs rows from one to another; nonzero: one did not fit."""
    c = Row(module, attributes)
    c.rows += ["  br label %loop", "loop:",
               "  %row = phi ptr [ %first, %entry ], [ %next, %good ]",
               "  %more = icmp ne ptr %row, %last",
               "  br i1 %more, label %dispatch, label %finished", "dispatch:",
               "  %operation = load i64, ptr %row",
               "  switch i64 %operation, label %miss ["]  # fmt: skip
    c.rows += [f"    i64 {n}, label %{name}" for n, name in enumerate(operations, 1)]
    c.rows.append("  ]")
    c._open = False
    for name, write in operations.items():
        c.start(name)
        write(c)
        c.goto("good")
    c.begin("good")
    c.rows.append(f"  %next = getelementptr i64, ptr %row, i64 {ROW_WORDS}")
    c.goto("loop")
    c.begin("clear")
    c.call("PyErr_Clear")
    c.begin("miss")
    c.ret(1, "i32")
    c.begin("finished")
    c.ret(0, "i32")


OPERATIONS: Final = Operations()


@OPERATIONS
def set_(c: Row) -> None:
    """Put w2 into word w1."""
    c.give(1, c.w(2))


@OPERATIONS
def zero(c: Row) -> None:
    """Need that the word at p1 is 0."""
    c.need(c.load(c.p(1), 0, "i64").eq(0))


@OPERATIONS
def between(c: Row) -> None:
    """Need that word w1 is from w2 to w3."""
    value = c.number(1)
    c.need((value >= c.w(2)) & (value <= c.w(3)))


@OPERATIONS
def same(c: Row) -> None:
    """Need this very object, p2."""
    c.need(c.given().eq(c.p(2)))


@OPERATIONS
def equal(c: Row) -> None:
    """Need object p2, or one of its very type p3 that is equal to it: integers, text."""
    thing = c.given()
    c.leave(thing.eq(c.p(2)), "good")
    c.need(py.is_a(c, thing, c.p(3)))
    c.need(py.equal(c, thing, c.p(2)))


@OPERATIONS
def bits(c: Row) -> None:
    """Need a float of the bits w2: -0.0 is not 0.0."""
    thing = c.given()
    c.need(py.is_a(c, thing, "weft_float"))
    c.need(c.load(thing, "float.value", "i64").eq(c.w(2)))


@OPERATIONS
def attribute(c: Row) -> None:
    """Need an object whose attribute p2 is p3."""
    attribute_of(c, c.given())


@OPERATIONS
def answer(c: Row) -> None:
    """Need an object whose method p2 returns p3."""
    found = c.call("PyObject_CallMethodObjArgs", c.given(), c.p(2), None)
    borrow(c, found)
    c.need(found.eq(c.p(3)))


def borrow(c: Row, found: Value) -> None:
    """Miss where there is no new object; give it back, for it lives elsewhere."""
    c.need(found.ne(None), "clear")
    c.call("Py_DecRef", found)


def attribute_of(c: Row, thing: Value) -> None:
    """Miss unless attribute p2 of an object is p3."""
    found = c.call("PyObject_GetAttr", thing, c.p(2))
    borrow(c, found)
    c.need(found.eq(c.p(3)))


@OPERATIONS
def tuple_(c: Row) -> None:
    """Take a tuple of type p2 with exactly w3 items, which go to the frame from w4 on."""
    things = c.given()
    c.need(py.is_a(c, things, c.p(2)))
    py.put_items(c, c.frame, things, c.w(3), c.w(4), "PyTuple")


@OPERATIONS
def integer(c: Row) -> None:
    """Take an int from w3 to w4, to word w2."""
    value = py.integer(c, c.given())
    c.need((value >= c.w(3)) & (value <= c.w(4)))
    c.give(2, value)


@OPERATIONS
def real(c: Row) -> None:
    """Take a number of type p3 (float, int, NumPy's float64) as a float of w4 bytes, to word w2."""
    thing = c.given()
    c.need(py.is_a(c, thing, c.p(3)))
    value = py.real(c, thing, c.p(3).ne(c.symbol("weft_int")))
    with c.when(c.w(4).eq(8)) as otherwise:
        c.give(2, value)
        otherwise()
        short = value.cast("fptrunc", "float").cast("bitcast", "i32")
        c.give(2, short.cast("zext", "i64"))


# memory of arrays


def address(c: Row, found: Value) -> None:
    """Note where memory lies, as table p7 says."""
    c.put(c.frame, c.word(c.p(7), ADDRESS), found + c.word(c.p(7), OFFSET))


def array_sizes(c: Row) -> tuple[Value, Value]:
    """Check an array but for its strides; return it and the address of its sizes."""
    thing = c.given()
    c.need(py.is_a(c, thing, c.p(2)))
    kind = c.load(thing, "array.descr").eq(c.p(3))
    rank = c.load(thing, "array.nd", "i32").cast("sext", "i64").eq(c.w(4))
    flags = c.load(thing, "array.flags", "i32").cast("zext", "i64") & c.w(5)
    c.need(kind & rank & flags.eq(c.w(6)))
    sizes = c.load(thing, "array.dimensions")
    py.fit_sizes(c, c.frame, sizes, c.w(4), c.at(c.p(7), SIZES, "i64"))
    return thing, sizes


@OPERATIONS
def array(c: Row) -> None:
    """Read a NumPy array of type p2 and dtype p3, w4 axes, of whose flags those in w5 are w6.

    Table p7 says where its address goes and what its sizes are.
    """
    thing, _ = array_sizes(c)
    address(c, c.load(thing, "array.data", "i64"))


@OPERATIONS
def exchange(c: Row) -> None:
    """Read the memory that an object of type p2 offers by the function p3 (DLPack's exchange).

    On the host, aligned, of element type w5 (as one word of 32 bits), with w4 axes, in one piece
    (bit 0 of w6) or not. One element alone may be one whose sign PyTorch still has to turn, which
    only strides tell elsewhere: it is asked if bit 1 of w6 is set. Table p7 as for arrays.
    """
    thing, count, table = c.given(), c.w(4), c.p(7)
    out = c.alloca("[6 x i64]")
    c.need(py.is_a(c, thing, c.p(2)))
    c.need(c.call(c.p(3), thing, out, returns="i32").eq(0), "clear")
    on_host = c.word(out, 1).eq(1)
    kind = c.word(out, 2).eq((c.w(5) << 32) | count)
    data = c.word(out, 0) + c.word(out, 5)
    odd = data & (((c.w(5) >> 11) & 31) - 1)  # bits of an element stand from bit 8 on
    c.need(on_host & kind & odd.eq(0))
    sizes, strides = c.word(out, 3, "ptr"), c.word(out, 4, "ptr")
    dense = c.call("in_one_piece", sizes, strides, count)
    c.need((c.w(6) & 1).eq(dense.cast("zext", "i64")))
    with c.when((c.w(6) & 2).ne(0)), c.when(c.call("is_one", sizes, count)):
        found = c.call("PyObject_CallMethodObjArgs", thing, c.symbol("weft_name_is_neg"), None)
        borrow(c, found)
        c.need(found.eq(c.symbol("weft_false")))
    py.fit_sizes(c, c.frame, sizes, count, c.at(table, SIZES, "i64"))
    with c.unless(dense):
        c.call("steps", c.frame, sizes, strides, count, data, table)
        c.goto("good")
    address(c, data)
