"""Loop nests that do nothing but reach a limit of the machine: memory, and fused multiply-add.

They go through the same compiler as everything else, so that a share of the peak compares like
with like.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.stmt import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTOR,
    Accumulator,
    Axis,
    Body,
    For,
    Kernel,
    Load,
    Memory,
    Meta,
    Reduce,
    Store,
    lhs,
    rhs,
)

_LANES: Final = 16
_CHAINS: Final = 12  # independent accumulators: enough to hide the latency of an FMA
_ROUNDS: Final = 1 << 20
_CHUNKS: Final = 2
_STREAMS: Final = 8  # places that one core reads side by side: more than it does in one
_WIDE: Final = 64


def read_kernel(nbytes: int) -> Kernel:
    """Return a kernel that sums an array of `nbytes` bytes of float32 into partial sums."""
    count = nbytes // 4 // _CHUNKS
    source = Memory("source", dt.float32, (ex.index(_CHUNKS), ex.index(count)))
    partial = Memory("partial", dt.float32, (ex.index(_CHUNKS),))
    c, k, u, lane = (ex.var(n) for n in ("c", "k", "u", "lane"))
    value = ex.var("value", dt.float32)
    acc = ex.var("total", dt.float32)
    load = Load(value, source, (c, u * (count // _STREAMS) + k * _WIDE + lane))
    axes = (Axis(k, ex.index(count // _STREAMS // _WIDE)), Axis(u, ex.index(_STREAMS), UNROLLED),
            Axis(lane, ex.index(_WIDE), VECTOR))
    reduce = Reduce(axes, (Accumulator(acc, ex.const(0.0, dt.float32), acc + value,
                                       lhs(acc) + rhs(acc)),), (load,))
    body = For(c, ex.index(_CHUNKS), PARALLEL, (reduce, Store(partial, (c,), acc)))
    return Kernel("peak_read", (source, partial), (body,), Meta("custom"))


def move_kernel(nbytes: int, copies: bool, streams: bool) -> Kernel:
    """Return a kernel that fills an array of `nbytes` bytes of float32, or copies one into it.

    With `streams`, its stores go past the caches.
    """
    count = nbytes // 4 // _CHUNKS
    source = Memory("source", dt.float32, (ex.index(_CHUNKS), ex.index(count)))
    target = Memory("target", dt.float32, (ex.index(_CHUNKS), ex.index(count)))
    c, k, lane = (ex.var(n) for n in ("c", "k", "lane"))
    at = (c, k * _WIDE + lane)
    value = ex.var("value", dt.float32)
    body: Body = (Load(value, source, at), Store(target, at, value, None, streams))
    if not copies:
        body = (Store(target, at, ex.const(1.0, dt.float32), None, streams),)
    nest = For(k, ex.index(count // _WIDE), SERIAL, (For(lane, ex.index(_WIDE), VECTOR, body),))
    params = (source, target) if copies else (target,)
    name = f"peak_{'copy' if copies else 'write'}{'_past' if streams else ''}"
    return Kernel(name, params, (For(c, ex.index(_CHUNKS), PARALLEL, (nest,)),), Meta("custom"))


def fma_kernel(threads: int) -> tuple[Kernel, int]:
    """Return a kernel of independent chains of FMA on each thread, and its operations."""
    out = Memory("out", dt.float32, (ex.index(threads), ex.index(_CHAINS)))
    t, k = ex.var("t"), ex.var("k")
    accumulators = []
    for chain in range(_CHAINS):
        acc = ex.var(f"acc{chain}", dt.float32, 1)
        factor = ex.const(0.999 + chain * 1e-5, dt.float32)
        accumulators.append(Accumulator(acc, ex.const(0.0, dt.float32),
                                        ex.mad(acc, factor, 1.0), lhs(acc) + rhs(acc)))
    lane = ex.var("lane")
    axes = (Axis(k, ex.index(_ROUNDS), SERIAL), Axis(lane, ex.index(_LANES), VECTOR))
    reduce = Reduce(axes, tuple(accumulators), ())
    stores = tuple(Store(out, (t, ex.index(i)), a.var) for i, a in enumerate(accumulators))
    body = For(t, ex.index(threads), PARALLEL, (reduce, *stores))
    return Kernel("peak_fma", (out,), (body,), Meta("custom")), (
        threads * _ROUNDS * _LANES * _CHAINS * 2
    )
