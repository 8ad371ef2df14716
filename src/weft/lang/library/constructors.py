"""Calls of types in kernels: numbers, vectors of CUDA, members of enumerations, and structs."""

from __future__ import annotations

import ast
import enum
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from weft.imports import Late
from weft.ir.dtype import DType
from weft.lang.core import scalars
from weft.lang.core.context import Context
from weft.lang.core.element_types import TimeOf
from weft.lang.core.hints import called
from weft.lang.core.values import Group, Known, Value
from weft.lang.values import complex_numbers

if TYPE_CHECKING:
    from weft.lang.values import times
else:
    times = Late("weft.lang.values.times")

__all__ = ["bound", "cast", "complex_number", "construct", "in_order", "member", "vector"]


def bound(c: Context, signature: inspect.Signature | Callable[..., Any], name: str, args: list[Any],
          named: dict[str, Value], node: ast.AST, hint: str = "") -> inspect.BoundArguments:
    """Return the arguments of a call by the parameters of what is called."""
    try:
        if not isinstance(signature, inspect.Signature):
            signature = inspect.signature(signature)
        return signature.bind(*args, **named)
    except (TypeError, ValueError) as error:
        raise c.wrong(node, f"{name}: {error}", hint) from None


def in_order(c: Context, function: Callable[..., Any], args: list[Value], named: dict[str, Value],
             node: ast.AST, names: Iterable[str] | None = None) -> list[Value]:  # fmt: skip
    """Return the arguments of a call in the order of the parameters, or of `names`, with defaults.

    Parameters
    ----------
    names
        Parameters; None: all.
    """
    found = bound(c, function, function.__name__, args, named, node)
    found.apply_defaults()
    given = found.arguments
    return [v if isinstance(v, Value) else c.outside(v, node)
            for v in (given[name] for name in (given if names is None else names))]


def vector(c: Context, kind: Any, names: tuple[str, ...], d: DType, args: list[Value],
           node: ast.AST) -> Value:  # fmt: skip
    """Return a vector of CUDA, made of numbers and of shorter vectors."""
    parts: list[Value] = []
    for arg in args:
        parts.extend(arg.items if isinstance(arg, Group) else (arg,))
    if len(parts) != len(names):
        raise c.wrong(node, f"{kind.__name__} of {len(parts)} numbers",
                      f"it has {len(names)}: {', '.join(names)}")
    items = tuple(scalars.convert(c.scalar(p, node), d) for p in parts)
    return Group(items, names, kind)


def complex_number(c: Context, d: DType, args: list[Value], node: ast.AST) -> Value:
    """Return ``complex(real, imag)``, or a number as a complex one."""
    if not 1 <= len(args) <= 2:
        raise c.wrong(node, f"complex takes one or two arguments, found {len(args)}")
    if len(args) == 2:
        real, imag = (scalars.convert(c.scalar(a, node), d) for a in args)
        return complex_numbers.group(real, imag)
    return complex_numbers.convert(complex_numbers.as_complex(c, args[0], node), d)


def cast(c: Context, d: DType, args: list[Value], named: dict[str, Value], node: ast.AST,
         plain: bool = False) -> Value:  # fmt: skip
    """Return a number in another type; ``int`` and ``float`` (`plain`) keep what is one."""
    if len(args) != 1 or named:
        raise c.wrong(node, f"{d.name} takes one argument, found {len(args) + len(named)}")
    if isinstance(args[0], Known) and isinstance(args[0].value, str):
        try:  # such as float("inf")
            args = [Known((float if d.is_float else int)(args[0].value))]
        except ValueError as error:
            raise c.wrong(node, str(error)) from None
    if isinstance(args[0], Group) and isinstance(args[0].kind, TimeOf):
        return times.as_integer(c, args[0], d, node)
    x = c.scalar(args[0], node)
    if plain and x.dtype.kind in ("f" if d.is_float else "iu") and not x.dtype.is_storage_only:
        return x
    return scalars.convert(x, d)


def member(c: Context, kind: enum.EnumMeta, args: list[Value], named: dict[str, Value],
           node: ast.AST) -> Value:  # fmt: skip
    """Return the member of an enumeration that a value names."""
    (only,) = args if len(args) == 1 and not named else (None,)
    if not isinstance(only, Known):
        raise c.wrong(node, f"{kind.__name__} of what is not known when the kernel is compiled",
                      f"compare with the values: {kind.__name__}.name.value")
    try:
        return Known(kind(only.value))
    except ValueError as error:
        raise c.wrong(node, str(error)) from None


def construct(c: Context, kind: type, args: list[Value], named: dict[str, Value],
              node: ast.AST) -> Value:  # fmt: skip
    """Return a named tuple or a dataclass."""
    names = tuple(getattr(kind, "_fields", ()) or getattr(kind, "__dataclass_fields__", ()))
    if not names and not hasattr(kind, "__dataclass_fields__"):
        what, hint = called(kind)
        raise c.wrong(node, f"{what} is not supported in kernels", hint)
    return Group(tuple(in_order(c, kind, args, named, node, names)), names, kind)
