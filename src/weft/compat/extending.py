"""``numba.extending``: functions of the host for kernels; new types come as Python's own.

numba's types for its compiler, and its code by LLVM's builder, mean nothing here: a program gets a
kind of value of its own by a named tuple or a dataclass, whose methods and operators kernels know.
"""

from __future__ import annotations

from typing import Any, Final

from weft.compat.host import jit
from weft.errors import KernelError

__all__ = ["register_jitable"]

register_jitable = jit

_OF_THE_COMPILER: Final = frozenset((
    "NativeValue", "box", "infer", "infer_getattr", "infer_global", "intrinsic", "lower_builtin",
    "lower_cast", "lower_getattr", "lower_setattr", "make_attribute_wrapper", "models", "overload",
    "overload_attribute", "overload_classmethod", "overload_method", "register_model",
    "type_callable", "typeof_impl", "unbox"))  # fmt: skip


def __getattr__(name: str) -> Any:
    """Refuse what extends numba's compiler."""
    if name in _OF_THE_COMPILER:
        raise KernelError(f"numba.extending.{name}", found="an extension of numba's compiler",
                          expected="a named tuple, a dataclass or a plain function",
                          hint="kernels know their fields, methods and operators as they are")
    raise AttributeError(f"numba.extending has no {name}")
