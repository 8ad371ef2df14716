"""Gradients of reductions, scans, sorts, gathers and scatters.

Products count their zeros instead of dividing by them; the largest and smallest share the gradient
evenly among ties, as PyTorch's amax does; that of a pooling goes to one element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from weft.graph.formula import Value, apply, keep_axes, where
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.op import Op, Operation

Rule = Callable[[Node, Node], Node | None]


def _reduce(node: Node, g: Node) -> Node | None:
    kind, axes, x = node.attr.kind, node.attr.axes, node.args[0]
    wide = keep_axes(g, axes, x)
    if kind == "sum":
        return wide  # 1 for each element
    y = keep_axes(node, axes, x)
    if kind == "prod":
        return _product(Value(wide), Value(y), Value(x), axes).node
    if node.attr.single:
        return _at_first(Value(x), Value(y), wide, axes)
    ties = Value(x).eq(Value(y))  # g / (number of ties), where x is the largest
    count = infer.reduce(infer.cast(ties.node, dt.accumulator_dtype(g.dtype)), "sum", axes)
    share = Value(g).cast(count.dtype) / Value(count)
    rest = where(Value(count).eq(0), math.nan, Value(count) * 0)  # of a NaN there are no ties
    at, others = (Value(keep_axes(v.cast(g.dtype).node, axes, x)) for v in (share, rest))
    return where(ties, at, others).node


def _at_first(x: Value, y: Value, wide: Node, axes: tuple[int, ...]) -> Node:
    """Return the gradient at the first of the elements that equal the result, or the last NaN.

    An element is found by the least of some numbers: its own, a negative one for a NaN. What a
    padding put into a window is never found.
    """
    shape = x.node.shape
    sizes = tuple(d if a in axes else 1 for a, d in enumerate(shape))
    own = infer.reshape(infer.cast(infer.iota(nd.size(sizes)), dt.int32), sizes)
    number = Value(infer.expand(own, shape))
    none = dt.int32.max
    key = where(x.ne(x), -1 - number, where(x.eq(y), number, none))
    inside = _inside(x.node)
    if inside is not None:
        key = where(inside, key, none)
    first = Value(infer.reduce(key.node, "min", axes))
    found = where(first.lt(0), -1 - first, first)
    return where(Value(keep_axes(found.node, axes, x.node)).eq(number), Value(wide), 0.0).node


def _inside(x: Node) -> Value | None:
    """Return which elements of windows of a padded array are no padding; None if all are."""
    moves: list[Node] = []
    while x.op in (Op.WINDOW, Op.RESHAPE, Op.PERMUTE):
        moves.append(x)
        x = x.args[0]
    if x.op is not Op.PAD:
        return None
    mask = infer.full(x.args[0].shape, True, dt.bool_)
    for move in (x, *reversed(moves)):
        attr = move.attr.replace(value=False) if move is x else move.attr
        mask = nd.make(move.op, dt.bool_, move.shape, (mask,), attr)
    return Value(mask)


def _product(g: Value, y: Value, x: Value, axes: tuple[int, ...]) -> Value:
    """Return g times the product of the other elements.

    That is y / x; where x is 0, the product of the others, which is 0 for a second zero.
    """
    zero = x.eq(0.0)
    nonzero = where(zero, 1.0, x)
    zeros = infer.reduce(infer.cast(zero.node, dt.int64), "sum", axes)
    single = Value(infer.reduce(nonzero.node, "prod", axes))
    others = where(Value(zeros).eq(1), single, 0.0)
    return g * where(zero, Value(keep_axes(others.node, axes, x.node)), y / nonzero)


def _sum_from_here(x: Node, axis: int, reverse: bool) -> Node:
    """Return the sums of each element and all after it (before it, of a scan from the end)."""
    return infer.scan(x, "sum", axis, not reverse)


def _scan(node: Node, g: Node) -> Node | None:
    kind, axis, reverse, x = node.attr.kind, node.attr.axis, node.attr.reverse, node.args[0]
    if infer.same_dim(node.shape[axis], 0):
        return None
    if kind == "sum":
        return _sum_from_here(g, axis, reverse)  # x[k] is in every sum from k on
    if kind == "prod":
        return _scan_product(Value(g), Value(node), Value(x), axis, reverse).node
    if kind == "logsumexp":
        return _scan_logarithm(Value(g), Value(node), Value(x), axis, reverse).node
    # the gradient goes to the last element so far that equals the running maximum
    value, running = Value(x), Value(node)
    ahead = value.eq(running) | value.ne(value)
    ones = tuple(d if a == axis else 1 for a, d in enumerate(x.shape))
    here = infer.expand(infer.reshape(infer.iota(x.shape[axis]), ones), x.shape)
    if reverse:
        last = infer.full(x.shape, dt.int64.max, dt.int64)
        place = infer.scan(where(ahead, Value(here), Value(last)).node, "min", axis, True)
    else:
        place = infer.scan(where(ahead, Value(here), 0).node, "max", axis)
    return infer.scatter(infer.full(x.shape, 0.0, g.dtype), place, g, axis, "add")


def _scan_logarithm(g: Value, y: Value, x: Value, axis: int, reverse: bool) -> Value:
    """Return ``exp(x[k]) * sum of g[i] * exp(-y[i])`` from k on, no factor of which is above 1.

    The sum relative to y[k] is ``u[k] = g[k] + exp(y[k] - y[k + 1]) * u[k + 1]``.
    """
    following = Value(_neighbour(y.node, axis, not reverse))
    decay = where(following.eq(y), 1.0, apply(Op.EXP, y - following))
    u = Value(infer.recurrence(decay.node, g.node, axis, not reverse))
    return where(y.eq(float("-inf")), 0.0, where(x.eq(y), 1.0, apply(Op.EXP, x - y)) * u)


def _scan_product(g: Value, y: Value, x: Value, axis: int, reverse: bool) -> Value:
    """Return the sums from k on of g[i] * y[i] / x[k], without division by zero.

    At the first zero of a row y / x is the running product with 1 in its place; at later zeros
    nothing is left of any product.
    """
    zero = x.eq(0.0)
    count = infer.scan(infer.cast(zero.node, dt.int64), "sum", axis, reverse)
    first = zero & Value(count).eq(1)
    without = Value(infer.scan(where(first, 1.0, x).node, "prod", axis, reverse))
    at_first = where(first, Value(_sum_from_here((g * without).node, axis, reverse)), 0.0)
    elsewhere = Value(_sum_from_here((g * y).node, axis, reverse)) / where(zero, 1.0, x)
    return where(zero, at_first, elsewhere)


def _neighbour(x: Node, axis: int, ahead: bool) -> Node:
    """Return each element's next one (or the one before), 0 beyond the end."""
    n = x.shape[axis]
    starts = tuple(int(a == axis and ahead) for a in range(x.ndim))
    shape = tuple(d - 1 if a == axis else d for a, d in enumerate(x.shape))
    steps = (1,) * x.ndim
    rest = infer.slice_(x, starts, shape, steps)
    before = tuple(int(a == axis and not ahead) for a in range(x.ndim))
    after = tuple(int(a == axis and ahead) for a in range(x.ndim))
    padded = infer.pad(rest, before, after, 0.0)
    assert infer.same_dim(padded.shape[axis], n)
    return padded


