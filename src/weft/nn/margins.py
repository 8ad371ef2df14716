"""Functions of margins and likelihoods: gated and shrinking activations, distances, losses."""

from __future__ import annotations

import math

from weft.errors import RangeError, ShapeError
from weft.nn.sections import SECTIONS
from weft.tensors.api.creation import full_like
from weft.tensors.api.random import rand
from weft.tensors.api.ranges import arange
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import check_tensor
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["cosine_embedding_loss", "gaussian_nll_loss", "glu", "hardshrink",
           "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
           "multilabel_margin_loss", "multilabel_soft_margin_loss", "pairwise_distance",
           "poisson_nll_loss", "rrelu", "soft_margin_loss", "softshrink", "threshold"]  # fmt: skip


def _finished(loss: Tensor, reduction: str, name: str) -> Tensor:
    loss._check_loss(name, reduction)
    return loss._finish(reduction)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """Return the first half of an axis times the sigmoid of the second.

    Parameters
    ----------
    {x}
    dim : int
        An axis of an even size.

    Returns
    -------
    Tensor
        With half the size along the axis.

    Raises
    ------
    ShapeError
        If the size is odd.

    Examples
    --------
    >>> weft.nn.functional.glu(weft.tensor([2.0, 0.0])).tolist()
    [1.0]
    """
    axis = check_tensor(x, "glu")._axis(dim, "glu")
    if x.shape[axis] % 2:
        raise ShapeError("glu", found=f"{x.shape[axis]} elements", expected="an even number")
    a, b = x.chunk(2, axis)
    return a.mul(b.sigmoid())


