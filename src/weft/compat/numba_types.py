"""numba's names for types, and signatures as calls of them: ``void(float32[:], int64)``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from weft.errors import DTypeError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.record import Record as Frozen
from weft.lang.core.element_types import as_element

__all__ = ["ArrayOf", "BaseTuple", "Boolean", "CharSeq", "Complex", "Float", "Integer",
           "NPDatetime", "NPTimedelta", "NamedTuple", "NamedUniTuple", "NoneType", "NumbaType",
           "Number", "Record", "Signature", "Tuple", "Type", "UniTuple", "UnicodeCharSeq",
           "adopted", "as_dtype", "bfloat16", "boolean", "complex64", "complex128", "float16",
           "float32", "float64", "from_dtype", "int8", "int16", "int32", "int64", "intp",
           "is_of_numba", "numpy_version", "tuple_type", "typeof", "uint8", "uint16", "uint32",
           "uint64", "uintp", "void"]  # fmt: skip


class Type:
    """Any type; what a program makes of this class has a name and is no type of a number."""

    name: str

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def key(self) -> Any:
        """What tells types of one class apart."""
        return self.name

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.key == getattr(other, "key", None)

    def __hash__(self) -> int:
        return hash((type(self), self.key))

    def __repr__(self) -> str:
        return self.name


class ArrayOf(Type):
    """``float32[:, ::1]``: an array type; ``order`` is ``C`` where it must be contiguous.

    Attributes
    ----------
    kind : numpy.dtype
        What NumPy calls its elements.
    dtype : NumbaType
        Their type.
    """

    def __init__(self, dtype: Any, ndim: int, layout: str = "A", readonly: bool = False,
                 name: str | None = None, aligned: bool = True) -> None:  # fmt: skip
        del aligned
        self.dtype = adopted(dtype) if is_of_numba(dtype) or isinstance(dtype, Type) else (
            from_dtype(dtype))
        self.kind, self.ndim, self.layout = self.dtype.kind, ndim, layout
        self.mutable = not readonly
        super().__init__(name or f"array({self.dtype}, {ndim}d, {layout})")

    @property
    def order(self) -> str:
        """``C`` where arrays must be contiguous in row-major order, else ``A``."""
        return "C" if self.layout == "C" else "A"

    def __call__(self, *args: Any) -> Signature:
        """Return the signature of a function that gives such an array."""
        return Signature(self, args)

    def copy(self, dtype: Any = None, ndim: int | None = None, layout: str | None = None,
             readonly: bool | None = None) -> ArrayOf:  # fmt: skip
        """Return the type with something else in place of what is given."""
        return ArrayOf(self.dtype if dtype is None else dtype, self.ndim if ndim is None else ndim,
                       layout or self.layout, not self.mutable if readonly is None else readonly)

    is_c_contig = property(lambda self: self.layout == "C" or (self.ndim == 1
                                                              and self.layout == "F"))
    is_f_contig = property(lambda self: self.layout == "F" or (self.ndim == 1
                                                              and self.layout == "C"))
    is_contig = property(lambda self: self.layout in "CF")


class Signature(Frozen):
    """``result(*args)``."""

    result: Any
    args: tuple[Any, ...]

    @property
    def return_type(self) -> Any:
        """The type of the result."""
        return self.result

    def __repr__(self) -> str:
        return f"({', '.join(map(str, self.args))}) -> {self.result}"


class BaseTuple(Type):
    """The types of the items of a tuple, and its class if it has a name."""

    def __init__(self, types: Any, instance_class: type = tuple) -> None:
        self.types, self.instance_class = tuple(types), instance_class
        inner = ", ".join(map(repr, self.types))
        super().__init__(f"{'Tuple' if instance_class is tuple else instance_class.__name__}"
                         f"({inner})")

    def __call__(self, *args: Any) -> Signature:
        """Return the signature of a function that gives such a tuple."""
        return Signature(self, args)

    @property
    def key(self) -> Any:
        """The types of the items, and the class."""
        return self.types, self.instance_class

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the items of a named tuple."""
        return tuple(getattr(self.instance_class, "_fields", ()))

    @property
    def count(self) -> int:
        """How many items there are."""
        return len(self.types)

    def __len__(self) -> int:
        return len(self.types)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.types)

    def __getitem__(self, place: Any) -> Any:
        """Return the type of an item."""
        return self.types[place]


class UniTuple(BaseTuple):
    """A tuple whose items have one type, `dtype`."""

    def __init__(self, dtype: Any, count: int, instance_class: type = tuple) -> None:
        self.dtype = dtype
        super().__init__((dtype,) * count, instance_class)


class Tuple(BaseTuple):
    """A tuple of items of any types: ``Tuple((int64, float32))``."""

    def __new__(cls, types: Any, instance_class: type = tuple) -> Any:
        """Return the type, a `UniTuple` where all items have one type."""
        return tuple_type(types, instance_class) if cls is Tuple else super().__new__(cls)


