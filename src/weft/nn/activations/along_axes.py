"""Activation layers along an axis: softmaxes and gates."""

from __future__ import annotations

from weft.errors import ShapeError
from weft.nn import functional as F
from weft.nn.sections import SECTIONS
from weft.nn.stateless import Stateless
from weft.tensors.api.tensor import Tensor
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["GLU", "LogSoftmax", "Softmax", "Softmax2d", "Softmin"]


class Softmax(Stateless, function=F.softmax):
    """``exp(x) / sum(exp(x))`` along an axis.

    Input and output have one shape.

    Parameters
    ----------
    dim : int, optional
        The axis whose elements sum to 1; by default the first one of arrays of 1 or 3 axes,
        and else the second one, as in PyTorch.

    {Raises: axis}

    Examples
    --------
    >>> weft.nn.Softmax()(weft.tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class LogSoftmax(Stateless, function=F.log_softmax):
    """The logarithm of the softmax along an axis.

    Input and output have one shape.

    Parameters
    ----------
    dim : int, optional
        The axis over which the exponentials sum to 1; by default the first one of arrays of 1
        or 3 axes, and else the second one, as in PyTorch.

    {Raises: axis}

    Examples
    --------
    >>> weft.nn.LogSoftmax()(weft.tensor([0.0, 1000.0])).tolist()
    [-1000.0, 0.0]
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class Softmin(Stateless, function=F.softmin):
    """``exp(-x) / sum(exp(-x))`` along an axis.

    Input and output have one shape.

    Parameters
    ----------
    dim : int, optional
        The axis whose elements sum to 1, as of `Softmax`.

    {Raises: axis}

    Examples
    --------
    >>> weft.nn.Softmin(0)(weft.tensor([0.0, 1000.0])).tolist()
    [1.0, 0.0]
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class Softmax2d(Stateless):
    """The softmax over the channels of pictures: input and output ``[..., C, H, W]``.

    {Raises: fit}

    Examples
    --------
    >>> weft.nn.Softmax2d()(weft.zeros(2, 1, 1)).ravel().tolist()
    [0.5, 0.5]
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmax over axis -3."""
        if len(input.shape) not in (3, 4):
            raise ShapeError("Softmax2d", found=f"shape {input.shape}", expected="3 or 4 axes")
        return input.softmax(-3)


class GLU(Stateless, function=F.glu):
    """Gate one half of an axis by the other: output of half the size.

    {Parameters: dim}
    {Raises: fit}

    Examples
    --------
    >>> weft.nn.GLU()(weft.tensor([2.0, 0.0])).tolist()
    [1.0]
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


fill_docstrings(globals(), SECTIONS)
