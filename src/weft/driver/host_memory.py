"""Memory of this process for tensors, and native calls of captured functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.driver.context import context, host_context
from weft.errors import CopyError
from weft.imports import importing
from weft.runtimes.base import driving

if TYPE_CHECKING:
    from weft.runtimes.memory.buffer import Buffer
    from weft.runtimes.native.calls.dispatch import Dispatcher

__all__ = ["allocate", "dispatcher", "first_bytes", "from_host", "memory_limit", "to_host"]


def allocate(nbytes: int) -> Buffer:
    """Return a pooled buffer of at least `nbytes` in the memory of this process.

    Raises
    ------
    AllocationError
        If the memory is not to be had; what was there before is intact.
    """
    return host_context().native.pool.allocate(nbytes)


def to_host(buffer: Any) -> Buffer:
    """Return a copy of a buffer of any device in the memory of this process."""
    made = allocate(max(buffer.nbytes, 1))
    view = made.view()[: buffer.nbytes]
    context(buffer.device).runtime.pool.pool_to_host(buffer, view)
    return made


def first_bytes(buffer: Any, nbytes: int) -> Any:
    """Return a new buffer on the same device with the first bytes of a buffer."""
    runtime = context(buffer.device).runtime
    made = runtime.pool.allocate(max(nbytes, 1))
    # Other queues may still write one, and use what was in the memory of the other before.
    waits = [e.share() for b in (made, buffer) for e in getattr(b, "uses", ()) if not e.done]
    with driving(buffer.device, CopyError):
        event = runtime.queue.copy(made, buffer, nbytes, waits)
    for held in (made, buffer):
        if not held.in_process:
            held.used(event)
    return made


def memory_limit() -> int:
    """Return how many bytes the pool may take from the system."""
    return host_context().native.pool.limit


def from_host(address: int, nbytes: int, owner: Any, readonly: bool = False) -> Buffer:
    """Return foreign memory as a buffer that keeps its owner alive."""
    from weft.runtimes.memory.buffer import Buffer

    return Buffer.foreign(address, nbytes, owner, readonly)


def dispatcher(tensor: type, function: type, state: object) -> Dispatcher | None:
    """Return the native calls of captured functions; None where the interpreter allows none.

    Parameters
    ----------
    tensor, function
        The classes of results and of captured functions.
    state
        The thread-local object that says whether gradients are recorded.
    """
    with importing:
        from weft.runtimes.native.calls.dispatch import Host

    return host_context().native.dispatcher(Host(tensor, function, state))
