"""numba's names for types, and signatures made of them: ``void(float32[:], int64)``."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from weft.errors import DTypeError
from weft.frontend.kernel.elements import as_element
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.record import Record

__all__ = [
    "ArrayOf", "NumbaType", "Signature", "TupleOf", "adopted", "array_type", "as_dtype", "boolean",
    "complex64", "complex128", "float16", "float32", "float64", "from_dtype", "int8", "int16",
    "int32", "int64", "intp", "is_of_numba", "parse_signature", "tuple_type", "typeof", "uint8",
    "uint16", "uint32", "uint64", "uintp", "void",
]  # fmt: skip


class ArrayOf(Record):
    """``float32[:, ::1]``: an array type; ``order`` is ``C`` where it must be contiguous."""

    kind: Any  # what NumPy calls its elements
    ndim: int
    order: str = "A"

    @property
    def dtype(self) -> NumbaType:
        """The type of its elements."""
        return from_dtype(self.kind)

    @property
    def layout(self) -> str:
        """The order, by numba's name."""
        return self.order

    def __repr__(self) -> str:
        return f"array({self.kind.name}, {self.ndim}d, {self.order})"


class Signature(Record):
    """``result(*args)``."""

    result: Any
    args: tuple[Any, ...]

    @property
    def return_type(self) -> Any:
        """The type of the result."""
        return self.result

    def __repr__(self) -> str:
        return f"({', '.join(map(str, self.args))}) -> {self.result}"


class TupleOf(Record):
    """``UniTuple(int64, 3)`` or ``Tuple((int64, float32))``: the types of the items."""

    items: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"Tuple({', '.join(map(str, self.items))})"


class NumbaType:
    """A scalar type: a function that converts, and the start of array types and signatures.

    Attributes
    ----------
    name : str
        numba's name.
    kind : numpy.dtype or None
        What arrays of it hold; None for ``void``.
    """

    __slots__ = ("__weft_dtype__", "kind", "name")

    def __init__(self, name: str, dtype: DType | None, kind: Any = None) -> None:
        self.name, self.__weft_dtype__ = name, dtype
        self.kind = np.dtype(dtype.numpy) if dtype is not None else kind

    @property
    def __weft_element__(self) -> Any:
        """What kernels take the type for."""
        return self.kind if self.__weft_dtype__ is None else self.__weft_dtype__

    @property
    def dtype(self) -> Any:
        """The type itself, as of an array."""
        return self

    @property
    def bitwidth(self) -> int:
        """Bits of a number."""
        return 8 * int(self.kind.itemsize)

    @property
    def underlying_float(self) -> NumbaType:
        """The type of the parts of a complex number."""
        if self.kind is None or self.kind.kind != "c":
            raise AttributeError(f"{self.name} has no underlying_float")
        return float32 if self.kind.itemsize == 8 else float64

    @property
    def signed(self) -> bool:
        """Whether an integer may be negative."""
        return bool(self.kind.kind == "i")

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
        return ArrayOf(self.kind, len(parts), "C" if parts[-1].step == 1 else "A")

    def __call__(self, *args: Any) -> Any:
        """Return a signature for types, a converted number for a number."""
        typed = [a for a in args if isinstance(a, NumbaType | ArrayOf | TupleOf)]
        if self.kind is None or (len(typed) == len(args)):
            return Signature(self, args)
        (value,) = args
        if np.ndim(value):
            return np.asarray(value, self.kind)
        return np.asarray(value).astype(self.kind)[()]

    def __repr__(self) -> str:
        return self.name


boolean: Final = NumbaType("boolean", dt.bool_)
int8: Final = NumbaType("int8", dt.int8)
int16: Final = NumbaType("int16", dt.int16)
int32: Final = NumbaType("int32", dt.int32)
int64: Final = NumbaType("int64", dt.int64)
uint8: Final = NumbaType("uint8", dt.uint8)
uint16: Final = NumbaType("uint16", dt.uint16)
uint32: Final = NumbaType("uint32", dt.uint32)
uint64: Final = NumbaType("uint64", dt.uint64)
float16: Final = NumbaType("float16", dt.float16)
float32: Final = NumbaType("float32", dt.float32)
float64: Final = NumbaType("float64", dt.float64)
complex64: Final = NumbaType("complex64", None, np.dtype(np.complex64))
complex128: Final = NumbaType("complex128", None, np.dtype(np.complex128))
void: Final = NumbaType("void", None)
intp, uintp = int64, uint64

ALIASES: Final = {
    "boolean": boolean, "bool_": boolean, "b1": boolean, "int8": int8, "char": int8, "i1": int8,
    "int16": int16, "i2": int16, "short": int16, "int32": int32, "i4": int32, "intc": int32,
    "int_": int64, "int64": int64, "i8": int64, "intp": int64, "long_": int64, "longlong": int64,
    "ssize_t": int64, "uint8": uint8, "u1": uint8, "byte": uint8, "uchar": uint8, "uint16": uint16,
    "u2": uint16, "ushort": uint16, "uint32": uint32, "u4": uint32, "uintc": uint32,
    "uint64": uint64, "u8": uint64, "uintp": uint64, "ulong": uint64, "ulonglong": uint64,
    "size_t": uint64, "float16": float16, "f2": float16, "float32": float32, "f4": float32,
    "float64": float64, "f8": float64, "double": float64, "float_": float64, "void": void,
    "none": void, "complex64": complex64, "c8": complex64, "complex128": complex128,
    "c16": complex128, "half": float16,
}  # fmt: skip


