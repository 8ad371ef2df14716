"""Types of a critical function: what its annotations say, and what its arguments are.

An annotation is a contract: what does not fit it is an error, and numbers are converted to it. An
argument without one has the type that it comes with, and the function is compiled for each.
"""

from __future__ import annotations

import inspect
import struct
from array import array
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from weft.backends.registry import HOST
from weft.driver.context import context
from weft.errors import (
    DeviceError,
    DTypeError,
    KernelError,
    LaunchError,
    RangeError,
    ShapeError,
)
from weft.exchange import host as exchange
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.lang.launch.signature import kind_of
from weft.lang.source.closures import closed_over
from weft.lang.values.types import (
    ArrayType,
    ConstantType,
    GroupType,
    KernelType,
    ScalarType,
    bits_of,
)
from weft.runtimes.native.calls import critical_ir as ir
from weft.tensors.core.lazy_tensor import TensorCore

__all__ = ["Arguments", "Signature", "parameter_of", "value_of"]

_FORMATS: Final = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i",
    "uint32": "I", "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip


class Signature:
    """Parameters and annotations of a function.

    Attributes
    ----------
    wanted : dict of str to (KernelType or None)
        Type of each parameter, None where it has no annotation.
    returns : KernelType or None
        Type of the result.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        self.signature = inspect.signature(function)
        code = function.__code__
        self.where = code.co_filename, code.co_firstlineno
        for p in self.signature.parameters.values():
            if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                raise KernelError(f"critical function {self.name}", found=str(p), where=self.where,
                                  expected="parameters that each have a name")
        names = _names(function)
        held = {name: self._resolve(text, name, names)
                for name, text in function.__annotations__.items()}
        self.returns = held.get("return")
        self.wanted = {name: held.get(name) for name in self.signature.parameters}

    @property
    def is_complete(self) -> bool:
        """Whether every parameter has an annotation."""
        return None not in self.wanted.values()

    def _resolve(self, annotation: Any, name: str, names: dict[str, Any]) -> KernelType:
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, names)
            except Exception as error:
                raise self._unknown(annotation, name) from error
        found = kind_of(annotation)
        if found is None:
            raise self._unknown(annotation, name)
        return found

    def _unknown(self, annotation: Any, name: str) -> KernelError:
        what = "its result" if name == "return" else f"parameter {name}"
        return KernelError(f"critical function {self.name}", where=self.where,
                           found=f"the annotation {annotation!r} of {what}",
                           expected="a dtype (weft.float64), an array (weft.float64[:]), or a "
                           "tuple, named tuple or dataclass of such")

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, defaults included."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise LaunchError(f"call of {self.name}", found=str(error),
                              expected=f"{self.name}{self.signature}") from None
        bound.apply_defaults()
        return bound.arguments


def _names(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what the annotations of a function may name."""
    return {**function.__globals__, **closed_over(function)}


