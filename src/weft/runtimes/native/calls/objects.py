"""What native calls ask of Python's objects, and do with them, in LLVM IR.

Names such as ``array.data`` are offsets of members, which were found by looking at living objects
(`weft.runtimes.native.calls.dispatch`).

Sizes of an array are asked for by a table of two words an axis: the size that it must have, or
`READ`, and the word of the frame to which it goes; or `KNOWN` and the word of the frame with the
size that it must have.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from weft.runtimes.native.common.emitter import Code, Module, Operand, Value

__all__ = ["ADDRESS", "KNOWN", "OFFSET", "OWNER", "READ", "SIZES", "buffer_address", "equal",
           "fit", "fit_sizes", "fit_tuple", "integer", "is_a", "layout_functions", "own",
           "put_items", "real", "replace", "set_member", "truth"]  # fmt: skip

READ, KNOWN = -1, -2  # in place of the size of an axis

# The table of memory that is read: the word for its address, to which bytes are added, the word
# that owns the memory of a tensor, and what its sizes have to be.
ADDRESS, OFFSET, OWNER, SIZES = 0, 1, 2, 3


def is_a(c: Code, thing: Value, kind: Value | str) -> Value:
    """Whether an object is of this very type."""
    wanted = c.symbol(kind) if isinstance(kind, str) else kind
    return c.load(thing, "ob_type").eq(wanted)


def equal(c: Code, a: Value, b: Value) -> Value:
    """Whether two objects are equal; an error is no."""
    return c.call("PyObject_RichCompareBool", a, b, c.constant(2, "i32")).eq(1)


def set_member(c: Code, thing: Value, name: str, value: Value) -> None:
    """Fill a member that is empty, or whose old value the caller releases."""
    c.call("Py_IncRef", value)
    c.store(thing, name, value)


def replace(c: Code, thing: Value, name: str, value: Value) -> None:
    """Give a member another value."""
    old = c.load(thing, name)
    set_member(c, thing, name, value)
    c.call("Py_DecRef", old)


def own(c: Code, frame: Value, word: Operand, thing: Value) -> None:
    """Own an object at a word of the frame, in place of what may be there."""
    at = c.at(frame, word, "i64")
    old = c.load(at)
    c.call("Py_IncRef", thing)
    c.store(at, 0, thing)
    with c.when(old.ne(None)):
        c.call("Py_DecRef", old)


def put_items(c: Code, frame: Value, things: Value, count: Value, first: Value,
              kind: str) -> None:  # fmt: skip
    """Put the items of a tuple or list of exactly `count` into the frame."""
    n = c.call(f"{kind}_Size", things)
    c.need(n.eq(count))
    with c.loop(n) as i:
        c.put(frame, first + i, c.call(f"{kind}_GetItem", things, i))


def buffer_address(c: Code, buffer: Value) -> Value:
    """Return the address of a buffer that was not released."""
    number = c.load(buffer, "Buffer.address")
    c.need(number.ne(None))
    found = c.call("weft_int64_of", number)
    c.need(found.ne(-1), "clear")
    return found


# numbers


def _sure(c: Code, doubtful: Value) -> None:
    """Go to `clear` if a number that may stand for an error is one."""
    with c.when(doubtful):
        c.need(c.call("PyErr_Occurred").eq(None), "clear")


def integer(c: Code, thing: Value, function: str = "PyLong_AsLongLong") -> Value:
    """Return the value of an int, which must have 64 bits."""
    c.need(is_a(c, thing, "weft_int"))
    found = c.call(function, thing)
    _sure(c, found.eq(-1))
    return found


def real(c: Code, thing: Value, is_float: Value, others: Sequence[str] = ()) -> Value:
    """Return the value of a float (or of an object that begins like one), or of another number.

    `others` are the types that it may have then; those of the caller's choice if there are none.
    """
    found = c.alloca("double")
    with c.when(is_float) as otherwise:
        c.store(found, 0, c.load(thing, "float.value", "double"))
        otherwise()
        if others:
            c.need(functools.reduce(operator.or_, [is_a(c, thing, kind) for kind in others]))
        value = c.call("PyFloat_AsDouble", thing)
        c.store(found, 0, value)
        _sure(c, value.eq(c.constant("-1.0", "double")))
    return c.load(found, 0, "double")


def truth(c: Code, thing: Value) -> Value:
    """Return whether an object, which must be True or False, is True."""
    yes = thing.eq(c.symbol("weft_true"))
    c.need(yes | thing.eq(c.symbol("weft_false")))
    return yes


# sizes and layout


def fit(c: Code, frame: Value, table: Value, i: Value, found: Value) -> None:
    """Miss unless the size of axis i is as its table says; note it."""
    pair = c.at(table, i << 1, "i64")
    wanted, place = c.word(pair, 0), c.word(pair, 1)
    with c.unless(found.eq(wanted) | wanted.eq(READ)):
        c.need(wanted.eq(KNOWN))
        c.need(found.eq(c.word(frame, place)))
    c.put(frame, place, found)


def fit_sizes(c: Code, frame: Value, sizes: Value, count: Value, table: Value) -> None:
    """Miss unless all sizes are as a table says; note them."""
    with c.loop(count) as i:
        fit(c, frame, table, i, c.word(sizes, i))


def fit_tuple(c: Code, frame: Value, sizes: Value, count: Value, table: Value) -> None:
    """Miss unless a shape, a tuple of ints, is as a table says; note its sizes."""
    c.need(sizes.ne(None))
    c.need(is_a(c, sizes, "weft_tuple"))
    c.need(c.call("PyTuple_Size", sizes).eq(count))
    with c.loop(count) as i:
        item = c.call("PyTuple_GetItem", sizes, i)
        c.need(is_a(c, item, "weft_int"))
        fit(c, frame, table, i, c.call("weft_int64_of", item))


def layout_functions(m: Module) -> None:
    """Write the functions that look at strides."""
    _in_one_piece(m)
    _is_one(m)
    _steps(m)


def _steps(m: Module) -> None:
    """Note the steps of an array in elements, its lowest address, its first element, its span.

    As `Host._strided` of the front end computes them. Behind the sizes a table has: the shift that
    makes bytes of elements, the words for the first element and for the span, and for each axis the
    word for its step.
    """
    c = m.define("internal void @steps(ptr %frame, ptr %dims, ptr %strides, i64 %n, i64 %address, "
                 "ptr %table) nounwind")  # fmt: skip
    frame, dims, strides, n, address, table = c.params
    rest = c.at(table, (n << 1) + SIZES, "i64")
    before, behind = c.variable(0), c.variable(0)
    with c.loop(n) as i:
        size = c.word(dims, i)
        step = c.select(size > 1, c.word(strides, i), 0)
        c.put(frame, c.word(rest, i + 3), step)
        end = (size - 1) * step
        down = end < 0
        c.store(before, 0, c.load(before, 0, "i64") - c.select(down, end, 0))
        c.store(behind, 0, c.load(behind, 0, "i64") + c.select(down, c.constant(0, "i64"), end))
    first, last = c.load(before, 0, "i64"), c.load(behind, 0, "i64")
    c.put(frame, c.word(table, ADDRESS), address - (first << c.word(rest, 0)))
    c.put(frame, c.word(rest, 1), first)
    c.put(frame, c.word(rest, 2), first + last + 1)
    c.end()


def _in_one_piece(m: Module) -> None:
    """Whether elements lie in row-major order without gaps, as NumPy sees it."""
    c = m.define("internal i1 @in_one_piece(ptr %dims, ptr %strides, i64 %n) "
                 "alwaysinline nounwind")  # fmt: skip
    dims, strides, n = c.params
    step = c.variable(1)
    c.leave(strides.eq(None), "good")
    with c.loop(n) as i:
        c.leave(c.word(dims, i).eq(0), "good")
    with c.loop(n) as i:
        k = n - 1 - i
        size, dense = c.word(dims, k), c.load(step, 0, "i64")
        c.need(size.eq(1) | c.word(strides, k).eq(dense), "bad")
        c.store(step, 0, dense * size)
    c.begin("good")
    c.ret(c.constant("true", "i1"))
    c.begin("bad")
    c.ret(c.constant("false", "i1"))


def _is_one(m: Module) -> None:
    """Whether there is one element."""
    c = m.define("internal i1 @is_one(ptr %dims, i64 %n) nounwind")
    dims, n = c.params
    with c.loop(n) as i:
        c.need(c.word(dims, i).eq(1), "several")
    c.ret(c.constant("true", "i1"))
    c.begin("several")
    c.ret(c.constant("false", "i1"))
