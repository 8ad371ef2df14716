"""Layers with parameters: linear, convolution, embedding, normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.errors import ShapeError
from weft.frontend.creation import empty, ones, zeros
from weft.frontend.linear import as_pair
from weft.frontend.pending import note_state
from weft.frontend.tensor import Parameter, Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.module import Module

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d",
    "ConvTranspose2d", "Embedding", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "LayerNorm",
    "Linear", "RMSNorm",
]  # fmt: skip

Pair = int | Sequence[int]


def _weight(*shape: int, dtype: object = None) -> Parameter:
    return Parameter(init.kaiming_uniform_(empty(*shape, dtype=dtype), a=math.sqrt(5)))


def _bias(size: int, fan_in: int, dtype: object = None) -> Parameter:
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return Parameter(init.uniform_(empty(size, dtype=dtype), -bound, bound))


class Linear(Module):
    """``x @ weight.T + bias``; the weight is out × in."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *,
                 dtype: object = None) -> None:  # fmt: skip
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = _weight(out_features, in_features, dtype=dtype)
        self.register_parameter("bias", _bias(out_features, in_features, dtype) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the affine map of the last axis."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias=" + str(
            self.bias is not None)


class Bilinear(Module):
    """``x.T @ weight[k] @ y + bias[k]``."""

    def __init__(self, in1_features: int, in2_features: int, out_features: int,
                 bias: bool = True) -> None:  # fmt: skip
        super().__init__()
        bound = 1 / math.sqrt(in1_features)
        self.weight = Parameter(
            init.uniform_(empty(out_features, in1_features, in2_features), -bound, bound))
        self.register_parameter("bias", _bias(out_features, in1_features) if bias else None)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the bilinear map of the last axes."""
        return F.bilinear(x, y, self.weight, self.bias)


class _Conv(Module):
    """What convolutions of all ranks share."""

    _rank = 2

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Pair, stride: Pair = 1,
                 padding: Pair | str = 0, dilation: Pair = 1, groups: int = 1, bias: bool = True, *,
                 padding_mode: str = "zeros", dtype: object = None) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        if in_channels % groups or out_channels % groups:
            raise ShapeError(name, found=f"{in_channels} to {out_channels} channels, {groups} "
                             "groups", expected="channels that divide by groups")
        kernel = as_pair(kernel_size, self._rank, name)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.padding_mode = padding_mode
        self.weight = _weight(out_channels, in_channels // groups, *kernel, dtype=dtype)
        fan_in = in_channels // groups * math.prod(kernel)
        self.register_parameter("bias", _bias(out_channels, fan_in, dtype) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution of the input."""
        padding = self.padding
        if self.padding_mode != "zeros" and not isinstance(padding, str):
            edge = as_pair(padding, self._rank, type(self).__name__)
            x = x.pad([p for e in reversed(edge) for p in (e, e)], mode=self.padding_mode)
            padding = 0
        return x._conv(self._rank, self.weight, self.bias, self.stride, padding, self.dilation,
                       self.groups)  # fmt: skip

    def extra_repr(self) -> str:
        """Return the sizes."""
        return (f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}, padding={self.padding}")  # fmt: skip


class Conv1d(_Conv):
    """Convolution of ``[N, C, L]``."""

    _rank = 1


class Conv2d(_Conv):
    """Convolution of ``[N, C, H, W]``."""

    _rank = 2


class Conv3d(_Conv):
    """Convolution of ``[N, C, D, H, W]``."""

    _rank = 3


class _ConvTranspose(Module):
    _rank = 2

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Pair, stride: Pair = 1,
                 padding: Pair = 0, output_padding: Pair = 0, groups: int = 1, bias: bool = True,
                 dilation: Pair = 1) -> None:  # fmt: skip
        super().__init__()
        kernel = as_pair(kernel_size, self._rank, type(self).__name__)
        self.options: dict[str, Any] = {
            "stride": stride, "padding": padding, "output_padding": output_padding,
            "groups": groups, "dilation": dilation,
        }  # fmt: skip
        self.weight = _weight(in_channels, out_channels // groups, *kernel)
        fan_in = out_channels // groups * math.prod(kernel)
        self.register_parameter("bias", _bias(out_channels, fan_in) if bias else None)


class ConvTranspose1d(_ConvTranspose):
    """Adjoint of the convolution of ``[N, C, L]``."""

    _rank = 1

    def forward(self, x: Tensor) -> Tensor:
        """Return the transposed convolution of the input."""
        return x.conv_transpose1d(self.weight, self.bias, **self.options)


class ConvTranspose2d(_ConvTranspose):
    """Adjoint of the convolution of ``[N, C, H, W]``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the transposed convolution of the input."""
        return x.conv_transpose2d(self.weight, self.bias, **self.options)


class Embedding(Module):
    """A table of vectors, looked up by integers."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *,
                 dtype: object = None) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        weight = init.normal_(empty(num_embeddings, embedding_dim, dtype=dtype))
        if padding_idx is not None:
            weight[padding_idx] = 0.0
        self.weight = Parameter(weight)

    def forward(self, indices: Tensor) -> Tensor:
        """Return the vectors at the indices."""
        return F.embedding(indices, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.num_embeddings}, {self.embedding_dim}"


class LayerNorm(Module):
    """Shifts the last axes to mean 0 and scales them to variance 1."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
                 elementwise_affine: bool = True, bias: bool = True) -> None:  # fmt: skip
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(
            normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.register_parameter("weight", Parameter(ones(*shape)) if elementwise_affine else None)
        self.register_parameter(
            "bias", Parameter(zeros(*shape)) if elementwise_affine and bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised input."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the shape."""
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """Divides the last axes by their root mean square."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = None,
                 elementwise_affine: bool = True) -> None:  # fmt: skip
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(
            normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.register_parameter("weight", Parameter(ones(*shape)) if elementwise_affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised input."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class _BatchNorm(Module):
    """Normalises channels by the batch, and learns running statistics for evaluation."""

    _ranks: tuple[int, ...] = (4,)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1,
                 affine: bool = True, track_running_stats: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.register_parameter("weight", Parameter(ones(num_features)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features)) if affine else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features) if tracked else None)
        self.register_buffer("running_var", ones(num_features) if tracked else None)
        self.register_buffer("num_batches_tracked", zeros(dtype="int64") if tracked else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised input; in training the statistics are updated."""
        if len(x.shape) not in self._ranks or x.shape[1] != self.num_features:
            raise ShapeError(type(self).__name__, found=f"{x.shape}",
                             expected=f"{self.num_features} channels on axis 1, and "
                             + " or ".join(map(str, self._ranks)) + " axes")
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            note_state(self.num_batches_tracked)
        training = self.training or self.running_mean is None
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                            training, self.momentum, self.eps)  # fmt: skip

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of ``[N, C]`` or ``[N, C, L]``."""

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of ``[N, C, H, W]``."""


class GroupNorm(Module):
    """Shifts groups of channels to mean 0 and scales them to variance 1."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5,
                 affine: bool = True) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ShapeError("GroupNorm", found=f"{num_channels} channels, {num_groups} groups",
                             expected="channels that divide by groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.register_parameter("weight", Parameter(ones(num_channels)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_channels)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised input."""
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm1d(Module):
    """Shifts each channel of each sample to mean 0 and scales it to variance 1."""

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__()
        self.num_features, self.eps = num_features, eps
        self.register_parameter("weight", Parameter(ones(num_features)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised input."""
        return x.instance_norm(self.weight, self.bias, self.eps)


class InstanceNorm2d(InstanceNorm1d):
    """Instance normalisation of ``[N, C, H, W]``."""
