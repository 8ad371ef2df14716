"""Checks of arguments that many functions share: tensors, devices, ranges of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from weft.backends import registry
from weft.driver import placement
from weft.driver.context import context
from weft.errors import DeviceError, DTypeError, RangeError, ShapeError
from weft.ir import infer
from weft.ir.dtype import DType
from weft.ir.node import HOST, Node
from weft.tensors.core.devices import AUTO, get_default_device
from weft.tensors.core.lazy_tensor import TensorCore

__all__ = ["check_rank", "check_tensor", "choice", "computes", "count_of", "describe", "items_of",
           "number", "place_of"]  # fmt: skip

T = TypeVar("T", bound=TensorCore)


def describe(value: object) -> str:
    """Return a value in a few words, for a message."""
    text = repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"


def check_tensor(value: T, operation: str) -> T:
    """Return `value`, which must be a tensor.

    Raises
    ------
    DTypeError
        If it is anything else.
    """
    if isinstance(value, TensorCore):
        return value
    raise DTypeError(operation, found=describe(value), expected="a tensor",
                     hint="weft.tensor(...) makes one")


def check_rank(value: TensorCore, least: int, operation: str) -> None:
    """Raise a ShapeError if a tensor has fewer than `least` axes."""
    if len(value.shape) < least:
        raise ShapeError(operation, found=f"shape {value.shape}",
                         expected=f"at least {least} axes" if least > 1 else "at least one axis")


def computes(node: Node, dtype: DType) -> bool:
    """Return whether the device of a value computes with floats of a type."""
    return context(node.device).target.computes(dtype)


def place_of(device: object, operation: str, expected: str = "the name of a device that is here"
             ) -> str:  # fmt: skip
    """Return the device that is asked for, None being the default one.

    It is empty where that is the memory of this process and the default, too: nothing has to be
    moved then. `AUTO` remains where there are several devices to choose from, which `moved` does.

    Raises
    ------
    DeviceError
        If it is no device, or absent.
    """
    if isinstance(device, str) and device == AUTO:
        choice = placement.devices()
        if len(choice) > 1:
            return AUTO
        device = choice[0] if choice else registry.first()
    given: object = get_default_device() if device is None else device
    if given == HOST:
        return "" if device is None or context().name == HOST else HOST
    hint = "leave device= out, or choose from what `weft devices` lists"
    if type(given).__module__ == "torch":
        given = str(given)
    if isinstance(given, str) and given:
        try:
            name = context(given).name
            return "" if name == HOST == context().name else name
        except DeviceError as error:
            hint = error.hint or hint
    raise DeviceError(operation, found=f"the device {describe(given)}",
                      expected=expected, hint=hint)


def number(value: Any, operation: str) -> Any:
    """Return a number of Python's or NumPy's.

    Raises
    ------
    DTypeError
        If it is anything else.
    """
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    raise DTypeError(operation, found=describe(value), expected="a number")


def items_of(values: Any, operation: str) -> list[Any]:
    """Return what a list, a tuple or another iterable of arguments holds.

    Raises
    ------
    DTypeError
        If it is a single thing.
    """
    try:
        return list(values)
    except TypeError:
        raise DTypeError(operation, found=describe(values),
                         expected="a list or tuple") from None


def choice(value: Any, options: Sequence[object], operation: str, name: str) -> None:
    """Raise a RangeError unless an argument is one of some options."""
    if not any(type(value) is type(o) and value == o for o in options):
        raise RangeError(operation, found=f"{name}={describe(value)}",
                         expected=" or ".join(map(repr, options)))


def count_of(value: Any, operation: str, least: int, most: int = 1 << 62) -> int:
    """Return a whole number from `least` to `most`.

    Raises
    ------
    DTypeError, RangeError
        If it is no whole number, or not one of these.
    """
    number = infer.as_int(value, operation)
    if not least <= number <= most:
        expected = f"at least {least}" if number < least else f"at most {most}"
        raise RangeError(operation, found=str(number), expected=expected)
    return number
