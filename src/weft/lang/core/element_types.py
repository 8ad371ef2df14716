"""What elements of arrays can be: numbers, complex numbers, times, texts, and records of those.

The IR computes with numbers only. A complex number is two of them side by side, so that an array of
complex numbers is one of floats with one axis more; an array of records is an array for each field.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from weft.errors import DTypeError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.record import Record
from weft.ir.stmt import Memory
from weft.lang.core.values import Fields, Group, View, ViewAxis, whole

if TYPE_CHECKING:
    from weft.ir.expr import Expr

__all__ = ["COMPLEX", "ComplexOf", "Element", "Packed", "RecordOf", "TextOf", "TimeOf",
           "array_of", "as_dtype", "as_element", "count_of", "first_of", "is_text", "is_time",
           "made", "pair", "records_over", "spelled", "text_of", "time_of"]  # fmt: skip

COMPLEX = ("real", "imag")


class Packed(Record):
    """An element that is one or several numbers of a type, which lie side by side."""

    @property
    def number(self) -> DType:
        """The type of the numbers."""
        return dt.int64

    @property
    def axes(self) -> tuple[int, ...]:
        """Sizes of the axes that an array of the numbers has behind those of the array."""
        return ()

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return math.prod(self.axes) * self.number.itemsize

    def over(self, numbers: View) -> Fields:
        """Return an array of the numbers as one of elements."""
        return Fields((numbers,), (), len(numbers.axes) - len(self.axes), self)

    def numbers_of(self, array: Any) -> Any:
        """Return an array of NumPy as one of the numbers, which shares its memory."""
        import numpy as np

        number = np.dtype(self.number.numpy).newbyteorder(array.dtype.byteorder)
        return array.view(np.dtype((number, self.axes)))


class ComplexOf(Packed):
    """A complex number: real and imaginary part of one type."""

    dtype: DType

    @property
    def number(self) -> DType:
        """The type of the parts."""
        return self.dtype

    @property
    def axes(self) -> tuple[int, ...]:
        """Two parts."""
        return (2,)

    def over(self, numbers: View) -> Fields:
        """Return an array of floats, whose last axis has two, as one of complex numbers."""
        return pair(numbers)


class TimeOf(Packed):
    """A time: ``M`` for ``datetime64``, ``m`` for ``timedelta64``, and its unit; see `time_of`."""

    letter: str
    unit: str

    @property
    def __name__(self) -> str:
        """How NumPy calls it."""
        name = "datetime64" if self.letter == "M" else "timedelta64"
        return name if self.unit == "generic" else f"{name}[{self.unit}]"


def is_time(value: object) -> bool:
    """Whether a value is a time: see `weft.lang.values.times`, which few kernels need."""
    return isinstance(value, Group) and isinstance(value.kind, TimeOf)


@cache
def time_of(letter: str, unit: str) -> TimeOf:
    """Return the only one of a kind of times."""
    return TimeOf(letter, unit)


class TextOf(Packed):
    """A text: ``U`` for characters, ``S`` for bytes, and how many codes it has; see `text_of`."""

    letter: str
    count: int

    @property
    def __name__(self) -> str:
        """How NumPy calls it."""
        return f"{self.letter}{self.count}"

    @property
    def number(self) -> DType:
        """The type of a code."""
        return dt.uint32 if self.letter == "U" else dt.uint8

    @property
    def axes(self) -> tuple[int, ...]:
        """One axis of codes."""
        return (self.count,)


def is_text(value: object) -> bool:
    """Whether a value is an element of texts: see `weft.lang.values.strings`."""
    return isinstance(value, Group) and isinstance(value.kind, TextOf)


@cache
def text_of(letter: str, count: int) -> TextOf:
    """Return the only one of a kind of texts."""
    return TextOf(letter, count)


class RecordOf(Record):
    """A record: for each field its name, its element and the shape of a field that is an array.

    ``offsets`` are the bytes before each field.
    """

    fields: tuple[tuple[str, Any, tuple[int, ...]], ...]
    itemsize: int
    offsets: tuple[int, ...] = ()


Element = DType | ComplexOf | RecordOf | TimeOf | TextOf


def as_dtype(value: Any) -> DType | None:
    """Return the dtype that a Python object names: ours, NumPy's, or bool, int and float."""
    value = getattr(value, "__weft_dtype__", value)
    if isinstance(value, DType):
        return value
    value = _of_numba(value)
    if value is bool or value is int or value is float:
        return dt.bool_ if value is bool else dt.int64 if value is int else dt.float64
    module = type(value).__module__ if not isinstance(value, type) else value.__module__
    if module in ("numpy", "numpy.dtypes", "ml_dtypes"):
        try:
            return dt.as_dtype(value)
        except DTypeError:
            return None
    return None


def _of_numba(value: Any) -> Any:
    """Return NumPy's dtype for a type of numba itself, anything else as it is.

    A program that takes only ``cuda`` from Weft still names the types of its arrays as numba does.
    """
    kinds, support, errors = map(sys.modules.get, (
        "numba.core.types", "numba.np.numpy_support", "numba.core.errors"))
    if kinds is None or support is None or errors is None or not isinstance(
        value, kinds.Type | kinds.NumberClass
    ):
        return value
    named = value.instance_type if isinstance(value, kinds.NumberClass) else value
    with contextlib.suppress(errors.NumbaError):  # a type that no array has
        return support.as_dtype(named)
    return value


