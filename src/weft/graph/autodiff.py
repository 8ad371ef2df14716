"""Reverse-mode differentiation of graphs.

A gradient is a graph as well, so that gradients of gradients need nothing more. The rules stand in
tables, one row for each operation with one formula for each operand (`gradients_elementwise`,
`gradients_movement`, `gradients_reduce`); this file walks the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from weft.errors import GradientError, ShapeError
from weft.graph import (
    gradients_elementwise,
    gradients_movement,
    gradients_reduce,
    gradients_softmax,
)
from weft.graph.formula import constant_of, definition
from weft.graph.gradients_softmax import Softmax
from weft.ir import history, infer
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.op import Op, Operation

Rule = Callable[[Node, Node], Node | None]

RULES: Final[dict[Operation, tuple[Rule, ...]]] = {
    **gradients_elementwise.RULES,
    **gradients_movement.RULES,
    **gradients_reduce.RULES,
    Op.BUFFER: (lambda node, g: infer.reshape(g, node.attr.origin.shape),),
    Op.DETACH: (lambda node, g: g, lambda node, g: None),  # see `weft.ir.history.History`
    Op.COPY: (lambda node, g: infer.copy(g, node.args[0].device or g.device),),
}
"""For each operation a rule for each float operand: ``(node, its gradient) -> gradient of the
operand``, None where that is zero everywhere."""

def gradients(outputs: Sequence[Node], seeds: Sequence[Node],
              wrt: Sequence[Node], hooks: Mapping[Node, Callable[[Node], Node]] | None = None,
              recorded: bool = False) -> list[Node | None]:  # fmt: skip
    """Return the gradient of ``sum(seed * output)`` for each node of `wrt`.

    A storage that still knows the node realized into it (`Storage.origin`) stands for that node,
    here and in `wrt`: parts of a gradient are added in the same order, and with the same bits,
    whatever was realized. DETACH stops gradients, or says where they go; only floats have any.

    Parameters
    ----------
    outputs, seeds : sequence of Node
        What to differentiate, and the gradient of each, of its shape and dtype.
    wrt : sequence of Node
        Any nodes of the graph, leaves or not.
    hooks : mapping of Node to function, optional
        What changes the gradient of a node, once it is complete.
    recorded : bool, optional
        Whether the gradients are differentiated again: each is then what one tensor records, and
        those of what comes before depend on it.

    Returns
    -------
    list of Node or None
        Gradients in shape and dtype of `wrt`; None where no output depends on the node.

    Raises
    ------
    GradientError
        If an output is not of a float type, or a gradient is wanted through an operation that
        has none.
    ShapeError
        If a seed has another shape than its output.
    """
    targets = [definition(w) for w in wrt]
    outputs = [definition(o) for o in outputs]
    grads: dict[Node, Node] = {}
    for output, seed in zip(outputs, seeds, strict=True):
        _check_seed(output, seed)
        _accumulate(grads, output, seed)
    order = _differentiable(outputs)
    needed = _above(order, targets)
    wanted = set(targets)
    softmaxes = _softmaxes(order, needed, {*wanted, *(hooks or ())})
    # A hook may change a gradient between weights and what is made of them.
    users = gradients_softmax.users_of(order, outputs) if softmaxes and not hooks else {}
    final: dict[Node, Node] = {}  # of reductions, once complete
    reached = {o for o in outputs if o in needed}
    found: dict[Node, Node] = {}
    parts: dict[Node, dict[int, Node]] = {}  # of functions whose derivative the user wrote
    for node in reversed(order):
        if node not in reached:
            continue
        g = grads.pop(node, None)
        if hooks and g is not None and node in hooks:
            g = hooks[node](g)
        if node in wanted:
            if recorded and g is not None and g not in seeds:
                g = nd.own(g)
            found[node] = g if g is not None else infer.full(node.shape, 0.0, node.dtype)
        if users and g is not None and node.op is Op.REDUCE:
            final[node] = g
        softmax = softmaxes.get(node)
        if softmax is not None:
            reached.add(softmax.operand)
            if g is not None:
                _accumulate(grads, softmax.operand,
                            gradients_softmax.gradient(softmax, g, users, final))
            continue
        if type(node.attr) is history.Part:
            reached.add(node.attr.call)
            if g is not None:
                parts.setdefault(node.attr.call, {})[node.attr.number] = g
            continue
        if type(node.attr) is history.Custom:
            reached.update(_custom(node, parts.pop(node, {}), grads, needed))
            continue
        for position, arg in enumerate(history.gradient_operands(node)):
            arg = definition(arg)
            if arg in needed:
                reached.add(arg)
                part = None if g is None else _rule(node, position)(node, g)
                if part is not None:
                    _accumulate(grads, arg, part)
    return [
        None if t not in found else infer.reshape(found[t], w.shape)
        for t, w in zip(targets, wrt, strict=True)
    ]


def _custom(node: Node, given: dict[int, Node], grads: dict[Node, Node],
            needed: set[Node]) -> list[Node]:  # fmt: skip
    """Pass gradients through a function whose derivative the user wrote; return what they reach.

    What the function gives no gradient has none, as if it did not depend on it.
    """
    inputs = enumerate(map(definition, node.attr.inputs))
    wanted = [(i, arg) for i, arg in inputs if arg in needed]
    if not given:
        return [arg for _, arg in wanted]
    made = node.attr.rule(node, given)
    reached = []
    for i, arg in wanted:
        part = made[i]
        if part is not None:
            _accumulate(grads, arg, part)
            reached.append(arg)
    return reached


def _softmaxes(order: Sequence[Node], needed: set[Node],
               wanted: set[Node]) -> dict[Node, Softmax]:  # fmt: skip
    """Return the softmaxes that a gradient flows through as a whole, by their weights."""
    found: dict[Node, Softmax] = {}
    for node in order:
        softmax = gradients_softmax.match(node) if node in needed else None
        if softmax is not None and softmax.operand in needed and not wanted & softmax.inside:
            found[node] = softmax
    return found


def _rule(node: Node, position: int) -> Rule:
    rules = RULES.get(node.op)
    if rules is None:
        raise GradientError(
            node.op.name, found="an operation without a derivative",
            expected="a differentiable path", hint="detach() its operand",
            where=_place(node),
        )
    return rules[position]


def _place(node: Node) -> tuple[str, int] | None:
    location = nd.locations.get(node)
    return None if location is None else (location.file, location.line)


def _check_seed(output: Node, seed: Node) -> None:
    if not output.dtype.is_float:
        raise GradientError("backward", found=f"an output of {output.dtype.name}",
                            expected="a float type")
    if not infer.same_shape(output.shape, seed.shape) or output.dtype is not seed.dtype:
        raise ShapeError("backward",
                         found=f"a gradient of {seed.dtype.name}{list(seed.shape)}",
                         expected=f"{output.dtype.name}{list(output.shape)}, as the output")


def _accumulate(grads: dict[Node, Node], node: Node, part: Node) -> None:
    known = grads.get(node)
    grads[node] = part if known is None else _join(known, part)


def _join(known: Node, part: Node) -> Node:
    """Return the sum of two parts of a gradient.

    What goes to few places is added there, where the other part is an array anyway: the table of an
    embedding that is also multiplied with, or that is read twice. A product is added unrounded.
    """
    for base, few in ((known, part), (part, known)):
        if few.op is Op.SCATTER and few.attr.kind == "add" and _is_stored(base) and (
                constant_of(few.args[0]) == 0):
            _, index, updates = few.args
            made = infer.scatter(base, index, updates, few.attr.axis, "add", few.attr.what)
            if few in nd.locations:
                nd.locations.setdefault(made, nd.locations[few])
            return made
    for base, product in ((known, part), (part, known)):
        if product.op is Op.MUL and product.dtype.kind == "f":
            return infer.elementwise(Op.MAD, *product.args, base)
    return infer.elementwise(Op.ADD, known, part)


def _is_stored(node: Node) -> bool:
    """Whether a part of a gradient becomes an array, and is not computed where it is read."""
    while node.op in (Op.RESHAPE, Op.PERMUTE):
        node = node.args[0]
    return node.op in (Op.REDUCE, Op.SCATTER)


def _parents(node: Node) -> tuple[Node, ...]:
    return tuple([definition(a) for a in history.gradient_operands(node) if a.dtype.kind == "f"])


def _differentiable(outputs: Sequence[Node]) -> list[Node]:
    """Return the nodes below `outputs` along differentiable edges, operands first."""
    done: dict[Node, None] = {}
    for root in outputs:
        if root in done:
            continue
        stack = [(root, iter(_parents(root)))]
        while stack:
            node, rest = stack[-1]
            for arg in rest:
                if arg not in done:
                    stack.append((arg, iter(_parents(arg))))
                    break
            else:
                done[node] = None
                stack.pop()
    return list(done)


def _above(order: Sequence[Node], targets: Sequence[Node]) -> set[Node]:
    """Return the nodes that depend on a target, and the targets."""
    needed = {t for t in targets if t.dtype.is_float}
    for node in order:
        if node not in needed and any(p in needed for p in _parents(node)):
            needed.add(node)
    return needed