class NamedUniTuple(UniTuple):
    """A named tuple whose items have one type."""


class NamedTuple(BaseTuple):
    """A named tuple of items of any types: ``NamedTuple((int64, float32), Point)``."""


def tuple_type(types: Any, instance_class: type = tuple) -> BaseTuple:
    """Return the type of a tuple, a `UniTuple` where all items have one type."""
    items, named = tuple(types), instance_class is not tuple
    if items and all(t == items[0] for t in items):
        made = NamedUniTuple if named else UniTuple
        return made(items[0], len(items), instance_class)
    if named:
        return NamedTuple(items, instance_class)
    other = object.__new__(Tuple)
    BaseTuple.__init__(other, items)
    return other


class NumbaType(Type):
    """A scalar type: a function that converts, and the start of array types and signatures.

    Attributes
    ----------
    name : str
        numba's name.
    kind : numpy.dtype or None
        What arrays of it hold; None for ``void``.
    """

    def __init__(self, name: str, dtype: DType | None, kind: Any = None) -> None:
        self.name, self.__weft_dtype__ = name, dtype
        self._kind = kind

    @property
    def kind(self) -> Any:
        """What arrays of it hold; NumPy knows bfloat16 by another package, which this imports."""
        if self._kind is None and self.__weft_dtype__ is not None:
            self._kind = np.dtype(self.__weft_dtype__.numpy)
        return self._kind

    @property
    def __weft_element__(self) -> Any:
        """What kernels take the type for."""
        return self.kind if self.__weft_dtype__ is None else self.__weft_dtype__

    @property
    def dtype(self) -> Any:
        """What NumPy takes the type for, as in ``np.zeros(3, dtype=float32)`` on the host."""
        return self.kind

    @property
    def bitwidth(self) -> int:
        """Bits of a number."""
        return 8 * int(self.kind.itemsize)

    @property
    def minval(self) -> int:
        """The smallest integer of the type."""
        return int(np.iinfo(self.kind).min)

    @property
    def maxval(self) -> int:
        """The largest integer of the type."""
        return int(np.iinfo(self.kind).max)

    def __getitem__(self, key: Any) -> ArrayOf:
        """Return the array type that slices describe: ``[:]``, ``[:, :]``, ``[:, ::1]``."""
        parts = key if isinstance(key, tuple) else (key,)
        if self.kind is None or not all(isinstance(p, slice) for p in parts):
            raise DTypeError(f"{self.name}[...]", found=repr(key), expected="slices: float32[:, :]")
        first = "F" if parts[0].step == 1 and len(parts) > 1 else "A"
        return ArrayOf(self, len(parts), "C" if parts[-1].step == 1 else first)

    def __call__(self, *args: Any) -> Any:
        """Return a signature for types, a converted number for a number."""
        typed = [a for a in args if isinstance(a, Type)]
        if self.kind is None or (len(typed) == len(args)):
            return Signature(self, args)
        (value,) = args
        if np.ndim(value):
            return np.asarray(value, self.kind)
        return np.asarray(value).astype(self.kind)[()]

    @property
    def key(self) -> Any:
        """The name, and of records what their fields are."""
        return self.name, None if self.__weft_dtype__ is not None else str(self._kind)


class Boolean(NumbaType):
    """True or False."""


class Number(NumbaType):
    """A number of any type."""


class Integer(Number):
    """An integer of some bits."""

    @property
    def signed(self) -> bool:
        """Whether there are negative ones."""
        return bool(self.kind.kind == "i")


class Float(Number):
    """A floating-point number."""


class Complex(Number):
    """A complex number."""

    @property
    def underlying_float(self) -> NumbaType:
        """The type of its parts."""
        return float32 if self.bitwidth == 64 else float64


class NPDatetime(NumbaType):
    """A time: ``NPDatetime("s")``."""

    letter = "M"

    def __init__(self, unit: str) -> None:
        self.unit = unit
        kind = np.dtype(f"{self.letter}8[{unit}]" if unit else f"{self.letter}8")
        super().__init__(str(kind), None, kind)


class NPTimedelta(NPDatetime):
    """A difference of times: ``NPTimedelta("s")``."""

    letter = "m"


class CharSeq(NumbaType):
    """A text of bytes: ``CharSeq(12)``, in NumPy ``S12``."""

    letter, word = "S", "char"

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"[{self.word} x {count}]", None, np.dtype(f"{self.letter}{count}"))


class UnicodeCharSeq(CharSeq):
    """A text of characters: ``UnicodeCharSeq(12)``, in NumPy ``U12``."""

    letter, word = "U", "unichr"


class NoneType(NumbaType):
    """None, and what a kernel returns."""


