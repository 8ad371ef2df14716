"""Simplification of a graph before it is cut into kernels: one pass, operands first.

Values are preserved bit for bit (but the payload of a NaN), except that nested sums and products
are merged, which changes their order of summation (`weft.graph.contract`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft.graph import contract, identities, movement
from weft.graph.masks import mask_by_results
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.infer import same_dim
from weft.ir.node import Node
from weft.ir.op import Op, Operation

_CHECKED: Final = ("gather", "launch")  # groups whose places name failed checks
FUEL: Final = 8  # how often what a rule made may itself be simplified


def simplify(outputs: Sequence[Node]) -> list[Node]:
    """Return nodes of equal values, shapes and dtypes with less to compute.

    The graph is visited once, iteratively; every distinct node is simplified once.
    """
    return mask_by_results(_Pass(outputs).run())


class _Pass:
    """What each node became, and which results have several users."""

    __slots__ = ("done", "order", "outputs", "shared", "turns", "uses")

    def __init__(self, outputs: Sequence[Node]) -> None:
        self.outputs = list(outputs)
        self.order = nd.toposort(self.outputs)
        self.done: dict[Node, Node] = {}
        self.shared: set[Node] = set()
        self.uses: dict[Node, int] = dict.fromkeys(self.order, 0)
        for node in self.order:
            for arg in node.args:
                self.uses[arg] += 1
        for node in self.outputs:
            self.uses[node] += 2  # a result is stored: nothing is gained by computing it again
        self.turns = self._turns()

    def _turns(self) -> dict[Node, tuple[int, ...]]:
        """Return sums whose rows all users but element by element want in one other order."""
        users: dict[Node, list[Node]] = {}
        for node in self.order:
            for arg in node.args:
                if arg.op is Op.REDUCE:
                    users.setdefault(arg, []).append(node)
        found: dict[Node, tuple[int, ...]] = {}
        results = set(self.outputs)
        for node, readers in users.items():
            turning = [r for r in readers if contract.moves_rows(r)]
            if len(turning) == 1 and len(readers) > 1 and node not in results and all(
                    r.op.is_elementwise for r in readers if r is not turning[0]):
                found[node] = turning[0].attr
        return found

    def run(self) -> list[Node]:
        done, uses = self.done, self.uses
        results: set[Node] = set()
        for node in self.order:
            new = self._rebuilt(node)
            for _ in range(FUEL):
                better = self._step(new)
                if better is None or better is new:
                    break
                new = better
            if node in self.turns and new.op is Op.REDUCE:
                new = contract.turned(new, self.turns[node])
            if uses[node] > 1 or (new in results and not self._passes_on(node, new)):
                self._share(new)
            results.add(new)
            done[node] = new
            if new is not node and node in nd.locations and (
                node.op.group in _CHECKED or new.op.group not in _CHECKED
            ):
                nd.locations.setdefault(new, nd.locations[node])
        return [done[o] for o in self.outputs]

    def _passes_on(self, node: Node, new: Node) -> bool:
        """Whether a node turned out to be its own operand, whose one user it was."""
        return len(node.args) == 1 or any(self.done[a] is new for a in node.args)

    def _rebuilt(self, node: Node) -> Node:
        if not node.args:
            return node
        done = self.done
        args = tuple([done[a] for a in node.args])
        if args == node.args and not node.serial:
            return node
        return nd.make(node.op, node.dtype, node.shape, args, node.attr)

    def _share(self, node: Node) -> None:
        """Mark a value as used more than once, and what it is a view of."""
        while node not in self.shared:
            self.shared.add(node)
            if node.op.group != "movement":
                break
            node = node.args[0]

    def _step(self, node: Node) -> Node | None:
        op = node.op
        if op.is_elementwise:
            return identities.improve(node, self.shared)
        if op.group == "movement":
            made = movement.BUILDERS[op](node, node.args[0])
            if made is not node:
                return made
            if op is Op.SLICE or op is Op.PERMUTE:
                return contract.move_inside(node, self.shared)
            return None
        rule = _RULES.get(op)
        return None if rule is None else rule(node, self)


def _reduce(node: Node, state: _Pass) -> Node | None:
    if node.attr.single:  # gradients have been taken
        return infer.reduce(node.args[0], node.attr.kind, node.attr.axes)
    return (_reduce_nothing(node) or _reduce_constant(node) or _reduce_less(node)
            or contract.merge_nested(node, state.shared)
            or contract.unfold_factors(node, state.shared) or contract.split_sum(node))  # fmt: skip


def _reduce_nothing(node: Node) -> Node | None:
    """Reduce no elements: the neutral value.

    A nest would read memory before a loop that never runs.
    """
    x, kind = node.args[0], node.attr.kind
    if kind in ("max", "min") or not any(same_dim(x.shape[a], 0) for a in node.attr.axes):
        return None
    value: bool | int = kind in ("prod", "all")
    return infer.full(node.shape, value if node.dtype.is_bool else int(value), node.dtype)


def _reduce_constant(node: Node) -> Node | None:
    """Reduce equal elements: one of them, or (exactly) a sum of zeros."""
    known = movement.constant(node.args[0])
    if known is None or any(
        isinstance(node.args[0].shape[a], Expr) or same_dim(node.args[0].shape[a], 0)
        for a in node.attr.axes
    ):
        return None
    kind = node.attr.kind
    if kind in ("max", "min", "any", "all") or (kind == "prod" and known.attr == 1) or (
        kind == "sum" and movement.same_value(known.attr, type(known.attr)(0))
    ):
        return movement.expand(known, node.shape)
    return None


def _reduce_less(node: Node) -> Node | None:
    """Leave out axes of size 1, and repeated ones where repetition changes nothing."""
    x, kind, axes = node.args[0], node.attr.kind, node.attr.axes
    idle = [a for a in axes if same_dim(x.shape[a], 1)]
    if kind in ("max", "min", "any", "all") and x.op is Op.EXPAND:
        idle += [a for a in axes if a not in idle and movement.constant_along(x, a)
                 and not isinstance(x.shape[a], Expr) and not same_dim(x.shape[a], 0)]
    if not idle:
        return None
    starts, steps = [0] * x.ndim, [1] * x.ndim
    first = tuple(1 if a in idle else d for a, d in enumerate(x.shape))
    x = movement.slice_(x, starts, first, steps)
    x = movement.reshape(x, tuple(d for a, d in enumerate(first) if a not in idle))
    rest = [a - sum(i < a for i in idle) for a in axes if a not in idle]
    return infer.reduce(x, kind, rest)


def _place(node: Node, state: _Pass) -> Node | None:
    """Find an extreme among one element, or among repetitions: the first."""
    x, axis = node.args[0], node.attr.axis
    size = x.shape[axis]
    if isinstance(size, Expr) or same_dim(size, 0) or not (
            same_dim(size, 1) or movement.constant_along(x, axis)):
        return None
    return infer.full(node.shape, 0, node.dtype)


def _detach(node: Node, state: _Pass) -> Node | None:
    return node.args[0]  # it only stops gradients


def _contiguous(node: Node, state: _Pass) -> Node | None:
    return node.args[0] if node.args[0].op is Op.CONTIGUOUS else None


_RULES: Final[dict[Operation, Callable[[Node, _Pass], Node | None]]] = {
    Op.REDUCE: _reduce,
    Op.ARGREDUCE: _place,
    Op.DETACH: _detach,  # detach(x) -> x
    Op.CONTIGUOUS: _contiguous,  # contiguous(contiguous(x)) -> contiguous(x)
}
