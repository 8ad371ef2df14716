"""Arguments and results of captured functions: nested containers with tensors as leaves."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from weft.errors import CaptureError
from weft.frontend.core import TensorCore

__all__ = ["flatten", "is_array", "rebuild", "with_items"]


def is_array(value: object) -> bool:
    """Whether a value is another library's array."""
    return hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__")


def flatten(value: Any, leaves: list[Any], where: str = "argument", depth: int = 0) -> Hashable:
    """Append the arrays of `value` to `leaves` and return what else it is made of.

    Raises
    ------
    CaptureError
        If something is neither an array, a container nor hashable.
    """
    kind = type(value)
    if isinstance(value, TensorCore) or is_array(value):
        leaves.append(value)
        return _ARRAY
    if depth > _DEEPEST:
        raise CaptureError("jit", found=f"an {where} nested more than {_DEEPEST} deep",
                           expected="containers that end")
    depth += 1
    if kind is tuple or kind is list or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return (kind, tuple([flatten(v, leaves, where, depth) for v in value]))
    if kind is dict:
        return (dict, tuple([(k, flatten(v, leaves, where, depth)) for k, v in value.items()]))
    if kind is float:
        return (float, value.hex())  # tells -0.0 from 0.0, and NaN equals itself
    if value is None or kind in (bool, int, str, bytes, complex):
        return (kind, value)
    try:
        hash(value)
    except Exception:  # TypeError, or whatever a class raises: a memoryview a ValueError
        raise CaptureError("jit", found=f"an {where} of type {kind.__name__}",
                           expected="tensors, containers of them, and hashable values") from None
    return (kind, value)


_ARRAY = "array"
_DEEPEST = 100  # levels of containers


def with_items(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a container with each of its items changed; what is none as it is."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([change(v) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[change(v) for v in value])
    if kind is dict:
        return {k: change(v) for k, v in value.items()}
    return value


def rebuild(value: Any, replace: Callable[[TensorCore], Any]) -> Any:
    """Return `value` with each tensor replaced."""
    if isinstance(value, TensorCore):
        return replace(value)
    return with_items(value, lambda v: rebuild(v, replace))
