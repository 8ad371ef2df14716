"""Accesses of several elements at once, copies on the side, and clocks: parts of `weft.gpu`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Address, Barrier, Clock, Load, Store
from weft.ir.tile import CACHES, COPY_BYTES, MISALIGNED, AsyncCopy, CopyCommit, CopyWait
from weft.lang.core import scalars
from weft.lang.core.values import Group, Known, Value, View, describe
from weft.lang.values.addresses import as_stored, place_of

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["LOWERED"]

_MOST_BYTES: Final = 16  # of one access


# --- several elements at once


def _elements(c: Context, node: ast.Call, array: Value, index: Value, count: int, what: str,
              beside: bool = True) -> View:  # fmt: skip
    """Return the first of some elements, checked against the array; they lie side by side."""
    if not isinstance(array, View) or not array.axes:
        raise c.wrong(node, f"{what} of {describe(array)}", "give it an array")
    as_stored(c, array, node)
    last = array.axes[-1]
    if beside and (last.axis != len(array.starts) - 1 or not ex.is_const(last.step, 1)):
        raise c.wrong(node, f"{what} of elements that do not lie side by side",
                      "the last axis of the array must be contiguous")
    keys = list(index.items if isinstance(index, Group) else (index,))
    if len(keys) != len(array.axes):
        raise c.wrong(node, f"{len(keys)} indices into an array of {len(array.axes)} axes")
    at = node.args[1] if len(node.args) > 1 else node
    if count > 1:
        key = scalars.convert(c.scalar(keys[-1], node, "an integer index"), dt.int64)
        inside = ex.binary(Op.AND, ex.index(0).le(key), key.le(last.extent - count))
        if c.checked:
            c.require(inside, "index out of bounds", node, key + (count - 1), last.extent)
        keys[-1] = key
    first = c.part(array, [(at, key) for key in keys], node)
    return first


def _must_be_aligned(c: Context, node: ast.Call, first: View, count: int) -> None:
    """Stop the kernel where some elements do not begin at a multiple of their bytes."""
    if not c.checked or count == 1:
        return
    memory = first.memory
    place = place_of(first)
    if memory.scope in ("global", "constant"):
        base = c.fresh("address", dt.int64)
        c.emit(Address(base, memory), node)
        rest = (base + place * memory.dtype.itemsize) % (count * memory.dtype.itemsize)
    else:  # begins at a multiple of 16 bytes
        rest = place % count
    c.require(rest.eq(0), MISALIGNED, node, place)


def _width(c: Context, node: ast.Call, array: Value, count: Value) -> int:
    n = c.known_int(count, node, "the number of elements")
    size = array.memory.dtype.itemsize if isinstance(array, View) else 1
    if n < 1 or n & (n - 1) or n * size > max(_MOST_BYTES, size):
        raise c.wrong(node, f"an access of {n} elements, {n * size} bytes",
                      f"1, 2, 4 ... elements, at most {_MOST_BYTES} bytes")
    return n


def _side_by_side(first: View, k: int) -> tuple[Expr, ...]:
    return (*first.starts[:-1], first.starts[-1] + k)


def _load(c: Context, node: ast.Call, _: str, array: Value, index: Value, count: Value) -> Value:
    n = _width(c, node, array, count)
    first = _elements(c, node, array, index, n, "gpu.load")
    _must_be_aligned(c, node, first, n)
    found = []
    for k in range(n):
        var = c.fresh(first.memory.name, first.memory.dtype)
        c.emit(Load(var, first.memory, _side_by_side(first, k)), node)
        found.append(var)
    return Group(tuple(found))


def _store(c: Context, node: ast.Call, _: str, array: Value, index: Value, values: Value) -> Value:
    if not isinstance(values, Group):
        raise c.wrong(node, f"gpu.store of {describe(values)}", "give it a tuple of values")
    n = _width(c, node, array, Known(len(values.items)))
    first = _elements(c, node, array, index, n, "gpu.store")
    if first.readonly:
        raise c.wrong(node, f"{first.memory.name} is read-only")
    _must_be_aligned(c, node, first, n)
    given = [scalars.convert(c.scalar(v, node), first.memory.dtype) for v in values.items]
    for k, value in enumerate(given):
        c.emit(Store(first.memory, _side_by_side(first, k), value), node)
    return Known(None)


# --- one element, with a word about caches, which changes speed and never a result


def _cached_load(c: Context, node: ast.Call, _: str, array: Value, index: Value) -> Value:
    first = _elements(c, node, array, index, 1, "a load", False)
    var = c.fresh(first.memory.name, first.memory.dtype)
    c.emit(Load(var, first.memory, first.starts), node)
    return var


def _cached_store(streaming: bool) -> Callable[..., Value]:
    def lower(c: Context, node: ast.Call, _: str, array: Value, index: Value,
              value: Value) -> Value:  # fmt: skip
        first = _elements(c, node, array, index, 1, "a store", False)
        if first.readonly:
            raise c.wrong(node, f"{first.memory.name} is read-only")
        x = scalars.convert(c.scalar(value, node), first.memory.dtype)
        c.emit(Store(first.memory, first.starts, x, None, streaming), node)
        return Known(None)

    return lower


# --- copies on the side


def _copy(c: Context, node: ast.Call, _: str, target: Value, source: Value, count: Value,
          cache: Value) -> Value:  # fmt: skip
    n = c.known_int(count, node, "the number of elements")
    hint = cache.value if isinstance(cache, Known) else None
    if hint not in CACHES:
        raise c.wrong(node, f"{describe(cache)} as a cache hint", "one of " + ", ".join(CACHES))
    if not (isinstance(target, View) and isinstance(source, View)):
        raise c.wrong(node, f"a copy from {describe(source)} to {describe(target)}", "arrays, each"
                      " from its first element on: s[i:], x[j:]")
    as_stored(c, target, node)
    as_stored(c, source, node)
    if target.memory.scope != "shared" or source.memory.scope not in ("global", "constant"):
        raise c.wrong(node, f"a copy from {source.memory.scope} to {target.memory.scope} memory",
                      "copies on the side go from arguments to shared arrays")
    d = target.memory.dtype
    if source.memory.dtype is not d:
        raise c.wrong(node, f"a copy from {describe(source)} to {describe(target)}",
                      "one type of elements")
    total = n * d.itemsize
    piece = next((size for size in reversed(COPY_BYTES) if total % size == 0), 0)
    if n < 1 or not piece or (hint == "L2" and piece != 16):
        raise c.wrong(node, f"a copy of {n} elements, {total} bytes",
                      "a multiple of 16 bytes" if hint == "L2" else "a multiple of 4 bytes")
    step = piece // d.itemsize
    starts = []
    for view in (target, source):
        if not view.axes:
            raise c.wrong(node, f"a copy of {describe(view)}", "arrays, each from its first "
                          "element on: s[i:], x[j:]")
        found = c.window(view, len(view.axes) - 1, n, node)
        zeros: list[Value] = [Known(0) for _ in view.axes]
        first = _elements(c, node, found, Group(tuple(zeros)), 1, "gpu.memcpy_async")
        _must_be_aligned(c, node, first, step)
        starts.append(first)
    for k in range(0, n, step):
        into, out_of = (_side_by_side(first, k) for first in starts)
        c.emit(AsyncCopy(target.memory, into, source.memory, out_of, step, str(hint)), node)
    return Known(None)


def _commit(c: Context, node: ast.Call, _: str) -> Value:
    c.emit(CopyCommit(), node)
    return Known(None)


def _wait(c: Context, node: ast.Call, _: str, pending: Value) -> Value:
    n = c.known_int(pending, node, "the number of groups")
    if n < 0:
        raise c.wrong(node, f"a wait for all but {n} groups", "0 or more")
    c.emit(CopyWait(n), node)
    return Known(None)


# --- clocks, and the barrier of the grid


def _clock(kind: str, bits: int) -> Callable[..., Value]:
    def lower(c: Context, node: ast.Call, _: str) -> Value:
        var = c.fresh("clock", dt.int64)
        c.emit(Clock(var, kind), node)
        return var if bits == 64 else scalars.convert(var, dt.int32)

    return lower


def _nanosleep(c: Context, node: ast.Call, _: str, duration: Value) -> Value:
    x = c.scalar(duration, node, "nanoseconds")
    if not x.dtype.is_integer:
        raise c.wrong(node, f"nanoseconds of {x.dtype.name}", "an integer")
    return Known(None)  # a thread may sleep for no time at all


def _grid_sync(c: Context, node: ast.Call, _: str) -> Value:
    c.check_uniform(node)
    c.emit(Barrier("grid"), node)
    return Known(None)


LOWERED: Final[dict[str, Callable[..., Value]]] = {
    "load": _load, "store": _store, "memcpy_async": _copy, "commit_group": _commit,
    "wait_group": _wait, "clock": _clock("cycles", 32), "clock64": _clock("cycles", 64),
    "globaltimer": _clock("nanoseconds", 64), "nanosleep": _nanosleep, "grid_sync": _grid_sync,
    **dict.fromkeys(("ldca", "ldcg", "ldcs", "ldlu", "ldcv"), _cached_load),
    "stcg": _cached_store(False), "stcs": _cached_store(True), "stwb": _cached_store(False),
    "stwt": _cached_store(False),
}  # fmt: skip
