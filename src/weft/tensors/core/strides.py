"""Where the elements of a tensor lie in memory: strides, contiguity."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, TypeVar, cast

from weft.ir import infer
from weft.ir.expr import Expr
from weft.ir.node import Node, Shape
from weft.ir.runtime_size import RuntimeSize
from weft.ir.size import replaced_all
from weft.tensors.core import views
from weft.tensors.core.layouts import Layout, Undecided, fixed, is_row_major, row_major
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.thread_state import state
from weft.tensors.docs.documented import documented
from weft.tensors.docs.movement_sections import STRIDES

__all__ = ["Strides", "steps_to", "strided"]

M = TypeVar("M", bound="Strides")


class Strides(TensorCore):
    """Strides of views in the memory of their bases.

    What depends on symbolic sizes, and not on all of them alike, is answered for the numbers of the
    capture under way. The capture serves these alone if the function sees the answer, as a number
    or by a write that reaches, or does not reach, what shares the memory.
    """

    __slots__ = ()

    def _layout(self) -> Layout | None:
        """Return where the elements lie in the base; None where strides do not say it."""
        if any(type(s) is views.Picked for s in self._path):
            return None
        layout, size = self._find_strides()
        _see(size, "strides")
        return layout

    def _has_strides(self, step: views.Step) -> bool:
        """Whether strides say where the elements behind a step lie; so if variables decide it."""
        if not self._path and state.capture is None:
            return True
        layout, size = self._find_strides(step)
        _see(size, "whether a tensor has such a view")
        return layout is not None or type(size) is Expr

    def _find_strides(self, *steps: views.Step) -> tuple[Layout | None, Expr | None]:
        """Return the strides of the elements (behind more steps) in the base; None without any.

        And a size if others of it may have other strides: these are for its number in the capture,
        or None for a variable without a number.
        """
        base = self if self._base is None else self._base
        path = views.moves((*self._path, *steps))
        try:
            return _layout_of(base.shape, path), (
                None if state.capture is None else state.capture.doubt(base))
        except Undecided as found:
            size = found.size
        if not isinstance(size, RuntimeSize):
            return None, size
        values = size.sizes.values
        return _layout_of(replaced_all(base.shape, values),
                               [fixed(step, values) for step in path]), size

    def _find_order(self) -> tuple[bool, Expr | None]:
        """Return whether the elements lie in row-major order, and a size as `_find_strides`."""
        layout, size = self._find_strides()
        if layout is None:
            return False, size
        found = is_row_major(layout)
        if found is None:
            size = layout.symbol if size is None else size
            found = isinstance(size, RuntimeSize) and is_row_major(
                fixed(layout, size.sizes.values))
        return bool(found), size

    def _whole_memory(self) -> Self:
        """Return the memory that this tensor lies in as a vector, a view if this is one."""
        base = self if self._base is None else cast(Self, self._base)
        _see(base._find_strides()[1], "memory")
        return base._view(views.Reshape((base.numel(),)))

    def _noted(self, out: M, size: Expr | None) -> M:
        """Return a view or a copy of this tensor; the capture notes if a size decides which."""
        if isinstance(size, RuntimeSize) and state.capture is not None:
            state.capture.may_share(self if self._base is None else self._base, out, size)
        return out

    def contiguous(self) -> Self:
        """Return the tensor if its elements lie in row-major order, else a copy that does."""
        if self._base is None and state.capture is None:
            return self
        is_in_order, size = self._find_order()
        return self._noted(self if is_in_order else self._wrap(infer.contiguous(self._read())),
                           size)

    def is_contiguous(self) -> bool:
        """Return whether the elements lie in row-major order, without gaps."""
        if self._base is None and state.capture is None:
            return True
        is_in_order, size = self._find_order()
        _see(size, "is_contiguous")
        return is_in_order

    def stride(self, dim: int | None = None) -> Any:
        """Return the steps of the axes in memory, in elements."""
        steps = (self._layout() or row_major(self.shape)).strides
        return steps if dim is None else steps[self._axis(dim, "stride")]

    def storage_offset(self) -> int:
        """Return where the first element lies in the memory shared with a base, in elements."""
        found = self._layout()
        return 0 if found is None else found.offset


documented(Strides, STRIDES)


def _see(size: Expr | None, what: str) -> None:
    """Note that the function sees what a size decides."""
    if isinstance(size, RuntimeSize):
        size.seen(what)


def _layout_of(shape: Shape, path: Iterable[views.Step]) -> Layout | None:
    """Return the layout of a view in a base of a shape, None where strides cannot say it.

    Raises
    ------
    Undecided
        If it depends on the values of symbolic sizes.
    """
    layout: Layout | None = row_major(shape)
    for step in path:
        layout = None if layout is None else step.move(layout)
    return layout


def steps_to(shape: tuple[int, ...], offset: int, strides: tuple[int, ...]
             ) -> tuple[tuple[int, ...], list[views.Step]] | None:  # fmt: skip
    """Return the shape of a contiguous base, and the path from it to a strided array.

    An array without gaps is its base with axes reversed and permuted, which every kernel knows how
    to read and to write; one with gaps is `Strided` over a flat base. None if elements overlap.
    """
    order = sorted((a for a, n in enumerate(shape) if n != 1), key=lambda a: -abs(strides[a]))
    reach, dense = 1, True  # elements of the axes so far: from the first to behind the last
    for axis in reversed(order):
        width = abs(strides[axis])
        if width < reach:
            return None
        dense = dense and width == reach
        reach = (shape[axis] - 1) * width + reach
    if not dense:
        return (reach,), [views.Strided(shape, offset, strides)]
    base = tuple(shape[a] for a in order)
    path: list[views.Step] = []
    if any(strides[a] < 0 for a in order):
        path.append(views.Slice(tuple(shape[a] - 1 if strides[a] < 0 else 0 for a in order), base,
                                tuple(-1 if strides[a] < 0 else 1 for a in order)))  # fmt: skip
    if order != sorted(order):
        path.append(views.Permute(tuple(order.index(a) for a in sorted(order))))
    if len(order) < len(shape):
        path.append(views.Reshape(shape))
    return base, path


def strided(x: Node, shape: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> Node:
    """Return the elements of a flat array at strides, as `steps_to` finds them."""
    found = steps_to(shape, offset, strides)
    if found is None:
        return infer.contiguous(infer.strided(x, shape, offset, strides))
    base, path = found
    out = infer.reshape(x, base)
    for step in path:
        out = step.read(out)
    return out
