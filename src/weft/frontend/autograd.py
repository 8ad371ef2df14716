"""Gradients: what the user calls; the rules are a table in ``graph/autodiff``.

The history of a tensor is its graph: pure nodes, joined across realized values by
``Storage.origin``. Nothing is recorded while a program runs, so `backward` may be called twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from weft import driver
from weft.errors import GradientError, ShapeError
from weft.exchange import host
from weft.frontend.core import TensorCore, leaves
from weft.frontend.pending import note_losses
from weft.frontend.state import state
from weft.ir import infer
from weft.ir.node import Node
from weft.ir.op import Op

__all__ = ["backward", "enable_grad", "grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=TensorCore)


class set_grad_enabled:
    """Record gradients or not, from now on or within a ``with`` block."""

    __slots__ = ("_before",)

    def __init__(self, mode: bool) -> None:
        self._before = state.grad
        state.grad = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        state.grad = self._before


class _Mode:
    """Base of no_grad and enable_grad: a ``with`` block or a decorator."""

    __slots__ = ("_before",)
    _mode = False

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(state.grad)
        state.grad = self._mode

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        state.grad = self._before.pop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return `function` run in this mode."""

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with type(self)():
                return function(*args, **kwargs)

        return run


class no_grad(_Mode):
    """Do not record gradients: ``with weft.no_grad():`` or ``@weft.no_grad()``."""

    __slots__ = ()
    _mode = False


class enable_grad(_Mode):
    """Record gradients, also inside no_grad."""

    __slots__ = ()
    _mode = True


def is_grad_enabled() -> bool:
    """Return whether gradients are recorded."""
    return state.grad


def _reachable(roots: Sequence[Node]) -> dict[Node, TensorCore]:
    """Return the nodes below `roots` whose gradient some living tensor wants."""
    seen: set[Node] = set()
    found: dict[Node, TensorCore] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        ref = leaves.get(node)
        owner = None if ref is None else ref()
        if owner is not None:
            found[node] = owner
        if node.op is Op.DETACH:
            continue
        if node.op is Op.BUFFER and node.attr.origin is not None:
            stack.append(node.attr.origin)
        stack.extend(node.args)
    return found


def _seeds(outputs: Sequence[TensorCore], gradients: Sequence[object] | None) -> list[Node]:
    seeds = []
    for i, out in enumerate(outputs):
        given = None if gradients is None else gradients[i]
        if not out._requires_grad:
            raise GradientError("backward", found="a tensor that requires no gradient",
                                expected="one computed from tensors that do",
                                hint="make inputs with requires_grad=True, outside no_grad()")
        if given is None:
            if out.numel() != 1:
                raise GradientError("backward", found=f"an output of shape {out.shape}",
                                    expected="a single element, or a gradient argument")
            seeds.append(infer.full(out.shape, 1, out.dtype))
            continue
        seed = out._coerce(given, "backward")
        if not isinstance(seed, TensorCore):
            seed = out._make_scalar(seed, out.dtype)
        if seed.shape != out.shape:
            raise ShapeError("backward", found=f"a gradient of {seed.shape}",
                             expected=f"the output's shape, {out.shape}")
        seeds.append(infer.cast(seed._read(), out.dtype))
    return seeds


def backward(outputs: Sequence[TensorCore], gradients: Sequence[object] | None,
             create_graph: bool) -> None:  # fmt: skip
    """Add the gradients of `outputs` to the ``grad`` of every leaf they depend on."""
    seeds = _seeds(outputs, gradients)
    roots = [out._value() for out in outputs]
    wanted = _reachable(roots)
    nodes = list(wanted)
    results = driver.gradients(roots, seeds, nodes)
    if state.capture is None:
        note_losses(outputs)
    for node, result in zip(nodes, results, strict=True):
        tensor = wanted[node]
        if result is not None:
            _accumulate(tensor, infer.reshape(result, tensor.shape), create_graph)


def _accumulate(tensor: TensorCore, node: Node, create_graph: bool) -> None:
    before = tensor.grad
    if create_graph:
        made = tensor._from_node(node, True)
        tensor.grad = made if before is None else cast(Any, before).add(made)
        return
    node = infer.detach(node)
    if before is None:
        tensor.grad = tensor._from_node(node)
        return
    with no_grad():
        total = infer.elementwise(Op.ADD, before._read(), node)
        before._write(total)


def _wanted_node(tensor: TensorCore) -> Node:
    """Return the node that stands for a tensor in the graphs made from it."""
    node = tensor._value()
    storage = host.leaf_storage(node)
    if storage is None:
        return node
    if storage.origin is not None:
        return storage.origin
    return node.args[0] if node.op is Op.RESHAPE else node


def grad(outputs: Any, inputs: Any = None, grad_outputs: Any = None, *,
         create_graph: bool = False, allow_unused: bool = False) -> Any:  # fmt: skip
    """Return the gradients of outputs with respect to inputs, and touch no ``.grad``.

    With a function as its only argument it returns the function that gives the gradient with
    respect to the first argument: ``weft.grad(loss)(w, x)``.

    Raises
    ------
    GradientError
        If an output requires no gradient, is not a single element and has no `grad_outputs`, or
        does not depend on an input (unless `allow_unused`, which gives None there).
    """
    if callable(outputs) and inputs is None:
        return _transformed(outputs)
    outs = (outputs,) if isinstance(outputs, TensorCore) else tuple(outputs)
    ins = (inputs,) if isinstance(inputs, TensorCore) else tuple(inputs)
    given = (grad_outputs,) if isinstance(grad_outputs, TensorCore) else grad_outputs
    seeds = _seeds(outs, given)
    results = driver.gradients([o._value() for o in outs], seeds, [_wanted_node(t) for t in ins])
    found: list[TensorCore | None] = []
    for i, (tensor, node) in enumerate(zip(ins, results, strict=True)):
        if node is None:
            if not allow_unused:
                raise GradientError("grad", found=f"input {i}, on which no output depends",
                                    expected="an input that was used",
                                    hint="allow_unused=True gives None for it")
            found.append(None)
            continue
        node = infer.reshape(node, tensor.shape)
        found.append(tensor._from_node(node if create_graph else infer.detach(node), create_graph))
    return tuple(found)


def _transformed(function: Callable[..., C]) -> Callable[..., C]:
    @functools.wraps(function)
    def gradient(first: C, *args: Any, **kwargs: Any) -> C:
        with enable_grad():
            x = first.detach().requires_grad_()
            (found,) = grad(function(x, *args, **kwargs), x)
        return cast(C, found)

    return gradient
