"""The devices of WebGPU, called after their adapters: ``webgpu:llvmpipe``, ``webgpu:poor``.

Kernels are WGSL, which the driver compiles when they are loaded, so the compiler takes the text as
it is. What a device can do is known from the probe, in a child process, and planning needs no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from weft.backends import registry
from weft.backends.names import parse
from weft.backends.probing import Probe
from weft.backends.registry import Backend
from weft.errors import DeviceError
from weft.imports import importing
from weft.locks import mutex
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

_lock = mutex()
_devices: dict[int, WebGPUDevice] = {}


class _Compiler:
    """Takes the text as it is: the driver compiles it when it is loaded."""

    cache_key = "wgsl"

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        """Return the bytes of the text."""
        return source.encode()


def facts_of(ordinal: int) -> Mapping[str, Any]:
    """Return the properties of a device that its adapter reported to the probe.

    Raises
    ------
    DeviceError
        If the probe has found no such device.
    """
    return _found(ordinal)[1]


def _found(ordinal: int) -> tuple[str, Mapping[str, Any]]:
    """Return the name of a device, and the facts about it."""
    state = registry.probe(_FAMILY)
    for name, number, said in zip(state.devices, state.ordinals, state.described, strict=True):
        if number == ordinal:
            return name, said.get("facts", {})
    raise DeviceError("device", found=f"{_FAMILY}:{ordinal}", expected="a device that is there",
                      hint=state.reason or None)


def _target(ordinal: int, pair: str) -> Target:
    with importing:  # which most processes never need
        from weft.renderers.cstyle.wgsl.target import webgpu_target

    return webgpu_target(facts_of(ordinal))


def _renderer(target: Target, pair: str) -> WGSLRenderer:
    with importing:
        from weft.renderers.cstyle.wgsl.renderer import WGSLRenderer

    return WGSLRenderer(target)


def _open(ordinal: int, pair: str) -> WebGPUDevice:
    with importing:
        from weft.runtimes.webgpu.device import WebGPUDevice

    name, _ = _found(ordinal)
    with _lock:
        if ordinal not in _devices:
            _devices[ordinal] = WebGPUDevice(name, parse(name).called)
        return _devices[ordinal]


BACKEND: Final = Backend(
    _FAMILY, ("wgsl",), None, None, _target, _renderer, lambda target, pair: _Compiler(), _open,
    description="kernels in WGSL, by the package wgpu", is_asked_for=True,
    probe_in_child=Probe("weft.runtimes.webgpu.driver:probe", _FILES, _VARIABLES),
)  # fmt: skip
