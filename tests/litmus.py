"""Litmus programs: what a few threads read of two words, and what the interpreter allows.

A program is a list of threads, a thread a list of accesses ``(word, value)``: a write of `value`,
or a read where it is None. What it forbids is a tuple of all values that are read, thread by
thread.
"""

from typing import NamedTuple

import numpy as np

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.interpret.interpret import run_linear
from weft.ir.linear import LinearBuilder, LinearKernel
from weft.ir.stmt import Memory

READ = None


class Litmus(NamedTuple):
    """A program; `write` and `read` are the weakest orders that forbid what it forbids."""

    threads: tuple[tuple[tuple[str, int | None], ...], ...]
    forbidden: tuple[int, ...]
    write: str
    read: str


PROGRAMS = {
    "message passing": Litmus(
        ((("x", 1), ("y", 1)), (("y", READ), ("x", READ))), (1, 0), "release", "acquire"),
    "store buffering": Litmus(
        ((("x", 1), ("y", READ)), (("y", 1), ("x", READ))), (0, 0), "seq_cst", "seq_cst"),
    "load buffering": Litmus(
        ((("x", READ), ("y", 1)), (("y", READ), ("x", 1))), (1, 1), "release", "acquire"),
    "coherence": Litmus(
        ((("x", 1), ("x", 2)), (("x", READ), ("x", READ))), (2, 1), "relaxed", "relaxed"),
    "independent reads": Litmus(
        ((("x", 1),), (("y", 1),), (("x", READ), ("y", READ)), (("y", READ), ("x", READ))),
        (1, 0, 1, 0), "seq_cst", "seq_cst"),
}  # fmt: skip
WORDS = tuple(Memory(name, dt.int32, (ex.index(1),)) for name in "xy")


def reads(program):
    """Return how many values a program reads."""
    return sum(value is READ for thread in program.threads for _, value in thread)


def linear(program, accesses, scope="device"):
    """Return accesses ``(place of the result or None, word, value)`` as a kernel, in this order."""
    b, memories = LinearBuilder(), {m.name: m for m in WORDS}
    out = Memory("out", dt.int32, (ex.index(reads(program)),))
    for place, word, value in accesses:
        old, at = b.value("old", dt.int32), b.const(0, dt.int64)
        kind, order = ("add", program.read) if value is READ else ("exch", program.write)
        given = b.const(value or 0, dt.int32)
        b.emit(li.AtomicInst(old, kind, memories[word], at, given, None, scope, order))
        if place is not None:
            b.emit(li.StoreInst(out, b.const(place, dt.int64), old))
    return LinearKernel("litmus", (*WORDS, out), (), tuple(b.code))


def numbered(program):
    """Return the threads of a program, as accesses with the place of what each reads."""
    places = iter(range(reads(program)))
    return [[(next(places) if value is READ else None, word, value) for word, value in thread]
            for thread in program.threads]  # fmt: skip


def allowed(program):
    """Return what the interpreter reads in every order of the accesses of all threads."""
    found = set()
    for order in _interleavings(numbered(program)):
        arrays = [np.zeros(1, np.int32), np.zeros(1, np.int32),
                  np.zeros(reads(program), np.int32)]  # fmt: skip
        run_linear(linear(program, order), arrays)
        found.add(tuple(arrays[2].tolist()))
    return found


def _interleavings(threads):
    if not any(threads):
        yield []
    for k, thread in enumerate(threads):
        if thread:
            rest = [*threads[:k], thread[1:], *threads[k + 1 :]]
            yield from ([thread[0], *later] for later in _interleavings(rest))
