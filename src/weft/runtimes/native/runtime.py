"""What a device offers whose kernels are machine code of this process."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from weft.runtimes.base import Device, Library, ObjectLoader
from weft.runtimes.memory.pool import Pool
from weft.runtimes.native.executor.native import Executor, NativePlan, Step

if TYPE_CHECKING:
    from weft.runtimes.native.calls.dispatch import Dispatcher, Host

__all__ = ["NativeRuntime"]


class NativeRuntime(Device, Protocol):
    """A device whose memory is that of this process, and whose kernels are called by address."""

    @property
    def pool(self) -> Pool:
        """Its memory."""
        ...

    @property
    def loader(self) -> ObjectLoader:
        """What links objects into this process."""
        ...

    @property
    def executor(self) -> Executor:
        """What makes its plans."""
        ...

    @property
    def thread_count(self) -> int:
        """Threads that a parallel region uses at most."""
        ...

    def prepare(self, here: bool = False) -> None:
        """Make its own code on the side, if no cache has it."""
        ...

    def link(self, objects: bytes | Sequence[bytes], symbols: Iterable[str],
             keep: tuple[object, ...] = ()) -> Library:  # fmt: skip
        """Link kernel objects, whose parallel regions run on its threads."""
        ...

    def program(self, binary: bytes, name: str, nbuffers: int, nvariables: int = 0) -> Any:
        """Load one kernel."""
        ...

    def stops(self) -> dict[str, int]:
        """Return what kernels with loops that may never end are linked with."""
        ...

    def plan(self, steps: Sequence[Step], ninputs: int, noutputs: int, arena_bytes: int = 0,
             nvariables: int = 0, release_gil: bool = False, keep: Sequence[object] = (),
             interruptible: int | None = None, groups: Sequence[tuple[int, int, bool]] = ()
             ) -> NativePlan:  # fmt: skip
        """Return a plan that runs steps by one native call."""
        ...

    def dispatcher(self, host: "Host") -> "Dispatcher | None":
        """Return the code that calls captured functions natively; None where it cannot be."""
        ...

    def support(self, text: str, symbols: Sequence[str], imports: Mapping[str, int]) -> Library:
        """Load code that serves the front end, compiled or from the cache."""
        ...
