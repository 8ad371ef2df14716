"""The public function that records what runs in a block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from weft.imports import importing
from weft.tensors.core.source_positions import noted_lines

if TYPE_CHECKING:
    from weft.driver.report.profiling import Profile

__all__ = ["profile"]


@contextmanager
def profile(path: str | os.PathLike[str] | None = None, *,
            lines: bool = False) -> Iterator[Profile]:  # fmt: skip
    """Record what runs in a block: kernels, copies between devices, compilations, plans.

    Kernels are timed where they run. Those of the processor by native code around each of them,
    in whichever way they are called; those of other devices by the times that the device tells, or
    by the events of its queues. Nothing is slower while no profile is taken. Work of all threads is
    recorded, each thread's on a row of its own, and profiles may be taken inside of each other and
    on several threads at once. The end of the block waits for what was begun in it. Calls of
    `weft.critical` functions are not recorded.

    Parameters
    ----------
    path : str or path, optional
        Where to write a trace for https://ui.perfetto.dev: a process for each device, and in it a
        row for each queue and one for copies.
    lines : bool
        Whether to find the user's lines of tensor operations, too, for kernels that are planned in
        the block. It makes building graphs slower. Kernels that users write have theirs anyway.

    Returns
    -------
    context manager
        Its value has `table()` and ``str()``, a summary, `kernels()` and `copies()`, its rows, and
        `spans`, each piece of work.

    Raises
    ------
    OSError
        If the file cannot be written; before anything runs.

    Examples
    --------
    >>> with weft.profile() as p:
    ...     total = (weft.ones(1000) + 1).sum().item()
    >>> p.kernels()[0].device
    'cpu'
    """
    with importing:
        from weft.driver.report.profiling import Profile

    with ExitStack() as stack:
        if lines:
            stack.enter_context(noted_lines())
        yield stack.enter_context(Profile(path))
