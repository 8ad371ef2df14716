"""Verify that a rewrite keeps the index set that each array parameter of a kernel stores.

A pass that cuts a range, leaves terms of a sum out or tiles a loop may change in which order
elements are stored, never which. The set of a nest is enumerated: for each array, a flag an
element. It is unknown, and nothing is checked, where a place depends on data or on a symbolic size,
or where there are more than `MOST` points. A kernel that a user wrote may have places outside of an
array: its assertions stop it before such a store, and its set is not known either. A rewrite or a
nest of a graph that stores outside is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.ir.stmt import Assert, Block, Body, For, If, Kernel, Let, Memory, Reduce, Store
from weft.ir.traverse import stores, walk

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MOST: Final = 1 << 16  # points of the loops around a store
LARGEST: Final = 1 << 22  # elements of an array that so many points may store


class Unknown(Exception):
    """A place, a condition or an extent that depends on data or on a symbolic size."""


class Outside(Exception):
    """A place that is known and not in the array."""


def verify_same_stores(before: Kernel, after: Kernel, what: str) -> None:
    """Check that a rewritten kernel stores each element that the kernel before it stored.

    Parameters
    ----------
    before, after : Kernel
        The kernel and what a pass made of it; their parameters are matched by name, and an array
        of another shape is the same elements in row-major order.
    what : str
        The pass, for the message.

    Raises
    ------
    VerifyError
        If the index set of an array has changed, or a place is only now outside of it.
    """
    found = stored(before)
    changed, outside = _marked(after)
    for name in found.keys() & outside:
        raise VerifyError(what, found=f"a place outside of {name} is only now stored",
                          expected="the index set stored before")
    for name in found.keys() & changed.keys():
        differ = (found[name] != changed[name]).nonzero()[0]
        if len(differ):
            at = int(differ[0])
            kind = "no longer" if found[name][at] else "only now"
            raise VerifyError(what, found=f"{len(differ)} elements of {name} are {kind} stored, "
                              f"the first at {at}", expected="the index set stored before")


def verify_whole(kernel: Kernel, outputs: Iterable[Memory], what: str) -> None:
    """Check that a kernel stores every element of its outputs.

    Raises
    ------
    VerifyError
        If an element of an output is never stored, or a place outside of it is and no assertion
        can stop the kernel before.
    """
    found, outside = _marked(kernel)
    stops = bool(outside) and any(isinstance(s, Assert) for s in walk(kernel.body))
    for memory in outputs:
        if memory.name in outside and not stops:
            raise VerifyError(what, found=f"a place outside of {memory.name} is stored",
                              expected="places of its elements")
        flags = found.get(memory.name)
        if flags is not None and not flags.all():
            at = int((~flags).nonzero()[0][0])
            raise VerifyError(what, found=f"element {at} of {memory.name} is never stored",
                              expected="every element of an output")


def stored(kernel: Kernel) -> dict[str, Array]:
    """Return for each array parameter which elements are stored, if that is known.

    Returns
    -------
    dict of str to array of bool
        One flag an element in row-major order, by the name of the parameter. Arrays whose index
        set is not known, or has places outside of the array, are left out.
    """
    return _marked(kernel)[0]


def _marked(kernel: Kernel) -> tuple[dict[str, Array], set[str]]:
    """Return the flags of arrays, and the names of those with places outside of them."""
    import numpy as np

    out: dict[str, Array] = {}
    outside: set[str] = set()
    written = stores(kernel.body)
    for memory in kernel.params:
        if memory not in written or not all(d.op is Op.CONST for d in memory.shape):
            continue
        size = math.prod(int(d.attr) for d in memory.shape)
        if size > LARGEST:
            continue
        flags = np.zeros(size, bool)
        try:
            _Points(memory, flags).body(kernel.body, {}, 1)
        except Outside:
            outside.add(memory.name)
        except Unknown:
            continue
        else:
            out[memory.name] = flags
    return out, outside


class _Points:
    """Marks what one array is given, for all points of the loops around a store at once."""

    def __init__(self, memory: Memory, flags: Array) -> None:
        self.memory, self.flags = memory, flags

    def body(self, body: Body, env: Mapping[Expr, Array], count: int) -> None:
        """Mark what statements store at `count` points, at which `env` gives loop variables."""
        known = dict(env)
        for stmt in body:
            if isinstance(stmt, Let):
                known.update(_let(stmt, known, count))
            if not self._stores(stmt):
                continue
            if isinstance(stmt, Store):
                self._store(stmt, known, count)
            elif isinstance(stmt, For):
                self._loops([(stmt.var, stmt.extent)], stmt.body, known, count)
            elif isinstance(stmt, Reduce):
                self._loops([(a.var, a.extent) for a in stmt.axes], stmt.body, known, count)
            elif isinstance(stmt, If):
                holds = _value(stmt.condition, known, count)
                self.body(stmt.then, *_at(holds, known))
                self.body(stmt.orelse, *_at(~holds, known))
            elif isinstance(stmt, Block):
                self.body(stmt.body, known, count)
            else:
                raise Unknown

    def _stores(self, stmt: Any) -> bool:
        return any(self.memory in s.writes() for s in walk((stmt,)))

    def _loops(self, loops: list[tuple[Expr, Expr]], body: Body, env: Mapping[Expr, Array],
               count: int) -> None:
        import numpy as np

        known = dict(env)
        for var, extent in loops:
            turns = np.maximum(_value(extent, known, count), 0)
            total = int(turns.sum())
            if total > MOST:
                raise Unknown
            points = np.repeat(np.arange(count), turns)
            first = np.repeat(np.cumsum(turns) - turns, turns)
            known = {v: values[points] for v, values in known.items()}
            known[var] = np.arange(total) - first
            count = total
        self.body(body, known, count)

    def _store(self, stmt: Store, env: Mapping[Expr, Array], count: int) -> None:
        if stmt.value.lanes > 1:
            raise Unknown
        if stmt.mask is not None:
            env, count = _at(_value(stmt.mask, env, count), env)
        position: Any = 0
        for index, size in zip(stmt.index, stmt.memory.shape, strict=True):
            at, length = _value(index, env, count), int(size.attr)
            if ((at < 0) | (at >= length)).any():
                raise Outside
            position = position * length + at
        self.flags[position] = True


def _let(stmt: Let, env: Mapping[Expr, Array], count: int) -> dict[Expr, Array]:
    try:
        return {stmt.var: _value(stmt.value, env, count)}
    except Unknown:
        return {}


def _at(flags: Array, env: Mapping[Expr, Array]) -> tuple[dict[Expr, Array], int]:
    """Return the points at which a condition holds."""
    return {v: values[flags] for v, values in env.items()}, int(flags.sum())


def _value(root: Expr, env: Mapping[Expr, Array], count: int) -> Array:
    """Return the values of an integer or a condition at all points."""
    import numpy as np

    found: dict[Expr, Array] = {}
    for e in ex.toposort([root]):
        if e in env:
            found[e] = env[e]
        elif e.lanes > 1 or e.dtype not in (dt.int64, dt.bool_):
            raise Unknown
        elif e.op is Op.CONST:
            found[e] = np.full(count, e.attr)
        elif e.op in _MEANINGS and all(a.dtype in (dt.int64, dt.bool_) for a in e.args):
            found[e] = _MEANINGS[e.op](np, *[found[a] for a in e.args])
        else:
            raise Unknown
    return found[root]


_MEANINGS: Final[dict[Operation, Callable[..., Any]]] = {
    Op.ADD: lambda np, a, b: a + b,
    Op.SUB: lambda np, a, b: a - b,
    Op.MUL: lambda np, a, b: a * b,
    Op.NEG: lambda np, a: -a,
    Op.FLOORDIV: lambda np, a, b: np.floor_divide(a, np.where(b == 0, 1, b)),
    Op.MOD: lambda np, a, b: np.mod(a, np.where(b == 0, 1, b)),
    Op.MIN: lambda np, a, b: np.minimum(a, b),
    Op.MAX: lambda np, a, b: np.maximum(a, b),
    Op.LT: lambda np, a, b: a < b,
    Op.LE: lambda np, a, b: a <= b,
    Op.EQ: lambda np, a, b: a == b,
    Op.NE: lambda np, a, b: a != b,
    Op.AND: lambda np, a, b: a & b,
    Op.OR: lambda np, a, b: a | b,
    Op.NOT: lambda np, a: ~a,
    Op.WHERE: lambda np, c, a, b: np.where(c, a, b),
}

__all__ = ["MOST", "Outside", "Unknown", "stored", "verify_same_stores", "verify_whole"]
