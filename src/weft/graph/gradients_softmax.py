"""The gradient of a softmax as one rule, however it was written.

With ``w = exp(x) / sum(exp(x))`` the gradient of x is ``w * (g - sum(g * w))``: less work and less
rounding than quotient, sum and exponential one by one, and no gradient for a shift of x by its
maximum, which moves nothing. Where w goes into a contraction ``o = sum(w * v)`` and nowhere else,
the sum is over the fewer elements of ``o``: ``sum(g * w) = sum(gradient of o * o)``, so that a
kernel of attention needs no pass of its own for it (Dao et al., FlashAttention, 2022). The two
sums differ by rounding, which a weight of 1 must not show; small attentions do without the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from weft.graph.formula import Value, constant_of, definition, keep_axes
from weft.ir import history, infer
from weft.ir import node as nd
from weft.ir.infer import same_dim
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.record import Record

_SHIFTS: Final = frozenset({Op.EXPAND, Op.RESHAPE, Op.DETACH})
_FEW_CHANNELS: Final = 32
_FEW_KEYS, _FEW_MASKED = 256, 64
_FEW_SCORES: Final = 1 << 20
_STEPS: Final = 32  # nodes between the weights and the contraction


class Softmax(Record):
    """A softmax: the weights, what they are of, the axis, and the nodes that it passes over."""

    weights: Node
    operand: Node
    axis: int
    inside: frozenset[Node]


def match(node: Node) -> Softmax | None:
    """Return the softmax that a quotient is, or None."""
    if node.op is not Op.DIV:
        return None
    inside: list[Node] = []
    exp, total = (_below(a, inside) for a in node.args)
    if exp.op is not Op.EXP:
        return None
    base = total
    while base.op is Op.EXPAND or base.op is Op.RESHAPE or _is_guard(base, 1.0):
        base = _below(base.args[2 if base.op is Op.WHERE else 0], inside)
    if base.op is not Op.REDUCE or base.attr.kind != "sum" or (
        _below(base.args[0], inside) is not exp or len(base.attr.axes) != 1
        or not _along(total, base.attr.axes[0])
    ):
        return None
    axis, operand, passed = base.attr.axes[0], definition(exp.args[0]), list(inside)
    shifted = _below(operand, passed)
    if shifted.op is Op.SUB and _is_maximum(shifted.args[1], shifted.args[0], axis, passed):
        inside, operand = passed, definition(shifted.args[0])
    return Softmax(node, operand, axis, frozenset(inside))


def _below(node: Node, passed: list[Node]) -> Node:
    """Return an operand, whichever view shows it; append it, and what shows it, to `passed`."""
    node = definition(node)
    passed.append(node)
    while node.attr is nd.OWN:
        node = definition(node.args[0])
        passed.append(node)
    return node


def _is_maximum(shift: Node, x: Node, axis: int, passed: list[Node]) -> bool:
    """Whether `shift` is the largest element of `x` along the axis; append what it is made by."""
    base = shift = _below(shift, passed)
    while base.op in _SHIFTS or _is_guard(base, 0.0):
        base = _below(base.args[2 if base.op is Op.WHERE else 0], passed)
    return (_along(shift, axis) and base.op is Op.REDUCE and base.attr.kind == "max"
            and _below(base.args[0], []) is _below(x, []) and base.attr.axes == (axis,))


def _along(node: Node, axis: int) -> bool:
    """Whether a value of one row result for each row stands along an axis."""
    return (node.op is Op.EXPAND and node.args[0].ndim == node.ndim
            and same_dim(node.args[0].shape[axis], 1)
            and all(same_dim(a, b) for n, (a, b) in
                    enumerate(zip(node.args[0].shape, node.shape, strict=True)) if n != axis))


def _is_guard(node: Node, instead: float) -> bool:
    """Whether a node puts a constant in place of what a row without any score gives."""
    return node.op is Op.WHERE and node.args[0].op is Op.EQ and (
        constant_of(node.args[1]) == instead and node.args[0].args[0] is node.args[2]
        and constant_of(node.args[0].args[1]) is not None)


def users_of(order: Iterable[Node], outputs: Iterable[Node]) -> dict[Node, list[Node]]:
    """Return which nodes of a graph read each of its nodes; an output reads itself."""
    users: dict[Node, list[Node]] = {}
    for node in order:
        for arg in dict.fromkeys(map(definition, history.gradient_operands(node))):
            users.setdefault(arg, []).append(node)
    for node in outputs:
        users.setdefault(node, []).append(node)
    return users


def gradient(softmax: Softmax, g: Node, users: Mapping[Node, list[Node]],
             final: Mapping[Node, Node]) -> Node:  # fmt: skip
    """Return the gradient of what a softmax is of.

    Parameters
    ----------
    softmax : Softmax
        The weights.
    g : Node
        Their gradient.
    users : mapping of Node to list of Node
        Who reads each node on the way to the outputs.
    final : mapping of Node to Node
        Gradients of reductions that are complete.
    """
    w = softmax.weights
    total = _total_of_output(softmax, users, final)
    if total is not None:
        return _unless_alone(w, ((Value(g) - Value(total)) * Value(w)).node)
    product = infer.elementwise(Op.MUL, g, w)
    total = keep_axes(infer.reduce(product, "sum", (softmax.axis,)), (softmax.axis,), w)
    return ((Value(g) - Value(total)) * Value(w)).node


def _unless_alone(w: Node, slope: Node) -> Node:
    """Return 0 for a weight of 1, whose slope is below rounding, and `slope` for others.

    There g and the total are one number, but as sums of other products they differ by their
    rounding, where ``g - sum(g * w)`` is 0: with large scores, all weights are 0 or 1.
    """
    one = infer.full(w.shape, 1.0, w.dtype)
    return infer.elementwise(Op.WHERE, infer.elementwise(Op.EQ, w, one),
                             infer.full(w.shape, 0.0, w.dtype), slope)


def _total_of_output(softmax: Softmax, users: Mapping[Node, list[Node]],
                     final: Mapping[Node, Node]) -> Node | None:  # fmt: skip
    """Return ``sum(g * w)`` by way of the one contraction that reads the weights, if there is one.

    The weights are followed through what is linear in them; `labels` say which axis of the weights
    an axis of the current node is.
    """
    w = softmax.weights
    node, labels = w, tuple(a if not same_dim(d, 1) else None for a, d in enumerate(w.shape))
    for _ in range(_STEPS):
        if node.op is Op.REDUCE:
            break
        after = users.get(node, ())
        if len(after) != 1 or sum(definition(a) is node for a in after[0].args) != 1:
            return None
        moved = _follow(after[0], node, labels)
        if moved is None:
            return None
        node, labels = after[0], moved
    g = final.get(node)
    kept = [a for a in labels if a is not None]
    expected = [a for a, d in enumerate(w.shape) if a != softmax.axis and not same_dim(d, 1)]
    if node.op is not Op.REDUCE or g is None or sorted(kept) != expected:
        return None
    rest = tuple(n for n, a in enumerate(labels) if a is None)
    keys, channels = w.shape[softmax.axis], nd.size(tuple(node.shape[n] for n in rest))
    if isinstance(keys, int) and isinstance(channels, int) and (
        w.dtype.bits >= 32  # what is narrower loses more where it is stored in between
    ) and (keys <= channels or _is_small(softmax, keys, channels)):
        return None  # no fewer elements, or no dearer ones, and less rounding
    product = infer.elementwise(Op.MUL, g, node)
    total = infer.reduce(product, "sum", rest) if rest else product
    total = infer.permute(total, [kept.index(a) for a in expected])
    return keep_axes(total, (softmax.axis,), w)


def _is_small(softmax: Softmax, keys: int, channels: int) -> bool:
    """Whether scores are so few that arrays of them stay in the caches, as cheap as further sums.

    Where a mask hides scores, whose blocks attention skips, there must be less of them.

    The sum over the weights is of the very gradients that it is taken from: where a weight is close
    to 1, what rounding those of few channels have cancels.
    """
    scores = nd.size(softmax.weights.shape)
    most = _FEW_MASKED if softmax.operand.op is Op.WHERE else _FEW_KEYS
    return channels <= _FEW_CHANNELS and keys <= most and (
        isinstance(scores, int) and scores <= _FEW_SCORES)


def _follow(user: Node, node: Node,
            labels: tuple[int | None, ...]) -> tuple[int | None, ...] | None:  # fmt: skip
    """Return the labels of the axes of a user that is linear in the node, else None."""
    op = user.op
    if user.attr is nd.OWN:
        return labels
    if op is Op.PERMUTE:
        return tuple(labels[a] for a in user.attr)
    if op is Op.EXPAND:
        lead = user.ndim - node.ndim
        return (None,) * lead + labels
    if op is Op.RESHAPE:
        if [d for d in node.shape if not same_dim(d, 1)] != [
            d for d in user.shape if not same_dim(d, 1)
        ]:
            return None
        rest = iter(a for a, d in zip(labels, node.shape, strict=True) if not same_dim(d, 1))
        return tuple(None if same_dim(d, 1) else next(rest) for d in user.shape)
    if op is Op.MUL or op is Op.NEG or (op is Op.DIV and definition(user.args[0]) is node):
        return labels
    if op is Op.WHERE and definition(user.args[0]) is not node and all(
        definition(a) is node or constant_of(a) == 0 for a in user.args[1:]
    ):
        return labels
    if op is Op.REDUCE and user.attr.kind == "sum":
        return tuple(a for n, a in enumerate(labels) if n not in user.attr.axes)
    return None


__all__ = ["Softmax", "gradient", "match", "users_of"]
