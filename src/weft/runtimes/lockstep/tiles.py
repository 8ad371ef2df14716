"""Matrix fragments, which the threads of a warp hold together, and copies on the side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.ir import dtype as dt
from weft.ir.op import Op
from weft.ir.stmt import Memory, Stmt
from weft.ir.tile import (
    LANES,
    AsyncCopy,
    CopyCommit,
    CopyWait,
    MatrixAccess,
    MatrixLoad,
    MatrixMultiply,
    MatrixStore,
    extent,
)
from weft.runtimes.lockstep.collectives import Warps
from weft.runtimes.lockstep.memory import Pending
from weft.runtimes.lockstep.values import held, vector

if TYPE_CHECKING:
    from weft.ir.dtype import DType
    from weft.ir.expr import Expr
    from weft.runtimes.lockstep.machine import Machine
    from weft.runtimes.lockstep.memory import Storage
    from weft.runtimes.lockstep.values import Array

__all__ = ["TILES"]


# fragments


def _warps(m: Machine, s: Stmt) -> Array:
    """Return the warps that are here, all of whose threads must be."""
    if m.checks is not None:
        Warps(m, None).check(s, "a matrix operation", whole=True)
    warps: Array = np.flatnonzero(m.mask.reshape(-1, LANES).any(1))
    return warps


class _Part(NamedTuple):
    """The elements of a fragment in some warps, in row-major order."""

    storage: Storage
    at: Array  # (warp, element)
    lanes: Array


def _part(m: Machine, memory: Memory, warps: Array, count: int) -> _Part:
    storage = m.storage(memory)
    element = np.arange(count)
    lanes = warps[:, None] * LANES + element % LANES
    return _Part(storage, lanes * (count // LANES) + element // LANES, lanes)


def _read(m: Machine, s: Stmt, part: _Part) -> Array:
    if m.checks is not None:
        m.checks.read(s, part.storage, part.at.ravel(), part.lanes.ravel())
    found: Array = part.storage.data[part.at]
    return found


def _write(m: Machine, s: Stmt, part: _Part, values: Array) -> None:
    values = values.astype(part.storage.data.dtype, copy=False)
    if m.checks is not None:
        m.checks.write(s, part.storage, part.at.ravel(), part.lanes.ravel(), values.ravel())
    part.storage.data[part.at] = values


def _first(m: Machine, s: Stmt, warps: Array, values: Sequence[Array]) -> list[Array]:
    """Return the values of the first thread of each warp, which all threads must have alike."""
    here = m.mask.reshape(-1, LANES)[warps]
    first = warps * LANES + here.argmax(1)
    found = [m.spread(v)[first] for v in values]
    if m.checks is not None:
        for value, mine in zip(values, found, strict=True):
            unlike = np.zeros(m.count, np.bool_).reshape(-1, LANES)
            unlike[warps] = here & (m.spread(value).reshape(-1, LANES)[warps] != mine[:, None])
            if unlike.any():
                m.checks.warp(s, "names another matrix than other threads of its warp",
                              unlike.ravel())
                break
    return found


def _matrix(m: Machine, s: MatrixAccess, warps: Array) -> tuple[Array, Array, Array]:
    """Return the warps whose matrix is there, and the elements and threads of each."""
    storage = m.storage(s.memory)
    count = len(s.index)
    given = _first(m, s, warps, m.values(s)[len(s.at):])
    rows, columns = (k[None, :] for k in np.divmod(np.arange(s.size[0] * s.size[1]), s.size[1]))
    flat: Any = 0
    inside = np.ones(len(warps), np.bool_)
    for k, n in enumerate(storage.shape):
        index, row, column = (v[:, None] for v in given[k::count])
        place = index + rows * row + columns * column
        wrong = (place < 0) | (place >= n)
        lost = wrong.any(1) & inside
        if lost.any():
            inside &= ~lost
            bad = np.zeros(m.count, np.bool_)
            bad[(warps[lost][:, None] * LANES + np.arange(LANES)).ravel()] = True
            m.out_of_bounds(s, bad & m.mask, int(place[wrong][0]), n, storage.memory.name)
        flat = flat * n + place
    warps, flat = warps[inside], flat[inside]
    if storage.first is not None:
        flat = flat + storage.first[warps[:, None] * LANES + np.arange(flat.shape[1]) % LANES]
    # Which thread accesses an element is nowhere promised; GPUs divide a matrix like this.
    lanes = warps[:, None] * LANES + rows % 8 * 4 + columns % 8 // 2
    return warps, flat, np.broadcast_to(lanes, flat.shape)


def _load(m: Machine, s: MatrixLoad) -> None:
    warps, at, lanes = _matrix(m, s, _warps(m, s))
    values = _read(m, s, _Part(m.storage(s.memory), at, lanes))
    m.instructions += values.size
    _write(m, s, _part(m, s.fragment, warps, at.shape[1]), values)


def _store(m: Machine, s: MatrixStore) -> None:
    warps, at, lanes = _matrix(m, s, _warps(m, s))
    values = _read(m, s, _part(m, s.fragment, warps, at.shape[1]))
    m.instructions += values.size
    _write(m, s, _Part(m.storage(s.memory), at, lanes), values)


def _rounded(x: Array) -> Array:
    """Round float32 to the 11 significant bits of tf32, ties away from zero; NaN stays."""
    near = ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isnan(x), x, near)


def _multiply(m: Machine, s: MatrixMultiply) -> None:
    warps = _warps(m, s)
    d = dt.float32 if s.result.dtype is dt.float16 else s.result.dtype
    parts: list[Array] = []
    for memory, use in ((s.left, "a"), (s.right, "b"), (s.addend, "accumulator")):
        rows, columns = extent(use, s.shape)
        values = _read(m, s, _part(m, memory, warps, rows * columns))
        if s.precision == "tf32" and use != "accumulator":
            values = _rounded(values)
        parts.append(values.astype(held(d)).reshape(-1, rows, columns))
    left, right, total = parts
    for k in range(s.shape[2]):
        a, b = left[:, :, k, None], right[:, k, None, :]
        total = _fused(a, b, total, d) if d.is_float else a * b + total
        m.instructions += total.size
    total = total.reshape(len(warps), s.shape[0] * s.shape[1])
    if s.result.dtype is dt.float16:
        total = total.astype(np.float16).astype(np.float32)
    _write(m, s, _part(m, s.result, warps, total.shape[1]), total)


def _fused(a: Array, b: Array, total: Array, d: DType) -> Array:
    a, b = np.broadcast_to(a, total.shape), np.broadcast_to(b, total.shape)
    found = vector(Op.MAD, d, d)(a.ravel(), b.ravel(), total.ravel())
    return found.reshape(total.shape)


# copies on the side


def _copy(m: Machine, s: AsyncCopy) -> None:
    count = len(s.index)
    values = m.values(s)
    target, source = m.storage(s.memory), m.storage(s.source)
    for k in range(s.count):
        (to, there), (at, here) = (m.elements(s, storage, _along(index, k)) for storage, index in (
            (target, values[:count]), (source, values[count:])))
        both = np.intersect1d(there, here, assume_unique=True)
        to, at = to[np.searchsorted(there, both)], at[np.searchsorted(here, both)]
        if m.checks is not None:
            m.checks.read(s, source, at, both)
            m.checks.ask(s, target, to, both, source.data[at])
        m.copies.append(Pending(s, target, to, both, source.data[at], m.groups[both]))


def _along(index: Sequence[Expr] | Sequence[Array], k: int) -> list[Any]:
    return [*index[:-1], index[-1] + k]


def _commit(m: Machine, s: CopyCommit) -> None:
    m.instructions += m.active
    m.groups[m.chosen] += 1


def _wait(m: Machine, s: CopyWait) -> None:
    m.instructions += m.active
    left: list[Pending] = []
    for copy in m.copies:
        done = m.mask[copy.lanes] & (copy.groups < m.groups[copy.lanes] - s.pending)
        if done.any():
            at, lanes, values = copy.at[done], copy.lanes[done], copy.values[done]
            if m.checks is not None:
                m.checks.land(copy.stmt, copy.storage, at, lanes, values)
            copy.storage.data[at] = values
        if not done.all():
            rest = ~done
            left.append(Pending(copy.stmt, copy.storage, copy.at[rest], copy.lanes[rest],
                                copy.values[rest], copy.groups[rest]))
    m.copies = left


TILES: Final[dict[type[Stmt], Callable[[Machine, Any], None]]] = {
    MatrixLoad: _load, MatrixStore: _store, MatrixMultiply: _multiply, AsyncCopy: _copy,
    CopyCommit: _commit, CopyWait: _wait,
}  # fmt: skip
