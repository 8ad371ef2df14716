"""What a native dispatch can do besides what all native calls do, one operation a row.

See `weft.runtimes.native.calls.rows` for how rows are written, and
`weft.runtimes.native.calls.dispatch_ir` for their order. Going to `miss` means: does not fit, or an
exception is set.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

from weft.runtimes.native.calls import objects as py
from weft.runtimes.native.calls import rows
from weft.runtimes.native.calls.dispatch_sizes import OPERATIONS as OF_SIZES
from weft.runtimes.native.calls.rows import Operation, Operations, Row
from weft.runtimes.native.common.emitter import Value

__all__ = ["OPERATIONS", "TABLE"]

OPERATIONS: Final = Operations()


# arguments


@OPERATIONS
def list_(c: Row) -> None:
    """Take a list of exactly w2 items, which go to the frame from w3 on."""
    things = c.given()
    c.need(py.is_a(c, things, "weft_list"))
    py.put_items(c, c.frame, things, c.w(2), c.w(3), "PyList")


@OPERATIONS
def dict_(c: Row) -> None:
    """Take a dict of w2 items, with the keys of table p4 in their order; values go to w3 on."""
    position, key_at, value_at = c.alloca("i64"), c.alloca("ptr"), c.alloca("ptr")
    things = c.given()
    c.need(things.ne(None))
    c.need(py.is_a(c, things, "weft_dict"))
    c.store(position, 0, 0)
    n = c.call("PyDict_Size", things)
    c.need(n.eq(c.w(2)))
    with c.loop(n) as i:
        c.need(c.call("PyDict_Next", things, position, key_at, value_at).ne(0))
        key, wanted = c.load(key_at), c.word(c.p(4), i, "ptr")
        with c.unless(key.eq(wanted)):
            c.need(py.is_a(c, key, "weft_str"))
            c.need(py.equal(c, key, wanted))
        c.put(c.frame, c.w(3) + i, c.load(value_at))


@OPERATIONS
def no_keywords(c: Row) -> None:
    """Need that there are no keywords."""
    things = c.given()
    c.leave(things.eq(None), "good")
    c.need(c.call("PyDict_Size", things).eq(0))


@OPERATIONS
def alias(c: Row) -> None:
    """Need the same object as word w2 of the frame."""
    c.need(c.number(1).eq(c.number(2)))


@OPERATIONS
def distinct(c: Row) -> None:
    """Need none of the objects in the w3 words of the frame that table p2 names."""
    found = c.number(1)
    with c.loop(c.w(3)) as i:
        c.need(found.ne(c.word(c.frame, c.word(c.p(2), i))))


@OPERATIONS
def outside(c: Row) -> None:
    """Need none of the w3 objects in table p2."""
    found = c.number(1)
    with c.loop(c.w(3)) as i:
        c.need(found.ne(c.word(c.p(2), i)))


# numbers that are computed


@OPERATIONS
def to_double(c: Row) -> None:
    """Convert the whole number in w2 to a double in word w1."""
    c.give(1, c.number(2).cast("sitofp", "double"))


@OPERATIONS
def to_single(c: Row) -> None:
    """Convert the double in w2 to a single, with which word w1 begins."""
    c.give(1, c.number(2, "double").cast("fptrunc", "float"))


def _of_doubles(operation: Callable[[Value, Value], Value]) -> Operation:
    """Return the row: word w1 is an operation on the doubles in w2 and w3."""
    return lambda c: c.give(1, operation(c.number(2, "double"), c.number(3, "double")))


OPERATIONS.update({"add_doubles": _of_doubles(operator.add),
                   "subtract_doubles": _of_doubles(operator.sub),
                   "multiply_doubles": _of_doubles(operator.mul)})


@OPERATIONS
def divide_doubles(c: Row) -> None:
    """Divide the double in w2 by that in w3, which is not 0, to word w1."""
    divisor = c.number(3, "double")
    c.need(divisor.ne(_double(c, "0.0")))
    c.give(1, c.number(2, "double") / divisor)


@OPERATIONS
def raise_double(c: Row) -> None:
    """Raise the double in w2, which is above 0, to the power in w3, to word w1.

    Python's special cases are left to it.
    """
    a, b, infinity = c.number(2, "double"), c.number(3, "double"), _double(c, "0x7FF0000000000000")
    c.need((a > _double(c, "0.0")) & (a < infinity) & (c.call("llvm.fabs.f64", b) < infinity))
    value = c.call("pow", a, b)
    c.need(value < infinity)
    c.give(1, value)


@OPERATIONS
def negate_double(c: Row) -> None:
    """Put the double in w2 with the other sign into word w1."""
    c.give(1, c.new(f"fneg double {c.number(2, 'double').text}", "double"))


def _double(c: Row, text: str) -> Value:
    return c.constant(text, "double")


# tensors


def check_type(c: Row, thing: Value, dtype: Value, learned: Value) -> None:
    """Miss unless a tensor is of type p2 and a dtype, learned or not."""
    c.need(py.is_a(c, thing, c.p(2)))
    c.need(c.load(thing, "Tensor._requires_grad").eq(learned))
    c.need(c.load(thing, "Tensor.dtype").eq(dtype))


@OPERATIONS
def spec(c: Row) -> None:
    """Need a tensor of type p2, shape p3 and dtype p4, learned or not (p5)."""
    thing = c.given()
    check_type(c, thing, c.p(4), c.p(5))
    sizes = c.load(thing, "Tensor.shape")
    c.leave(sizes.eq(c.p(3)), "good")
    c.need(sizes.ne(None))
    c.need(py.equal(c, sizes, c.p(3)))


@OPERATIONS
def sized_spec(c: Row) -> None:
    """Need a tensor of type p2, w3 axes of sizes as in table p4, dtype p5, learned or not (p6)."""
    thing = c.given()
    check_type(c, thing, c.p(5), c.p(6))
    py.fit_tuple(c, c.frame, c.load(thing, "Tensor.shape"), c.w(3), c.p(4))


@OPERATIONS
def read(c: Row) -> None:
    """Read where a tensor lies that is no view: its address and w3 bytes go to slot w2.

    Its buffer is owned by the frame at w4, if that is not 0.
    """
    thing = c.given()
    c.need(c.load(thing, "Tensor._base").eq(c.symbol("weft_none")))
    buffer = c.load(thing, "Tensor._buffer")
    c.need(buffer.ne(None))
    kind = c.load(buffer, "ob_type")
    with c.unless(kind.eq(_pooled_type(c))), c.unless(kind.eq(c.symbol("weft_buffer_type"))):
        c.need(kind.eq(c.symbol("weft_foreign_type")))
    c.give(2, py.buffer_address(c, buffer) + c.w(3))
    with c.when(c.w(4).ne(0)):
        py.own(c, c.frame, c.w(4), buffer)


def _pooled_type(c: Row) -> Value:
    return c.load(c.symbol("weft_pooled_type"))


@OPERATIONS
def unchanged(c: Row) -> None:
    """Need that the version of tensor p1, and that of its memory, are the two objects at p2."""
    c.need(c.load(c.p(1), "Tensor._version").eq(c.word(c.p(2), 0, "ptr")))
    buffer = c.load(c.p(1), "Tensor._buffer")
    c.need(buffer.ne(None))
    kind = c.load(buffer, "ob_type")
    c.need(kind.eq(_pooled_type(c)) | kind.eq(c.symbol("weft_buffer_type")))
    c.need(c.load(buffer, "Buffer.version").eq(c.word(c.p(2), 1, "ptr")))


@OPERATIONS
def learned(c: Row) -> None:
    """Need that a tensor from outside, p1, is learned or not (p2)."""
    c.need(c.load(c.p(1), "Tensor._requires_grad").eq(c.p(2)))


@OPERATIONS
def gradient(c: Row) -> None:
    """Own the gradient of tensor w1, or None, at w2."""
    found = c.load(c.given(), "Tensor._grad")
    c.need(found.ne(None))
    py.own(c, c.frame, c.w(2), found)


@OPERATIONS
def unrecorded(c: Row) -> None:
    """Need a tensor that was not computed from others with a gradient."""
    c.need(c.load(c.given(), "Tensor._is_leaf").eq(c.symbol("weft_true")))


@OPERATIONS
def writable(c: Row) -> None:
    """Need a tensor whose value may be replaced: no view, no memory that others own, no history."""
    thing = c.given()
    c.need(c.load(thing, "Tensor._base").eq(c.symbol("weft_none")))
    c.need(c.load(thing, "Tensor._shared").eq(c.symbol("weft_none")))
    c.need(c.load(thing, "Tensor._is_leaf").eq(c.symbol("weft_true")))


@OPERATIONS
def hold(c: Row) -> None:
    """Own an object of the frame at w2 as well."""
    py.own(c, c.frame, c.w(2), c.given())


# the state of the thread and of modules


@OPERATIONS
def setting(c: Row) -> None:
    """Need that attribute p2 of object p1 still is p3."""
    rows.attribute_of(c, c.p(1))


@OPERATIONS
def state(c: Row) -> None:
    """Need that the thread is in no capture, and records gradients or not as p1 says.

    The attributes of a thread-local object lie in a dict of the thread; that of the last thread is
    kept at hand.
    """
    number = c.call("PyThreadState_GetID", c.call("PyThreadState_Get"))
    last, kept = c.symbol("state_thread"), c.symbol("state_dict")
    known = c.load(kept)
    with c.unless(number.eq(c.load(last, 0, "i64"))):
        fresh = c.call("PyObject_GetAttr", c.symbol("weft_state"), c.symbol("weft_name_dict"))
        c.need(fresh.ne(None))
        c.store(last, 0, number)
        c.store(kept, 0, fresh)
        c.call("Py_DecRef", known)
    found = c.load(kept)
    given = c.call("PyDict_GetItemWithError", found, c.symbol("weft_name_grad"))
    c.need(c.select(given.eq(None), c.symbol("weft_true"), given).eq(c.p(1)))
    watcher = c.call("PyDict_GetItemWithError", found, c.symbol("weft_name_capture"))
    c.need(watcher.eq(None) | watcher.eq(c.symbol("weft_none")))


# memory and results


def _new_buffer(c: Row) -> Value:
    buffer = c.call("PyType_GenericAlloc", _pooled_type(c), 0)
    _keep(c, buffer)
    return buffer


def _take(c: Row, buffer: Value, free: Value, count: Value) -> None:
    """Give a buffer the last memory of a free list, and its address to word w2."""
    last = count - 1
    number = c.call("PyList_GetItem", free, last)
    c.call("Py_IncRef", number)
    with c.unless(c.call("PyList_SetSlice", free, last, count, None).eq(0)):
        c.call("Py_DecRef", number)
        c.goto("miss")
    c.store(buffer, "Buffer.address", number)
    py.set_member(c, buffer, "Buffer.version", c.symbol("weft_zero"))
    py.set_member(c, buffer, "Buffer._home", free)
    c.give(2, c.call("weft_int64_of", number))


@OPERATIONS
def allocate(c: Row) -> None:
    """Take p4 bytes (an int object) off the free list p3: owned at w1, their address in w2."""
    buffer = _new_buffer(c)
    n = c.call("PyList_Size", c.p(3))
    c.need(n > 0)
    py.set_member(c, buffer, "Buffer.nbytes", c.p(4))
    _take(c, buffer, c.p(3), n)


@OPERATIONS
def sized_allocate(c: Row) -> None:
    """Take as many bytes as word w4 says: owned at w1, their address in w2.

    p3 is the pool's table of free lists by bytes, p5 the function that finds memory where those
    have none.
    """
    nbytes = c.number(4)
    c.need(nbytes >= 0)
    number = c.call("PyLong_FromLongLong", nbytes)
    _keep(c, number)  # until there is a buffer
    free = c.call("PyDict_GetItemWithError", c.p(3), number)
    c.leave(free.eq(None), "ask")
    n = c.call("PyList_Size", free)
    c.need(n > 0, "ask")
    buffer = _new_buffer(c)
    c.store(buffer, "Buffer.nbytes", number)
    _take(c, buffer, free, n)
    c.goto("good")
    c.begin("ask")
    given = c.call("PyObject_CallFunctionObjArgs", c.p(5), number, None)
    c.call("Py_DecRef", number)
    c.give(1, given)
    c.need(given.ne(None))
    c.need(py.is_a(c, given, _pooled_type(c)))
    c.give(2, c.call("weft_int64_of", c.load(given, "Buffer.address")))


@OPERATIONS
def address(c: Row) -> None:
    """Put where word w2 of the frame is, and w3 bytes, into slot w1."""
    c.give(1, c.at(c.frame, c.w(2), "i64").cast("ptrtoint", "i64") + c.w(3))


@OPERATIONS
def give(c: Row) -> None:
    """Give tensor w1 the value in buffer w2."""
    thing, buffer = c.given(), c.given(2)
    version = c.call("weft_int64_of", c.load(thing, "Tensor._version")) + 1
    number = c.call("PyLong_FromLongLong", version)
    c.need(number.ne(None))
    none = c.symbol("weft_none")
    names = ("_version", "_history", "_node", "_buffer")
    old = [c.load(thing, f"Tensor.{name}") for name in names]
    py.set_member(c, thing, "Tensor._buffer", buffer)
    py.set_member(c, thing, "Tensor._node", none)
    py.set_member(c, thing, "Tensor._history", none)
    c.store(thing, "Tensor._version", number)
    for value in old:  # what their ends run must see the tensor as it is now
        c.call("Py_DecRef", value)


@OPERATIONS
def leaf(c: Row) -> None:
    """Make tensor w1 a leaf that is learned, or not (p2)."""
    thing = c.given()
    py.replace(c, thing, "Tensor._requires_grad", c.p(2))
    py.replace(c, thing, "Tensor._is_leaf", c.symbol("weft_true"))


@OPERATIONS
def set_gradient(c: Row) -> None:
    """Let the gradient of tensor w1 be object w2 of the frame."""
    py.replace(c, c.given(), "Tensor._grad", c.given(2))


@OPERATIONS
def constant(c: Row) -> None:
    """Own a constant p2 at w1."""
    py.own(c, c.frame, c.w(1), c.p(2))


def _keep(c: Row, made: Value) -> None:
    """Own a new object at w1."""
    c.need(made.ne(None))
    c.give(1, made)


@OPERATIONS
def make_tuple(c: Row) -> None:
    """Make a tuple of the w2 objects of the frame that table p3 names: owned at w1."""
    made = c.call("PyTuple_New", c.w(2))
    _keep(c, made)
    with c.loop(c.w(2)) as i:
        item = c.word(c.frame, c.word(c.p(3), i), "ptr")
        c.call("Py_IncRef", item)
        c.call("PyTuple_SetItem", made, i, item)


@OPERATIONS
def make_shape(c: Row) -> None:
    """Make a tuple of w2 whole numbers, owned at w1.

    For each two words of table p3: 0 and an object, or 1 and a word of the frame.
    """
    made = c.call("PyTuple_New", c.w(2))
    _keep(c, made)
    with c.loop(c.w(2)) as i:
        pair, item = c.at(c.p(3), i << 1, "i64"), c.alloca("ptr")
        with c.when(c.word(pair, 0).eq(0)) as otherwise:
            known = c.word(pair, 1, "ptr")
            c.call("Py_IncRef", known)
            c.store(item, 0, known)
            otherwise()
            new = c.call("PyLong_FromLongLong", c.word(c.frame, c.word(pair, 1)))
            c.need(new.ne(None))
            c.store(item, 0, new)
        c.call("PyTuple_SetItem", made, i, c.load(item))


@OPERATIONS
def make_number(c: Row) -> None:
    """Make an object of the whole number in word w2: owned at w1."""
    _keep(c, c.call("PyLong_FromLongLong", c.number(2)))


@OPERATIONS
def call(c: Row) -> None:
    """Call p2 with the tuple w3 of arguments: owned at w1. Lists and dicts are made so."""
    _keep(c, c.call("PyObject_CallObject", c.p(2), c.given(3)))


@OPERATIONS
def draw(c: Row) -> None:
    """Draw as many blocks as object w2 says of the random generator p1.

    Its key and count go to the frame at w3.
    """
    key = c.call("PyObject_GetAttr", c.p(1), c.symbol("weft_name_key"))
    c.need(key.ne(None))
    c.give(3, _bits_of(c, key))
    count = c.call("PyObject_CallMethodObjArgs", c.p(1), c.symbol("weft_name_advance"),
                   c.given(2), None)  # fmt: skip
    c.need(count.ne(None))
    c.put(c.frame, c.w(3) + 1, _bits_of(c, count))


def _bits_of(c: Row, number: Value) -> Value:
    bits = c.call("PyLong_AsUnsignedLongLongMask", number)
    c.call("Py_DecRef", number)
    return bits


@OPERATIONS
def result(c: Row) -> None:
    """Make a tensor over buffer w2, of shape p3 and dtype p4: owned at w1."""
    _result(c, c.p(3))


@OPERATIONS
def sized_result(c: Row) -> None:
    """Make a tensor over buffer w2, of the shape in word w3 and dtype p4: owned at w1."""
    _result(c, c.given(3))


def _result(c: Row, shape: Value) -> None:
    thing = c.call("PyType_GenericAlloc", c.symbol("weft_tensor_type"), 0)
    _keep(c, thing)
    values = {"_buffer": c.given(2), "shape": shape, "dtype": c.p(4)}
    for kind, names in (("none", ("_node", "_base", "_grad", "_shared", "_history")),
                        ("empty", ("_path",)), ("zero", ("_version",)),
                        ("false", ("_requires_grad",)), ("true", ("_is_leaf",))):
        values |= {name: c.symbol(f"weft_{kind}") for name in names}
    for name, value in values.items():
        py.set_member(c, thing, f"Tensor.{name}", value)


TABLE: Final[dict[str, Operation]] = {
    **{name: write for name, write in rows.OPERATIONS.items() if name != "answer"},
    **OPERATIONS, **OF_SIZES,
}  # fmt: skip
