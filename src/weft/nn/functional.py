"""Layers as functions, with PyTorch's names and order of arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from weft.errors import RangeError
from weft.nn import margins
from weft.nn.sections import SECTIONS
from weft.tensors.api import random, resampling
from weft.tensors.api.creation import tensor
from weft.tensors.api.functions import first_of
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import check_rank, check_tensor, count_of, number
from weft.tensors.docs import documented
from weft.tensors.docs.documented import fill_docstrings, of_function, wrapping

_HELPERS: Final = (
    "weft.tensors.core.arguments",
    "weft.tensors.api.creation",
    "weft.tensors.docs.documented",
)
P = ParamSpec("P")
R = TypeVar("R")
_ABSENT: Final = object()


def _function(method: Callable[Concatenate[Tensor, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method as a function whose first argument is converted (arrays are copied)."""

    def call(x: Any = _ABSENT, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if x is _ABSENT:
            x = first_of(kwargs, method.__name__)
        try:
            return method(x if isinstance(x, Tensor) else tensor(x), *args, **kwargs)
        except TypeError as error:
            found = documented.misnamed(error, method, kwargs)
            if found is error:
                raise
            raise found from None

    return wrapping(call, method, of_function(method.__doc__ or ""))


def _activation(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return an activation that with ``inplace=True`` changes its argument."""

    def call(x: Any = _ABSENT, /, *args: Any, inplace: bool = False, **kwargs: Any) -> Tensor:
        if x is _ABSENT:
            x = first_of(kwargs, function.__name__)
        found = function(x, *args, **kwargs)
        if inplace:
            check_tensor(x, function.__name__)._update(found, function.__name__)
            return cast(Tensor, x)
        return found

    return wrapping(call, function, function.__doc__ or "")


def _softmax(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a softmax whose axis, where none is given, is PyTorch's."""

    def call(x: Any = _ABSENT, /, dim: int | None = None, *args: Any, **kwargs: Any) -> Tensor:
        x = first_of(kwargs, function.__name__) if x is _ABSENT else x
        if "axis" in kwargs:
            return function(x, *args, **kwargs)
        if dim is None:
            dim = 0 if len(getattr(x, "shape", (0,))) in (0, 1, 3) else 1
        return function(x, dim, **kwargs)

    return wrapping(call, function, function.__doc__ or "")


adaptive_avg_pool1d = _function(Tensor.adaptive_avg_pool1d)
adaptive_avg_pool2d = _function(Tensor.adaptive_avg_pool2d)
adaptive_avg_pool3d = _function(Tensor.adaptive_avg_pool3d)
adaptive_max_pool1d = _function(Tensor.adaptive_max_pool1d)
adaptive_max_pool2d = _function(Tensor.adaptive_max_pool2d)
adaptive_max_pool3d = _function(Tensor.adaptive_max_pool3d)
avg_pool1d = _function(Tensor.avg_pool1d)
avg_pool2d = _function(Tensor.avg_pool2d)
avg_pool3d = _function(Tensor.avg_pool3d)
batch_norm = _function(Tensor.batch_norm)
binary_cross_entropy = _function(Tensor.binary_cross_entropy)
binary_cross_entropy_with_logits = _function(Tensor.binary_cross_entropy_with_logits)
celu = _activation(_function(Tensor.celu))
conv1d = _function(Tensor.conv1d)
conv2d = _function(Tensor.conv2d)
conv3d = _function(Tensor.conv3d)
conv_transpose1d = _function(Tensor.conv_transpose1d)
conv_transpose2d = _function(Tensor.conv_transpose2d)
conv_transpose3d = _function(Tensor.conv_transpose3d)
cosine_similarity = _function(Tensor.cosine_similarity)
cross_entropy = _function(Tensor.cross_entropy)
elu = _activation(_function(Tensor.elu))
gelu = _function(Tensor.gelu)
group_norm = _function(Tensor.group_norm)
hardsigmoid = _activation(_function(Tensor.hardsigmoid))
hardswish = _activation(_function(Tensor.hardswish))
hardtanh = _activation(_function(Tensor.hardtanh))
huber_loss = _function(Tensor.huber_loss)
kl_div = _function(Tensor.kl_div)
l1_loss = _function(Tensor.l1_loss)
layer_norm = _function(Tensor.layer_norm)
leaky_relu = _activation(_function(Tensor.leaky_relu))
linear = _function(Tensor.linear)
log_softmax = _softmax(_function(Tensor.log_softmax))
logsigmoid = _function(Tensor.logsigmoid)
max_pool1d = _function(Tensor.max_pool1d)
max_pool2d = _function(Tensor.max_pool2d)
max_pool3d = _function(Tensor.max_pool3d)
mish = _activation(_function(Tensor.mish))
mse_loss = _function(Tensor.mse_loss)
nll_loss = _function(Tensor.nll_loss)
normalize = _function(Tensor.normalize)
one_hot = _function(Tensor.one_hot)
pad = _function(Tensor.pad)
prelu = _function(Tensor.prelu)
relu = _activation(_function(Tensor.relu))
relu6 = _activation(_function(Tensor.relu6))
rms_norm = _function(Tensor.rms_norm)
selu = _activation(_function(Tensor.selu))
sigmoid = _function(Tensor.sigmoid)
silu = _activation(_function(Tensor.silu))
smooth_l1_loss = _function(Tensor.smooth_l1_loss)
softmax = _softmax(_function(Tensor.softmax))
softmin = _softmax(_function(Tensor.softmin))
softplus = _function(Tensor.softplus)
softsign = _function(Tensor.softsign)
tanh = _function(Tensor.tanh)
tanhshrink = _function(Tensor.tanhshrink)
triplet_margin_loss = _function(Tensor.triplet_margin_loss)

swish = silu

cosine_embedding_loss = margins.cosine_embedding_loss
gaussian_nll_loss = margins.gaussian_nll_loss
glu = margins.glu
hardshrink = margins.hardshrink
hinge_embedding_loss = margins.hinge_embedding_loss
margin_ranking_loss = margins.margin_ranking_loss
multi_margin_loss = margins.multi_margin_loss
multilabel_margin_loss = margins.multilabel_margin_loss
multilabel_soft_margin_loss = margins.multilabel_soft_margin_loss
pairwise_distance = margins.pairwise_distance
poisson_nll_loss = margins.poisson_nll_loss
rrelu = _activation(margins.rrelu)
soft_margin_loss = margins.soft_margin_loss
softshrink = margins.softshrink
threshold = _activation(margins.threshold)

relu_ = _function(Tensor.relu_)

channel_shuffle = resampling.channel_shuffle
fold = resampling.fold
interpolate = upsample = resampling.interpolate
pixel_shuffle = resampling.pixel_shuffle
pixel_unshuffle = resampling.pixel_unshuffle
unfold = resampling.unfold


def instance_norm(x: Tensor, running_mean: object = None, running_var: object = None,
                  weight: object = None, bias: object = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:  # fmt: skip
    """Return each channel of each sample shifted to mean 0 and scaled to variance 1.

    Parameters
    ----------
    {x:channels}
    running_mean, running_var : Tensor, optional
        Statistics to use instead, of shape ``[C]``.
    weight, bias : Tensor, optional
        Factor and offset of each channel, of shape ``[C]``.
    use_input_stats : bool
        False normalises by the running statistics.
    momentum, eps : float
        As of `Tensor.batch_norm`.

    {Returns: of_x}
    {Raises: no_tensor}

    Examples
    --------
    >>> weft.nn.functional.instance_norm(weft.tensor([[[1.0, 3.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0]]]
    """
    check_tensor(x, "instance_norm")
    if not use_input_stats:
        return x.batch_norm(running_mean, running_var, weight, bias, False, momentum, eps)
    return x.instance_norm(weight, bias, eps)


def local_response_norm(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75,
                        k: float = 1.0) -> Tensor:  # fmt: skip
    """Return elements divided by a power of the mean square over channels around them.

    Parameters
    ----------
    {x:channels}
    size : int
        How many channels.
    alpha, beta, k : float
        The divisor is ``(k + alpha * mean square) ** beta``.

    {Returns: of_x}

    Raises
    ------
    ShapeError
        If there are fewer than three axes, or `size` is below 1.

    Examples
    --------
    >>> weft.nn.functional.local_response_norm(weft.ones(1, 1, 1), 1, 1.0, 1.0).tolist()
    [[[0.5]]]
    """
    check_rank(check_tensor(x, "local_response_norm"), 3, "local_response_norm")
    size = count_of(size, "local_response_norm", 1)
    square = x.mul(x).movedim(1, -1).pad([size // 2, (size - 1) // 2])
    mean = square.unfold(-1, size, 1).sum(-1).div(size).movedim(-1, 1)
    return x.div(mean.mul(alpha).add(k).pow(beta))


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return `x` with each element set to 0 with probability `p`, and the rest divided by 1 - p.

    {Parameters: x p training inplace}
    {Returns: of_x}
    {Raises: probability}

    Examples
    --------
    >>> weft.nn.functional.dropout(weft.ones(2), 1.0).tolist()
    [0.0, 0.0]
    """
    found = random.dropout(x, p, training)
    return x._update(found, "dropout") if inplace and found is not x else found


def _whole_channels(x: Tensor, p: float, training: bool, inplace: bool, name: str,
                    ranks: tuple[int, int]) -> Tensor:  # fmt: skip
    """Return `x` with whole channels set to 0; without a batch these are along the first axis."""
    check_tensor(x, name)
    if not 0 <= number(p, name) <= 1:
        raise RangeError(name, found=f"p={p}", expected="0 to 1")
    if not training or p == 0:
        return x
    lead = 1 if len(x.shape) == ranks[0] else 2
    kept = random.rand(*x.shape[:lead], *(1,) * (len(x.shape) - lead)).ge(p)
    found = kept.where(x.mul(1 / (1 - p)), 0) if p < 1 else x.mul(0)
    return x._update(found, name) if inplace else found


def dropout1d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return `x` with whole channels set to 0 with probability `p`, the rest divided by 1 - p.

    {Parameters: x:channels p training inplace}
    {Returns: of_x}
    {Raises: probability}

    Examples
    --------
    >>> weft.nn.functional.dropout1d(weft.ones(1, 2, 1), 1.0).ravel().tolist()
    [0.0, 0.0]
    """
    return _whole_channels(x, p, training, inplace, "dropout1d", (2, 3))


def dropout2d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return `x` with whole channels set to 0 with probability `p`, the rest divided by 1 - p.

    {Parameters: x:channels p training inplace}
    {Returns: of_x}
    {Raises: probability}

    Examples
    --------
    >>> weft.nn.functional.dropout2d(weft.ones(1, 2, 1, 1), 1.0).ravel().tolist()
    [0.0, 0.0]
    """
    return _whole_channels(x, p, training, inplace, "dropout2d", (0, 4))


def dropout3d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return `x` with whole channels set to 0 with probability `p`, the rest divided by 1 - p.

    {Parameters: x:channels p training inplace}
    {Returns: of_x}
    {Raises: probability}

    Examples
    --------
    >>> weft.nn.functional.dropout3d(weft.ones(1, 2, 1, 1, 1), 1.0).ravel().tolist()
    [0.0, 0.0]
    """
    return _whole_channels(x, p, training, inplace, "dropout3d", (4, 5))


def embedding(indices: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Return the rows of a table at integer indices.

    Parameters
    ----------
    indices : Tensor
        Integers of shape ``[...]``.
    weight : Tensor
        The table, of shape ``[rows, columns]``.
    padding_idx : int, optional
        A row that gets no gradient.

    Returns
    -------
    Tensor
        Shape ``[..., columns]``.

    Raises
    ------
    BoundsError
        When computed, if an index is past the table.
    DTypeError
        If the indices are no integers.

    Examples
    --------
    >>> table = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> weft.nn.functional.embedding(weft.tensor([1, 0]), table).tolist()
    [[3.0, 4.0], [1.0, 2.0]]
    """
    check_tensor(indices, "embedding"), check_tensor(weight, "embedding")
    rows = weight._slices_at(0, indices.ravel(), "embedding")
    out: Tensor = rows.reshape(*indices.shape, *weight.shape[1:])
    if padding_idx is None:
        return out
    index = padding_idx % weight.shape[0]  # its row gets no gradient
    return indices.eq(index).unsqueeze(-1).where(out.detach(), out)


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x @ weight[k] @ y + bias[k]`` for each k.

    Parameters
    ----------
    x, y : Tensor
        Shapes ``[..., in1]`` and ``[..., in2]``.
    weight : Tensor
        Shape ``[out, in1, in2]``.
    bias : Tensor, optional
        Shape ``[out]``.

    Returns
    -------
    Tensor
        Shape ``[..., out]``.

    Raises
    ------
    ShapeError
        If sizes do not agree.

    Examples
    --------
    >>> x, y, w = weft.tensor([1.0, 2.0]), weft.tensor([3.0]), weft.ones(1, 2, 1)
    >>> weft.nn.functional.bilinear(x, y, w).tolist()
    [9.0]
    """
    from weft.tensors.ops.contraction import einsum

    for t in (x, y, weight):
        check_tensor(t, "bilinear")
    out = einsum("...i,kij,...j->...k", x, weight, y)
    return out if bias is None else out.add(bias)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor,
                                 attn_mask: object = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:  # fmt: skip
    """Return ``softmax(q @ k.T * scale + mask) @ v``, with dropout on the weights.

    Parameters
    ----------
    query, key, value : Tensor
        Shapes ``[..., L, E]``, ``[..., S, E]`` and ``[..., S, V]``.
    attn_mask : Tensor, optional
        Booleans (True takes part) or floats that are added.
    dropout_p : float
        Probability with which weights are set to 0.
    {is_causal}
    scale : float, optional
        By default ``1 / sqrt(E)``.
    enable_gqa : bool
        Let groups of query heads share one key and value head.

    Returns
    -------
    Tensor
        Shape ``[..., L, V]``, in the dtype of the query.

    Raises
    ------
    ShapeError
        If shapes do not agree.

    Examples
    --------
    >>> q, k, v = weft.ones(1, 2), weft.ones(2, 2), weft.tensor([[0.0], [1.0]])
    >>> weft.nn.functional.scaled_dot_product_attention(q, k, v).tolist()
    [[0.5]]
    """
    for t in (query, key, value):
        check_tensor(t, "scaled_dot_product_attention")
    if dropout_p == 0.0:
        return query.scaled_dot_product_attention(
            key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
    weights = query.attention_weights(key, attn_mask, is_causal, scale, enable_gqa)
    weights = random.dropout(weights, dropout_p)
    shared = value._shared_heads(query, enable_gqa)
    return weights.matmul(shared.astype(weights.dtype)).astype(query.dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """Return samples of a relaxed categorical distribution (Jang et al., 2017).

    Parameters
    ----------
    logits : Tensor
        Of any shape.
    tau : float
        The temperature; samples get harder towards 0.
    hard : bool
        Whether samples are 0 and 1, with the gradient of the soft ones.
    dim : int
        The axis of the categories.

    Returns
    -------
    Tensor
        The shape of `logits`, with sums of 1 along `dim`.

    Raises
    ------
    DTypeError
        If `logits` is no tensor.

    Examples
    --------
    >>> weft.nn.functional.gumbel_softmax(weft.zeros(2, 3), hard=True).shape
    (2, 3)
    """
    check_tensor(logits, "gumbel_softmax")
    noise = random.rand(*logits.shape).maximum(math.ulp(0.5)).log().neg().log().neg()
    soft = logits.add(noise).div(tau).softmax(dim)
    if not hard:
        return soft
    picked = soft.argmax(dim).one_hot(soft.shape[dim]).astype(soft.dtype).movedim(-1, dim)
    return picked.sub(soft.detach()).add(soft)


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(name for name, value in globals().items()
                  if not name.startswith("_") and isinstance(value, FunctionType)
                  and value.__module__.startswith("weft.") and value.__module__ not in _HELPERS)


fill_docstrings(globals(), SECTIONS)
