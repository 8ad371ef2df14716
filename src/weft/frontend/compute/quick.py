"""The short way of calls with plain arguments that were seen before: NumPy arrays and numbers.

What a call with some types, shapes and strides passes differs from the next such call by addresses
and numbers only. So the first one leaves a recipe, and the next need not take arguments apart.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontend.compute.arguments import LARGEST, span_of
from weft.frontend.kernel.types import ArrayType, ScalarType
from weft.ir import dtype as dt

if TYPE_CHECKING:
    from weft.driver.launch import Loaded
    from weft.frontend.compute.arguments import Arguments
    from weft.frontend.kernel.types import KernelType

__all__ = ["Recipe", "shape_of"]

_PLAIN: Final = frozenset("biuf")  # kinds of elements that are one number
_float = struct.Struct("=d")
_bits = struct.Struct("=q")


def shape_of(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]] | None:
    """Return what calls have in common that pass the same but addresses and numbers, and those.

    None if an argument is neither a NumPy array of plain numbers nor an int or a float of Python.
    """
    key: list[Any] = []
    given: list[Any] = []
    for value in args:
        kind = type(value)
        if kind is np.ndarray:
            face = value.__array_interface__
            code, shape = face["typestr"], face["shape"]
            if code[1] not in _PLAIN or not shape:
                return None
            address, readonly = face["data"]
            given.append(address)
            key.append((code, shape, face["strides"], readonly))
        elif kind is int:
            if not -LARGEST <= value <= LARGEST:
                return None
            given.append(value)
            key.append(value < 0)
        elif kind is float:
            given.append(_bits.unpack(_float.pack(value))[0])
            key.append(kind)
        else:
            return None
    return tuple(key), given


class Recipe:
    """How a call of one compiled function passes its arguments.

    Attributes
    ----------
    loaded : Loaded
        The function.
    fallback : str
        What a failure says where it has to run as it was written.
    """

    __slots__ = ("_arrays", "_numbers", "fallback", "loaded")

    def __init__(self, loaded: Loaded, fallback: str,
                 arrays: list[tuple[int, int, int, int, int]], numbers: list[int]) -> None:
        self.loaded, self.fallback = loaded, fallback
        self._arrays, self._numbers = arrays, numbers

    @classmethod
    def of(cls, loaded: Loaded, fallback: str, names: list[str], args: tuple[Any, ...],
           host: Arguments) -> Recipe | None:  # fmt: skip
        """Return the recipe of a call, None if it needs more than addresses and numbers."""
        places = {name: k for k, name in enumerate(names)}
        if not all(_goes_as_it_is(host.types[n], v) for n, v in zip(names, args, strict=True)):
            return None
        if any(places.get(n) is None or n not in host.numbers for n in loaded.variables):
            return None
        arrays = []
        passed = dict(zip((n for n, _ in host.arrays), host.addresses, strict=True))
        for k, name in enumerate(names):
            if name not in passed:
                continue
            array = args[k]
            at = array.__array_interface__["data"][0]
            low, high = span_of(array)
            arrays.append((k, passed[name] - at, low - at, high - at, array.dtype.alignment))
        return cls(loaded, fallback, arrays, [places[n] for n in loaded.variables])

    def passes(self, given: list[Any]) -> tuple[list[int], list[int]] | None:
        """Return addresses and variables of a call, None if its arrays overlap."""
        addresses, spans = [], []
        for k, first, low, high, alignment in self._arrays:
            at = given[k]
            if at % alignment:
                return None
            addresses.append(at + first)
            if high > low:
                spans.append((at + low, at + high))
        spans.sort()
        end = 0
        for start, stop in spans:
            if start < end:
                return None
            end = stop
        return addresses, [given[k] for k in self._numbers]


def _goes_as_it_is(kind: KernelType, value: Any) -> bool:
    """Whether an argument passes its bits: no constant, and no number that is converted."""
    if isinstance(kind, ScalarType):
        return kind.dtype is (dt.int64 if type(value) is int else dt.float64)
    return isinstance(kind, ArrayType)
