"""Random tensors: uniform, normal, integers, permutations, dropout, draws by weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import RangeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Dim, Node
from weft.tensors.api.generator import (
    Generator,
    default_generator,  # noqa: F401 - users find it here
    initial_seed,
    integers,
    manual_seed,
    normal_numbers,
    permutation,
    stream_of,
    uniform_numbers,
)
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import check_tensor, count_of, number, place_of
from weft.tensors.core.axis_names import takes_axis
from weft.tensors.core.devices import moved
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.docs.documented import fill_docstrings
from weft.tensors.ops.movement import ints

__all__ = ["Generator", "bernoulli", "dropout", "initial_seed", "manual_seed", "multinomial",
           "normal", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
           "randperm", "uniform"]  # fmt: skip


def _prepare(size: tuple[Any, ...], dtype: object, device: object, name: str
             ) -> tuple[tuple[int, ...], Dim, DType, str]:  # fmt: skip
    place = place_of(device, name)
    shape = infer.check_shape(ints(size), name)
    count = nd.size(shape)
    kind = dt.float32 if dtype is None else dt.as_dtype(dtype)
    return shape, count, kind, place  # type: ignore[return-value]


def _give(node: Node, shape: Sequence[int], requires_grad: bool, place: str = "") -> Tensor:
    node = infer.reshape(node, shape)
    out = Tensor._from_node(moved(node, place))
    return out.requires_grad_() if requires_grad else out


@takes_axis
def rand(*size: Any, generator: Generator | None = None, dtype: object = None,
         device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return uniform random numbers in [0, 1).

    {Parameters: size generator dtype:random options:rest}

    Returns
    -------
    Tensor
        Of shape `size`; multiples of 2**-24 for float32, each equally likely.

    {Raises: random}

    Examples
    --------
    >>> weft.rand(2, 3).shape
    (2, 3)
    """
    shape, count, kind, place = _prepare(size, dtype, device, "rand")
    _check_float(kind, "rand")
    return _give(uniform_numbers(stream_of(generator), count, kind), shape, requires_grad, place)


@takes_axis
def uniform(*size: Any, low: float = 0.0, high: float = 1.0, generator: Generator | None = None,
            dtype: object = None, device: object = None, requires_grad: bool = False
            ) -> Tensor:  # fmt: skip
    """Return uniform random numbers in [low, high).

    Parameters
    ----------
    {size}
    low, high : float
        The bounds.
    {generator dtype:random options:rest}

    {Returns: of_size}
    {Raises: random}

    Examples
    --------
    >>> bool(weft.uniform(100, low=2.0, high=3.0).ge(2.0).all())
    True
    """
    out = rand(*size, generator=generator, dtype=dtype, device=device).mul(high - low).add(low)
    return out.requires_grad_() if requires_grad else out