class Record(NumbaType):
    """A record as an element of arrays; ``Record.make_c_struct(fields)`` lays one out as C does."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(f"Record({dtype})", None, np.dtype(dtype))

    @staticmethod
    def make_c_struct(fields: Any) -> NumbaType:
        """Return the type of elements with these names and types."""
        return from_dtype(np.dtype([(name, _held(kind)) for name, kind in fields], align=True))


def _held(kind: Any) -> Any:
    """Return what NumPy calls the type of a field."""
    return kind.kind if isinstance(kind, NumbaType | ArrayOf) else kind


boolean: Final = Boolean("boolean", dt.bool_)
int8: Final = Integer("int8", dt.int8)
int16: Final = Integer("int16", dt.int16)
int32: Final = Integer("int32", dt.int32)
int64: Final = Integer("int64", dt.int64)
uint8: Final = Integer("uint8", dt.uint8)
uint16: Final = Integer("uint16", dt.uint16)
uint32: Final = Integer("uint32", dt.uint32)
uint64: Final = Integer("uint64", dt.uint64)
float16: Final = Float("float16", dt.float16)
bfloat16: Final = Float("bfloat16", dt.bfloat16)
float32: Final = Float("float32", dt.float32)
float64: Final = Float("float64", dt.float64)
complex64: Final = Complex("complex64", None, np.dtype(np.complex64))
complex128: Final = Complex("complex128", None, np.dtype(np.complex128))
void: Final = NoneType("void", None)
intp, uintp = int64, uint64

numpy_version: Final = tuple(int(part) for part in np.__version__.split(".")[:2])

ALIASES: Final = {
    "boolean": boolean, "bool_": boolean, "b1": boolean, "int8": int8, "char": int8, "i1": int8,
    "int16": int16, "i2": int16, "short": int16, "int32": int32, "i4": int32, "intc": int32,
    "int_": int64, "int64": int64, "i8": int64, "intp": int64, "long_": int64, "longlong": int64,
    "ssize_t": int64, "uint8": uint8, "u1": uint8, "byte": uint8, "uchar": uint8, "uint16": uint16,
    "u2": uint16, "ushort": uint16, "uint32": uint32, "u4": uint32, "uintc": uint32,
    "uint64": uint64, "u8": uint64, "uint": uint64, "uintp": uint64, "ulong": uint64,
    "ulonglong": uint64, "size_t": uint64, "float16": float16, "f2": float16, "float32": float32,
    "f4": float32, "float64": float64, "f8": float64, "double": float64, "float_": float64,
    "void": void, "none": void, "complex64": complex64, "c8": complex64, "complex128": complex128,
    "c16": complex128, "half": float16, "bfloat16": bfloat16,
}  # fmt: skip


def from_dtype(dtype: Any) -> NumbaType:
    """Return numba's type for a dtype of NumPy, also one of records."""
    kind = np.dtype(dtype)
    found = ALIASES.get({"bool": "boolean"}.get(kind.name, kind.name))
    if found is not None:
        return found
    if kind.kind in "mM":
        unit, count = np.datetime_data(kind)
        if count == 1:
            return (NPDatetime if kind.kind == "M" else NPTimedelta)(
                "" if unit == "generic" else unit)
    if kind.kind in "US" and kind.itemsize:
        return UnicodeCharSeq(kind.itemsize // 4) if kind.kind == "U" else CharSeq(kind.itemsize)
    if kind.fields is None:
        raise DTypeError("from_dtype", found=str(kind), expected="a type that kernels have")
    return Record(kind)


def as_dtype(kind: Any) -> np.dtype[Any]:
    """Return what NumPy calls a type of numba."""
    found = adopted(kind)
    if not isinstance(found, NumbaType) or found.kind is None:
        raise DTypeError("as_dtype", found=repr(kind), expected="a scalar or record type")
    kind_of: np.dtype[Any] = np.dtype(found.kind)
    return kind_of


def typeof(value: Any) -> Any:
    """Return numba's type of a value: of a number, an array or a tuple."""
    if isinstance(value, tuple):
        return tuple_type(map(typeof, value), type(value))
    array = np.asarray(value)
    scalar = from_dtype(array.dtype)
    if not array.ndim:
        return scalar
    layout = "C" if array.flags.c_contiguous else "F" if array.flags.f_contiguous else "A"
    return ArrayOf(scalar, array.ndim, layout)


def is_of_numba(value: Any) -> bool:
    """Whether an object is one of numba itself, which a program may use beside Weft."""
    return type(value).__module__.startswith("numba.")


def adopted(kind: Any) -> Any:
    """Return a type of numba itself as the one here that is like it; other types as they are."""
    if not is_of_numba(kind):
        return kind
    if hasattr(kind, "layout"):
        return ArrayOf(adopted(kind.dtype), kind.ndim, kind.layout)
    if hasattr(kind, "types"):
        return tuple_type(map(adopted, kind.types))
    name = "boolean" if kind.name == "bool" else kind.name
    if name in ALIASES:
        return ALIASES[name]
    element = as_element(kind)
    if element is None:
        raise DTypeError("signature", found=str(kind), expected="a type that kernels have")
    support: Any = sys.modules["numba.np.numpy_support"]
    return from_dtype(support.as_dtype(kind))
