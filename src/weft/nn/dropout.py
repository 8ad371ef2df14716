"""Dropout layers, and the identity layer."""

from __future__ import annotations

from typing import Any

from weft.errors import RangeError
from weft.nn import functional as F
from weft.nn.module import Module
from weft.nn.sections import SECTIONS
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import number
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Identity"]


class Identity(Module):
    """Return the input.

    Parameters
    ----------
    *args, **kwargs
        Ignored.

    Examples
    --------
    >>> weft.nn.Identity()(3)
    3
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """Return the input."""
        return input


class Dropout(Module):
    """Set elements to 0 with probability `p` in training, and divide the rest by 1 - p.

    Input and output have one shape.

    {Parameters: p inplace}
    {Raises: probability}

    Examples
    --------
    >>> weft.nn.Dropout(0.5).eval()(weft.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= number(p, type(self).__name__) <= 1:
            raise RangeError(type(self).__name__, found=f"p={p}", expected="0 to 1")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, thinned in training."""
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        """Return the probability."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """Set channels to 0 with probability `p` in training, and divide the rest by 1 - p.

    Input and output ``[N, C, L]``.

    Parameters
    ----------
    p, inplace
        As for `Dropout`.

    Raises
    ------
    RangeError
        At a call, if `p` is not 0 to 1.

    Examples
    --------
    >>> weft.nn.Dropout1d(0.5).eval()(weft.ones(1, 2, 2)).shape
    (1, 2, 2)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, thinned in training."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """Set channels to 0 with probability `p` in training, and divide the rest by 1 - p.

    Input and output ``[N, C, ...]``.

    Parameters
    ----------
    p, inplace
        As for `Dropout`.

    Raises
    ------
    RangeError
        At a call, if `p` is not 0 to 1.

    Examples
    --------
    >>> weft.nn.Dropout2d(0.5).eval()(weft.ones(1, 2, 2, 2)).shape
    (1, 2, 2, 2)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, thinned in training."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(Dropout):
    """Set channels to 0 with probability `p` in training, and divide the rest by 1 - p.

    Input and output ``[N, C, D, H, W]``.

    Parameters
    ----------
    p, inplace
        As for `Dropout`.

    Raises
    ------
    RangeError
        At a call, if `p` is not 0 to 1.

    Examples
    --------
    >>> weft.nn.Dropout3d(0.5).eval()(weft.ones(1, 2, 2, 2, 2)).shape
    (1, 2, 2, 2, 2)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, thinned in training."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


fill_docstrings(globals(), SECTIONS)
