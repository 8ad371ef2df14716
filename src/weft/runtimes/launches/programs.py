"""Kernels that a driver has loaded: how many work-groups a launch has; those used last stay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Any, Final

from weft.locks import mutex
from weft.runtimes.base import Loadable
from weft.runtimes.launches.header import Header
from weft.runtimes.launches.session import DriverSession

__all__ = ["DriverProgram", "DriverPrograms"]

_KEPT: Final = 128  # images that stay loaded


class DriverProgram:
    """A kernel on a device.

    Parameters
    ----------
    session : DriverSession
        The device.
    code : Loadable
        What it was made of.
    header : Header
        What its image says.
    groups : int
        Work-groups of an entry that says nothing of their number.
    most : int
        Work-groups of any entry.
    room : int
        Bytes of scratch memory of a launch at most.

    Attributes
    ----------
    name : str
        Of the kernel.
    counts : list of int
        Work-groups that each entry is launched with.
    scratch : int
        Bytes of scratch memory of a launch.
    """

    __slots__ = ("__weakref__", "code", "counts", "header", "name", "nbuffers", "nvariables",
                 "scratch", "session")  # fmt: skip

    def __init__(self, session: DriverSession, code: Loadable, header: Header, groups: int,
                 most: int, room: int) -> None:  # fmt: skip
        self.session, self.code, self.name, self.header = session, code, code.name, header
        self.nbuffers, self.nvariables = code.nbuffers, len(code.variables)
        self.counts, items = [], 0
        for entry in header.entries:
            count = min(entry.groups or groups, most)
            if header.own:
                count = min(count, (room - header.shared) // (header.own * entry.items))
            self.counts.append(max(count, 1))
            items = max(items, self.counts[-1] * entry.items)
        self.scratch = header.shared + header.own * items

    @property
    def may_fail(self) -> bool:
        """Whether a launch may fail, be it by the driver alone."""
        return self.header.fails


class DriverPrograms(ABC):
    """The programs of a device; those used last stay loaded."""

    def __init__(self, session: DriverSession) -> None:
        self._home = session
        self._lock = mutex()
        self._kept: OrderedDict[bytes, Any] = OrderedDict()

    def load(self, code: Loadable) -> Any:
        """Return a kernel ready to be launched.

        Raises
        ------
        CompileError
            If the image is not what its first line says, or the driver does not take it.
        LaunchError
            If its groups have more work-items than those of the device may have.
        """
        self._home.check()
        image = bytes(code.image)
        with self._lock:
            built = self._kept.get(image)
            if built is not None:
                self._kept.move_to_end(image)
        if built is None:
            built = self.built(code.name, image)
            with self._lock:
                built = self._kept.setdefault(image, built)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return self.program(code, built)

    @abstractmethod
    def built(self, name: str, image: bytes) -> Any:
        """Return what the driver makes of an image, which programs share."""
        ...

    @abstractmethod
    def program(self, code: Loadable, built: Any) -> Any:
        """Return a program of what the driver has made."""
        ...
