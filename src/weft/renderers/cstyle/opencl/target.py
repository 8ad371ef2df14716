"""What an OpenCL device can do, from what its driver says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir.stmt import SCOPES
from weft.renderers.cstyle.c.target import LACKING
from weft.target import REPORTED, SIMT, VECTOR, Target

__all__ = ["ROUNDED", "opencl_target"]

_ITEMS: Final = 64  # of a work-group: two warps, or a wave
ROUNDED: Final = "+rounded"  # divides and takes roots of float32 with correct rounding if asked to


def opencl_target(host: Target, facts: Mapping[str, Any], threads: bool = False) -> Target:
    """Return what a device of OpenCL can do.

    Devices that are processors have the caches and vectors of the host.

    Parameters
    ----------
    host : Target
        The processor of this process.
    facts : mapping
        What the driver says: ``is_cpu``; ``double`` and ``int64_atomics`` (extensions);
        ``rounds_divide`` (float32 quotients and roots, if asked to); ``units``; ``memory`` in
        bytes. Fused multiply-adds are exact on all, by a function of the driver if need be.
    threads : bool
        Whether kernels are made for devices of threads even if the device is a processor.
    """
    left = () if facts.get("double") else (dt.float64.text,)
    operations = frozenset((op, d) for op, d in host.operations if op not in LACKING
                           and d not in left)  # fmt: skip
    features = [ROUNDED] * bool(facts.get("rounds_divide"))
    simt = threads or not facts.get("is_cpu")
    return host.replace(
        style=SIMT if simt else VECTOR,
        group_items=min(_ITEMS, int(facts.get("max_threads") or _ITEMS)),
        max_items=min(host.max_items, int(facts.get("max_threads") or host.max_items)),
        shared_bytes=int(facts.get("local_bytes") or 0),
        item_registers=host.vector_registers if facts.get("is_cpu") else 0,
        name="opencl", arch="opencl", cpu="", features=tuple(sorted(features)),
        vector_bytes=min(host.vector_bytes, 64) if facts.get("is_cpu") else 16,
        operations=operations, native_conversions=frozenset(), ieee_extremes=False,
        wide_atomics=SCOPES if facts.get("int64_atomics") else (), clocks=False, calls=False,
        cores=int(facts.get("units") or 1),
        memory_bytes=int(facts.get("memory") or host.memory_bytes),
        sources=(("cores", REPORTED), ("memory_bytes", REPORTED), ("operations", REPORTED)),
    )  # fmt: skip
