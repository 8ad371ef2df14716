"""``numba.types``: the names of types, for signatures, `cuda.shared.array` and annotations."""

from typing import TYPE_CHECKING, Any

from weft.compat.numba_types import (
    ALIASES,
    ArrayOf,
    NumbaType,
    TupleOf,
    array_type,
    from_dtype,
    tuple_type,
)

__all__ = [
    "Array", "Boolean", "CPointer", "Complex", "Float", "Integer", "NoneType", "Number", "Optional",
    "Record", "Tuple", "Type", "UniTuple", "complex_domain", "integer_domain", "number_domain",
    "optional", "pyobject", "real_domain", "signed_domain", "string", "unicode_type",
    "unsigned_domain", "voidptr", *ALIASES,
]  # fmt: skip



class Named(NumbaType):
    """A type that annotations may name and that no argument has."""

    def __call__(self, *args: Any) -> Any:
        """Return the type itself: ``CPointer(float32)``."""
        return self


CPointer = Named("CPointer", None)
NoneType = ALIASES["none"]
pyobject = Named("pyobject", None)
unicode_type = string = Named("unicode_type", None)
voidptr = Named("voidptr", None)


def Optional(kind: NumbaType) -> NumbaType:
    """Return a type: an argument that is None has a kernel of its own."""
    return kind


optional = Optional


class Record:
    """``Record.make_c_struct(fields)``: structures as elements of arrays."""

    @staticmethod
    def make_c_struct(fields: Any) -> NumbaType:
        """Return the type of elements with these names and types, laid out as in C."""
        import numpy as np

        return from_dtype(np.dtype([(name, _kind(kind)) for name, kind in fields], align=True))


def _kind(kind: Any) -> Any:
    """Return what NumPy calls the type of a field."""
    return kind.kind if isinstance(kind, NumbaType | ArrayOf) else kind


class _Class(type):
    """Classes of types, which programs ask for by `isinstance`: of the kinds of their elements."""

    kinds: str

    def __instancecheck__(cls, value: object) -> bool:
        if not cls.kinds:
            return isinstance(value, NumbaType | ArrayOf | TupleOf)
        return isinstance(value, NumbaType) and value.kind is not None and (
            value.kind.kind in cls.kinds)


class _Made(_Class):
    """Classes of types that are made by calls of them."""

    makes: type
    by: Any

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return cls.by(*args, **options)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.makes)


class Type(metaclass=_Class):
    """All types."""

    kinds = ""


class Array(Type, metaclass=_Made):
    """Types of arrays: ``Array(dtype, ndim, layout)``."""

    makes, by = ArrayOf, staticmethod(array_type)


class Tuple(Type, metaclass=_Made):
    """Types of tuples: ``Tuple((int64, float32))``."""

    makes, by = TupleOf, staticmethod(tuple_type)


class UniTuple(Tuple):
    """Types of tuples: ``UniTuple(int64, 3)``."""


class Number(Type):
    """Numbers; truth values are none."""

    kinds = "iufc"


class Integer(Number):
    """Integers."""

    kinds = "iu"


class Float(Number):
    """Floats."""

    kinds = "f"


class Complex(Number):
    """Complex numbers."""

    kinds = "c"


class Boolean(Type):
    """Truth values."""

    kinds = "b"


def _domain(*names: str) -> frozenset[NumbaType]:
    return frozenset(ALIASES[name] for name in names)


signed_domain = _domain("int8", "int16", "int32", "int64")
unsigned_domain = _domain("uint8", "uint16", "uint32", "uint64")
integer_domain = signed_domain | unsigned_domain
real_domain = _domain("float32", "float64")
complex_domain = _domain("complex64", "complex128")
number_domain = real_domain | integer_domain | complex_domain
globals().update(ALIASES)

if TYPE_CHECKING:

    def __getattr__(name: str) -> NumbaType: ...
