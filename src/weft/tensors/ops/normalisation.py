"""Softmax, normalisation and attention; 16-bit floats compute in float32 and round once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self, cast

from weft.errors import DTypeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.pending import note_state
from weft.tensors.docs.documented import documented
from weft.tensors.docs.layer_sections import NORMALISATION
from weft.tensors.ops.arithmetic import as_operand
from weft.tensors.ops.convolution import Convolution

__all__ = ["Normalization"]


class Normalization(Convolution):
    """Methods that bring rows, channels or groups to one scale."""

    __slots__ = ()

    def softmax(self, dim: int = -1, *, dtype: object = None) -> Self:
        """Return ``exp(x) / sum(exp(x))`` along an axis, shifted by the maximum: no overflow."""
        if not self.shape:
            return self._row(dim, "softmax").softmax(0, dtype=dtype).reshape(())
        x, out = self._row_input("softmax", dim, dtype)
        if x.numel() == 0:
            return x.astype(out)
        e = x.sub(x.amax(dim, True).detach()).exp()
        return e.div(e.sum(dim, True)).astype(out)

    def log_softmax(self, dim: int = -1, *, dtype: object = None) -> Self:
        """Return the logarithm of the softmax along an axis, without overflow."""
        if not self.shape:
            return self._row(dim, "log_softmax").log_softmax(0, dtype=dtype).reshape(())
        x, out = self._row_input("log_softmax", dim, dtype)
        if x.numel() == 0:
            return x.astype(out)
        shifted = x.sub(x.amax(dim, True).detach())
        e = shifted.exp()
        total = e.sum(dim, True)
        found = total.log()
        if out is x.dtype:
            lost = total.detach()._lost_beside_largest(shifted.detach(), e.detach(), dim)
            found = found.add(lost)
        return shifted.sub(found).astype(out)

    def _lost_beside_largest(self, shifted: Self, e: Self, dim: int) -> Self:
        """Return what the logarithm of this sum of exponentials lost, the largest of which is 1.

        It is small where the others are, and they lose their last bits beside the 1: they are
        added up apart. Of several that are 1 the logarithm is not small.
        """
        rest = shifted.eq(0).where(0.0, e).sum(dim, True)
        lost = rest.sub(self.sub(1.0))
        return lost.abs().lt(0.5).where(lost.div(self), 0.0)

    def softmin(self, dim: int = -1) -> Self:
        """Return the softmax of the negated elements."""
        return self.neg().softmax(dim)

    def _row_input(self, name: str, dim: int, dtype: object) -> tuple[Self, dt.DType]:
        self._axis(dim, name)
        return self._float_input(name, dtype)

    def layer_norm(self, normalized_shape: int | Sequence[int], weight: object = None,
                   bias: object = None, eps: float = 1e-5) -> Self:  # fmt: skip
        """Return the last axes shifted to mean 0 and scaled to variance 1."""
        self._check_weights("layer_norm", weight, bias)
        x, axes, out = self._last_axes(normalized_shape, "layer_norm")
        centred, drift, variance = x._deviations(x.mean(axes, True), axes)
        return centred._scaled(drift, variance.add(eps).rsqrt())._affine(weight, bias).astype(out)

    def _check_weights(self, name: str, *weights: object) -> None:
        """Raise unless weights are of the input's type, or of float32 beside a narrower one."""
        for weight in weights:
            if not isinstance(weight, TensorCore) or weight.dtype is self.dtype:
                continue
            if weight.dtype is not dt.float32 or self.dtype.bits > dt.float32.bits:
                raise DTypeError(name, found=f"{self.dtype.name} and weights of "
                                 f"{weight.dtype.name}", expected="one dtype",
                                 hint="convert one of them with .to(...)")

    def _deviations(self, mean: Self, axes: tuple[int, ...]) -> tuple[Self, Self, Self]:
        """Return differences from a mean, what that lost when it was rounded, and the variance.

        The mean of the differences is the difference of the means (Chan, Golub and LeVeque, 1983).
        No gradient flows through it, for it is 0 but for rounding.
        """
        centred = self.sub(mean)
        drift = centred.mean(axes, True).detach()
        return centred, drift, centred.mul(centred).mean(axes, True).sub(drift.mul(drift))

    def _scaled(self, drift: Self, factor: Self, bias: Self | None = None) -> Self:
        """Return ``(self - drift) * factor + bias``, elements rounded once."""
        term = drift.mul(factor.detach())
        return self._mad(factor, term.neg() if bias is None else bias.sub(term))

    def rms_norm(self, normalized_shape: int | Sequence[int], weight: object = None,
                 eps: float | None = None) -> Self:  # fmt: skip
        """Return the last axes divided by their root mean square."""
        self._check_weights("rms_norm", weight)
        x, axes, out = self._last_axes(normalized_shape, "rms_norm")
        small = x.dtype.eps if eps is None else eps
        return x.mul(x.mul(x).mean(axes, True).add(small).rsqrt())._affine(weight, None).astype(out)

    def _last_axes(self, normalized_shape: int | Sequence[int], name: str
                   ) -> tuple[Self, tuple[int, ...], dt.DType]:  # fmt: skip
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(
            normalized_shape)  # fmt: skip
        n = len(shape)
        if not n or self.shape[-n:] != shape:
            raise ShapeError(name, found=f"{self.shape}", expected=f"last axes of {shape}")
        x, out = self._float_input(name)
        return x, tuple(range(len(self.shape) - n, len(self.shape))), out

    def _affine(self, weight: object, bias: object) -> Self:
        """Return ``self * weight + bias``, where given."""
        scale, shift = (None if v is None else as_operand(self, v).astype(self.dtype)
                        for v in (weight, bias))
        if scale is None:
            return self if shift is None else self.add(shift)
        return self.mul(scale) if shift is None else self._mad(scale, shift)

    def _channel(self, value: object) -> Self | None:
        """Return a vector shaped to broadcast along axis 1."""
        if value is None:
            return None
        return as_operand(self, value).reshape(-1, *(1,) * (len(self.shape) - 2))

    def batch_norm(self, running_mean: object = None, running_var: object = None,
                   weight: object = None, bias: object = None, training: bool = False,
                   momentum: float = 0.1, eps: float = 1e-5) -> Self:  # fmt: skip
        """Return channels (axis 1) shifted and scaled by batch or running statistics.

        In training the running statistics are updated in place, with the unbiased variance.
        """
        if len(self.shape) < 2:
            raise ShapeError("batch_norm", found=f"{self.shape}", expected="N C ...")
        self._check_weights("batch_norm", weight, bias, running_mean, running_var)
        if not training and (running_mean is None or running_var is None):
            raise ShapeError("batch_norm", found="no running statistics",
                             expected="both, or training=True")
        x, out = self._float_input("batch_norm")
        axes = (0, *range(2, len(self.shape)))
        if training:
            mean = x.mean(axes, True)
            centred, drift, variance = x._deviations(mean, axes)
            count = x._count(axes)
            if count <= 1:
                raise ShapeError("batch_norm", found=f"{self.shape}: one value for each channel",
                                 expected="more than one when training")
            if isinstance(running_mean, Normalization):
                running_mean.detach().lerp_(mean.detach().ravel(), momentum)
                note_state(running_mean)
            if isinstance(running_var, Normalization):
                fair = variance.detach().ravel().mul(count).div(count - 1) if isinstance(
                    count, Expr) else variance.detach().ravel().mul(count / (count - 1))
                running_var.detach().lerp_(fair, momentum)
                note_state(running_var)
        else:
            shift, spread = x._channel(running_mean), x._channel(running_var)
            centred, drift, variance = x.sub(shift), None, cast(Self, spread)
        return centred._by_channel(drift, variance.add(eps), weight, bias).astype(out)

    def _by_channel(self, drift: Self | None, spread: Self, weight: object, bias: object) -> Self:
        """Return ``(self - drift) / sqrt(spread) * weight + bias``, all of them by channel."""
        scale, shift = self._channel(weight), self._channel(bias)
        if scale is None:
            factor = spread.rsqrt()
        else:
            factor = scale.astype(spread.dtype)._over_root(spread, exact=drift is not None)
        if shift is not None:
            shift = shift.astype(factor.dtype)
        if drift is not None:
            return self._scaled(drift, factor, shift)
        return self.mul(factor) if shift is None else self._mad(factor, shift)

    def _over_root(self, square: Self, exact: bool) -> Self:
        """Return ``self / sqrt(square)``, `exact`: with what root and quotient lost added.

        No gradient flows through that, which is 0 but for rounding; where root or quotient is
        infinite, there is no such number.
        """
        root = square.sqrt()
        quotient = self.div(root)
        if not exact:
            return quotient
        lost = root._mad(root, square.neg()).mul(quotient).div(root).mul(0.5)
        lost = root._mad(quotient.neg(), self).add(lost).div(root)
        return quotient.add(lost.isfinite().where(lost, 0).detach())

    def group_norm(self, num_groups: int, weight: object = None, bias: object = None,
                   eps: float = 1e-5) -> Self:  # fmt: skip
        """Return groups of channels (axis 1) shifted to mean 0 and scaled to variance 1."""
        num_groups = infer.as_int(num_groups, "group_norm")
        if len(self.shape) < 2 or num_groups < 1 or self.shape[1] % num_groups:
            raise ShapeError("group_norm", found=f"{self.shape} in {num_groups} groups",
                             expected="channels that divide into groups")
        self._check_weights("group_norm", weight, bias)
        x, out = self._float_input("group_norm")
        groups = x.reshape(self.shape[0], num_groups, -1)
        centred, drift, variance = groups._deviations(groups.mean(-1, True), (-1,))
        scaled = centred._scaled(drift, variance.add(eps).rsqrt()).reshape(self.shape)
        return scaled._affine(x._channel(weight), x._channel(bias)).astype(out)

    def instance_norm(self, weight: object = None, bias: object = None, eps: float = 1e-5
                      ) -> Self:  # fmt: skip
        """Return each channel of each sample shifted to mean 0 and scaled to variance 1."""
        return self.group_norm(self.shape[1] if len(self.shape) > 1 else 0, weight, bias, eps)

    def scaled_dot_product_attention(self, key: object, value: object, attn_mask: object = None,
                                     dropout_p: float = 0.0, is_causal: bool = False,
                                     scale: float | None = None, enable_gqa: bool = False
                                     ) -> Self:  # fmt: skip
        """Return ``softmax(q @ k.T * scale + mask) @ v`` over the last two axes; q is `self`."""
        k, v = as_operand(self, key), as_operand(self, value)
        name = "scaled_dot_product_attention"
        shapes = (self.shape, k.shape, v.shape)
        if min(map(len, shapes)) < 2 or self.shape[-1] != k.shape[-1] or (
            k.shape[-2] != v.shape[-2]
        ):
            raise ShapeError(name, found=f"q {self.shape}, k {k.shape}, v {v.shape}",
                             expected="[..., L, E], [..., S, E], [..., S, V]")
        if dropout_p:
            raise ShapeError(name, found=f"dropout_p={dropout_p}", expected="0 for this method",
                             hint="use weft.nn.functional.scaled_dot_product_attention")
        weights = self.attention_weights(k, attn_mask, is_causal, scale, enable_gqa)
        shared = v._shared_heads(self, enable_gqa)
        return weights.matmul(shared.astype(weights.dtype)).astype(self.dtype)

    def attention_weights(self, key: object, attn_mask: object = None, is_causal: bool = False,
                          scale: float | None = None, enable_gqa: bool = False
                          ) -> Self:  # fmt: skip
        """Return the softmax of the scaled, masked scores of queries (this tensor) and keys."""
        k = as_operand(self, key)._shared_heads(self, enable_gqa)
        q, _ = self._float_input("scaled_dot_product_attention")
        factor = 1 / math.sqrt(max(self.shape[-1], 1)) if scale is None else scale
        keys = k.astype(q.dtype).transpose(-2, -1)
        # products of narrow factors are exact
        scores = (q.mul(factor).matmul(keys) if q.dtype is self.dtype
                  else q.matmul(keys).mul(factor))
        rows, columns = scores.shape[-2:]
        if is_causal:
            shape = (rows, columns)
            i = infer.expand(infer.reshape(infer.iota(rows), (rows, 1)), shape)
            seen = infer.elementwise(Op.LE, infer.expand(infer.iota(columns), shape), i)
            scores = self._wrap(seen).where(scores, -math.inf)
        if attn_mask is not None:
            mask = as_operand(self, attn_mask)
            if mask.dtype.is_bool:
                scores = mask.where(scores, -math.inf)
            else:
                scores = scores.add(mask.astype(scores.dtype))
            return scores._masked_softmax()
        return scores.softmax(-1)

    def _masked_softmax(self) -> Self:
        """Return the softmax of the last axis, 0 where a whole row is minus infinity."""
        if self.numel() == 0:
            return self
        top = self.amax(-1, True).detach()
        e = self.sub(top.eq(-math.inf).where(0.0, top)).exp()
        total = e.sum(-1, True)
        return e.div(total.eq(0).where(1.0, total))

    def _shared_heads(self, query: Normalization, enable_gqa: bool) -> Self:
        """Return keys or values with each head repeated for its group of query heads."""
        if not enable_gqa or len(self.shape) < 3 or self.shape[-3] == query.shape[-3]:
            return self
        heads, wanted = self.shape[-3], query.shape[-3]
        if wanted % heads:
            raise ShapeError("scaled_dot_product_attention",
                             found=f"{wanted} query heads for {heads} key heads",
                             expected="a multiple")
        return self.repeat_interleave(wanted // heads, -3)


documented(Normalization, NORMALISATION)
