"""The devices of WebGPU, called after their adapters: ``webgpu:llvmpipe``, ``webgpu:poor``.

Kernels are WGSL, which the driver compiles when they are loaded, so the compiler takes the text as
it is. What a device can do is known from the probe, in a child process, and planning needs no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.backends.drivers import DriverCompiler, DriverFamily
from weft.backends.probing import Probe
from weft.backends.registry import Backend
from weft.imports import importing
from weft.target import Target

if TYPE_CHECKING:
    from weft.renderers.cstyle.wgsl.renderer import WGSLRenderer
    from weft.runtimes.webgpu.device import WebGPUDevice

__all__ = ["BACKEND", "facts_of"]

_FAMILY: Final = "webgpu"
_VARIABLES: Final = ("VK_ICD_FILENAMES", "VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES",
                     "CUDA_VISIBLE_DEVICES", "MESA_VK_DEVICE_SELECT", "DRI_PRIME", "DISPLAY",
                     "WAYLAND_DISPLAY", "WGPU_LIB_PATH")  # fmt: skip
_FILES: Final = (
    "/usr/share/vulkan/icd.d", "/usr/share/vulkan/icd.d/*.json", "/etc/vulkan/icd.d",
    "/etc/vulkan/icd.d/*.json", "/usr/lib/*/libvulkan.so*", "/dev/nvidia*", "/dev/dri/*",
    "/System/Library/Frameworks/Metal.framework",
)  # fmt: skip

def _device(name: str, called: str) -> WebGPUDevice:
    with importing:  # which most processes never need
        from weft.runtimes.webgpu.device import WebGPUDevice

    return WebGPUDevice(name, called)


_DEVICES: Final = DriverFamily(_FAMILY, "wgsl", _device)
facts_of: Final = _DEVICES.facts


def _target(ordinal: int, pair: str) -> Target:
    with importing:
        from weft.renderers.cstyle.wgsl.target import webgpu_target

    return webgpu_target(facts_of(ordinal))


def _renderer(target: Target, pair: str) -> WGSLRenderer:
    with importing:
        from weft.renderers.cstyle.wgsl.renderer import WGSLRenderer

    return WGSLRenderer(target)


BACKEND: Final = Backend(
    _FAMILY, ("wgsl",), None, None, _target, _renderer,
    lambda target, pair: DriverCompiler("wgsl"), _DEVICES.open,
    description="kernels in WGSL, by the package wgpu", is_asked_for=True, is_tunable=True,
    probe_in_child=Probe("weft.runtimes.webgpu.driver:probe", _FILES, _VARIABLES),
)  # fmt: skip
