"""Loss functions as methods of the prediction."""

from __future__ import annotations

from typing import Final, Self

from weft.errors import DTypeError, RangeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.tensors.core.arguments import check_rank, describe, number
from weft.tensors.core.promotion import broadcast_shapes
from weft.tensors.core.thread_state import state
from weft.tensors.docs.documented import documented
from weft.tensors.docs.layer_sections import LOSS
from weft.tensors.ops.arithmetic import as_operand
from weft.tensors.ops.normalisation import Normalization

__all__ = ["Losses"]

_LEAST_SHARE: Final = 1e-12  # below it, slopes of logarithms of probabilities are as at it


class Losses(Normalization):
    """Losses, reduced by ``mean``, ``sum`` or not at all (``none``)."""

    __slots__ = ()

    def _finish(self, reduction: str) -> Self:
        if reduction == "none":
            return self
        return self.sum() if reduction == "sum" else self.mean()

    def _check_loss(self, name: str, reduction: object, integers: bool = False) -> None:
        """Raise an error for a reduction that there is not, or for elements that are no floats."""
        known = ("none", "mean", "sum", "batchmean")[: 4 if name == "kl_div" else 3]
        if reduction not in known:
            raise ShapeError(name, found=f"reduction={describe(reduction)}",
                             expected=" or ".join(known))
        if not (self.dtype.is_float or integers):
            raise DTypeError(name, found=self.dtype.name, expected="a float type",
                             hint="convert with .float()")

    def mse_loss(self, target: object, reduction: str = "mean") -> Self:
        """Return squared errors."""
        self._check_loss("mse_loss", reduction)
        error = self.sub(self._target(target, "mse_loss"))
        return error.mul(error)._finish(reduction)

    def triplet_margin_loss(self, positive: object, negative: object, margin: float = 1.0,
                            p: float = 2.0, eps: float = 1e-6, swap: bool = False,
                            reduction: str = "mean") -> Self:  # fmt: skip
        """Return ``max(d(self, positive) - d(self, negative) + margin, 0)``."""
        name = "triplet_margin_loss"
        self._check_loss(name, reduction)
        if margin < 0:
            raise RangeError(name, found=f"margin={margin}", expected="at least 0")
        near, far = self._target(positive, name), self._target(negative, name)

        def distance(a: Self, b: Self) -> Self:
            return a.sub(b).add(eps).norm(p, -1)

        away = distance(self, far)
        if swap:
            away = away.minimum(distance(near, far))
        return distance(self, near).sub(away).add(margin).clamp(0)._finish(reduction)

    def _target(self, target: object, name: str) -> Self:
        found = as_operand(self, target)
        if broadcast_shapes(name, self.shape, found.shape) != self.shape and found.shape != (
            self.shape
        ):
            raise ShapeError(name, found=f"{self.shape} and {found.shape}", expected="one shape")
        return found

    def l1_loss(self, target: object, reduction: str = "mean") -> Self:
        """Return absolute errors."""
        self._check_loss("l1_loss", reduction, integers=reduction != "mean")
        return self.sub(self._target(target, "l1_loss")).abs()._finish(reduction)

    def smooth_l1_loss(self, target: object, reduction: str = "mean", beta: float = 1.0) -> Self:
        """Return errors that are squared below `beta` and absolute above."""
        self._check_loss("smooth_l1_loss", reduction)
        error = self.sub(self._target(target, "smooth_l1_loss")).abs()
        if number(beta, "smooth_l1_loss") < 0:
            raise RangeError("smooth_l1_loss", found=f"beta={beta}", expected="at least 0")
        if beta == 0:
            return error._finish(reduction)
        square = error.mul(error).mul(0.5 / beta)
        return error.lt(beta).where(square, error.sub(0.5 * beta))._finish(reduction)

    def huber_loss(self, target: object, reduction: str = "mean", delta: float = 1.0) -> Self:
        """Return errors that are squared below `delta` and linear above."""
        self._check_loss("huber_loss", reduction)
        if not number(delta, "huber_loss") > 0:
            raise RangeError("huber_loss", found=f"delta={delta}", expected="above 0")
        error = self.sub(self._target(target, "huber_loss")).abs()
        linear = error.sub(0.5 * delta).mul(delta)
        return error.le(delta).where(error.mul(error).mul(0.5), linear)._finish(reduction)

    def nll_loss(self, target: object, weight: object = None, ignore_index: int = -100,
                 reduction: str = "mean") -> Self:  # fmt: skip
        """Return the negative log-likelihood of class indices; classes are axis 1."""
        self._check_loss("nll_loss", reduction)
        check_rank(self, 1, "nll_loss")
        classes = as_operand(self, target)
        axis = 1 if len(self.shape) > 1 else 0
        expected = self.shape[:axis] + self.shape[axis + 1 :]
        if classes.shape != expected or not classes.dtype.is_integer:
            raise ShapeError("nll_loss", found=f"{classes.dtype.name} targets of {classes.shape}",
                             expected=f"integers of {expected}")
        factors = None if weight is None else self._class_factors(weight, axis, "nll_loss")
        kept = classes.ne(ignore_index)
        safe = kept.where(classes, 0)
        picked = self._gathered(axis, safe.unsqueeze(axis), "nll_loss").squeeze(axis).neg()
        if factors is not None:
            scale = factors.index_select(0, safe.ravel()).reshape(safe.shape)
            scale = kept.where(scale, 0)
        else:
            scale = kept.astype(self.dtype)
        loss = kept.where(picked, 0).mul(scale)
        if reduction != "mean":
            return loss._finish(reduction)
        return loss.sum().div(scale.sum())

    def _class_factors(self, weight: object, axis: int, name: str) -> Self:
        """Return factors of classes, one for each.

        Raises
        ------
        ShapeError
            If there are more or fewer.
        """
        found = as_operand(self, weight)
        if not infer.same_shape(found.shape, (self.shape[axis],)):
            raise ShapeError(name, found=f"a weight of shape {found.shape}",
                             expected=f"one for each of {self.shape[axis]} classes")
        return found

    def cross_entropy(self, target: object, weight: object = None, ignore_index: int = -100,
                      reduction: str = "mean", label_smoothing: float = 0.0) -> Self:  # fmt: skip
        """Return the cross entropy of logits with class indices, or with probabilities."""
        self._check_loss("cross_entropy", reduction)
        label_smoothing = number(label_smoothing, "cross_entropy")
        if not 0 <= label_smoothing <= 1:
            raise RangeError("cross_entropy", found=f"label_smoothing={label_smoothing}",
                             expected="0 to 1")
        check_rank(self, 1, "cross_entropy")
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
            scores = scores.mul(self._class_factors(weight, axis, "cross_entropy").reshape(
                [n if a == axis else 1 for a in range(len(self.shape))]))
        loss = scores.mul(soft).sum(axis).neg()
        if reduction == "mean":
            return loss.sum().div(loss.numel())
        return loss._finish(reduction)

    def binary_cross_entropy(self, target: object, weight: object = None,
                             reduction: str = "mean") -> Self:  # fmt: skip
        """Return the cross entropy of probabilities; logarithms are limited to -100."""
        self._check_loss("binary_cross_entropy", reduction)
        y = self._target(target, "binary_cross_entropy")
        yes, no = self._log_of_share(False), self._log_of_share(True)
        loss = y.mul(yes).add(y.neg().add(1).mul(no)).neg()
        return (loss if weight is None else loss.mul(weight))._finish(reduction)

    def _log_of_share(self, rest: bool) -> Self:
        """Return the logarithm of these shares (or of their `rest`), at least -100.

        Its slope is at most 1e12, as PyTorch's, so that it is a number at 0, too.
        """
        if not (self._requires_grad and state.grad):
            return (self.neg().log1p() if rest else self.log()).maximum(-100)
        share = self.neg().add(1) if rest else self
        least = max(_LEAST_SHARE, dt.FloatInfo(self.dtype).tiny)
        small = share.lt(least)
        inner = small.where(0.0 if rest else 1.0, self)
        limited = share.detach().log().maximum(-100)
        line = share.sub(share.detach()).mul(1 / least).add(limited)
        return small.where(line, inner.neg().log1p() if rest else inner.log())

    def binary_cross_entropy_with_logits(self, target: object, weight: object = None,
                                         pos_weight: object = None, reduction: str = "mean"
                                         ) -> Self:  # fmt: skip
        """Return the cross entropy of ``sigmoid(self)``, without overflow."""
        self._check_loss("binary_cross_entropy_with_logits", reduction)
        y = self._target(target, "binary_cross_entropy_with_logits")
        opposite = self.neg()
        size = self._sided(self.abs(), self, opposite)
        soft = self._sided(opposite.maximum(0), 0.0, opposite).add(size.neg().exp().log1p())
        rest = y.neg().add(1).mul(self)
        if pos_weight is None:
            loss = rest.add(soft)
        else:
            loss = rest.add(y.mul(as_operand(self, pos_weight).sub(1)).add(1).mul(soft))
        return (loss if weight is None else loss.mul(weight))._finish(reduction)

    def kl_div(self, target: object, reduction: str = "mean", log_target: bool = False) -> Self:
        """Return the Kullback-Leibler divergence; this tensor holds log-probabilities."""
        self._check_loss("kl_div", reduction)
        check_rank(self, int(reduction == "batchmean"), "kl_div")
        y = self._target(target, "kl_div")
        if log_target:
            loss = y.exp().mul(y.sub(self))
        else:
            entropy = y.gt(0).where(y.mul(y.gt(0).where(y, 1).log()), 0)
            loss = entropy.sub(y.mul(self))
        if reduction == "batchmean":
            return loss.sum().div(self.shape[0])
        return loss._finish(reduction)


documented(Losses, LOSS)
