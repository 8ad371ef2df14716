"""Losses and distances as layers: functions of two inputs, with fixed options."""

from __future__ import annotations

from typing import Any

from weft.nn import functional as F
from weft.nn.activations import Stateless
from weft.nn.sections import SECTIONS
from weft.tensors.api.tensor import Tensor
from weft.tensors.docs.documented import fill_docstrings

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CosineSimilarity", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MarginRankingLoss", "NLLLoss", "PairwiseDistance", "PoissonNLLLoss", "SmoothL1Loss",
    "TripletMarginLoss",
]  # fmt: skip


class _Loss(Stateless):
    def __init__(self, reduction: str = "mean", **options: Any) -> None:
        super().__init__(reduction=reduction, **options)
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Return nothing, as PyTorch's losses."""
        return ""


class MSELoss(_Loss, function=F.mse_loss):
    """Squared errors of a prediction and a target of one shape.

    {Parameters: reduction no_options}
    {Raises: loss}

    Examples
    --------
    >>> weft.nn.MSELoss()(weft.tensor([1.0, 4.0]), weft.tensor([1.0, 2.0])).item()
    2.0
    """


class L1Loss(_Loss, function=F.l1_loss):
    """Absolute errors of a prediction and a target of one shape.

    {Parameters: reduction no_options}
    {Raises: loss}

    Examples
    --------
    >>> weft.nn.L1Loss()(weft.tensor([1.0, 4.0]), weft.tensor([1.0, 2.0])).item()
    1.0
    """


class SmoothL1Loss(_Loss, function=F.smooth_l1_loss):
    """Errors that are squared below `beta` and absolute above, of inputs of one shape.

    Parameters
    ----------
    {reduction}
    **options
        ``beta``, 1 by default.

    {Raises: loss}

    Examples
    --------
    >>> weft.nn.SmoothL1Loss(beta=2.0)(weft.tensor([2.0]), weft.zeros(1)).item()
    1.0
    """


class HuberLoss(_Loss, function=F.huber_loss):
    """Errors that are squared below `delta` and linear above, of inputs of one shape.

    Parameters
    ----------
    {reduction}
    **options
        ``delta``, 1 by default.

    {Raises: loss}

    Examples
    --------
    >>> weft.nn.HuberLoss(delta=2.0)(weft.tensor([3.0]), weft.zeros(1)).item()
    4.0
    """


class NLLLoss(Stateless, function=F.nll_loss):
    """The negative log-likelihood of class indices.

    Input log-probabilities ``[N, C, ...]``, target integers ``[N, ...]``.

    Parameters
    ----------
    {weight:classes}
    ignore_index : int
        Targets that do not count.
    {reduction}

    {Raises: loss}

    Examples
    --------
    >>> weft.nn.NLLLoss()(weft.tensor([[-0.5, -2.0]]), weft.tensor([1])).item()
    2.0
    """

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100,
                 reduction: str = "mean") -> None:  # fmt: skip
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)


class CrossEntropyLoss(Stateless, function=F.cross_entropy):
    """The cross entropy of logits with class indices or probabilities.

    Input ``[N, C, ...]``, target integers ``[N, ...]`` or probabilities of the input's shape.

    Parameters
    ----------
    {weight:classes}
    ignore_index : int
        Class indices that do not count.
    {reduction}
    label_smoothing : float
        Share of the target that is spread over all classes, 0 to 1.

    Raises
    ------
    ShapeError, RangeError
        At a call, if shapes do not agree or an option is wrong.

    Examples
    --------
    >>> loss = weft.nn.CrossEntropyLoss()(weft.zeros(3, 4), weft.tensor([0, 1, 3]))
    >>> round(loss.item(), 4)  # the logarithm of 4
    1.3863
    """

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100,
                 reduction: str = "mean", label_smoothing: float = 0.0) -> None:  # fmt: skip
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction,
                         label_smoothing=label_smoothing)  # fmt: skip


class BCELoss(_Loss, function=F.binary_cross_entropy):
    """The cross entropy of probabilities, of inputs of one shape.

    Parameters
    ----------
    {reduction}
    **options
        ``weight``, factors of the losses.

    {Raises: loss}

    Examples
    --------
    >>> round(weft.nn.BCELoss()(weft.tensor([0.5]), weft.tensor([1.0])).item(), 4)
    0.6931
    """


class BCEWithLogitsLoss(_Loss, function=F.binary_cross_entropy_with_logits):
    """The cross entropy of the sigmoid of logits, of inputs of one shape.

    Parameters
    ----------
    {reduction}
    **options
        ``weight`` and ``pos_weight``, factors of all losses and of those of targets of 1.

    {Raises: loss}

    Examples
    --------
    >>> round(weft.nn.BCEWithLogitsLoss()(weft.tensor([0.0]), weft.tensor([1.0])).item(), 4)
    0.6931
    """


