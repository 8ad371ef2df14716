"""A block of host memory with an owner."""

import ctypes
from collections import deque
from typing import Any, Final

from weft.errors import DeallocationError, HandleError
from weft.runtimes.base import Event

__all__ = ["Buffer", "ForeignBuffer", "FreeList"]


class FreeList(list[int]):
    """Addresses of free blocks of one size in one pool.

    Parameters
    ----------
    pool
        The pool.
    size
        Bytes of each block.
    """

    __slots__ = ("pool", "size")

    def __init__(self, pool: Any, size: int) -> None:
        self.pool, self.size = pool, size


class Buffer:
    """A block of pooled memory; it goes back to its pool when nothing refers to it.

    Made by `Pool.allocate`, which fills the slots itself: a call of ``__init__`` would be a
    fifth of its time.

    Attributes
    ----------
    address
        Where it begins. Reading it after `release` is a `HandleError`.
    nbytes
        Size that was asked for, in bytes.
    version
        Counts the writes, so that a saved value notices that it was overwritten.
    owner
        What keeps foreign memory alive, None for pooled memory.
    in_process
        That addresses of this process lead to it.
    readonly
        Whether nothing may write to it.
    exposed
        Whether somebody got the memory who may write to it unseen.
    """

    __slots__ = ("__weakref__", "_home", "address", "exposed", "nbytes", "version")

    address: int
    nbytes: int
    exposed: bool
    version: int
    _home: Any  # anything that takes an address back with append; None once it was given back
    in_process: Final = True
    on_host: Final = True  # the memory of the device cpu
    owner: object = None
    readonly: bool = False

    @staticmethod
    def foreign(
        address: int, nbytes: int, owner: object, readonly: bool = False
    ) -> "ForeignBuffer":
        """Return a buffer over memory that ``owner`` keeps alive."""
        return ForeignBuffer(address, nbytes, owner, readonly)

    @property
    def pool(self) -> object:
        """The pool it came from; None for foreign memory and after `release`."""
        home = self._home
        return home.pool if isinstance(home, FreeList) else None

    @property
    def device(self) -> str:
        """The device whose memory it is."""
        home = self._home
        return home.pool.device if isinstance(home, FreeList) else "cpu"

    @property
    def released(self) -> bool:
        """Whether the memory was given back."""
        return self._home is None

    @property
    def ready(self) -> Event:
        """The event of the memory being there: on the host it always has happened."""
        return Event("cpu")

    def release(self) -> None:
        """Give the memory back now; using the buffer afterwards is a `HandleError`."""
        home, self._home = self._home, None
        if home is None:
            raise DeallocationError("release", found="a buffer that was released before")
        home.append(self.address)
        del self.address

    def view(self) -> memoryview:
        """Return the bytes as a memoryview, which keeps the buffer alive."""
        array = (ctypes.c_char * self.nbytes).from_address(self.address)
        array.buffer = self  # type: ignore[attr-defined]  # ctypes arrays take attributes
        view = memoryview(array).cast("B")
        return view.toreadonly() if self.readonly else view

    def fill(self, byte: int = 0) -> None:
        """Set every byte."""
        ctypes.memset(self.address, byte, self.nbytes)
        self.version += 1

    def __getattr__(self, name: str) -> Any:
        # Only reached for a slot that is empty, so the check costs nothing before `release`.
        if name == "address":
            raise HandleError("buffer", found="a buffer whose memory was given back")
        if name == "exposed":
            return False
        if name == "_home":
            return None  # an interrupt came between the making of the object and its filling
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __del__(self) -> None:
        # One append is atomic, takes no lock, and needs no module that may be gone at exit.
        home = self._home
        if home is not None:
            home.append(self.address)
            del self.address  # a cycle that is being freed may still know the buffer

    def __repr__(self) -> str:
        place = "released" if self.released else f"at {self.address:#x}"
        return f"<{type(self).__name__} of {self.nbytes} bytes, {place}>"


# Where memory that is not ours goes when its buffer dies: a list that forgets what it is given.
_NOWHERE: Final[deque[int]] = deque(maxlen=0)


class ForeignBuffer(Buffer):
    """Memory that something else owns: an array, a mapped file, another library's tensor.

    Parameters
    ----------
    address, nbytes
        The memory.
    owner
        Kept alive as long as the buffer is.
    readonly
        Whether nothing may write to it.
    """

    __slots__ = ("owner", "readonly")

    def __init__(self, address: int, nbytes: int, owner: object, readonly: bool = False) -> None:
        self.address = address
        self.nbytes = nbytes
        self.version = 0
        self._home = _NOWHERE
        self.exposed = True  # the owner may write to it, unless whoever made this knows better
        self.owner = owner
        self.readonly = readonly

    def release(self) -> None:
        """Let the owner go; using the buffer afterwards is a `HandleError`."""
        super().release()
        self.owner = None
