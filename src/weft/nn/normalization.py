"""Normalisation layers: of the last axes, of channels by sample, by group or by batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.errors import ShapeError
from weft.nn import functional as F
from weft.nn.module import Module
from weft.nn.sections import SECTIONS
from weft.tensors.api.autograd import no_grad
from weft.tensors.api.creation import ones, zeros
from weft.tensors.api.tensor import Parameter, Tensor
from weft.tensors.core.pending import note_state
from weft.tensors.docs.documented import fill_docstrings

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
    "InstanceNorm3d", "LayerNorm", "LocalResponseNorm", "RMSNorm",
]  # fmt: skip


class LayerNorm(Module):
    """Shift the last axes to mean 0 and scale them to variance 1.

    Input and output ``[..., *normalized_shape]``.

    Parameters
    ----------
    {normalized_shape eps}
    elementwise_affine : bool
        Whether each element has a factor `weight` and an offset `bias`.
    {bias}

    {Raises: last_axes}

    Examples
    --------
    >>> weft.nn.LayerNorm(2, eps=0.0)(weft.tensor([[1.0, 3.0]])).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
                 elementwise_affine: bool = True, bias: bool = True) -> None:  # fmt: skip
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(
            normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        self.register_parameter("weight", Parameter(ones(*shape)) if elementwise_affine else None)
        self.register_parameter(
            "bias", Parameter(zeros(*shape)) if elementwise_affine and bias else None)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the shape."""
        return _shown(self, f"{self.normalized_shape}, eps={self.eps}", "elementwise_affine")


class RMSNorm(Module):
    """Divide the last axes by their root mean square.

    Input and output ``[..., *normalized_shape]``.

    Parameters
    ----------
    {normalized_shape}
    eps : float, optional
        Added to the mean square; by default the dtype's smallest step from 1.
    elementwise_affine : bool
        Whether each element has a factor `weight`.

    {Raises: last_axes}

    Examples
    --------
    >>> weft.nn.RMSNorm(2, eps=0.0)(weft.tensor([[2.0, 2.0]])).tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = None,
                 elementwise_affine: bool = True) -> None:  # fmt: skip
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(
            normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        self.register_parameter("weight", Parameter(ones(*shape)) if elementwise_affine else None)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Return the shape."""
        affine = self._parameters["weight"] is not None
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={affine}"


class GroupNorm(Module):
    """Shift groups of channels to mean 0 and scale them to variance 1.

    Input and output ``[N, C, ...]``.

    Parameters
    ----------
    num_groups, num_channels : int
        Groups, and the channels C that divide into them.
    {eps affine bias:affine}

    Raises
    ------
    ShapeError
        If the channels do not divide by the groups.

    Examples
    --------
    >>> weft.nn.GroupNorm(1, 2, eps=0.0)(weft.tensor([[1.0, 3.0]])).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5,
                 affine: bool = True, *, bias: bool = True) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ShapeError("GroupNorm", found=f"{num_channels} channels, {num_groups} groups",
                             expected="channels that divide by groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.affine = affine
        _add_affine(self, num_channels, affine, bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the sizes."""
        sizes = f"{self.num_groups}, {self.num_channels}, eps={self.eps}"
        return _shown(self, sizes, "affine")


class _BatchNorm(Module):
    """Normalises channels by the batch, and learns running statistics for evaluation."""

    _ranks: tuple[int, ...] = (4,)
    _optional = frozenset({"num_batches_tracked"})  # older state dicts lack it

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True, *,
                 bias: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        _add_affine(self, num_features, affine, bias)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features) if tracked else None)
        self.register_buffer("running_var", ones(num_features) if tracked else None)
        self.register_buffer("num_batches_tracked", zeros(dtype="int64") if tracked else None)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input; in training the statistics are updated."""
        if len(input.shape) not in self._ranks or input.shape[1] != self.num_features:
            raise ShapeError(type(self).__name__, found=f"{input.shape}",
                             expected=f"{self.num_features} channels on axis 1, and "
                             + " or ".join(map(str, self._ranks)) + " axes")
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            note_state(self.num_batches_tracked)
        training = self.training or self.running_mean is None
        share: Any = self.momentum
        if share is None:  # the plain mean of all batches so far
            count = self.num_batches_tracked
            share = 0.0 if count is None else count.double().reciprocal()
        return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias,
                            training, share, self.eps)  # fmt: skip

    def extra_repr(self) -> str:
        """Return the sizes."""
        text = _shown(self, f"{self.num_features}, eps={self.eps}, momentum={self.momentum}",
                           "affine")
        return f"{text}, track_running_stats={self.running_mean is not None}"

    def reset_running_stats(self) -> None:
        """Begin the running statistics anew.

        Examples
        --------
        >>> weft.nn.BatchNorm1d(2).reset_running_stats()
        """
        for name, value in (("running_mean", 0), ("running_var", 1), ("num_batches_tracked", 0)):
            found = self._buffers[name]
            if found is not None:
                found.fill_(value)


class BatchNorm1d(_BatchNorm):
    """Batch normalisation: input and output ``[N, C]`` or ``[N, C, L]``.

    In training channels are normalised by the batch, else by running statistics.

    {Parameters: num_features eps statistics affine track_running_stats bias:affine}
    {Raises: batch}

    Examples
    --------
    >>> weft.nn.BatchNorm1d(1, eps=0.0)(weft.tensor([[1.0], [3.0]])).tolist()
    [[-1.0], [1.0]]
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation: input and output ``[N, C, H, W]``.

    In training channels are normalised by the batch, else by running statistics.

    {Parameters: num_features eps statistics affine track_running_stats bias:affine}
    {Raises: batch}

    Examples
    --------
    >>> weft.nn.BatchNorm2d(3).eval()(weft.ones(1, 3, 4, 4)).shape
    (1, 3, 4, 4)
    """


class BatchNorm3d(_BatchNorm):
    """Batch normalisation: input and output ``[N, C, D, H, W]``.

    In training channels are normalised by the batch, else by running statistics.

    {Parameters: num_features eps statistics affine track_running_stats bias:affine}
    {Raises: batch}

    Examples
    --------
    >>> weft.nn.BatchNorm3d(3).eval()(weft.ones(1, 3, 2, 2, 2)).shape
    (1, 3, 2, 2, 2)
    """

    _ranks = (5,)


class _InstanceNorm(_BatchNorm):
    """Normalises each channel of each sample; running statistics are kept if asked for."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = False, track_running_stats: bool = False, *,
                 bias: bool = True) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input; in training running statistics are updated."""
        name, rank = type(self).__name__, len(input.shape)
        used = self.affine or self.track_running_stats
        if rank not in self._ranks or (
            used and input.shape[self._ranks.index(rank)] != self.num_features
        ):
            raise ShapeError(name, found=f"{input.shape}", expected=f"{self.num_features} channels "
                             "and " + " or ".join(map(str, self._ranks)) + " axes")
        whole = input if rank == self._ranks[-1] else input.unsqueeze(0)
        tracked = self.running_mean is not None
        if self.training or not tracked:
            if math.prod(whole.shape[2:]) == 1:
                raise ShapeError(name, found=f"{input.shape}",
                                 expected="more than one element of a channel")
            if tracked and self.training:
                self._track(whole)
            out = whole.instance_norm(self.weight, self.bias, self.eps)
        else:
            out = F.batch_norm(whole, self.running_mean, self.running_var, self.weight, self.bias,
                               False, 0.0, self.eps)  # fmt: skip
        return out if whole is input else out.squeeze(0)

    def _track(self, x: Tensor) -> None:
        """Move the running statistics towards those of a batch: means over its samples."""
        axes = list(range(2, len(x.shape)))
        share = 0.0 if self.momentum is None else self.momentum
        with no_grad():
            for old, new in ((self.running_mean, x.mean(axes)), (self.running_var, x.var(axes))):
                old.mul_(1 - share).add_(new.mean(0).mul(share))


class InstanceNorm1d(_InstanceNorm):
    """Shift each channel of each sample to mean 0 and scale it to variance 1.

    Input and output ``[N, C, L]``, or ``[C, L]``.

    {Parameters: num_features eps statistics affine track_running_stats bias:affine}
    {Raises: batch}

    Examples
    --------
    >>> weft.nn.InstanceNorm1d(1, eps=0.0)(weft.tensor([[[1.0, 3.0]]])).tolist()
    [[[-1.0, 1.0]]]
    """

    _ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of images: input and output ``[N, C, H, W]``, or without N.

    {Parameters: num_features eps statistics affine track_running_stats bias:affine}
    {Raises: batch}

    Examples
    --------
    >>> weft.nn.InstanceNorm2d(3)(weft.ones(1, 3, 4, 4)).shape
    (1, 3, 4, 4)
    """

    _ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of volumes: input and output ``[N, C, D, H, W]``, or without N.

    {Parameters: num_features eps statistics affine track_running_stats bias:affine}
    {Raises: batch}

    Examples
    --------
    >>> weft.nn.InstanceNorm3d(3)(weft.ones(1, 3, 2, 2, 2)).shape
    (1, 3, 2, 2, 2)
    """

    _ranks = (4, 5)


class LocalResponseNorm(Module):
    """Divide each element by a power of the mean square over channels around it.

    Input and output ``[N, C, ...]``.

    Parameters
    ----------
    size : int
        How many channels.
    alpha, beta, k : float
        The divisor is ``(k + alpha * mean square) ** beta``.

    {Raises: fit}

    Examples
    --------
    >>> weft.nn.LocalResponseNorm(1, alpha=1.0, beta=1.0)(weft.ones(1, 1, 1)).tolist()
    [[[0.5]]]
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """Return the options."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _add_affine(layer: Module, channels: int, affine: bool, bias: bool) -> None:
    """Add a factor and an offset of each channel, or None for them."""
    layer.register_parameter("weight", Parameter(ones(channels)) if affine else None)
    layer.register_parameter("bias", Parameter(zeros(channels)) if affine and bias else None)


def _shown(layer: Any, text: str, affine: str) -> str:
    """Return what `repr` shows of a normalisation: sizes, and whether it has parameters."""
    found = layer._parameters
    return f"{text}, {affine}={found['weight'] is not None}, bias={found['bias'] is not None}"


fill_docstrings(globals(), SECTIONS)
