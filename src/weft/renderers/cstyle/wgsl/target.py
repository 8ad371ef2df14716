"""What a device of WebGPU can do, from what its adapter says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from weft.ir import dtype as dt
from weft.renderers.cstyle.c.target import LACKING
from weft.renderers.cstyle.wgsl.memory import ORDERS
from weft.target import ASSUMED, REPORTED, SIMT, Target, native_operations

__all__ = ["ENDS_LOOPS", "POOREST", "webgpu_target"]

ENDS_LOOPS: Final = "+ends_loops"  # after some 65,000 turns in all, and says nothing
_KEPT: Final = 64  # bytes by which one item of a group tells the others a value
_ITEMS: Final = 64  # of a work-group: two warps, or a wave

# What every device of WebGPU has, and phones have no more: the limits of the standard.
POOREST: Final[Mapping[str, Any]] = {
    "name": "webgpu", "backend": "", "driver": "", "kind": "", "is_cpu": False, "units": 1,
    "memory": 1 << 30, "max_buffer": 256 << 20, "max_binding": 128 << 20, "max_storage_buffers": 8,
    "max_threads": 256, "shared_bytes": 16 << 10, "max_groups": 65_535, "alignment": 256,
    "max_turns": 0,
}  # fmt: skip


def webgpu_target(facts: Mapping[str, Any] = POOREST) -> Target:
    """Return what a device of WebGPU can do: integers of all widths, and floats of 32 and 64 bits.

    Parameters
    ----------
    facts : mapping
        What the adapter says, by the names of `POOREST`; memory in bytes.
    """
    lacking = frozenset(LACKING)
    operations = frozenset((op, d) for op, d in native_operations() if op not in lacking)
    return Target(
        name="webgpu", arch="wgsl", style=SIMT, vector_bytes=4,
        group_items=min(_ITEMS, int(facts["max_threads"])), max_items=int(facts["max_threads"]),
        shared_bytes=int(facts["shared_bytes"]) - _KEPT,
        emulated=frozenset({dt.float64.text}), orders=ORDERS, wide_atomics=(),
        halved_atomics=True, addresses=(), clocks=False, calls=False,
        features=(ENDS_LOOPS,) if facts.get("max_turns") else (),
        cores=int(facts.get("units") or 1),
        memory_bytes=int(facts.get("memory") or 0), operations=operations,
        sources=(("cores", ASSUMED), ("memory_bytes", ASSUMED), ("operations", REPORTED)),
    )  # fmt: skip
