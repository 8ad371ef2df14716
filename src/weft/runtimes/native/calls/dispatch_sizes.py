"""Rows of a native dispatch that compute with sizes, and count calls by them.

Sizes that change from call to call are VARIABLEs of the plan: the rows of arguments read them from
the shapes into words of the frame, the rows of whole numbers compute other sizes from them, and
those of memory and results take their sizes from words. See `weft.runtimes.native.calls.rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.runtimes.native.calls.rows import Operation, Operations, Row
from weft.runtimes.native.common.emitter import Operand, Value

__all__ = ["COUNTED", "HEAD", "OPERATIONS", "SERVED", "TALLY"]

# A tally of calls by sizes: words that say how many entries there are (less one, a power of two),
# after how many calls, or ticks of two or more, Python is asked for a plan of these sizes' own.
HEAD: Final = 3
TALLY: Final = 3  # words of an entry: a hash of the sizes, calls so far, ticks that they took
COUNTED: Final = -1  # in place of the calls: Python was asked, and
SERVED: Final = -2  # there is a plan of these sizes' own, which this dispatch is not to replace

OPERATIONS: Final = Operations()


def _checked(name: str) -> Operation:
    """Return the row: word w1 is an operation on words w2 and w3, unless it overflows."""
    def write(c: Row) -> None:
        a, b = c.number(2).text, c.number(3).text
        function = f"llvm.{name}.with.overflow.i64"
        c.module.functions[function] = f"declare {{ i64, i1 }} @{function}(i64, i64)"
        pair = c.new(f"call {{ i64, i1 }} @{function}(i64 {a}, i64 {b})", "{ i64, i1 }").text
        c.leave(c.new(f"extractvalue {{ i64, i1 }} {pair}, 1", "i1"), "miss")
        c.give(1, c.new(f"extractvalue {{ i64, i1 }} {pair}, 0", "i64"))
    return write


def _extreme(test: str) -> Operation:
    """Return the row: word w1 is the one of words w2 and w3 that a comparison holds for."""
    def write(c: Row) -> None:
        a, b = c.number(2), c.number(3)
        c.give(1, c.select(a.test(test, b), a, b))
    return write


def _floor(made: Callable[[Value, Value, Value], Value]) -> Operation:
    """Return the row: word w1 is made of quotient and remainder of w2 by w3, and of w3."""
    def write(c: Row) -> None:
        a, b = c.number(2), c.number(3)
        c.need(b > 0)
        quotient, left = (c.new(f"{name} i64 {a.text}, {b.text}", "i64")
                          for name in ("sdiv", "srem"))
        c.give(1, made(quotient, left, b))
    return write


OPERATIONS.update({
    "add_words": _checked("sadd"),
    "subtract_words": _checked("ssub"),
    "multiply_words": _checked("smul"),
    "least_word": _extreme("slt"),
    "largest_word": _extreme("sgt"),
    "divide_words": _floor(lambda quotient, left, b: quotient + (left < 0).cast("sext", "i64")),
    "remainder_words": _floor(
        lambda quotient, left, b: left.code.select(left < 0, left + b, left)),
})


@OPERATIONS
def tally(c: Row) -> None:
    """Count a call with the w3 sizes from word w2 on in the tally p1.

    The address of its entry goes to w4, and the time to w5. The call goes to Python if they have a
    plan of their own, or are to have one.
    """
    table, mixed = c.p(1), c.variable(0)
    with c.loop(c.w(3)) as i:
        size = c.word(c.frame, c.w(2) + i)
        spread = (c.load(mixed, 0, "i64") ^ size) * -7046029254386353131
        c.store(mixed, 0, spread ^ (spread >> 29))
    hashed = c.load(mixed, 0, "i64")
    key = hashed | 1
    first = (hashed >> 20) & c.word(table, 0)
    a, b = (c.at(table, place * TALLY + HEAD, "i64") for place in (first, first ^ 1))
    entry = c.alloca("ptr")
    for found in (a, b):
        c.store(entry, 0, found)
        c.leave(c.word(found, 0).eq(key), "counted")
    stays_a, stays_b = c.word(a, 1) < 0, c.word(b, 1) < 0
    c.give(4, c.constant(0, "i64"))
    c.leave(stays_a & stays_b, "good")
    chosen = c.select(stays_a, b, a)
    c.store(entry, 0, chosen)
    c.put(chosen, 0, key)
    c.put(chosen, 1, 0)
    c.put(chosen, 2, 0)
    c.begin("counted")
    _count(c, c.load(entry), c.word(table, 1), c.word(table, 2))


def _count(c: Row, entry: Value, often: Value, long: Value) -> None:
    calls = c.word(entry, 1)
    c.leave(calls.eq(SERVED), "miss")
    c.give(4, entry)
    with c.unless(calls < 0):
        more = calls + 1
        costly = (c.word(entry, 2) > long) & (more > 2)
        c.put(entry, 1, more)
        with c.when((more >= often) | costly):
            c.put(entry, 1, COUNTED)
            c.goto("miss")
    c.give(5, c.call("now"))


@OPERATIONS
def spent(c: Row) -> None:
    """Add the time since that in word w2 to the entry of the tally in w1, if there is one."""
    entry = c.given(1)
    c.leave(entry.eq(None), "good")
    c.put(entry, 2, c.word(entry, 2) + (c.call("now") - c.number(2)))


@OPERATIONS
def layout(c: Row) -> None:
    """Find the layout of an arena for the sizes from word w2 on, of table p1.

    The address of its plan goes to w3 and its bytes to w4. The table begins with the number of
    sizes and that of the layouts by each (by the powers of two that they do not exceed).
    """
    table, index = c.p(1), c.variable(0)
    n = c.word(table, 0)
    with c.loop(n) as i:
        size = c.word(c.frame, c.w(2) + i)
        bits = _bits(c, size - 1)
        c.store(index, 0, c.load(index, 0, "i64") * c.word(table, i + 1) + bits)
    pair = c.at(table, (c.load(index, 0, "i64") << 1) + n + 1, "i64")
    plan = c.word(pair, 0)
    c.need(plan.ne(0))
    c.give(3, plan)
    c.give(4, c.word(pair, 1))


def _bits(c: Row, number: Operand) -> Value:
    """Return how many bits a number has."""
    zeros = c.call("llvm.ctlz.i64", number, c.constant("false", "i1"))
    return c.constant(64, "i64") - zeros
