"""Atomic operations on memory that only one thread of the processor sees.

What is shared by a block lies in memory of the thread that runs the block, so an operation on it
is a load, arithmetic and a store, lane after lane. Lanes that take no part write back what they
read of the first element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Atomic, Load, Memory, Stmt, Store
from weft.passes.common.lanes import Affine, Mapped, Scope

if TYPE_CHECKING:
    from weft.passes.vector.reduce import ReduceLowering

__all__ = ["changed", "is_private", "update"]

_BINARY: Final = {"add": Op.ADD, "sub": Op.SUB, "min": Op.MIN, "max": Op.MAX, "and": Op.AND,
                  "or": Op.OR, "xor": Op.XOR}  # fmt: skip


def is_private(memory: Memory) -> bool:
    """Whether nobody else can see the memory."""
    return memory.scope in ("local", "register")


def update(low: ReduceLowering, s: Atomic, scope: Scope, out: list[Stmt]) -> None:
    """Emit an atomic operation on private memory, for one thread or for lanes in their order."""
    memory, offset = low.offset(s, s.memory, s.index, scope)
    lanes = scope.lanes
    mask = None if scope.mask is None else low.name(out, "active", scope.mask.lanes, s)
    places = _named(low, offset, s, out)
    values = _named(low, low.map(s.value, scope), s, out)
    expected = None if s.compare is None else _named(low, low.map(s.compare, scope), s, out)
    results = None
    if lanes > 1 and low.is_read(s.var):
        results = Memory(low.fresh("old"), s.var.dtype, (ex.index(lanes),), "local")
        low.emit(out, Alloc(results), s)
    old = ex.const(0, s.var.dtype)
    for k in range(lanes):
        place = _of_lane(places, k)
        active = None if mask is None else ex.extract(mask, k)
        if active is not None:
            place = ex.where(active, place, ex.index(0))
        place = low.name(out, "place", place, s)
        old = low.new_var(str(s.var.attr), s.var.dtype)
        low.emit(out, Load(old, memory, (place,)), s)
        compare = None if expected is None else _of_lane(expected, k)
        new = changed(s.kind, old, _of_lane(values, k), compare)
        if active is not None:
            new = ex.where(active, new, old)
        low.emit(out, Store(memory, (place,), new), s)
        if results is not None:
            low.emit(out, Store(results, (ex.index(k),), old), s)
    if results is not None:
        old = low.new_var(str(s.var.attr), s.var.dtype, lanes)
        low.emit(out, Load(old, results, (ex.index(0),)), s)
    scope.mapped[s.var] = old


def _named(low: ReduceLowering, m: Mapped, s: Stmt, out: list[Stmt]) -> Mapped:
    return m if isinstance(m, Affine) or m.lanes == 1 else low.name(out, "lanes", m, s)


def _of_lane(m: Mapped, k: int) -> Expr:
    if isinstance(m, Affine):
        return m.base + m.stride * k
    return ex.extract(m, k)


def changed(kind: str, old: Expr, value: Expr, compare: Expr | None) -> Expr:
    """Return what an element holds after an operation."""
    d = old.dtype
    if d.is_float and d.bits < 32 and kind != "cas":  # computed in float32
        a, b = ex.cast(old, dt.float32), ex.cast(value, dt.float32)
    else:
        a, b = old, value
    if d.is_float and kind in ("min", "max", "nanmin", "nanmax"):
        replaces = b.lt(a) if kind.endswith("min") else a.lt(b)
        if kind.startswith("nan"):  # a NaN gives way
            replaces = ex.binary(Op.OR, replaces, ex.binary(Op.AND, a.ne(a), b.eq(b)))
        return ex.where(replaces, value, old)
    if kind in _BINARY and a is not old:
        return ex.cast(ex.binary(_BINARY[kind], a, b), d)
    if kind in _BINARY:
        return ex.binary(_BINARY[kind], old, value)
    if kind == "cas":
        assert compare is not None
        if not old.dtype.is_float:
            return ex.where(old.eq(compare), value, old)
        word = dt.unsigned(old.dtype.bits)  # bits decide, as in hardware
        same = ex.bitcast(old, word).eq(ex.bitcast(compare, word))
        return ex.where(same, value, old)
    if kind == "inc":
        return ex.where(value.le(old), ex.const(0, old.dtype), old + 1)
    if kind == "dec":
        wraps = ex.binary(Op.OR, old.eq(0), value.lt(old))
        return ex.where(wraps, value, old - 1)
    return value
