"""Hooks of modules: their handles, and calls of modules that have any.

Gradients pass a module's hooks by two identities (`weft.autograd.Function`), one behind its result
and one before its arguments, whose backward functions call them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.errors import DTypeError, GradientError
from weft.tensors.api.creation import zeros
from weft.tensors.api.custom_function import Function
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import describe
from weft.tensors.core.thread_state import state

if TYPE_CHECKING:
    from weft.tensors.api.custom_function import Context

__all__ = ["Hook", "HookHandle", "LoadResult", "When", "called"]

_numbers: Final = itertools.count()


class When(Enum):
    """When a hook is called."""

    BEFORE = "forward_pre_hook"
    AFTER = "forward_hook"
    GRADIENT_BEFORE = "full_backward_pre_hook"
    GRADIENT_AFTER = "full_backward_hook"


class Hook(NamedTuple):
    """A hook, and whether it wants the keywords of calls as well."""

    when: When
    function: Callable[..., Any]
    with_kwargs: bool


class HookHandle:
    """A hook of a module; ``remove()`` takes it away.

    Parameters
    ----------
    module : Module
        Whose calls the hook sees.
    hook : Hook
        The function, and when it is called.
    prepend : bool
        Whether it comes before those that are there.

    Examples
    --------
    >>> handle = weft.nn.ReLU().register_forward_hook(print)
    >>> handle.remove()
    """

    def __init__(self, module: Any, hook: Hook, prepend: bool = False) -> None:
        if not callable(hook.function):
            raise DTypeError(f"register_{hook.when.value}", found=describe(hook.function),
                             expected="a function")
        self._hooks = module.__dict__.setdefault("_hooks", {})
        self._number = next(_numbers)
        rest = dict(self._hooks) if prepend else {}
        if prepend:
            self._hooks.clear()
        self._hooks[self._number] = hook
        self._hooks.update(rest)

    def remove(self) -> None:
        """Call the hook no more.

        Examples
        --------
        >>> weft.nn.ReLU().register_forward_hook(print).remove()
        """
        self._hooks.pop(self._number, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class LoadResult(NamedTuple):
    """What a state dict lacked, and what it had too much.

    Parameters
    ----------
    missing_keys, unexpected_keys : list of str
        Paths.

    Examples
    --------
    >>> weft.nn.ReLU().load_state_dict({})
    <All keys matched successfully>
    """

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        """Return PyTorch's words where nothing is missing."""
        if not (self.missing_keys or self.unexpected_keys):
            return "<All keys matched successfully>"
        return (f"LoadResult(missing_keys={self.missing_keys}, "
                f"unexpected_keys={self.unexpected_keys})")  # fmt: skip


def called(module: Any, hooks: Sequence[Hook], args: tuple[Any, ...],
           kwargs: dict[str, Any]) -> Any:  # fmt: skip
    """Return a module's result with its hooks called around it."""
    for when, hook, with_kwargs in hooks:
        if when is When.BEFORE:
            made = hook(module, args, kwargs) if with_kwargs else hook(module, args)
            if made is None:
                continue
            if not with_kwargs:
                args = made if isinstance(made, tuple) else (made,)
            elif isinstance(made, tuple) and len(made) == 2:
                args, kwargs = made
            else:
                raise DTypeError("forward_pre_hook", found=describe(made),
                                 expected="None, or a tuple of arguments and keywords")
    way = _Way(module, hooks) if state.grad else None
    if way is not None and way.is_needed:
        args = way.entered(args)
    result = module.forward(*args, **kwargs)
    for when, hook, with_kwargs in hooks:
        if when is When.AFTER:
            made = (hook(module, args, kwargs, result) if with_kwargs
                    else hook(module, args, result))
            result = result if made is None else made
    return result if way is None or not way.is_needed else way.left(result)


class _Way:
    """The gradients of one call of a module on their way through its hooks."""

    def __init__(self, module: Any, hooks: Sequence[Hook]) -> None:
        self.module = module
        self.before = [h.function for h in hooks if h.when is When.GRADIENT_BEFORE]
        self.after = [h.function for h in hooks if h.when is When.GRADIENT_AFTER]
        self.is_needed = bool(self.before or self.after)
        self.nothing: list[Any] = []  # shapes and dtypes of arguments that are tensors, or None
        self.learned: list[int] = []  # those that gradients go to
        self.outgoing: tuple[Any, ...] = ()

    def entered(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments, whose gradients the hooks will see."""
        self.nothing = [(a.shape, a.dtype) if isinstance(a, Tensor) else None for a in args]
        self.learned = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        if not self.learned:
            return args
        made = list(args)
        found = _Identity.apply(self.incoming, *[args[i] for i in self.learned])
        for i, tensor in zip(self.learned, found, strict=True):
            made[i] = tensor
        return tuple(made)

    def left(self, result: Any) -> Any:
        """Return the result, whose gradients begin their way through the hooks."""
        items = list(result) if isinstance(result, tuple | list) else [result]
        where = [i for i, r in enumerate(items) if isinstance(r, Tensor) and r.requires_grad]
        if not where:
            return result

        def begin(gradients: tuple[Any, ...]) -> tuple[Any, ...]:
            whole: list[Any] = [None] * len(items)
            for i, gradient in zip(where, gradients, strict=True):
                whole[i] = gradient
            found = self.begun(tuple(whole))
            return tuple([found[i] for i in where])

        found = _Identity.apply(begin, *[items[i] for i in where])
        for i, tensor in zip(where, found, strict=True):
            items[i] = tensor
        if isinstance(result, tuple | list):
            kind: Any = type(result)
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        return items[0]

    def begun(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the gradients of results as hooks make them."""
        for hook in self.before:
            gradients = _replaced(hook(self.module, gradients), gradients, "full_backward_pre_hook")
        self.outgoing = gradients
        if not self.learned:
            nothing = (None,) * len(self.nothing)
            for hook in self.after:
                _replaced(hook(self.module, nothing, gradients), nothing, "full_backward_hook")
        return gradients

    def incoming(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the gradients of arguments as hooks make them."""
        whole = [None if n is None else zeros(n[0], dtype=n[1]) for n in self.nothing]
        for i, gradient in zip(self.learned, gradients, strict=True):
            whole[i] = gradient
        found = tuple(whole)
        for hook in self.after:
            found = _replaced(hook(self.module, found, self.outgoing), found, "full_backward_hook")
        return tuple([found[i] for i in self.learned])


def _replaced(made: Any, gradients: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Return what a hook makes of gradients."""
    if made is None:
        return gradients
    found = made if isinstance(made, tuple) else (made,)
    if len(found) != len(gradients):
        raise GradientError(name, found=f"{len(found)} gradients",
                            expected=f"None, or {len(gradients)}")
    return found


class _Identity(Function):
    """Tensors as they are; a function gets, and may replace, their gradients."""

    @staticmethod
    def forward(ctx: Context, change: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors."""
        ctx.change = change  # type: ignore[attr-defined]
        return tensors

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Any, ...]:
        """Return the gradients as the function makes them."""
        return (None, *ctx.change(gradients))  # type: ignore[attr-defined]
