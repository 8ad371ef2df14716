"""Conversions between 16-bit floats with eight bits of exponent and other numbers, for kernels.

Each rounds once, in the way that its name ends with: ``rn`` to the nearest, ties to even, ``rz``
towards zero, ``rd`` down, ``ru`` up. An integer type that does not hold a number gives its least or
its largest one; nan becomes 0, in 64 bits the integer of which only the highest bit is set.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft.compat.cuda.bits import Bits, float_as_int, int_as_float
from weft.ir import dtype as dt
from weft.lang.device import gpu as _operations
from weft.lang.launch.device_function import DeviceFunction, func

__all__ = ["FUNCTIONS"]

gpu: Any = _operations
bfloat16: Any = dt.bfloat16
_single: Any = np.float32
_double: Any = np.float64
_ROUNDED: Final = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
_INTEGERS: Final = ("int16", "uint16", "int32", "uint32", "int64", "uint64")
_OF_CUDA: Final = {"int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort",
                   "int32": "int", "uint32": "uint", "int64": "ll", "uint64": "ull",
                   "float32": "float", "float64": "double"}  # fmt: skip


def _named(function: Any, name: str, does: str) -> DeviceFunction:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = does
    return func(function)


def _to_integer(kind: str, mode: str) -> DeviceFunction:
    integer: Any = getattr(np, kind)
    rounded = _ROUNDED[mode]
    least, largest = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    beyond = float(largest + 1) if largest < 1 << 53 else float(largest)
    of_nan = (-(1 << 63) if kind == "int64" else 1 << 63) if kind.endswith("64") else 0

    def convert(a: Any) -> Any:
        x = rounded(_double(bfloat16(a)))
        found = integer(of_nan)
        if x >= beyond:
            found = integer(largest)
        elif x <= least:
            found = integer(least)
        elif x == x:
            found = integer(x)
        return found

    return _named(convert, f"bfloat16_to_{kind}_{mode}", f"Return a number as {kind}.")


def _of_integer(kind: str, mode: str) -> DeviceFunction:
    integer: Any = getattr(np, kind)
    nearest, down, up = mode == "rn", mode == "rd", mode == "ru"
    wide: Any = np.uint64

    def convert(a: Any) -> Any:
        n = integer(a)
        negative = n < 0
        size = wide(n)
        if negative:
            size = wide(0) - size
        shift = 56 - gpu.clz(np.int64(size))  # so that eight bits are left
        found = _single(size)
        if shift > 0:
            kept = size >> wide(shift)
            rest = size - (kept << wide(shift))
            half = wide(1) << wide(shift - 1)
            if nearest:
                more = rest > half or (rest == half and kept & wide(1) == wide(1))
            else:
                more = rest > wide(0) and ((down and negative) or (up and not negative))
            if more:
                kept += wide(1)
            found = _single(kept) * int_as_float((127 + shift) << 23)
        return bfloat16(-found if negative else found)

    return _named(convert, f"{kind}_to_bfloat16_{mode}", "Return an integer as such a float.")


def _of_single(mode: str) -> DeviceFunction:
    down, up = mode == "rd", mode == "ru"

    def convert(a: Any) -> Any:
        x = _single(a)
        bits = float_as_int(x)
        found = bfloat16(x)
        if x == x:
            rest = bits & 0xFFFF
            kept = bits - rest
            if rest != 0 and ((down and bits < 0) or (up and bits >= 0)):
                kept += 0x10000
            found = bfloat16(int_as_float(kept))
        return found

    return _named(convert, f"float32_to_bfloat16_{mode}", "Return a float32 as such a float.")


@func
def bfloat16_to_float32(a: Any) -> Any:
    """Return the number as a float32, which holds it."""
    return _single(bfloat16(a))


@func
def float32_to_bfloat16(a: Any) -> Any:
    """Return a float32 as such a float, rounded to the nearest."""
    return bfloat16(_single(a))


@func
def float64_to_bfloat16(a: Any) -> Any:
    """Return a float64 as such a float, rounded to the nearest."""
    return bfloat16(_double(a))


def _functions() -> dict[str, Any]:
    made: list[Any] = [bfloat16_to_float32, float32_to_bfloat16, float64_to_bfloat16,
                       _to_integer("int8", "rz"), _to_integer("uint8", "rz")]  # fmt: skip
    made += [make(kind, mode) for kind in _INTEGERS for mode in _ROUNDED
             for make in (_to_integer, _of_integer)]
    made += [_of_single(mode) for mode in ("rz", "rd", "ru")]
    found: dict[str, Any] = {f.__name__: f for f in made}
    found["float32_to_bfloat16_rn"] = float32_to_bfloat16
    for kind in ("int16", "uint16"):
        integer = getattr(dt, kind)
        for name, source, target in ((f"bfloat16_as_{kind}", dt.bfloat16, integer),
                                     (f"{kind}_as_bfloat16", integer, dt.bfloat16)):
            found[name] = Bits(name, source, target)
    return found | {_name_of_cuda(name): made for name, made in found.items()}


def _name_of_cuda(name: str) -> str:
    """Return what CUDA's headers call a conversion: float32_to_bfloat16_rn -> float2bfloat16_rn."""
    source, way, target, *mode = name.split("_")
    link = "2" if way == "to" else "_as_"
    return "_".join([_OF_CUDA.get(source, source) + link + _OF_CUDA.get(target, target), *mode])


FUNCTIONS: Final = _functions()
