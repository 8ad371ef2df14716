"""Functions of margins and likelihoods: gated and shrinking activations, distances, losses."""

from __future__ import annotations

import math

from weft.errors import RangeError, ShapeError
from weft.nn.sections import SECTIONS
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import check_tensor
from weft.tensors.docs.documented import fill_docstrings

__all__ = [
    "cosine_embedding_loss",
    "gaussian_nll_loss",
    "glu",
    "hardshrink",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "pairwise_distance",
    "poisson_nll_loss",
    "soft_margin_loss",
    "softshrink",
    "threshold",
]


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
    return x.gt(lambd).where(x.sub(lambd), x.lt(-lambd).where(x.add(lambd), x.mul(0)))


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


def gaussian_nll_loss(x: Tensor, target: Tensor, var: Tensor, full: bool = False,
                      eps: float = 1e-6, reduction: str = "mean") -> Tensor:
    """Return the negative log-likelihood of normal distributions, without its constant.

    Parameters
    ----------
    x, target, var : Tensor
        Means, values and variances, of one shape.
    {full eps:variance reduction}

    {Returns: losses}
    {Raises: agree}

    Examples
    --------
    >>> weft.nn.functional.gaussian_nll_loss(weft.zeros(1), weft.ones(1), weft.ones(1)).item()
    0.5
    """
    for given in (x, target, var):
        check_tensor(given, "gaussian_nll_loss")
    spread = var.add(var.detach().maximum(eps).sub(var.detach()))
    loss = spread.log().add(x.sub(target).square().div(spread)).mul(0.5)
    if full:
        loss = loss.add(0.5 * math.log(2 * math.pi))
    return _finished(loss, reduction, "gaussian_nll_loss")


fill_docstrings(globals(), SECTIONS)
