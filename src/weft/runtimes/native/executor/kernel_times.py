"""Times of the kernels of native plans, taken by native code while a profile is recorded.

A plan is a table of kernels by address. While somebody records, the address of each kernel is that
of a stub, which reads the clock, calls the kernel, reads the clock again and writes a row; then the
addresses are the kernels' own again. So plans run as they always do, by whichever native call, on
however many threads, and nothing is asked while nobody records.

A stub belongs to one step of one plan for as long as the plan lives: a run that has read its
address may call it at any later time.
"""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from weft.errors import AllocationError
from weft.locks import mutex
from weft.runtimes.memory import host_memory
from weft.runtimes.native.common.emitter import Module
from weft.runtimes.native.executor.native_ir import clock_function
from weft.weak import Living, WeakTable

if TYPE_CHECKING:
    from weft.runtimes.base import Library

__all__ = ["BANK", "SYMBOLS", "KernelTimes", "Row", "Table", "begin", "end", "module", "register",
           "switch"]  # fmt: skip

BANK: Final = 256  # stubs that are loaded at once
SYMBOLS: Final = tuple(f"weft_timed_{k}" for k in range(BANK))
_ROWS: Final = 1 << 19  # of kernels that ran; what comes later takes the place of the earliest
_ROW_WORDS: Final = 6
_NEXT, _TABLE = 0, 1  # words of the head of the rows: how many there were, and where they are
_RING, _FIRST, _TARGETS = 0, 1, 2  # words of a bank: the head, its first stub, the kernels


class Table(Protocol):
    """The steps of a native plan or launch."""

    @property
    def names(self) -> Sequence[str]:
        """The symbol of each step."""
        ...

    def kernels(self) -> Iterator[int]:
        """Yield the steps that are kernels."""
        ...

    def function(self, step: int) -> int:
        """Return the address that a step calls."""
        ...

    def replace(self, step: int, function: int) -> None:
        """Have a step call another address."""
        ...


class Row(NamedTuple):
    """A kernel that ran.

    Attributes
    ----------
    name : str
        Its symbol.
    plan : int
        Equal for kernels of one plan.
    step : int
        Which of the plan's steps.
    thread : int
        As `threading.get_ident` numbers them; 0 where there are no threads.
    start, end : int
        Nanoseconds of the monotonic clock.
    failed : bool
        Whether it reported a failure.
    """

    name: str
    plan: int
    step: int
    thread: int
    start: int
    end: int
    failed: bool


def module(threads: bool) -> Module:
    """Return the code of a bank of stubs, which is linked with ``weft_timed_bank``, its words.

    Parameters
    ----------
    threads
        Whether the system has POSIX threads, whose numbers rows hold.
    """
    m = Module()
    clock_function(m)
    c = m.define("internal i32 @timed(ptr %buffers, ptr %vars, ptr %status, i64 %k) "
                 "noinline nounwind")  # fmt: skip
    buffers, variables, status, k = c.params
    bank = c.symbol("weft_timed_bank")
    start = c.call("now")
    code = c.call(c.word(bank, k + _TARGETS, "ptr"), buffers, variables, status, returns="i32")
    end = c.call("now")
    ring = c.word(bank, _RING, "ptr")
    number = c.fetch("add", c.at(ring, 8 * _NEXT), 1, "monotonic", "i64")
    row = c.at(c.word(ring, _TABLE, "ptr"), (number & (_ROWS - 1)) * _ROW_WORDS, "i64")
    thread = c.call("pthread_self", returns="i64") if threads else 0
    for word, value in enumerate((start, end, c.word(bank, _FIRST) + k, thread,
                                  code.cast("zext", "i64"))):  # fmt: skip
        c.put(row, word, value)
    c.store(row, 8 * (_ROW_WORDS - 1), number + 1, order="release")  # says that it is whole
    c.ret(code)
    for number_of, name in enumerate(SYMBOLS):
        c = m.define(f"i32 @{name}(ptr %buffers, ptr %vars, ptr %status) nounwind")
        c.ret(c.call("timed", *c.params, c.constant(number_of, "i64")))
    return m


class _Stub(NamedTuple):
    """A stub and what it calls: a step of a plan."""

    table: weakref.ref[Table]
    step: int
    name: str
    plan: int


