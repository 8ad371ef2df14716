"""Normalisation layers: of the last axes, of channels by sample, by group or by batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import ShapeError
from weft.nn import functional as F
from weft.nn.module import Module
from weft.nn.sections import SECTIONS
from weft.tensors.api.creation import ones, zeros
from weft.tensors.api.tensor import Parameter, Tensor
from weft.tensors.core.pending import note_state
from weft.tensors.docs.documented import fill_docstrings

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
    "LayerNorm", "RMSNorm",
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
        self.normalized_shape, self.eps = shape, eps
        self.register_parameter("weight", Parameter(ones(*shape)) if elementwise_affine else None)
        self.register_parameter(
            "bias", Parameter(zeros(*shape)) if elementwise_affine and bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised input."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

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
        self.normalized_shape, self.eps = shape, eps
        self.register_parameter("weight", Parameter(ones(*shape)) if elementwise_affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised input."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

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
    {eps affine}

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

    def extra_repr(self) -> str:
        """Return the sizes."""
        sizes = f"{self.num_groups}, {self.num_channels}, eps={self.eps}"
        return _shown(self, sizes, "affine")


class InstanceNorm1d(Module):
    """Shift each channel of each sample to mean 0 and scale it to variance 1.

    Input and output ``[N, C, L]``.

    {Parameters: num_features eps affine}

    Examples
    --------
    >>> weft.nn.InstanceNorm1d(1, eps=0.0)(weft.tensor([[[1.0, 3.0]]])).tolist()
    [[[-1.0, 1.0]]]
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__()
        self.num_features, self.eps = num_features, eps
        self.register_parameter("weight", Parameter(ones(num_features)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised input."""
        return x.instance_norm(self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return _shown(self, f"{self.num_features}, eps={self.eps}", "affine")


class InstanceNorm2d(InstanceNorm1d):
    """Instance normalisation of images: input and output ``[N, C, H, W]``.

    Parameters
    ----------
    num_features, eps, affine
        As for `InstanceNorm1d`.

    Examples
    --------
    >>> weft.nn.InstanceNorm2d(3)(weft.ones(1, 3, 4, 4)).shape
    (1, 3, 4, 4)
    """


class _BatchNorm(Module):
    """Normalises channels by the batch, and learns running statistics for evaluation."""

    _ranks: tuple[int, ...] = (4,)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
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
        share: Any = self.momentum
        if share is None:  # the plain mean of all batches so far
            count = self.num_batches_tracked
            share = 0.0 if count is None else count.double().reciprocal()
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
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

    {Parameters: num_features eps statistics affine track_running_stats}
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

    {Parameters: num_features eps statistics affine track_running_stats}
    {Raises: batch}

    Examples
    --------
    >>> weft.nn.BatchNorm2d(3).eval()(weft.ones(1, 3, 4, 4)).shape
    (1, 3, 4, 4)
    """


class BatchNorm3d(_BatchNorm):
    """Batch normalisation: input and output ``[N, C, D, H, W]``.

    In training channels are normalised by the batch, else by running statistics.

    {Parameters: num_features eps statistics affine track_running_stats}
    {Raises: batch}

    Examples
    --------
    >>> weft.nn.BatchNorm3d(3).eval()(weft.ones(1, 3, 2, 2, 2)).shape
    (1, 3, 2, 2, 2)
    """

    _ranks = (5,)


def _shown(layer: Any, text: str, affine: str) -> str:
    """Return what `repr` shows of a normalisation: sizes, and whether it has parameters."""
    found = layer._parameters
    return f"{text}, {affine}={found['weight'] is not None}, bias={found['bias'] is not None}"


fill_docstrings(globals(), SECTIONS)