def rrelu(x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """Return the elements, the negative ones times slopes: drawn ones in training, else their mean.

    Parameters
    ----------
    {x}
    lower, upper : float
        The bounds of the slopes.
    training : bool
        Whether each negative element has a slope of its own.

    {Returns: of_x}

    Raises
    ------
    RangeError
        If `lower` is above `upper`.

    Examples
    --------
    >>> weft.nn.functional.rrelu(weft.tensor([-4.0, 3.0]), 0.25, 0.75).tolist()
    [-2.0, 3.0]
    """
    x = check_tensor(x, "rrelu")
    if lower > upper:
        raise RangeError("rrelu", found=f"lower={lower}, upper={upper}",
                         expected="lower up to upper")
    slope = rand(*x.shape).mul(upper - lower).add(lower) if training else (lower + upper) / 2
    return x.ge(0).where(x, x.mul(slope))


def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """Return the elements above a threshold, and a value in place of the others.

    {Parameters: x threshold}
    {Returns: of_x}
    {Raises: no_tensor}

    Examples
    --------
    >>> weft.nn.functional.threshold(weft.tensor([1.0, 3.0]), 2.0, 0.0).tolist()
    [0.0, 3.0]
    """
    return check_tensor(x, "threshold").le(threshold).where(value, x)


def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """Return the elements moved towards 0 by `lambd`, 0 where they are smaller.

    Parameters
    ----------
    {x}
    lambd : float
        At least 0.

    {Returns: of_x}

    Raises
    ------
    RangeError
        If `lambd` is negative.

    Examples
    --------
    >>> weft.nn.functional.softshrink(weft.tensor([-1.0, 0.2])).tolist()
    [-0.5, 0.0]
    """
    if lambd < 0:
        raise RangeError("softshrink", found=f"lambd={lambd}", expected="at least 0")
    x = check_tensor(x, "softshrink")
    shrunk = x.gt(lambd).where(x.sub(lambd), x.lt(-lambd).where(x.add(lambd), x))
    return x.abs().le(lambd).where(x.mul(0), shrunk)  # the slope at a NaN is 1


def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """Return the elements, 0 where they are at most `lambd` in size.

    {Parameters: x lambd}
    {Returns: of_x}
    {Raises: no_tensor}

    Examples
    --------
    >>> weft.nn.functional.hardshrink(weft.tensor([-1.0, 0.2])).tolist()
    [-1.0, 0.0]
    """
    return check_tensor(x, "hardshrink").abs().le(lambd).where(0.0, x)


def pairwise_distance(x: Tensor, y: Tensor, p: float = 2.0, eps: float = 1e-6,
                      keepdim: bool = False) -> Tensor:
    """Return the p-norms of differences along the last axis.

    Parameters
    ----------
    x, y : Tensor
        Broadcast with each other.
    {norm}

    Returns
    -------
    Tensor
        Without the last axis.

    {Raises: broadcast}

    Examples
    --------
    >>> a, b = weft.zeros(1, 2), weft.tensor([[3.0, 4.0]])
    >>> round(weft.nn.functional.pairwise_distance(a, b).item(), 3)
    5.0
    """
    return check_tensor(x, "pairwise_distance").sub(y).add(eps).norm(p, -1, keepdim)


def cosine_embedding_loss(x: Tensor, y: Tensor, target: Tensor, margin: float = 0.0,
                          reduction: str = "mean") -> Tensor:
    """Return 1 - cos where the target is 1, and cos above a margin where it is -1.

    Parameters
    ----------
    x, y : Tensor
        Shape ``[N, D]``, or ``[D]``.
    target : Tensor
        1 or -1, of shape ``[N]``, or 0-d.
    {margin:cosine reduction}

    Returns
    -------
    Tensor
        0-d, or the shape of the target.

    {Raises: agree}

    Examples
    --------
    >>> x = weft.ones(1, 2)
    >>> round(weft.nn.functional.cosine_embedding_loss(x, x, weft.tensor([-1.0])).item(), 4)
    1.0
    """
    for given in (x, y, target):
        check_tensor(given, "cosine_embedding_loss")
    cosine = x.cosine_similarity(y, -1)
    loss = target.gt(0).where(cosine.neg().add(1), cosine.sub(margin).clamp(0))
    return _finished(loss, reduction, "cosine_embedding_loss")


def margin_ranking_loss(x: Tensor, y: Tensor, target: Tensor, margin: float = 0.0,
                        reduction: str = "mean") -> Tensor:
    """Return ``max(0, -target * (x - y) + margin)``.

    Parameters
    ----------
    x, y, target : Tensor
        Of one shape; the target is 1 where `x` should be larger, else -1.
    margin : float
        By how much it should be larger.
    {reduction}

    {Returns: losses}
    {Raises: agree}

    Examples
    --------
    >>> a, b = weft.tensor([1.0]), weft.tensor([2.0])
    >>> weft.nn.functional.margin_ranking_loss(a, b, weft.tensor([1.0])).item()
    1.0
    """
    for given in (x, y, target):
        check_tensor(given, "margin_ranking_loss")
    loss = target.neg().mul(x.sub(y)).add(margin).clamp(0)
    return _finished(loss, reduction, "margin_ranking_loss")


def hinge_embedding_loss(x: Tensor, target: Tensor, margin: float = 1.0,
                         reduction: str = "mean") -> Tensor:
    """Return `x` where the target is 1, and ``max(0, margin - x)`` where it is -1.

    Parameters
    ----------
    x, target : Tensor
        Of one shape.
    margin : float
        What `x` should reach.
    {reduction}

    {Returns: losses}
    {Raises: agree}

    Examples
    --------
    >>> weft.nn.functional.hinge_embedding_loss(weft.tensor([0.5]), weft.tensor([-1.0])).item()
    0.5
    """
    for given in (x, target):
        check_tensor(given, "hinge_embedding_loss")
    near = target.eq(1).where(x, 0.0)
    far = target.eq(-1).where(x.neg().add(margin).clamp(0), 0.0)
    return _finished(near.add(far), reduction, "hinge_embedding_loss")


def soft_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return ``log(1 + exp(-target * x))``.

    Parameters
    ----------
    x, target : Tensor
        Of one shape; the target is 1 or -1.
    {reduction}

    {Returns: losses}
    {Raises: agree}

    Examples
    --------
    >>> loss = weft.nn.functional.soft_margin_loss(weft.zeros(1), weft.ones(1))
    >>> round(loss.item(), 4)
    0.6931
    """
    for given in (x, target):
        check_tensor(given, "soft_margin_loss")
    loss = target.neg().mul(x).softplus()
    return _finished(loss, reduction, "soft_margin_loss")


def _check_scores(x: Tensor, target: Tensor, shape: tuple[int, ...], name: str) -> None:
    """Raise a ShapeError unless there are scores of classes, and integers of a shape."""
    if len(x.shape) not in (1, 2) or target.shape != shape or not target.dtype.is_integer:
        raise ShapeError(name, found=f"{x.shape} and {target.dtype.name} of {target.shape}",
                         expected=f"scores [N, C] and integers of {shape}")


def multi_margin_loss(x: Tensor, target: Tensor, p: int = 1, margin: float = 1.0,
                      weight: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """Return how much other scores exceed that of the class: the mean over the classes.

    Parameters
    ----------
    x : Tensor
        Scores ``[N, C]`` or ``[C]``.
    target : Tensor
        Class indices ``[N]`` or ``[]``.
    p : int
        1 or 2, the power of what exceeds.
    margin : float
        By how much the score of the class should be the largest.
    {weight:classes reduction}

    {Returns: losses}

    Raises
    ------
    ShapeError, RangeError
        If shapes do not agree, or `p` is another number.

    Examples
    --------
    >>> x = weft.tensor([[0.0, 0.0]])
    >>> weft.nn.functional.multi_margin_loss(x, weft.tensor([1])).item()
    0.5
    """
    for given in (x, target):
        check_tensor(given, "multi_margin_loss")
    _check_scores(x, target, x.shape[:-1], "multi_margin_loss")
    if p not in (1, 2):
        raise RangeError("multi_margin_loss", found=f"p={p}", expected="1 or 2")
    own = x.gather(-1, target.unsqueeze(-1))
    over = x.sub(own).add(margin).clamp(0)
    over = over.mul(over) if p == 2 else over
    if weight is not None:
        factor = check_tensor(weight, "multi_margin_loss").index_select(0, target.ravel())
        over = over.mul(factor.reshape(*target.shape, 1))
    others = target.unsqueeze(-1).ne(arange(x.shape[-1]))
    return _finished(others.where(over, 0.0).sum(-1).div(x.shape[-1]), reduction,
                     "multi_margin_loss")


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return how much scores of other classes exceed those of the targets, with a margin of 1.

    Parameters
    ----------
    x : Tensor
        Scores ``[N, C]`` or ``[C]``.
    target : Tensor
        Class indices of the same shape; those behind the first -1 of a row do not count.
    {reduction}

    {Returns: losses}

    Raises
    ------
    ShapeError
        If shapes do not agree.

    Examples
    --------
    >>> x, target = weft.tensor([[0.0, 1.0]]), weft.tensor([[1, -1]])
    >>> weft.nn.functional.multilabel_margin_loss(x, target).item()
    0.0
    """
    for given in (x, target):
        check_tensor(given, "multilabel_margin_loss")
    _check_scores(x, target, x.shape, "multilabel_margin_loss")
    count = x.shape[-1]
    counts = target.lt(0).long().cumsum(-1).eq(0)
    safe = counts.where(target, 0)
    is_target = safe.one_hot(count).bool().logical_and(counts.unsqueeze(-1)).any(-2)
    over = x.unsqueeze(-2).sub(x.gather(-1, safe).unsqueeze(-1)).add(1).clamp(0)
    pairs = counts.unsqueeze(-1).logical_and(is_target.logical_not().unsqueeze(-2))
    return _finished(pairs.where(over, 0.0).sum((-1, -2)).div(count), reduction,
                     "multilabel_margin_loss")


def multilabel_soft_margin_loss(x: Tensor, target: Tensor, weight: Tensor | None = None,
                                reduction: str = "mean") -> Tensor:
    """Return the mean over classes of the cross entropies of logits with targets of 0 and 1.

    Parameters
    ----------
    x, target : Tensor
        Of one shape ``[..., C]``.
    {weight:classes reduction}

    {Returns: losses}
    {Raises: agree}

    Examples
    --------
    >>> loss = weft.nn.functional.multilabel_soft_margin_loss(weft.zeros(1, 2), weft.ones(1, 2))
    >>> round(loss.item(), 4)
    0.6931
    """
    for given in (x, target):
        check_tensor(given, "multilabel_soft_margin_loss")
    loss = x.binary_cross_entropy_with_logits(target, weight, reduction="none")
    return _finished(loss.mean(-1), reduction, "multilabel_soft_margin_loss")


def poisson_nll_loss(x: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
                     eps: float = 1e-8, reduction: str = "mean") -> Tensor:
    """Return the negative log-likelihood of Poisson counts, without its constant.

    Parameters
    ----------
    x, target : Tensor
        Rates or their logarithms, and counts, of one shape.
    log_input : bool
        Whether `x` holds logarithms.
    full : bool
        Whether Stirling's term for the factorial is added.
    {eps:rates reduction}

    {Returns: losses}
    {Raises: agree}

    Examples
    --------
    >>> weft.nn.functional.poisson_nll_loss(weft.zeros(1), weft.ones(1)).item()
    1.0
    """
    for given in (x, target):
        check_tensor(given, "poisson_nll_loss")
    loss = x.exp().sub(target.mul(x)) if log_input else x.sub(target.mul(x.add(eps).log()))
    if full:
        safe = target.gt(1).where(target, 1.0)
        rest = safe.mul(safe.log()).sub(safe).add(safe.mul(2 * math.pi).log().mul(0.5))
        loss = loss.add(target.gt(1).where(rest, 0.0))
    return _finished(loss, reduction, "poisson_nll_loss")


def gaussian_nll_loss(x: Tensor, target: Tensor, var: Tensor | float, full: bool = False,
                      eps: float = 1e-6, reduction: str = "mean") -> Tensor:
    """Return the negative log-likelihood of normal distributions, without its constant.

    Parameters
    ----------
    x, target : Tensor
        Means and values, of one shape.
    var : Tensor or float
        Variances of that shape; one for all, or one for each row.
    {full eps:variance reduction}

    {Returns: losses}
    {Raises: agree}

    Examples
    --------
    >>> weft.nn.functional.gaussian_nll_loss(weft.zeros(1), weft.ones(1), weft.ones(1)).item()
    0.5
    """
    for given in (x, target):
        check_tensor(given, "gaussian_nll_loss")
    if isinstance(var, int | float):
        var = full_like(x, var)
    check_tensor(var, "gaussian_nll_loss")
    if len(var.shape) == len(x.shape) - 1 and var.shape == x.shape[:-1]:
        var = var.unsqueeze(-1)
    spread = var.add(var.detach().maximum(eps).sub(var.detach()))
    loss = spread.log().add(x.sub(target).square().div(spread)).mul(0.5)
    if full:
        loss = loss.add(0.5 * math.log(2 * math.pi))
    return _finished(loss, reduction, "gaussian_nll_loss")


fill_docstrings(globals(), SECTIONS)
