"""Arguments and results of captured functions: nested containers with tensors as leaves."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator
from typing import Any

from weft.errors import CaptureError
from weft.tensors.core.lazy_tensor import TensorCore

__all__ = ["flatten", "is_array", "numbers_of", "rebuild", "replaced", "with_items"]


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
    if issubclass(kind, dict):  # captured functions get a plain one
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


def numbers_of(value: Any, numbers: list[int | float], is_open: Container[int]) -> Hashable:
    """Append the numbers of `value` and return what `flatten` does, but for the open ones.

    Parameters
    ----------
    value
        What `flatten` has accepted.
    numbers
        Gets every int and float, in the order in which `flatten` meets them.
    is_open
        Positions in `numbers` whose values are left out.
    """
    kind = type(value)
    if kind is float or kind is int:
        numbers.append(value)
        if len(numbers) - 1 in is_open:
            return (kind, None)
        return (kind, value.hex() if kind is float else value)
    if isinstance(value, TensorCore) or is_array(value):
        return _ARRAY
    if kind is tuple or kind is list or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return (kind, tuple([numbers_of(v, numbers, is_open) for v in value]))
    if issubclass(kind, dict):  # captured functions get a plain one
        return (dict, tuple([(k, numbers_of(v, numbers, is_open)) for k, v in value.items()]))
    return (kind, value)


def replaced(value: Any, arrays: Iterator[Any], numbers: Iterator[Any] | None = None) -> Any:
    """Return `value` with arrays, and numbers, replaced in the order in which they are met."""
    if isinstance(value, TensorCore) or is_array(value):
        return next(arrays)
    kind = type(value)
    if numbers is not None and (kind is float or kind is int):
        return next(numbers)
    return with_items(value, lambda v: replaced(v, arrays, numbers))


def with_items(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a container with each of its items changed; what is none as it is."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([change(v) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[change(v) for v in value])
    if issubclass(kind, dict):  # captured functions get a plain one
        return {k: change(v) for k, v in value.items()}
    return value


def rebuild(value: Any, replace: Callable[[TensorCore], Any]) -> Any:
    """Return `value` with each tensor replaced."""
    if isinstance(value, TensorCore):
        return replace(value)
    return with_items(value, lambda v: rebuild(v, replace))
