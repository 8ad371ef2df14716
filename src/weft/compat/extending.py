"""``numba.extending``: functions of the host for kernels; new types come as Python's own.

`overload`, `overload_method` and `overload_attribute` choose Python functions by types. numba's
types for its compiler, and its code by LLVM's builder, mean nothing here: a program gets a kind of
value of its own by a named tuple or a dataclass, whose methods and operators kernels know.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Final, NoReturn

from weft.compat.overloads import overload, overload_attribute, overload_method
from weft.errors import KernelError

__all__ = ["overload", "overload_attribute", "overload_method", "register_jitable"]


def register_jitable(*function: Any, **options: Any) -> Any:
    """Leave a function to Python on the host; kernels call it as any other."""
    del options
    return function[0] if function else lambda given: given


_OF_THE_COMPILER: Final = frozenset((
    "NativeValue", "box", "infer", "infer_getattr", "infer_global", "intrinsic", "lower_builtin",
    "lower_cast", "lower_getattr", "lower_setattr", "make_attribute_wrapper", "models",
    "overload_classmethod", "register_model", "type_callable", "typeof_impl", "unbox"))


_PLACES: Final = {"core": ("cgutils", "datamodel", "imputils", "typeconv"),
                  "cuda": ("cgutils", "cudadecl", "cudaimpl", "models", "target")}
TEMPLATES: Final = frozenset(("AbstractTemplate", "AttributeTemplate", "CallableTemplate",
                              "ConcreteTemplate"))


def refuse(name: str) -> NoReturn:
    """Refuse what extends numba's compiler, with what to write instead."""
    raise KernelError(f"numba.{name}", found="an extension of numba's compiler",
                      expected="a named tuple, a dataclass, a plain function or overload",
                      hint="kernels know their fields, methods and operators as they are")


class _OfTheCompiler(ModuleType):
    """A module of numba's compiler: it may be imported, and what is taken from it is refused."""

    def __getattr__(self, name: str) -> Any:
        """Refuse whatever stands there in numba."""
        if name.startswith("__"):  # Python asks modules for names of its own
            raise AttributeError(name)
        refuse(f"{self.__name__.removeprefix('weft.compat.')}.{name}")


def places(package: str) -> dict[str, ModuleType]:
    """Let the modules of numba's compiler in ``core`` or ``cuda`` be imported."""
    made: dict[str, ModuleType] = {}
    for name in _PLACES[package]:
        path = f"weft.compat.{package}.{name}"
        made[name] = sys.modules[path] = _OfTheCompiler(path)
    return made


def __getattr__(name: str) -> Any:
    """Refuse what extends numba's compiler."""
    if name in _OF_THE_COMPILER:
        refuse(f"extending.{name}")
    raise AttributeError(f"numba.extending has no {name}")
