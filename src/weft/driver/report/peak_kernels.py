"""Loop nests that measure the machine's peak memory bandwidth and FMA throughput.

They go through the same compiler as everything else, so that a share of the peak compares like
with like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTOR,
    Accumulator,
    Alloc,
    Axis,
    Body,
    For,
    Kernel,
    Load,
    Memory,
    Meta,
    Prefetch,
    Reduce,
    Stmt,
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
_LINE: Final = 16  # elements of float32
_TURNS: Final = 128  # that ask for one block of 32 KiB
_SIDE: Final = 16  # rows and words of a row of a tile register
_TWO_ONES: Final = 0x3F803F80  # two of bfloat16


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


def move_kernel(nbytes: int, copies: bool, streams: bool, asks: bool = False) -> Kernel:
    """Return a kernel that fills an array of `nbytes` bytes of float32, or copies one into it.

    With `streams`, its stores go past the caches; with `asks`, it asks ahead for all lines.
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
    hints = (_requests((source,) if streams else (source, target), c, k) if asks else ())
    nest = For(k, ex.index(count // _WIDE), SERIAL,
               (*hints, For(lane, ex.index(_WIDE), VECTOR, body)))
    params = (source, target) if copies else (target,)
    name = f"peak_{'copy' if copies else 'write'}{'_past' if streams else ''}{'_ahead' * asks}"
    return Kernel(name, params, (For(c, ex.index(_CHUNKS), PARALLEL, (nest,)),), Meta("custom"))


def _requests(memories: tuple[Memory, ...], c: Expr, k: Expr) -> tuple[Stmt, ...]:
    """Return requests for the next block of a row, a line from each of its parts in every turn."""
    start = (k // _TURNS + 1) * (_TURNS * _WIDE) + k % _TURNS * _LINE
    return tuple(Prefetch(memory, (c, start + place * (_TURNS * _LINE)))
                 for place in range(_WIDE // _LINE) for memory in memories)


def fma_kernel(threads: int, rounds: int = _ROUNDS, lanes: int = _LANES,
               fused: bool = True) -> tuple[Kernel, int]:  # fmt: skip
    """Return a kernel of independent chains of FMA on each thread, and its operations.

    A chain has a vector of `lanes` elements; one is a number. What is not `fused` is a product and
    a sum, for devices on which a multiply-add of one rounding is more than an instruction.
    """
    out = Memory("out", dt.float32, (ex.index(threads), ex.index(_CHAINS)))
    t, k = ex.var("t"), ex.var("k")
    accumulators = []
    for chain in range(_CHAINS):
        acc = ex.var(f"acc{chain}", dt.float32, 1)
        factor = ex.const(0.999 + chain * 1e-5, dt.float32)
        step = ex.mad(acc, factor, 1.0) if fused else acc * factor + 1.0
        accumulators.append(Accumulator(acc, ex.const(0.0, dt.float32), step, lhs(acc) + rhs(acc)))
    axes: tuple[Axis, ...] = (Axis(k, ex.index(rounds), SERIAL),)
    if lanes > 1:
        axes += (Axis(ex.var("lane"), ex.index(lanes), VECTOR),)
    reduce = Reduce(axes, tuple(accumulators), ())
    stores = tuple(Store(out, (t, ex.index(i)), a.var) for i, a in enumerate(accumulators))
    body = For(t, ex.index(threads), PARALLEL, (reduce, *stores))
    return Kernel("peak_fma", (out,), (body,), Meta("custom")), (
        threads * rounds * lanes * _CHAINS * 2
    )


def tile_kernel(threads: int, rounds: int = _ROUNDS // 4) -> tuple[Kernel, int]:
    """Return a kernel of products of bfloat16 in tile registers (AMX), and its operations.

    Two tiles by two stay in registers, as do the four tiles of results.
    """
    out = Memory("out", dt.float32, (ex.index(threads), ex.index(_SIDE)))
    left, right = (_tiles(name, dt.uint32, 2) for name in ("left", "right"))
    sums = _tiles("sums", dt.float32, 2, 2).replace(scope="register")
    kept = _tiles("kept", dt.float32, 2, 2)
    t, k, lane, zero = ex.var("t"), ex.var("k"), ex.var("lane"), ex.index(0)
    nothing = ex.broadcast(ex.const(0.0, dt.float32), _SIDE * _SIDE)
    a, b = (ex.var(name, dt.uint32, _SIDE * _SIDE) for name in "ab")
    total, found = (ex.var(name, dt.float32, _SIDE * _SIDE) for name in ("total", "found"))
    first = ex.var("first", dt.float32)
    product = ex.matrix(Op.MATRIX2, total, a, b)
    body = (
        Alloc(left), Alloc(right), Alloc(kept), Alloc(sums), _ones(left), _ones(right),
        _four("z", lambda i, j: (Store(sums, (i, j, zero), nothing),)),
        For(k, ex.index(rounds), SERIAL, (_four("p", lambda i, j: (
            Load(a, left, (i, zero)), Load(b, right, (j, zero)), Load(total, sums, (i, j, zero)),
            Store(sums, (i, j, zero), product))),)),
        _four("s", lambda i, j: (Load(found, sums, (i, j, zero)),
                                 Store(kept, (i, j, zero), found))),
        For(lane, ex.index(_SIDE), SERIAL, (Load(first, kept, (zero, zero, lane)),
                                            Store(out, (t, lane), first))),
    )
    return Kernel("peak_tiles", (out,), (For(t, ex.index(threads), PARALLEL, body),),
                  Meta("custom")), threads * rounds * 4 * 2 * 2 * _SIDE**3  # fmt: skip


def _tiles(name: str, dtype: dt.DType, *counts: int) -> Memory:
    return Memory(name, dtype, tuple(map(ex.index, (*counts, _SIDE * _SIDE))), "local")


def _ones(tiles: Memory) -> For:
    """Return the loops that set all elements of two tiles."""
    i, n = ex.var(f"i.{tiles.name}"), ex.var(f"n.{tiles.name}")
    return For(i, ex.index(2), SERIAL, (For(n, ex.index(_SIDE * _SIDE), SERIAL, (
        Store(tiles, (i, n), ex.const(_TWO_ONES, dt.uint32)),)),))


def _four(name: str, body: Callable[[Expr, Expr], Body]) -> For:
    """Return the loops over two tiles by two, all written out."""
    i, j = ex.var(f"i.{name}"), ex.var(f"j.{name}")
    return For(i, ex.index(2), UNROLLED, (For(j, ex.index(2), UNROLLED, body(i, j)),))