def as_element(value: Any) -> Element | None:
    """Return the element that a Python object names: a dtype, complex numbers, or records."""
    value = getattr(value, "__weft_element__", value)
    if isinstance(value, ComplexOf | RecordOf | TimeOf | TextOf):
        return value
    if value is complex:
        return ComplexOf(dt.float64)
    value = _of_numba(value)
    module = type(value).__module__ if not isinstance(value, type) else value.__module__
    if module in ("numpy", "numpy.dtypes", "numpy.core.records", "numpy.rec"):
        import numpy as np

        try:
            kind = np.dtype(value)
        except TypeError:
            return None
        if kind.kind == "c":
            return ComplexOf(dt.float32 if kind.itemsize == 8 else dt.float64)
        if kind.kind in "mM":
            unit, count = np.datetime_data(kind)
            return time_of(kind.kind, unit) if count == 1 else None
        if kind.kind in "US" and kind.itemsize:
            return text_of(kind.kind, kind.itemsize // (4 if kind.kind == "U" else 1))
        if kind.fields is not None:
            return _record(kind)
    return as_dtype(value)


def _record(kind: Any) -> RecordOf | None:
    fields = []
    for name in kind.names:
        inner = kind.fields[name][0]
        shape = inner.shape
        element = as_element(inner.base)
        if element is None:
            return None
        fields.append((name, element, tuple(shape)))
    offsets = tuple(kind.fields[name][1] for name in kind.names)
    return RecordOf(tuple(fields), kind.itemsize, offsets)


def spelled(value: Any) -> Any:
    """Return NumPy's dtype for its name, such as ``"float32"``, anything else as it is."""
    if not isinstance(value, str):
        return value
    import numpy as np

    try:
        return np.dtype(value)
    except TypeError:
        return value


def pair(view: View) -> Fields:
    """Return an array of floats, whose last axis has two, as one of complex numbers."""
    last = view.axes[-1]
    other = list(view.starts)
    other[last.axis] = other[last.axis] + last.step
    axes = view.axes[:-1]
    parts = (view.replace(axes=axes), view.replace(starts=tuple(other), axes=axes))
    return Fields(parts, COMPLEX, len(axes), complex)


def made(name: str, element: Element, shape: tuple[Expr, ...],
         array: Callable[[str, DType, tuple[Expr, ...]], View]) -> View | Fields:  # fmt: skip
    """Return an array of elements, out of arrays of numbers that `array` makes."""
    if isinstance(element, DType):
        return array(name, element, shape)
    if isinstance(element, Packed):
        return element.over(array(name, element.number, (*shape, *map(ex.index, element.axes))))
    parts = tuple(made(f"{name}.{field}", inner, (*shape, *map(ex.index, more)), array)
                  for field, inner, more in element.fields)
    return Fields(parts, tuple(field for field, *_ in element.fields), len(shape))


def records_over(element: Element, size: int, memory: Callable[[DType], Memory],
                 axes: tuple[tuple[int, int], ...] = (),
                 first: int = 0) -> View | Fields:  # fmt: skip
    """Return an array of records over bytes, as an array for each of their fields.

    Parameters
    ----------
    element
        What lies there.
    size
        How many elements, along the first of `axes` if there are any.
    memory
        Returns the bytes as elements of a type.
    axes
        Extent of each axis, and the bytes of a step along it.
    first
        Bytes before the first element.

    """
    axes = axes or ((size, element.itemsize),)
    if isinstance(element, RecordOf):
        parts = []
        for (_, inner, more), offset in zip(element.fields, element.offsets, strict=True):
            steps = [inner.itemsize]
            for n in reversed(more[1:]):
                steps.insert(0, steps[0] * n)
            inner_axes = (*axes, *zip(more, steps, strict=False))
            parts.append(records_over(inner, size, memory, inner_axes, first + offset))
        return Fields(tuple(parts), tuple(field for field, *_ in element.fields), len(axes))
    if isinstance(element, Packed):
        inner_axes = (*axes, *((n, element.number.itemsize) for n in element.axes))
        numbers = records_over(element.number, size, memory, inner_axes, first)
        assert isinstance(numbers, View)
        return element.over(numbers)
    unit = math.gcd(element.itemsize, first, *(step for _, step in axes))
    made_ = tuple(ViewAxis(ex.index(n), 0, ex.index(step // unit)) for n, step in axes)
    whole_ = unit == element.itemsize  # else it lies across the places where its type may lie
    held = memory(element if whole_ else dt.unsigned(8 * unit))
    return View(held, (ex.index(first // unit),), made_, False, None if whole_ else element)


def array_of(name: str, dtype: DType, shape: tuple[Expr, ...], scope: str, flat: bool = False,
             readonly: bool = False) -> View:  # fmt: skip
    """Return a new array of numbers, in a memory of its shape or with `flat` in one of one axis."""
    if not flat or len(shape) == 1:
        return whole(Memory(name, dtype, shape, scope), readonly)
    steps = rows(shape)
    memory = Memory(name, dtype, (steps[0] * shape[0],), scope)
    axes = tuple(ViewAxis(n, 0, step) for n, step in zip(shape, steps, strict=True))
    return View(memory, (ex.index(0),), axes, readonly)


def rows(shape: tuple[Expr, ...]) -> list[Expr]:
    """Return how many elements a step along each axis passes in row-major order."""
    steps = [ex.index(1)]
    for n in reversed(shape[1:]):
        steps.insert(0, steps[0] * n)
    return steps


def count_of(shape: tuple[Expr, ...]) -> Expr:
    """Return the number of elements of an array."""
    total = ex.index(1)
    for extent in shape:
        total = total * extent
    return total


def first_of(part: View | Fields) -> View | Fields:
    """Return the first row of an array."""
    if isinstance(part, Fields):
        return part.replace(parts=tuple(map(first_of, part.parts)), ndim=part.ndim - 1)
    return part.replace(axes=part.axes[1:])
