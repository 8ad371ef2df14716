"""Data types: storage, value ranges, promotion, conversion of Python values.

Promotion follows PyTorch where the array API is silent: a bool, integer or float of higher *kind*
wins whatever its width (``int64 + float16 -> float16``); among integers of mixed sign the smallest
signed type that holds both wins, ``uint64`` with a signed type gives ``int64``; ``float16`` with
``bfloat16`` gives ``float32``. The 8-bit floats are storage types: arithmetic promotes them to
``float32`` (with each other) or to the other float.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from weft.errors import DTypeError, RangeError

if TYPE_CHECKING:
    import numpy as np


class DType:
    """One element type.

    Attributes
    ----------
    name : str
        The public name, as in PyTorch and the array API (``float32``).
    text : str
        The short name in printed IR (``f32``).
    kind : str
        ``b`` bool, ``u`` unsigned, ``i`` signed integer, ``f`` float.
    bits : int
        Width in bits; bool is stored in 8.
    exponent, mantissa : int
        Field widths of a float in bits, else 0.
    is_float, is_integer, is_bool : bool
        Which of these the type is: a signed or unsigned integer (bool is not), or another.
    is_storage_only : bool
        Whether values are computed in another type (8-bit floats).
    """

    __slots__ = ("_numpy", "bits", "exponent", "is_bool", "is_float", "is_integer",
                 "is_storage_only", "itemsize", "kind", "mantissa", "name", "text")  # fmt: skip

    def __init__(
        self, name: str, text: str, kind: str, bits: int, exponent: int = 0, mantissa: int = 0
    ) -> None:
        self.name, self.text, self.kind, self.bits = name, text, kind, bits
        self.exponent, self.mantissa = exponent, mantissa
        self.itemsize = max(bits // 8, 1)
        # No properties: each operation on a tensor asks several times.
        self.is_float, self.is_integer, self.is_bool = kind == "f", kind in "iu", kind == "b"
        self.is_storage_only = kind == "f" and bits == 8
        self._numpy: Any = None

    def __repr__(self) -> str:
        return f"weft.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (from_text, (self.text,))

    def __getitem__(self, axes: Any) -> ArrayAnnotation:
        """Return the type of an array: ``float32[:, ::1]``, ``float32[8]``.

        An axis is ``:`` (any size), an int (that size), or, the last one, ``::1``: the array lies
        in memory without gaps, in row-major order. Arrays whose sizes are all given do so, too.

        Raises
        ------
        DTypeError
            For anything else between the brackets.
        """
        items = axes if isinstance(axes, tuple) else (axes,)
        shape: list[int | None] = []
        for position, item in enumerate(items):
            dense = item == slice(None, None, 1) and position == len(items) - 1
            if dense or item == slice(None):
                shape.append(None)
            elif type(item) is int and item >= 0:
                shape.append(item)
            else:
                raise DTypeError(f"{self.name}[...]", found=repr(item),
                                 expected="`:`, a size, or `::1` for the last axis")
        dense = items[-1:] == (slice(None, None, 1),) or None not in shape
        return ArrayAnnotation(self, tuple(shape), "C" if dense else "A")

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype (through ml_dtypes for bfloat16 and the 8-bit floats)."""
        if self._numpy is None:
            import numpy as np

            if self.name in _ML_DTYPES:
                import ml_dtypes

                self._numpy = np.dtype(getattr(ml_dtypes, _ML_DTYPES[self.name]))
            else:
                self._numpy = np.dtype(self.name)
        return self._numpy  # type: ignore[no-any-return]

    @property
    def min(self) -> int | float:
        """Smallest value: an int for integers, minus infinity for floats."""
        if self.kind == "f":
            return -math.inf
        return -(1 << (self.bits - 1)) if self.kind == "i" else 0

    @property
    def max(self) -> int | float:
        """Largest value: an int for integers, infinity for floats (448 for float8_e4m3fn)."""
        if self.kind == "f":
            return 448.0 if self is float8_e4m3fn else math.inf
        if self.kind == "b":
            return 1
        return (1 << (self.bits - (self.kind == "i"))) - 1

    @property
    def eps(self) -> float:
        """Distance from 1 to the next larger float."""
        return 2.0**-self.mantissa


