"""``weft.interpret`` and ``weft.sanitize``: kernels on the interpreter device."""

from __future__ import annotations

from typing import Any

from weft.errors import KernelError, outermost
from weft.imports import importing
from weft.lang.launch.launch import Configured, KernelFunction
from weft.lang.launch.sanitizer_report import Report

__all__ = ["Report", "interpret", "sanitize"]

Size = int | tuple[int, ...]


class Interpreted:
    """A kernel and the shape of its launch on the interpreter device."""

    __slots__ = ("_launch", "_native", "_sanitise", "_seed", "_steps")

    def __init__(self, launch: Configured, sanitise: bool, seed: int | None, steps: int | None,
                 native: bool = False) -> None:  # fmt: skip
        self._launch, self._sanitise, self._seed, self._steps = launch, sanitise, seed, steps
        self._native = native

    @outermost  # the way through the interpreter is of no use to anybody
    def __call__(self, *args: Any) -> Any:
        """Run the kernel; return a `Report` if it is sanitised, else nothing."""
        if self._native:
            with importing:
                from weft.lang.launch.checked_launch import checked_launch

            return checked_launch(self._launch, args)
        found = self._launch.carry_out(args, sanitise=self._sanitise, seed=self._seed,
                                       steps=self._steps)
        return Report(*found.values()) if self._sanitise else None


def _configured(kernel: Any, grid: Size, block: Size, shared: int) -> Configured:
    if not isinstance(kernel, KernelFunction):
        raise KernelError("sanitize", found=repr(kernel), expected="a function under @weft.kernel")
    return kernel[grid, block, None, shared]


@outermost
def interpret(kernel: Any, grid: Size, block: Size, *, shared: int = 0, seed: int | None = None,
              steps: int | None = None) -> Interpreted:  # fmt: skip
    """Return a kernel as the interpreter device runs it: ``weft.interpret(k, grid, block)(...)``.

    All threads of a block go in step, one statement after another, with the exact meaning of every
    operation. It is slow, needs no compiler, and fails with the errors of a native launch.

    Parameters
    ----------
    kernel
        A function under `weft.kernel`.
    grid, block, shared
        As for a launch.
    seed
        Runs the blocks in an order that this number chooses; None for the natural order.
    steps
        How many statements may be carried out before a `LaunchError` says that the kernel does not
        end; None for ten million.
    """
    return Interpreted(_configured(kernel, grid, block, shared), False, seed, steps)


@outermost
def sanitize(kernel: Any, grid: Size, block: Size, *, shared: int = 0, seed: int | None = None,
             steps: int | None = None, native: bool = False) -> Interpreted:  # fmt: skip
    """Return a kernel that reports what it does wrong: ``weft.sanitize(k, grid, block)(...)``.

    The call runs the kernel on the interpreter device, on the arguments themselves, and returns a
    `Report`. It finds races in shared and global memory and missing barriers, reads of what nothing
    has written, indices out of bounds, barriers that not all threads of a block reach, wrong masks
    of warp operations, and assertions that fail.

    Parameters
    ----------
    kernel, grid, block, shared, seed, steps
        As for `interpret`.
    native
        Run compiled code into which the cheap checks are written: indices out of bounds, barriers
        that not all threads reach, reads of shared and local arrays that nothing has written,
        misaligned accesses and assertions. It is fast, knows no races, and stops at the first
        finding that is not about a value that was never written.

    Examples
    --------
    >>> report = weft.sanitize(saxpy, 4, 256)(2.0, x, y)  # doctest: +SKIP
    >>> report.findings  # doctest: +SKIP
    ()
    """
    launch = _configured(kernel, grid, block, shared)
    return Interpreted(launch, True, seed, steps, native)
