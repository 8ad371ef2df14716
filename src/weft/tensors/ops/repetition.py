"""Repetition, padding and triangles of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self, cast

from weft.errors import DTypeError, RangeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.tensors.core import views
from weft.tensors.core.arguments import check_rank, count_of, describe, items_of
from weft.tensors.core.literals import whole
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.docs.documented import documented
from weft.tensors.docs.movement_sections import REPETITION
from weft.tensors.ops.arithmetic import as_operand
from weft.tensors.ops.join import cat_nodes
from weft.tensors.ops.movement import Movement, ints

__all__ = ["Repetition"]

_PAD_MODES: Final = ("constant", "reflect", "replicate", "circular")


class Repetition(Movement):
    """Elements repeated, surrounded by a border, or cut to a triangle."""

    __slots__ = ()

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

    def repeat_interleave(self, repeats: Any = None, dim: int | None = None, *,
                          output_size: int | None = None) -> Self:  # fmt: skip
        """Return the tensor with each element of an axis repeated in place.

        Parameters
        ----------
        repeats : int, or Tensor of int
            How often: one number, or one for each element of the axis (whose sum is data, and is
            computed). None takes this tensor as the counts, and gives the index of each element.
        dim : int, optional
            The axis; a negative one counts from the last. None flattens first.
        output_size : int, optional
            The size of the result's axis, if it is known: then counts need not be computed.

        Returns
        -------
        Tensor
            With repeated elements side by side.

        Raises
        ------
        AxisError
            If the axis is out of range.
        RangeError
            If a count is negative.
        ShapeError
            If there is neither one count nor one for each element.
        DTypeError
            If the counts are no integers.

        Examples
        --------
        >>> weft.tensor([1, 2]).repeat_interleave(2)
        tensor([1, 1, 2, 2])
        >>> weft.tensor([5, 6]).repeat_interleave(weft.tensor([0, 3]))
        tensor([6, 6, 6])
        """
        if repeats is None:
            positions = self._from_node(infer.iota(self.numel()))
            return positions.repeat_interleave(self.ravel(), 0, output_size=output_size)
        if dim is None:
            return self.ravel().repeat_interleave(repeats, 0, output_size=output_size)
        axis = self._axis(dim, "repeat_interleave")
        counts = as_operand(self, repeats) if _has_axes(repeats) else None
        if counts is not None and counts.numel() != 1:
            return self._repeated_each(counts, axis, output_size)
        times: Any = repeats if isinstance(repeats, Expr) else count_of(
            repeats if counts is None else counts, "repeat_interleave", 0)
        a, n, b = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        infer.check_shape((*a, n * times, *b), "repeat_interleave")  # before memory is asked for
        x = infer.expand(infer.reshape(self._read(), (*a, n, 1, *b)), (*a, n, times, *b))
        return self._wrap(infer.reshape(x, (*a, n * times, *b)))

    def _repeated_each(self, counts: Any, axis: int, size: int | None) -> Self:
        """Return elements of an axis repeated by counts of their own."""
        n = self.shape[axis]
        if not counts.dtype.is_integer:
            raise DTypeError("repeat_interleave", found=f"counts of {counts.dtype.name}",
                             expected="integers")
        if len(counts.shape) != 1 or not infer.same_dim(counts.shape[0], n):
            raise ShapeError("repeat_interleave", found=f"counts of {counts.shape}",
                             expected=f"one, or one for each of {n} elements")
        ends = counts.long().cumsum(0)
        if size is None:
            if n and int(counts.amin()) < 0:
                raise RangeError("repeat_interleave", found="a negative count",
                                 expected="at least 0")
            size = int(ends[-1]) if n else 0
        marks = cast(Any, self._from_node(infer.full((size + 1,), 0, dt.int64)))
        one = self._from_node(infer.full((n,), 1, dt.int64))
        source = marks.index_add(0, ends, one)[:size].cumsum(0)  # how many end before a place
        return cast(Self, cast(Any, self).index_select(axis, source))

    def pad(self, pad: Sequence[int], mode: str = "constant",
            value: Scalar | None = None) -> Self:  # fmt: skip
        """Return the tensor with a border: ``(left, right)`` of the last axis, then of the others.

        Negative amounts crop. `mode` is ``constant``, ``reflect``, ``replicate`` or ``circular``.
        """
        amounts = [infer.as_int(amount, "pad") for amount in items_of(pad, "pad")]
        if len(amounts) % 2 or len(amounts) > 2 * len(self.shape):
            raise ShapeError("pad", found=f"{len(amounts)} amounts",
                             expected=f"pairs, for at most {len(self.shape)} axes")
        before = [0] * len(self.shape)
        after = [0] * len(self.shape)
        for i in range(len(amounts) // 2):
            before[-1 - i], after[-1 - i] = amounts[2 * i], amounts[2 * i + 1]
        if mode not in _PAD_MODES:
            raise ShapeError("pad", found=f"mode {describe(mode)}", expected=", ".join(_PAD_MODES))
        value = 0 if value is None else value
        if mode != "constant":
            if value != 0:
                raise RangeError("pad", found=f"value={describe(value)} with mode {mode!r}",
                                 expected="no value: the border is taken from the elements")
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
        clean = dt.check_value(whole(value, self.dtype), self.dtype, "pad")
        return self._wrap(infer.pad(x, [max(b, 0) for b in before], [max(a, 0) for a in after],
                                    clean))  # fmt: skip

    def _pad_from_inside(self, axis: int, before: int, after: int, mode: str) -> Self:
        """Return one axis with a border taken from the elements, or cropped where it is negative.

        The border is that of the whole axis, also where its other end is cropped; in mode
        ``circular`` it goes on at the other end of what is left, as in PyTorch.
        """
        n = self.shape[axis]
        if before == after == 0:
            return self
        if mode == "circular" and min(before, after) < 0 and n + min(before, 0, after) > 0:
            size = max(n + min(before, 0) + min(after, 0), 0)
            kept = self._slice(axis, max(-before, 0) if size else 0, size)
            return kept._pad_from_inside(axis, max(before, 0), max(after, 0), mode)
        limits = {"reflect": n - 1, "circular": n, "replicate": 1 << 62}
        if max(before, after) > limits[mode] or n == 0:
            raise ShapeError("pad", found=f"{max(before, after)} around an axis of {n}",
                             expected=f"at most {max(limits[mode], 0)} in mode {mode}")
        if n + before + after < 0:
            raise ShapeError("pad", found=f"{before} and {after} around an axis of {n}",
                             expected="at least as much as is there")
        left, right = max(before, 0), max(after, 0)
        if mode == "reflect":
            parts = [self._slice(axis, left, left, -1) if left else None, self,
                     self._slice(axis, n - 2, right, -1) if right else None]  # fmt: skip
        elif mode == "circular":
            parts = [self._slice(axis, n - left, left), self, self._slice(axis, 0, right)]
        else:
            parts = [self._edge(axis, 0, left), self, self._edge(axis, n - 1, right)]
        nodes = [t._read() for t in parts if t is not None]
        whole = self._wrap(cat_nodes(nodes, axis))
        if min(before, after) >= 0:
            return whole
        return whole._slice(axis, max(-before, 0), n + before + after)

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
        diagonal = infer.as_int(diagonal, name)
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
        if len(self.shape) not in (1, 2):
            raise ShapeError("diag", found=f"{self.shape}", expected="a vector or a matrix",
                             hint="diagonal() and diag_embed() take more axes")
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


documented(Repetition, REPETITION)


def _has_axes(value: object) -> bool:
    """Whether a count is one for each element: a tensor, an array or a list."""
    return isinstance(value, list | tuple) or bool(getattr(value, "shape", ()))
