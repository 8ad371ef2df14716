"""Pooling layers: maxima and means of windows, or of parts of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.nn import functional as F
from weft.nn.activations import Stateless
from weft.nn.sections import SECTIONS
from weft.tensors.docs.documented import fill_docstrings

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d",
    "AvgPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d",
]  # fmt: skip

Pair = int | Sequence[int]


class _Pool(Stateless):
    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                 **options: Any) -> None:  # fmt: skip
        super().__init__(kernel_size=kernel_size, stride=stride, padding=padding, **options)
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    def extra_repr(self) -> str:
        """Return the sizes."""
        text = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        if "Max" in type(self).__name__:
            text += (f", dilation={self.options.get('dilation', 1)}"
                     f", ceil_mode={self.options.get('ceil_mode', False)}")
        return text


class MaxPool1d(_Pool, function=F.max_pool1d):
    """The largest elements of windows: input ``[..., L]``, output ``[..., L']``.

    {Parameters: kernel_size padding:maximum}
    {Raises: windows}

    Examples
    --------
    >>> weft.nn.MaxPool1d(2)(weft.tensor([[1, 3, 2, 4]])).tolist()
    [[3, 4]]
    """


class MaxPool2d(_Pool, function=F.max_pool2d):
    """The largest elements of windows: input ``[..., H, W]``, output ``[..., H', W']``.

    {Parameters: kernel_size padding:maximum}
    {Raises: windows}

    Examples
    --------
    >>> weft.nn.MaxPool2d(2)(weft.arange(16).reshape(1, 4, 4)).tolist()
    [[[5, 7], [13, 15]]]
    """


class MaxPool3d(_Pool, function=F.max_pool3d):
    """The largest elements of windows: input ``[..., D, H, W]``, output ``[..., D', H', W']``.

    {Parameters: kernel_size padding:maximum}
    {Raises: windows}

    Examples
    --------
    >>> weft.nn.MaxPool3d(2)(weft.ones(1, 4, 4, 4)).shape
    (1, 2, 2, 2)
    """


class AvgPool1d(_Pool, function=F.avg_pool1d):
    """The means of windows: input ``[..., L]``, output ``[..., L']``.

    {Parameters: kernel_size padding:mean}
    {Raises: windows}

    Examples
    --------
    >>> weft.nn.AvgPool1d(2)(weft.tensor([[1.0, 3.0, 2.0, 4.0]])).tolist()
    [[2.0, 3.0]]
    """


class AvgPool2d(_Pool, function=F.avg_pool2d):
    """The means of windows: input ``[..., H, W]``, output ``[..., H', W']``.

    {Parameters: kernel_size padding:mean}
    {Raises: windows}

    Examples
    --------
    >>> weft.nn.AvgPool2d(2)(weft.arange(16.0).reshape(1, 4, 4)).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """


class AvgPool3d(_Pool, function=F.avg_pool3d):
    """The means of windows: input ``[..., D, H, W]``, output ``[..., D', H', W']``.

    {Parameters: kernel_size padding:mean}
    {Raises: windows}

    Examples
    --------
    >>> weft.nn.AvgPool3d(2)(weft.ones(1, 4, 4, 4)).shape
    (1, 2, 2, 2)
    """


class _Adaptive(Stateless):
    def __init__(self, output_size: Any) -> None:
        super().__init__(output_size=output_size)


class AdaptiveAvgPool1d(_Adaptive, function=F.adaptive_avg_pool1d):
    """The means of parts of the last axis: input ``[..., L]``, output ``[..., output_size]``.

    Parameters
    ----------
    output_size : int
        The number of parts.

    {Raises: parts}

    Examples
    --------
    >>> weft.nn.AdaptiveAvgPool1d(2)(weft.tensor([[1.0, 3.0, 2.0, 4.0]])).tolist()
    [[2.0, 3.0]]
    """


class AdaptiveAvgPool2d(_Adaptive, function=F.adaptive_avg_pool2d):
    """The means of parts of the last two axes: input ``[..., H, W]``, output ``[..., H', W']``.

    {Parameters: output_size}
    {Raises: parts}

    Examples
    --------
    >>> weft.nn.AdaptiveAvgPool2d(1)(weft.ones(1, 8, 7, 7)).shape
    (1, 8, 1, 1)
    """


class AdaptiveMaxPool2d(_Adaptive, function=F.adaptive_max_pool2d):
    """The largest elements of parts of the last two axes: ``[..., H, W]`` to ``[..., H', W']``.

    {Parameters: output_size}
    {Raises: parts}

    Examples
    --------
    >>> weft.nn.AdaptiveMaxPool2d((1, 3))(weft.arange(6.0).reshape(1, 2, 3)).tolist()
    [[[3.0, 4.0, 5.0]]]
    """


fill_docstrings(globals(), SECTIONS)
