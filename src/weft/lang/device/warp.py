"""What threads do together, and what hardware does with bits: intrinsics of `weft.gpu`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import FENCE_ORDERS, THREAD_SCOPES, Barrier, Collective, Fence
from weft.lang.core import scalar_math, scalars
from weft.lang.core.intrinsics import WARP, Everyone
from weft.lang.core.promotion import unify
from weft.lang.core.values import Group, Known, Value
from weft.lang.device.shared_memory import one_of

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["LOWERED"]

_FULL: Final = (1 << WARP) - 1


def _mask(c: Context, value: Value, node: ast.AST) -> Expr | None:
    """Return the threads that take part; None for all."""
    if isinstance(value, Known) and isinstance(value.value, int):
        bits = value.value
        if isinstance(bits, Everyone) or bits == -1:
            return None
        if c.warp != WARP and bits >= 0:
            raise c.wrong(node, f"the mask {bits:#x} names {WARP} threads of a warp of {c.warp}",
                          "gpu.ALL names all threads of a warp on every device; others come from "
                          "gpu.ballot_sync and gpu.activemask")
        if bits == _FULL:
            return None
        if not 0 < bits < _FULL:
            raise c.wrong(node, f"the mask {bits:#x}", "a mask has a bit for each of 32 threads")
        return ex.const(bits, dt.uint32)
    found = c.scalar(value, node, "a mask")
    if not found.dtype.is_integer:
        raise c.wrong(node, f"a mask of {found.dtype.name}", "a mask is a uint32")
    return scalars.convert(found, dt.uint32)


def _collect(c: Context, node: ast.AST, kind: str, d: DType, args: tuple[Expr, ...],
             mask: Expr | None = None, width: int = WARP, scope: str = "warp") -> Expr:  # fmt: skip
    var = c.fresh(kind, d)
    c.emit(Collective(var, kind, args, mask, width, scope), node)
    return var


def _shuffle(kind: str) -> Callable[..., Value]:
    def lower(c: Context, node: ast.Call, _: str, mask: Value, value: Value, lane: Value,
              width: Value) -> Value:  # fmt: skip
        size = c.known_int(width, node, "the width")
        if not 1 <= size <= WARP or size & (size - 1):
            raise c.wrong(node, f"a width of {size}", "a power of two up to 32")
        x = c.scalar(value, node)
        place = c.scalar(lane, node, "an integer")
        if place.dtype.is_float:
            raise c.wrong(node, f"a lane of {place.dtype.name}", "an integer")
        args = (x, scalars.convert(place, dt.int64))
        return _collect(c, node, kind, x.dtype, args, _mask(c, mask, node), size)

    return lower


def _vote(kind: str, d: DType) -> Callable[..., Value]:
    def lower(c: Context, node: ast.Call, _: str, mask: Value, predicate: Value) -> Value:
        holds = scalars.truth(c.scalar(predicate, node, "a condition"))
        return _collect(c, node, kind, d, (holds,), _mask(c, mask, node))

    return lower


def _count(kind: str, d: DType) -> Callable[..., Value]:
    def lower(c: Context, node: ast.Call, _: str, predicate: Value) -> Value:
        c.check_uniform(node)
        holds = scalars.truth(c.scalar(predicate, node, "a condition"))
        return _collect(c, node, kind, d, (holds,), scope="block")

    return lower


def _match_any(c: Context, node: ast.Call, _: str, mask: Value, value: Value) -> Value:
    return _collect(c, node, "match_any", dt.uint32, (c.scalar(value, node),),
                    _mask(c, mask, node))


def _match_all(c: Context, node: ast.Call, _: str, mask: Value, value: Value) -> Value:
    found = _collect(c, node, "match_all", dt.uint32, (c.scalar(value, node),),
                     _mask(c, mask, node))
    return Group((found, found.ne(0)))


def _activemask(c: Context, node: ast.Call, _: str) -> Value:
    return _collect(c, node, "ballot", dt.uint32, (ex.const(True, dt.bool_),))


def _lanemask_lt(c: Context, node: ast.Call, _: str) -> Value:
    lane = scalars.convert(c.index_of("laneid", node), dt.uint32)
    one = ex.const(1, dt.uint32)
    return ex.binary(Op.SHL, one, lane) - one


def _syncwarp(c: Context, node: ast.Call, _: str, mask: Value) -> Value:
    c.emit(Barrier("warp", _mask(c, mask, node)), node)
    return Known(None)


def _fence(scope: str) -> Callable[..., Value]:
    def lower(c: Context, node: ast.Call, _: str) -> Value:
        c.emit(Fence(scope), node)
        return Known(None)

    return lower


def _atomic_thread_fence(c: Context, node: ast.Call, _: str, order: Value, scope: Value) -> Value:
    c.emit(Fence(one_of(c, scope, THREAD_SCOPES, node, "the scope"),
                 one_of(c, order, FENCE_ORDERS, node, "the order")), node)
    return Known(None)


def _integer(c: Context, value: Value, node: ast.AST) -> Expr:
    x = c.scalar(value, node, "an integer")
    if not x.dtype.is_integer:
        raise c.wrong(node, f"bits of {x.dtype.name}", "an integer has bits")
    return x


def _popc(c: Context, node: ast.Call, _: str, value: Value) -> Value:
    return scalars.convert(ex.unary(Op.POPCOUNT, _integer(c, value, node)), dt.int32)


def _clz(c: Context, node: ast.Call, _: str, value: Value) -> Value:
    return scalars.convert(ex.unary(Op.CLZ, _integer(c, value, node)), dt.int32)


def _ffs(c: Context, node: ast.Call, _: str, value: Value) -> Value:
    x = _integer(c, value, node)
    below = ex.binary(Op.AND, x, ex.unary(Op.NEG, x)) - 1
    place = scalars.convert(ex.unary(Op.POPCOUNT, below), dt.int32) + 1
    return ex.where(x.eq(0), ex.const(0, dt.int32), place)


def _brev(c: Context, node: ast.Call, _: str, value: Value) -> Value:
    x = _integer(c, value, node)
    d = x.dtype
    if d.bits < 32:
        raise c.wrong(node, f"gpu.brev of {d.name}", "32 or 64 bits")
    u = dt.unsigned(d.bits)
    bits = ex.bitcast(x, u)
    size = 1
    while size < d.bits:
        # bits of each pair of fields change places: 0x5555 picks the lower field of size 1
        low = sum(((1 << size) - 1) << at for at in range(0, d.bits, 2 * size))
        lower = ex.binary(Op.AND, bits, ex.const(low, u))
        upper = ex.binary(Op.AND, ex.binary(Op.SHR, bits, ex.const(size, u)), ex.const(low, u))
        bits = ex.binary(Op.OR, ex.binary(Op.SHL, lower, ex.const(size, u)), upper)
        size *= 2
    return ex.bitcast(bits, d)


def _fma(c: Context, node: ast.Call, _: str, a: Value, b: Value, addend: Value) -> Value:
    given = [c.scalar(v, node) for v in (a, b, addend)]
    d = scalar_math.float_type(*given)
    return ex.mad(*(scalars.convert(x, d) for x in given))


def _rsqrt(c: Context, node: ast.Call, _: str, value: Value) -> Value:
    x = c.scalar(value, node)
    return ex.unary(Op.RSQRT, scalars.convert(x, scalar_math.float_type(x)))


def _cbrt(c: Context, node: ast.Call, _: str, value: Value) -> Value:
    x = c.scalar(value, node)
    return scalar_math.cube_root(scalars.convert(x, scalar_math.float_type(x)))


def _selp(c: Context, node: ast.Call, _: str, condition: Value, a: Value, b: Value) -> Value:
    test = scalars.truth(c.scalar(condition, node, "a condition"))
    x, y = c.scalar(a, node), c.scalar(b, node)
    d = unify(x.dtype, y.dtype)
    return ex.where(test, scalars.convert(x, d), scalars.convert(y, d))


LOWERED: Final[dict[str, Callable[..., Value]]] = {
    "shfl_sync": _shuffle("shuffle_idx"), "shfl_up_sync": _shuffle("shuffle_up"),
    "shfl_down_sync": _shuffle("shuffle_down"), "shfl_xor_sync": _shuffle("shuffle_xor"),
    "any_sync": _vote("vote_any", dt.bool_), "all_sync": _vote("vote_all", dt.bool_),
    "eq_sync": _vote("vote_eq", dt.bool_), "ballot_sync": _vote("ballot", dt.uint32),
    "match_any_sync": _match_any, "match_all_sync": _match_all, "activemask": _activemask,
    "lanemask_lt": _lanemask_lt, "syncwarp": _syncwarp, "threadfence": _fence("device"),
    "atomic_thread_fence": _atomic_thread_fence, "threadfence_block": _fence("block"),
    "threadfence_system": _fence("system"),
    "syncthreads_count": _count("count", dt.int64), "syncthreads_and": _count("all", dt.bool_),
    "syncthreads_or": _count("any", dt.bool_), "popc": _popc, "clz": _clz, "brev": _brev,
    "ffs": _ffs, "fma": _fma, "rsqrt": _rsqrt, "selp": _selp, "cbrt": _cbrt,
}  # fmt: skip
