"""`weft.func`: device functions, which kernels call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from weft.errors import KernelError, LaunchError, outermost
from weft.lang.source.texts import keep

__all__ = ["DeviceFunction", "func"]


class DeviceFunction:
    """A function for kernels to call; called from Python it is the function itself."""

    __name__: str
    __qualname__: str
    targetoptions: dict[str, Any]  # of numba's interface

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        keep(function)
        self.__weft_function__ = function

    def __reduce__(self) -> str:
        """Return the name under which copies and pickles find the function again."""
        return self.__qualname__

    @outermost
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the Python function."""
        return self.__weft_function__(*args, **kwargs)

    @outermost
    def __getitem__(self, configuration: Any) -> Any:
        """Refuse: kernels call it."""
        raise LaunchError(f"launch of {self.__name__}", found="a device function",
                          expected="a kernel, which may call it")

    def __repr__(self) -> str:
        return f"<weft.func {self.__name__}>"


@outermost
def func(function: Callable[..., Any]) -> DeviceFunction:
    """Make a device function: its body takes the place of each call in a kernel.

    Plain Python functions can be called from kernels, too; this says what one is for.
    """
    if not inspect.isfunction(function):
        raise KernelError("func", found=repr(function), expected="a function")
    return DeviceFunction(function)
