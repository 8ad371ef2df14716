"""Convolution and pooling, as reductions over sliding windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, cast

from weft.errors import RangeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.node import Node
from weft.ir.op import Op
from weft.tensors.core.arguments import check_rank
from weft.tensors.core.promotion import result_dtype
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.docs.documented import documented
from weft.tensors.docs.layer_sections import CONVOLUTION
from weft.tensors.ops.arithmetic import as_operand
from weft.tensors.ops.contraction import Linear, as_pair, check_one_dtype, contract
from weft.tensors.ops.reduction import ValuesIndices

__all__ = ["Convolution"]

Pair = int | Sequence[int]


def _windows(x: Node, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
             ) -> Node:  # fmt: skip
    """Return windows of the last axes of `x`: ``[..., positions..., offsets...]``."""
    first = x.ndim - len(kernel)
    for i, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
        x = infer.window(x, first + i, k, s, d)
    return x


class Convolution(Linear):
    """Convolutions (as cross-correlations, PyTorch's layout) and pooling."""

    __slots__ = ()

    def conv1d(self, weight: object, bias: object = None, stride: Pair = 1,
               padding: Pair | str = 0, dilation: Pair = 1, groups: int = 1) -> Self:  # fmt: skip
        """Return the 1-d convolution (cross-correlation) of a batch of sequences."""
        return self._conv(1, weight, bias, stride, padding, dilation, groups)

    def conv2d(self, weight: object, bias: object = None, stride: Pair = 1,
               padding: Pair | str = 0, dilation: Pair = 1, groups: int = 1) -> Self:  # fmt: skip
        """Return the 2-d convolution (cross-correlation) of a batch of images."""
        return self._conv(2, weight, bias, stride, padding, dilation, groups)

    def conv3d(self, weight: object, bias: object = None, stride: Pair = 1,
               padding: Pair | str = 0, dilation: Pair = 1, groups: int = 1) -> Self:  # fmt: skip
        """Return the 3-d convolution (cross-correlation) of a batch of volumes."""
        return self._conv(3, weight, bias, stride, padding, dilation, groups)

    def _conv(self, n: int, weight: object, bias: object, stride: Pair, padding: Pair | str,
              dilation: Pair, groups: int) -> Self:  # fmt: skip
        name = f"conv{n}d"
        w = as_operand(self, weight)
        check_one_dtype(self, w, name)
        if len(self.shape) == n + 1:
            batch = self.unsqueeze(0)._conv(n, w, bias, stride, padding, dilation, groups)
            return batch.squeeze(0)
        found = f"an input of {self.shape}, a weight of {w.shape}, groups={groups}"
        if len(self.shape) != n + 2 or len(w.shape) != n + 2:
            raise ShapeError(name, found=found, expected=f"{n + 2} axes each (N C ..., O C ...)")
        channels, outputs = self.shape[1], w.shape[0]
        if groups < 1 or channels != w.shape[1] * groups or outputs % groups:
            raise ShapeError(name, found=found,
                             expected=f"{channels} input channels as groups of {w.shape[1]}, "
                             "and outputs that divide by groups")
        steps, spread = as_pair(stride, n, name), as_pair(dilation, n, name)
        kernel = w.shape[2:]
        borders = _borders(padding, kernel, steps, spread, name)
        inner = channels // groups
        # Groups come apart before the windows, so that gradients see the windows of one group.
        x = self if groups == 1 else self.reshape(self.shape[0], groups, inner, *self.shape[2:])
        if any(b or a for b, a in borders):
            x = x.pad([p for pair in reversed(borders) for p in pair])
        for size, k, d in zip(x.shape[-n:], kernel, spread, strict=True):
            if (k - 1) * d + 1 > size:
                raise ShapeError(name, found=found + f", padded to {x.shape[-n:]}",
                                 expected="a kernel that fits into the padded input")
        a = _windows(x._read(), kernel, steps, spread)
        if groups == 1:
            a = infer.reshape(a, (self.shape[0], 1, *a.shape[1:]))
        spatial = a.shape[3 : 3 + n]
        # [N, g, 1, positions..., C/g, kernel...] * [1, g, O/g, 1..., C/g, kernel...]
        a = infer.permute(a, (0, 1, *range(3, 3 + n), 2, *range(3 + n, 3 + 2 * n)))
        a = infer.reshape(a, (a.shape[0], groups, 1, *a.shape[2:]))
        b = infer.reshape(w._read(), (1, groups, outputs // groups, *(1,) * n, inner, *kernel))
        shape = (self.shape[0], groups, outputs // groups, *spatial, inner, *kernel)
        axes = tuple(range(3 + n, 4 + 2 * n))
        dtype = result_dtype(self, w)
        node = contract(infer.expand(a, shape), infer.expand(b, shape), axes, dtype)
        out = self._wrap(infer.reshape(node, (self.shape[0], outputs, *spatial)), w)
        if bias is None:
            return out
        return out.add(as_operand(self, bias).reshape(outputs, *(1,) * n))

    def conv_transpose1d(self, weight: object, bias: object = None, stride: Pair = 1,
                         padding: Pair = 0, output_padding: Pair = 0, groups: int = 1,
                         dilation: Pair = 1) -> Self:  # fmt: skip
        """Return the adjoint of `conv1d` (a transposed convolution)."""
        return self._conv_transpose(1, weight, bias, stride, padding, output_padding, groups,
                                    dilation)  # fmt: skip

    def conv_transpose2d(self, weight: object, bias: object = None, stride: Pair = 1,
                         padding: Pair = 0, output_padding: Pair = 0, groups: int = 1,
                         dilation: Pair = 1) -> Self:  # fmt: skip
        """Return the adjoint of `conv2d` (a transposed convolution)."""
        return self._conv_transpose(2, weight, bias, stride, padding, output_padding, groups,
                                    dilation)  # fmt: skip

    def conv_transpose3d(self, weight: object, bias: object = None, stride: Pair = 1,
                         padding: Pair = 0, output_padding: Pair = 0, groups: int = 1,
                         dilation: Pair = 1) -> Self:  # fmt: skip
        """Return the adjoint of `conv3d` (a transposed convolution)."""
        return self._conv_transpose(3, weight, bias, stride, padding, output_padding, groups,
                                    dilation)  # fmt: skip

    def _conv_transpose(self, n: int, weight: object, bias: object, stride: Pair, padding: Pair,
                        output_padding: Pair, groups: int, dilation: Pair) -> Self:  # fmt: skip
        """Spread the input by the stride and convolve with the flipped, exchanged weight."""
        name = f"conv_transpose{n}d"
        if len(self.shape) == n + 1:
            return self.unsqueeze(0)._conv_transpose(
                n, weight, bias, stride, padding, output_padding, groups, dilation).squeeze(0)
        w = as_operand(self, weight)
        check_one_dtype(self, w, name)
        if len(self.shape) != n + 2 or len(w.shape) != n + 2 or w.shape[0] != self.shape[1] or (
            w.shape[0] % groups
        ):
            raise ShapeError(name, found=f"{self.shape} with a weight of {w.shape}",
                             expected="N C ... and C O ..., with one C that divides by groups")
        steps, spread = as_pair(stride, n, name), as_pair(dilation, n, name)
        edge, extra = as_pair(padding, n, name), as_pair(output_padding, n, name)
        if any(not 0 <= e < max(s, d) for e, s, d in zip(extra, steps, spread, strict=True)):
            raise ShapeError(name, found=f"output_padding={extra}", expected="at least 0, and "
                             f"less than the stride {steps} or the dilation {spread}")
        x = self._read()
        for i, s in enumerate(steps):
            axis = 2 + i
            if s > 1:
                length = (self.shape[axis] - 1) * s + 1
                wide = infer.unwindow(infer.reshape(x, (*x.shape, 1)), axis, s, 1, length)
                x = infer.reshape(wide, wide.shape[:-1])
        spaced = self._wrap(x)
        kernel = w.shape[2:]
        borders = [((k - 1) * d - p, (k - 1) * d - p + e)
                   for k, d, p, e in zip(kernel, spread, edge, extra, strict=True)]  # fmt: skip
        padded = spaced.pad([p for pair in reversed(borders) for p in pair])
        c, o = w.shape[0], w.shape[1]
        turned = w.reshape(groups, c // groups, o, *kernel).transpose(1, 2)
        turned = turned.reshape(groups * o, c // groups, *kernel).flip(*range(2, 2 + n))
        return padded._conv(n, turned, bias, 1, 0, spread, groups)

    # pooling

    def _pool_windows(self, n: int, kernel_size: Pair, stride: Pair | None, padding: Pair,
                      dilation: Pair, ceil_mode: bool, fill: Scalar, name: str
                      ) -> tuple[Node, tuple[int, ...]]:  # fmt: skip
        if len(self.shape) < n + 1:
            raise ShapeError(name, found=f"{self.shape}", expected=f"at least {n + 1} axes")
        kernel = as_pair(kernel_size, n, name)
        steps = kernel if stride is None else as_pair(stride, n, name)
        edge, spread = as_pair(padding, n, name), as_pair(dilation, n, name)
        if min(*kernel, *steps, *spread) < 1 or min(edge) < 0:
            raise ShapeError(name, found=f"windows of {kernel}, stride {steps}, dilation {spread}, "
                             f"padding {edge}", expected="at least 1 each, and no negative padding")
        if any(2 * p > k for p, k in zip(edge, kernel, strict=True)):
            raise ShapeError(name, found=f"padding {edge} for windows of {kernel}",
                             expected="at most half a window")
        borders = []
        for size, k, s, p, d in zip(self.shape[-n:], kernel, steps, edge, spread, strict=True):
            span = (k - 1) * d + 1
            rest = (size + 2 * p - span) % s if size + 2 * p >= span else 0
            more = s - rest if ceil_mode and rest and size + p > (size + 2 * p - span) // s * s + (
                s) else 0  # fmt: skip
            borders.append((p, p + more))
        x = self
        if any(b or a for b, a in borders):
            x = self.pad([p for pair in reversed(borders) for p in pair], value=fill)
        for size, k, d in zip(x.shape[-n:], kernel, spread, strict=True):
            if (k - 1) * d + 1 > size:
                raise ShapeError(name, found=f"{self.shape} with windows of {kernel}",
                                 expected="windows that fit into the padded input")
        return _windows(x._read(), kernel, steps, spread), kernel

    def _max_pool(self, n: int, kernel_size: Pair, stride: Pair | None, padding: Pair,
                  dilation: Pair, ceil_mode: bool, return_indices: bool) -> Any:  # fmt: skip
        low = self.dtype.min if not self.dtype.is_bool else False
        windows, _ = self._pool_windows(
            n, kernel_size, stride, padding, dilation, ceil_mode, low, f"max_pool{n}d")
        axes = tuple(range(windows.ndim - n, windows.ndim))
        out = self._wrap(infer.reduce(windows, "max", axes, single=True))
        if not return_indices:
            return out
        size = self.shape[-n:]
        count = 1
        for m in size:
            count *= m
        none = dt.int64.max
        places = self._wrap(infer.expand(infer.reshape(infer.iota(count), size), self.shape))
        where, _ = places._pool_windows(n, kernel_size, stride, padding, dilation, ceil_mode, none,
                                        f"max_pool{n}d")  # fmt: skip
        # The first of the largest elements, or the last NaN: what the gradient goes to as well.
        place, wide = self._wrap(where), out.detach()[(..., *(None,) * n)]
        x = self._wrap(windows).detach()
        key = x.eq(wide).where(place, none)
        if self.dtype.is_float:
            key = x.ne(x).where(-1 - place, key)
        first = key.amin(axes)
        return ValuesIndices(out, (first < 0).where(-1 - first, first))

    def max_pool1d(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                   dilation: Pair = 1, ceil_mode: bool = False, return_indices: bool = False
                   ) -> Any:  # fmt: skip
        """Return the largest elements of windows of the last axis."""
        return self._max_pool(1, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    def max_pool2d(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                   dilation: Pair = 1, ceil_mode: bool = False, return_indices: bool = False
                   ) -> Any:  # fmt: skip
        """Return the largest elements of windows of the last two axes."""
        return self._max_pool(2, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    def max_pool3d(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                   dilation: Pair = 1, ceil_mode: bool = False, return_indices: bool = False
                   ) -> Any:  # fmt: skip
        """Return the largest elements of windows of the last three axes."""
        return self._max_pool(3, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    def _avg_pool(self, n: int, kernel_size: Pair, stride: Pair | None, padding: Pair,
                  ceil_mode: bool, count_include_pad: bool, divisor: int | None = None
                  ) -> Self:  # fmt: skip
        x = self._computed()
        windows, kernel = x._pool_windows(n, kernel_size, stride, padding, 1, ceil_mode, 0,
                                          f"avg_pool{n}d")  # fmt: skip
        axes = tuple(range(windows.ndim - n, windows.ndim))
        total = x._wrap(infer.reduce(windows, "sum", axes))
        if divisor is not None:
            if divisor == 0:
                raise RangeError(f"avg_pool{n}d", found="divisor_override=0",
                                 expected="another number")
            return total.div(divisor).astype(self.dtype)
        count = 1
        for k in kernel:
            count *= k
        if not ceil_mode and (count_include_pad or not any(as_pair(padding, n, "avg_pool"))):
            return total.div(count).astype(self.dtype)
        ones = self._wrap(infer.full(self.shape[-n:], 1, x.dtype)).reshape(
            (1,) * (len(self.shape) - n) + self.shape[-n:])
        if count_include_pad:
            edge = as_pair(padding, n, "avg_pool")
            wide = ones.pad([p for e in reversed(edge) for p in (e, e)], value=1)
            inside, _ = wide._pool_windows(n, kernel_size, stride, 0, 1, ceil_mode, 0, "avg_pool")
        else:
            inside, _ = ones._pool_windows(n, kernel_size, stride, padding, 1, ceil_mode, 0,
                                           "avg_pool")  # fmt: skip
        axes = tuple(range(inside.ndim - n, inside.ndim))
        counts = self._wrap(infer.reduce(inside, "sum", axes))
        if counts.shape[-n:] != total.shape[-n:]:  # windows that begin in the padding at the end
            counts = counts[(..., *(slice(0, m) for m in total.shape[-n:]))]
        return total.div(counts).astype(self.dtype)

    def avg_pool1d(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                   ceil_mode: bool = False, count_include_pad: bool = True) -> Self:  # fmt: skip
        """Return the means of windows of the last axis."""
        return self._avg_pool(1, kernel_size, stride, padding, ceil_mode, count_include_pad)

    def avg_pool2d(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                   ceil_mode: bool = False, count_include_pad: bool = True,
                   divisor_override: int | None = None) -> Self:  # fmt: skip
        """Return the means of windows of the last two axes."""
        return self._avg_pool(2, kernel_size, stride, padding, ceil_mode, count_include_pad,
                              divisor_override)  # fmt: skip

    def avg_pool3d(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                   ceil_mode: bool = False, count_include_pad: bool = True,
                   divisor_override: int | None = None) -> Self:  # fmt: skip
        """Return the means of windows of the last three axes."""
        return self._avg_pool(3, kernel_size, stride, padding, ceil_mode, count_include_pad,
                              divisor_override)  # fmt: skip

    def _adaptive(self, n: int, output_size: Any, kind: str, return_indices: bool = False) -> Any:
        """Pool to a given size: window i of m covers [floor(i n / m), ceil((i + 1) n / m))."""
        name = f"adaptive_{kind}_pool{n}d"
        check_rank(self, n, name)
        given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * n
        sizes = [None if m is None else infer.as_int(m, name) for m in given]
        if len(sizes) != n:
            raise ShapeError(name, found=f"{len(sizes)} sizes", expected=f"{n}")
        out = self._computed() if kind == "avg" else self
        places: Any = None
        if return_indices:
            within = self.shape[-n:]
            number = infer.reshape(infer.iota(math.prod(within)), within)
            places = self._from_node(infer.expand(number, self.shape))
        for i, wanted in reversed(list(enumerate(sizes))):  # ties: rows first, then within a row
            axis = len(self.shape) - n + i
            size = out.shape[axis]
            m = size if wanted is None else wanted
            if m < 1 or size < 1:
                raise ShapeError(f"adaptive_{kind}_pool{n}d", found=f"{self.shape} to {sizes}",
                                 expected="sizes of at least 1")
            if size % m == 0:
                parts = out.unflatten(axis, (m, size // m))
                if places is not None:
                    best = parts.argmax(axis + 1, keepdim=True)
                    places = places.unflatten(axis, (m, size // m)).gather(
                        axis + 1, best).squeeze(axis + 1)
                out = parts.mean(axis + 1) if kind == "avg" else parts._top(axis + 1)
                continue
            at = infer.iota(size)
            rows = infer.iota(m)
            spread = (m, size)
            i_ = infer.expand(infer.reshape(rows, (m, 1)), spread)
            j = infer.expand(at, spread)
            inside = self._inside(i_, j, m, size)
            order = [*(a for a in range(len(out.shape)) if a != axis), axis]
            moved = out.permute(order)
            wide = moved.unsqueeze(-2)
            mask = self._wrap(inside)
            if kind == "max":
                choices = mask.where(wide, out.dtype.min)
                chosen = choices._top(len(wide.shape) - 1)
                if places is not None:
                    best = choices.argmax(-1)
                    places = places.permute(order).gather(-1, best).movedim(-1, axis)
            else:
                count = mask.astype(out.dtype).sum(-1)
                chosen = mask.where(wide, 0).sum(-1).div(count)
            out = chosen.movedim(-1, axis)
        out = out.astype(self.dtype)
        return out if places is None else ValuesIndices(out, places)

    def _top(self, axis: int) -> Self:
        """Return the largest elements along an axis; the gradient goes to one of them."""
        return self._wrap(infer.reduce(self._read(), "max", (axis,), single=True))

    def _inside(self, i: Node, j: Node, m: int, n: int) -> Node:
        def number(value: int) -> Node:
            return infer.full(i.shape, value, dt.int64)

        scaled = infer.elementwise(Op.MUL, i, number(n))
        start = infer.elementwise(Op.FLOORDIV, scaled, number(m))
        after = infer.elementwise(Op.ADD, scaled, number(n + m - 1))
        stop = infer.elementwise(Op.FLOORDIV, after, number(m))
        return infer.elementwise(Op.AND, infer.elementwise(Op.LE, start, j),
                                 infer.elementwise(Op.LT, j, stop))  # fmt: skip

    def adaptive_avg_pool1d(self, output_size: Any) -> Self:
        """Return the means of windows that cut the last axis into `output_size` parts."""
        return cast(Self, self._adaptive(1, output_size, "avg"))

    def adaptive_avg_pool2d(self, output_size: Any) -> Self:
        """Return the means of windows that cut the last two axes into parts."""
        return cast(Self, self._adaptive(2, output_size, "avg"))

    def adaptive_avg_pool3d(self, output_size: Any) -> Self:
        """Return the means of windows that cut the last three axes into parts."""
        return cast(Self, self._adaptive(3, output_size, "avg"))

    def adaptive_max_pool1d(self, output_size: Any, return_indices: bool = False) -> Any:
        """Return the largest elements of windows that cut the last axis into parts."""
        return self._adaptive(1, output_size, "max", return_indices)

    def adaptive_max_pool2d(self, output_size: Any, return_indices: bool = False) -> Any:
        """Return the largest elements of windows that cut the last two axes into parts."""
        return self._adaptive(2, output_size, "max", return_indices)

    def adaptive_max_pool3d(self, output_size: Any, return_indices: bool = False) -> Any:
        """Return the largest elements of windows that cut the last three axes into parts."""
        return self._adaptive(3, output_size, "max", return_indices)

    def interpolate_nearest(self, scale: int) -> Self:
        """Return the last two axes repeated `scale` times (nearest-neighbour upsampling)."""
        return self.repeat_interleave(scale, -1).repeat_interleave(scale, -2)


documented(Convolution, CONVOLUTION)


def _borders(padding: Pair | str, kernel: tuple[int, ...], stride: tuple[int, ...],
             dilation: tuple[int, ...], name: str) -> list[tuple[int, int]]:  # fmt: skip
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ShapeError(name, found=f"padding='same' with stride {stride}",
                             expected="a stride of 1")
        total = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
        return [(t // 2, t - t // 2) for t in total]
    if isinstance(padding, str):
        raise ShapeError(name, found=f"padding={padding!r}",
                         expected="numbers, 'same' or 'valid'")
    edge = as_pair(padding, len(kernel), name)
    if min(edge) < 0:
        raise ShapeError(name, found=f"padding {edge}", expected="at least 0")
    return [(p, p) for p in edge]