def _recurrence_terms(node: Node, g: Node) -> Node | None:
    """Run the adjoint recurrence from the other end: ``u[k] = g[k] + a[k + 1] * u[k + 1]``."""
    axis, reverse = node.attr.axis, node.attr.reverse
    if infer.same_dim(node.shape[axis], 0):
        return None
    return infer.recurrence(_neighbour(node.args[0], axis, not reverse), g, axis, not reverse)


def _recurrence_factors(node: Node, g: Node) -> Node | None:
    u = _recurrence_terms(node, g)
    if u is None:
        return None
    return (Value(u) * Value(_neighbour(node, node.attr.axis, node.attr.reverse))).node


def _sort(node: Node, g: Node) -> Node:
    indices = nd.make(Op.PROJECT, dt.int64, node.shape, (node,), 1)
    zeros = infer.full(node.args[0].shape, 0.0, g.dtype)
    return infer.scatter(zeros, indices, g, node.attr.axis, "set")


def _project(node: Node, g: Node) -> Node:
    return g  # only the values of a sort are floats


def _blame(new: Node, node: Node) -> Node:
    """Let an index that is out of range in `new` be reported with the line of `node`."""
    place = nd.locations.get(node)
    if place is not None:
        nd.locations.setdefault(new, place)
    return new


