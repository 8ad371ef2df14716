"""``numba.types``: the names of types, for signatures, `cuda.shared.array` and annotations."""

from typing import TYPE_CHECKING, Any

from weft.compat.numba_types import (
    ALIASES,
    ArrayOf,
    NumbaType,
    array_type,
    from_dtype,
    tuple_type,
)

__all__ = [
    "Array", "CPointer", "NoneType", "Optional", "Record", "Tuple", "UniTuple", "optional",
    "pyobject", "string", "unicode_type", "voidptr", *ALIASES,
]  # fmt: skip

Array = array_type
Tuple = UniTuple = tuple_type


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
    if isinstance(kind, ArrayOf):
        return kind.dtype
    return kind.kind if isinstance(kind, NumbaType) else kind


globals().update(ALIASES)

if TYPE_CHECKING:

    def __getattr__(name: str) -> NumbaType: ...
