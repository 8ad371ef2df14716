"""Gradients of reductions, scans, sorts, gathers and scatters.

Products count their zeros instead of dividing by them; the largest and smallest share the gradient
evenly among ties, as PyTorch's amax does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.graph.formula import Value, keep_axes, where
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
    ties = Value(x).eq(Value(y))  # g / (number of ties), where x is the largest
    count = infer.reduce(infer.cast(ties.node, dt.accumulator_dtype(g.dtype)), "sum", axes)
    share = Value(g).cast(count.dtype) / Value(count)
    return where(ties, Value(keep_axes(share.cast(g.dtype).node, axes, x)), 0.0).node


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


def _flip(x: Node, axis: int) -> Node:
    steps = [-1 if a == axis else 1 for a in range(x.ndim)]
    starts = [d - 1 if a == axis else 0 for a, d in enumerate(x.shape)]
    return infer.slice_(x, starts, x.shape, steps)


def _sum_from_here(x: Node, axis: int) -> Node:
    """Return the sums of each element and all after it."""
    return _flip(infer.scan(_flip(x, axis), "sum", axis), axis)


def _scan(node: Node, g: Node) -> Node | None:
    kind, axis, x = node.attr.kind, node.attr.axis, node.args[0]
    if infer.same_dim(node.shape[axis], 0):
        return None
    if kind == "sum":
        return _sum_from_here(g, axis)  # x[k] is in every sum from k on
    if kind == "prod":
        return _scan_product(Value(g), Value(node), Value(x), axis).node
    # the gradient goes to the last element so far that equals the running maximum
    value, running = Value(x), Value(node)
    ahead = value.eq(running) | value.ne(value)
    ones = tuple(d if a == axis else 1 for a, d in enumerate(x.shape))
    here = infer.expand(infer.reshape(infer.iota(x.shape[axis]), ones), x.shape)
    place = infer.scan(where(ahead, Value(here), 0).node, "max", axis)
    return infer.scatter(infer.full(x.shape, 0.0, g.dtype), place, g, axis, "add")


def _scan_product(g: Value, y: Value, x: Value, axis: int) -> Value:
    """Return the sums from k on of g[i] * y[i] / x[k], without division by zero.

    At the first zero of a row y / x is the running product with 1 in its place; at later zeros
    nothing is left of any product.
    """
    zero = x.eq(0.0)
    count = infer.scan(infer.cast(zero.node, dt.int64), "sum", axis)
    first = zero & Value(count).eq(1)
    without = Value(infer.scan(where(first, 1.0, x).node, "prod", axis))
    at_first = where(first, Value(_sum_from_here((g * without).node, axis)), 0.0)
    elsewhere = Value(_sum_from_here((g * y).node, axis)) / where(zero, 1.0, x)
    return where(zero, at_first, elsewhere)


def _sort(node: Node, g: Node) -> Node:
    indices = nd.make(Op.PROJECT, dt.int64, node.shape, (node,), 1)
    zeros = infer.full(node.shape, 0.0, g.dtype)
    return infer.scatter(zeros, indices, g, node.attr.axis, "set")


def _project(node: Node, g: Node) -> Node:
    return g  # only the values of a sort are floats


def _gather(node: Node, g: Node) -> Node:
    x, index = node.args
    zeros = infer.full(x.shape, 0.0, g.dtype)
    return infer.scatter(zeros, index, g, node.attr.axis, "add", node.attr.what)


def _scatter_base(node: Node, g: Node) -> Node | None:
    base, index, updates = node.args
    axis, kind = node.attr.axis, node.attr.kind
    if kind == "add":
        return g
    if kind == "set":  # 0 where overwritten
        return infer.scatter(g, index, infer.full(index.shape, 0.0, g.dtype), axis, "set")
    if kind == "prod":  # times the updates of that place
        ones = infer.full(base.shape, 1.0, base.dtype)
        factor = infer.scatter(ones, index, updates, axis, "prod")
        return infer.elementwise(Op.MUL, g, factor)
    share, kept, _ = _ties(node, g)
    return where(kept, share, 0.0).node


def _scatter_updates(node: Node, g: Node) -> Node | None:
    base, index, _ = node.args
    axis, kind = node.attr.axis, node.attr.kind
    here = infer.gather(g, index, axis)
    if kind == "add":
        return here
    if kind == "set":  # the last update of a place is the one that stays
        size = infer.iota(nd.size(index.shape))
        number = infer.reshape(size, index.shape)
        last = infer.scatter(infer.full(base.shape, 0, dt.int64), index, number, axis, "set")
        stays = Value(infer.gather(last, index, axis)).eq(Value(number))
        return where(stays, Value(here), 0.0).node
    if kind == "prod":
        return _scatter_product(node, Value(here)).node
    share, _, chosen = _ties(node, g)
    return where(chosen, Value(infer.gather(share.node, index, axis)), 0.0).node


def _scatter_product(node: Node, g: Value) -> Value:
    """Return g times the base and the other updates of that place (see `_product`)."""
    base, index, updates = node.args
    axis, update = node.attr.axis, Value(updates)
    zero = update.eq(0.0)
    nonzero = where(zero, 1.0, update)
    none = infer.full(base.shape, 0, dt.int64)
    zeros = infer.scatter(none, index, infer.cast(zero.node, dt.int64), axis, "add")
    single = infer.scatter(base, index, nonzero.node, axis, "prod")
    others = where(Value(zeros).eq(1), Value(single), 0.0)
    result = Value(infer.gather(node, index, axis))
    return g * where(zero, Value(infer.gather(others.node, index, axis)), result / nonzero)


def _ties(node: Node, g: Node) -> tuple[Value, Value, Value]:
    """Return the share of the gradient for each tie, and where base and updates are among them."""
    base, index, updates = node.args
    axis = node.attr.axis
    kept = Value(base).eq(Value(node))
    chosen = Value(updates).eq(Value(infer.gather(node, index, axis)))
    wide = dt.accumulator_dtype(g.dtype)
    count = infer.scatter(infer.cast(kept.node, wide), index, infer.cast(chosen.node, wide),
                          axis, "add")  # fmt: skip
    return (Value(g).cast(wide) / Value(count)).cast(g.dtype), kept, chosen


def _contiguous(node: Node, g: Node) -> Node:
    return g


def _no_index(node: Node, g: Node) -> Node | None:
    return None


RULES: Final[dict[Operation, tuple[Rule, ...]]] = {
    Op.REDUCE: (_reduce,),
    Op.SCAN: (_scan,),
    Op.SORT: (_sort,),  # each back to where it came from
    Op.PROJECT: (_project,),
    Op.GATHER: (_gather, _no_index),  # added up where it was read
    Op.SCATTER: (_scatter_base, _no_index, _scatter_updates),
    Op.CONTIGUOUS: (_contiguous,),
}
