"""Results of module methods: hook handles, and the report of loading a state dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["HookHandle", "LoadResult"]


class HookHandle:
    """A hook of a module; ``remove()`` takes it away.

    Parameters
    ----------
    module : Module
        Whose calls the hook sees.
    first : bool
        Whether it is called before the module.
    hook : callable
        The function.

    Examples
    --------
    >>> handle = weft.nn.ReLU().register_forward_hook(print)
    >>> handle.remove()
    """

    def __init__(self, module: Any, first: bool, hook: Callable[..., Any]) -> None:
        self._hooks = module.__dict__.setdefault("_hooks", {})
        self._hooks[id(self)] = first, hook

    def remove(self) -> None:
        """Call the hook no more.

        Examples
        --------
        >>> weft.nn.ReLU().register_forward_hook(print).remove()
        """
        self._hooks.pop(id(self), None)


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
