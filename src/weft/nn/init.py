"""Initialise parameters in place, without recording gradients."""

from __future__ import annotations

import math

from weft.errors import ShapeError
from weft.nn.sections import SECTIONS
from weft.tensors.api import random
from weft.tensors.api.autograd import no_grad
from weft.tensors.api.ranges import eye
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import choice
from weft.tensors.docs.documented import fill_docstrings

__all__ = [
    "calculate_gain", "constant_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_",
    "ones_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip


def _fans(tensor: Tensor) -> tuple[int, int]:
    """Return the number of inputs and outputs of one unit."""
    if len(tensor.shape) < 2:
        raise ShapeError("init", found=f"{tensor.shape}", expected="at least two axes")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    choice(mode, ("fan_in", "fan_out"), "init", "mode")
    return max(_fans(tensor)[0 if mode == "fan_in" else 1], 1)  # 0 where there is nothing to fill


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which weights before a nonlinearity are scaled.

    Parameters
    ----------
    nonlinearity : str
        Such as ``"linear"``, ``"tanh"``, ``"relu"``, ``"leaky_relu"``.
    param : float, optional
        The negative slope of ``"leaky_relu"``; 0.01 by default.

    Returns
    -------
    float
        What keeps the variance of the layers' outputs.

    Raises
    ------
    RangeError
        If the nonlinearity is unknown.

    Examples
    --------
    >>> weft.nn.init.calculate_gain("sigmoid")
    1.0
    """
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75, "linear": 1.0, "sigmoid": 1.0,
             "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0,
             "conv_transpose2d": 1.0, "conv_transpose3d": 1.0}  # fmt: skip
    choice(nonlinearity, (*gains, "leaky_relu"), "calculate_gain", "nonlinearity")
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    return gains[nonlinearity]


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fill a tensor with uniform random numbers in [a, b).

    {Parameters: tensor bounds}
    {Returns: same_tensor}

    Examples
    --------
    >>> weft.nn.init.uniform_(weft.empty(2, 3)).shape
    (2, 3)
    """
    return tensor.copy_(random.rand(*tensor.shape).mul(b - a).add(a))


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill a tensor with normal random numbers.

    Parameters
    ----------
    {tensor}
    mean, std : float
        The mean and the standard deviation.

    {Returns: same_tensor}

    Examples
    --------
    >>> weft.nn.init.normal_(weft.empty(2), mean=3.0, std=0.0).tolist()
    [3.0, 3.0]
    """
    return tensor.copy_(random.randn(*tensor.shape).mul(std).add(mean))


@no_grad()
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0,
                  b: float = 2.0) -> Tensor:  # fmt: skip
    """Fill a tensor with normal numbers limited to [a, b], by the inverse of the distribution.

    The inverse error function is Winitzki's approximation (2008), which is within 0.4 %.

    Parameters
    ----------
    {tensor}
    mean, std : float
        The mean and the standard deviation before the limits.
    {bounds}

    {Returns: same_tensor}

    Examples
    --------
    >>> bool(weft.nn.init.trunc_normal_(weft.empty(100)).abs().le(2.0).all())
    True
    """

    def cdf(x: float) -> float:
        return (1 + math.erf((x - mean) / std / math.sqrt(2))) / 2

    low, high = 2 * cdf(a) - 1, 2 * cdf(b) - 1
    p = random.rand(*tensor.shape).mul(high - low).add(low).clamp(-1 + 1e-7, 1 - 1e-7)
    log = p.mul(p).neg().log1p()
    k = 0.147
    half = log.mul(0.5).add(2 / (math.pi * k))
    root = half.mul(half).sub(log.div(k)).sqrt().sub(half).sqrt().mul(p.sign())
    return tensor.copy_(root.mul(std * math.sqrt(2)).add(mean).clamp(a, b))


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill a tensor with one value.

    Parameters
    ----------
    {tensor}
    val : float
        The value.

    {Returns: same_tensor}

    Examples
    --------
    >>> weft.nn.init.constant_(weft.empty(2), 7.0).tolist()
    [7.0, 7.0]
    """
    return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill a tensor with zeros.

    {Parameters: tensor}
    {Returns: same_tensor}

    Examples
    --------
    >>> weft.nn.init.zeros_(weft.ones(2)).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill a tensor with ones.

    {Parameters: tensor}
    {Returns: same_tensor}

    Examples
    --------
    >>> weft.nn.init.ones_(weft.empty(2)).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1.0)


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with ones on the diagonal and zeros elsewhere.

    {Parameters: tensor}
    {Returns: same_tensor}

    Examples
    --------
    >>> weft.nn.init.eye_(weft.empty(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return tensor.copy_(eye(*tensor.shape))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill a weight with uniform numbers that keep the variance both ways.

    The bound is ``gain * sqrt(6 / (fan_in + fan_out))`` (Glorot and Bengio, 2010).

    {Parameters: tensor:weights gain}
    {Returns: same_tensor}
    {Raises: two_axes}

    Examples
    --------
    >>> weft.nn.init.xavier_uniform_(weft.empty(2, 3)).shape
    (2, 3)
    """
    bound = gain * math.sqrt(6 / max(sum(_fans(tensor)), 1))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill a weight with normal numbers that keep the variance both ways.

    The standard deviation is ``gain * sqrt(2 / (fan_in + fan_out))`` (Glorot and Bengio, 2010).

    {Parameters: tensor:weights gain}
    {Returns: same_tensor}
    {Raises: two_axes}

    Examples
    --------
    >>> weft.nn.init.xavier_normal_(weft.empty(2, 3)).shape
    (2, 3)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / max(sum(_fans(tensor)), 1)))


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in",
                     nonlinearity: str = "leaky_relu") -> Tensor:  # fmt: skip
    """Fill a weight with uniform numbers that keep the variance one way (He et al., 2015).

    The bound is ``gain * sqrt(3 / fan)``.

    Parameters
    ----------
    {tensor:weights}
    a : float
        The negative slope of ``"leaky_relu"``.
    mode : {"fan_in", "fan_out"}
        Whether the variance is kept forwards or backwards.
    nonlinearity : str
        Gives the gain, as of `calculate_gain`.

    {Returns: same_tensor}
    {Raises: initial}

    Examples
    --------
    >>> weft.nn.init.kaiming_uniform_(weft.empty(2, 3)).shape
    (2, 3)
    """
    fan = _fan(tensor, mode)
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3 / fan)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in",
                    nonlinearity: str = "leaky_relu") -> Tensor:  # fmt: skip
    """Fill a weight with normal numbers that keep the variance one way (He et al., 2015).

    The standard deviation is ``gain / sqrt(fan)``.

    Parameters
    ----------
    {tensor:weights}
    a, mode, nonlinearity
        As for `kaiming_uniform_`.

    {Returns: same_tensor}
    {Raises: initial}

    Examples
    --------
    >>> weft.nn.init.kaiming_normal_(weft.empty(2, 3)).shape
    (2, 3)
    """
    fan = _fan(tensor, mode)
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(fan))


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(__all__)


fill_docstrings(globals(), SECTIONS)
