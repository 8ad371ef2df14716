"""Launches on devices with memory of their own: tensors where they are, host arrays as copies.

Arrays of the host are copied to the device before the launch, and back after it where the kernel
writes to them. Those that overlap are one copy, so that what is written by one name is read by the
other, too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.ir.size import evaluate
from weft.lang.launch.tensors import Distant
from weft.lang.launch.variants import failure
from weft.runtimes.base import View

if TYPE_CHECKING:
    from collections.abc import Container

    from weft.driver.context import Context
    from weft.driver.launch import Failed, LoadedOnDevice
    from weft.ir.stmt import Memory
    from weft.lang.launch.marshal import Host
    from weft.lang.launch.protocol import Launched

__all__ = ["device_memory", "launch_on_device", "run_on_device"]

_ALIGNMENT: Final = 64  # of what is copied, as it is in the memory that it comes from


class _Span(NamedTuple):
    """Memory of the host that arguments lie in."""

    start: int
    end: int
    written: bool


def launch_on_device(launch: Launched, host: Host, loaded: LoadedOnDevice) -> None:
    """Run a launch on a device, and wait for it.

    Parameters
    ----------
    launch
        The kernel with its grid.
    host
        Its arguments.
    loaded
        The kernel for them, on the device.
    """
    host.distant = Distant()
    with host.turn(loaded.written) as host.alone, host:
        host.resolve(loaded.written)
        failed = run_on_device(host, host.addresses, loaded)
        host.finish()
    if failed is not None:
        raise failure(launch.kernel.__name__, failed, launch)


def run_on_device(host: Host, addresses: Sequence[int], loaded: LoadedOnDevice) -> Failed | None:
    """Run a kernel on memory at some addresses; return what stopped it, if anything did.

    Parameters
    ----------
    host
        The arguments, which know what addresses of memory of devices stand for.
    addresses
        One for each memory of the kernel.
    loaded
        The kernel.
    """
    with device_memory(host, addresses, loaded.params, loaded.written, loaded.context) as memory:
        return loaded.run(memory, [host.variables[name] for name in loaded.variables])


@contextmanager
def device_memory(host: Host, addresses: Sequence[int], params: Sequence[Memory],
                  written: Container[str], context: Context) -> Iterator[list[View]]:  # fmt: skip
    """Have the arguments of kernels in memory of a device; what is written is copied back.

    Parameters
    ----------
    host
        The arguments, which know what addresses of memory of devices stand for.
    addresses
        One for each memory of the kernels.
    params, written
        These memories, and the names of those that the kernels write to.
    context
        The device.
    """
    values, distant = host.variables, host.distant or Distant()
    sizes = [evaluate(m.size, values) * m.dtype.itemsize for m in params]
    places = [distant.place(address) for address in addresses]
    spans = _spans([(address, address + size, m.name in written)
                    for address, size, place, m in zip(addresses, sizes, places, params,
                                                       strict=True) if place is None])
    pool = context.runtime.pool
    copies: list[tuple[_Span, Any]] = []
    for span in spans:
        held = pool.allocate(span.end - span.start + _ALIGNMENT)
        pool.host_to_pool(_bytes(span), View(held, span.start % _ALIGNMENT))
        copies.append((span, held))
    yield [place or (_view(copies, address) if size else View(pool.allocate(1)))
           for place, address, size in zip(places, addresses, sizes, strict=True)]
    for span, held in copies:
        if span.written:
            pool.pool_to_host(View(held, span.start % _ALIGNMENT), _bytes(span))


def _spans(ranges: list[tuple[int, int, bool]]) -> list[_Span]:
    """Return the memory of arguments, as parts of which no two overlap."""
    found: list[_Span] = []
    for start, end, written in sorted(r for r in ranges if r[0] < r[1]):
        if found and start < found[-1].end:
            last = found.pop()
            found.append(_Span(last.start, max(end, last.end), written or last.written))
        else:
            found.append(_Span(start, end, written))
    return found


def _view(copies: list[tuple[_Span, Any]], start: int) -> View:
    """Return where the copy of an argument lies."""
    for span, held in copies:
        if span.start <= start < span.end:
            return View(held, span.start % _ALIGNMENT + start - span.start)
    raise AssertionError(f"no copy of {start:#x}")


def _bytes(span: _Span) -> memoryview:
    """Return memory of the host to copy from or to."""
    return memoryview((ctypes.c_char * (span.end - span.start)).from_address(span.start)).cast("B")
