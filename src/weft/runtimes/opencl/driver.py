"""Which OpenCL devices there are, what drivers say of them, and what their errors mean.

pyopencl is imported when somebody asks for a device, never before. GPUs come before CPUs, platforms
in the order of the loader. A device is called after its driver: ``pocl``, ``intel``, and a second
one of the same driver ``intel_1``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from weft.errors import EnumerationError, LibraryNotFoundError
from weft.imports import importing
from weft.runtimes.launches.naming import absence, device_called, distinct, first_word

__all__ = ["INSTALL", "code_identity", "describe", "device_of", "devices", "probe", "pyopencl",
           "short_name", "version_of"]  # fmt: skip

INSTALL: Final = "pip install weft[opencl]"
_NO_PLATFORM: Final = ("no OpenCL driver is installed (install one, on Debian: "
                       "apt-get install pocl-opencl-icd)")  # fmt: skip
_PLATFORMS: Final = (("portable computing language", "pocl"), ("nvidia", "nvidia"),
                     ("amd", "amd"), ("intel", "intel"))  # fmt: skip
_KEEPS: Final = ("pocl", "nvidia")  # drivers with a disk cache of what they have built
# Build options of single drivers: oclgrind executes vectors of optimised code wrongly, and does not
# know what asks for cache lines.
_OPTIONS: Final = {"oclgrind": "-cl-opt-disable -DWEFT_NO_PREFETCH"}
_OLDEST: Final = (1, 2)


def pyopencl() -> Any:
    """Return the module pyopencl.

    Raises
    ------
    LibraryNotFoundError
        If it is not installed, or does not load.
    """
    try:
        with importing:
            import pyopencl as module
    except Exception as error:
        raise LibraryNotFoundError("opencl", found=f"{type(error).__name__}: {error}",
                                   expected="the package pyopencl", hint=INSTALL) from error
    return module


def devices() -> list[tuple[str, Any, Any]]:
    """Return name, platform and device of all devices that can be used, GPUs first.

    Raises
    ------
    LibraryNotFoundError
        If pyopencl is not there.
    EnumerationError
        If the loader fails.
    """
    cl = pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        if getattr(error, "code", None) == -1001:  # of the loader: no platform
            return []
        raise EnumerationError("opencl", found=error, expected="a list of platforms") from error
    kinds = (cl.device_type.GPU, cl.device_type.ACCELERATOR, cl.device_type.CPU)
    found: list[tuple[int, Any, Any]] = []
    for platform in platforms:
        try:
            present = platform.get_devices()
        except cl.Error:  # a platform without devices, or one that fails, harms no other
            continue
        for device in present:
            rank = next((i for i, kind in enumerate(kinds) if device.type & kind), None)
            if rank is not None and _serves(device):
                found.append((rank, platform, device))
    found.sort(key=lambda entry: entry[0])
    names = distinct(short_name(platform.name) for _, platform, _ in found)
    return [(name, *entry[1:]) for name, entry in zip(names, found, strict=True)]


def _serves(device: Any) -> bool:
    """Return whether a device compiles kernels of a version that is new enough."""
    try:
        return bool(device.available and device.compiler_available
                    and version_of(device.version) >= _OLDEST)
    except pyopencl().Error:  # one that fails harms no other
        return False


def version_of(text: str) -> tuple[int, int]:
    """Return the version in ``OpenCL 3.0 …``."""
    found = re.match(r"OpenCL (?:C )?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def short_name(platform: str) -> str:
    """Return what a driver is called in names of devices.

    Examples
    --------
    >>> short_name("Portable Computing Language"), short_name("Intel(R) OpenCL Graphics")
    ('pocl', 'intel')
    >>> short_name("rusticl"), short_name("3D-Labs")
    ('rusticl', 'labs')
    """
    text = re.sub(r"\((r|tm|c)\)", "", platform.lower())
    return next((name for start, name in _PLATFORMS if text.startswith(start)), first_word(text))


def describe(platform: Any, device: Any) -> dict[str, object]:
    """Return what a driver says of a device, as plain data: bytes, counts and yes or no."""
    cl = pyopencl()
    extensions = sorted(device.extensions.split())
    floats = device.single_fp_config
    flags = cl.device_fp_config
    return {
        "name": device.name.strip(), "platform": platform.name.strip(),
        "version": device.version.strip(), "driver": device.driver_version.strip(),
        "is_cpu": bool(device.type & cl.device_type.CPU),
        "is_gpu": bool(device.type & cl.device_type.GPU),
        "units": device.max_compute_units,
        "vector_bytes": 4 * max(device.native_vector_width_float, 1),
        "memory": device.global_mem_size, "max_alloc": device.max_mem_alloc_size,
        "cache_bytes": device.global_mem_cache_size, "local_bytes": device.local_mem_size,
        "line_bytes": device.global_mem_cacheline_size,
        "max_threads": device.max_work_group_size,
        "max_threads_by_axis": list(device.max_work_item_sizes),
        "address_bits": device.address_bits, "alignment": device.mem_base_addr_align // 8,
        "double": "cl_khr_fp64" in extensions, "half": "cl_khr_fp16" in extensions,
        "int64_atomics": {"cl_khr_int64_base_atomics",
                          "cl_khr_int64_extended_atomics"} <= set(extensions),
        "subgroups": any(e.startswith("cl_khr_subgroup") for e in extensions),
        "denormals": bool(floats & flags.DENORM), "fma": bool(floats & flags.FMA),
        "rounds_divide": bool(floats & flags.CORRECTLY_ROUNDED_DIVIDE_SQRT),
        "little_endian": bool(device.endian_little), "extensions": extensions,
        "keeps_builds": short_name(platform.name) in _KEEPS,
        "options": _OPTIONS.get(short_name(platform.name), ""),
    }  # fmt: skip


def probe() -> str | list[dict[str, object]]:
    """Return the devices, or why there is none; a child process calls it.

    Each has a ``name``, a ``description`` for people, and ``facts``.
    """
    try:
        found = devices()
    except LibraryNotFoundError as error:
        return absence(error, "pyopencl", INSTALL)
    if not found:
        return _NO_PLATFORM
    answers: list[dict[str, object]] = []
    for name, platform, device in found:
        facts = describe(platform, device)
        words = (f"{facts['name']}, {facts['units']} units, "
                 f"{device.global_mem_size / 2**30:.1f} GiB, "
                 f"{facts['platform']} {facts['driver']}")  # fmt: skip
        answers.append({"name": name, "description": words, "facts": facts})
    return answers


def device_of(called: str) -> tuple[Any, Any]:
    """Return platform and device of what the probe has called so.

    Raises
    ------
    InitializationError
        If there is none in this process.
    """
    platform, device = device_called("opencl", called, devices())
    return platform, device


def code_identity(facts: Mapping[str, object]) -> str:
    """Return the part of the key of compiled code that identifies driver and processor."""
    names = ("platform", "name", "version", "driver", "address_bits", "extensions")
    found = [f"{name}={facts[name]}" for name in names]
    if facts["is_cpu"]:
        found.append(_processor())
    return ";".join(found)


def _processor() -> str:
    """Return the features of the processor as Linux lists them, "" elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return next((line for line in file if line.startswith(("flags", "Features", "isa"))),
                        "")  # fmt: skip
    except OSError:
        return ""
