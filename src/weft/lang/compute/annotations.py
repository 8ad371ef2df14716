"""What a user says of a compute function beside its loops, and what comes of it.

Everything has an effect or is an error: a kind is checked against what the loops are, wishes are
checked against the schedule, and a device that is not there is one that cannot be used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from weft.driver.context import context
from weft.errors import DeviceError, KernelError
from weft.imports import importing
from weft.ir.record import Record
from weft.lang.launch.resources import HINTS, KINDS
from weft.tensors.core.devices import get_default_device, is_available

if TYPE_CHECKING:
    from weft.ir.stmt import Kernel
    from weft.lang.compute.report import Report

__all__ = ["HINTS", "KINDS", "Annotations", "check_made", "check_signature",
           "checked_annotations"]

_MOST_AXES: Final = 3


class Annotations(Record):
    """What stands in ``@weft.compute(...)``; see there."""

    kind: str = "custom"
    device: str = "auto"
    workgroup: tuple[int, ...] = ()
    shared: tuple[str, ...] = ()
    tile: tuple[int, ...] = ()
    hint: tuple[tuple[str, Any], ...] = ()
    vectorizable: bool | None = None
    parallel: bool | None = None
    unchecked: bool = False

    def resolved(self) -> str:
        """Return the device that a call runs on."""
        if self.device == "auto":
            found = get_default_device()
        else:
            found = self.device
            if not is_available(found):
                raise DeviceError("compute", found=f"device {found!r}", expected="one that is "
                                  "there", hint="weft.devices() names them")
        if not context(found).backend.computes:
            raise DeviceError("compute", found=f"device {found!r}", expected="one that computes")
        return found

    def hints(self) -> tuple[tuple[str, Any], ...]:
        """Return what is kept with the kernel, the wishes of which its strategy meets."""
        with importing:
            from weft.strategies.user_requests import PREFIX

        found: list[tuple[str, Any]] = []
        if self.kind != "custom":
            found.append(("kind", self.kind))
        wishes: dict[str, Any] = {"workgroup": self.workgroup, "tile": self.tile,
                                  "shared": self.shared, **dict(self.hint)}
        wishes = {k: v for k, v in wishes.items() if v}
        if self.vectorizable is not None:
            wishes["vectors"] = self.vectorizable
        if self.parallel is not None:
            wishes["threads"] = self.parallel
        return (*found, *((PREFIX + k, v) for k, v in wishes.items()))


def checked_annotations(**given: Any) -> Annotations:
    """Return annotations, checked as far as they can be without loops.

    Raises
    ------
    KernelError
        If one means nothing.
    """
    kind, device = given.get("kind", "custom"), given.get("device", "auto")
    if kind not in KINDS:
        raise KernelError("compute", found=f"kind={kind!r}", expected=", ".join(KINDS))
    if not isinstance(device, str) or not device:
        raise KernelError("compute", found=f"device={device!r}", expected="the name of a device")
    hint = given.get("hints") or {}
    if not isinstance(hint, Mapping):
        raise KernelError("compute", found=f"hints={hint!r}", expected="a dict")
    for name, value in hint.items():
        if name not in HINTS:
            raise KernelError("compute", found=f"the hint {name!r}", expected=", ".join(HINTS))
        wanted = HINTS[name]
        if type(value) is not wanted or (wanted is int and value not in range(2, 65)):
            raise KernelError("compute", found=f"the hint {name}={value!r}",
                              expected="2 to 64" if wanted is int else "True or False")
    shared = given.get("shared") or ()
    shared = (shared,) if isinstance(shared, str) else shared
    if not isinstance(shared, tuple | list) or not all(isinstance(name, str) for name in shared):
        raise KernelError("compute", found=f"shared={shared!r}", expected="names of arguments")
    for name in ("vectorizable", "parallel", "unchecked"):
        if not isinstance(given.get(name), bool | None):
            raise KernelError("compute", found=f"{name}={given[name]!r}",
                              expected="True or False")
    return Annotations(kind, device, _sizes(given.get("workgroup"), "workgroup"), tuple(shared),
                       _sizes(given.get("tile"), "tile"), tuple(hint.items()),
                       given.get("vectorizable"), given.get("parallel"),
                       given.get("unchecked", False))


def _sizes(given: Any, what: str) -> tuple[int, ...]:
    if given is None:
        return ()
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(parts) <= _MOST_AXES or not all(
            type(n) is int and 1 <= n <= 1024 for n in parts):
        raise KernelError("compute", found=f"{what}={given!r}",
                          expected=f"up to {_MOST_AXES} sizes from 1 to 1024")
    return parts


def check_signature(function: Callable[..., Any], made: Annotations) -> None:
    """Check that shared arrays are arguments of a function.

    Raises
    ------
    KernelError
        If one is not.
    """
    names = inspect.signature(function).parameters
    for name in made.shared:
        if name not in names:
            raise KernelError(function.__name__, found=f"shared={name!r}",
                              expected=f"one of its arguments: {', '.join(names)}")


def check_made(made: Annotations, name: str, where: tuple[str, int], kernel: Kernel,
               scheduled: Kernel, report: Report) -> None:
    """Check that a function is what its kind says, and that its wishes are met.

    Raises
    ------
    KernelError
        With all that is not so.
    """
    with importing:
        from weft.lang.compute.kind_checks import CHECKS
        from weft.strategies.user_requests import UNMET

    wrong: list[str] = []
    if made.kind != "custom":
        found = CHECKS[made.kind](kernel, scheduled, report)
        if found:
            wrong.append(f"kind={made.kind!r}: {found}")
    unmet = dict(scheduled.meta.hints).get(UNMET)
    if unmet:
        wrong += unmet.split("; ")
    if wrong:
        raise KernelError(name, found="; ".join(wrong), expected="annotations that the loops can "
                          "follow", hint="leave it out, or see what explain() says",
                          where=(*where, ""))
