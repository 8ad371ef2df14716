"""Layers as functions, with PyTorch's names and order of arguments."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from weft.errors import RangeError, ShapeError
from weft.frontend import random
from weft.frontend.arguments import check_tensor
from weft.frontend.creation import tensor
from weft.frontend.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def _function(method: Callable[Concatenate[Tensor, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method as a function whose first argument is converted (arrays are copied)."""

    @functools.wraps(method)
    def call(x: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(x if isinstance(x, Tensor) else tensor(x), *args, **kwargs)

    return call


adaptive_avg_pool1d = _function(Tensor.adaptive_avg_pool1d)
adaptive_avg_pool2d = _function(Tensor.adaptive_avg_pool2d)
adaptive_max_pool2d = _function(Tensor.adaptive_max_pool2d)
avg_pool1d = _function(Tensor.avg_pool1d)
avg_pool2d = _function(Tensor.avg_pool2d)
batch_norm = _function(Tensor.batch_norm)
binary_cross_entropy = _function(Tensor.binary_cross_entropy)
binary_cross_entropy_with_logits = _function(Tensor.binary_cross_entropy_with_logits)
celu = _function(Tensor.celu)
conv1d = _function(Tensor.conv1d)
conv2d = _function(Tensor.conv2d)
conv3d = _function(Tensor.conv3d)
conv_transpose1d = _function(Tensor.conv_transpose1d)
conv_transpose2d = _function(Tensor.conv_transpose2d)
cosine_similarity = _function(Tensor.cosine_similarity)
cross_entropy = _function(Tensor.cross_entropy)
elu = _function(Tensor.elu)
gelu = _function(Tensor.gelu)
group_norm = _function(Tensor.group_norm)
hardsigmoid = _function(Tensor.hardsigmoid)
hardswish = _function(Tensor.hardswish)
hardtanh = _function(Tensor.hardtanh)
huber_loss = _function(Tensor.huber_loss)
kl_div = _function(Tensor.kl_div)
l1_loss = _function(Tensor.l1_loss)
layer_norm = _function(Tensor.layer_norm)
leaky_relu = _function(Tensor.leaky_relu)
linear = _function(Tensor.linear)
log_softmax = _function(Tensor.log_softmax)
logsigmoid = _function(Tensor.logsigmoid)
max_pool1d = _function(Tensor.max_pool1d)
max_pool2d = _function(Tensor.max_pool2d)
mish = _function(Tensor.mish)
mse_loss = _function(Tensor.mse_loss)
nll_loss = _function(Tensor.nll_loss)
normalize = _function(Tensor.normalize)
one_hot = _function(Tensor.one_hot)
pad = _function(Tensor.pad)
prelu = _function(Tensor.prelu)
relu = _function(Tensor.relu)
relu6 = _function(Tensor.relu6)
rms_norm = _function(Tensor.rms_norm)
selu = _function(Tensor.selu)
sigmoid = _function(Tensor.sigmoid)
silu = _function(Tensor.silu)
smooth_l1_loss = _function(Tensor.smooth_l1_loss)
softmax = _function(Tensor.softmax)
softmin = _function(Tensor.softmin)
softplus = _function(Tensor.softplus)
softsign = _function(Tensor.softsign)
tanh = _function(Tensor.tanh)
tanhshrink = _function(Tensor.tanhshrink)

swish = silu


def instance_norm(x: Tensor, running_mean: object = None, running_var: object = None,
                  weight: object = None, bias: object = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:  # fmt: skip
    """Return each channel of each sample shifted to mean 0 and scaled to variance 1."""
    check_tensor(x, "instance_norm")
    if not use_input_stats:
        return x.batch_norm(running_mean, running_var, weight, bias, False, momentum, eps)
    return x.instance_norm(weight, bias, eps)


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Return `x` with elements dropped with probability `p` and the rest scaled up."""
    return random.dropout(x, p, training)


def dropout2d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Return `x` with whole channels dropped with probability `p`."""
    check_tensor(x, "dropout2d")
    if not 0 <= p <= 1:
        raise RangeError("dropout2d", found=f"p={p}", expected="0 to 1")
    if not training or p == 0:
        return x
    kept = random.rand(*x.shape[:2], *(1,) * (len(x.shape) - 2)).ge(p)
    return kept.where(x.mul(1 / (1 - p)), 0) if p < 1 else x.mul(0)


def embedding(indices: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Return the rows of `weight` at integer indices; an index past the table raises."""
    check_tensor(indices, "embedding"), check_tensor(weight, "embedding")
    rows = weight._slices_at(0, indices.ravel(), "embedding")
    out: Tensor = rows.reshape(*indices.shape, *weight.shape[1:])
    if padding_idx is None:
        return out
    index = padding_idx % weight.shape[0]  # its row gets no gradient
    return indices.eq(index).unsqueeze(-1).where(out.detach(), out)


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x.T @ W[k] @ y`` for every k."""
    from weft.frontend.linear import einsum

    for t in (x, y, weight):
        check_tensor(t, "bilinear")
    out = einsum("...i,kij,...j->...k", x, weight, y)
    return out if bias is None else out.add(bias)


def interpolate(x: Tensor, scale_factor: int = 2, mode: str = "nearest") -> Tensor:
    """Return images with each pixel repeated `scale_factor` times along both axes."""
    if mode != "nearest" or not isinstance(scale_factor, int):
        raise ShapeError("interpolate", found=f"mode={mode!r}, scale_factor={scale_factor!r}",
                         expected="mode='nearest' and a whole factor")
    return check_tensor(x, "interpolate").interpolate_nearest(scale_factor)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor,
                                 attn_mask: object = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:  # fmt: skip
    """Return ``softmax(q @ k.T * scale + mask) @ v``, with dropout on the weights."""
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
    """Return samples of a relaxed categorical distribution (Jang et al., 2017)."""
    check_tensor(logits, "gumbel_softmax")
    noise = random.rand(*logits.shape).clamp_min(math.ulp(0.5)).log().neg().log().neg()
    soft = logits.add(noise).div(tau).softmax(dim)
    if not hard:
        return soft
    picked = soft.argmax(dim).one_hot(soft.shape[dim]).astype(soft.dtype).movedim(-1, dim)
    return picked.sub(soft.detach()).add(soft)
