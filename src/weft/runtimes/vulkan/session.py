"""A device that was opened: its queue, its timeline of work, its loss."""

from __future__ import annotations

import atexit
import time
from typing import Any, Final

from weft.errors import DeviceError, InitializationError, SyncError, WeftError
from weft.locks import mutex
from weft.runtimes.launches.session import DriverSession
from weft.runtimes.vulkan.binding import LOST, NO_MEMORY, VulkanError, vulkan
from weft.runtimes.vulkan.driver import FEATURES, code_identity, device_of

__all__ = ["Session"]

_TURN: Final = 10_000_000  # nanoseconds that the driver waits, after which Ctrl-C is seen
_LAST: Final = 2.0  # seconds that the end of the process waits for work under way


class Session(DriverSession):
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
    identity : str
        Driver and device, as a part of the key of compiled code.
    lock : lock
        Held by who hands commands over.
    submitted : int
        Value of the timeline once all that was handed over has happened.

    Raises
    ------
    InitializationError
        If the driver does not open the device.
    """

    def __init__(self, name: str, called: str) -> None:
        super().__init__(name, (VulkanError,))
        self.vk = vulkan()
        self.lost = ""  # why the device is gone
        self._closed = False
        physical, self.facts = device_of(called)
        self.identity = code_identity(self.facts)
        self.lock = mutex()
        self.submitted = self._reached = 0
        try:
            self._open(physical)
        except VulkanError as error:
            raise InitializationError(name, found=error, expected="a driver that opens it"
                                      ) from error  # fmt: skip
        self.opened()
        atexit.register(self.close)

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
        super().check()
        if self._closed:
            raise SyncError(self.name, found="a process that ends", expected="one that runs")
        if self.lost:
            raise self.gone()

    def gone(self) -> DeviceError:
        """Return the error that tells of the loss of the device."""
        return DeviceError(self.name, found=f"a device that was lost: {self.lost}",
                           expected="a device that works",
                           hint="its memory is gone; new tensors open it again")

    def is_short(self, error: Exception) -> bool:
        """Return whether the driver says that memory is short."""
        return isinstance(error, VulkanError) and error.result in NO_MEMORY

    def note_loss(self, error: Exception) -> bool:
        """Return whether an error tells that the device is lost, which is noted then."""
        is_lost = isinstance(error, VulkanError) and error.result == LOST
        if is_lost:
            self.lost = self.lost or str(error)
        return is_lost

    def translated(self, what: str, error: Exception, otherwise: type[WeftError]) -> WeftError:
        """Return the error of Weft for what the driver has said; it may be the device's loss."""
        return self.gone() if self.note_loss(error) else super().translated(what, error, otherwise)

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
            self.note_loss(error)
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
