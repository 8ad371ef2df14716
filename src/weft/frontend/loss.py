"""Loss functions; the tensor is the prediction."""

from __future__ import annotations

from typing import Self

from weft.errors import ShapeError
from weft.frontend.arithmetic import as_operand
from weft.frontend.norm import Normalization
from weft.frontend.promotion import broadcast_shapes

__all__ = ["Losses"]


class Losses(Normalization):
    """Losses, reduced by ``mean``, ``sum`` or not at all (``none``)."""

    __slots__ = ()

    def _finish(self, reduction: str) -> Self:
        if reduction == "none":
            return self
        if reduction == "sum":
            return self.sum()
        if reduction != "mean":
            raise ShapeError("loss", found=f"reduction={reduction!r}", expected="none, mean or sum")
        return self.mean()

    def mse_loss(self, target: object, reduction: str = "mean") -> Self:
        """Return squared errors."""
        error = self.sub(self._target(target, "mse_loss"))
        return error.mul(error)._finish(reduction)

    def _target(self, target: object, name: str) -> Self:
        found = as_operand(self, target)
        if broadcast_shapes(name, self.shape, found.shape) != self.shape and found.shape != (
            self.shape
        ):
            raise ShapeError(name, found=f"{self.shape} and {found.shape}", expected="one shape")
        return found

    def l1_loss(self, target: object, reduction: str = "mean") -> Self:
        """Return absolute errors."""
        return self.sub(self._target(target, "l1_loss")).abs()._finish(reduction)

    def smooth_l1_loss(self, target: object, reduction: str = "mean", beta: float = 1.0) -> Self:
        """Return errors that are squared below `beta` and absolute above."""
        error = self.sub(self._target(target, "smooth_l1_loss")).abs()
        if beta == 0:
            return error._finish(reduction)
        square = error.mul(error).mul(0.5 / beta)
        return error.lt(beta).where(square, error.sub(0.5 * beta))._finish(reduction)

    def huber_loss(self, target: object, reduction: str = "mean", delta: float = 1.0) -> Self:
        """Return errors that are squared below `delta` and linear above."""
        error = self.sub(self._target(target, "huber_loss")).abs()
        linear = error.sub(0.5 * delta).mul(delta)
        return error.le(delta).where(error.mul(error).mul(0.5), linear)._finish(reduction)

    def nll_loss(self, target: object, weight: object = None, ignore_index: int = -100,
                 reduction: str = "mean") -> Self:  # fmt: skip
        """Return the negative log-likelihood of class indices; classes are axis 1."""
        classes = as_operand(self, target)
        axis = 1 if len(self.shape) > 1 else 0
        expected = self.shape[:axis] + self.shape[axis + 1 :]
        if classes.shape != expected or not classes.dtype.is_integer:
            raise ShapeError("nll_loss", found=f"{classes.dtype.name} targets of {classes.shape}",
                             expected=f"integers of {expected}")
        kept = classes.ne(ignore_index)
        safe = kept.where(classes, 0)
        picked = self._gathered(axis, safe.unsqueeze(axis), "nll_loss").squeeze(axis).neg()
        if weight is not None:
            scale = as_operand(self, weight).index_select(0, safe.ravel()).reshape(safe.shape)
            scale = kept.where(scale, 0)
        else:
            scale = kept.astype(self.dtype)
        loss = kept.where(picked, 0).mul(scale)
        if reduction != "mean":
            return loss._finish(reduction)
        return loss.sum().div(scale.sum())

    def cross_entropy(self, target: object, weight: object = None, ignore_index: int = -100,
                      reduction: str = "mean", label_smoothing: float = 0.0) -> Self:  # fmt: skip
        """Return the cross entropy of logits with class indices, or with probabilities."""
        classes = as_operand(self, target)
        axis = 1 if len(self.shape) > 1 else 0
        scores = self.log_softmax(axis)
        if not classes.dtype.is_integer:
            return scores._soft_cross_entropy(classes, weight, reduction, label_smoothing, axis)
        hard = scores.nll_loss(classes, weight, ignore_index, reduction)
        if label_smoothing == 0.0:
            return hard
        kept = classes.ne(ignore_index)
        n = self.shape[axis]
        if weight is not None:
            w = as_operand(self, weight)
            shaped = w.reshape([n if a == axis else 1 for a in range(len(self.shape))])
            smooth = scores.mul(shaped).sum(axis).neg()
            safe = kept.where(classes, 0)
            scale = kept.where(w.index_select(0, safe.ravel()).reshape(safe.shape), 0)
        else:
            smooth = scores.sum(axis).neg()
            scale = kept.astype(self.dtype)
        smooth = kept.where(smooth, 0)
        soft = smooth.sum().div(scale.sum()) if reduction == "mean" else smooth._finish(reduction)
        return hard.mul(1 - label_smoothing).add(soft.mul(label_smoothing / n))

    def _soft_cross_entropy(self, target: Self, weight: object, reduction: str,
                            label_smoothing: float, axis: int) -> Self:  # fmt: skip
        if target.shape != self.shape:
            raise ShapeError("cross_entropy", found=f"{self.shape} and {target.shape}",
                             expected="class indices, or probabilities of the same shape")
        n = self.shape[axis]
        soft = target.mul(1 - label_smoothing).add(label_smoothing / n) if (
            label_smoothing) else target  # fmt: skip
        scores = self
        if weight is not None:
            scores = scores.mul(as_operand(self, weight).reshape(
                [n if a == axis else 1 for a in range(len(self.shape))]))
        loss = scores.mul(soft).sum(axis).neg()
        if reduction == "mean":
            return loss.sum().div(max(loss.numel(), 1))
        return loss._finish(reduction)

    def binary_cross_entropy(self, target: object, weight: object = None,
                             reduction: str = "mean") -> Self:  # fmt: skip
        """Return the cross entropy of probabilities; logarithms are limited to -100."""
        y = self._target(target, "binary_cross_entropy")
        yes = self.log().clamp_min(-100)
        no = self.neg().log1p().clamp_min(-100)
        loss = y.mul(yes).add(y.neg().add(1).mul(no)).neg()
        return (loss if weight is None else loss.mul(weight))._finish(reduction)

    def binary_cross_entropy_with_logits(self, target: object, weight: object = None,
                                         pos_weight: object = None, reduction: str = "mean"
                                         ) -> Self:  # fmt: skip
        """Return the cross entropy of ``sigmoid(self)``, without overflow."""
        y = self._target(target, "binary_cross_entropy_with_logits")
        soft = self.neg().clamp_min(0).add(self.abs().neg().exp().log1p())
        rest = y.neg().add(1).mul(self)
        if pos_weight is None:
            loss = rest.add(soft)
        else:
            loss = rest.add(y.mul(as_operand(self, pos_weight).sub(1)).add(1).mul(soft))
        return (loss if weight is None else loss.mul(weight))._finish(reduction)

    def kl_div(self, target: object, reduction: str = "mean", log_target: bool = False) -> Self:
        """Return the Kullback-Leibler divergence; `self` holds log-probabilities."""
        y = self._target(target, "kl_div")
        if log_target:
            loss = y.exp().mul(y.sub(self))
        else:
            entropy = y.gt(0).where(y.mul(y.gt(0).where(y, 1).log()), 0)
            loss = entropy.sub(y.mul(self))
        if reduction == "batchmean":
            return loss.sum().div(self.shape[0])
        return loss._finish(reduction)