def from_dtype(dtype: Any) -> NumbaType:
    """Return numba's type for a dtype of NumPy, also one of records."""
    kind = np.dtype(dtype)
    found = ALIASES.get({"bool": "boolean"}.get(kind.name, kind.name))
    if found is not None:
        return found
    if kind.fields is None:
        raise DTypeError("from_dtype", found=str(kind), expected="a type that kernels have")
    return NumbaType("Record", None, kind)


def as_dtype(kind: Any) -> np.dtype[Any]:
    """Return what NumPy calls a type of numba."""
    found = adopted(kind)
    if not isinstance(found, NumbaType) or found.kind is None:
        raise DTypeError("as_dtype", found=repr(kind), expected="a scalar or record type")
    return np.dtype(found.kind)


def typeof(value: Any) -> Any:
    """Return numba's type of a value: of a number, an array or a tuple."""
    if isinstance(value, tuple):
        return TupleOf(tuple(map(typeof, value)))
    array = np.asarray(value)
    scalar = from_dtype(array.dtype)
    if not array.ndim:
        return scalar
    return ArrayOf(scalar.kind, array.ndim, "C" if array.flags.c_contiguous else "A")


def array_type(dtype: NumbaType, ndim: int, layout: str, **ignored: Any) -> ArrayOf:
    """Return ``types.Array(dtype, ndim, layout)``."""
    del ignored
    return ArrayOf(adopted(dtype).kind, ndim, "C" if layout == "C" else "A")


def tuple_type(items: Any, count: int | None = None) -> TupleOf:
    """Return ``types.Tuple(items)`` or ``types.UniTuple(item, count)``."""
    return TupleOf(tuple(items) if count is None else (items,) * count)


def is_of_numba(value: Any) -> bool:
    """Whether an object is one of numba itself, which a program may use beside Weft."""
    return type(value).__module__.startswith("numba.")


def adopted(kind: Any) -> Any:
    """Return a type of numba itself as the one here that is like it; other types as they are."""
    if not is_of_numba(kind):
        return kind
    if hasattr(kind, "layout"):
        return ArrayOf(adopted(kind.dtype).kind, kind.ndim, "C" if kind.layout == "C" else "A")
    if hasattr(kind, "types"):
        return TupleOf(tuple(map(adopted, kind.types)))
    name = "boolean" if kind.name == "bool" else kind.name
    if name in ALIASES:
        return ALIASES[name]
    element = as_element(kind)
    if element is None:
        raise DTypeError("signature", found=str(kind), expected="a type that kernels have")
    support: Any = sys.modules["numba.np.numpy_support"]
    return NumbaType(kind.name, None, np.dtype(support.as_dtype(kind)))


def parse_signature(given: Any) -> Signature:
    """Return the signature that a string or a call of types is.

    Raises
    ------
    DTypeError
        If it is none.
    """
    if isinstance(given, Signature):
        return given
    if isinstance(given, tuple | list):
        return Signature(void, tuple(map(adopted, given)))
    if is_of_numba(given) and hasattr(given, "return_type"):  # a signature of numba itself
        return Signature(adopted(given.return_type), tuple(map(adopted, given.args)))
    if not isinstance(given, str):
        raise DTypeError("signature", found=repr(given), expected="'void(float32[:], int64)'")
    names: dict[str, Any] = {
        **ALIASES, "int": int64, "float": float64, "bool": boolean, "long": int64,
        "Tuple": tuple_type, "UniTuple": tuple_type, "Array": array_type}  # fmt: skip
    try:
        made = _evaluate(given, names)
    except (SyntaxError, ValueError, TypeError, KeyError) as error:
        raise DTypeError("signature", found=given, expected="'void(float32[:], int64)'") from error
    return made if isinstance(made, Signature) else Signature(void, (
        made if isinstance(made, tuple) else (made,)))


def _evaluate(text: str, names: dict[str, Any]) -> Any:
    """Return what a text of names, calls, slices and tuples means; nothing else is allowed."""
    import ast

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.Attribute):  # types.int32
            return names[node.attr]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(value(n) for n in node.elts)
        if isinstance(node, ast.Call) and not node.keywords:
            return value(node.func)(*(value(a) for a in node.args))
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return value(node.value)[tuple(_slice(p) for p in parts)]
        raise ValueError(text)

    return value(ast.parse(text.strip(), mode="eval").body)


def _slice(node: Any) -> slice:
    import ast

    if not isinstance(node, ast.Slice) or node.lower is not None or node.upper is not None:
        raise ValueError("a slice without ends")
    step = node.step
    return slice(None, None, step.value if isinstance(step, ast.Constant) else None)
