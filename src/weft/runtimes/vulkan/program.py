"""Kernels in SPIR-V as pipelines; what the driver made of them is kept in the disk cache.

An image is the words of a module behind a line that describes it
(`weft.runtimes.launches.header`). Each entry is pushed the address of its arguments: addresses of
the buffers, the variables, the address of the status record, that of the scratch memory.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.background import Task
from weft.errors import AllocationError, CompileError, LaunchError
from weft.runtimes.base import Loadable
from weft.runtimes.launches.header import Header, header_of
from weft.runtimes.launches.programs import DriverProgram, DriverPrograms
from weft.runtimes.vulkan.module import verify
from weft.store import cache, fingerprint

if TYPE_CHECKING:
    from weft.runtimes.vulkan.session import Session

__all__ = ["MOST_SCRATCH", "Programs", "VulkanProgram"]

MOST_SCRATCH: Final = 256 << 20  # bytes of scratch memory of a launch
_KIND: Final = "vulkan"
_GROUPS: Final = 4  # work-groups of a launch for each unit of a processor: some end sooner
_MOST_GROUPS: Final = 1 << 12  # of a launch on other devices: they fill the largest
_PUSHED: Final = 8  # bytes: an address
_CACHE_HEAD: Final = struct.Struct("<IIII16s")  # size, version, vendor, device, UUID
_STAGE_COMPUTE: Final = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT


class _Built(NamedTuple):
    """Entries of a module, each as a pipeline."""

    header: Header
    pipelines: tuple[Any, ...]


class VulkanProgram(DriverProgram):
    """A kernel on a device.

    Attributes
    ----------
    launches : tuple
        Each entry's pipeline, and the work-groups that it is launched with.
    layout
        Of Vulkan, of all pipelines.
    """

    __slots__ = ("_pack", "device", "launches", "layout")

    def __init__(self, session: Session, layout: Any, code: Loadable, built: _Built) -> None:
        facts = session.facts
        most = _GROUPS * facts["units"] if facts["is_cpu"] else _MOST_GROUPS
        most = min(most, facts["maxComputeWorkGroupCount"][0])
        super().__init__(session, code, built.header, most, most, MOST_SCRATCH)
        self.device, self.layout = session.name, layout
        self._pack = struct.Struct(f"={self.nbuffers}Q{self.nvariables}q").pack
        self.launches = tuple(zip(built.pipelines, self.counts, strict=True))

    def packed(self, addresses: Sequence[int], variables: Sequence[int]) -> bytes:
        """Return the arguments of a launch but for the last two.

        Raises
        ------
        struct.error
            If a variable is no integer of 64 bits.
        """
        return self._pack(*addresses, *variables)


class Programs(DriverPrograms):
    """The programs of a device.

    Pipelines stay when a program is let go: those in use, and launches, may have them.

    Raises
    ------
    VulkanError
        If the driver makes no layout for them.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._session = session
        vk = session.vk
        pushed = vk.struct("VkPushConstantRange", stageFlags=_STAGE_COMPUTE, size=_PUSHED)
        self._layout = session.made("vkCreatePipelineLayout", "VkPipelineLayout", vk.struct(
            "VkPipelineLayoutCreateInfo", pushConstantRangeCount=1, pPushConstantRanges=pushed))

    def program(self, code: Loadable, built: _Built) -> VulkanProgram:
        """Return a program of pipelines."""
        return VulkanProgram(self._session, self._layout, code, built)

    def built(self, name: str, image: bytes) -> _Built:
        """Return the pipelines of an image."""
        body, header = header_of(name, image)
        session, vk = self._session, self._session.vk
        facts = session.facts
        most = min(facts["maxComputeWorkGroupInvocations"], facts["maxComputeWorkGroupSize"][0])
        for entry in header.entries:
            if entry.items > most:
                raise LaunchError(name, found=f"{entry.items:,} work-items in a group",
                                  expected=f"at most {most:,} on {session.name}")
        if header.shared + header.own > MOST_SCRATCH:
            raise AllocationError(name, found=f"{header.shared + header.own:,} bytes of scratch "
                                  "memory", expected=f"at most {MOST_SCRATCH:,}")
        verify(name, body, header.entries, facts)
        with session.driving(name, CompileError):
            return _Built(header, self._pipelines(vk, header, body))

    def _pipelines(self, vk: Any, header: Header, body: bytes) -> tuple[Any, ...]:
        """Return the pipelines of the entries, by what the disk cache has of them."""
        session = self._session
        key = fingerprint(_KIND, session.identity, body)
        held = self._sound(cache().get(_KIND, key))
        words = vk.ffi.from_buffer("uint32_t[]", body)
        module = session.made("vkCreateShaderModule", "VkShaderModule", vk.struct(
            "VkShaderModuleCreateInfo", codeSize=len(body), pCode=words))
        store = None
        try:
            given = vk.ffi.from_buffer(held)
            store = session.made("vkCreatePipelineCache", "VkPipelineCache", vk.struct(
                "VkPipelineCacheCreateInfo", initialDataSize=len(held), pInitialData=given))
            made = tuple([self._pipeline(vk, module, store, e.name) for e in header.entries])
            data = self._data(vk, store)
        finally:
            vk.lib.vkDestroyShaderModule(session.device, module, vk.null)
            if store is not None:
                vk.lib.vkDestroyPipelineCache(session.device, store, vk.null)
        if len(data) > _CACHE_HEAD.size and data != held:
            Task(lambda: cache().put(_KIND, key, data)).start()
        return made

    def _pipeline(self, vk: Any, module: Any, store: Any, entry: str) -> Any:
        session, c = self._session, vk.constants
        text = vk.ffi.new("char[]", entry.encode())
        stage = vk.struct("VkPipelineShaderStageCreateInfo", module=module, pName=text,
                          stage=_STAGE_COMPUTE)  # fmt: skip
        info = vk.struct("VkComputePipelineCreateInfo", layout=self._layout, stage=stage[0],
                         basePipelineIndex=-1)  # fmt: skip
        assert info.sType == c.VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO
        out = vk.ffi.new("VkPipeline *")
        vk.call("vkCreateComputePipelines", session.device, store, 1, info, vk.null, out)
        del text, stage  # which `info` points to
        return out[0]

    def _sound(self, data: bytes | None) -> bytes:
        """Return data for a driver's cache if they are of this driver and device, else none."""
        if data is None or len(data) < _CACHE_HEAD.size:
            return b""
        facts = self._session.facts
        size, version, vendor, device, uuid = _CACHE_HEAD.unpack_from(data)
        own = (facts["vendor"], facts["device"], facts["uuid"])
        is_sound = (size >= _CACHE_HEAD.size and version == 1
                    and (vendor, device, uuid.hex()) == own)
        return data if is_sound else b""

    def _data(self, vk: Any, store: Any) -> bytes:
        """Return what the driver's cache holds, b"" if it does not tell."""
        device = self._session.device
        size = vk.ffi.new("size_t *")
        if vk.lib.vkGetPipelineCacheData(device, store, size, vk.null) < 0 or not size[0]:
            return b""
        data = vk.ffi.new("char[]", size[0])
        if vk.lib.vkGetPipelineCacheData(device, store, size, data) != 0:
            return b""
        return bytes(vk.ffi.buffer(data, size[0]))
