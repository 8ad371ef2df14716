"""Gradient hooks: functions that backward calls with a tensor's gradient (`Tensor.register_hook`).

A hook of a leaf belongs to the tensor, whatever value it has by then; one of a computed tensor to
what was recorded of it, which lives as long as anything depends on it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from weft.errors import DTypeError, GradientError, ShapeError
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node
from weft.tensors.core.arguments import describe
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.owners import hooks_of_leaves, hooks_of_nodes
from weft.tensors.core.views import recorded_of

__all__ = ["Handle", "add", "on_the_way"]

Hook = Callable[[Node], Node]
_numbers: Final = itertools.count()


class Handle:
    """A hook that was registered; ``remove()`` takes it away."""

    __slots__ = ("_hooks", "_number")

    def __init__(self, hooks: dict[int, Hook], hook: Hook) -> None:
        self._hooks, self._number = hooks, next(_numbers)
        hooks[self._number] = hook

    def remove(self) -> None:
        """Call the hook no more."""
        self._hooks.pop(self._number, None)


def add(tensor: Any, hook: Callable[[Any], Any]) -> Handle:
    """Let backward call `hook` with the gradient of a tensor, before it goes on.

    Raises
    ------
    GradientError
        If the tensor requires no gradient.
    DTypeError
        If `hook` cannot be called.
    """
    if not tensor.requires_grad:
        raise GradientError("register_hook", found="a tensor that requires no gradient",
                            expected="one that does")
    if not callable(hook):
        raise DTypeError("register_hook", found=describe(hook), expected="a function")
    made, shape = tensor._result._from_node, tensor.shape

    def called(gradient: Node) -> Node:
        """Return a gradient as the hook makes it: nodes of leaves are flat, what it sees is not."""
        found = hook(made(infer.reshape(gradient, shape)))
        if found is None:
            return gradient
        if not isinstance(found, TensorCore) or found.shape != shape:
            raise ShapeError("register_hook", found=describe(found),
                             expected=f"None, or a gradient of shape {shape}")
        return infer.reshape(infer.cast(found._value(), gradient.dtype), gradient.shape)

    if not tensor.is_leaf:
        return Handle(hooks_of_nodes.setdefault(recorded_of(tensor._value()), {}), called)
    hooks = hooks_of_leaves.setdefault(tensor, {})
    hooks_of_nodes[nd.flat_leaf(tensor._value())] = hooks
    return Handle(hooks, called)


def on_the_way(order: Iterable[Node], wanted: Mapping[Node, TensorCore]
               ) -> dict[Node, Callable[[Node], Node]]:  # fmt: skip
    """Return what changes the gradients of nodes: the hooks of those that a backward meets."""
    found: dict[Node, Callable[[Node], Node]] = {}
    if not hooks_of_nodes and not hooks_of_leaves:
        return found
    for node in order:
        owner = wanted.get(node)
        hooks = dict(hooks_of_nodes.get(node, {}))
        if owner is not None and owner._is_leaf:
            hooks.update(hooks_of_leaves.get(owner, {}))
        if hooks:
            found[node] = functools.partial(_changed, tuple(hooks.values()))
    return found


def _changed(hooks: tuple[Hook, ...], node: Node) -> Node:
    """Return a gradient as hooks, called in their order, make it."""
    for hook in hooks:
        node = hook(node)
    return node
