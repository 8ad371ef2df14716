"""What a device of Vulkan can do, from what its driver says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from weft.ir import dtype as dt
from weft.target import REPORTED, SIMT, Target, native_operations

__all__ = ["FEATURES", "FUSED", "ITERATIONS", "vulkan_target"]

# Features and properties, in the names of Vulkan, that decide what kernels can be written.
FEATURES: Final = (
    "shaderInt64", "shaderFloat64", "shaderInt8", "shaderInt16", "storageBuffer8BitAccess",
    "storageBuffer16BitAccess", "shaderBufferInt64Atomics", "shaderSharedInt64Atomics",
    "shaderDenormPreserveFloat32", "shaderDenormPreserveFloat64", "shaderRoundingModeRTEFloat32",
    "shaderRoundingModeRTEFloat64", "shaderSignedZeroInfNanPreserveFloat32",
    "shaderSignedZeroInfNanPreserveFloat64",
)  # fmt: skip
_ITEMS: Final = 64  # of a work-group: two warps, or a wave
FUSED: Final = {"f32": "fusedFloat32", "f64": "fusedFloat64"}  # measured: Fma is rounded once
_WIDE_ATOMICS: Final = {"global": "shaderBufferInt64Atomics",
                        "shared": "shaderSharedInt64Atomics"}  # fmt: skip
WAITS: Final = "fencesWait"  # a fence is a barrier there, which ends loops that few items are in
ITERATIONS: Final = "loopIterations="  # turns of loops after which the driver ends them


def vulkan_target(host: Target, facts: Mapping[str, Any]) -> Target:
    """Return what a device of Vulkan can do.

    Multiply-adds are exact on all: where the device's own is not fused, they are written in
    float64 or in integers.

    Parameters
    ----------
    host : Target
        The processor of this process, whose caches a device that is a processor shares.
    facts : mapping
        What the driver says: `FEATURES`, by the names of Vulkan;
        ``maxComputeWorkGroupInvocations`` and ``maxComputeSharedMemorySize`` in bytes;
        ``fusedFloat32`` and ``fusedFloat64``; ``loopIterations`` of a driver that ends loops after
        so many turns; ``fencesWait`` of one whose fences wait for the group; ``units``; ``memory``
        in bytes.
    """
    floats = (dt.float32, dt.float64) if facts.get("shaderFloat64") else (dt.float32,)
    features = [f"+{name}" for name in (*FEATURES, *FUSED.values(), WAITS) if facts.get(name)]
    if facts.get("loopIterations"):
        features.append(f"+{ITERATIONS}{int(facts['loopIterations'])}")
    most = int(facts.get("maxComputeWorkGroupInvocations") or _ITEMS)
    return host.replace(
        style=SIMT, group_items=min(_ITEMS, most), max_items=min(host.max_items, most),
        shared_bytes=int(facts.get("maxComputeSharedMemorySize") or 0), name="vulkan",
        arch="vulkan", cpu="", features=tuple(sorted(features)), vector_bytes=4,
        operations=native_operations(floats), native_conversions=frozenset(),
        ieee_extremes=False, clocks=False, calls=False, addresses=("global", "constant"),
        wide_atomics=("local", "register", *(scope for scope, name in _WIDE_ATOMICS.items()
                                             if facts.get(name))),
        cores=int(facts.get("units") or 1),
        memory_bytes=int(facts.get("memory") or host.memory_bytes),
        sources=(("cores", REPORTED), ("memory_bytes", REPORTED), ("operations", REPORTED)),
    )  # fmt: skip
