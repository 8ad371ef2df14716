"""Arguments of a launch: what a kernel is compiled for, and what it is given."""

from __future__ import annotations

import enum
from collections.abc import Container
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np

from weft.errors import DTypeError, LaunchError, RangeError, ShapeError, WeftError, shown_file
from weft.exchange import host as exchange
from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir.dtype import DType, constexpr
from weft.lang.core.element_types import COMPLEX, Packed, as_element
from weft.lang.launch.signature import Signature, constant_of, told
from weft.lang.values.types import (
    ArrayType,
    ConstantType,
    FieldsType,
    GroupType,
    KernelType,
    ScalarType,
    bits_of,
)
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.write_lock import writing

if TYPE_CHECKING:
    from weft.lang.launch.tensors import Distant, Seen, Written
    from weft.tensors.core.layouts import Layout

__all__ = ["Host"]

_no_turn: Final = nullcontext()
_PLAIN: dict[type, DType] = {bool: dt.bool_, int: dt.int64, float: dt.float64}


class Host:
    """Takes the arguments of one launch apart.

    A block from `resolve` to `finish`, inside a `turn`. In it this thread alone changes tensors, if
    the launch writes to any: what captured functions and writes in place of other threads change
    is not lost.

    Attributes
    ----------
    addresses : list of int
        Where the arrays begin, in the order of the kernel's memories; those of tensors are known
        after `resolve`.
    variables : dict of str to int
        Values of the kernel's variables by name.
    kept : list
        What owns the arrays' memory.
    copies : list of (array, array)
        What stands for fields that cannot be passed as they lie; `finish` brings them back.
    tensors : list of (str, int, TensorCore)
        Tensors among the arguments, with the parameter and the position of the address.
    types : dict of str to KernelType
        What each argument is.
    alone : bool or None
        Whether `turn` is a block of `writing`.
    distant : Distant or None
        What addresses stand for, of a launch that takes buffers.
    """

    __slots__ = ("_written", "addresses", "alone", "copies", "distant", "kept", "kernel", "lenient",
                 "tensors", "types", "variables", "where")  # fmt: skip

    takes_tensors = True  # as they are; otherwise as arrays over their memory, to read
    takes_views = False  # of one memory, with strides of their own

    def __init__(self, kernel: str, signature: Signature | None = None) -> None:
        self.kernel = kernel
        self.lenient = signature is not None and signature.lenient
        self.addresses: list[int] = []
        self.distant: Distant | None = None
        self.variables: dict[str, int] = {}
        self.kept: list[Any] = []
        self.copies: list[tuple[Any, Any]] = []
        self.tensors: list[tuple[str, int, TensorCore]] = []
        self._written: list[Written | Seen] = []
        self.alone: bool | None = None
        self.types: dict[str, KernelType] = {}

    def turn(self, written: Container[str]) -> AbstractContextManager[bool | None]:
        """Return the block of a launch that writes to some parameters.

        It is ``with host.turn(written) as host.alone, host:``, and nobody else changes tensors
        meanwhile if the launch changes one.
        """
        if any(name in written for name, _, _ in self.tensors):
            return writing.turn()
        return _no_turn

    def __enter__(self) -> Self:
        if self.alone:
            writing.mark(True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if self.alone:
            writing.mark(False)

    def bind(self, signature: Signature, args: tuple[Any, ...]) -> None:
        """Take all arguments of a launch."""
        self.types = {}
        wrong: list[WeftError] = []
        for name, wanted, value in signature.matched(args):
            try:
                self.types[name] = self.take(name, value, wanted)
            except WeftError as error:
                if wanted is not None and error.hint is None:
                    file, line = signature.where
                    error.hint = f"annotated at {shown_file(file)}:{line}"
                wrong.append(error)
        if len(wrong) > 1:
            title = f"launch of {self.kernel}: {len(wrong)} errors"
            raise type(wrong[0])("\n  ".join([title, *map(_fact, wrong)]))
        if wrong:
            raise wrong[0]
        self.types = signature.folded(self.types)

    def take(self, name: str, value: Any, wanted: Any = None) -> KernelType:
        """Return the type of an argument, after noting what the launch passes for it.

        `wanted` is what its annotation says.

        Raises
        ------
        LaunchError
            If kernels do not take such a value.
        DTypeError, ShapeError, RangeError
            If it is not what the annotation says.
        """
        if wanted is not None:
            return self._wanted(name, value, wanted)
        if isinstance(value, np.ndarray) and (value.ndim or self.lenient):
            return self._array(name, value)
        if isinstance(value, np.ndarray) and value.dtype.kind in "cmMUS":  # without axes
            value = value[()]
        if isinstance(value, np.void) and value.dtype.fields is not None:
            return self._record(name, value)
        if isinstance(value, complex | np.complexfloating):
            return self._complex_number(name, value)
        if isinstance(value, np.datetime64 | np.timedelta64):
            return self._time(name, value)
        if isinstance(value, np.str_ | np.bytes_):
            value = value.item()
        if isinstance(value, enum.Enum) and not isinstance(value, enum.Flag):
            # Also one that is a number: `is` asks which member it is.
            return constant_of(value) or ConstantType(value)
        if isinstance(value, bool | int | float | np.generic | np.ndarray):
            return self._scalar(name, value)
        if value is None or isinstance(value, str | enum.Flag):
            return ConstantType(value)
        if isinstance(value, tuple):
            return self._group(name, value, getattr(value, "_fields", ()))
        fields = getattr(value, "__dataclass_fields__", None)
        if fields is not None and not isinstance(value, type):
            return self._group(name, tuple(getattr(value, f) for f in fields), tuple(fields),
                               type(value))
        if isinstance(value, TensorCore) and self.takes_tensors:
            return self._tensor(name, value)
        return self._array(name, self._foreign(name, value))

    def resolve(self, written: Container[str]) -> None:
        """Look up the memory of tensors; `written` are the parameters that the kernel writes to."""
        if not self.tensors:
            return
        with importing:
            from weft.lang.launch.tensors import Written, readable, together

        joined: set[int] = set()
        for members, target in together(self.tensors, written, self.takes_views, self.kernel):
            self._written.append(target)
            for index, layout, tensor in members:
                joined.add(index)
                self._placed(index, target.buffer, layout, tensor)
        rest = [entry for entry in self.tensors if entry[1] not in joined]
        for name, index, tensor in rest:
            if name in written:
                target = Written(tensor, f"argument {told(name)} of {self.kernel}")
                self._written.append(target)
                self._place(index, target.buffer)
        for name, index, tensor in rest:
            if name not in written:
                self._place(index, readable(tensor))

    def _place(self, index: int, buffer: Any, offset: int = 0) -> None:
        """Note in which buffer an argument lies, and how many bytes after its begin."""
        self.kept.append(buffer)
        if buffer.in_process or self.distant is None:  # which raises: nothing else is passed by it
            self.addresses[index] = buffer.address + offset
        else:
            self.addresses[index] = self.distant.stand_in(buffer) + offset

    def _placed(self, index: int, buffer: Any, layout: Layout, tensor: TensorCore) -> None:
        """Note where in a buffer the elements of an argument lie."""
        self._place(index, buffer, layout.offset * tensor.dtype.itemsize)

    def finish(self) -> None:
        """Bring back what the launch changed in copies, and give tensors their new values."""
        for there, held in self.copies:  # inner ones first
            if isinstance(there, np.void):
                for field in held.dtype.names or ():
                    there[field] = held[0][field]
            else:
                there[...] = held
        for target in self._written:
            target.finish()

    # what annotations say

    def _wanted(self, name: str, value: Any, wanted: Any) -> KernelType:
        if isinstance(wanted, ScalarType):
            return self._number(name, value, wanted.dtype)
        if isinstance(wanted, ArrayType):
            return self._annotated(name, value, wanted)
        if isinstance(wanted, GroupType):
            return self._struct(name, value, wanted)
        if wanted is constexpr:
            found = constant_of(value)
            if found is None:
                raise self._wrong(name, value, "a constant: a number, text, a type, a function, or "
                                  "a tuple of such")
            return found
        if value is not wanted.value:
            raise self._wrong(name, value, repr(wanted.value))
        return ConstantType(wanted.value)

    def _wrong(self, name: str, value: Any, expected: str) -> DTypeError:
        found = getattr(value, "dtype", None)
        kind = type(value).__name__ if found is None or not getattr(value, "ndim", 0) else (
            f"an array of {getattr(found, 'name', found)}")
        return DTypeError(f"launch of {self.kernel}", found=f"{kind} for parameter {told(name)}",
                          expected=expected)

    def _number(self, name: str, value: Any, d: DType) -> ScalarType:
        if isinstance(value, TensorCore) and value.ndim == 0:
            value = cast(Any, value).item()
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        if self.lenient and isinstance(value, bool | int | float | np.generic):
            with np.errstate(all="ignore"):
                try:
                    plain = np.asarray(value).astype(d.numpy).item()
                except OverflowError:
                    raise RangeError(f"launch of {self.kernel}", found=f"{told(name)}, an int of "
                                     f"{cast(int, value).bit_length()} bits",
                                     expected="at most 64") from None
            self.variables[name] = bits_of(plain, d)
            return ScalarType(d)
        is_bool = isinstance(value, bool | np.bool_)
        is_int = isinstance(value, int | np.integer) or is_bool
        is_float = isinstance(value, float | np.floating)
        if not (is_bool if d.is_bool else is_int or (d.is_float and is_float)):
            raise self._wrong(name, value, d.name)
        plain = value.item() if isinstance(value, np.generic) else value
        if d.is_integer and not d.min <= plain <= d.max:
            raise RangeError(f"launch of {self.kernel}", found=f"{told(name)} = {plain}",
                             expected=f"{d.name}, from {d.min} to {d.max}")
        if d.is_float:
            try:
                plain = float(plain)
            except OverflowError:
                raise RangeError(f"launch of {self.kernel}", found=f"{told(name)}, an int of "
                                 f"{plain.bit_length()} bits", expected=d.name) from None
        with np.errstate(over="ignore"):
            self.variables[name] = bits_of(plain, d)
        return ScalarType(d)

    def _annotated(self, name: str, value: Any, wanted: ArrayType) -> KernelType:
        if not isinstance(value, np.ndarray | TensorCore):
            value = self._foreign(name, value)
        if self.lenient and isinstance(value, np.ndarray) and (
            {value.dtype.kind, wanted.dtype.kind} == {"i", "u"}
            and value.itemsize == wanted.dtype.itemsize
        ):
            value = value.view(wanted.dtype.numpy)  # numba passes the bits, too
        found = value.dtype if isinstance(value, TensorCore) else exchange.dtype_of(
            value, f"argument {told(name)}")
        if found is not wanted.dtype:
            raise self._wrong(name, value, f"an array of {wanted.dtype.name}")
        sizes = wanted.shape or (None,) * wanted.ndim
        if value.ndim != wanted.ndim or any(
            n is not None and n != m for n, m in zip(sizes, value.shape, strict=True)
        ):
            shape = ", ".join(":" if n is None else str(n) for n in sizes)
            raise ShapeError(f"launch of {self.kernel}",
                             found=f"shape {tuple(value.shape)} for parameter {told(name)}",
                             expected=f"[{shape}]")
        if isinstance(value, TensorCore):
            return self._tensor(name, value, wanted.shape)
        if wanted.order == "C" and not value.flags.c_contiguous:
            raise ShapeError(f"launch of {self.kernel}",
                             found=f"strides {value.strides} for parameter {told(name)}",
                             expected="row-major order without gaps: np.ascontiguousarray")
        return self._array(name, value, wanted.shape)

    def _struct(self, name: str, value: Any, wanted: GroupType) -> GroupType:
        kind = wanted.kind or tuple
        if type(value) is not kind:
            raise self._wrong(name, value, kind.__name__)
        items = value if isinstance(value, tuple) else [getattr(value, n) for n in wanted.names]
        if len(items) != len(wanted.items):
            raise ShapeError(f"launch of {self.kernel}",
                             found=f"{len(items)} values for parameter {told(name)}",
                             expected=len(wanted.items))
        names = wanted.names or tuple(map(str, range(len(wanted.items))))
        types = tuple(self.take(f"{name}.{n}", v, w)
                      for n, v, w in zip(names, items, wanted.items, strict=True))
        return GroupType(types, wanted.names, wanted.kind)

    # what values are

    def _foreign(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        turned = getattr(value, "is_neg", None)
        if callable(turned) and turned() is True:  # which PyTorch's DLPack does not tell
            raise LaunchError(f"launch of {self.kernel}", found=f"{told(name)}, a view that "
                              "changes signs", expected="its own memory: resolve_neg()")
        try:
            return exchange.as_array(value, f"argument {told(name)}")
        except DTypeError as error:
            kind = type(value).__name__
            raise LaunchError(f"launch of {self.kernel}", found=f"{kind} for {told(name)}",
                              expected="an array, a number, or a tuple of them",
                              hint=error.found if error.found != f"a {kind}" else None) from error

    def _group(self, name: str, items: tuple[Any, ...], names: tuple[str, ...],
               kind: type | None = None) -> GroupType:  # fmt: skip
        keys = names or tuple(map(str, range(len(items))))
        types = tuple(self.take(f"{name}.{k}", v) for k, v in zip(keys, items, strict=True))
        return GroupType(types, tuple(names), kind or (type(items) if names else None))

    def _scalar(self, name: str, value: Any) -> ScalarType:
        d = _PLAIN.get(type(value))
        if d is None and isinstance(value, int) and not isinstance(value, np.generic):
            d = dt.int64  # of an enumeration, say
        if d is dt.int64:
            d = dt.int64 if value < 1 << 63 else dt.uint64
            if not -(1 << 63) <= value < 1 << 64:
                raise LaunchError(f"launch of {self.kernel}", found=f"{told(name)} = {value}",
                                  expected="an integer of 64 bits")
        if d is None and isinstance(value, float) and not isinstance(value, np.generic):
            d = dt.float64
        if d is None:
            d = exchange.dtype_of(value, f"argument {told(name)}")
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

    def _element(self, name: str, dtype: Any) -> Any:
        """Return the kind of times or texts that a dtype of NumPy has."""
        kind = as_element(dtype)
        if not isinstance(kind, Packed):
            raise LaunchError(f"launch of {self.kernel}", found=f"{dtype} for {told(name)}",
                              expected="texts of at least one character, such as U12"
                              if dtype.kind in "US" else
                              "times of one unit, such as datetime64[s]")
        return kind

    def _time(self, name: str, value: Any) -> KernelType:
        """Pass a time as its count."""
        kind = self._element(name, value.dtype)
        return GroupType((self._scalar(f"{name}.0", value.astype(np.int64)),), (), kind)

    def _packed(self, name: str, array: np.ndarray[Any, Any]) -> KernelType:
        """Pass an array of times as one of counts, one of texts as codes with one axis more."""
        kind = self._element(name, array.dtype)
        self.kept.append(array)
        return FieldsType((self._array(name, kind.numbers_of(array)),), (), array.ndim, kind)

    def _records(self, name: str, array: np.ndarray[Any, Any], ndim: int) -> KernelType:
        """Pass an array of records as an array for each field.

        A field that lies across the places where its type may lie goes through a copy.
        """
        names = array.dtype.names
        if not names:
            raise LaunchError(f"launch of {self.kernel}", expected="records with fields",
                              found=f"{told(name)}, records without fields")
        parts = []
        for field in names:
            column = array[field]
            size = _unit_of(column.dtype.base)
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

    def _tensor(self, name: str, tensor: TensorCore,
                shape: tuple[int | None, ...] = ()) -> KernelType:  # fmt: skip
        if tensor.ndim == 0:
            self.variables[name] = bits_of(cast(Any, tensor).item(), tensor.dtype)
            return ScalarType(tensor.dtype)
        self.tensors.append((name, len(self.addresses), tensor))
        self.addresses.append(0)
        for k, n in enumerate(tensor.shape):
            self.variables[f"{name}.{k}"] = n
        return ArrayType(tensor.dtype, tensor.ndim, "C", False, shape)

    def _array(self, name: str, array: np.ndarray[Any, Any],
               shape: tuple[int | None, ...] = ()) -> KernelType:  # fmt: skip
        if array.ndim == 0 and not self.lenient:
            return self.take(name, array[()])
        if array.dtype.kind == "c":
            return self._complex(name, array)
        if array.dtype.kind in "mMUS":
            return self._packed(name, array)
        if array.dtype.fields is not None:
            return self._records(name, array if array.ndim else array.reshape(1), array.ndim)
        d = exchange.dtype_of(array, f"argument {told(name)}")
        flags = array.flags
        if self.lenient and not flags.aligned and array.dtype.isnative:  # as numba copies it, too
            held = np.array(array, order="C")
            held.flags.writeable = flags.writeable
            if flags.writeable:
                self.copies.append((array, held))
            array, flags = held, held.flags
        if not flags.aligned or not array.dtype.isnative:
            raise LaunchError(f"launch of {self.kernel}", found=f"{told(name)}, which is "
                              "misaligned or of foreign byte order",
                              expected="an aligned array: copy it first")
        self.kept.append(array)
        address = array.__array_interface__["data"][0]
        for k, n in enumerate(array.shape):
            self.variables[f"{name}.{k}"] = n
        if flags.c_contiguous:
            self.addresses.append(address)
            return ArrayType(d, array.ndim, "C", not flags.writeable, shape)
        self._strided(name, array, address, d.itemsize)
        return ArrayType(d, array.ndim, "A", not flags.writeable, shape)

    def _strided(self, name: str, array: np.ndarray[Any, Any], address: int, item: int) -> None:
        steps = []
        for n, stride in zip(array.shape, array.strides, strict=True):
            if stride % item:
                raise LaunchError(f"launch of {self.kernel}", found=f"{told(name)} with strides "
                                  f"{array.strides}", expected=f"multiples of {item} bytes")
            steps.append(stride // item if n > 1 else 0)
        ends = [(n - 1) * step for n, step in zip(array.shape, steps, strict=True)]
        first = -sum(min(0, e) for e in ends)
        self.addresses.append(address - first * item)
        self.variables[f"{name}.first"] = first
        self.variables[f"{name}.span"] = first + sum(max(0, e) for e in ends) + 1
        for k, step in enumerate(steps):
            self.variables[f"{name}.step{k}"] = step


def _unit_of(dtype: Any) -> int:
    """Return the bytes of which strides of a field must be multiples."""
    if dtype.fields is not None:
        return 1
    return {"U": 4, "S": 1}.get(dtype.kind) or int(dtype.itemsize)


def _fact(error: WeftError) -> str:
    """Return what is wrong with one argument."""
    return error.message.partition(": ")[2]