class FloatInfo:
    """What a float type can represent: ``weft.finfo(weft.float32)``.

    Attributes
    ----------
    dtype : DType
        The type.
    bits : int
        Width in bits.
    eps : float
        Distance from 1 to the next larger number.
    max, min : float
        The largest number, and its negative.
    smallest_normal, tiny : float
        The smallest positive number with all bits of its significand.
    resolution : float
        ``10 ** -n``, where n decimal digits are exact.
    """

    __slots__ = ("bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal", "tiny")

    def __init__(self, dtype: object) -> None:
        d = as_dtype(getattr(dtype, "dtype", dtype))
        if not d.is_float:
            raise DTypeError("finfo", found=d.name, expected="a float type",
                             hint="iinfo tells of integers")
        self.dtype, self.bits, self.eps = d, d.bits, d.eps
        top = (1 << (d.exponent - 1)) - 1
        self.max = 448.0 if d is float8_e4m3fn else (2.0 - d.eps) * 2.0**top
        self.min = -self.max
        self.smallest_normal = self.tiny = 2.0 ** (1 - top)
        self.resolution = 10.0 ** -math.floor(d.mantissa * math.log10(2))

    def __repr__(self) -> str:
        return (f"finfo(dtype={self.dtype.name}, bits={self.bits}, min={self.min}, "
                f"max={self.max}, eps={self.eps}, tiny={self.tiny})")  # fmt: skip


class IntegerInfo:
    """What an integer type can represent: ``weft.iinfo(weft.int8)``.

    Attributes
    ----------
    dtype : DType
        The type.
    bits : int
        Width in bits.
    max, min : int
        The largest and the smallest number.
    """

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, dtype: object) -> None:
        d = as_dtype(getattr(dtype, "dtype", dtype))
        if not d.is_integer:
            raise DTypeError("iinfo", found=d.name, expected="an integer type",
                             hint="finfo tells of floats")
        self.dtype, self.bits = d, d.bits
        self.max, self.min = int(d.max), int(d.min)

    def __repr__(self) -> str:
        return f"iinfo(dtype={self.dtype.name}, bits={self.bits}, min={self.min}, max={self.max})"