@takes_axis
def randn(*size: Any, generator: Generator | None = None, dtype: object = None,
          device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
    """Return random numbers of the standard normal distribution (Box and Muller).

    Parameters
    ----------
    {size}
    generator, dtype, device, requires_grad
        As for `rand`.

    {Returns: of_size}
    {Raises: random}

    Examples
    --------
    >>> weft.randn(2, 3).shape
    (2, 3)
    """
    shape, count, kind, place = _prepare(size, dtype, device, "randn")
    _check_float(kind, "randn")
    return _give(normal_numbers(stream_of(generator), count, kind), shape, requires_grad, place)


@takes_axis
def normal(mean: Any = 0.0, std: Any = 1.0, size: Sequence[int] | None = None, *,
           generator: Generator | None = None, dtype: object = None, device: object = None
           ) -> Tensor:  # fmt: skip
    """Return normal random numbers with a mean and a standard deviation.

    Parameters
    ----------
    mean, std : float or Tensor
        Broadcast to the shape.
    size : sequence of int, optional
        The shape; by default that of the first tensor given, or 0-d.
    generator, dtype
        As for `rand`.
    device : str, optional
        Where the tensor lies; where the tensors among `mean` and `std` do if left out.

    Returns
    -------
    Tensor
        Of shape `size`, broadcast with `mean` and `std`.

    Raises
    ------
    RangeError
        If the dtype is no float type of at least 16 bits, or `std` is a negative number.

    Examples
    --------
    >>> weft.normal(weft.zeros(3), 2.0).shape
    (3,)
    """
    if isinstance(std, int | float) and std < 0:
        raise RangeError("normal", found=f"std={std}", expected="at least 0")
    given = [v for v in (mean, std) if isinstance(v, TensorCore)]
    if size is None:
        size = given[0].shape if given else ()
    if device is None and given:
        device = given[0].device
    return randn(*size, generator=generator, dtype=dtype, device=device).mul(std).add(mean)


def _check_float(kind: DType, name: str) -> None:
    if not kind.is_float or kind.is_storage_only:
        raise RangeError(name, found=kind.name, expected="a float type of 16 to 64 bits")


@takes_axis
def randint(low: int, high: int | Sequence[int] | None = None, size: Any = None, *,
            generator: Generator | None = None, dtype: object = None, device: object = None
            ) -> Tensor:  # fmt: skip
    """Return random integers from `low` (0 if left out) up to but not including `high`.

    Parameters
    ----------
    low, high : int
        The bounds; ``randint(high, size)`` leaves out the first.
    {size:one generator:rand dtype:int64 device:new}

    Returns
    -------
    Tensor
        Of shape `size`; each value's share is off by at most 2**-12 of it.

    Raises
    ------
    RangeError
        If `high` is not above `low`, or a value does not fit `dtype`.

    Examples
    --------
    >>> weft.randint(5, 6, (2, 2)).tolist()
    [[5, 5], [5, 5]]
    """
    if size is None and not isinstance(high, int):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    shape, count, _, place = _prepare((size,) if size is not None else ((),), None, device,
                                      "randint")
    kind = dt.int64 if dtype is None else dt.as_dtype(dtype)
    if not isinstance(high, int) or high <= low:
        raise RangeError("randint", found=f"{low} to {high}", expected="low below high")
    for value in (low, high - 1):
        dt.check_value(value, kind, "randint")
    span = high - low
    if span >= 1 << 64:
        raise RangeError("randint", found=f"{span} values", expected="fewer than 2**64")
    node = integers(stream_of(generator), count, low, span)
    return _give(infer.cast(node, kind), shape, False, place)


def randperm(n: int, *, generator: Generator | None = None, dtype: object = None,
             device: object = None) -> Tensor:  # fmt: skip
    """Return the integers 0 to n - 1 in random order (sorted by 64 random bits each).

    {Parameters: n:whole generator:rand dtype:int64 device:new}

    Returns
    -------
    Tensor
        Shape ``[n]``.

    Raises
    ------
    RangeError
        If ``n - 1`` does not fit `dtype`.

    Examples
    --------
    >>> weft.randperm(4).sort(0).values.tolist()
    [0, 1, 2, 3]
    """
    place, n = place_of(device, "randperm"), count_of(n, "randperm", 0)
    kind = dt.int64 if dtype is None else dt.as_dtype(dtype)
    if n and not kind.is_float:
        dt.check_value(n - 1, kind, "randperm")
    return _give(infer.cast(permutation(stream_of(generator), n), kind), (n,), False, place)


def rand_like(like: TensorCore, *, dtype: object = None) -> Tensor:
    """Return uniform random numbers in [0, 1) with the shape and type of another tensor.

    {Parameters: like dtype:rand}
    {Returns: of_like}
    {Raises: random}

    Examples
    --------
    >>> weft.rand_like(weft.ones(2, 3)).shape
    (2, 3)
    """
    check_tensor(like, "rand_like")
    return rand(*like.shape, dtype=like.dtype if dtype is None else dtype, device=like._home())


def randn_like(like: TensorCore, *, dtype: object = None) -> Tensor:
    """Return standard normal random numbers with the shape and type of another tensor.

    {Parameters: like dtype:rand}
    {Returns: of_like}
    {Raises: random}

    Examples
    --------
    >>> weft.randn_like(weft.ones(2, 3)).shape
    (2, 3)
    """
    check_tensor(like, "randn_like")
    return randn(*like.shape, dtype=like.dtype if dtype is None else dtype, device=like._home())


@takes_axis
def randint_like(like: TensorCore, low: int, high: int | None = None) -> Tensor:
    """Return random integers with the shape and type of another tensor.

    Parameters
    ----------
    like : Tensor
        Gives shape and dtype.
    low, high : int
        The bounds as for `randint`; `high` itself is left out.

    Returns
    -------
    Tensor
        Of the shape and dtype of `like`.

    Raises
    ------
    RangeError
        If `high` is not above `low`, or a value does not fit the dtype.

    Examples
    --------
    >>> weft.randint_like(weft.zeros(2), 3, 4).tolist()
    [3.0, 3.0]
    """
    check_tensor(like, "randint_like")
    return randint(low, high, like.shape, dtype=like.dtype, device=like._home())


def bernoulli(p: Any, *, generator: Generator | None = None) -> Tensor:
    """Return 1 with the probability that each element of `p` gives, else 0.

    Parameters
    ----------
    p : Tensor
        Probabilities in [0, 1].
    {generator:rand}

    Returns
    -------
    Tensor
        Of the shape and dtype of `p`.

    Raises
    ------
    DTypeError
        If `p` is no tensor.

    Examples
    --------
    >>> weft.bernoulli(weft.tensor([0.0, 1.0])).tolist()
    [0.0, 1.0]
    """
    check_tensor(p, "bernoulli")
    draws = rand(*p.shape, generator=generator, device=p._home())
    result: Tensor = draws.lt(p).astype(p.dtype)
    return result


def dropout(x: Tensor, p: float = 0.5, training: bool = True,
            generator: Generator | None = None) -> Tensor:  # fmt: skip
    """Return `x` with each element set to 0 with probability `p`, and the rest divided by 1 - p.

    Parameters
    ----------
    {x}
    p : float
        0 to 1.
    training : bool
        False returns `x` itself.
    {generator:rand}

    {Returns: of_x}

    Raises
    ------
    RangeError
        If `p` is not 0 to 1.

    Examples
    --------
    >>> weft.random.dropout(weft.ones(2), 1.0).tolist()
    [0.0, 0.0]
    """
    check_tensor(x, "dropout")
    p = number(p, "dropout")
    if not 0 <= p <= 1:
        raise RangeError("dropout", found=f"p={p}", expected="0 to 1")
    if not training or p == 0:
        return x
    if p == 1:
        return x.mul(0)
    kept = rand(*x.shape, generator=generator).ge(p)
    return kept.where(x.mul(1 / (1 - p)), 0)


def multinomial(weights: Tensor, num_samples: int, replacement: bool = False, *,
                generator: Generator | None = None) -> Tensor:  # fmt: skip
    """Return indices of the last axis, drawn with probability proportional to the weights.

    Parameters
    ----------
    weights : Tensor
        Shape ``[..., n]``, at least 0; they need not sum to 1.
    num_samples : int
        Draws for each row; at most `n` without replacement.
    replacement : bool
        Whether an index may be drawn again.
    {generator:rand}

    Returns
    -------
    Tensor
        int64 of shape ``[..., num_samples]``.

    Raises
    ------
    DTypeError
        If the weights are no tensor.

    Examples
    --------
    >>> weft.multinomial(weft.tensor([0.0, 1.0]), 3, replacement=True).tolist()
    [1, 1, 1]
    """
    check_tensor(weights, "multinomial")
    if not replacement:  # the largest of log(u) / w (Efraimidis and Spirakis, 2006)
        keys = rand(*weights.shape, generator=generator).add(2.0**-25).log().div(weights)
        found: Tensor = keys.topk(num_samples, -1).indices
        return found
    total = weights.float().cumsum(-1)
    shape = (*weights.shape[:-1], num_samples)
    draws = rand(*shape, generator=generator).mul(total.select(-1, -1).unsqueeze(-1))
    below: Tensor = total.unsqueeze(-2).le(draws.unsqueeze(-1)).sum(-1)
    return below.minimum(weights.shape[-1] - 1)


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(__all__)


fill_docstrings(globals())