class KernelTimes:
    """The stubs of this process and the rows that they write; both stay until it ends.

    Parameters
    ----------
    load
        Returns `module`, loaded and linked with some addresses.
    """

    def __init__(self, load: Callable[[Mapping[str, int]], Library]) -> None:
        self._load = load
        self._lock = mutex()
        self._ring = array("q", [0, 0])
        self._banks: list[tuple[array[int], Library]] = []
        self._stubs: list[_Stub | None] = []
        self._of: dict[tuple[int, int], int] = {}  # stubs by plan and step
        self._plans = 0
        self._numbers: WeakTable[Table, int] = WeakTable()
        self._unused: list[int] = []

    def time(self, table: Table) -> None:
        """Have the kernels of a plan timed from now on."""
        with self._lock:
            plan = self._number(table)
            for step in table.kernels():
                number = self._of.get((plan, step))
                if number is None:
                    number = self._of[plan, step] = self._free()
                    self._stubs[number] = _Stub(weakref.ref(table), step, table.names[step], plan)
                address = self._address(number)
                if table.function(step) != address:
                    self._aim(number, table.function(step))
                    table.replace(step, address)

    def release(self, table: Table) -> None:
        """Have a plan call its kernels by themselves again."""
        with self._lock:
            plan = self._numbers.get(table, 0)
            for step in table.kernels() if plan else ():
                number = self._of.get((plan, step))
                if number is not None and table.function(step) == self._address(number):
                    table.replace(step, self._target(number))

    def switch(self, table: Table, step: int, function: int) -> None:
        """Let a step call other code, timed if it is now."""
        with self._lock:
            number = self._of.get((self._numbers.get(table, 0), step))
            if number is not None and table.function(step) == self._address(number):
                self._aim(number, function)
            else:
                table.replace(step, function)

    def position(self) -> int:
        """Return how many rows there were so far."""
        return self._ring[_NEXT]

    def rows(self, first: int, last: int) -> list[Row]:
        """Return the rows from one position to another, those that are still there."""
        found: list[Row] = []
        if not self._ring[_TABLE]:
            return found
        words = (ctypes.c_int64 * (_ROWS * _ROW_WORDS)).from_address(self._ring[_TABLE])
        for number in range(max(first, last - _ROWS), last):
            at = (number & (_ROWS - 1)) * _ROW_WORDS
            start, end, stub, thread, code, mark = words[at : at + _ROW_WORDS]
            known = self._stubs[stub] if mark == number + 1 else None
            if known is not None:
                found.append(Row(known.name, known.plan, known.step, thread, start, end,
                                 bool(code)))  # fmt: skip
        return found

    @staticmethod
    def lost(first: int, last: int) -> int:
        """Return how many rows between two positions later ones took the place of."""
        return max(last - first - _ROWS, 0)

    def _number(self, table: Table) -> int:
        """Return the number of a plan, a new one if it has none."""
        found: int | None = self._numbers.get(table)
        if found is None:
            self._plans += 1
            found = self._numbers[table] = self._plans
        return found

    def _free(self) -> int:
        """Return a stub that no living plan has, loading more if there is none."""
        if not self._unused:
            for number, stub in enumerate(self._stubs):
                if stub is not None and stub.table() is None:
                    self._of.pop((stub.plan, stub.step), None)
                    self._stubs[number] = None
                    self._unused.append(number)
        if not self._unused:
            self._more()
        return self._unused.pop()

    def _more(self) -> None:
        if not self._ring[_TABLE]:
            self._ring[_TABLE] = host_memory.acquire(8 * _ROWS * _ROW_WORDS)
            if not self._ring[_TABLE]:
                raise AllocationError("profile", found="no memory for the times of kernels")
        first = len(self._stubs)
        words = array("q", [self._ring.buffer_info()[0], first, *[0] * BANK])
        library = self._load({"weft_timed_bank": words.buffer_info()[0]})
        library.pin()
        self._banks.append((words, library))
        self._stubs += [None] * BANK
        self._unused = list(range(first + BANK - 1, first - 1, -1))

    def _address(self, number: int) -> int:
        return self._banks[number // BANK][1][SYMBOLS[number % BANK]]

    def _target(self, number: int) -> int:
        return self._banks[number // BANK][0][_TARGETS + number % BANK]

    def _aim(self, number: int, function: int) -> None:
        self._banks[number // BANK][0][_TARGETS + number % BANK] = function


_tables: Final[Living[Table]] = Living()
_known: KernelTimes | None = None  # which stays
_active: KernelTimes | None = None


def register(table: Table) -> None:
    """Have a new table timed whenever somebody records, and now if somebody does."""
    _tables.add(table)
    times = _active
    if times is not None:
        times.time(table)
        if _active is None:  # it ended meanwhile, and may not have seen the table
            times.release(table)


def switch(table: Table, step: int, function: int) -> None:
    """Let a step of a table call other code, timed if it is now."""
    if _known is None:
        table.replace(step, function)
    else:
        _known.switch(table, step, function)


def begin(load: Callable[[Mapping[str, int]], Library]) -> KernelTimes:
    """Have all kernels timed from now on, by code that `load` links."""
    global _active, _known
    if _known is None:
        _known = KernelTimes(load)
    _active = _known
    for table in _tables:
        _known.time(table)
    return _known


def end() -> None:
    """Have kernels run by themselves again."""
    global _active
    times, _active = _active, None
    if times is not None:
        for table in _tables:
            times.release(table)