class Arguments:
    """The arguments of one call, taken apart by Python.

    Attributes
    ----------
    words : array of int
        What the C function takes, in order.
    types : dict of str to KernelType
        What each argument is.
    kept : list
        What owns the memory of arrays.
    """

    def __init__(self, signature: Signature, values: dict[str, Any]) -> None:
        self.name = signature.name
        self.words = array("q")
        self.kept: list[Any] = []
        self.types = {name: self._take(name, value, signature.wanted[name])
                      for name, value in values.items()}
        if not self.words:
            self.words.append(0)  # an empty array has no address

    def _wrong(self, name: str, value: Any, expected: Any) -> DTypeError:
        return DTypeError(f"call of {self.name}", found=f"{type(value).__name__} for {name}",
                          expected=expected)

    def _take(self, name: str, value: Any, wanted: KernelType | None) -> KernelType:
        if isinstance(value, TensorCore) and not context(value.device).is_native:
            raise DeviceError(f"call of {self.name}", found=f"{name}, memory of {value.device}",
                              expected=f"memory of this process: critical functions are machine "
                              f"code of the device {HOST}",
                              hint=f"copy it there first, as in {name}.to({HOST!r}), or write it "
                              "as a kernel, which runs where its tensors are")
        if isinstance(wanted, ScalarType):
            return self._number(name, value, wanted.dtype)
        if isinstance(wanted, ArrayType):
            return self._array(name, exchange.as_array(value, f"argument {name}"), wanted)
        if isinstance(wanted, GroupType):
            return self._group(name, value, wanted)
        if isinstance(wanted, ConstantType) and value is not wanted.value:
            raise self._wrong(name, value, repr(wanted.value))
        if value is None or isinstance(value, str):
            return ConstantType(value)
        if isinstance(value, bool | int | float | np.generic):
            return self._number(name, value, _dtype_of(value, name))
        if isinstance(value, tuple):
            return self._group(name, value, _group_of(value, getattr(value, "_fields", ())))
        fields = getattr(value, "__dataclass_fields__", None)
        if fields is not None and not isinstance(value, type):
            return self._group(name, value, _group_of(value, tuple(fields)))
        try:
            found = exchange.as_array(value, f"argument {name}")
        except DTypeError:
            raise self._wrong(name, value, "a number, an array, or a tuple or struct of such"
                              ) from None
        if found.ndim == 0:
            return self._number(name, found[()], exchange.dtype_of(found, f"argument {name}"))
        return self._array(name, found, None)

    def _number(self, name: str, value: Any, d: DType) -> ScalarType:
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        is_int = isinstance(value, int | np.integer) or (isinstance(value, bool | np.bool_)
                                                         and not d.is_bool)
        fits = (isinstance(value, bool | np.bool_) if d.is_bool else
                is_int or (d.is_float and isinstance(value, float | np.floating)))
        if not fits:
            raise self._wrong(name, value, f"{d.name}")
        plain = value.item() if isinstance(value, np.generic) else value
        if d.is_integer and not d.min <= plain <= d.max:
            raise RangeError(f"call of {self.name}", found=f"{name} = {plain}",
                             expected=f"{d.name}, from {d.min} to {d.max}")
        if d.is_float:
            try:
                plain = float(plain)
            except OverflowError:
                raise RangeError(f"call of {self.name}", found=f"{name}, an int of "
                                 f"{plain.bit_length()} bits", expected=d.name) from None
        with np.errstate(over="ignore"):
            self.words.append(bits_of(plain, d))
        return ScalarType(d)

    def _group(self, name: str, value: Any, wanted: GroupType) -> GroupType:
        kind = wanted.kind or tuple
        if type(value) is not kind:
            raise self._wrong(name, value, kind.__name__)
        given = value if isinstance(value, tuple) else [getattr(value, n) for n in wanted.names]
        if len(given) != len(wanted.items):
            raise ShapeError(f"call of {self.name}", found=f"{len(given)} values for {name}",
                             expected=len(wanted.items))
        names = wanted.names or tuple(map(str, range(len(wanted.items))))
        items = tuple(self._take(f"{name}.{n}", v, w)
                      for n, v, w in zip(names, given, wanted.items, strict=True))
        return GroupType(items, wanted.names, wanted.kind)

    def _array(self, name: str, value: np.ndarray[Any, Any], wanted: ArrayType | None
               ) -> ArrayType:  # fmt: skip
        what = f"call of {self.name}"
        d = exchange.dtype_of(value, f"argument {name}")
        flags = value.flags
        if not flags.aligned or not value.dtype.isnative:
            raise LaunchError(what, found=f"{name}, which is misaligned or of foreign byte order",
                              expected="an aligned array: copy it first")
        shape: tuple[int | None, ...] = ()
        if wanted is not None:
            if d is not wanted.dtype:
                raise DTypeError(what, found=f"an array of {d.name} for {name}",
                                 expected=wanted.dtype.name)
            shape = wanted.shape
            sizes = shape or (None,) * wanted.ndim
            if value.ndim != wanted.ndim or any(
                n is not None and n != m for n, m in zip(sizes, value.shape, strict=True)
            ):
                told = ", ".join(":" if n is None else str(n) for n in sizes)
                raise ShapeError(what, found=f"shape {value.shape} for {name}",
                                 expected=f"[{told}]")
            if wanted.order == "C" and not flags.c_contiguous:
                raise ShapeError(what, found=f"{name} with strides {value.strides}",
                                 expected="row-major order without gaps: np.ascontiguousarray")
        self.kept.append(value)
        address = value.__array_interface__["data"][0]
        free = [n for k, n in enumerate(value.shape) if not shape or shape[k] is None]
        if flags.c_contiguous:
            self.words.extend((address, *free))
            return ArrayType(d, value.ndim, "C", not flags.writeable, shape)
        steps = []
        for n, stride in zip(value.shape, value.strides, strict=True):
            if stride % d.itemsize:
                raise LaunchError(what, found=f"{name} with strides {value.strides}",
                                  expected=f"multiples of {d.itemsize} bytes")
            steps.append(stride // d.itemsize if n > 1 else 0)
        ends = [(n - 1) * step for n, step in zip(value.shape, steps, strict=True)]
        first = -sum(min(0, e) for e in ends)
        span = first + sum(max(0, e) for e in ends) + 1
        self.words.extend((address - first * d.itemsize, *free, first, *steps, span))
        return ArrayType(d, value.ndim, "A", not flags.writeable, shape)


def _dtype_of(value: Any, name: str) -> DType:
    if isinstance(value, np.generic):
        return exchange.dtype_of(value, f"argument {name}")  # type: ignore[arg-type]
    return (dt.bool_ if isinstance(value, bool) else
            dt.int64 if isinstance(value, int) else dt.float64)


def _group_of(value: Any, names: tuple[str, ...]) -> GroupType:
    """Return the shape of a group whose items have whatever type they have."""
    count = len(names) if names else len(value)
    return GroupType((None,) * count, tuple(names), type(value) if names else None)


def parameter_of(kind: KernelType, wanted: KernelType | None, name: str,
                 written: frozenset[str]) -> ir.Param:  # fmt: skip
    """Return a type as calls see it.

    Parameters
    ----------
    kind, wanted
        What it is, and what its annotation says.
    name
        Its path, such as ``book.bids``.
    written
        Paths of the arrays that the function writes to.
    """
    if isinstance(kind, ScalarType):
        return ir.Scalar(kind.dtype, wanted is None)
    if isinstance(kind, ArrayType):
        return ir.Array(kind.dtype, kind.shape or (None,) * kind.ndim, kind.order,
                        name in written)
    if isinstance(kind, GroupType):
        wants = wanted.items if isinstance(wanted, GroupType) else (None,) * len(kind.items)
        names = kind.names or tuple(map(str, range(len(kind.items))))
        items = tuple(parameter_of(k, w, f"{name}.{n}", written)
                      for n, k, w in zip(names, kind.items, wants, strict=True))
        made = kind.kind or tuple
        return ir.Struct(items, kind.names, made, not issubclass(made, tuple))
    return None


def value_of(result: ir.Param, words: Iterator[int]) -> Any:
    """Return a result as a Python object; `words` are those of its numbers."""
    if result is None:
        return None
    if isinstance(result, ir.Scalar):
        data = (next(words) & (1 << 64) - 1).to_bytes(8, "little")
        if result.dtype is dt.bfloat16:
            return struct.unpack("<f", b"\0\0" + data[:2])[0]
        return struct.unpack_from("<" + _FORMATS[result.dtype.name], data)[0]
    assert isinstance(result, ir.Struct)
    items = [value_of(item, words) for item in result.items]
    return tuple(items) if result.kind is tuple else result.kind(*items)
