"""Functions whose derivative the user writes: `weft.autograd.Function`.

`forward` runs without being recorded. Its results are nodes whose gradients meet in one node of the
call (`weft.ir.history.Custom`), from where `backward` gives those of the inputs. What `forward`
saves are nodes as well: values are those of the forward, whatever is written to the tensors since,
and a replay of a captured function puts its own in their places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from weft.errors import DTypeError, GradientError, ShapeError, UnsupportedError
from weft.ir import history, infer
from weft.ir.node import Node
from weft.tensors.api.autograd import no_grad
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import describe
from weft.tensors.core.thread_state import state

__all__ = ["Context", "Function"]


class Saved(NamedTuple):
    """One tensor that a forward saved: its number among the nodes, and what it was."""

    position: int
    result: int | None  # which of the results it is
    requires_grad: bool


class Context:
    """What `Function.forward` hands over to `Function.backward`; it takes any attributes.

    Attributes
    ----------
    needs_input_grad : tuple of bool
        Whether a gradient of each argument of ``apply`` is wanted.

    Examples
    --------
    >>> class Cube(weft.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         (x,) = ctx.saved_tensors
    ...         return gradient * 3 * x * x
    >>> x = weft.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    __slots__ = ("__dict__", "_call", "_dirty", "_entries", "_held", "_kept", "_materialize",
                 "_plain", "_saved", "needs_input_grad")  # fmt: skip

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self._saved: tuple[Tensor | None, ...] = ()
        self._plain: tuple[Tensor, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._materialize = True
        self._call: Node | None = None
        self._kept: tuple[Node, ...] = ()
        self._entries: list[Saved | None] = []
        self._held: dict[int, int] = {}

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for the backward, with the values that they have now.

        Parameters
        ----------
        *tensors : Tensor or None
            Arguments, results, or what was computed between.

        Raises
        ------
        DTypeError
            If one is no tensor; other things can be attributes.

        Examples
        --------
        >>> weft.autograd.Context((True,)).save_for_backward(weft.ones(2))
        """
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise DTypeError("save_for_backward", found=describe(tensor), expected="tensors",
                                 hint="set other things as attributes: ctx.size = size")
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What `save_for_backward` kept, with the values that it had then.

        Returns
        -------
        tuple of Tensor or None
            As many as were saved.

        Examples
        --------
        >>> ctx = weft.autograd.Context((True,))
        >>> ctx.save_for_backward(weft.ones(2))
        >>> ctx.saved_tensors
        (tensor([1., 1.]),)
        """
        call = self._call
        if call is None:
            return self._saved
        found: list[Tensor | None] = []
        for entry in self._entries:
            if entry is None:
                found.append(None)
                continue
            node = call.attr.saved[entry.position]
            if entry.result is not None:
                node = history.part_of(call, entry.result, node)
            found.append(Tensor._from_node(node, entry.requires_grad))
        return tuple(found)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which results have no gradient.

        Parameters
        ----------
        *tensors : Tensor
            Results of the forward.

        Raises
        ------
        DTypeError
            If one is no tensor.

        Examples
        --------
        >>> weft.autograd.Context((True,)).mark_non_differentiable(weft.ones(2))
        """
        self._plain = _tensors(tensors, "mark_non_differentiable")

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which arguments the forward has changed in place; they have to be results as well.

        Parameters
        ----------
        *tensors : Tensor
            Arguments of the forward.

        Raises
        ------
        DTypeError
            If one is no tensor.

        Examples
        --------
        >>> weft.autograd.Context((True,)).mark_dirty(weft.ones(2))
        """
        self._dirty = _tensors(tensors, "mark_dirty")

    def set_materialize_grads(self, value: bool) -> None:
        """Choose what backward gets for a result that nothing depends on: zeros, or None.

        Parameters
        ----------
        value : bool
            True, as at first, for zeros.

        Raises
        ------
        DTypeError
            If it is no bool.

        Examples
        --------
        >>> weft.autograd.Context((True,)).set_materialize_grads(False)
        """
        if not isinstance(value, bool):
            raise DTypeError("set_materialize_grads", found=describe(value),
                             expected="True or False")
        self._materialize = value

    def _finish(self, results: tuple[Any, ...], inputs: tuple[Node, ...], values: list[Node],
                rule: Callable[[Node, Mapping[int, Node]], list[Node | None]]) -> Node:  # fmt: skip
        """Return the node of the call, with all that the backward reads."""
        nodes: list[Node] = []
        for tensor in self._saved:
            number = next((i for i, r in enumerate(results) if r is tensor), None)
            if tensor is None:
                self._entries.append(None)
                continue
            if number is not None and not self._differentiates(tensor):
                number = None
            tracked = tensor.requires_grad or number is not None
            self._entries.append(Saved(len(nodes), number, tracked))
            nodes.append(tensor._value())
        for tensor in _within(self.__dict__):
            self._held[id(tensor)] = len(nodes)
            nodes.append(tensor._value())
        self._kept, self._saved = (*nodes, *values), ()
        return history.custom(inputs, self._kept, rule)

    def _differentiates(self, result: Tensor) -> bool:
        """Whether a result has a gradient."""
        return result.dtype.is_float and all(t is not result for t in self._plain)

    @contextmanager
    def _at(self, call: Node) -> Iterator[Context]:
        """Give the context of a call, whose saved values may be those of a replay."""
        made = self
        if not all(a is b for a, b in zip(call.attr.saved, self._kept, strict=True)):

            def replayed(tensor: Tensor) -> Tensor:
                node = call.attr.saved[self._held[id(tensor)]]
                return Tensor._from_node(node, tensor.requires_grad)

            made = Context(self.needs_input_grad)
            made._entries, made._materialize = self._entries, self._materialize
            made.__dict__.update(_mapped(self.__dict__, replayed))
        before, made._call = made._call, call
        try:
            yield made
        finally:
            made._call = before  # for a context that knew its call would be a cycle


class Function:
    """Base of functions whose derivative is written by hand, as PyTorch's `autograd.Function`.

    A subclass defines the static methods ``forward(ctx, *args)``, which computes the results, and
    ``backward(ctx, *gradients)``, which returns a gradient (or None) for each argument. With a
    static method ``setup_context(ctx, inputs, output)`` the forward takes no context. Functions are
    called by ``apply``, and never made.

    Raises
    ------
    UnsupportedError
        If the class is called.

    Examples
    --------
    >>> class Clip(weft.autograd.Function):  # its gradient is that of the identity
    ...     @staticmethod
    ...     def forward(ctx, x, most):
    ...         return x.clamp(-most, most)
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         return gradient, None
    >>> x = weft.tensor([-3.0, 1.0], requires_grad=True)
    >>> Clip.apply(x, 2.0).sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Refuse to make an object."""
        raise UnsupportedError(cls.__name__, found="a call of the class",
                               expected=f"{cls.__name__}.apply(...)")

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    setup_context: Callable[..., Any] | None = None

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Compute the function, and let gradients go through its `backward`.

        Parameters
        ----------
        *args : object
            Those of `forward`; gradients go to tensors among them, not to those inside of lists.

        Returns
        -------
        Tensor or tuple
            What `forward` returns.

        Raises
        ------
        UnsupportedError
            If the class defines no `forward` or no `backward`.
        DTypeError
            If `forward` returns something else than a tensor or a tuple.
        GradientError
            In a backward, if `backward` does not return a gradient, or None, for each argument.

        Examples
        --------
        >>> class Double(weft.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     def backward(ctx, gradient):
        ...         return gradient * 2
        >>> Double.apply(weft.ones(2))
        tensor([2., 2.])
        """
        for name in ("forward", "backward"):
            if not hasattr(cls, name):
                raise UnsupportedError(cls.__name__, found=f"no method {name}",
                                       expected="static methods forward and backward")
        context = Context(tuple([isinstance(a, Tensor) and a.requires_grad for a in args]))
        wanted = {i: a._value() for i, (a, needed) in enumerate(
            zip(args, context.needs_input_grad, strict=True)) if needed and state.grad}
        with no_grad():
            if cls.setup_context is None:
                made = cls.forward(context, *args)
            else:
                made = cls.forward(*args)
                cls.setup_context(context, args, made)
        results = made if isinstance(made, tuple) else (made,)
        if not isinstance(made, tuple) and not isinstance(made, Tensor):
            raise DTypeError(f"{cls.__name__}.forward", found=describe(made),
                             expected="a tensor, or a tuple, as its result")
        if not wanted:
            return made
        tensors = [i for i, r in enumerate(results) if isinstance(r, Tensor)]
        last = len(tensors) if len(tensors) > 1 else 0  # one that is alone has its gradient

        def rule(call: Node, given: Mapping[int, Node]) -> list[Node | None]:
            known = dict(zip(tensors, call.attr.saved[-last:], strict=True)) if last else {}
            gradients = [_gradient(context, given.get(i), known.get(i))
                         for i in range(len(results))]
            with context._at(call) as current:
                returned = cls.backward(current, *gradients)
            inputs = dict(zip(wanted, call.attr.inputs, strict=True))
            return _returned(cls.__name__, returned, len(args), inputs)

        values = [results[i]._value() for i in tensors[:last]]
        call = context._finish(results, tuple(wanted.values()), values, rule)
        sources = [args[i] for i in wanted]
        done = [_recorded(context, call, i, r, sources) for i, r in enumerate(results)]
        return tuple(done) if isinstance(made, tuple) else done[0]


def _tensors(values: tuple[Any, ...], operation: str) -> tuple[Tensor, ...]:
    for value in values:
        if not isinstance(value, Tensor):
            raise DTypeError(operation, found=describe(value), expected="tensors")
    return values


def _recorded(context: Context, call: Node, number: int, result: Any, sources: list[Tensor]
              ) -> Any:  # fmt: skip
    """Return a result whose gradient goes to the call, if it has one."""
    if not isinstance(result, Tensor):
        return result
    if not context._differentiates(result):
        return result.detach() if result.requires_grad else result
    node = history.part_of(call, number, result._value())
    if any(result is t for t in context._dirty):
        result._write(node, *sources)
        return result
    return Tensor._from_node(node, True)


def _gradient(context: Context, node: Node | None, value: Node | None) -> Tensor | None:
    """Return the gradient of a result as backward gets it."""
    if node is None and value is not None and context._materialize:
        node = infer.full(value.shape, 0, value.dtype)
    return None if node is None else Tensor._from_node(node, state.grad and node.dtype.is_float)


def _returned(name: str, made: Any, count: int, wanted: Mapping[int, Node]) -> list[Node | None]:
    """Return the gradients that a backward gave, checked, for the arguments that want one."""
    found = made if isinstance(made, tuple) else (made,)
    if len(found) < count or any(g is not None for g in found[count:]):
        raise GradientError(f"{name}.backward", found=f"{len(found)} gradients",
                            expected=f"{count}, one for each argument of apply",
                            hint="return None where there is none")
    nodes: list[Node | None] = []
    for i, value in wanted.items():
        gradient = found[i]
        if gradient is None:
            nodes.append(None)
            continue
        if not isinstance(gradient, Tensor):
            raise GradientError(f"{name}.backward", found=describe(gradient),
                                expected=f"a tensor or None as gradient {i}")
        node = gradient._value()
        lead = node.ndim - value.ndim
        if lead < 0 or not all(n == 1 or infer.same_dim(n, m) for n, m in zip(
            value.shape, node.shape[lead:], strict=True)):  # fmt: skip
            raise ShapeError(f"{name}.backward", found=f"a gradient {i} of {gradient.shape}",
                             expected=f"the argument's shape, {value.shape}")
        spread = [a for a in range(node.ndim) if a < lead or not infer.same_dim(
            value.shape[a - lead], node.shape[a])]  # fmt: skip
        if spread:
            node = infer.reduce(node, "sum", spread)
        nodes.append(infer.cast(infer.reshape(node, value.shape), value.dtype))
    return nodes


def _within(value: Any) -> list[Tensor]:
    """Return the tensors in lists, tuples and dicts, each once."""
    found: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        found[id(tensor)] = tensor
        return tensor

    _mapped(value, note)
    return list(found.values())


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return lists, tuples and dicts with other tensors in place of those in them."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) is dict:
        return {key: _mapped(v, change) for key, v in value.items()}
    if type(value) is list or type(value) is tuple:
        return type(value)([_mapped(v, change) for v in value])
    return value
