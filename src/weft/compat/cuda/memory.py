"""Memory by its address, as `numba.cuda`'s contexts give it out: bytes of the host here."""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.compat.arrays import DeviceMemoryError

__all__ = ["ManagedMemory", "MappedMemory", "MemoryPointer", "PinnedMemory", "given"]


class MemoryPointer:
    """Memory that a context or a manager has given out.

    Attributes
    ----------
    context, owner : object
        Whose it is, and what keeps it.
    size : int
        Bytes.
    device_pointer : ctypes.c_void_p
        Where it lies.
    """

    def __init__(self, context: Any, pointer: Any, size: int, owner: Any = None,
                 finalizer: Callable[[], Any] | None = None) -> None:  # fmt: skip
        self.context, self.device_pointer, self.size = context, pointer, size
        self.owner = owner
        self._end = None if finalizer is None else weakref.finalize(self, finalizer)

    @property
    def _address(self) -> int:
        return int(getattr(self.device_pointer, "value", self.device_pointer) or 0)

    @property
    def handle(self) -> int:
        """Where it lies, as a number."""
        return self._address

    @property
    def device_ctypes_pointer(self) -> ctypes.c_size_t:
        """Where it lies, for calls of C."""
        return ctypes.c_size_t(self._address)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The bytes as an array."""
        return {"shape": (self.size,), "typestr": "|u1", "data": (self._address, False),
                "version": 3}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The bytes as an array, for libraries that take each other's."""
        return {**self.__array_interface__, "stream": None}

    def own(self) -> MemoryPointer:
        """Return the memory, which is kept as long as this is."""
        return self.view(0)

    def view(self, start: int, stop: int | None = None) -> MemoryPointer:
        """Return a part of the memory, from one byte to another."""
        end = self.size if stop is None else stop
        return MemoryPointer(self.context, ctypes.c_void_p(self._address + start),
                             max(end - start, 0), self)

    def memset(self, byte: int, count: int | None = None, stream: Any = 0) -> None:
        """Set bytes, all of them if `count` is not given."""
        del stream
        np.asarray(self)[:count] = byte

    def free(self) -> None:
        """Give it back before anybody else would."""
        if self._end is not None:
            self._end()


class MappedMemory(MemoryPointer):
    """Memory of the host that a device sees."""


class PinnedMemory(MemoryPointer):
    """Memory of the host that stays where it is."""


class ManagedMemory(MemoryPointer):
    """Memory that host and device share."""


def given(context: Any, size: int, kind: type[MemoryPointer] = MemoryPointer,
          held: Any = None) -> MemoryPointer:  # fmt: skip
    """Return new memory of so many bytes, or that of an array.

    Raises
    ------
    DeviceMemoryError
        If there is not so much.
    """
    with contextlib.suppress(MemoryError, ValueError):
        array = np.empty(size, np.uint8) if held is None else np.asarray(held)
        address = array.__array_interface__["data"][0]
        return kind(context, ctypes.c_void_p(address), size, array)
    raise DeviceMemoryError("memalloc", found=f"{size} bytes",
                            expected="a number of bytes that the memory holds")
