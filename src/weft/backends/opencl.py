"""The devices of OpenCL drivers, called after them: ``opencl:pocl``, ``opencl:intel``.

The pair ``threads`` makes kernels of work-items on every device, as the default does on all that
are no processors.

Kernels are OpenCL C. The driver builds them when they are loaded, so the compiler takes the text as
it is. What a device can do is known from the probe, in a child process, and planning needs no more.
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

def _device(name: str, called: str) -> OpenCLDevice:
    with importing:  # which most processes never need
        from weft.runtimes.opencl.device import OpenCLDevice

    return OpenCLDevice(name, called)


def _files() -> tuple[str, ...]:
    """Return the files that decide which drivers there are."""
    named = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH")
    return (*_FILES, named, os.path.join(named, "*.icd")) if named else _FILES


_DEVICES: Final = DriverFamily(_FAMILY, "c", _device)
facts_of: Final = _DEVICES.facts


def _target(ordinal: int, pair: str) -> Target:
    with importing:
        from weft.renderers.cstyle.opencl.target import opencl_target

    return opencl_target(cpu.host_target(), facts_of(ordinal), pair == THREADS)


def _renderer(target: Target, pair: str) -> OpenCLRenderer:
    with importing:
        from weft.renderers.cstyle.opencl.renderer import OpenCLRenderer

    return OpenCLRenderer(target)


BACKEND: Final = Backend(
    _FAMILY, ("c", THREADS), None, None, _target, _renderer,
    lambda target, pair: DriverCompiler("opencl c"), _DEVICES.open,
    description="kernels in OpenCL C, built by the driver", is_asked_for=True, is_tunable=True,
    probe_in_child=Probe("weft.runtimes.opencl.driver:probe", _files(), _VARIABLES),
)  # fmt: skip
