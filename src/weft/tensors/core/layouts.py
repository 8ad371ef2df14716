"""Where the elements of a view lie in its base's memory: strides, also of symbolic sizes.

Sizes and strides may be symbolic. A layout is found where it is one for every value of the
variables. Where some values might have one and others not, `Undecided` says so: then the caller
asks for the numbers of this call, or does without.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from weft.ir.expr import Expr
from weft.ir.infer import same_dim
from weft.ir.node import Dim, Shape
from weft.ir.record import Record
from weft.ir.runtime_size import RuntimeSize
from weft.ir.size import exact_quotient, replaced, replaced_all, span_of

__all__ = ["Layout", "Undecided", "equal", "fixed", "is_one", "is_row_major", "reshaped",
           "row_major"]  # fmt: skip


Same = Callable[[Any, Any], bool | None]  # as `equal`; of numbers alone, `==`


class Layout(Record):
    """Where the elements lie in the base's memory, in elements; sizes may be symbolic."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def symbol(self) -> Expr | None:
        """A symbolic size or stride, None if all are numbers."""
        return _symbol((self.offset, *self.shape, *self.strides))


class Undecided(Exception):
    """Whether strides say where the elements lie depends on the values of symbolic sizes.

    Attributes
    ----------
    size : Expr
        One of them.
    """

    def __init__(self, size: Expr) -> None:
        super().__init__(size)
        self.size = size


def _symbol(sizes: Iterable[Dim]) -> Expr | None:
    for n in sizes:
        if isinstance(n, Expr):
            return n
    return None


def _is_empty(shape: Shape) -> bool:
    return any(not isinstance(n, Expr) and n == 0 for n in shape)


def row_major(shape: Shape) -> Layout:
    """Return the layout of a whole array."""
    strides: list[Any] = []
    total: Any = 1
    for dim in reversed(shape):
        strides.append(total)
        total = total * (dim if isinstance(dim, Expr) else max(dim, 1))
    return Layout(0, cast("tuple[int, ...]", tuple(shape)), tuple(reversed(strides)))


def equal(a: Dim, b: Dim) -> bool | None:
    """Return whether two sizes or strides are equal, None if it depends on the variables."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return a == b
    if same_dim(a, b):
        return True
    low, high = span_of(cast(Any, a) - b)
    return False if low > 0 or high < 0 or _is_multiple(a, b) or _is_multiple(b, a) else None


def is_one(n: Dim) -> bool:
    """Return whether a size is 1; the capture under way serves the sizes that answer alike."""
    return n <= 1 and n >= 1 if type(n) is RuntimeSize else same_dim(n, 1)


def _is_multiple(a: Dim, b: Dim) -> bool:
    """Whether `a` is `b`, which is positive, times two or more, for all values."""
    factor = exact_quotient(a, b)
    return factor is not None and span_of(b)[0] > 0 and span_of(factor)[0] > 1


def _is_less(a: Dim, b: Dim) -> bool:
    """Whether ``0 < a < b`` for all values."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return 0 < a < b
    return span_of(a)[0] > 0 and (span_of(cast(Any, b) - a)[0] > 0 or _is_multiple(b, a))


class _Run:
    """Axes whose elements lie at one stride.

    Attributes
    ----------
    count, stride : int or Expr
        How many elements, and how far apart.
    ends : bool
        Whether the next axis out does not continue it, for all values of the variables.
    """

    __slots__ = ("count", "ends", "stride")

    def __init__(self, count: Any, stride: Any) -> None:
        self.count, self.stride, self.ends = count, stride, False


def _runs(layout: Layout, same: Same) -> list[_Run]:
    """Return the runs of axes, innermost first."""
    runs: list[_Run] = []
    for n, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        is_one = same(n, 1)
        if is_one:
            continue
        joins: bool | None = False
        if runs:
            inner = runs[-1]
            joins = same(stride, inner.count * inner.stride)
            if joins:
                inner.count = n * inner.count
                continue
            inner.ends = joins is is_one is False
        runs.append(_Run(n, stride))
    return runs


def reshaped(layout: Layout, shape: Shape) -> Layout | None:
    """Return the layout of the elements in another shape, None where strides cannot say it.

    Every new axis has to lie within one run of axes at equal stride.

    Raises
    ------
    Undecided
        If it depends on the values of symbolic sizes.
    """
    sizes = cast("tuple[int, ...]", tuple(shape))
    if _is_empty(shape):  # no element has a place, so strides are those of a whole array
        same_shape = layout.shape == sizes
        return layout if same_shape else row_major(shape).replace(offset=layout.offset)
    size = _symbol((*sizes, *layout.shape, *layout.strides))
    same: Same = operator.eq if size is None else equal
    runs = _runs(layout, same)
    strides: list[Any] = []
    at, taken = 0, cast(Any, 1)  # elements of the run at hand that the new axes so far have
    for n in reversed(sizes):
        if same(n, 1):
            strides.append(runs[at].stride * taken if at < len(runs) else 1)
            continue
        if at < len(runs) and same(taken, runs[at].count):
            at, taken = at + 1, 1
        if at == len(runs):
            break
        run = runs[at]
        strides.append(run.stride * taken)
        if run.ends and _is_less(taken, run.count) and _is_less(run.count, n * taken):
            return None  # the axis has elements of two runs
        taken = n * taken
    else:
        if at == len(runs) or (at + 1 == len(runs) and same(taken, runs[at].count)):
            return Layout(layout.offset, sizes, tuple(reversed(strides)))
    if size is None:
        return None
    raise Undecided(size)


def is_row_major(layout: Layout) -> bool | None:
    """Return whether elements lie in row-major order without gaps, None if values decide it."""
    if _is_empty(layout.shape):
        return True
    found: bool | None = True
    for n, stride, whole in zip(layout.shape, layout.strides, row_major(layout.shape).strides,
                                strict=True):  # fmt: skip
        is_one, fits = equal(n, 1), equal(stride, whole)
        if is_one is fits is False:
            return False
        if not is_one and not fits:
            found = None
    return found


def fixed(step: Any, values: Mapping[str, int]) -> Any:
    """Return a layout, or a step of a view, with numbers for its symbolic sizes."""
    if not isinstance(step, Record):
        return step
    fields = [getattr(step, name) for name in type(step)._fields]
    known = [replaced_all(f, values) if type(f) is tuple else
             replaced(f, values) if isinstance(f, Expr) else f for f in fields]
    return type(step)(*known)
