"""Operations of a warp as operations on the lanes of a vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Collective, Load, Memory, Stmt, Store
from weft.passes.common.lanes import Mapped, any_of, first_lane

if TYPE_CHECKING:
    from weft.passes.vector.reduce import ReduceLowering

__all__ = ["shuffle", "vote"]


def vote(kind: str, value: Expr, active: Expr, mask: Expr | None = None) -> Expr:
    """Return what the active lanes find out of a predicate or a value.

    With a `mask` (uint32) each lane asks those that it names; groups of lanes may differ in it.
    """
    if mask is not None:
        return _masked_vote(kind, value, active, mask)
    if kind == "vote_any":
        return any_of(ex.binary(Op.AND, active, value))
    if kind == "vote_all":
        return _none(ex.binary(Op.AND, active, ex.unary(Op.NOT, value)))
    if kind == "vote_eq":
        every = _none(ex.binary(Op.AND, active, ex.unary(Op.NOT, value)))
        return ex.binary(Op.OR, every, _none(ex.binary(Op.AND, active, value)))
    if kind == "ballot":
        return _bits(ex.binary(Op.AND, active, value))
    return _match_all(value, active) if kind == "match_all" else _match_any(value, active)


def _masked_vote(kind: str, value: Expr, active: Expr, mask: Expr) -> Expr:
    def named(bits: Expr) -> Expr:
        lanes = max(bits.lanes, mask.lanes)
        return ex.binary(Op.AND, ex.broadcast(bits, lanes), ex.broadcast(mask, lanes))

    here = named(_bits(active))
    if kind.startswith("match"):
        same = named(_match_any(value, active))
        if kind == "match_any":
            return same
        every = ex.binary(Op.EQ, same, ex.broadcast(here, same.lanes))
        return ex.where(every, same, ex.const(0, dt.uint32, same.lanes))
    holds = named(_bits(ex.binary(Op.AND, active, value)))
    none = ex.const(0, dt.uint32, holds.lanes)
    if kind == "ballot":
        return holds
    if kind == "vote_any":
        return ex.binary(Op.NE, holds, none)
    every = ex.binary(Op.EQ, holds, here)
    return every if kind == "vote_all" else ex.binary(
        Op.OR, every, ex.binary(Op.EQ, holds, none))


def _none(flags: Expr) -> Expr:
    return ex.unary(Op.NOT, any_of(flags))


def _bits(flags: Expr) -> Expr:
    """Return the lanes whose flag is set, a bit each."""
    if flags.lanes > 1:
        return ex.cast(ex.bits(flags), dt.uint32)
    return ex.where(flags, ex.const(1, dt.uint32), ex.const(0, dt.uint32))


def _match_all(value: Expr, active: Expr) -> Expr:
    lanes = value.lanes
    first = ex.broadcast(first_lane(active, value), lanes)
    same = _none(ex.binary(Op.AND, active, ex.binary(Op.NE, value, first)))
    return ex.where(same, _bits(active), ex.const(0, dt.uint32))


def _match_any(value: Expr, active: Expr) -> Expr:
    """Compare every lane with every other."""
    lanes = value.lanes
    found = none = ex.const(0, dt.uint32, lanes)
    for lane in range(lanes):
        equal = ex.binary(Op.EQ, value, ex.broadcast(ex.extract(value, lane), lanes))
        present = ex.broadcast(ex.extract(active, lane), lanes)
        bit = ex.const(1 << lane, dt.uint32, lanes)
        found = ex.binary(Op.OR, found, ex.where(ex.binary(Op.AND, equal, present), bit, none))
    return found


def shuffle(low: ReduceLowering, s: Collective, args: list[Mapped], lanes: int,
            out: list[Stmt]) -> Expr:  # fmt: skip
    """Return the values of other lanes: rearranged where it is known from which, else by memory."""
    value, distance = args
    if isinstance(value, Expr) and value.lanes == 1:
        return value
    vector = low.vector(value, lanes)
    if isinstance(distance, Expr) and distance.op is Op.CONST:
        picks = [_source(s.kind, lane, int(distance.attr), s.width) for lane in range(lanes)]
        return ex.shuffle(vector, vector, [p if p < lanes else k for k, p in enumerate(picks)])
    place = _sources(s.kind, low.vector(distance, lanes), s.width, lanes)
    held = Memory(low.fresh("shuffled"), vector.dtype, (ex.index(lanes),), "local")
    low.emit(out, Alloc(held), s)
    low.emit(out, Store(held, (ex.index(0),), vector), s)
    found = low.new_var("other", vector.dtype, lanes)
    low.emit(out, Load(found, held, (place,)), s)
    return found


def _source(kind: str, lane: int, distance: int, width: int) -> int:
    """Return the lane that a lane reads."""
    first, own = lane - lane % width, lane % width
    if kind == "shuffle_idx":
        return first + distance % width
    if kind == "shuffle_xor":
        other = lane ^ distance
        return other if other < first + width and other >= 0 else lane
    other = own - distance if kind == "shuffle_up" else own + distance
    return first + other if 0 <= other < width else lane


def _sources(kind: str, distance: Expr, width: int, lanes: int) -> Expr:
    """Return the lanes that lanes read, by a distance that is known only when the kernel runs."""
    lane = ex.ramp(ex.index(0), lanes) if lanes > 1 else ex.index(0)
    size = ex.const(width, dt.int64, lanes)
    own = ex.binary(Op.MOD, lane, size)
    first = ex.binary(Op.SUB, lane, own)
    if kind == "shuffle_idx":
        other = ex.binary(Op.ADD, first, ex.binary(Op.MOD, distance, size))
    elif kind == "shuffle_xor":
        other = ex.binary(Op.XOR, lane, distance)
        inside = ex.binary(Op.LT, other, ex.binary(Op.ADD, first, size))
        inside = ex.binary(Op.AND, inside, ex.binary(Op.LE, ex.const(0, dt.int64, lanes), other))
        other = ex.where(inside, other, lane)
    else:
        op = Op.SUB if kind == "shuffle_up" else Op.ADD
        place = ex.binary(op, own, distance)
        inside = ex.binary(Op.AND, ex.binary(Op.LT, place, size),
                           ex.binary(Op.LE, ex.const(0, dt.int64, lanes), place))
        other = ex.where(inside, ex.binary(Op.ADD, first, place), lane)
    return ex.where(ex.binary(Op.LT, other, ex.const(lanes, dt.int64, lanes)), other, lane)
