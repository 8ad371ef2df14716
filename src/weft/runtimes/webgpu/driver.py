"""Which adapters of WebGPU there are, what they say, and what the errors of wgpu mean.

wgpu is imported when somebody asks for a device, never before. The device ``poor`` is the first
adapter with no more than the limits that every device of WebGPU has, as pages on phones find them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from weft.errors import (
    AllocationError,
    EnumerationError,
    InitializationError,
    LibraryNotFoundError,
    WeftError,
)
from weft.imports import importing

__all__ = ["INSTALL", "LEAST", "POOR", "adapters", "describe", "limits", "probe", "translated",
           "wgpu"]  # fmt: skip

INSTALL: Final = "pip install weft[webgpu]"
POOR: Final = "poor"
_NO_ADAPTER: Final = ("no adapter was found (drivers of Vulkan, Metal or Direct3D 12; on Debian: "
                      "apt-get install mesa-vulkan-drivers)")  # fmt: skip
_BACKENDS: Final = ("Vulkan", "Metal", "DX12")
_KINDS: Final = ("DiscreteGPU", "IntegratedGPU", "CPU", "Unknown")

# Facts of a device, by the limits that they are of, and what every device of WebGPU has.
LEAST: Final[Mapping[str, tuple[str, int]]] = {
    "max_buffer": ("max-buffer-size", 256 << 20),
    "max_binding": ("max-storage-buffer-binding-size", 128 << 20),
    "max_storage_buffers": ("max-storage-buffers-per-shader-stage", 8),
    "max_threads": ("max-compute-invocations-per-workgroup", 256),
    "shared_bytes": ("max-compute-workgroup-storage-size", 16 << 10),
    "max_groups": ("max-compute-workgroups-per-dimension", 65_535),
    "alignment": ("min-storage-buffer-offset-alignment", 256),
}


@cache
def wgpu() -> Any:
    """Return the module wgpu.

    Raises
    ------
    LibraryNotFoundError
        If it is not installed, or does not load.
    """
    try:
        with importing:
            import wgpu as module
            from wgpu.backends.wgpu_native import extras

            # Libraries of OpenGL write to the user's screen.
            extras.set_instance_extras(backends=list(_BACKENDS))
    except Exception as error:
        raise LibraryNotFoundError("webgpu", found=f"{type(error).__name__}: {error}",
                                   expected="the package wgpu", hint=INSTALL) from error
    return module


def adapters() -> list[tuple[str, Any]]:
    """Return name and adapter of all devices that can be used, GPUs first, ``poor`` last.

    Raises
    ------
    LibraryNotFoundError
        If wgpu is not there.
    EnumerationError
        If it fails.
    """
    module = wgpu()
    try:
        found = list(module.gpu.enumerate_adapters_sync())
    except Exception as error:
        raise EnumerationError("webgpu", found=error, expected="a list of adapters") from error
    found.sort(key=lambda a: _rank(str(a.info["adapter_type"])))
    named: list[tuple[str, Any]] = []
    for adapter in found:
        base = name = _short_name(str(adapter.info["device"]))
        number = 0
        while name in (POOR, *(n for n, _ in named)):
            number += 1
            name = f"{base}_{number}"
        named.append((name, adapter))
    return named + [(POOR, adapter) for _, adapter in named[:1]]


def _rank(kind: str) -> int:
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def _short_name(device: str) -> str:
    """Return what an adapter is called in names of devices.

    Examples
    --------
    >>> _short_name("llvmpipe (LLVM 15.0.6, 256 bits)"), _short_name("NVIDIA H200")
    ('llvmpipe', 'nvidia')
    """
    words = re.split(r"[^a-z0-9_]+", re.sub(r"\((r|tm|c)\)", "", device.lower()))
    return next((w for w in words if re.fullmatch(r"[a-z][a-z0-9_]*", w)), "other")


def limits(adapter: Any, poor: bool) -> dict[str, int]:
    """Return the limits that a device is asked for: what the adapter has, or the least of all."""
    found = {}
    for name, least in LEAST.values():
        has = int(adapter.limits[name])
        found[name] = least if poor else has
    return found


def describe(name: str, adapter: Any) -> dict[str, object]:
    """Return what is known of a device, as plain data: bytes, counts and yes or no."""
    info, asked = adapter.info, limits(adapter, name == POOR)
    is_cpu = info["adapter_type"] == "CPU"
    return {
        "name": str(info["device"]), "backend": str(info["backend_type"]),
        "driver": str(info["description"]), "kind": str(info["adapter_type"]), "is_cpu": is_cpu,
        "is_gpu": not is_cpu, "units": (os.cpu_count() or 1) if is_cpu else 1, "memory": 0,
        "poor": name == POOR, **{fact: asked[limit] for fact, (limit, _) in LEAST.items()},
    }  # fmt: skip


def probe() -> str | list[dict[str, object]]:
    """Return the devices, or why there is none; a child process calls it.

    Each has a ``name``, a ``description`` for people, and ``facts``.
    """
    try:
        found = adapters()
    except LibraryNotFoundError as error:
        cause = error.__cause__
        return ("the package wgpu is not installed" if isinstance(cause, ModuleNotFoundError)
                else f"wgpu does not load: {cause}") + f" ({INSTALL})"
    if not found:
        return _NO_ADAPTER
    answers: list[dict[str, object]] = []
    for name, adapter in found:
        facts = describe(name, adapter)
        words = f"{facts['name']}, {facts['backend']} {facts['driver']}"
        if name == POOR:
            words += ", with the least limits of WebGPU"
        answers.append({"name": name, "description": words, "facts": facts})
    return answers


def adapter_of(called: str) -> Any:
    """Return the adapter of what the probe has called so.

    Raises
    ------
    InitializationError
        If there is none in this process.
    """
    found = adapters()
    for name, adapter in found:
        if name == called:
            return adapter
    raise InitializationError("webgpu", found=f"{[name for name, _ in found]} in this process",
                              expected=f"{called}, as the probe has found")


def translated(device: str, what: str, error: Exception, otherwise: type[WeftError]) -> WeftError:
    """Return the error of Weft for what wgpu threw.

    Parameters
    ----------
    device : str
        The device.
    what : str
        What was being done.
    error : Exception
        What was thrown.
    otherwise : type
        The error to make of it unless memory is short.
    """
    if isinstance(error, WeftError):
        return error
    if type(error).__name__ == "GPUOutOfMemoryError":
        return AllocationError(what, found=f"{device} has no memory left: {error}",
                               expected="memory for what is enqueued",
                               hint="release tensors that are no longer needed")
    return otherwise(what, found=f"{type(error).__name__}: {error} on {device}",
                     expected="a driver that works",
                     hint="tensors of other devices are as they were")
