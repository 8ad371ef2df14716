"""Methods that compute nothing: reshapes, permutations, slices and splits, as views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self, TypeVar, cast

from weft.errors import AxisError, ShapeError
from weft.graph import movement
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.expr import Expr
from weft.ir.node import Dim
from weft.ir.size import exact_quotient
from weft.tensors.core import views
from weft.tensors.core.arguments import check_tensor, count_of
from weft.tensors.core.layouts import is_one
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.thread_state import state
from weft.tensors.docs.documented import documented
from weft.tensors.docs.movement_sections import MOVEMENT
from weft.tensors.ops.elementwise import Elementwise
from weft.tensors.ops.join import cat_nodes

__all__ = ["Movement", "ints"]

M = TypeVar("M", bound="Movement")
_MOST_PARTS: Final = 1 << 20  # views that one call makes at most


def ints(values: tuple[Any, ...], operation: str = "shape") -> tuple[int, ...]:
    """Return sizes or axes given as separate arguments or as one sequence."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    for value in values:
        if type(value) is not int:
            sizes: list[Any] = [v if isinstance(v, Expr) else infer.as_int(v, operation)
                                for v in values]  # fmt: skip
            return tuple(sizes)
    return values


def _sequence(values: Any, operation: str) -> tuple[Any, ...]:
    """Return one number, or several given as a sequence."""
    if isinstance(values, (tuple, list, range)):
        return tuple(values)
    if isinstance(values, Expr):
        return (values,)
    return (infer.as_int(values, operation),)


