"""A device that was opened: its queue, its timeline of work, its loss; and forks."""

from __future__ import annotations

import atexit
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from weft.errors import (
    AllocationError,
    CopyError,
    DeviceError,
    InitializationError,
    SyncError,
    WeftError,
)
from weft.locks import in_child, mutex
from weft.runtimes.launches.events import Work
from weft.runtimes.vulkan.binding import LOST, NO_MEMORY, VulkanError, vulkan
from weft.runtimes.vulkan.driver import FEATURES, code_identity, device_of

__all__ = ["Session"]

_TURN: Final = 10_000_000  # nanoseconds that the driver waits, after which Ctrl-C is seen
_LAST: Final = 2.0  # seconds that the end of the process waits for work under way
_opened: Final[list[Session]] = []


class Session:
    """One device, opened by this process.

    Commands are handed over in the order of a timeline: the semaphore counts those that are over.

    Parameters
    ----------
    name : str
        What the user calls it.
    called : str
        Which of `weft.runtimes.vulkan.driver.devices`.

    Attributes
    ----------
    vk : Vulkan
        The functions.
    device, queue, timeline
        Of Vulkan.
    facts : Mapping
        What the driver says of the device.
    identity : str
        Driver and device, as a part of the key of compiled code.
    lock : lock
        Held by who hands commands over.
    submitted : int
        Value of the timeline once all that was handed over has happened.
    pending : deque of Work
        What may not have happened yet, oldest first.
    texts : deque of (str, str)
        What launches have printed, and complaints about it, until a wait shows them.
    settling : lock
        Held while the end of something is noted.

    Raises
    ------
    InitializationError
        If the driver does not open the device.
    """

    def __init__(self, name: str, called: str) -> None:
        self.name = name
        self.vk = vulkan()
        self.lost = ""  # why the device is gone
        self._forked = self._closed = False
        physical, facts = device_of(called)
        self.facts: Mapping[str, Any] = facts
        self.identity = code_identity(facts)
        self.lock, self.settling = mutex(), mutex()
        self.pending: deque[Work] = deque()
        self.texts: deque[tuple[str, str]] = deque()
        self.submitted = self._reached = 0
        try:
            self._open(physical)
        except VulkanError as error:
            raise InitializationError(name, found=error, expected="a driver that opens it"
                                      ) from error  # fmt: skip
        _opened.append(self)

    def _open(self, physical: Any) -> None:
        vk, family = self.vk, self.facts["family"]
        on = {kind: {name: 1 for name in names if self.facts[name]}
              for kind, names in FEATURES.items()}  # fmt: skip
        basic, eleven, twelve = FEATURES
        last = vk.struct(twelve, **on[twelve])
        chain = vk.struct("VkPhysicalDeviceFeatures2", pNext=vk.struct(
            eleven, pNext=last, **on[eleven]))
        for feature in on[basic]:
            setattr(chain.features, feature, 1)
        weights = vk.array("float", [1.0])
        queues = vk.struct("VkDeviceQueueCreateInfo", queueFamilyIndex=family, queueCount=1,
                           pQueuePriorities=weights)  # fmt: skip
        info = vk.struct("VkDeviceCreateInfo", pNext=chain, queueCreateInfoCount=1,
                         pQueueCreateInfos=queues)  # fmt: skip
        self.device = vk.made("vkCreateDevice", "VkDevice", physical, info)
        out = vk.ffi.new("VkQueue *")
        vk.lib.vkGetDeviceQueue(self.device, family, 0, out)
        self.queue = out[0]
        counted = vk.struct("VkSemaphoreTypeCreateInfo", initialValue=0,
                            semaphoreType=vk.constants.VK_SEMAPHORE_TYPE_TIMELINE)  # fmt: skip
        self.timeline = self.made("vkCreateSemaphore", "VkSemaphore",
                                  vk.struct("VkSemaphoreCreateInfo", pNext=counted))  # fmt: skip
        self._semaphores = vk.array("VkSemaphore", [self.timeline])

    def made(self, function: str, kind: str, info: Any) -> Any:
        """Return what a function makes of the device and a description."""
        return self.vk.made(function, kind, self.device, info)

    # ---- whether it can be used ------------------------------------------------------------------

    def check(self) -> None:
        """Refuse work on a device that is gone, and in a forked child, which has no threads of it.

        Raises
        ------
        SyncError
            In a forked child, and once the process ends.
        DeviceError
            If the device was lost.
        """
        if self._forked:
            raise SyncError(self.name, found="a process that was forked after the device was used",
                            expected="the process that opened it",
                            hint="start processes with the method spawn, or fork before the first "
                            "use of the device")
        if self._closed:
            raise SyncError(self.name, found="a process that ends", expected="one that runs")
        if self.lost:
            raise self.gone()

    def gone(self) -> DeviceError:
        """Return the error that tells of the loss of the device."""
        return DeviceError(self.name, found=f"a device that was lost: {self.lost}",
                           expected="a device that works",
                           hint="its memory is gone; new tensors open it again")

    def translated(self, what: str, error: Exception, otherwise: type[WeftError]) -> WeftError:
        """Return the error of Weft for what the driver has said.

        Parameters
        ----------
        what : str
            What was being done.
        error : Exception
            What was thrown.
        otherwise : type
            The error to make of it unless memory is short or the device lost.
        """
        if isinstance(error, WeftError):
            return error
        result = getattr(error, "result", 0)
        if result == LOST:
            self.lost = self.lost or str(error)
            return self.gone()
        if result in NO_MEMORY:
            return AllocationError(what, found=f"{self.name} has no memory left: {error}",
                                   expected="memory for what is handed over",
                                   hint="release tensors that are no longer needed")
        return otherwise(what, found=f"{type(error).__name__}: {error} on {self.name}",
                         expected="a driver that works",
                         hint="tensors of other devices are as they were")

    @contextmanager
    def driving(self, what: str, otherwise: type[WeftError] = CopyError) -> Iterator[None]:
        """Make what the driver says an error of Weft."""
        try:
            yield
        except VulkanError as error:
            raise self.translated(what, error, otherwise) from error

    # ---- the timeline ----------------------------------------------------------------------------

    def has_reached(self, value: int) -> bool:
        """Return whether all is over that was handed over with a value of the timeline.

        Raises
        ------
        VulkanError
            If the driver fails; a device that is lost is noted.
        """
        if value <= self._reached:
            return True
        found = self.vk.ffi.new("uint64_t *")
        try:
            self.vk.call("vkGetSemaphoreCounterValue", self.device, self.timeline, found)
        except VulkanError as error:
            if error.result == LOST:
                self.lost = self.lost or str(error)
            raise
        self._reached = max(self._reached, found[0])
        return value <= self._reached

    def pause(self, value: int, nanoseconds: int) -> None:
        """Wait for a value of the timeline, or until a time has passed."""
        vk = self.vk
        values = vk.array("uint64_t", [value])
        info = vk.struct("VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=self._semaphores,
                         pValues=values)  # fmt: skip
        vk.call("vkWaitSemaphores", self.device, info, nanoseconds)

    def until(self, value: int) -> None:
        """Block until the timeline has reached a value; Ctrl-C interrupts."""
        while not self.has_reached(value):
            self.check()
            self.pause(value, _TURN)

    def sweep(self) -> None:
        """Forget what is over by now."""
        pending = self.pending
        while pending:
            try:
                work = pending[0]
                if not work.is_over():
                    return
                pending.remove(work)
            except (IndexError, ValueError):  # another thread has removed it
                continue

    # ---- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse all that comes, and close the device unless work goes on for long."""
        with self.lock:
            if self._forked or self._closed:
                return
            self._closed = True
            deadline = time.monotonic() + _LAST
            try:
                while not self.has_reached(self.submitted):
                    if time.monotonic() > deadline:
                        return
                    self.pause(self.submitted, _TURN)
                self.vk.call("vkDeviceWaitIdle", self.device)
            except VulkanError:  # it was lost: there is nothing to wait for
                return

    def lose(self) -> None:
        """Make the device unusable in a forked child."""
        self._forked = True


def _forget() -> None:
    for session in _opened:
        session.lose()


def _close() -> None:
    for session in _opened:
        session.close()


in_child(_forget)
atexit.register(_close)
