"""The queue of a Vulkan device: copies, fills and launches in the order of their calls."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from weft.errors import HandleError
from weft.runtimes.base import Event, View
from weft.runtimes.launches.events import WorkEvent
from weft.runtimes.launches.queue import LaunchQueue, pieces
from weft.runtimes.vulkan.commands import Ring, Slot
from weft.runtimes.vulkan.memory import OWN, STAGE, Block, Memory
from weft.runtimes.vulkan.program import MOST_SCRATCH, Programs, VulkanProgram
from weft.runtimes.vulkan.session import Session

__all__ = ["VulkanQueue"]

_WORD: Final = 4  # fills are of whole words
_COMPUTE: Final = 1  # VK_PIPELINE_BIND_POINT_COMPUTE
_STAGE_COMPUTE: Final = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT


class VulkanQueue(LaunchQueue):
    """Work of a device, in order, by a ring of command buffers."""

    def __init__(self, session: Session, memory: Memory, programs: Programs) -> None:
        super().__init__(session, session.lock)
        self._session, self._memory, self._programs = session, memory, programs
        self._vk = session.vk
        with session.driving("open"):
            self._ring = Ring(session, memory)
            self._bytes = memory.take(256 * _WORD, STAGE)  # each byte, as often as a word has them
            self._bytes.view[: 256 * _WORD] = bytes(b for b in range(256) for _ in range(_WORD))
            self._bytes.written()
            with self._ring.recording() as slot:
                self._spare = self._memory.take(64, OWN)  # the record of what cannot fail
                self._vk.lib.vkCmdFillBuffer(slot.commands, self._spare.buffer,
                                             self._spare.offset, 64, 0)  # fmt: skip
        self._pushed = self._vk.ffi.new("uint64_t[1]")
        self._region = self._vk.ffi.new("VkBufferCopy[1]")

    def moved(self, to: View, of: View, count: int) -> Event:
        """Copy bytes between blocks, or within one."""
        return self.move(self.block(to), to.offset, self.block(of), of.offset, count)

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

    def set_bytes(self, block: Block, offset: int, nbytes: int, byte: int) -> Event:
        """Set bytes of a block."""
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

    def checked(self, program: Any) -> Any:
        """Return a program; one of a device that was lost is made again.

        Raises
        ------
        HandleError
            If it is none of the device.
        """
        if isinstance(program, VulkanProgram) and program.device == self.device:
            self._session.check()
            if program.session is not self._session:
                return self._programs.load(program.code)
        return super().checked(program)

    def arguments(self, program: VulkanProgram, views: Sequence[View], variables: Sequence[int]
                  ) -> tuple[list[Block], bytes]:  # fmt: skip
        """Return the blocks of a launch, and its arguments but for the last two.

        Raises
        ------
        struct.error
            If a variable is no integer of 64 bits.
        """
        blocks = [self.block(view) for view in views]
        return blocks, program.packed([block.address + view.offset for block, view
                                       in zip(blocks, views, strict=True)], variables)

    def launched(self, program: VulkanProgram, given: tuple[list[Block], bytes]) -> Event:
        """Hand a launch over, under the lock."""
        header = program.header
        with self._ring.recording(header.lines, header.room, header.fails) as slot:
            slot.used += given[0]
            self._record(slot, program, given[1])
        return self._event(slot)

    def _record(self, slot: Slot, program: VulkanProgram, given: bytes) -> None:
        """Record the entries of a launch."""
        vk, commands = self._vk, slot.commands
        scratch = 0
        if program.scratch:
            scratch = self._room(program.scratch, MOST_SCRATCH, slot.extra).address
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

    def last(self) -> Event:
        """Return an event that has happened once all is over that was handed over so far."""
        pending = list(self._session.pending)
        return WorkEvent(self.device, pending[-1]) if pending else Event(self.device)

    def scratch(self, nbytes: int) -> Block:
        """Return new memory for launches to share."""
        return self._memory.take(nbytes, OWN)

    def block(self, view: View) -> Block:
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

    # ---- parts of it ---------------------------------------------------------------------------

    def _copy(self, slot: Slot, target: Block, to: int, origin: Block, of: int, count: int) -> None:
        region = self._region
        region[0].srcOffset, region[0].dstOffset = origin.offset + of, target.offset + to
        region[0].size = count
        self._vk.lib.vkCmdCopyBuffer(slot.commands, origin.buffer, target.buffer, 1, region)

    def _moved(self, slot: Slot, block: Block, to: int, of: int, count: int) -> None:
        """Copy within a block, by way of scratch memory, from the end that is not overwritten."""
        staged, parts = pieces(to, of, count)
        stage = self._room(staged, MOST_SCRATCH, slot.extra)
        for start, size in parts:
            self._copy(slot, stage, 0, block, of + start, size)
            self._ring.barrier(slot)
            self._copy(slot, block, to + start, stage, 0, size)
            self._ring.barrier(slot)

    def _event(self, slot: Slot) -> Event:
        assert slot.work is not None
        return WorkEvent(self.device, slot.work)
