"""Losses and distances as layers: functions of two inputs, with fixed options."""

from __future__ import annotations

from typing import Any, ClassVar

from weft.nn import functional as F
from weft.nn.sections import SECTIONS
from weft.nn.stateless import Stateless
from weft.tensors.api.tensor import Tensor
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CosineSimilarity",
           "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss",
           "L1Loss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss",
           "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PairwiseDistance",
           "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss"]  # fmt: skip


class _Function(Stateless):
    """A function of two inputs, whose options `repr` does not show, as PyTorch's."""

    _inputs: ClassVar[tuple[str, ...]] = ("input", "target")
    _tensors = ("weight", "pos_weight")

    def extra_repr(self) -> str:
        """Return nothing."""
        return ""


class _Loss(_Function):
    def __init__(self, reduction: str = "mean", **options: Any) -> None:
        super().__init__(reduction=reduction, **options)


class _PlainLoss(_Loss):
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class MSELoss(_PlainLoss, function=F.mse_loss):
    """Squared errors of a prediction and a target of one shape.

    {Parameters: reduction}
    {Raises: loss}

    Examples
    --------
    >>> weft.nn.MSELoss()(weft.tensor([1.0, 4.0]), weft.tensor([1.0, 2.0])).item()
    2.0
    """


class L1Loss(_PlainLoss, function=F.l1_loss):
    """Absolute errors of a prediction and a target of one shape.

    {Parameters: reduction}
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
    beta : float
        Where errors begin to be absolute.

    {Raises: loss}

    Examples
    --------
    >>> weft.nn.SmoothL1Loss(beta=2.0)(weft.tensor([2.0]), weft.zeros(1)).item()
    1.0
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction, beta=beta)


class HuberLoss(_Loss, function=F.huber_loss):
    """Errors that are squared below `delta` and linear above, of inputs of one shape.

    Parameters
    ----------
    {reduction}
    delta : float
        Where errors begin to be linear.

    {Raises: loss}

    Examples
    --------
    >>> weft.nn.HuberLoss(delta=2.0)(weft.tensor([3.0]), weft.zeros(1)).item()
    4.0
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction, delta=delta)


class NLLLoss(_Function, function=F.nll_loss):
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


