"""`weft.tune`: search for faster schedules of the kernels of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.capture.jit import Jitted
from weft.capture.pytree import rebuild
from weft.errors import DTypeError
from weft.tensors.core.arguments import describe
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.tensor_value import realize_all

if TYPE_CHECKING:
    from weft.driver.tuning.tune_kernels import Tuned

__all__ = ["tune"]


def tune(function: Callable[..., Any], /, *args: Any, seconds: float | None = None,
         **kwargs: Any) -> list[Tuned]:  # fmt: skip
    """Search for faster schedules of the kernels that a call of a function is compiled to.

    The function is called once. Each kernel is then tuned by itself, in other processes and on
    arrays of their own: candidates are compiled, checked against the default, and timed in turn
    with it. What is found is kept on disk, and everything compiled afterwards uses it, in this
    process and in later ones with the same device and number of threads; a jitted function that
    was called before keeps the code it has. Results change by no more than another order of a sum.

    Parameters
    ----------
    function : callable
        What to compute; if it is jitted, the function behind it is called.
    *args, **kwargs
        Its arguments.
    seconds : float, optional
        Time for all kernels together; by default ``WEFT_TUNE_SECONDS`` (30) for each.

    Returns
    -------
    list of Tuned
        For each kernel ``kind``, seconds ``before`` and ``after``, ``gain``, ``trials`` and
        ``choices``.

    Raises
    ------
    DTypeError
        If `function` cannot be called.
    TuningError
        If all its kernels are for devices whose launches cannot be timed.

    Examples
    --------
    >>> found = weft.tune(lambda x: x @ x.T, weft.ones(64, 64), seconds=20.0)  # doctest: +SKIP
    >>> [(kernel.kind, kernel.gain) for kernel in found]  # doctest: +SKIP
    """
    from weft.driver import counters
    from weft.driver.plans import plan_cache
    from weft.driver.tuning import tune_kernels

    if not callable(function):
        raise DTypeError("tune", found=describe(function), expected="a function and its arguments")
    with counters.record() as recording:
        plain = function
        if isinstance(function, Jitted):
            plain = getattr(function, "__wrapped__", function)
        results: list[TensorCore] = []
        rebuild(plain(*args, **kwargs), results.append)
        realize_all(results)
    found = list(tune_kernels.tune_program(recording, seconds))
    plan_cache.forget()
    return found