class Movement(Elementwise):
    """Shapes, orders of axes and parts as views, which share memory as in PyTorch."""

    __slots__ = ()

    # shapes

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[self._axis(dim, "size")]

    def reshape(self, *shape: Any) -> Self:
        """Return the elements, in row-major order, in another shape (one size may be -1).

        It is a view where strides can say it, else a copy.
        """
        sizes = self._fill_size(ints(shape), "reshape")
        step = views.Reshape(sizes)
        if not self._path and state.capture is None:
            return self._view(step)
        layout, size = self._find_strides(step)
        copies = layout is None and self._path
        return self._noted(self._wrap(step.read(self._read())) if copies else self._view(step),
                           size)

    def view(self, *shape: Any) -> Self:
        """Return the same memory in another shape, or as another dtype of the same width."""
        if len(shape) == 1 and not isinstance(shape[0], (int, tuple, list, dt.DType, Expr)):
            shape = (dt.as_dtype(shape[0]),)
        if len(shape) == 1 and isinstance(shape[0], dt.DType):
            if shape[0] is self.dtype:
                return self._view(views.Reshape(self.shape))
            infer.bitcast(self._read(), shape[0])  # which says what is wrong with it
            return (self.detach() if self._requires_grad else self)._view(views.Bits(shape[0]))
        return self._viewed(ints(shape))

    def _viewed(self, shape: tuple[int, ...]) -> Self:
        """Return the elements in another shape over the same memory.

        Raises
        ------
        ShapeError
            If strides cannot say it: a copy would silently lose what is written to it.
        """
        sizes = self._fill_size(shape, "view")
        step = views.Reshape(sizes)
        if not self._has_strides(step):
            step.read(self._read())  # which says whether the sizes are wrong
            raise ShapeError("view", found=f"a view whose elements do not lie as {sizes} needs",
                             expected="axes that are merged to lie one behind the other in memory",
                             hint="reshape() copies where it has to")
        return self._view(step)

    def reshape_as(self, other: TensorCore) -> Self:
        """Return the elements in the shape of `other`."""
        return self.reshape(check_tensor(other, "reshape_as").shape)

    def view_as(self, other: TensorCore) -> Self:
        """Return the same memory in the shape of `other`."""
        return self._viewed(check_tensor(other, "view_as").shape)

    def _row(self, axis: int, operation: str) -> Self:
        """Return a tensor without axes as a row of one element; its axis may be 0 or -1."""
        infer.check_axis(axis, 1, operation)
        return self._view(views.Reshape((1,)))

    def _fill_size(self, shape: Sequence[Any], operation: str) -> tuple[int, ...]:
        sizes = tuple(shape)
        missing = [i for i, n in enumerate(sizes) if isinstance(n, int) and n == -1]
        if not missing:
            return sizes
        known: Any = 1
        for n in sizes:
            known *= n if n != -1 else 1
        total: Any = self.numel()
        if len(missing) == 1 and (isinstance(total, Expr) or isinstance(known, Expr)):
            rest: Any = exact_quotient(total, known)
            if rest is not None:
                return tuple(rest if i == missing[0] else n for i, n in enumerate(sizes))
            raise ShapeError(operation, found=f"{self.shape} to {sizes}",
                             expected="sizes that divide the elements whatever the symbolic sizes")
        if len(missing) > 1 or not known or total % known:
            raise ShapeError(operation, found=f"{self.shape} to {sizes}",
                             expected=f"at most one -1, and sizes that make {total} elements")
        return tuple(total // known if i == missing[0] else n for i, n in enumerate(sizes))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Return the axes from `start_dim` to `end_dim` merged into one."""
        if not self.shape:
            return self.reshape(1)
        a, b = self._axis(start_dim, "flatten"), self._axis(end_dim, "flatten")
        if b < a:
            raise AxisError("flatten", found=f"axes {start_dim} to {end_dim}",
                            expected="a first axis that is not behind the last")
        merged = 1
        for n in self.shape[a : b + 1]:
            merged *= n
        return self.reshape(*self.shape[:a], merged, *self.shape[b + 1 :])

    def ravel(self) -> Self:
        """Return the elements as one axis."""
        return self.reshape(self.numel())

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """Return one axis split into several (one size may be -1)."""
        axis = self._axis(dim, "unflatten")
        given: list[Any] = [n if isinstance(n, Expr) else infer.as_int(n, "unflatten")
                            for n in _sequence(sizes, "unflatten")]  # fmt: skip
        known = 1
        for n in given:
            known *= n if n != -1 else 1
        whole = self.shape[axis]
        left: Any = exact_quotient(whole, known) or 0
        parts = tuple(left if n == -1 else n for n in given)
        product = 1
        for n in parts:
            product *= n
        if not infer.same_dim(product, whole):
            raise ShapeError("unflatten", found=f"{tuple(given)}",
                             expected=f"sizes that make {whole}")
        return self.reshape(*self.shape[:axis], *parts, *self.shape[axis + 1 :])

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Self:
        """Return the tensor without axes of size 1 (or without one of them)."""
        axes = self._axes(dim, "squeeze")
        kept = [n for a, n in enumerate(self.shape) if a not in axes or not is_one(n)]
        return self._view(views.Reshape(tuple(kept)))

    def unsqueeze(self, dim: int) -> Self:
        """Return the tensor with an axis of size 1 before axis `dim`."""
        axis = infer.check_axis(dim, len(self.shape) + 1, "unsqueeze")
        return self._view(views.Reshape((*self.shape[:axis], 1, *self.shape[axis:])))

    def expand(self, *sizes: Any) -> Self:
        """Return a view with axes of size 1 repeated."""
        wanted = ints(sizes)
        lead = len(wanted) - len(self.shape)
        shape = tuple(
            self.shape[i - lead] if isinstance(n, int) and n == -1 and i >= lead else n
            for i, n in enumerate(wanted)
        )
        return self._view(views.Expand(shape))

    def expand_as(self, other: TensorCore) -> Self:
        """Return a view broadcast to the shape of `other`."""
        return self._view(views.Expand(check_tensor(other, "expand_as").shape))

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """Return a view broadcast to `shape`."""
        return self._view(views.Expand(ints((shape,), "broadcast_to")))

    # order of axes

    def permute(self, *dims: Any) -> Self:
        """Return the axes in the given order."""
        order = ints(dims)
        axes = tuple(infer.check_axis(a, len(self.shape), "permute") for a in order)
        if sorted(axes) != list(range(len(self.shape))):
            raise AxisError("permute", found=f"axes {order}",
                            expected=f"each of the {len(self.shape)} axes once")
        return self._view(views.Permute(axes))

    def transpose(self, dim0: int, dim1: int) -> Self:
        """Return the tensor with two axes exchanged."""
        if not self.shape:
            infer.check_axis(dim0, 1, "transpose"), infer.check_axis(dim1, 1, "transpose")
            return self._view(views.Reshape(()))
        order = list(range(len(self.shape)))
        a, b = self._axis(dim0, "transpose"), self._axis(dim1, "transpose")
        order[a], order[b] = b, a
        return self._view(views.Permute(tuple(order)))

    def swapaxes(self, axis0: int, axis1: int) -> Self:
        """Return the tensor with two axes exchanged."""
        return self.transpose(axis0, axis1)

    def t(self) -> Self:
        """Return a matrix transposed (vectors stay)."""
        if len(self.shape) > 2:
            raise ShapeError("t", found=f"{self.shape}", expected="at most two axes")
        return self.transpose(0, 1) if len(self.shape) == 2 else self

    @property
    def T(self) -> Self:
        """The tensor with its axes in reverse order."""
        return self._view(views.Permute(tuple(reversed(range(len(self.shape))))))

    @property
    def mT(self) -> Self:
        """The tensor with its last two axes exchanged: each matrix transposed."""
        if len(self.shape) < 2:
            raise ShapeError("mT", found=f"{self.shape}", expected="at least two axes")
        return self.transpose(-1, -2)

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Return the tensor with axes moved to other places; the rest keep their order."""
        src, dst = _sequence(source, "movedim"), _sequence(destination, "movedim")
        ndim = len(self.shape)
        src = tuple(infer.check_axis(a, ndim or 1, "movedim") for a in src)
        dst = tuple(infer.check_axis(a, ndim or 1, "movedim") for a in dst)
        if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
            raise AxisError("movedim", found=f"{source} to {destination}",
                            expected="as many places as axes, each once")
        if not ndim:
            return self._view(views.Reshape(()))
        order: list[int] = [-1] * ndim
        for a, b in zip(src, dst, strict=True):
            order[b] = a
        rest = iter(a for a in range(len(self.shape)) if a not in src)
        return self.permute(tuple(a if a >= 0 else next(rest) for a in order))

    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Return the tensor with axes moved to other places."""
        return self.movedim(source, destination)

    # parts

    def _slice(self, axis: int, start: int, size: int, step: int = 1,
               *more: views.Step) -> Self:  # fmt: skip
        starts: list[Dim] = [0] * len(self.shape)
        sizes: list[Dim] = list(self.shape)
        steps = [1] * len(self.shape)
        starts[axis], sizes[axis], steps[axis] = start, size, step
        return self._view(views.Slice(tuple(starts), tuple(sizes), tuple(steps)), *more)

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """Return `length` elements of an axis from `start` on, as a view."""
        axis = self._axis(dim, "narrow")
        start, length = infer.as_int(start, "narrow"), infer.as_int(length, "narrow")
        n = self.shape[axis]
        first = start + n if start < 0 else start
        if not 0 <= first <= n or length < 0 or first + length > n:
            raise ShapeError("narrow", found=f"{length} from {start} of {n}",
                             expected="a part of the axis")
        return self._slice(axis, first, length)

    def select(self, dim: int, index: int) -> Self:
        """Return one slice of an axis, which is dropped, as a view."""
        axis = self._axis(dim, "select")
        index = infer.as_int(index, "select")
        n = self.shape[axis]
        if not -n <= index < n:
            from weft.errors import BoundsError

            raise BoundsError("select", found=f"index {index} on axis {axis} of {self.shape}",
                              expected=f"{-n} to {n - 1}")
        return self._slice(axis, index + n if index < 0 else index, 1, 1,
                           views.Reshape((*self.shape[:axis], *self.shape[axis + 1 :])))

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Return parts of an axis: of one size (the last may be smaller), or of given sizes."""
        axis = self._axis(dim, "split")
        n = self.shape[axis]
        if isinstance(split_size, int):
            if split_size < 1 and n:
                raise ShapeError("split", found=f"parts of {split_size}", expected="at least 1")
            sizes = [min(split_size, n - i) for i in range(0, n, max(split_size, 1))] or [0]
        else:
            sizes = [infer.as_int(s, "split") for s in _sequence(split_size, "split")]
            if sum(sizes) != n or min(sizes, default=0) < 0:
                raise ShapeError("split", found=f"sizes {sizes}", expected=f"sizes that sum to {n}")
        out, start = [], 0
        for size in sizes:
            out.append(self._slice(axis, start, size))
            start += size
        return tuple(out)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """Return at most `chunks` parts of equal size (the last may be smaller)."""
        axis = self._axis(dim, "chunk")
        chunks = count_of(chunks, "chunk", 1, _MOST_PARTS)
        if infer.same_dim(self.shape[axis], 0):
            return self.split([0] * chunks, axis)
        return self.split(-(-self.shape[axis] // chunks), axis)

    def tensor_split(self, sections: Any, dim: int = 0) -> tuple[Self, ...]:
        """Return exactly `sections` parts, whose sizes differ by at most 1, or parts at places.

        Parameters
        ----------
        sections : int, or sequence of int
            A number of parts, or where the axis is cut: ``[1, 4]`` makes ``x[:1]``, ``x[1:4]`` and
            ``x[4:]``.
        dim : int, optional
            The axis, the first by default; a negative one counts from the last.

        Returns
        -------
        tuple of Tensor
            Views.

        Raises
        ------
        AxisError
            If the axis is out of range.
        RangeError
            If there are to be no parts.
        """
        n = self.shape[self._axis(dim, "tensor_split")]
        if isinstance(sections, TensorCore) and len(sections.shape) == 1:
            sections = cast(Any, sections).tolist()
        if isinstance(sections, (list, tuple)):
            cuts = [slice(None, infer.as_int(at, "tensor_split")).indices(n)[1] for at in sections]
            ends = zip([0, *cuts], [*cuts, n], strict=True)
            axis = self._axis(dim, "tensor_split")
            return tuple(self._slice(axis, a if b > a else 0, max(b - a, 0)) for a, b in ends)
        sections = count_of(sections, "tensor_split", 1, _MOST_PARTS)
        small, larger = divmod(n, sections)
        return self.split([small + (i < larger) for i in range(sections)], dim)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Return all slices of an axis."""
        axis = self._axis(dim, "unbind")
        return tuple(self.select(axis, i) for i in range(self.shape[axis]))

    def unfold(self, dimension: int, size: int, step: int) -> Self:
        """Return sliding windows of an axis as a view; the window is appended as the last axis."""
        axis = self._axis(dimension, "unfold")
        infer.window(self._read(), axis, size, step)  # which says what is wrong with them
        return self._view(views.Windows(axis, size, step))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Return diagonals of two axes as the last axis, as a view."""
        offset = infer.as_int(offset, "diagonal")
        a, b = self._axis(dim1, "diagonal"), self._axis(dim2, "diagonal")
        if a == b:
            raise AxisError("diagonal", found=f"axis {dim1} twice", expected="two axes")
        x = self.movedim((a, b), (-2, -1))
        rows, columns = x.shape[-2:]
        top, left = max(-offset, 0), max(offset, 0)
        n = max(min(rows - top, columns - left), 0)
        nd_ = len(x.shape)
        if n == 0:
            return x._slice(nd_ - 1, 0, 0).select(-2, 0) if rows else x._slice(
                nd_ - 1, 0, 0)._view(views.Reshape((*x.shape[:-2], 0)))
        return x._view(views.Diagonal(top, left, n))

    def flip(self, *dims: Any) -> Self:
        """Return the elements of some axes in reverse order."""
        x = self._read()
        for axis in self._axes(ints(dims), "flip"):
            x = movement.flip(x, axis)
        return self._wrap(x)

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Return the elements moved along axes, those that fall off coming in at the other end."""
        if dims is None:
            return self.ravel().roll(shifts, 0).reshape(self.shape)
        amounts = [infer.as_int(s, "roll") for s in _sequence(shifts, "roll")]
        axes = _sequence(dims, "roll")
        if len(amounts) != len(axes):
            raise ShapeError("roll", found=f"{len(amounts)} shifts for {len(axes)} axes",
                             expected="one shift for each axis")
        out = self
        for shift, dim in zip(amounts, axes, strict=True):
            axis = self._axis(dim, "roll")
            n = self.shape[axis]
            if n and shift % n:
                cut = n - shift % n
                parts = [out._slice(axis, cut, n - cut), out._slice(axis, 0, cut)]
                out = out._wrap(cat_nodes([p._read() for p in parts], axis))
        return out.clone() if out is self else out


documented(Movement, MOVEMENT)