class ConstantAnnotation:
    """The annotation of a parameter that a kernel is compiled for, whatever its value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "weft.constexpr"


constexpr: Final = ConstantAnnotation()


class ArrayAnnotation:
    """The type of an array parameter, as an annotation says it: ``float32[:, ::1]``.

    Attributes
    ----------
    dtype : DType
        Type of its elements.
    shape : tuple of (int or None)
        Size of each axis, None where it may be any.
    order : str
        ``C`` for row-major order without gaps, ``A`` for any strides.
    """

    __slots__ = ("dtype", "order", "shape")

    def __init__(self, dtype: DType, shape: tuple[int | None, ...], order: str) -> None:
        self.dtype, self.shape, self.order = dtype, shape, order

    def __repr__(self) -> str:
        ends = [":" if n is None else str(n) for n in self.shape]
        if self.order == "C" and None in self.shape and self.shape[-1] is None:
            ends[-1] = "::1"
        return f"{self.dtype!r}[{', '.join(ends)}]"

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, ArrayAnnotation) and self.dtype is other.dtype
                and self.shape == other.shape and self.order == other.order)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape, self.order))


_ML_DTYPES: Final = {
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
}

bool_: Final = DType("bool", "bool", "b", 1)
uint8: Final = DType("uint8", "u8", "u", 8)
uint16: Final = DType("uint16", "u16", "u", 16)
uint32: Final = DType("uint32", "u32", "u", 32)
uint64: Final = DType("uint64", "u64", "u", 64)
int8: Final = DType("int8", "i8", "i", 8)
int16: Final = DType("int16", "i16", "i", 16)
int32: Final = DType("int32", "i32", "i", 32)
int64: Final = DType("int64", "i64", "i", 64)
float8_e4m3fn: Final = DType("float8_e4m3fn", "f8e4m3", "f", 8, 4, 3)
float8_e5m2: Final = DType("float8_e5m2", "f8e5m2", "f", 8, 5, 2)
float16: Final = DType("float16", "f16", "f", 16, 5, 10)
bfloat16: Final = DType("bfloat16", "bf16", "f", 16, 8, 7)
float32: Final = DType("float32", "f32", "f", 32, 8, 23)
float64: Final = DType("float64", "f64", "f", 64, 11, 52)

ALL: Final = (
    bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64,
    float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64,
)  # fmt: skip
_BY_TEXT: Final = {d.text: d for d in ALL}
_BY_NAME: Final = {d.name: d for d in ALL} | _BY_TEXT | {
    "half": float16, "float": float64, "double": float64, "int": int64, "long": int64,
    "short": int16, "float8_e4m3": float8_e4m3fn,
    "f2": float16, "f4": float32, "f8": float64, "i1": int8, "i2": int16, "i4": int32,
    "u1": uint8, "u2": uint16, "u4": uint32,
}  # fmt: skip
_TWO_MEANINGS: Final = {"i8": ("int8", "int64"), "u8": ("uint8", "uint64")}  # bits, or bytes
_BY_PYTHON: Final = {bool: bool_, int: int64, float: float64}
_SIGNED: Final = {8: int8, 16: int16, 32: int32, 64: int64}
_UNSIGNED: Final = {8: uint8, 16: uint16, 32: uint32, 64: uint64}


def from_text(text: str) -> DType:
    """Return the type with this short IR name (``f32``)."""
    return _BY_TEXT[text]


def signed(bits: int) -> DType:
    """Return the signed integer type of this width."""
    return _SIGNED[bits]


def unsigned(bits: int) -> DType:
    """Return the unsigned integer type of this width."""
    return _UNSIGNED[bits]


def is_name(text: str) -> bool:
    """Return whether `text` names a dtype (``float32``, or a longer path that ends so)."""
    return text.rpartition(".")[2] in _BY_NAME


def as_dtype(spec: object) -> DType:
    """Return the type a user named: a weft dtype, a name, a Python type or a NumPy dtype.

    Python's types mean what NumPy and PyTorch take them for: ``float`` is float64, ``int`` int64
    and ``bool`` bool.

    Raises
    ------
    DTypeError
        If there is no such type in Weft.
    """
    if isinstance(spec, DType):
        return spec
    found = _BY_PYTHON.get(spec) if isinstance(spec, type) else None
    if found is not None:
        return found
    if isinstance(spec, str) and spec in _TWO_MEANINGS:
        raise DTypeError("dtype", found=repr(spec), expected=" or ".join(_TWO_MEANINGS[spec]),
                         hint="NumPy counts bytes in such names, other languages bits")
    name = spec if isinstance(spec, str) else getattr(spec, "name", None)
    if name is None and isinstance(spec, type):
        name = spec.__name__
    if name is None or not isinstance(name, str) or name not in _BY_NAME:
        text = str(spec)  # torch.float32 prints as its path
        name = text.rpartition(".")[2]
    found = _BY_NAME.get(name)
    if found is None:
        raise DTypeError(
            "dtype", found=f"{spec!r:.60}", expected="one of " + ", ".join(d.name for d in ALL),
            hint="there are no complex numbers yet" if "complex" in str(name) else None,
        )
    return found


def _rank(d: DType) -> int:
    return "buif".index(d.kind) if d.kind != "u" else 2


def promote(a: DType, b: DType) -> DType:
    """Return the type in which values of `a` and `b` meet (symmetric, associative on floats)."""
    if a is b:
        return a
    if a.kind == "b":
        return b
    if b.kind == "b":
        return a
    if a.kind == "f" or b.kind == "f":
        if a.kind != b.kind:
            return a if a.kind == "f" else b
        return _promote_floats(a, b)
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    i, u = (a, b) if a.kind == "i" else (b, a)
    return i if i.bits > u.bits else _SIGNED[min(u.bits * 2, 64)]


def _promote_floats(a: DType, b: DType) -> DType:
    wide, narrow = (a, b) if a.bits >= b.bits else (b, a)
    if wide.bits == narrow.bits:
        return float32  # f16 with bf16, or the two 8-bit formats
    return wide


def compute_dtype(d: DType) -> DType:
    """Return the type in which arithmetic on `d` is carried out (then rounded back to `d`)."""
    return float32 if d.kind == "f" and d.bits < 32 else d


def accumulator_dtype(d: DType) -> DType:
    """Return the type in which long sums of `d` accumulate: f32 for 8- and 16-bit floats."""
    return compute_dtype(d)


def of_value(value: bool | int | float) -> DType:
    """Return the default type of a Python scalar: bool, int64 or float32."""
    if isinstance(value, bool):
        return bool_
    return int64 if isinstance(value, int) else float32


def check_value(value: bool | int | float, d: DType, operation: str) -> bool | int | float:
    """Return `value` as a Python value of type `d`, exactly or rounded to nearest.

    Raises
    ------
    RangeError
        If an integer type cannot hold the value (``2**40`` in int32, ``1.5`` or NaN in int32).
    DTypeError
        If it is no number.
    """
    given: object = value
    if not isinstance(given, (int, float)) and not hasattr(type(given), "__float__"):
        raise DTypeError(operation, found=f"{value!r:.40}", expected="a number")
    if d.kind == "b":
        return bool(value)
    if d.kind == "f":
        try:
            return float(value)
        except OverflowError:
            raise RangeError(operation, found=f"an integer of {int(value).bit_length()} bits",
                             expected=f"a value that fits {d.name}") from None
    if isinstance(value, float) and not (math.isfinite(value) and value == int(value)):
        raise RangeError(operation, found=repr(value), expected=f"an integer, to fit {d.name}")
    number = int(value)
    if not d.min <= number <= d.max:
        raise RangeError(
            operation, found=str(number), expected=f"a value of {d.name}, {d.min} to {d.max}"
        )
    return number


def wrap(value: int, d: DType) -> int:
    """Reduce an integer modulo 2**bits into the range of the integer type `d`."""
    value &= (1 << d.bits) - 1
    return value - (1 << d.bits) if d.kind == "i" and value >> (d.bits - 1) else value
