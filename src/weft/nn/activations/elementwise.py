"""Elementwise activation layers."""

from __future__ import annotations

from typing import Any

from weft.nn import functional as F
from weft.nn.module import Module
from weft.nn.sections import SECTIONS
from weft.nn.stateless import Stateless
from weft.tensors.api.creation import full
from weft.tensors.api.tensor import Parameter, Tensor
from weft.tensors.docs.documented import fill_docstrings

__all__ = [
    "CELU", "ELU", "GELU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "LeakyReLU", "LogSigmoid", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid",
    "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _Plain(Stateless):
    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class ReLU(_Plain, function=F.relu):
    """``max(x, 0)``.

    Input and output have one shape.

    {Parameters: inplace}

    Examples
    --------
    >>> weft.nn.ReLU()(weft.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """


class ReLU6(_Plain, function=F.relu6):
    """``min(max(x, 0), 6)``.

    Input and output have one shape.

    {Parameters: inplace}

    Examples
    --------
    >>> weft.nn.ReLU6()(weft.tensor([-1.0, 9.0])).tolist()
    [0.0, 6.0]
    """


class SiLU(_Plain, function=F.silu):
    """``x * sigmoid(x)``.

    Input and output have one shape.

    {Parameters: inplace}

    Examples
    --------
    >>> weft.nn.SiLU()(weft.tensor([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """


class Mish(_Plain, function=F.mish):
    """``x * tanh(softplus(x))``.

    Input and output have one shape.

    {Parameters: inplace}

    Examples
    --------
    >>> weft.nn.Mish()(weft.tensor([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """


class SELU(_Plain, function=F.selu):
    """The scaled ELU, which keeps mean 0 and variance 1 (Klambauer et al., 2017).

    Input and output have one shape.

    {Parameters: inplace}

    Examples
    --------
    >>> weft.nn.SELU()(weft.tensor([0.0])).tolist()
    [0.0]
    """


class Sigmoid(Stateless, function=F.sigmoid):
    """``1 / (1 + exp(-x))``.

    Input and output have one shape.

    Examples
    --------
    >>> weft.nn.Sigmoid()(weft.tensor([0.0])).tolist()
    [0.5]
    """

    def __init__(self) -> None:
        super().__init__()


class Tanh(Stateless, function=F.tanh):
    """The hyperbolic tangent.

    Input and output have one shape.

    Examples
    --------
    >>> weft.nn.Tanh()(weft.tensor([0.0, 100.0])).tolist()
    [0.0, 1.0]
    """

    def __init__(self) -> None:
        super().__init__()


class LogSigmoid(Stateless, function=F.logsigmoid):
    """``log(sigmoid(x))``, without overflow.

    Input and output have one shape.

    Examples
    --------
    >>> weft.nn.LogSigmoid()(weft.tensor([-100.0])).tolist()
    [-100.0]
    """

    def __init__(self) -> None:
        super().__init__()


class Softsign(Stateless, function=F.softsign):
    """``x / (1 + |x|)``.

    Input and output have one shape.

    Examples
    --------
    >>> weft.nn.Softsign()(weft.tensor([1.0, -3.0])).tolist()
    [0.5, -0.75]
    """

    def __init__(self) -> None:
        super().__init__()


class Hardsigmoid(_Plain, function=F.hardsigmoid):
    """``relu6(x + 3) / 6``.

    Input and output have one shape.

    {Parameters: inplace}

    Examples
    --------
    >>> weft.nn.Hardsigmoid()(weft.tensor([-3.0, 0.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """


class Hardswish(_Plain, function=F.hardswish):
    """``x * relu6(x + 3) / 6``.

    Input and output have one shape.

    {Parameters: inplace}

    Examples
    --------
    >>> weft.nn.Hardswish()(weft.tensor([-3.0, 3.0])).tolist()
    [-0.0, 3.0]
    """


class GELU(Stateless, function=F.gelu):
    """``x * Phi(x)``, where Phi is the distribution function of normal numbers.

    Input and output have one shape.

    Parameters
    ----------
    approximate : {"none", "tanh"}
        By the error function, or by a tangent that is near to it.

    Examples
    --------
    >>> weft.nn.GELU()(weft.tensor([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class ELU(Stateless, function=F.elu):
    """``alpha * (exp(x) - 1)`` where negative, else x.

    Input and output have one shape.

    Parameters
    ----------
    alpha : float
        The limit below is ``-alpha``.
    {inplace}

    Examples
    --------
    >>> weft.nn.ELU()(weft.tensor([-1000.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class CELU(Stateless, function=F.celu):
    """``alpha * (exp(x / alpha) - 1)`` where negative, else x.

    Input and output have one shape.

    Parameters
    ----------
    alpha : float
        The limit below is ``-alpha``.
    {inplace}

    Examples
    --------
    >>> weft.nn.CELU()(weft.tensor([-1000.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class Tanhshrink(Stateless, function=F.tanhshrink):
    """``x - tanh(x)``.

    Input and output have one shape.

    Examples
    --------
    >>> weft.nn.Tanhshrink()(weft.tensor([0.0, 100.0])).tolist()
    [0.0, 99.0]
    """

    def __init__(self) -> None:
        super().__init__()


class RReLU(Stateless, function=F.rrelu):
    """The leaky ReLU with a slope drawn anew for each element in training.

    Input and output have one shape.

    Parameters
    ----------
    lower, upper : float
        The bounds of slopes; their mean is the slope of evaluation.
    {inplace}

    {Raises: fit}

    Examples
    --------
    >>> weft.nn.RReLU(0.25, 0.75).eval()(weft.tensor([-4.0, 2.0])).tolist()
    [-2.0, 2.0]
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(lower=lower, upper=upper, inplace=inplace)

    def forward(self, *args: Any, **named: Any) -> Any:
        """Return the function of the input, with drawn slopes in training."""
        return F.rrelu(*args, *named.values(), training=self.training, **self.options)


class LeakyReLU(Stateless, function=F.leaky_relu):
    """``negative_slope * x`` where negative, else x.

    Input and output have one shape.

    Parameters
    ----------
    negative_slope : float
        The slope below 0.
    {inplace}

    Examples
    --------
    >>> weft.nn.LeakyReLU(0.5)(weft.tensor([-2.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class Hardtanh(Stateless, function=F.hardtanh):
    """The input limited to an interval.

    Input and output have one shape.

    Parameters
    ----------
    min_val, max_val : float
        The bounds.
    {inplace}

    Examples
    --------
    >>> weft.nn.Hardtanh()(weft.tensor([-2.0, 0.5])).tolist()
    [-1.0, 0.5]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(min_val=min_val, max_val=max_val, inplace=inplace)


class Softplus(Stateless, function=F.softplus):
    """``log(1 + exp(beta * x)) / beta``, without overflow.

    Input and output have one shape.

    Parameters
    ----------
    beta : float
        How sharp the bend at 0 is.
    threshold : float
        Where ``beta * x`` is above it, the result is x.

    Examples
    --------
    >>> weft.nn.Softplus()(weft.tensor([100.0])).tolist()
    [100.0]
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Threshold(Stateless, function=F.threshold):
    """Replace elements up to a threshold; input and output have one shape.

    {Parameters: threshold inplace}
    {Raises: fit}

    Examples
    --------
    >>> weft.nn.Threshold(2.0, 0.0)(weft.tensor([1.0, 3.0])).tolist()
    [0.0, 3.0]
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class Softshrink(Stateless, function=F.softshrink):
    """Move elements towards 0; input and output have one shape.

    Parameters
    ----------
    lambd : float
        By how much, at least 0.

    {Raises: fit}

    Examples
    --------
    >>> weft.nn.Softshrink()(weft.tensor([-1.0, 0.2])).tolist()
    [-0.5, 0.0]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        """Return the limit."""
        return str(self.lambd)


class Hardshrink(Stateless, function=F.hardshrink):
    """Set small elements to 0; input and output have one shape.

    {Parameters: lambd}
    {Raises: fit}

    Examples
    --------
    >>> weft.nn.Hardshrink()(weft.tensor([-1.0, 0.2])).tolist()
    [-1.0, 0.0]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        """Return the limit."""
        return str(self.lambd)


class PReLU(Module):
    """``weight * x`` where negative, with a learned weight.

    Input and output ``[N, C, ...]``, or of any shape with one weight.

    Parameters
    ----------
    num_parameters : int
        1, or one weight for each channel C.
    init : float
        The first value of the weights.

    Attributes
    ----------
    weight : Parameter
        Shape ``[num_parameters]``.

    Examples
    --------
    >>> weft.nn.PReLU()(weft.tensor([-4.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(full((num_parameters,), init))

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with its negative part scaled."""
        weight = self.weight
        if weight.shape[0] > 1:
            weight = weight.reshape(-1, *(1,) * (len(input.shape) - 2))
        return F.prelu(input, weight)

    def extra_repr(self) -> str:
        """Return the number of weights."""
        return f"num_parameters={self.weight.shape[0]}"


fill_docstrings(globals(), SECTIONS)
