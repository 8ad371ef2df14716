"""Layers without parameters: activations, dropout, pooling, shape, losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.frontend.creation import full
from weft.frontend.tensor import Parameter, Tensor
from weft.nn import functional as F
from weft.nn.module import Module

__all__ = [
    "ELU", "GELU", "SELU", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d",
    "AvgPool1d", "AvgPool2d", "BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "Dropout",
    "Dropout2d", "Flatten", "Hardsigmoid", "Hardswish", "Hardtanh", "HuberLoss", "Identity",
    "KLDivLoss", "L1Loss", "LeakyReLU", "LogSigmoid", "LogSoftmax", "MSELoss", "MaxPool1d",
    "MaxPool2d", "Mish", "NLLLoss", "PReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "SmoothL1Loss",
    "Softmax", "Softplus", "Softsign", "Tanh", "Unflatten", "Upsample",
]  # fmt: skip

Pair = int | Sequence[int]


class _Stateless(Module):
    """A function of `weft.nn.functional` with fixed options."""

    _function: Callable[..., Any]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, *args: Any) -> Any:
        """Return the function of the arguments."""
        return type(self)._function(*args, **self.options)

    def extra_repr(self) -> str:
        """Return the options."""
        return ", ".join(f"{k}={v}" for k, v in self.options.items())


class _Plain(_Stateless):
    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class Identity(Module):
    """Returns its input."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        """Return the input."""
        return x


class ReLU(_Plain):
    """``max(x, 0)``."""

    _function = staticmethod(F.relu)


class ReLU6(_Plain):
    """``min(max(x, 0), 6)``."""

    _function = staticmethod(F.relu6)


class SiLU(_Plain):
    """``x * sigmoid(x)``."""

    _function = staticmethod(F.silu)


class Mish(_Plain):
    """``x * tanh(softplus(x))``."""

    _function = staticmethod(F.mish)


class SELU(_Plain):
    """The scaled ELU."""

    _function = staticmethod(F.selu)


class Sigmoid(_Plain):
    """``1 / (1 + exp(-x))``."""

    _function = staticmethod(F.sigmoid)


class Tanh(_Plain):
    """The hyperbolic tangent."""

    _function = staticmethod(F.tanh)


class LogSigmoid(_Plain):
    """``log(sigmoid(x))``."""

    _function = staticmethod(F.logsigmoid)


class Softsign(_Plain):
    """``x / (1 + |x|)``."""

    _function = staticmethod(F.softsign)


class Hardsigmoid(_Plain):
    """``relu6(x + 3) / 6``."""

    _function = staticmethod(F.hardsigmoid)


class Hardswish(_Plain):
    """``x * relu6(x + 3) / 6``."""

    _function = staticmethod(F.hardswish)


class GELU(_Stateless):
    """``x * Phi(x)``, by erf or by tanh."""

    _function = staticmethod(F.gelu)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class ELU(_Stateless):
    """``alpha * (exp(x) - 1)`` where negative."""

    _function = staticmethod(F.elu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha)


class LeakyReLU(_Stateless):
    """``negative_slope * x`` where negative."""

    _function = staticmethod(F.leaky_relu)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope)


class Hardtanh(_Stateless):
    """The input limited to an interval."""

    _function = staticmethod(F.hardtanh)

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(min_val=min_val, max_val=max_val)


class Softplus(_Stateless):
    """``log(1 + exp(beta * x)) / beta``."""

    _function = staticmethod(F.softplus)

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Softmax(_Stateless):
    """``exp(x) / sum(exp(x))`` along an axis."""

    _function = staticmethod(F.softmax)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class LogSoftmax(_Stateless):
    """The logarithm of the softmax along an axis."""

    _function = staticmethod(F.log_softmax)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class PReLU(Module):
    """``weight * x`` where negative, with a learned weight."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.weight = Parameter(full((num_parameters,), init))

    def forward(self, x: Tensor) -> Tensor:
        """Return the input with its negative part scaled."""
        weight = self.weight
        if weight.shape[0] > 1:
            weight = weight.reshape(-1, *(1,) * (len(x.shape) - 2))
        return F.prelu(x, weight)


