"""Statements of which each thread carries out its own: accesses, assertions, prints, clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.errors import UnsupportedError, raised, said
from weft.ir.interpret.interpret_code import where_of
from weft.ir.position import in_thread
from weft.ir.stmt import Address, Alloc, Assert, Clock, Load, Prefetch, Print, Stmt, Store
from weft.ir.text.print_format import shown
from weft.runtimes.lockstep.memory import Storage
from weft.runtimes.lockstep.values import held, to_stored

if TYPE_CHECKING:
    from weft.runtimes.lockstep.machine import Machine

__all__ = ["PLAIN"]


def _alloc(m: Machine, s: Alloc) -> None:
    shape = tuple(int(n[0]) for n in m.values(s))
    shared = s.memory.scope == "shared"
    owner, copies = (m.block_of, m.nblocks) if shared else (m.lanes, m.count)
    if s.base is not None:
        m.storages[s.memory] = Storage.over(s.memory, m.storage(s.base), shape)
        return
    made = m.storages[s.memory] = Storage.fresh(s.memory, shape, owner, copies)
    if s.memory.name in m.partly:
        made.written = None
    if shared and m.checks is not None:
        m.checks.watch(made)


def _load(m: Machine, s: Load) -> None:
    storage = m.storage(s.memory)
    if not s.index and s.memory.scope == "register":
        m.instructions += m.active
        if m.checks is not None:
            m.checks.register_read(s, storage)
        m.names[s.var] = storage.data
        return
    *index, = m.values(s)
    if s.mask is not None:
        raise UnsupportedError("interpret", found="a load with a mask of its own")
    if storage.first is None and all(len(i) == 1 for i in index) and m.checks is None:
        at, _ = m.elements(s, storage, index)
        found = storage.data[at[:1]]
    else:
        at, lanes = m.elements(s, storage, index)
        if m.checks is not None:
            m.checks.read(s, storage, at, lanes)
        found = storage.data[at]
        if len(found) < m.count:
            whole = np.zeros(m.count, found.dtype)
            whole[lanes] = found
            found = whole
    m.names[s.var] = found.astype(held(s.var.dtype), copy=False)


def _store(m: Machine, s: Store) -> None:
    storage = m.storage(s.memory)
    if s.mask is not None:
        raise UnsupportedError("interpret", found="a store with a mask of its own")
    *index, value = m.values(s)
    if not index and s.memory.scope == "register":
        if m.checks is not None:
            m.checks.register_write(s, storage)
        elif storage.written is not None:
            storage.written = None
        if m.full:
            storage.data = value
        else:
            storage.data = np.where(m.mask, value, storage.data)
        return
    at, lanes = m.elements(s, storage, index)
    given = m.spread(value)
    given = given if len(lanes) == m.count else given[lanes]
    if storage.stored:
        given = to_stored(given, s.memory.dtype)
    if m.checks is not None:
        m.checks.write(s, storage, at, lanes, given)
    storage.data[at] = given


def _assert(m: Machine, s: Assert) -> None:
    values = m.values(s)
    if m.checks is not None and m.checks.undefined.any:
        m.checks.undefined.use(s)
    holds = m.spread(values[0])
    bad = m.mask & ~holds
    if not bad.any():
        return
    first = int(np.argmax(bad))
    value = int(m.spread(values[1])[first]) if s.value is not None else 0
    if s.bound is not None:
        bound = int(m.spread(values[-1])[first])
        m.out_of_bounds(s, bad, value, bound, "")
        return
    if m.checks is None:
        message = said(s.message)
        if value > 0:
            message += in_thread(value - 1, m.grid.blocks, m.grid.threads)
        raise raised(s.message, m.known)(
            m.kernel.name, found=message, where=where_of(m.kernel.locations.get(s)))
    m.checks.failed(s, bad)
    m.lose(bad)


def _clock(m: Machine, s: Clock) -> None:
    m.instructions += m.active
    m.names[s.var] = np.array([time.perf_counter_ns()], np.int64)


def _address(m: Machine, s: Address) -> None:
    data = m.storage(s.memory).data
    m.names[s.var] = np.array([data.__array_interface__["data"][0]], np.int64)


def _print(m: Machine, s: Print) -> None:
    if m.checks is not None and m.checks.undefined.any:
        m.checks.undefined.meet(s)
        m.checks.undefined.use(s)
    values = [m.spread(v) for v in m.values(s)]
    for lane in m.chosen.tolist():
        texts = (shown(v[lane].item(), a.dtype) for v, a in zip(values, s.args, strict=True))
        print(s.text.format(*texts), end="")


def _nothing(m: Machine, s: Stmt) -> None:
    """Prefetches change nothing."""


PLAIN: Final[dict[type[Stmt], Callable[[Machine, Any], None]]] = {
    Load: _load, Store: _store, Alloc: _alloc, Assert: _assert, Print: _print,
    Prefetch: _nothing, Clock: _clock, Address: _address,
}  # fmt: skip