class KLDivLoss(_Loss, function=F.kl_div):
    """The Kullback-Leibler divergence of log-probabilities and probabilities of one shape.

    Parameters
    ----------
    reduction : {"mean", "batchmean", "sum", "none"}
        ``batchmean`` divides the sum by the size of axis 0.
    **options
        ``log_target``: whether the target holds logarithms.

    {Raises: loss}

    Examples
    --------
    >>> weft.nn.KLDivLoss("batchmean")(weft.tensor([[0.0]]), weft.tensor([[1.0]])).item()
    0.0
    """


class TripletMarginLoss(_Loss, function=F.triplet_margin_loss):
    """How much closer an anchor should be to its positive than to its negative example.

    Inputs ``[N, D]``: the anchor, the positive and the negative example.

    Parameters
    ----------
    margin : float
        How much closer; at least 0.
    p, eps : float
        The order of the norm, and what is added to differences.
    swap : bool
        Whether the distance of both examples counts where it is smaller.
    {reduction}

    Raises
    ------
    RangeError
        At a call, if the margin is negative.

    Examples
    --------
    >>> x, y = weft.ones(1, 2), weft.zeros(1, 2)
    >>> weft.nn.TripletMarginLoss()(x, x, y).item()
    0.0
    """

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
                 reduction: str = "mean") -> None:  # fmt: skip
        super().__init__(reduction, margin=margin, p=p, eps=eps, swap=swap)


class CosineSimilarity(Stateless, function=F.cosine_similarity):
    """The cosines of angles between vectors of two inputs of one shape.

    Parameters
    ----------
    dim : int
        The axis of the vectors.
    eps : float
        Norms below it count as `eps`.

    {Raises: fit}

    Examples
    --------
    >>> weft.nn.CosineSimilarity()(weft.ones(1, 1), weft.ones(1, 1)).tolist()
    [1.0]
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(Stateless, function=F.pairwise_distance):
    """The distances of vectors of two inputs ``[N, D]``: output ``[N]``.

    {Parameters: norm}
    {Raises: fit}

    Examples
    --------
    >>> weft.nn.PairwiseDistance()(weft.ones(1, 2), weft.ones(1, 2)).shape
    (1,)
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)


class CosineEmbeddingLoss(Stateless, function=F.cosine_embedding_loss):
    """Cosines of pairs ``[N, D]`` that should be 1 or small, by a target of 1 or -1.

    {Parameters: margin:cosine reduction}
    {Raises: fit}

    Examples
    --------
    >>> x = weft.ones(1, 2)
    >>> weft.nn.CosineEmbeddingLoss()(x, x, weft.tensor([-1.0])).round().item()
    1.0
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class MarginRankingLoss(Stateless, function=F.margin_ranking_loss):
    """Pairs of numbers in the wrong order, by a target of 1 or -1.

    Parameters
    ----------
    margin : float
        By how much they should differ.
    {reduction}

    {Raises: fit}

    Examples
    --------
    >>> a, b = weft.tensor([1.0]), weft.tensor([2.0])
    >>> weft.nn.MarginRankingLoss()(a, b, weft.tensor([1.0])).item()
    1.0
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class HingeEmbeddingLoss(Stateless, function=F.hinge_embedding_loss):
    """Distances that should be small or large, by a target of 1 or -1.

    Parameters
    ----------
    margin : float
        What large ones should reach.
    {reduction}

    {Raises: fit}

    Examples
    --------
    >>> weft.nn.HingeEmbeddingLoss()(weft.tensor([0.5]), weft.tensor([1.0])).item()
    0.5
    """

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class GaussianNLLLoss(Stateless, function=F.gaussian_nll_loss):
    """Likelihoods of values under normal distributions: means, values, variances.

    {Parameters: full eps:variance reduction}
    {Raises: fit}

    Examples
    --------
    >>> weft.nn.GaussianNLLLoss()(weft.zeros(1), weft.ones(1), weft.ones(1)).item()
    0.5
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
                 ) -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


class PoissonNLLLoss(Stateless, function=F.poisson_nll_loss):
    """Likelihoods of counts under Poisson distributions: logarithms of rates, counts.

    Parameters
    ----------
    log_input : bool
        Whether the input holds logarithms.
    full : bool
        Whether Stirling's term is added.
    {eps:rates reduction}

    {Raises: fit}

    Examples
    --------
    >>> weft.nn.PoissonNLLLoss()(weft.zeros(1), weft.ones(1)).item()
    1.0
    """

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8,
                 reduction: str = "mean") -> None:
        super().__init__(log_input=log_input, full=full, eps=eps, reduction=reduction)


fill_docstrings(globals(), SECTIONS)
