"""The queue of a Vulkan device: copies, fills and launches in the order of their calls."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from weft.errors import HandleError, LaunchError
from weft.runtimes.base import Event, View
from weft.runtimes.launches.events import WorkEvent
from weft.runtimes.memory.checked_queue import CheckedQueue
from weft.runtimes.memory.device_pool import AllOf, DeviceBuffer
from weft.runtimes.vulkan.commands import Ring, Slot
from weft.runtimes.vulkan.memory import OWN, STAGE, Block, Memory
from weft.runtimes.vulkan.program import MOST_SCRATCH, Programs, VulkanProgram
from weft.runtimes.vulkan.session import Session

__all__ = ["VulkanQueue"]

_PIECE: Final = 64 << 20  # bytes that an overlapping copy moves at a time
_WORD: Final = 4  # fills are of whole words
_COMPUTE: Final = 1  # VK_PIPELINE_BIND_POINT_COMPUTE
_STAGE_COMPUTE: Final = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT


class VulkanQueue(CheckedQueue):
    """Work of a device, in order; calls return before it is done.

    Nothing waits on the host but for events of other devices. Launches share the scratch memory,
    each after the one before.
    """

    def __init__(self, session: Session, memory: Memory, programs: Programs) -> None:
        super().__init__(session.name)
        self._session, self._memory, self._programs = session, memory, programs
        self._vk = session.vk
        with session.driving("open"):
            self._ring = Ring(session, memory)
            self._scratch: Block | None = None
            self._bytes = memory.take(256 * _WORD, STAGE)  # each byte, as often as a word has them
            self._bytes.view[: 256 * _WORD] = bytes(b for b in range(256) for _ in range(_WORD))
            self._bytes.written()
            with self._ring.recording() as slot:
                self._spare = self._memory.take(64, OWN)  # the record of what cannot fail
                self._vk.lib.vkCmdFillBuffer(slot.commands, self._spare.buffer,
                                             self._spare.offset, 64, 0)  # fmt: skip
        self._pushed = self._vk.ffi.new("uint64_t[1]")
        self._region = self._vk.ffi.new("VkBufferCopy[1]")

    def copy(self, destination: DeviceBuffer | View, source: DeviceBuffer | View,
             nbytes: int | None = None, wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Copy the first ``nbytes`` bytes, all of ``source`` by default; they may overlap.

        Raises
        ------
        CopyError
            If they do not fit, or the driver refuses.
        HandleError
            If a buffer was released or is another device's, or an event was used before.
        """
        to, of, count = self._copied(destination, source, nbytes)
        self._await(wait)
        return self.move(self._block(to), to.offset, self._block(of), of.offset, count)

    def move(self, target: Block, to: int, origin: Block, of: int, count: int) -> Event:
        """Copy bytes between blocks, or within one."""
        session = self._session
        with session.driving("copy"), session.lock:
            with self._ring.recording() as slot:
                slot.used += (target, origin)
                if target is origin and abs(to - of) < count:
                    self._moved(slot, target, to, of, count)
                elif count:
                    self._copy(slot, target, to, origin, of, count)
            return self._event(slot)

    def fill(self, target: DeviceBuffer | View, nbytes: int, byte: int = 0,
             wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Set the first ``nbytes`` bytes.

        Raises
        ------
        CopyError
            If there are fewer, or the driver refuses.
        HandleError
            If the buffer was released or is another device's, or an event was used before.
        """
        to = self._filled(target, nbytes)
        self._await(wait)
        return self.set_bytes(self._block(to), to.offset, nbytes, byte)

    def set_bytes(self, block: Block, offset: int, nbytes: int, byte: int) -> Event:
        """Set bytes of a block."""
        byte &= 0xFF
        end = offset + nbytes
        first, last = -(-offset // _WORD) * _WORD, end // _WORD * _WORD
        session = self._session
        with session.driving("fill"), session.lock:
            with self._ring.recording() as slot:
                slot.used.append(block)
                if first < last:
                    self._vk.lib.vkCmdFillBuffer(slot.commands, block.buffer, block.offset + first,
                                                 last - first, byte * 0x01010101)  # fmt: skip
                for begin, stop in ((offset, min(first, end)), (max(last, first), end)):
                    if begin < stop:
                        self._copy(slot, block, begin, self._bytes, byte * _WORD, stop - begin)
            return self._event(slot)

    def launch(self, program: Any, buffers: Sequence[DeviceBuffer | View],
               variables: Sequence[int] = (), wait: Iterable[Event] = (),
               groups: Sequence[int] = (), threads: Sequence[int] = ()) -> Event:  # fmt: skip
        """Run a program on buffers, in its parameter order; its entries know their work-groups.

        Raises
        ------
        LaunchError
            If counts or types are wrong, or the driver refuses.
        AllocationError
            If the device has no memory for it.
        HandleError
            If a buffer was released or is another device's, or an event was used before.
        """
        session = self._session
        if not isinstance(program, VulkanProgram) or program.device != self.device:
            raise HandleError("launch", found=repr(program), expected=f"a program of {self.device}")
        session.check()
        if program.session is not session:  # that of a device which was lost
            program = self._programs.load(program.code)
        views = self._given(program.name, buffers, variables, program.nbuffers,
                            program.nvariables)
        blocks = [self._block(view) for view in views]
        try:
            given = program.packed([block.address + view.offset for block, view
                                    in zip(blocks, views, strict=True)], variables)
        except struct.error:
            raise LaunchError(program.name, found=f"{list(variables)!r} for its variables",
                              expected="integers of 64 bits") from None
        self._await(wait)
        header = program.header
        with session.driving(program.name, LaunchError), session.lock:
            with self._ring.recording(header.lines, header.room, header.fails) as slot:
                slot.used += blocks
                self._launched(slot, program, given)
            return self._event(slot)

    def _launched(self, slot: Slot, program: VulkanProgram, given: bytes) -> None:
        """Record the entries of a launch."""
        vk, commands = self._vk, slot.commands
        scratch = self._room(slot, program.scratch).address if program.scratch else 0
        header = program.header
        record = self._spare
        if header.lines:
            record = slot.extra[0]
        elif header.fails:
            record = slot.memory
        given += struct.pack("=QQ", record.address, scratch)
        block, begin = self._ring.room(slot, len(given))
        block.view[begin : begin + len(given)] = given
        block.written(begin, len(given))
        self._pushed[0] = block.address + begin
        for number, (pipeline, groups) in enumerate(program.launches):
            if number:
                self._ring.barrier(slot)
            vk.lib.vkCmdBindPipeline(commands, _COMPUTE, pipeline)
            if not number:
                vk.lib.vkCmdPushConstants(commands, program.layout, _STAGE_COMPUTE, 0, 8,
                                          self._pushed)  # fmt: skip
            vk.lib.vkCmdDispatch(commands, groups, 1, 1)

    def synchronize(self) -> None:
        """Block until all work has happened; Ctrl-C interrupts.

        Raises
        ------
        SyncError
            If the driver fails.
        """
        session = self._session
        session.check()
        pending = list(session.pending)
        if pending:
            pending[-1].wait()
        session.sweep()

    def flush(self) -> None:
        """Refuse a device that is gone: the driver begins with what it is given at once."""
        self._session.check()

    @property
    def in_flight(self) -> int:
        """How many calls have handed over what may not have happened yet."""
        self._session.sweep()
        return len(self._session.pending)

    # ---- parts of it ---------------------------------------------------------------------------

    def _copy(self, slot: Slot, target: Block, to: int, origin: Block, of: int, count: int) -> None:
        region = self._region
        region[0].srcOffset, region[0].dstOffset = origin.offset + of, target.offset + to
        region[0].size = count
        self._vk.lib.vkCmdCopyBuffer(slot.commands, origin.buffer, target.buffer, 1, region)

    def _moved(self, slot: Slot, block: Block, to: int, of: int, count: int) -> None:
        """Copy within a block, by way of scratch memory, from the end that is not overwritten."""
        piece = min(count, _PIECE)
        stage = self._room(slot, piece)
        starts = list(range(0, count, piece))
        if to > of:
            starts.reverse()
        for start in starts:
            size = min(piece, count - start)
            self._copy(slot, stage, 0, block, of + start, size)
            self._ring.barrier(slot)
            self._copy(slot, block, to + start, stage, 0, size)
            self._ring.barrier(slot)

    def _event(self, slot: Slot) -> Event:
        assert slot.work is not None
        return WorkEvent(self.device, slot.work)

    def _block(self, view: View) -> Block:
        """Return the block of a buffer.

        Raises
        ------
        HandleError
            If it was one of a device that was lost meanwhile.
        """
        block: Block = view.buffer.handle
        if block.session is not self._session:
            raise HandleError("queue", found=f"memory of {self.device} from before it was lost",
                              expected="memory of the device as it is now")
        return block

    def _room(self, slot: Slot, nbytes: int) -> Block:
        """Return scratch memory, which launches use one after another."""
        scratch = self._scratch
        if scratch is None or nbytes > scratch.nbytes:
            size = nbytes
            if scratch is not None:
                size = min(max(nbytes, 2 * scratch.nbytes), max(nbytes, MOST_SCRATCH))
                slot.extra.append(scratch)  # what uses it is over before
                self._scratch = None
            self._scratch = scratch = self._memory.take(size, OWN)
        return scratch

    def _await(self, wait: Iterable[Event]) -> None:
        """Consume events, and wait on the host for those of other devices."""
        events = list(wait)
        for event in events:
            event.consume(self.device)
        while events:
            event = events.pop()
            if isinstance(event, AllOf):
                events += event.parts
            elif not (isinstance(event, WorkEvent) and event.work.home is self._session):
                event.wait()

