"""What an OpenCL device can do, from what its driver says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir.op import Op
from weft.renderers.cstyle.c.target import LACKING
from weft.target import REPORTED, Target

__all__ = ["ROUNDED", "opencl_target"]

ROUNDED: Final = "+rounded"  # divides and takes roots of float32 with correct rounding if asked to


def opencl_target(host: Target, facts: Mapping[str, Any]) -> Target:
    """Return what a device of OpenCL can do.

    Devices that are processors have the caches and vectors of the host.

    Parameters
    ----------
    host : Target
        The processor of this process.
    facts : mapping
        What the driver says: ``double``, ``is_cpu``, ``fused`` (whether an instruction does fused
        multiply-adds), ``rounded`` (float32 quotients and roots), ``units``, ``memory`` (bytes).
    """
    lacking = set(LACKING)
    if not facts.get(
        "fused", facts.get("is_cpu") and Op.MAD.name in {o for o, _ in host.operations}
    ):
        lacking.add(Op.MAD.name)
    operations = frozenset((op, d) for op, d in host.operations if op not in lacking)
    if not facts.get("double"):
        operations = frozenset((op, d) for op, d in operations if d != dt.float64.text)
    vector_bytes = host.vector_bytes if facts.get("is_cpu") else 16
    return host.replace(
        name="opencl", arch="opencl", cpu="", features=(ROUNDED,) if facts.get("rounded") else (),
        vector_bytes=min(vector_bytes, 64), operations=operations, native_conversions=frozenset(),
        ieee_extremes=False, cores=int(facts.get("units") or 1),
        memory_bytes=int(facts.get("memory") or host.memory_bytes),
        sources=(("cores", REPORTED), ("memory_bytes", REPORTED), ("operations", REPORTED)),
    )  # fmt: skip
