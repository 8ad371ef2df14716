"""What the threads of a block and of a warp do together: barriers, atomics, shuffles, votes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.interpret import interpret_scalar as scalar
from weft.ir.interpret.interpret_code import atomic_op, exchange
from weft.ir.op import Op
from weft.ir.stmt import NEAR, RELEASES, Atomic, Barrier, Collective, Fence, Stmt
from weft.runtimes.lockstep.shadow import WARP, bits
from weft.runtimes.lockstep.values import held, to_stored, vector

if TYPE_CHECKING:
    from weft.runtimes.lockstep.machine import Machine
    from weft.runtimes.lockstep.values import Array

__all__ = ["TOGETHER"]

_ROUNDS: Final = 16  # updates of one element that are carried out round by round
_FULL: Final = (1 << WARP) - 1
_POWERS: Final = np.left_shift(np.uint64(1), np.arange(WARP, dtype=np.uint64))


# atomics


def _applied(kind: str, d: DType, old: Array, value: Array, compare: Array | None) -> Array:
    """Return what elements hold after one atomic operation each."""
    op = atomic_op(kind, d)
    if op is not None:
        return vector(op, d, d)(old, value)
    if kind == "exch":
        return value
    if kind == "cas":
        assert compare is not None
        stored_, expected = (bits(to_stored(x, d)) for x in (old, compare))
        return np.where(stored_ == expected, value, old)  # bits decide, as in hardware
    if kind in ("min", "max", "nanmin", "nanmax"):
        replaces = value < old if kind.endswith("min") else value > old
        if kind.startswith("nan"):  # a NaN gives way
            replaces |= np.isnan(old) & ~np.isnan(value)
        return np.where(replaces, value, old)
    one = old.dtype.type(1)
    found: Array = (np.where(old >= value, old.dtype.type(0), old + one) if kind == "inc" else
                    np.where((old == 0) | (old > value), value, old - one))
    return found


def _atomic(m: Machine, s: Atomic) -> None:
    storage = m.storage(s.memory)
    values = m.values(s)
    count = len(s.index)
    at, lanes = m.elements(s, storage, values[:count])
    value, compare = (m.spread(v)[lanes] for v in (values[count], values[-1]))
    _tell(m, s, lanes)
    if m.checks is not None:
        m.checks.update(s, storage, at, lanes)
    d = s.memory.dtype
    old = np.zeros(len(at), held(d))
    order = np.argsort(at, kind="stable")
    element = at[order]
    first = np.flatnonzero(np.diff(element, prepend=-1))  # where another element begins
    lengths = np.diff(first, append=len(element))
    most = int(lengths.max(initial=0))
    data = storage.data
    if s.kind in ("add", "sub") and d.is_integer and most > 1:
        given = value[order] if s.kind == "add" else -value[order]
        sums = np.cumsum(given, dtype=given.dtype)
        before = sums - given
        before -= np.repeat(before[first], lengths)
        old[order] = np.repeat(data[element[first]], lengths) + before
        last = order[first + lengths - 1]
        data[at[last]] = old[last] + (value[last] if s.kind == "add" else -value[last])
    elif most <= _ROUNDS:
        rank = np.arange(len(element)) - np.repeat(first, lengths)
        for k in range(most):
            turn = order[rank == k]
            held_ = data[at[turn]].astype(old.dtype, copy=False)
            old[turn] = held_
            changed = _applied(s.kind, d, held_, value[turn], compare[turn])
            data[at[turn]] = to_stored(changed, d) if storage.stored else changed
    else:
        _one_by_one(s, data, at, value, compare, old)
    whole = np.zeros(m.count, old.dtype)
    whole[lanes] = old
    m.names[s.var] = whole


def _one_by_one(s: Atomic, data: Array, at: Array, value: Array, compare: Array,
                old: Array) -> None:  # fmt: skip
    """Carry out many updates of the same elements, in the order of the threads."""
    d = s.memory.dtype
    if s.kind == "cas" and d.is_float:  # whose bits Python's floats do not keep
        raw, words = bits(data), dt.unsigned(8 * data.itemsize)
        new, expected = (bits(to_stored(x, d).astype(data.dtype)) for x in (value, compare))
        found = np.zeros(len(at), raw.dtype)
        plain = s.replace(memory=s.memory.replace(dtype=words))
        _one_by_one(plain, raw, at, new, expected, found)
        data[at], old[:] = raw[at].view(data.dtype), found.view(data.dtype)
        return
    op = atomic_op(s.kind, d)
    fn = None if op is None else scalar.function(op, d, d)
    elements, inverse = np.unique(at, return_inverse=True)
    cells = data[elements].astype(old.dtype).tolist()
    olds = [exchange(cells, k, s.kind, v, c, fn) for k, v, c in
             zip(inverse.tolist(), value.tolist(), compare.tolist(), strict=True)]
    old[:] = olds
    data[elements] = np.array(cells, old.dtype).astype(data.dtype)


# barriers and fences


def _barrier(m: Machine, s: Barrier) -> None:
    m.instructions += m.active
    if s.scope == "warp":
        masks = m.spread(m.values(s)[0]) if s.mask is not None else None
        if m.checks is not None:
            m.checks.undefined.use(s)
            warps = Warps(m, masks)
            warps.check(s, "a warp barrier")
            groups = np.full(m.count, -1, np.int64)
            groups[m.chosen] = (warps.number << WARP | warps.masks)[m.chosen]
            m.checks.clocks.warp_barrier(groups)
    elif m.checks is not None:
        m.checks.barrier(s, whole=s.scope == "grid")


def _fence(m: Machine, s: Fence) -> None:
    m.instructions += m.active
    _tell(m, s, m.chosen)


def _tell(m: Machine, s: Fence | Atomic, lanes: Array) -> None:
    """Note that others may learn from now on what threads did before."""
    if m.checks is not None and s.order in RELEASES and s.scope != "thread":
        m.checks.clocks.fence(lanes, near=s.scope in NEAR)


# warps


class Warps:
    """The threads that run now, arranged by warps.

    Attributes
    ----------
    number, slot : array
        The warp of each thread, and its place there.
    masks : array of int64
        The threads that each thread names, as bits.
    at : array
        (warp, place): the thread there, -1 for none.
    here : array of bool
        (warp, place): whether that thread runs.
    """

    def __init__(self, m: Machine, masks: Array | None) -> None:
        self.machine = m
        per_block = -(-m.per_block // WARP)
        inside = m.lanes % m.per_block
        self.number = m.block_of * per_block + inside // WARP
        self.slot = inside % WARP
        self.masks = np.full(m.count, _FULL, np.int64) if masks is None else (
            masks.astype(np.int64))
        shape = (m.nblocks * per_block, WARP)
        self.at = np.full(shape, -1, np.int64)
        self.at[self.number, self.slot] = m.lanes
        self.here = np.zeros(shape, np.bool_)
        self.here[self.number, self.slot] = m.mask
        self.named = (self.masks[:, None] >> np.arange(WARP)) & 1 != 0
        self.together = self.named & self.here[self.number]

    def check(self, s: Stmt, what: str, whole: bool = False) -> None:
        """Report masks that do not name the threads that are here.

        Nobody waits for threads that have returned, unless it takes the `whole` warp.
        """
        m = self.machine
        assert m.checks is not None
        alive = np.zeros(self.here.shape, np.bool_)
        alive[self.number, self.slot] = ~m.gone if whole else ~(m.gone | m.left)
        own = m.mask & ~self.named[m.lanes, self.slot]
        if own.any():
            m.checks.warp(s, f"takes part in {what} whose mask does not name it", own)
            return
        absent = m.mask & (self.named & (alive & ~self.here)[self.number]).any(1)
        if absent.any():
            m.checks.warp(s, f"waits in {what} for threads of its mask that do not come", absent)
            return
        theirs = np.zeros(self.here.shape, np.int64)
        theirs[self.number, self.slot] = self.masks
        unlike = m.mask & (self.together & (theirs[self.number] != self.masks[:, None])).any(1)
        if unlike.any():
            m.checks.warp(s, f"names other threads in {what} than they do", unlike)

    def rows(self, value: Array) -> Array:
        """Return for each thread the values of the threads of its warp."""
        table = np.zeros(self.here.shape, value.dtype)
        table[self.number, self.slot] = value
        rows: Array = table[self.number]
        return rows

    def words(self, holds: Array) -> Array:
        """Return rows of truth values as bits."""
        found: Array = (holds @ _POWERS).astype(np.uint32)
        return found


def _source(kind: str, slot: Array, distance: Array, width: int) -> tuple[Array, Array]:
    """Return from which place of the warp each thread reads, and whether there is such a one."""
    group = slot - slot % width
    if kind == "shuffle_idx":
        return group + distance % width, np.ones(len(slot), np.bool_)
    if kind == "shuffle_xor":
        place = slot ^ distance
        return place, (place >= 0) & (place < group + width)
    place = slot - distance if kind == "shuffle_up" else slot + distance
    return place, (place >= group) & (place < group + width)


def _shuffle(m: Machine, s: Collective, warps: Warps, value: Array, distance: Array) -> Array:
    place, inside = _source(s.kind, warps.slot, distance, s.width)
    place = np.where(inside, place, warps.slot)
    lane = warps.at[warps.number, place]
    taking = m.mask & (lane >= 0)
    there = warps.together[m.lanes, place]
    if m.checks is not None:
        m.checks.undefined.take(s, inside & ~there, np.where(taking & there, lane, m.lanes))
    return np.where(taking & there, value[np.maximum(lane, 0)], value)


def _collective(m: Machine, s: Collective) -> None:
    values = [m.spread(v) for v in m.values(s)]
    if s.scope == "block":
        m.names[s.var] = _counted(m, s, values[0])
        return
    warps = Warps(m, values[-1] if s.mask is not None else None)
    active = s.kind == "ballot" and s.mask is None and s.args[0].op is Op.CONST
    if m.checks is not None and not active:  # `activemask` asks who is here
        warps.check(s, s.kind.replace("_", " "))
    if s.kind.startswith("shuffle"):
        m.names[s.var] = _shuffle(m, s, warps, values[0], values[1])
        return
    together = warps.together
    if m.checks is not None and m.checks.undefined.any:
        m.checks.undefined.join(s, warps.rows, warps.together)
    if s.kind.startswith("match"):
        word = bits(values[0])
        same = warps.rows(word) == word[:, None]
        if s.kind == "match_any":
            found = warps.words(same & together)
        else:
            found = np.where((same | ~together).all(1), warps.words(together), np.uint32(0))
        m.names[s.var] = found
        return
    holds = warps.rows(values[0])
    if s.kind == "ballot":
        m.names[s.var] = warps.words(holds & together)
        return
    some, every = (holds & together).any(1), (holds | ~together).all(1)
    found_ = {"vote_any": some, "vote_all": every, "vote_eq": every | ~some}.get(s.kind)
    if found_ is None:
        raise UnsupportedError("interpret", found=f"the collective {s.kind}")
    m.names[s.var] = found_


def _counted(m: Machine, s: Collective, holds: Array) -> Array:
    if m.checks is not None:
        m.checks.barrier(s)
        if m.checks.undefined.any:
            m.checks.undefined.count(s)
    shape = (m.nblocks, m.per_block)
    rows, here = holds.reshape(shape), m.mask.reshape(shape)
    count = (rows & here).sum(1)
    found = {"count": count, "any": count > 0, "all": (rows | ~here).all(1)}[s.kind]
    return np.repeat(found, m.per_block)


TOGETHER: Final[dict[type[Stmt], Callable[[Machine, Any], None]]] = {
    Atomic: _atomic, Barrier: _barrier, Fence: _fence, Collective: _collective,
}  # fmt: skip