def _picked(node: Node, x: Node) -> Node:
    """Return the elements of `x` at the places that a scatter writes to."""
    return _blame(infer.gather(x, node.args[1], node.attr.axis, node.attr.what), node)


def _scattered(node: Node, base: Node, updates: Node, kind: str) -> Node:
    """Return `base` with `updates` at the places that a gather reads, or a scatter writes."""
    made = infer.scatter(base, node.args[1], updates, node.attr.axis, kind, node.attr.what)
    return _blame(made, node)


def _gather(node: Node, g: Node) -> Node:
    return _scattered(node, infer.full(node.args[0].shape, 0.0, g.dtype), g, "add")


def _scatter_base(node: Node, g: Node) -> Node | None:
    base, index, updates = node.args
    kind = node.attr.kind
    if kind == "add":
        return g
    if kind == "set":  # 0 where overwritten
        return _scattered(node, g, infer.full(index.shape, 0.0, g.dtype), "set")
    if kind == "prod":  # times the updates of that place
        factor = _scattered(node, infer.full(base.shape, 1.0, base.dtype), updates, "prod")
        return infer.elementwise(Op.MUL, g, factor)
    share, kept, _ = _ties(node, g)
    return where(kept, share, 0.0).node


def _scatter_updates(node: Node, g: Node) -> Node | None:
    base, index, _ = node.args
    kind = node.attr.kind
    here = _picked(node, g)
    if kind == "add":
        return here
    if kind == "set":  # the last update of a place is the one that stays
        size = infer.iota(nd.size(index.shape))
        number = infer.reshape(size, index.shape)
        last = _scattered(node, infer.full(base.shape, 0, dt.int64), number, "set")
        stays = Value(_picked(node, last)).eq(Value(number))
        return where(stays, Value(here), 0.0).node
    if kind == "prod":
        return _scatter_product(node, Value(here)).node
    share, _, chosen = _ties(node, g)
    return where(chosen, Value(_picked(node, share.node)), 0.0).node


def _scatter_product(node: Node, g: Value) -> Value:
    """Return g times the base and the other updates of that place (see `_product`)."""
    base, _, updates = node.args
    update = Value(updates)
    zero = update.eq(0.0)
    nonzero = where(zero, 1.0, update)
    none = infer.full(base.shape, 0, dt.int64)
    zeros = _scattered(node, none, infer.cast(zero.node, dt.int64), "add")
    single = _scattered(node, base, nonzero.node, "prod")
    others = where(Value(zeros).eq(1), Value(single), 0.0)
    result = Value(_picked(node, node))
    return g * where(zero, Value(_picked(node, others.node)), result / nonzero)


def _ties(node: Node, g: Node) -> tuple[Value, Value, Value]:
    """Return the share of the gradient for each tie, and where base and updates are among them."""
    base, _, updates = node.args
    kept = Value(base).eq(Value(node))
    chosen = Value(updates).eq(Value(_picked(node, node)))
    wide = dt.accumulator_dtype(g.dtype)
    count = _scattered(node, infer.cast(kept.node, wide), infer.cast(chosen.node, wide), "add")
    return (Value(g).cast(wide) / Value(count)).cast(g.dtype), kept, chosen


def _contiguous(node: Node, g: Node) -> Node:
    return g


def _no_index(node: Node, g: Node) -> Node | None:
    return None


RULES: Final[dict[Operation, tuple[Rule, ...]]] = {
    Op.REDUCE: (_reduce,),
    Op.SCAN: (_scan,),
    Op.RECURRENCE: (_recurrence_factors, _recurrence_terms),  # u[k] * h[k - 1], u[k]
    Op.SORT: (_sort,),  # each back to where it came from
    Op.PROJECT: (_project,),
    Op.GATHER: (_gather, _no_index),  # added up where it was read
    Op.SCATTER: (_scatter_base, _no_index, _scatter_updates),
    Op.CONTIGUOUS: (_contiguous,),
}
