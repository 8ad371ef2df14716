"""A kernel and the shape of its launch, as the ways to carry a launch out see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from weft.ir.stmt import Kernel
from weft.lang.launch.options import Options
from weft.lang.values.types import KernelType

if TYPE_CHECKING:
    from weft.lang.launch.marshal import Host
    from weft.lang.launch.signature import Signature
    from weft.runtimes.lockstep.run import Outcome

__all__ = ["Launched", "LaunchedKernel"]


class LaunchedKernel(Protocol):
    """A kernel function: see `weft.lang.launch.launch.KernelFunction`."""

    __name__: str
    __weft_function__: Callable[..., Any]
    options: Options
    waits: bool
    functions: tuple[str, ...]

    @property
    def _signature(self) -> Signature: ...

    def _nest_of(self, types: dict[str, KernelType], launch: Launched, warp: int,
                 sanitised: bool = False) -> tuple[Kernel, list[Any]]: ...  # fmt: skip


class Launched(Protocol):
    """A kernel with the shape of a launch: see `weft.lang.launch.launch.Configured`."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    ndim: int
    shared: int

    @property
    def kernel(self) -> LaunchedKernel:
        """What is launched."""

    def take(self, args: tuple[Any, ...]) -> Host:
        """Return what a launch with some arguments passes."""

    def carry_out(self, args: tuple[Any, ...]) -> Outcome:
        """Run the launch on the interpreter device."""

    def run_compiled(self, args: tuple[Any, ...]) -> None:
        """Run the compiled kernel."""
