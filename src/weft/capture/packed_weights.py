"""Packed weights of captured functions, kept between calls.

A contraction copies the operand that its tiles read again and again into panels, and does so in
each call. With ``weft.jit(pack_weights=True)`` the copies of tensors that a function knows by
itself and does not change are made once, and again only after the tensor was written. What is kept
is a layout, never a result: the same elements in another order, read by the same arithmetic.

A copy is as good as the tensor's version and that of its memory: every assignment, update, load
and step of an optimiser raises the first, every kernel that writes in place the second. Memory
that somebody else may write to (`from_numpy`, an export by DLPack) has no such count; it is copied
at each call, as without the option. Functions that know one tensor share the copies that are made
alike, and the memory goes when the last of them does.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from weft import driver
from weft.ir import dtype as dt
from weft.ir.node import Storage
from weft.locks import mutex
from weft.tensors.api.tensor import Tensor, over_buffer
from weft.tensors.core.lazy_tensor import TensorCore

__all__ = ["Kept", "held", "keep", "resident"]

_PART: Final = 4  # of the memory that Weft may use goes to panels of one function at most
_known: Final[weakref.WeakValueDictionary[tuple[int, str, int], Kept]] = (
    weakref.WeakValueDictionary())


class Kept:
    """The panels of one tensor.

    Attributes
    ----------
    tensor : TensorCore
        What they are copies of.
    holder : Tensor
        Has them as its memory, from the first call on.
    nbytes : int
        Their size.
    """

    __slots__ = ("__weakref__", "_cells", "_filling", "_versions", "holder", "nbytes", "tensor")

    def __init__(self, tensor: TensorCore, nbytes: int) -> None:
        self.tensor, self.nbytes = tensor, nbytes
        self.holder: Tensor = over_buffer(None, (nbytes,), dt.uint8)
        self._filling = mutex()
        self._versions: tuple[int, int] | None = None
        # Which objects the two versions are, for native code; 0: none that a tensor has.
        self._cells = array("q", (0, 0))

    @property
    def cells(self) -> int:
        """Where the addresses of the objects lie that the two versions must be."""
        return self._cells.buffer_info()[0]

    @property
    def is_filled(self) -> bool:
        """Whether there is memory with panels by now."""
        return self.holder._buffer is not None

    def current(self, compiled: driver.Compiled, number: int, source: Any) -> Any:
        """Return memory with panels of the tensor's value, which lies in `source`.

        Others may be reading the old panels right now: new ones get memory of their own.
        """
        tensor = self.tensor
        with self._filling:  # two threads that fill at once would take one another's versions
            versions = tensor._version, source.version
            # Another thread may have given the tensor other memory, and a version, since `source`
            # was looked up: the memory is replaced first, so it is asked for last.
            counted = not source.exposed and tensor._base is None and tensor._buffer is source
            if counted and versions == self._versions:
                return self.holder._buffer
            self._versions = None
            self._cells[:] = array("q", (0, 0))
            self.holder._buffer = None  # what is let go may serve at once
            made = driver.allocate(self.nbytes)
            compiled.fill(number, source, made)
            self.holder._buffer = made
            if counted:
                self._versions = versions
                self._cells[:] = array("q", map(id, versions))
            return made


def resident(captured: Mapping[Storage, object], changed: Container[int], limit: int | None
             ) -> list[Storage]:  # fmt: skip
    """Return the captured arrays of which a function may keep copies.

    Parameters
    ----------
    captured : mapping of Storage to object
        What each array is the value of.
    changed : container of int
        Identities of the tensors that the function changes.
    limit : int, optional
        Bytes that they may have together; by default a quarter of what Weft may use.
    """
    left = driver.memory_limit() // _PART if limit is None else limit
    found: list[Storage] = []
    for storage, source in captured.items():
        if not isinstance(source, TensorCore) or id(source) in changed or (
            source._base is not None or source._shared is not None
        ):
            continue
        nbytes = source.numel() * source.dtype.itemsize
        exposed = source._buffer is not None and source._buffer.exposed
        if not exposed and nbytes <= left:
            left -= nbytes
            found.append(storage)
    return found


def keep(tensor: TensorCore, panel: driver.Panel) -> Kept:
    """Return the panels of a tensor, those of another function if they are the same."""
    key = id(tensor), panel.key, panel.offset
    found = _known.get(key)
    if found is None or found.tensor is not tensor:
        found = _known[key] = Kept(tensor, panel.nbytes)
    return found


def held(kept: Iterable[Kept]) -> int:
    """Return the bytes of panels, each counted once."""
    return sum(k.nbytes for k in {id(k): k for k in kept}.values() if k.is_filled)
