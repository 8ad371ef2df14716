"""``@weft.compute``: loop nests that the compiler maps to threads and vectors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

from weft.errors import KernelError, outermost
from weft.imports import importing
from weft.lang.compute.ranges import ndrange

if TYPE_CHECKING:
    from weft.lang.compute.function import ComputeFunction

__all__ = ["compute", "ndrange"]


@overload
def compute(function: Callable[..., Any]) -> ComputeFunction: ...
@overload
def compute(*, kind: str = ..., device: str = ..., workgroup: int | tuple[int, ...] | None = ...,
            shared: str | tuple[str, ...] = ..., tile: int | tuple[int, ...] | None = ...,
            hints: Mapping[str, Any] | None = ..., vectorizable: bool | None = ...,
            parallel: bool | None = ..., unchecked: bool = ...,
            ) -> Callable[[Callable[..., Any]], ComputeFunction]: ...  # fmt: skip
@outermost
def compute(function: Callable[..., Any] | None = None, *, kind: str = "custom",
            device: str = "auto", workgroup: int | tuple[int, ...] | None = None,
            shared: str | tuple[str, ...] = (), tile: int | tuple[int, ...] | None = None,
            hints: Mapping[str, Any] | None = None, vectorizable: bool | None = None,
            parallel: bool | None = None, unchecked: bool = False) -> Any:  # fmt: skip
    """Make a function of loops over arrays, which the compiler maps to threads and vectors.

    ::

        @weft.compute
        def matmul(a, b, out):
            for i, j in weft.ndrange(a.shape[0], b.shape[1]):
                s = 0.0
                for k in range(a.shape[1]):
                    s += a[i, k] * b[k, j]
                out[i, j] = s

        matmul(a, b, out)        # results are written to arguments

    The function runs once. Its loops may be shared out, reordered and turned into vectors where
    dependence analysis proves that nothing changes but the order of the terms of sums, products,
    minima and maxima; ``matmul.explain(a, b, out)`` tells what became of each. Arguments are those
    of kernels. Numbers in the source have no type of their own: they take that of what they meet.
    An index is checked; one below 0 is out of bounds. If a call fails, what it wrote before stays.

    Parameters
    ----------
    kind
        What the loops are, which is then checked: ``elementwise``, ``reduce``, ``matmul``,
        ``conv2d``, ``attention``, ``flash_attention``, ``scan``, ``sort``; ``custom`` is anything.
    device
        Where it runs; ``auto`` is the default device.
    workgroup, tile
        Sizes along the outermost axes of each nest: of what a thread (on a GPU a block) does at a
        time, and of the pieces of that which registers or the nearest memory hold.
    shared
        Arguments of which the part that a tile reads is copied to near memory first.
    hints
        ``vector_width`` and ``unroll`` (numbers), ``tensor_cores``, ``coalesced`` and
        ``async_copy`` (True to insist).
    vectorizable, parallel
        True to insist on vectors, False for none; False for one thread.
    unchecked
        Do not check indices: one that is out of bounds may do anything.

    Raises
    ------
    KernelError
        If an annotation means nothing; one that the loops cannot follow is an error of the first
        call.
    """
    with importing:
        from weft.lang.compute.annotations import check_signature, checked_annotations
        from weft.lang.compute.function import Native

    made = checked_annotations(kind=kind, device=device, workgroup=workgroup, shared=shared,
                               tile=tile, hints=hints, vectorizable=vectorizable,
                               parallel=parallel, unchecked=unchecked)

    @outermost
    def make(given: Callable[..., Any]) -> ComputeFunction:
        if not inspect.isfunction(given):
            raise KernelError("compute", found=repr(given), expected="a function")
        check_signature(given, made)
        made_of: ComputeFunction = Native(given, made)
        return made_of

    return make if function is None else make(function)
