"""Arrays of a group of which each thread uses a row of its own, and no other.

What a thread keeps from one loop over threads to the next, such as its tile of sums, is an array of
the group with a row for each thread. Where every access is to the row of the thread that it is made
by, the row is that work-item's own, in registers::

    for t in 256 thread.x: s[4*t + i] = 0       ->      s[i] = 0
    barrier                                             barrier
    for t in 256 thread.x: s[4*t + i] += x              s[i] += x

Offsets are read as sums of values times constants. An access is to its own row if the factor of the
thread's number is the same everywhere, and what is added to it is below that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from weft.ir import linear as li
from weft.ir.linear import Inst, Value
from weft.renderers.launches.sums import Sums

__all__ = ["Offset", "Row", "thread_rows"]


class Offset(NamedTuple):
    """An offset within a row: values with their factors, and a constant."""

    terms: tuple[tuple[Value, int], ...]
    constant: int


class Row(NamedTuple):
    """What each thread has of an array: elements, and where each access is, by its offset's id."""

    size: int
    offsets: dict[int, Offset]


def thread_rows(code: Sequence[Inst], threads: Mapping[int, int], items: int,
                names: set[str]) -> dict[str, Row]:  # fmt: skip
    """Return those of some arrays of which each work-item uses its own row alone.

    Parameters
    ----------
    code : sequence of Inst
        A phase.
    threads : mapping of int to int
        Where loops over threads begin and end.
    items : int
        Work-items of a group: the item of a number is the thread of that number, if there are
        no more threads.
    names : set of str
        Arrays that stand outside of these loops, and that no other array is a part of.
    """
    sums, rows = Sums(code), dict[str, Row]()
    refused = {i.memory.name for i in code if isinstance(i, li.AtomicInst | li.AddressInst)}
    inside = -1
    for k, inst in enumerate(code):
        if k in threads:
            inside = threads[k]
            loop = inst
        if not isinstance(inst, li.LoadInst | li.StoreInst) or inst.memory.name not in names:
            continue
        name = inst.memory.name
        found = None
        if k < inside and isinstance(loop, li.Loop):
            count = sums.number(loop.extent)
            if count is not None and count <= items and inst.offset.lanes == 1:
                found = _place(sums, inst.offset, loop.var)
        known = rows.get(name)
        if found is None or (known is not None and known.size != found[0]):
            refused.add(name)
            continue
        rows.setdefault(name, Row(found[0], {})).offsets[inst.offset.id] = found[1]
    return {name: row for name, row in rows.items() if name not in refused}


def _place(sums: Sums, offset: Value, thread: Value) -> tuple[int, Offset] | None:
    """Return the length of rows and a place within one, None if it may be in another one."""
    terms, constant = sums.of(offset)
    size = terms.get(thread, 0)
    rest = tuple((v, f) for v, f in terms.items() if v != thread)
    ends = [(sums.largest(v), f) for v, f in rest]
    if constant < 0 or any(most is None or f < 0 for most, f in ends):
        return None
    last = constant + sum((most or 0) * f for most, f in ends)
    return (size, Offset(rest, constant)) if last < size else None
