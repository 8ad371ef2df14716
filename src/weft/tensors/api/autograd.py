"""Autograd's public functions: gradient modes, `grad`, `value_and_grad`, backward.

The history of a tensor is its graph: pure nodes, joined across realized values by
``Storage.origin``. Nothing is recorded while a program runs, so `backward` may be called twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar, cast

from weft import driver
from weft.errors import GradientError, ShapeError
from weft.imports import importing
from weft.ir import history, infer
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.op import Op
from weft.tensors.core.gradient_hooks import on_the_way
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.owners import leaves
from weft.tensors.core.pending import note_losses
from weft.tensors.core.thread_state import state
from weft.tensors.core.views import part_of, recorded_of
from weft.tensors.core.write_lock import changing

# The first two are loaded when they are named.
__all__ = ["Context", "Function",  # noqa: F822
           "backward", "enable_grad", "grad", "inference_mode", "is_grad_enabled", "no_grad",
           "set_grad_enabled", "value_and_grad"]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=TensorCore)


class set_grad_enabled:
    """Record gradients or not, from now on or within a ``with`` block.

    Parameters
    ----------
    mode : bool
        Whether operations of this thread are recorded.

    Examples
    --------
    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.set_grad_enabled(False):
    ...     (x * 2).requires_grad
    False
    """

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
    _mode: bool

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
        mode = self._mode

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            before, state.grad = state.grad, mode
            try:  # and no block of this class: a Ctrl-C may come where its ``__exit__`` begins
                return function(*args, **kwargs)
            finally:
                state.grad = before

        return run


class no_grad(_Mode):
    """Do not record gradients: ``with weft.no_grad():`` or ``@weft.no_grad()``.

    Examples
    --------
    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    __slots__ = ()
    _mode = False


class enable_grad(_Mode):
    """Record gradients, also inside no_grad: a ``with`` block or a decorator.

    Examples
    --------
    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.no_grad(), weft.enable_grad():
    ...     (x * 2).requires_grad
    True
    """

    __slots__ = ()
    _mode = True


