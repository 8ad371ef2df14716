"""What a launch is made of: its loop-level kernel, and the errors that its failures are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.driver.context import Context, context
from weft.errors import AllocationError, BoundsError, DeviceError, raised, said, strayed
from weft.ir.position import in_thread
from weft.lang.launch.promises import check_nest
from weft.lang.source.closures import names_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.driver.launch import Failed
    from weft.ir.stmt import Kernel
    from weft.lang.launch.marshal import Host
    from weft.lang.launch.protocol import Launched, LaunchedKernel
    from weft.lang.values.types import KernelType

__all__ = ["failure", "place_of", "translated", "translated_function"]


def translated(kernel: LaunchedKernel, types: dict[str, KernelType], launch: Launched,
               warp: int = 32, sanitised: bool = False) -> tuple[Kernel, list[Any]]:  # fmt: skip
    """Return the loop-level kernel of a launch, and the arrays that it knows from outside."""
    return kernel._nest_of(types, launch, warp, sanitised)


def translated_function(kernel: LaunchedKernel, types: dict[str, KernelType], launch: Launched,
                        warp: int, sanitised: bool) -> tuple[Kernel, list[Any]]:  # fmt: skip
    """Return that of a function under `weft.kernel`, with what its decorator says."""
    from weft.lang.reader.translate import GridNeeded, Launch, translate

    options = kernel.options
    constants: list[Any] = []
    functions: dict[str, None] = {}

    def made(grid: tuple[int, int, int] | None) -> Kernel:
        constants.clear()
        shape = Launch(launch.block, launch.ndim, launch.shared, grid, warp)
        return translate(kernel.__weft_function__, types, shape, wraps=options.wraps,
                         checked=options.checked or sanitised, sanitised=sanitised,
                         fma=options.fma, strict=options.strict, constants=constants,
                         functions=functions)

    try:
        nest = made(launch.grid if kernel.waits else None)
    except GridNeeded:
        kernel.waits = True
        nest = made(launch.grid)
    kernel.functions = tuple(functions)
    meta = nest.meta.replace(fastmath=options.fastmath,
                             hints=(*nest.meta.hints, *options.hints))
    nest = nest.replace(meta=meta)
    check_nest(nest)
    return nest, constants


def failure(name: str, failed: Failed, launch: Launched | None = None,
            functions: Sequence[Any] = ()) -> Exception:  # fmt: skip
    """Return the error of a launch that a kernel stopped.

    Parameters
    ----------
    name, failed
        What was called, and what it said.
    launch
        Tells the thread that stopped it.
    functions
        Those that were compiled, by default that of the launch: they know the program's exceptions.
    """
    place = failed.place
    where = None if place is None else (place.file, place.line)
    if failed.message == "index out of bounds":
        return BoundsError(name, found=f"index {failed.value}",
                           expected=f"an index from 0 to {failed.bound - 1}", where=where)
    stray = strayed(failed.message, failed.value, failed.bound, where)
    if stray is not None:
        return stray
    if failed.message == "no memory for local arrays":
        return AllocationError(name, found=f"no memory for {failed.value} bytes of local arrays",
                               hint="those in use over a barrier are kept for all threads of a "
                               "block: smaller arrays, or smaller blocks, need less")
    message = said(failed.message)
    if launch is not None and failed.value > 0:
        message += in_thread(failed.value - 1, launch.grid, launch.block)
    known = names_of(*functions or (getattr(launch, "kernel", None),))
    return raised(failed.message, known)(name, found=message, where=where)


def place_of(host: Host, wanted: str) -> Context:
    """Return where a call runs: where its tensors are, else on the device that is wanted.

    Raises
    ------
    DeviceError
        If tensors are on several devices, on another than the one that is wanted, or on one that
        computes nothing.
    """
    found = dict.fromkeys(tensor.device for _, _, tensor in host.tensors)
    if wanted != "auto":
        found[context(wanted).name] = None
    if len(found) > 1:
        raise DeviceError(f"launch of {host.kernel}", found=f"memory of {' and '.join(found)}",
                          expected="tensors on one device", hint="move them, as in x.to(...)")
    place = context(*found)
    if not place.backend.computes:
        raise DeviceError(f"launch of {host.kernel}", found=f"memory of {place.name}",
                          expected="tensors on a device that computes",
                          hint="copy them there first, as in x.to('cpu')")
    return place
