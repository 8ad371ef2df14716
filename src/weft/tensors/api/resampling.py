"""Resampling of images: interpolation, pixel shuffle, unfold and fold of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from weft.errors import RangeError, ShapeError
from weft.ir import infer
from weft.ir.dtype import compute_dtype, float32, float64, int64
from weft.tensors.api.creation import zeros
from weft.tensors.api.ranges import arange
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import check_rank, check_tensor, count_of, number
from weft.tensors.ops.contraction import as_pair

__all__ = ["channel_shuffle", "fold", "interpolate", "pixel_shuffle", "pixel_unshuffle", "unfold"]

_LINEAR: Final = {"linear": 1, "bilinear": 2, "trilinear": 3}  # by their number of axes
_MODES: Final = ("nearest", "nearest-exact", "area", "bicubic", *_LINEAR)
_SHARPNESS: Final = -0.75  # the parameter of cubic convolution (Keys, 1981), as PyTorch has it


def interpolate(x: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None,
                recompute_scale_factor: bool | None = None) -> Tensor:  # fmt: skip
    """Return images of another size.

    Parameters
    ----------
    x : Tensor
        Shape ``[N, C, ...]`` with one to three axes of pixels, or ``[H, W]``.
    size : int or sequence of int, optional
        The pixels of the result along each axis, or
    scale_factor : float or sequence of float, optional
        factors of them; the product is rounded down.
    mode : {"nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"}
        Repeated pixels, weighted means of the nearest two or four along each axis, or the means of
        what lies below each new pixel.
    align_corners : bool, optional
        Whether the corners' centres meet, of modes that weight pixels; else their outer edges do.
    recompute_scale_factor : bool, optional
        Whether positions follow from the sizes, which are whole, instead of the factors.

    Returns
    -------
    Tensor
        With the axes of `x` and its dtype.

    Raises
    ------
    ShapeError
        If sizes and factors are both given or both not, there are not as many as axes, or the mode
        is unknown or of another number of axes.
    RangeError
        If a size is below 1.

    Examples
    --------
    >>> weft.nn.functional.interpolate(weft.tensor([[1, 2]]), scale_factor=2).tolist()
    [[1, 1, 2, 2], [1, 1, 2, 2]]
    >>> image = weft.tensor([[[1.0, 3.0]]])
    >>> weft.nn.functional.interpolate(image, size=3, mode="linear").tolist()
    [[[1.0, 2.0, 3.0]]]
    """
    check_rank(check_tensor(x, "interpolate"), 2, "interpolate")
    if mode not in _MODES:
        raise ShapeError("interpolate", found=f"mode={mode!r}", expected=" or ".join(_MODES))
    count = 2 if len(x.shape) == 2 else len(x.shape) - 2
    if not 1 <= count <= 3 or _LINEAR.get(mode, 2 if mode == "bicubic" else count) != count:
        raise ShapeError("interpolate", found=f"mode={mode!r} for a shape of {x.shape}",
                         expected="N C and as many axes as the mode has")
    if (size is None) == (scale_factor is None):
        raise ShapeError("interpolate", found=f"size={size}, scale_factor={scale_factor}",
                         expected="one of the two")
    if align_corners is not None and not mode.endswith(("linear", "cubic")):
        raise ShapeError("interpolate", found=f"align_corners={align_corners} for mode={mode!r}",
                         expected="an interpolating mode")
    factors = None if scale_factor is None else _each(scale_factor, count)
    axes = range(len(x.shape) - count, len(x.shape))
    if factors is None:
        sizes = [count_of(n, "interpolate", 1) for n in _each(size, count)]
    elif mode == "nearest" and all(isinstance(f, int) and f > 0 for f in factors):
        for axis, f in zip(axes, factors, strict=True):
            x = x.repeat_interleave(f, axis)
        return x
    else:
        sizes = [count_of(math.floor(x.shape[a] * number(f, "interpolate")), "interpolate", 1)
                 for a, f in zip(axes, factors, strict=True)]  # fmt: skip
        factors = None if recompute_scale_factor else factors
    if mode == "area":
        return _area(x, axes, sizes)
    out, kind = x, x.dtype
    if not mode.startswith("nearest"):
        out = x.to(compute_dtype(kind) if kind.is_float else float32)
    for i, (axis, n) in enumerate(zip(axes, sizes, strict=True)):
        step = x.shape[axis] / n if factors is None else 1 / factors[i]
        out = _along(out, axis, n, step, mode, bool(align_corners))
    return out.to(kind) if kind.is_float else out


def _each(value: Any, count: int) -> list[Any]:
    """Return one number for each axis.

    Raises
    ------
    ShapeError
        If there are more or fewer.
    """
    found = list(value) if isinstance(value, Sequence) else [value] * count
    if len(found) != count:
        raise ShapeError("interpolate", found=f"{len(found)} numbers for {count} axes",
                         expected="one, or one for each axis")
    return found


def _area(x: Tensor, axes: range, sizes: list[int]) -> Tensor:
    """Return the means of what lies below each new pixel."""
    for axis, n in zip(axes, sizes, strict=True):
        x = x.movedim(axis, -1).adaptive_avg_pool1d(n).movedim(-1, axis)
    return x


def _along(x: Tensor, axis: int, n: int, step: float, mode: str, align: bool) -> Tensor:
    """Return `n` pixels along an axis, of which each is `step` old ones wide."""
    last = x.shape[axis] - 1
    places = arange(n, dtype=float64 if x.dtype is float64 and mode[0] != "n" else float32)
    if mode.startswith("nearest"):
        shifted = places if mode == "nearest" else places.add(0.5)
        return x.index_select(axis, shifted.mul(step).floor().to(int64).clamp(0, last))
    if align:
        centres = places.mul(last / (n - 1) if n > 1 else 0.0)
    else:
        centres = places.add(0.5).mul(step).sub(0.5)
        centres = centres if mode == "bicubic" else centres.maximum(0.0)
    low = centres.floor()
    share = centres.sub(low).to(x.dtype).reshape([n if a == axis else 1 for a in range(x.ndim)])
    first = low.to(int64)
    if mode != "bicubic":
        a, b = (x.index_select(axis, first.add(i).clamp(0, last)) for i in (0, 1))
        return a.mul(share.neg().add(1)).add(b.mul(share))
    parts = [x.index_select(axis, first.add(i).clamp(0, last)).mul(weight)
             for i, weight in zip((-1, 0, 1, 2), _cubic(share), strict=True)]  # fmt: skip
    return parts[0].add(parts[1]).add(parts[2].add(parts[3]))


def _cubic(t: Tensor) -> list[Tensor]:
    """Return the weights of four neighbours at a share `t` behind the second."""
    a = _SHARPNESS

    def near(d: Tensor) -> Tensor:
        return d.mul(a + 2).sub(a + 3).mul(d).mul(d).add(1)

    def far(d: Tensor) -> Tensor:
        return d.mul(a).sub(5 * a).mul(d).add(8 * a).mul(d).sub(4 * a)

    rest = t.neg().add(1)
    return [far(t.add(1)), near(t), near(rest), far(rest.add(1))]


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """Return ``[..., C * r * r, H, W]`` as ``[..., C, H * r, W * r]``: channels become pixels.

    Parameters
    ----------
    x : Tensor
        With at least three axes.
    upscale_factor : int
        The factor r.

    Returns
    -------
    Tensor
        With as many elements.

    Raises
    ------
    ShapeError
        If the channels are no multiple of r * r, or there are fewer than three axes.

    Examples
    --------
    >>> weft.nn.functional.pixel_shuffle(weft.arange(4).reshape(4, 1, 1), 2).tolist()
    [[[0, 1], [2, 3]]]
    """
    check_rank(check_tensor(x, "pixel_shuffle"), 3, "pixel_shuffle")
    r = count_of(upscale_factor, "pixel_shuffle", 1)
    *lead, channels, height, width = x.shape
    if channels % (r * r):
        raise ShapeError("pixel_shuffle", found=f"{channels} channels",
                         expected=f"a multiple of {r * r}")
    k = len(lead)
    parts = x.reshape(*lead, channels // (r * r), r, r, height, width)
    parts = parts.permute(*range(k + 1), k + 3, k + 1, k + 4, k + 2)
    return parts.reshape(*lead, channels // (r * r), height * r, width * r)


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """Return ``[..., C, H * r, W * r]`` as ``[..., C * r * r, H, W]``: pixels become channels.

    Parameters
    ----------
    x : Tensor
        With at least three axes.
    downscale_factor : int
        The factor r.

    Returns
    -------
    Tensor
        With as many elements.

    Raises
    ------
    ShapeError
        If height or width are no multiple of r, or there are fewer than three axes.

    Examples
    --------
    >>> weft.nn.functional.pixel_unshuffle(weft.arange(4).reshape(1, 2, 2), 2).shape
    (4, 1, 1)
    """
    check_rank(check_tensor(x, "pixel_unshuffle"), 3, "pixel_unshuffle")
    r = count_of(downscale_factor, "pixel_unshuffle", 1)
    *lead, channels, height, width = x.shape
    if height % r or width % r:
        raise ShapeError("pixel_unshuffle", found=f"{height} by {width} pixels",
                         expected=f"multiples of {r}")
    k = len(lead)
    parts = x.reshape(*lead, channels, height // r, r, width // r, r)
    parts = parts.permute(*range(k + 1), k + 2, k + 4, k + 1, k + 3)
    return parts.reshape(*lead, channels * r * r, height // r, width // r)


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Return the channels of groups one after the other in turn (Zhang et al., 2018).

    Parameters
    ----------
    x : Tensor
        Shape ``[N, C, ...]``.
    groups : int
        Divides C.

    Returns
    -------
    Tensor
        Of the same shape.

    Raises
    ------
    ShapeError
        If the channels are no multiple of the groups, or there are fewer than two axes.

    Examples
    --------
    >>> weft.nn.functional.channel_shuffle(weft.arange(4).reshape(1, 4), 2).tolist()
    [[0, 2, 1, 3]]
    """
    check_rank(check_tensor(x, "channel_shuffle"), 2, "channel_shuffle")
    g = count_of(groups, "channel_shuffle", 1)
    if x.shape[1] % g:
        raise ShapeError("channel_shuffle", found=f"{x.shape[1]} channels",
                         expected=f"a multiple of {g}")
    parts = x.reshape(x.shape[0], g, x.shape[1] // g, *x.shape[2:])
    return parts.transpose(1, 2).reshape(x.shape)


def _spans(options: tuple[Any, ...], name: str) -> list[tuple[int, ...]]:
    """Return kernel, dilation, padding and stride as pairs."""
    found = [as_pair(value, 2, name) for value in options]
    if min(*found[0], *found[1], *found[3]) < 1 or min(found[2]) < 0:
        raise RangeError(name, found=f"{found}", expected="kernels, dilations and strides from 1, "
                         "paddings from 0")
    return found


def unfold(x: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
           ) -> Tensor:  # fmt: skip
    """Return the windows of images as columns.

    Parameters
    ----------
    x : Tensor
        Shape ``[N, C, H, W]``, or ``[C, H, W]``.
    kernel_size, dilation, padding, stride : int or pair of int
        Of the windows.

    Returns
    -------
    Tensor
        Shape ``[N, C * taps, windows]``.

    Raises
    ------
    ShapeError
        If there are other axes, or the images are smaller than a window.
    RangeError
        If a number is too small.

    Examples
    --------
    >>> weft.nn.functional.unfold(weft.ones(1, 2, 3, 3), 2).shape
    (1, 8, 4)
    """
    check_tensor(x, "unfold")
    if len(x.shape) == 3:
        return unfold(x.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    if len(x.shape) != 4:
        raise ShapeError("unfold", found=f"{x.shape}", expected="N C H W")
    kernel, holes, edge, steps = _spans((kernel_size, dilation, padding, stride), "unfold")
    wide = x.pad((edge[1], edge[1], edge[0], edge[0]))
    for i, axis in enumerate((2, 3)):
        wide = wide.unfold(axis, (kernel[i] - 1) * holes[i] + 1, steps[i])
    taps = wide[..., :: holes[0], :: holes[1]]  # N C windows windows taps taps
    columns = taps.permute(0, 1, 4, 5, 2, 3)
    return columns.reshape(x.shape[0], x.shape[1] * kernel[0] * kernel[1], -1)


def fold(x: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
         stride: Any = 1) -> Tensor:  # fmt: skip
    """Return images in which columns of windows are added up: the adjoint of `unfold`.

    Parameters
    ----------
    x : Tensor
        Shape ``[N, C * taps, windows]``, or without N.
    output_size : int or pair of int
        The pixels of the images.
    kernel_size, dilation, padding, stride : int or pair of int
        Of the windows.

    Returns
    -------
    Tensor
        Shape ``[N, C, H, W]``.

    Raises
    ------
    ShapeError
        If the sizes do not belong to each other.
    RangeError
        If a number is too small.

    Examples
    --------
    >>> weft.nn.functional.fold(weft.ones(1, 4, 4), 3, 2).tolist()
    [[[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]]
    """
    check_tensor(x, "fold")
    if len(x.shape) == 2:
        return fold(x.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    size = as_pair(output_size, 2, "fold")
    kernel, holes, edge, steps = _spans((kernel_size, dilation, padding, stride), "fold")
    wide = [n + 2 * p for n, p in zip(size, edge, strict=True)]
    counts = [(w - (k - 1) * d - 1) // s + 1
              for w, k, d, s in zip(wide, kernel, holes, steps, strict=True)]  # fmt: skip
    taps = kernel[0] * kernel[1]
    if len(x.shape) != 3 or x.shape[1] % taps or not infer.same_dim(
        x.shape[2], max(counts[0], 0) * max(counts[1], 0)
    ):
        raise ShapeError("fold", found=f"{x.shape}",
                         expected=f"N, a multiple of {taps}, and {counts[0]} * {counts[1]} windows")
    places = zeros(1, dtype=int64)
    for axis in (0, 1):
        tap = arange(kernel[axis]).mul(holes[axis])
        start = arange(counts[axis]).mul(steps[axis])
        along = tap.unsqueeze(1).add(start).mul(wide[1] if axis == 0 else 1)  # taps windows
        shape = (kernel[0], 1, counts[0], 1) if axis == 0 else (1, kernel[1], 1, counts[1])
        places = places.add(along.reshape(shape))
    n, channels = x.shape[0], x.shape[1] // taps
    index = places.reshape(-1)
    flat = x.reshape(n * channels, taps * counts[0] * counts[1])
    out = zeros(n * channels, wide[0] * wide[1], dtype=x.dtype).index_add(1, index, flat)
    out = out.reshape(n, channels, wide[0], wide[1])
    return out[:, :, edge[0] : wide[0] - edge[0], edge[1] : wide[1] - edge[1]]