class Dropout(Module):
    """Drops elements with probability `p` in training."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return the input, thinned in training."""
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        """Return the probability."""
        return f"p={self.p}"


class Dropout2d(Dropout):
    """Drops channels with probability `p` in training."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the input, thinned in training."""
        return F.dropout2d(x, self.p, self.training)


class Flatten(Module):
    """Merges axes into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """Return the input with axes merged."""
        return x.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """Splits an axis into several."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.sizes = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input with the axis split."""
        return x.unflatten(self.dim, self.sizes)


class Upsample(_Stateless):
    """Repeats pixels."""

    _function = staticmethod(F.interpolate)

    def __init__(self, scale_factor: int = 2, mode: str = "nearest") -> None:
        super().__init__(scale_factor=scale_factor, mode=mode)


class _Pool(_Stateless):
    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0,
                 **options: Any) -> None:  # fmt: skip
        super().__init__(kernel_size=kernel_size, stride=stride, padding=padding, **options)


class MaxPool1d(_Pool):
    """The largest elements of windows of the last axis."""

    _function = staticmethod(F.max_pool1d)


class MaxPool2d(_Pool):
    """The largest elements of windows of the last two axes."""

    _function = staticmethod(F.max_pool2d)


class AvgPool1d(_Pool):
    """The means of windows of the last axis."""

    _function = staticmethod(F.avg_pool1d)


class AvgPool2d(_Pool):
    """The means of windows of the last two axes."""

    _function = staticmethod(F.avg_pool2d)


class _Adaptive(_Stateless):
    def __init__(self, output_size: Any) -> None:
        super().__init__(output_size=output_size)


class AdaptiveAvgPool1d(_Adaptive):
    """The means of windows that cut the last axis into parts."""

    _function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_Adaptive):
    """The means of windows that cut the last two axes into parts."""

    _function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveMaxPool2d(_Adaptive):
    """The largest elements of windows that cut the last two axes into parts."""

    _function = staticmethod(F.adaptive_max_pool2d)


class _Loss(_Stateless):
    def __init__(self, reduction: str = "mean", **options: Any) -> None:
        super().__init__(reduction=reduction, **options)


class MSELoss(_Loss):
    """Squared errors."""

    _function = staticmethod(F.mse_loss)


class L1Loss(_Loss):
    """Absolute errors."""

    _function = staticmethod(F.l1_loss)


class SmoothL1Loss(_Loss):
    """Errors squared below `beta` and absolute above."""

    _function = staticmethod(F.smooth_l1_loss)


class HuberLoss(_Loss):
    """Errors squared below `delta` and linear above."""

    _function = staticmethod(F.huber_loss)


class NLLLoss(_Stateless):
    """The negative log-likelihood of class indices."""

    _function = staticmethod(F.nll_loss)

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100,
                 reduction: str = "mean") -> None:  # fmt: skip
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)


class CrossEntropyLoss(_Stateless):
    """The cross entropy of logits with class indices or probabilities."""

    _function = staticmethod(F.cross_entropy)

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100,
                 reduction: str = "mean", label_smoothing: float = 0.0) -> None:  # fmt: skip
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction,
                         label_smoothing=label_smoothing)  # fmt: skip


class BCELoss(_Loss):
    """The cross entropy of probabilities."""

    _function = staticmethod(F.binary_cross_entropy)


class BCEWithLogitsLoss(_Loss):
    """The cross entropy of the sigmoid of logits."""

    _function = staticmethod(F.binary_cross_entropy_with_logits)


class KLDivLoss(_Loss):
    """The Kullback-Leibler divergence."""

    _function = staticmethod(F.kl_div)
