"""Arguments of a launch: what a kernel is compiled for, and what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import DTypeError, LaunchError
from weft.exchange import host as exchange
from weft.frontend.kernel.elements import COMPLEX
from weft.frontend.kernel.types import (
    ArrayType,
    ConstantType,
    FieldsType,
    GroupType,
    KernelType,
    ScalarType,
    bits_of,
)
from weft.ir import dtype as dt

__all__ = ["Host"]


class Host:
    """Takes the arguments of one launch apart.

    Attributes
    ----------
    addresses : list of int
        Where the arrays begin, in the order of the kernel's memories.
    variables : dict of str to int
        Values of the kernel's variables by name.
    kept : list
        What owns the arrays' memory.
    copies : list of (array, array)
        What stands for fields that cannot be passed as they lie; `finish` brings them back.
    """

    __slots__ = ("addresses", "copies", "kept", "kernel", "variables")

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.addresses: list[int] = []
        self.variables: dict[str, int] = {}
        self.kept: list[Any] = []
        self.copies: list[tuple[Any, Any]] = []

    def take(self, name: str, value: Any) -> KernelType:
        """Return the type of an argument, after noting what the launch passes for it.

        Raises
        ------
        LaunchError
            If kernels do not take such a value.
        """
        if isinstance(value, np.ndarray) and value.ndim:
            return self._array(name, value)
        if isinstance(value, np.void) and value.dtype.fields is not None:
            return self._record(name, value)
        if isinstance(value, complex):
            return self._complex_number(name, value)
        if isinstance(value, bool | int | float | np.generic | np.ndarray):
            return self._scalar(name, value)
        if value is None or isinstance(value, str):
            return ConstantType(value)
        if isinstance(value, tuple):
            return self._group(name, value, getattr(value, "_fields", ()))
        fields = getattr(value, "__dataclass_fields__", None)
        if fields is not None and not isinstance(value, type):
            return self._group(name, tuple(getattr(value, f) for f in fields), tuple(fields),
                               type(value))
        try:
            return self._array(name, exchange.as_array(value, f"argument {name}"))
        except DTypeError as error:
            raise LaunchError(f"launch of {self.kernel}",
                              found=f"{type(value).__name__} for {name}",
                              expected="an array, a number, or a tuple of them") from error

    def _group(self, name: str, items: tuple[Any, ...], names: tuple[str, ...],
               kind: type | None = None) -> GroupType:  # fmt: skip
        keys = names or tuple(map(str, range(len(items))))
        types = tuple(self.take(f"{name}.{k}", v) for k, v in zip(keys, items, strict=True))
        return GroupType(types, tuple(names), kind or (type(items) if names else None))

    def _scalar(self, name: str, value: Any) -> ScalarType:
        if isinstance(value, bool):
            d = dt.bool_
        elif isinstance(value, int):
            d = dt.int64 if value < 1 << 63 else dt.uint64
            if not -(1 << 63) <= value < 1 << 64:
                raise LaunchError(f"launch of {self.kernel}", found=f"{name} = {value}",
                                  expected="an integer of 64 bits")
        elif isinstance(value, float) and not isinstance(value, np.generic):
            d = dt.float64
        else:
            d = exchange.dtype_of(value, f"argument {name}")
            value = value.item()
        self.variables[name] = bits_of(value, d)
        return ScalarType(d)

    def _complex_number(self, name: str, value: Any) -> KernelType:
        kind = np.float32 if isinstance(value, np.complex64) else np.float64
        parts = (self._scalar(f"{name}.real", kind(value.real)),
                 self._scalar(f"{name}.imag", kind(value.imag)))
        return GroupType(parts, COMPLEX, complex)

    def _complex(self, name: str, array: np.ndarray[Any, Any]) -> KernelType:
        """Pass an array of complex numbers as one of floats with one axis more."""
        real = array.real
        floats = np.lib.stride_tricks.as_strided(
            real, (*array.shape, 2), (*array.strides, real.itemsize),
            writeable=array.flags.writeable)
        self.kept.append(array)
        return FieldsType((self._array(name, floats),), COMPLEX, array.ndim, complex)

    def _records(self, name: str, array: np.ndarray[Any, Any], ndim: int) -> KernelType:
        """Pass an array of records as an array for each field.

        A field that lies across the places where its type may lie goes through a copy.
        """
        names = array.dtype.names
        assert names is not None
        parts = []
        for field in names:
            column = array[field]
            size = column.dtype.base.itemsize if column.dtype.fields is None else 1
            held = column
            if not column.flags.aligned or any(s % size for s in column.strides):
                held = np.array(column, order="C", copy=True)
            parts.append(self._records(f"{name}.{field}", held, held.ndim)
                         if held.dtype.fields is not None
                         else self._array(f"{name}.{field}", held))
            if held is not column and column.flags.writeable:
                self.copies.append((column, held))
        self.kept.append(array)
        return FieldsType(tuple(parts), tuple(names), ndim)

    def _record(self, name: str, value: Any) -> KernelType:
        """Pass one record as an array of one; what the kernel changes in it comes back."""
        held = np.array([value], value.dtype)
        kind = self._records(name, held, 0)
        self.copies.append((value, held))
        return kind

    def finish(self) -> None:
        """Bring back what the launch changed in copies."""
        for there, held in self.copies:  # inner ones first
            if isinstance(there, np.void):
                for field in held.dtype.names or ():
                    there[field] = held[0][field]
            else:
                there[...] = held

    def _array(self, name: str, array: np.ndarray[Any, Any]) -> KernelType:
        if array.ndim == 0:
            return self.take(name, array[()])
        if array.dtype.kind == "c":
            return self._complex(name, array)
        if array.dtype.fields is not None:
            return self._records(name, array, array.ndim)
        d = exchange.dtype_of(array, f"argument {name}")
        flags = array.flags
        if not flags.aligned or not array.dtype.isnative:
            raise LaunchError(f"launch of {self.kernel}", found=f"{name}, which is misaligned or "
                              "of foreign byte order", expected="an aligned array: copy it first")
        self.kept.append(array)
        address = array.__array_interface__["data"][0]
        for k, n in enumerate(array.shape):
            self.variables[f"{name}.{k}"] = n
        if flags.c_contiguous:
            self.addresses.append(address)
            return ArrayType(d, array.ndim, "C", not flags.writeable)
        self._strided(name, array, address, d.itemsize)
        return ArrayType(d, array.ndim, "A", not flags.writeable)

    def _strided(self, name: str, array: np.ndarray[Any, Any], address: int, item: int) -> None:
        steps = []
        for n, stride in zip(array.shape, array.strides, strict=True):
            if stride % item:
                raise LaunchError(f"launch of {self.kernel}", found=f"{name} with strides "
                                  f"{array.strides}", expected=f"multiples of {item} bytes")
            steps.append(stride // item if n > 1 else 0)
        ends = [(n - 1) * step for n, step in zip(array.shape, steps, strict=True)]
        first = -sum(min(0, e) for e in ends)
        self.addresses.append(address - first * item)
        self.variables[f"{name}.first"] = first
        self.variables[f"{name}.span"] = first + sum(max(0, e) for e in ends) + 1
        for k, step in enumerate(steps):
            self.variables[f"{name}.step{k}"] = step
