"""Methods that move elements and compute nothing: views, joins, splits, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self, TypeVar

from weft.errors import AxisError, ShapeError
from weft.frontend import views
from weft.frontend.arguments import check_rank, check_tensor, count_of
from weft.frontend.core import Scalar, TensorCore
from weft.frontend.elementwise import Elementwise
from weft.frontend.join import cat_nodes
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.expr import Expr
from weft.ir.node import Dim
from weft.ir.op import Op
from weft.ir.size import exact_quotient

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


class Movement(Elementwise):
    """Views, joins, splits, padding; views share memory with the tensor, as in PyTorch."""

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
        if self._path and self._layout(step) is None:
            return self._wrap(step.read(self._read()))
        return self._view(step)

    def view(self, *shape: Any) -> Self:
        """Return the elements in another shape, or as another dtype of the same width."""
        if len(shape) == 1 and not isinstance(shape[0], (int, tuple, list, dt.DType, Expr)):
            shape = (dt.as_dtype(shape[0]),)
        if len(shape) == 1 and isinstance(shape[0], dt.DType):
            return self.bitcast(shape[0])
        return self.reshape(*shape)

    def reshape_as(self, other: TensorCore) -> Self:
        """Return the elements in the shape of `other`."""
        return self.reshape(check_tensor(other, "reshape_as").shape)

    def view_as(self, other: TensorCore) -> Self:
        """Return the elements in the shape of `other`."""
        return self.reshape(check_tensor(other, "view_as").shape)

    def _layout(self, *steps: views.Step) -> views.Layout | None:
        """Return where the elements (behind more steps) lie in the base; None without strides."""
        base = self if self._base is None else self._base
        layout = views.row_major(base.shape)
        for step in (*self._path, *steps):
            layout = None if layout is None else step.move(layout)
        return layout

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
        known = 1
        for n in sizes:
            known *= n if n != -1 else 1
        whole = self.shape[axis]
        left: Any = exact_quotient(whole, known) or 0
        parts = tuple(left if n == -1 else n for n in sizes)
        product = 1
        for n in parts:
            product *= n
        if not infer.same_dim(product, whole):
            raise ShapeError("unflatten", found=f"{tuple(sizes)}",
                             expected=f"sizes that make {whole}")
        return self.reshape(*self.shape[:axis], *parts, *self.shape[axis + 1 :])

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Self:
        """Return the tensor without axes of size 1 (or without one of them)."""
        axes = self._axes(dim, "squeeze")
        kept = [n for a, n in enumerate(self.shape) if n != 1 or a not in axes]
        return self._view(views.Reshape(tuple(kept)))

    def unsqueeze(self, dim: int) -> Self:
        """Return the tensor with an axis of size 1 before axis `dim`."""
        axis = infer.check_axis(dim, len(self.shape) + 1, "unsqueeze")
        return self._view(views.Reshape((*self.shape[:axis], 1, *self.shape[axis:])))

    def expand(self, *sizes: Any) -> Self:
        """Return a view with axes of size 1 repeated (-1 keeps a size)."""
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
        return self._view(views.Expand(tuple(shape)))

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
        """The axes in reverse order."""
        return self._view(views.Permute(tuple(reversed(range(len(self.shape))))))

    @property
    def mT(self) -> Self:
        """The last two axes exchanged."""
        if len(self.shape) < 2:
            raise ShapeError("mT", found=f"{self.shape}", expected="at least two axes")
        return self.transpose(-1, -2)

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Return the tensor with axes moved to other places; the rest keep their order."""
        src = (source,) if isinstance(source, int) else tuple(source)
        dst = (destination,) if isinstance(destination, int) else tuple(destination)
        src = tuple(self._axis(a, "movedim") for a in src)
        dst = tuple(self._axis(a, "movedim") for a in dst)
        if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
            raise AxisError("movedim", found=f"{source} to {destination}",
                            expected="as many places as axes, each once")
        order: list[int] = [-1] * len(self.shape)
        for a, b in zip(src, dst, strict=True):
            order[b] = a
        rest = iter(a for a in range(len(self.shape)) if a not in src)
        return self.permute(tuple(a if a >= 0 else next(rest) for a in order))

    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Return the tensor with axes moved to other places."""
        return self.movedim(source, destination)

    # parts

    def _slice(self, axis: int, start: int, size: int, step: int = 1) -> Self:
        starts: list[Dim] = [0] * len(self.shape)
        sizes: list[Dim] = list(self.shape)
        steps = [1] * len(self.shape)
        starts[axis], sizes[axis], steps[axis] = start, size, step
        return self._view(views.Slice(tuple(starts), tuple(sizes), tuple(steps)))

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """Return `length` elements of an axis from `start` on, as a view."""
        axis = self._axis(dim, "narrow")
        n = self.shape[axis]
        first = start + n if start < 0 else start
        if not 0 <= first <= n or length < 0 or first + length > n:
            raise ShapeError("narrow", found=f"{length} from {start} of {n}",
                             expected="a part of the axis")
        return self._slice(axis, first, length)

    def select(self, dim: int, index: int) -> Self:
        """Return one slice of an axis, which is dropped, as a view."""
        axis = self._axis(dim, "select")
        n = self.shape[axis]
        if not -n <= index < n:
            from weft.errors import BoundsError

            raise BoundsError("select", found=f"index {index} on axis {axis} of {self.shape}",
                              expected=f"{-n} to {n - 1}")
        part = self._slice(axis, index + n if index < 0 else index, 1)
        return part._view(views.Reshape((*self.shape[:axis], *self.shape[axis + 1 :])))

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Return parts of an axis: of one size (the last may be smaller), or of given sizes."""
        axis = self._axis(dim, "split")
        n = self.shape[axis]
        if isinstance(split_size, int):
            if split_size < 1 and n:
                raise ShapeError("split", found=f"parts of {split_size}", expected="at least 1")
            sizes = [min(split_size, n - i) for i in range(0, n, max(split_size, 1))] or [0]
        else:
            sizes = list(split_size)
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
        if chunks < 1:
            raise ShapeError("chunk", found=f"{chunks} chunks", expected="at least 1")
        return self.split(max(-(-self.shape[axis] // chunks), 1), axis)

    def tensor_split(self, sections: int, dim: int = 0) -> tuple[Self, ...]:
        """Return exactly `sections` parts, whose sizes differ by at most 1."""
        n = self.shape[self._axis(dim, "tensor_split")]
        sections = count_of(sections, "tensor_split", 1, _MOST_PARTS)
        small, larger = divmod(n, sections)
        return self.split([small + (i < larger) for i in range(sections)], dim)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Return all slices of an axis."""
        axis = self._axis(dim, "unbind")
        return tuple(self.select(axis, i) for i in range(self.shape[axis]))

    def unfold(self, dimension: int, size: int, step: int) -> Self:
        """Return sliding windows of an axis; the window is appended as the last axis."""
        return self._wrap(infer.window(self._read(), dimension, size, step))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Return diagonals of two axes as the last axis, as a view."""
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
        square = x._slice(nd_ - 2, top, n)._slice(nd_ - 1, left, n)
        flat = square._view(views.Reshape((*x.shape[:-2], n * n)))
        return flat._slice(nd_ - 2, 0, n, n + 1)

    def flip(self, *dims: Any) -> Self:
        """Return the elements of some axes in reverse order."""
        x = self._read()
        for axis in self._axes(ints(dims), "flip"):
            x = views.flip(x, axis)
        return self._wrap(x)

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Return the elements moved along axes, those that fall off coming in at the other end."""
        if dims is None:
            return self.ravel().roll(shifts, 0).reshape(self.shape)
        amounts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
        axes = (dims,) if isinstance(dims, int) else tuple(dims)
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

    # repetition and padding

    def repeat(self, *sizes: Any) -> Self:
        """Return the tensor repeated along its axes (new ones in front)."""
        times = ints(sizes)
        if len(times) < len(self.shape):
            raise ShapeError("repeat", found=f"{len(times)} counts",
                             expected=f"one for each of {len(self.shape)} axes")
        shape = (1,) * (len(times) - len(self.shape)) + self.shape
        x = infer.reshape(self._read(), [m for n in shape for m in (1, n)])
        x = infer.expand(x, [m for r, n in zip(times, shape, strict=True) for m in (r, n)])
        return self._wrap(infer.reshape(x, [r * n for r, n in zip(times, shape, strict=True)]))

    def tile(self, *reps: Any) -> Self:
        """Return the tensor repeated along its last axes."""
        times = ints(reps)
        return self.repeat((1,) * (len(self.shape) - len(times)) + tuple(times))

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Return the tensor with each element of an axis repeated in place."""
        if dim is None:
            return self.ravel().repeat_interleave(repeats, 0)
        axis = self._axis(dim, "repeat_interleave")
        a, n, b = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        x = infer.expand(infer.reshape(self._read(), (*a, n, 1, *b)), (*a, n, repeats, *b))
        return self._wrap(infer.reshape(x, (*a, n * repeats, *b)))

    def pad(self, pad: Sequence[int], mode: str = "constant", value: Scalar = 0) -> Self:
        """Return the tensor with a border: ``(left, right)`` of the last axis, then of the others.

        Negative amounts crop. `mode` is ``constant``, ``reflect``, ``replicate`` or ``circular``.
        """
        amounts = [infer.as_int(amount, "pad") for amount in pad]
        if len(amounts) % 2 or len(amounts) > 2 * len(self.shape):
            raise ShapeError("pad", found=f"{len(amounts)} amounts",
                             expected=f"pairs, for at most {len(self.shape)} axes")
        before = [0] * len(self.shape)
        after = [0] * len(self.shape)
        for i in range(len(amounts) // 2):
            before[-1 - i], after[-1 - i] = amounts[2 * i], amounts[2 * i + 1]
        if mode != "constant":
            out = self
            for axis, (b, a) in enumerate(zip(before, after, strict=True)):
                out = out._pad_from_inside(axis, b, a, mode)
            return out
        x = self._read()
        if min(before + after, default=0) < 0:
            starts = [max(-b, 0) for b in before]
            sizes = [n - s - max(-a, 0)
                     for n, s, a in zip(self.shape, starts, after, strict=True)]  # fmt: skip
            x = infer.slice_(x, starts, sizes)
        clean = dt.check_value(value, self.dtype, "pad")
        return self._wrap(infer.pad(x, [max(b, 0) for b in before], [max(a, 0) for a in after],
                                    clean))  # fmt: skip

    def _pad_from_inside(self, axis: int, before: int, after: int, mode: str) -> Self:
        n = self.shape[axis]
        if before == after == 0:
            return self
        limits = {"reflect": n - 1, "circular": n, "replicate": 1 << 62}
        if mode not in limits:
            raise ShapeError("pad", found=f"mode {mode!r}",
                             expected="constant, reflect, replicate or circular")
        if max(before, after) > limits[mode] or n == 0:
            raise ShapeError("pad", found=f"{max(before, after)} around an axis of {n}",
                             expected=f"at most {limits[mode]} in mode {mode}")
        if mode == "reflect":
            left = self._slice(axis, before, before, -1) if before else None
            right = self._slice(axis, n - 2, after, -1) if after else None
        elif mode == "circular":
            left, right = self._slice(axis, n - before, before), self._slice(axis, 0, after)
        else:
            left = self._edge(axis, 0, before)
            right = self._edge(axis, n - 1, after)
        nodes = [t._read() for t in (left, self, right) if t is not None]
        return self._wrap(cat_nodes(nodes, axis))

    def _edge(self, axis: int, index: int, count: int) -> Self:
        shape = (*self.shape[:axis], count, *self.shape[axis + 1 :])
        return self._slice(axis, index, 1)._view(views.Expand(shape))

    # triangles

    def tril(self, diagonal: int = 0) -> Self:
        """Return the lower triangle of the last two axes, 0 above `diagonal`."""
        return self._triangle(diagonal, "tril")

    def triu(self, diagonal: int = 0) -> Self:
        """Return the upper triangle of the last two axes, 0 below `diagonal`."""
        return self._triangle(diagonal, "triu")

    def _triangle(self, diagonal: int, name: str) -> Self:
        if len(self.shape) < 2:
            raise ShapeError(name, found=f"{self.shape}", expected="at least two axes")
        x = self._read()
        rows, columns = x.shape[-2:]
        i = infer.expand(infer.reshape(infer.iota(rows), (rows, 1)), (rows, columns))
        j = infer.expand(infer.iota(columns), (rows, columns))
        limit = infer.elementwise(Op.ADD, i, infer.full(i.shape, diagonal, dt.int64))
        keep = (infer.elementwise(Op.LE, j, limit) if name == "tril"
                else infer.elementwise(Op.LE, limit, j))  # fmt: skip
        zero = infer.full(x.shape, False if x.dtype.is_bool else 0, x.dtype)
        return self._wrap(infer.elementwise(Op.WHERE, infer.expand(keep, x.shape), x, zero))

    def diag(self, diagonal: int = 0) -> Self:
        """Return a vector as a diagonal matrix, or a matrix's diagonal."""
        return self.diag_embed(diagonal) if len(self.shape) == 1 else self.diagonal(diagonal)

    def diag_embed(self, offset: int = 0) -> Self:
        """Return matrices with the last axis on a diagonal."""
        check_rank(self, 1, "diag_embed")
        x = self._read()
        n = self.shape[-1]
        top, left = max(-offset, 0), max(offset, 0)
        i = infer.expand(infer.reshape(infer.iota(n), (n, 1)), (n, n))
        same = infer.elementwise(Op.EQ, i, infer.expand(infer.iota(n), (n, n)))
        shape = (*self.shape, n)
        wide = infer.expand(infer.reshape(x, (*self.shape, 1)), shape)
        zero = infer.full(shape, False if x.dtype.is_bool else 0, x.dtype)
        square = infer.elementwise(Op.WHERE, infer.expand(same, shape), wide, zero)
        lead = [0] * (len(shape) - 2)
        return self._wrap(infer.pad(square, [*lead, top, left], [*lead, left, top],
                                    False if x.dtype.is_bool else 0))  # fmt: skip


