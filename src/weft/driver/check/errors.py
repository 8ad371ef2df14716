"""Error bounds of correct evaluations of a graph, node by node and element by element.

An element whose every step is exact has the bound 0: all correct evaluations agree bit for bit.
Other floats carry a bound: each operation is evaluated again at its operands plus and minus their
bounds, and its own rounding is added. A bound is infinite where none is known: near a
discontinuity (a comparison of values that may be equal, an index that is not exact), where a
result overflows in some order of summation, and in everything computed from such an element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft.driver.check.graph import Environment, open_index, operation, value_of
from weft.driver.check.scalars import Array, cast, elementwise
from weft.ir import dtype as dt
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.op import Op, Operation
from weft.passes.transcendental import TRANSCENDENTALS

__all__ = ["Reference"]

_MOVES: Final = frozenset({
    Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SLICE, Op.WINDOW, Op.UNWINDOW, Op.STRIDED, Op.CONTIGUOUS,
    Op.DETACH, Op.COPY,
})  # fmt: skip
_COMPARISONS: Final = frozenset({Op.LT, Op.LE, Op.EQ, Op.NE})
_JUMPS: Final = frozenset({Op.POW, Op.FMOD, Op.MOD, Op.FLOORDIV, Op.ATAN2, Op.COPYSIGN, Op.TAN})
_QUOTIENTS: Final = frozenset({Op.DIV, Op.RECIPROCAL, Op.RSQRT})
_PERIODIC: Final = frozenset({Op.SIN, Op.COS})
_WIDEST_ANGLE: Final = 0.3  # an error of an angle whose ends still say something of what is between
_FUNCTION_ROUNDINGS: Final = 3  # of functions that are not correctly rounded
_F64: Final = np.float64
_SLACK: Final = 1.001  # for the rounding of the bounds themselves
_LEAST: Final = 2.0**-1074  # an error that leaves nothing open but the sign of a zero
_LEAST_NORMAL: Final = 2.0**-126  # of bfloat16 and float32
_EXACT_UNITS: Final = 2.0**10  # terms that are multiples of its reciprocal
_MOST_EXACT: Final = 2.0**22  # add up without rounding while their magnitudes, in units, do
_MOST_DOUBLINGS: Final = 100.0  # of a product of elements: further on it may overflow on the way
_Context = tuple[Node, Sequence[Any], Sequence[Any], Any, Environment]


class Reference:
    """Values of graphs and how far two correct evaluations may differ; graphs may grow.

    What was evaluated once is kept, so that a question costs only what lies between it and the
    questions before.

    Parameters
    ----------
    env
        The arrays at leaves, and the values of symbolic sizes.

    Attributes
    ----------
    values, errors : dict of Node to array
        The value of each node so far, and the bound of its error: an array, or a tuple of them.
    """

    __slots__ = ("_env", "errors", "values")

    def __init__(self, env: Environment | None = None) -> None:
        self._env = env or Environment()
        self.values: dict[Node, Any] = {}
        self.errors: dict[Node, Any] = {}

    def add(self, nodes: Iterable[Node]) -> None:
        """Evaluate nodes and all below them.

        Raises
        ------
        BoundsError
            If an index that is data is out of range.
        """
        values, errors = self.values, self.errors
        with np.errstate(all="ignore"):
            for node in nd.toposort(nodes):
                if node not in values:
                    args, own = [values[a] for a in node.args], [errors[a] for a in node.args]
                    if _sums_narrow_products(node):
                        factors = [values[f] for f in node.args[0].args]
                        own = [own[0] + _counted_as_zero(*factors)]
                    value = value_of(node, args, self._env)
                    errors[node] = _bound(node, args, own, value, self._env)
                    values[node] = value

    def of(self, node: Node) -> tuple[Array, Array]:
        """Return the value of a node and the bound of its error, element by element."""
        self.add([node])
        return self.values[node], np.broadcast_to(self.errors[node], self._env.shape(node))

    def is_exact(self, node: Node) -> bool:
        """Whether all correct evaluations of a node agree bit for bit."""
        return not self.of(node)[1].any()


def _bound(node: Node, args: Sequence[Any], own: Sequence[Any], value: Any,
           env: Environment) -> Any:  # fmt: skip
    if not node.args:
        return np.zeros(env.shape(node))
    rule = _RULES.get(node.op)
    if node.op in _MOVES:
        error = operation(_as_double(node), [own[0], *args[1:]], env)
    elif rule is not None:
        error = rule((node, args, own, value, env))
    else:
        error = _elementwise((node, args, own, value, env))
    if isinstance(error, tuple) or not node.dtype.is_float:
        return error
    return _finite(node, value, np.where(np.isnan(error), np.inf, error))


def _finite(node: Node, value: Array, error: Array) -> Array:
    """Return a bound without those of results that may be infinite, but for exact ones."""
    wide = np.abs(value.astype(np.float64))
    top = float(np.float64(2.0) ** (1 << (node.dtype.exponent - 1)))
    lost = (error > 0) & ~(wide + error < top * (1 - node.dtype.eps))
    return np.where(lost, np.inf, error)


def _as_double(node: Node) -> Node:
    return nd.make(node.op, dt.float64, node.shape, node.args, node.attr)


def _rounding(node: Node, value: Array) -> Array:
    """Return the rounding of one operation, and the smallest normal number for subnormals."""
    least = 2.0 ** (2 - (1 << (node.dtype.exponent - 1)))
    return max(node.dtype.eps, 2.0**-52) * np.abs(value.astype(np.float64)) + least


def _unknown(where: Any) -> Array:
    return np.where(where, np.inf, 0.0)


# elementwise


def _elementwise(context: _Context) -> Array:
    node, args, own, value, _ = context
    inexact = np.zeros(np.shape(value), bool)
    for error in own:
        inexact |= error > 0
    rounds = node.op in TRANSCENDENTALS and node.op is not Op.RECIPROCAL
    rounds |= node.op is Op.MAD and node.dtype is dt.float64  # NumPy has no wider type for it
    if not inexact.any() and (not rounds or not node.dtype.is_float):
        return np.zeros(np.shape(value))
    if not node.dtype.is_float:
        error = _unknown(inexact)
    elif node.op in _JUMPS:
        error = np.where(inexact, np.inf, _FUNCTION_ROUNDINGS * _rounding(node, value))
    else:
        roundings = _FUNCTION_ROUNDINGS if rounds else 1
        error = _shaken(node, args, own) * _SLACK + roundings * _rounding(node, value)
        error = np.where(np.isnan(error), _unknown(inexact), error)
    return error if rounds else np.where(inexact, error, 0.0)


def _shaken(node: Node, args: Sequence[Array], own: Sequence[Array]) -> Array:
    """Return how far a result moves when operands move by their errors."""
    wide = [a.astype(np.float64) for a in args]
    middle = elementwise(node.op, dt.float64, wide, _F64)
    moved = np.zeros(middle.shape)
    for corner in range(1 << len(args)):
        signs = [1 if corner >> k & 1 else -1 for k in range(len(args))]
        there = elementwise(node.op, dt.float64, [
            w + s * e for w, s, e in zip(wide, signs, own, strict=True)], _F64)
        moved = np.maximum(moved, np.where(there == middle, 0.0, np.abs(there - middle)))
    if node.op in _PERIODIC:  # its ends say nothing of a whole period
        moved = np.where(own[0] < _WIDEST_ANGLE, moved, np.inf)
    if node.op in _QUOTIENTS:  # its ends say nothing of a pole between them
        moved = np.where(np.abs(wide[-1]) > own[-1], moved, np.inf)
    return np.where(np.isnan(moved), np.inf, moved)


def _compare(context: _Context) -> Array:
    _, (a, b), own, _, _ = context
    reach = own[0] + own[1]
    if a.dtype == bool or not dt.as_dtype(a.dtype).is_float:
        return _unknown(reach > 0)
    near = ~(np.abs(a.astype(np.float64) - b.astype(np.float64)) > reach)
    return _unknown((reach > 0) & near)


def _where(context: _Context) -> Array:
    _, args, own, _, _ = context
    chosen = np.where(args[0], own[1], own[2])
    return np.where(own[0] > 0, np.inf, chosen)


def _cast(context: _Context) -> Array:
    node, args, own, value, _ = context
    if not node.dtype.is_float:
        low, high = (_cast_near(args[0], s * own[0], node) for s in (-1, 1))
        return _unknown((own[0] > 0) & ((low != high) | ~np.isfinite(own[0])))
    return np.where(own[0] > 0, own[0] + _rounding(node, value), 0.0)


def _cast_near(x: Array, moved: Array, node: Node) -> Array:
    """Return what a conversion makes of values that are off by `moved`."""
    if not dt.as_dtype(x.dtype).is_float:
        return cast(x, node.dtype)
    return cast(x.astype(np.float64) + np.where(np.isfinite(moved), moved, 0), node.dtype)


def _bitcast(context: _Context) -> Array:
    return _unknown(context[2][0] > 0)


# reductions and scans


def _sums_narrow_products(node: Node) -> bool:
    """Whether a node sums products of bfloat16 in float32."""
    return node.op is Op.REDUCE and node.attr.kind == "sum" and node.dtype is dt.float32 and (
        node.args[0].op is Op.MUL and all(map(_is_narrow, node.args[0].args)))


def _is_narrow(node: Node) -> bool:
    while node.op.group == "movement" or node.op in _MOVES:
        node = node.args[0]
    return node.op is Op.CAST and node.args[0].dtype is dt.bfloat16


def _counted_as_zero(a: Array, b: Array) -> Array:
    """Return the products that dot products of bfloat16 may count as zeros.

    They are those of subnormal elements and those that are subnormal (`docs/design/numerics.md`).
    """
    a, b = np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))
    product = a * b
    lost = (a < _LEAST_NORMAL) | (b < _LEAST_NORMAL) | (product < _LEAST_NORMAL)
    return np.where(lost, product, 0.0)


def _reduce(context: _Context) -> Array:
    node, (x,), (error,), value, _ = context
    axes, kind = node.attr.axes, node.attr.kind
    most = np.max(error, axis=axes, initial=0)
    if kind in ("max", "min"):
        return np.asarray(most)
    if not node.dtype.is_float:
        return _unknown(most > 0)
    count = x.size // max(np.size(value), 1)
    return _totalled(node, x, error, value, (np.sum, axes, count))


def _totalled(node: Node, x: Array, error: Array, value: Array,
              how: tuple[Callable[..., Any], Any, int]) -> Array:  # fmt: skip
    """Return the bound of sums or products: `how` adds up, along which axes, how many at most."""
    total, axes, count = how
    if node.attr.kind == "sum" and (count <= 1 or _adds_exactly(node, x, error)):
        return np.asarray(np.maximum(total(error, axis=axes), _open_sign(x, total, axes)))
    if count <= 1:
        return np.asarray(total(error, axis=axes))
    step = 2.0 ** (-52 if node.dtype is dt.float64 else -23)
    wide = np.abs(x.astype(np.float64))
    if node.attr.kind == "sum":
        size = total(wide + error, axis=axes)
        bound = total(error, axis=axes) + count * step * size + 4 * _rounding(node, value)
        top = float(np.float64(2.0) ** (1 << (node.dtype.exponent - 1)))
        return np.where(size < top, bound, np.inf)
    doublings = total(np.abs(np.log2(np.where(wide > 0, wide, 1))), axis=axes)
    safe = (total(error, axis=axes) == 0) & (doublings < _MOST_DOUBLINGS)
    return np.where(safe, 2 * count * _rounding(node, value), np.inf)


def _adds_exactly(node: Node, x: Array, error: Array) -> bool:
    """Whether a sum needs no rounding in whichever order it is taken."""
    if node.dtype.bits < 32 or np.any(error):
        return False
    units = x.astype(np.float64) * _EXACT_UNITS
    return bool((units == np.trunc(units)).all() and np.abs(units).sum() < _MOST_EXACT)


def _open_sign(x: Array, total: Callable[..., Any], axes: Any) -> Array:
    """Return the least error where a sum of zeros may have either sign.

    A sum of negative zeros is one, unless it begins with 0 or with a term of padding.
    """
    zeros, negative = total(x != 0, axis=axes) == 0, total(np.signbit(x), axis=axes) > 0
    return np.where(zeros & negative, _LEAST, 0.0)


def _argreduce(context: _Context) -> Array:
    node, _, (error,), _, _ = context
    return _unknown(np.any(error > 0, axis=node.attr.axis))


def _scan(context: _Context) -> Array:
    node, (x,), (error,), value, _ = context
    axis, kind = node.attr.axis, node.attr.kind
    if node.attr.reverse:
        forwards = node.attr.replace(reverse=False)
        like = nd.make(node.op, node.dtype, node.shape, node.args, forwards)
        flipped = [np.flip(a, axis) for a in (x, error, value)]
        return np.flip(_scan((like, flipped[:1], flipped[1:2], flipped[2], context[4])), axis)
    most = np.broadcast_to(np.max(error, axis=axis, keepdims=True, initial=0), x.shape)
    if kind in ("max", "min"):
        return most
    if not node.dtype.is_float:
        return _unknown(most > 0)
    if kind == "logsumexp":
        return np.asarray(most + x.shape[axis] * 2.0**-20 * (1 + np.abs(value.astype(np.float64))))
    return _totalled(node, x, error, value, (np.cumsum, axis, x.shape[axis]))


def _recurrence(context: _Context) -> Array:
    node, (a, b), own, value, env = context
    if max(np.max(e, initial=0) for e in own) > 0:
        return np.full(value.shape, np.inf)
    like = _as_double(node)
    wide = [np.abs(x.astype(np.float64)) for x in (a, b)]
    size = operation(like, wide, env)  # no order of the steps makes larger partial results
    count = value.shape[node.attr.axis]
    eps = max(node.dtype.eps, 2.0**-52)
    reach = np.maximum(np.cumprod(np.maximum(wide[0], 1), axis=node.attr.axis), 1)
    return np.asarray(4 * count * eps * size * reach + 4 * _rounding(node, value))


# sorts, gathers, scatters


def _sort(context: _Context) -> tuple[Array, Array]:
    node, _, (error,), value, _ = context
    most = np.max(error, axis=node.attr.axis, keepdims=True, initial=0)
    most = np.broadcast_to(most, value[0].shape)
    return most, _unknown(most > 0)


def _project(context: _Context) -> Array:
    return context[2][0][context[0].attr]  # type: ignore[no-any-return]


def _pack(context: _Context) -> tuple[Array, Array]:
    _, (x, flags), (error, unsure), _, _ = context
    if np.any(unsure > 0):
        return np.full(x.shape, np.inf), np.asarray(np.inf)
    chosen = error[flags]
    rest = np.full(len(x) - len(chosen), np.inf)  # what is behind them nobody writes
    return np.concatenate([chosen, rest]), np.zeros(())


def _launch(context: _Context) -> tuple[Array, ...]:
    """Return bounds of a kernel of the user: only its atomics of floats may round otherwise."""
    _, _, own, value, _ = context
    if any(np.any(error > 0) for error in own):
        return tuple(np.full(np.shape(v), np.inf) for v in value)
    return tuple(_of_kernel(v) for v in value)


def _of_kernel(value: Array) -> Array:
    dtype = dt.as_dtype(value.dtype)
    if not dtype.is_float:
        return np.zeros(value.shape)
    wide = np.abs(value.astype(np.float64))
    return np.full(value.shape, 64 * dtype.eps * np.max(wide, initial=0, where=np.isfinite(wide)))


def _gather(context: _Context) -> Array:
    node, (_, index), (error, unsure), _, _ = context
    moved = error[open_index(index, node.attr.axis)]
    return np.where(unsure > 0, np.inf, moved)


def _scatter(context: _Context) -> Array:
    node, (base, index, updates), (error, unsure, added), _, _ = context
    most = max(np.max(error, initial=0), np.max(added, initial=0))
    if np.any(unsure > 0) or (most > 0 and node.attr.kind == "prod"):
        return np.full(base.shape, np.inf)
    if node.attr.kind != "add" or not node.dtype.is_float or most == 0:
        return np.full(base.shape, most)
    place = open_index(index, node.attr.axis)
    out, size, steps = error.copy(), np.abs(base.astype(np.float64)), np.ones(base.shape)
    np.add.at(out, place, added)
    np.add.at(size, place, np.abs(updates.astype(np.float64)))
    np.add.at(steps, place, 1)
    return out + steps * node.dtype.eps * size  # type: ignore[no-any-return]


def _pad(context: _Context) -> Array:
    node, _, (error,), _, env = context
    like = nd.make(Op.PAD, dt.float64, node.shape, node.args, node.attr.replace(value=0.0))
    return operation(like, [error], env)  # type: ignore[no-any-return]


_RULES: Final[Mapping[Operation, Callable[[_Context], Any]]] = {
    **dict.fromkeys(_COMPARISONS, _compare),
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
    Op.REDUCE: _reduce,
    Op.ARGREDUCE: _argreduce,
    Op.SCAN: _scan,
    Op.RECURRENCE: _recurrence,
    Op.SORT: _sort,
    Op.PROJECT: _project,
    Op.PACK: _pack,
    Op.LAUNCH: _launch,
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.PAD: _pad,
}