class CrossEntropyLoss(_Function, function=F.cross_entropy):
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
    weight : Tensor, optional
        Factors of the losses.
    {reduction}

    {Raises: loss}

    Examples
    --------
    >>> round(weft.nn.BCELoss()(weft.tensor([0.5]), weft.tensor([1.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)


class BCEWithLogitsLoss(_Loss, function=F.binary_cross_entropy_with_logits):
    """The cross entropy of the sigmoid of logits, of inputs of one shape.

    Parameters
    ----------
    weight, pos_weight : Tensor, optional
        Factors of all losses, and of those of targets of 1.
    {reduction}

    {Raises: loss}

    Examples
    --------
    >>> round(weft.nn.BCEWithLogitsLoss()(weft.tensor([0.0]), weft.tensor([1.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean",
                 pos_weight: Tensor | None = None) -> None:  # fmt: skip
        super().__init__(reduction, weight=weight, pos_weight=pos_weight)


class KLDivLoss(_Loss, function=F.kl_div):
    """The Kullback-Leibler divergence of log-probabilities and probabilities of one shape.

    Parameters
    ----------
    reduction : {"mean", "batchmean", "sum", "none"}
        ``batchmean`` divides the sum by the size of axis 0.
    log_target : bool
        Whether the target holds logarithms.

    {Raises: loss}

    Examples
    --------
    >>> weft.nn.KLDivLoss("batchmean")(weft.tensor([[0.0]]), weft.tensor([[1.0]])).item()
    0.0
    """

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction, log_target=log_target)


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

    _inputs = ("anchor", "positive", "negative")

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
                 reduction: str = "mean") -> None:  # fmt: skip
        super().__init__(reduction, margin=margin, p=p, eps=eps, swap=swap)


class CosineSimilarity(_Function, function=F.cosine_similarity):
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

    _inputs = ("x1", "x2")

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(_Function, function=F.pairwise_distance):
    """The distances of vectors of two inputs ``[N, D]``: output ``[N]``.

    {Parameters: norm}
    {Raises: fit}

    Examples
    --------
    >>> weft.nn.PairwiseDistance()(weft.ones(1, 2), weft.ones(1, 2)).shape
    (1,)
    """

    _inputs = ("x1", "x2")

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)


class CosineEmbeddingLoss(_Function, function=F.cosine_embedding_loss):
    """Cosines of pairs ``[N, D]`` that should be 1 or small, by a target of 1 or -1.

    {Parameters: margin:cosine reduction}
    {Raises: fit}

    Examples
    --------
    >>> x = weft.ones(1, 2)
    >>> weft.nn.CosineEmbeddingLoss()(x, x, weft.tensor([-1.0])).round().item()
    1.0
    """

    _inputs = ("input1", "input2", "target")

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class MarginRankingLoss(_Function, function=F.margin_ranking_loss):
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

    _inputs = ("input1", "input2", "target")

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class HingeEmbeddingLoss(_Function, function=F.hinge_embedding_loss):
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


class GaussianNLLLoss(_Function, function=F.gaussian_nll_loss):
    """Likelihoods of values under normal distributions: means, values, variances.

    {Parameters: full eps:variance reduction}
    {Raises: fit}

    Examples
    --------
    >>> weft.nn.GaussianNLLLoss()(weft.zeros(1), weft.ones(1), weft.ones(1)).item()
    0.5
    """

    _inputs = ("input", "target", "var")

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
                 ) -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


class PoissonNLLLoss(_Function, function=F.poisson_nll_loss):
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


class SoftMarginLoss(_PlainLoss, function=F.soft_margin_loss):
    """``log(1 + exp(-target * x))``, of a prediction and a target of 1 or -1.

    {Parameters: reduction}
    {Raises: fit}

    Examples
    --------
    >>> round(weft.nn.SoftMarginLoss()(weft.zeros(1), weft.ones(1)).item(), 4)
    0.6931
    """


class MultiMarginLoss(_Loss, function=F.multi_margin_loss):
    """How much other scores exceed that of the class, of scores ``[N, C]`` and class indices.

    Parameters
    ----------
    p : int
        1 or 2, the power of what exceeds.
    margin : float
        By how much the score of the class should be the largest.
    {weight:classes reduction}

    {Raises: fit}

    Examples
    --------
    >>> weft.nn.MultiMarginLoss()(weft.tensor([[0.0, 0.0]]), weft.tensor([1])).item()
    0.5
    """

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
                 reduction: str = "mean") -> None:  # fmt: skip
        super().__init__(reduction, p=p, margin=margin, weight=weight)


class MultiLabelMarginLoss(_PlainLoss, function=F.multilabel_margin_loss):
    """How much scores ``[N, C]`` of other classes exceed those of the targets.

    A row of targets ``[N, C]`` lists class indices, up to the first -1.

    {Parameters: reduction}
    {Raises: fit}

    Examples
    --------
    >>> x, target = weft.tensor([[0.0, 1.0]]), weft.tensor([[1, -1]])
    >>> weft.nn.MultiLabelMarginLoss()(x, target).item()
    0.0
    """


class MultiLabelSoftMarginLoss(_Loss, function=F.multilabel_soft_margin_loss):
    """The mean over classes of the cross entropies of logits ``[N, C]`` with targets of 0 and 1.

    Parameters
    ----------
    {weight:classes reduction}

    {Raises: fit}

    Examples
    --------
    >>> loss = weft.nn.MultiLabelSoftMarginLoss()(weft.zeros(1, 2), weft.ones(1, 2))
    >>> round(loss.item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)


fill_docstrings(globals(), SECTIONS)
