"""Layers that pad, resize and rearrange: borders, axes, pixels, windows, channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.nn import functional as F
from weft.nn.module import Module
from weft.nn.sections import SECTIONS
from weft.nn.stateless import Stateless
from weft.tensors.api.tensor import Tensor
from weft.tensors.docs.documented import fill_docstrings
from weft.tensors.ops.contraction import as_pair

__all__ = ["ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d",
           "ConstantPad2d", "ConstantPad3d", "Flatten", "Fold", "PixelShuffle", "PixelUnshuffle",
           "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
           "ReplicationPad2d", "ReplicationPad3d", "Unflatten", "Unfold", "Upsample",
           "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d",
           "ZeroPad3d"]  # fmt: skip


class _Border(Module):
    """Pad axes behind the channels, by elements of the input or by a number."""

    _rank, _mode = 1, "constant"
    value = 0.0

    def __init_subclass__(cls, rank: int = 0, mode: str = "constant") -> None:
        super().__init_subclass__()
        if rank:
            cls._rank, cls._mode = rank, mode
            number = issubclass(cls, _Constant)
            cls.__doc__ = (cls.__doc__ or "").rstrip(".") + _SECTIONS.format(
                axes=rank + 2, more=_VALUE * number, name=cls.__name__,
                call="1, 2.0" if number else "1", before=", 3" * rank, after=", 5" * rank)

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = as_pair(padding, 2 * self._rank, type(self).__name__)

    def forward(self, input: Tensor) -> Tensor:
        """Return the padded input."""
        options = {"value": self.value} if self._mode == "constant" else {}
        return F.pad(input, self.padding, mode=self._mode, **options)

    def extra_repr(self) -> str:
        """Return the border."""
        return f"{self.padding}"


class _Constant(_Border):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """Return the border and its value."""
        return f"padding={self.padding}, value={self.value}"


# The docstring of a class behind its first words, and the entry of a second parameter.
_SECTIONS = """: input and output of {axes} axes, or without the first.

    Parameters
    ----------
    padding : int or sequence of int
        What is added before and behind each axis, the last axis first; negative amounts crop.{more}

    Raises
    ------
    ShapeError
        At a call, if the border does not fit.

    Examples
    --------
    >>> weft.nn.{name}({call})(weft.ones(1, 1{before})).shape
    (1, 1{after})
    """
_VALUE = """
    value : number
        That of the border."""


class ZeroPad1d(_Border, rank=1):
    """A border of zeros."""


class ZeroPad2d(_Border, rank=2):
    """A border of zeros."""


class ZeroPad3d(_Border, rank=3):
    """A border of zeros."""


class ConstantPad1d(_Constant, rank=1):
    """A border of a number."""


class ConstantPad2d(_Constant, rank=2):
    """A border of a number."""


class ConstantPad3d(_Constant, rank=3):
    """A border of a number."""


class ReflectionPad1d(_Border, rank=1, mode="reflect"):
    """A border that mirrors elements."""


class ReflectionPad2d(_Border, rank=2, mode="reflect"):
    """A border that mirrors elements."""


class ReflectionPad3d(_Border, rank=3, mode="reflect"):
    """A border that mirrors elements."""


class ReplicationPad1d(_Border, rank=1, mode="replicate"):
    """A border of the elements of the edge."""


class ReplicationPad2d(_Border, rank=2, mode="replicate"):
    """A border of the elements of the edge."""


class ReplicationPad3d(_Border, rank=3, mode="replicate"):
    """A border of the elements of the edge."""


class CircularPad1d(_Border, rank=1, mode="circular"):
    """A border of the elements of the other end."""


class CircularPad2d(_Border, rank=2, mode="circular"):
    """A border of the elements of the other end."""


class CircularPad3d(_Border, rank=3, mode="circular"):
    """A border of the elements of the other end."""


class Unfold(Stateless, function=F.unfold):
    """The windows of images as columns: input ``[N, C, H, W]``, output ``[N, C * taps, windows]``.

    Parameters
    ----------
    kernel_size, dilation, padding, stride : int or pair of int
        As for `weft.nn.functional.unfold`.

    {Raises: windows}

    Examples
    --------
    >>> weft.nn.Unfold(2)(weft.ones(1, 2, 3, 3)).shape
    (1, 8, 4)
    """

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
                 ) -> None:  # fmt: skip
        super().__init__(kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)


class Fold(Stateless, function=F.fold):
    """Columns of windows added up: input ``[N, C * taps, windows]``, output ``[N, C, H, W]``.

    Parameters
    ----------
    output_size, kernel_size, dilation, padding, stride : int or pair of int
        As for `weft.nn.functional.fold`.

    Raises
    ------
    ShapeError
        At a call, if sizes do not belong to each other.

    Examples
    --------
    >>> weft.nn.Fold(3, 2)(weft.ones(1, 8, 4)).shape
    (1, 2, 3, 3)
    """

    def __init__(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
                 stride: Any = 1) -> None:  # fmt: skip
        super().__init__(output_size=output_size, kernel_size=kernel_size, dilation=dilation,
                         padding=padding, stride=stride)


class PixelShuffle(Stateless, function=F.pixel_shuffle):
    """Channels as pixels: input ``[..., C * r * r, H, W]``, output ``[..., C, H * r, W * r]``.

    Parameters
    ----------
    upscale_factor : int
        The factor r.

    Raises
    ------
    ShapeError
        At a call, if the channels are no multiple of r * r.

    Examples
    --------
    >>> weft.nn.PixelShuffle(2)(weft.ones(1, 4, 2, 2)).shape
    (1, 1, 4, 4)
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__(upscale_factor=upscale_factor)


