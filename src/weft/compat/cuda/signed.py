"""Signatures of functions and kernels: which of several is meant, and what arguments become.

numba converts the arguments of a function with a signature to its types, and the result, too. Of
several signatures it takes the one that loses least: a conversion is exact, a promotion (to a wider
type of the same kind), safe (every value stays), or not safe.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compat.numba_types import (
    ArrayOf,
    BaseTuple,
    NumbaType,
    Signature,
    adopted,
    tuple_type,
    typeof,
)
from weft.errors import DTypeError, WeftError, outermost
from weft.lang.launch.device_function import DeviceFunction

if TYPE_CHECKING:
    from weft.ir.dtype import DType

__all__ = ["SignedFunction", "best", "rating"]

_Rating = tuple[int, int, int]  # conversions that are not safe, safe ones, promotions
_EXACT, _PROMOTED, _SAFE, _UNSAFE = (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)


def rating(have: Any, want: Any) -> _Rating | None:
    """Return what a conversion costs, the dearest kind first; None where there is none.

    Types are those of signatures; what is None is not known, and fits.
    """
    if have is None or want is None:
        return _EXACT
    if isinstance(want, BaseTuple) and isinstance(have, BaseTuple):
        return _total(have.types, want.types)
    if isinstance(want, ArrayOf) and isinstance(have, ArrayOf):
        if have.ndim != want.ndim or have.kind != want.kind or (
            want.order == "C" and have.order != "C"
        ):
            return None
        return _EXACT if have.order == want.order else _SAFE
    if not (isinstance(have, NumbaType) and isinstance(want, NumbaType)):
        return None
    if have.kind == want.kind:
        return _EXACT
    if any(t.kind is None or t.kind.fields is not None for t in (have, want)):
        return None
    return _of_numbers(have.kind, want.kind)


def _of_numbers(have: Any, want: Any) -> _Rating | None:
    a, b = np.dtype(have), np.dtype(want)
    if a.kind == "c" and b.kind != "c":
        return None
    if a.kind == b.kind and a.itemsize < b.itemsize:
        return _PROMOTED
    whole = a.kind in "iu" and b.kind in "fc"
    safe = np.can_cast(a, b, "safe") or (whole and b.itemsize >= 8 * (1 + (b.kind == "c")))
    return _SAFE if safe else _UNSAFE


def _total(have: Sequence[Any], want: Sequence[Any]) -> _Rating | None:
    """Return what the conversions of several values cost together."""
    if len(have) != len(want):
        return None
    unsafe = safe = promoted = 0
    for a, b in zip(have, want, strict=True):
        found = rating(a, b)
        if found is None:
            return None
        unsafe, safe, promoted = unsafe + found[0], safe + found[1], promoted + found[2]
    return unsafe, safe, promoted


def best(have: Sequence[Any], signatures: Sequence[Signature]) -> list[Signature]:
    """Return the signatures that cost least for values of some types: none where none fits."""
    rated = [(cost, s) for s in signatures
             if (cost := _total(have, tuple(map(adopted, s.args)))) is not None]
    least = min((cost for cost, _ in rated), default=None)
    return [s for cost, s in rated if cost == least]


def array_union_of(name: str, args: tuple[Any, ...], signatures: Sequence[Signature]) -> int:
    """Return the number of the signature that the arguments of a launch have.

    Raises
    ------
    DTypeError
        If none fits, or several fit as well as each other.
    """
    have = [_type_of(a) for a in args]
    found = best(have, signatures)
    if len(found) == 1:
        return signatures.index(found[0])
    shown = ", ".join("?" if h is None else str(h) for h in have)
    expected = "; ".join(map(str, found or signatures))
    what = "Ambiguous overloading" if found else "No matching definition"
    raise DTypeError(f"launch of {name}", found=f"{what} for arguments ({shown})",
                     expected=("one of " if found else "") + expected)


def _type_of(value: Any) -> Any:
    """Return the type of an argument, None for what signatures have no names for."""
    interface = getattr(value, "__array_interface__", None) or getattr(
        value, "__cuda_array_interface__", None)
    try:
        if interface is not None and not isinstance(value, np.generic | np.ndarray):
            kind, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
            steps = interface.get("strides")  # which may be said of arrays without gaps, too
            return ArrayOf(kind, len(shape), "C" if steps is None or in_rows(
                shape, tuple(steps), kind.itemsize) else "A")
        return typeof(value)
    except WeftError:
        return None


def in_rows(shape: tuple[int, ...], steps: tuple[int, ...], step: int) -> bool:
    """Whether elements lie row by row without gaps."""
    for n, held in zip(reversed(shape), reversed(steps), strict=True):
        if n != 1 and held != step:
            return 0 in shape
        step *= n
    return True


class SignedFunction(DeviceFunction):
    """A function for kernels with signatures: arguments become what the best of them says."""

    def __init__(self, function: Callable[..., Any], signatures: Sequence[Signature]) -> None:
        super().__init__(function)
        self.__weft_signatures__ = tuple(signatures)
        count = len(inspect.signature(function).parameters)
        for s in signatures:
            if len(s.args) != count:
                raise DTypeError(f"function {function.__name__}",
                                 found=f"a signature of {len(s.args)} types", expected=f"{count}")

    @outermost
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the Python function."""
        return self.__weft_function__(*args, **kwargs)

    def __weft_call__(self, reader: Any, args: list[Any], node: Any) -> Any:
        """Return what a call in a kernel gives."""
        have = [_type_in_kernel(reader, a) for a in args]
        if len(args) != len(self.__weft_signatures__[0].args):
            return reader.inline(self.__weft_function__, args, {}, node)  # which says what is wrong
        found = best(have, self.__weft_signatures__)
        if not found:
            shown = ", ".join("?" if h is None else str(h) for h in have)
            raise reader.wrong(node, f"{self.__name__} with parameters ({shown})",
                               "its signatures are " + "; ".join(
                                   map(str, self.__weft_signatures__)))
        kinds = tuple(map(adopted, found[0].args))
        given = [_converted(reader, a, k, node) for a, k in zip(args, kinds, strict=True)]
        result = reader.inline(self.__weft_function__, given, {}, node)
        return _converted(reader, result, adopted(found[0].result), node)


