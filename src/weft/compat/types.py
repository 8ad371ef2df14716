"""``numba.types``: types for signatures and annotations, and their classes for `isinstance`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.compat.numba_types import (
    ALIASES,
    ArrayOf,
    BaseTuple,
    Boolean,
    CharSeq,
    Complex,
    Float,
    Integer,
    NamedTuple,
    NamedUniTuple,
    NoneType,
    NPDatetime,
    NPTimedelta,
    NumbaType,
    Number,
    Record,
    Tuple,
    Type,
    UnicodeCharSeq,
    UniTuple,
    int64,
)

__all__ = [
    "Array", "BaseTuple", "Boolean", "BooleanLiteral", "Buffer", "CPointer", "Callable",
    "CharSeq", "Complex", "DType", "DeferredType", "Dispatcher", "Dummy", "EnumMember", "Float",
    "Function", "Hashable", "Integer", "IntegerLiteral", "Literal", "Module", "NPDatetime",
    "NPTimedelta", "NamedTuple", "NamedUniTuple", "NoneType", "Number", "NumberClass",
    "Omitted", "Opaque", "Optional", "Record", "SliceType", "StringLiteral", "Tuple", "Type",
    "UniTuple", "UnicodeCharSeq", "UnicodeType", "complex_domain", "deferred_type",
    "integer_domain", "literal", "number_domain", "optional", "pyobject", "real_domain",
    "signed_domain", "string", "unicode_type", "unliteral", "unsigned_domain", "voidptr", *ALIASES,
]  # fmt: skip

Array = Buffer = ArrayOf
Hashable = Type


class Opaque(Type):
    """A type of which only the name is known."""


class Dummy(Type):
    """A type whose values hold nothing."""


class Named(NumbaType):
    """A type that annotations may name and that no argument has."""

    def __init__(self, name: str) -> None:
        super().__init__(name, None)

    def __call__(self, *args: Any) -> Any:
        """Return the type itself: ``CPointer(float32)``."""
        return self


class UnicodeType(Named):
    """Text."""


class DeferredType(Type):
    """A type that is told later, for classes that hold their own kind."""

    def __init__(self) -> None:
        self.type: Any = None
        super().__init__("DeferredType")

    def define(self, kind: Any) -> None:
        """Tell the type."""
        self.type = kind


class Optional(Type):
    """A value of a type, or None: an argument that is None has a kernel of its own."""

    def __init__(self, type: Any) -> None:
        self.type = type
        super().__init__(f"OptionalType({type})")


class Omitted(Type):
    """An argument that a call leaves to its default."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(f"omitted(default={value!r})")


class Literal(Type):
    """A value that is known when a kernel is compiled."""

    literal_value: Any
    literal_type: Any


class IntegerLiteral(Literal, Integer):
    """An integer that is known."""

    def __init__(self, value: int) -> None:
        Integer.__init__(self, f"Literal[int]({value})", int64.__weft_dtype__)
        self.literal_value, self.literal_type = value, int64


class BooleanLiteral(Literal, Boolean):
    """True or False, known."""

    def __init__(self, value: bool) -> None:
        kind = ALIASES["boolean"]
        Boolean.__init__(self, f"Literal[bool]({value})", kind.__weft_dtype__)
        self.literal_value, self.literal_type = value, kind


class StringLiteral(Literal, Dummy):
    """A text that is known."""

    def __init__(self, value: str) -> None:
        super().__init__(f"Literal[str]({value})")
        self.literal_value, self.literal_type = value, unicode_type


class Callable(Type):
    """What can be called."""


class Function(Callable):
    """A function, by what it is in Python."""

    def __init__(self, typing_key: Any) -> None:
        self.typing_key = typing_key
        super().__init__(f"Function({typing_key})")


class Dispatcher(Function):
    """A function that was decorated for kernels."""

    dispatcher = property(lambda self: self.typing_key)


class NumberClass(Callable):
    """A type of numbers as a function that converts: ``float32`` in a kernel."""

    def __init__(self, instance_type: Any) -> None:
        self.instance_type = self.dtype = instance_type
        super().__init__(f"class({instance_type})")


class DType(Type):
    """A dtype of NumPy, as a value."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(f"dtype({dtype})")


class Module(Dummy):
    """A module, as a value."""

    def __init__(self, pymod: Any) -> None:
        self.pymod = pymod
        super().__init__(f"Module({pymod})")


class EnumMember(Type):
    """A member of an enumeration."""

    def __init__(self, instance_class: type, dtype: Any) -> None:
        self.instance_class, self.dtype = instance_class, dtype
        super().__init__(f"Enum<{dtype}>({instance_class.__name__})")


class SliceType(Type):
    """A slice."""


class Instance(Type):
    """A value of a class of the program: a dataclass, or one that stands for another thing."""

    def __init__(self, instance_class: Any, fields: dict[str, Any]) -> None:
        self.instance_class, self.fields = instance_class, fields
        inner = ", ".join(f"{name}: {kind}" for name, kind in fields.items())
        super().__init__(f"{instance_class.__name__}({inner})")


CPointer = Named("CPointer")
pyobject = Named("pyobject")
unicode_type = string = UnicodeType("unicode_type")
voidptr = Named("voidptr")
optional = Optional
deferred_type = DeferredType


def literal(value: Any) -> Literal:
    """Return the type of a value that is known."""
    if isinstance(value, bool):
        return BooleanLiteral(value)
    return IntegerLiteral(value) if isinstance(value, int) else StringLiteral(value)


def unliteral(kind: Any) -> Any:
    """Return the type that values of a literal type have."""
    return getattr(kind, "literal_type", kind)



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