class PixelUnshuffle(Stateless, function=F.pixel_unshuffle):
    """Pixels as channels: input ``[..., C, H * r, W * r]``, output ``[..., C * r * r, H, W]``.

    Parameters
    ----------
    downscale_factor : int
        The factor r.

    Raises
    ------
    ShapeError
        At a call, if height or width are no multiple of r.

    Examples
    --------
    >>> weft.nn.PixelUnshuffle(2)(weft.ones(1, 1, 4, 4)).shape
    (1, 4, 2, 2)
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__(downscale_factor=downscale_factor)


class ChannelShuffle(Stateless, function=F.channel_shuffle):
    """Channels of groups in turn: input and output ``[N, C, ...]``.

    Parameters
    ----------
    groups : int
        Divides C.

    Raises
    ------
    ShapeError
        At a call, if the channels are no multiple of the groups.

    Examples
    --------
    >>> weft.nn.ChannelShuffle(2)(weft.ones(1, 4, 2, 2)).shape
    (1, 4, 2, 2)
    """

    def __init__(self, groups: int) -> None:
        super().__init__(groups=groups)


class Flatten(Module):
    """Merge axes into one.

    Parameters
    ----------
    start_dim, end_dim : int
        The first and the last axis that are merged.

    {Raises: axis}

    Examples
    --------
    >>> weft.nn.Flatten()(weft.ones(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with axes merged."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split an axis into several.

    Parameters
    ----------
    {dim}
    unflattened_size : sequence of int
        Sizes whose product is that of the axis; one may be -1.

    Raises
    ------
    ShapeError
        At a call, if the sizes do not fit.

    Examples
    --------
    >>> weft.nn.Unflatten(1, (3, 4))(weft.ones(2, 12)).shape
    (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.sizes = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with the axis split."""
        return input.unflatten(self.dim, self.sizes)

    def extra_repr(self) -> str:
        """Return the axis and the sizes."""
        return f"dim={self.dim}, unflattened_size={self.sizes}"


class Upsample(Stateless, function=F.interpolate):
    """Images of another size: input ``[N, C, ...]``, output of the same axes.

    Parameters
    ----------
    size : int or sequence of int, optional
        Sizes of the result, or
    scale_factor : float or sequence of float, optional
        factors of them.
    mode : {"nearest", "linear", "bilinear", "trilinear", "bicubic", "area", "nearest-exact"}
        As of `weft.nn.functional.interpolate`.
    align_corners : bool, optional
        Whether the corners' centres meet.

    Raises
    ------
    ShapeError
        At a call, if the mode is another, or neither sizes nor factors are given.

    Examples
    --------
    >>> weft.nn.Upsample(scale_factor=2)(weft.ones(1, 1, 2, 3)).shape
    (1, 1, 4, 6)
    """

    def __init__(self, size: int | Sequence[int] | None = None,
                 scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
                 align_corners: bool | None = None) -> None:  # fmt: skip
        super().__init__(size=size, scale_factor=scale_factor, mode=mode,
                         align_corners=align_corners)

    def extra_repr(self) -> str:
        """Return the size or the factor, and the mode."""
        value = self.scale_factor
        if value is None:
            return f"size={self.size}, mode={self.mode!r}"
        shown = float(value) if isinstance(value, int) else value
        return f"scale_factor={shown}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Pictures of another size, of the nearest elements: input and output ``[N, C, H, W]``.

    Parameters
    ----------
    size : int or pair of int, optional
        Sizes of the result, or
    scale_factor : float or pair of float, optional
        factors of them.

    Raises
    ------
    ShapeError
        At a call, if neither sizes nor factors are given.

    Examples
    --------
    >>> weft.nn.UpsamplingNearest2d(scale_factor=2)(weft.ones(1, 1, 2, 3)).shape
    (1, 1, 4, 6)
    """

    def __init__(self, size: int | Sequence[int] | None = None,
                 scale_factor: float | Sequence[float] | None = None) -> None:  # fmt: skip
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Pictures of another size, interpolated between corners that meet: ``[N, C, H, W]``.

    Parameters
    ----------
    size : int or pair of int, optional
        Sizes of the result, or
    scale_factor : float or pair of float, optional
        factors of them.

    Raises
    ------
    ShapeError
        At a call, if neither sizes nor factors are given.

    Examples
    --------
    >>> weft.nn.UpsamplingBilinear2d(scale_factor=2)(weft.ones(1, 1, 2, 3)).shape
    (1, 1, 4, 6)
    """

    def __init__(self, size: int | Sequence[int] | None = None,
                 scale_factor: float | Sequence[float] | None = None) -> None:  # fmt: skip
        super().__init__(size, scale_factor, "bilinear", True)


fill_docstrings(globals(), SECTIONS)
