"""Filling parameters with their first values, in place and without history."""

from __future__ import annotations

import math

from weft.errors import ShapeError
from weft.frontend import random
from weft.frontend.autograd import no_grad
from weft.frontend.creation import eye
from weft.frontend.tensor import Tensor

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


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which a nonlinearity's weights are scaled."""
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    return gains.get(nonlinearity, 1.0)


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fill with uniform numbers in [a, b)."""
    return tensor.copy_(random.rand(*tensor.shape).mul(b - a).add(a))


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill with normal numbers."""
    return tensor.copy_(random.randn(*tensor.shape).mul(std).add(mean))


@no_grad()
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0,
                  b: float = 2.0) -> Tensor:  # fmt: skip
    """Fill with normal numbers limited to [a, b], by the inverse of the distribution.

    The inverse error function is Winitzki's approximation (2008), which is within 0.4 %.
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
    """Fill with one value."""
    return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1.0)


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity."""
    return tensor.copy_(eye(*tensor.shape))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with uniform numbers that keep the variance both ways (Glorot and Bengio, 2010)."""
    bound = gain * math.sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with normal numbers that keep the variance both ways (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans(tensor))))


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in",
                     nonlinearity: str = "leaky_relu") -> Tensor:  # fmt: skip
    """Fill with uniform numbers that keep the variance (He et al., 2015)."""
    fan = _fans(tensor)[0 if mode == "fan_in" else 1]
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3 / fan)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in",
                    nonlinearity: str = "leaky_relu") -> Tensor:  # fmt: skip
    """Fill with normal numbers that keep the variance (He et al., 2015)."""
    fan = _fans(tensor)[0 if mode == "fan_in" else 1]
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(fan))
