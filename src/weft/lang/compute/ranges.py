"""``weft.ndrange``: the points of several axes, in Python and in compute functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from weft.errors import KernelError

__all__ = ["ndrange"]


class ndrange:
    """The points of several axes, which do not depend on each other.

    ::

        for i, j in weft.ndrange(m, n): ...               # i in range(m), j in range(n)
        for i, j in weft.ndrange((1, m - 1), n): ...      # i in range(1, m - 1)
        for i in weft.ndrange(n): ...                     # one axis: a number, no tuple

    The last axis runs fastest. In a `weft.compute` function it says that the points may be
    computed in any order; if the compiler cannot prove that they may, they are not, and a
    `DependenceWarning` says which line is in the way.

    Parameters
    ----------
    *axes
        For each axis an int (its size), a tuple of the arguments of ``range``, or a ``range``.
    """

    __slots__ = ("axes",)

    def __init__(self, *axes: Any) -> None:
        if not axes:
            raise KernelError("ndrange", found="no axes", expected="a size for each axis")
        self.axes = tuple(map(_range_of, axes))

    def __iter__(self) -> Iterator[Any]:
        if len(self.axes) == 1:
            return iter(self.axes[0])
        return itertools.product(*self.axes)

    def __len__(self) -> int:
        total = 1
        for axis in self.axes:
            total *= len(axis)
        return total

    def __repr__(self) -> str:
        return f"ndrange({', '.join(map(repr, self.axes))})"


def _range_of(axis: Any) -> range:
    if isinstance(axis, range):
        return axis
    parts = axis if isinstance(axis, tuple) else (axis,)
    try:
        return range(*parts)
    except TypeError:
        raise KernelError("ndrange", found=repr(axis),
                          expected="a size, (start, stop) or (start, stop, step)") from None