class inference_mode(_Mode):
    """Do not record gradients, as `no_grad`: ``with weft.inference_mode():`` or a decorator.

    Parameters
    ----------
    mode : bool, optional
        False records them.

    Examples
    --------
    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.inference_mode():
    ...     (x * 2).requires_grad
    False
    """

    __slots__ = ("_mode",)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self._mode = not mode

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return `function` run in this mode."""
        return (enable_grad() if self._mode else no_grad())(function)


def is_grad_enabled() -> bool:
    """Return whether operations of this thread are recorded for gradients.

    Examples
    --------
    >>> with weft.no_grad():
    ...     weft.is_grad_enabled()
    False
    """
    return state.grad


def _reachable(roots: Sequence[Node]) -> tuple[dict[Node, TensorCore], set[Node]]:
    """Return the nodes below `roots` whose gradient some living tensor wants, and all nodes."""
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
        stack.extend(history.gradient_operands(node))
    return found, seen


def _seeds(outputs: Sequence[TensorCore], gradients: Sequence[object] | None) -> list[Node]:
    seeds = []
    for i, out in enumerate(outputs):
        given = None if gradients is None else gradients[i]
        if not out.requires_grad:
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


def backward(outputs: TensorCore | Sequence[TensorCore], gradients: Any = None,
             create_graph: bool = False, inputs: Any = None, *,
             retain_graph: bool | None = None) -> None:  # fmt: skip
    """Add the gradients of `outputs` to the ``grad`` of every leaf they depend on, or of `inputs`.

    `retain_graph` is taken as PyTorch has it: what was recorded stays with its tensors.

    Raises
    ------
    GradientError
        If an output requires no gradient, or is not a single element and has no gradient given.
    """
    outputs = (outputs,) if isinstance(outputs, TensorCore) else outputs
    inputs = (inputs,) if isinstance(inputs, TensorCore) else inputs
    gradients = (gradients,) if isinstance(gradients, TensorCore) else gradients
    seeds = _seeds(outputs, gradients)
    roots = [out._value() for out in outputs]
    wanted, met = _reachable(roots)
    hooks = on_the_way(met, wanted)
    passed = [n for n in hooks if n not in wanted]  # whose hooks see gradients that nobody keeps
    if inputs is not None:
        wanted, passed = {n: t for t in inputs for n in _wanted_nodes(t, wanted)}, []
    nodes = list(wanted)
    results = _gradients(roots, seeds, nodes + passed, hooks, create_graph)
    if state.capture is None:
        note_losses(outputs)
    for node, result in zip(nodes, results, strict=False):
        tensor = wanted[node]
        if result is not None:
            _accumulate(tensor, infer.reshape(result, tensor.shape), create_graph)


def _gradients(roots: Sequence[Node], seeds: Sequence[Node], wrt: Sequence[Node],
               hooks: Mapping[Node, Callable[[Node], Node]], create_graph: bool
               ) -> list[Node | None]:  # fmt: skip
    """Return gradients; what users wrote for the way is recorded if these are differentiated."""
    before, state.grad = state.grad, create_graph
    try:
        return driver.gradients(roots, seeds, wrt, hooks, create_graph)
    finally:
        state.grad = before


@changing
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
    _add_to(before, node)


@no_grad()
def _add_to(tensor: TensorCore, node: Node) -> None:
    tensor._write(infer.elementwise(Op.ADD, tensor._read(), node))


def _wanted_nodes(tensor: TensorCore, reachable: Mapping[Node, TensorCore]) -> list[Node]:
    """Return the nodes that stand for a tensor in the graphs made from it.

    A leaf has one for each value that it had, a view one for each node of its base's value.
    """
    node = tensor._value()
    wanted = {recorded_of(node): None}
    if tensor._is_leaf:
        base = nd.base(node)
        wanted = {base if base.op is Op.BUFFER else node: None}
        wanted.update((n, None) for n, owner in reachable.items() if owner is tensor)
    elif tensor._base is not None:
        wanted[recorded_of(part_of(recorded_of(tensor._base._value()), tensor._path))] = None
    return list(wanted)


def _sum(parts: Sequence[Node | None], shape: tuple[int, ...]) -> Node | None:
    """Return the sum of the gradients that there are, in a shape."""
    total: Node | None = None
    for part in parts:
        if part is not None:
            part = infer.reshape(part, shape)
            total = part if total is None else infer.elementwise(Op.ADD, total, part)
    return total


def grad(outputs: Any, inputs: Any = None, grad_outputs: Any = None, *,
         retain_graph: bool | None = None, create_graph: bool = False,
         allow_unused: bool = False, materialize_grads: bool = False) -> Any:  # fmt: skip
    """Return the gradients of outputs with respect to inputs, and touch no ``.grad``.

    With a function as its only argument it returns the function that gives the gradient with
    respect to the first argument: ``weft.grad(loss)(w, x)``.

    Parameters
    ----------
    outputs, inputs : Tensor or sequence of Tensor
        What is differentiated, and with respect to what.
    grad_outputs : Tensor or sequence of Tensor, optional
        The gradient of each output, of its shape, None for those with a single element.
    retain_graph : bool, optional
        Taken as PyTorch has it, and of no effect: what was recorded stays as long as its tensors.
    create_graph : bool, optional
        Whether the results can be differentiated again.
    allow_unused : bool, optional
        Whether an output may be independent of an input.
    materialize_grads : bool, optional
        Whether it then has a gradient of zeros.

    Returns
    -------
    tuple of Tensor
        One for each input, of its shape and dtype.

    Raises
    ------
    GradientError
        If an output requires no gradient, is not a single element and has no `grad_outputs`, or
        does not depend on an input (unless `allow_unused`, which gives None there).
    ShapeError
        If a gradient has another shape than its output.

    Examples
    --------
    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> weft.grad((x * x).sum(), x)
    (tensor([2., 4.]),)
    """
    if callable(outputs) and inputs is None:
        return _transformed(outputs)
    outs = (outputs,) if isinstance(outputs, TensorCore) else tuple(outputs)
    ins = (inputs,) if isinstance(inputs, TensorCore) else tuple(inputs)
    given = (grad_outputs,) if isinstance(grad_outputs, TensorCore) else grad_outputs
    seeds = _seeds(outs, given)
    roots = [o._value() for o in outs]
    reachable, met = _reachable(roots)
    wanted = [_wanted_nodes(t, reachable) for t in ins]
    results = iter(_gradients(roots, seeds, [n for nodes in wanted for n in nodes],
                              on_the_way(met, reachable), create_graph))  # fmt: skip
    found: list[TensorCore | None] = []
    for i, (tensor, nodes) in enumerate(zip(ins, wanted, strict=True)):
        node = _sum([next(results) for _ in nodes], tensor.shape)
        if node is None and materialize_grads:
            node = infer.full(tensor.shape, 0.0, tensor.dtype)
        if node is None:
            if not allow_unused:
                raise GradientError("grad", found=f"input {i}, on which no output depends",
                                    expected="an input that was used",
                                    hint="allow_unused=True gives None for it")
            found.append(None)
            continue
        found.append(tensor._from_node(node if create_graph else infer.detach(node), create_graph))
    return tuple(found)


def value_and_grad(function: Callable[..., C]) -> Callable[..., tuple[C, C]]:
    """Return a function that gives both its value and its gradient by the first argument.

    Parameters
    ----------
    function : callable
        Of a tensor, and what else it takes; returns a single element.

    Returns
    -------
    callable
        ``f(x, ...) -> (value, gradient)``: a tensor without history, and one of the shape of x.

    Raises
    ------
    GradientError
        If the result is not a single element, or does not depend on the first argument.

    Examples
    --------
    >>> value, slope = weft.value_and_grad(lambda x: (x * x).sum())(weft.tensor([1.0, 2.0]))
    >>> value.item(), slope.tolist()
    (5.0, [2.0, 4.0])
    """
    @functools.wraps(function)
    def both(first: C, *args: Any, **kwargs: Any) -> tuple[C, C]:
        with enable_grad():
            x = first.detach().requires_grad_()
            value = function(x, *args, **kwargs)
            (found,) = grad(value, x)
        return value.detach(), cast(C, found)

    return both


def _transformed(function: Callable[..., C]) -> Callable[..., C]:
    @functools.wraps(function)
    def gradient(first: C, *args: Any, **kwargs: Any) -> C:
        with enable_grad():
            x = first.detach().requires_grad_()
            (found,) = grad(function(x, *args, **kwargs), x)
        return cast(C, found)

    return gradient


_LATE: Final = {"Context": "custom_function", "Function": "custom_function"}


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Import what is rarely needed when it is named."""
    if name not in _LATE:
        raise AttributeError(f"module 'weft.autograd' has no attribute {name!r}", name=name)
    with importing:
        module = import_module(f"weft.tensors.api.{_LATE[name]}")
    found = globals()[name] = getattr(module, name)
    return found
