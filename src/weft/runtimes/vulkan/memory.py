"""Memory of a Vulkan device: parts of large buffers, each with an address of its own.

Every part knows the last commands that use it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.errors import AllocationError
from weft.locks import mutex
from weft.runtimes.vulkan.binding import VulkanError

if TYPE_CHECKING:
    from weft.runtimes.vulkan.session import Session

__all__ = ["ALIGNMENT", "ARGUMENTS", "OWN", "STAGE", "WINDOW", "Block", "Memory"]

ALIGNMENT: Final = 256  # of parts, in bytes: at least that of vectors, matrices, lines of caches
_CHUNK: Final = 16 << 20  # bytes of a buffer that is shared out
_LARGE: Final = 4 << 20  # from which on a part has a buffer of its own

_LOCAL, _VISIBLE, _COHERENT, _CACHED = 1, 2, 4, 8  # VkMemoryPropertyFlagBits

# Kinds of memory: what to look for, best first.
OWN: Final = (_LOCAL, 0)
WINDOW: Final = (_LOCAL | _VISIBLE | _CACHED,)
ARGUMENTS: Final = (_LOCAL | _VISIBLE | _COHERENT, _VISIBLE | _COHERENT, _VISIBLE)
STAGE: Final = (_VISIBLE | _CACHED | _COHERENT, _VISIBLE | _CACHED, _VISIBLE)

# Bits that the package vulkan does not know by name: source and target of copies, storage,
# addresses; and memory whose address is asked for.
_USAGE: Final = 0x1 | 0x2 | 0x20 | 0x20000
_ADDRESSED: Final = 0x2


class _Chunk:
    """A buffer with memory of its own, and the parts of it that are free."""

    __slots__ = ("address", "buffer", "coherent", "free", "kind", "memory", "pointer", "size")

    def __init__(self, kind: int, size: int, buffer: Any, memory: Any, address: int,
                 pointer: int, coherent: bool) -> None:  # fmt: skip
        self.kind, self.size, self.buffer, self.memory = kind, size, buffer, memory
        self.address, self.pointer, self.coherent = address, pointer, coherent
        self.free: list[tuple[int, int]] = [(0, size)]  # begin and size, in order

    def take(self, nbytes: int) -> int | None:
        """Return the begin of a part that was free."""
        for number, (begin, size) in enumerate(self.free):
            if size >= nbytes:
                rest = [(begin + nbytes, size - nbytes)] if size > nbytes else []
                self.free[number : number + 1] = rest
                return begin
        return None

    def give_back(self, begin: int, nbytes: int) -> None:
        """Make a part free, as one with its neighbours."""
        insort(self.free, (begin, nbytes))
        merged: list[tuple[int, int]] = []
        for start, size in self.free:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((start, size))
        self.free = merged


class Block:
    """A part of the memory of a device.

    Attributes
    ----------
    session : Session
        The device.
    buffer, offset
        Of Vulkan: the buffer, and the byte of it at which the part begins.
    nbytes : int
        Its size.
    address : int
        What kernels are given.
    last : int
        The value of the timeline at which the last commands that use it are over.
    """

    __slots__ = ("_view", "address", "buffer", "chunk", "last", "nbytes", "offset", "session")

    def __init__(self, session: Session, chunk: _Chunk, offset: int, nbytes: int) -> None:
        self.session, self.chunk, self.offset, self.nbytes = session, chunk, offset, nbytes
        self.buffer, self.address, self.last = chunk.buffer, chunk.address + offset, 0
        self._view: memoryview | None = None

    @property
    def is_visible(self) -> bool:
        """Whether the host can read and write it."""
        return self.chunk.pointer != 0

    @property
    def view(self) -> memoryview:
        """Its bytes, where it is visible."""
        if self._view is None:
            ffi = self.session.vk.ffi
            place = ffi.cast("char *", self.chunk.pointer + self.offset)
            self._view = memoryview(ffi.buffer(place, self.nbytes))
        return self._view

    def written(self, begin: int = 0, nbytes: int | None = None) -> None:
        """Have the device see what the host has written."""
        if not self.chunk.coherent:
            self._ranged("vkFlushMappedMemoryRanges", begin, nbytes)

    def read(self, begin: int = 0, nbytes: int | None = None) -> None:
        """Have the host see what the device has written."""
        if not self.chunk.coherent:
            self._ranged("vkInvalidateMappedMemoryRanges", begin, nbytes)

    def _ranged(self, function: str, begin: int, nbytes: int | None) -> None:
        session = self.session
        atom = int(session.facts["nonCoherentAtomSize"])
        begin += self.offset
        end = self.offset + self.nbytes if nbytes is None else begin + nbytes
        begin -= begin % atom
        end = min(-(-end // atom) * atom, self.chunk.size)
        place = session.vk.struct("VkMappedMemoryRange", memory=self.chunk.memory, offset=begin,
                                  size=end - begin)  # fmt: skip
        session.vk.call(function, session.device, 1, place)


class Memory:
    """The memory of a device, shared out in parts.

    Parameters
    ----------
    session : Session
        The device.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = mutex()
        self._chunks: dict[int, list[_Chunk]] = {}  # by type of memory
        facts = session.facts
        self._types = [tuple(kind) for kind in facts["types"]]
        self.largest = int(facts["maxMemoryAllocationSize"])
        self._unit = max(ALIGNMENT, int(facts["nonCoherentAtomSize"]))
        probe = self._buffer(ALIGNMENT)
        self._allowed = self._needs(probe).memoryTypeBits
        session.vk.lib.vkDestroyBuffer(session.device, probe, session.vk.null)

    def kind(self, wanted: Sequence[int]) -> int | None:
        """Return the type of memory that is the first to have the properties that are wanted."""
        heaps = self._session.facts["heaps"]
        for flags in wanted:
            found = [(heaps[heap][0], -number) for number, (has, heap) in enumerate(self._types)
                     if has & flags == flags and self._allowed >> number & 1]  # fmt: skip
            if found:
                return -max(found)[1]
        return None

    def take(self, nbytes: int, wanted: Sequence[int]) -> Block:
        """Return a part of at least so many bytes.

        Raises
        ------
        VulkanError
            If the driver has no memory left.
        InitializationError
            If the device has no such memory.
        """
        kind = self.kind(wanted)
        if kind is None:
            raise AllocationError(self._session.name, found="no memory that the host can write",
                                  expected="some")
        size = -(-max(nbytes, 1) // self._unit) * self._unit
        with self._lock:
            chunks = self._chunks.setdefault(kind, [])
            if size < _LARGE:
                for chunk in chunks:
                    begin = chunk.take(size)
                    if begin is not None:
                        return Block(self._session, chunk, begin, size)
            chunk = self._chunk(kind, size if size >= _LARGE else max(_CHUNK, size))
            chunks.append(chunk)
            begin = chunk.take(size)
            assert begin is not None
            return Block(self._session, chunk, begin, size)

    def give_back(self, block: Block) -> None:
        """Free a part, and the buffer with it if no other part is in use."""
        vk, device, chunk = self._session.vk, self._session.device, block.chunk
        with self._lock:
            chunk.give_back(block.offset, block.nbytes)
            if chunk.free != [(0, chunk.size)]:
                return
            self._chunks[chunk.kind].remove(chunk)
        vk.lib.vkDestroyBuffer(device, chunk.buffer, vk.null)
        vk.lib.vkFreeMemory(device, chunk.memory, vk.null)

    def _buffer(self, size: int) -> Any:
        vk = self._session.vk
        return self._session.made("vkCreateBuffer", "VkBuffer", vk.struct(
            "VkBufferCreateInfo", size=size, usage=_USAGE,
            sharingMode=vk.constants.VK_SHARING_MODE_EXCLUSIVE))

    def _needs(self, buffer: Any) -> Any:
        vk = self._session.vk
        found = vk.ffi.new("VkMemoryRequirements *")
        vk.lib.vkGetBufferMemoryRequirements(self._session.device, buffer, found)
        return found

    def _chunk(self, kind: int, size: int) -> _Chunk:
        session, vk = self._session, self._session.vk
        device, null = session.device, vk.null
        flags = self._types[kind][0]
        buffer = self._buffer(size)
        memory = None
        try:
            addressed = vk.struct("VkMemoryAllocateFlagsInfo", flags=_ADDRESSED)
            memory = session.made("vkAllocateMemory", "VkDeviceMemory", vk.struct(
                "VkMemoryAllocateInfo", pNext=addressed, memoryTypeIndex=kind,
                allocationSize=self._needs(buffer).size))
            vk.call("vkBindBufferMemory", device, buffer, memory, 0)
            pointer = 0
            if flags & _VISIBLE:
                out = vk.ffi.new("void **")
                vk.call("vkMapMemory", device, memory, 0, size, 0, out)
                pointer = int(vk.ffi.cast("uintptr_t", out[0]))
            address = vk.lib.vkGetBufferDeviceAddress(device, vk.struct(
                "VkBufferDeviceAddressInfo", buffer=buffer))
        except VulkanError:
            vk.lib.vkDestroyBuffer(device, buffer, null)
            if memory is not None:
                vk.lib.vkFreeMemory(device, memory, null)
            raise
        return _Chunk(kind, size, buffer, memory, address, pointer, bool(flags & _COHERENT))