def _type_in_kernel(reader: Any, value: Any) -> Any:
    """Return the type of a value in a kernel, None for what signatures have no names for."""
    from weft.ir.expr import Expr
    from weft.lang.core.values import Fields, Group, Known, View

    if isinstance(value, Known):
        if isinstance(value.value, complex):
            return typeof(value.value)
        value = reader.known_scalar(value.value)
    if isinstance(value, Expr):
        return _named(value.dtype)
    if isinstance(value, View):
        held = value.memory.dtype if value.seen is None else value.seen
        named = _named(held)
        return None if named is None else ArrayOf(named, len(value.axes), "C")
    if isinstance(value, Group) and value.kind is complex:
        return typeof(np.complex64() if value.items[0].dtype.bits == 32 else np.complex128())
    if isinstance(value, Group) and value.kind is None:
        return tuple_type(_type_in_kernel(reader, v) for v in value.items)
    if isinstance(value, Fields) and value.kind is complex:
        bits = value.parts[0].memory.dtype.bits
        return ArrayOf(np.dtype(f"c{bits // 4}"), value.ndim, "C")
    return None


def _named(d: DType) -> Any:
    """Return numba's type of a number, None where it has no name for it."""
    try:
        return typeof(np.zeros((), d.numpy)[()])
    except WeftError:
        return None


def _converted(reader: Any, value: Any, kind: Any, node: Any) -> Any:
    """Return a value in the type of a signature; what is no number stays what it is."""
    from weft.ir import dtype as dt
    from weft.ir.expr import Expr
    from weft.lang.core import scalars
    from weft.lang.core.values import Group, Known
    from weft.lang.library.constructors import complex_number

    if not isinstance(kind, NumbaType) or kind.kind is None or kind.kind.fields is not None:
        return value
    known = reader.known_scalar(value.value) if isinstance(value, Known) else None
    number = value if known is None else known
    if kind.kind.kind == "c":
        if not isinstance(number, Expr) and not (
            isinstance(value, Group) and value.kind is complex
        ):
            return value
        part = dt.float32 if kind.kind.itemsize == 8 else dt.float64
        return complex_number(reader, part, [value], node)
    d = kind.__weft_dtype__
    return scalars.convert(number, d) if isinstance(number, Expr) and d is not None else value
