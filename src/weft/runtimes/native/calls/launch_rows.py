"""What a native launch can do with an argument besides what all native calls do.

See `weft.runtimes.native.calls.rows` for how rows are written. Each operation goes to `good`, to
`miss` if the argument does not fit, or to `clear` if an exception has to go first.
"""

from __future__ import annotations

from typing import Final

from weft.runtimes.native.calls import objects as py
from weft.runtimes.native.calls import rows
from weft.runtimes.native.calls.rows import Operation, Operations, Row
from weft.runtimes.native.common.emitter import Value

__all__ = ["TABLE"]

_OPERATIONS: Final = Operations()
_MOST_AXES: Final = 64


@_OPERATIONS
def apart(c: Row) -> None:
    """Need that no two of w2 pieces of memory overlap.

    Table p1: for each the word of its address, and its bytes.
    """
    def ends(i: Value) -> tuple[Value, Value]:
        pair = c.at(c.p(1), i << 1, "i64")
        begin = c.word(c.frame, c.word(pair, 0))
        return begin, begin + c.word(pair, 1)

    with c.loop(c.w(2)) as i:
        a, a_end = ends(i)
        with c.loop(c.w(2), i + 1) as j:
            b, b_end = ends(j)
            c.need(b_end.test("ule", a) | a_end.test("ule", b))


@_OPERATIONS
def unsigned(c: Row) -> None:
    """Take an int of 64 bits without a sign, to word w2."""
    c.give(2, py.integer(c, c.given(), "PyLong_AsUnsignedLongLong"))


@_OPERATIONS
def truth(c: Row) -> None:
    """Take True or False, to word w2."""
    c.give(2, py.truth(c, c.given()).cast("zext", "i64"))


@_OPERATIONS
def scalar(c: Row) -> None:
    """Take a NumPy scalar of type p3: its w4 bytes, with a sign (w5) or not, to word w2."""
    thing, wide = c.given(), c.alloca("i64")
    c.need(py.is_a(c, thing, c.p(3)))
    for size in (1, 2, 4, 8):
        with c.when(c.w(4).eq(size)):
            value = c.load(thing, "float.value", f"i{8 * size}")
            c.store(wide, 0, value if size == 8 else value.cast("sext", "i64"))
    value, unused = c.load(wide, 0, "i64"), c.constant(64, "i64") - (c.w(4) << 3)
    c.give(2, c.select(c.w(5).ne(0), value, (value << unused) >> unused))


@_OPERATIONS
def strided(c: Row) -> None:
    """Read a NumPy array with gaps or another order, operands as of `array`.

    Behind the sizes the table has what `steps` needs, which counts elements.
    """
    thing, sizes = rows.array_sizes(c)
    strides, steps = c.load(thing, "array.strides"), c.alloca(f"[{_MOST_AXES} x i64]")
    shift = c.word(c.p(7), (c.w(4) << 1) + py.SIZES)
    with c.loop(c.w(4)) as i:
        size = c.word(strides, i)
        step = c.new(f"ashr i64 {size.text}, {shift.text}", "i64")
        c.need((step << shift).eq(size))
        c.put(steps, i, step)
    c.call("steps", c.frame, sizes, steps, c.w(4), c.load(thing, "array.data", "i64"), c.p(7))


@_OPERATIONS
def tensor(c: Row) -> None:
    """Read a tensor of type p2 and dtype p3, with w4 axes, that lies in memory of its own.

    It is no view, and its memory is of type p6. It is written (w5) only if no graph and no array
    knows its value, and has another version then. Table p7 as for arrays.
    """
    thing, table, none, written = c.given(), c.p(7), c.symbol("weft_none"), c.w(5).ne(0)
    c.need(py.is_a(c, thing, c.p(2)))
    kind = c.load(thing, "Tensor.dtype").eq(c.p(3))
    c.need(kind & c.load(thing, "Tensor._base").eq(none) & c.load(thing, "Tensor._shared").eq(none))
    with c.when(written):
        bare = c.load(thing, "Tensor._node").eq(none) & c.load(thing, "Tensor._history").eq(none)
        c.need(bare & c.load(thing, "Tensor._requires_grad").eq(c.symbol("weft_false")))
    buffer = c.load(thing, "Tensor._buffer")
    c.need(buffer.ne(None))
    unseen = c.load(buffer, "references", "i32").eq(1) | c.w(5).eq(0)
    c.need(py.is_a(c, buffer, c.p(6)) & unseen)
    sizes = c.at(table, py.SIZES, "i64")
    py.fit_tuple(c, c.frame, c.load(thing, "Tensor.shape"), c.w(4), sizes)
    rows.address(c, py.buffer_address(c, buffer))
    py.own(c, c.frame, c.word(table, py.OWNER), buffer)
    with c.when(written):
        for changed, name in ((thing, "Tensor._version"), (buffer, "Buffer.version")):
            old = c.load(changed, name)
            number = c.call("PyLong_FromLongLong", c.call("weft_int64_of", old) + 1)
            c.need(number.ne(None), "clear")
            c.store(changed, name, number)
            c.call("Py_DecRef", old)


TABLE: Final[dict[str, Operation]] = {**rows.OPERATIONS, **_OPERATIONS}
