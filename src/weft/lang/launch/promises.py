"""What the decorator of a kernel may promise, and what breaks it."""

from __future__ import annotations

from typing import Any

from weft.errors import DeviceError, KernelError
from weft.ir.stmt import Kernel, Print
from weft.ir.traverse import walk

__all__ = ["check_nest", "promises"]


def promises(critical_path: Any, no_allocation: Any, inline_always: Any,
             gpu_compute: Any) -> dict[str, Any]:  # fmt: skip
    """Return what is promised, as it is kept with the kernel.

    Raises
    ------
    KernelError
        For what no kernel can promise.
    DeviceError
        If a GPU is asked for and there is none.
    """
    given = {"critical_path": critical_path, "no_allocation": no_allocation,
             "inline_always": inline_always, "gpu_compute": gpu_compute}  # fmt: skip
    for name, value in given.items():
        if type(value) is not bool:
            raise KernelError("kernel", found=f"{name}={value!r}", expected="True or False")
    if not inline_always:
        raise KernelError("kernel", found="inline_always=False",
                          expected="True: the body of a device function takes the place of a call")
    if gpu_compute:
        raise DeviceError("kernel", found="gpu_compute=True, and no GPU that runs kernels",
                          expected="a GPU", hint="leave it out: then the default device runs it")
    if critical_path:
        given["no_allocation"] = True
    return {name: True for name in ("critical_path", "no_allocation") if given[name]}


def check_nest(nest: Kernel) -> None:
    """Check that a kernel keeps what its hints promise.

    Raises
    ------
    KernelError
        With the line that breaks it.
    """
    if not dict(nest.meta.hints).get("no_allocation"):
        return
    for stmt in walk(nest.body):
        if isinstance(stmt, Print):
            place = nest.locations.get(stmt)
            raise KernelError(f"kernel {nest.name}", found="print, which may allocate memory",
                              expected="no allocation, as no_allocation or critical_path promises",
                              where=None if place is None else (place.file, place.line))
