"""The devices of OpenCL drivers, called after them: ``opencl:pocl``, ``opencl:intel``.

The pair ``threads`` makes kernels of work-items on every device, as the default does on all that
are no processors.

Kernels are OpenCL C. The driver builds them when they are loaded, so the compiler takes the text as
it is. What a device can do is known from the probe, in a child process, and planning needs no more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from weft.backends import cpu, registry
from weft.backends.names import parse
from weft.backends.probing import Probe
from weft.backends.registry import Backend
from weft.errors import DeviceError
from weft.imports import importing
from weft.locks import mutex
from weft.target import Target

if TYPE_CHECKING:
    from weft.renderers.cstyle.opencl.renderer import OpenCLRenderer
    from weft.runtimes.opencl.device import OpenCLDevice

__all__ = ["BACKEND", "facts_of"]

_FAMILY: Final = "opencl"
_VARIABLES: Final = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES", "POCL_DEVICES",
                     "POCL_MAX_PTHREAD_COUNT", "POCL_MEMORY_LIMIT", "CUDA_VISIBLE_DEVICES",
                     "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")  # fmt: skip
_FILES: Final = (
    "/etc/OpenCL/vendors", "/etc/OpenCL/vendors/*.icd", "/usr/lib/*/libOpenCL.so*",
    "/usr/lib/*/libpocl.so*", "/usr/lib/*/pocl/*.so", "/opt/intel/*", "/dev/nvidia*", "/dev/dri/*",
    "/dev/kfd",
)  # fmt: skip

THREADS: Final = "threads"

_lock = mutex()
_devices: dict[tuple[int, str], OpenCLDevice] = {}


class _Compiler:
    """Takes the text as it is: the driver builds it when it is loaded."""

    cache_key = "opencl c"

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        """Return the bytes of the text."""
        return source.encode()


def _files() -> tuple[str, ...]:
    """Return the files that decide which drivers there are."""
    named = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH")
    return (*_FILES, named, os.path.join(named, "*.icd")) if named else _FILES


def facts_of(ordinal: int) -> Mapping[str, Any]:
    """Return the properties of a device that its driver reported to the probe.

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
        from weft.renderers.cstyle.opencl.target import opencl_target

    return opencl_target(cpu.host_target(), facts_of(ordinal), pair == THREADS)


def _renderer(target: Target, pair: str) -> OpenCLRenderer:
    with importing:
        from weft.renderers.cstyle.opencl.renderer import OpenCLRenderer

    return OpenCLRenderer(target)


def _open(ordinal: int, pair: str) -> OpenCLDevice:
    with importing:
        from weft.runtimes.opencl.device import OpenCLDevice

    name = parse(_found(ordinal)[0])
    with _lock:
        if (ordinal, pair) not in _devices:
            shown = str(name.replace(pair=pair if pair == THREADS else ""))
            _devices[ordinal, pair] = OpenCLDevice(shown, name.called)
        return _devices[ordinal, pair]


BACKEND: Final = Backend(
    _FAMILY, ("c", THREADS), None, None, _target, _renderer, lambda target, pair: _Compiler(),
    _open,
    description="kernels in OpenCL C, built by the driver", is_asked_for=True,
    probe_in_child=Probe("weft.runtimes.opencl.driver:probe", _files(), _VARIABLES),
)  # fmt: skip
