"""Pooling layers: maxima and means of windows, or of parts of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.nn import functional as F
from weft.nn.sections import SECTIONS
from weft.nn.stateless import Stateless
from weft.tensors.docs.documented import fill_docstrings
from weft.tensors.ops.contraction import as_pair

__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
           "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
           "MaxPool1d", "MaxPool2d", "MaxPool3d"]  # fmt: skip

Pair = int | Sequence[int]


class _Pool(Stateless):
    _rank = 2

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _MaxPool(_Pool):
    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                 dilation: Pair = 1, return_indices: bool = False, ceil_mode: bool = False
                 ) -> None:  # fmt: skip
        super().__init__(
            kernel_size=kernel_size, stride=kernel_size if stride is None else stride,
            padding=padding, dilation=dilation, return_indices=return_indices, ceil_mode=ceil_mode)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{super().extra_repr()}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class _AvgPool(_Pool):
    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: int | None = None) -> None:  # fmt: skip
        super().__init__(
            kernel_size=kernel_size, stride=kernel_size if stride is None else stride,
            padding=padding, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
            divisor_override=divisor_override)


class MaxPool1d(_MaxPool, function=F.max_pool1d):
    """The largest elements of windows: input ``[..., L]``, output ``[..., L']``.

    {Parameters: kernel_size padding:maximum}
    {Raises: windows}

    Examples
    --------
    >>> weft.nn.MaxPool1d(2)(weft.tensor([[1, 3, 2, 4]])).tolist()
    [[3, 4]]
    """


class MaxPool2d(_MaxPool, function=F.max_pool2d):
    """The largest elements of windows: input ``[..., H, W]``, output ``[..., H', W']``.

    {Parameters: kernel_size padding:maximum}
    {Raises: windows}

    Examples
    --------
    >>> weft.nn.MaxPool2d(2)(weft.arange(16).reshape(1, 4, 4)).tolist()
    [[[5, 7], [13, 15]]]
    """


class MaxPool3d(_MaxPool, function=F.max_pool3d):
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

    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True) -> None:  # fmt: skip
        kernel, step, border = (as_pair(n, 1, "AvgPool1d") for n in (
            kernel_size, kernel_size if stride is None else stride, padding))
        super().__init__(kernel_size=kernel, stride=step, padding=border, ceil_mode=ceil_mode,
                         count_include_pad=count_include_pad)


class AvgPool2d(_AvgPool, function=F.avg_pool2d):
    """The means of windows: input ``[..., H, W]``, output ``[..., H', W']``.

    {Parameters: kernel_size padding:mean divisor_override}
    {Raises: windows}

    Examples
    --------
    >>> weft.nn.AvgPool2d(2)(weft.arange(16.0).reshape(1, 4, 4)).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """


class AvgPool3d(_AvgPool, function=F.avg_pool3d):
    """The means of windows: input ``[..., D, H, W]``, output ``[..., D', H', W']``.

    {Parameters: kernel_size padding:mean divisor_override}
    {Raises: windows}

    Examples
    --------
    >>> weft.nn.AvgPool3d(2)(weft.ones(1, 4, 4, 4)).shape
    (1, 2, 2, 2)
    """


class _Adaptive(Stateless):
    def __init__(self, output_size: Any) -> None:
        super().__init__(output_size=output_size)


class _AdaptiveMax(Stateless):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size, return_indices=return_indices)

    def extra_repr(self) -> str:
        """Return the size."""
        return f"output_size={self.output_size}"


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


class AdaptiveAvgPool3d(_Adaptive, function=F.adaptive_avg_pool3d):
    """The means of parts of the last three axes: ``[..., D, H, W]`` to ``[..., D', H', W']``.

    {Parameters: output_size:three}
    {Raises: parts}

    Examples
    --------
    >>> weft.nn.AdaptiveAvgPool3d(1)(weft.ones(1, 8, 4, 4, 4)).shape
    (1, 8, 1, 1, 1)
    """


class AdaptiveMaxPool1d(_AdaptiveMax, function=F.adaptive_max_pool1d):
    """The largest elements of parts of the last axis: ``[..., L]`` to ``[..., output_size]``.

    Parameters
    ----------
    output_size : int
        The number of parts.
    {return_indices}

    {Raises: parts}

    Examples
    --------
    >>> weft.nn.AdaptiveMaxPool1d(2)(weft.tensor([[1.0, 3.0, 2.0, 4.0]])).tolist()
    [[3.0, 4.0]]
    """


class AdaptiveMaxPool3d(_AdaptiveMax, function=F.adaptive_max_pool3d):
    """The largest elements of parts of the last three axes: to ``[..., D', H', W']``.

    {Parameters: output_size:three return_indices}
    {Raises: parts}

    Examples
    --------
    >>> weft.nn.AdaptiveMaxPool3d(1)(weft.ones(1, 8, 4, 4, 4)).shape
    (1, 8, 1, 1, 1)
    """


class AdaptiveMaxPool2d(_AdaptiveMax, function=F.adaptive_max_pool2d):
    """The largest elements of parts of the last two axes: ``[..., H, W]`` to ``[..., H', W']``.

    {Parameters: output_size return_indices}
    {Raises: parts}

    Examples
    --------
    >>> weft.nn.AdaptiveMaxPool2d((1, 3))(weft.arange(6.0).reshape(1, 2, 3)).tolist()
    [[[3.0, 4.0, 5.0]]]
    """


fill_docstrings(globals(), SECTIONS)
