"""What stands for an operation of the device in a kernel, and cannot be used outside of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, NoReturn

from weft.errors import KernelError

__all__ = ["DEVICE", "MOST_BLOCKS", "MOST_SHARED", "MOST_THREADS", "WARP", "Everyone",
           "Intrinsic", "Special", "intrinsic"]  # fmt: skip

MOST_BLOCKS: Final = ((1 << 31) - 1, 65535, 65535)  # of a launch along x, y and z
MOST_THREADS: Final = 1024  # of a block
MOST_SHARED: Final = 227 << 10  # bytes, as much as the largest devices give one block
WARP: Final = 32  # threads of a warp, whatever the width of a vector
DEVICE: Final = {"threadIdx", "blockIdx", "blockDim", "gridDim", "laneid", "warpsize"}  # names


class Intrinsic:
    """A function that only kernels can call: its name, signature and description."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.__wrapped__, self.name = function, name
        self.__doc__ = function.__doc__
        self.signature = inspect.signature(function)
        names = [p.name if p.default is p.empty else f"{p.name}={p.default}"
                 for p in self.signature.parameters.values()]
        self.usage = f"gpu.{name}({', '.join(names)})"

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Refuse: there is no device here."""
        raise KernelError(f"gpu.{self.name}", found="a call from Python",
                          expected="a call inside a function under @weft.kernel")

    def __repr__(self) -> str:
        return f"<weft.gpu.{self.name}>"


def intrinsic(function: Callable[..., Any], prefix: str = "") -> Intrinsic:
    """Return the intrinsic that a Python signature and its docstring describe."""
    DEVICE.add(prefix + function.__name__)
    return Intrinsic(function, prefix + function.__name__)


class Everyone(int):
    """A mask of all threads of a warp, however many they are."""

    __slots__ = ()


class Special:
    """A value that differs from thread to thread or from launch to launch, such as an index."""

    __slots__ = ("constant", "name")

    def __init__(self, name: str, constant: int | None = None) -> None:
        self.name, self.constant = name, constant

    def __repr__(self) -> str:
        return f"<weft.gpu {self.name}>"


class Triple:
    """A special value in three directions."""

    __slots__ = ("x", "y", "z")

    def __init__(self, name: str) -> None:
        self.x, self.y, self.z = (Special(f"{name}.{axis}") for axis in "xyz")
