"""The devices of Vulkan drivers, called after them: ``vulkan:lavapipe``, ``vulkan:nvidia``.

Kernels are modules of SPIR-V, written without help of a compiler; the driver makes them its own
code when they are loaded. What a device can do is known from the probe, in a child process, and
planning needs no more.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from weft.backends import cpu
from weft.backends.drivers import DriverCompiler, DriverFamily
from weft.backends.probing import Probe
from weft.backends.registry import Backend
from weft.imports import importing
from weft.target import Target

if TYPE_CHECKING:
    from weft.renderers.spirv.renderer import SpirvRenderer
    from weft.runtimes.vulkan.device import VulkanDevice

__all__ = ["BACKEND", "facts_of"]

_FAMILY: Final = "vulkan"
# Those that name files of drivers, one or several.
_NAMING: Final = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "VK_LAYER_PATH",
                  "VK_ADD_LAYER_PATH")  # fmt: skip
_VARIABLES: Final = (*_NAMING, "VK_INSTANCE_LAYERS", "VK_LOADER_DRIVERS_SELECT",
                     "VK_LOADER_DRIVERS_DISABLE", "VK_LOADER_LAYERS_ENABLE",
                     "VK_LOADER_LAYERS_DISABLE", "MESA_VK_DEVICE_SELECT",
                     "MESA_LOADER_DRIVER_OVERRIDE",
                     "XDG_DATA_DIRS", "XDG_DATA_HOME", "XDG_CONFIG_DIRS", "XDG_CONFIG_HOME", "HOME",
                     "LP_NUM_THREADS", "DRI_PRIME", "CUDA_VISIBLE_DEVICES",
                     "NVIDIA_VISIBLE_DEVICES")  # fmt: skip
_PLACES: Final = ("/etc", "/usr/share", "/usr/local/share", "/usr/local/etc",
                  os.path.expanduser("~/.local/share"), os.path.expanduser("~/.config"))
_FILES: Final = (
    *(f"{place}/vulkan/{kind}.d{end}" for place in _PLACES
      for kind in ("icd", "implicit_layer", "explicit_layer") for end in ("", "/*.json")),
    "/usr/lib/*/libvulkan*.so*", "/usr/lib/*/libLLVM*.so*", "/usr/lib/*/libGLX_nvidia.so*",
    "/dev/nvidia*", "/dev/dri/*", "/dev/kfd",
)  # fmt: skip

def _image(source: str) -> bytes:
    with importing:  # which most processes never need
        from weft.renderers.spirv.image import image

    return image(source)


def _device(name: str, called: str) -> VulkanDevice:
    with importing:
        from weft.runtimes.vulkan.device import VulkanDevice

    return VulkanDevice(name, called)


def _files() -> tuple[str, ...]:
    """Return the files that decide which drivers there are."""
    named = [entry for variable in _NAMING
             for entry in os.environ.get(variable, "").split(os.pathsep) if entry]
    return (*_FILES, *named, *(os.path.join(entry, "*.json") for entry in named))


_DEVICES: Final = DriverFamily(_FAMILY, "spirv", _device)
facts_of: Final = _DEVICES.facts


def _target(ordinal: int, pair: str) -> Target:
    with importing:
        from weft.renderers.spirv.target import vulkan_target

    return vulkan_target(cpu.host_target(), facts_of(ordinal))


def _renderer(target: Target, pair: str) -> SpirvRenderer:
    with importing:
        from weft.renderers.spirv.renderer import SpirvRenderer

    return SpirvRenderer(target)


BACKEND: Final = Backend(
    _FAMILY, ("spirv",), None, None, _target, _renderer,
    lambda target, pair: DriverCompiler("spirv", _image), _DEVICES.open,
    description="kernels in SPIR-V, compiled by the driver", is_asked_for=True, is_tunable=True,
    probe_in_child=Probe("weft.runtimes.vulkan.driver:probe", _files(), _VARIABLES),
)  # fmt: skip
