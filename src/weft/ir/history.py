"""What a DETACH says beyond its value: where gradients go, and whose record a value is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir.node import OWN, Node, const, make
from weft.ir.op import Op

__all__ = ["Custom", "CustomRule", "History", "Part", "custom", "gradient_operands", "part_of",
           "recorded_nodes", "with_recorded"]  # fmt: skip

CustomRule = Callable[[Node, Mapping[int, Node]], Sequence[Node | None]]


class History:
    """Where gradients of a DETACH go that has one, and all that a DETACH says beyond its value.

    Values and gradients part where a tensor is overwritten: its elements are new, and what was
    recorded of it is `node`. It is an attribute and no operand, for it is not part of the value:
    no pass over values visits it, and plans do not depend on it.

    Attributes
    ----------
    node : Node
        What was recorded, of the shape and dtype of the DETACH unless it gets zeros anyway.
    replaced : bool
        False: the gradient goes to `node` as it is, and none to the operand (a write that is not
        recorded changes values only). True: it goes to the operand, and `node` gets zeros (the
        elements were replaced, and the write was recorded).
    """

    __slots__ = ("node", "replaced")

    def __init__(self, node: Node, replaced: bool) -> None:
        self.node, self.replaced = node, replaced

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, History) and self.node is other.node
                and self.replaced is other.replaced)

    def __hash__(self) -> int:
        return hash((self.node, self.replaced))


class Custom:
    """One call of a function whose derivative the user wrote (`weft.autograd.Function`).

    It is the attribute of a DETACH of no value of interest, where the gradients of all results
    meet (`custom`); each result is a DETACH with a `Part`. As with `History`, no pass over values
    looks at it.

    Attributes
    ----------
    inputs : tuple of Node
        What gradients go to.
    saved : tuple of Node
        The values that `rule` reads: those of the forward.
    rule : callable
        ``rule(custom, {number: gradient})`` returns a gradient, or None, for each of the inputs.
    """

    __slots__ = ("inputs", "rule", "saved")

    def __init__(self, inputs: tuple[Node, ...], saved: tuple[Node, ...],
                 rule: CustomRule) -> None:  # fmt: skip
        self.inputs, self.saved, self.rule = inputs, saved, rule


class Part:
    """Which result of a `Custom` function a DETACH is; ``call`` is where their gradients meet."""

    __slots__ = ("call", "number")

    def __init__(self, call: Node, number: int) -> None:
        self.call, self.number = call, number

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Part) and self.call is other.call
                and self.number == other.number)

    def __hash__(self) -> int:
        return hash((self.call, self.number))


_GRADIENTS_ELSEWHERE: Final = frozenset({Op.BUFFER, Op.DETACH, Op.PROJECT})


def gradient_operands(node: Node) -> tuple[Node, ...]:
    """Return what the gradient of a node may flow to.

    These are its operands, except that a leaf has the node that was realized into it (if it was
    kept for differentiation), a DETACH what its `History` or `Custom` says, and a launch nothing.
    """
    op = node.op
    if op not in _GRADIENTS_ELSEWHERE:
        return node.args
    if op is Op.BUFFER:
        origin = node.attr.origin
        return () if origin is None else (origin,)
    if op is Op.DETACH:
        attr = node.attr
        if attr is OWN:
            return node.args
        if type(attr) is History:
            return (node.args[0], attr.node) if attr.replaced else (attr.node,)
        if type(attr) is Part:
            return (attr.call,)
        return attr.inputs if type(attr) is Custom else ()
    return () if node.args[0].op is Op.LAUNCH else node.args  # a kernel has no gradient


def recorded_nodes(node: Node) -> tuple[Node, ...]:
    """Return the nodes that the attribute of a DETACH names: what was recorded of its value."""
    attr = node.attr
    if type(attr) is History:
        return (attr.node,)
    if type(attr) is Part:
        return (attr.call,)
    return (*attr.inputs, *attr.saved) if type(attr) is Custom else ()


def with_recorded(attr: Any, new: Mapping[Node, Node]) -> Any:
    """Return an attribute with others in place of the nodes that it names."""
    if type(attr) is History:
        return History(new[attr.node], attr.replaced)
    if type(attr) is Part:
        return Part(new[attr.call], attr.number)
    if type(attr) is not Custom:
        return attr
    inputs, saved = (tuple([new[n] for n in nodes]) for nodes in (attr.inputs, attr.saved))
    if inputs == attr.inputs and saved == attr.saved:
        return attr
    return Custom(inputs, saved, attr.rule)


def custom(inputs: tuple[Node, ...], saved: tuple[Node, ...], rule: CustomRule) -> Node:
    """Return the node where the gradients of all results of a `Custom` function meet."""
    return make(Op.DETACH, dt.float32, (), (const(0.0, dt.float32),), Custom(inputs, saved, rule))


def part_of(call: Node, number: int, value: Node) -> Node:
    """Return a result of a `Custom` function: a value, whose gradient goes to the call."""
    return make(Op.DETACH, value.dtype, value.shape, (value,), Part(call, number))
