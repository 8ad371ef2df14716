"""Which devices of Vulkan there are, and what their drivers say of them.

The package vulkan is imported when somebody asks for a device, never before. Discrete GPUs come
first, processors last. A device is called after its driver: ``lavapipe``, ``nvidia``, and a second
one of the same driver ``nvidia_1``. Kernels are given addresses of memory and events are values of
one semaphore, so a device has to have both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from weft.errors import EnumerationError, LibraryNotFoundError
from weft.locks import in_child, mutex
from weft.runtimes.launches.naming import absence, device_called, distinct, first_word
from weft.runtimes.vulkan.binding import INSTALL, Vulkan, VulkanError, vulkan

__all__ = ["FEATURES", "code_identity", "describe", "device_of", "devices", "instance", "lacking",
           "named", "probe", "short_name"]  # fmt: skip

_NO_DRIVER: Final = ("no Vulkan driver is installed (install one, on Debian: "
                     "apt-get install mesa-vulkan-drivers)")  # fmt: skip
_NO_LOADER: Final = ("the loader of Vulkan is not installed (on Debian: "
                     "apt-get install libvulkan1 mesa-vulkan-drivers)")  # fmt: skip
# VkDriverId -> what its devices are called
_DRIVERS: Final = {1: "amd", 2: "amdvlk", 3: "radv", 4: "nvidia", 5: "intel", 6: "intel",
                   7: "imagination", 8: "qualcomm", 9: "arm", 10: "swiftshader", 13: "lavapipe",
                   14: "moltenvk", 18: "turnip", 19: "v3dv", 20: "panvk", 21: "samsung",
                   22: "venus", 23: "dozen", 24: "nvk"}  # fmt: skip
_RANKS: Final = {2: 0, 1: 1, 3: 2, 4: 4}  # VkPhysicalDeviceType: discrete, integrated, virtual, CPU
_CPU: Final = 4
_COMPUTE: Final = 2  # VK_QUEUE_COMPUTE_BIT
_DEVICE_LOCAL: Final = 1
_OLDEST: Final = (1, 2)
_UNITS: Final = 16  # of a GPU whose driver does not tell
# Turns of all loops of a work-item after which a driver ends them, by its number: llvmpipe.
_ITERATIONS: Final = {13: (1 << 16) - 1}
_WAITING: Final = (13,)  # drivers for which a fence is a barrier that all of a group come to

# Struct of features -> those that kernels or this runtime use, enabled where they are.
FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    "VkPhysicalDeviceFeatures": ("shaderFloat64", "shaderInt64", "shaderInt16"),
    "VkPhysicalDeviceVulkan11Features": ("storageBuffer16BitAccess",),
    "VkPhysicalDeviceVulkan12Features": (
        "storageBuffer8BitAccess", "shaderBufferInt64Atomics", "shaderSharedInt64Atomics",
        "shaderFloat16", "shaderInt8", "scalarBlockLayout", "shaderSubgroupExtendedTypes",
        "timelineSemaphore", "bufferDeviceAddress", "vulkanMemoryModel",
        "vulkanMemoryModelDeviceScope",
    ),
}  # fmt: skip
_NEEDED: Final = ("bufferDeviceAddress", "timelineSemaphore")
_FLOATS: Final = tuple(f"shader{what}Float{bits}" for what in (
    "SignedZeroInfNanPreserve", "DenormPreserve", "DenormFlushToZero", "RoundingModeRTE",
    "RoundingModeRTZ") for bits in (16, 32, 64))  # fmt: skip

_lock = mutex()
_instance: Any = None


def instance() -> Any:
    """Return the instance of this process.

    Raises
    ------
    LibraryNotFoundError
        If the package vulkan or the loader is not there.
    EnumerationError
        If the loader fails.
    """
    global _instance
    vk = vulkan()
    with _lock:
        if _instance is None:
            c = vk.constants
            version = vk.ffi.new("uint32_t *")
            vk.call("vkEnumerateInstanceVersion", version)
            application = vk.struct("VkApplicationInfo", pApplicationName=vk.ffi.new("char[]",
                                    b"weft"), apiVersion=min(version[0], 3 << 12 | 1 << 22))
            known = {vk.text(e.extensionName) for e in vk.listed(
                "vkEnumerateInstanceExtensionProperties", "VkExtensionProperties", vk.null)}
            portable = c.VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME in known
            names = vk.array("char *", [vk.ffi.new("char[]", b"VK_KHR_portability_enumeration")])
            info = vk.struct("VkInstanceCreateInfo", pApplicationInfo=application,
                             flags=int(portable), enabledExtensionCount=int(portable),
                             ppEnabledExtensionNames=names)  # fmt: skip
            try:
                _instance = vk.made("vkCreateInstance", "VkInstance", info)
            except VulkanError as error:
                raise EnumerationError("vulkan", found=error, expected="an instance") from error
        return _instance


def _forget() -> None:
    """Leave the instance of the parent, whose threads a forked child does not have."""
    global _instance
    _instance = None


in_child(_forget)


def devices() -> list[tuple[str, Any]]:
    """Return name and handle of all devices that can be used, GPUs first.

    Raises
    ------
    LibraryNotFoundError
        If the package vulkan or the loader is not there.
    EnumerationError
        If the loader fails.
    """
    vk = vulkan()
    found = [(described, device) for described, device in _present(vk) if not lacking(described)]
    return list(zip(named([facts for facts, _ in found]), [d for _, d in found], strict=True))


def _present(vk: Vulkan) -> list[tuple[dict[str, Any], Any]]:
    """Return facts and handle of all devices, GPUs first."""
    try:
        present = vk.listed("vkEnumeratePhysicalDevices", "VkPhysicalDevice", instance())
    except EnumerationError as error:
        if "INCOMPATIBLE_DRIVER" in str(error):  # of the loader: no driver
            return []
        raise
    found = [(describe(vk, device), device) for device in present]
    return sorted(found, key=lambda entry: _RANKS.get(entry[0]["kind"], 3))


def named(found: list[dict[str, Any]]) -> list[str]:
    """Return what devices are called, from facts about them: each by a name of its own."""
    return distinct(short_name(facts["driver_id"], facts["driver"]) for facts in found)


def lacking(facts: Mapping[str, Any]) -> str:
    """Return what a device lacks that Weft needs, "" if nothing."""
    if tuple(facts["version"]) < _OLDEST:
        return "Vulkan {}.{}".format(*_OLDEST)
    if facts["family"] < 0:
        return "a queue for compute"
    return next((name for name in _NEEDED if not facts[name]), "")


def short_name(number: int, driver: str) -> str:
    """Return what a driver is called in names of devices.

    Parameters
    ----------
    number : int
        Its VkDriverId.
    driver : str
        What it calls itself.

    Examples
    --------
    >>> short_name(13, "llvmpipe"), short_name(999, "New (R) Driver 3.1"), short_name(999, "3D")
    ('lavapipe', 'new', 'other')
    """
    return _DRIVERS.get(number) or first_word(driver)


def describe(vk: Vulkan, device: Any) -> dict[str, Any]:
    """Return what a driver says of a device, as plain data: bytes, counts and yes or no.

    Features and limits have the names of Vulkan.
    """
    extensions = {vk.text(e.extensionName) for e in vk.listed(
        "vkEnumerateDeviceExtensionProperties", "VkExtensionProperties", device, vk.null)}
    basic = vk.struct("VkPhysicalDeviceProperties")
    vk.lib.vkGetPhysicalDeviceProperties(device, basic)
    version = (basic.apiVersion >> 22 & 0x7F, basic.apiVersion >> 12 & 0x3FF)
    facts: dict[str, Any] = {
        "name": vk.text(basic.deviceName).strip(), "version": list(version), "driver_id": 0,
        "driver": "", "driver_version": basic.driverVersion, "vendor": basic.vendorID,
        "device": basic.deviceID, "uuid": bytes(basic.pipelineCacheUUID).hex(),
        "kind": basic.deviceType, "is_cpu": basic.deviceType == _CPU,
        "is_gpu": 1 <= basic.deviceType <= 3, "family": -1,
    }  # fmt: skip
    limits = basic.limits
    facts |= {name: getattr(limits, name) for name in (
        "maxComputeSharedMemorySize", "maxComputeWorkGroupInvocations", "maxPushConstantsSize",
        "maxStorageBufferRange", "nonCoherentAtomSize", "timestampPeriod",
        "maxMemoryAllocationCount")}  # fmt: skip
    for name in ("maxComputeWorkGroupCount", "maxComputeWorkGroupSize"):
        facts[name] = list(getattr(limits, name))
    facts |= _memory(vk, device)
    if version < _OLDEST:
        return facts
    facts |= _features(vk, device) | _properties(vk, device, extensions, facts)
    families = vk.listed("vkGetPhysicalDeviceQueueFamilyProperties", "VkQueueFamilyProperties",
                         device)  # fmt: skip
    for number, family in enumerate(families):
        if family.queueFlags & _COMPUTE:
            facts["family"], facts["timestampValidBits"] = number, family.timestampValidBits
            break
    return facts


def _features(vk: Vulkan, device: Any) -> dict[str, bool]:
    twelve = vk.struct("VkPhysicalDeviceVulkan12Features")
    eleven = vk.struct("VkPhysicalDeviceVulkan11Features", pNext=twelve)
    asked = vk.struct("VkPhysicalDeviceFeatures2", pNext=eleven)
    vk.lib.vkGetPhysicalDeviceFeatures2(device, asked)
    structs = dict(zip(FEATURES, (asked.features, eleven, twelve), strict=True))
    return {name: bool(getattr(structs[kind], name))
            for kind, names in FEATURES.items() for name in names}  # fmt: skip


def _properties(vk: Vulkan, device: Any, extensions: set[str], facts: Mapping[str, Any]
                ) -> dict[str, Any]:  # fmt: skip
    sizes = vk.struct("VkPhysicalDeviceMaintenance3Properties")
    floats = vk.struct("VkPhysicalDeviceFloatControlsProperties", pNext=sizes)
    groups = vk.struct("VkPhysicalDeviceSubgroupProperties", pNext=floats)
    drivers = vk.struct("VkPhysicalDeviceDriverProperties", pNext=groups)
    last = drivers
    counts: dict[str, Any] = {}
    for extension, kind in (("VK_NV_shader_sm_builtins",
                             "VkPhysicalDeviceShaderSMBuiltinsPropertiesNV"),
                            ("VK_AMD_shader_core_properties",
                             "VkPhysicalDeviceShaderCorePropertiesAMD")):  # fmt: skip
        if extension in extensions:
            counts[extension] = last = vk.struct(kind, pNext=last)
    asked = vk.struct("VkPhysicalDeviceProperties2", pNext=last)
    vk.lib.vkGetPhysicalDeviceProperties2(device, asked)
    units = _UNITS
    if facts["is_cpu"]:
        units = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (
            os.cpu_count() or 1)  # fmt: skip
    for found in counts.values():
        units = getattr(found, "shaderSMCount", 0) or (
            found.shaderEngineCount * found.shaderArraysPerEngineCount
            * found.computeUnitsPerShaderArray)  # fmt: skip
    return {
        "driver_id": drivers.driverID, "loopIterations": _ITERATIONS.get(drivers.driverID, 0),
        "driver": f"{vk.text(drivers.driverName)} {vk.text(drivers.driverInfo)}".strip(),
        "subgroupSize": groups.subgroupSize, "units": units,
        "fencesWait": drivers.driverID in _WAITING,
        "maxMemoryAllocationSize": sizes.maxMemoryAllocationSize,
        **{name: bool(getattr(floats, name)) for name in _FLOATS},
    }  # fmt: skip


def _memory(vk: Vulkan, device: Any) -> dict[str, Any]:
    found = vk.struct("VkPhysicalDeviceMemoryProperties")
    vk.lib.vkGetPhysicalDeviceMemoryProperties(device, found)
    heaps = [found.memoryHeaps[k] for k in range(found.memoryHeapCount)]
    types = [found.memoryTypes[k] for k in range(found.memoryTypeCount)]
    own = [heap.size for heap in heaps if heap.flags & _DEVICE_LOCAL]
    return {"heaps": [[heap.size, heap.flags] for heap in heaps],
            "types": [[kind.propertyFlags, kind.heapIndex] for kind in types],
            "memory": max(own or [heap.size for heap in heaps])}  # fmt: skip


def probe() -> str | list[dict[str, object]]:
    """Return the devices, or why there is none; a child process calls it.

    Each has a ``name``, a ``description`` for people, and ``facts``.
    """
    try:
        vk = vulkan()
        present = _present(vk)
    except LibraryNotFoundError as error:
        return _NO_LOADER if isinstance(error.__cause__, OSError) else absence(
            error, "vulkan", INSTALL)  # fmt: skip
    if not present:
        return _NO_DRIVER
    wanting = [f"{facts['name']} lacks {lacking(facts)}" for facts, _ in present
               if lacking(facts)]  # fmt: skip
    found = [facts for facts, _ in present if not lacking(facts)]
    if not found:
        return "; ".join(wanting)
    answers: list[dict[str, object]] = []
    for name, facts in zip(named(found), found, strict=True):
        units = f"{facts['units']} units, " if facts["units"] != _UNITS or facts["is_cpu"] else ""
        words = (f"{facts['name']}, {units}{facts['memory'] / 2**30:.1f} GiB, {facts['driver']}, "
                 f"Vulkan {facts['version'][0]}.{facts['version'][1]}")  # fmt: skip
        answers.append({"name": name, "description": words, "facts": facts})
    return answers


def device_of(called: str) -> tuple[Any, dict[str, Any]]:
    """Return handle of and facts about what the probe has called so.

    Raises
    ------
    InitializationError
        If there is none in this process.
    """
    (device,) = device_called("vulkan", called, devices())
    return device, describe(vulkan(), device)


def code_identity(facts: Mapping[str, Any]) -> str:
    """Return the part of the key of compiled code that identifies driver and device."""
    names = ("name", "driver_id", "driver", "driver_version", "vendor", "device", "uuid", "version")
    return ";".join(f"{name}={facts[name]}" for name in names)
