"""Commands as a device is given them: a ring of command buffers, and how each is filled.

A command buffer has memory of its own that the host writes: a status record, and the block of
arguments of a launch. It is used again once the timeline has reached the value of its commands. All
that one has written is seen by the next and by the host.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from weft.runtimes.launches.events import RECORD, Work
from weft.runtimes.launches.printing import HEAD, Lines, room_of
from weft.runtimes.vulkan.binding import VulkanError
from weft.runtimes.vulkan.memory import ARGUMENTS, STAGE, Block, Memory

if TYPE_CHECKING:
    from weft.runtimes.vulkan.session import Session

__all__ = ["RECORD_BYTES", "Ring", "Slot", "VulkanWork"]

RECORD_BYTES: Final = 64  # of the record of a slot; arguments follow
_ROOM: Final = 4096  # bytes of a slot's memory
_MOST: Final = 512  # slots: who hands over more waits for the oldest
_TRIES: Final = 5  # of the comparison of clocks
_EMPTY: Final = bytes(RECORD.size + HEAD)


class VulkanWork(Work):
    """Commands of one slot of the ring, handed over together.

    Attributes
    ----------
    value : int
        Of the timeline once they are over.
    """

    __slots__ = ("_record", "_size", "_times", "ring", "slot", "value")

    session: Session

    def __init__(self, ring: Ring, slot: Slot, value: int, record: Block | None, size: int,
                 lines: Lines) -> None:  # fmt: skip
        super().__init__(ring.session, time.monotonic_ns(), lines)
        self.ring, self.slot, self.value = ring, slot, value
        self._record, self._size = record, size
        self._times: tuple[int, int] | None = None

    def has_ended(self) -> bool:
        """Return whether the timeline has reached its value; a driver that fails is noted."""
        try:
            return self.session.has_reached(self.value)
        except VulkanError as error:
            self.error = error
            return True

    def pause(self, seconds: float) -> None:
        """Wait for its value, or until a time has passed."""
        try:
            self.session.pause(self.value, int(seconds * 1e9))
        except VulkanError as error:  # which the next look at it finds again
            self.session.note_loss(error)
            self.error = error
            self.note_end()

    def record(self) -> memoryview | None:
        """Return the status record and the words behind it; the times are noted."""
        if self._record is not None:
            self._record.read(0, self._size)
        self._times = self.ring.times(self)
        return None if self._record is None else self._record.view[: self._size]

    def interval(self) -> tuple[int, int] | None:
        """Return begin and end in nanoseconds of `time.monotonic_ns`, if the device has a clock."""
        return self._times


class Slot:
    """A command buffer of the ring.

    Attributes
    ----------
    commands
        Of Vulkan.
    number : int
        Which slot: its two times are those of twice the number and of the next.
    memory : Block
        Its status record, and the arguments of a launch.
    value : int
        Of the timeline once its commands are over.
    work : VulkanWork, optional
        What was handed over with it last.
    used : list of Block
        What its commands use.
    extra : list of Block
        Memory that is given back once its commands are over.
    is_begun : bool
        Whether it takes commands, or did so when its user was interrupted.
    """

    __slots__ = ("commands", "extra", "is_begun", "memory", "number", "used", "value", "work")

    def __init__(self, commands: Any, number: int, memory: Block) -> None:
        self.commands, self.number, self.memory = commands, number, memory
        self.value, self.is_begun = 0, False
        self.work: VulkanWork | None = None
        self.used: list[Block] = []
        self.extra: list[Block] = []


class Ring:
    """The slots of a queue, oldest first. Who uses it holds the lock of the session."""

    def __init__(self, session: Session, memory: Memory) -> None:
        self.session, self._memory = session, memory
        self._slots: deque[Slot] = deque()
        vk, c = session.vk, session.vk.constants
        family = session.facts["family"]
        self._pool = session.made("vkCreateCommandPool", "VkCommandPool", vk.struct(
            "VkCommandPoolCreateInfo", queueFamilyIndex=family,
            flags=c.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT))
        self._times = session.made("vkCreateQueryPool", "VkQueryPool", vk.struct(
            "VkQueryPoolCreateInfo", queryType=c.VK_QUERY_TYPE_TIMESTAMP, queryCount=2 * _MOST))
        self._bits = int(session.facts["timestampValidBits"])
        self._period = float(session.facts["timestampPeriod"])
        self._begin = vk.struct("VkCommandBufferBeginInfo",
                                flags=c.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT)
        work = c.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | c.VK_PIPELINE_STAGE_TRANSFER_BIT
        self._stages = work, work | c.VK_PIPELINE_STAGE_HOST_BIT
        self._clocked = (c.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                         c.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT)
        written = c.VK_ACCESS_SHADER_WRITE_BIT | c.VK_ACCESS_TRANSFER_WRITE_BIT
        shared = (written | c.VK_ACCESS_SHADER_READ_BIT | c.VK_ACCESS_TRANSFER_READ_BIT)
        self._seen = vk.struct("VkMemoryBarrier", srcAccessMask=written, dstAccessMask=shared)
        self._seen_by_host = vk.struct(
            "VkMemoryBarrier", srcAccessMask=written,
            dstAccessMask=shared | c.VK_ACCESS_HOST_READ_BIT | c.VK_ACCESS_HOST_WRITE_BIT)
        self._values = vk.ffi.new("uint64_t[1]")
        counted = vk.struct("VkTimelineSemaphoreSubmitInfo", signalSemaphoreValueCount=1,
                            pSignalSemaphoreValues=self._values)  # fmt: skip
        self._handed = vk.ffi.new("VkCommandBuffer[1]")
        self._info = vk.struct("VkSubmitInfo", pNext=counted, commandBufferCount=1,
                               pCommandBuffers=self._handed, signalSemaphoreCount=1,
                               pSignalSemaphores=vk.array("VkSemaphore",
                                                          [session.timeline]))  # fmt: skip
        self._difference: int | None = None  # of the clocks of host and device, in nanoseconds
        if self._bits:
            self._difference = self._compared()

    # ---- one command buffer ----------------------------------------------------------------------

    @contextmanager
    def recording(self, lines: Lines = (), words: int = 0, fails: bool = False) -> Iterator[Slot]:
        """Give a slot whose command buffer takes commands; they are handed over at the end.

        Parameters
        ----------
        lines : Lines
            What a launch prints, if it does.
        words : int
            For which there is room then.
        fails : bool
            Whether the launch may fail.
        """
        session, vk = self.session, self.session.vk
        session.check()
        slot = self._slot()
        before = session.submitted
        try:
            commands = slot.commands
            if slot.is_begun:  # by who was interrupted
                vk.call("vkResetCommandBuffer", commands, 0)
            slot.is_begun = True
            vk.call("vkBeginCommandBuffer", commands, self._begin)
            vk.lib.vkCmdResetQueryPool(commands, self._times, 2 * slot.number, 2)
            vk.lib.vkCmdWriteTimestamp(commands, self._clocked[0], self._times, 2 * slot.number)
            record, size = slot.memory if fails else None, RECORD.size
            if lines:
                size += room_of(words)
                record = self._memory.take(size, STAGE)
                slot.extra.append(record)
            if record is not None:
                record.view[: len(_EMPTY)] = _EMPTY
                record.written(0, len(_EMPTY))
            yield slot
            vk.lib.vkCmdPipelineBarrier(commands, *self._stages, 0, 1, self._seen_by_host, 0,
                                        vk.null, 0, vk.null)  # fmt: skip
            vk.lib.vkCmdWriteTimestamp(commands, self._clocked[1], self._times,
                                       2 * slot.number + 1)  # fmt: skip
            vk.call("vkEndCommandBuffer", commands)
            self._submit(slot, record, size, lines)
        except BaseException:
            if session.submitted != before:  # an interrupt: nobody knows whether it was handed over
                self._signal()
            if slot.work is None:
                slot.value = session.submitted
            raise

    def _submit(self, slot: Slot, record: Block | None, size: int, lines: Lines) -> None:
        """Hand the commands of a slot over."""
        session = self.session
        value = session.submitted + 1
        self._values[0] = value
        self._handed[0] = slot.commands
        self._info.commandBufferCount = 1
        work = VulkanWork(self, slot, value, record, size, lines)
        for block in slot.used:
            block.last = value
        session.submitted = value
        try:
            session.vk.call("vkQueueSubmit", session.queue, 1, self._info, session.vk.null)
        except VulkanError:
            session.submitted = value - 1
            for block in slot.used:  # of which nothing is under way but what was before
                block.last = value - 1
            raise
        slot.value, slot.is_begun, slot.work = value, False, work
        self._slots.rotate(-1)
        session.pending.append(work)

    def _signal(self) -> None:
        """Have the timeline pass a value that may never come."""
        session = self.session
        session.submitted += 1
        self._values[0] = session.submitted
        self._info.commandBufferCount = 0
        session.vk.call("vkQueueSubmit", session.queue, 1, self._info, session.vk.null)

    def barrier(self, slot: Slot) -> None:
        """Have later commands see what those before have written."""
        vk = self.session.vk
        vk.lib.vkCmdPipelineBarrier(slot.commands, self._stages[0], self._stages[0], 0, 1,
                                    self._seen, 0, vk.null, 0, vk.null)  # fmt: skip

    def room(self, slot: Slot, nbytes: int) -> tuple[Block, int]:
        """Return memory for arguments that the device reads, and where they begin in it."""
        if RECORD_BYTES + nbytes <= slot.memory.nbytes:
            return slot.memory, RECORD_BYTES
        block = self._memory.take(nbytes, ARGUMENTS)
        slot.extra.append(block)
        return block, 0

    def _slot(self) -> Slot:
        """Return the first slot, once it is free: a new one, or the oldest if there are many.

        It stays the first until its commands are handed over, so that no interrupt loses it.
        """
        session, slots = self.session, self._slots
        session.sweep()
        if slots and (len(slots) >= _MOST or session.has_reached(slots[0].value)):
            session.until(slots[0].value)
            slot = slots[0]
            if slot.work is not None:
                slot.work.is_over()  # which reads its record and its times before they change
                slot.work = None
            slot.used.clear()
            while slot.extra:
                self._memory.give_back(slot.extra.pop())
            return slot
        vk = session.vk
        out = vk.ffi.new("VkCommandBuffer *")
        vk.call("vkAllocateCommandBuffers", session.device, vk.struct(
            "VkCommandBufferAllocateInfo", commandPool=self._pool, commandBufferCount=1,
            level=vk.constants.VK_COMMAND_BUFFER_LEVEL_PRIMARY), out)
        slots.appendleft(Slot(out[0], len(slots), self._memory.take(_ROOM, ARGUMENTS)))
        return slots[0]

    # ---- times -----------------------------------------------------------------------------------

    def times(self, work: VulkanWork) -> tuple[int, int] | None:
        """Return begin and end of what is over, by the clock of the host."""
        if self._difference is None or work.slot.work is not work:
            return None
        begin, end = self._read(work.slot)
        now = time.monotonic_ns()
        begin = min(max(begin + self._difference, work.begun), now)
        return begin, min(max(end + self._difference, begin), now)

    def _read(self, slot: Slot) -> tuple[int, int]:
        """Return the times of a slot in nanoseconds of the device's clock."""
        session, vk = self.session, self.session.vk
        found = vk.ffi.new("uint64_t[2]")
        vk.call("vkGetQueryPoolResults", session.device, self._times, 2 * slot.number, 2, 16, found,
                8, vk.constants.VK_QUERY_RESULT_64_BIT)  # fmt: skip
        mask = (1 << self._bits) - 1
        begin, end = (int((t & mask) * self._period) for t in found)
        return begin, end

    def _compared(self) -> int:
        """Return by how much the clock of the host is ahead, from commands of nothing."""
        found = []
        for _ in range(_TRIES):
            with self.recording() as slot:
                pass
            sent = time.monotonic_ns()
            self.session.until(slot.value)
            now = time.monotonic_ns()
            found.append((now - sent, now - self._read(slot)[1]))
        return min(found)[1]
